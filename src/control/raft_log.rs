//! The Raft log and its snapshots as bytes: what is written, and what a start makes of what it finds. Pure.
//!
//! A log file is a row of blocks, each the work of one write: a header with length and CRC32C, then entries and the
//! hard state (term and vote), padded to 4 KiB. A write therefore never touches bytes that an earlier one made
//! durable, and since one is in flight at a time only the last block of a file can be torn. Every process begins a
//! file of its own, so that a torn tail is never written over. A snapshot file is the image as records, under one
//! CRC32C. Two generations of snapshots are kept, and the log from the older one on.

use crate::control::codec::{DecodeError, Reader, Writer};
use crate::ids::{LogIndex, Term};
use crate::limits::BLOCK;

/// Version of both formats.
pub const RAFT_FORMAT_VERSION: u16 = 1;
/// Bytes that a log file has at its creation: the reserve that lets deletions be logged on a full disk.
pub const LOG_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of log after which a snapshot is due.
pub const SNAPSHOT_EVERY_BYTES: u64 = 8 * 1024 * 1024;
/// Log files after which a snapshot is due: restarts make many small ones.
pub const LOG_FILES_MAX: usize = 16;

const _: () = assert!(SNAPSHOT_EVERY_BYTES < LOG_FILE_BYTES && LOG_FILE_BYTES.is_multiple_of(BLOCK));

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its position.
    pub index: LogIndex,
    /// The term in which it was proposed.
    pub term: Term,
    /// Records of `records.rs`; empty for the entry with which a leader begins its term.
    pub data: Vec<u8>,
}

/// What a voter must not forget (Raft §5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Newest term seen.
    pub term: Term,
    /// Raft id that got the vote of that term, 0 for none.
    pub vote: u64,
    /// Index known to be committed; may lag behind.
    pub commit: LogIndex,
}

/// The metadata at one index, with the voters at that point. The one at index 0 is the seed of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Last entry in it.
    pub index: LogIndex,
    /// Term of that entry.
    pub term: Term,
    /// Raft ids of the voters.
    pub voters: Vec<u64>,
    /// Raft ids of the learners.
    pub learners: Vec<u64>,
    /// The image, as encoded records.
    pub data: Vec<u8>,
}

impl Snapshot {
    /// The contents of the snapshot's file.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u32(SNAPSHOT_MAGIC);
        writer.u16(RAFT_FORMAT_VERSION);
        writer.u16(0);
        writer.u64(self.index.0);
        writer.u64(self.term.0);
        for ids in [&self.voters, &self.learners] {
            writer.count(ids.len());
            ids.iter().for_each(|id| writer.u64(*id));
        }
        writer.blob(&self.data);
        let crc = crc32c::crc32c(&writer.bytes);
        writer.u32(crc);
        writer.bytes
    }

    /// Reads a snapshot's file.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, Damage> {
        let mut reader = Reader::new(bytes);
        check_format(&mut reader, SNAPSHOT_MAGIC)?;
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return Err(Damage::Checksum);
        }
        reader.u16()?;
        let snapshot = Snapshot {
            index: LogIndex(reader.u64()?),
            term: Term(reader.u64()?),
            voters: reader.list(8, |reader| reader.u64())?,
            learners: reader.list(8, |reader| reader.u64())?,
            data: reader.blob()?.to_vec(),
        };
        reader.u32()?;
        reader.finish()?;
        Ok(snapshot)
    }
}

/// One write to a log file: all of `bytes` at `at`, synced when it completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Number of the file.
    pub file: u64,
    /// Whether the file has to be made first, `LOG_FILE_BYTES` long and synced with its directory.
    pub create: bool,
    /// Position in the file; a multiple of 4 KiB.
    pub at: u64,
    /// A multiple of 4 KiB.
    pub bytes: Vec<u8>,
}

/// Lays entries out in log files.
#[derive(Clone, Debug)]
pub struct LogWriter {
    /// Number of the present file.
    file: u64,
    /// Where its next block goes; 0 when the file does not exist yet.
    at: u64,
    /// Blocks in it.
    blocks: u32,
    /// Files that exist, oldest first, with the highest index in them.
    files: Vec<LogFile>,
    /// Bytes written since the last snapshot.
    since_snapshot: u64,
    /// What a new file begins with.
    hard_state: HardState,
}

/// A log file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its number.
    pub number: u64,
    /// Highest index of an entry in it, 0 without one.
    pub last: LogIndex,
}

