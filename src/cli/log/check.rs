//! The checks of one segment with its indexes, and of the small files.

use std::fs;
use std::path::Path;

use super::Stop;
use super::files::LogFile;
use super::segment::{Ending, Next, SegmentReader, StoredBatch};
use crate::ids::{FilePos, LeaderEpoch, Offset};
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{
    IndexFault, SegmentBounds, check_offset_index, check_time_index, offset_entries, time_entries,
};
use crate::log::{checkpoint, producer_snapshot, text_files};

/// Faults of one file that are named; more are only counted.
const FAULTS_NAMED_MAX: usize = 10;

/// What was found out about one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    pub file: String,
    pub kind: &'static str,
    pub bytes: u64,
    /// Batches, or entries.
    pub items: u64,
    pub records: u64,
    /// The offset that its name says, of a log.
    pub base: Offset,
    /// First offset and the one after the last, of a log.
    pub offsets: Option<(Offset, Offset)>,
    pub note: String,
    /// The first place where offsets are missing: compaction leaves such gaps, in other logs they are a loss.
    pub gap: Option<Damage>,
    pub damage: Vec<Damage>,
    faults: usize,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// Position in the file.
    pub at: u64,
    pub reason: String,
}

impl Checked {
    pub fn new(file: &str, kind: &'static str, bytes: u64) -> Checked {
        Checked { file: file.to_owned(), kind, bytes, ..Checked::default() }
    }

    pub fn fault(&mut self, at: u64, reason: impl Into<String>) {
        self.faults += 1;
        if self.faults <= FAULTS_NAMED_MAX {
            self.damage.push(Damage { at, reason: reason.into() });
        }
    }

    /// The segment begins at `base`, the one before it ends at `end`.
    pub fn follow(&mut self, end: Option<Offset>, base: Offset) {
        let Some(end) = end else { return };
        if base < end {
            self.fault(0, format!("begins at {base}, the segment before it ends at {end}"));
        } else if end < base {
            let reason = format!("offsets {end} to {} are missing before this segment", base.0 - 1);
            self.gap = Some(Damage { at: 0, reason });
        }
    }

    /// The offset after the last one of a log.
    pub fn end(&self) -> Offset {
        self.offsets.map_or(self.base, |(_, end)| end)
    }

    /// How many faults were found but not named.
    pub fn unnamed(&self) -> usize {
        self.faults - self.damage.len()
    }
}

/// Checks a segment and the indexes that lie beside it, in one pass over the log. The log comes first.
pub(super) fn segment(log: &LogFile, base: Offset) -> Result<Vec<Checked>, Stop> {
    let mut reader = SegmentReader::open(&log.path).map_err(|error| Stop::unreadable(&log.path, &error))?;
    let mut indexes = Indexes::open(&log.path, base);
    let mut walk = LogWalk::new(Checked::new(&log.name(), "log", reader.len()), base);
    loop {
        match reader.next().map_err(|error| Stop::unreadable(&log.path, &error))? {
            Next::Batch(batch) => {
                walk.on_batch(&batch);
                indexes.on_batch(&batch);
            }
            Next::End(ending) => {
                walk.on_end((reader.at(), reader.len()), ending);
                // Entries may be written before their batches are, and a crash may come in between.
                indexes.on_end(ending == Ending::Zeros || reader.is_live());
                break;
            }
        }
    }
    let mut checked = vec![walk.checked];
    checked.extend(indexes.offsets.map(|walk| walk.checked));
    checked.extend(indexes.times.map(|walk| walk.checked));
    Ok(checked)
}

struct LogWalk {
    checked: Checked,
    next: Offset,
    epoch: LeaderEpoch,
    gaps: u64,
    /// A damaged batch was just passed: its offsets are not known.
    unsure: bool,
}

impl LogWalk {
    fn new(checked: Checked, base: Offset) -> LogWalk {
        LogWalk { checked: Checked { base, ..checked }, next: base, epoch: LeaderEpoch(-1), gaps: 0, unsure: false }
    }

    fn on_batch(&mut self, &StoredBatch { at, ref batch, fault }: &StoredBatch<'_>) {
        let (base, epoch) = (batch.base_offset(), batch.leader_epoch());
        self.checked.items += 1;
        self.checked.records += u64::try_from(batch.header().record_count.get()).unwrap_or(0);
        if let Some(fault) = fault {
            self.unsure = true;
            return self.checked.fault(at, fault.to_string());
        }
        let unsure = std::mem::take(&mut self.unsure);
        if base < self.next {
            self.checked.fault(at, format!("base offset {base} after {}", self.next.0 - 1));
        }
        if epoch < self.epoch {
            self.checked.fault(at, format!("leader epoch {epoch} after {}", self.epoch));
        }
        if self.next < base && !unsure {
            self.gaps += 1;
            let reason = format!("offsets {} to {} are missing", self.next, base.0 - 1);
            self.checked.gap.get_or_insert(Damage { at, reason });
        }
        self.epoch = epoch;
        self.next = batch.next_offset();
        let first = self.checked.offsets.map_or(base, |(first, _)| first);
        self.checked.offsets = Some((first, self.next));
    }

