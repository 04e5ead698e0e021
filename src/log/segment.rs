//! The segments of a partition as metadata: which file holds an offset, when the active one is full, and how its file
//! grows. Nothing here touches a file.

use std::collections::VecDeque;

use crate::ids::{FileId, FilePos, MonoMicros, Offset, WallMillis};
use crate::limits::{FIRST_GROWTH_BYTES, GROWTH_BYTES_MAX};
use crate::log::topic_config::TopicConfig;
use crate::shard::action::Extents;

/// Writes of this size or more go into extents that growth left unwritten. Filling with zeros first makes small writes
/// plain overwrites (design.md §4: 67 µs against 167 at 4 KiB), but it writes everything twice: large ones lose
/// more by that than by a commit of the file system with each write.
pub const UNWRITTEN_FROM_WRITE_BYTES: u64 = 64 * 1024;
/// Below this rate the zeros cost nothing that anybody misses.
pub const UNWRITTEN_FROM_BYTES_PER_S: u64 = 1024 * 1024;
/// A growth step holds at most what the partition appends in this many seconds.
const GROWTH_SECONDS: u64 = 4;

/// Where a segment is in its life: `Active` → `Sealing` → `Sealed`, never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Appends go here. Only the last segment is.
    Active,
    /// It takes no more appends; its last writes, or the cut to its exact length, are still under way.
    Sealing,
    /// Its file ends at its last batch and never changes again.
    Sealed,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in its file's name; the first record that belongs here.
    pub base: Offset,
    /// Offset after its last record; equals the base while it is empty.
    pub end: Offset,
    /// Bytes of its batches.
    pub len: u64,
    /// Timestamp of its first batch in ms, −1 without one.
    pub first_timestamp: i64,
    /// Largest timestamp in ms, −1 without one.
    pub max_timestamp: i64,
    /// When it was created; from the roll on, when it was rolled; after recovery, when the file was last written. It
    /// stands in for timestamps where the records have none.
    pub touched: WallMillis,
    /// Where it is in its life.
    pub state: SegmentState,
    /// The open file, if there is one.
    pub file: Option<FileId>,
}

impl Segment {
    /// A new, empty, active segment.
    pub fn active(base: Offset, now: WallMillis, file: Option<FileId>) -> Segment {
        Segment {
            base,
            end: base,
            len: 0,
            first_timestamp: -1,
            max_timestamp: -1,
            touched: now,
            state: SegmentState::Active,
            file,
        }
    }

    /// Whether it holds no batch.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a batch that ends before `end`.
    ///
    /// # Panics
    /// When the segment is not active or the batch does not lie behind its last one.
    pub fn on_append(&mut self, end: Offset, bytes: u64, max_timestamp: i64) {
        assert!(self.state == SegmentState::Active, "append to {self:?}");
        assert!(self.end < end, "append up to {end} to {self:?}");
        if self.is_empty() {
            self.first_timestamp = max_timestamp;
        }
        self.end = end;
        self.len += bytes;
        self.max_timestamp = self.max_timestamp.max(max_timestamp);
    }

    /// Its largest timestamp, or the time of its last write where its records have none.
    pub fn newest(&self) -> i64 {
        if self.max_timestamp < 0 { self.touched.0 } else { self.max_timestamp }
    }
}

/// All segments of a partition, oldest first, without a gap and without overlap (after compaction an end may lie below
/// the next base). The last one is active, except between a roll and the creation of the next file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SegmentSet {
    segments: VecDeque<Segment>,
}

impl SegmentSet {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> + ExactSizeIterator {
        self.segments.iter()
    }

    /// Bytes of all batches. O(segments).
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// The segment that appends go to.
    pub fn active(&self) -> Option<&Segment> {
        self.segments.back().filter(|last| last.state == SegmentState::Active)
    }

    /// The segment that appends go to.
    pub fn active_mut(&mut self) -> Option<&mut Segment> {
        self.segments.back_mut().filter(|last| last.state == SegmentState::Active)
    }

    /// The segment with this base.
    pub fn get_mut(&mut self, base: Offset) -> Option<&mut Segment> {
        let index = self.segments.partition_point(|segment| segment.base < base);
        self.segments.get_mut(index).filter(|segment| segment.base == base)
    }

    /// The last segment whose base is at or below `offset`. Its end may be at or below it, too: then the offset lies in
    /// a hole that compaction made, or at the end of the log. O(log segments).
    pub fn floor(&self, offset: Offset) -> Option<&Segment> {
        let index = self.segments.partition_point(|segment| segment.base <= offset);
        index.checked_sub(1).map(|index| &self.segments[index])
    }

