//! What a start finds in a partition's directory, and what it does about it.
//!
//! Everything below the checkpoint was on the device, so that segments below it are trusted by their lengths. From there
//! on (or from the older place that the producers' state needs) batches are read one by one until the first that does
//! not count; what follows it is cut off: the rest of its segment becomes zeros, later segments are removed. The scan
//! begins at an index entry at or below the checkpoint rather than at the checkpoint: its batch, named by the entry,
//! proves that file, index and checkpoint belong together, and when it does not the segment is read from its start.
//!
//! [`Recovery`] says step by step what it wants from the directory and is told what came of it; it does no I/O itself.
//! Doing it all again after a crash in the middle, or on the result, ends in the same log.

use crate::ids::{Errno, FilePos, LeaderEpoch, Offset};
use crate::log::checkpoint::Entry;
use crate::log::producers::Producers;
use crate::log::segment::UnwrittenExtents;
use crate::shard::action::{Extents, FileKind};

pub use listing::{FoundFile, parse_name};
pub use machine::{PIECE_BYTES_MAX, Recovery};
pub use scan::ScanEnd;

mod listing;
mod machine;
mod replay;
mod result;
pub mod scan;
mod sealed;
mod start;
mod tail;

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
    /// Producer state up to `end`.
    pub producers: Producers,
    /// The producer snapshot that `producers` began with.
    pub snapshot: Option<Offset>,
    /// First batch of an idempotent producer behind that snapshot (or in the log, without one).
    pub uncovered_from: Option<Offset>,
    /// Sealed segments whose indexes are missing or wrong and must be rebuilt from their logs.
    pub unindexed: Vec<Offset>,
    /// What was cut off, unless it was nothing but zeros.
    pub cut: Option<Cut>,
    /// Damage in segments below the checkpoint that was met on the way; they are kept as they are.
    pub damaged: Vec<Cut>,
    /// The log ends below a stable offset or high watermark that was checkpointed: acknowledged records may be gone.
    pub below_checkpoint: bool,
    /// The device could not read on at the end: the replica is not what it was.
    pub suspect: Option<Errno>,
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
    /// Length of the file; the extents behind `end` are zero and synced up to here. A multiple of 4 KiB, or `end`.
    pub allocated: FilePos,
    /// State of the extents behind the block of `end`.
    pub extents: Extents,
    /// The bytes of the last, partly filled block.
    pub partial_block: Vec<u8>,
    /// Timestamp of its first batch in ms, −1 without one.
    pub first_timestamp: i64,
    /// Largest timestamp in ms, −1 without one, and the last offset of the batch that holds it.
    pub max_timestamp: (i64, Offset),
    /// Offset index entries of the segment so far (last offset of the batch, its position). The index files hold no more
    /// entries than these, perhaps fewer or others, and are to be written again.
    pub index: Vec<(Offset, FilePos)>,
    /// Time index entries so far (timestamp, last offset of its batch).
    pub time_index: Vec<(i64, Offset)>,
}

/// Where a log was cut or is damaged, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub segment: Offset,
    /// Position in its file.
    pub at: FilePos,
    /// What is wrong there.
    pub why: ScanEnd,
    /// How many later segments were removed with it.
    pub segments_removed: usize,
}

/// How the last run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// In order: the lengths of files are right.
    Clean,
    /// By a crash, or nobody knows.
    Crash,
}

/// What is known of a partition before its files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryInput {
    /// All files of its directory.
    pub files: Vec<FoundFile>,
    /// The newest checkpoint entry.
    pub checkpoint: Option<Entry>,
    /// How the last run ended.
    pub last_stop: LastStop,
    /// Highest leader epoch that this replica can have adopted; a batch above it is not ours.
    pub leader_epoch_max: LeaderEpoch,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// Longest tail of an active file that is read to find out whether it is zero.
    pub tail_read_bytes_max: u64,
    /// Whether a longer one may become unwritten extents, or must be cut off.
    pub unwritten: UnwrittenExtents,
}

/// What recovery wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read from a file; fewer bytes only where it ends. Position and length are multiples of 4 KiB for a log.
    Read {
        /// The file.
        file: FileKind,
        /// First byte.
        at: FilePos,
        /// Count of bytes.
        len: u64,
    },
    /// Write `head` and zeros behind it up to `to` to a log. Position and end are multiples of 4 KiB.
    ZeroTail {
        /// The segment.
        base: Offset,
        /// First byte.
        at: FilePos,
        /// What the range begins with.
        head: Vec<u8>,
        /// Byte after the last one.
        to: FilePos,
    },
    /// Make a range of a log unwritten extents inside the file's length, which read as zeros.
    ZeroRange {
        /// The segment.
        base: Offset,
        /// First byte; a multiple of 4 KiB.
        from: FilePos,
        /// Byte after the last one; the length of the file.
        to: FilePos,
    },
    /// Cut a log to a length.
    Truncate {
        /// The segment.
        base: Offset,
        /// Its new length.
        len: FilePos,
    },
    /// Put a file into the place of another.
    Rename {
        /// Its present name.
        from: String,
        /// Which file it becomes.
        to: FileKind,
    },
    /// Remove files. One that is not there is not an error.
    Remove {
        /// Files that have a kind.
        files: Vec<FileKind>,
        /// Leftovers, by name.
        names: Vec<String>,
    },
    /// Write a file whole.
    WriteFile {
        /// Which file.
        file: FileKind,
        /// Its contents.
        contents: Vec<u8>,
    },
    /// Make everything done so far durable. No other step needs to be; several partitions may share one sync.
    Sync,
    /// The log.
    Done(Box<RecoveredLog>),
    /// The directory cannot be changed as it must be; nothing of it is served.
    Failed(Errno),
}

#[cfg(test)]
mod tests;
