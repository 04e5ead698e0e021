//! What a core does by the clock: checkpoints, retention, removals, idle connections.

use std::collections::VecDeque;
use std::ops::Range;

use crate::ids::{BrokerEpoch, DirId, Errno, FileId, MonoMicros, Now};
use crate::log::checkpoint::SlotWriter;
use crate::log::index_cache::{IndexKey, IndexKind};
use crate::shard::Shard;
use crate::shard::action::{Actions, FileJob, FileKind, Linger, PartitionDir};
use crate::shard::file_jobs::{ENOSPC, Purpose};
use crate::shard::partition::StaleFile;
use crate::shard::timers::Timer;

/// How often a checkpoint is written when something has moved.
const CHECKPOINT_US: u64 = 1_000_000;
/// How often idle connections are looked for, at the most.
const IDLE_CHECK_US_MAX: u64 = 10_000_000;

/// Partition files that are brought up to date by one tick: the rest waits for the next one.
const FILES_PER_TICK_MAX: usize = 64;

/// Checkpoint of one data directory.
#[derive(Debug)]
pub struct DirCheckpoint {
    writer: SlotWriter,
    in_flight: bool,
    /// Something has moved since the last slot.
    moved: bool,
}

/// Checkpoints, and what is removed after a delay, so that reads in flight end first.
#[derive(Debug)]
pub struct Upkeep {
    checkpoints: Vec<DirCheckpoint>,
    timer_set: bool,
    /// The slot from which the next tick looks for files that are behind.
    next_slot: u32,
    dirs: VecDeque<(MonoMicros, DirId, String)>,
    segments: VecDeque<Removal>,
}

/// Segments that are no longer part of a log. Their files stay open as long, or until no answer names them any more.
#[derive(Debug)]
struct Removal {
    due: MonoMicros,
    dir: PartitionDir,
    open: Vec<FileId>,
    files: Vec<FileKind>,
}

impl Upkeep {
    /// Nothing to remove; a slot writer per data directory.
    pub fn new(writers: Vec<SlotWriter>) -> Upkeep {
        let checkpoint = |writer| DirCheckpoint { writer, in_flight: false, moved: false };
        Upkeep {
            checkpoints: writers.into_iter().map(checkpoint).collect(),
            timer_set: false,
            next_slot: 0,
            dirs: VecDeque::new(),
            segments: VecDeque::new(),
        }
    }

    /// A partition of this directory has moved: the next checkpoint is due.
    pub fn note_moved(&mut self, dir: DirId) {
        self.checkpoints[usize::from(dir.0)].moved = true;
    }

    /// Whether a checkpoint is being written.
    pub fn is_quiet(&self) -> bool {
        self.checkpoints.iter().all(|checkpoint| !checkpoint.in_flight)
    }
}

impl Shard {
    pub(super) fn set_first_timers(&mut self, now: MonoMicros) {
        self.timers.set(now.plus_millis(self.config.retention_check_ms), Timer::Retention);
        self.set_idle_timer(now);
    }

    pub(super) fn on_deadline(&mut self, now: Now, out: &mut Actions) {
        while let Some(timer) = self.timers.pop_due(now.mono) {
            match timer {
                Timer::FetchWait(ticket) => self.on_fetch_wait_over(now, ticket, out),
                Timer::ProduceTimeouts => self.on_produce_timeouts(now, out),
                Timer::Checkpoint => self.on_checkpoint_timer(now, out),
                Timer::Retention => self.on_retention_timer(now),
                Timer::Idle => self.on_idle_timer(now, out),
                Timer::Removals => self.on_removals(now, out),
                Timer::Rebuild => self.on_rebuild_timer(now, out),
                Timer::Space => self.on_space_timer(),
            }
        }
    }

