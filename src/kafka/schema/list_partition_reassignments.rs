//! ListPartitionReassignments (46).

use crate::ids::{BrokerId, PartitionIndex};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ListPartitionReassignments = 46, versions 0..=0, flexible 0;

    request ListPartitionReassignmentsRequest<'a> {
        timeout_ms: i32 = 60000;
        topics: Option<Vec<ListPartitionReassignmentsTopics<'a>>>, nullable();
    }

    struct ListPartitionReassignmentsTopics<'a> {
        name: &'a str;
        partition_indexes: Vec<PartitionIndex>;
    }

    response ListPartitionReassignmentsResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        topics: Vec<OngoingTopicReassignment<'a>>;
    }

    struct OngoingTopicReassignment<'a> {
        name: &'a str;
        partitions: Vec<OngoingPartitionReassignment>;
    }

    struct OngoingPartitionReassignment {
        partition_index: PartitionIndex;
        replicas: Vec<BrokerId>;
        adding_replicas: Vec<BrokerId>;
        removing_replicas: Vec<BrokerId>;
    }
}