impl LogWriter {
    /// Goes on after what a start has found, in a new file.
    pub fn new(found: &Recovery) -> LogWriter {
        let file = found.files.last().map_or(1, |file| file.number + 1);
        let (files, hard_state) = (found.files.clone(), found.hard_state);
        LogWriter { file, at: 0, blocks: 0, files, since_snapshot: found.log_bytes, hard_state }
    }

    /// The next write: entries, which replace any of the same index, and the hard state when it has changed.
    pub fn append(&mut self, hard_state: Option<HardState>, entries: &[LogEntry]) -> Append {
        self.hard_state = hard_state.unwrap_or(self.hard_state);
        let len_max = entries.iter().map(|entry| entry.data.len() as u64 + 64).sum::<u64>() + 128;
        if self.at > 0 && self.at + len_max.next_multiple_of(BLOCK) > LOG_FILE_BYTES {
            self.roll();
        }
        let create = self.at == 0;
        let hard_state = if create { Some(self.hard_state) } else { hard_state };
        let bytes = encode_block(self.file, self.blocks, hard_state, entries);
        let append = Append { file: self.file, create, at: self.at, bytes };
        self.account(&append, entries.last().map_or(LogIndex(0), |entry| entry.index));
        append
    }

    /// Whether the log has grown enough for a snapshot.
    pub fn is_snapshot_due(&self) -> bool {
        self.since_snapshot >= SNAPSHOT_EVERY_BYTES || self.files.len() >= LOG_FILES_MAX
    }

    /// A snapshot is being taken: what is written from here on belongs to the next one, and to a new file.
    pub fn begin_snapshot(&mut self) {
        self.since_snapshot = 0;
        self.roll();
    }

    /// Forgets the files that hold nothing above `index`, and says which they are. The present file stays.
    pub fn release(&mut self, index: LogIndex) -> Vec<u64> {
        let present = self.file;
        let (gone, kept) = self.files.iter().partition(|file: &&LogFile| file.last <= index && file.number < present);
        self.files = kept;
        let gone: Vec<LogFile> = gone;
        gone.into_iter().map(|file| file.number).collect()
    }

    /// The files that exist, oldest first.
    pub fn files(&self) -> &[LogFile] {
        &self.files
    }

    fn roll(&mut self) {
        if self.at > 0 {
            (self.file, self.at, self.blocks) = (self.file + 1, 0, 0);
        }
    }

    fn account(&mut self, append: &Append, last: LogIndex) {
        if append.create {
            self.files.push(LogFile { number: self.file, last: LogIndex(0) });
        }
        let file = self.files.last_mut().expect("the present file was just made or exists");
        file.last = file.last.max(last);
        self.at += append.bytes.len() as u64;
        self.blocks += 1;
        self.since_snapshot += append.bytes.len() as u64;
    }
}

/// The files of the Raft directory, as read at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaftFiles {
    /// Snapshots: the index in the file's name, and its contents.
    pub snapshots: Vec<(LogIndex, Vec<u8>)>,
    /// Log files: the number in the file's name, and its contents.
    pub logs: Vec<(u64, Vec<u8>)>,
}

/// What a start goes on from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The newest snapshot that can be read; `None` before the cluster is formed.
    pub snapshot: Option<Snapshot>,
    /// Indexes of all snapshots that can be read, oldest first.
    pub snapshots: Vec<LogIndex>,
    /// The entries behind it, without a gap.
    pub entries: Vec<LogEntry>,
    /// Term, vote and commit.
    pub hard_state: HardState,
    /// The log files, oldest first.
    pub files: Vec<LogFile>,
    /// Bytes of valid blocks in them.
    pub log_bytes: u64,
    /// What the operator should know: a torn tail that was cut, a snapshot that could not be read.
    pub notes: Vec<String>,
}

/// Why the metadata cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file is not of the expected kind.
    #[error("it does not begin like a file of the metadata log")]
    Magic,
    /// The checksum does not match.
    #[error("its checksum does not match its contents")]
    Checksum,
    /// A checksum matches and the contents make no sense, or a newer version wrote them.
    #[error(transparent)]
    Contents(#[from] DecodeError),
    /// A block in the middle of a file is damaged.
    #[error("log file {file} is damaged at byte {at}, before blocks that are valid")]
    Hole {
        /// The file.
        file: u64,
        /// Where.
        at: u64,
    },
    /// Entries are missing.
    #[error("entries {from} to {to} of the metadata log are missing")]
    Gap {
        /// First one missing.
        from: LogIndex,
        /// Last one missing.
        to: LogIndex,
    },
    /// There is a log, but no snapshot to begin with.
    #[error("no snapshot of the metadata can be read")]
    NoSnapshot,
}

