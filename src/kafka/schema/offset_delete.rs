//! OffsetDelete (47).

use crate::ids::PartitionIndex;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api OffsetDelete = 47, versions 0..=0, flexible i16::MAX;

    request OffsetDeleteRequest<'a> {
        group_id: &'a str;
        topics: Vec<OffsetDeleteRequestTopic<'a>>;
    }

    struct OffsetDeleteRequestTopic<'a> {
        name: &'a str;
        partitions: Vec<OffsetDeleteRequestPartition>;
    }

    struct OffsetDeleteRequestPartition {
        partition_index: PartitionIndex;
    }

    response OffsetDeleteResponse<'a> {
        error_code: ErrorCode;
        throttle_time_ms: i32;
        topics: Vec<OffsetDeleteResponseTopic<'a>>;
    }

    struct OffsetDeleteResponseTopic<'a> {
        name: &'a str;
        partitions: Vec<OffsetDeleteResponsePartition>;
    }

    struct OffsetDeleteResponsePartition {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
    }
}
