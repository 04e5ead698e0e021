//! The committed metadata, as every core sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::control::records::Record;
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, LogIndex, PartitionEpoch, PartitionId, PartitionIndex, TopicId};
use crate::log::topic_config::{Overrides, TopicConfig, TopicDefaults, check, resolve};

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
    /// What this broker's own settings say for topics. Not part of the log.
    pub topic_defaults: Arc<TopicDefaults>,
    /// What follows from them for a topic without overrides.
    pub default_config: Arc<TopicConfig>,
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

impl std::fmt::Display for FlushMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FlushMode::Synced => "synced",
            FlushMode::Written => "written",
        })
    }
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
    pub overrides: Overrides,
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
    /// An image without contents for a broker with these defaults.
    pub fn new(topic_defaults: Arc<TopicDefaults>) -> Image {
        let default_config = Arc::new(resolve_stored(&Overrides::new(), &topic_defaults));
        Image { topic_defaults, default_config, controller: BrokerId(-1), ..Image::default() }
    }

    /// The topic with this id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// The partition with this id.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionImage> {
        self.topic(id.topic)?.partitions.get(usize::try_from(id.index.0).ok()?)
    }

    /// Makes the records of the entry at `index` part of the image. Topics that they do not touch stay shared.
    ///
    /// # Panics
    /// When a record contradicts the image: records are decided against it and applied in the same order everywhere,
    /// so that would be a bug.
    pub fn apply(&mut self, index: LogIndex, records: &[Record]) {
        assert!(self.applied < index, "entry {index} applied after {}", self.applied);
        self.apply_snapshot(index, records);
    }

    /// Rebuilds an image from what [`Image::records`] gave, in a fresh one.
    pub fn apply_snapshot(&mut self, index: LogIndex, records: &[Record]) {
        for record in records {
            self.apply_record(index, record);
        }
        self.applied = index;
    }

    /// The records that rebuild this image.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        if !self.cluster_id.is_empty() {
            let cluster_id = self.cluster_id.clone();
            records.push(Record::ClusterFormed { cluster_id, flush_mode: self.flush_mode });
        }
        records.extend(self.brokers.iter().map(|(id, broker)| broker.record(*id)));
        records.extend(self.topics.values().flat_map(|topic| topic.records()));
        if self.next_producer_id > 0 {
            records.push(Record::ProducerIdsAllocated { next: self.next_producer_id });
        }
        records
    }

    fn apply_record(&mut self, index: LogIndex, record: &Record) {
        match record {
            Record::ClusterFormed { cluster_id, flush_mode } => {
                assert!(self.cluster_id.is_empty(), "cluster {} formed again as {cluster_id}", self.cluster_id);
                self.cluster_id = cluster_id.clone();
                self.flush_mode = *flush_mode;
            }
            Record::BrokerRegistered { id, .. } => {
                self.brokers.insert(*id, Arc::new(BrokerImage::registered(index, record)));
            }
            Record::BrokerFenced { id, fenced } => {
                let broker = self.brokers.get_mut(id).expect("only a registered broker is fenced or unfenced");
                Arc::make_mut(broker).fenced = *fenced;
            }
            Record::TopicCreated { id, name } => self.insert_topic(*id, name),
            Record::PartitionsAdded { topic, partitions } => {
                self.partition_count += partitions.len();
                self.topic_mut(*topic).partitions.extend_from_slice(partitions);
            }
            Record::PartitionsChanged { topic, changes } => self.topic_mut(*topic).change_partitions(changes),
            Record::TopicConfigured { topic, changes } => {
                let defaults = (self.topic_defaults.clone(), self.default_config.clone());
                self.topic_mut(*topic).configure(changes, &defaults.0, &defaults.1);
            }
            Record::TopicDeleted { topic } => self.remove_topic(*topic),
            Record::ProducerIdsAllocated { next } => {
                assert!(self.next_producer_id < *next, "producer ids go from {} to {next}", self.next_producer_id);
                self.next_producer_id = *next;
            }
        }
    }

    fn insert_topic(&mut self, id: TopicId, name: &Arc<str>) {
        let topic = TopicImage {
            id,
            name: name.clone(),
            partitions: Vec::new(),
            overrides: Overrides::new(),
            config: self.default_config.clone(),
        };
        assert!(self.topics.insert(name.clone(), Arc::new(topic)).is_none(), "topic {name} exists already");
        assert!(self.names.insert(id, name.clone()).is_none(), "topic id {id} exists already");
    }

    fn remove_topic(&mut self, id: TopicId) {
        let name = self.names.remove(&id).expect("only a topic that exists is deleted");
        let topic = self.topics.remove(&name).expect("every name in `names` is in `topics`");
        self.partition_count -= topic.partitions.len();
    }

    fn topic_mut(&mut self, id: TopicId) -> &mut TopicImage {
        let name = self.names.get(&id).expect("only a topic that exists is changed");
        Arc::make_mut(self.topics.get_mut(name).expect("every name in `names` is in `topics`"))
    }
}

