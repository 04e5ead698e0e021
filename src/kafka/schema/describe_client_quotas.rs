//! DescribeClientQuotas (48).

use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeClientQuotas = 48, versions 0..=1, flexible 1;

    request DescribeClientQuotasRequest<'a> {
        components: Vec<ComponentData<'a>>;
        strict: bool;
    }

    struct ComponentData<'a> {
        entity_type: &'a str;
        match_type: i8;
        match_name: Option<&'a str>, nullable();
    }

    response DescribeClientQuotasResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode;
        error_message: Option<&'a str>, nullable();
        entries: Option<Vec<EntryData<'a>>>, nullable();
    }

    struct EntryData<'a> {
        entity: Vec<EntityData<'a>>;
        values: Vec<ValueData<'a>>;
    }

    struct EntityData<'a> {
        entity_type: &'a str;
        entity_name: Option<&'a str>, nullable();
    }

    struct ValueData<'a> {
        key: &'a str;
        value: f64;
    }
}
