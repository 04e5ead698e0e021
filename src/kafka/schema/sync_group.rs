//! SyncGroup (14).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api SyncGroup = 14, versions 0..=5, flexible 4;

    request SyncGroupRequest<'a> {
        group_id: &'a str;
        generation_id: i32;
        member_id: &'a str;
        group_instance_id: Option<&'a str>, from(3).nullable();
        protocol_type: Option<&'a str>, from(5).nullable().ignorable();
        protocol_name: Option<&'a str>, from(5).nullable().ignorable();
        assignments: Vec<SyncGroupRequestAssignment<'a>>;
    }

    struct SyncGroupRequestAssignment<'a> {
        member_id: &'a str;
        assignment: &'a [u8];
    }

    response SyncGroupResponse<'a> {
        throttle_time_ms: i32, from(1);
        error_code: ErrorCode;
        protocol_type: Option<&'a str>, from(5).nullable();
        protocol_name: Option<&'a str>, from(5).nullable();
        assignment: &'a [u8];
    }
}
