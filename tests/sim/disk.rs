//! A disk with a volatile cache: what a write, a sync and a file job promise, and no more.
//!
//! Every file has the bytes that reads see now, and the bytes that are sure to survive a loss of power. Between them are
//! writes that have completed but are covered by no sync: at a crash each 512-byte sector of them survives or not.

use std::collections::{BTreeMap, BTreeSet};

use pinion::ids::{CoreId, DirId, Errno, FileId, FilePos};
use pinion::limits::BLOCK;
use pinion::shard::action::{FileJob, FileKind, FileRange, PartitionDir, PartitionFile};
use pinion::shard::event::FileDone;

use crate::rng::Rng;

/// What survives or does not as a whole.
const SECTOR: usize = 512;
const ENOENT: Errno = Errno(2);
const EEXIST: Errno = Errno(17);
const EFBIG: Errno = Errno(27);

/// A write that no sync covers yet.
#[derive(Debug)]
struct Pending {
    seq: u64,
    at: usize,
    bytes: Vec<u8>,
    /// The length to which the file was cut instead.
    cut: Option<usize>,
}

/// One file's contents.
#[derive(Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Per sector the newest write that is durable: an older one must not undo it.
    durable_seq: BTreeMap<usize, u64>,
    /// Pages in the page cache, for buffered reads.
    cached: BTreeSet<u64>,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Link {
    inode: usize,
    /// Whether the name survives a loss of power.
    durable: bool,
    /// What the name stood for before, as long as it may again.
    before: Option<usize>,
}

/// A file as an operation that is under way holds it: it stays open for that although it is closed meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    inode: usize,
    direct: bool,
}

/// How the node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is gone; what had completed is there.
    Killed,
    /// Power is gone: what no sync covers may be lost.
    PowerLost,
}

/// The disk of the node; it outlives crashes.
#[derive(Debug, Default)]
pub struct Disk {
    inodes: Vec<Inode>,
    dirs: BTreeMap<PartitionDir, BTreeMap<FileKind, Link>>,
    checkpoints: BTreeMap<(DirId, CoreId), usize>,
    open: BTreeMap<FileId, Open>,
    /// Names that were removed and are still there after a loss of power; the journal keeps their order.
    removed: Vec<(PartitionFile, Link)>,
    seq: u64,
    /// Completed writes are durable: a device without a volatile cache.
    pub write_through: bool,
    /// It confirms syncs that it does not make. A broken disk, to prove that the checks see it.
    pub lies: bool,
}

impl Disk {
    /// Makes a partition's directory, synced.
    pub fn mkdir(&mut self, dir: &PartitionDir) {
        self.dirs.entry(dir.clone()).or_default();
    }

    /// Checks a write against what O_DIRECT and the growth of files allow.
    pub fn check_write(&self, file: FileId, at: FilePos, len: u32) {
        let open = self.open.get(&file).unwrap_or_else(|| panic!("{file:?} is written and not open"));
        assert!(open.direct, "{file:?} is written and was opened for buffered reads");
        assert!(at.0.is_multiple_of(BLOCK) && u64::from(len).is_multiple_of(BLOCK), "write of {len} at {at}");
        let end = at.0 + u64::from(len);
        let allocated = self.inodes[open.inode].now.len() as u64;
        assert!(end <= allocated, "write up to {end} of a file of {allocated} bytes");
    }

    /// A write reached the device.
    pub fn write(&mut self, file: FileId, at: FilePos, bytes: Vec<u8>, sync: bool) {
        let inode = self.open[&file].inode;
        self.put(inode, at.0 as usize, bytes);
        if sync && !self.lies {
            let seq = self.seq;
            self.persist(inode, |pending| pending.seq == seq);
        }
    }

    /// What a flush that is emitted now will cover.
    pub fn flush_point(&self) -> u64 {
        self.seq
    }