/// What the files of a Raft directory hold. Cost is linear in their size.
///
/// # Errors
/// When committed metadata is damaged or missing, as opposed to a tail that was never acknowledged.
pub fn recover(files: &RaftFiles) -> Result<Recovery, Damage> {
    let mut recovery = Recovery::default();
    recover_snapshots(files, &mut recovery)?;
    let mut logs: Vec<_> = files.logs.iter().collect();
    logs.sort_by_key(|(number, _)| *number);
    for (number, bytes) in logs {
        recover_file(*number, bytes, &mut recovery)?;
    }
    check_continuity(&mut recovery)?;
    Ok(recovery)
}

const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"PnRL");
const SNAPSHOT_MAGIC: u32 = u32::from_le_bytes(*b"PnRS");
/// Magic, version, zero, file, block, length, CRC.
const BLOCK_HEADER_LEN: usize = 4 + 2 + 2 + 8 + 4 + 4 + 4;
const HARD_STATE: u8 = 1;
const ENTRY: u8 = 2;

fn encode_block(file: u64, block: u32, hard_state: Option<HardState>, entries: &[LogEntry]) -> Vec<u8> {
    let mut payload = Writer::default();
    if let Some(hard_state) = hard_state {
        payload.u8(HARD_STATE);
        payload.u64(hard_state.term.0);
        payload.u64(hard_state.vote);
        payload.u64(hard_state.commit.0);
    }
    for entry in entries {
        payload.u8(ENTRY);
        payload.u64(entry.index.0);
        payload.u64(entry.term.0);
        payload.blob(&entry.data);
    }
    let mut writer = Writer::default();
    writer.u32(BLOCK_MAGIC);
    writer.u16(RAFT_FORMAT_VERSION);
    writer.u16(0);
    writer.u64(file);
    writer.u32(block);
    writer.count(payload.bytes.len());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&writer.bytes), &payload.bytes);
    writer.u32(crc);
    assert_eq!(writer.bytes.len(), BLOCK_HEADER_LEN, "length of a block header");
    writer.bytes.extend_from_slice(&payload.bytes);
    writer.bytes.resize(writer.bytes.len().next_multiple_of(BLOCK as usize), 0);
    writer.bytes
}

fn check_format(reader: &mut Reader<'_>, magic: u32) -> Result<(), Damage> {
    if reader.left() < 8 || reader.u32()? != magic {
        return Err(Damage::Magic);
    }
    match reader.u16()? {
        found if found > RAFT_FORMAT_VERSION => Err(DecodeError::Newer { found, known: RAFT_FORMAT_VERSION }.into()),
        _ => Ok(()),
    }
}

/// The payload of the block at the front of `bytes`, when it is whole and the one that is expected there.
fn decode_block(bytes: &[u8], file: u64, block: u32) -> Result<&[u8], Damage> {
    let mut reader = Reader::new(bytes);
    check_format(&mut reader, BLOCK_MAGIC)?;
    reader.u16()?;
    let place = (reader.u64()?, reader.u32()?);
    let len = reader.u32()? as usize;
    let crc = reader.u32()?;
    let payload = reader.take(len)?;
    let computed = crc32c::crc32c_append(crc32c::crc32c(&bytes[..BLOCK_HEADER_LEN - 4]), payload);
    if computed != crc || place != (file, block) {
        return Err(Damage::Checksum);
    }
    Ok(payload)
}

fn recover_snapshots(files: &RaftFiles, recovery: &mut Recovery) -> Result<(), Damage> {
    let mut snapshots: Vec<_> = files.snapshots.iter().collect();
    snapshots.sort_by_key(|(index, _)| *index);
    for (index, bytes) in snapshots {
        match Snapshot::decode(bytes) {
            Ok(snapshot) => {
                recovery.snapshots.push(snapshot.index);
                recovery.snapshot = Some(snapshot);
            }
            Err(newer @ Damage::Contents(DecodeError::Newer { .. })) => return Err(newer),
            Err(damage) => recovery.notes.push(format!("snapshot {index} of the metadata is left aside: {damage}")),
        }
    }
    if recovery.snapshot.is_none() && !(files.snapshots.is_empty() && files.logs.is_empty()) {
        return Err(Damage::NoSnapshot);
    }
    Ok(())
}

