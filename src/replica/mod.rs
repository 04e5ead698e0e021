//! Decisions of replication, per partition. Pure.
//!
//! With one replica the in-sync set is the leader alone; the shapes are those that followers will join.

pub mod acks;
pub mod high_watermark;
