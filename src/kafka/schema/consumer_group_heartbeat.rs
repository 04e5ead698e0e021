//! ConsumerGroupHeartbeat (68): groups of KIP-848.

use crate::ids::{PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ConsumerGroupHeartbeat = 68, versions 0..=1, flexible 0;

    request ConsumerGroupHeartbeatRequest<'a> {
        group_id: &'a str;
        member_id: &'a str;
        member_epoch: i32;
        instance_id: Option<&'a str>, nullable();
        rack_id: Option<&'a str>, nullable();
        rebalance_timeout_ms: i32 = -1;
        subscribed_topic_names: Option<Vec<&'a str>>, nullable();
        subscribed_topic_regex: Option<&'a str>, from(1).nullable();
        server_assignor: Option<&'a str>, nullable();
        topic_partitions: Option<Vec<TopicPartitions>>, nullable();
    }

    struct TopicPartitions {
        topic_id: TopicId;
        partitions: Vec<PartitionIndex>;
    }

    response ConsumerGroupHeartbeatResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        member_id: Option<&'a str>, nullable();
        member_epoch: i32;
        heartbeat_interval_ms: i32;
        assignment: Option<Assignment>, nullable();
    }

    struct Assignment {
        topic_partitions: Vec<TopicPartitions>;
    }
}
