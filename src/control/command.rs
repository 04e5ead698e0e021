//! What may be asked of the controller, and what it answers.
//!
//! A command is decided as a whole against the newest metadata, becomes records, and is answered when the records are
//! committed *and in effect on this broker*: a client that holds the answer to a creation can produce at once. Every
//! entry of a request has its own outcome, in the order of the request.

use std::sync::Arc;

use crate::ids::{BrokerEpoch, BrokerId, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::log::topic_config::{Overrides, TopicConfig};

/// One wish to change the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Create topics (CreateTopics). Answer: [`CommandResult::Created`].
    CreateTopics {
        /// The topics.
        topics: Vec<NewTopic>,
        /// Check only.
        validate_only: bool,
    },
    /// Create the topics that do not exist yet, with the broker's default counts (auto-creation on Metadata). Answer:
    /// [`CommandResult::Created`]; a topic that is there already counts as created.
    AutoCreateTopics {
        /// Their names.
        names: Vec<String>,
    },
    /// Delete topics (DeleteTopics). Answer: [`CommandResult::Deleted`].
    DeleteTopics {
        /// The topics.
        topics: Vec<TopicRef>,
    },
    /// Give topics more partitions (CreatePartitions). Answer: [`CommandResult::Altered`].
    CreatePartitions {
        /// The topics.
        topics: Vec<NewPartitions>,
        /// Check only.
        validate_only: bool,
    },
    /// Change settings (IncrementalAlterConfigs, AlterConfigs). Answer: [`CommandResult::Altered`].
    AlterConfigs {
        /// What to change.
        changes: Vec<ConfigChange>,
        /// Check only.
        validate_only: bool,
    },
    /// A block of producer ids (InitProducerId). Answer: [`CommandResult::ProducerIds`].
    AllocateProducerIds,
    /// One incarnation of a broker introduces itself. Answer: [`CommandResult::Registered`].
    RegisterBroker(Registration),
}

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Count of partitions; −1 for the broker's default, and with `assignments`.
    pub partitions: i32,
    /// Count of replicas; −1 for the broker's default, and with `assignments`.
    pub replication_factor: i16,
    /// Replicas by partition, preferred leader first; empty lets the controller place them.
    pub assignments: Vec<(PartitionIndex, Vec<BrokerId>)>,
    /// Settings as typed. A null value is refused.
    pub configs: Vec<(String, Option<String>)>,
}

/// How a request names a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By id.
    Id(TopicId),
}

/// More partitions for one topic.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NewPartitions {
    /// Name of the topic.
    pub topic: String,
    /// The new total.
    pub total: i32,
    /// Replicas of each new partition; `None` lets the controller place them.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Changes to the settings of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Kind of the resource as on the wire: 2 topic, 4 broker, … (kafka-spec §1.8).
    pub resource_type: i8,
    /// Its name: a topic, or a broker id in digits (empty: all brokers).
    pub resource_name: String,
    /// The changes, applied together.
    pub alterations: Alterations,
}

/// How settings change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alterations {
    /// One operation per setting (IncrementalAlterConfigs).
    Incremental(Vec<Alteration>),
    /// These settings and no others (AlterConfigs).
    Replace(Vec<(String, Option<String>)>),
}

/// One operation on one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alteration {
    /// Name of the setting.
    pub name: String,
    /// Operation as on the wire: 0 set, 1 delete, 2 append, 3 subtract.
    pub operation: i8,
    /// Operand.
    pub value: Option<String>,
}

/// What a broker says about itself when it registers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Registration {
    /// Its node id.
    pub id: BrokerId,
    /// Random id of this process, so that a repeated registration is told from a new process.
    pub incarnation: TopicId,
    /// Host that clients connect to.
    pub host: String,
    /// Port that clients connect to.
    pub port: u16,
    /// Its rack.
    pub rack: Option<String>,
    /// Directory ids of its data directories, in the order of the configuration.
    pub directories: Vec<TopicId>,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandResult {
    /// The whole command was refused and nothing has changed: this broker is not the controller, or it is ending.
    Refused(Refusal),
    /// Topics created, in the order of the request.
    Created(Vec<Result<CreatedTopic, Refusal>>),
    /// Topics deleted, in the order of the request.
    Deleted(Vec<Result<DeletedTopic, Refusal>>),
    /// Topics changed, in the order of the request.
    Altered(Vec<Result<TopicId, Refusal>>),
    /// The ids `first`, …, `first + count − 1` were never given out before and belong to the asker.
    ProducerIds {
        /// First id.
        first: i64,
        /// Count of ids.
        count: u32,
    },
    /// The broker is registered under this epoch.
    Registered(BrokerEpoch),
}

/// Why not, for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The wire code.
    pub code: ErrorCode,
    /// A sentence that says what is wrong and, where there is one, which setting or value to change.
    pub message: String,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// A created topic (with `validate_only`: as it would be; its id is then [`TopicId::NONE`]).
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedTopic {
    /// Its id.
    pub id: TopicId,
    /// Count of partitions.
    pub partitions: i32,
    /// Count of replicas of each.
    pub replication_factor: i16,
    /// Settings that were given.
    pub overrides: Overrides,
    /// All settings, resolved.
    pub config: Arc<TopicConfig>,
}

/// A deleted topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
}
