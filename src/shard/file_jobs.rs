//! File jobs in flight, and what their completion means.

use crate::ids::{CoreId, DirId, Errno, FileId, FileJobId, FilePos, Now, Offset};
use crate::log::index_cache::{IndexKey, IndexKind};
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, FileJob, FileKind, PartitionFile};
use crate::shard::event::FileDone;
use crate::shard::partition::FileWish;
use crate::shard::timers::Timer;

/// Why a job runs.
#[derive(Debug)]
pub enum Purpose {
    /// A partition wished it for one of its written files.
    Wish {
        /// The partition's slot.
        slot: u32,
        /// What it wished.
        wish: FileWish,
    },
    /// A file is being closed: nobody waits for it, but a failure fails the directory.
    Close {
        /// The data directory.
        dir: DirId,
    },
    /// Index entries of a partition.
    Index {
        /// The partition's slot.
        slot: u32,
    },
    /// The leader epochs of a partition.
    Epochs {
        /// The partition's slot.
        slot: u32,
    },
    /// A snapshot of a partition's producers.
    Producers {
        /// The partition's slot.
        slot: u32,
        /// The snapshot is the state below this offset.
        upto: Offset,
    },
    /// A checkpoint slot of a data directory.
    Checkpoint {
        /// The data directory.
        dir: DirId,
    },
    /// Segment files below the log start are being removed.
    Remove {
        /// The data directory.
        dir: DirId,
    },
    /// The directory of a deleted topic's partition is being renamed.
    RenameDropped {
        /// The partition's slot.
        slot: u32,
    },
    /// A cold read needs this file or index.
    ForRead {
        /// The read that waits.
        read: u64,
        /// The data directory.
        dir: DirId,
    },
    /// The index of a sealed segment is being rebuilt.
    Rebuild {
        /// The partition's slot.
        slot: u32,
        /// Which rebuild.
        number: u64,
    },
    /// The last trimming of a partition before the process ends.
    LastSeal {
        /// The partition's slot.
        slot: u32,
    },
}

/// The table of jobs, and the next file id.
#[derive(Debug)]
pub struct FileJobs {
    jobs: slab::Slab<Purpose>,
    next_file: u64,
}

/// The errno of a full disk.
pub(super) const ENOSPC: i32 = 28;
/// How long a full disk is left alone.
const NO_SPACE_RETRY_MS: u64 = 1_000;
/// File ids of a core start here, so that no two cores use the same one.
const CORE_SHIFT: u32 = 48;

/// The core that opened a file.
pub(super) fn core_of(file: FileId) -> CoreId {
    CoreId((file.0 >> CORE_SHIFT) as u16 - 1)
}

impl FileJobs {
    /// No jobs.
    pub fn new(core: CoreId) -> FileJobs {
        FileJobs { jobs: slab::Slab::new(), next_file: (u64::from(core.0) + 1) << CORE_SHIFT }
    }

    /// A file id that was never used.
    pub fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    /// Starts a job.
    pub fn start(&mut self, purpose: Purpose, what: FileJob, out: &mut Actions) {
        let job = FileJobId(self.jobs.insert(purpose) as u64);
        out.push(Action::File { job, what });
    }

    /// Jobs in flight.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

impl FileJobs {
    /// Whether a job of this partition's files is in flight that must end before the partition does.
    pub fn is_busy(&self, slot: u32) -> bool {
        self.jobs.iter().any(|(_, purpose)| purpose.slot() == Some(slot))
    }
}

impl Purpose {
    /// The partition that the job is for, when it knows it by its slot.
    fn slot(&self) -> Option<u32> {
        match *self {
            Purpose::Wish { slot, .. }
            | Purpose::Index { slot }
            | Purpose::Epochs { slot }
            | Purpose::Producers { slot, .. }
            | Purpose::Rebuild { slot, .. }
            | Purpose::RenameDropped { slot }
            | Purpose::LastSeal { slot } => Some(slot),
            Purpose::Close { .. } | Purpose::Checkpoint { .. } | Purpose::Remove { .. } | Purpose::ForRead { .. } => {
                None
            }
        }
    }
}

impl Shard {
    /// Whether no file job is in flight but in data directories that have failed, where it may hang for ever. Cost is
    /// linear in the jobs.
    pub(super) fn are_jobs_quiet(&self) -> bool {
        let lost = |purpose| self.dir_of_job(purpose).is_some_and(|dir| self.writes.has_failed(dir));
        self.file_jobs.jobs.iter().all(|(_, purpose)| lost(purpose))
    }

