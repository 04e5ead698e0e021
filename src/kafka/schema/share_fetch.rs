//! ShareFetch (78).

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::{Records, schema};

schema! {
    api ShareFetch = 78, versions 1..=2, flexible 1;

    request ShareFetchRequest<'a> {
        group_id: Option<&'a str>, nullable();
        member_id: Option<&'a str>, nullable();
        share_session_epoch: i32;
        max_wait_ms: i32;
        min_bytes: i32;
        max_bytes: i32 = 0x7fffffff;
        max_records: i32;
        batch_size: i32;
        share_acquire_mode: i8, from(2).ignorable();
        is_renew_ack: bool, from(2);
        topics: Vec<FetchTopic>;
        forgotten_topics_data: Vec<ForgottenTopic>;
    }

    struct FetchTopic {
        topic_id: TopicId;
        partitions: Vec<FetchPartition>;
    }

    struct FetchPartition {
        partition_index: PartitionIndex;
        acknowledgement_batches: Vec<AcknowledgementBatch>;
    }

    struct AcknowledgementBatch {
        first_offset: Offset;
        last_offset: Offset;
        acknowledge_types: Vec<i8>;
    }

    struct ForgottenTopic {
        topic_id: TopicId;
        partitions: Vec<PartitionIndex>;
    }

    response ShareFetchResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        acquisition_lock_timeout_ms: i32;
        responses: Vec<ShareFetchableTopicResponse<'a>>;
        node_endpoints: Vec<NodeEndpoint<'a>>;
    }

    struct ShareFetchableTopicResponse<'a> {
        topic_id: TopicId;
        partitions: Vec<PartitionData<'a>>;
    }

    struct PartitionData<'a> {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        acknowledge_error_code: ErrorCode;
        acknowledge_error_message: Option<&'a str>, nullable();
        current_leader: LeaderIdAndEpoch;
        records: Records<'a>;
        acquired_records: Vec<AcquiredRecords>;
    }

    struct LeaderIdAndEpoch {
        leader_id: BrokerId;
        leader_epoch: LeaderEpoch;
    }

    struct AcquiredRecords {
        first_offset: Offset;
        last_offset: Offset;
        delivery_count: i16;
    }

    struct NodeEndpoint<'a> {
        node_id: BrokerId;
        host: &'a str;
        port: i32;
        rack: Option<&'a str>, nullable();
    }
}