    /// The segment after the one with this base.
    pub fn after(&self, base: Offset) -> Option<&Segment> {
        self.segments.get(self.segments.partition_point(|segment| segment.base <= base))
    }

    /// Adds a segment behind all others: a recovered one, or the new active one after a roll.
    ///
    /// # Panics
    /// When it would overlap the last one, or two would be active.
    pub fn push(&mut self, segment: Segment) {
        if let Some(last) = self.segments.back() {
            assert!(last.base < segment.base && last.end <= segment.base, "{segment:?} after {last:?}");
            assert!(last.state != SegmentState::Active, "{segment:?} after the active {last:?}");
        }
        self.segments.push_back(segment);
    }

    /// The active segment takes no more appends. Returns its base.
    ///
    /// # Panics
    /// When there is no active segment, or it is empty: an empty one is kept.
    pub fn roll(&mut self, now: WallMillis) -> Offset {
        let active = self.active_mut().expect("a roll without an active segment");
        assert!(!active.is_empty(), "roll of an empty {active:?}");
        active.state = SegmentState::Sealing;
        active.touched = now;
        active.base
    }

    /// The file of a sealing segment has its exact length now.
    ///
    /// # Panics
    /// When there is no such segment, or it is not sealing.
    pub fn on_sealed(&mut self, base: Offset) {
        let segment = self.get_mut(base).unwrap_or_else(|| panic!("sealed a segment {base} that is not there"));
        assert!(segment.state == SegmentState::Sealing, "sealed {segment:?}");
        segment.state = SegmentState::Sealed;
    }

    /// Takes out the oldest `count` segments.
    ///
    /// # Panics
    /// When one of them is not sealed.
    pub fn remove_oldest(&mut self, count: usize) -> impl Iterator<Item = Segment> + '_ {
        let sealed = self.segments.iter().take_while(|segment| segment.state == SegmentState::Sealed).count();
        assert!(count <= sealed, "{count} segments to remove, {sealed} sealed");
        self.segments.drain(..count)
    }

    /// Takes out the segments whose base is at or above `end`: the whole files that a truncation to `end` drops.
    pub fn remove_from(&mut self, end: Offset) -> impl Iterator<Item = Segment> + '_ {
        let index = self.segments.partition_point(|segment| segment.base < end);
        self.segments.drain(index..)
    }

    /// # Panics
    /// When segments overlap, are out of order, or one before the last is active.
    pub fn invariants(&self) {
        for (a, b) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            assert!(a.base < b.base && a.end <= b.base && a.state != SegmentState::Active, "{a:?} before {b:?}");
        }
        assert!(self.segments.iter().all(|segment| segment.base <= segment.end), "{self:?}");
    }
}

/// The batch that is about to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its bytes.
    pub bytes: u64,
    /// Its last offset.
    pub last_offset: Offset,
    /// Its largest timestamp in ms, −1 without one.
    pub max_timestamp: i64,
}

/// Why the active segment must be rolled before the append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollReason {
    /// `segment.bytes` would be passed.
    Size,
    /// `segment.ms` has passed.
    Age,
    /// An index has no room for another entry.
    IndexFull,
    /// The batch's offset is too far from the base for the index's 31 bits.
    OffsetRange,
}

/// Whether the segment must be rolled before `batch` is appended to it (kafka-spec §2.3). An empty one never is: it
/// would be followed by one with the same name.
pub fn roll_reason(
    segment: &Segment,
    batch: &Incoming,
    index_full: bool,
    now: WallMillis,
    config: &TopicConfig,
) -> Option<RollReason> {
    if segment.is_empty() {
        return None;
    }
    let waited = match segment.first_timestamp {
        first if first >= 0 => batch.max_timestamp.saturating_sub(first),
        _ => now.0.saturating_sub(segment.touched.0),
    };
    if segment.len.saturating_add(batch.bytes) > config.segment_bytes {
        Some(RollReason::Size)
    } else if waited > i64::try_from(config.segment_ms).unwrap_or(i64::MAX) {
        Some(RollReason::Age)
    } else if index_full {
        Some(RollReason::IndexFull)
    } else if batch.last_offset.0 - segment.base.0 > i64::from(i32::MAX) {
        Some(RollReason::OffsetRange)
    } else {
        None
    }
}

