//! Runs the recovery of one partition's directory: does what `log/recovery` asks for, and nothing else.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FallocateFlags, Mode, OFlags};

use crate::control::job::RecoverAsk;
use crate::ids::{CoreId, Errno, FilePos, Offset};
use crate::io::path;
use crate::limits::BLOCK;
use crate::log::checkpoint::{self, Checkpoint, Slot};
use crate::log::recovery::{FoundFile, LastStop, PIECE_BYTES_MAX, RecoveredLog, Recovery, RecoveryInput, Step};
use crate::log::segment::UnwrittenExtents;
use crate::runtime::background::write_all;
use crate::shard::action::FileKind;

/// Longest tail of an active file that is read to see that it is zero.
const TAIL_READ_BYTES_MAX: u64 = 1024 * 1024;
/// The extents of an active segment that were made but never written stay what they are.
const UNWRITTEN: UnwrittenExtents = UnwrittenExtents::Forbidden;

/// What a start knows of a data directory besides its partitions.
#[derive(Debug, Default)]
pub struct DirState {
    /// All checkpoint files together.
    pub checkpoint: Checkpoint,
    /// Newest slot of each core's file.
    pub slots: BTreeMap<CoreId, Slot>,
    /// Whether the last run left the marker of a clean stop.
    pub clean: bool,
}

/// Reads the checkpoint files of a data directory; a file of a core that is no longer used counts, too.
///
/// # Errors
/// What makes the directory unusable, in words: an unreadable file, or one of a newer format.
pub fn read_state(dir: &OwnedFd, clean: bool) -> Result<DirState, String> {
    let mut state = DirState { clean, ..DirState::default() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inner = match rustix::fs::openat(dir, ".pinion", flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(state),
        opened => opened.map_err(|errno| format!("cannot open .pinion: {errno}"))?,
    };
    let names = Dir::read_from(&inner).map_err(|errno| format!("cannot list .pinion: {errno}"))?;
    for entry in names {
        let entry = entry.map_err(|errno| format!("cannot list .pinion: {errno}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(core) = name.strip_prefix("checkpoint-").and_then(|core| core.parse().ok()) else { continue };
        let contents = read_file(&inner, &name).map_err(|error| format!("cannot read .pinion/{name}: {error}"))?;
        let slot = checkpoint::newest(&contents).map_err(|refused| format!(".pinion/{name}: {refused}"))?;
        if let Some(slot) = slot {
            state.slots.insert(CoreId(core), slot);
        }
    }
    state.checkpoint = Checkpoint::merge(state.slots.values().cloned().collect());
    Ok(state)
}

/// A block-aligned buffer for O_DIRECT, one per thread.
pub struct Buffer {
    bytes: Vec<u8>,
    from: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}

impl Buffer {
    /// Allocates it.
    pub fn new() -> Buffer {
        let bytes = vec![0; (PIECE_BYTES_MAX + BLOCK) as usize];
        let from = bytes.as_ptr().align_offset(BLOCK as usize);
        Buffer { bytes, from }
    }

    fn piece(&mut self, len: u64) -> &mut [u8] {
        assert!(len <= PIECE_BYTES_MAX, "a piece of {len} bytes");
        &mut self.bytes[self.from..self.from + len as usize]
    }
}

/// Recovers one partition.
///
/// # Errors
/// When its directory cannot be read or changed as it must be.
pub fn partition(
    dir: &OwnedFd,
    state: &DirState,
    ask: &RecoverAsk,
    buffer: &mut Buffer,
) -> Result<RecoveredLog, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(dir, &*ask.dir.name, flags, Mode::empty()).map_err(kernel)?;
    let input = RecoveryInput {
        files: list(&inner).map_err(errno)?,
        checkpoint: state.checkpoint.entries.get(&ask.id).copied(),
        last_stop: if state.clean { LastStop::Clean } else { LastStop::Crash },
        leader_epoch_max: ask.leader_epoch_max,
        index_interval_bytes: ask.config.index_interval_bytes,
        tail_read_bytes_max: TAIL_READ_BYTES_MAX,
        unwritten: UNWRITTEN,
    };
    let mut runner = Runner { dir: inner, log: None, buffer };
    let mut recovery = Recovery::new(input);
    loop {
        let step = recovery.next();
        match step {
            Step::Done(log) => return Ok(report(ask, *log)),
            Step::Failed(errno) => return Err(errno),
            Step::Read { file, at, len } => recovery.on_read(runner.read(file, at, len)),
            change => recovery.on_done(runner.change(change).map_err(errno)),
        }
    }
}

/// Says what the operator should know of a recovery.
fn report(ask: &RecoverAsk, log: RecoveredLog) -> RecoveredLog {
    let partition = &ask.dir.name;
    if let Some(cut) = &log.cut {
        tracing::warn!(%partition, segment = %cut.segment, at = %cut.at, why = %cut.why, "log cut at its end");
    }
    if log.below_checkpoint {
        tracing::error!(%partition, end = %log.end, "the log ends below what was known to be stable: records are lost");
    }
    for damage in &log.damaged {
        let (segment, at, why) = (damage.segment, damage.at, damage.why);
        tracing::error!(%partition, %segment, %at, %why, "damaged segment");
    }
    log
}

fn list(dir: &OwnedFd) -> io::Result<Vec<FoundFile>> {
    let mut files = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let modified_ms = stat.st_mtime * 1000 + stat.st_mtime_nsec as i64 / 1_000_000;
        let name = name.to_string_lossy().into_owned();
        files.push(FoundFile { name, len: stat.st_size as u64, modified_ms });
    }
    Ok(files)
}

struct Runner<'b> {
    dir: OwnedFd,
    /// The log that was opened last, for O_DIRECT.
    log: Option<(Offset, OwnedFd)>,
    buffer: &'b mut Buffer,
}

