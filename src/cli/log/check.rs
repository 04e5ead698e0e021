//! The checks of one segment with its indexes, and of the small files.

use std::fs;
use std::path::Path;

use super::Stop;
use super::files::LogFile;
use super::segment::{Ending, Next, SegmentReader};
use crate::ids::{FilePos, LeaderEpoch, Offset};
use crate::kafka::batch::BatchView;
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{SegmentBounds, check_offset_index, check_time_index, offset_entries, time_entries};
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
    /// First offset and the one after the last, of a log.
    pub offsets: Option<(Offset, Offset)>,
    pub note: String,
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

    /// How many faults were found but not named.
    pub fn unnamed(&self) -> usize {
        self.faults - self.damage.len()
    }
}

/// Checks a segment and the indexes that lie beside it, in one pass over the log. The log comes first.
pub(super) fn segment(log: &LogFile, base: Offset) -> Result<Vec<Checked>, Stop> {
    let mut reader = SegmentReader::open(&log.path).map_err(|error| Stop::unreadable(&log.path, &error))?;
    let mut indexes = Indexes::open(&log.path, base, reader.len());
    let mut walk = LogWalk::new(Checked::new(&log.name(), "log", reader.len()), base);
    loop {
        match reader.next().map_err(|error| Stop::unreadable(&log.path, &error))? {
            Next::Batch(at, batch) => {
                walk.on_batch(at, &batch);
                indexes.on_batch(at, &batch);
            }
            Next::End(ending) => {
                let at = reader.at();
                walk.on_end(at, ending);
                indexes.on_end();
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
}

impl LogWalk {
    fn new(checked: Checked, base: Offset) -> LogWalk {
        LogWalk { checked, next: base, epoch: LeaderEpoch(-1), gaps: 0 }
    }

    fn on_batch(&mut self, at: u64, batch: &BatchView<'_>) {
        let (base, epoch) = (batch.base_offset(), batch.leader_epoch());
        self.checked.items += 1;
        self.checked.records += u64::try_from(batch.header().record_count.get()).unwrap_or(0);
        if let Err(fault) = batch.check_stored() {
            return self.checked.fault(at, fault.to_string());
        }
        if base < self.next {
            self.checked.fault(at, format!("base offset {base} after {}", self.next.0 - 1));
        }
        if epoch < self.epoch {
            self.checked.fault(at, format!("leader epoch {epoch} after {}", self.epoch));
        }
        self.gaps += u64::from(self.next < base);
        self.epoch = epoch;
        self.next = batch.next_offset();
        let first = self.checked.offsets.map_or(base, |(first, _)| first);
        self.checked.offsets = Some((first, self.next));
    }

    fn on_end(&mut self, at: u64, ending: Ending) {
        let left = self.checked.bytes - at;
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
    fn open(log: &Path, base: Offset, len: u64) -> Indexes {
        let bounds = SegmentBounds { base, end: Offset(i64::MAX), len };
        Indexes { offsets: OffsetWalk::open(log, bounds), times: TimeWalk::open(log, bounds) }
    }

    fn on_batch(&mut self, at: u64, batch: &BatchView<'_>) {
        if let Some(walk) = &mut self.offsets {
            walk.on_batch(at, batch);
        }
        if let Some(walk) = &mut self.times {
            walk.on_batch(batch);
        }
    }

    fn on_end(&mut self) {
        if let Some(walk) = &mut self.offsets {
            walk.on_end();
        }
        if let Some(walk) = &mut self.times {
            walk.on_end();
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

struct OffsetWalk {
    checked: Checked,
    entries: Vec<(Offset, FilePos)>,
    next: usize,
}

impl OffsetWalk {
    fn open(log: &Path, bounds: SegmentBounds) -> Option<OffsetWalk> {
        let (name, bytes) = beside(log, "index")?;
        let mut walk = OffsetWalk { checked: Checked::new(&name, "index", 0), entries: Vec::new(), next: 0 };
        match bytes {
            Err(error) => walk.checked.fault(0, format!("cannot be read: {error}")),
            Ok(bytes) => {
                walk.checked.bytes = bytes.len() as u64;
                match check_offset_index(&bytes, bounds) {
                    Ok(valid) => walk.entries = offset_entries(valid, bounds.base).collect(),
                    Err(fault) => walk.checked.fault(0, fault.to_string()),
                }
            }
        }
        walk.checked.items = walk.entries.len() as u64;
        Some(walk)
    }

    fn on_batch(&mut self, at: u64, batch: &BatchView<'_>) {
        while let Some(&(offset, position)) = self.entries.get(self.next).filter(|(_, position)| position.0 <= at) {
            if position.0 < at {
                self.fault(format!("position {position}, where no batch begins"));
            } else if offset != batch.last_offset() {
                self.fault(format!("offset {offset} for the batch at {at}, which ends at {}", batch.last_offset()));
            }
            self.next += 1;
        }
    }

    fn on_end(&mut self) {
        for (_, position) in self.entries.split_off(self.next) {
            self.fault(format!("position {position}, behind the last batch"));
            self.next += 1;
        }
    }

    fn fault(&mut self, reason: String) {
        self.checked.fault(self.next as u64 * 8, format!("entry {}: {reason}", self.next));
    }
}

struct TimeWalk {
    checked: Checked,
    entries: Vec<(i64, Offset)>,
    next: usize,
}

impl TimeWalk {
    fn open(log: &Path, bounds: SegmentBounds) -> Option<TimeWalk> {
        let (name, bytes) = beside(log, "timeindex")?;
        let mut walk = TimeWalk { checked: Checked::new(&name, "timeindex", 0), entries: Vec::new(), next: 0 };
        match bytes {
            Err(error) => walk.checked.fault(0, format!("cannot be read: {error}")),
            Ok(bytes) => {
                walk.checked.bytes = bytes.len() as u64;
                // A preallocated file without an entry looks like one of a record at timestamp 0.
                let blank = bytes.len() > 12 && bytes.iter().all(|&byte| byte == 0);
                match check_time_index(if blank { &[] } else { &bytes }, bounds) {
                    Ok(valid) => walk.entries = time_entries(valid, bounds.base).collect(),
                    Err(fault) => walk.checked.fault(0, fault.to_string()),
                }
            }
        }
        walk.checked.items = walk.entries.len() as u64;
        Some(walk)
    }

    fn on_batch(&mut self, batch: &BatchView<'_>) {
        let last = batch.last_offset();
        while let Some(&(timestamp, offset)) = self.entries.get(self.next).filter(|(_, offset)| *offset <= last) {
            if offset < batch.base_offset() {
                self.fault(format!("offset {offset}, which no batch holds"));
            } else if timestamp != batch.max_timestamp() {
                let found = batch.max_timestamp();
                self.fault(format!("timestamp {timestamp} at offset {offset}, whose batch has {found}"));
            }
            self.next += 1;
        }
    }

    fn on_end(&mut self) {
        for (_, offset) in self.entries.split_off(self.next) {
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
