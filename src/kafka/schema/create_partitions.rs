//! CreatePartitions (37): more partitions for a topic.

use crate::ids::BrokerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api CreatePartitions = 37, versions 0..=3, flexible 2;

    request CreatePartitionsRequest<'a> {
        topics: Vec<CreatePartitionsTopic<'a>>;
        timeout_ms: i32;
        validate_only: bool;
    }

    struct CreatePartitionsTopic<'a> {
        name: &'a str;
        count: i32;
        assignments: Option<Vec<CreatePartitionsAssignment>>, nullable();
    }

    struct CreatePartitionsAssignment {
        broker_ids: Vec<BrokerId>;
    }

    response CreatePartitionsResponse<'a> {
        throttle_time_ms: i32;
        results: Vec<CreatePartitionsTopicResult<'a>>;
    }

    struct CreatePartitionsTopicResult<'a> {
        name: &'a str;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
    }
}
