//! ShareGroupHeartbeat (76).

use crate::ids::{PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ShareGroupHeartbeat = 76, versions 1..=1, flexible 1;

    request ShareGroupHeartbeatRequest<'a> {
        group_id: &'a str;
        member_id: &'a str;
        member_epoch: i32;
        rack_id: Option<&'a str>, nullable();
        subscribed_topic_names: Option<Vec<&'a str>>, nullable();
    }

    response ShareGroupHeartbeatResponse<'a> {
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

    struct TopicPartitions {
        topic_id: TopicId;
        partitions: Vec<PartitionIndex>;
    }
}
