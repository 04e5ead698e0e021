//! DeleteRecords (21): moves the log start.

use crate::ids::{Offset, PartitionIndex};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DeleteRecords = 21, versions 0..=2, flexible 2;

    request DeleteRecordsRequest<'a> {
        topics: Vec<DeleteRecordsTopic<'a>>;
        timeout_ms: i32;
    }

    struct DeleteRecordsTopic<'a> {
        name: &'a str;
        partitions: Vec<DeleteRecordsPartition>;
    }

    struct DeleteRecordsPartition {
        partition_index: PartitionIndex;
        offset: Offset;
    }

    response DeleteRecordsResponse<'a> {
        throttle_time_ms: i32;
        topics: Vec<DeleteRecordsTopicResult<'a>>;
    }

    struct DeleteRecordsTopicResult<'a> {
        name: &'a str;
        partitions: Vec<DeleteRecordsPartitionResult>;
    }

    struct DeleteRecordsPartitionResult {
        partition_index: PartitionIndex;
        low_watermark: Offset;
        error_code: ErrorCode;
    }
}
