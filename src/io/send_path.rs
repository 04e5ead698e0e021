//! By which way the parts of a response leave, and the thresholds of that choice. One place, so that a bench can compare
//! the ways on a host (design.md §5).
//!
//! | bytes are | way |
//! |---|---|
//! | owned, or in an arena | one gathered, copying sendmsg |
//! | in a sealed segment | sendfile, after everything before it left with MSG_MORE |
//!
//! SEND_ZC copies always on loopback and costs 0.24 s/GB there against 0.19 for a copying send; sendfile of the arena
//! (0.06) needs the proof of receipt that only followers give.

use crate::shard::action::Part;

/// Most parts that one sendmsg gathers.
pub const GATHER_PARTS_MAX: usize = 64;
/// Bytes that one connection may sendfile in one turn, so that a fast reader does not hold the core.
pub const SENDFILE_BYTES_PER_TURN: u64 = 1024 * 1024;

/// How far a response has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The part that is next.
    pub part: usize,
    /// Bytes of it that have left.
    pub done: u64,
}

/// What to do next with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All parts have left.
    Done,
    /// Gather this many parts; `more` says that others follow.
    Gather {
        /// How many parts from the cursor on.
        count: usize,
        /// Whether bytes follow behind them.
        more: bool,
    },
    /// The next part is sent from its file.
    File,
}

impl Cursor {
    /// Moves over `count` bytes that have left, and over parts without bytes.
    ///
    /// # Panics
    /// When more bytes left than there are.
    pub fn advance(&mut self, parts: &[Part], mut count: u64) {
        while let Some(part) = parts.get(self.part) {
            let rest = part.len() - self.done;
            if count < rest {
                self.done += count;
                return;
            }
            count -= rest;
            *self = Cursor { part: self.part + 1, done: 0 };
        }
        assert_eq!(count, 0, "more bytes left than the parts have");
    }

    /// What follows.
    pub fn next(&self, parts: &[Part]) -> Next {
        let rest = &parts[self.part..];
        let Some(first) = rest.first() else { return Next::Done };
        if matches!(first, Part::File(_)) {
            return Next::File;
        }
        let gathered = rest.iter().take_while(|part| !matches!(part, Part::File(_))).take(GATHER_PARTS_MAX).count();
        Next::Gather { count: gathered, more: rest[gathered..].iter().any(|part| !part.is_empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FileId, FilePos};
    use crate::shard::action::FileRange;

    fn bytes(len: usize) -> Part {
        Part::Bytes(vec![0; len])
    }

    fn file(len: u64) -> Part {
        Part::File(FileRange { file: FileId(1), at: FilePos(0), len })
    }

    fn start(parts: &[Part]) -> Cursor {
        let mut cursor = Cursor::default();
        cursor.advance(parts, 0);
        cursor
    }

    #[test]
    fn parts_before_a_file_leave_together_and_announce_it() {
        let parts = [bytes(4), bytes(5), file(6), bytes(7)];
        let mut cursor = start(&parts);
        assert_eq!(cursor.next(&parts), Next::Gather { count: 2, more: true });
        cursor.advance(&parts, 9);
        assert_eq!(cursor.next(&parts), Next::File);
        cursor.advance(&parts, 6);
        assert_eq!(cursor.next(&parts), Next::Gather { count: 1, more: false });
        cursor.advance(&parts, 7);
        assert_eq!(cursor.next(&parts), Next::Done);
    }

    #[test]
    fn a_short_send_goes_on_where_it_stopped() {
        let parts = [bytes(4), bytes(5)];
        let mut cursor = start(&parts);
        cursor.advance(&parts, 6);
        assert_eq!(cursor, Cursor { part: 1, done: 2 });
        assert_eq!(cursor.next(&parts), Next::Gather { count: 1, more: false });
    }

    #[test]
    fn empty_parts_are_skipped_and_announce_nothing() {
        let parts = [bytes(0), file(0), bytes(3), file(0), bytes(0)];
        let mut cursor = start(&parts);
        assert_eq!(cursor, Cursor { part: 2, done: 0 });
        assert_eq!(cursor.next(&parts), Next::Gather { count: 1, more: false });
        cursor.advance(&parts, 3);
        assert_eq!(cursor.next(&parts), Next::Done);
        assert_eq!(start(&[]).next(&[]), Next::Done);
    }

    #[test]
    fn at_most_64_parts_are_gathered_at_a_time() {
        let parts: Vec<Part> = (0..65).map(|_| bytes(1)).collect();
        assert_eq!(start(&parts).next(&parts), Next::Gather { count: 64, more: true });
    }
}
