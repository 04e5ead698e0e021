//! Rebuilding of lost indexes of sealed segments in the background: one segment at a time on a core, in small pieces with
//! a rest after each. Until it is done reads find their way through the segment without an index.
//!
//! The rebuild opens the segment for itself, so that nobody's closing or removing of it gets in the way; whether the
//! segment is still part of the log is looked at after every step. The jobs that find a file by the name of its directory
//! hold up the end of the partition, as all such jobs do.

use std::collections::BTreeSet;

use crate::arena::{Lease, Pool};
use crate::ids::{DirId, Errno, FileId, Now, Offset, PartitionId, ReadId};
use crate::limits::SENDFILE_SLICE_BYTES;
use crate::log::index::{SegmentBounds, SegmentIndex};
use crate::log::index_cache::{IndexKey, IndexKind};
use crate::log::index_rebuild::{IndexRebuild, Rebuilt};
use crate::log::segment::SegmentState;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, FileJob, FileKind, FileRange, PartitionFile};
use crate::shard::event::FileDone;
use crate::shard::file_jobs::{ENOSPC, Purpose};
use crate::shard::timers::Timer;

/// Rest after each piece: reading goes at some 60 MB/s at the most, and takes a few hundredths of a core.
const REST_US: u64 = 4_000;
/// Marks the reads of a rebuild among the reads of a core.
const READ_BIT: u64 = 1 << 63;

/// The rebuilds of a core.
#[derive(Debug, Default)]
pub struct IndexRebuilds {
    waiting: BTreeSet<(PartitionId, Offset)>,
    current: Option<Running>,
    /// Rebuilds begun so far; numbers them.
    begun: u64,
    /// How many came to their end since none waited.
    done: u64,
}

/// The rebuild under way.
#[derive(Debug)]
struct Running {
    number: u64,
    partition: PartitionId,
    base: Offset,
    dir: DirId,
    /// The segment, once it is open.
    file: Option<FileId>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Opening(IndexRebuild),
    /// A piece is being read.
    Reading(IndexRebuild),
    Resting(IndexRebuild),
    /// The file of one index is being written; the time index comes last.
    Writing(SegmentIndex, IndexKind),
}

impl IndexRebuilds {
    /// Whether none is under way.
    pub fn is_quiet(&self) -> bool {
        self.current.is_none()
    }

    /// Whether a read is one of a rebuild.
    pub fn owns(read: ReadId) -> bool {
        read.0 & READ_BIT != 0
    }

    /// Takes the rebuild of this number out, unless it is over.
    fn take(&mut self, number: u64) -> Option<Running> {
        self.current.take_if(|current| current.number == number)
    }
}

impl Shard {
    /// Indexes of these sealed segments are lost: they are built again when their turn comes.
    pub(super) fn rebuild_indexes(&mut self, partition: PartitionId, bases: &[Offset], out: &mut Actions) {
        let current = self.rebuilds.current.as_ref().map(|current| (current.partition, current.base));
        let others = bases.iter().map(|base| (partition, *base)).filter(|lost| Some(*lost) != current);
        self.rebuilds.waiting.extend(others);
        self.start_rebuild(out);
    }

    fn start_rebuild(&mut self, out: &mut Actions) {
        while self.rebuilds.current.is_none()
            && !self.stopping.is_asked()
            && let Some((partition, base)) = self.rebuilds.waiting.pop_first()
        {
            self.begin_rebuild(partition, base, out);
        }
        if self.rebuilds.current.is_none() && self.rebuilds.done > 0 {
            let segments = std::mem::take(&mut self.rebuilds.done);
            tracing::info!(segments, "lost indexes are rebuilt");
        }
    }

    fn begin_rebuild(&mut self, id: PartitionId, base: Offset, out: &mut Actions) {
        let Some((slot, partition)) = self.partitions.by_id(id) else { return };
        let serving = partition.check_serving().is_ok();
        let sealed = partition.segments.get_mut(base).filter(|segment| segment.state == SegmentState::Sealed);
        let Some(segment) = sealed.filter(|_| serving) else { return };
        let bounds = SegmentBounds { base, end: segment.end, len: segment.len };
        let rebuild = IndexRebuild::new(bounds, partition.config.index_interval_bytes, partition.leader_epoch);
        let path = PartitionFile { dir: partition.dir.clone(), kind: FileKind::Log(base) };
        self.rebuilds.begun += 1;
        let (number, dir) = (self.rebuilds.begun, path.dir.dir);
        let step = Step::Opening(rebuild);
        self.rebuilds.current = Some(Running { number, partition: id, base, dir, file: None, step });
        let file = self.file_jobs.new_file();
        self.file_jobs.start(Purpose::Rebuild { slot, number }, FileJob::OpenSealed { file, path }, out);
    }

