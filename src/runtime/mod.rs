//! The production loops of the threads, and what connects them: the only place that knows both `io` and the decisions
//! of `shard` and `control`.

pub mod exporter;
pub mod http;
