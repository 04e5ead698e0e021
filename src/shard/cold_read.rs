//! Reads of what is not in memory: the file is opened, its index loaded, the batch found, and the bytes made ready,
//! without ever blocking the core.
//!
//! A written segment (active, or not sealed yet) is read with O_DIRECT into the arena. A sealed one is sent from the
//! page cache by sendfile, but only after a probe said that all of it is there: what is missing is read through the ring
//! first, and the completion of that read is the proof (design §5).

mod ends;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::arena::{Lease, Pool};
use crate::ids::{DirId, Errno, FileId, FilePos, Now, Offset, PartitionId, ProbeId, ReadId};
use crate::kafka::error_code::ErrorCode;
use crate::limits::{BLOCK, CHUNK, INDEX_BYTES_MAX, SENDFILE_SLICE_BYTES};
use crate::log::index::{self, SegmentBounds};
use crate::log::index_cache::{IndexCache, IndexKey, IndexKind};
use crate::log::segment::Segment;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, FileJob, FileKind, FileRange, Part, PartitionFile};
use crate::shard::event::FileDone;
use crate::shard::file_jobs::Purpose;
use crate::shard::message::{FetchAsk, FetchOutcome, Origin, QueryAnswer};
use crate::shard::partition::{FileWish, Placed};
use crate::shard::time_search::{self, Found};

/// Cold reads of a core that are under way at once; further ones wait.
const COLD_READS_MAX: usize = 64;
/// Bytes of a first look for a batch.
const SCAN_BYTES: u64 = 64 * 1024;

/// Who reads.
#[derive(Debug)]
pub enum Reader {
    /// One partition of a fetch.
    Fetch(FetchAsk),
    /// ListOffsets by timestamp.
    Time {
        /// Who asked.
        origin: Origin,
        /// The timestamp in ms.
        timestamp: i64,
    },
    /// Whoever did was told that the directory has failed; what is in flight may never come back.
    Nobody,
}

/// One cold read.
#[derive(Debug)]
struct ColdRead {
    reader: Reader,
    partition: PartitionId,
    /// The partition's data directory.
    dir: DirId,
    /// Offset to find; for a search by time, the first offset that may match.
    offset: Offset,
    segment: Offset,
    step: Step,
    /// Where in the file the next look starts; a batch starts there.
    at: FilePos,
    /// Least bytes of the next look: grows when a batch does not fit.
    look_bytes: u64,
}

/// What a cold read waits for.
#[derive(Debug)]
enum Step {
    /// Not begun.
    Queued,
    /// The file is being opened for this read.
    Opening,
    /// The partition opens the file, which it writes.
    Awaiting,
    /// An index is being loaded.
    Index(IndexKind),
    /// Batches are being read; the block starts at this file position, and behind `end` there are none to be read yet.
    Looking { block_at: FilePos, end: FilePos },
    /// The page cache is being asked about, or filled for, this range.
    Warming(FileRange),
}

/// A block that was read: bytes `from .. len` of it are batches.
#[derive(Clone, Copy)]
struct Looked<'a> {
    block: &'a Lease,
    from: u32,
    len: u32,
}

/// All cold reads of a core.
#[derive(Debug, Default)]
pub struct ColdReads {
    reads: slab::Slab<ColdRead>,
    /// Those whose reader is `Nobody`.
    lost: usize,
    queue: VecDeque<(Reader, PartitionId, Offset)>,
}

impl ColdReads {
    /// Whether none is under way.
    pub fn is_quiet(&self) -> bool {
        self.reads.is_empty() && self.queue.is_empty()
    }

    /// How many are under way or wait.
    pub fn len(&self) -> usize {
        self.reads.len() + self.queue.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.is_quiet()
    }

    /// Takes a read out whose reader was told long ago that the directory has failed. True when it was one.
    fn forget_lost(&mut self, id: usize) -> bool {
        let is_lost = matches!(self.reads[id].reader, Reader::Nobody);
        self.lost -= usize::from(is_lost);
        is_lost && self.reads.try_remove(id).is_some()
    }
}

