//! Appends on the core that owns the partition, in the order in which they arrive.
//!
//! When the arena is full an append waits here, and all later ones behind it, until writes complete and blocks leave
//! memory: nothing is refused for want of memory, and nothing overtakes.

use std::collections::VecDeque;

use crate::arena::Pool;
use crate::ids::Now;
use crate::kafka::error_code::ErrorCode;
use crate::metrics::ProduceStage;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};
use crate::shard::message::{AppendAsk, AppendOutcome, Message, Origin, Peer};
use crate::shard::partition::AppendStep;

/// Appends that wait for memory.
#[derive(Debug, Default)]
pub struct Appends {
    waiting: VecDeque<AppendAsk>,
    /// Answers let out by one `settle`, kept for its capacity.
    pub(super) settled: Vec<(Origin, AppendOutcome)>,
}

impl Shard {
    /// An append for a partition of this core, from here or from another core.
    pub(super) fn on_append(&mut self, now: Now, ask: AppendAsk, out: &mut Actions) {
        if self.appends.waiting.is_empty() {
            self.append_or_wait(now, ask, out);
        } else {
            self.appends.waiting.push_back(ask);
        }
    }

    /// Tries again what waited for memory, in order.
    pub(super) fn retry_appends(&mut self, now: Now, out: &mut Actions) {
        for _ in 0..self.appends.waiting.len() {
            let ask = self.appends.waiting.pop_front().expect("counted");
            if !self.append_or_wait(now, ask, out) {
                // It stands at the end now; it belongs to the front.
                self.appends.waiting.rotate_right(1);
                return;
            }
        }
    }

    /// How many appends wait for memory.
    pub(super) fn appends_waiting(&self) -> usize {
        self.appends.waiting.len()
    }

    /// Returns false when the append had to wait.
    fn append_or_wait(&mut self, now: Now, ask: AppendAsk, out: &mut Actions) -> bool {
        let memory = self.memory.clone();
        let bytes = memory.bytes(&ask.records);
        let slot = self.partitions.slot(ask.partition);
        let step = match slot {
            Some(slot) => self.append(now, slot, &ask, bytes, out),
            None => AppendStep::Refused { code: self.view.not_hosted(ask.partition), message: None },
        };
        match step {
            AppendStep::Full => {
                self.metrics.count.appends_waited += 1;
                self.appends.waiting.push_back(ask);
                return false;
            }
            AppendStep::Held => {}
            // No write that is out may be what its promise waits for.
            AppendStep::Known => self.settle(now, slot.expect("it was found there"), out),
            AppendStep::Appended(outcome) => self.deliver_append(now, ask.origin, outcome, out),
            AppendStep::Refused { code, message } => {
                let outcome = AppendOutcome::Refused { code, message, leader: None };
                self.deliver_append(now, ask.origin, outcome, out);
            }
        }
        self.give_back(ask.records, out);
        true
    }

    fn append(&mut self, now: Now, slot: u32, ask: &AppendAsk, bytes: &[u8], out: &mut Actions) -> AppendStep {
        if self.pressure.is_disk_low() {
            return AppendStep::Refused { code: ErrorCode::KAFKA_STORAGE_ERROR, message: Some(DISK_LOW) };
        }
        if bytes.len() as u64 > self.config.arena.budget_bytes / 4 {
            return AppendStep::Refused { code: ErrorCode::MESSAGE_TOO_LARGE, message: Some(LARGER_THAN_ARENA) };
        }
        self.make_room(slot, bytes.len() as u64, out);
        loop {
            let partition = self.partitions.by_slot(slot).expect("found by its id");
            let (before, end) = (partition.blocks_held(), partition.offsets.end());
            let step = partition.append(now, ask, bytes, &mut self.arena, self.pressure.changes());
            let taken = partition.blocks_held() - before;
            let records = partition.offsets.end().0 - end.0;
            self.pressure.note_blocks(slot, taken);
            self.tell_changes(out);
            match step {
                AppendStep::Full if self.evict_one() => continue,
                AppendStep::Held | AppendStep::Appended(_) => {
                    self.count_append(ask, records as u64, bytes.len() as u64);
                    self.mark_dirty(slot);
                }
                _ => {}
            }
            return step;
        }
    }

    /// Takes older tails out of memory until a block is free of the size that the partition has grown to: in a full arena
    /// it would get small ones, and many small writes of them. A few tries: memory may be in small pieces for a while.
    fn make_room(&mut self, slot: u32, bytes: u64, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("found by its id");
        let Some(wanted) = partition.tail().block_wanted(bytes) else { return };
        for _ in 0..EVICTIONS_FOR_SIZE_MAX {
            if let Some(block) = self.arena.alloc(Pool::Produce, wanted, self.pressure.changes()) {
                self.arena.free(block);
                break;
            }
            if !self.evict_one() {
                break;
            }
        }
        self.tell_changes(out);
    }

    fn count_append(&mut self, ask: &AppendAsk, records: u64, bytes: u64) {
        let count = &mut self.metrics.count;
        if records == 0 {
            count.batches_duplicate += 1;
        } else {
            (count.records_appended, count.bytes_appended) =
                (count.records_appended + records, count.bytes_appended + bytes);
        }
        self.metrics.produce_stage(ProduceStage::Queued, self.metrics.micros_since(ask.since));
    }

    /// Gives the outcome of an append to the core that asked.
    pub(super) fn deliver_append(&mut self, now: Now, origin: Origin, outcome: AppendOutcome, out: &mut Actions) {
        if origin.core == self.config.core {
            self.on_appended(now, origin, outcome, out);
        } else {
            out.push(Action::Mail { to: Peer::Core(origin.core), message: Message::Appended { origin, outcome } });
        }
    }
}

/// Blocks that leave memory for one of a better size.
const EVICTIONS_FOR_SIZE_MAX: usize = 8;
/// What a producer is told whose batch the arena could hold only by giving up everything else.
const LARGER_THAN_ARENA: &str = "the batch is larger than a quarter of the core's arena (arena.bytes)";
/// What a producer is told below the disk floor.
const DISK_LOW: &str = "the broker's disk is below log.min.free.bytes";
