//! How far each partition had come: the checkpoint that a recovery starts from, one file per core and data directory.
//!
//! A file holds slots, each the state of every partition of one core in one directory. The newest slot is never
//! overwritten: the next one goes in front of it where it fits, else behind it. So two places alternate, a torn write
//! costs one second of progress, and a core whose partitions become many gets larger slots without a new file. Slots
//! start at block boundaries and describe themselves; a reader looks at every block and takes the highest sequence.
//! Nothing is synced: an older slot only makes a recovery read more.

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::byteorder::big_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{BrokerEpoch, CoreId, FilePos, Offset, PartitionId, PartitionIndex, TopicId};
use crate::limits::BLOCK;

/// The format that is written. A reader refuses newer ones.
pub const VERSION: u16 = 1;

/// What is remembered of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which partition.
    pub partition: PartitionId,
    /// Everything below is on the device by the flush mode.
    pub stable: Offset,
    /// Base offset of the segment in which `stable` lies.
    pub segment: Offset,
    /// Where in that segment's file the batches below `stable` end.
    pub at: FilePos,
    /// High watermark.
    pub high_watermark: Offset,
    /// First offset that is kept.
    pub log_start: Offset,
    /// First batch of an idempotent producer that no durable snapshot covers; recovery reads the log from there on.
    /// `None`: the newest snapshot says it all, or there is nothing to say.
    pub producers_from: Option<Offset>,
}

/// One slot, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Where it lies in the file.
    pub place: Range<u64>,
    /// The core that wrote it.
    pub core: CoreId,
    /// Counts the slots of a data directory; a restart goes on above the highest of all its files.
    pub sequence: u64,
    /// Incarnation of the broker that wrote it.
    pub broker_epoch: BrokerEpoch,
    /// The partitions.
    pub entries: Vec<Entry>,
}

/// Why a checkpoint file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It was written by a newer Pinion.
    #[error("checkpoint format {version}, this Pinion reads up to {VERSION}")]
    NewerFormat {
        /// Format of the slot.
        version: u16,
    },
}

/// The newest valid slot of a file; `None` when it holds none. Reads the whole file once.
///
/// # Errors
/// A valid slot of a newer format.
pub fn newest(file: &[u8]) -> Result<Option<Slot>, Refused> {
    let mut newest: Option<Slot> = None;
    for at in (0..file.len()).step_by(BLOCK as usize) {
        if let Some(slot) = decode_at(file, at)?
            && newest.as_ref().is_none_or(|n| n.sequence < slot.sequence)
        {
            newest = Some(slot);
        }
    }
    Ok(newest)
}

/// Bytes that a checkpoint file of this many partitions occupies at most, for the reserve of a full disk.
pub fn file_bytes(partitions: usize) -> u64 {
    let slot = slot_bytes(partitions);
    // A slot that no longer fits in front of the newest one goes behind it, and that one may begin at up to one length.
    behind(2 * slot) + slot
}

/// What all files of a data directory say together: per partition the entry of the newest slot that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The partitions.
    pub entries: BTreeMap<PartitionId, Entry>,
    /// Highest sequence of all slots; writers go on above it.
    pub sequence: u64,
    /// Incarnation that wrote the newest slot.
    pub broker_epoch: Option<BrokerEpoch>,
}

impl Checkpoint {
    /// Merges the newest slots of the files of one directory, in any order.
    pub fn merge(mut slots: Vec<Slot>) -> Checkpoint {
        slots.sort_by_key(|slot| (slot.sequence, slot.core));
        let mut merged = Checkpoint::default();
        for slot in slots {
            merged.sequence = slot.sequence;
            merged.broker_epoch = Some(slot.broker_epoch);
            merged.entries.extend(slot.entries.into_iter().map(|entry| (entry.partition, entry)));
        }
        merged
    }
}

/// Encodes the slots of one core in one data directory and decides where each goes.
#[derive(Clone, Debug)]
pub struct SlotWriter {
    core: CoreId,
    sequence: u64,
    newest: Range<u64>,
    in_flight: Option<Range<u64>>,
}

impl SlotWriter {
    /// A writer that goes on above `sequence` and spares the newest slot of its file, if there is one.
    pub fn new(core: CoreId, sequence: u64, newest: Option<&Slot>) -> SlotWriter {
        let newest = newest.map_or(0..0, |slot| slot.place.clone());
        SlotWriter { core, sequence, newest, in_flight: None }
    }