impl Shard {
    /// A fetch of something that is not in memory.
    pub(super) fn start_cold_read(&mut self, now: Now, ask: FetchAsk, out: &mut Actions) {
        let (partition, offset) = (ask.partition, ask.fetch_offset);
        self.begin_read(now, Reader::Fetch(ask), partition, offset, out);
    }

    /// A search for a timestamp.
    pub(super) fn start_time_search(&mut self, now: Now, origin: Origin, slot: u32, timestamp: i64, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("looked at by the caller");
        let (id, log_start) = (partition.id, partition.offsets.log_start());
        match time_search::first_to_search(&partition.segments, timestamp) {
            Some((base, timestamp)) => {
                let offset = base.max(log_start);
                self.begin_read(now, Reader::Time { origin, timestamp }, id, offset, out);
            }
            None => self.answer_query(origin, time_search::nothing(), out),
        }
    }

    fn begin_read(&mut self, now: Now, reader: Reader, partition: PartitionId, offset: Offset, out: &mut Actions) {
        if self.cold_reads.reads.len() - self.cold_reads.lost >= COLD_READS_MAX {
            return self.cold_reads.queue.push_back((reader, partition, offset));
        }
        self.metrics.count.cold_reads += 1;
        let dir = self.partitions.by_id(partition).map_or(DirId(0), |(_, partition)| partition.dir.dir);
        let read = ColdRead {
            reader,
            partition,
            dir,
            offset,
            segment: offset,
            step: Step::Queued,
            at: FilePos(0),
            look_bytes: SCAN_BYTES,
        };
        let id = self.cold_reads.reads.insert(read);
        self.place(now, id, out);
    }

    /// Finds the segment, its file and its index; starts what is missing, else the first look.
    fn place(&mut self, now: Now, id: usize, out: &mut Actions) {
        let read = &mut self.cold_reads.reads[id];
        let Some((slot, partition)) = self.partitions.by_id(read.partition) else {
            return self.fail_read(now, id, ErrorCode::NOT_LEADER_OR_FOLLOWER, out);
        };
        if let Err(code) = partition.check_serving() {
            return self.fail_read(now, id, code, out);
        }
        match partition.place(read.offset) {
            Placed::Written { segment, file, at } => {
                (read.segment, read.at) = (segment, at);
                if let Reader::Time { timestamp, .. } = read.reader
                    && let Some(start) = partition.written_time(segment, timestamp)
                    && start > read.offset
                {
                    read.offset = start;
                    read.at = partition.index_position(segment, start);
                }
                match file {
                    Some(_) => self.look(now, id, out),
                    None if partition.files.is_recovered(segment) => {
                        read.step = Step::Awaiting;
                        if !partition.files.is_opening(segment) {
                            self.run_wish(slot, FileWish::Open { base: segment }, out);
                        }
                    }
                    // Its file is not there yet, nor is any byte of it on the device.
                    None => self.past_segment(now, id, out),
                }
            }
            Placed::Sealed { segment, file: Some(_) } => {
                read.segment = segment;
                match indexed(&mut self.index_cache, read) {
                    Ok(at) => {
                        read.at = at;
                        self.look(now, id, out);
                    }
                    Err(kind) => self.load_index(id, kind, out),
                }
            }
            Placed::Sealed { segment, file: None } => {
                read.segment = segment;
                read.step = Step::Opening;
                let path = PartitionFile { dir: partition.dir.clone(), kind: FileKind::Log(segment) };
                let purpose = Purpose::ForRead { read: id as u64, dir: path.dir.dir };
                let file = self.file_jobs.new_file();
                self.file_jobs.start(purpose, FileJob::OpenSealed { file, path }, out);
            }
            Placed::Nowhere => self.fail_read(now, id, ErrorCode::OFFSET_OUT_OF_RANGE, out),
        }
    }

