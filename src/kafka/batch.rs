//! Record batches of format v2: a borrowed view, the checks an append makes, and the patches it applies.
//!
//! A batch is a 61-byte header and its records, compressed as one blob when the codec says so (kafka-spec §2.1). Base
//! offset, length, leader epoch and magic lie outside the CRC, so that a leader assigns them without reading the rest;
//! the timestamp type and the largest timestamp lie inside it. Nothing here decompresses, allocates or panics on bytes.

mod fault;

use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use fault::BatchFault;

use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, WallMillis};
use crate::kafka::record::{RecordFault, Records};
use crate::log::topic_config::{TimestampType, TopicConfig};

/// Bytes of a batch header.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the part that `batch_length` counts: base offset and the length itself.
pub const OVERHEAD_BYTES: usize = 12;
/// The only batch format accepted.
pub const MAGIC: i8 = 2;
/// First byte that the CRC covers: everything from the attributes on.
const CRC_FROM: usize = 21;
/// Smallest `batch_length` whose batch still has a magic byte (Kafka's record overhead of the oldest format).
const LENGTH_MIN: i32 = 14;

/// The header as it lies in the file and on the wire, big-endian and unaligned.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BatchHeader {
    /// Offset of the first record. Producers send 0.
    pub base_offset: I64,
    /// Bytes after this field.
    pub batch_length: I32,
    /// Epoch of the leader that appended it. Producers send −1.
    pub leader_epoch: I32,
    /// Format, 2.
    pub magic: i8,
    /// CRC-32C of everything after this field.
    pub crc: U32,
    /// Codec and flags; see [`Attributes`].
    pub attributes: I16,
    /// Offset of the last record less the base offset; stays when compaction removes that record.
    pub last_offset_delta: I32,
    /// What the records' timestamps are deltas to, in ms.
    pub base_timestamp: I64,
    /// Largest timestamp of a record, or the append time, in ms; −1 without timestamps.
    pub max_timestamp: I64,
    /// Idempotent producer, −1 without one.
    pub producer_id: I64,
    /// Its epoch, −1 without one.
    pub producer_epoch: I16,
    /// Sequence of the first record, −1 without one.
    pub base_sequence: I32,
    /// Count of records that follow.
    pub record_count: I32,
}

const _: () = assert!(size_of::<BatchHeader>() == HEADER_BYTES && align_of::<BatchHeader>() == 1);

impl BatchHeader {
    /// Assigns the offset and the leader epoch. The CRC does not cover them.
    pub fn patch(&mut self, base_offset: Offset, leader_epoch: LeaderEpoch) {
        self.base_offset.set(base_offset.0);
        self.leader_epoch.set(leader_epoch.0);
    }

    /// Rewrites the timestamp type and the largest timestamp, and the CRC over the new header and `payload`, which are
    /// the bytes behind the header. Reads all of them.
    pub fn restamp(&mut self, restamp: Restamp, payload: &[u8]) {
        self.attributes.set(self.attributes().with_timestamp_type(restamp.timestamp_type).0);
        self.max_timestamp.set(restamp.max_timestamp);
        self.crc.set(self.crc_with(payload));
    }

    /// The CRC that belongs to this header followed by `payload`. Reads all of it.
    pub fn crc_with(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[CRC_FROM..]), payload)
    }

    /// The attributes, decoded.
    pub fn attributes(&self) -> Attributes {
        Attributes(self.attributes.get())
    }
}

/// What a leader changes inside the CRC of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restamp {
    /// New timestamp type.
    pub timestamp_type: TimestampType,
    /// New largest timestamp in ms.
    pub max_timestamp: i64,
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0b111;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;

    /// How the records are compressed; `None` for a number that stands for no codec.
    pub fn codec(self) -> Option<Codec> {
        Codec::from_id((self.0 & Self::CODEC) as u8)
    }

    /// Whose clock the timestamps are from.
    pub fn timestamp_type(self) -> TimestampType {
        match self.0 & Self::LOG_APPEND_TIME {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        }
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether its record is for the protocol (a transaction marker) and hidden from applications.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// The same with another codec.
    pub fn with_codec(self, codec: Codec) -> Attributes {
        Attributes(self.0 & !Self::CODEC | codec as i16)
    }

    /// The same with another timestamp type.
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Attributes {
        match timestamp_type {
            TimestampType::CreateTime => Attributes(self.0 & !Self::LOG_APPEND_TIME),
            TimestampType::LogAppendTime => Attributes(self.0 | Self::LOG_APPEND_TIME),
        }
    }

    /// The same as part of a transaction.
    pub fn with_transactional(self) -> Attributes {
        Attributes(self.0 | Self::TRANSACTIONAL)
    }

    /// The same as a control batch.
    pub fn with_control(self) -> Attributes {
        Attributes(self.0 | Self::CONTROL)
    }
}

