//! Open files by [`FileId`]: a core's active segments, which it alone uses, and the sealed ones, which every core may
//! send from.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, RwLock};

use crate::ids::{DirId, Errno, FileId, MonoMicros};
use crate::io::op::{Age, Ages};
use crate::io::ring::Ring;

/// An open segment. Whoever has an operation in flight on it holds a counted reference, so that the descriptor is not
/// closed, and its number not reused, before the operation has reached the kernel.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    /// The data directory it lies in.
    pub dir: DirId,
    /// Slot in the ring's file table of the core that writes it; `None` for a sealed file, or when the table was full.
    fixed: Option<u32>,
    /// Whether it was opened with O_DIRECT, which is so as long as it is active.
    pub direct: bool,
}

impl OpenFile {
    /// The plain descriptor, for calls that know no file table.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How a submission names it.
    pub fn target(&self) -> Target {
        match self.fixed {
            Some(slot) => Target::Slot(slot),
            None => Target::Fd(self.fd.as_raw_fd()),
        }
    }
}

/// A file as a submission names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Slot of the ring's file table.
    Slot(u32),
    /// Plain descriptor.
    Fd(RawFd),
}

/// Builds a submission for a [`Target`]; the crate has two types for the two kinds.
macro_rules! on_target {
    ($target:expr, |$file:ident| $build:expr) => {
        match $target {
            $crate::io::file::Target::Slot(slot) => {
                let $file = ::io_uring::types::Fixed(slot);
                $build
            }
            $crate::io::file::Target::Fd(fd) => {
                let $file = ::io_uring::types::Fd(fd);
                $build
            }
        }
    };
}
pub(in crate::io) use on_target;

/// The sealed segments of all cores.
#[derive(Debug, Default)]
pub struct Registry(RwLock<HashMap<FileId, Arc<OpenFile>>>);

impl Registry {
    /// The file, unless it was closed.
    pub fn find(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.0.read().expect("no panic under this lock").get(&file).cloned()
    }

    fn insert(&self, file: FileId, open: Arc<OpenFile>) {
        let before = self.0.write().expect("no panic under this lock").insert(file, open);
        assert!(before.is_none(), "file {file} opened twice");
    }

    fn remove(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.0.write().expect("no panic under this lock").remove(&file)
    }
}

/// The files that one core works with.
#[derive(Debug)]
pub struct Files {
    /// Open data directories, by [`DirId`].
    dirs: Arc<[OwnedFd]>,
    active: HashMap<FileId, Arc<OpenFile>>,
    sealed: Arc<Registry>,
    /// Start times of what is in flight, for each directory.
    ages: Vec<Ages>,
    /// Whether writes in a directory may ask not to block; false once its file system has refused that.
    pub(in crate::io) eager: Vec<bool>,
    /// What a test wants to go wrong.
    pub(in crate::io) fault: Option<DiskFault>,
}

impl Files {
    /// No files yet, in these directories.
    pub fn new(dirs: Arc<[OwnedFd]>, sealed: Arc<Registry>, fault: Option<DiskFault>) -> Files {
        let count = dirs.len();
        let ages = (0..count).map(|_| Ages::default()).collect();
        Files { dirs, active: HashMap::new(), sealed, ages, eager: vec![true; count], fault }
    }

    /// A data directory.
    ///
    /// # Panics
    /// When there is none of that number.
    pub fn dir(&self, dir: DirId) -> BorrowedFd<'_> {
        self.dirs[usize::from(dir.0)].as_fd()
    }

    /// How many data directories there are.
    pub fn dir_count(&self) -> usize {
        self.dirs.len()
    }

    /// An active segment of this core.
    pub fn active(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.active.get(&file).cloned()
    }

    /// A segment: active of this core, or sealed of any.
    pub fn find(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.active(file).or_else(|| self.sealed.find(file))
    }

    /// Takes in a freshly opened active segment.
    ///
    /// # Panics
    /// When the id is in use.
    pub fn insert_active(&mut self, ring: &mut Ring, file: FileId, dir: DirId, fd: OwnedFd) {
        let fixed = ring.install_file(fd.as_fd());
        let before = self.active.insert(file, Arc::new(OpenFile { fd, dir, fixed, direct: true }));
        assert!(before.is_none(), "file {file} opened twice");
    }

    /// Takes in a freshly opened sealed segment; an active one of the same id is closed.
    ///
    /// # Panics
    /// When the id is in use for another sealed one.
    pub fn insert_sealed(&mut self, ring: &mut Ring, file: FileId, dir: DirId, fd: OwnedFd) {
        self.remove_active(ring, file);
        self.sealed.insert(file, Arc::new(OpenFile { fd, dir, fixed: None, direct: false }));
    }

    /// Forgets a file. The descriptor comes back when nothing in flight uses it; else the last user closes it.
    pub fn remove(&mut self, ring: &mut Ring, file: FileId) -> Option<OwnedFd> {
        let open = self.remove_active(ring, file).or_else(|| self.sealed.remove(file))?;
        Arc::into_inner(open).map(|open| open.fd)
    }

    /// Notes that a disk operation starts.
    pub fn start(&mut self, dir: DirId, now: MonoMicros) -> Age {
        self.ages[usize::from(dir.0)].start(now)
    }

    /// Notes that it has ended.
    pub fn end(&mut self, dir: DirId, age: Age) {
        self.ages[usize::from(dir.0)].end(age);
    }

    /// Disk operations in flight in a directory.
    pub fn in_flight(&self, dir: DirId) -> u32 {
        self.ages[usize::from(dir.0)].in_flight()
    }

    /// When the oldest disk operation in flight of each directory was started.
    pub fn oldest(&self) -> impl Iterator<Item = Option<MonoMicros>> + '_ {
        self.ages.iter().map(Ages::oldest)
    }

    fn remove_active(&mut self, ring: &mut Ring, file: FileId) -> Option<Arc<OpenFile>> {
        let open = self.active.remove(&file)?;
        if let Some(slot) = open.fixed {
            ring.remove_file(slot);
        }
        Some(open)
    }
}

/// A disk that goes bad, for tests of what the broker does then: plain data given at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFault {
    /// Which data directory.
    pub dir: DirId,
    /// How many disk operations in it still work.
    pub after: u64,
    /// What becomes of the later ones.
    pub effect: FaultEffect,
}

/// What a bad disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Nothing ever completes.
    Hang,
    /// Everything completes with this error.
    Fail(Errno),
}

impl DiskFault {
    /// What to do instead of an operation in `dir`; `None` lets it through.
    pub(in crate::io) fn strike(fault: &mut Option<DiskFault>, dir: DirId) -> Option<FaultEffect> {
        let fault = fault.as_mut().filter(|fault| fault.dir == dir)?;
        if fault.after == 0 {
            return Some(fault.effect);
        }
        fault.after -= 1;
        None
    }
}

/// Keeps the lock file of a data directory open for as long as the ring has operations in flight: a killed process's
/// last writes may land up to 120 ms after its end, and the next one must not start before that (design.md §1).
///
/// # Panics
/// When the file table has no room; it is sized for these.
pub fn hold_lock(ring: &mut Ring, lock: BorrowedFd<'_>) {
    assert!(ring.install_file(lock).is_some(), "no room for the lock file in the ring's file table");
}
