//! A block of the tail, and whether it may be filled further while it is written.

use crate::arena::{Arena, Block};
use crate::ids::{FilePos, Offset};

/// What happens to the partly filled 4 KiB at the end of the tail while it is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailWrites {
    /// It is filled further: what is on its way and what comes share the prefix that the write is about.
    Shared,
    /// Its memory must not change (`queue/stable_writes` is 1): what comes goes into another block, which begins with a
    /// copy of it.
    Copied,
}

/// A contiguous piece of a segment's file that is in memory. With [`TailWrites::Copied`] the next one may begin with a
/// copy of its last bytes.
#[derive(Debug)]
pub(super) struct TailBlock {
    pub(super) block: Block,
    pub(super) segment: Offset,
    pub(super) at: FilePos,
    pub(super) filled: u32,
}

impl TailBlock {
    /// Where it ends in the file.
    pub(super) fn end(&self) -> FilePos {
        self.at.plus(u64::from(self.filled))
    }

    /// Bytes that it can still take.
    pub(super) fn room(&self) -> u64 {
        u64::from(self.block.len()) - u64::from(self.filled)
    }

    /// Bytes of its last 4 KiB when that is partly filled, else 0.
    pub(super) fn partial_bytes(&self) -> u32 {
        (self.end().0 - self.end().align_down().0) as u32
    }

    /// Those bytes.
    pub(super) fn partial<'a>(&self, arena: &'a Arena) -> &'a [u8] {
        let len = self.partial_bytes();
        arena.read(&self.block, self.filled - len, len)
    }
}