/// Compression of the records of a batch; the numbers are those of the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    /// As they are.
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy blocks in the framing of xerial's library, or one raw block.
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard frames; from Produce and Fetch v7 / v10 on.
    Zstd = 4,
}

impl Codec {
    /// All of them, by number.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn from_id(id: u8) -> Option<Codec> {
        Codec::ALL.get(usize::from(id)).copied()
    }
}

/// What a topic and a request version allow in a produced batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendRules {
    /// `max.message.bytes`.
    pub message_bytes_max: u32,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// Oldest timestamp allowed, in ms before `now`.
    pub timestamp_before_max_ms: u64,
    /// Newest timestamp allowed, in ms after `now`.
    pub timestamp_after_max_ms: u64,
    /// The broker's clock.
    pub now: WallMillis,
    /// Whether the request version may carry zstd (Produce ≥ 7).
    pub zstd_allowed: bool,
}

impl AppendRules {
    /// The rules of a topic at a moment, for a request version that may carry every codec.
    pub fn new(config: &TopicConfig, now: WallMillis) -> AppendRules {
        AppendRules {
            message_bytes_max: config.max_message_bytes,
            segment_bytes: config.segment_bytes,
            timestamp_type: config.timestamp_type,
            timestamp_before_max_ms: config.timestamp_before_max_ms,
            timestamp_after_max_ms: config.timestamp_after_max_ms,
            now,
            zstd_allowed: true,
        }
    }
}

/// What a validated batch becomes in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Largest timestamp that it will have in the log, in ms; −1 without timestamps.
    pub max_timestamp: i64,
    /// What must be rewritten inside the CRC: on LogAppendTime topics always, on others where the producer's header
    /// was wrong. `None` keeps the bytes and the CRC.
    pub restamp: Option<Restamp>,
}

/// The header fields that the state of idempotent producers is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeaderFacts {
    /// Producer, −1 without one.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record.
    pub base_sequence: i32,
    /// Count of offsets less one.
    pub last_offset_delta: i32,
    /// Largest timestamp in ms.
    pub max_timestamp: i64,
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    /// Whether it is a control batch.
    pub control: bool,
}

