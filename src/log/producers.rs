//! State of idempotent producers in one partition: what makes a retried batch land once (kafka-spec §3.6, KIP-98).
//!
//! Per producer the last five batches are remembered by sequence, so that a batch sent again is answered with its
//! first offset and one that does not follow the last is refused. An append asks [`Producers::check`] first and calls
//! [`Producers::record`] only once the batch is in the log: state that runs ahead of the log would refuse the retry of
//! a failed append. Replay of a log (recovery, a follower) calls `record` alone.
//!
//! A partition remembers at most [`PRODUCERS_PER_PARTITION_MAX`] producers. One more makes room by forgetting the
//! sixteenth part that appended least recently, by offset, which no client controls, unless a transaction is open. A
//! forgotten producer is as one whose state has expired: its next batch is accepted with any sequence. Refusing the
//! new one instead would shut a partition for up to a day.

use std::collections::BTreeMap;

use crate::ids::{Offset, ProducerEpoch, ProducerId, WallMillis};
use crate::kafka::batch::BatchHeaderFacts;
use crate::kafka::error_code::ErrorCode;
use crate::limits::{PRODUCER_BATCHES, PRODUCERS_PER_PARTITION_MAX};

/// `producer.id.expiration.ms`: how long a silent producer is remembered.
pub const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;
/// Part of the producers that is forgotten when there are too many.
const FORGOTTEN_PART: usize = 16;

/// The idempotent producers of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Producers {
    by_id: BTreeMap<ProducerId, Producer>,
}

/// What an append of a batch would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New: append it, then record it.
    Append,
    /// In the log already: answer with this and append nothing. With acks=all the answer waits for the high watermark
    /// to pass `last_offset`, as the first one did.
    Duplicate {
        /// Offset of the original's first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// Its largest timestamp in ms.
        timestamp: i64,
    },
    /// Neither: answer with this code.
    Refuse(ErrorCode),
}

/// One active producer, as DescribeProducers shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSummary {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record, −1 when only a marker was seen.
    pub last_sequence: i32,
    /// Timestamp of its last batch.
    pub last_timestamp: i64,
    /// Coordinator epoch of its last marker, −1 without one.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, −1 without one.
    pub current_txn_start: Offset,
}

/// A transaction marker met in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Whose transaction ends.
    pub producer_id: ProducerId,
    /// Epoch of the marker.
    pub producer_epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
    /// Offset of the marker.
    pub offset: Offset,
    /// Timestamp in ms.
    pub timestamp: i64,
}

impl Producers {
    /// How many producers are remembered.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether the partition knows no idempotent producer.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// What an append of this batch would be. Changes nothing; O(log producers).
    pub fn check(&self, batch: &BatchHeaderFacts) -> Verdict {
        let Some(producer) = self.by_id.get(&batch.producer_id) else { return Verdict::Append };
        producer.check(batch)
    }

    /// Takes a batch that is in the log with `base_offset`. Batches without a producer change nothing. Control batches
    /// go to [`Producers::record_marker`] instead.
    ///
    /// # Panics
    /// When the offset does not lie behind the producer's last batch: that would be a second append of the same offset.
    pub fn record(&mut self, batch: &BatchHeaderFacts, base_offset: Offset) {
        if batch.producer_id < ProducerId(0) || batch.control {
            return;
        }
        self.make_room_for(batch.producer_id);
        let producer = self.by_id.entry(batch.producer_id).or_insert_with(|| Producer::new(batch.producer_epoch));
        producer.record(batch, base_offset);
    }

    /// Takes a transaction marker that is in the log: it ends the producer's transaction and may raise its epoch.
    pub fn record_marker(&mut self, marker: &Marker) {
        self.make_room_for(marker.producer_id);
        let producer = self.by_id.entry(marker.producer_id).or_insert_with(|| Producer::new(marker.producer_epoch));
        producer.adopt_epoch(marker.producer_epoch);
        producer.coordinator_epoch = marker.coordinator_epoch;
        producer.last_timestamp = marker.timestamp;
        producer.touched = producer.touched.max(marker.offset);
        producer.txn_start = None;
    }

    /// The log was cut to end at `end`: forgets the batches from there on. Returns whether what is left is all there
    /// was to know at `end`; when it is not (a producer lost its last known batch, and what came before it was
    /// forgotten earlier), the state must be loaded again from a snapshot at or below `end` and the log behind it.
    #[must_use = "an incomplete state must be loaded again"]
    pub fn truncate(&mut self, end: Offset) -> bool {
        let mut complete = true;
        self.by_id.retain(|_, producer| {
            let cut = end <= producer.touched;
            if cut {
                complete &= producer.truncate(end);
            }
            !cut || !producer.batches.is_empty()
        });
        complete
    }

