//! Before the scan: which snapshot the producers' state begins with, which epochs are known, where the scan begins.

use crate::ids::{FilePos, Offset};
use crate::limits::INDEX_BYTES_MAX;
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{SegmentBounds, check_offset_index, check_time_index, offset_entries, time_entries};
use crate::log::producer_snapshot::{self, SNAPSHOT_BYTES_MAX};

use super::listing::SegmentFiles;
use super::machine::{Phase, Recovery};
use super::replay::Replay;
use super::scan::Due;
use super::{LastStop, RecoveredLog, Step};

/// A segment whose batches end here is read whole rather than through its index: one read does for both.
const WHOLE_BYTES_MAX: u64 = 64 * 1024;
/// Longest leader-epoch-checkpoint that is read; a longer one is taken for garbage.
const EPOCHS_BYTES_MAX: u64 = 1024 * 1024;

/// Where the scan begins.
#[derive(Clone, Debug, Default)]
pub(super) struct ScanPlan {
    /// The segment that is scanned now.
    pub segment: Offset,
    /// The first one of the scan.
    pub first: Offset,
    /// Batches behind this position need not be read to find a start: the checkpoint's, or the end of the file.
    pub target: u64,
    /// Producer state needs the batches from here on.
    pub replay_from: Offset,
    /// The index is not to be trusted: read the segment from its start.
    pub without_index: bool,
    /// The offset entries before the start.
    pub offsets: Vec<(Offset, FilePos)>,
    /// The time entries before the start.
    pub times: Vec<(i64, Offset)>,
}

impl Recovery {
    pub(super) fn plan_clean_up(&mut self) {
        let names = self.listing.leftovers.clone();
        if !names.is_empty() {
            self.fixes.push_back(Step::Remove { files: Vec::new(), names });
        }
        for (from, to) in self.listing.swaps.clone() {
            self.fixes.push_back(Step::Rename { from, to });
        }
    }

    /// Starts, or starts again when the log turned out to end below the snapshot that was loaded.
    pub(super) fn begin(&mut self) {
        self.replay = Replay::new(self.input.index_interval_bytes);
        self.scanned.clear();
        self.log = RecoveredLog::default();
        if self.listing.segments.is_empty() {
            return self.start_anew();
        }
        self.begin_snapshot();
    }

    fn begin_snapshot(&mut self) {
        let usable = |&(&at, &len): &(&Offset, &u64)| {
            at <= self.snapshot_max && len <= SNAPSHOT_BYTES_MAX && !self.unusable.contains(&at)
        };
        match self.listing.snapshots.iter().rev().find(usable) {
            Some((&at, _)) => self.phase = Phase::Snapshot(at),
            None => self.begin_epochs(),
        }
    }

    pub(super) fn on_snapshot(&mut self, at: Offset, bytes: Option<&[u8]>) {
        match bytes.and_then(|bytes| producer_snapshot::decode(bytes, at).ok()) {
            Some(producers) => {
                self.replay.load_producers(at, producers);
                self.begin_epochs();
            }
            None => {
                self.unusable.push(at);
                self.begin_snapshot();
            }
        }
    }

    fn begin_epochs(&mut self) {
        self.plan_scan();
        let first = self.first_segment();
        // What is read from its very start needs no memory of what came before.
        let whole_log = self.plan.segment == first && self.plan.target <= WHOLE_BYTES_MAX;
        match self.listing.epochs {
            _ if whole_log => self.begin_scan_from_start(first),
            Some(len) if len <= EPOCHS_BYTES_MAX => self.phase = Phase::Epochs,
            _ => self.scan_everything(),
        }
    }

    pub(super) fn on_epochs(&mut self, bytes: Option<&[u8]>) {
        match bytes.and_then(|bytes| LeaderEpochs::decode(bytes).ok()) {
            Some(epochs) => {
                self.replay.epochs = epochs;
                self.begin_offset_index();
            }
            None => self.scan_everything(),
        }
    }

