//! ElectLeaders (43).

use crate::ids::PartitionIndex;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ElectLeaders = 43, versions 0..=2, flexible 2;

    request ElectLeadersRequest<'a> {
        election_type: i8, from(1);
        topic_partitions: Option<Vec<TopicPartitions<'a>>>, nullable();
        timeout_ms: i32 = 60000;
    }

    struct TopicPartitions<'a> {
        topic: &'a str;
        partitions: Vec<PartitionIndex>;
    }

    response ElectLeadersResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode, from(1);
        replica_election_results: Vec<ReplicaElectionResult<'a>>;
    }

    struct ReplicaElectionResult<'a> {
        topic: &'a str;
        partition_result: Vec<PartitionResult<'a>>;
    }

    struct PartitionResult<'a> {
        partition_id: PartitionIndex;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
    }
}
