//! The production loops of the threads, and what connects them: the only place that knows both `io` and the decisions
//! of `shard` and `control`.

pub mod background;
pub mod control;
pub mod data;
pub mod data_dirs;
pub mod exporter;
pub mod host;
pub mod http;
pub mod identity;
pub mod inbox;
pub mod mailbox;
pub mod pulse;
pub mod raft_files;
pub mod recover;
pub mod serve;
pub mod shell;
pub mod stall;
pub mod supervise;
pub mod text_checkpoints;

#[cfg(test)]
mod tests;