    fn load_index(&mut self, id: usize, kind: IndexKind, out: &mut Actions) {
        let read = &mut self.cold_reads.reads[id];
        let (_, partition) = self.partitions.by_id(read.partition).expect("looked at by the caller");
        read.step = Step::Index(kind);
        let file = match kind {
            IndexKind::Offset => FileKind::Index(read.segment),
            IndexKind::Time => FileKind::TimeIndex(read.segment),
        };
        let path = PartitionFile { dir: partition.dir.clone(), kind: file };
        let purpose = Purpose::ForRead { read: id as u64, dir: path.dir.dir };
        let what = FileJob::ReadWhole { path, len_max: INDEX_BYTES_MAX };
        self.file_jobs.start(purpose, what, out);
    }

    /// Whether what a read is at is still there. Its topic may have been deleted meanwhile, or retention may have taken
    /// its segment: then a fetch ends, and a search by time begins again at the log start. Whatever a file operation
    /// said is no fault of the disk then.
    fn goes_on(&mut self, now: Now, id: usize, out: &mut Actions) -> bool {
        let read = &mut self.cold_reads.reads[id];
        let partition = self.partitions.by_id(read.partition).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        let serving = partition.and_then(|(_, partition)| partition.check_serving().map(|()| partition));
        match (serving, &read.reader) {
            (Err(code), _) => self.fail_read(now, id, code, out),
            (Ok(partition), _) if partition.has_segment(read.segment) => return true,
            (Ok(_), Reader::Fetch(_) | Reader::Nobody) => self.fail_read(now, id, ErrorCode::OFFSET_OUT_OF_RANGE, out),
            (Ok(partition), Reader::Time { .. }) => {
                read.offset = read.offset.max(partition.offsets.log_start());
                read.look_bytes = SCAN_BYTES;
                self.place(now, id, out);
            }
        }
        false
    }

    /// Keeps a file that was opened for a read, unless its segment is gone or another read has opened it, too.
    fn keep_opened(&mut self, id: usize, file: FileId, dir: DirId, out: &mut Actions) {
        let read = &self.cold_reads.reads[id];
        let partition = self.partitions.by_id(read.partition).map(|(_, partition)| partition);
        let serving = partition.filter(|partition| partition.check_serving().is_ok());
        match serving.and_then(|partition| partition.segments.get_mut(read.segment)) {
            Some(segment) if segment.file.is_none() => segment.file = Some(file),
            _ => self.file_jobs.start(Purpose::Close { dir }, FileJob::Close { file }, out),
        }
    }

    /// A file was opened or an index loaded for a read.
    pub(super) fn on_read_job(
        &mut self,
        now: Now,
        id: u64,
        dir: DirId,
        result: Result<FileDone, Errno>,
        out: &mut Actions,
    ) {
        let id = id as usize;
        if let Ok(FileDone::Opened { file, .. }) = result {
            self.keep_opened(id, file, dir, out);
        }
        if self.cold_reads.forget_lost(id) || !self.goes_on(now, id, out) {
            return;
        }
        let read = &mut self.cold_reads.reads[id];
        let (_, partition) = self.partitions.by_id(read.partition).expect("the read goes on");
        match (&mut read.step, result) {
            (Step::Opening, Ok(FileDone::Opened { .. })) => self.place(now, id, out),
            (Step::Index(kind), result) => {
                let key = IndexKey { partition: read.partition, base: read.segment, kind: *kind };
                let segment = partition.segments.floor(read.segment).expect("the read goes on");
                // An index is only a cache: without it the segment is read from its beginning until it is rebuilt.
                let usable = usable_index(result, key, segment);
                if let Err(reason) = &usable {
                    tracing::warn!(?key, reason, "no usable index; reading without");
                    self.rebuild_indexes(key.partition, &[key.base], out);
                }
                if self.index_cache.lookup(key).is_none() {
                    self.index_cache.insert(key, usable.unwrap_or_default());
                }
                self.place(now, id, out);
            }
            (_, result) => {
                tracing::error!(?result, segment = %read.segment, partition = ?read.partition, "segment cannot be opened");
                self.fail_read(now, id, ErrorCode::KAFKA_STORAGE_ERROR, out);
                if let Err(errno) = result {
                    self.fail_dir(now, dir, errno, out);
                }
            }
        }
    }

