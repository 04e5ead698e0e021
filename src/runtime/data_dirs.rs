//! Opening the data directories: lock, identity, the marker of a clean stop, and which partitions lie there. What is in
//! the partitions is recovery's business.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, statvfs};

use crate::control::job::FoundDir;
use crate::control::strays::is_partition_dir_name;
use crate::fatal::Reason;
use crate::ids::{BrokerEpoch, BrokerId, DirId, TopicId};
use crate::log::text_files::{CLEAN_SHUTDOWN, CleanShutdown, PARTITION_METADATA, parse_partition_metadata};
use crate::runtime::identity::{self, Identity, META_PROPERTIES};
use crate::shard::action::PartitionDir;

/// A killed process's last writes may land up to 120 ms after its end, and its lock lives as long (design.md §1).
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// A wait for it that is longer is told.
const LOCK_SILENCE: Duration = Duration::from_millis(500);
const LOCK: &str = ".lock";
/// Where files are that Kafka does not know.
const OWN: &str = ".pinion";
/// What an empty directory may contain: the start of an earlier attempt, and what file systems put there themselves.
const NO_CONTENTS: &[&str] = &[LOCK, "meta.properties.tmp", "lost+found"];

/// The data directories of this broker, locked and identified.
#[derive(Debug)]
pub struct DataDirs {
    /// In the order of the configuration.
    pub dirs: Vec<DataDir>,
    /// The cluster that they belong to.
    pub cluster_id: TopicId,
}

/// One data directory.
#[derive(Debug)]
pub struct DataDir {
    /// Its path as configured.
    pub path: PathBuf,
    /// The open directory. When it is offline this is /dev/null, below which nothing can be opened.
    pub fd: OwnedFd,
    /// Its lock file, locked.
    pub lock: OwnedFd,
    /// Its identity.
    pub id: TopicId,
    /// Whether it can be served.
    pub online: bool,
    /// The marker of a clean stop that was there, and is gone now.
    pub clean: Option<CleanShutdown>,
    /// Size of its file system in bytes.
    pub file_system_bytes: u64,
    /// Free bytes of its file system for this process.
    pub free_bytes: u64,
}

impl DataDirs {
    /// Creates what is not there, locks and identifies. A directory other than the first that cannot be read is offline;
    /// the others are served without it.
    ///
    /// # Errors
    /// A lock held by another process for 10 s, a directory of another node, cluster or format, a full disk, or a first
    /// directory (it holds the metadata) that cannot be used.
    pub fn open(paths: &[PathBuf], node: BrokerId) -> Result<DataDirs, Reason> {
        let mut dirs = Vec::new();
        for (i, path) in paths.iter().enumerate() {
            match open_one(path, node) {
                Err(Reason::DirFailed(text)) if i > 0 => {
                    tracing::error!(dir = %path.display(), "this data directory is offline: {text}");
                    dirs.push((offline(path)?, None));
                }
                opened => dirs.push(opened.map(|(dir, identity)| (dir, Some(identity)))?),
            }
        }
        identify(dirs, node)
    }

    /// Every partition directory of the directories that are online, deleted and stray ones included.
    ///
    /// # Errors
    /// `DirFailed` when a directory cannot be listed.
    pub fn partitions(&self) -> Result<Vec<FoundDir>, Reason> {
        let mut found = Vec::new();
        for (i, dir) in self.dirs.iter().enumerate().filter(|(_, dir)| dir.online) {
            list(DirId(i as u16), &dir.path, &mut found).map_err(|error| failed("list", &dir.path, &error))?;
        }
        found.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(found)
    }

    /// Leaves the marker of a clean stop in every directory that is online, synced.
    pub fn mark_clean(&self, epoch: BrokerEpoch) -> Result<(), Reason> {
        for dir in self.dirs.iter().filter(|dir| dir.online) {
            let text = CleanShutdown::new(epoch).encode();
            replace(dir.fd.as_fd(), &dir.path, CLEAN_SHUTDOWN, &text)
                .map_err(|error| failed("leave the marker of a clean stop in", &dir.path, &error))?;
        }
        Ok(())
    }

    /// The open directories by `DirId`, for whoever opens files below them.
    pub fn fds(&self) -> io::Result<Arc<[OwnedFd]>> {
        self.dirs.iter().map(|dir| dir.fd.try_clone()).collect()
    }

    /// The lock files, for whoever must keep the directories locked to its last write. Clones share the lock.
    pub fn locks(&self) -> io::Result<Arc<[OwnedFd]>> {
        self.dirs.iter().map(|dir| dir.lock.try_clone()).collect()
    }
}

