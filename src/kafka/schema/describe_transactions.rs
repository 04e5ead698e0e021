//! DescribeTransactions (65).

use crate::ids::{PartitionIndex, ProducerEpoch, ProducerId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeTransactions = 65, versions 0..=0, flexible 0;

    request DescribeTransactionsRequest<'a> {
        transactional_ids: Vec<&'a str>;
    }

    response DescribeTransactionsResponse<'a> {
        throttle_time_ms: i32;
        transaction_states: Vec<TransactionState<'a>>;
    }

    struct TransactionState<'a> {
        error_code: ErrorCode;
        transactional_id: &'a str;
        transaction_state: &'a str;
        transaction_timeout_ms: i32;
        transaction_start_time_ms: i64;
        producer_id: ProducerId;
        producer_epoch: ProducerEpoch;
        topics: Vec<TopicData<'a>>;
    }

    struct TopicData<'a> {
        topic: &'a str;
        partitions: Vec<PartitionIndex>;
    }
}
