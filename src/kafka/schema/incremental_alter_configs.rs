//! IncrementalAlterConfigs (44).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api IncrementalAlterConfigs = 44, versions 0..=1, flexible 1;

    request IncrementalAlterConfigsRequest<'a> {
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
        config_operation: i8;
        value: Option<&'a str>, nullable();
    }

    response IncrementalAlterConfigsResponse<'a> {
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
