//! What the control core asks of the background thread, as data. Each job has exactly one completion.

use std::sync::Arc;

use crate::ids::{DirId, Errno, LeaderEpoch, PartitionId};
use crate::log::recovery::RecoveredLog;
use crate::log::topic_config::TopicConfig;
use crate::shard::action::PartitionDir;

/// A job on directories and files that data cores do not touch: not yet, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Make these partition directories, each with its `partition.metadata`, then one syncfs for the data directory.
    /// One that is there already with the same topic id is fine.
    CreateDirs {
        /// The data directory.
        dir: DirId,
        /// The partitions.
        partitions: Vec<NewDir>,
    },
    /// Find out what the logs of these partitions hold; at most `PARTITIONS_PER_MESSAGE_MAX` of them.
    Recover {
        /// The data directory in which they lie.
        dir: DirId,
        /// The partitions.
        partitions: Vec<RecoverAsk>,
    },
    /// Rename a directory inside its data directory, then fsync the data directory.
    Rename {
        /// Present name.
        from: PartitionDir,
        /// New name.
        to: Arc<str>,
    },
    /// Remove a renamed directory with all it holds.
    Remove(PartitionDir),
}

/// A partition directory to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDir {
    /// The partition; its topic id goes into `partition.metadata`.
    pub id: PartitionId,
    /// Name of the directory: `<topic>-<partition>`.
    pub name: Arc<str>,
}

/// A partition to recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverAsk {
    /// The partition.
    pub id: PartitionId,
    /// Where its files are.
    pub dir: PartitionDir,
    /// Highest leader epoch that this replica can have adopted; a batch above it is not ours.
    pub leader_epoch_max: LeaderEpoch,
    /// Settings of its topic.
    pub config: Arc<TopicConfig>,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobDone {
    /// `CreateDirs`: all of them are there and synced, or the error that stopped it.
    DirsCreated {
        /// The data directory.
        dir: DirId,
        /// The partitions of the job.
        partitions: Vec<PartitionId>,
        /// All done, or the first error.
        result: Result<(), Errno>,
    },
    /// `Recover`: each partition's log, or the read error that the operator has to know of.
    Recovered {
        /// The data directory.
        dir: DirId,
        /// The partitions of the job, in its order.
        partitions: Vec<(PartitionId, Result<RecoveredLog, Errno>)>,
    },
    /// `Rename` is done.
    Renamed {
        /// The old name.
        from: PartitionDir,
        /// Done, or why not.
        result: Result<(), Errno>,
    },
    /// `Remove` is done.
    Removed {
        /// The directory.
        dir: PartitionDir,
        /// Done, or why not.
        result: Result<(), Errno>,
    },
}

/// A partition directory as a start finds it, before any thread runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDir {
    /// The data directory, and the name below it.
    pub dir: PartitionDir,
    /// The topic id in its `partition.metadata`; `None` when that file is missing or unreadable.
    pub topic: Option<crate::ids::TopicId>,
    /// When its name last changed (ctime), ms since the epoch: how long a stray has been one.
    pub changed_ms: i64,
}
