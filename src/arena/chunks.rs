//! Which bytes of the budgeted chunks are free: a buddy tree in each chunk, and over the chunks one tree per pool that
//! finds the lowest chunk with room.
//!
//! A chunk belongs to one pool as long as it holds a block; so a pool that owns fewer chunks than its minimum can
//! always have another, whole and unfragmented, whatever the other pools do. Allocations go to the lowest chunk with
//! room, so that the highest ones drain and can be given back.

use crate::arena::{ChunkChange, Pool};
use crate::limits::{BLOCK, CHUNK};

/// Size classes: 4 KiB << order.
pub(super) const ORDER_MAX: u8 = (CHUNK / BLOCK).trailing_zeros() as u8;
/// Tree nodes of one chunk; node 1 is the chunk, node `n` has the halves `2n` and `2n + 1`.
const NODES: usize = 2 * (CHUNK / BLOCK) as usize;
/// Chunks that one `give_back` drops at most, so that a turn stays short.
const DROPS_PER_CALL_MAX: u32 = 8;

const _: () = assert!(CHUNK == BLOCK << ORDER_MAX);

/// The smallest size class that holds `bytes`.
pub(super) fn order_for(bytes: u64) -> u8 {
    (bytes.max(1).div_ceil(BLOCK)).next_power_of_two().trailing_zeros() as u8
}

/// Bytes of a size class.
pub(super) fn order_bytes(order: u8) -> u64 {
    BLOCK << order
}

/// The budgeted chunks of one arena.
#[derive(Debug)]
pub(super) struct Chunks {
    count: u32,
    minima: [u32; Pool::COUNT],
    owned: [u32; Pool::COUNT],
    /// For each node of each chunk: largest free order below it plus one, 0 when nothing is free.
    nodes: Vec<u8>,
    /// For each pool: root value of the chunks that it owns.
    rooms: [MaxTree; Pool::COUNT],
    /// Chunks taken and wholly free.
    idle: MaxTree,
    /// Chunks not taken.
    absent: MaxTree,
    taken: u32,
    /// Fewest idle chunks since the last `give_back`: those were not needed.
    idle_low: u32,
}

impl Chunks {
    /// `count` chunks of which none is taken yet, with the pools' minima in chunks.
    pub(super) fn new(count: u32, minima: [u32; Pool::COUNT]) -> Chunks {
        let promised: u32 = minima.iter().sum();
        assert!(promised <= count, "pool minima of {promised} chunks in a budget of {count}");
        let leaves = count as usize;
        let mut absent = MaxTree::new(leaves);
        (0..leaves).for_each(|chunk| absent.set(chunk, 1));
        Chunks {
            count,
            minima,
            owned: [0; Pool::COUNT],
            nodes: vec![0; leaves * NODES],
            rooms: [MaxTree::new(leaves), MaxTree::new(leaves), MaxTree::new(leaves)],
            idle: MaxTree::new(leaves),
            absent,
            taken: 0,
            idle_low: 0,
        }
    }

    /// Chunks whose memory is in use or kept ready.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Chunks that hold blocks of a pool.
    pub(super) fn owned(&self, pool: Pool) -> u32 {
        self.owned[pool as usize]
    }

    /// Takes a block of a size class; `None` when the pool may not grow.
    pub(super) fn alloc(&mut self, pool: Pool, order: u8, changes: &mut Vec<ChunkChange>) -> Option<u64> {
        assert!(order <= ORDER_MAX, "size class {order}");
        let chunk = match self.rooms[pool as usize].first(order + 1) {
            Some(chunk) => chunk,
            None => self.grow(pool, changes)?,
        };
        let node = self.find(chunk, order);
        self.set_node(chunk, node, 0);
        self.rooms[pool as usize].set(chunk, self.root(chunk));
        let index = node - (1 << (ORDER_MAX - order));
        Some(chunk as u64 * CHUNK + index as u64 * order_bytes(order))
    }