    /// Leader epochs, or where the producers' state begins, are lost: only the batches still know.
    fn scan_everything(&mut self) {
        let first = self.first_segment();
        self.plan.first = first;
        self.begin_scan_from_start(first);
    }

    fn plan_scan(&mut self) {
        let last = *self.listing.segments.last_key_value().expect("there are segments").0;
        let first = self.first_segment();
        let (proof, target) = match (&self.input.checkpoint, self.input.last_stop) {
            (Some(entry), _) if self.listing.segments.contains_key(&entry.segment) => (entry.segment, entry.at.0),
            (Some(entry), _) => (self.listing.segment_of(entry.segment).unwrap_or(first), u64::MAX),
            (None, LastStop::Clean) => (last, u64::MAX),
            (None, LastStop::Crash) => (first, 0),
        };
        let replay_from = self.replay_from(first, last);
        let segment = proof.min(self.listing.segment_of(replay_from).unwrap_or(first));
        let target = if segment == proof { target } else { u64::MAX };
        let target = target.min(self.listing.segments[&segment].len);
        self.plan = ScanPlan { segment, first: segment, target, replay_from, ..ScanPlan::default() };
    }

    /// From where on batches must be read to know the producers.
    fn replay_from(&self, first: Offset, last: Offset) -> Offset {
        let newest = self.listing.snapshots.last_key_value().map(|(&at, _)| at);
        let uncovered = self.input.checkpoint.map(|entry| entry.producers_from.unwrap_or(entry.stable));
        match (self.replay.snapshot, uncovered) {
            (Some(at), Some(uncovered)) if newest == Some(at) => at.max(uncovered),
            (Some(at), _) => at,
            (None, Some(uncovered)) if newest.is_none() => uncovered,
            (None, None) if newest.is_none() && self.input.last_stop == LastStop::Clean => last,
            (None, _) => first,
        }
    }

    fn begin_offset_index(&mut self) {
        let SegmentFiles { index, time_index, .. } = self.files();
        let readable = |len: Option<u64>| len.is_some_and(|len| 0 < len && len <= INDEX_BYTES_MAX);
        if self.plan.target <= WHOLE_BYTES_MAX || !readable(index) || !readable(time_index) {
            return self.begin_scan_from_start(self.plan.segment);
        }
        self.phase = Phase::OffsetIndex;
    }

    pub(super) fn on_offset_index(&mut self, bytes: Option<&[u8]>) {
        let base = self.plan.segment;
        let bounds = self.bounds();
        match bytes.and_then(|bytes| check_offset_index(bytes, bounds).ok()) {
            Some(bytes) => {
                let (target, replay_from) = (self.plan.target, self.plan.replay_from);
                let before = |&(offset, at): &(Offset, FilePos)| at.0 < target && offset < replay_from;
                self.plan.offsets = offset_entries(bytes, base).take_while(before).collect();
                self.phase = Phase::TimeIndex;
            }
            None => self.begin_scan_from_start(base),
        }
    }

    pub(super) fn on_time_index(&mut self, bytes: Option<&[u8]>) {
        let base = self.plan.segment;
        let bounds = self.bounds();
        let bytes = bytes.and_then(|bytes| check_time_index(bytes, bounds).ok());
        match (bytes, self.plan.offsets.last().copied()) {
            (Some(bytes), Some((last, at))) => {
                self.plan.times = time_entries(bytes, base).take_while(|&(_, offset)| offset <= last).collect();
                self.begin_scan(at, Due::Last(last));
            }
            _ => self.begin_scan_from_start(base),
        }
    }

    /// What the index of the present segment may name, as far as it is known before the scan.
    fn bounds(&self) -> SegmentBounds {
        let base = self.plan.segment;
        let end = self.listing.after(base).unwrap_or(Offset(i64::MAX));
        SegmentBounds { base, end, len: self.files().len }
    }
}
