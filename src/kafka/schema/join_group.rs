//! JoinGroup (11).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api JoinGroup = 11, versions 0..=9, flexible 6;

    request JoinGroupRequest<'a> {
        group_id: &'a str;
        session_timeout_ms: i32;
        rebalance_timeout_ms: i32 = -1, from(1).ignorable();
        member_id: &'a str;
        group_instance_id: Option<&'a str>, from(5).nullable();
        protocol_type: &'a str;
        protocols: Vec<JoinGroupRequestProtocol<'a>>;
        reason: Option<&'a str>, from(8).nullable().ignorable();
    }

    struct JoinGroupRequestProtocol<'a> {
        name: &'a str;
        metadata: &'a [u8];
    }

    response JoinGroupResponse<'a> {
        throttle_time_ms: i32, from(2);
        error_code: ErrorCode;
        generation_id: i32 = -1;
        protocol_type: Option<&'a str>, from(7).nullable();
        protocol_name: Option<&'a str>, nullable_from(7);
        leader: &'a str;
        skip_assignment: bool, from(9);
        member_id: &'a str;
        members: Vec<JoinGroupResponseMember<'a>>;
    }

    struct JoinGroupResponseMember<'a> {
        member_id: &'a str;
        group_instance_id: Option<&'a str>, from(5).nullable();
        metadata: &'a [u8];
    }
}