    /// Gives a block back.
    pub(super) fn free(&mut self, pool: Pool, at: u64, order: u8) {
        let chunk = (at / CHUNK) as usize;
        let node = (1 << (ORDER_MAX - order)) + (at % CHUNK / order_bytes(order)) as usize;
        let value = self.nodes[chunk * NODES + node];
        assert_eq!(value, 0, "block of order {order} at {at} is free already");
        self.set_node(chunk, node, order + 1);
        if self.root(chunk) <= ORDER_MAX {
            self.rooms[pool as usize].set(chunk, self.root(chunk));
            return;
        }
        self.rooms[pool as usize].set(chunk, 0);
        self.owned[pool as usize] -= 1;
        self.idle.set(chunk, 1);
    }

    /// Drops idle chunks, the highest first, a few per call, and never the last one taken: all of them when the core
    /// is idle, else only those that were idle ever since the last call. Returns how many.
    pub(super) fn give_back(&mut self, now_idle: bool, changes: &mut Vec<ChunkChange>) -> u32 {
        let unneeded = if now_idle { self.idle_count() } else { self.idle_low };
        let count = unneeded.min(self.taken.saturating_sub(1)).min(DROPS_PER_CALL_MAX);
        for _ in 0..count {
            let chunk = self.idle.last(1).expect("idle chunks were counted");
            self.idle.set(chunk, 0);
            self.absent.set(chunk, 1);
            changes.push(ChunkChange::Drop { index: chunk as u32 });
        }
        self.taken -= count;
        self.idle_low = self.idle_count();
        count
    }

    /// Checks everything that can be computed twice.
    ///
    /// # Panics
    /// When something does not fit. Looks at every node.
    pub(super) fn invariants(&self) {
        let promised: u32 = (0..Pool::COUNT).map(|pool| self.minima[pool].max(self.owned[pool])).sum();
        assert!(promised <= self.count, "{:?} chunks owned, minima {:?}, of {}", self.owned, self.minima, self.count);
        let owned: u32 = self.owned.iter().sum();
        assert!(owned <= self.taken && self.taken <= self.count, "{owned} owned, {} taken", self.taken);
        assert!(self.idle_low <= self.idle_count(), "{} idle, lowest {}", self.idle_count(), self.idle_low);
        for chunk in 0..self.count as usize {
            let rooms = self.rooms.each_ref().map(|tree| tree.value(chunk));
            let (idle, absent) = (self.idle.value(chunk), self.absent.value(chunk));
            let root = if absent == 1 { 0 } else { self.root(chunk) };
            assert_eq!(idle == 1, root == ORDER_MAX + 1, "chunk {chunk} idle {idle}, room {root}");
            let shown = rooms.iter().filter(|&&room| room > 0).count();
            let expected = usize::from(root > 0 && idle == 0);
            assert_eq!(shown, expected, "chunk {chunk} with room {root} shown as {rooms:?}");
            if absent == 0 {
                (1..NODES / 2).for_each(|node| self.check_node(chunk, node));
            }
        }
    }

    /// A whole chunk for a pool: an idle one, else one that is not taken yet.
    fn grow(&mut self, pool: Pool, changes: &mut Vec<ChunkChange>) -> Option<usize> {
        if !self.may_grow(pool) {
            return None;
        }
        let chunk = match self.idle.first(1) {
            Some(chunk) => chunk,
            None => self.take(changes),
        };
        self.idle.set(chunk, 0);
        self.idle_low = self.idle_low.min(self.idle_count() - 1);
        self.owned[pool as usize] += 1;
        Some(chunk)
    }

    /// Whether a pool may own one more chunk and every other one can still have its minimum.
    fn may_grow(&self, pool: Pool) -> bool {
        let after = |other: usize| {
            let owned = self.owned[other] + u32::from(other == pool as usize);
            owned.max(self.minima[other])
        };
        (0..Pool::COUNT).map(after).sum::<u32>() <= self.count
    }

