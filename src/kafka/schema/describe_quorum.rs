//! DescribeQuorum (55): the voters of the metadata log.

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeQuorum = 55, versions 0..=2, flexible 0;

    request DescribeQuorumRequest<'a> {
        topics: Vec<TopicData<'a>>;
    }

    struct TopicData<'a> {
        topic_name: &'a str;
        partitions: Vec<PartitionData>;
    }

    struct PartitionData {
        partition_index: PartitionIndex;
    }

    response DescribeQuorumResponse<'a> {
        error_code: ErrorCode;
        error_message: Option<&'a str>, from(2).nullable();
        topics: Vec<ResponseTopicData<'a>>;
        nodes: Vec<Node<'a>>, from(2);
    }

    struct ResponseTopicData<'a> {
        topic_name: &'a str;
        partitions: Vec<ResponsePartitionData<'a>>;
    }

    struct ResponsePartitionData<'a> {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        error_message: Option<&'a str>, from(2).nullable();
        leader_id: BrokerId;
        leader_epoch: LeaderEpoch;
        high_watermark: Offset;
        current_voters: Vec<ReplicaState>;
        observers: Vec<ReplicaState>;
    }

    struct ReplicaState {
        replica_id: BrokerId;
        replica_directory_id: [u8; 16], from(2);
        log_end_offset: Offset;
        last_fetch_timestamp: i64 = -1, from(1);
        last_caught_up_timestamp: i64 = -1, from(1);
    }

    struct Node<'a> {
        node_id: BrokerId;
        listeners: Vec<Listener<'a>>;
    }

    struct Listener<'a> {
        name: &'a str;
        host: &'a str;
        port: u16;
    }
}