    /// That flush is done.
    pub fn flush(&mut self, upto: u64) {
        if !self.lies {
            (0..self.inodes.len()).for_each(|inode| self.persist(inode, |pending| pending.seq <= upto));
        }
    }

    /// The file as an operation takes hold of it; `None` when it is closed.
    pub fn hold(&self, file: FileId) -> Option<Open> {
        self.open.get(&file).copied()
    }

    /// Reads; fewer bytes than asked where the file ends.
    pub fn read(&mut self, open: Open, range: FileRange) -> Vec<u8> {
        let inode = &mut self.inodes[open.inode];
        if open.direct {
            let aligned = range.at.0.is_multiple_of(BLOCK) && range.len.is_multiple_of(BLOCK);
            assert!(aligned, "{range:?} is not aligned for O_DIRECT");
        } else {
            inode.cached.extend(range.at.0 / BLOCK..=(range.at.0 + range.len) / BLOCK);
        }
        let from = (range.at.0 as usize).min(inode.now.len());
        let to = ((range.at.0 + range.len) as usize).min(inode.now.len());
        inode.now[from..to].to_vec()
    }

    /// The bytes that sendfile puts on the wire.
    pub fn sendfile(&mut self, open: Open, range: FileRange) -> Vec<u8> {
        assert!(!open.direct, "{range:?} of an active file is sent from the page cache");
        let bytes = self.read(open, range);
        assert_eq!(bytes.len() as u64, range.len, "{range:?} runs past the end of its file");
        bytes
    }

    /// The first part of a range that is not in the page cache.
    pub fn missing(&self, range: FileRange) -> Option<FileRange> {
        let Some(open) = self.open.get(&range.file) else { return Some(range) };
        let end = range.at.0 + range.len;
        let mut pages = range.at.0 / BLOCK..=(end - 1) / BLOCK;
        let first = pages.find(|page| !self.inodes[open.inode].cached.contains(page))?;
        let at = (first * BLOCK).max(range.at.0);
        Some(FileRange { at: FilePos(at), len: end - at, ..range })
    }

    /// Memory pressure: pages leave the cache.
    pub fn evict_pages(&mut self, rng: &mut Rng) {
        for inode in &mut self.inodes {
            inode.cached.retain(|_| rng.chance(500));
        }
    }

    /// Runs a file job to its end.
    pub fn run(&mut self, core: CoreId, job: &FileJob) -> Result<FileDone, Errno> {
        match job {
            FileJob::CreateSegment { file, path, len, .. } => self.create(*file, path, *len),
            FileJob::Grow { file, to, .. } => {
                let inode = self.open[file].inode;
                self.set_len(inode, to.0 as usize);
                self.persist(inode, |_| true);
                Ok(FileDone::Done)
            }
            FileJob::OpenActive { file, path } => self.open_file(*file, path, true),
            FileJob::OpenSealed { file, path } => self.open_file(*file, path, false),
            FileJob::Seal { file, len, .. } => {
                let inode = self.open[file].inode;
                self.set_len(inode, len.0 as usize);
                self.persist(inode, |_| true);
                self.open.insert(*file, Open { inode, direct: false });
                Ok(FileDone::Opened { file: *file, len: len.0 })
            }
            FileJob::Zero { .. } => panic!("nothing is truncated on one node: {job:?}"),
            FileJob::Close { file } => {
                self.open.remove(file).unwrap_or_else(|| panic!("{file:?} is closed and not open"));
                Ok(FileDone::Done)
            }
            FileJob::Remove { dir, files } => {
                let entries = self.dirs.get_mut(dir).ok_or(ENOENT)?;
                files.iter().for_each(|file| _ = entries.remove(file));
                Ok(FileDone::Done)
            }
            FileJob::RenameDir { from, to } => {
                let entries = self.dirs.remove(from).ok_or(ENOENT)?;
                self.dirs.insert(PartitionDir { dir: from.dir, name: to.clone() }, entries);
                Ok(FileDone::Done)
            }
            FileJob::RemoveDir { dir } => self.dirs.remove(dir).map(|_| FileDone::Done).ok_or(ENOENT),
            FileJob::Replace { path, contents } => {
                let inode = self.new_inode();
                self.put(inode, 0, contents.clone());
                self.persist(inode, |_| true);
                self.link(path, inode, true)
            }
            FileJob::AppendIndex { path, at, contents } => {
                let entries = self.dirs.get(&path.dir).ok_or(ENOENT)?;
                let inode = match entries.get(&path.kind) {
                    Some(link) => link.inode,
                    None => {
                        let inode = self.new_inode();
                        self.link(path, inode, false)?;
                        inode
                    }
                };
                self.put(inode, at.0 as usize, contents.clone());
                Ok(FileDone::Done)
            }
            FileJob::ReadWhole { path, len_max } => {
                let contents = self.contents(path).ok_or(ENOENT)?;
                let fits = contents.len() as u64 <= *len_max;
                if fits { Ok(FileDone::Contents(contents)) } else { Err(EFBIG) }
            }
            FileJob::Checkpoint { dir, at, contents } => {
                let inode = self.checkpoint_inode(*dir, core);
                self.put(inode, at.0 as usize, contents.clone());
                Ok(FileDone::Done)
            }
        }
    }

