//! Fixed limits with their units, tied together by const asserts. What an operator may change is in `config.rs`.

/// Bytes of one block: the unit of every O_DIRECT write and of the arena.
pub const BLOCK: u64 = 4096;
/// Bytes of one arena chunk; also the largest size class.
pub const CHUNK: u64 = 2 * 1024 * 1024;
/// Largest single disk write in bytes; larger ones reach io-wq on many devices.
pub const WRITE_BYTES_MAX: u64 = 512 * 1024;
/// Largest frame of any request but Produce, in bytes; Produce is bounded by `socket.request.max.bytes`.
pub const FRAME_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Memory in bytes that the arrays of one decoded message may take; four-byte elements can grow to a hundred bytes each.
pub const DECODED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Requests taken in from one connection and not yet answered.
pub const REQUESTS_PER_CONN_MAX: usize = 64;
/// Bytes of requests taken in from one connection and not yet answered.
pub const REQUEST_BYTES_PER_CONN_MAX: u64 = 32 * 1024 * 1024;
/// Batches of one idempotent producer that a partition remembers (kafka-spec §3.6).
pub const PRODUCER_BATCHES: usize = 5;
/// Bytes of an offset or time index (Kafka's default of `segment.index.bytes`); a full one rolls the segment.
pub const INDEX_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Idempotent producers that a partition remembers; one more makes the longest silent ones be forgotten.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 16_384;
/// Bytes of log after which a partition with idempotent producers writes a producer snapshot.
pub const PRODUCER_SNAPSHOT_BYTES: u64 = 16 * 1024 * 1024;
/// Milliseconds after which a partition with idempotent producers writes a producer snapshot.
pub const PRODUCER_SNAPSHOT_MS: u64 = 60_000;
/// Bytes a slice of one sendfile call may have, so that one slow reader never holds a core for long.
pub const SENDFILE_SLICE_BYTES: u64 = 256 * 1024;
/// Bytes of the first growth step of a segment file.
pub const FIRST_GROWTH_BYTES: u64 = 256 * 1024;
/// Largest growth step of a segment file in bytes.
pub const GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Partitions one CreateTopics request may ask for (Kafka's own cap).
pub const PARTITIONS_PER_REQUEST_MAX: usize = 10_000;
/// Partitions that one message between control core and data core may name, so that handling one stays short.
pub const PARTITIONS_PER_MESSAGE_MAX: usize = 256;
/// Producer ids of one block that the controller hands to a core.
pub const PRODUCER_IDS_PER_BLOCK: u32 = 1_000;

const _: () = assert!(BLOCK.is_power_of_two() && CHUNK.is_multiple_of(BLOCK));
const _: () = assert!(WRITE_BYTES_MAX.is_multiple_of(BLOCK) && WRITE_BYTES_MAX <= CHUNK);
const _: () = assert!(FIRST_GROWTH_BYTES.is_multiple_of(BLOCK) && FIRST_GROWTH_BYTES <= GROWTH_BYTES_MAX);
