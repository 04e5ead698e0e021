//! What a start finds in a partition's directory, and what it does about it.

use crate::ids::{FilePos, LeaderEpoch, Offset};

/// A partition's log as recovery left it. The default is an empty new log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecoveredLog {
    /// Sealed segments, oldest first.
    pub sealed: Vec<RecoveredSegment>,
    /// The active segment; `None` when there is no file that can be appended to.
    pub active: Option<RecoveredActive>,
    /// First offset that is kept.
    pub log_start: Offset,
    /// Next offset to assign; everything below is on the device.
    pub end: Offset,
    /// High watermark that was checkpointed, at most `end`.
    pub high_watermark: Offset,
    /// Leader epochs with their start offsets, ascending.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// Producer state up to `end`, as a snapshot's bytes; empty when there is none.
    pub producers: Vec<u8>,
}

/// One sealed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredSegment {
    /// Base offset, from the file's name.
    pub base: Offset,
    /// Length of the log file in bytes.
    pub len: u64,
    /// Offset after its last record.
    pub end: Offset,
    /// Largest record timestamp in ms, −1 when unknown.
    pub max_timestamp: i64,
    /// When the file was last written, ms since the epoch.
    pub modified_ms: i64,
}

/// The segment that appends go on in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredActive {
    /// Base offset, from the file's name.
    pub base: Offset,
    /// Bytes of valid batches.
    pub end: FilePos,
    /// Length of the file; the extents behind `end` are zero and synced up to here.
    pub allocated: FilePos,
    /// The bytes of the last, partly filled block.
    pub partial_block: Vec<u8>,
    /// Timestamp of its first batch in ms, −1 without one.
    pub first_timestamp: i64,
    /// Largest timestamp in ms, −1 without one, and the last offset of the batch that holds it.
    pub max_timestamp: (i64, Offset),
    /// Offset index entries of the file so far (last offset of the batch, its position).
    pub index: Vec<(Offset, FilePos)>,
    /// Time index entries so far (timestamp, last offset of its batch).
    pub time_index: Vec<(i64, Offset)>,
}
