//! The tail of a partition's log in memory: batches are copied once into arena blocks, and block-aligned writes are
//! cut from them.
//!
//! Bytes are counted in one line across segments, the [`LogPos`]; so the rule *prefix* (stable = end of the contiguous
//! prefix of durable writes) holds over a segment roll by construction.
//!
//! Invariants: `stable ≤ submitted ≤ end`. Bytes below `end` never change (*immutable*). Two writes in flight never
//! touch the same 4 KiB: a write whose end is not aligned is the last one until it completes. With
//! [`TailWrites::Copied`] no byte of a write in flight changes, the padding behind the last batch included. A completion
//! of an older generation moves nothing.
//!
//! It does not know files, acks or replicas; `shard/partition.rs` turns its plans into actions. Memory comes from the
//! arena of its core; `reserve` asks for it, so that `append` cannot fail.

mod tail_block;
mod write_plan;

use std::collections::VecDeque;

use crate::arena::{Arena, Block, ChunkChange, Lease, Pool};
use crate::ids::{FilePos, Generation, LeaderEpoch, Offset};
use crate::limits::{BLOCK, WRITE_BYTES_MAX};

use tail_block::TailBlock;
pub use tail_block::TailWrites;
pub use write_plan::{Writable, WritePlan};

/// Byte position in the log of one partition, in one line over all segments since this process opened it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LogPos(pub u64);

/// Largest tail block in bytes; fast partitions grow towards it.
const TAIL_BLOCK_BYTES_MAX: u64 = WRITE_BYTES_MAX;
/// Writes of one partition in flight at a time.
const WRITES_IN_FLIGHT_MAX: usize = 8;

/// One batch of the tail, as far as reads and acknowledgements need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEntry {
    /// First offset.
    pub base: Offset,
    /// Offset after the last one.
    pub next: Offset,
    /// Epoch of the leader that appended it.
    pub epoch: LeaderEpoch,
    /// Base offset of its segment.
    pub segment: Offset,
    /// Where it starts in its segment's file.
    pub at: FilePos,
    /// Its length in bytes.
    pub len: u32,
    /// Its largest timestamp, ms.
    pub max_timestamp: i64,
    end: LogPos,
}

/// Bytes of one segment: whole batches, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailRange {
    segment: Offset,
    at: FilePos,
    end: FilePos,
}

impl TailRange {
    /// One batch.
    pub fn of(batch: &BatchEntry) -> TailRange {
        TailRange { segment: batch.segment, at: batch.at, end: batch.at.plus(u64::from(batch.len)) }
    }

    /// Both together, when `next` starts where this one ends.
    pub fn joined(self, next: TailRange) -> Option<TailRange> {
        let adjacent = self.segment == next.segment && self.end == next.at;
        adjacent.then_some(TailRange { end: next.end, ..self })
    }
}

/// How far a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    InFlight,
    /// Completed, not yet covered by a flush.
    Completed,
    /// A flush that covers it is in flight.
    Flushing,
    Durable,
}

#[derive(Debug)]
struct Slice {
    to: LogPos,
    progress: Progress,
}

/// A segment with bytes that are not submitted yet; the last one is the active segment.
#[derive(Clone, Copy, Debug)]
struct Span {
    base: Offset,
    /// Log position of the file's first byte.
    origin: u64,
    /// Where it ends; `None` for the active one.
    end: Option<LogPos>,
}

impl Span {
    fn file_pos(&self, pos: LogPos) -> FilePos {
        FilePos(pos.0.checked_sub(self.origin).expect("position before its segment"))
    }

    fn log_pos(&self, at: FilePos) -> LogPos {
        LogPos(self.origin + at.0)
    }
}

/// The tail of one partition.
#[derive(Debug)]
pub struct Appender {
    generation: Generation,
    end: LogPos,
    submitted: LogPos,
    stable: LogPos,
    /// End of the last batch below `stable`; a write may end inside a batch.
    stable_batches: LogPos,
    /// Segments from the one that holds `submitted` to the active one.
    spans: VecDeque<Span>,
    blocks: VecDeque<TailBlock>,
    /// Blocks that `reserve` took and `append` has not reached yet.
    spare: VecDeque<Block>,
    /// Batches wholly in `blocks`, in order.
    batches: VecDeque<BatchEntry>,
    /// How many of `batches` are stable; they are the first ones.
    batches_stable: usize,
    stable_offset: Offset,
    slices: VecDeque<Slice>,
    /// The last, partly filled 4 KiB while no block holds it: after recovery, and when the partition was idle.
    partial: Vec<u8>,
    next_block_bytes: u64,
    tail_writes: TailWrites,
}