impl BrokerImage {
    fn registered(index: LogIndex, record: &Record) -> BrokerImage {
        let Record::BrokerRegistered { epoch, incarnation, host, port, rack, directories, fenced, .. } = record else {
            unreachable!("the caller matched the record");
        };
        BrokerImage {
            epoch: if epoch.0 < 0 { BrokerEpoch(index.0 as i64) } else { *epoch },
            incarnation: *incarnation,
            host: host.clone(),
            port: *port,
            rack: rack.clone(),
            directories: directories.clone(),
            fenced: *fenced,
        }
    }

    fn record(&self, id: BrokerId) -> Record {
        Record::BrokerRegistered {
            id,
            epoch: self.epoch,
            incarnation: self.incarnation,
            host: self.host.clone(),
            port: self.port,
            rack: self.rack.clone(),
            directories: self.directories.clone(),
            fenced: self.fenced,
        }
    }
}

impl TopicImage {
    fn change_partitions(&mut self, changes: &[(PartitionIndex, PartitionImage)]) {
        for (index, new) in changes {
            let partition = &mut self.partitions[index.0 as usize];
            assert!(
                partition.leader_epoch <= new.leader_epoch && partition.partition_epoch < new.partition_epoch,
                "epochs of {}-{index} go from {:?} {:?} to {:?} {:?}",
                self.name,
                partition.leader_epoch,
                partition.partition_epoch,
                new.leader_epoch,
                new.partition_epoch
            );
            *partition = new.clone();
        }
    }

    fn configure(
        &mut self,
        changes: &[(String, Option<String>)],
        defaults: &TopicDefaults,
        default_config: &Arc<TopicConfig>,
    ) {
        for (name, value) in changes {
            match value {
                Some(value) => self.overrides.insert(name.clone(), value.clone()),
                None => self.overrides.remove(name),
            };
        }
        let resolved = resolve_stored(&self.overrides, defaults);
        self.config = if resolved == **default_config { default_config.clone() } else { Arc::new(resolved) };
    }

    fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::TopicCreated { id: self.id, name: self.name.clone() }];
        if !self.overrides.is_empty() {
            let changes = self.overrides.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
            records.push(Record::TopicConfigured { topic: self.id, changes: changes.collect() });
        }
        records.push(Record::PartitionsAdded { topic: self.id, partitions: self.partitions.clone() });
        records
    }
}

/// Settings were accepted when they became records, so that the log cannot be refused now: one that this version does
/// not accept any more has no effect.
fn resolve_stored(overrides: &Overrides, defaults: &TopicDefaults) -> TopicConfig {
    let accepted = overrides.iter().filter(|(name, value)| check(name, value).is_ok());
    let accepted = accepted.map(|(name, value)| (name.clone(), value.clone())).collect();
    resolve(&accepted, defaults).expect("every setting was just checked")
}

/// What a step from one image to a later one means for brokers that host partitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageDiff {
    /// Topics that are gone, as they last were.
    pub deleted: Vec<Arc<TopicImage>>,
    /// Topics that are new, or have more partitions: the topic and how many partitions it had.
    pub grown: Vec<(Arc<TopicImage>, usize)>,
    /// Topics whose settings have changed.
    pub configured: Vec<Arc<TopicImage>>,
    /// Partitions, of topics in both images, whose leader or leader epoch has changed.
    pub led: Vec<PartitionId>,
}

/// Compares two images. Topics that are shared between them cost a pointer comparison.
pub fn diff(old: &Image, new: &Image) -> ImageDiff {
    let mut diff = ImageDiff::default();
    for topic in old.topics.values() {
        if !new.names.contains_key(&topic.id) {
            diff.deleted.push(topic.clone());
        }
    }
    for topic in new.topics.values() {
        match old.topics.get(&topic.name) {
            Some(before) if Arc::ptr_eq(before, topic) => {}
            Some(before) if before.id == topic.id => diff_topic(before, topic, &mut diff),
            _ => diff.grown.push((topic.clone(), 0)),
        }
    }
    diff
}

