//! DescribeCluster (60).

use crate::ids::BrokerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeCluster = 60, versions 0..=2, flexible 0;

    request DescribeClusterRequest {
        include_cluster_authorized_operations: bool;
        endpoint_type: i8 = 1, from(1);
        include_fenced_brokers: bool, from(2);
    }

    response DescribeClusterResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        endpoint_type: i8 = 1, from(1);
        cluster_id: &'a str;
        controller_id: BrokerId = BrokerId(-1);
        brokers: Vec<DescribeClusterBroker<'a>>;
        cluster_authorized_operations: i32 = i32::MIN;
    }

    struct DescribeClusterBroker<'a> {
        broker_id: BrokerId;
        host: &'a str;
        port: i32;
        rack: Option<&'a str>, nullable();
        is_fenced: bool, from(2);
    }
}
