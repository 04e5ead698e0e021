//! Heartbeat (12) of a classic group.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api Heartbeat = 12, versions 0..=4, flexible 4;

    request HeartbeatRequest<'a> {
        group_id: &'a str;
        generation_id: i32;
        member_id: &'a str;
        group_instance_id: Option<&'a str>, from(3).nullable();
    }

    response HeartbeatResponse {
        throttle_time_ms: i32, from(1);
        error_code: ErrorCode;
    }
}
