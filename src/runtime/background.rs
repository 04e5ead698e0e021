//! The background threads: what the control core asks of directories that no data core touches. Recovery scans run here,
//! several partitions at a time, at low priority.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use crate::control::job::{Job, JobDone, NewDir};
use crate::ids::{DirId, Errno};
use crate::io::cpu;
use crate::log::text_files::{PARTITION_METADATA, encode_partition_metadata};
use crate::runtime::inbox::{Inbox, Input};
use crate::runtime::recover::{self, DirState};

/// Priority of these threads (design §2).
const NICE: i32 = 10;

/// What the threads share.
pub struct Background {
    /// Open data directories, by `DirId`.
    pub dirs: Arc<[OwnedFd]>,
    /// What each data directory's checkpoints and marker say.
    pub states: Vec<DirState>,
    /// How many threads work.
    pub workers: usize,
    /// CPUs that they may use; empty leaves them free.
    pub cpus: Vec<usize>,
}

/// Starts the threads. Their answers go to `inbox`, in any order.
///
/// # Errors
/// When a thread cannot be had.
pub fn start(background: Background, inbox: Inbox) -> io::Result<Sender<Job>> {
    let (sender, jobs) = mpsc::channel();
    let (jobs, shared) = (Arc::new(Mutex::new(jobs)), Arc::new(background));
    for worker in 0..shared.workers.max(1) {
        let (jobs, shared, inbox) = (Arc::clone(&jobs), Arc::clone(&shared), inbox.clone());
        let name = format!("background-{worker}");
        std::thread::Builder::new().name(name).spawn(move || work(&jobs, &shared, worker, &inbox))?;
    }
    Ok(sender)
}

fn work(jobs: &Mutex<Receiver<Job>>, shared: &Background, worker: usize, inbox: &Inbox) {
    if let Some(cpu) = shared.cpus.get(worker % shared.cpus.len().max(1)) {
        cpu::pin(*cpu);
    }
    if let Err(errno) = cpu::nice(NICE) {
        tracing::debug!(%errno, "background threads keep their priority");
    }
    let mut buffer = recover::Buffer::new();
    loop {
        let job = jobs.lock().expect("no worker panics and lives").recv();
        let Ok(job) = job else { return };
        inbox.put(Input::JobDone(shared.run(job, &mut buffer)));
    }
}

impl Background {
    fn run(&self, job: Job, buffer: &mut recover::Buffer) -> JobDone {
        match job {
            Job::CreateDirs { dir, partitions } => {
                let result = self.create(dir, &partitions).map_err(errno);
                let partitions = partitions.iter().map(|partition| partition.id).collect();
                JobDone::DirsCreated { dir, partitions, result }
            }
            Job::Recover { dir, partitions } => {
                let fd = self.dir(dir);
                let state = &self.states[usize::from(dir.0)];
                let recovered = partitions.iter().map(|ask| (ask.id, recover::partition(fd, state, ask, buffer)));
                JobDone::Recovered { dir, partitions: recovered.collect() }
            }
            Job::Rename { from, to } => {
                let fd = self.dir(from.dir);
                let result = rustix::fs::renameat(fd, &*from.name, fd, &*to).and_then(|()| rustix::fs::fsync(fd));
                JobDone::Renamed { result: result.map_err(|errno| Errno(errno.raw_os_error())), from }
            }
            Job::Remove(dir) => JobDone::Removed { result: self.remove(dir.dir, &dir.name).map_err(errno), dir },
        }
    }

    fn dir(&self, dir: DirId) -> &OwnedFd {
        &self.dirs[usize::from(dir.0)]
    }

    /// Makes partition directories, each with its metadata, and syncs the file system once for all of them.
    fn create(&self, dir: DirId, partitions: &[NewDir]) -> io::Result<()> {
        let fd = self.dir(dir);
        for partition in partitions {
            match rustix::fs::mkdirat(fd, &*partition.name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            let path = format!("{}/{PARTITION_METADATA}", partition.name);
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
            let file = rustix::fs::openat(fd, path, flags, Mode::from_raw_mode(0o644))?;
            write_all(&file, encode_partition_metadata(partition.id.topic).as_bytes())?;
        }
        rustix::fs::syncfs(fd)?;
        Ok(())
    }

    /// Removes a directory with the files in it.
    fn remove(&self, dir: DirId, name: &str) -> io::Result<()> {
        let fd = self.dir(dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inner = match rustix::fs::openat(fd, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::read_from(&inner)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                rustix::fs::unlinkat(&inner, entry.file_name(), AtFlags::empty())?;
            }
        }
        rustix::fs::unlinkat(fd, name, AtFlags::REMOVEDIR)?;
        rustix::fs::fsync(fd)?;
        Ok(())
    }
}

/// Writes all bytes at the file's position.
pub fn write_all(file: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::write(&file, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
