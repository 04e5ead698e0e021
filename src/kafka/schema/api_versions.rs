//! ApiVersions (18): which APIs and versions the broker speaks.

use crate::ids::BrokerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ApiVersions = 18, versions 0..=5, flexible 3;

    request ApiVersionsRequest<'a> {
        client_software_name: &'a str, from(3).ignorable();
        client_software_version: &'a str, from(3).ignorable();
        cluster_id: Option<&'a str>, from(5).nullable().ignorable();
        node_id: BrokerId = BrokerId(-1), from(5).ignorable();
    }

    response ApiVersionsResponse<'a> {
        error_code: ErrorCode;
        api_keys: Vec<ApiVersion>;
        throttle_time_ms: i32, from(1);
        supported_features: Vec<SupportedFeatureKey<'a>>, from(3).tag(0);
        finalized_features_epoch: i64 = -1, from(3).tag(1);
        finalized_features: Vec<FinalizedFeatureKey<'a>>, from(3).tag(2);
        zk_migration_ready: bool, from(3).tag(3);
    }

    struct ApiVersion {
        api_key: i16;
        min_version: i16;
        max_version: i16;
    }

    struct SupportedFeatureKey<'a> {
        name: &'a str;
        min_version: i16;
        max_version: i16;
    }

    struct FinalizedFeatureKey<'a> {
        name: &'a str;
        max_version_level: i16;
        min_version_level: i16;
    }
}
