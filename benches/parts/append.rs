//! Validate and append a batch: beside one CRC and one copy of the same bytes.

use std::hint::black_box;

use pinion::arena::{Arena, ArenaConfig, Block, ChunkChange, Lease, Pool, PoolMinima, Region, Regions};
use pinion::ids::{CoreId, FilePos, LeaderEpoch, Offset, WallMillis};
use pinion::kafka::batch::{AppendRules, BatchView, HEADER_BYTES};
use pinion::kafka::batch_builder::BatchBuilder;
use pinion::limits::CHUNK;
use pinion::log::appender::{Appender, NewBatch, Writable};
use pinion::log::topic_config::TopicConfig;
use zerocopy::IntoBytes;

use crate::{Clock, beside};

const NOW: WallMillis = WallMillis(1_700_000_000_000);
const BUDGET: u64 = 32 << 20;

pub fn run(clock: &Clock) {
    for (name, records, bytes) in [("1 record of 1 KiB", 1, 1024), ("125 records of 1 KiB", 125, 1024)] {
        one(clock, name, &BatchBuilder::new().values(records, NOW.0, &vec![b'v'; bytes]).build());
    }
}

fn one(clock: &Clock, name: &str, batch: &[u8]) {
    let mut log = Log::new(batch);
    let count = (64 << 20) / (batch.len() + 2048);
    let taken = clock.nanos(count, |_| log.append(batch));
    let mut copy = vec![0; batch.len()];
    let limit = clock.nanos(count, |_| {
        black_box(crc32c::crc32c(&batch[21..]));
        copy.copy_from_slice(batch);
        black_box(&mut copy);
    });
    beside(&format!("validate + append, {name}"), taken, "CRC-32C and one copy", limit);
}

/// The tail of a log whose writes complete at once.
struct Log {
    arena: Arena,
    tail: Appender,
    received: Lease,
    rules: AppendRules,
    next: Offset,
    changes: Vec<ChunkChange>,
    plans: Vec<pinion::log::appender::WritePlan>,
}

impl Log {
    fn new(batch: &[u8]) -> Log {
        let pools = PoolMinima::of_budget(BUDGET);
        let config = ArenaConfig { core: CoreId(0), budget_bytes: BUDGET, window_bytes_max: CHUNK, pools };
        let mut arena = Arena::new(config, Regions::new(vec![Region::heap(Arena::region_bytes(&config))]));
        let mut changes = Vec::new();
        let block = arena.alloc(Pool::Produce, (batch.len() as u64).next_power_of_two(), &mut changes);
        let mut block: Block = block.expect("room in an empty arena");
        arena.write(&mut block, 0, batch);
        Log {
            received: arena.into_window(block, batch.len() as u32),
            arena,
            tail: Appender::new(Offset(0), FilePos(0), Offset(0), Vec::new()),
            rules: AppendRules::new(&TopicConfig::default(), NOW),
            next: Offset(0),
            changes,
            plans: Vec::new(),
        }
    }

    fn append(&mut self, batch: &[u8]) {
        let view = BatchView::parse_single(batch).expect("a batch");
        let accepted = view.validate(&self.rules).expect("a sound batch");
        assert!(self.tail.reserve(batch.len() as u64, &mut self.arena, &mut self.changes), "the arena is full");
        let (base, epoch) = (self.next, LeaderEpoch(1));
        self.next = base.plus(view.offset_count());
        let header = view.stamped(base, epoch, accepted.restamp);
        let entry = NewBatch { base, next: self.next, epoch, max_timestamp: accepted.max_timestamp };
        self.tail.append(&mut self.arena, entry, header.as_bytes(), (&self.received, HEADER_BYTES as u32));
        if self.tail.unstable_bytes() > 1 << 20 {
            self.write();
        }
    }

    fn write(&mut self) {
        self.changes.clear();
        while self.tail.has_unsubmitted() {
            let writable = Writable { to: FilePos(u64::MAX >> 1), unwritten_to: FilePos(0) };
            self.tail.plan_writes(&mut self.arena, |_| Some(writable), &mut self.plans);
            for plan in self.plans.drain(..) {
                self.arena.release(plan.block);
                self.tail.on_written(plan.generation, plan.to, true);
            }
        }
        while self.tail.evict_oldest(&mut self.arena) {}
    }
}
