//! DescribeConfigs (32).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeConfigs = 32, versions 1..=4, flexible 4;

    request DescribeConfigsRequest<'a> {
        resources: Vec<DescribeConfigsResource<'a>>;
        include_synonyms: bool;
        include_documentation: bool, from(3);
    }

    struct DescribeConfigsResource<'a> {
        resource_type: i8;
        resource_name: &'a str;
        configuration_keys: Option<Vec<&'a str>>, nullable();
    }

    response DescribeConfigsResponse<'a> {
        throttle_time_ms: i32;
        results: Vec<DescribeConfigsResult<'a>>;
    }

    struct DescribeConfigsResult<'a> {
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        resource_type: i8;
        resource_name: &'a str;
        configs: Vec<DescribeConfigsResourceResult<'a>>;
    }

    struct DescribeConfigsResourceResult<'a> {
        name: &'a str;
        value: Option<&'a str>, nullable();
        read_only: bool;
        config_source: i8 = -1;
        is_sensitive: bool;
        synonyms: Vec<DescribeConfigsSynonym<'a>>;
        config_type: i8, from(3);
        documentation: Option<&'a str>, from(3).nullable();
    }

    struct DescribeConfigsSynonym<'a> {
        name: &'a str;
        value: Option<&'a str>, nullable();
        source: i8;
    }
}
