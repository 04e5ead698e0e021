//! An append: the checks in Kafka's order, then everything that moves when a batch joins the log.

use zerocopy::IntoBytes;

use super::{Held, Partition};
use crate::arena::{Arena, ChunkChange};
use crate::ids::{FilePos, Now, Offset};
use crate::kafka::batch::{Accepted, AppendRules, BatchHeaderFacts, BatchView, HEADER_BYTES};
use crate::kafka::error_code::ErrorCode;
use crate::log::appender::NewBatch;
use crate::log::index::BatchSpan;
use crate::log::producers::Verdict;
use crate::log::segment::Incoming;
use crate::log::topic_config::TimestampType;
use crate::shard::message::{Acks, AppendAsk, AppendOutcome};

/// What an append came to.
#[derive(Debug, PartialEq, Eq)]
pub enum AppendStep {
    /// Appended; the answer is held until its promise is true.
    Held,
    /// In the log already, as a retry finds it; the answer is held, and its promise may be true by now.
    Known,
    /// Appended, and nothing is waited for (acks=0).
    Appended(AppendOutcome),
    /// Not appended.
    Refused {
        /// What the client is told.
        code: ErrorCode,
        /// A sentence beyond the code's own.
        message: Option<&'static str>,
    },
    /// There is no memory for it; nothing has changed.
    Full,
}

impl AppendStep {
    fn refuse(code: ErrorCode) -> AppendStep {
        AppendStep::Refused { code, message: None }
    }
}

impl Partition {
    /// Appends one batch, in the order of checks of kafka-spec §3.1 from row 5 on. Reads all of it once and copies it
    /// once.
    pub fn append(
        &mut self,
        now: Now,
        ask: &AppendAsk,
        bytes: &[u8],
        arena: &mut Arena,
        changes: &mut Vec<ChunkChange>,
    ) -> AppendStep {
        let step = self.check_and_append(now, ask, bytes, arena, changes);
        // What was reserved for a batch that did not join the log lies in no tail, from where pressure could take it.
        self.appender.give_back_spare(arena);
        step
    }

    fn check_and_append(
        &mut self,
        now: Now,
        ask: &AppendAsk,
        bytes: &[u8],
        arena: &mut Arena,
        changes: &mut Vec<ChunkChange>,
    ) -> AppendStep {
        if let Err(code) = self.check_append(ask) {
            return AppendStep::refuse(code);
        }
        let view = match BatchView::parse_single(bytes) {
            Ok(view) => view,
            Err(fault) => return AppendStep::refuse(fault.code()),
        };
        if view.size_bytes() as u64 > u64::from(self.config.max_message_bytes) {
            return AppendStep::refuse(ErrorCode::MESSAGE_TOO_LARGE);
        }
        if !self.appender.reserve(view.size_bytes() as u64, arena, changes) {
            return AppendStep::Full;
        }
        let rules = AppendRules { zstd_allowed: ask.zstd_allowed, ..AppendRules::new(&self.config, now.wall) };
        let accepted = match view.validate(&rules) {
            Ok(accepted) => accepted,
            Err(fault) => return AppendStep::refuse(fault.code()),
        };
        match self.producers.check(&view.facts()) {
            Verdict::Append if !self.make_segment(now, &view, accepted, arena, changes) => AppendStep::Full,
            Verdict::Append => self.append_valid(now, ask, &view, accepted, arena),
            Verdict::Duplicate { base_offset, last_offset, timestamp } => {
                let append_time = self.append_time(timestamp);
                match self.hold(now, ask, (base_offset, last_offset.plus(1)), append_time) {
                    AppendStep::Held => AppendStep::Known,
                    step => step,
                }
            }
            Verdict::Refuse(code) => AppendStep::refuse(code),
        }
    }

    fn check_append(&self, ask: &AppendAsk) -> Result<(), ErrorCode> {
        if is_internal(&self.topic) && !ask.internal_allowed {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        self.check_serving()?;
        if ask.acks == Acks::All && !self.in_sync.is_enough() {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS);
        }
        Ok(())
    }

    /// Starts a new segment when the batch must go into one. Returns false when there is no memory for the batch there:
    /// what was reserved may have been room in the tail of the old segment, which no other segment can use.
    fn make_segment(
        &mut self,
        now: Now,
        view: &BatchView<'_>,
        accepted: Accepted,
        arena: &mut Arena,
        changes: &mut Vec<ChunkChange>,
    ) -> bool {
        let bytes = view.size_bytes() as u64;
        let last_offset = Offset(self.offsets.end().plus(view.offset_count()).0 - 1);
        let incoming = Incoming { bytes, last_offset, max_timestamp: accepted.max_timestamp };
        if self.must_roll(now, &incoming) {
            if !self.appender.reserve_behind_roll(bytes, arena, changes) {
                return false;
            }
            self.roll(now);
        }
        true
    }

    fn append_valid(
        &mut self,
        now: Now,
        ask: &AppendAsk,
        view: &BatchView<'_>,
        accepted: Accepted,
        arena: &mut Arena,
    ) -> AppendStep {
        let base = self.offsets.end();
        let next = base.plus(view.offset_count());
        let len = view.size_bytes() as u32;
        let at = self.appender.active_end();
        let header = view.stamped(base, self.leader_epoch, accepted.restamp);
        let batch = NewBatch { base, next, epoch: self.leader_epoch, max_timestamp: accepted.max_timestamp };
        self.appender.append(arena, batch, header.as_bytes(), (&ask.records, HEADER_BYTES as u32));
        self.note_batch(now, batch, at, len);
        self.offsets.advance_end(next);
        let facts = BatchHeaderFacts { max_timestamp: accepted.max_timestamp, ..view.facts() };
        self.producers.record(&facts, base);
        self.pacer.on_append(base, u64::from(len), facts.producer_id.0 >= 0);
        let append_time = self.append_time(accepted.max_timestamp);
        self.hold(now, ask, (base, next), append_time)
    }

