//! The tail memory of a data core: 2 MiB chunks, size-classed blocks, counted leases, receipts. Accounting and access to
//! bytes; the memory itself is handed in as a [`Region`] (a memfd in production, heap in tests).
//!
//! A [`Block`] is the one right to write an allocation, a [`Lease`] the counted right to read a part of it; both are
//! given back by value, so each exactly once. The memory is free again when the block and all leases are back.
//!
//! Invariants:
//! - *immutable*: bytes that a lease covers and that were written when it was made never change while it lives. The
//!   writer of a block starts behind them. Only the padding of a device write (leased but not yet written) may be
//!   filled while the device reads: old and new image share the acknowledged prefix.
//! - Nothing is leased that was neither written nor zeroed since the block was taken, so old bytes do not leak.
//! - Memory goes back only by whole chunks without a block.
//! - Each pool can always have the chunks of its minimum.
//!
//! It makes no system call: what the shell must do to a chunk leaves as [`ChunkChange`]. Nothing here allocates from
//! the heap in the steady state; tables grow to their largest use and stay.

mod chunks;
mod config;
mod receipts;
mod region;

use std::sync::Arc;

use crate::arena::chunks::{Chunks, order_bytes, order_for};
pub use crate::arena::config::{ArenaConfig, Pool, PoolMinima};
pub use crate::arena::receipts::{PartDigest, Receipts};
pub use crate::arena::region::{Region, Regions};
use crate::ids::CoreId;
use crate::limits::{BLOCK, CHUNK};

/// What the shell must do for the arena's memory. No completion: it happens in order with the writes that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkChange {
    /// Chunk `index` will be used: populate, collapse, register.
    Take {
        /// Index of the chunk in the region.
        index: u32,
    },
    /// No block, lease or disk operation names chunk `index`: give its memory back.
    Drop {
        /// Index of the chunk in the region.
        index: u32,
    },
    /// The area of the large window is not in use: give the memory of `count` chunks from `first` on back. They lie
    /// behind the budget and are never taken: no disk write leaves from them, and populating them at once would hold the
    /// core for as long as the receive itself.
    DropWindow {
        /// Index of the first chunk in the region.
        first: u32,
        /// How many chunks held bytes.
        count: u32,
    },
}

/// The one right to write an allocation. Given back by [`Arena::free`] or turned into a lease.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    core: CoreId,
    id: u32,
    generation: u32,
    len: u32,
}

impl Block {
    /// Capacity in bytes: its size class, or what was asked for rounded up to 4 KiB in the large window.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes; never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The right to read some bytes of an arena, of this core or another. Not copyable: each one is given back exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    core: CoreId,
    /// The bytes may be filled by the shell: made from a block that nobody else had a lease on.
    window: bool,
    block: u32,
    generation: u32,
    at: u64,
    len: u32,
    /// How many of the last bytes were not written when the lease was made.
    padding: u32,
}

impl Lease {
    /// Whose arena the bytes lie in.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Byte position in that core's region (and memfd).
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Count of bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it covers no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn check_range(&self, from: u32, len: u32) {
        assert!(from <= self.len && len <= self.len - from, "{len} bytes from {from} of {self:?}");
    }
}

/// What is not given back yet; plain data, for tests and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Allocations whose memory is not free: with a writer, a lease, or both.
    pub blocks: u32,
    /// Leases, on whichever core they are.
    pub leases: u32,
    /// Bytes of allocations by pool, by the number of the [`Pool`].
    pub pool_bytes: [u64; Pool::COUNT],
    /// Bytes of the large window, 0 when it is free.
    pub window_bytes: u64,
    /// Chunks whose memory is in use or kept ready.
    pub chunks: u32,
}

impl Outstanding {
    /// Bytes of allocations in one pool.
    pub fn bytes(&self, pool: Pool) -> u64 {
        self.pool_bytes[pool as usize]
    }
}

