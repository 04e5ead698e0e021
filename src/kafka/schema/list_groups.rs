//! ListGroups (16).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ListGroups = 16, versions 0..=5, flexible 3;

    request ListGroupsRequest<'a> {
        states_filter: Vec<&'a str>, from(4);
        types_filter: Vec<&'a str>, from(5);
    }

    response ListGroupsResponse<'a> {
        throttle_time_ms: i32, from(1);
        error_code: ErrorCode;
        groups: Vec<ListedGroup<'a>>;
    }

    struct ListedGroup<'a> {
        group_id: &'a str;
        protocol_type: &'a str;
        group_state: &'a str, from(4);
        group_type: &'a str, from(5);
    }
}
