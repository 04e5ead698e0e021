//! AddPartitionsToTxn (24).

use crate::ids::{PartitionIndex, ProducerEpoch, ProducerId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api AddPartitionsToTxn = 24, versions 0..=5, flexible 3;

    request AddPartitionsToTxnRequest<'a> {
        transactions: Vec<AddPartitionsToTxnTransaction<'a>>, from(4);
        v3_and_below_transactional_id: &'a str, until(3);
        v3_and_below_producer_id: ProducerId, until(3);
        v3_and_below_producer_epoch: i16, until(3);
        v3_and_below_topics: Vec<AddPartitionsToTxnTopic<'a>>, until(3);
    }

    struct AddPartitionsToTxnTransaction<'a> {
        transactional_id: &'a str;
        producer_id: ProducerId;
        producer_epoch: ProducerEpoch;
        verify_only: bool;
        topics: Vec<AddPartitionsToTxnTopic<'a>>;
    }

    struct AddPartitionsToTxnTopic<'a> {
        name: &'a str;
        partitions: Vec<PartitionIndex>;
    }

    response AddPartitionsToTxnResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode, from(4);
        results_by_transaction: Vec<AddPartitionsToTxnResult<'a>>, from(4);
        results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult<'a>>, until(3);
    }

    struct AddPartitionsToTxnResult<'a> {
        transactional_id: &'a str;
        topic_results: Vec<AddPartitionsToTxnTopicResult<'a>>;
    }

    struct AddPartitionsToTxnTopicResult<'a> {
        name: &'a str;
        results_by_partition: Vec<AddPartitionsToTxnPartitionResult>;
    }

    struct AddPartitionsToTxnPartitionResult {
        partition_index: PartitionIndex;
        partition_error_code: ErrorCode;
    }
}