/// End of the list of free records.
const NONE: u32 = u32::MAX;

/// One allocation.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: u64,
    len: u32,
    /// Counts the uses of the record; handles of an earlier use are refused.
    generation: u32,
    /// Whether the `Block` is out.
    writer: bool,
    leases: u32,
    /// End of the bytes written; bytes behind it are no data yet.
    filled: u32,
    /// End of the bytes written or zeroed.
    known: u32,
    /// Bytes below are promised to leases.
    frozen: u32,
    /// `None` for the large window.
    pool: Option<Pool>,
    next_free: u32,
}

impl Record {
    fn is_live(&self) -> bool {
        self.writer || self.leases > 0
    }

    /// How many of the last of these bytes may still change.
    fn padding(&self, from: u32, len: u32) -> u32 {
        let solid = if self.writer { self.frozen.max(from) } else { self.len };
        (from + len).saturating_sub(solid)
    }
}

/// The arena of one data core. Used by that core's thread only; leases may travel.
#[derive(Debug)]
pub struct Arena {
    config: ArenaConfig,
    regions: Arc<Regions>,
    chunks: Chunks,
    records: Vec<Record>,
    /// First record that is free.
    free: u32,
    outstanding: Outstanding,
    /// Bytes of the window area that held something since it was last dropped.
    window_touched: u64,
}

impl Arena {
    /// How large a region the arena needs, in bytes: a multiple of the chunk.
    pub fn region_bytes(config: &ArenaConfig) -> u64 {
        config.window_at() + config.window_bytes_max.next_multiple_of(CHUNK)
    }

    /// The arena of `config.core` over that core's region. Nothing is taken yet.
    ///
    /// # Panics
    /// When the budget is below one chunk or below the pools' minima, when a window could not be counted in u32, or when
    /// the region is too small or has an arena already.
    pub fn new(config: ArenaConfig, regions: Arc<Regions>) -> Arena {
        let (needed, len) = (Arena::region_bytes(&config), regions.claim(config.core));
        assert!(needed <= len, "region of {len} bytes for an arena of {needed}");
        assert!(config.window_bytes_max <= u64::from(u32::MAX) - BLOCK, "window of {} bytes", config.window_bytes_max);
        let count = config.chunks();
        assert!(count > 0, "arena budget of {} bytes", config.budget_bytes);
        // Reserved for good but touched only as far as used, so that it never moves.
        let records_max = count as usize * (CHUNK / BLOCK) as usize + 1;
        Arena {
            config,
            regions,
            chunks: Chunks::new(count, config.pools.chunks()),
            records: Vec::with_capacity(records_max),
            free: NONE,
            outstanding: Outstanding::default(),
            window_touched: 0,
        }
    }

    /// A block of the smallest size class that holds `bytes` (at most 2 MiB). `None` when the pool is full: the caller
    /// pushes back. May take a chunk; the change must reach the shell before any operation on the block.
    ///
    /// # Panics
    /// Above 2 MiB.
    ///
    /// Costs one step per level: 9 inside a chunk and log₂ of the count of chunks, twice.
    pub fn alloc(&mut self, pool: Pool, bytes: u64, changes: &mut Vec<ChunkChange>) -> Option<Block> {
        assert!(bytes <= CHUNK, "a block of {bytes} bytes");
        let order = order_for(bytes);
        let at = self.chunks.alloc(pool, order, changes)?;
        let len = order_bytes(order);
        self.outstanding.pool_bytes[pool as usize] += len;
        Some(self.new_block(at, len as u32, Some(pool)))
    }

    /// The large window, for a receive of more than 2 MiB. `None` when it is taken: others wait. It is one for the core.
    ///
    /// # Panics
    /// Above `window_bytes_max`.
    pub fn alloc_window(&mut self, bytes: u64) -> Option<Block> {
        assert!(bytes <= self.config.window_bytes_max, "a window of {bytes} bytes");
        if self.outstanding.window_bytes > 0 {
            return None;
        }
        let len = bytes.max(1).next_multiple_of(BLOCK);
        self.outstanding.window_bytes = len;
        self.window_touched = self.window_touched.max(len);
        Some(self.new_block(self.config.window_at(), len as u32, None))
    }

