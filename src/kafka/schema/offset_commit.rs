//! OffsetCommit (8).

use crate::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api OffsetCommit = 8, versions 2..=10, flexible 8;

    request OffsetCommitRequest<'a> {
        group_id: &'a str;
        generation_id_or_member_epoch: i32 = -1;
        member_id: &'a str;
        group_instance_id: Option<&'a str>, from(7).nullable();
        retention_time_ms: i64 = -1, until(4).ignorable();
        topics: Vec<OffsetCommitRequestTopic<'a>>;
    }

    struct OffsetCommitRequestTopic<'a> {
        name: &'a str, until(9).ignorable();
        topic_id: TopicId, from(10).ignorable();
        partitions: Vec<OffsetCommitRequestPartition<'a>>;
    }

    struct OffsetCommitRequestPartition<'a> {
        partition_index: PartitionIndex;
        committed_offset: Offset;
        committed_leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(6).ignorable();
        committed_metadata: Option<&'a str>, nullable();
    }

    response OffsetCommitResponse<'a> {
        throttle_time_ms: i32, from(3);
        topics: Vec<OffsetCommitResponseTopic<'a>>;
    }

    struct OffsetCommitResponseTopic<'a> {
        name: &'a str, until(9);
        topic_id: TopicId, from(10);
        partitions: Vec<OffsetCommitResponsePartition>;
    }

    struct OffsetCommitResponsePartition {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
    }
}