    fn dir_of_job(&self, purpose: &Purpose) -> Option<DirId> {
        match purpose {
            Purpose::Close { dir }
            | Purpose::Checkpoint { dir }
            | Purpose::Remove { dir }
            | Purpose::ForRead { dir, .. } => Some(*dir),
            _ => purpose.slot().and_then(|slot| self.partitions.at(slot)).map(|partition| partition.dir.dir),
        }
    }

    /// Runs what a partition wishes for its files.
    pub(super) fn see_to_files(&mut self, now: Now, slot: u32, out: &mut Actions) {
        while let Some(partition) = self.partitions.by_slot(slot)
            && partition.check_serving().is_ok()
            && let Some(wish) = partition.file_wish(now.mono, self.writes.unwritten_extents(partition.dir.dir))
        {
            self.run_wish(slot, wish, out);
        }
    }

    pub(super) fn run_wish(&mut self, slot: u32, wish: FileWish, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("it made the wish");
        let path = |base| PartitionFile { dir: partition.dir.clone(), kind: FileKind::Log(base) };
        let (file, what) = match wish {
            FileWish::Create { base, len, extents } => {
                let file = self.file_jobs.new_file();
                (file, FileJob::CreateSegment { file, path: path(base), len, extents })
            }
            FileWish::Open { base } => {
                let file = self.file_jobs.new_file();
                (file, FileJob::OpenActive { file, path: path(base) })
            }
            FileWish::Grow { file, from, to, extents, .. } => (file, FileJob::Grow { file, from, to, extents }),
            FileWish::Seal { base, file, len } => (file, FileJob::Seal { file, path: path(base), len }),
        };
        partition.files.on_job(wish, file);
        self.file_jobs.start(Purpose::Wish { slot, wish }, what, out);
    }

    pub(super) fn on_file_job(&mut self, now: Now, job: FileJobId, result: Result<FileDone, Errno>, out: &mut Actions) {
        let purpose = self.file_jobs.jobs.remove(job.0 as usize);
        match (purpose, result) {
            (Purpose::Wish { slot, wish }, Ok(_)) => self.on_wish_done(now, slot, wish, out),
            (Purpose::Wish { slot, wish }, Err(Errno(ENOSPC))) if wish.takes_space() => {
                self.on_no_space(now, slot, wish);
                self.continue_close(slot, out);
            }
            (
                purpose @ (Purpose::Index { slot } | Purpose::Epochs { slot } | Purpose::Producers { slot, .. }),
                Err(Errno(ENOSPC)),
            ) => self.on_small_file_refused(now, slot, &purpose, out),
            (
                Purpose::Wish { slot, .. }
                | Purpose::LastSeal { slot }
                | Purpose::Index { slot }
                | Purpose::Epochs { slot }
                | Purpose::Producers { slot, .. },
                Err(errno),
            ) => self.fail_dir_of(now, slot, errno, out),
            (Purpose::Index { slot }, Ok(_)) => self.continue_close(slot, out),
            (Purpose::Epochs { slot }, Ok(_)) => self.on_epochs_recorded(now, slot, out),
            (Purpose::Producers { slot, .. }, Ok(_)) => self.on_producers_recorded(now, slot, out),
            (Purpose::Close { dir } | Purpose::Remove { dir }, Err(errno)) => {
                self.fail_dir(now, dir, errno, out);
            }
            (Purpose::Close { .. } | Purpose::Remove { .. }, Ok(_)) => {}
            (Purpose::Checkpoint { dir }, result) => self.on_checkpoint_done(now, dir, result.map(|_| ()), out),
            (Purpose::RenameDropped { slot }, result) => self.on_renamed(now, slot, result.map(|_| ()), out),
            (Purpose::ForRead { read, dir }, result) => self.on_read_job(now, read, dir, result, out),
            (Purpose::Rebuild { slot, number }, result) => self.on_rebuild_job(now, (slot, number), result, out),
            (Purpose::LastSeal { .. }, Ok(_)) => {}
        }
    }

    fn on_wish_done(&mut self, now: Now, slot: u32, wish: FileWish, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("a partition outlives its jobs");
        partition.files.on_job_done(wish);
        if let FileWish::Seal { base, file, len } = wish {
            self.on_sealed(slot, base, file, len, out);
        }
        self.mark_dirty(slot);
        if let FileWish::Open { .. } = wish {
            let id = self.partitions.by_slot(slot).expect("looked at above").id;
            self.resume_reads(now, id, out);
        }
        self.continue_close(slot, out);
    }

