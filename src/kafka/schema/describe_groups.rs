//! DescribeGroups (15).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeGroups = 15, versions 0..=6, flexible 5;

    request DescribeGroupsRequest<'a> {
        groups: Vec<&'a str>;
        include_authorized_operations: bool, from(3);
    }

    response DescribeGroupsResponse<'a> {
        throttle_time_ms: i32, from(1);
        groups: Vec<DescribedGroup<'a>>;
    }

    struct DescribedGroup<'a> {
        error_code: ErrorCode;
        error_message: Option<&'a str>, from(6).nullable();
        group_id: &'a str;
        group_state: &'a str;
        protocol_type: &'a str;
        protocol_data: &'a str;
        members: Vec<DescribedGroupMember<'a>>;
        authorized_operations: i32 = i32::MIN, from(3);
    }

    struct DescribedGroupMember<'a> {
        member_id: &'a str;
        group_instance_id: Option<&'a str>, from(4).nullable();
        client_id: &'a str;
        client_host: &'a str;
        member_metadata: &'a [u8];
        member_assignment: &'a [u8];
    }
}
