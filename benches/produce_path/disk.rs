//! What the device sets as limits: synced O_DIRECT writes, one at a time and many.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{ReadWriteFlags, pwritev2};

/// In which state the blocks are that are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extents {
    /// Zeros were written and synced: each write is an overwrite.
    Zeroed,
    /// Allocated only.
    Unwritten,
}

const BLOCK: usize = 4096;

/// A buffer that O_DIRECT takes.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![0x5a; len + BLOCK];
        let from = bytes.as_ptr().align_offset(BLOCK);
        Aligned { bytes, from, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }
}

/// One file that is written 4 KiB at a time, each write synced.
pub struct SyncedWrites {
    file: File,
    path: PathBuf,
    block: Aligned,
    at: u64,
    len: u64,
}

impl SyncedWrites {
    /// A file of `len` bytes of written zeros.
    pub fn new(dir: &Path, len: u64) -> SyncedWrites {
        let path = dir.join("synced-writes");
        let file = prepared(&path, len, Extents::Zeroed);
        SyncedWrites { file, path, block: Aligned::new(BLOCK), at: 0, len }
    }

    /// Writes the next 4 KiB.
    pub fn write(&mut self) -> Duration {
        let begun = Instant::now();
        let parts = [std::io::IoSlice::new(self.block.bytes())];
        let written = pwritev2(&self.file, &parts, self.at, ReadWriteFlags::DSYNC).expect("space was made");
        let took = begun.elapsed();
        assert_eq!(written, BLOCK);
        self.at = (self.at + BLOCK as u64) % self.len;
        took
    }
}

impl Drop for SyncedWrites {
    fn drop(&mut self) {
        // What stays behind goes with the directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Bytes per second when `files` files are written from their beginnings with synced writes of `write_bytes`, `depth` of
/// them in flight, over `bytes` in total.
pub fn synced_throughput(
    dir: &Path,
    extents: Extents,
    files: usize,
    write_bytes: usize,
    depth: usize,
    bytes: u64,
) -> f64 {
    let write_bytes = write_bytes.next_multiple_of(BLOCK);
    let writes = (bytes / write_bytes as u64).max(files as u64);
    let len = writes.div_ceil(files as u64) * write_bytes as u64;
    let paths: Vec<PathBuf> = (0..files).map(|index| dir.join(format!("throughput-{index}"))).collect();
    let opened: Vec<File> = paths.iter().map(|path| prepared(path, len, extents)).collect();
    let buffer = Aligned::new(write_bytes);
    let mut ring = IoUring::new(256).expect("a ring");
    let (mut submitted, mut completed) = (0, 0);
    let begun = Instant::now();
    while completed < writes {
        while submitted < writes && submitted - completed < depth as u64 {
            let file = types::Fd(opened[(submitted % files as u64) as usize].as_raw_fd());
            let at = submitted / files as u64 * write_bytes as u64;
            let entry = opcode::Write::new(file, buffer.bytes().as_ptr(), write_bytes as u32).offset(at);
            // SAFETY: the buffer and the files outlive the ring's last completion below.
            let pushed = unsafe { ring.submission().push(&entry.rw_flags(libc::RWF_DSYNC).build()) };
            pushed.expect("the queue is longer than the depth");
            submitted += 1;
        }
        ring.submit_and_wait(1).expect("a ring");
        for entry in ring.completion() {
            assert_eq!(entry.result(), write_bytes as i32, "a write on its own file");
            completed += 1;
        }
    }
    let took = begun.elapsed();
    paths.iter().for_each(|path| std::fs::remove_file(path).expect("it was made here"));
    (writes * write_bytes as u64) as f64 / took.as_secs_f64()
}

/// A file of `len` bytes, opened with O_DIRECT.
fn prepared(path: &Path, len: u64, extents: Extents) -> File {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let file = options.open(path).expect("a file with O_DIRECT");
    fallocate(&file, FallocateFlags::empty(), 0, len).expect("space on the disk");
    if extents == Extents::Zeroed {
        let zeros = Aligned::new(1 << 20);
        let mut at = 0;
        while at < len {
            let piece = &zeros.bytes()[..(len - at).min(1 << 20) as usize];
            at += rustix::io::pwrite(&file, piece, at).expect("space was made") as u64;
        }
    }
    file.sync_all().expect("a disk");
    file
}
