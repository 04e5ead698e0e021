//! The files of the metadata log, written on a thread of their own so that the control thread never waits for the disk.
//!
//! `<first data dir>/.pinion/raft/log-<number>` and `snapshot-<index>`. A log write is O_DSYNC; a file is synced with its
//! directory before its first entry counts; a snapshot is renamed into place only when it is synced.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use crate::control::raft_log::{Append, LOG_FILE_BYTES, RaftFiles};
use crate::ids::{Errno, LogIndex};
use crate::io::clock;
use crate::limits::BLOCK;
use crate::runtime::inbox::{Inbox, Input};
use crate::runtime::pulse::OldestDisk;

/// What the thread is asked.
#[derive(Debug)]
pub enum Order {
    /// Write to the log.
    Log(Append),
    /// Save a snapshot.
    Snapshot {
        /// Its index.
        index: LogIndex,
        /// Its contents.
        bytes: Vec<u8>,
    },
    /// Remove files; failing costs space only.
    Remove {
        /// Snapshots.
        snapshots: Vec<LogIndex>,
        /// Log files.
        logs: Vec<u64>,
    },
}

const LOG: &str = "log-";
const SNAPSHOT: &str = "snapshot-";
const UNFINISHED: &str = "snapshot.tmp";

/// Makes the directory if it is not there, durably, and reads all files. A log file gives back the reserve at its end: it
/// is never written to again. What an unfinished snapshot left is removed.
///
/// # Errors
/// Whatever the kernel says, with the path.
pub fn read(dir: &Path) -> io::Result<RaftFiles> {
    if !dir.is_dir() {
        fs::create_dir_all(dir)?;
        // Its name and that of `.pinion`: without them a log that was acknowledged could be gone after a power loss.
        for parent in dir.ancestors().skip(1).take(2) {
            File::open(parent)?.sync_all()?;
        }
    }
    let mut files = RaftFiles::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if let Some(number) = number(&name, LOG) {
            files.logs.push((number, read_log(&entry.path())?));
        } else if let Some(index) = number(&name, SNAPSHOT) {
            files.snapshots.push((LogIndex(index), fs::read(entry.path())?));
        } else if name == UNFINISHED {
            fs::remove_file(entry.path())?;
        }
    }
    files.logs.sort();
    files.snapshots.sort();
    Ok(files)
}

/// The blocks of a log file up to the last one that was written.
fn read_log(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = fs::read(path)?;
    let used = bytes.chunks(BLOCK as usize).rposition(|block| block.iter().any(|byte| *byte != 0));
    let used = used.map_or(0, |block| ((block + 1) * BLOCK as usize).min(bytes.len()));
    if used < bytes.len() {
        OpenOptions::new().write(true).open(path)?.set_len(used as u64)?;
        bytes.truncate(used);
        bytes.shrink_to_fit();
    }
    Ok(bytes)
}

fn number(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Starts the thread. Its answers go to `inbox`, in the order of the orders; what it is at is published in `oldest`.
///
/// # Errors
/// When the thread cannot be had.
pub fn start(dir: PathBuf, inbox: Inbox, oldest: Arc<OldestDisk>) -> io::Result<Sender<Order>> {
    let (sender, orders) = mpsc::channel();
    let serve = move || {
        let mut writer = Writer { dir, logs: BTreeMap::new() };
        for order in orders {
            oldest.publish(Some(clock::mono()));
            writer.serve(order, &inbox);
            oldest.publish(None);
        }
    };
    std::thread::Builder::new().name("raft-log".to_owned()).spawn(serve)?;
    Ok(sender)
}

struct Writer {
    dir: PathBuf,
    logs: BTreeMap<u64, File>,
}

impl Writer {
    fn serve(&mut self, order: Order, inbox: &Inbox) {
        match order {
            Order::Log(append) => inbox.put(Input::Logged(self.append(&append).map_err(errno))),
            Order::Snapshot { index, bytes } => {
                let result = self.save(index, &bytes).map_err(errno);
                inbox.put(Input::SnapshotSaved { index, result });
            }
            Order::Remove { snapshots, logs } => {
                let names =
                    snapshots.iter().map(|index| self.snapshot(*index)).chain(logs.iter().map(|n| self.log(*n)));
                for path in names {
                    if let Err(error) = fs::remove_file(&path) {
                        tracing::warn!(path = %path.display(), %error, "a file of the metadata log could not be removed");
                    }
                }
                logs.iter().for_each(|number| drop(self.logs.remove(number)));
            }
        }
    }

    fn append(&mut self, append: &Append) -> io::Result<()> {
        if append.create {
            let file = self.create(append.file)?;
            self.logs.insert(append.file, file);
        }
        let file = self.logs.get(&append.file).expect("a log file is created before it is written");
        file.write_all_at(&append.bytes, append.at)
    }

    /// Makes a log file of full length, so that later writes need no space, and syncs it with its directory.
    fn create(&self, number: u64) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).custom_flags(libc::O_DSYNC);
        let file = options.open(self.log(number))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LOG_FILE_BYTES)?;
        file.sync_all()?;
        File::open(&self.dir)?.sync_all()?;
        Ok(file)
    }

    fn save(&self, index: LogIndex, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.dir.join(UNFINISHED);
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, self.snapshot(index))?;
        File::open(&self.dir)?.sync_all()
    }

    fn log(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{LOG}{number:020}"))
    }

    fn snapshot(&self, index: LogIndex) -> PathBuf {
        self.dir.join(format!("{SNAPSHOT}{:020}", index.0))
    }
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(file: u64, create: bool, at: u64) -> Append {
        Append { file, create, at, bytes: vec![7; BLOCK as usize] }
    }

    #[test]
    fn what_was_written_is_read_back_without_the_reserve() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join(".pinion/raft");
        assert_eq!(read(&dir).expect("made"), RaftFiles::default());
        let mut writer = Writer { dir: dir.clone(), logs: BTreeMap::new() };
        for append in [append(1, true, 0), append(1, false, BLOCK), append(2, true, 0)] {
            writer.append(&append).expect("written");
        }
        writer.save(LogIndex(9), b"image").expect("saved");
        writer.save(LogIndex(3), b"older").expect("saved");
        let length = |number| fs::metadata(dir.join(format!("{LOG}{number:020}"))).expect("there").len();
        assert_eq!(length(2), LOG_FILE_BYTES);
        fs::write(dir.join(UNFINISHED), "half").expect("written");
        let files = read(&dir).expect("read");
        let lengths: Vec<(u64, usize)> = files.logs.iter().map(|(number, bytes)| (*number, bytes.len())).collect();
        assert_eq!(lengths, [(1, 2 * BLOCK as usize), (2, BLOCK as usize)]);
        assert_eq!(files.snapshots, [(LogIndex(3), b"older".to_vec()), (LogIndex(9), b"image".to_vec())]);
        assert_eq!(length(2), BLOCK);
        assert!(!dir.join(UNFINISHED).exists());
    }
}