    /// Gives the right to write back. The memory is free when no lease is left.
    pub fn free(&mut self, block: Block) {
        let record = self.record_of_block(&block);
        record.writer = false;
        self.settle(block.id);
    }

    /// Copies bytes into a block.
    ///
    /// # Panics
    /// Outside the block, or at bytes that a lease promises.
    pub fn write(&mut self, block: &mut Block, at: u32, bytes: &[u8]) {
        let to = self.check_writable(block, at, bytes.len());
        self.regions.write(self.config.core, to, bytes);
        self.written(block, at + bytes.len() as u32);
    }

    /// Copies `len` bytes from byte `from` of a lease of any core into a block.
    ///
    /// # Panics
    /// As `write`, and outside the lease or in its padding.
    pub fn copy(&mut self, block: &mut Block, at: u32, lease: &Lease, from: u32, len: u32) {
        let to = self.check_writable(block, at, len as usize);
        self.regions.write(self.config.core, to, self.regions.bytes_of(lease, from, len));
        self.written(block, at + len);
    }

    /// Zeroes bytes `from .. to` of a block; they count as padding, not as data.
    ///
    /// # Panics
    /// Outside the block, or at bytes that a lease promises.
    pub fn zero(&mut self, block: &mut Block, from: u32, to: u32) {
        assert!(from <= to, "zeros from {from} to {to}");
        let at = self.check_writable(block, from, (to - from) as usize);
        self.regions.zero(self.config.core, at, to - from);
        let record = self.record_of_block(block);
        record.known = record.known.max(to);
    }

    /// Bytes of a block, without a lease.
    ///
    /// # Panics
    /// Outside what was written or zeroed.
    pub fn read(&self, block: &Block, from: u32, len: u32) -> &[u8] {
        let record = self.look_at_block(block);
        record.check_known(from, len);
        self.regions.block_bytes(self.config.core, record.at + u64::from(from), len)
    }

    /// The bytes of a lease of any core, as [`Regions::bytes`].
    pub fn bytes<'a>(&'a self, lease: &'a Lease) -> &'a [u8] {
        self.regions.bytes(lease)
    }

    /// A lease on bytes of a block. What is written of them by now cannot be written again; zeros behind that are the
    /// padding of a device write and may be filled by later data.
    ///
    /// # Panics
    /// Outside what was written or zeroed.
    pub fn lease(&mut self, block: &Block, from: u32, len: u32) -> Lease {
        let core = self.config.core;
        let record = self.record_of_block(block);
        record.check_known(from, len);
        record.frozen = record.frozen.max(record.filled.min(from + len));
        record.leases += 1;
        let (at, padding) = (record.at + u64::from(from), record.padding(from, len));
        self.outstanding.leases += 1;
        Lease { core, window: false, block: block.id, generation: block.generation, at, len, padding }
    }

    /// Another lease, on a part of one of this core's leases.
    ///
    /// # Panics
    /// Outside the lease, or when it is another core's.
    pub fn split(&mut self, lease: &Lease, from: u32, len: u32) -> Lease {
        lease.check_range(from, len);
        let record = self.record_of_lease(lease);
        record.leases += 1;
        let at = lease.at + u64::from(from);
        let padding = record.padding((at - record.at) as u32, len);
        self.outstanding.leases += 1;
        Lease { window: false, at, len, padding, ..*lease }
    }

    /// Gives a lease back.
    ///
    /// # Panics
    /// When it is another core's: those go home by `Message::Return`.
    pub fn release(&mut self, lease: Lease) {
        let record = self.record_of_lease(&lease);
        record.leases -= 1;
        self.outstanding.leases -= 1;
        self.settle(lease.block);
    }

