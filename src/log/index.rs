//! The two indexes of a segment, Kafka's `.index` and `.timeindex` byte for byte (kafka-spec §2.4).
//!
//! An offset entry is 8 bytes: last offset of a batch less the segment's base, and the batch's position. A time entry is
//! 12 bytes: the largest timestamp so far, and the last offset of the batch that holds it, less the base. Both are
//! written when more than `index.interval.bytes` of log lie since the last entry, the time entry only if its timestamp
//! is larger than the last one's; sealing adds a final one. An index is a cache: whatever is lost is rebuilt from the log.
//!
//! In memory an index is what the file holds, so that writing it is copying its tail, and the same lookups serve active
//! segments and loaded files.

mod file;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{Immutable, IntoBytes};

pub use file::{
    IndexFault, OFFSET_ENTRY_BYTES, OffsetEntry, SegmentBounds, TIME_ENTRY_BYTES, TimeEntry, check_offset_index,
    check_time_index, lookup_offset, lookup_time, offset_entries, time_entries,
};

use crate::ids::{FilePos, Offset};
use crate::kafka::batch::BatchView;
use crate::limits::INDEX_BYTES_MAX;

/// A batch in a segment's file, as an index sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSpan {
    /// Where it begins.
    pub at: FilePos,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its largest timestamp in ms, −1 without timestamps.
    pub max_timestamp: i64,
}

impl BatchSpan {
    /// The span of a batch that begins at `at`.
    pub fn of(at: FilePos, batch: &BatchView<'_>) -> BatchSpan {
        BatchSpan { at, last_offset: batch.last_offset(), max_timestamp: batch.max_timestamp() }
    }
}

/// Last offsets of batches and their positions.
type OffsetEntries<'a> = &'a [(Offset, FilePos)];
/// Timestamps and the last offsets of their batches.
type TimeEntries<'a> = &'a [(i64, Offset)];

/// Both indexes of one segment that grows, kept in step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    interval_bytes: u32,
    /// The offset index.
    pub offsets: OffsetIndex,
    /// The time index.
    pub times: TimeIndex,
}

impl SegmentIndex {
    /// Of an empty segment; `interval_bytes` is `index.interval.bytes`.
    pub fn new(base: Offset, interval_bytes: u32) -> SegmentIndex {
        SegmentIndex { interval_bytes, offsets: OffsetIndex::new(base), times: TimeIndex::new(base) }
    }

    /// Of a segment with these batches. O(batches).
    pub fn rebuild(base: Offset, interval_bytes: u32, batches: impl IntoIterator<Item = BatchSpan>) -> SegmentIndex {
        let mut index = SegmentIndex::new(base, interval_bytes);
        batches.into_iter().for_each(|batch| index.on_append(&batch));
        index
    }

    /// Of a recovered segment: its entries, and its largest timestamp with the last offset of the batch that holds it.
    ///
    /// # Panics
    /// When the entries do not ascend or do not fit the base.
    pub fn recovered(
        base: Offset,
        interval_bytes: u32,
        entries: (OffsetEntries<'_>, TimeEntries<'_>),
        max_timestamp: (i64, Offset),
    ) -> SegmentIndex {
        SegmentIndex {
            interval_bytes,
            offsets: OffsetIndex::recovered(base, entries.0),
            times: TimeIndex::recovered(base, entries.1, max_timestamp),
        }
    }

    /// Takes a batch that was appended to the segment.
    ///
    /// # Panics
    /// When an entry would not ascend, or the index is full: the segment had to be rolled before.
    pub fn on_append(&mut self, batch: &BatchSpan) {
        self.times.note(batch.max_timestamp, batch.last_offset);
        if self.offsets.on_append(batch.last_offset, batch.at, self.interval_bytes) {
            self.times.maybe_append();
        }
    }

    /// The files may lack entries that counted as written: all of them are pending again.
    pub fn write_again(&mut self) {
        self.offsets.0.flushed = 0;
        self.times.entries.flushed = 0;
    }

    /// The segment takes no more appends: adds the final time entry.
    pub fn seal(&mut self) {
        self.times.finish();
    }

    /// Whether a batch can be described at all. One of a file that no Pinion wrote may lie where no entry can point to;
    /// lookups then scan for it.
    pub fn can_take(&self, batch: &BatchSpan) -> bool {
        let fits = |number: i64| (0..=i64::from(i32::MAX)).contains(&number);
        fits(batch.at.0 as i64) && fits(batch.last_offset.0 - self.offsets.0.base.0) && !self.is_full()
    }

    /// Whether one more entry would not fit: the segment must be rolled.
    pub fn is_full(&self) -> bool {
        self.offsets.is_full() || self.times.is_full()
    }