    /// Takes the lowest absent chunk, wholly free.
    fn take(&mut self, changes: &mut Vec<ChunkChange>) -> usize {
        let chunk = self.absent.first(1).expect("the pools own fewer chunks than there are");
        self.absent.set(chunk, 0);
        self.taken += 1;
        let nodes = &mut self.nodes[chunk * NODES..(chunk + 1) * NODES];
        for level in 0..=ORDER_MAX {
            nodes[1 << level..2 << level].fill(ORDER_MAX - level + 1);
        }
        changes.push(ChunkChange::Take { index: chunk as u32 });
        chunk
    }

    /// The free node of a size class in a chunk that has one, in the tighter half at every step.
    fn find(&self, chunk: usize, order: u8) -> usize {
        let nodes = &self.nodes[chunk * NODES..(chunk + 1) * NODES];
        let mut node = 1;
        for _ in order..ORDER_MAX {
            let (left, right) = (nodes[2 * node], nodes[2 * node + 1]);
            let fits_left = left > order;
            node = 2 * node + usize::from(!fits_left || (right > order && right < left));
        }
        assert!(nodes[node] == order + 1, "chunk {chunk} has no free block of order {order}: {}", nodes[node]);
        node
    }

    /// Sets a node and what changes above it. Two wholly free halves are one free whole again.
    fn set_node(&mut self, chunk: usize, mut node: usize, value: u8) {
        let nodes = &mut self.nodes[chunk * NODES..(chunk + 1) * NODES];
        nodes[node] = value;
        while node > 1 {
            node /= 2;
            let joined = joined(nodes[2 * node], nodes[2 * node + 1], node);
            if std::mem::replace(&mut nodes[node], joined) == joined {
                return;
            }
        }
    }

    fn check_node(&self, chunk: usize, node: usize) {
        let nodes = &self.nodes[chunk * NODES..(chunk + 1) * NODES];
        let joined = joined(nodes[2 * node], nodes[2 * node + 1], node);
        // A node taken as a whole has 0, whatever its halves were before.
        assert!(nodes[node] == joined || nodes[node] == 0, "node {node} of chunk {chunk} is {}", nodes[node]);
    }

    fn root(&self, chunk: usize) -> u8 {
        self.nodes[chunk * NODES + 1]
    }

    fn idle_count(&self) -> u32 {
        self.taken - self.owned.iter().sum::<u32>()
    }
}

/// The value of a node from its halves'.
fn joined(left: u8, right: u8, node: usize) -> u8 {
    let order = ORDER_MAX - node.ilog2() as u8;
    if left == order && right == order { order + 1 } else { left.max(right) }
}

/// For each leaf a small number; finds the first or last leaf with at least some number in one step per level.
#[derive(Debug)]
struct MaxTree {
    leaves: usize,
    nodes: Vec<u8>,
}

impl MaxTree {
    fn new(leaves: usize) -> MaxTree {
        let leaves = leaves.next_power_of_two();
        MaxTree { leaves, nodes: vec![0; 2 * leaves] }
    }

    fn value(&self, leaf: usize) -> u8 {
        self.nodes[self.leaves + leaf]
    }

    fn set(&mut self, leaf: usize, value: u8) {
        let mut node = self.leaves + leaf;
        self.nodes[node] = value;
        while node > 1 {
            node /= 2;
            let max = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
            if std::mem::replace(&mut self.nodes[node], max) == max {
                return;
            }
        }
    }

    fn first(&self, at_least: u8) -> Option<usize> {
        self.search(at_least, |left, _| left >= at_least)
    }

    fn last(&self, at_least: u8) -> Option<usize> {
        self.search(at_least, |_, right| right < at_least)
    }

    fn search(&self, at_least: u8, goes_left: impl Fn(u8, u8) -> bool) -> Option<usize> {
        if self.nodes[1] < at_least {
            return None;
        }
        let mut node = 1;
        while node < self.leaves {
            let left = goes_left(self.nodes[2 * node], self.nodes[2 * node + 1]);
            node = 2 * node + usize::from(!left);
        }
        Some(node - self.leaves)
    }
}