    /// Turns a block into a lease of all of it, as [`Arena::into_window`].
    pub fn into_lease(&mut self, block: Block) -> Lease {
        let len = block.len;
        self.into_window(block, len)
    }

    /// Turns a block into a lease of its first `len` bytes: nobody writes them any more but the shell, and that only when
    /// no other lease was out (receive windows, blocks to read files into).
    ///
    /// # Panics
    /// Outside the block.
    pub fn into_window(&mut self, block: Block, len: u32) -> Lease {
        assert!(len <= block.len, "a window of {len} bytes of {block:?}");
        let core = self.config.core;
        let record = self.record_of_block(&block);
        let (at, window) = (record.at, record.leases == 0);
        record.writer = false;
        record.leases += 1;
        self.outstanding.leases += 1;
        let Block { id, generation, .. } = block;
        Lease { core, window, block: id, generation, at, len, padding: 0 }
    }

    /// Turns a lease into the block again, all its bytes writable, when it is the only reference and covers the block;
    /// else gives it back.
    ///
    /// # Panics
    /// When it is another core's.
    pub fn into_block(&mut self, lease: Lease) -> Result<Block, Lease> {
        let core = self.config.core;
        let record = self.record_of_lease(&lease);
        if record.writer || record.leases > 1 || lease.len != record.len {
            return Err(lease);
        }
        let len = record.len;
        *record = Record { writer: true, leases: 0, frozen: 0, filled: len, known: len, ..*record };
        self.outstanding.leases -= 1;
        Ok(Block { core, id: lease.block, generation: lease.generation, len })
    }

    /// How many leases are out on a block; a block with none and only stable bytes may be evicted.
    pub fn lease_count(&self, block: &Block) -> u32 {
        self.look_at_block(block).leases
    }

    /// Called on a timer: drops chunks that no block needed since the last call, or all free ones when the core is idle,
    /// but keeps one. A few per call; returns how many chunks were dropped, to call again soon when it is not 0.
    pub fn give_back(&mut self, now_idle: bool, changes: &mut Vec<ChunkChange>) -> u32 {
        let dropped = self.chunks.give_back(now_idle, changes);
        if self.outstanding.window_bytes > 0 || self.window_touched == 0 {
            return dropped;
        }
        let count = self.window_touched.div_ceil(CHUNK) as u32;
        self.window_touched = 0;
        changes.push(ChunkChange::DropWindow { first: self.config.chunks(), count });
        dropped + count
    }

    /// What is not given back yet.
    pub fn outstanding(&self) -> Outstanding {
        Outstanding { chunks: self.chunks.taken(), ..self.outstanding }
    }

    /// For the end of tests: everything was given back.
    ///
    /// # Panics
    /// When a block or a lease is out.
    pub fn assert_idle(&self) {
        self.invariants();
        let live: Vec<_> = self.records.iter().filter(|record| record.is_live()).take(8).collect();
        assert!(live.is_empty(), "{:?} left, among them {live:?}", self.outstanding());
    }

    /// Checks everything that can be computed twice.
    ///
    /// # Panics
    /// When something does not fit. Looks at every record and every chunk.
    pub fn invariants(&self) {
        self.chunks.invariants();
        let mut sums = Outstanding { chunks: self.chunks.taken(), ..Outstanding::default() };
        for record in self.records.iter().filter(|record| record.is_live()) {
            record.invariants();
            sums.blocks += 1;
            sums.leases += record.leases;
            match record.pool {
                Some(pool) => sums.pool_bytes[pool as usize] += u64::from(record.len),
                None => sums.window_bytes += u64::from(record.len),
            }
        }
        assert_eq!(sums, self.outstanding(), "sums of the records, and counts");
        for pool in Pool::ALL {
            let (bytes, owned) = (sums.bytes(pool), self.chunks.owned(pool));
            assert!(bytes <= u64::from(owned) * CHUNK, "{pool:?} has {bytes} bytes in {owned} chunks");
            assert_eq!(bytes > 0, owned > 0, "{pool:?} has {bytes} bytes in {owned} chunks");
        }
    }

