//! AlterPartitionReassignments (45).

use crate::ids::{BrokerId, PartitionIndex};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api AlterPartitionReassignments = 45, versions 0..=1, flexible 0;

    request AlterPartitionReassignmentsRequest<'a> {
        timeout_ms: i32 = 60000;
        allow_replication_factor_change: bool = true, from(1);
        topics: Vec<ReassignableTopic<'a>>;
    }

    struct ReassignableTopic<'a> {
        name: &'a str;
        partitions: Vec<ReassignablePartition>;
    }

    struct ReassignablePartition {
        partition_index: PartitionIndex;
        replicas: Option<Vec<BrokerId>>, nullable();
    }

    response AlterPartitionReassignmentsResponse<'a> {
        throttle_time_ms: i32;
        allow_replication_factor_change: bool = true, from(1);
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        responses: Vec<ReassignableTopicResponse<'a>>;
    }

    struct ReassignableTopicResponse<'a> {
        name: &'a str;
        partitions: Vec<ReassignablePartitionResponse<'a>>;
    }

    struct ReassignablePartitionResponse<'a> {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
    }
}
