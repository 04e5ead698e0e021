//! DeleteTopics (20), by name or by id.

use crate::ids::TopicId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DeleteTopics = 20, versions 1..=6, flexible 4;

    request DeleteTopicsRequest<'a> {
        topics: Vec<DeleteTopicState<'a>>, from(6);
        topic_names: Vec<&'a str>, until(5).ignorable();
        timeout_ms: i32;
    }

    struct DeleteTopicState<'a> {
        name: Option<&'a str>, nullable();
        topic_id: TopicId;
    }

    response DeleteTopicsResponse<'a> {
        throttle_time_ms: i32;
        responses: Vec<DeletableTopicResult<'a>>;
    }

    struct DeletableTopicResult<'a> {
        name: Option<&'a str>, nullable_from(6);
        topic_id: TopicId, from(6);
        error_code: ErrorCode;
        error_message: Option<&'a str>, from(5).nullable();
    }
}