    /// The log was cut to end at `end`: drops the entries from there on. The batches from the returned position up to the
    /// cut must be given to [`SegmentIndex::on_append`] again, which finds the largest timestamp anew.
    pub fn truncate(&mut self, end: Offset) -> TruncatedIndex {
        let files_stale = self.offsets.0.truncate(end) | self.times.entries.truncate(end);
        if files_stale {
            self.write_again();
        }
        let times = &mut self.times;
        times.max = times.entries.last().map_or((-1, times.entries.base), |last| last.decode(times.entries.base));
        // The time entry beside the last offset entry covers all batches up to there: it names one of them, so it stayed.
        let replay_from = self.offsets.last_position();
        TruncatedIndex { replay_from, files_stale }
    }
}

/// What is left to do after an index was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedIndex {
    /// Where the batches begin that must be given again.
    pub replay_from: FilePos,
    /// The files hold entries that were dropped: they must be removed before the rest is written again, from 0.
    pub files_stale: bool,
}

/// The offset index of a segment that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetIndex(Entries<OffsetEntry>);

impl OffsetIndex {
    /// Most entries it may have.
    pub const ENTRIES_MAX: usize = INDEX_BYTES_MAX as usize / OFFSET_ENTRY_BYTES;

    /// Of an empty segment.
    pub fn new(base: Offset) -> OffsetIndex {
        OffsetIndex(Entries::new(base))
    }

    /// Of a recovered segment: last offsets and positions. All of it is written again with the next
    /// [`OffsetIndex::take_pending`]: how much of it the file holds is not known.
    ///
    /// # Panics
    /// When the entries do not ascend or do not fit the base.
    pub fn recovered(base: Offset, entries: &[(Offset, FilePos)]) -> OffsetIndex {
        let mut index = OffsetIndex::new(base);
        entries.iter().for_each(|&(offset, at)| index.push(offset, at));
        index
    }

    /// Takes a batch that begins at `at`: adds an entry when more than `interval_bytes` lie since the last one. Returns
    /// whether it did; then the time index may get one, too.
    ///
    /// # Panics
    /// When an entry would not ascend, does not fit its 31 bits, or the index is full.
    pub fn on_append(&mut self, last_offset: Offset, at: FilePos, interval_bytes: u32) -> bool {
        let due = at.0 - self.last_position().0 > u64::from(interval_bytes);
        if due {
            self.push(last_offset, at);
        }
        due
    }

    /// Whether one more entry would not fit.
    pub fn is_full(&self) -> bool {
        self.0.entries.len() >= Self::ENTRIES_MAX
    }

    /// A position at or before the batch that holds `offset`, to scan forward from. O(log entries).
    pub fn position(&self, offset: Offset) -> FilePos {
        lookup_offset(self.as_bytes(), self.0.base, offset).map_or(FilePos(0), |(_, at)| at)
    }

    /// All entries as the file holds them.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.entries.as_slice().as_bytes()
    }

    /// How many entries were not taken for the file yet.
    pub fn pending_count(&self) -> usize {
        self.0.pending_count()
    }

    /// The entries that the file does not hold yet, and where in the file they go; from now on they count as written.
    pub fn take_pending(&mut self) -> (FilePos, Vec<u8>) {
        self.0.take_pending()
    }

    fn last_position(&self) -> FilePos {
        self.0.last().map_or(FilePos(0), |last| FilePos(u64::from(last.position.get())))
    }

    fn push(&mut self, offset: Offset, at: FilePos) {
        let position = u32::try_from(at.0).ok().filter(|&at| at <= i32::MAX as u32);
        let position = position.unwrap_or_else(|| panic!("position {at} does not fit an index entry"));
        let entry = OffsetEntry { relative: self.0.relative(offset), position: position.into() };
        let ascends = |last: &OffsetEntry| last.relative < entry.relative && last.position < entry.position;
        self.0.push(entry, ascends);
    }
}

/// The time index of a segment that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeIndex {
    entries: Entries<TimeEntry>,
    max: (i64, Offset),
}

impl TimeIndex {
    /// Most entries it may have.
    pub const ENTRIES_MAX: usize = INDEX_BYTES_MAX as usize / TIME_ENTRY_BYTES;

    /// Of an empty segment.
    pub fn new(base: Offset) -> TimeIndex {
        TimeIndex { entries: Entries::new(base), max: (-1, base) }
    }

    /// Of a recovered segment: timestamps and offsets, and the largest timestamp of all its batches with the last offset
    /// of the one that holds it. All of it is written again with the next [`TimeIndex::take_pending`].
    ///
    /// # Panics
    /// When the entries do not ascend or do not fit the base.
    pub fn recovered(base: Offset, entries: &[(i64, Offset)], max: (i64, Offset)) -> TimeIndex {
        let mut index = TimeIndex::new(base);
        entries.iter().for_each(|&time| index.push(time));
        index.max = max;
        index
    }

