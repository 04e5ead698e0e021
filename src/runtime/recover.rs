//! Runs recoveries of partition directories: does what `log/recovery` asks for, and nothing else. The partitions of one
//! job share one sync of the file system: ten thousand of their own would take longer than reading every log.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FallocateFlags, Mode, OFlags, RawDir};

use crate::control::job::RecoverAsk;
use crate::ids::{CoreId, Errno, FilePos, Offset, PartitionId};
use crate::io::path;
use crate::limits::BLOCK;
use crate::log::checkpoint::{self, Checkpoint, Slot};
use crate::log::recovery::{FoundFile, LastStop, PIECE_BYTES_MAX, RecoveredLog, Recovery, RecoveryInput, Step};
use crate::log::segment::UnwrittenExtents;
use crate::runtime::background::write_all;
use crate::shard::action::FileKind;

/// Bytes of tails of active files that one job reads to find out whether they are zero. A job of many partitions makes
/// their tails unwritten extents instead: 10,000 tails of 256 KiB are no matter of a second.
const TAIL_BYTES_PER_JOB_MAX: u64 = 32 * 1024 * 1024;
/// Longest tail that is read.
const TAIL_BYTES_MAX: u64 = 1024 * 1024;

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

/// Recovers the partitions of one job, in order. A partition whose directory cannot be read or changed as it must be has
/// the error of it.
pub fn partitions(
    dir: &OwnedFd,
    state: &DirState,
    asks: &[RecoverAsk],
    unwritten: UnwrittenExtents,
    buffer: &mut Buffer,
) -> Vec<(PartitionId, Result<RecoveredLog, Errno>)> {
    let tail_read_bytes_max = (TAIL_BYTES_PER_JOB_MAX / asks.len().max(1) as u64).min(TAIL_BYTES_MAX);
    let begun: Vec<Begun> = asks
        .iter()
        .map(|ask| {
            let input = |files| RecoveryInput {
                files,
                checkpoint: state.checkpoint.entries.get(&ask.id).copied(),
                last_stop: if state.clean { LastStop::Clean } else { LastStop::Crash },
                leader_epoch_max: ask.leader_epoch_max,
                index_interval_bytes: ask.config.index_interval_bytes,
                tail_read_bytes_max,
                unwritten,
            };
            begin(dir, &ask.dir.name, input, buffer).unwrap_or_else(|error| Begun::Ended(Err(errno(error))))
        })
        .collect();
    let waits_with = begun.iter().find_map(|begun| if let Begun::Waiting(_, log) = begun { Some(log) } else { None });
    let synced = waits_with.map_or(Ok(()), |log| sync(dir, log.as_ref()).map_err(kernel));
    let ended = asks.iter().zip(begun).map(|(ask, begun)| (ask.id, begun.end(synced).inspect(|log| report(ask, log))));
    ended.collect()
}

/// Makes everything stable that was written to the file system, by us or by the process before us.
fn sync(dir: &OwnedFd, log: Option<&OwnedFd>) -> rustix::io::Result<()> {
    rustix::fs::syncfs(dir)?;
    // Where no file had changed, syncfs may leave the device's cache alone (xfs_fs_sync_fs, Linux 6.18), in which the
    // last direct writes of a killed process can still be. A sync of any file flushes it.
    log.map_or(Ok(()), rustix::fs::fdatasync)
}

/// A recovery up to the sync that it shares with others, with the log that it read last.
enum Begun {
    Waiting(Box<Recovery>, Option<OwnedFd>),
    Ended(Result<Box<RecoveredLog>, Errno>),
}

impl Begun {
    fn end(self, synced: Result<(), Errno>) -> Result<RecoveredLog, Errno> {
        match self {
            Begun::Ended(result) => result.map(|log| *log),
            Begun::Waiting(mut recovery, _) => {
                recovery.on_done(synced);
                match recovery.next() {
                    Step::Done(log) => Ok(*log),
                    Step::Failed(errno) => Err(errno),
                    step => panic!("{step:?} after the sync"),
                }
            }
        }
    }
}

fn begin(
    dir: &OwnedFd,
    name: &str,
    input: impl FnOnce(Vec<FoundFile>) -> RecoveryInput,
    buffer: &mut Buffer,
) -> io::Result<Begun> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let mut recovery = Recovery::new(input(list(&inner)?));
    let mut runner = Runner { dir: inner, log: None, buffer };
    loop {
        match recovery.next() {
            Step::Done(log) => return Ok(Begun::Ended(Ok(log))),
            Step::Failed(errno) => return Ok(Begun::Ended(Err(errno))),
            Step::Sync => return Ok(Begun::Waiting(Box::new(recovery), runner.log.take().map(|(_, log)| log))),
            Step::Read { file, at, len } => recovery.on_read(runner.read(file, at, len)),
            change => recovery.on_done(runner.change(change).map_err(errno)),
        }
    }
}

/// Says what the operator should know of a recovery.
fn report(ask: &RecoverAsk, log: &RecoveredLog) {
    let partition = &ask.dir.name;
    if let Some(cut) = &log.cut {
        let (segment, removed) = (cut.segment, cut.segments_removed);
        tracing::warn!(%partition, %segment, at = %cut.at, why = %cut.why, removed, "log cut at its end");
    }
    if log.below_checkpoint {
        tracing::error!(%partition, end = %log.end, "the log ends below what was stable: records may be lost");
    }
    for damage in &log.damaged {
        let (segment, at, why) = (damage.segment, damage.at, damage.why);
        tracing::error!(%partition, %segment, %at, %why, "damaged segment");
    }
}

fn list(dir: &OwnedFd) -> io::Result<Vec<FoundFile>> {
    let mut files = Vec::new();
    // The bytes of about 40 names; more are read in several calls.
    let mut names = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(dir, &mut names);
    while let Some(entry) = entries.next() {
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
            Step::Read { .. } | Step::Sync | Step::Done(_) | Step::Failed(_) => panic!("{step:?} changes no file"),
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
