//! Pinion: a Kafka-wire-compatible broker for dedicated Linux hosts with NVMe.

pub mod ids;
pub mod limits;
