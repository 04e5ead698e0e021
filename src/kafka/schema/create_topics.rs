//! CreateTopics (19).

use crate::ids::{BrokerId, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api CreateTopics = 19, versions 2..=7, flexible 5;

    request CreateTopicsRequest<'a> {
        topics: Vec<CreatableTopic<'a>>;
        timeout_ms: i32 = 60000;
        /// Check and answer, but create nothing.
        validate_only: bool;
    }

    struct CreatableTopic<'a> {
        name: &'a str;
        /// −1 for the broker's default (version 4 on), or with `assignments`.
        num_partitions: i32;
        /// −1 for the broker's default (version 4 on), or with `assignments`.
        replication_factor: i16;
        assignments: Vec<CreatableReplicaAssignment>;
        configs: Vec<CreatableTopicConfig<'a>>;
    }

    struct CreatableReplicaAssignment {
        partition_index: PartitionIndex;
        broker_ids: Vec<BrokerId>;
    }

    struct CreatableTopicConfig<'a> {
        name: &'a str;
        value: Option<&'a str>, nullable();
    }

    response CreateTopicsResponse<'a> {
        throttle_time_ms: i32;
        topics: Vec<CreatableTopicResult<'a>>;
    }

    struct CreatableTopicResult<'a> {
        name: &'a str;
        topic_id: TopicId, from(7);
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        topic_config_error_code: ErrorCode, from(5).tag(0);
        num_partitions: i32 = -1, from(5);
        replication_factor: i16 = -1, from(5);
        /// Null when the client may not see them.
        configs: Option<Vec<CreatableTopicConfigs<'a>>>, from(5).nullable();
    }

    struct CreatableTopicConfigs<'a> {
        name: &'a str;
        value: Option<&'a str>, nullable();
        read_only: bool;
        /// kafka-spec §1.8: 1 topic, 2 to 4 broker, 5 default.
        config_source: i8 = -1;
        is_sensitive: bool;
    }
}