    /// A partition's offsets have moved; sets the checkpoint timer unless it is set, so that an idle core sleeps.
    pub(super) fn note_moved(&mut self, now: Now, dir: DirId) {
        self.upkeep.note_moved(dir);
        self.set_checkpoint_timer(now);
    }

    fn set_checkpoint_timer(&mut self, now: Now) {
        if !std::mem::replace(&mut self.upkeep.timer_set, true) {
            self.timers.set(now.mono.plus_micros(CHECKPOINT_US), Timer::Checkpoint);
        }
    }

    fn on_checkpoint_timer(&mut self, now: Now, out: &mut Actions) {
        self.upkeep.timer_set = false;
        let more = self.bring_files_up_to_date(now, out);
        for index in 0..self.upkeep.checkpoints.len() {
            self.write_checkpoint(DirId(index as u16), out);
        }
        let moved = self.upkeep.checkpoints.iter().any(|checkpoint| checkpoint.moved);
        if more || moved {
            self.set_checkpoint_timer(now);
        }
    }

    /// Index entries, leader epochs and producer snapshots that the files lack; a bounded number of them, so that each
    /// tick goes on where the last one stopped. Returns whether some were left.
    fn bring_files_up_to_date(&mut self, now: Now, out: &mut Actions) -> bool {
        let first = std::mem::take(&mut self.upkeep.next_slot);
        let mut work = Vec::new();
        let mut more = self.collect_stale(now, first..u32::MAX, &mut work);
        if !more {
            more = self.collect_stale(now, 0..first, &mut work);
        }
        for (slot, file) in work {
            self.write_stale(slot, file, out);
        }
        more
    }

    /// Adds what is behind in these slots. Returns whether the limit came before their end.
    fn collect_stale(&mut self, now: Now, slots: Range<u32>, work: &mut Vec<(u32, StaleFile)>) -> bool {
        for (slot, partition) in self.partitions.iter_mut().filter(|(slot, _)| slots.contains(slot)) {
            if FILES_PER_TICK_MAX <= work.len() {
                self.upkeep.next_slot = slot;
                return true;
            }
            if partition.check_serving().is_ok() {
                partition.stale_files(now, |file| work.push((slot, file)));
            }
        }
        false
    }

    /// Writes a checkpoint slot for a directory in which something has moved.
    pub(super) fn write_checkpoint(&mut self, dir: DirId, out: &mut Actions) {
        let checkpoint = &mut self.upkeep.checkpoints[usize::from(dir.0)];
        if !checkpoint.moved || checkpoint.in_flight || self.writes.has_failed(dir) {
            return;
        }
        let brokers = &self.view.image.brokers;
        let epoch = brokers.get(&self.config.node).map_or(BrokerEpoch(-1), |broker| broker.epoch);
        let mut contents = Vec::new();
        let here = self.partitions.iter().filter(|(_, partition)| partition.dir.dir == dir);
        let entries = here.filter_map(|(_, partition)| partition.checkpoint_entry());
        let at = checkpoint.writer.encode(epoch, entries, &mut contents);
        checkpoint.moved = false;
        checkpoint.in_flight = true;
        self.file_jobs.start(Purpose::Checkpoint { dir }, FileJob::Checkpoint { dir, at, contents }, out);
    }

    pub(super) fn on_checkpoint_done(&mut self, now: Now, dir: DirId, result: Result<(), Errno>, out: &mut Actions) {
        let checkpoint = &mut self.upkeep.checkpoints[usize::from(dir.0)];
        checkpoint.in_flight = false;
        checkpoint.writer.on_written(result.is_ok());
        match result {
            Ok(()) => {}
            // The older slot is still whole: recovery begins there.
            Err(Errno(ENOSPC)) => {
                self.stopping.note_file_lacking();
                self.note_moved(now, dir);
            }
            Err(errno) => self.fail_dir(now, dir, errno, out),
        }
    }

