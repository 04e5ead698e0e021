//! FindCoordinator: nobody coordinates groups or transactions yet, and the answer says so.
//!
//! It is served all the same, because librdkafka compresses with LZ4 only for a broker that advertises it (its feature
//! table takes the API for a sign of Kafka 0.9). `COORDINATOR_NOT_AVAILABLE` is the one code that lets a consumer of
//! librdkafka, which always has a group id, assign partitions by itself undisturbed: it asks again in the background,
//! while any other code would be raised to the application.

use crate::ids::{BrokerId, Now};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use crate::shard::Shard;
use crate::shard::action::Actions;
use crate::shard::dispatch::Request;

/// `key_type` of a consumer group.
const GROUP: i8 = 0;
/// `key_type` of a transactional id.
const TRANSACTION: i8 = 1;
/// Since this version a request names several keys.
const SEVERAL_KEYS_FROM: i16 = 4;

impl Shard {
    pub(super) fn on_find_coordinator(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<FindCoordinatorRequest<'_>>(now, request, out) else { return };
        let (error_code, text) = refusal(message.key_type);
        let (error_message, none) = (Some(text), BrokerId(-1));
        let response = if request.header.api_version < SEVERAL_KEYS_FROM {
            FindCoordinatorResponse { error_code, error_message, node_id: none, port: -1, ..Default::default() }
        } else {
            let coordinators = message.coordinator_keys.iter().map(|key| Coordinator {
                key,
                node_id: none,
                host: "",
                port: -1,
                error_code,
                error_message,
            });
            FindCoordinatorResponse { coordinators: coordinators.collect(), ..Default::default() }
        };
        self.reply(request, &response, out);
    }
}

/// Why there is no coordinator for keys of this type.
fn refusal(key_type: i8) -> (ErrorCode, &'static str) {
    match key_type {
        GROUP => (
            ErrorCode::COORDINATOR_NOT_AVAILABLE,
            "this broker has no consumer groups yet: assign partitions instead of subscribing to topics",
        ),
        // As InitProducerId answers: this code is one that no client tries again.
        TRANSACTION => (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker has no transactions yet"),
        _ => (ErrorCode::INVALID_REQUEST, "there is no such type of key"),
    }
}
