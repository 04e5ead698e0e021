//! LeaveGroup (13).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api LeaveGroup = 13, versions 0..=5, flexible 4;

    request LeaveGroupRequest<'a> {
        group_id: &'a str;
        member_id: &'a str, until(2);
        members: Vec<MemberIdentity<'a>>, from(3);
    }

    struct MemberIdentity<'a> {
        member_id: &'a str;
        group_instance_id: Option<&'a str>, nullable();
        reason: Option<&'a str>, from(5).nullable().ignorable();
    }

    response LeaveGroupResponse<'a> {
        throttle_time_ms: i32, from(1);
        error_code: ErrorCode;
        members: Vec<MemberResponse<'a>>, from(3);
    }

    struct MemberResponse<'a> {
        member_id: &'a str;
        group_instance_id: Option<&'a str>, nullable();
        error_code: ErrorCode;
    }
}