impl Appender {
    /// The tail of a log whose active segment starts at `base` and holds `end` bytes, all of them stable; `partial` is
    /// its last, partly filled block.
    ///
    /// # Panics
    /// When `partial` is not exactly what lies behind the last block boundary below `end`.
    pub fn new(base: Offset, end: FilePos, next: Offset, partial: Vec<u8>) -> Appender {
        assert_eq!(partial.len() as u64, end.0 - end.align_down().0, "partial block of a segment of {end} bytes");
        let pos = LogPos(end.0);
        Appender {
            generation: Generation(0),
            end: pos,
            submitted: pos,
            stable: pos,
            stable_batches: pos,
            spans: VecDeque::from([Span { base, origin: 0, end: None }]),
            blocks: VecDeque::new(),
            spare: VecDeque::new(),
            batches: VecDeque::new(),
            batches_stable: 0,
            stable_offset: next,
            slices: VecDeque::new(),
            partial,
            next_block_bytes: BLOCK,
            tail_writes: TailWrites::Shared,
        }
    }

    /// The same tail on a device that wants its tail blocks written so.
    pub fn with_tail_writes(self, tail_writes: TailWrites) -> Appender {
        Appender { tail_writes, ..self }
    }

    /// Base offset of the active segment.
    pub fn active_base(&self) -> Offset {
        self.active().base
    }

    /// Bytes in the active segment.
    pub fn active_end(&self) -> FilePos {
        self.active().file_pos(self.end)
    }

    /// Offset below which everything is on the device.
    pub fn stable_offset(&self) -> Offset {
        self.stable_offset
    }

    /// File position at which the batches below [`Appender::stable_offset`] end, when that lies in the active segment.
    pub fn stable_in_active(&self) -> Option<FilePos> {
        let active = self.active();
        (self.stable_batches.0 >= active.origin).then(|| active.file_pos(self.stable_batches))
    }

    /// Whether bytes wait to be submitted.
    pub fn has_unsubmitted(&self) -> bool {
        self.submitted < self.end
    }

    /// Bytes that wait to be submitted or are in flight.
    pub fn unstable_bytes(&self) -> u64 {
        self.end.0 - self.stable.0
    }

