//! The background threads: what the control core asks of directories that no data core touches. Recovery scans run here,
//! several partitions at a time, at low priority.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use crate::control::job::{Job, JobDone, NewDir};
use crate::ids::{DirId, Errno, TopicId};
use crate::io::cpu;
use crate::log::segment::UnwrittenExtents;
use crate::log::text_files::{PARTITION_METADATA, encode_partition_metadata, parse_partition_metadata};
use crate::runtime::inbox::{Inbox, Input};
use crate::runtime::recover::{self, DirState};

/// Priority of these threads (design §2).
const NICE: i32 = 10;
/// New directories of one job that are synced one by one.
const FSYNCS_MAX: usize = 8;

/// What the threads share.
pub struct Background {
    /// Open data directories, by `DirId`.
    pub dirs: Arc<[OwnedFd]>,
    /// What each data directory's checkpoints and marker say.
    pub states: Vec<DirState>,
    /// Whether recovery may leave extents unwritten; see [`UnwrittenExtents`].
    pub unwritten: UnwrittenExtents,
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
                let partitions = recover::partitions(fd, state, &partitions, self.unwritten, buffer);
                JobDone::Recovered { dir, partitions }
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

    /// Makes partition directories, each with its metadata, then makes them durable: few one by one, so that nothing
    /// waits for what others have written to this file system, many by one syncfs.
    fn create(&self, dir: DirId, partitions: &[NewDir]) -> io::Result<()> {
        let fd = self.dir(dir);
        let one_by_one = partitions.len() <= FSYNCS_MAX;
        for partition in partitions {
            create_one(fd, &partition.name, partition.id.topic, one_by_one)?;
        }
        if one_by_one {
            rustix::fs::fsync(fd)?
        } else {
            rustix::fs::syncfs(fd)?
        };
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

/// Makes one partition directory. One that is there belongs to an attempt that did not finish, unless its metadata names
/// another topic: that one is not taken over.
fn create_one(root: &OwnedFd, name: &str, topic: TopicId, sync: bool) -> io::Result<()> {
    match rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => {
            if read_metadata(root, name)?.is_some_and(|found| found != topic) {
                return Err(rustix::io::Errno::EXIST.into());
            }
        }
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, metadata_path(name), flags, Mode::from_raw_mode(0o644))?;
    write_all(&file, encode_partition_metadata(topic).as_bytes())?;
    if sync {
        rustix::fs::fsync(&file)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::openat(root, name, flags, Mode::empty())?)?;
    }
    Ok(())
}

fn read_metadata(root: &OwnedFd, name: &str) -> io::Result<Option<TopicId>> {
    let file = match rustix::fs::openat(root, metadata_path(name), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let mut bytes = [0; 256];
    let len = rustix::io::read(&file, &mut bytes)?;
    Ok(std::str::from_utf8(&bytes[..len]).ok().and_then(|text| parse_partition_metadata(text).ok()))
}

fn metadata_path(name: &str) -> String {
    format!("{name}/{PARTITION_METADATA}")
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ids::{PartitionId, PartitionIndex};
    use crate::shard::action::PartitionDir;

    const TOPIC: TopicId = TopicId([5; 16]);

    fn background(path: &std::path::Path) -> Background {
        let fd: OwnedFd = fs::File::open(path).expect("there").into();
        let unwritten = UnwrittenExtents::Allowed;
        Background { dirs: Arc::new([fd]), states: vec![], unwritten, workers: 1, cpus: vec![] }
    }

    fn create(background: &Background, topic: TopicId, count: i32) -> Result<(), Errno> {
        let partitions = (0..count).map(|index| NewDir {
            id: PartitionId { topic, index: PartitionIndex(index) },
            name: format!("t-{index}").into(),
        });
        let job = Job::CreateDirs { dir: DirId(0), partitions: partitions.collect() };
        match background.run(job, &mut recover::Buffer::new()) {
            JobDone::DirsCreated { result, .. } => result,
            other => panic!("directories are made, not {other:?}"),
        }
    }

    #[test]
    fn directories_are_made_with_their_topic_id_and_made_again_without_harm() {
        let root = tempfile::tempdir().expect("a directory");
        let background = background(root.path());
        // One that an earlier attempt left without metadata.
        fs::create_dir(root.path().join("t-1")).expect("made");
        for count in [2, FSYNCS_MAX as i32 + 1, 2] {
            assert_eq!(create(&background, TOPIC, count), Ok(()));
        }
        for index in 0..=FSYNCS_MAX {
            let text = fs::read_to_string(root.path().join(format!("t-{index}")).join(PARTITION_METADATA));
            assert_eq!(parse_partition_metadata(&text.expect("there")), Ok(TOPIC));
        }
    }

    #[test]
    fn the_directory_of_another_incarnation_is_never_taken_over() {
        let root = tempfile::tempdir().expect("a directory");
        let background = background(root.path());
        assert_eq!(create(&background, TOPIC, 1), Ok(()));
        assert_eq!(create(&background, TopicId([6; 16]), 1), Err(Errno(libc::EEXIST)));
    }

    #[test]
    fn a_directory_is_renamed_and_removed_with_all_it_holds() {
        let root = tempfile::tempdir().expect("a directory");
        let (background, mut buffer) = (background(root.path()), recover::Buffer::new());
        assert_eq!(create(&background, TOPIC, 1), Ok(()));
        let named = |name: &str| PartitionDir { dir: DirId(0), name: name.into() };
        let renamed = background.run(Job::Rename { from: named("t-0"), to: "t-0.x-delete".into() }, &mut buffer);
        assert_eq!(renamed, JobDone::Renamed { from: named("t-0"), result: Ok(()) });
        let dir = named("t-0.x-delete");
        for _ in 0..2 {
            let removed = background.run(Job::Remove(dir.clone()), &mut buffer);
            assert_eq!(removed, JobDone::Removed { dir: dir.clone(), result: Ok(()) }, "gone is gone");
        }
        assert_eq!(fs::read_dir(root.path()).expect("there").count(), 0);
        let again = background.run(Job::Rename { from: named("t-0"), to: "x".into() }, &mut buffer);
        assert_eq!(again, JobDone::Renamed { from: named("t-0"), result: Err(Errno(libc::ENOENT)) });
    }
}