    /// A file was opened or written for a rebuild.
    pub(super) fn on_rebuild_job(
        &mut self,
        now: Now,
        (slot, number): (u32, u64),
        result: Result<FileDone, Errno>,
        out: &mut Actions,
    ) {
        let opened = if let Ok(FileDone::Opened { file, .. }) = result { Some(file) } else { None };
        match (self.rebuilds.take(number), opened) {
            (Some(running), _) => {
                let running = Running { file: opened.or(running.file), ..running };
                self.continue_rebuild(now, running, slot, result, out);
            }
            (None, Some(file)) => {
                // It is over since: its data directory has failed.
                let dir = self.partitions.by_slot(slot).expect("a partition outlives its jobs").dir.dir;
                self.file_jobs.start(Purpose::Close { dir }, FileJob::Close { file }, out);
            }
            (None, None) => {}
        }
        self.continue_close(slot, out);
    }

    fn continue_rebuild(
        &mut self,
        now: Now,
        running: Running,
        slot: u32,
        result: Result<FileDone, Errno>,
        out: &mut Actions,
    ) {
        if !self.is_rebuild_wanted(&running) {
            return self.end_rebuild(running, out);
        }
        let Running { partition, base, dir, .. } = running;
        match (result, running.step) {
            (Err(Errno(ENOSPC)), step @ Step::Writing(..)) => {
                tracing::warn!(?partition, segment = %base, "disk full: a rebuilt index is not written");
                self.end_rebuild(Running { step, ..running }, out);
            }
            (Err(errno), step) => {
                tracing::error!(?partition, segment = %base, %errno, "an index cannot be rebuilt");
                self.end_rebuild(Running { step, ..running }, out);
                self.fail_dir(now, dir, errno, out);
            }
            (Ok(_), Step::Opening(rebuild)) => {
                self.read_piece(now, Running { step: Step::Resting(rebuild), ..running }, out)
            }
            (Ok(_), Step::Writing(index, IndexKind::Offset)) => {
                self.write_rebuilt(Running { step: Step::Writing(index, IndexKind::Time), ..running }, slot, out);
            }
            (Ok(_), step @ Step::Writing(_, IndexKind::Time)) => {
                self.rebuilds.done += 1;
                self.end_rebuild(Running { step, ..running }, out);
            }
            (Ok(_), step) => panic!("a job of a rebuild came back in step {step:?}"),
        }
    }

    /// Whether the segment is still part of a log that is served, and the broker does not stop.
    fn is_rebuild_wanted(&mut self, running: &Running) -> bool {
        let stopping = self.stopping.is_asked();
        let partition = self.partitions.by_id(running.partition).map(|(_, partition)| partition);
        !stopping && partition.is_some_and(|p| p.check_serving().is_ok() && p.has_segment(running.base))
    }

    /// Reads the next piece; tries again after a rest when there is no memory that nobody uses.
    fn read_piece(&mut self, now: Now, running: Running, out: &mut Actions) {
        let Step::Resting(rebuild) = running.step else { panic!("a piece for step {:?}", running.step) };
        let len = rebuild.left().min(SENDFILE_SLICE_BYTES);
        let block = self.arena.alloc(Pool::Reads, len, self.pressure.changes());
        self.tell_changes(out);
        let Some(block) = block else {
            return self.rest(now, Running { step: Step::Resting(rebuild), ..running });
        };
        let into = self.arena.into_lease(block);
        let file = running.file.expect("it was opened");
        let range = FileRange { file, at: rebuild.wanted(), len };
        out.push(Action::Read { read: ReadId(READ_BIT | running.number), range, into });
        self.rebuilds.current = Some(Running { step: Step::Reading(rebuild), ..running });
    }

    fn rest(&mut self, now: Now, running: Running) {
        self.rebuilds.current = Some(running);
        self.timers.set(now.mono.plus_micros(REST_US), Timer::Rebuild);
    }

