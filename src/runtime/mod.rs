//! The production loops of the threads, and what connects them: the only place that knows both `io` and the decisions
//! of `shard` and `control`.

pub mod data_dirs;
pub mod exporter;
pub mod host;
pub mod http;
pub mod identity;
pub mod supervise;
