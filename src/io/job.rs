//! The runner of file jobs: the steps of a plan one after the other, through the ring and on its io-wq workers.
//!
//! In one data directory at most [`JOBS_PER_DIR_MAX`] jobs run at a time, so that a directory whose disk hangs cannot
//! take all workers of the core; the others wait their turn. Jobs that run together end in any order.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use io_uring::squeue::{self, Flags};
use io_uring::{opcode, types};
use rustix::fs::{Dir, fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use slab::Slab;

use crate::ids::{CoreId, DirId, Errno, FileJobId};
use crate::io::Io;
use crate::io::file::{DiskFault, FaultEffect, OpenFile, Target, on_target};
use crate::io::op::{Age, Token};
use crate::io::path::c_string;
use crate::io::plan::{Plan, Step, plan};
use crate::io::ring::{Ring, outcome};
use crate::limits::WRITE_BYTES_MAX;
use crate::shard::action::FileJob;
use crate::shard::event::{Event, FileDone};

/// Jobs that run at a time in one data directory.
pub const JOBS_PER_DIR_MAX: usize = 4;

/// The file jobs of one core.
pub struct Jobs {
    core: CoreId,
    running: Slab<Job>,
    /// For each data directory: how many run, and what waits.
    lanes: Vec<Lane>,
    /// Whether ftruncate can go through the ring (6.9).
    truncates: bool,
}

#[derive(Default)]
struct Lane {
    running: usize,
    waiting: VecDeque<Job>,
}

/// One job. All that the submission of its front step names stays here until that step has completed.
struct Job {
    id: FileJobId,
    dir: DirId,
    steps: VecDeque<Step>,
    file: JobFile,
    /// The directory that is synced or emptied.
    directory: Option<OwnedFd>,
    /// What is written or was read.
    contents: Vec<u8>,
    /// Bytes of the front step that are done.
    done: u64,
    age: Option<Age>,
    /// A path to unlink if a later step fails.
    undo: Option<CString>,
    failed: Option<Errno>,
    outcome: FileDone,
}

/// What the steps of a job work on.
enum JobFile {
    None,
    /// Opened by the job.
    Own(OwnedFd),
    /// An open segment.
    Open(Arc<OpenFile>),
}

impl Jobs {
    /// No jobs yet.
    pub fn new(core: CoreId, ring: &Ring, dir_count: usize) -> Jobs {
        let lanes = (0..dir_count).map(|_| Lane::default()).collect();
        Jobs { core, running: Slab::new(), lanes, truncates: ring.knows(opcode::Ftruncate::CODE) }
    }

    /// Starts a job, or lets it wait for its turn; completes as `File`.
    pub fn start(&mut self, io: &mut Io, id: FileJobId, what: FileJob) {
        let plan = plan(self.core, what, |file| io.files.find(file).map_or(DirId(0), |open| open.dir));
        let job = Job::new(id, plan);
        let lane = &mut self.lanes[usize::from(job.dir.0)];
        if lane.running < JOBS_PER_DIR_MAX { self.run(io, job) } else { lane.waiting.push_back(job) }
    }

    /// Takes the completion of the front step of the job in slot `slot`.
    pub fn complete(&mut self, io: &mut Io, slot: u32, result: i32) {
        let job = &mut self.running[slot as usize];
        job.end_operation(io);
        match job.took(outcome(result)) {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => job.next_step(),
            Err(errno) => job.fail(errno),
        }
        self.advance(io, slot);
    }

    /// Jobs that run or wait.
    pub fn outstanding(&self) -> usize {
        self.running.len() + self.lanes.iter().map(|lane| lane.waiting.len()).sum::<usize>()
    }

    fn run(&mut self, io: &mut Io, job: Job) {
        self.lanes[usize::from(job.dir.0)].running += 1;
        let slot = self.running.insert(job) as u32;
        self.advance(io, slot);
    }

    /// Goes on until a step has to wait for the kernel, or the job is over.
    fn advance(&mut self, io: &mut Io, slot: u32) {
        let job = &mut self.running[slot as usize];
        while !job.steps.is_empty() {
            if job.is_immediate(self.truncates) {
                match job.run_here(io) {
                    Ok(()) => job.next_step(),
                    Err(errno) => job.fail(errno),
                }
                continue;
            }
            job.age = Some(io.files.start(job.dir, io.now));
            match DiskFault::strike(&mut io.files.fault, job.dir) {
                None => {
                    let entry = job.entry(io.files.dir(job.dir)).flags(Flags::ASYNC);
                    // SAFETY: the job keeps paths, buffers and descriptors of its front step until the completion.
                    unsafe { io.ring.push(entry, Token::Job(slot)) };
                    return;
                }
                Some(FaultEffect::Hang) => return,
                Some(FaultEffect::Fail(errno)) => {
                    job.end_operation(io);
                    job.fail(errno);
                }
            }
        }
        self.finish(io, slot);
    }

    fn finish(&mut self, io: &mut Io, slot: u32) {
        let job = self.running.remove(slot as usize);
        io.events.push(Event::File { job: job.id, result: job.failed.map_or(Ok(job.outcome), Err) });
        let lane = &mut self.lanes[usize::from(job.dir.0)];
        lane.running -= 1;
        if let Some(next) = lane.waiting.pop_front() {
            self.run(io, next);
        }
    }
}

/// Whether a step needs another submission.
enum Progress {
    More,
    Done,
}

impl Job {
    fn new(id: FileJobId, plan: Plan) -> Job {
        Job {
            id,
            dir: plan.dir,
            steps: plan.steps.into(),
            file: JobFile::None,
            directory: None,
            contents: plan.contents,
            done: 0,
            age: None,
            undo: None,
            failed: None,
            outcome: FileDone::Done,
        }
    }

    fn next_step(&mut self) {
        self.steps.pop_front();
        self.done = 0;
    }

    fn end_operation(&mut self, io: &mut Io) {
        if let Some(age) = self.age.take() {
            io.files.end(self.dir, age);
        }
    }

    /// Drops the rest of the job, but for the removal of a file that it had just created.
    fn fail(&mut self, errno: Errno) {
        self.failed.get_or_insert(errno);
        self.steps.clear();
        self.steps.extend(self.undo.take().map(|path| Step::Unlink { path, flags: 0 }));
        self.done = 0;
    }

    fn front(&self) -> &Step {
        self.steps.front().expect("a job that runs has a step")
    }

    fn target(&self) -> Target {
        match &self.file {
            JobFile::Own(fd) => Target::Fd(fd.as_raw_fd()),
            JobFile::Open(open) => open.target(),
            JobFile::None => panic!("step {:?} without a file", self.front()),
        }
    }

    /// Whether the front step is run here: it touches only memory, or what an earlier step has brought there.
    fn is_immediate(&self, truncates: bool) -> bool {
        match self.front() {
            Step::Use(_) | Step::Measure { .. } | Step::Empty { .. } | Step::Publish { .. } | Step::Forget(_) => true,
            Step::Truncate { .. } => !truncates,
            Step::Write { .. } | Step::Read => self.contents.is_empty(),
            Step::Close => matches!(self.file, JobFile::None),
            _ => false,
        }
    }

    /// The submission of the front step.
    fn entry(&mut self, data_dir: BorrowedFd<'_>) -> squeue::Entry {
        let dirfd = types::Fd(data_dir.as_raw_fd());
        let buffer = self.contents.as_mut_ptr().wrapping_add(self.done as usize);
        match self.front() {
            Step::Open { path, flags } => open(dirfd, path, *flags),
            Step::OpenDir { path } => open(dirfd, path, libc::O_RDONLY | libc::O_DIRECTORY),
            Step::Allocate { from, to } => {
                on_target!(self.target(), |file| opcode::Fallocate::new(file, to - from).offset(*from).build())
            }
            Step::Zero { from, to } => {
                let at = from + self.done;
                self.write(zeros(), to - at, at)
            }
            Step::Write { at } => {
                let rest = self.contents.len() as u64 - self.done;
                self.write(buffer, rest, at + self.done)
            }
            Step::Read => {
                let rest = self.contents.len() as u64 - self.done;
                on_target!(self.target(), |file| opcode::Read::new(file, buffer, rest as u32).offset(self.done).build())
            }
            Step::Truncate { len } => on_target!(self.target(), |file| opcode::Ftruncate::new(file, *len).build()),
            Step::SyncData => {
                on_target!(self.target(), |file| opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build())
            }
            Step::Sync => on_target!(self.target(), |file| opcode::Fsync::new(file).build()),
            Step::SyncDir => opcode::Fsync::new(types::Fd(self.opened_dir())).build(),
            Step::SyncDataDir => opcode::Fsync::new(dirfd).build(),
            Step::Rename { from, to } => opcode::RenameAt::new(dirfd, from.as_ptr(), dirfd, to.as_ptr()).build(),
            Step::Unlink { path, flags } => opcode::UnlinkAt::new(dirfd, path.as_ptr()).flags(*flags).build(),
            Step::Close => on_target!(self.target(), |file| opcode::Close::new(file).build()),
            step => panic!("{step:?} is run here"),
        }
    }

    fn write(&self, address: *const u8, len: u64, at: u64) -> squeue::Entry {
        let len = len.min(WRITE_BYTES_MAX) as u32;
        on_target!(self.target(), |file| opcode::Write::new(file, address, len).offset(at).build())
    }

    fn opened_dir(&self) -> RawFd {
        self.directory.as_ref().expect("opened by the step before").as_raw_fd()
    }

    /// Takes the result of the front step.
    fn took(&mut self, result: Result<u32, Errno>) -> Result<Progress, Errno> {
        match (self.front(), result) {
            (Step::Open { path, flags }, Ok(fd)) => {
                self.undo = (flags & libc::O_EXCL != 0).then(|| path.clone());
                self.file = JobFile::Own(owned(fd));
            }
            (Step::OpenDir { .. }, Ok(fd)) => self.directory = Some(owned(fd)),
            (Step::OpenDir { .. }, Err(Errno(libc::ENOENT))) => self.steps.truncate(1),
            (Step::Unlink { .. }, Err(Errno(libc::ENOENT))) => {}
            (Step::Zero { from, to }, Ok(count)) => return self.moved(count, to - from),
            (Step::Write { .. }, Ok(count)) => return self.moved(count, self.contents.len() as u64),
            (Step::Read, Ok(0)) => self.contents_read(),
            (Step::Read, Ok(count)) => {
                let progress = self.moved(count, self.contents.len() as u64)?;
                if matches!(progress, Progress::Done) {
                    self.contents_read();
                }
                return Ok(progress);
            }
            (Step::Close, _) => {
                // The kernel has closed the descriptor, also when it reports an error (close(2), NOTES).
                if let JobFile::Own(fd) = std::mem::replace(&mut self.file, JobFile::None) {
                    let _ = fd.into_raw_fd();
                }
            }
            (_, result) => drop(result?),
        }
        Ok(Progress::Done)
    }

    /// Counts bytes of a step that may take several submissions.
    fn moved(&mut self, count: u32, whole: u64) -> Result<Progress, Errno> {
        self.done += u64::from(count);
        match count {
            0 => Err(Errno(libc::EIO)),
            _ if self.done < whole => Ok(Progress::More),
            _ => Ok(Progress::Done),
        }
    }

    fn contents_read(&mut self) {
        self.contents.truncate(self.done as usize);
        self.outcome = FileDone::Contents(std::mem::take(&mut self.contents));
    }

    /// Runs the front step on this thread.
    fn run_here(&mut self, io: &mut Io) -> Result<(), Errno> {
        match self.front().clone() {
            Step::Use(file) => self.file = JobFile::Open(io.files.find(file).ok_or(Errno(libc::EBADF))?),
            Step::Measure { len_max } => {
                let len = self.len()?;
                if len > len_max {
                    return Err(Errno(libc::EFBIG));
                }
                self.contents = vec![0; len as usize];
            }
            Step::Read => self.contents_read(),
            Step::Write { .. } | Step::Close => {}
            Step::Truncate { len } => ftruncate(self.descriptor(), len).map_err(errno)?,
            Step::Empty { path } => {
                let unlinks = self.list(&path)?;
                // The front step is popped after this one, so they go behind it.
                let rest = self.steps.split_off(1);
                self.steps.extend(unlinks);
                self.steps.extend(rest);
            }
            Step::Publish { file, direct, report } => {
                let len = self.len()?;
                let JobFile::Own(fd) = std::mem::replace(&mut self.file, JobFile::None) else {
                    panic!("publishing file {file} before it was opened");
                };
                match direct {
                    true => io.files.insert_active(&mut io.ring, file, self.dir, fd),
                    false => io.files.insert_sealed(&mut io.ring, file, self.dir, fd),
                }
                self.undo = None;
                if report {
                    self.outcome = FileDone::Opened { file, len };
                }
            }
            Step::Forget(file) => {
                let fd = io.files.remove(&mut io.ring, file);
                self.file = fd.map_or(JobFile::None, JobFile::Own);
            }
            step => panic!("{step:?} goes through the ring"),
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.file {
            JobFile::Own(fd) => fd.as_fd(),
            JobFile::Open(open) => open.fd(),
            JobFile::None => panic!("step {:?} without a file", self.front()),
        }
    }

    fn len(&self) -> Result<u64, Errno> {
        fstat(self.descriptor()).map(|stat| stat.st_size as u64).map_err(errno)
    }

    /// Steps that remove every file of the opened directory, which is a partition's: small, and read a moment ago.
    fn list(&self, path: &CStr) -> Result<Vec<Step>, Errno> {
        let directory = self.directory.as_ref().expect("opened by the step before");
        let mut steps = Vec::new();
        for entry in Dir::read_from(directory).map_err(errno)? {
            let name = entry.map_err(errno)?.file_name().to_owned();
            if name.as_c_str() != c"." && name.as_c_str() != c".." {
                let path = format!("{}/{}", path.to_string_lossy(), name.to_string_lossy());
                steps.push(Step::Unlink { path: c_string(path), flags: 0 });
            }
        }
        Ok(steps)
    }
}

fn open(dirfd: types::Fd, path: &CStr, flags: i32) -> squeue::Entry {
    opcode::OpenAt::new(dirfd, path.as_ptr()).flags(flags | libc::O_CLOEXEC).mode(0o644).build()
}

/// A descriptor that the kernel has just opened for us.
fn owned(fd: u32) -> OwnedFd {
    // SAFETY: the result of an openat of ours, which nobody else has seen.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// `WRITE_BYTES_MAX` zeros, aligned to pages, of the whole process: never written to, so that they cost no memory.
fn zeros() -> *const u8 {
    static ADDRESS: OnceLock<usize> = OnceLock::new();
    let address = ADDRESS.get_or_init(|| {
        // SAFETY: a fresh mapping at an address of the kernel's choice; it is never unmapped.
        let mapped = unsafe {
            mmap_anonymous(std::ptr::null_mut(), WRITE_BYTES_MAX as usize, ProtFlags::READ, MapFlags::PRIVATE)
        };
        mapped.expect("address space for a page of zeros").expose_provenance()
    });
    std::ptr::with_exposed_provenance(*address)
}