    fn on_end(&mut self, (at, len): (u64, u64), ending: Ending) {
        let left = len - at;
        self.checked.bytes = len;
        let mut notes = Vec::new();
        match ending {
            Ending::File => {}
            Ending::Zeros => notes.push(format!("{left} zeros at the end")),
            Ending::Stale(stale) => self.checked.fault(stale, format!("bytes behind the zeros that begin at {at}")),
            Ending::Invalid(fault) => self.checked.fault(at, format!("{left} invalid bytes at the end: {fault}")),
        }
        if self.gaps > 0 {
            notes.push(format!("{} gaps between offsets", self.gaps));
        }
        self.checked.note = notes.join(", ");
    }
}

/// The two indexes of a segment, each walked along with the log.
struct Indexes {
    offsets: Option<OffsetWalk>,
    times: Option<TimeWalk>,
}

impl Indexes {
    /// What lies behind the last batch is found out when that has been read.
    fn open(log: &Path, base: Offset) -> Indexes {
        let bounds = SegmentBounds { base, end: Offset(i64::MAX), len: u64::MAX };
        Indexes { offsets: OffsetWalk::open(log, bounds), times: TimeWalk::open(log, bounds) }
    }

    fn on_batch(&mut self, batch: &StoredBatch<'_>) {
        if let Some(walk) = &mut self.offsets {
            walk.on_batch(batch);
        }
        if let Some(walk) = &mut self.times {
            walk.on_batch(batch);
        }
    }

    fn on_end(&mut self, ahead: bool) {
        if let Some(walk) = &mut self.offsets {
            walk.on_end(ahead);
        }
        if let Some(walk) = &mut self.times {
            walk.on_end(ahead);
        }
    }
}

/// Reads an index file beside a log; `None` when there is none.
fn beside(log: &Path, extension: &str) -> Option<(String, std::io::Result<Vec<u8>>)> {
    let path = log.with_extension(extension);
    let bytes = fs::read(&path);
    let missing = bytes.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    (!missing).then(|| (super::files::file_name(&path), bytes))
}

/// Where in an index of such entries a fault lies.
fn place_of(fault: IndexFault, entry_bytes: u64) -> u64 {
    match fault {
        IndexFault::Length(_) => 0,
        IndexFault::Order(entry) | IndexFault::Range(entry) => entry as u64 * entry_bytes,
    }
}

/// An entry says where a batch begins and at which offset it ends. A Kafka follower that appends several batches at once
/// writes one entry: the position of the first and the end of the last.
struct OffsetWalk {
    checked: Checked,
    entries: Vec<(Offset, FilePos)>,
    next: usize,
    /// An entry whose offset lies behind the batch at its position.
    open: Option<(usize, Offset)>,
}

impl OffsetWalk {
    fn open(log: &Path, bounds: SegmentBounds) -> Option<OffsetWalk> {
        let (name, bytes) = beside(log, "index")?;
        let mut walk =
            OffsetWalk { checked: Checked::new(&name, "index", 0), entries: Vec::new(), next: 0, open: None };
        match bytes {
            Err(error) => walk.checked.fault(0, format!("cannot be read: {error}")),
            Ok(bytes) => {
                walk.checked.bytes = bytes.len() as u64;
                match check_offset_index(&bytes, bounds) {
                    Ok(valid) => walk.entries = offset_entries(valid, bounds.base).collect(),
                    Err(fault) => walk.checked.fault(place_of(fault, 8), fault.to_string()),
                }
            }
        }
        walk.checked.items = walk.entries.len() as u64;
        Some(walk)
    }

    fn on_batch(&mut self, &StoredBatch { at, ref batch, fault }: &StoredBatch<'_>) {
        let last = batch.last_offset();
        while let Some(&(offset, position)) = self.entries.get(self.next).filter(|(_, position)| position.0 <= at) {
            self.close_open(None);
            if position.0 < at {
                self.fault(self.next, format!("position {position}, where no batch begins"));
            } else if fault.is_none() && offset < last {
                self.fault(self.next, format!("offset {offset} for the batch at {at}, which ends at {last}"));
            } else if fault.is_none() {
                self.open = Some((self.next, offset));
            }
            self.next += 1;
        }
        if self.open.is_some_and(|(_, offset)| fault.is_none() && offset <= last) {
            self.close_open(Some(last));
        }
    }

    fn on_end(&mut self, ahead: bool) {
        self.close_open(None);
        let behind = self.entries.split_off(self.next);
        for (_, position) in behind.into_iter().filter(|_| !ahead) {
            self.fault(self.next, format!("position {position}, behind the last batch"));
            self.next += 1;
        }
    }

    /// The batches that an entry stands for end at `end`; `None` when they ended before its offset.
    fn close_open(&mut self, end: Option<Offset>) {
        if let Some((entry, offset)) = self.open.take().filter(|(_, offset)| end != Some(*offset)) {
            self.fault(entry, format!("offset {offset}, where no batch ends"));
        }
    }

