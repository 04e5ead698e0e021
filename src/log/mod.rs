//! The log of a partition: arithmetic and plans. Pure; it meets files only as actions and their completions.

pub mod appender;
pub mod checkpoint;
pub mod epochs;
pub mod group_commit;
pub mod index;
pub mod index_cache;
pub mod index_rebuild;
pub mod offsets;
pub mod producer_snapshot;
pub mod producers;
pub mod recovery;
pub mod retention;
pub mod segment;
pub mod text_files;
pub mod topic_config;
