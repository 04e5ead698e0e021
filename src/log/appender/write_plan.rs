//! What the tail and the files of a partition tell each other about writes.

use crate::arena::Lease;
use crate::ids::{FilePos, Generation, Offset};
use crate::log::appender::LogPos;

/// How far a segment's file may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writable {
    /// Its length.
    pub to: FilePos,
    /// A write below this may meet extents that nothing was written to yet.
    pub unwritten_to: FilePos,
}

/// A write to submit: part of one segment, block aligned.
#[derive(Debug)]
pub struct WritePlan {
    /// Base offset of the segment to write to.
    pub segment: Offset,
    /// Where; a multiple of 4 KiB.
    pub at: FilePos,
    /// What; a multiple of 4 KiB, zero behind the last batch.
    pub block: Lease,
    /// The generation in which it was made.
    pub generation: Generation,
    /// The new bytes it covers end here; names it in its completion.
    pub to: LogPos,
}