impl Runner<'_> {
    fn read(&mut self, file: FileKind, at: FilePos, len: u64) -> Result<&[u8], Errno> {
        let FileKind::Log(base) = file else {
            return self.read_small(file, at, len);
        };
        self.open_log(base).map_err(errno)?;
        let (_, log) = self.log.as_ref().expect("opened just now");
        let piece = self.buffer.piece(len);
        let mut done = 0;
        while done < piece.len() {
            let count = rustix::io::pread(log, &mut piece[done..], at.0 + done as u64).map_err(kernel)?;
            done += count;
            if count == 0 || !count.is_multiple_of(BLOCK as usize) {
                break;
            }
        }
        Ok(&piece[..done])
    }

    /// Indexes, snapshots and texts are small; they are read through the page cache.
    fn read_small(&mut self, file: FileKind, at: FilePos, len: u64) -> Result<&[u8], Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, path::file_name(file), flags, Mode::empty()).map_err(kernel)?;
        let needed = self.buffer.from + len as usize;
        if self.buffer.bytes.len() < needed {
            // The aligned part may move; nothing of it is in use.
            self.buffer.bytes.resize(needed + BLOCK as usize, 0);
            self.buffer.from = self.buffer.bytes.as_ptr().align_offset(BLOCK as usize);
        }
        let from = self.buffer.from;
        let into = &mut self.buffer.bytes[from..from + len as usize];
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&fd, &mut into[done..], at.0 + done as u64).map_err(kernel)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(&into[..done])
    }

    fn open_log(&mut self, base: Offset) -> io::Result<()> {
        if self.log.as_ref().is_none_or(|(open, _)| *open != base) {
            let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&self.dir, path::file_name(FileKind::Log(base)), flags, Mode::empty())?;
            self.log = Some((base, fd));
        }
        Ok(())
    }

    fn change(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::ZeroTail { base, at, head, to } => self.zero_tail(base, at, &head, to),
            Step::ZeroRange { base, from, to } => {
                self.open_log(base)?;
                let (_, log) = self.log.as_ref().expect("opened just now");
                rustix::fs::fallocate(log, FallocateFlags::ZERO_RANGE, from.0, to.0 - from.0)?;
                Ok(())
            }
            Step::Truncate { base, len } => {
                self.open_log(base)?;
                let (_, log) = self.log.as_ref().expect("opened just now");
                rustix::fs::ftruncate(log, len.0)?;
                Ok(())
            }
            Step::Rename { from, to } => {
                rustix::fs::renameat(&self.dir, from, &self.dir, path::file_name(to))?;
                Ok(())
            }
            Step::Remove { files, names } => {
                self.log = None;
                let all = files.into_iter().map(path::file_name).chain(names);
                for name in all {
                    match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
                        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Ok(())
            }
            Step::WriteFile { file, contents } => self.write_file(file, &contents),
            Step::Sync => Ok(rustix::fs::syncfs(&self.dir)?),
            Step::Read { .. } | Step::Done(_) | Step::Failed(_) => panic!("{step:?} changes nothing"),
        }
    }

    fn zero_tail(&mut self, base: Offset, at: FilePos, head: &[u8], to: FilePos) -> io::Result<()> {
        self.open_log(base)?;
        let (_, log) = self.log.as_ref().expect("opened just now");
        let (mut from, mut head) = (at.0, head);
        while from < to.0 {
            let piece = self.buffer.piece((to.0 - from).min(PIECE_BYTES_MAX));
            let taken = head.len().min(piece.len());
            piece.fill(0);
            piece[..taken].copy_from_slice(&head[..taken]);
            head = &head[taken..];
            let written = rustix::io::pwrite(log, piece, from)?;
            if written != piece.len() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            from += written as u64;
        }
        Ok(())
    }

    fn write_file(&self, file: FileKind, contents: &[u8]) -> io::Result<()> {
        let name = path::file_name(file);
        let temporary = format!("{name}.tmp");
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &temporary, flags, Mode::from_raw_mode(0o644))?;
        write_all(fd.as_fd(), contents)?;
        rustix::fs::fsync(&fd)?;
        rustix::fs::renameat(&self.dir, &temporary, &self.dir, name)?;
        Ok(())
    }
}

fn read_file(dir: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let fd = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut contents = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(fd), &mut contents)?;
    Ok(contents)
}

fn kernel(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
