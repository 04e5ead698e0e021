//! Pinion: a Kafka-wire-compatible broker for dedicated Linux hosts with NVMe.

pub mod arena;
pub mod control;
pub mod fatal;
pub mod ids;
pub mod kafka;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod shard;
