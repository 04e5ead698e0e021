//! OffsetForLeaderEpoch (23): where a leader epoch ends (KIP-101).

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api OffsetForLeaderEpoch = 23, versions 2..=4, flexible 4;

    request OffsetForLeaderEpochRequest<'a> {
        replica_id: BrokerId = BrokerId(-2), from(3).ignorable();
        topics: Vec<OffsetForLeaderTopic<'a>>;
    }

    struct OffsetForLeaderTopic<'a> {
        topic: &'a str;
        partitions: Vec<OffsetForLeaderPartition>;
    }

    struct OffsetForLeaderPartition {
        partition: PartitionIndex;
        current_leader_epoch: LeaderEpoch = LeaderEpoch(-1);
        leader_epoch: LeaderEpoch;
    }

    response OffsetForLeaderEpochResponse<'a> {
        throttle_time_ms: i32;
        topics: Vec<OffsetForLeaderTopicResult<'a>>;
    }

    struct OffsetForLeaderTopicResult<'a> {
        topic: &'a str;
        partitions: Vec<EpochEndOffset>;
    }

    struct EpochEndOffset {
        error_code: ErrorCode;
        partition: PartitionIndex;
        /// The largest epoch at or below the one asked for; −1 for none.
        leader_epoch: LeaderEpoch = LeaderEpoch(-1);
        /// Where that epoch ends; −1 for unknown.
        end_offset: Offset = Offset(-1);
    }
}