    /// Forgets the producers that were silent for 24 hours, except those with an open transaction. Returns how many.
    pub fn expire(&mut self, now: WallMillis) -> usize {
        let before = self.by_id.len();
        self.by_id.retain(|_, producer| {
            producer.txn_start.is_some() || now.0.saturating_sub(producer.last_timestamp) < PRODUCER_EXPIRATION_MS
        });
        before - self.by_id.len()
    }

    /// All producers by id, as DescribeProducers shows them.
    pub fn summaries(&self) -> Vec<ProducerSummary> {
        self.by_id.iter().map(|(&id, producer)| producer.summary(id)).collect()
    }

    /// All producers by id, each with its last batch only: what a snapshot keeps.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = ProducerEntry> {
        self.by_id.iter().map(|(&id, producer)| producer.entry(id))
    }

    /// The state that a snapshot's entries describe. Ids given twice keep the last entry; more than
    /// [`PRODUCERS_PER_PARTITION_MAX`] keep those that appended last.
    pub fn from_entries(entries: impl IntoIterator<Item = ProducerEntry>) -> Producers {
        let mut producers = Producers::default();
        for entry in entries {
            producers.make_room_for(entry.id);
            producers.by_id.insert(entry.id, Producer::from_entry(&entry));
        }
        producers
    }

    /// Forgets the least recently used part when `id` would be one producer too many. O(producers) then, so O(1) per
    /// new producer in the long run.
    fn make_room_for(&mut self, id: ProducerId) {
        if self.by_id.len() < PRODUCERS_PER_PARTITION_MAX || self.by_id.contains_key(&id) {
            return;
        }
        let idle = self.by_id.iter().filter(|(_, producer)| producer.txn_start.is_none());
        let mut idle: Vec<_> = idle.map(|(&id, producer)| (producer.touched, id)).collect();
        idle.sort_unstable();
        for (_, id) in idle.iter().take(PRODUCERS_PER_PARTITION_MAX / FORGOTTEN_PART) {
            self.by_id.remove(id);
        }
    }
}

/// A producer and its last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Its last batch; `None` when only a marker was seen.
    pub last: Option<RecordedBatch>,
    /// Timestamp of its last batch or marker in ms.
    pub timestamp: i64,
    /// Coordinator epoch of its last marker, −1 without one.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction.
    pub txn_start: Option<Offset>,
}

/// A batch of an idempotent producer in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecordedBatch {
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Its last offset less its first, which is the same difference in sequences.
    pub offset_delta: i32,
    /// Its largest timestamp in ms.
    pub timestamp: i64,
}

impl RecordedBatch {
    fn first_sequence(&self) -> i32 {
        sequence_before(self.last_sequence, self.offset_delta)
    }

    fn base_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

/// The sequence `count` further on: after 2^31 − 1 comes 0.
pub fn sequence_after(sequence: i32, count: i32) -> i32 {
    (i64::from(sequence) + i64::from(count)).rem_euclid(1 << 31) as i32
}

fn sequence_before(sequence: i32, count: i32) -> i32 {
    (i64::from(sequence) - i64::from(count)).rem_euclid(1 << 31) as i32
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: ProducerEpoch,
    batches: RecentBatches,
    last_timestamp: i64,
    coordinator_epoch: i32,
    txn_start: Option<Offset>,
    /// Offset of the last record or marker seen: how recently it was active.
    touched: Offset,
    /// Whether batches were forgotten that a truncation would have to bring back.
    forgot: bool,
}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Producer {
        Producer {
            epoch,
            batches: RecentBatches::default(),
            last_timestamp: -1,
            coordinator_epoch: -1,
            txn_start: None,
            touched: Offset(-1),
            forgot: false,
        }
    }

    fn from_entry(entry: &ProducerEntry) -> Producer {
        let mut batches = RecentBatches::default();
        entry.last.into_iter().for_each(|batch| _ = batches.push(batch));
        Producer {
            epoch: entry.epoch,
            batches,
            last_timestamp: entry.timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            txn_start: entry.txn_start,
            touched: entry.last.map_or(Offset(-1), |last| last.last_offset),
            forgot: true,
        }
    }