    /// The disk is full: producers are refused, and the file is tried again after a while. What is in memory waits; it
    /// was acknowledged to nobody.
    fn on_no_space(&mut self, now: Now, slot: u32, wish: FileWish) {
        let partition = self.partitions.by_slot(slot).expect("a partition outlives its jobs");
        tracing::error!(topic = %partition.topic, partition = %partition.id.index, "disk full: segment cannot grow");
        partition.files.on_job_failed(wish);
        self.no_space.push(slot);
        self.pressure.set_no_space(true);
        self.timers.set(now.mono.plus_millis(NO_SPACE_RETRY_MS), Timer::Space);
    }

    /// The disk is too full for a file beside the segments. Recovery can do without its newest state, so that nothing of
    /// the directory fails; it is written again when there is room.
    fn on_small_file_refused(&mut self, now: Now, slot: u32, purpose: &Purpose, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("a partition outlives its jobs");
        match purpose {
            Purpose::Epochs { .. } => partition.on_epochs_not_recorded(),
            Purpose::Producers { .. } => partition.on_producers_not_recorded(),
            _ => partition.on_index_not_written(),
        }
        let dir = partition.dir.dir;
        if self.pressure.may_log(now.mono) {
            tracing::warn!(%dir, ?purpose, "disk full: a small file is written later");
        }
        self.stopping.note_file_lacking();
        self.note_moved(now, dir);
        self.continue_close(slot, out);
    }

    /// Tries again what the full disk refused.
    pub(super) fn on_space_timer(&mut self) {
        self.pressure.set_no_space(false);
        for slot in std::mem::take(&mut self.no_space) {
            self.mark_dirty(slot);
        }
    }

    fn fail_dir_of(&mut self, now: Now, slot: u32, errno: Errno, out: &mut Actions) {
        let dir = self.partitions.by_slot(slot).expect("a partition outlives its jobs").dir.dir;
        self.fail_dir(now, dir, errno, out);
        self.continue_close(slot, out);
    }

    /// From the next checkpoint on recovery need not meet the epoch's first batch.
    fn on_epochs_recorded(&mut self, now: Now, slot: u32, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("a partition outlives its jobs");
        partition.on_epochs_recorded();
        let dir = partition.dir.dir;
        self.note_moved(now, dir);
        self.continue_close(slot, out);
    }

    /// From the next checkpoint on recovery need not read what the snapshot says.
    fn on_producers_recorded(&mut self, now: Now, slot: u32, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("a partition outlives its jobs");
        let dir = partition.dir.dir;
        if let Some(replaced) = partition.on_producers_recorded() {
            let dir = partition.dir.clone();
            let files = vec![FileKind::Snapshot(replaced)];
            self.file_jobs.start(Purpose::Remove { dir: dir.dir }, FileJob::Remove { dir, files }, out);
        }
        self.note_moved(now, dir);
        self.continue_close(slot, out);
    }

    /// A segment is complete: it joins the sealed ones, and its indexes and a producer snapshot are written.
    fn on_sealed(&mut self, slot: u32, base: Offset, file: FileId, len: FilePos, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("looked at above");
        assert_eq!(partition.len_of(base), len.0, "segment {base} sealed at another length");
        partition.segments.on_sealed(base);
        partition.segments.get_mut(base).expect("sealed just now").file = Some(file);
        let Some(mut rolled) = partition.take_rolled(base) else { return };
        let id = partition.id;
        let (offsets, times) = (&mut rolled.index.offsets, &mut rolled.index.times);
        let key = |kind| IndexKey { partition: id, base, kind };
        self.index_cache.insert(key(IndexKind::Offset), offsets.as_bytes().into());
        self.index_cache.insert(key(IndexKind::Time), times.as_bytes().into());
        let (offsets, times) = (offsets.take_pending(), times.take_pending());
        self.append_index(slot, FileKind::Index(base), offsets, out);
        self.append_index(slot, FileKind::TimeIndex(base), times, out);
    }

    /// Writes index entries that are not in the file yet.
    pub(super) fn append_index(
        &mut self,
        slot: u32,
        kind: FileKind,
        (at, contents): (FilePos, Vec<u8>),
        out: &mut Actions,
    ) {
        if contents.is_empty() {
            return;
        }
        let dir = self.partitions.by_slot(slot).expect("they are its entries").dir.clone();
        let path = PartitionFile { dir, kind };
        self.file_jobs.start(Purpose::Index { slot }, FileJob::AppendIndex { path, at, contents }, out);
    }
}
