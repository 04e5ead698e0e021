//! OffsetFetch (9).

use crate::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api OffsetFetch = 9, versions 1..=10, flexible 6;

    request OffsetFetchRequest<'a> {
        group_id: &'a str, until(7);
        topics: Option<Vec<OffsetFetchRequestTopic<'a>>>, until(7).nullable_from(2);
        groups: Vec<OffsetFetchRequestGroup<'a>>, from(8);
        require_stable: bool, from(7);
    }

    struct OffsetFetchRequestTopic<'a> {
        name: &'a str;
        partition_indexes: Vec<PartitionIndex>;
    }

    struct OffsetFetchRequestGroup<'a> {
        group_id: &'a str;
        member_id: Option<&'a str>, from(9).nullable().ignorable();
        member_epoch: i32 = -1, from(9).ignorable();
        topics: Option<Vec<OffsetFetchRequestTopics<'a>>>, nullable();
    }

    struct OffsetFetchRequestTopics<'a> {
        name: &'a str, until(9).ignorable();
        topic_id: TopicId, from(10).ignorable();
        partition_indexes: Vec<PartitionIndex>;
    }

    response OffsetFetchResponse<'a> {
        throttle_time_ms: i32, from(3);
        topics: Vec<OffsetFetchResponseTopic<'a>>, until(7);
        error_code: ErrorCode, from(2).until(7);
        groups: Vec<OffsetFetchResponseGroup<'a>>, from(8);
    }

    struct OffsetFetchResponseTopic<'a> {
        name: &'a str;
        partitions: Vec<OffsetFetchResponsePartition<'a>>;
    }

    struct OffsetFetchResponsePartition<'a> {
        partition_index: PartitionIndex;
        committed_offset: Offset;
        committed_leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(5);
        metadata: Option<&'a str>, nullable();
        error_code: ErrorCode;
    }

    struct OffsetFetchResponseGroup<'a> {
        group_id: &'a str;
        topics: Vec<OffsetFetchResponseTopics<'a>>;
        error_code: ErrorCode;
    }

    struct OffsetFetchResponseTopics<'a> {
        name: &'a str, until(9);
        topic_id: TopicId, from(10);
        partitions: Vec<OffsetFetchResponsePartitions<'a>>;
    }

    struct OffsetFetchResponsePartitions<'a> {
        partition_index: PartitionIndex;
        committed_offset: Offset;
        committed_leader_epoch: LeaderEpoch = LeaderEpoch(-1);
        metadata: Option<&'a str>, nullable();
        error_code: ErrorCode;
    }
}