fn recover_file(number: u64, bytes: &[u8], recovery: &mut Recovery) -> Result<(), Damage> {
    let mut at = 0;
    let mut last = LogIndex(0);
    for block in 0.. {
        match decode_block(bytes.get(at..).unwrap_or_default(), number, block) {
            Ok(payload) => {
                last = last.max(recover_payload(payload, recovery)?);
                at += (BLOCK_HEADER_LEN + payload.len()).next_multiple_of(BLOCK as usize);
            }
            Err(newer @ Damage::Contents(DecodeError::Newer { .. })) => return Err(newer),
            Err(_) => {
                check_tail(number, block, at, bytes, recovery)?;
                break;
            }
        }
    }
    recovery.log_bytes += at as u64;
    recovery.files.push(LogFile { number, last });
    Ok(())
}

/// The end of a file's valid blocks: fine when nothing valid follows. A later block that is whole proves that the one
/// here was written and synced once.
fn check_tail(number: u64, block: u32, at: usize, bytes: &[u8], recovery: &mut Recovery) -> Result<(), Damage> {
    let tail = bytes.get(at..).unwrap_or_default();
    for (step, rest) in (1..).zip(tail.chunks(BLOCK as usize).skip(1)) {
        let whole = &tail[step * BLOCK as usize..];
        let is_later = |header: &[u8]| {
            let found = u32::from_le_bytes(header[16..20].try_into().expect("four bytes"));
            found > block && decode_block(whole, number, found).is_ok()
        };
        if rest.len() >= BLOCK_HEADER_LEN && is_later(rest) {
            return Err(Damage::Hole { file: number, at: at as u64 });
        }
    }
    if tail.iter().take(BLOCK as usize).any(|byte| *byte != 0) {
        recovery.notes.push(format!("log file {number} of the metadata ends in a torn write at byte {at}, now cut"));
    }
    Ok(())
}

/// Takes the contents of a block over; the result is the highest index among them.
fn recover_payload(payload: &[u8], recovery: &mut Recovery) -> Result<LogIndex, Damage> {
    let mut reader = Reader::new(payload);
    let mut last = LogIndex(0);
    while reader.left() > 0 {
        match reader.u8()? {
            HARD_STATE => {
                recovery.hard_state =
                    HardState { term: Term(reader.u64()?), vote: reader.u64()?, commit: LogIndex(reader.u64()?) };
            }
            ENTRY => {
                let (index, term) = (LogIndex(reader.u64()?), Term(reader.u64()?));
                let entry = LogEntry { index, term, data: reader.blob()?.to_vec() };
                last = last.max(index);
                recover_entry(entry, &mut recovery.entries)?;
            }
            kind => return Err(DecodeError::Tag { what: "a frame of the Raft log", value: kind.into() }.into()),
        }
    }
    Ok(last)
}

/// An entry replaces the one of its index and all later ones.
fn recover_entry(entry: LogEntry, entries: &mut Vec<LogEntry>) -> Result<(), Damage> {
    let Some(first) = entries.first().map(|first| first.index.0) else {
        entries.push(entry);
        return Ok(());
    };
    let next = first + entries.len() as u64;
    if entry.index.0 > next {
        return Err(Damage::Gap { from: LogIndex(next), to: LogIndex(entry.index.0 - 1) });
    }
    entries.truncate(entry.index.0.saturating_sub(first) as usize);
    entries.push(entry);
    Ok(())
}

/// The entries have to begin right behind the snapshot at the latest and to reach what is known to be committed.
fn check_continuity(recovery: &mut Recovery) -> Result<(), Damage> {
    let base = recovery.snapshot.as_ref().map_or(LogIndex(0), |snapshot| snapshot.index);
    let term = recovery.snapshot.as_ref().map_or(Term(0), |snapshot| snapshot.term);
    if let Some(first) = recovery.entries.first().filter(|first| first.index.0 > base.0 + 1) {
        return Err(Damage::Gap { from: LogIndex(base.0 + 1), to: LogIndex(first.index.0 - 1) });
    }
    recovery.entries.retain(|entry| entry.index > base);
    let last = LogIndex(base.0 + recovery.entries.len() as u64);
    let hard_state = &mut recovery.hard_state;
    if hard_state.commit > last {
        return Err(Damage::Gap { from: LogIndex(last.0 + 1), to: hard_state.commit });
    }
    hard_state.commit = hard_state.commit.max(base);
    hard_state.term = hard_state.term.max(term);
    Ok(())
}
