//! DescribeTopicPartitions (75): topics page by page.

use crate::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeTopicPartitions = 75, versions 0..=0, flexible 0;

    request DescribeTopicPartitionsRequest<'a> {
        topics: Vec<TopicRequest<'a>>;
        response_partition_limit: i32 = 2000;
        cursor: Option<Cursor<'a>>, nullable();
    }

    struct TopicRequest<'a> {
        name: &'a str;
    }

    struct Cursor<'a> {
        topic_name: &'a str;
        partition_index: PartitionIndex;
    }

    response DescribeTopicPartitionsResponse<'a> {
        throttle_time_ms: i32;
        topics: Vec<DescribeTopicPartitionsResponseTopic<'a>>;
        next_cursor: Option<Cursor<'a>>, nullable();
    }

    struct DescribeTopicPartitionsResponseTopic<'a> {
        error_code: ErrorCode;
        name: Option<&'a str>, nullable();
        topic_id: TopicId;
        is_internal: bool;
        partitions: Vec<DescribeTopicPartitionsResponsePartition>;
        topic_authorized_operations: i32 = i32::MIN;
    }

    struct DescribeTopicPartitionsResponsePartition {
        error_code: ErrorCode;
        partition_index: PartitionIndex;
        leader_id: BrokerId;
        leader_epoch: LeaderEpoch = LeaderEpoch(-1);
        replica_nodes: Vec<BrokerId>;
        isr_nodes: Vec<BrokerId>;
        eligible_leader_replicas: Option<Vec<BrokerId>>, nullable();
        last_known_elr: Option<Vec<BrokerId>>, nullable();
        offline_replicas: Vec<BrokerId>;
    }
}
