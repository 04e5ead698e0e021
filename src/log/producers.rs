//! State of idempotent producers.

use crate::ids::{Offset, ProducerEpoch, ProducerId};

/// One active producer, as DescribeProducers shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSummary {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record, −1 when only a marker was seen.
    pub last_sequence: i32,
    /// Timestamp of its last batch.
    pub last_timestamp: i64,
    /// Coordinator epoch of its last marker, −1 without one.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, −1 without one.
    pub current_txn_start: Offset,
}
