//! ListOffsets (2): offsets by timestamp, earliest and latest.

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ListOffsets = 2, versions 1..=11, flexible 6;

    request ListOffsetsRequest<'a> {
        /// −1 for a client.
        replica_id: BrokerId;
        /// 0: the latest offset is the high watermark; 1: the last stable offset.
        isolation_level: i8, from(2);
        topics: Vec<ListOffsetsTopic<'a>>;
        timeout_ms: i32, from(10).ignorable();
    }

    struct ListOffsetsTopic<'a> {
        name: &'a str;
        partitions: Vec<ListOffsetsPartition>;
    }

    struct ListOffsetsPartition {
        partition_index: PartitionIndex;
        current_leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(4).ignorable();
        /// Milliseconds since the epoch; −1 latest, −2 earliest, −3 at the largest timestamp; below that, tiered.
        timestamp: i64;
    }

    response ListOffsetsResponse<'a> {
        throttle_time_ms: i32, from(2);
        topics: Vec<ListOffsetsTopicResponse<'a>>;
    }

    struct ListOffsetsTopicResponse<'a> {
        name: &'a str;
        partitions: Vec<ListOffsetsPartitionResponse>;
    }

    struct ListOffsetsPartitionResponse {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        timestamp: i64 = -1;
        /// −1 when no record is as new as asked.
        offset: Offset = Offset(-1);
        leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(4);
    }
}
