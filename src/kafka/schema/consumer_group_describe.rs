//! ConsumerGroupDescribe (69): groups of KIP-848.

use crate::ids::{PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ConsumerGroupDescribe = 69, versions 0..=1, flexible 0;

    request ConsumerGroupDescribeRequest<'a> {
        group_ids: Vec<&'a str>;
        include_authorized_operations: bool;
    }

    response ConsumerGroupDescribeResponse<'a> {
        throttle_time_ms: i32;
        groups: Vec<DescribedGroup<'a>>;
    }

    struct DescribedGroup<'a> {
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        group_id: &'a str;
        group_state: &'a str;
        group_epoch: i32;
        assignment_epoch: i32;
        assignor_name: &'a str;
        members: Vec<Member<'a>>;
        authorized_operations: i32 = i32::MIN;
    }

    struct Member<'a> {
        member_id: &'a str;
        instance_id: Option<&'a str>, nullable();
        rack_id: Option<&'a str>, nullable();
        member_epoch: i32;
        client_id: &'a str;
        client_host: &'a str;
        subscribed_topic_names: Vec<&'a str>;
        subscribed_topic_regex: Option<&'a str>, nullable();
        assignment: Assignment<'a>;
        target_assignment: Assignment<'a>;
        member_type: i8 = -1, from(1);
    }

    struct Assignment<'a> {
        topic_partitions: Vec<TopicPartitions<'a>>;
    }

    struct TopicPartitions<'a> {
        topic_id: TopicId;
        topic_name: &'a str;
        partitions: Vec<PartitionIndex>;
    }
}
