//! Metadata (3): brokers, topics and partitions.

use crate::ids::{BrokerId, LeaderEpoch, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api Metadata = 3, versions 0..=13, flexible 9;

    request MetadataRequest<'a> {
        /// Null for all topics; in version 0 an empty list means all.
        topics: Option<Vec<MetadataRequestTopic<'a>>>, nullable_from(1);
        allow_auto_topic_creation: bool = true, from(4);
        include_cluster_authorized_operations: bool, from(8).until(10);
        include_topic_authorized_operations: bool, from(8);
    }

    struct MetadataRequestTopic<'a> {
        topic_id: TopicId, from(10).ignorable();
        /// Null to ask by id, which works from version 12 on.
        name: Option<&'a str>, nullable_from(10);
    }

    response MetadataResponse<'a> {
        throttle_time_ms: i32, from(3);
        brokers: Vec<MetadataResponseBroker<'a>>;
        cluster_id: Option<&'a str>, from(2).nullable();
        /// −1 when it is not known.
        controller_id: BrokerId = BrokerId(-1), from(1);
        topics: Vec<MetadataResponseTopic<'a>>;
        /// The default says that nobody asked.
        cluster_authorized_operations: i32 = i32::MIN, from(8).until(10);
        error_code: ErrorCode, from(13);
    }

    struct MetadataResponseBroker<'a> {
        node_id: BrokerId;
        host: &'a str;
        port: i32;
        rack: Option<&'a str>, from(1).nullable();
    }

    struct MetadataResponseTopic<'a> {
        error_code: ErrorCode;
        /// Null for an id that is not known.
        name: Option<&'a str>, nullable_from(12);
        topic_id: TopicId, from(10);
        is_internal: bool, from(1);
        partitions: Vec<MetadataResponsePartition>;
        topic_authorized_operations: i32 = i32::MIN, from(8);
    }

    struct MetadataResponsePartition {
        error_code: ErrorCode;
        partition_index: PartitionIndex;
        /// −1 without a leader; the error is 5 then.
        leader_id: BrokerId;
        leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(7);
        replica_nodes: Vec<BrokerId>;
        isr_nodes: Vec<BrokerId>;
        offline_replicas: Vec<BrokerId>, from(5);
    }
}