    /// Encodes the next slot into `out`, which is cleared first, and returns where it goes. O(partitions).
    ///
    /// # Panics
    /// While an earlier slot is still being written: two could overwrite both valid ones.
    pub fn encode(&mut self, epoch: BrokerEpoch, entries: impl Iterator<Item = Entry>, out: &mut Vec<u8>) -> FilePos {
        assert!(self.in_flight.is_none(), "slot {} is being written at {:?}", self.sequence, self.in_flight);
        self.sequence += 1;
        encode_slot(self.core, self.sequence, epoch, entries, out);
        let len = out.len() as u64;
        let at = if self.newest.is_empty() || len <= self.newest.start { 0 } else { behind(self.newest.end) };
        assert!(at + len <= self.newest.start || self.newest.end <= at, "slot at {at}+{len} hits {:?}", self.newest);
        self.in_flight = Some(at..at + len);
        FilePos(at)
    }

    /// The slot of the last [`SlotWriter::encode`] was written, or was not: then its place is used again.
    ///
    /// # Panics
    /// When none was being written.
    pub fn on_written(&mut self, written: bool) {
        let place = self.in_flight.take().expect("a slot is being written");
        if written {
            self.newest = place;
        }
    }
}

const MAGIC: [u8; 6] = *b"PNCKPT";

/// What a slot begins with. Magic, version, length and CRC keep their places in every version.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SlotHeader {
    magic: [u8; 6],
    version: U16,
    /// Bytes of the slot, this header included.
    length: U64,
    /// CRC-32C of the slot without these four bytes.
    crc: U32,
    core: U16,
    zero: U16,
    sequence: U64,
    broker_epoch: I64,
}

/// One partition in a slot.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    topic: [u8; 16],
    index: I32,
    zero: U32,
    stable: I64,
    segment: I64,
    at: U64,
    high_watermark: I64,
    log_start: I64,
    /// −1 for none.
    producers_from: I64,
}

const HEADER_BYTES: usize = size_of::<SlotHeader>();
const ENTRY_BYTES: usize = size_of::<RawEntry>();
const CRC_AT: usize = 16;
const _: () = assert!(HEADER_BYTES == 40 && ENTRY_BYTES == 72);

fn slot_bytes(partitions: usize) -> u64 {
    (HEADER_BYTES + partitions * ENTRY_BYTES) as u64
}

/// The place behind a slot that ends at `end`: with room in front of it for one that is up to twice as large.
fn behind(end: u64) -> u64 {
    end.max(BLOCK).next_power_of_two()
}

fn encode_slot(
    core: CoreId,
    sequence: u64,
    broker_epoch: BrokerEpoch,
    entries: impl Iterator<Item = Entry>,
    out: &mut Vec<u8>,
) {
    out.clear();
    out.resize(HEADER_BYTES, 0);
    entries.for_each(|entry| out.extend_from_slice(RawEntry::from(entry).as_bytes()));
    let header = SlotHeader {
        magic: MAGIC,
        version: VERSION.into(),
        length: (out.len() as u64).into(),
        crc: 0.into(),
        core: core.0.into(),
        zero: 0.into(),
        sequence: sequence.into(),
        broker_epoch: broker_epoch.0.into(),
    };
    out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    let crc = slot_crc(out);
    out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

fn slot_crc(slot: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&slot[..CRC_AT]), &slot[CRC_AT + 4..])
}

fn decode_at(file: &[u8], at: usize) -> Result<Option<Slot>, Refused> {
    let Ok((header, _)) = SlotHeader::ref_from_prefix(&file[at..]) else {
        return Ok(None);
    };
    let length = header.length.get();
    if header.magic != MAGIC || length < HEADER_BYTES as u64 || length > (file.len() - at) as u64 {
        return Ok(None);
    }
    let bytes = &file[at..at + length as usize];
    if slot_crc(bytes) != header.crc.get() {
        return Ok(None);
    }
    if header.version.get() > VERSION {
        return Err(Refused::NewerFormat { version: header.version.get() });
    }
    let Ok(entries) = <[RawEntry]>::ref_from_bytes(&bytes[HEADER_BYTES..]) else {
        return Ok(None);
    };
    Ok(Some(Slot {
        place: at as u64..at as u64 + length,
        core: CoreId(header.core.get()),
        sequence: header.sequence.get(),
        broker_epoch: BrokerEpoch(header.broker_epoch.get()),
        entries: entries.iter().map(Entry::from).collect(),
    }))
}