    /// A job fails: what it wrote so far stays, but a file that it made is removed again.
    pub fn run_in_vain(&mut self, core: CoreId, job: &FileJob, rng: &mut Rng) {
        if matches!(job, FileJob::AppendIndex { .. } | FileJob::Checkpoint { .. }) {
            self.run_half(core, job, rng);
        }
    }

    /// A crash met this job half way.
    pub fn run_half(&mut self, core: CoreId, job: &FileJob, rng: &mut Rng) {
        match job {
            FileJob::CreateSegment { file, path, len, .. } => {
                let part = rng.below(len / BLOCK + 1) * BLOCK;
                _ = self.create(*file, path, part);
            }
            FileJob::Grow { file, from, to, .. } => {
                let inode = self.open[file].inode;
                let len = from.0.max(rng.range(from.0 / BLOCK, to.0 / BLOCK + 1) * BLOCK);
                self.set_len(inode, len as usize);
            }
            FileJob::Remove { dir, files } => {
                let Some(entries) = self.dirs.get_mut(dir) else { return };
                let count = rng.below(files.len() as u64 + 1) as usize;
                files[..count].iter().for_each(|file| _ = entries.remove(file));
            }
            FileJob::AppendIndex { path, at, contents } => {
                let part = contents[..rng.below(contents.len() as u64 + 1) as usize].to_vec();
                _ = self.run(core, &FileJob::AppendIndex { path: path.clone(), at: *at, contents: part });
            }
            FileJob::Checkpoint { dir, at, contents } => {
                let part = contents[..rng.below(contents.len() as u64 + 1) as usize].to_vec();
                _ = self.run(core, &FileJob::Checkpoint { dir: *dir, at: *at, contents: part });
            }
            // Renames are atomic: all or nothing.
            other if rng.chance(500) => _ = self.run(core, other),
            _ => {}
        }
    }

    /// A crash met this write half way: some of its sectors are on the device.
    pub fn write_half(&mut self, file: FileId, at: FilePos, bytes: &[u8], rng: &mut Rng) {
        let inode = self.open[&file].inode;
        let mode = rng.below(3);
        for (index, sector) in bytes.chunks(SECTOR).enumerate() {
            if mode == 0 || (mode == 1 && rng.chance(500)) {
                self.put(inode, at.0 as usize + index * SECTOR, sector.to_vec());
            }
        }
    }

