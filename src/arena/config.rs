//! How large an arena is, and what each of its pools can always have.

use crate::ids::CoreId;
use crate::limits::CHUNK;

/// What memory is for. A pool cannot be starved by the others below its minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// Receive windows of clients and the tails of partitions.
    Produce,
    /// What arrives from leaders of replicated partitions.
    Replica,
    /// Scratch for reads of files.
    Reads,
}

impl Pool {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, in the order of their numbers.
    pub const ALL: [Pool; Pool::COUNT] = [Pool::Produce, Pool::Replica, Pool::Reads];
}

/// How large an arena is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaConfig {
    /// Whose arena it is.
    pub core: CoreId,
    /// Bytes for all blocks of the size classes; rounded down to chunks.
    pub budget_bytes: u64,
    /// The largest single receive window in bytes, in an area of its own behind the budget; 0 for none.
    pub window_bytes_max: u64,
    /// What each pool can always have.
    pub pools: PoolMinima,
}

impl ArenaConfig {
    /// Chunks of the budget.
    pub(super) fn chunks(&self) -> u32 {
        u32::try_from(self.budget_bytes / CHUNK).expect("arena budget in chunks")
    }

    /// Where the window area starts in the region.
    pub(super) fn window_at(&self) -> u64 {
        u64::from(self.chunks()) * CHUNK
    }
}

/// The minimum of each pool in bytes; rounded up to chunks, together at most the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolMinima {
    /// Of [`Pool::Produce`].
    pub produce_bytes: u64,
    /// Of [`Pool::Replica`].
    pub replica_bytes: u64,
    /// Of [`Pool::Reads`].
    pub reads_bytes: u64,
}

impl PoolMinima {
    /// A quarter of the budget each for produce and replica ingest and an eighth for reads, but at least a chunk each;
    /// the rest goes to whoever needs it first. The smallest budget for it is three chunks.
    pub fn of_budget(budget_bytes: u64) -> PoolMinima {
        let share = |divisor: u64| (budget_bytes / divisor / CHUNK).max(1) * CHUNK;
        PoolMinima { produce_bytes: share(4), replica_bytes: share(4), reads_bytes: share(8) }
    }

    /// In whole chunks, by the number of the pool.
    pub(super) fn chunks(&self) -> [u32; Pool::COUNT] {
        [self.produce_bytes, self.replica_bytes, self.reads_bytes]
            .map(|bytes| u32::try_from(bytes.div_ceil(CHUNK)).expect("pool minimum in chunks"))
    }
}
