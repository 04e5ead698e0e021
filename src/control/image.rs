//! The committed metadata, as every core sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{BrokerId, LeaderEpoch, PartitionEpoch, TopicId};
use crate::log::topic_config::TopicConfig;

/// The metadata after some prefix of the log. Cheap to clone: topics are shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// The cluster's id, 22 characters of base64.
    pub cluster_id: Arc<str>,
    /// The controller, −1 when unknown.
    pub controller: BrokerId,
    /// Registered brokers.
    pub brokers: BTreeMap<BrokerId, BrokerImage>,
    /// Topics by name.
    pub topics: BTreeMap<Arc<str>, Arc<TopicImage>>,
    /// Names by topic id.
    pub names: BTreeMap<TopicId, Arc<str>>,
}

/// One registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Host that clients connect to.
    pub host: String,
    /// Port that clients connect to.
    pub port: u16,
    /// Its rack.
    pub rack: Option<String>,
    /// Whether it is kept out of client metadata.
    pub fenced: bool,
}

/// One topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    /// Id of this incarnation.
    pub id: TopicId,
    /// Name.
    pub name: Arc<str>,
    /// Partitions by index.
    pub partitions: Vec<PartitionImage>,
    /// Settings that were given, as typed.
    pub overrides: BTreeMap<String, String>,
    /// All settings, resolved.
    pub config: Arc<TopicConfig>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Replicas, preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas.
    pub isr: Vec<BrokerId>,
    /// The leader, −1 when there is none.
    pub leader: BrokerId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// Version of this state.
    pub partition_epoch: PartitionEpoch,
}
