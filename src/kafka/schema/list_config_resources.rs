//! ListConfigResources (74).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ListConfigResources = 74, versions 0..=1, flexible 0;

    request ListConfigResourcesRequest {
        resource_types: Vec<i8>, from(1);
    }

    response ListConfigResourcesResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        config_resources: Vec<ConfigResource<'a>>;
    }

    struct ConfigResource<'a> {
        resource_name: &'a str;
        resource_type: i8 = 16, from(1);
    }
}