fn diff_topic(before: &TopicImage, topic: &Arc<TopicImage>, diff: &mut ImageDiff) {
    if before.partitions.len() < topic.partitions.len() {
        diff.grown.push((topic.clone(), before.partitions.len()));
    }
    if before.config != topic.config {
        diff.configured.push(topic.clone());
    }
    for (index, (old, new)) in (0..).zip(before.partitions.iter().zip(&topic.partitions)) {
        if (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch) {
            diff.led.push(PartitionId { topic: topic.id, index: PartitionIndex(index) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TopicId = TopicId([7; 16]);

    fn partition(epoch: i32) -> PartitionImage {
        PartitionImage {
            replicas: vec![BrokerId(1)],
            isr: vec![BrokerId(1)],
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(epoch),
        }
    }

    fn with_topic() -> Image {
        let mut image = Image::default();
        let records = [
            Record::ClusterFormed { cluster_id: "cluster".into(), flush_mode: FlushMode::Written },
            Record::TopicCreated { id: ID, name: "t".into() },
            Record::TopicConfigured { topic: ID, changes: vec![("segment.ms".into(), Some("5".into()))] },
            Record::PartitionsAdded { topic: ID, partitions: vec![partition(0), partition(0)] },
            Record::ProducerIdsAllocated { next: 1000 },
        ];
        image.apply(LogIndex(3), &records);
        image
    }

    #[test]
    fn the_records_of_an_image_rebuild_it() {
        let image = with_topic();
        let mut rebuilt = Image::default();
        rebuilt.apply_snapshot(image.applied, &image.records());
        assert_eq!(rebuilt, image);
        assert_eq!(rebuilt.topic(ID).expect("created").config.segment_ms, 5);
    }

    #[test]
    fn a_broker_epoch_is_the_index_of_its_registration_and_survives_a_snapshot() {
        let mut image = Image::default();
        let registration = BrokerImage {
            epoch: BrokerEpoch(-1),
            incarnation: ID,
            host: "h".into(),
            port: 1,
            rack: None,
            directories: vec![],
            fenced: true,
        };
        image.apply(LogIndex(5), &[registration.record(BrokerId(1))]);
        image.apply(LogIndex(9), &[Record::BrokerFenced { id: BrokerId(1), fenced: false }]);
        let mut rebuilt = Image::default();
        rebuilt.apply_snapshot(LogIndex(9), &image.records());
        assert_eq!(rebuilt.brokers[&BrokerId(1)].epoch, BrokerEpoch(5));
        assert!(!rebuilt.brokers[&BrokerId(1)].fenced);
    }

    #[test]
    fn a_diff_names_what_hosts_have_to_do() {
        let old = with_topic();
        let mut new = old.clone();
        assert_eq!(diff(&old, &new), ImageDiff::default());
        let records = [
            Record::PartitionsChanged { topic: ID, changes: vec![(PartitionIndex(1), partition(1))] },
            Record::PartitionsAdded { topic: ID, partitions: vec![partition(0)] },
            Record::TopicConfigured { topic: ID, changes: vec![("segment.ms".into(), None)] },
        ];
        new.apply(LogIndex(4), &records);
        let topic = new.topic(ID).expect("still there").clone();
        let expected = ImageDiff {
            deleted: vec![],
            grown: vec![(topic.clone(), 2)],
            configured: vec![topic],
            led: vec![PartitionId { topic: ID, index: PartitionIndex(1) }],
        };
        assert_eq!(diff(&old, &new), expected);
    }

    #[test]
    fn a_topic_created_again_under_its_old_name_is_deleted_and_grown() {
        let old = with_topic();
        let mut new = old.clone();
        let again = TopicId([8; 16]);
        let records = [Record::TopicDeleted { topic: ID }, Record::TopicCreated { id: again, name: "t".into() }];
        new.apply(LogIndex(4), &records);
        let diff = diff(&old, &new);
        assert_eq!(diff.deleted, [old.topic(ID).expect("was there").clone()]);
        assert_eq!(diff.grown, [(new.topic(again).expect("created").clone(), 0)]);
        assert_eq!(new.partition_count, 0);
    }
}
