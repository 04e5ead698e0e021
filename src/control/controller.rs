//! Commands → records: what the controller decides, against the newest image it has proposed.
//!
//! Nothing here changes anything: a decision is a list of records, and the answer that they earn once they are
//! committed. Topics are in `topics`, settings in `configs`.

use std::collections::BTreeMap;

use crate::control::command::{Command, CommandResult, Refusal, Registration};
use crate::control::configs;
use crate::control::image::{Image, PartitionImage};
use crate::control::prng::Prng;
use crate::control::records::Record;
use crate::control::topics;
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::limits::PRODUCER_IDS_PER_BLOCK;

/// Settings of the broker that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// `num.partitions`: partitions of a topic that does not say how many.
    pub partitions_default: u32,
    /// `default.replication.factor`: replicas of a topic that does not say how many.
    pub replication_factor_default: u16,
    /// `partitions.max`: partitions of the whole cluster.
    pub partitions_max: usize,
    /// `delete.topic.enable`
    pub delete_enabled: bool,
}

impl Default for ControllerConfig {
    fn default() -> ControllerConfig {
        ControllerConfig {
            partitions_default: 1,
            replication_factor_default: 1,
            partitions_max: 20_000,
            delete_enabled: true,
        }
    }
}

/// Records to commit, and the answer once they are in effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What becomes fact, whole or not at all. Empty when there is nothing to do.
    pub records: Vec<Record>,
    /// What the asker is told then. A broker epoch of −1 in it stands for the index that the entry gets.
    pub result: CommandResult,
}

/// Decides on one command.
pub fn decide(image: &Image, config: &ControllerConfig, prng: &mut Prng, command: &Command) -> Decision {
    match command {
        Command::CreateTopics { topics, validate_only } => topics::create(image, config, prng, topics, *validate_only),
        Command::AutoCreateTopics { names } => topics::auto_create(image, config, prng, names),
        Command::DeleteTopics { topics } => topics::delete(image, config, topics),
        Command::CreatePartitions { topics, validate_only } => topics::grow(image, config, topics, *validate_only),
        Command::AlterConfigs { changes, validate_only } => configs::alter(image, changes, *validate_only),
        Command::AllocateProducerIds => allocate_producer_ids(image),
        Command::RegisterBroker(registration) => register(image, registration),
    }
}

fn allocate_producer_ids(image: &Image) -> Decision {
    let first = image.next_producer_id;
    let Some(next) = first.checked_add(i64::from(PRODUCER_IDS_PER_BLOCK)) else {
        let refusal = Refusal::new(ErrorCode::UNKNOWN_SERVER_ERROR, "All producer ids are used up.");
        return Decision { records: vec![], result: CommandResult::Refused(refusal) };
    };
    Decision {
        records: vec![Record::ProducerIdsAllocated { next }],
        result: CommandResult::ProducerIds { first, count: PRODUCER_IDS_PER_BLOCK },
    }
}

/// A new incarnation ends every leadership of the older one and is unfenced at once when it is the only voter: there
/// is no image to catch up with but its own.
fn register(image: &Image, registration: &Registration) -> Decision {
    let known = image.brokers.get(&registration.id);
    if let Some(broker) = known.filter(|broker| broker.incarnation == registration.incarnation) {
        return Decision { records: vec![], result: CommandResult::Registered(broker.epoch) };
    }
    let mut records = vec![
        Record::BrokerRegistered {
            id: registration.id,
            epoch: BrokerEpoch(-1),
            incarnation: registration.incarnation,
            host: registration.host.clone(),
            port: registration.port,
            rack: registration.rack.clone(),
            directories: registration.directories.clone(),
            fenced: true,
        },
        Record::BrokerFenced { id: registration.id, fenced: false },
    ];
    records.extend(led_again(image, registration.id));
    Decision { records, result: CommandResult::Registered(BrokerEpoch(-1)) }
}

/// New leader epochs for every partition that `broker` leads or could lead as the last member of its ISR.
fn led_again(image: &Image, broker: BrokerId) -> Vec<Record> {
    let mut by_topic: BTreeMap<TopicId, Vec<(PartitionIndex, PartitionImage)>> = BTreeMap::new();
    for topic in image.topics.values() {
        for (index, partition) in (0..).map(PartitionIndex).zip(&topic.partitions) {
            let leaderless = partition.leader.0 < 0 && partition.isr.contains(&broker);
            if partition.leader == broker || leaderless {
                by_topic.entry(topic.id).or_default().push((index, partition.led_by(broker)));
            }
        }
    }
    by_topic.into_iter().map(|(topic, changes)| Record::PartitionsChanged { topic, changes }).collect()
}

impl PartitionImage {
    /// A partition at its birth: its active replicas are in sync, the first of them leads.
    pub fn born(replicas: Vec<BrokerId>, isr: Vec<BrokerId>) -> PartitionImage {
        PartitionImage {
            leader: isr[0],
            replicas,
            isr,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
        }
    }

    /// The same partition under a new leader, or a new incarnation of its present one.
    pub fn led_by(&self, leader: BrokerId) -> PartitionImage {
        PartitionImage {
            leader,
            leader_epoch: LeaderEpoch(self.leader_epoch.0 + 1),
            partition_epoch: PartitionEpoch(self.partition_epoch.0 + 1),
            ..self.clone()
        }
    }
}

impl Image {
    /// Whether a broker can be given work: registered and not fenced.
    pub fn is_active(&self, broker: BrokerId) -> bool {
        self.brokers.get(&broker).is_some_and(|broker| !broker.fenced)
    }
}
