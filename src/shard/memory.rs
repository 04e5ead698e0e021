//! Memory under pressure: what is on the device already leaves the arena, oldest first, before anybody is refused.

use std::collections::VecDeque;

use crate::arena::{Block, ChunkChange, Pool};
use crate::ids::MonoMicros;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};

/// What a core knows of its memory beyond the arena.
#[derive(Debug, Default)]
pub struct MemoryState {
    /// Partition slots in the order in which their blocks were taken; a slot stands here once for each block.
    residents: VecDeque<u32>,
    changes: Vec<ChunkChange>,
    logged_at: Option<MonoMicros>,
    disk_low: bool,
    no_space: bool,
}

/// Least time between two log lines about what clients do wrong.
const LOG_INTERVAL_US: u64 = 1_000_000;

impl MemoryState {
    /// Whether a line about a client's fault may be logged now; at most one a second.
    pub fn may_log(&mut self, now: MonoMicros) -> bool {
        let may = self.logged_at.is_none_or(|at| now.micros_since(at) >= LOG_INTERVAL_US);
        if may {
            self.logged_at = Some(now);
        }
        may
    }

    /// Whether producers are refused for want of disk space.
    pub fn is_disk_low(&self) -> bool {
        self.disk_low || self.no_space
    }

    /// A data directory is below, or above again, `log.min.free.bytes`.
    pub fn set_disk_low(&mut self, low: bool) {
        self.disk_low = low;
    }

    /// A file found, or did not find any more, the disk full.
    pub fn set_no_space(&mut self, full: bool) {
        self.no_space = full;
    }

    /// A partition took `count` blocks for its tail.
    pub fn note_blocks(&mut self, slot: u32, count: usize) {
        self.residents.extend(std::iter::repeat_n(slot, count));
    }

    /// Changes of the arena's chunks that the shell has not been told of.
    pub fn changes(&mut self) -> &mut Vec<ChunkChange> {
        &mut self.changes
    }
}

impl Shard {
    /// A block of a pool; older tails leave memory for it. `None` when nothing can leave now.
    pub(super) fn alloc(&mut self, pool: Pool, bytes: u64, out: &mut Actions) -> Option<Block> {
        loop {
            let block = self.arena.alloc(pool, bytes, self.pressure.changes());
            self.tell_changes(out);
            if block.is_some() || !self.evict_one() {
                return block;
            }
        }
    }

    /// The one window for a frame beyond a chunk.
    pub(super) fn alloc_large(&mut self, bytes: u64) -> Option<Block> {
        self.arena.alloc_window(bytes)
    }

    /// Takes one block that is on the device out of memory. Returns false when none is.
    pub(super) fn evict_one(&mut self) -> bool {
        for _ in 0..self.pressure.residents.len() {
            let slot = self.pressure.residents.pop_front().expect("counted");
            let Some(partition) = self.partitions.by_slot(slot) else { continue };
            if partition.evict_oldest(&mut self.arena) {
                return true;
            }
            if partition.blocks_held() > 0 {
                self.pressure.residents.push_back(slot);
            }
        }
        false
    }

    /// Passes chunk changes on, ahead of the writes that need them.
    pub(super) fn tell_changes(&mut self, out: &mut Actions) {
        out.extend(self.pressure.changes.drain(..).map(|change| Action::Chunk { change }));
    }
}
