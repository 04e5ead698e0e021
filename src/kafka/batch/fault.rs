//! What can be wrong with a batch, and what a producer is told about it.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::record::RecordFault;

/// What is wrong with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    /// The bytes end inside the batch: the normal end of a file cut in the middle of a write.
    #[error("{have} bytes of a batch that needs {need}")]
    Incomplete {
        /// Bytes there are.
        have: usize,
        /// Bytes needed, as far as known: 12 until the length can be read.
        need: usize,
    },
    /// A length that no batch has, such as the zeros behind the last batch of an active file.
    #[error("batch length {0}")]
    Length(i32),
    /// Another batch format.
    #[error("magic {0}")]
    Magic(i8),
    /// More than one batch where exactly one belongs.
    #[error("{0} bytes after the batch")]
    NotSingle(usize),
    /// The content does not match its checksum.
    #[error("crc {stored:#010x}, computed {computed:#010x}")]
    Crc {
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// A number that stands for no codec.
    #[error("attributes {0:#06x} name no codec")]
    UnknownCodec(i16),
    /// zstd from a client version that may not use it.
    #[error("zstd needs Produce v7")]
    ZstdNotAllowed,
    /// A producer's batch that does not start at 0.
    #[error("base offset {0} in a produced batch")]
    BaseOffset(i64),
    /// Larger than `max.message.bytes`.
    #[error("{len} bytes, at most {max} allowed")]
    TooLarge {
        /// Bytes of the batch.
        len: usize,
        /// The limit.
        max: u32,
    },
    /// Larger than a whole segment.
    #[error("{len} bytes, a segment has {max}")]
    LargerThanSegment {
        /// Bytes of the batch.
        len: usize,
        /// The limit.
        max: u64,
    },
    /// Count of records and offset delta contradict each other or are out of range.
    #[error("{count} records with last offset delta {last_offset_delta}")]
    Count {
        /// Count in the header.
        count: i32,
        /// Delta in the header.
        last_offset_delta: i32,
    },
    /// The offsets of a stored batch do not fit.
    #[error("base offset {base} with last offset delta {last_offset_delta}")]
    Offsets {
        /// Base offset in the header.
        base: i64,
        /// Delta in the header.
        last_offset_delta: i32,
    },
    /// A control batch from a client.
    #[error("control batch from a client")]
    Control,
    /// A transactional batch, which this broker cannot keep the promise of.
    #[error("transactional batch")]
    Transactional,
    /// A producer id without a sequence.
    #[error("producer id {id} with sequence {sequence}")]
    Sequence {
        /// The producer id.
        id: i64,
        /// The base sequence.
        sequence: i32,
    },
    /// A record that cannot be read or does not count up.
    #[error("record {index}: {fault}")]
    Record {
        /// Which one, from 0.
        index: u32,
        /// What is wrong with it.
        fault: RecordFault,
    },
    /// Older or newer than the topic allows.
    #[error("timestamp {timestamp}, between {from} and {to} allowed")]
    TimestampRange {
        /// The timestamp, in ms.
        timestamp: i64,
        /// Oldest allowed.
        from: i64,
        /// Newest allowed.
        to: i64,
    },
    /// A producer claims append time.
    #[error("LogAppendTime set by a producer")]
    TimestampType,
}

impl BatchFault {
    /// What a producer is told (kafka-spec §3.1).
    pub fn code(&self) -> ErrorCode {
        match self {
            BatchFault::Length(_) | BatchFault::Crc { .. } => ErrorCode::CORRUPT_MESSAGE,
            BatchFault::UnknownCodec(_) | BatchFault::ZstdNotAllowed => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            BatchFault::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
            BatchFault::LargerThanSegment { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
            BatchFault::Transactional => ErrorCode::INVALID_TXN_STATE,
            BatchFault::TimestampRange { .. } | BatchFault::TimestampType => ErrorCode::INVALID_TIMESTAMP,
            BatchFault::Incomplete { .. }
            | BatchFault::Magic(_)
            | BatchFault::NotSingle(_)
            | BatchFault::BaseOffset(_)
            | BatchFault::Count { .. }
            | BatchFault::Offsets { .. }
            | BatchFault::Control
            | BatchFault::Sequence { .. }
            | BatchFault::Record { .. } => ErrorCode::INVALID_RECORD,
        }
    }
}
