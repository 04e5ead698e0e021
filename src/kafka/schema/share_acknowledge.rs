//! ShareAcknowledge (79).

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ShareAcknowledge = 79, versions 1..=2, flexible 1;

    request ShareAcknowledgeRequest<'a> {
        group_id: Option<&'a str>, nullable();
        member_id: Option<&'a str>, nullable();
        share_session_epoch: i32;
        is_renew_ack: bool, from(2);
        topics: Vec<AcknowledgeTopic>;
    }

    struct AcknowledgeTopic {
        topic_id: TopicId;
        partitions: Vec<AcknowledgePartition>;
    }

    struct AcknowledgePartition {
        partition_index: PartitionIndex;
        acknowledgement_batches: Vec<AcknowledgementBatch>;
    }

    struct AcknowledgementBatch {
        first_offset: Offset;
        last_offset: Offset;
        acknowledge_types: Vec<i8>;
    }

    response ShareAcknowledgeResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        acquisition_lock_timeout_ms: i32, from(2);
        responses: Vec<ShareAcknowledgeTopicResponse<'a>>;
        node_endpoints: Vec<NodeEndpoint<'a>>;
    }

    struct ShareAcknowledgeTopicResponse<'a> {
        topic_id: TopicId;
        partitions: Vec<PartitionData<'a>>;
    }

    struct PartitionData<'a> {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        current_leader: LeaderIdAndEpoch;
    }

    struct LeaderIdAndEpoch {
        leader_id: BrokerId;
        leader_epoch: LeaderEpoch;
    }

    struct NodeEndpoint<'a> {
        node_id: BrokerId;
        host: &'a str;
        port: i32;
        rack: Option<&'a str>, nullable();
    }
}
