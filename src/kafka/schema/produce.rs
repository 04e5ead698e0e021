//! Produce (0): record batches to append.

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api Produce = 0, versions 3..=13, flexible 9;

    request ProduceRequest<'a> {
        /// Null outside of a transaction.
        transactional_id: Option<&'a str>, nullable();
        /// 0 no answer, 1 the leader has the records, −1 the in-sync replicas have them.
        acks: i16;
        /// How long to wait for the in-sync replicas, in milliseconds.
        timeout_ms: i32;
        topic_data: Vec<TopicProduceData<'a>>;
    }

    struct TopicProduceData<'a> {
        name: &'a str, until(12).ignorable();
        topic_id: TopicId, from(13).ignorable();
        partition_data: Vec<PartitionProduceData<'a>>;
    }

    struct PartitionProduceData<'a> {
        index: PartitionIndex;
        /// One record batch of version 2, by the rules of Produce; not looked at here.
        records: Option<&'a [u8]>, nullable();
    }

    response ProduceResponse<'a> {
        responses: Vec<TopicProduceResponse<'a>>;
        throttle_time_ms: i32;
        node_endpoints: Vec<NodeEndpoint<'a>>, from(10).tag(0);
    }

    struct TopicProduceResponse<'a> {
        name: &'a str, until(12);
        topic_id: TopicId, from(13);
        partition_responses: Vec<PartitionProduceResponse<'a>>;
    }

    struct PartitionProduceResponse<'a> {
        index: PartitionIndex;
        error_code: ErrorCode;
        /// Offset of the first record; −1 on an error.
        base_offset: Offset;
        /// The broker's clock when the topic uses it for timestamps, else −1.
        log_append_time_ms: i64 = -1;
        log_start_offset: Offset = Offset(-1), from(5);
        /// The records that a batch was refused for.
        record_errors: Vec<BatchIndexAndErrorMessage<'a>>, from(8);
        error_message: Option<&'a str>, from(8).nullable();
        /// Who leads instead, with an error 6 or 74 (KIP-951).
        current_leader: LeaderIdAndEpoch, from(10).tag(0);
    }

    struct BatchIndexAndErrorMessage<'a> {
        /// Index of the record inside its batch.
        batch_index: i32;
        batch_index_error_message: Option<&'a str>, nullable();
    }

    struct LeaderIdAndEpoch {
        leader_id: BrokerId = BrokerId(-1);
        leader_epoch: LeaderEpoch = LeaderEpoch(-1);
    }

    struct NodeEndpoint<'a> {
        node_id: BrokerId;
        host: &'a str;
        port: i32;
        rack: Option<&'a str>, nullable();
    }
}
