//! What lies behind the last batch of the active segment, and how it becomes zeros.
//!
//! Left alone, stale bytes there could one day follow a new batch exactly and be taken for its successors. Bytes that
//! are known to be zero are not written again, and a tail too long to be read becomes unwritten extents instead, which
//! read as zeros, cost one small metadata change and keep the space (2 GiB of tails cannot be read in a second).

use crate::ids::{FilePos, Offset};
use crate::log::segment::UnwrittenExtents;
use crate::shard::action::Extents;

use super::Step;

/// A piece of a file that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub at: FilePos,
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    fn end(&self) -> FilePos {
        self.at.plus(self.bytes.len() as u64)
    }
}

/// The end of the active segment as far as it was looked at.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    pub base: Offset,
    /// Byte after the last batch.
    pub end: FilePos,
    /// Length of the file.
    pub len: u64,
    /// The bytes before `end` in its block; `None` until they were read.
    pub partial: Option<Vec<u8>>,
    /// Byte after the last one behind `end` that is not zero.
    dirty: Option<FilePos>,
    /// Everything up to here was looked at.
    pub checked: FilePos,
}

/// What becomes of the tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TailPlan {
    pub steps: Vec<Step>,
    /// Length of the file afterwards.
    pub allocated: FilePos,
    /// State of its extents behind the block of `end`.
    pub extents: Extents,
}

impl Tail {
    /// Of a scan that ended while it looked at `piece`, the last one that was read.
    pub fn new(base: Offset, end: FilePos, len: u64, piece: Piece<'_>) -> Tail {
        let mut tail = Tail { base, end, len, partial: None, dirty: None, checked: end };
        if end == end.align_down() {
            tail.partial = Some(Vec::new());
        } else {
            tail.take_partial(piece);
        }
        // The batch that does not count spans pieces: what was read of it and is gone was not zero.
        if end < piece.at {
            tail.dirty = Some(piece.at);
        }
        tail.look(piece);
        tail
    }

    /// Takes the block in which the batches end.
    pub fn take_partial(&mut self, piece: Piece<'_>) {
        let from = self.end.align_down();
        if piece.at <= from && self.end <= piece.end() {
            let bytes = &piece.bytes[(from.0 - piece.at.0) as usize..(self.end.0 - piece.at.0) as usize];
            self.partial = Some(bytes.to_vec());
        }
    }

    /// Looks for bytes that are not zero.
    pub fn look(&mut self, piece: Piece<'_>) {
        let skip = self.end.0.saturating_sub(piece.at.0).min(piece.bytes.len() as u64) as usize;
        let last = piece.bytes[skip..].iter().rposition(|&byte| byte != 0);
        if let Some(last) = last {
            self.dirty = Some(piece.at.plus((skip + last + 1) as u64));
        }
        self.checked = self.checked.max(FilePos(piece.end().0.min(self.len)));
    }

    /// How many bytes were not looked at.
    pub fn unchecked(&self) -> u64 {
        self.len.saturating_sub(self.checked.0)
    }

    /// What to do so that all behind the end is zero. `unreadable` extents are given up.
    pub fn plan(&self, unwritten: UnwrittenExtents, unreadable: bool) -> TailPlan {
        let block_end = self.end.align_up();
        let mut plan = TailPlan { steps: Vec::new(), allocated: FilePos(self.len), extents: Extents::Zeroed };
        if FilePos(self.len) <= self.end {
            return plan;
        }
        let odd = FilePos(self.len) != FilePos(self.len).align_down();
        let known = self.unchecked() == 0 && !odd && !unreadable;
        let dirty = self.dirty.map_or(self.end, FilePos::align_up);
        let zero_to = match (known, odd) {
            (true, _) => dirty,
            // The file grows to the end of its block, so that it can be written directly.
            (false, true) => block_end,
            (false, false) => dirty.min(block_end),
        };
        if self.end < zero_to {
            plan.steps.push(self.zero(zero_to));
            plan.allocated = plan.allocated.max(block_end);
        }
        if !known && block_end < plan.allocated {
            self.give_up_the_rest(&mut plan, odd || unreadable || unwritten == UnwrittenExtents::Forbidden);
        }
        plan
    }

    fn zero(&self, to: FilePos) -> Step {
        let head = self.partial.clone().expect("the partial block was read");
        Step::ZeroTail { base: self.base, at: self.end.align_down(), head, to }
    }

    fn give_up_the_rest(&self, plan: &mut TailPlan, cut: bool) {
        let (base, from) = (self.base, self.end.align_up());
        if cut {
            plan.steps.push(Step::Truncate { base, len: from });
            plan.allocated = from;
        } else {
            plan.steps.push(Step::ZeroRange { base, from, to: plan.allocated });
            plan.extents = Extents::Unwritten;
        }
    }
}