/// How large an active file is now, and what wants to go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFill {
    /// Byte after the last batch.
    pub end: FilePos,
    /// Length of the file, all of it usable. 0 before the file is created.
    pub allocated: FilePos,
    /// Bytes of the next batch, 0 when none waits.
    pub waiting: u64,
}

/// What the growth of a file depends on besides its fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthRules {
    /// What the partition appends, bytes per second.
    pub bytes_per_s: u64,
    /// Mean of its latest writes.
    pub write_bytes: u64,
    /// `segment.bytes`: the file never needs to be longer than this and one batch.
    pub segment_bytes: u64,
    /// Whether extents may be left unwritten: only in `synced` mode, where writes carry their own sync.
    pub unwritten: UnwrittenExtents,
}

/// Whether growth may leave extents unwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwrittenExtents {
    /// `flush.mode=synced`: yes, for partitions that write large pieces.
    Allowed,
    /// `flush.mode=written`: never; a completed write must survive a crash of the kernel.
    Forbidden,
}

/// The next growth step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// New length of the file.
    pub to: FilePos,
    /// State of the new extents.
    pub extents: Extents,
}

/// Whether the file must grow now, and how: 256 KiB first, then doubling, a step being at most 64 MiB or four seconds of
/// the partition's rate, asked for when half of the present step is used (design.md §4 Files). The caller asks for one
/// step at a time.
pub fn growth(fill: &FileFill, rules: &GrowthRules) -> Option<Growth> {
    let step_max = (rules.bytes_per_s.saturating_mul(GROWTH_SECONDS)).clamp(FIRST_GROWTH_BYTES, GROWTH_BYTES_MAX);
    let allocated = fill.allocated.0;
    let needed = fill.end.plus(fill.waiting).align_up().0;
    let present_step = (allocated / 2).clamp(FIRST_GROWTH_BYTES, step_max);
    let half_used = allocated <= needed + present_step / 2;
    let longest = FilePos(rules.segment_bytes).align_up().0;
    if !half_used || (longest <= allocated && needed <= allocated) {
        return None;
    }
    let step = FilePos(allocated.clamp(FIRST_GROWTH_BYTES, step_max)).align_down().0;
    // A cleanly stopped file ends at its last batch; from here on it ends at a block again.
    let to = (fill.allocated.align_down().0 + step).min(longest).max(needed);
    Some(Growth { to: FilePos(to), extents: extents(rules) })
}

fn extents(rules: &GrowthRules) -> Extents {
    let large = rules.write_bytes >= UNWRITTEN_FROM_WRITE_BYTES && rules.bytes_per_s >= UNWRITTEN_FROM_BYTES_PER_S;
    match rules.unwritten {
        UnwrittenExtents::Allowed if large => Extents::Unwritten,
        _ => Extents::Zeroed,
    }
}

/// What a partition appends per second, as an average that forgets half within about a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AppendRate {
    bytes_per_s: u64,
    window_bytes: u64,
    window_start: MonoMicros,
}

impl AppendRate {
    const WINDOW_MICROS: u64 = 1_000_000;

    /// Counts an append.
    pub fn on_append(&mut self, now: MonoMicros, bytes: u64) {
        let elapsed = now.micros_since(self.window_start);
        if elapsed >= Self::WINDOW_MICROS {
            self.bytes_per_s = self.bytes_per_s(now);
            self.window_bytes = 0;
            self.window_start = now;
        }
        self.window_bytes += bytes;
    }

    /// Bytes per second. The window that is still open counts once it alone shows more.
    pub fn bytes_per_s(&self, now: MonoMicros) -> u64 {
        let elapsed = now.micros_since(self.window_start);
        if elapsed < Self::WINDOW_MICROS {
            return self.bytes_per_s.max(self.window_bytes);
        }
        let latest = u128::from(self.window_bytes) * u128::from(Self::WINDOW_MICROS) / u128::from(elapsed);
        let latest = u64::try_from(latest).unwrap_or(u64::MAX);
        let windows = (elapsed / Self::WINDOW_MICROS).min(63);
        (self.bytes_per_s >> windows) + (latest - (latest >> windows))
    }
}

/// The size of a partition's writes, as an average over about the last eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MeanWrite {
    eighths: u64,
}

impl MeanWrite {
    /// Counts a write.
    pub fn on_write(&mut self, bytes: u64) {
        self.eighths = self.eighths - self.eighths / 8 + bytes;
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.eighths / 8
    }
}

#[cfg(test)]
mod tests;
