//! What the device below a data directory says about itself, and whether its file system can do O_DIRECT.
//!
//! Nothing is timed at start: whether a completed write is on stable media follows `queue/write_cache` and `queue/fua`
//! (Linux Documentation/ABI/stable/sysfs-block).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fstat, major, minor, openat, statx, unlinkat};

use crate::fatal::Reason;
use crate::limits::BLOCK;

/// How written bytes get onto stable media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWay {
    /// The device has no volatile cache, as far as the kernel knows: a completed write is stable.
    WriteThrough,
    /// It has one, and writes can go past it: RWF_DSYNC of one write costs one FUA write.
    ForceUnitAccess,
    /// It has one that must be flushed: RWF_DSYNC is write + flush, and one flush for a group is cheaper.
    Flush,
}

/// The facts of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name in /sys/block, or what is known instead.
    pub name: String,
    /// How to flush it.
    pub way: FlushWay,
    /// Pages must not change while they are written (checksumming devices): a tail block is copied out first.
    pub stable_writes: bool,
}

impl DeviceFacts {
    /// Looks at the device that holds an open directory. A file system without one (btrfs, overlay) counts as a device
    /// that must be flushed and wants stable pages: right everywhere, though not the fastest.
    pub fn of(dir: BorrowedFd<'_>) -> DeviceFacts {
        let cautious = |name: String| DeviceFacts { name, way: FlushWay::Flush, stable_writes: true };
        let Ok(stat) = fstat(dir) else { return cautious("unknown".to_string()) };
        let number = format!("{}:{}", major(stat.st_dev), minor(stat.st_dev));
        match queue_dir(&Path::new("/sys/dev/block").join(&number)) {
            Some(queue) => read_queue(&queue),
            None => cautious(format!("no block device ({number})")),
        }
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            FlushWay::WriteThrough => "writes are stable when complete (queue/write_cache: write through)",
            FlushWay::ForceUnitAccess => {
                "RWF_DSYNC writes past the volatile cache (queue/write_cache: write back, fua: 1)"
            }
            FlushWay::Flush => "the volatile cache is flushed (queue/write_cache: write back, fua: 0)",
        };
        write!(f, "{}: {way}", self.name)?;
        if self.stable_writes { write!(f, ", tail blocks are copied out (stable_writes: 1)") } else { Ok(()) }
    }
}

/// Makes sure that files of a directory can be written with O_DIRECT in units of 4 KiB.
///
/// # Errors
/// `Reason::NoDirectIo` with a remedy.
pub fn check_direct_io(dir: BorrowedFd<'_>, path: &str) -> Result<(), Reason> {
    let refused = |why: String| {
        Reason::NoDirectIo(format!(
            "{path}: {why}; use a directory on ext4 or XFS, unencrypted and without data=journal"
        ))
    };
    let name = ".direct-io-check";
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
    let _ = unlinkat(dir, name, AtFlags::empty());
    let file = match opened {
        Ok(file) => file,
        Err(rustix::io::Errno::INVAL) => return Err(refused("no O_DIRECT on this file system".to_string())),
        Err(rustix::io::Errno::NOSPC) => return Err(Reason::DiskFull(format!("{path}: no space left; free some"))),
        Err(error) => {
            return Err(Reason::DirFailed(format!("{path}: no file can be created ({error}); check the disk")));
        }
    };
    let stat = statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .map_err(|error| refused(format!("statx: {error}")))?;
    let known = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let (memory, offset) = (u64::from(stat.stx_dio_mem_align), u64::from(stat.stx_dio_offset_align));
    if !known || memory == 0 || offset == 0 {
        return Err(refused("the file system turns O_DIRECT into buffered writes".to_string()));
    }
    if !BLOCK.is_multiple_of(memory) || !BLOCK.is_multiple_of(offset) {
        return Err(refused(format!("O_DIRECT needs units of {} bytes", memory.max(offset))));
    }
    Ok(())
}

/// The queue directory of a device, or of the disk that a partition lies on.
fn queue_dir(device: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    [device.join("queue"), device.parent()?.join("queue")].into_iter().find(|queue| queue.is_dir())
}

fn read_queue(queue: &Path) -> DeviceFacts {
    let fact = |name: &str| std::fs::read_to_string(queue.join(name)).map(|text| text.trim().to_string()).ok();
    let name = queue.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let way = match (fact("write_cache").as_deref(), fact("fua").as_deref()) {
        (Some("write through"), _) => FlushWay::WriteThrough,
        (Some("write back"), Some("1")) => FlushWay::ForceUnitAccess,
        _ => FlushWay::Flush,
    };
    let stable_writes = fact("stable_writes").is_none_or(|value| value != "0");
    DeviceFacts { name: name.unwrap_or_default(), way, stable_writes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn disk(root: &Path, facts: &[(&str, &str)]) -> PathBuf {
        let queue = root.join("disk0/queue");
        fs::create_dir_all(&queue).expect("queue");
        for (name, value) in facts {
            fs::write(queue.join(name), format!("{value}\n")).expect("fact");
        }
        root.join("disk0")
    }

    #[test]
    fn the_flush_way_follows_write_cache_and_fua() {
        let cases = [
            ("write through", "0", FlushWay::WriteThrough),
            ("write through", "1", FlushWay::WriteThrough),
            ("write back", "1", FlushWay::ForceUnitAccess),
            ("write back", "0", FlushWay::Flush),
        ];
        for (cache, fua, way) in cases {
            let root = tempfile::tempdir().expect("dir");
            let disk = disk(root.path(), &[("write_cache", cache), ("fua", fua), ("stable_writes", "0")]);
            let facts = read_queue(&queue_dir(&disk).expect("queue"));
            assert_eq!(facts, DeviceFacts { name: "disk0".to_string(), way, stable_writes: false });
            assert!(facts.to_string().contains(cache), "{facts}");
        }
    }

    #[test]
    fn a_partition_has_the_facts_of_its_disk() {
        let root = tempfile::tempdir().expect("dir");
        let disk = disk(root.path(), &[("write_cache", "write through"), ("stable_writes", "1")]);
        fs::create_dir(disk.join("disk0p1")).expect("partition");
        let facts = read_queue(&queue_dir(&disk.join("disk0p1")).expect("queue"));
        assert_eq!((facts.way, facts.stable_writes), (FlushWay::WriteThrough, true));
    }

    #[test]
    fn what_is_unknown_is_flushed_and_copied() {
        let root = tempfile::tempdir().expect("dir");
        let facts = read_queue(&queue_dir(&disk(root.path(), &[])).expect("queue"));
        assert_eq!((facts.way, facts.stable_writes), (FlushWay::Flush, true));
        assert_eq!(queue_dir(&root.path().join("absent")), None);
    }

    #[test]
    fn a_directory_on_a_real_disk_passes_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("dir");
        let fd = fs::File::open(dir.path()).expect("open");
        assert_eq!(check_direct_io(fd.as_fd(), "data"), Ok(()));
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
    }

    #[test]
    fn a_file_system_without_direct_io_is_refused_with_a_remedy() {
        // /proc cannot create files at all; the kernel's own answer decides which ending it is.
        let fd = fs::File::open("/proc/self").expect("open");
        let refused = check_direct_io(fd.as_fd(), "/proc/self").expect_err("refused");
        assert!(refused.to_string().starts_with("/proc/self: "), "{refused}");
    }
}