/// The reason for an operation on a data directory that did not work.
pub fn failed(what: &str, path: &Path, error: &io::Error) -> Reason {
    let text = format!("cannot {what} {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::DiskFull(text),
        _ => Reason::DirFailed(text),
    }
}

fn open_one(path: &Path, node: BrokerId) -> Result<(DataDir, Option<Identity>), Reason> {
    let fault = |what| move |error: io::Error| failed(what, path, &error);
    create(path).map_err(fault("create"))?;
    let fd: OwnedFd = File::open(path).map_err(fault("open"))?.into();
    let lock = lock(path)?;
    let identity = read_identity(path)?;
    if let Some(found) = identity.as_ref().filter(|found| found.node != node) {
        return Err(Reason::ForeignDir(format!("{} belongs to node {}, not to {node}", path.display(), found.node)));
    }
    let clean = take_marker(fd.as_fd(), path).map_err(fault("read the marker of a clean stop in"))?;
    let space = statvfs(path).map_err(|errno| fault("measure")(errno.into()))?;
    let dir = DataDir {
        path: path.to_path_buf(),
        fd,
        lock,
        id: identity.as_ref().map_or(TopicId::NONE, |identity| identity.directory),
        online: true,
        clean,
        file_system_bytes: space.f_blocks * space.f_frsize,
        free_bytes: space.f_bavail * space.f_frsize,
    };
    Ok((dir, identity))
}

/// Stands for a directory that cannot be read.
fn offline(path: &Path) -> Result<DataDir, Reason> {
    let null = || File::open("/dev/null").map(OwnedFd::from).map_err(|error| failed("replace", path, &error));
    Ok(DataDir {
        path: path.to_path_buf(),
        fd: null()?,
        lock: null()?,
        id: TopicId::NONE,
        online: false,
        clean: None,
        file_system_bytes: 0,
        free_bytes: 0,
    })
}

/// Creates a directory and makes its name durable.
fn create(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    match path.canonicalize()?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Takes the lock, waiting for a process that is just ending.
fn lock(path: &Path) -> Result<OwnedFd, Reason> {
    let name = path.join(LOCK);
    let fault = |error: rustix::io::Errno| failed("lock", path, &error.into());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open(&name, flags, Mode::from_raw_mode(0o644)).map_err(fault)?;
    let started = Instant::now();
    let mut said = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if started.elapsed() < LOCK_WAIT => {
                if !said && started.elapsed() > LOCK_SILENCE {
                    said = true;
                    tracing::info!("{} is held by another process: waiting for its end", name.display());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let seconds = LOCK_WAIT.as_secs();
                return Err(Reason::Locked(format!("{} was held by another process for {seconds} s", name.display())));
            }
            Err(errno) => return Err(fault(errno)),
        }
    }
}