    /// Segment, indexes and epochs learn of a batch.
    fn note_batch(&mut self, now: Now, batch: NewBatch, at: FilePos, len: u32) {
        let last = Offset(batch.next.0 - 1);
        self.epochs.assign(batch.epoch, batch.base);
        let active = self.segments.active_mut().expect("a partition has an active segment");
        active.on_append(batch.next, u64::from(len), batch.max_timestamp);
        self.index.on_append(&BatchSpan { last_offset: last, at, max_timestamp: batch.max_timestamp });
        self.files.note_appended(now.mono, u64::from(len));
        let first = (batch.base, self.tail().active_base(), at);
        if self.recorded_epoch < batch.epoch {
            self.unrecorded_epoch.get_or_insert(first);
        }
    }

    fn hold(&mut self, now: Now, ask: &AppendAsk, span: (Offset, Offset), log_append_time: i64) -> AppendStep {
        let (base_offset, upto) = span;
        let held = Held { origin: ask.origin, base_offset, log_append_time, since: now.mono };
        match ask.acks {
            Acks::None => {
                let log_start = self.offsets.log_start();
                return AppendStep::Appended(AppendOutcome::Appended { base_offset, log_append_time, log_start });
            }
            Acks::Leader => self.acks.hold_for_stable(upto, held),
            Acks::All => self.acks.hold_for_commit(upto, held),
        }
        AppendStep::Held
    }

    /// What the answer says about time: the append time on LogAppendTime topics, else nothing.
    fn append_time(&self, timestamp: i64) -> i64 {
        match self.config.timestamp_type {
            TimestampType::LogAppendTime => timestamp,
            TimestampType::CreateTime => -1,
        }
    }
}

/// Topics that only the broker itself and `__admin_client` write.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::arena::{ArenaConfig, Pool, PoolMinima, Region, Regions};
    use crate::ids::{
        CoreId, DirId, LeaderEpoch, MonoMicros, PartitionId, PartitionIndex, ProducerEpoch, ProducerId, Ticket,
        TopicId, WallMillis,
    };
    use crate::kafka::batch_builder::BatchBuilder;
    use crate::log::appender::TailWrites;
    use crate::log::recovery::RecoveredLog;
    use crate::log::topic_config::TopicConfig;
    use crate::shard::action::PartitionDir;
    use crate::shard::message::{HostPartition, Origin};

    const NOW: Now = Now { mono: MonoMicros(0), wall: WallMillis(1_700_000_000_000) };
    const BUDGET: u64 = 8 << 20;

    fn partition() -> Partition {
        let host = HostPartition {
            id: PartitionId { topic: TopicId([1; 16]), index: PartitionIndex(0) },
            topic: "t".into(),
            dir: PartitionDir { dir: DirId(0), name: "t-0".into() },
            leader_epoch: LeaderEpoch(0),
            config: Arc::new(TopicConfig::default()),
            log: RecoveredLog::default(),
        };
        Partition::open(host, TailWrites::Shared, NOW)
    }

    fn append(partition: &mut Partition, arena: &mut Arena, batch: &[u8]) -> AppendStep {
        let mut block = arena.alloc(Pool::Produce, (batch.len() as u64).next_power_of_two(), &mut Vec::new());
        arena.write(block.as_mut().expect("room"), 0, batch);
        let window = arena.into_window(block.expect("room"), batch.len() as u32);
        let origin = Origin { core: CoreId(0), ticket: Ticket(1), slot: 0 };
        let records = arena.split(&window, 0, batch.len() as u32);
        let (partition_id, acks) = (partition.id, Acks::Leader);
        let ask = AppendAsk {
            origin,
            partition: partition_id,
            records,
            acks,
            internal_allowed: false,
            zstd_allowed: true,
            since: NOW.mono,
        };
        let step = partition.append(NOW, &ask, batch, arena, &mut Vec::new());
        arena.release(ask.records);
        arena.release(window);
        step
    }

    /// Memory reserved for a batch that is then refused was in no tail: nothing could evict it, until all was gone.
    #[test]
    fn a_batch_that_does_not_join_the_log_keeps_no_memory() {
        let config = ArenaConfig {
            core: CoreId(0),
            budget_bytes: BUDGET,
            window_bytes_max: BUDGET,
            pools: PoolMinima::of_budget(BUDGET),
        };
        let mut arena = Arena::new(config, Regions::new(vec![Region::heap(Arena::region_bytes(&config))]));
        let builder = || BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), 0);
        let sound = builder().value(NOW.wall.0, &[b'v'; 100_000]).build();
        let mut damaged = sound.clone();
        *damaged.last_mut().expect("a batch has bytes") ^= 1;
        let gap = BatchBuilder::new().producer(ProducerId(1), ProducerEpoch(0), 9).value(NOW.wall.0, b"v").build();
        let mut partition = partition();
        assert_eq!(append(&mut partition, &mut arena, &damaged), AppendStep::refuse(ErrorCode::CORRUPT_MESSAGE));
        assert_eq!(partition.blocks_held(), 0);
        assert_eq!(append(&mut partition, &mut arena, &sound), AppendStep::Held);
        let held = partition.blocks_held();
        assert_eq!(append(&mut partition, &mut arena, &sound), AppendStep::Known, "a duplicate");
        let refused = AppendStep::refuse(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert_eq!(append(&mut partition, &mut arena, &gap), refused);
        assert_eq!(partition.blocks_held(), held);
    }
}
