//! Group commit over all partitions of a core: the writes of a turn leave together, and so does the flush that covers
//! them.

use crate::arena::Lease;
use crate::ids::{DirId, Errno, FileId, FlushId, Generation, Now, WriteId};
use crate::log::appender::{LogPos, WritePlan};
use crate::log::group_commit::{FlushWay, GroupCommit};
use crate::log::segment::UnwrittenExtents;
use crate::metrics::ProduceStage;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, Extents};

/// A write that is out.
#[derive(Debug)]
struct InFlight {
    slot: u32,
    dir: DirId,
    file: FileId,
    generation: Generation,
    to: LogPos,
    durable: bool,
}

/// Group commit of one data directory.
#[derive(Debug)]
struct DirWrites {
    commit: GroupCommit,
    /// Partitions with completed writes that no flush covers yet.
    completed: Vec<u32>,
    /// Partitions that the flush in flight covers.
    flushing: Vec<u32>,
    /// A file of this directory with completed writes.
    file: FileId,
    failed: bool,
    /// Writes planned in this turn.
    planned: usize,
}

/// All writes of a core.
#[derive(Debug)]
pub struct Writes {
    in_flight: slab::Slab<InFlight>,
    dirs: Vec<DirWrites>,
    /// Partitions with something to submit or a file to see to.
    dirty: Vec<u32>,
    plans: Vec<(u32, DirId, WritePlan)>,
    scratch: Vec<WritePlan>,
}

