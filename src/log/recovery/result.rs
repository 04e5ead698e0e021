//! After the scan: the recovered log, and what must change in the directory so that the files say the same.

use crate::ids::Offset;
use crate::log::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, offset_entries, time_entries};
use crate::shard::action::FileKind;

use super::listing::SegmentFiles;
use super::machine::{Phase, Recovery};
use super::{LastStop, RecoveredActive, RecoveredLog, Step};

impl Recovery {
    pub(super) fn finish(&mut self) {
        let active = self.active();
        self.remove_what_is_behind(active.base);
        let first = self.first_segment();
        let log = &mut self.log;
        log.sealed = std::mem::take(&mut self.sealed.segments);
        log.sealed.append(&mut self.scanned);
        log.unindexed = std::mem::take(&mut self.sealed.unindexed);
        log.active = Some(active);
        log.log_start = self.input.checkpoint.map_or(first, |entry| entry.log_start.max(first));
        let committed = self.input.checkpoint.map_or(log.log_start, |entry| entry.high_watermark);
        log.high_watermark = committed.min(log.end).max(log.log_start);
        log.epochs = self.replay.epochs.entries().to_vec();
        log.producers = std::mem::take(&mut self.replay.producers);
        log.snapshot = self.replay.snapshot;
        log.uncovered_from = self.replay.uncovered_from;
        self.begin_fixes();
    }

    fn begin_fixes(&mut self) {
        if !self.fixes.is_empty() || self.has_unsynced() {
            self.fixes.push_back(Step::Sync);
        }
        self.phase = Phase::Fix;
        self.advance();
    }

    /// Whether the log holds bytes whose flush no checkpoint tells of. The process that wrote them may have died before
    /// it: the device's cache can still lose them, and nobody may read them or be told of them until it cannot.
    fn has_unsynced(&self) -> bool {
        let stable = self.input.checkpoint.map_or(Offset::ZERO, |entry| entry.stable);
        self.input.last_stop == LastStop::Crash && stable < self.log.end
    }

    fn active(&mut self) -> RecoveredActive {
        let tail = self.tail.take().expect("the log has an end");
        let plan = tail.plan(self.input.unwritten, self.log.suspect.is_some());
        self.fixes.extend(plan.steps);
        let index = &self.replay.index;
        let (offsets, times) = (index.offsets.as_bytes().to_vec(), index.times.as_bytes().to_vec());
        let active = RecoveredActive {
            base: tail.base,
            end: tail.end,
            allocated: plan.allocated,
            extents: plan.extents,
            partial_block: tail.partial.unwrap_or_default(),
            first_timestamp: self.replay.first_timestamp.unwrap_or(-1),
            max_timestamp: index.times.max_timestamp(),
            index: offset_entries(&offsets, tail.base).collect(),
            time_index: time_entries(&times, tail.base).collect(),
        };
        // Entries behind the end would be taken for those of the batches that follow.
        let SegmentFiles { index, time_index, .. } = self.listing.segments[&tail.base];
        if index.is_some_and(|len| ((active.index.len() * OFFSET_ENTRY_BYTES) as u64) < len) {
            self.fixes.push_back(Step::WriteFile { file: FileKind::Index(tail.base), contents: offsets });
        }
        if time_index.is_some_and(|len| ((active.time_index.len() * TIME_ENTRY_BYTES) as u64) < len) {
            self.fixes.push_back(Step::WriteFile { file: FileKind::TimeIndex(tail.base), contents: times });
        }
        active
    }

    /// Removes later segments and the snapshots that cannot be used.
    fn remove_what_is_behind(&mut self, active: Offset) {
        let mut files = Vec::new();
        for (&base, segment) in self.listing.segments.range(active.plus(1)..) {
            files.push(FileKind::Log(base));
            files.extend(segment.index.map(|_| FileKind::Index(base)));
            files.extend(segment.time_index.map(|_| FileKind::TimeIndex(base)));
        }
        let behind = |&at: &Offset| self.log.end < at || self.unusable.contains(&at);
        files.extend(self.listing.snapshots.keys().copied().filter(behind).map(FileKind::Snapshot));
        if !files.is_empty() {
            self.fixes.push_front(Step::Remove { files, names: Vec::new() });
        }
    }

    /// There is nothing at or behind the log start: it begins there, without a file.
    pub(super) fn start_anew(&mut self) {
        let mut log = RecoveredLog { suspect: self.log.suspect, ..RecoveredLog::default() };
        if let Some(entry) = self.input.checkpoint {
            (log.log_start, log.end, log.high_watermark) = (entry.log_start, entry.log_start, entry.log_start);
            log.below_checkpoint = entry.log_start < entry.stable || entry.log_start < entry.high_watermark;
        }
        self.log = log;
        self.fixes.clear();
        self.unusable = self.listing.snapshots.keys().copied().collect();
        self.remove_what_is_behind(Offset(-1));
        self.begin_fixes();
    }
}