    fn on_retention_timer(&mut self, now: Now) {
        let slots: Vec<u32> = self.partitions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.apply_retention(now, slot);
        }
        self.timers.set(now.mono.plus_millis(self.config.retention_check_ms), Timer::Retention);
    }

    /// Rolls an old active segment, raises the log start, and lets go of the segments below it.
    pub(super) fn apply_retention(&mut self, now: Now, slot: u32) {
        let partition = self.partitions.by_slot(slot).expect("looked at by the caller");
        if partition.failed().is_some() || partition.is_closing() {
            return;
        }
        partition.producers.expire(now.wall);
        let dropped = partition.apply_retention(now);
        let (id, dir, delay) = (partition.id, partition.dir.clone(), partition.config.file_delete_delay_ms);
        self.mark_dirty(slot);
        if dropped.is_empty() {
            return;
        }
        self.note_moved(now, dir.dir);
        let (mut files, mut open) = (Vec::new(), Vec::new());
        for segment in dropped {
            for kind in [IndexKind::Offset, IndexKind::Time] {
                self.index_cache.remove(IndexKey { partition: id, base: segment.base, kind });
            }
            files.extend([FileKind::Log(segment.base), FileKind::Index(segment.base)]);
            files.extend([FileKind::TimeIndex(segment.base), FileKind::Snapshot(segment.base)]);
            open.extend(segment.file);
        }
        self.upkeep.segments.push_back(Removal { due: now.mono.plus_millis(delay), dir, open, files });
        self.set_removal_timer();
    }

    /// The directory of a deleted partition has been renamed; it goes after a delay.
    pub(super) fn schedule_removal(&mut self, now: Now, delay_ms: u64, dir: DirId, name: String) {
        self.upkeep.dirs.push_back((now.mono.plus_millis(delay_ms), dir, name));
        self.set_removal_timer();
    }

    fn on_removals(&mut self, now: Now, out: &mut Actions) {
        while let Some(removal) = self.upkeep.segments.pop_front_if(|removal| removal.due <= now.mono) {
            let Removal { dir, open, files, .. } = removal;
            for file in open {
                self.close_file(dir.dir, file, out);
            }
            self.file_jobs.start(Purpose::Remove { dir: dir.dir }, FileJob::Remove { dir, files }, out);
        }
        while let Some((_, dir, name)) = self.upkeep.dirs.pop_front_if(|(due, _, _)| *due <= now.mono) {
            let what = FileJob::RemoveDir { dir: PartitionDir { dir, name: name.into() } };
            self.file_jobs.start(Purpose::Remove { dir }, what, out);
        }
        self.set_removal_timer();
    }

    fn set_removal_timer(&mut self) {
        let dirs = self.upkeep.dirs.front().map(|(due, _, _)| *due);
        let segments = self.upkeep.segments.front().map(|removal| removal.due);
        if let Some(due) = dirs.into_iter().chain(segments).min() {
            self.timers.set(due, Timer::Removals);
        }
    }

    fn on_idle_timer(&mut self, now: Now, out: &mut Actions) {
        let idle_us_max = self.config.connection_idle_ms_max.saturating_mul(1000);
        let idle = |last: MonoMicros| now.mono.micros_since(last) >= idle_us_max;
        let connections = self.connections.iter();
        let over: Vec<_> = connections.filter(|c| c.is_quiet() && idle(c.last_active)).map(|c| c.id).collect();
        for conn in over {
            self.metrics.count.connections_closed_for_idleness += 1;
            self.close(conn, Linger::Graceful, out);
        }
        self.arena.give_back(self.writes.is_quiet(), self.pressure.changes());
        self.tell_changes(out);
        self.set_idle_timer(now.mono);
    }

    fn set_idle_timer(&mut self, now: MonoMicros) {
        let every = (self.config.connection_idle_ms_max.saturating_mul(100)).clamp(100_000, IDLE_CHECK_US_MAX);
        self.timers.set(now.plus_micros(every), Timer::Idle);
    }
}
