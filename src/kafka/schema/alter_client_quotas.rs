//! AlterClientQuotas (49).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api AlterClientQuotas = 49, versions 0..=1, flexible 1;

    request AlterClientQuotasRequest<'a> {
        entries: Vec<EntryData<'a>>;
        validate_only: bool;
    }

    struct EntryData<'a> {
        entity: Vec<EntityData<'a>>;
        ops: Vec<OpData<'a>>;
    }

    struct EntityData<'a> {
        entity_type: &'a str;
        entity_name: Option<&'a str>, nullable();
    }

    struct OpData<'a> {
        key: &'a str;
        value: f64;
        remove: bool;
    }

    response AlterClientQuotasResponse<'a> {
        throttle_time_ms: i32;
        entries: Vec<ResponseEntryData<'a>>;
    }

    struct ResponseEntryData<'a> {
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        entity: Vec<EntityData<'a>>;
    }
}
