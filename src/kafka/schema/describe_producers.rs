//! DescribeProducers (61): the producer states of partitions.

use crate::ids::{Offset, PartitionIndex, ProducerId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeProducers = 61, versions 0..=0, flexible 0;

    request DescribeProducersRequest<'a> {
        topics: Vec<TopicRequest<'a>>;
    }

    struct TopicRequest<'a> {
        name: &'a str;
        partition_indexes: Vec<PartitionIndex>;
    }

    response DescribeProducersResponse<'a> {
        throttle_time_ms: i32;
        topics: Vec<TopicResponse<'a>>;
    }

    struct TopicResponse<'a> {
        name: &'a str;
        partitions: Vec<PartitionResponse<'a>>;
    }

    struct PartitionResponse<'a> {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        active_producers: Vec<ProducerState>;
    }

    struct ProducerState {
        producer_id: ProducerId;
        producer_epoch: i32;
        last_sequence: i32 = -1;
        last_timestamp: i64 = -1;
        coordinator_epoch: i32;
        current_txn_start_offset: Offset = Offset(-1);
    }
}