impl From<Entry> for RawEntry {
    fn from(entry: Entry) -> RawEntry {
        RawEntry {
            topic: entry.partition.topic.0,
            index: entry.partition.index.0.into(),
            zero: 0.into(),
            stable: entry.stable.0.into(),
            segment: entry.segment.0.into(),
            at: entry.at.0.into(),
            high_watermark: entry.high_watermark.0.into(),
            log_start: entry.log_start.0.into(),
            producers_from: entry.producers_from.map_or(-1, |offset| offset.0).into(),
        }
    }
}

impl From<&RawEntry> for Entry {
    fn from(raw: &RawEntry) -> Entry {
        let producers_from = raw.producers_from.get();
        Entry {
            partition: PartitionId { topic: TopicId(raw.topic), index: PartitionIndex(raw.index.get()) },
            stable: Offset(raw.stable.get()),
            segment: Offset(raw.segment.get()),
            at: FilePos(raw.at.get()),
            high_watermark: Offset(raw.high_watermark.get()),
            log_start: Offset(raw.log_start.get()),
            producers_from: (producers_from >= 0).then_some(Offset(producers_from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt::Write;
    use std::str::FromStr;

    use goldenscript::{ArgumentConsumer, Command, Context};
    use proptest::prelude::*;

    use super::*;

    fn entry(index: i32, stable: i64) -> Entry {
        Entry {
            partition: PartitionId { topic: TopicId([7; 16]), index: PartitionIndex(index) },
            stable: Offset(stable),
            segment: Offset(0),
            at: FilePos(stable as u64 * 100),
            high_watermark: Offset(stable - 1),
            log_start: Offset(0),
            producers_from: (index % 2 == 1).then_some(Offset(stable / 2)),
        }
    }

    /// Checkpoint files by core, and the writers of the present incarnation.
    #[derive(Clone, Default)]
    struct Files {
        files: BTreeMap<u16, Vec<u8>>,
        writers: BTreeMap<u16, SlotWriter>,
    }

    impl Files {
        fn merged(&self) -> Result<Checkpoint, Refused> {
            let slots: Result<Vec<_>, _> = self.files.values().map(|file| newest(file)).collect();
            Ok(Checkpoint::merge(slots?.into_iter().flatten().collect()))
        }

        fn write(&mut self, core: u16, epoch: i64, entries: &[Entry], written: usize) -> Result<String, Refused> {
            let sequence = self.merged()?.sequence;
            let file = self.files.entry(core).or_default();
            let found = newest(file)?;
            let writer =
                self.writers.entry(core).or_insert_with(|| SlotWriter::new(CoreId(core), sequence, found.as_ref()));
            let mut out = Vec::new();
            let at = writer.encode(BrokerEpoch(epoch), entries.iter().copied(), &mut out);
            let len = out.len();
            out.truncate(written);
            let at = at.0 as usize;
            file.resize(file.len().max(at + out.len()), 0);
            file[at..at + out.len()].copy_from_slice(&out);
            writer.on_written(written >= len);
            Ok(format!("core {core}: {} of {len} bytes at {at}\n", out.len()))
        }

        fn flip(&mut self, core: u16, at: usize) {
            self.files.get_mut(&core).expect("the core has a file")[at] ^= 1;
        }
    }

    /// The value of `key=`, or what stands in for it.
    fn number<T: FromStr<Err: Error + 'static>>(
        args: &mut ArgumentConsumer<'_>,
        key: &str,
        default: T,
    ) -> Result<T, Box<dyn Error>> {
        args.take_key(key).map_or(Ok(default), |value| Ok(value.parse()?))
    }

    impl goldenscript::Runner for Files {
        type Command = Command;

        fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
            let mut args = command.consume_args();
            let mut out = String::new();
            match command.name.as_str() {
                // write [core=N] [epoch=N] [first=N] [count=N] [torn=BYTES] STABLE...
                "write" => {
                    let core = number(&mut args, "core", 0)?;
                    let epoch = number(&mut args, "epoch", 1)?;
                    let first = number(&mut args, "first", 0)?;
                    let count: i32 = number(&mut args, "count", 0)?;
                    let torn = number(&mut args, "torn", usize::MAX)?;
                    let mut entries: Vec<_> = (0..count).map(|i| entry(i, 1)).collect();
                    while let Some(stable) = args.next_pos() {
                        entries.push(entry(first + entries.len() as i32, stable.parse()?));
                    }
                    out = self.write(core, epoch, &entries, torn)?;
                }
                "flip" => {
                    let core = number(&mut args, "core", 0)?;
                    self.flip(core, args.next_pos().ok_or("flip where")?.parse()?);
                }
                // A new format: the version of the slot at a position, with the CRC made right again.
                "version" => {
                    let at: usize = number(&mut args, "at", 0)?;
                    let version: u16 = args.next_pos().ok_or("which version")?.parse()?;
                    let file = self.files.get_mut(&0).ok_or("no file of core 0")?;
                    let end = at + u64::from_be_bytes(file[at + 8..at + 16].try_into()?) as usize;
                    file[at + 6..at + 8].copy_from_slice(&version.to_be_bytes());
                    let crc = slot_crc(&file[at..end]);
                    file[at + CRC_AT..at + CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
                }
                "restart" => self.writers.clear(),
                "merge" => {
                    let merged = self.merged()?;
                    writeln!(out, "sequence={} broker_epoch={:?}", merged.sequence, merged.broker_epoch)?;
                    for e in merged.entries.values().take(5) {
                        writeln!(
                            out,
                            "{}: stable={} at={}+{} hw={} start={} producers_from={:?}",
                            e.partition.index,
                            e.stable,
                            e.segment,
                            e.at,
                            e.high_watermark,
                            e.log_start,
                            e.producers_from
                        )?;
                    }
                    if merged.entries.len() > 5 {
                        writeln!(out, "... {} partitions", merged.entries.len())?;
                    }
                }
                other => return Err(format!("unknown command {other}").into()),
            }
            args.reject_next()?;
            Ok(out)
        }
    }

    #[test]
    fn checkpoint_transcripts() {
        for path in std::fs::read_dir("tests/golden/checkpoint").expect("the transcripts are there") {
            goldenscript::run(&mut Files::default(), path.expect("a directory entry").path())
                .expect("the transcript holds");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn any_bytes_decode_to_a_value(file in proptest::collection::vec(any::<u8>(), 0..9000)) {
            prop_assert_eq!(newest(&file), Ok(None));
        }

        #[test]
        fn a_torn_or_flipped_write_leaves_the_slot_before_it(
            counts in proptest::collection::vec(0usize..300, 2..8), torn in 0usize..30_000, flip in 0usize..30_000
        ) {
            let mut files = Files::default();
            let (last, before) = counts.split_last().expect("two at least");
            for (i, &count) in before.iter().enumerate() {
                let entries: Vec<_> = (0..count as i32).map(|p| entry(p, i as i64 + 1)).collect();
                files.write(0, 1, &entries, usize::MAX).expect("our own format");
            }
            let expected = files.merged();
            let entries: Vec<_> = (0..*last as i32).map(|p| entry(p, 99)).collect();
            let len = slot_bytes(*last) as usize;
            let mut whole = files.clone();
            whole.write(0, 1, &entries, usize::MAX).expect("our own format");
            files.write(0, 1, &entries, torn % len).expect("our own format");
            // Where the bytes that did not arrive equal the older ones in their place, the write is whole.
            prop_assert!(files.merged() == expected || files.files == whole.files);
            files = whole;
            let place = newest(&files.files[&0]).expect("our own format").expect("just written").place;
            files.flip(0, place.start as usize + flip % len);
            prop_assert_eq!(&files.merged(), &expected);
        }

        #[test]
        fn the_file_stays_within_its_reserve(counts in proptest::collection::vec(0usize..2000, 1..12)) {
            let mut files = Files::default();
            let most = *counts.iter().max().expect("one at least");
            for count in counts {
                let entries: Vec<_> = (0..count as i32).map(|p| entry(p, 1)).collect();
                files.write(0, 1, &entries, usize::MAX).expect("our own format");
            }
            prop_assert!(files.files[&0].len() as u64 <= file_bytes(most));
        }
    }
}