    /// Whether everything is on the device and nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        self.stable == self.end && self.slices.is_empty()
    }

    /// Starts a new segment at `base`; later appends go there. Writes of the old one go on.
    pub fn roll(&mut self, base: Offset) {
        let end = self.end;
        let old = self.spans.back_mut().expect("a log has an active segment");
        assert!(base > old.base, "segment {base} behind {}", old.base);
        old.end = Some(end);
        self.spans.push_back(Span { base, origin: end.0, end: None });
        // What a recovered or idle partial block holds is the old segment's and is on the device already.
        self.partial.clear();
    }

    /// The size of the block that `reserve` would like to take next for `bytes` more; `None` when it needs none.
    pub fn block_wanted(&self, bytes: u64) -> Option<u64> {
        let missing = (bytes + self.carried()).checked_sub(self.room()).filter(|missing| *missing > 0)?;
        Some(self.block_bytes(missing))
    }

    /// Makes room for `bytes` more. Returns false when the arena is full; then nothing may be appended.
    pub fn reserve(&mut self, bytes: u64, arena: &mut Arena, changes: &mut Vec<ChunkChange>) -> bool {
        self.reserve_beyond(self.room(), bytes + self.carried(), arena, changes)
    }

    /// As [`Appender::reserve`], for an append behind a [`Appender::roll`] that has not been made yet.
    pub fn reserve_behind_roll(&mut self, bytes: u64, arena: &mut Arena, changes: &mut Vec<ChunkChange>) -> bool {
        self.reserve_beyond(self.spare_room(), bytes, arena, changes)
    }

    fn reserve_beyond(
        &mut self,
        mut room: u64,
        wanted: u64,
        arena: &mut Arena,
        changes: &mut Vec<ChunkChange>,
    ) -> bool {
        while room < wanted {
            let Some(block) = self.take_block(wanted - room, arena, changes) else { return false };
            room += u64::from(block.len());
            self.spare.push_back(block);
        }
        true
    }

    /// Gives back what `reserve` took and no `append` has used.
    pub fn give_back_spare(&mut self, arena: &mut Arena) {
        for block in self.spare.drain(..) {
            arena.free(block);
        }
    }

    /// Copies one batch to the end: first `header` (already patched), then `rest`, the bytes behind it.
    ///
    /// # Panics
    /// Without a `reserve` of at least its length.
    pub fn append(&mut self, arena: &mut Arena, entry: NewBatch, header: &[u8], rest: (&Lease, u32)) {
        let at = self.active_end();
        let segment = self.active_base();
        let (lease, from) = rest;
        self.fill(arena, header.len() as u32, |arena, block, at, done, count| {
            arena.write(block, at, &header[done as usize..(done + count) as usize]);
        });
        self.fill(arena, lease.len() - from, |arena, block, at, done, count| {
            arena.copy(block, at, lease, from + done, count);
        });
        let len = header.len() as u32 + lease.len() - from;
        self.end = LogPos(self.end.0 + u64::from(len));
        let NewBatch { base, next, epoch, max_timestamp } = entry;
        self.batches.push_back(BatchEntry { base, next, epoch, segment, at, len, max_timestamp, end: self.end });
        self.invariants();
    }

    /// Cuts the writes that may start now. `writable` says how far a segment's file may be written; a segment without
    /// a file yet gives `None`, and its bytes wait.
    pub fn plan_writes(
        &mut self,
        arena: &mut Arena,
        writable: impl Fn(Offset) -> Option<Writable>,
        out: &mut Vec<WritePlan>,
    ) {
        while self.slices.len() < WRITES_IN_FLIGHT_MAX {
            self.pop_submitted_spans();
            let span = self.spans[0];
            let limit = span.end.unwrap_or(self.end);
            if self.submitted >= limit || self.tail_block_in_flight(span) {
                return;
            }
            let Some(plan) = self.plan_one(arena, span, limit, writable(span.base)) else { return };
            out.push(plan);
        }
    }

    /// A write has completed. Returns whether it counted (it does not when its generation is over). With `durable` it
    /// is on stable media by itself, else a flush must cover it.
    pub fn on_written(&mut self, generation: Generation, to: LogPos, durable: bool) -> bool {
        if generation != self.generation {
            return false;
        }
        let index = self.slices.binary_search_by_key(&to, |slice| slice.to);
        let slice = &mut self.slices[index.expect("completion of a write that was never submitted")];
        assert_eq!(slice.progress, Progress::InFlight, "write to {to:?} completed twice");
        slice.progress = if durable { Progress::Durable } else { Progress::Completed };
        self.settle();
        true
    }

    /// A flush is being submitted: it covers every write completed by now.
    pub fn on_flush_submitted(&mut self) {
        for slice in &mut self.slices {
            if slice.progress == Progress::Completed {
                slice.progress = Progress::Flushing;
            }
        }
    }

    /// The flush that was submitted last has completed.
    pub fn on_flushed(&mut self) {
        for slice in &mut self.slices {
            if slice.progress == Progress::Flushing {
                slice.progress = Progress::Durable;
            }
        }
        self.settle();
    }

    /// First offset that is in memory; `None` when nothing is.
    pub fn resident_from(&self) -> Option<Offset> {
        self.batches.front().map(|batch| batch.base)
    }

    /// Batches in memory from the one that holds `offset` on; empty when it is not in memory.
    pub fn resident(&self, offset: Offset) -> impl Iterator<Item = &BatchEntry> {
        let known = self.resident_from().is_some_and(|first| first <= offset);
        let start = self.batches.partition_point(|batch| batch.next <= offset);
        self.batches.range(if known { start.. } else { self.batches.len().. })
    }

    /// Leases on the bytes of batches in memory, given to `out` in order: one for each block that they touch.
    ///
    /// # Panics
    /// When the range is not in memory.
    pub fn lease(&self, range: TailRange, arena: &mut Arena, mut out: impl FnMut(Lease)) {
        let TailRange { segment, mut at, end } = range;
        let first = self.block_index(segment, at).expect("a batch in the table is in memory");
        for block in self.blocks.range(first..) {
            let count = (block.end().0.min(end.0) - at.0) as u32;
            out(arena.lease(&block.block, (at.0 - block.at.0) as u32, count));
            at = at.plus(u64::from(count));
            if at == end {
                return;
            }
        }
        panic!("{range:?} runs past the blocks in memory");
    }

    /// Gives the oldest block back when all of it is on the device; what was in it is no longer in memory. The last
    /// block's partly filled 4 KiB stays, on the heap. Returns whether a block was freed.
    pub fn evict_oldest(&mut self, arena: &mut Arena) -> bool {
        let Some(front) = self.blocks.front() else { return false };
        let last = self.blocks.len() == 1;
        if last && !self.is_quiet() || !last && !self.is_block_stable(front) {
            return false;
        }
        let block = self.blocks.pop_front().expect("looked at above");
        if last && block.segment == self.active_base() {
            self.keep_partial(arena, &block);
        }
        let (segment, end) = (block.segment, block.end());
        arena.free(block.block);
        self.forget_batches(segment, end);
        true
    }

    /// Blocks held, spare ones included.
    pub fn blocks_held(&self) -> usize {
        self.blocks.len() + self.spare.len()
    }

    /// Gives every block back; used when the partition closes. Nothing may be in flight or unsubmitted.
    pub fn close(&mut self, arena: &mut Arena) {
        for block in self.blocks.drain(..) {
            arena.free(block.block);
        }
        self.give_back_spare(arena);
        self.batches.clear();
        self.batches_stable = 0;
    }

    fn active(&self) -> &Span {
        self.spans.back().expect("a log has an active segment")
    }

    /// The last block, when it is one of the active segment.
    fn tail(&self) -> Option<&TailBlock> {
        self.blocks.back().filter(|tail| tail.segment == self.active_base())
    }

    /// The last block, when its partly filled 4 KiB is being written and must not change meanwhile.
    fn frozen_tail(&self) -> Option<&TailBlock> {
        let tail = self.tail().filter(|tail| self.tail_writes == TailWrites::Copied && tail.partial_bytes() > 0)?;
        let end = self.active().log_pos(tail.end());
        let last = self.slices.back();
        last.is_some_and(|slice| slice.to == end && slice.progress == Progress::InFlight).then_some(tail)
    }

    fn room(&self) -> u64 {
        let open = self.tail().filter(|_| self.frozen_tail().is_none());
        open.map_or(0, TailBlock::room) + self.spare_room()
    }

    /// Bytes that the next block begins with: those of the partly filled 4 KiB that no block holds, or no open one.
    fn carried(&self) -> u64 {
        self.partial.len() as u64 + self.frozen_tail().map_or(0, |tail| u64::from(tail.partial_bytes()))
    }

    fn spare_room(&self) -> u64 {
        self.spare.iter().map(|block| u64::from(block.len())).sum()
    }

    fn block_bytes(&self, bytes: u64) -> u64 {
        // What a block that nothing more may be added to has come to is what comes during one write.
        let least = self.frozen_tail().map_or(self.next_block_bytes, |tail| u64::from(tail.filled).next_power_of_two());
        bytes.next_power_of_two().max(least).clamp(BLOCK, TAIL_BLOCK_BYTES_MAX)
    }

    /// A block for at least a part of `bytes`: the size that the partition has grown to, or the next smaller one that
    /// the arena has.
    fn take_block(&mut self, bytes: u64, arena: &mut Arena, changes: &mut Vec<ChunkChange>) -> Option<Block> {
        let wanted = self.block_bytes(bytes);
        self.next_block_bytes = (wanted * 2).min(TAIL_BLOCK_BYTES_MAX);
        let mut size = wanted;
        while size >= BLOCK {
            if let Some(block) = arena.alloc(Pool::Produce, size, changes) {
                return Some(block);
            }
            size /= 2;
        }
        None
    }

    /// Fills `count` bytes into the tail, block after block.
    fn fill(&mut self, arena: &mut Arena, count: u32, mut copy: impl FnMut(&mut Arena, &mut Block, u32, u32, u32)) {
        let mut done = 0;
        while done < count {
            self.open_tail(arena);
            let tail = self.blocks.back_mut().expect("just opened");
            let part = tail.room().min(u64::from(count - done)) as u32;
            copy(arena, &mut tail.block, tail.filled, done, part);
            tail.filled += part;
            done += part;
        }
    }

    /// Makes the last block one of the active segment with room, from the spare ones.
    fn open_tail(&mut self, arena: &mut Arena) {
        let frozen = self.frozen_tail().is_some();
        let (segment, tail) = (self.active_base(), self.tail());
        if !frozen && tail.is_some_and(|tail| tail.room() > 0) {
            return;
        }
        let at = tail.map_or(self.active_end(), TailBlock::end).align_down();
        if let Some(tail) = self.blocks.back().filter(|_| frozen) {
            self.partial.extend_from_slice(tail.partial(arena));
        }
        let mut block = self.spare.pop_front().expect("append without reserve");
        let filled = self.partial.len() as u32;
        arena.write(&mut block, 0, &self.partial);
        self.partial.clear();
        self.blocks.push_back(TailBlock { block, segment, at, filled });
    }

    fn pop_submitted_spans(&mut self) {
        while self.spans.len() > 1 && self.spans[0].end.is_some_and(|end| end <= self.submitted) {
            self.spans.pop_front();
        }
    }

    /// Whether the 4 KiB that the next write of this segment starts in is being written.
    fn tail_block_in_flight(&self, span: Span) -> bool {
        let aligned = self.submitted.0 >= span.origin && span.file_pos(self.submitted).0.is_multiple_of(BLOCK);
        let last = self.slices.back();
        !aligned && last.is_some_and(|slice| slice.to == self.submitted && slice.progress == Progress::InFlight)
    }

    fn plan_one(
        &mut self,
        arena: &mut Arena,
        span: Span,
        limit: LogPos,
        writable: Option<Writable>,
    ) -> Option<WritePlan> {
        let at = span.file_pos(self.submitted).align_down();
        // The block before may end inside the same 4 KiB, of which this one has a copy.
        let index =
            self.block_index(span.base, span.file_pos(self.submitted)).expect("unsubmitted bytes are in memory");
        let tail = &mut self.blocks[index];
        let from = (at.0 - tail.at.0) as u32;
        let writable = writable?;
        // One write over a block that was written before and unwritten ones behind it would have to lock the inode and
        // wait for a worker thread of the kernel; ext4 takes two writes beside others.
        let rewrites = span.file_pos(self.submitted) != at && at < writable.unwritten_to;
        let longest = if rewrites { BLOCK } else { WRITE_BYTES_MAX };
        let end = span.file_pos(limit).0.min(tail.end().0).min(at.0 + longest);
        let aligned_end = FilePos(end).align_up();
        if writable.to < aligned_end {
            return None;
        }
        let to = (aligned_end.0 - tail.at.0) as u32;
        arena.zero(&mut tail.block, (end - tail.at.0) as u32, to);
        let block = arena.lease(&tail.block, from, to - from);
        self.submitted = span.log_pos(FilePos(end));
        self.slices.push_back(Slice { to: self.submitted, progress: Progress::InFlight });
        self.invariants();
        Some(WritePlan { segment: span.base, at, block, generation: self.generation, to: self.submitted })
    }

    /// Moves `stable` over the durable prefix of the writes.
    fn settle(&mut self) {
        while self.slices.front().is_some_and(|slice| slice.progress == Progress::Durable) {
            self.stable = self.slices.pop_front().expect("looked at above").to;
        }
        while let Some(batch) = self.batches.get(self.batches_stable).filter(|batch| batch.end <= self.stable) {
            (self.stable_offset, self.stable_batches) = (batch.next, batch.end);
            self.batches_stable += 1;
        }
        self.invariants();
    }

    fn block_index(&self, segment: Offset, at: FilePos) -> Option<usize> {
        let index = self.blocks.partition_point(|block| (block.segment, block.end()) <= (segment, at));
        let block = self.blocks.get(index)?;
        (block.segment == segment && block.at <= at).then_some(index)
    }

    fn is_block_stable(&self, block: &TailBlock) -> bool {
        // A block that is not the last one is stable when its last batch is; a batch that goes on in the next block
        // keeps it until that one is stable, too.
        let end = block.end();
        let unstable = self.batches.get(self.batches_stable);
        unstable.is_none_or(|batch| (batch.segment, batch.at) >= (block.segment, end)) && self.is_submitted(block)
    }

    fn is_submitted(&self, block: &TailBlock) -> bool {
        let front = self.spans[0];
        front.base > block.segment || (front.base == block.segment && front.log_pos(block.end()) <= self.stable)
    }

    fn keep_partial(&mut self, arena: &Arena, block: &TailBlock) {
        assert_eq!(block.end(), self.active_end(), "the last block of the active segment ends where it ends");
        self.partial.extend_from_slice(block.partial(arena));
        self.next_block_bytes = BLOCK;
    }

    /// Drops the batches that start before `end` of `segment` from the table.
    fn forget_batches(&mut self, segment: Offset, end: FilePos) {
        while self.batches.front().is_some_and(|batch| (batch.segment, batch.at) < (segment, end)) {
            assert!(self.batches_stable > 0, "an unstable batch left memory");
            self.batches.pop_front();
            self.batches_stable -= 1;
        }
    }

    fn invariants(&self) {
        assert!(self.stable_batches <= self.stable, "{:?} > stable {:?}", self.stable_batches, self.stable);
        assert!(self.stable <= self.submitted, "stable {:?} > submitted {:?}", self.stable, self.submitted);
        assert!(self.submitted <= self.end, "submitted {:?} > end {:?}", self.submitted, self.end);
    }
}

/// What `append` must know of a batch beyond its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBatch {
    /// First offset.
    pub base: Offset,
    /// Offset after the last one.
    pub next: Offset,
    /// Epoch of the leader.
    pub epoch: LeaderEpoch,
    /// Largest timestamp, ms.
    pub max_timestamp: i64,
}

#[cfg(test)]
mod tests;
