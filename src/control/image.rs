//! The committed metadata, as every core sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, LogIndex, PartitionEpoch, PartitionId, TopicId};
use crate::log::topic_config::TopicConfig;

/// The metadata after some prefix of the log. Cheap to clone: topics are shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// Index of the last entry of the metadata log that is in here.
    pub applied: LogIndex,
    /// The cluster's id, 22 characters of base64; empty before the first entry.
    pub cluster_id: Arc<str>,
    /// What "stable" means in this cluster.
    pub flush_mode: FlushMode,
    /// The controller, −1 when unknown. Not part of the log: whoever leads it.
    pub controller: BrokerId,
    /// Registered brokers.
    pub brokers: BTreeMap<BrokerId, Arc<BrokerImage>>,
    /// Topics by name.
    pub topics: BTreeMap<Arc<str>, Arc<TopicImage>>,
    /// Names by topic id.
    pub names: BTreeMap<TopicId, Arc<str>>,
    /// Partitions of all topics together.
    pub partition_count: usize,
    /// First producer id that was never given out.
    pub next_producer_id: i64,
    /// Settings of a topic without overrides, from this broker's configuration. Not part of the log.
    pub topic_defaults: Arc<TopicConfig>,
}

/// `flush.mode`: when bytes count as stable. Fixed when the cluster forms (design.md §1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushMode {
    /// On stable media.
    #[default]
    Synced,
    /// Written with O_DIRECT into synced extents.
    Written,
}

/// One registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// This incarnation: the index of its registration in the metadata log.
    pub epoch: BrokerEpoch,
    /// Random id of the process that registered.
    pub incarnation: TopicId,
    /// Host that clients connect to.
    pub host: String,
    /// Port that clients connect to.
    pub port: u16,
    /// Its rack.
    pub rack: Option<String>,
    /// Directory ids of its data directories.
    pub directories: Vec<TopicId>,
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

impl Image {
    /// The topic with this id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// The partition with this id.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionImage> {
        self.topic(id.topic)?.partitions.get(usize::try_from(id.index.0).ok()?)
    }
}
