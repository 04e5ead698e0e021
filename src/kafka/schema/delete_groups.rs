//! DeleteGroups (42).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DeleteGroups = 42, versions 0..=3, flexible 2;

    request DeleteGroupsRequest<'a> {
        groups_names: Vec<&'a str>;
    }

    response DeleteGroupsResponse<'a> {
        throttle_time_ms: i32;
        results: Vec<DeletableGroupResult<'a>>;
    }

    struct DeletableGroupResult<'a> {
        group_id: &'a str;
        error_code: ErrorCode;
        error_message: Option<&'a str>, from(3).nullable();
    }
}