    /// Takes the largest timestamp of an appended batch, in ms, and the batch's last offset.
    pub fn note(&mut self, max_timestamp: i64, last_offset: Offset) {
        if self.max.0 < max_timestamp {
            self.max = (max_timestamp, last_offset);
        }
    }

    /// The offset index got an entry: adds one with the largest timestamp so far if that is larger than the last one's.
    ///
    /// # Panics
    /// When the entry does not fit its 31 bits, or the index is full.
    pub fn maybe_append(&mut self) {
        self.push(self.max);
    }

    /// The segment takes no more appends: adds the final entry, for which a slot was held back.
    pub fn finish(&mut self) {
        self.push(self.max);
    }

    /// Whether one more entry would not fit besides the final one.
    pub fn is_full(&self) -> bool {
        self.entries.entries.len() >= Self::ENTRIES_MAX - 1
    }

    /// Largest timestamp so far in ms with the last offset of the batch that holds it; −1 without timestamps.
    pub fn max_timestamp(&self) -> (i64, Offset) {
        self.max
    }

    /// The offset to scan forward from for the first record at or after `timestamp`. O(log entries).
    pub fn offset(&self, timestamp: i64) -> Offset {
        lookup_time(self.as_bytes(), self.entries.base, timestamp).map_or(self.entries.base, |(_, offset)| offset)
    }

    /// All entries as the file holds them.
    pub fn as_bytes(&self) -> &[u8] {
        self.entries.entries.as_slice().as_bytes()
    }

    /// How many entries were not taken for the file yet.
    pub fn pending_count(&self) -> usize {
        self.entries.pending_count()
    }

    /// The entries that the file does not hold yet, and where in the file they go; from now on they count as written.
    pub fn take_pending(&mut self) -> (FilePos, Vec<u8>) {
        self.entries.take_pending()
    }

    fn push(&mut self, (timestamp, offset): (i64, Offset)) {
        if timestamp <= self.entries.last().map_or(-1, |last| last.timestamp.get()) {
            return;
        }
        let entry = TimeEntry { timestamp: timestamp.into(), relative: self.entries.relative(offset) };
        self.entries.push(entry, |last| last.relative <= entry.relative);
    }
}

/// The entries of one index that still grows, and how many of them its file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entries<E> {
    base: Offset,
    entries: Vec<E>,
    flushed: usize,
}

/// An entry of either index.
trait Entry: IntoBytes + Immutable + Copy + std::fmt::Debug {
    fn relative(&self) -> U32;
}

impl Entry for OffsetEntry {
    fn relative(&self) -> U32 {
        self.relative
    }
}

impl Entry for TimeEntry {
    fn relative(&self) -> U32 {
        self.relative
    }
}

impl<E: Entry> Entries<E> {
    fn new(base: Offset) -> Entries<E> {
        Entries { base, entries: Vec::new(), flushed: 0 }
    }

    fn last(&self) -> Option<&E> {
        self.entries.last()
    }

    fn push(&mut self, entry: E, ascends: impl Fn(&E) -> bool) {
        assert!(self.last().is_none_or(ascends), "{entry:?} after {:?}", self.last());
        let full = INDEX_BYTES_MAX as usize / size_of::<E>();
        assert!(self.entries.len() < full, "{full} entries fill the index of segment {}", self.base);
        self.entries.push(entry);
    }

    fn relative(&self, offset: Offset) -> U32 {
        let relative = u32::try_from(offset.0 - self.base.0).ok().filter(|&relative| relative <= i32::MAX as u32);
        relative.unwrap_or_else(|| panic!("offset {offset} does not fit the index of segment {}", self.base)).into()
    }

    fn pending_count(&self) -> usize {
        self.entries.len() - self.flushed
    }

    fn take_pending(&mut self) -> (FilePos, Vec<u8>) {
        let at = FilePos((self.flushed * size_of::<E>()) as u64);
        let pending = self.entries[self.flushed..].as_bytes().to_vec();
        self.flushed = self.entries.len();
        (at, pending)
    }

    /// Drops the entries that name offsets from `end` on. Returns whether the file may hold one of them.
    fn truncate(&mut self, end: Offset) -> bool {
        let base = self.base;
        let kept = self.entries.partition_point(|entry| base.plus(i64::from(entry.relative().get())) < end);
        self.entries.truncate(kept);
        kept < self.flushed
    }
}

#[cfg(test)]
mod tests;