impl Writes {
    /// Nothing written yet; one way of flushing per data directory.
    pub fn new(ways: &[FlushWay]) -> Writes {
        let dir = |way: &FlushWay| DirWrites {
            commit: GroupCommit::new(*way),
            completed: Vec::new(),
            flushing: Vec::new(),
            file: FileId(0),
            failed: false,
            planned: 0,
        };
        Writes {
            in_flight: slab::Slab::new(),
            dirs: ways.iter().map(dir).collect(),
            dirty: Vec::new(),
            plans: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Whether a partition has a write out, or one that a flush must cover.
    pub fn is_busy(&self, slot: u32) -> bool {
        let waits = |dir: &DirWrites| !dir.failed && (dir.completed.contains(&slot) || dir.flushing.contains(&slot));
        self.in_flight.iter().any(|(_, write)| write.slot == slot) || self.dirs.iter().any(waits)
    }

    /// Whether nothing is out and nothing waits. What a failed directory has written is never flushed, what hangs there
    /// may never come back, and nobody waits for either.
    pub fn is_quiet(&self) -> bool {
        let quiet = |dir: &DirWrites| dir.failed || dir.commit.is_quiet();
        let out = self.in_flight.iter().any(|(_, write)| !self.has_failed(write.dir));
        !out && self.dirty.is_empty() && self.dirs.iter().all(quiet)
    }

    /// Whether a data directory has failed.
    pub fn has_failed(&self, dir: DirId) -> bool {
        self.dirs[usize::from(dir.0)].failed
    }

    /// A data directory has failed; returns whether that is news.
    pub fn fail(&mut self, dir: DirId) -> bool {
        !std::mem::replace(&mut self.dirs[usize::from(dir.0)].failed, true)
    }

    /// Whether files of a directory may grow into unwritten extents.
    pub fn unwritten_extents(&self, dir: DirId) -> UnwrittenExtents {
        self.dirs[usize::from(dir.0)].commit.way().unwritten_extents()
    }

    fn dir(&mut self, dir: DirId) -> &mut DirWrites {
        &mut self.dirs[usize::from(dir.0)]
    }
}

impl Shard {
    /// A partition has bytes to submit, or wants something done with its files.
    pub(super) fn mark_dirty(&mut self, slot: u32) {
        if let Some(partition) = self.partitions.by_slot(slot)
            && !std::mem::replace(&mut partition.dirty, true)
        {
            self.writes.dirty.push(slot);
        }
    }

    /// Submits what the dirty partitions may write now, and sees to their files.
    pub(super) fn submit_writes(&mut self, now: Now, out: &mut Actions) {
        let mut dirty = std::mem::take(&mut self.writes.dirty);
        for slot in dirty.drain(..) {
            let Some(partition) = self.partitions.by_slot(slot) else { continue };
            partition.dirty = false;
            self.see_to_files(now, slot, out);
            self.plan_partition(slot);
        }
        self.writes.dirty = dirty;
        let mut plans = std::mem::take(&mut self.writes.plans);
        for (slot, dir, plan) in plans.drain(..) {
            self.submit_write(slot, dir, plan, out);
        }
        self.writes.plans = plans;
        self.writes.dirs.iter_mut().for_each(|dir| dir.planned = 0);
    }

    fn plan_partition(&mut self, slot: u32) {
        let Some(partition) = self.partitions.by_slot(slot) else { return };
        let mut scratch = std::mem::take(&mut self.writes.scratch);
        partition.plan_writes(&mut self.arena, &mut scratch);
        let dir = partition.dir.dir;
        self.writes.dir(dir).planned += scratch.len();
        self.writes.plans.extend(scratch.drain(..).map(|plan| (slot, dir, plan)));
        self.writes.scratch = scratch;
    }

    fn submit_write(&mut self, slot: u32, dir: DirId, plan: WritePlan, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("it planned the write in this turn");
        let file = partition.written_file(plan.segment).expect("only open files are written");
        let unwritten = partition.files.extents(plan.segment, plan.at) == Extents::Unwritten;
        let planned = self.writes.dir(dir).planned;
        let way = self.writes.dir(dir).commit.submit(planned, unwritten);
        let WritePlan { at, block, generation, to, .. } = plan;
        let in_flight = InFlight { slot, dir, file, generation, to, durable: way.durable };
        let write = WriteId(self.writes.in_flight.insert(in_flight) as u64);
        self.metrics.count.bytes_written += u64::from(block.len());
        self.metrics.count.writes += 1;
        out.push(Action::Write { write, file, at, block, sync: way.sync });
    }

    pub(super) fn on_written(
        &mut self,
        now: Now,
        write: WriteId,
        block: Lease,
        result: Result<(), Errno>,
        out: &mut Actions,
    ) {
        self.arena.release(block);
        let write = self.writes.in_flight.remove(write.0 as usize);
        let dir = self.writes.dir(write.dir);
        dir.commit.on_written(write.durable);
        if let Err(errno) = result {
            self.fail_dir(now, write.dir, errno, out);
        }
        if self.writes.has_failed(write.dir) {
            return self.continue_close(write.slot, out);
        }
        let dir = self.writes.dir(write.dir);
        let partition = self.partitions.by_slot(write.slot).expect("a partition outlives its writes");
        partition.on_written((write.generation, write.to), write.durable);
        if write.durable {
            return self.settle(now, write.slot, out);
        }
        if !std::mem::replace(&mut partition.awaits_flush, true) {
            dir.completed.push(write.slot);
        }
        dir.file = write.file;
        self.mark_dirty(write.slot);
    }

    /// Submits a flush for every data directory whose turn it is.
    pub(super) fn submit_flushes(&mut self, out: &mut Actions) {
        for index in 0..self.writes.dirs.len() {
            let dir = &mut self.writes.dirs[index];
            if dir.failed || !dir.commit.should_flush() {
                continue;
            }
            dir.commit.on_flush_submitted();
            assert!(dir.flushing.is_empty(), "partitions left over from the last flush");
            std::mem::swap(&mut dir.flushing, &mut dir.completed);
            let file = dir.file;
            for slot in &dir.flushing {
                if let Some(partition) = self.partitions.by_slot(*slot) {
                    partition.awaits_flush = false;
                    partition.on_flush_submitted();
                }
            }
            self.metrics.count.flushes += 1;
            out.push(Action::Flush { flush: FlushId(index as u64), dir: DirId(index as u16), file });
        }
    }

    pub(super) fn on_flushed(&mut self, now: Now, flush: FlushId, result: Result<(), Errno>, out: &mut Actions) {
        let dir_id = DirId(flush.0 as u16);
        let dir = self.writes.dir(dir_id);
        dir.commit.on_flushed();
        let mut flushed = std::mem::take(&mut dir.flushing);
        match result {
            Err(errno) => self.fail_dir(now, dir_id, errno, out),
            Ok(()) if self.writes.has_failed(dir_id) => {}
            Ok(()) => {
                for slot in &flushed {
                    if let Some(partition) = self.partitions.by_slot(*slot) {
                        partition.on_flushed();
                        self.settle(now, *slot, out);
                    }
                }
            }
        }
        flushed.clear();
        self.writes.dir(dir_id).flushing = flushed;
    }

    /// Stable may have moved: answers whose promise is kept leave, and readers who wait are woken.
    pub(super) fn settle(&mut self, now: Now, slot: u32, out: &mut Actions) {
        let mut settled = std::mem::take(&mut self.appends.settled);
        let partition = self.partitions.by_slot(slot).expect("settled by its slot");
        let dir = partition.dir.dir;
        let metrics = &mut self.metrics;
        let moved = partition.settle(|origin, outcome, since| {
            metrics.produce_stage(ProduceStage::Written, now.mono.micros_since(since));
            settled.push((origin, outcome));
        });
        if moved && partition.is_watched() {
            self.grown.note(slot);
        }
        for (origin, outcome) in settled.drain(..) {
            self.deliver_append(now, origin, outcome, out);
        }
        self.appends.settled = settled;
        self.mark_dirty(slot);
        if moved {
            self.note_moved(now, dir);
        }
        self.continue_close(slot, out);
    }
}
