//! EndTxn (26).

use crate::ids::{ProducerEpoch, ProducerId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api EndTxn = 26, versions 0..=5, flexible 3;

    request EndTxnRequest<'a> {
        transactional_id: &'a str;
        producer_id: ProducerId;
        producer_epoch: ProducerEpoch;
        committed: bool;
    }

    response EndTxnResponse {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        producer_id: ProducerId = ProducerId(-1), from(5);
        producer_epoch: ProducerEpoch = ProducerEpoch(-1), from(5);
    }
}