/// One whole batch, borrowed. Structure only: length and magic hold, the CRC was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchView<'a> {
    header: &'a BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The batch that `bytes` start with; what follows it is left alone.
    ///
    /// # Errors
    /// `Incomplete`, `Length` or `Magic`.
    pub fn parse(bytes: &'a [u8]) -> Result<BatchView<'a>, BatchFault> {
        let have = bytes.len();
        let incomplete = |need| BatchFault::Incomplete { have, need };
        let length = bytes.get(8..OVERHEAD_BYTES).ok_or(incomplete(OVERHEAD_BYTES))?;
        let length = i32::from_be_bytes(length.try_into().expect("a slice of four bytes"));
        if length < LENGTH_MIN {
            return Err(BatchFault::Length(length));
        }
        let need = OVERHEAD_BYTES + length as usize;
        let bytes = bytes.get(..need).ok_or(incomplete(need))?;
        let magic = bytes[16] as i8;
        if magic != MAGIC {
            return Err(BatchFault::Magic(magic));
        }
        let (header, _) = BatchHeader::ref_from_prefix(bytes).map_err(|_| BatchFault::Length(length))?;
        Ok(BatchView { header, bytes })
    }

    /// The batch that `bytes` are, neither more nor less: what one partition of a Produce request must hold.
    ///
    /// # Errors
    /// Those of [`BatchView::parse`], and `NotSingle`.
    pub fn parse_single(bytes: &'a [u8]) -> Result<BatchView<'a>, BatchFault> {
        let batch = BatchView::parse(bytes)?;
        match bytes.len() - batch.size_bytes() {
            0 => Ok(batch),
            more => Err(BatchFault::NotSingle(more)),
        }
    }

    /// The header.
    pub fn header(&self) -> &'a BatchHeader {
        self.header
    }

    /// All its bytes, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes behind the header: the records, or the blob they are compressed to.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Count of all its bytes.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Offset of the first record.
    pub fn base_offset(&self) -> Offset {
        Offset(self.header.base_offset.get())
    }

    /// Offset of the last record. Meaningful once [`BatchView::check_stored`] has passed; saturates on garbage.
    pub fn last_offset(&self) -> Offset {
        Offset(self.header.base_offset.get().saturating_add(i64::from(self.header.last_offset_delta.get())))
    }

    /// The offset after the last record. Meaningful like [`BatchView::last_offset`].
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// How many offsets it takes.
    pub fn offset_count(&self) -> i64 {
        i64::from(self.header.last_offset_delta.get()) + 1
    }

    /// Epoch of the leader that appended it.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.header.leader_epoch.get())
    }

    /// Largest timestamp of a record in ms, −1 without timestamps.
    pub fn max_timestamp(&self) -> i64 {
        self.header.max_timestamp.get()
    }

    /// The attributes, decoded.
    pub fn attributes(&self) -> Attributes {
        self.header.attributes()
    }

    /// The fields that the state of idempotent producers is made of.
    pub fn facts(&self) -> BatchHeaderFacts {
        let header = self.header;
        BatchHeaderFacts {
            producer_id: ProducerId(header.producer_id.get()),
            producer_epoch: ProducerEpoch(header.producer_epoch.get()),
            base_sequence: header.base_sequence.get(),
            last_offset_delta: header.last_offset_delta.get(),
            max_timestamp: header.max_timestamp.get(),
            transactional: self.attributes().is_transactional(),
            control: self.attributes().is_control(),
        }
    }

    /// Its records, when they are not compressed.
    pub fn records(&self) -> Option<Records<'a>> {
        (self.attributes().codec() == Some(Codec::None)).then(|| self.records_in(self.payload()))
    }

    /// Its records in their decompressed form, `plain`.
    pub fn records_in<'b>(&self, plain: &'b [u8]) -> Records<'b> {
        Records::new(plain, self.header.record_count.get())
    }

    /// Timestamp of a record of this batch, in ms.
    pub fn timestamp_of(&self, delta: i64) -> i64 {
        match self.attributes().timestamp_type() {
            TimestampType::CreateTime => self.header.base_timestamp.get().wrapping_add(delta),
            TimestampType::LogAppendTime => self.header.max_timestamp.get(),
        }
    }

    /// Compares the content with its checksum. Reads all of it.
    ///
    /// # Errors
    /// `Crc`.
    pub fn check_crc(&self) -> Result<(), BatchFault> {
        let stored = self.header.crc.get();
        let computed = crc32c::crc32c(&self.bytes[CRC_FROM..]);
        if stored == computed { Ok(()) } else { Err(BatchFault::Crc { stored, computed }) }
    }

    /// Checks what must hold for every batch in a log, whoever wrote it: the CRC, and offsets that fit. Gaps and a
    /// count below the delta are legal there (compaction). Reads all of it.
    ///
    /// # Errors
    /// `Crc`, `Offsets` or `Count`.
    pub fn check_stored(&self) -> Result<(), BatchFault> {
        self.check_crc()?;
        let (base, last_offset_delta) = (self.header.base_offset.get(), self.header.last_offset_delta.get());
        let fits = base >= 0 && last_offset_delta >= 0 && base.checked_add(i64::from(last_offset_delta) + 1).is_some();
        if !fits {
            return Err(BatchFault::Offsets { base, last_offset_delta });
        }
        let count = self.header.record_count.get();
        if count < 0 || i64::from(count) > i64::from(last_offset_delta) + 1 {
            return Err(BatchFault::Count { count, last_offset_delta });
        }
        Ok(())
    }

    /// Checks a produced batch, in the order of kafka-spec §3.1 (rows 3 and 10 to 19; a null key is no fault while
    /// topics cannot be compacted). Compressed records are not looked into: their count, deltas and timestamps are
    /// taken from the header, which the CRC covers. Reads all of it.
    ///
    /// # Errors
    /// The first fault found; [`BatchFault::code`] is what the client is told.
    pub fn validate(&self, rules: &AppendRules) -> Result<Accepted, BatchFault> {
        let codec = self.check_codec(rules)?;
        let base = self.header.base_offset.get();
        if base != 0 {
            return Err(BatchFault::BaseOffset(base));
        }
        if self.size_bytes() as u64 > u64::from(rules.message_bytes_max) {
            return Err(BatchFault::TooLarge { len: self.size_bytes(), max: rules.message_bytes_max });
        }
        self.check_crc()?;
        self.check_header()?;
        let stamps = match codec {
            Codec::None => self.walk()?,
            _ => self.header_stamps(),
        };
        self.check_timestamps(rules, stamps)?;
        if self.size_bytes() as u64 > rules.segment_bytes {
            return Err(BatchFault::LargerThanSegment { len: self.size_bytes(), max: rules.segment_bytes });
        }
        Ok(self.accept(rules, stamps))
    }

    /// The header that this batch gets in the log; `payload` follows it unchanged. Reads the payload only for a restamp.
    pub fn stamped(&self, base_offset: Offset, leader_epoch: LeaderEpoch, restamp: Option<Restamp>) -> BatchHeader {
        let mut header = *self.header;
        header.patch(base_offset, leader_epoch);
        if let Some(restamp) = restamp {
            header.restamp(restamp, self.payload());
        }
        header
    }

    fn check_codec(&self, rules: &AppendRules) -> Result<Codec, BatchFault> {
        match self.attributes().codec() {
            None => Err(BatchFault::UnknownCodec(self.header.attributes.get())),
            Some(Codec::Zstd) if !rules.zstd_allowed => Err(BatchFault::ZstdNotAllowed),
            Some(codec) => Ok(codec),
        }
    }

    /// Count, control bit and sequence.
    fn check_header(&self) -> Result<(), BatchFault> {
        let (count, last_offset_delta) = (self.header.record_count.get(), self.header.last_offset_delta.get());
        if count <= 0 || last_offset_delta != count - 1 {
            return Err(BatchFault::Count { count, last_offset_delta });
        }
        if self.attributes().is_control() {
            return Err(BatchFault::Control);
        }
        let (id, sequence) = (self.header.producer_id.get(), self.header.base_sequence.get());
        if id > -1 && sequence < 0 {
            return Err(BatchFault::Sequence { id, sequence });
        }
        if self.attributes().is_transactional() {
            return Err(BatchFault::Transactional);
        }
        Ok(())
    }

    /// Reads through uncompressed records: they must be whole and count up from 0.
    fn walk(&self) -> Result<Stamps, BatchFault> {
        let mut stamps = Stamps::NONE;
        for (index, record) in (0u32..).zip(self.records_in(self.payload())) {
            let record = record.map_err(|fault| BatchFault::Record { index, fault })?;
            if i64::from(record.offset_delta) != i64::from(index) {
                let fault = RecordFault::OffsetDelta(record.offset_delta);
                return Err(BatchFault::Record { index, fault });
            }
            stamps.see(self.timestamp_of(record.timestamp_delta));
        }
        Ok(stamps)
    }

    fn header_stamps(&self) -> Stamps {
        let mut stamps = Stamps::NONE;
        stamps.see(self.header.max_timestamp.get());
        if self.attributes().timestamp_type() == TimestampType::CreateTime && stamps.any() {
            stamps.see(self.header.base_timestamp.get());
            // The base may be anything a delta can be taken from; only the largest is what the header says it is.
            stamps.max = self.header.max_timestamp.get();
        }
        stamps
    }

    fn check_timestamps(&self, rules: &AppendRules, stamps: Stamps) -> Result<(), BatchFault> {
        let claims_append_time = self.attributes().timestamp_type() == TimestampType::LogAppendTime;
        if claims_append_time && (rules.timestamp_type == TimestampType::LogAppendTime || !stamps.any()) {
            return Err(BatchFault::TimestampType);
        }
        if rules.timestamp_type == TimestampType::LogAppendTime || !stamps.any() {
            return Ok(());
        }
        let bound = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let from = rules.now.0.saturating_sub(bound(rules.timestamp_before_max_ms));
        let to = rules.now.0.saturating_add(bound(rules.timestamp_after_max_ms));
        for timestamp in [stamps.min, stamps.max] {
            if timestamp < from || to < timestamp {
                return Err(BatchFault::TimestampRange { timestamp, from, to });
            }
        }
        Ok(())
    }

    fn accept(&self, rules: &AppendRules, stamps: Stamps) -> Accepted {
        let max_timestamp = match rules.timestamp_type {
            TimestampType::CreateTime => stamps.max,
            TimestampType::LogAppendTime => rules.now.0,
        };
        let unchanged = self.attributes().timestamp_type() == rules.timestamp_type
            && self.header.max_timestamp.get() == max_timestamp;
        let restamp = Restamp { timestamp_type: rules.timestamp_type, max_timestamp };
        Accepted { max_timestamp, restamp: (!unchanged).then_some(restamp) }
    }
}

/// Smallest and largest timestamp of a batch; −1 ("none") counts for neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamps {
    min: i64,
    max: i64,
}

impl Stamps {
    const NONE: Stamps = Stamps { min: -1, max: -1 };

    fn any(self) -> bool {
        self != Stamps::NONE
    }

    fn see(&mut self, timestamp: i64) {
        if timestamp == -1 {
            return;
        }
        if !self.any() {
            *self = Stamps { min: timestamp, max: timestamp };
        }
        self.min = self.min.min(timestamp);
        self.max = self.max.max(timestamp);
    }
}

/// Batches back to back, with the byte position of each. Ends after the last one or after the first fault; bytes that
/// end inside a batch give `Incomplete`.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The batches that `bytes` consist of.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, at: 0 }
}

impl<'a> Iterator for Batches<'a> {
    type Item = (usize, Result<BatchView<'a>, BatchFault>);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let batch = BatchView::parse(rest);
        self.at = batch.map_or(self.bytes.len(), |batch| at + batch.size_bytes());
        Some((at, batch))
    }
}

#[cfg(test)]
mod tests;
