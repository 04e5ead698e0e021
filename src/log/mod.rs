//! The log of a partition: arithmetic and plans. Pure; it meets files only as actions and their completions.

pub mod producers;
pub mod recovery;
pub mod topic_config;