    fn new_block(&mut self, at: u64, len: u32, pool: Option<Pool>) -> Block {
        if self.free == NONE {
            assert!(self.records.len() < self.records.capacity(), "{} blocks", self.records.len());
            self.free = self.records.len() as u32;
            self.records.push(Record::FREE);
        }
        let id = self.free;
        let record = &mut self.records[id as usize];
        self.free = record.next_free;
        *record = Record { at, len, pool, writer: true, generation: record.generation, ..Record::FREE };
        self.outstanding.blocks += 1;
        Block { core: self.config.core, id, generation: record.generation, len }
    }

    /// Frees the memory of a block that nobody refers to any more.
    fn settle(&mut self, id: u32) {
        let record = &mut self.records[id as usize];
        if record.is_live() {
            return;
        }
        let Record { at, len, pool, .. } = *record;
        record.generation = record.generation.wrapping_add(1);
        record.next_free = self.free;
        self.free = id;
        self.outstanding.blocks -= 1;
        match pool {
            Some(pool) => {
                self.chunks.free(pool, at, order_for(u64::from(len)));
                self.outstanding.pool_bytes[pool as usize] -= u64::from(len);
            }
            None => self.outstanding.window_bytes = 0,
        }
    }

    /// Where to write in the region.
    fn check_writable(&self, block: &Block, at: u32, len: usize) -> u64 {
        let record = self.look_at_block(block);
        let end = at as usize + len;
        assert!(end <= record.len as usize, "{len} bytes at {at} of {record:?}");
        assert!(len == 0 || at >= record.frozen, "bytes at {at} are promised: {record:?}");
        record.at + u64::from(at)
    }

    fn written(&mut self, block: &Block, end: u32) {
        let record = self.record_of_block(block);
        record.filled = record.filled.max(end);
        record.known = record.known.max(end);
    }

    fn look_at_block(&self, block: &Block) -> &Record {
        assert_eq!(block.core, self.config.core, "{block:?} is another core's");
        let record = &self.records[block.id as usize];
        assert!(record.writer && record.generation == block.generation, "{block:?} is not out: {record:?}");
        record
    }

    fn record_of_block(&mut self, block: &Block) -> &mut Record {
        self.look_at_block(block);
        &mut self.records[block.id as usize]
    }

    fn record_of_lease(&mut self, lease: &Lease) -> &mut Record {
        assert_eq!(lease.core, self.config.core, "{lease:?} is another core's; it goes home by Message::Return");
        let record = &mut self.records[lease.block as usize];
        let out = record.leases > 0 && record.generation == lease.generation;
        assert!(out, "{lease:?} is not out: {record:?}");
        let inside = record.at <= lease.at && lease.at + u64::from(lease.len) <= record.at + u64::from(record.len);
        assert!(inside, "{lease:?} is not inside {record:?}");
        record
    }
}

impl Record {
    const FREE: Record = Record {
        at: 0,
        len: 0,
        generation: 0,
        writer: false,
        leases: 0,
        filled: 0,
        known: 0,
        frozen: 0,
        pool: None,
        next_free: NONE,
    };

    fn check_known(&self, from: u32, len: u32) {
        let inside = from <= self.known && len <= self.known - from;
        assert!(inside, "{len} bytes from {from}, but only {} were written or zeroed: {self:?}", self.known);
    }

    fn invariants(&self) {
        let ordered = self.frozen <= self.filled && self.filled <= self.known && self.known <= self.len;
        assert!(ordered, "frozen, filled, known, length out of order: {self:?}");
    }
}

#[cfg(test)]
mod tests;
