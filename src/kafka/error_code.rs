//! Kafka's error codes: the only place of the broker that names them (kafka-spec §1.8).

use std::fmt;

/// A code as it stands in a response. Codes that this table does not know survive decoding and encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(pub i16);

macro_rules! codes {
    ($($code:literal $name:ident $message:literal,)+) => {
        impl ErrorCode {
            $(
                #[doc = $message]
                pub const $name: ErrorCode = ErrorCode($code);
            )+

            /// Kafka's name of the code; `None` for a code that is not in the table.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)+
                    _ => None,
                }
            }

            /// An English sentence for the `error_message` fields; empty for a code that is not in the table.
            pub fn message(self) -> &'static str {
                match self.0 {
                    $($code => $message,)+
                    _ => "",
                }
            }

            /// Every code of the table in ascending order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode($code)),+];
        }
    };
}

codes! {
    -1 UNKNOWN_SERVER_ERROR "The broker met an error that it has no code for.",
    0 NONE "No error.",
    1 OFFSET_OUT_OF_RANGE "The offset is outside the range of the partition's log.",
    2 CORRUPT_MESSAGE "The record batch fails its checksum, or its sizes or header fields contradict each other.",
    3 UNKNOWN_TOPIC_OR_PARTITION "This broker hosts no such topic partition.",
    4 INVALID_FETCH_SIZE "The fetch size is invalid.",
    5 LEADER_NOT_AVAILABLE "The partition has no leader at the moment.",
    6 NOT_LEADER_OR_FOLLOWER "This broker does not lead the partition and holds no replica of it.",
    7 REQUEST_TIMED_OUT "The request was not completed within its time.",
    8 BROKER_NOT_AVAILABLE "The broker is not available.",
    9 REPLICA_NOT_AVAILABLE "The replica is not available on this broker.",
    10 MESSAGE_TOO_LARGE "The record batch is larger than the topic allows.",
    11 STALE_CONTROLLER_EPOCH "The controller has moved to another broker.",
    12 OFFSET_METADATA_TOO_LARGE "The metadata of the committed offset is too long.",
    13 NETWORK_EXCEPTION "The connection ended before the response came.",
    14 COORDINATOR_LOAD_IN_PROGRESS "The coordinator is still loading its state.",
    15 COORDINATOR_NOT_AVAILABLE "The coordinator is not available.",
    16 NOT_COORDINATOR "This broker is not the coordinator.",
    17 INVALID_TOPIC_EXCEPTION "The topic name is not valid, or the topic may not be used this way.",
    18 RECORD_LIST_TOO_LARGE "The record batch is larger than a segment.",
    19 NOT_ENOUGH_REPLICAS "Fewer replicas are in sync than the topic demands; nothing was written.",
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND "The records were written, but to fewer in-sync replicas than the topic demands.",
    21 INVALID_REQUIRED_ACKS "acks must be -1, 0 or 1.",
    22 ILLEGAL_GENERATION "The generation of the group is another one.",
    23 INCONSISTENT_GROUP_PROTOCOL "The member has no protocol in common with the group.",
    24 INVALID_GROUP_ID "The group id is not valid.",
    25 UNKNOWN_MEMBER_ID "The group has no such member.",
    26 INVALID_SESSION_TIMEOUT "The session timeout is outside the range that the broker allows.",
    27 REBALANCE_IN_PROGRESS "The group is rebalancing, so that the member has to join again.",
    28 INVALID_COMMIT_OFFSET_SIZE "The committed offset is too large to be stored.",
    29 TOPIC_AUTHORIZATION_FAILED "Access to the topic is not allowed.",
    30 GROUP_AUTHORIZATION_FAILED "Access to the group is not allowed.",
    31 CLUSTER_AUTHORIZATION_FAILED "The operation on the cluster is not allowed.",
    32 INVALID_TIMESTAMP "A record's timestamp is outside the range that the topic allows.",
    33 UNSUPPORTED_SASL_MECHANISM "The broker does not offer this SASL mechanism.",
    34 ILLEGAL_SASL_STATE "The request does not fit the state of the SASL exchange.",
    35 UNSUPPORTED_VERSION "The broker does not know this version.",
    36 TOPIC_ALREADY_EXISTS "A topic of this name exists already.",
    37 INVALID_PARTITIONS "The number of partitions is not valid.",
    38 INVALID_REPLICATION_FACTOR "The replication factor is below 1 or above the number of available brokers.",
    39 INVALID_REPLICA_ASSIGNMENT "The replica assignment is not valid.",
    40 INVALID_CONFIG "A setting is not known or its value is not valid.",
    41 NOT_CONTROLLER "This broker is not the controller.",
    42 INVALID_REQUEST "The request contradicts itself or the protocol.",
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT "The message format does not support the request.",
    44 POLICY_VIOLATION "A policy of the broker forbids the request.",
    45 OUT_OF_ORDER_SEQUENCE_NUMBER "The sequence number does not follow the producer's last one.",
    46 DUPLICATE_SEQUENCE_NUMBER "The batch was written before.",
    47 INVALID_PRODUCER_EPOCH "The producer's epoch is older than the newest one seen.",
    48 INVALID_TXN_STATE "The transaction is in a state that does not allow the operation.",
    49 INVALID_PRODUCER_ID_MAPPING "The producer id does not belong to the transactional id.",
    50 INVALID_TRANSACTION_TIMEOUT "The transaction timeout is longer than the broker allows.",
    51 CONCURRENT_TRANSACTIONS "Another operation on the transaction is still running.",
    52 TRANSACTION_COORDINATOR_FENCED "A newer transaction coordinator has taken over.",
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED "Use of the transactional id is not allowed.",
    54 SECURITY_DISABLED "Security features are switched off.",
    55 OPERATION_NOT_ATTEMPTED "Another part of the request failed, so this one was not tried.",
    56 KAFKA_STORAGE_ERROR "The partition's storage failed or is full.",
    57 LOG_DIR_NOT_FOUND "The broker has no such data directory.",
    58 SASL_AUTHENTICATION_FAILED "SASL authentication failed.",
    59 UNKNOWN_PRODUCER_ID "The broker has no state of this producer.",
    60 REASSIGNMENT_IN_PROGRESS "A reassignment of the partition is in progress.",
    61 DELEGATION_TOKEN_AUTH_DISABLED "Delegation tokens are switched off.",
    62 DELEGATION_TOKEN_NOT_FOUND "There is no such delegation token.",
    63 DELEGATION_TOKEN_OWNER_MISMATCH "The delegation token belongs to somebody else.",
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED "Delegation tokens are not available on this connection.",
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED "Use of the delegation token is not allowed.",
    66 DELEGATION_TOKEN_EXPIRED "The delegation token has expired.",
    67 INVALID_PRINCIPAL_TYPE "The principal type is not supported.",
    68 NON_EMPTY_GROUP "The group has members.",
    69 GROUP_ID_NOT_FOUND "There is no such group.",
    70 FETCH_SESSION_ID_NOT_FOUND "There is no such fetch session.",
    71 INVALID_FETCH_SESSION_EPOCH "The epoch of the fetch session is not the expected one.",
    72 LISTENER_NOT_FOUND "The leader has no listener of this name.",
    73 TOPIC_DELETION_DISABLED "Deleting topics is switched off.",
    74 FENCED_LEADER_EPOCH "The leader epoch of the request is older than the broker's.",
    75 UNKNOWN_LEADER_EPOCH "The leader epoch of the request is newer than the broker's.",
    76 UNSUPPORTED_COMPRESSION_TYPE "The request's version does not allow this compression.",
    77 STALE_BROKER_EPOCH "The broker has registered again since.",
    78 OFFSET_NOT_AVAILABLE "The leader does not know its high watermark yet.",
    79 MEMBER_ID_REQUIRED "The member has to join again with the id of this response.",
    80 PREFERRED_LEADER_NOT_AVAILABLE "The preferred leader is not available.",
    81 GROUP_MAX_SIZE_REACHED "The group is full.",
    82 FENCED_INSTANCE_ID "Another member has taken over the instance id.",
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE "No replica that may lead is available.",
    84 ELECTION_NOT_NEEDED "The partition has the leader it should have.",
    85 NO_REASSIGNMENT_IN_PROGRESS "No reassignment of the partition is in progress.",
    86 GROUP_SUBSCRIBED_TO_TOPIC "The group is subscribed to the topic.",
    87 INVALID_RECORD "A record breaks a rule of the broker.",
    88 UNSTABLE_OFFSET_COMMIT "There are transactional offset commits that are not decided.",
    89 THROTTLING_QUOTA_EXCEEDED "A quota is used up.",
    90 PRODUCER_FENCED "A newer producer with the same transactional id has taken over.",
    91 RESOURCE_NOT_FOUND "There is no such resource.",
    92 DUPLICATE_RESOURCE "The resource is named twice.",
    93 UNACCEPTABLE_CREDENTIAL "The credential does not meet the rules.",
    94 INCONSISTENT_VOTER_SET "The voter sets differ.",
    95 INVALID_UPDATE_VERSION "The update carries a version that is not the current one.",
    96 FEATURE_UPDATE_FAILED "The feature could not be updated.",
    97 PRINCIPAL_DESERIALIZATION_FAILURE "The forwarded principal cannot be read.",
    98 SNAPSHOT_NOT_FOUND "There is no such snapshot.",
    99 POSITION_OUT_OF_RANGE "The position is outside the snapshot.",
    100 UNKNOWN_TOPIC_ID "This broker hosts no topic with this id.",
    101 DUPLICATE_BROKER_REGISTRATION "A broker with this id is registered already.",
    102 BROKER_ID_NOT_REGISTERED "No broker with this id is registered.",
    103 INCONSISTENT_TOPIC_ID "The topic's id is another one.",
    104 INCONSISTENT_CLUSTER_ID "The cluster's id is another one.",
    105 TRANSACTIONAL_ID_NOT_FOUND "There is no such transactional id.",
    106 FETCH_SESSION_TOPIC_ID_ERROR "The fetch session mixes requests with and without topic ids.",
    107 INELIGIBLE_REPLICA "A replica of the proposed ISR may not be in it.",
    108 NEW_LEADER_ELECTED "The change was committed and gave the partition another leader.",
    109 OFFSET_MOVED_TO_TIERED_STORAGE "The offset is no longer on this broker's disks.",
    110 FENCED_MEMBER_EPOCH "The member's epoch is not the current one.",
    111 UNRELEASED_INSTANCE_ID "Another member still holds the instance id.",
    112 UNSUPPORTED_ASSIGNOR "The group does not support this assignor.",
    113 STALE_MEMBER_EPOCH "The member's epoch is out of date.",
    114 MISMATCHED_ENDPOINT_TYPE "The request belongs on the other kind of endpoint.",
    115 UNSUPPORTED_ENDPOINT_TYPE "There are no endpoints of this type.",
    116 UNKNOWN_CONTROLLER_ID "There is no such controller.",
    117 UNKNOWN_SUBSCRIPTION_ID "There is no such telemetry subscription.",
    118 TELEMETRY_TOO_LARGE "The telemetry is too large.",
    119 INVALID_REGISTRATION "The registration is not valid.",
    120 TRANSACTION_ABORTABLE "The transaction failed and has to be aborted.",
    121 INVALID_RECORD_STATE "The record is in a state that does not allow the operation.",
    122 SHARE_SESSION_NOT_FOUND "There is no such share session.",
    123 INVALID_SHARE_SESSION_EPOCH "The epoch of the share session is not the expected one.",
    124 FENCED_STATE_EPOCH "The state epoch is older than the current one.",
    125 INVALID_VOTER_KEY "The voter key does not match.",
    126 DUPLICATE_VOTER "The voter is in the voter set already.",
    127 VOTER_NOT_FOUND "The voter is not in the voter set.",
    128 INVALID_REGULAR_EXPRESSION "The regular expression is not valid.",
    129 REBOOTSTRAP_REQUIRED "The client has to start again from its bootstrap servers.",
}

impl ErrorCode {
    /// Whether this is a real error.
    pub fn is_error(self) -> bool {
        self != ErrorCode::NONE
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "ERROR_{}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_kafkas_numbers_and_names() {
        for code in ErrorCode::ALL {
            let theirs = kafka_protocol::error::ResponseError::try_from_code(code.0);
            match (code.0, theirs) {
                (0, None) => {}
                (_, Some(theirs)) => {
                    let camel = format!("{theirs:?}").to_lowercase();
                    let ours = code.to_string().replace('_', "").to_lowercase();
                    assert_eq!(ours, camel, "code {}", code.0);
                }
                (number, None) => panic!("Kafka has no code {number}"),
            }
        }
    }

    #[test]
    fn every_code_has_a_sentence_and_ascends() {
        assert!(ErrorCode::ALL.is_sorted());
        assert!(ErrorCode::ALL.iter().all(|code| code.message().ends_with('.')));
    }

    #[test]
    fn an_unknown_code_prints_its_number() {
        assert_eq!(ErrorCode(999).to_string(), "ERROR_999");
        assert_eq!(ErrorCode::NOT_LEADER_OR_FOLLOWER.to_string(), "NOT_LEADER_OR_FOLLOWER");
    }
}