    /// The node is gone: nothing is open, and of what no sync covers a part is lost.
    pub fn crash(&mut self, crash: Crash, rng: &mut Rng) {
        self.open.clear();
        if crash == Crash::Killed {
            return;
        }
        let keep = rng.pick(&[0, 0, 500, 900]);
        for inode in &mut self.inodes {
            inode.cached.clear();
            for pending in std::mem::take(&mut inode.pending) {
                inode.apply(&pending, |_| rng.chance(keep));
            }
            inode.durable_seq.clear();
            inode.now = inode.durable.clone();
        }
        for entries in self.dirs.values_mut() {
            entries.retain(|_, link| {
                if !link.durable && !rng.chance(keep) {
                    let Some(before) = link.before else { return false };
                    link.inode = before;
                }
                (link.durable, link.before) = (true, None);
                true
            });
        }
        let lost = rng.below(self.removed.len() as u64 + 1) as usize;
        for (path, link) in self.removed.drain(..).skip(lost) {
            self.dirs.get_mut(&path.dir).map(|entries| entries.entry(path.kind).or_insert(link));
        }
    }

    /// Everything that was written, named or removed is durable, whoever did it.
    pub fn sync_all(&mut self) {
        if self.lies {
            return;
        }
        (0..self.inodes.len()).for_each(|inode| self.persist(inode, |_| true));
        let links = self.dirs.values_mut().flat_map(|entries| entries.values_mut());
        links.for_each(|link| (link.durable, link.before) = (true, None));
        self.removed.clear();
    }

    /// The files of a directory, with their lengths.
    pub fn files(&self, dir: &PartitionDir) -> Vec<(FileKind, u64)> {
        let entries = self.dirs.get(dir).into_iter().flatten();
        entries.map(|(kind, link)| (*kind, self.inodes[link.inode].now.len() as u64)).collect()
    }

    /// All that a file holds.
    pub fn contents(&self, path: &PartitionFile) -> Option<Vec<u8>> {
        self.inode(path).map(|inode| inode.now.clone())
    }

    /// What of a file would be there after a loss of power at the worst moment.
    pub fn durable(&self, path: &PartitionFile) -> Option<&[u8]> {
        self.inode(path).map(|inode| &inode.durable[..])
    }

    /// The checkpoint files of a data directory.
    pub fn checkpoints(&self, dir: DirId) -> impl Iterator<Item = (CoreId, &[u8])> {
        let of_dir = self.checkpoints.iter().filter(move |((of, _), _)| *of == dir);
        of_dir.map(|((_, core), inode)| (*core, &self.inodes[*inode].now[..]))
    }

    /// Recovery puts a new file in the place of another; nothing of it is synced.
    pub fn replace(&mut self, path: &PartitionFile, contents: Vec<u8>) {
        let inode = self.new_inode();
        self.put(inode, 0, contents);
        self.link(path, inode, false).expect("the directory is there");
    }

    /// Recovery writes into a file, unsynced.
    pub fn overwrite(&mut self, path: &PartitionFile, at: FilePos, bytes: Vec<u8>) {
        let inode = self.dirs[&path.dir][&path.kind].inode;
        self.put(inode, at.0 as usize, bytes);
    }

    /// Recovery cuts a file, unsynced.
    pub fn cut(&mut self, path: &PartitionFile, len: FilePos) {
        let inode = self.dirs[&path.dir][&path.kind].inode;
        self.seq += 1;
        let pending = Pending { seq: self.seq, at: 0, bytes: Vec::new(), cut: Some(len.0 as usize) };
        let inode = &mut self.inodes[inode];
        inode.now.resize(len.0 as usize, 0);
        inode.pending.push(pending);
    }

    /// Recovery removes a file, unsynced.
    pub fn remove(&mut self, path: &PartitionFile) {
        let link = self.dirs.get_mut(&path.dir).and_then(|entries| entries.remove(&path.kind));
        self.removed.extend(link.map(|link| (path.clone(), link)));
    }

    fn inode(&self, path: &PartitionFile) -> Option<&Inode> {
        let link = self.dirs.get(&path.dir)?.get(&path.kind)?;
        Some(&self.inodes[link.inode])
    }

    fn new_inode(&mut self) -> usize {
        self.inodes.push(Inode::default());
        self.inodes.len() - 1
    }

