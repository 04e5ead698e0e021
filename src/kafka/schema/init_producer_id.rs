//! InitProducerId (22): ids of idempotent producers.

use crate::ids::{ProducerEpoch, ProducerId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api InitProducerId = 22, versions 0..=5, flexible 2;

    request InitProducerIdRequest<'a> {
        /// Null for a producer that is only idempotent.
        transactional_id: Option<&'a str>, nullable();
        transaction_timeout_ms: i32;
        /// The id that the producer has, to get its epoch raised; −1 for a new one.
        producer_id: ProducerId = ProducerId(-1), from(3);
        producer_epoch: ProducerEpoch = ProducerEpoch(-1), from(3);
    }

    response InitProducerIdResponse {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        producer_id: ProducerId = ProducerId(-1);
        producer_epoch: ProducerEpoch;
    }
}
