//! AddOffsetsToTxn (25).

use crate::ids::{ProducerEpoch, ProducerId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api AddOffsetsToTxn = 25, versions 0..=4, flexible 3;

    request AddOffsetsToTxnRequest<'a> {
        transactional_id: &'a str;
        producer_id: ProducerId;
        producer_epoch: ProducerEpoch;
        group_id: &'a str;
    }

    response AddOffsetsToTxnResponse {
        throttle_time_ms: i32;
        error_code: ErrorCode;
    }
}