    fn check(&self, batch: &BatchHeaderFacts) -> Verdict {
        if batch.producer_epoch == self.epoch
            && let Some(original) = self.batches.find(batch)
        {
            return Verdict::Duplicate {
                base_offset: original.base_offset(),
                last_offset: original.last_offset,
                timestamp: original.timestamp,
            };
        }
        if batch.producer_epoch < self.epoch {
            return Verdict::Refuse(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        if !self.follows(batch) {
            return Verdict::Refuse(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
        if self.txn_start.is_some() && !batch.transactional {
            return Verdict::Refuse(ErrorCode::INVALID_TXN_STATE);
        }
        Verdict::Append
    }

    /// Whether the batch is the next in sequence. A new epoch starts at 0; where none is known anything is accepted.
    fn follows(&self, batch: &BatchHeaderFacts) -> bool {
        if self.epoch < ProducerEpoch(0) {
            return true;
        }
        let expected = match self.batches.last() {
            Some(last) if batch.producer_epoch == self.epoch => sequence_after(last.last_sequence, 1),
            _ => 0,
        };
        batch.base_sequence == expected
    }

    fn record(&mut self, batch: &BatchHeaderFacts, base_offset: Offset) {
        let last_offset = base_offset.plus(i64::from(batch.last_offset_delta));
        assert!(self.touched < base_offset, "producer's batch at {base_offset} after one at {}", self.touched);
        self.adopt_epoch(batch.producer_epoch);
        self.forgot |= self.batches.push(RecordedBatch {
            last_sequence: sequence_after(batch.base_sequence, batch.last_offset_delta),
            last_offset,
            offset_delta: batch.last_offset_delta,
            timestamp: batch.max_timestamp,
        });
        self.touched = last_offset;
        self.last_timestamp = batch.max_timestamp;
        if batch.transactional && self.txn_start.is_none() {
            self.txn_start = Some(base_offset);
        }
    }

    fn adopt_epoch(&mut self, epoch: ProducerEpoch) {
        if epoch != self.epoch {
            self.forgot |= !self.batches.is_empty();
            self.epoch = epoch;
            self.batches = RecentBatches::default();
        }
    }

    /// Returns whether the producer's state is what it was when the log first ended there. A window with fewer batches
    /// than it could have is complete enough: it refuses nothing that was accepted then.
    fn truncate(&mut self, end: Offset) -> bool {
        self.batches.truncate(end);
        let last = self.batches.last();
        self.touched = last.map_or(Offset(-1), |last| last.last_offset);
        self.last_timestamp = last.map_or(-1, |last| last.timestamp);
        // An open transaction or a marker behind the cut cannot be taken back from what is known here.
        let plain = self.txn_start.is_none() && self.coordinator_epoch == -1;
        self.txn_start = self.txn_start.filter(|&start| start < end);
        plain && (last.is_some() || !self.forgot)
    }

    fn entry(&self, id: ProducerId) -> ProducerEntry {
        ProducerEntry {
            id,
            epoch: self.epoch,
            last: self.batches.last().copied(),
            timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            txn_start: self.txn_start,
        }
    }

    fn summary(&self, id: ProducerId) -> ProducerSummary {
        ProducerSummary {
            id,
            epoch: self.epoch,
            last_sequence: self.batches.last().map_or(-1, |last| last.last_sequence),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            current_txn_start: self.txn_start.unwrap_or(Offset(-1)),
        }
    }
}

/// The last few batches of a producer, oldest first, without an allocation of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct RecentBatches {
    batches: [RecordedBatch; PRODUCER_BATCHES],
    count: usize,
}

impl RecentBatches {
    fn as_slice(&self) -> &[RecordedBatch] {
        &self.batches[..self.count]
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn last(&self) -> Option<&RecordedBatch> {
        self.as_slice().last()
    }

    fn find(&self, batch: &BatchHeaderFacts) -> Option<&RecordedBatch> {
        let last_sequence = sequence_after(batch.base_sequence, batch.last_offset_delta);
        let same = |known: &&RecordedBatch| {
            known.last_sequence == last_sequence && known.first_sequence() == batch.base_sequence
        };
        self.as_slice().iter().find(same)
    }

    /// Returns whether the oldest batch had to go.
    fn push(&mut self, batch: RecordedBatch) -> bool {
        let full = self.count == PRODUCER_BATCHES;
        if full {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        self.batches[self.count] = batch;
        self.count += 1;
        full
    }

    fn truncate(&mut self, end: Offset) {
        self.count = self.as_slice().partition_point(|batch| batch.last_offset < end);
        self.batches[self.count..].fill(RecordedBatch::default());
    }
}

#[cfg(test)]
mod tests;