    /// Reads that wait for a written segment's file go on.
    pub(super) fn resume_reads(&mut self, now: Now, partition: PartitionId, out: &mut Actions) {
        let waits = |read: &ColdRead| read.partition == partition && matches!(read.step, Step::Awaiting);
        let waiting: Vec<usize> =
            self.cold_reads.reads.iter().filter(|(_, read)| waits(read)).map(|(id, _)| id).collect();
        for id in waiting {
            if self.cold_reads.reads.contains(id) {
                self.place(now, id, out);
            }
        }
    }

    /// Reads a block of batches from where the wanted one may start.
    fn look(&mut self, now: Now, id: usize, out: &mut Actions) {
        let read = &self.cold_reads.reads[id];
        let Some((_, partition)) = self.partitions.by_id(read.partition) else {
            return self.fail_read(now, id, ErrorCode::NOT_LEADER_OR_FOLLOWER, out);
        };
        let Some((file, end)) = partition.readable(read.segment) else {
            return self.fail_read(now, id, ErrorCode::NOT_LEADER_OR_FOLLOWER, out);
        };
        let block_at = read.at.align_down();
        let wanted = match &read.reader {
            Reader::Fetch(ask) if file.direct => read.look_bytes.max(u64::from(ask.bytes_max).min(MAX_DIRECT_BYTES)),
            _ => read.look_bytes,
        };
        let len = (read.at.0 - block_at.0 + wanted).min(end.align_up().0.saturating_sub(block_at.0));
        let len = FilePos(len).align_up().0;
        if end <= read.at || len == 0 {
            return self.past_segment(now, id, out);
        }
        let block = if len <= CHUNK { self.alloc(Pool::Reads, len, out) } else { self.alloc_large(len) };
        let Some(block) = block else {
            // Nothing can leave memory: the client asks again.
            return self.answer_empty(now, id, out);
        };
        let into = self.arena.into_lease(block);
        self.cold_reads.reads[id].step = Step::Looking { block_at, end };
        let len = if file.direct { len } else { len.min(end.0 - block_at.0) };
        let range = FileRange { file: file.id, at: block_at, len };
        out.push(Action::Read { read: ReadId(id as u64), range, into });
    }

    pub(super) fn on_read(&mut self, now: Now, id: ReadId, into: Lease, result: Result<u32, Errno>, out: &mut Actions) {
        let id = id.0 as usize;
        if !self.cold_reads.forget_lost(id) && self.goes_on(now, id, out) {
            let read = &self.cold_reads.reads[id];
            match (&read.step, result) {
                (_, Err(errno)) => self.on_read_error(now, id, errno, out),
                (Step::Warming(range), Ok(_)) => {
                    out.push(Action::Probe { probe: ProbeId(id as u64), range: *range });
                }
                (Step::Looking { block_at, end }, Ok(len)) => {
                    let from = (read.at.0 - block_at.0) as u32;
                    let len = u64::from(len).min(end.0 - block_at.0) as u32;
                    self.on_looked(now, id, Looked { block: &into, from, len: len.max(from) }, out);
                }
                (step, Ok(_)) => panic!("a read completed in step {step:?}"),
            }
        }
        self.arena.release(into);
    }

    /// A read error is no transient fault: the data directory is failed, and the client told so.
    fn on_read_error(&mut self, now: Now, id: usize, errno: Errno, out: &mut Actions) {
        let read = &self.cold_reads.reads[id];
        let (partition, segment, at) = (read.partition, read.segment, read.at);
        tracing::error!(?partition, %segment, %at, %errno, "segment cannot be read");
        let dir = self.partitions.by_id(partition).map(|(_, partition)| partition.dir.dir);
        self.fail_read(now, id, ErrorCode::KAFKA_STORAGE_ERROR, out);
        if let Some(dir) = dir {
            self.fail_dir(now, dir, errno, out);
        }
    }

