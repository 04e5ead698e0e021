//! FindCoordinator (10): which broker coordinates a group or a transaction.

use crate::ids::BrokerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api FindCoordinator = 10, versions 0..=6, flexible 3;

    request FindCoordinatorRequest<'a> {
        key: &'a str, until(3);
        key_type: i8, from(1);
        coordinator_keys: Vec<&'a str>, from(4);
    }

    response FindCoordinatorResponse<'a> {
        throttle_time_ms: i32, from(1);
        error_code: ErrorCode, until(3);
        error_message: Option<&'a str>, from(1).until(3).nullable();
        node_id: BrokerId, until(3);
        host: &'a str, until(3);
        port: i32, until(3);
        coordinators: Vec<Coordinator<'a>>, from(4);
    }

    struct Coordinator<'a> {
        key: &'a str;
        node_id: BrokerId;
        host: &'a str;
        port: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
    }
}
