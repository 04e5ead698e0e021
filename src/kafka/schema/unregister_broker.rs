//! UnregisterBroker (64).

use crate::ids::BrokerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api UnregisterBroker = 64, versions 0..=0, flexible 0;

    request UnregisterBrokerRequest {
        broker_id: BrokerId;
    }

    response UnregisterBrokerResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
    }
}
