//! AlterConfigs (33): the older way that replaces all settings of a resource.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api AlterConfigs = 33, versions 0..=2, flexible 2;

    request AlterConfigsRequest<'a> {
        resources: Vec<AlterConfigsResource<'a>>;
        validate_only: bool;
    }

    struct AlterConfigsResource<'a> {
        resource_type: i8;
        resource_name: &'a str;
        configs: Vec<AlterableConfig<'a>>;
    }

    struct AlterableConfig<'a> {
        name: &'a str;
        value: Option<&'a str>, nullable();
    }

    response AlterConfigsResponse<'a> {
        throttle_time_ms: i32;
        responses: Vec<AlterConfigsResourceResponse<'a>>;
    }

    struct AlterConfigsResourceResponse<'a> {
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        resource_type: i8;
        resource_name: &'a str;
    }
}