    fn fault(&mut self, entry: usize, reason: String) {
        self.checked.fault(entry as u64 * 8, format!("entry {entry}: {reason}"));
    }
}

struct TimeWalk {
    checked: Checked,
    entries: Vec<(i64, Offset)>,
    next: usize,
    /// A damaged batch was just passed: what belongs to it cannot be told.
    unsure: bool,
}

impl TimeWalk {
    fn open(log: &Path, bounds: SegmentBounds) -> Option<TimeWalk> {
        let (name, bytes) = beside(log, "timeindex")?;
        let mut walk =
            TimeWalk { checked: Checked::new(&name, "timeindex", 0), entries: Vec::new(), next: 0, unsure: false };
        match bytes {
            Err(error) => walk.checked.fault(0, format!("cannot be read: {error}")),
            Ok(bytes) => {
                walk.checked.bytes = bytes.len() as u64;
                // A preallocated file without an entry looks like one of a record at timestamp 0.
                let blank = bytes.len() > 12 && bytes.iter().all(|&byte| byte == 0);
                match check_time_index(if blank { &[] } else { &bytes }, bounds) {
                    Ok(valid) => walk.entries = time_entries(valid, bounds.base).collect(),
                    Err(fault) => walk.checked.fault(place_of(fault, 12), fault.to_string()),
                }
            }
        }
        walk.checked.items = walk.entries.len() as u64;
        Some(walk)
    }

    fn on_batch(&mut self, StoredBatch { batch, fault, .. }: &StoredBatch<'_>) {
        if fault.is_some() {
            self.unsure = true;
            return;
        }
        let (base, last) = (batch.base_offset(), batch.last_offset());
        while let Some(&(timestamp, offset)) = self.entries.get(self.next).filter(|(_, offset)| *offset <= last) {
            if offset < base && !self.unsure {
                self.fault(format!("offset {offset}, which no batch holds"));
            } else if base <= offset && timestamp != batch.max_timestamp() {
                let found = batch.max_timestamp();
                self.fault(format!("timestamp {timestamp} at offset {offset}, whose batch has {found}"));
            }
            self.next += 1;
        }
        self.unsure = false;
    }

    fn on_end(&mut self, ahead: bool) {
        let behind = self.entries.split_off(self.next);
        let excused = ahead || self.unsure;
        for (_, offset) in behind.into_iter().filter(|_| !excused) {
            self.fault(format!("offset {offset}, behind the last batch"));
            self.next += 1;
        }
    }

    fn fault(&mut self, reason: String) {
        self.checked.fault(self.next as u64 * 12, format!("entry {}: {reason}", self.next));
    }
}

/// Checks a producer snapshot.
pub(super) fn snapshot(file: &LogFile, at: Offset) -> Result<Checked, Stop> {
    small(file, "snapshot", |bytes| {
        producer_snapshot::decode(bytes, at).map(|producers| producers.len()).map_err(|fault| fault.to_string())
    })
}

/// Checks leader-epoch-checkpoint.
pub(super) fn epochs(file: &LogFile) -> Result<Checked, Stop> {
    small(file, "epochs", |bytes| {
        LeaderEpochs::decode(bytes).map(|epochs| epochs.entries().len()).map_err(|fault| fault.to_string())
    })
}

/// Checks partition.metadata.
pub(super) fn metadata(file: &LogFile) -> Result<Checked, Stop> {
    text(file, "metadata", |text| text_files::parse_partition_metadata(text).map(|_| 1))
}

/// Checks one of Kafka's offset checkpoints.
pub(super) fn offsets(file: &LogFile) -> Result<Checked, Stop> {
    text(file, "offsets", |text| text_files::parse_offsets(text).map(|offsets| offsets.len()))
}

/// Checks a core's checkpoint.
pub(super) fn checkpoint(file: &LogFile) -> Result<Checked, Stop> {
    small(file, "checkpoint", |bytes| match checkpoint::newest(bytes) {
        Ok(Some(slot)) => Ok(slot.entries.len()),
        Ok(None) if bytes.is_empty() => Ok(0),
        Ok(None) => Err("no valid slot".to_owned()),
        Err(refused) => Err(refused.to_string()),
    })
}

fn text(
    file: &LogFile,
    kind: &'static str,
    parse: impl FnOnce(&str) -> Result<usize, text_files::TextFault>,
) -> Result<Checked, Stop> {
    small(file, kind, |bytes| match std::str::from_utf8(bytes) {
        Ok(text) => parse(text).map_err(|fault| fault.to_string()),
        Err(error) => Err(error.to_string()),
    })
}

fn small(
    file: &LogFile,
    kind: &'static str,
    entries: impl FnOnce(&[u8]) -> Result<usize, String>,
) -> Result<Checked, Stop> {
    let bytes = file.read()?;
    let mut checked = Checked::new(&file.name(), kind, bytes.len() as u64);
    match entries(&bytes) {
        Ok(count) => checked.items = count as u64,
        Err(reason) => checked.fault(0, reason),
    }
    Ok(checked)
}