    /// Looks through the batches of a block: bytes `from .. len` of it are batches from `read.at` on.
    fn on_looked(&mut self, now: Now, id: usize, looked: Looked<'_>, out: &mut Actions) {
        let Looked { block, from, len } = looked;
        let memory = self.memory.clone();
        let bytes = &memory.bytes(block)[from as usize..len as usize];
        let read = &mut self.cold_reads.reads[id];
        let found = match &read.reader {
            Reader::Fetch(_) => time_search::find_offset(bytes, read.offset),
            Reader::Time { timestamp, .. } => {
                let limit = self.partitions.by_id(read.partition).map(|(_, p)| p.offsets.high_watermark());
                time_search::find_time(bytes, *timestamp, limit.unwrap_or(Offset::ZERO))
            }
            Reader::Nobody => panic!("a lost read went on"),
        };
        match found {
            Found::Batch { at, len } => {
                read.at = read.at.plus(at as u64);
                let batch = Looked { block, from: from + at as u32, len: bytes.len() as u32 + from };
                self.on_batch_found(now, id, batch, len, out);
            }
            Found::Offset { offset, timestamp, epoch } => {
                let answer = QueryAnswer::Offset { offset, timestamp, leader_epoch: epoch };
                self.finish_time_search(now, id, answer, out);
            }
            // Whole batches were passed, or the next one is longer than the block.
            Found::Beyond { at, len } => {
                read.at = read.at.plus(at as u64);
                self.look_further(now, id, len, out);
            }
            Found::Nothing => self.finish_time_search(now, id, time_search::nothing(), out),
            Found::Corrupt(at) => {
                read.at = read.at.plus(at as u64);
                self.on_corrupt(now, id, out);
            }
        }
    }

    /// The batch at the present position needs `len` bytes. One that would go on behind the end of its segment is none.
    fn look_further(&mut self, now: Now, id: usize, len: u32, out: &mut Actions) {
        let read = &mut self.cold_reads.reads[id];
        let readable = self.partitions.by_id(read.partition).and_then(|(_, p)| p.readable(read.segment));
        let left = readable.map_or(0, |(_, end)| end.0.saturating_sub(read.at.0));
        if 0 < left && left < u64::from(len) {
            return self.on_corrupt(now, id, out);
        }
        read.look_bytes = (u64::from(len) + BLOCK).max(SCAN_BYTES);
        self.look(now, id, out);
    }

    fn on_corrupt(&mut self, now: Now, id: usize, out: &mut Actions) {
        let ColdRead { partition, segment, at, .. } = &self.cold_reads.reads[id];
        tracing::error!(?partition, %segment, %at, "corrupt batch; `pinion log verify` names it");
        self.metrics.count.corrupt_batches += 1;
        self.fail_read(now, id, ErrorCode::CORRUPT_MESSAGE, out);
    }

    /// The batch that holds the wanted offset starts at byte `at` of the block.
    fn on_batch_found(&mut self, now: Now, id: usize, batch: Looked<'_>, first_len: u32, out: &mut Actions) {
        let Looked { block, from: at, len } = batch;
        let memory = self.memory.clone();
        let bytes = &memory.bytes(block)[at as usize..len as usize];
        let read = &mut self.cold_reads.reads[id];
        let Reader::Fetch(ask) = &read.reader else { panic!("only fetches look for a batch") };
        let (_, partition) = self.partitions.by_id(read.partition).expect("the read goes on");
        let wanted = if ask.whole_first { ask.bytes_max.max(first_len) } else { ask.bytes_max };
        let high_watermark = partition.offsets.high_watermark();
        let (file, end) = partition.readable(read.segment).expect("the read goes on, and its file was read just now");
        if wanted < first_len {
            // A part of a batch is worth nothing to a client: it gets none, and asks for this partition first next time.
            let outcome = FetchOutcome::of(partition);
            return self.finish_fetch_read(now, id, outcome, out);
        }
        if file.direct || u64::from(wanted) <= bytes.len() as u64 {
            let whole = time_search::whole_batches(bytes, wanted, high_watermark);
            if whole == 0 && ask.whole_first {
                // A whole one that ends above the high watermark was never written so.
                return match bytes.len() < first_len as usize {
                    true => self.look_further(now, id, first_len, out),
                    false => self.on_corrupt(now, id, out),
                };
            }
            let mut outcome = FetchOutcome::of(partition);
            outcome.bytes = whole;
            if whole > 0 {
                outcome.records = self.buffers.parts();
                outcome.records.push(Part::Arena(self.arena.split(block, at, whole)));
            }
            return self.finish_fetch_read(now, id, outcome, out);
        }
        let len = u64::from(wanted).min(end.0 - read.at.0);
        let range = FileRange { file: file.id, at: read.at, len };
        read.step = Step::Warming(range);
        out.push(Action::Probe { probe: ProbeId(id as u64), range });
    }

