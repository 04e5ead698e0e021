//! ListTransactions (66).

use crate::ids::ProducerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api ListTransactions = 66, versions 0..=2, flexible 0;

    request ListTransactionsRequest<'a> {
        state_filters: Vec<&'a str>;
        producer_id_filters: Vec<ProducerId>;
        duration_filter: i64 = -1, from(1);
        transactional_id_pattern: Option<&'a str>, from(2).nullable();
    }

    response ListTransactionsResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        unknown_state_filters: Vec<&'a str>;
        transaction_states: Vec<TransactionState<'a>>;
    }

    struct TransactionState<'a> {
        transactional_id: &'a str;
        producer_id: ProducerId;
        transaction_state: &'a str;
    }
}