    /// The rest is over.
    pub(super) fn on_rebuild_timer(&mut self, now: Now, out: &mut Actions) {
        let resting = |current: &mut Running| matches!(current.step, Step::Resting(_));
        let Some(running) = self.rebuilds.current.take_if(resting) else { return };
        match self.is_rebuild_wanted(&running) {
            true => self.read_piece(now, running, out),
            false => self.end_rebuild(running, out),
        }
    }

    pub(super) fn on_rebuild_read(
        &mut self,
        now: Now,
        read: ReadId,
        into: Lease,
        result: Result<u32, Errno>,
        out: &mut Actions,
    ) {
        if let Some(running) = self.rebuilds.take(read.0 & !READ_BIT) {
            match result {
                _ if !self.is_rebuild_wanted(&running) => self.end_rebuild(running, out),
                Ok(len) => self.on_piece(now, running, (&into, len), out),
                Err(errno) => {
                    let Running { partition, base, dir, .. } = running;
                    tracing::error!(?partition, segment = %base, %errno, "segment cannot be read for its index");
                    self.end_rebuild(running, out);
                    self.fail_dir(now, dir, errno, out);
                }
            }
        }
        self.arena.release(into);
    }

    fn on_piece(&mut self, now: Now, running: Running, (block, len): (&Lease, u32), out: &mut Actions) {
        let Step::Reading(mut rebuild) = running.step else { panic!("a piece in step {:?}", running.step) };
        let memory = self.memory.clone();
        match rebuild.feed(&memory.bytes(block)[..len as usize]) {
            Rebuilt::More => self.rest(now, Running { step: Step::Resting(rebuild), ..running }),
            Rebuilt::Done(index) => {
                let Running { partition, base, .. } = running;
                let (slot, hosted) = self.partitions.by_id(partition).expect("the rebuild is wanted");
                let segment = hosted.segments.get_mut(base).expect("the rebuild is wanted");
                segment.max_timestamp = segment.max_timestamp.max(index.times.max_timestamp().0);
                self.write_rebuilt(Running { step: Step::Writing(index, IndexKind::Offset), ..running }, slot, out);
            }
            Rebuilt::Damaged { at, why } => {
                let Running { partition, base, .. } = running;
                tracing::error!(?partition, segment = %base, %at, %why, "corrupt batch; the segment stays without index");
                self.metrics.count.corrupt_batches += 1;
                self.end_rebuild(Running { step: Step::Resting(rebuild), ..running }, out);
            }
        }
    }

    /// Puts one of the indexes in place, in memory and as a file. Whatever the file holds is replaced as a whole.
    fn write_rebuilt(&mut self, running: Running, slot: u32, out: &mut Actions) {
        let Step::Writing(index, kind) = &running.step else { panic!("an index in step {:?}", running.step) };
        let (bytes, file) = match kind {
            IndexKind::Offset => (index.offsets.as_bytes(), FileKind::Index(running.base)),
            IndexKind::Time => (index.times.as_bytes(), FileKind::TimeIndex(running.base)),
        };
        let key = IndexKey { partition: running.partition, base: running.base, kind: *kind };
        self.index_cache.insert(key, bytes.into());
        let dir = self.partitions.by_slot(slot).expect("the rebuild is wanted").dir.clone();
        let what = FileJob::Replace { path: PartitionFile { dir, kind: file }, contents: bytes.to_vec() };
        self.file_jobs.start(Purpose::Rebuild { slot, number: running.number }, what, out);
        self.rebuilds.current = Some(running);
    }

    /// A rebuild is over, whatever came of it.
    fn end_rebuild(&mut self, running: Running, out: &mut Actions) {
        let dir = running.dir;
        if let Some(file) = running.file.filter(|_| !self.writes.has_failed(dir)) {
            self.file_jobs.start(Purpose::Close { dir }, FileJob::Close { file }, out);
        }
        self.start_rebuild(out);
    }

    /// A data directory has failed: what is in flight for a rebuild there may never come back.
    pub(super) fn lose_rebuild(&mut self, dir: DirId, out: &mut Actions) {
        if let Some(running) = self.rebuilds.current.take_if(|current| current.dir == dir) {
            self.end_rebuild(running, out);
        }
    }

    /// The broker stops: a rebuild ends with the operation that it has in flight.
    pub(super) fn stop_rebuilds(&mut self, out: &mut Actions) {
        self.rebuilds.waiting.clear();
        let resting = |current: &mut Running| matches!(current.step, Step::Resting(_));
        if let Some(running) = self.rebuilds.current.take_if(resting) {
            self.end_rebuild(running, out);
        }
    }
}
