//! Sealed segments below everything that is scanned: trusted by their length, their indexes by their last entries.

use std::collections::VecDeque;

use crate::ids::{FilePos, Offset};
use crate::log::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, offset_entries, time_entries};
use crate::shard::action::FileKind;

use super::listing::SegmentFiles;
use super::{RecoveredSegment, Step};

/// A longer segment without one offset entry has lost them. (A shorter one may consist of few large batches.)
const WITHOUT_ENTRIES_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The trusted segments and what their index files end with.
#[derive(Clone, Debug, Default)]
pub(super) struct Sealed {
    pub segments: Vec<RecoveredSegment>,
    /// Those whose indexes must be rebuilt.
    pub unindexed: Vec<Offset>,
    /// Base, base of the next segment, files.
    waiting: VecDeque<(Offset, Offset, SegmentFiles)>,
    /// Largest timestamp of the first waiting segment, once it is known.
    timestamp: Option<i64>,
}

impl Sealed {
    /// Of these segments, each with the base of the one that follows it.
    pub fn new(segments: impl Iterator<Item = (Offset, Offset, SegmentFiles)>) -> Sealed {
        Sealed { waiting: segments.collect(), ..Sealed::default() }
    }

    /// The next index entry to read; `None` when all segments are taken.
    pub fn next(&mut self) -> Option<Step> {
        while let Some(&(base, _, files)) = self.waiting.front() {
            let whole = |len: Option<u64>, entry: usize| len.filter(|len| len.is_multiple_of(entry as u64));
            let index = whole(files.index, OFFSET_ENTRY_BYTES).filter(|&len| {
                // An empty index is right for a short segment.
                len > 0 || files.len <= WITHOUT_ENTRIES_BYTES_MAX
            });
            let time_index = whole(files.time_index, TIME_ENTRY_BYTES);
            match (index, time_index, self.timestamp) {
                (Some(_), Some(len), None) if len > 0 => {
                    return Some(last_entry(FileKind::TimeIndex(base), len, TIME_ENTRY_BYTES));
                }
                (Some(_), Some(_), None) => self.timestamp = Some(-1),
                (Some(0), Some(_), Some(_)) => self.take(true),
                (Some(len), Some(_), Some(_)) => {
                    return Some(last_entry(FileKind::Index(base), len, OFFSET_ENTRY_BYTES));
                }
                _ => self.take(false),
            }
        }
        None
    }

    /// The entry that was asked for; `None` when it cannot be read.
    pub fn on_entry(&mut self, bytes: Option<&[u8]>) {
        let &(base, end, files) = self.waiting.front().expect("a segment whose entry was read");
        let bytes = bytes.unwrap_or_default();
        if self.timestamp.is_none() {
            let entry = time_entries(bytes, base).next();
            match entry.filter(|&(timestamp, offset)| 0 <= timestamp && offset < end) {
                Some((timestamp, _)) => self.timestamp = Some(timestamp),
                None => self.take(false),
            }
        } else {
            let entry = offset_entries(bytes, base).next();
            self.take(entry.is_some_and(|(offset, at)| offset < end && FilePos(0) < at && at.0 < files.len));
        }
    }

    fn take(&mut self, indexed: bool) {
        let (base, end, files) = self.waiting.pop_front().expect("a segment to take");
        let max_timestamp = self.timestamp.take().filter(|_| indexed).unwrap_or(-1);
        let SegmentFiles { len, modified_ms, .. } = files;
        self.segments.push(RecoveredSegment { base, len, end, max_timestamp, modified_ms });
        if !indexed {
            self.unindexed.push(base);
        }
    }
}

fn last_entry(file: FileKind, len: u64, entry_bytes: usize) -> Step {
    Step::Read { file, at: FilePos(len - entry_bytes as u64), len: entry_bytes as u64 }
}