    fn checkpoint_inode(&mut self, dir: DirId, core: CoreId) -> usize {
        if let Some(inode) = self.checkpoints.get(&(dir, core)) {
            return *inode;
        }
        let inode = self.new_inode();
        self.checkpoints.insert((dir, core), inode);
        inode
    }

    fn link(&mut self, path: &PartitionFile, inode: usize, durable: bool) -> Result<FileDone, Errno> {
        let entries = self.dirs.get_mut(&path.dir).ok_or(ENOENT)?;
        let before = entries.get(&path.kind).filter(|_| !durable);
        let before = before.and_then(|link| if link.durable { Some(link.inode) } else { link.before });
        entries.insert(path.kind, Link { inode, durable, before });
        Ok(FileDone::Done)
    }

    fn create(&mut self, file: FileId, path: &PartitionFile, len: u64) -> Result<FileDone, Errno> {
        if self.inode(path).is_some() {
            return Err(EEXIST);
        }
        let inode = self.new_inode();
        self.set_len(inode, len as usize);
        self.link(path, inode, true)?;
        self.open.insert(file, Open { inode, direct: true });
        Ok(FileDone::Opened { file, len })
    }

    fn open_file(&mut self, file: FileId, path: &PartitionFile, direct: bool) -> Result<FileDone, Errno> {
        let link = self.dirs.get(&path.dir).and_then(|entries| entries.get(&path.kind)).ok_or(ENOENT)?;
        self.open.insert(file, Open { inode: link.inode, direct });
        Ok(FileDone::Opened { file, len: self.inodes[link.inode].now.len() as u64 })
    }

    /// A new length, synced with the job that asked for it.
    fn set_len(&mut self, inode: usize, len: usize) {
        let inode = &mut self.inodes[inode];
        inode.now.resize(len, 0);
        inode.durable.resize(len, 0);
        for pending in &mut inode.pending {
            let fits = len.saturating_sub(pending.at).min(pending.bytes.len());
            pending.bytes.truncate(fits);
        }
    }

    /// Bytes that reads see from now on; durable at once where the device has no volatile cache.
    fn put(&mut self, inode: usize, at: usize, bytes: Vec<u8>) {
        self.seq += 1;
        let (seq, through) = (self.seq, self.write_through);
        let inode = &mut self.inodes[inode];
        let end = at + bytes.len();
        if inode.now.len() < end {
            inode.now.resize(end, 0);
        }
        inode.now[at..end].copy_from_slice(&bytes);
        let pending = Pending { seq, at, bytes, cut: None };
        if through {
            return inode.apply(&pending, |_| true);
        }
        inode.pending.push(pending);
    }

    fn persist(&mut self, inode: usize, covered: impl Fn(&Pending) -> bool) {
        let inode = &mut self.inodes[inode];
        let (covered, left): (Vec<_>, Vec<_>) = std::mem::take(&mut inode.pending).into_iter().partition(covered);
        inode.pending = left;
        covered.iter().for_each(|pending| inode.apply(pending, |_| true));
    }
}

impl Inode {
    /// Makes the chosen sectors of a write durable, unless a newer write of theirs is already.
    fn apply(&mut self, pending: &Pending, mut chosen: impl FnMut(usize) -> bool) {
        if let Some(len) = pending.cut {
            return if chosen(len) {
                self.durable.resize(len, 0)
            };
        }
        for (index, part) in pending.bytes.chunks(SECTOR).enumerate() {
            let at = pending.at + index * SECTOR;
            let newer = self.durable_seq.get(&(at / SECTOR)).is_some_and(|seq| pending.seq < *seq);
            if newer || !chosen(at) {
                continue;
            }
            self.durable_seq.insert(at / SECTOR, pending.seq);
            if self.durable.len() < at + part.len() {
                self.durable.resize(at + part.len(), 0);
            }
            self.durable[at..at + part.len()].copy_from_slice(part);
        }
    }
}