/// Who a directory belongs to; `None` for an empty one.
fn read_identity(path: &Path) -> Result<Option<Identity>, Reason> {
    match fs::read_to_string(path.join(META_PROPERTIES)) {
        Ok(text) => Identity::parse(&text).map(Some).map_err(|fault| fault.in_dir(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let entries = fs::read_dir(path).map_err(|error| failed("list", path, &error))?;
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            match names.into_iter().find(|name| !NO_CONTENTS.contains(&name.as_str())) {
                None => Ok(None),
                Some(name) => Err(Reason::ForeignDir(format!(
                    "{} holds files such as {name} but no {META_PROPERTIES}: it is no data directory of pinion",
                    path.display()
                ))),
            }
        }
        Err(error) => Err(failed("read meta.properties in", path, &error)),
    }
}

/// Reads the marker and removes it at once: a crash while loading must count as one (KAFKA-10471).
fn take_marker(dir: impl AsFd, path: &Path) -> io::Result<Option<CleanShutdown>> {
    let name = path.join(CLEAN_SHUTDOWN);
    match fs::read(&name) {
        Ok(bytes) => {
            fs::remove_file(&name)?;
            rustix::fs::fsync(dir)?;
            Ok(CleanShutdown::parse(&bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that all belong together, and gives new ones their identity.
fn identify(dirs: Vec<(DataDir, Option<Option<Identity>>)>, node: BrokerId) -> Result<DataDirs, Reason> {
    let known = dirs.iter().filter_map(|(_, identity)| identity.as_ref()?.as_ref());
    let cluster_id = known.map(|identity| identity.cluster).next().map_or_else(identity::random, Ok)?;
    refuse_new_first(&dirs, cluster_id)?;
    let mut opened: Vec<DataDir> = Vec::new();
    for (mut dir, identity) in dirs {
        match identity {
            None => {}
            Some(Some(identity)) if identity.cluster != cluster_id => {
                let (path, theirs) = (dir.path.display(), identity.cluster);
                return Err(Reason::ForeignDir(format!("{path} belongs to cluster {theirs}, not to {cluster_id}")));
            }
            Some(Some(identity)) => {
                if let Some(other) = opened.iter().find(|other| other.id == identity.directory) {
                    let (path, other) = (dir.path.display(), other.path.display());
                    return Err(Reason::ForeignDir(format!("{path} is a copy of {other}: both have one directory id")));
                }
            }
            Some(None) => {
                dir.id = identity::random()?;
                let text = Identity { cluster: cluster_id, node, directory: dir.id }.encode();
                replace(dir.fd.as_fd(), &dir.path, META_PROPERTIES, &text)
                    .map_err(|error| failed("write meta.properties in", &dir.path, &error))?;
            }
        }
        if dir.online {
            // For the checkpoints, which are written as soon as something is.
            create(&dir.path.join(OWN)).map_err(|error| failed("create .pinion in", &dir.path, &error))?;
        }
        opened.push(dir);
    }
    Ok(DataDirs { dirs: opened, cluster_id })
}

/// A first directory that is empty while another one is in use has lost the metadata, or its disk is not mounted.
fn refuse_new_first(dirs: &[(DataDir, Option<Option<Identity>>)], cluster_id: TopicId) -> Result<(), Reason> {
    let used = dirs.iter().find(|(_, identity)| matches!(identity, Some(Some(_))));
    match (dirs.first(), used) {
        (Some((first, Some(None))), Some((used, _))) => {
            let (first, used) = (first.path.display(), used.path.display());
            Err(Reason::MetadataLost(format!(
                "{first} is empty, while {used} is of cluster {cluster_id}; mount the disk of {first}, or name the data \
                 directories in their old order"
            )))
        }
        _ => Ok(()),
    }
}

/// Writes a small file whole: temporary name, fsync, rename, fsync of the directory.
fn replace(dir: impl AsFd, path: &Path, name: &str, text: &str) -> io::Result<()> {
    let temporary = path.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path.join(name))?;
    Ok(rustix::fs::fsync(dir)?)
}

/// Adds the partition directories below one data directory.
fn list(dir: DirId, path: &Path, found: &mut Vec<FoundDir>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Names that are not text are not ours.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !is_partition_dir_name(&name) || !entry.file_type()?.is_dir() {
            continue;
        }
        let metadata = fs::read_to_string(entry.path().join(PARTITION_METADATA)).unwrap_or_default();
        let changed_ms = entry.metadata()?.ctime() * 1000;
        let topic = parse_partition_metadata(&metadata).ok();
        found.push(FoundDir { dir: PartitionDir { dir, name: name.into() }, topic, changed_ms });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: BrokerId = BrokerId(1);

    fn paths(root: &Path, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| root.join(name)).collect()
    }

    #[test]
    fn new_directories_get_an_identity_and_keep_it() {
        let root = tempfile::tempdir().expect("a directory");
        let paths = paths(root.path(), &["a/b", "c"]);
        let first = DataDirs::open(&paths, NODE).expect("opened");
        let ids: Vec<TopicId> = first.dirs.iter().map(|dir| dir.id).collect();
        assert!(ids[0] != ids[1] && !ids[0].is_none());
        let cluster = first.cluster_id;
        drop(first);
        let again = DataDirs::open(&paths, NODE).expect("opened again");
        assert_eq!(again.cluster_id, cluster);
        assert_eq!(again.dirs.iter().map(|dir| dir.id).collect::<Vec<_>>(), ids);
        assert!(again.dirs.iter().all(|dir| dir.clean.is_none()), "no clean stop was marked");
        assert!(paths.iter().all(|path| path.join(OWN).is_dir()), "each has a place for its checkpoints");
    }

    #[test]
    fn the_marker_of_a_clean_stop_is_seen_once() {
        let root = tempfile::tempdir().expect("a directory");
        let paths = paths(root.path(), &["a"]);
        let dirs = DataDirs::open(&paths, NODE).expect("opened");
        dirs.mark_clean(BrokerEpoch(7)).expect("marked");
        drop(dirs);
        let dirs = DataDirs::open(&paths, NODE).expect("opened again");
        assert_eq!(dirs.dirs[0].clean.map(CleanShutdown::broker_epoch), Some(BrokerEpoch(7)));
        drop(dirs);
        let dirs = DataDirs::open(&paths, NODE).expect("opened a third time");
        assert_eq!(dirs.dirs[0].clean, None);
    }

    #[test]
    fn directories_of_others_are_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let open = |names: &[&str], node| DataDirs::open(&paths(root.path(), names), node).map(|_| ());
        open(&["mine"], NODE).expect("opened");
        let status = |result: Result<(), Reason>| result.expect_err("refused").status();
        assert_eq!(status(open(&["mine"], BrokerId(2))), 14, "another node");
        open(&["theirs"], NODE).expect("another cluster");
        assert_eq!(status(open(&["mine", "theirs"], NODE)), 14, "two clusters");
        fs::create_dir(root.path().join("copy")).expect("created");
        fs::copy(root.path().join("mine/meta.properties"), root.path().join("copy/meta.properties")).expect("copied");
        assert_eq!(status(open(&["mine", "copy"], NODE)), 14, "a copy");
        fs::create_dir(root.path().join("home")).expect("created");
        fs::write(root.path().join("home/letter.txt"), "dear").expect("written");
        let refused = open(&["home"], NODE).expect_err("somebody's files");
        assert!(refused.text().contains("letter.txt"), "{refused}");
    }

    /// It is where the metadata is: a new cluster would be formed, and what the others hold forgotten.
    #[test]
    fn an_empty_first_directory_beside_one_in_use_is_refused_untouched() {
        let root = tempfile::tempdir().expect("a directory");
        DataDirs::open(&paths(root.path(), &["a", "b"]), NODE).map(|_| ()).expect("opened");
        fs::create_dir(root.path().join("mount-point")).expect("created");
        let refused = DataDirs::open(&paths(root.path(), &["mount-point", "b"]), NODE).expect_err("no metadata");
        assert_eq!(refused.status(), 17);
        assert!(refused.text().contains("mount the disk of"), "{refused}");
        assert!(!root.path().join("mount-point/meta.properties").exists(), "it is given no identity");
        DataDirs::open(&paths(root.path(), &["a", "b", "mount-point"]), NODE).map(|_| ()).expect("a further one");
    }

    #[test]
    fn a_lost_directory_is_offline_unless_it_is_the_first() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("file"), "").expect("written");
        let dirs = DataDirs::open(&paths(root.path(), &["a", "file/b"]), NODE).expect("served without the second");
        assert_eq!(dirs.dirs.iter().map(|dir| dir.online).collect::<Vec<_>>(), [true, false]);
        let refused = DataDirs::open(&paths(root.path(), &["file/b", "c"]), NODE).expect_err("no metadata");
        assert_eq!(refused.status(), 16);
    }

    #[test]
    fn a_directory_is_locked_until_the_last_clone_of_its_lock_is_closed() {
        let root = tempfile::tempdir().expect("a directory");
        let dirs = DataDirs::open(&paths(root.path(), &["a"]), NODE).expect("opened");
        let locks = dirs.locks().expect("cloned");
        drop(dirs);
        let other = File::open(root.path().join("a/.lock")).expect("there");
        let attempt = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(attempt(), Err(rustix::io::Errno::WOULDBLOCK));
        drop(locks);
        assert_eq!(attempt(), Ok(()));
    }

    #[test]
    fn partitions_are_found_with_their_topic_ids() {
        let root = tempfile::tempdir().expect("a directory");
        let dirs = DataDirs::open(&paths(root.path(), &["a"]), NODE).expect("opened");
        let topic = TopicId([5; 16]);
        for name in ["orders-0", "a-b-12", "orders-1.0f-delete", "not_one", "-3"] {
            fs::create_dir(root.path().join("a").join(name)).expect("created");
        }
        let metadata = crate::log::text_files::encode_partition_metadata(topic);
        fs::write(root.path().join("a/a-b-12/partition.metadata"), metadata).expect("written");
        let found = dirs.partitions().expect("listed");
        let names: Vec<(&str, Option<TopicId>)> = found.iter().map(|dir| (&*dir.dir.name, dir.topic)).collect();
        assert_eq!(names, [("a-b-12", Some(topic)), ("orders-0", None), ("orders-1.0f-delete", None)]);
        assert!(found[0].changed_ms > 1_600_000_000_000);
    }
}
