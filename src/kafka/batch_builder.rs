//! Makes valid batches: for tests, benches, the command line, and recompression.

use zerocopy::IntoBytes;

use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use crate::kafka::batch::{Attributes, BatchHeader, Codec, HEADER_BYTES, MAGIC, OVERHEAD_BYTES};
use crate::kafka::compression::compress;
use crate::kafka::record::{OwnedRecord, encode_record};
use crate::log::topic_config::TimestampType;

/// A batch in the making. What is not set is what a producer without idempotence sends: base offset 0, epoch −1, no
/// producer, no compression.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    attributes: Attributes,
    producer: (ProducerId, ProducerEpoch, i32),
    records: Vec<OwnedRecord>,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder {
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch(-1),
            attributes: Attributes::default(),
            producer: (ProducerId(-1), ProducerEpoch(-1), -1),
            records: Vec::new(),
        }
    }
}

impl BatchBuilder {
    /// Without records yet.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// As a leader appended it.
    pub fn appended(mut self, base_offset: Offset, leader_epoch: LeaderEpoch) -> BatchBuilder {
        self.base_offset = base_offset;
        self.leader_epoch = leader_epoch;
        self
    }

    /// Compressed by `codec`.
    pub fn codec(mut self, codec: Codec) -> BatchBuilder {
        self.attributes = self.attributes.with_codec(codec);
        self
    }

    /// With this timestamp type.
    pub fn timestamp_type(mut self, timestamp_type: TimestampType) -> BatchBuilder {
        self.attributes = self.attributes.with_timestamp_type(timestamp_type);
        self
    }

    /// Of an idempotent producer, its first record having this sequence.
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> BatchBuilder {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// As part of a transaction.
    pub fn transactional(mut self) -> BatchBuilder {
        self.attributes = self.attributes.with_transactional();
        self
    }

    /// As a control batch.
    pub fn control(mut self) -> BatchBuilder {
        self.attributes = self.attributes.with_control();
        self
    }

    /// One more record.
    pub fn record(mut self, record: OwnedRecord) -> BatchBuilder {
        self.records.push(record);
        self
    }

    /// One more record with a value only.
    pub fn value(self, timestamp: i64, value: &[u8]) -> BatchBuilder {
        self.record(OwnedRecord { timestamp, value: Some(value.to_vec()), ..OwnedRecord::default() })
    }

    /// `count` more records with this value.
    pub fn values(mut self, count: usize, timestamp: i64, value: &[u8]) -> BatchBuilder {
        self.records.extend((0..count).map(|_| OwnedRecord {
            timestamp,
            value: Some(value.to_vec()),
            ..OwnedRecord::default()
        }));
        self
    }

    /// The batch. The base timestamp is the first record's.
    ///
    /// # Panics
    /// When the batch would be larger than 2 GiB.
    pub fn build(&self) -> Vec<u8> {
        let base_timestamp = self.records.first().map_or(-1, |record| record.timestamp);
        let payload = compress(self.attributes.codec().unwrap_or(Codec::None), &self.plain_payload(base_timestamp));
        let length = i32::try_from(HEADER_BYTES - OVERHEAD_BYTES + payload.len()).expect("a batch is below 2 GiB");
        let count = i32::try_from(self.records.len()).expect("a batch has fewer than 2^31 records");
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let mut header = BatchHeader {
            base_offset: self.base_offset.0.into(),
            batch_length: length.into(),
            leader_epoch: self.leader_epoch.0.into(),
            magic: MAGIC,
            crc: 0.into(),
            attributes: self.attributes.0.into(),
            last_offset_delta: (count - 1).into(),
            base_timestamp: base_timestamp.into(),
            max_timestamp: self.records.iter().map(|record| record.timestamp).max().unwrap_or(-1).into(),
            producer_id: producer_id.0.into(),
            producer_epoch: producer_epoch.0.into(),
            base_sequence: base_sequence.into(),
            record_count: count.into(),
        };
        header.crc.set(header.crc_with(&payload));
        let mut batch = header.as_bytes().to_vec();
        batch.extend_from_slice(&payload);
        batch
    }

    fn plain_payload(&self, base_timestamp: i64) -> Vec<u8> {
        let mut plain = Vec::new();
        for (offset_delta, record) in (0..).zip(&self.records) {
            encode_record(&mut plain, record, record.timestamp.wrapping_sub(base_timestamp), offset_delta);
        }
        plain
    }
}
