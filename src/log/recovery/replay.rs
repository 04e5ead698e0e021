//! What the batches that count add up to: leader epochs, producers, indexes.

use crate::ids::{FilePos, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use crate::kafka::batch::BatchHeaderFacts;
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{BatchSpan, SegmentIndex};
use crate::log::producers::Producers;

use super::scan::Accepted;

/// The sums over the batches of a scan, the per-segment ones over those of the present segment.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    pub epochs: LeaderEpochs,
    pub producers: Producers,
    /// Offset of the snapshot that `producers` began with.
    pub snapshot: Option<Offset>,
    /// First batch of an idempotent producer behind that snapshot.
    pub uncovered_from: Option<Offset>,
    pub index: SegmentIndex,
    /// Timestamp of the batch at position 0 of the present segment, once it was met.
    pub first_timestamp: Option<i64>,
    interval_bytes: u32,
}

impl Replay {
    pub fn new(interval_bytes: u32) -> Replay {
        let base = Offset::ZERO;
        Replay {
            epochs: LeaderEpochs::default(),
            producers: Producers::default(),
            snapshot: None,
            uncovered_from: None,
            index: SegmentIndex::new(base, interval_bytes),
            first_timestamp: None,
            interval_bytes,
        }
    }

    /// The state of the producers up to `at`; batches from there on are replayed.
    pub fn load_producers(&mut self, at: Offset, producers: Producers) {
        self.producers = producers;
        self.snapshot = Some(at);
    }

    /// The batches that follow are of another segment, whose indexes are known to begin so.
    pub fn begin_segment(&mut self, base: Offset, offsets: &[(Offset, FilePos)], times: &[(i64, Offset)]) {
        let max_timestamp = times.last().copied().unwrap_or((-1, base));
        self.index = SegmentIndex::recovered(base, self.interval_bytes, (offsets, times), max_timestamp);
        self.first_timestamp = None;
    }

    pub fn on_batch(&mut self, batch: &Accepted) {
        self.epochs.assign(LeaderEpoch(batch.header.leader_epoch.get()), batch.base());
        let max_timestamp = batch.header.max_timestamp.get();
        if batch.at == FilePos(0) {
            self.first_timestamp = Some(max_timestamp);
        }
        let span = BatchSpan { at: batch.at, last_offset: batch.last(), max_timestamp };
        if self.index.can_take(&span) {
            self.index.on_append(&span);
        }
        self.replay_producer(batch);
    }

    fn replay_producer(&mut self, batch: &Accepted) {
        let facts = facts(batch);
        let behind_snapshot = self.snapshot.is_none_or(|at| at <= batch.base());
        if facts.producer_id < ProducerId(0) || facts.control || !behind_snapshot {
            return;
        }
        self.uncovered_from.get_or_insert(batch.base());
        self.producers.record(&facts, batch.base());
    }
}

fn facts(batch: &Accepted) -> BatchHeaderFacts {
    let header = &batch.header;
    BatchHeaderFacts {
        producer_id: ProducerId(header.producer_id.get()),
        producer_epoch: ProducerEpoch(header.producer_epoch.get()),
        base_sequence: header.base_sequence.get(),
        last_offset_delta: header.last_offset_delta.get(),
        max_timestamp: header.max_timestamp.get(),
        transactional: header.attributes().is_transactional(),
        control: header.attributes().is_control(),
    }
}