    pub(super) fn on_resident(&mut self, now: Now, probe: ProbeId, missing: Option<FileRange>, out: &mut Actions) {
        let id = probe.0 as usize;
        if self.cold_reads.forget_lost(id) || !self.goes_on(now, id, out) {
            return;
        }
        let read = &self.cold_reads.reads[id];
        let Step::Warming(range) = read.step else { panic!("a probe nobody waits for") };
        let Some(missing) = missing else {
            let (_, partition) = self.partitions.by_id(read.partition).expect("the read goes on");
            let mut outcome = FetchOutcome::of(partition);
            outcome.bytes = range.len as u32;
            outcome.records = self.buffers.parts();
            outcome.records.push(Part::File(range));
            self.named_files.name(range.file);
            return self.finish_fetch_read(now, id, outcome, out);
        };
        let len = missing.len.min(SENDFILE_SLICE_BYTES);
        let Some(block) = self.alloc(Pool::Reads, len, out) else { return self.answer_empty(now, id, out) };
        let into = self.arena.into_lease(block);
        out.push(Action::Read { read: ReadId(id as u64), range: FileRange { len, ..missing }, into });
    }

    /// The wanted offset lies behind this segment's last batch: it goes on in the next one.
    fn past_segment(&mut self, now: Now, id: usize, out: &mut Actions) {
        let read = &mut self.cold_reads.reads[id];
        let next =
            self.partitions.by_id(read.partition).and_then(|(_, p)| p.segments.after(read.segment).map(|s| s.base));
        match next {
            Some(base) => {
                read.offset = base.max(read.offset);
                read.look_bytes = SCAN_BYTES;
                self.place(now, id, out);
            }
            None => self.answer_empty(now, id, out),
        }
    }
}

/// Where a read of a sealed segment may start, or the index that must be loaded first. A search by time moves its
/// offset forward.
fn indexed(cache: &mut IndexCache, read: &mut ColdRead) -> Result<FilePos, IndexKind> {
    let key = |kind| IndexKey { partition: read.partition, base: read.segment, kind };
    if let Reader::Time { timestamp, .. } = read.reader {
        let times = cache.lookup(key(IndexKind::Time)).ok_or(IndexKind::Time)?;
        if let Some((_, start)) = index::lookup_time(times, read.segment, timestamp) {
            read.offset = read.offset.max(start);
        }
    }
    let offsets = cache.lookup(key(IndexKind::Offset)).ok_or(IndexKind::Offset)?;
    Ok(index::lookup_offset(offsets, read.segment, read.offset).map_or(FilePos(0), |(_, at)| at))
}

/// The valid part of an index file, or why there is none.
fn usable_index(result: Result<FileDone, Errno>, key: IndexKey, segment: &Segment) -> Result<Arc<[u8]>, String> {
    let contents = match result {
        Ok(FileDone::Contents(contents)) => contents,
        Ok(other) => panic!("reading an index brought {other:?}"),
        Err(errno) => return Err(errno.to_string()),
    };
    let bounds = SegmentBounds { base: segment.base, end: segment.end, len: segment.len };
    let checked = match key.kind {
        IndexKind::Offset => index::check_offset_index(&contents, bounds),
        IndexKind::Time => index::check_time_index(&contents, bounds),
    };
    checked.map(Arc::from).map_err(|fault| fault.to_string())
}

/// Bytes that one O_DIRECT read of an active segment brings at most.
const MAX_DIRECT_BYTES: u64 = 1024 * 1024;
