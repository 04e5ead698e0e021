//! Two cores' arenas against a naive model: a list of allocations, a list of leases with the bytes they promise, and a
//! set of chunks. The model predicts every answer, the chunk of every allocation and every chunk change.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::{WINDOW_BYTES_MAX, arenas};
use crate::arena::{Arena, Block, ChunkChange, Lease, Pool, Regions};
use crate::limits::{BLOCK, CHUNK};

const CHUNKS: u32 = 5;
const CHUNK_BLOCKS: usize = (CHUNK / BLOCK) as usize;
/// Of `PoolMinima::of_budget` for so small a budget.
const MINIMUM_CHUNKS: u32 = 1;
const DROPS_MAX: usize = 8;

/// Picks of blocks and leases count modulo how many there are.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc { core: usize, pool: usize, order: u32, less: u64 },
    Window { core: usize, bytes: u64 },
    Write { block: usize, back: u32, len: u32 },
    Zero { block: usize, len: u32 },
    Copy { block: usize, lease: usize, from: u32, len: u32 },
    Lease { block: usize, from: u32, len: u32 },
    LeasePadded { block: usize },
    Free { block: usize },
    IntoLease { block: usize },
    Fill { lease: usize, at: u32, len: u32 },
    Split { lease: usize, from: u32, len: u32 },
    Release { lease: usize },
    IntoBlock { lease: usize },
    GiveBack { core: usize, now_idle: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0..64usize;
    let len = 0..100u32;
    prop_oneof![
        8 => (0..2usize, 0..3usize, prop_oneof![0..10u32, 7..10u32], 0..4096u64)
            .prop_map(|(core, pool, order, less)| Step::Alloc { core, pool, order, less }),
        1 => (0..2usize, 0..=WINDOW_BYTES_MAX).prop_map(|(core, bytes)| Step::Window { core, bytes }),
        6 => (pick.clone(), 0..20u32, len.clone()).prop_map(|(block, back, len)| Step::Write { block, back, len }),
        1 => (pick.clone(), len.clone()).prop_map(|(block, len)| Step::Zero { block, len }),
        2 => (pick.clone(), pick.clone(), len.clone(), len.clone())
            .prop_map(|(block, lease, from, len)| Step::Copy { block, lease, from, len }),
        4 => (pick.clone(), len.clone(), len.clone()).prop_map(|(block, from, len)| Step::Lease { block, from, len }),
        2 => pick.clone().prop_map(|block| Step::LeasePadded { block }),
        4 => pick.clone().prop_map(|block| Step::Free { block }),
        2 => pick.clone().prop_map(|block| Step::IntoLease { block }),
        2 => (pick.clone(), len.clone(), len.clone()).prop_map(|(lease, at, len)| Step::Fill { lease, at, len }),
        3 => (pick.clone(), len.clone(), len.clone()).prop_map(|(lease, from, len)| Step::Split { lease, from, len }),
        6 => pick.clone().prop_map(|lease| Step::Release { lease }),
        2 => pick.prop_map(|lease| Step::IntoBlock { lease }),
        2 => (0..2usize, any::<bool>()).prop_map(|(core, now_idle)| Step::GiveBack { core, now_idle }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arenas_do_what_the_naive_model_does(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        world.give_everything_back();
    }
}

/// An allocation with a writer, a lease, or both.
struct Allocation {
    core: usize,
    pool: Option<Pool>,
    at: u64,
    len: u32,
    writer: Option<Block>,
    leases: u32,
    /// The first bytes, as far as the model follows them.
    image: Vec<u8>,
    filled: u32,
    known: u32,
    frozen: u32,
}

/// A lease and the bytes that it must show, from its first one on.
struct Promise {
    lease: Lease,
    /// Index of its allocation.
    of: usize,
    bytes: Vec<u8>,
    window: bool,
}

/// What a core's chunks must look like.
#[derive(Default)]
struct CoreModel {
    taken: BTreeSet<u32>,
    idle_low: usize,
    window_touched: u64,
}

struct World {
    regions: Arc<Regions>,
    arenas: Vec<Arena>,
    cores: Vec<CoreModel>,
    /// Freed ones stay as `None`, so that indices stay.
    allocations: Vec<Option<Allocation>>,
    promises: Vec<Promise>,
    next_byte: u8,
}

impl World {
    fn new() -> World {
        let (regions, arenas) = arenas(2, u64::from(CHUNKS));
        let cores = vec![CoreModel::default(), CoreModel::default()];
        World { regions, arenas, cores, allocations: Vec::new(), promises: Vec::new(), next_byte: 1 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc { core, pool, order, less } => self.alloc(core, Pool::ALL[pool], (BLOCK << order) - less),
            Step::Window { core, bytes } => self.alloc_window(core, bytes),
            Step::GiveBack { core, now_idle } => self.give_back(core, now_idle),
            Step::Write { block, .. }
            | Step::Zero { block, .. }
            | Step::Lease { block, .. }
            | Step::LeasePadded { block }
            | Step::Free { block }
            | Step::IntoLease { block } => {
                if let Some(index) = self.pick_block(block) {
                    self.on_block(index, step);
                }
            }
            Step::Copy { block, lease, from, len } => {
                if let (Some(block), Some(lease)) = (self.pick_block(block), self.pick_lease(lease)) {
                    self.copy(block, lease, from, len);
                }
            }
            Step::Fill { lease, .. }
            | Step::Split { lease, .. }
            | Step::Release { lease }
            | Step::IntoBlock { lease } => {
                if let Some(index) = self.pick_lease(lease) {
                    self.on_lease(index, step);
                }
            }
        }
    }

    fn on_block(&mut self, index: usize, step: Step) {
        match step {
            Step::Write { back, len, .. } => self.write(index, back, len),
            Step::Zero { len, .. } => self.zero(index, len),
            Step::Lease { from, len, .. } => {
                let known = self.allocation(index).known;
                let from = from.min(known);
                self.lease(index, from, len.min(known - from));
            }
            Step::LeasePadded { .. } => self.lease_padded(index),
            Step::Free { .. } => self.free(index),
            _ => self.turn_into_lease(index),
        }
    }

    fn on_lease(&mut self, index: usize, step: Step) {
        match step {
            Step::Fill { at, len, .. } => self.fill(index, at, len),
            Step::Split { from, len, .. } => self.split(index, from, len),
            Step::Release { .. } => {
                let promise = self.promises.swap_remove(index);
                self.release(promise);
            }
            _ => self.turn_into_block(index),
        }
    }

    fn alloc(&mut self, core: usize, pool: Pool, bytes: u64) {
        let len = bytes.max(BLOCK).next_power_of_two();
        let expected = self.expected_chunk(core, pool, len);
        let mut changes = Vec::new();
        let block = self.arenas[core].alloc(pool, bytes, &mut changes);
        assert_eq!(block.is_some(), expected.is_some(), "{bytes} bytes for {pool:?} expected in {expected:?}");
        let (Some(block), Some(chunk)) = (block, expected) else {
            assert_eq!(changes, [], "nothing was taken");
            return;
        };
        let take = self.cores[core].taken.insert(chunk).then_some(ChunkChange::Take { index: chunk });
        assert_eq!(changes, Vec::from_iter(take));
        assert_eq!(u64::from(block.len()), len);
        let at = self.arenas[core].records[block.id as usize].at;
        assert_eq!((at / CHUNK, at % len), (u64::from(chunk), 0), "{len} bytes at {at}");
        assert!(!self.overlaps(core, at, len), "{len} bytes at {at} are another block's");
        self.add(core, Some(pool), at, block);
    }

    fn alloc_window(&mut self, core: usize, bytes: u64) {
        let taken = self.live(core).any(|allocation| allocation.pool.is_none());
        let block = self.arenas[core].alloc_window(bytes);
        assert_eq!(block.is_none(), taken);
        let Some(block) = block else { return };
        let touched = &mut self.cores[core].window_touched;
        *touched = (*touched).max(u64::from(block.len()));
        assert_eq!(u64::from(block.len()), bytes.max(1).next_multiple_of(BLOCK));
        self.add(core, None, u64::from(CHUNKS) * CHUNK, block);
    }

    fn add(&mut self, core: usize, pool: Option<Pool>, at: u64, block: Block) {
        let len = block.len();
        let writer = Some(block);
        let image = Vec::new();
        let allocation = Allocation { core, pool, at, len, writer, leases: 0, image, filled: 0, known: 0, frozen: 0 };
        self.allocations.push(Some(allocation));
    }

    fn give_back(&mut self, core: usize, now_idle: bool) {
        let owned: BTreeSet<u32> = self.live(core).filter_map(Allocation::chunk).collect();
        let model = &mut self.cores[core];
        let idle: Vec<u32> = model.taken.difference(&owned).copied().collect();
        let unneeded = if now_idle { idle.len() } else { model.idle_low };
        let count = unneeded.min(model.taken.len().saturating_sub(1)).min(DROPS_MAX);
        let dropped = &idle[idle.len() - count..];
        let mut expected: Vec<_> = dropped.iter().rev().map(|&index| ChunkChange::Drop { index }).collect();
        dropped.iter().for_each(|index| assert!(model.taken.remove(index)));
        model.idle_low = idle.len() - count;
        let touched = model.window_touched;
        if touched > 0 && self.live(core).all(|allocation| allocation.pool.is_some()) {
            self.cores[core].window_touched = 0;
            expected.push(ChunkChange::DropWindow { first: CHUNKS, count: touched.div_ceil(CHUNK) as u32 });
        }
        let mut changes = Vec::new();
        self.arenas[core].give_back(now_idle, &mut changes);
        assert_eq!(changes, expected);
    }

    fn write(&mut self, index: usize, back: u32, len: u32) {
        let bytes: Vec<u8> = (0..len).map(|_| self.fresh_byte()).collect();
        let allocation = self.allocations[index].as_mut().unwrap();
        // The model follows bytes only from the start of a block without gaps.
        let at = allocation.frozen.max((allocation.image.len() as u32).saturating_sub(back));
        if at > allocation.image.len() as u32 || at + len > allocation.len {
            return;
        }
        self.arenas[allocation.core].write(allocation.writer.as_mut().unwrap(), at, &bytes);
        allocation.wrote(at, &bytes);
    }

    fn zero(&mut self, index: usize, len: u32) {
        let allocation = self.allocations[index].as_mut().unwrap();
        let from = allocation.filled;
        let to = (from + len).min(allocation.len);
        self.arenas[allocation.core].zero(allocation.writer.as_mut().unwrap(), from, to);
        allocation.known = allocation.known.max(to);
    }

    fn copy(&mut self, index: usize, lease: usize, from: u32, len: u32) {
        let promise = &self.promises[lease];
        let from = from.min(promise.bytes.len() as u32);
        let len = len.min(promise.bytes.len() as u32 - from);
        let bytes = promise.bytes[from as usize..(from + len) as usize].to_vec();
        let allocation = self.allocations[index].as_mut().unwrap();
        let at = allocation.image.len() as u32;
        if at < allocation.frozen || at + len > allocation.len {
            return;
        }
        let writer = allocation.writer.as_mut().unwrap();
        self.arenas[allocation.core].copy(writer, at, &promise.lease, from, len);
        allocation.wrote(at, &bytes);
    }

    fn lease(&mut self, index: usize, from: u32, len: u32) {
        let allocation = self.allocations[index].as_mut().unwrap();
        let lease = self.arenas[allocation.core].lease(allocation.writer.as_ref().unwrap(), from, len);
        assert_eq!((lease.at(), lease.len()), (allocation.at + u64::from(from), len));
        allocation.frozen = allocation.frozen.max((from + len).min(allocation.filled));
        allocation.leases += 1;
        let bytes = allocation.image_part(from, len);
        self.promises.push(Promise { lease, of: index, bytes, window: false });
    }

    /// As for a device write: zeros up to the next boundary, and a lease of everything up to there.
    fn lease_padded(&mut self, index: usize) {
        let allocation = self.allocation(index);
        let end = u64::from(allocation.filled).next_multiple_of(BLOCK) as u32;
        self.zero(index, end - self.allocation(index).filled);
        self.lease(index, 0, end);
    }

    fn free(&mut self, index: usize) {
        let allocation = self.allocations[index].as_mut().unwrap();
        self.arenas[allocation.core].free(allocation.writer.take().unwrap());
        self.forget_unused(index);
    }

    fn turn_into_lease(&mut self, index: usize) {
        let allocation = self.allocations[index].as_mut().unwrap();
        let window = allocation.leases == 0;
        let lease = self.arenas[allocation.core].into_lease(allocation.writer.take().unwrap());
        assert_eq!((lease.at(), lease.len()), (allocation.at, allocation.len));
        allocation.leases += 1;
        let bytes = allocation.image.clone();
        self.promises.push(Promise { lease, of: index, bytes, window });
    }

    fn fill(&mut self, index: usize, at: u32, len: u32) {
        let bytes: Vec<u8> = (0..len).map(|_| self.fresh_byte()).collect();
        let promise = &mut self.promises[index];
        let allocation = self.allocations[promise.of].as_mut().unwrap();
        let at = at.min(promise.bytes.len() as u32);
        if !promise.window || allocation.leases > 1 || at + len > allocation.len {
            return;
        }
        self.regions.fill(&mut promise.lease, at, &bytes);
        let end = at as usize + bytes.len();
        promise.bytes.resize(promise.bytes.len().max(end), 0);
        promise.bytes[at as usize..end].copy_from_slice(&bytes);
    }

    fn split(&mut self, index: usize, from: u32, len: u32) {
        let promise = &self.promises[index];
        let allocation = self.allocations[promise.of].as_mut().unwrap();
        let from = from.min(promise.lease.len());
        let len = len.min(promise.lease.len() - from);
        let lease = self.arenas[allocation.core].split(&promise.lease, from, len);
        assert_eq!((lease.at(), lease.len()), (promise.lease.at() + u64::from(from), len));
        allocation.leases += 1;
        let known = promise.bytes.len() as u32;
        let bytes = promise.bytes[from.min(known) as usize..(from + len).min(known) as usize].to_vec();
        self.promises.push(Promise { lease, of: promise.of, bytes, window: false });
    }

    fn release(&mut self, promise: Promise) {
        let allocation = self.allocations[promise.of].as_mut().unwrap();
        allocation.leases -= 1;
        self.arenas[allocation.core].release(promise.lease);
        self.forget_unused(promise.of);
    }

    fn turn_into_block(&mut self, index: usize) {
        let promise = self.promises.swap_remove(index);
        let allocation = self.allocations[promise.of].as_mut().unwrap();
        let alone = allocation.writer.is_none() && allocation.leases == 1;
        let expected = alone && promise.lease.len() == allocation.len;
        match self.arenas[allocation.core].into_block(promise.lease) {
            Ok(block) => {
                assert!(expected, "a block from a lease that is not the only one or not of all");
                let len = allocation.len;
                (allocation.filled, allocation.known, allocation.frozen) = (len, len, 0);
                (allocation.writer, allocation.leases, allocation.image) = (Some(block), 0, promise.bytes);
            }
            Err(lease) => {
                assert!(!expected, "no block from the only lease");
                self.promises.push(Promise { lease, ..promise });
            }
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        for (core, arena) in self.arenas.iter().enumerate() {
            arena.invariants();
            let outstanding = arena.outstanding();
            assert_eq!(outstanding.blocks as usize, self.live(core).count());
            assert_eq!(outstanding.leases, self.live(core).map(|allocation| allocation.leases).sum::<u32>());
            assert_eq!(outstanding.chunks as usize, self.cores[core].taken.len());
            let owned: BTreeSet<u32> = self.live(core).filter_map(Allocation::chunk).collect();
            assert!(owned.is_subset(&self.cores[core].taken), "a block in a chunk that was dropped");
            let idle = self.cores[core].taken.len() - owned.len();
            self.cores[core].idle_low = self.cores[core].idle_low.min(idle);
        }
        for promise in &self.promises {
            let shown = self.regions.bytes_of(&promise.lease, 0, promise.bytes.len() as u32);
            assert_eq!(shown, promise.bytes, "bytes of {:?} changed", promise.lease);
        }
    }

    fn give_everything_back(mut self) {
        for promise in std::mem::take(&mut self.promises) {
            self.release(promise);
        }
        for index in 0..self.allocations.len() {
            if self.allocations[index].is_some() {
                self.free(index);
            }
        }
        self.check();
        for core in 0..self.arenas.len() {
            self.arenas[core].assert_idle();
            self.give_back(core, true);
            assert!(self.arenas[core].outstanding().chunks <= 1, "one chunk stays");
        }
    }

    /// The lowest chunk of the pool with a hole; else, when the other pools keep their minima, the lowest idle chunk;
    /// else the lowest that is not taken.
    fn expected_chunk(&self, core: usize, pool: Pool, len: u64) -> Option<u32> {
        let owner = |chunk| self.live(core).find(|one| one.chunk() == Some(chunk)).and_then(|one| one.pool);
        let owners: Vec<Option<Pool>> = (0..CHUNKS).map(owner).collect();
        let used = self.used_blocks(core);
        let has_hole = |chunk: u32| {
            let in_chunk = &used[chunk as usize * CHUNK_BLOCKS..(chunk as usize + 1) * CHUNK_BLOCKS];
            in_chunk.chunks((len / BLOCK) as usize).any(|hole| !hole.contains(&true))
        };
        let own = (0..CHUNKS).find(|&chunk| owners[chunk as usize] == Some(pool) && has_hole(chunk));
        let owned = |one: Pool| owners.iter().filter(|&&owner| owner == Some(one)).count() as u32;
        let wanted = |one: Pool| (owned(one) + u32::from(one == pool)).max(MINIMUM_CHUNKS);
        let may_grow = Pool::ALL.into_iter().map(wanted).sum::<u32>() <= CHUNKS;
        let free = || (0..CHUNKS).filter(|&chunk| owners[chunk as usize].is_none());
        let idle = || free().find(|chunk| self.cores[core].taken.contains(chunk));
        own.or_else(|| may_grow.then(|| idle().or_else(|| free().next()).expect("a chunk is left")))
    }

    /// For each 4 KiB of the chunks, whether an allocation holds it.
    fn used_blocks(&self, core: usize) -> Vec<bool> {
        let mut used = vec![false; CHUNKS as usize * CHUNK_BLOCKS];
        for one in self.live(core).filter(|one| one.pool.is_some()) {
            let first = (one.at / BLOCK) as usize;
            used[first..first + (u64::from(one.len) / BLOCK) as usize].fill(true);
        }
        used
    }

    fn overlaps(&self, core: usize, at: u64, len: u64) -> bool {
        self.live(core).any(|one| one.at < at + len && at < one.at + u64::from(one.len))
    }

    fn live(&self, core: usize) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().flatten().filter(move |allocation| allocation.core == core)
    }

    fn allocation(&self, index: usize) -> &Allocation {
        self.allocations[index].as_ref().unwrap()
    }

    fn forget_unused(&mut self, index: usize) {
        let allocation = self.allocation(index);
        if allocation.writer.is_none() && allocation.leases == 0 {
            self.allocations[index] = None;
        }
    }

    fn pick_block(&self, pick: usize) -> Option<usize> {
        let writable = |one: &Option<Allocation>| one.as_ref().is_some_and(|one| one.writer.is_some());
        let blocks: Vec<usize> =
            (0..self.allocations.len()).filter(|&index| writable(&self.allocations[index])).collect();
        (!blocks.is_empty()).then(|| blocks[pick % blocks.len()])
    }

    fn pick_lease(&self, pick: usize) -> Option<usize> {
        (!self.promises.is_empty()).then(|| pick % self.promises.len())
    }

    fn fresh_byte(&mut self) -> u8 {
        self.next_byte = self.next_byte.wrapping_add(1);
        self.next_byte
    }
}

impl Allocation {
    fn chunk(&self) -> Option<u32> {
        self.pool.map(|_| (self.at / CHUNK) as u32)
    }

    fn wrote(&mut self, at: u32, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        self.image.resize(self.image.len().max(end), 0);
        self.image[at as usize..end].copy_from_slice(bytes);
        self.filled = self.filled.max(end as u32);
        self.known = self.known.max(end as u32);
    }

    fn image_part(&self, from: u32, len: u32) -> Vec<u8> {
        let known = self.image.len() as u32;
        self.image[from.min(known) as usize..(from + len).min(known) as usize].to_vec()
    }
}
