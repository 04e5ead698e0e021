//! The producer snapshot file, Kafka's `<offset>.snapshot` version 1 byte for byte, and when to write one.
//!
//! Big-endian: version i16 (1), CRC-32C of all that follows, count i32, and per producer 46 bytes (kafka-spec §2.4).
//! Only the last batch of each producer is kept; the records behind the snapshot refill the window when the log is read.
//!
//! Recovery learns the state from the newest snapshot and the log behind it, so the place it starts from must never
//! pass an idempotent batch that no durable snapshot covers. [`SnapshotPacer::uncovered_from`] is that bound.

use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{MonoMicros, Offset, ProducerEpoch, ProducerId};
use crate::limits::{PRODUCER_SNAPSHOT_BYTES, PRODUCER_SNAPSHOT_MS};
use crate::log::producers::{ProducerEntry, Producers, RecordedBatch};

const VERSION: i16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct SnapshotHeader {
    version: I16,
    crc: U32,
    count: I32,
}

/// First byte that the CRC covers: the count.
const CRC_FROM: usize = 6;
const _: () = assert!(size_of::<SnapshotHeader>() == CRC_FROM + 4);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct SnapshotEntry {
    producer_id: I64,
    epoch: I16,
    last_sequence: I32,
    last_offset: I64,
    offset_delta: I32,
    timestamp: I64,
    coordinator_epoch: I32,
    txn_start: I64,
}

/// Bytes of the largest snapshot there can be; what a reader of the file needs room for.
pub const SNAPSHOT_BYTES_MAX: u64 =
    (size_of::<SnapshotHeader>() + crate::limits::PRODUCERS_PER_PARTITION_MAX * size_of::<SnapshotEntry>()) as u64;

/// Why a snapshot cannot be used. It is a cache of the log: the remedy is an older one and a longer scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFault {
    /// Too short for its header, or not as long as its count says.
    #[error("{0} bytes do not hold what the header says")]
    Length(usize),
    /// Written by another version.
    #[error("version {0}")]
    Version(i16),
    /// The content does not match its checksum.
    #[error("crc {stored:#010x}, computed {computed:#010x}")]
    Crc {
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// An entry with numbers that cannot be.
    #[error("entry {0} is out of range")]
    Entry(usize),
}

