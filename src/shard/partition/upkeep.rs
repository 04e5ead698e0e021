//! What a partition wants written beside its segments, and what retention takes from it.

use super::Partition;
use crate::ids::{FilePos, Now, Offset};
use crate::log::checkpoint::Entry;
use crate::log::producer_snapshot;
use crate::log::retention;
use crate::log::segment::Segment;

/// Index entries that may wait in memory before they are appended to the file; a segment without its last few entries
/// costs a longer scan, no more.
const PENDING_ENTRIES_MIN: usize = 16;

/// A file that is behind.
#[derive(Debug, PartialEq, Eq)]
pub enum StaleFile {
    /// Entries of the active segment's offset index.
    Index {
        /// Base of the segment.
        base: Offset,
        /// Where they go.
        at: FilePos,
        /// The entries.
        contents: Vec<u8>,
    },
    /// Entries of its time index.
    TimeIndex {
        /// Base of the segment.
        base: Offset,
        /// Where they go.
        at: FilePos,
        /// The entries.
        contents: Vec<u8>,
    },
    /// The leader epochs.
    Epochs {
        /// The file.
        contents: Vec<u8>,
    },
    /// The producers' state.
    Producers {
        /// The state is that after all batches below this offset.
        upto: Offset,
        /// The file.
        contents: Vec<u8>,
    },
}

impl Partition {
    /// Names the files that are behind; each one named is expected to be written.
    pub fn stale_files(&mut self, now: Now, mut out: impl FnMut(StaleFile)) {
        let base = self.tail().active_base();
        if self.index.offsets.pending_count() >= PENDING_ENTRIES_MIN {
            let (at, contents) = self.index.offsets.take_pending();
            out(StaleFile::Index { base, at, contents });
            let (at, contents) = self.index.times.take_pending();
            out(StaleFile::TimeIndex { base, at, contents });
        }
        if self.unrecorded_epoch.is_some() && !self.recording_epoch {
            self.recording_epoch = true;
            let contents = self.epochs.encode().into_bytes();
            out(StaleFile::Epochs { contents });
        }
        if self.pacer.is_due(now.mono) {
            self.take_snapshot(now, &mut out);
        }
    }

    /// Names everything that is behind, however little: the partition ends.
    pub fn last_files(&mut self, now: Now, mut out: impl FnMut(StaleFile)) {
        let base = self.tail().active_base();
        self.index.seal();
        let (at, contents) = self.index.offsets.take_pending();
        out(StaleFile::Index { base, at, contents });
        let (at, contents) = self.index.times.take_pending();
        out(StaleFile::TimeIndex { base, at, contents });
        if self.unrecorded_epoch.is_some() && !self.recording_epoch {
            let contents = self.epochs.encode().into_bytes();
            out(StaleFile::Epochs { contents });
        }
        if !self.producers.is_empty() && self.pacer.uncovered_from().is_some() {
            self.take_snapshot(now, &mut out);
        }
    }

    fn take_snapshot(&mut self, now: Now, out: &mut impl FnMut(StaleFile)) {
        let upto = self.offsets.end();
        self.pacer.on_taken(upto, now.mono);
        out(StaleFile::Producers { upto, contents: producer_snapshot::encode(&self.producers) });
    }

    /// The leader epochs up to the present one are in their file.
    pub fn on_epochs_recorded(&mut self) {
        self.recorded_epoch = self.leader_epoch;
        self.unrecorded_epoch = None;
        self.recording_epoch = false;
    }

    /// They could not be written.
    pub fn on_epochs_not_recorded(&mut self) {
        self.recording_epoch = false;
    }

    /// The producer snapshot on its way could not be written.
    pub fn on_producers_not_recorded(&mut self) {
        self.pacer.on_lost();
    }

    /// Index entries could not be written: the files of the active segment get all of theirs again. Those of a sealed one
    /// stay short, which costs longer scans.
    pub fn on_index_not_written(&mut self) {
        self.index.write_again();
    }

    /// The producer snapshot on its way is on the device; returns the one that it replaces.
    pub fn on_producers_recorded(&mut self) -> Option<Offset> {
        self.pacer.on_durable().1
    }

    /// What the checkpoint says of it; `None` when there is nothing to say (the stable offset lies in a segment that is
    /// not the active one).
    pub fn checkpoint_entry(&self) -> Option<Entry> {
        let (stable, segment, at) = match self.unrecorded_epoch {
            // The recovery must meet the first batch of an epoch that no file names.
            Some(first) => first,
            None => (self.offsets.stable(), self.tail().active_base(), self.tail().stable_in_active()?),
        };
        Some(Entry {
            partition: self.id,
            stable,
            segment,
            at,
            high_watermark: self.offsets.high_watermark(),
            log_start: self.offsets.log_start(),
            producers_from: (!self.producers.is_empty()).then(|| self.pacer.uncovered_from().unwrap_or(stable)),
        })
    }

    /// Applies retention: rolls an active segment that is too old, raises the log start, and returns the segments that
    /// are wholly below it and are no longer part of the log.
    pub fn apply_retention(&mut self, now: Now) -> Vec<Segment> {
        let plan = retention::plan(&self.segments, &self.offsets, now.wall, &self.config);
        if plan.roll_active.is_some() {
            self.roll(now);
        }
        if self.offsets.log_start() < plan.log_start {
            self.raise_log_start(plan.log_start);
        }
        self.segments.remove_oldest(plan.delete.len()).collect()
    }

    /// Moves the log start up; offsets below it are gone for readers at once.
    pub fn raise_log_start(&mut self, to: Offset) {
        self.offsets.raise_log_start(to);
        self.epochs.truncate_from_start(self.offsets.log_start());
    }
}