/// The file's bytes for this state.
pub fn encode(producers: &Producers) -> Vec<u8> {
    let entries = producers.entries();
    let count = i32::try_from(entries.len()).expect("bounded by PRODUCERS_PER_PARTITION_MAX");
    let header = SnapshotHeader { version: VERSION.into(), crc: 0.into(), count: count.into() };
    let mut bytes = header.as_bytes().to_vec();
    bytes.reserve_exact(entries.len() * size_of::<SnapshotEntry>());
    entries.for_each(|entry| bytes.extend_from_slice(SnapshotEntry::from(&entry).as_bytes()));
    let crc = crc32c::crc32c(&bytes[CRC_FROM..]);
    bytes[2..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The state up to `at`, the offset in the file's name, that its bytes describe.
///
/// # Errors
/// Whatever makes the file unusable, entries at or behind `at` included; nothing of it is taken then.
pub fn decode(bytes: &[u8], at: Offset) -> Result<Producers, SnapshotFault> {
    let length = SnapshotFault::Length(bytes.len());
    let (header, rest) = SnapshotHeader::ref_from_prefix(bytes).map_err(|_| length)?;
    if header.version.get() != VERSION {
        return Err(SnapshotFault::Version(header.version.get()));
    }
    let (stored, computed) = (header.crc.get(), crc32c::crc32c(&bytes[CRC_FROM..]));
    if stored != computed {
        return Err(SnapshotFault::Crc { stored, computed });
    }
    let entries = <[SnapshotEntry]>::ref_from_bytes(rest).map_err(|_| length)?;
    if usize::try_from(header.count.get()) != Ok(entries.len()) {
        return Err(length);
    }
    let entries = entries.iter().enumerate().map(|(i, entry)| entry.decode(at).ok_or(SnapshotFault::Entry(i)));
    Ok(Producers::from_entries(entries.collect::<Result<Vec<_>, _>>()?))
}

impl From<&ProducerEntry> for SnapshotEntry {
    fn from(entry: &ProducerEntry) -> SnapshotEntry {
        let last = entry.last.as_ref();
        SnapshotEntry {
            producer_id: entry.id.0.into(),
            epoch: entry.epoch.0.into(),
            last_sequence: last.map_or(-1, |last| last.last_sequence).into(),
            last_offset: last.map_or(-1, |last| last.last_offset.0).into(),
            offset_delta: last.map_or(0, |last| last.offset_delta).into(),
            timestamp: entry.timestamp.into(),
            coordinator_epoch: entry.coordinator_epoch.into(),
            txn_start: entry.txn_start.map_or(-1, |start| start.0).into(),
        }
    }
}

impl SnapshotEntry {
    fn decode(&self, at: Offset) -> Option<ProducerEntry> {
        let last = RecordedBatch {
            last_sequence: self.last_sequence.get(),
            last_offset: Offset(self.last_offset.get()),
            offset_delta: self.offset_delta.get(),
            timestamp: self.timestamp.get(),
        };
        let has_batch = Offset(0) <= last.last_offset;
        let fits = last.last_sequence >= 0
            && last.offset_delta >= 0
            && i64::from(last.offset_delta) <= last.last_offset.0
            && last.last_offset < at;
        if self.producer_id.get() < 0 || has_batch && !fits {
            return None;
        }
        Some(ProducerEntry {
            id: ProducerId(self.producer_id.get()),
            epoch: ProducerEpoch(self.epoch.get()),
            last: has_batch.then_some(last),
            timestamp: self.timestamp.get(),
            coordinator_epoch: self.coordinator_epoch.get(),
            txn_start: Some(Offset(self.txn_start.get())).filter(|&start| Offset(0) <= start),
        })
    }
}

/// Says when a partition's next snapshot is due: every 16 MiB or 60 s of log with idempotent producers in it, and at
/// once for the first idempotent batch, before which there was no snapshot to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SnapshotPacer {
    /// Offset of the newest durable snapshot.
    covered: Option<Offset>,
    /// First idempotent batch behind it.
    uncovered_from: Option<Offset>,
    /// The snapshot on its way, and the first idempotent batch behind that one.
    pending: Option<(Offset, Option<Offset>)>,
    bytes_since: u64,
    taken_at: MonoMicros,
}

impl SnapshotPacer {
    /// After recovery or truncation: `covered` is the newest usable snapshot, and `uncovered_from` the first idempotent
    /// batch in the log behind it.
    pub fn new(covered: Option<Offset>, uncovered_from: Option<Offset>, now: MonoMicros) -> SnapshotPacer {
        SnapshotPacer { covered, uncovered_from, pending: None, bytes_since: 0, taken_at: now }
    }

    /// A batch of `bytes` was appended at `base_offset`.
    pub fn on_append(&mut self, base_offset: Offset, bytes: u64, idempotent: bool) {
        self.bytes_since += bytes;
        if !idempotent {
            return;
        }
        self.uncovered_from.get_or_insert(base_offset);
        if let Some((_, behind)) = &mut self.pending {
            behind.get_or_insert(base_offset);
        }
    }

    /// Whether a snapshot should be written now. Never while one is on its way.
    pub fn is_due(&self, now: MonoMicros) -> bool {
        let behind = self.bytes_since >= PRODUCER_SNAPSHOT_BYTES
            || now.micros_since(self.taken_at) >= PRODUCER_SNAPSHOT_MS * 1000;
        self.pending.is_none() && self.uncovered_from.is_some() && (self.covered.is_none() || behind)
    }

    /// A snapshot of the state up to `end`, the present end of the log, is on its way to the file.
    ///
    /// # Panics
    /// When there is one on its way already.
    pub fn on_taken(&mut self, end: Offset, now: MonoMicros) {
        assert!(self.pending.is_none(), "a producer snapshot at {end} beside one on its way: {self:?}");
        self.pending = Some((end, None));
        self.bytes_since = 0;
        self.taken_at = now;
    }

    /// The snapshot on its way is durable. Returns its offset and that of the one it replaces, whose file may go.
    ///
    /// # Panics
    /// When there is none on its way.
    pub fn on_durable(&mut self) -> (Offset, Option<Offset>) {
        let (at, behind) = self.pending.take().expect("a producer snapshot became durable that nobody took");
        let replaced = self.covered.replace(at);
        assert!(replaced < Some(at), "producer snapshot at {at} after the one at {replaced:?}");
        self.uncovered_from = behind;
        (at, replaced)
    }

    /// The snapshot on its way could not be written; another one is due later.
    ///
    /// # Panics
    /// When there is none on its way.
    pub fn on_lost(&mut self) {
        assert!(self.pending.take().is_some(), "a producer snapshot was lost that nobody took");
    }

    /// The place that a checkpoint must not let recovery start behind: the first idempotent batch that no durable
    /// snapshot covers.
    pub fn uncovered_from(&self) -> Option<Offset> {
        self.uncovered_from
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kafka::batch::BatchHeaderFacts;

    fn one_producer() -> Producers {
        let mut producers = Producers::default();
        let batch = BatchHeaderFacts {
            producer_id: ProducerId(0x0102_0304_0506_0708),
            producer_epoch: ProducerEpoch(0x1112),
            base_sequence: 0x2122_2320,
            last_offset_delta: 4,
            max_timestamp: 0x4142_4344_4546_4748,
            transactional: false,
            control: false,
        };
        producers.record(&batch, Offset(0x3132_3334_3536_3734));
        producers
    }

    #[test]
    fn the_bytes_are_kafkas() {
        let bytes = encode(&one_producer());
        let entry: [&[u8]; 8] = [
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[0x11, 0x12],
            &[0x21, 0x22, 0x23, 0x24],
            &[0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38],
            &[0, 0, 0, 4],
            &[0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48],
            &[0xff; 4],
            &[0xff; 8],
        ];
        let rest = [&[0, 0, 0, 1][..], &entry.concat()].concat();
        let expected = [&[0, 1][..], &crc32c::crc32c(&rest).to_be_bytes(), &rest].concat();
        assert_eq!(bytes, expected);
        assert_eq!(decode(&bytes, Offset(i64::MAX)), Ok(one_producer_reloaded()));
    }

    /// What a reload leaves of it differs only in knowing that there may have been more.
    fn one_producer_reloaded() -> Producers {
        Producers::from_entries(one_producer().entries())
    }

    #[test]
    fn a_damaged_snapshot_is_refused_whole() {
        let bytes = encode(&one_producer());
        let end = Offset(i64::MAX);
        assert_eq!(decode(&[], end), Err(SnapshotFault::Length(0)));
        assert_eq!(decode(&[&[0, 9], &bytes[2..]].concat(), end), Err(SnapshotFault::Version(9)));
        let mut flipped = bytes.clone();
        flipped[20] ^= 1;
        assert!(matches!(decode(&flipped, end), Err(SnapshotFault::Crc { .. })));
        assert!(matches!(decode(&bytes[..bytes.len() - 1], end), Err(SnapshotFault::Crc { .. })));
        let last = Offset(0x3132_3334_3536_3738);
        assert_eq!(decode(&bytes, last), Err(SnapshotFault::Entry(0)), "it lies behind the snapshot's own offset");
        assert!(decode(&bytes, last.plus(1)).is_ok());
    }

    #[test]
    fn no_producers_make_a_snapshot_of_ten_bytes() {
        let bytes = encode(&Producers::default());
        assert_eq!(bytes.len(), 10);
        assert_eq!(decode(&bytes, Offset::ZERO), Ok(Producers::default()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_value_and_never_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            assert!(decode(&bytes, Offset(1000)).is_err());
            if bytes.len() > CRC_FROM {
                bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
                let crc = crc32c::crc32c(&bytes[CRC_FROM..]);
                bytes[2..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
                let decoded = decode(&bytes, Offset(1000));
                prop_assert!(decoded.is_ok_and(|producers| producers.is_empty()) || decode(&bytes, Offset(1000)).is_err());
            }
        }
    }

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_first_idempotent_batch_asks_for_a_snapshot_at_once() {
        let mut pacer = SnapshotPacer::default();
        pacer.on_append(Offset(0), 100 << 20, false);
        assert!(!pacer.is_due(MonoMicros(900 * SECOND)), "nothing to remember");
        pacer.on_append(Offset(50), 100, true);
        assert!(pacer.is_due(MonoMicros(0)));
        assert_eq!(pacer.uncovered_from(), Some(Offset(50)));
    }

    #[test]
    fn afterwards_one_is_due_every_16_mib_or_60_s_of_idempotent_data() {
        let mut pacer = SnapshotPacer::new(Some(Offset(0)), None, MonoMicros(0));
        assert!(!pacer.is_due(MonoMicros(61 * SECOND)), "nothing came since");
        pacer.on_append(Offset(0), 1000, true);
        assert!(!pacer.is_due(MonoMicros(59 * SECOND)));
        assert!(pacer.is_due(MonoMicros(60 * SECOND)));
        pacer.on_append(Offset(1), (16 << 20) - 1000, true);
        assert!(pacer.is_due(MonoMicros(1)));
    }

    #[test]
    fn what_came_while_the_snapshot_was_written_stays_uncovered() {
        let mut pacer = SnapshotPacer::default();
        pacer.on_append(Offset(0), 100, true);
        pacer.on_taken(Offset(10), MonoMicros(0));
        assert!(!pacer.is_due(MonoMicros(100 * SECOND)), "one is on its way");
        assert_eq!(pacer.uncovered_from(), Some(Offset(0)), "it is not durable yet");
        pacer.on_append(Offset(10), 100, false);
        pacer.on_append(Offset(11), 100, true);
        assert_eq!(pacer.on_durable(), (Offset(10), None));
        assert_eq!(pacer.uncovered_from(), Some(Offset(11)));
        pacer.on_taken(Offset(12), MonoMicros(0));
        assert_eq!(pacer.on_durable(), (Offset(12), Some(Offset(10))));
        assert_eq!(pacer.uncovered_from(), None);
    }
}
