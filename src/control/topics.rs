//! Creating, deleting and growing topics (kafka-spec §1.7, §5.10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::control::command::{CommandResult, CreatedTopic, DeletedTopic, NewPartitions, NewTopic, Refusal, TopicRef};
use crate::control::controller::{ControllerConfig, Decision};
use crate::control::image::{Image, PartitionImage, TopicImage};
use crate::control::placement::{self, Candidate};
use crate::control::prng::Prng;
use crate::control::records::Record;
use crate::ids::{BrokerId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::limits::PARTITIONS_PER_REQUEST_MAX;
use crate::log::topic_config::{Overrides, resolve};

/// Longest topic name in bytes.
pub const TOPIC_NAME_LEN_MAX: usize = 249;

/// Decides on a CreateTopics request.
pub fn create(
    image: &Image,
    config: &ControllerConfig,
    prng: &mut Prng,
    topics: &[NewTopic],
    validate_only: bool,
) -> Decision {
    let named_twice = named_twice(topics.iter().map(|topic| topic.name.as_str()));
    let asked = topics.iter().map(|topic| partitions_asked(topic, config)).sum();
    let mut creation = Creation::new(image, config, prng, asked);
    let outcomes = topics
        .iter()
        .map(|topic| match named_twice.contains(topic.name.as_str()) {
            true => Err(duplicate(&topic.name)),
            false => creation.create(topic),
        })
        .map(|outcome| {
            outcome.map(|topic| if validate_only { CreatedTopic { id: TopicId::NONE, ..topic } } else { topic })
        })
        .collect();
    let records = if validate_only { vec![] } else { creation.records };
    Decision { records, result: CommandResult::Created(outcomes) }
}

/// Decides on the creation of topics that a Metadata request names and that are not there yet.
pub fn auto_create(image: &Image, config: &ControllerConfig, prng: &mut Prng, names: &[String]) -> Decision {
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !image.topics.contains_key(*name)).collect();
    let asked = missing.len() * config.partitions_default as usize;
    let mut creation = Creation::new(image, config, prng, asked);
    let created: BTreeMap<&str, _> = missing
        .into_iter()
        .map(|name| {
            let topic = NewTopic { name: name.into(), partitions: -1, replication_factor: -1, ..NewTopic::default() };
            (name, creation.create(&topic))
        })
        .collect();
    let outcomes = names.iter().map(|name| match image.topics.get(name.as_str()) {
        Some(topic) => Ok(describe(topic)),
        None => created[name.as_str()].clone(),
    });
    Decision { result: CommandResult::Created(outcomes.collect()), records: creation.records }
}

/// Decides on a DeleteTopics request.
pub fn delete(image: &Image, config: &ControllerConfig, topics: &[TopicRef]) -> Decision {
    let found: Vec<_> = topics.iter().map(|topic| find(image, topic)).collect();
    let named_twice = named_twice(found.iter().flatten().map(|topic| topic.id));
    let mut records = Vec::new();
    let outcomes = found
        .into_iter()
        .map(|found| {
            let topic = found?;
            if !config.delete_enabled {
                let message = "Deleting topics is switched off by delete.topic.enable.";
                return Err(Refusal::new(ErrorCode::TOPIC_DELETION_DISABLED, message));
            }
            if named_twice.contains(&topic.id) {
                return Err(duplicate(&topic.name));
            }
            records.push(Record::TopicDeleted { topic: topic.id });
            Ok(DeletedTopic { id: topic.id, name: topic.name.clone() })
        })
        .collect();
    Decision { result: CommandResult::Deleted(outcomes), records }
}

/// Decides on a CreatePartitions request.
pub fn grow(image: &Image, config: &ControllerConfig, topics: &[NewPartitions], validate_only: bool) -> Decision {
    let named_twice = named_twice(topics.iter().map(|topic| topic.topic.as_str()));
    let mut growth = Growth::new(image, config, topics);
    let outcomes = topics
        .iter()
        .map(|topic| match named_twice.contains(topic.topic.as_str()) {
            true => Err(duplicate(&topic.topic)),
            false => growth.grow(topic),
        })
        .collect();
    let records = if validate_only { vec![] } else { growth.records };
    Decision { records, result: CommandResult::Altered(outcomes) }
}

/// Whether a topic can have this name.
///
/// # Errors
/// A sentence that says why not.
pub fn check_topic_name(name: &str) -> Result<(), Refusal> {
    let refuse =
        |why: &str| Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, format!("Topic name is invalid: {why}")));
    match name {
        "" => refuse("it is empty."),
        "." | ".." => refuse("it may not be \".\" or \"..\"."),
        _ if name.len() > TOPIC_NAME_LEN_MAX => {
            refuse(&format!("it has {} characters and may have {TOPIC_NAME_LEN_MAX}.", name.chars().count()))
        }
        _ if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) => {
            refuse(&format!("{name:?} contains a character other than ASCII letters and digits, '.', '_' and '-'."))
        }
        _ => Ok(()),
    }
}

/// Topics that one request creates, decided one after the other.
struct Creation<'a> {
    image: &'a Image,
    config: &'a ControllerConfig,
    prng: &'a mut Prng,
    budget: PartitionBudget,
    /// Names with '.' replaced by '_', of existing and newly accepted topics: two of a kind would share metric names.
    folded: BTreeMap<String, String>,
    records: Vec<Record>,
}

impl<'a> Creation<'a> {
    fn new(image: &'a Image, config: &'a ControllerConfig, prng: &'a mut Prng, asked: usize) -> Creation<'a> {
        let folded = image.topics.keys().filter(|name| is_foldable(name)).map(|name| (fold(name), name.to_string()));
        let budget = PartitionBudget::new(image, config, asked);
        Creation { image, config, prng, budget, folded: folded.collect(), records: Vec::new() }
    }

    fn create(&mut self, topic: &NewTopic) -> Result<CreatedTopic, Refusal> {
        self.check_name(&topic.name)?;
        let overrides = given_settings(topic)?;
        let config = resolve(&overrides, &self.image.topic_defaults)
            .map_err(|fault| Refusal::new(ErrorCode::INVALID_CONFIG, fault.to_string()))?;
        let partitions = self.partitions(topic)?;
        self.budget.take(&topic.name, partitions.len())?;
        let created = CreatedTopic {
            id: self.fresh_id(),
            partitions: partitions.len() as i32,
            replication_factor: partitions[0].replicas.len() as i16,
            overrides,
            config: Arc::new(config),
        };
        self.accept(topic, &created, partitions);
        Ok(created)
    }

    fn fresh_id(&mut self) -> TopicId {
        loop {
            let id = self.prng.uuid();
            if !self.image.names.contains_key(&id) {
                return id;
            }
        }
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        check_topic_name(name)?;
        if self.image.topics.contains_key(name) {
            return Err(Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, format!("Topic '{name}' already exists.")));
        }
        if let Some(other) = self.folded.get(&fold(name)) {
            let message = format!("Topic '{name}' collides with existing topic '{other}': '.' and '_' count as one.");
            return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, message));
        }
        Ok(())
    }

    fn partitions(&self, topic: &NewTopic) -> Result<Vec<PartitionImage>, Refusal> {
        if !topic.assignments.is_empty() {
            return assigned_partitions(self.image, topic);
        }
        let count = count_or_default(topic.partitions, self.config.partitions_default).ok_or_else(|| {
            let message = format!("The number of partitions is {}; it must be at least 1, or -1.", topic.partitions);
            Refusal::new(ErrorCode::INVALID_PARTITIONS, message)
        })?;
        let factor = i32::from(topic.replication_factor);
        let factor = count_or_default(factor, self.config.replication_factor_default.into()).ok_or_else(|| {
            let message = format!("The replication factor is {factor}; it must be at least 1, or -1.");
            Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, message)
        })?;
        // A count beyond any limit is refused before so many partitions are laid out.
        self.budget.check(&topic.name, count)?;
        placed_partitions(self.image, count, factor, self.budget.placed)
    }

    fn accept(&mut self, topic: &NewTopic, created: &CreatedTopic, partitions: Vec<PartitionImage>) {
        self.records.push(Record::TopicCreated { id: created.id, name: topic.name.as_str().into() });
        if !created.overrides.is_empty() {
            let changes = created.overrides.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
            self.records.push(Record::TopicConfigured { topic: created.id, changes: changes.collect() });
        }
        self.records.push(Record::PartitionsAdded { topic: created.id, partitions });
        if is_foldable(&topic.name) {
            self.folded.insert(fold(&topic.name), topic.name.clone());
        }
    }
}

/// Topics that one request grows.
struct Growth<'a> {
    image: &'a Image,
    budget: PartitionBudget,
    records: Vec<Record>,
}

impl<'a> Growth<'a> {
    fn new(image: &'a Image, config: &'a ControllerConfig, topics: &[NewPartitions]) -> Growth<'a> {
        let asked = topics.iter().map(|topic| {
            let present = image.topics.get(topic.topic.as_str()).map_or(0, |topic| topic.partitions.len());
            usize::try_from(topic.total).unwrap_or(0).saturating_sub(present)
        });
        Growth { image, budget: PartitionBudget::new(image, config, asked.sum()), records: Vec::new() }
    }

    fn grow(&mut self, asked: &NewPartitions) -> Result<TopicId, Refusal> {
        let topic = find(self.image, &TopicRef::Name(asked.topic.clone()))?;
        let present = topic.partitions.len();
        let added = usize::try_from(asked.total).unwrap_or(0).saturating_sub(present);
        if added == 0 {
            let message =
                format!("Topic '{}' has {present} partitions and can only get more, not {}.", topic.name, asked.total);
            return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, message));
        }
        self.budget.check(&topic.name, added)?;
        let factor = topic.partitions[0].replicas.len();
        let partitions = match &asked.assignments {
            Some(assignments) => added_partitions(self.image, assignments, added, factor)?,
            None => placed_partitions(self.image, added, factor, self.budget.placed)?,
        };
        self.budget.take(&topic.name, added)?;
        self.records.push(Record::PartitionsAdded { topic: topic.id, partitions });
        Ok(topic.id)
    }
}

/// What is left of the limits on partitions, for the entries of one request in turn.
struct PartitionBudget {
    /// Partitions of the cluster, those accepted so far included; placement goes on counting from here.
    placed: usize,
    /// `partitions.max`
    placed_max: usize,
    /// Partitions that the whole request asks for.
    asked: usize,
}

impl PartitionBudget {
    fn new(image: &Image, config: &ControllerConfig, asked: usize) -> PartitionBudget {
        PartitionBudget { placed: image.partition_count, placed_max: config.partitions_max, asked }
    }

    fn check(&self, topic: &str, count: usize) -> Result<(), Refusal> {
        if self.asked > PARTITIONS_PER_REQUEST_MAX {
            let message = format!(
                "The request asks for {} partitions; one request may ask for {PARTITIONS_PER_REQUEST_MAX}.",
                self.asked
            );
            return Err(Refusal::new(ErrorCode::POLICY_VIOLATION, message));
        }
        if self.placed + count > self.placed_max {
            let message = format!(
                "{count} partitions for topic '{topic}' and the {} that there are exceed partitions.max = {}.",
                self.placed, self.placed_max
            );
            return Err(Refusal::new(ErrorCode::POLICY_VIOLATION, message));
        }
        Ok(())
    }

    fn take(&mut self, topic: &str, count: usize) -> Result<(), Refusal> {
        self.check(topic, count)?;
        self.placed += count;
        Ok(())
    }
}

fn find<'a>(image: &'a Image, topic: &TopicRef) -> Result<&'a Arc<TopicImage>, Refusal> {
    match topic {
        TopicRef::Name(name) => image
            .topics
            .get(name.as_str())
            .ok_or_else(|| Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("There is no topic '{name}'."))),
        TopicRef::Id(id) => image
            .topic(*id)
            .ok_or_else(|| Refusal::new(ErrorCode::UNKNOWN_TOPIC_ID, format!("There is no topic with the id {id}."))),
    }
}

fn describe(topic: &TopicImage) -> CreatedTopic {
    CreatedTopic {
        id: topic.id,
        partitions: topic.partitions.len() as i32,
        replication_factor: topic.partitions[0].replicas.len() as i16,
        overrides: topic.overrides.clone(),
        config: topic.config.clone(),
    }
}

fn partitions_asked(topic: &NewTopic, config: &ControllerConfig) -> usize {
    match topic.assignments.len() {
        0 => count_or_default(topic.partitions, config.partitions_default).unwrap_or(0),
        assigned => assigned,
    }
}

fn count_or_default(asked: i32, default: u32) -> Option<usize> {
    match asked {
        -1 => Some(default as usize),
        asked if asked > 0 => Some(asked as usize),
        _ => None,
    }
}

fn given_settings(topic: &NewTopic) -> Result<Overrides, Refusal> {
    let given = topic.configs.iter().map(|(name, value)| match value {
        Some(value) => Ok((name.clone(), value.clone())),
        None => {
            let message = format!("Null value not supported for topic configs: {name}");
            Err(Refusal::new(ErrorCode::INVALID_CONFIG, message))
        }
    });
    given.collect()
}

fn placed_partitions(
    image: &Image,
    count: usize,
    factor: usize,
    placed: usize,
) -> Result<Vec<PartitionImage>, Refusal> {
    let active = image.brokers.iter().filter(|(_, broker)| !broker.fenced);
    let candidates: Vec<Candidate> =
        active.map(|(id, broker)| Candidate { id: *id, rack: broker.rack.clone() }).collect();
    if candidates.len() < factor {
        let message =
            format!("The replication factor is {factor}, but only {} broker(s) are available.", candidates.len());
        return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, message));
    }
    let placed = placement::place(&candidates, count, factor, placed);
    Ok(placed.into_iter().map(|replicas| PartitionImage::born(replicas.clone(), replicas)).collect())
}

fn assigned_partitions(image: &Image, topic: &NewTopic) -> Result<Vec<PartitionImage>, Refusal> {
    if topic.partitions != -1 || topic.replication_factor != -1 {
        let message = "With a replica assignment, the number of partitions and the replication factor must be -1.";
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
    }
    let mut assignments: Vec<_> = topic.assignments.iter().collect();
    assignments.sort_by_key(|(index, _)| *index);
    if !assignments.iter().map(|(index, _)| index.0).eq(0..assignments.len() as i32) {
        return Err(refused_assignment("Partitions must be numbered from 0 on, each once."));
    }
    let factor = assignments[0].1.len();
    assignments.into_iter().map(|(_, replicas)| assigned_partition(image, replicas, factor)).collect()
}

fn added_partitions(
    image: &Image,
    assignments: &[Vec<BrokerId>],
    added: usize,
    factor: usize,
) -> Result<Vec<PartitionImage>, Refusal> {
    if assignments.len() != added {
        let message = format!("{added} partitions are added, but {} are assigned.", assignments.len());
        return Err(refused_assignment(message));
    }
    assignments.iter().map(|replicas| assigned_partition(image, replicas, factor)).collect()
}

fn assigned_partition(image: &Image, replicas: &[BrokerId], factor: usize) -> Result<PartitionImage, Refusal> {
    if replicas.is_empty() || replicas.len() != factor {
        let message = format!("A partition has {} replicas where {} are expected.", replicas.len(), factor.max(1));
        return Err(refused_assignment(message));
    }
    let distinct: BTreeSet<BrokerId> = replicas.iter().copied().collect();
    if distinct.len() != replicas.len() {
        return Err(refused_assignment(format!("The replicas {} name a broker twice.", list(replicas))));
    }
    if let Some(unknown) = replicas.iter().find(|broker| !image.brokers.contains_key(broker)) {
        return Err(refused_assignment(format!("Broker {unknown} is not registered.")));
    }
    let isr: Vec<BrokerId> = replicas.iter().copied().filter(|broker| image.is_active(*broker)).collect();
    if isr.is_empty() {
        return Err(refused_assignment(format!("None of the replicas {} is active.", list(replicas))));
    }
    Ok(PartitionImage::born(replicas.to_vec(), isr))
}

fn list(brokers: &[BrokerId]) -> String {
    brokers.iter().map(BrokerId::to_string).collect::<Vec<_>>().join(", ")
}

fn refused_assignment(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message)
}

/// The keys that occur more than once.
pub(super) fn named_twice<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeSet<K> {
    let (mut once, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for key in keys {
        if let Some(key) = once.replace(key) {
            twice.insert(key);
        }
    }
    twice
}

fn duplicate(topic: &str) -> Refusal {
    Refusal::new(ErrorCode::INVALID_REQUEST, format!("The request names topic '{topic}' more than once."))
}

fn is_foldable(name: &str) -> bool {
    name.contains(['.', '_'])
}

fn fold(name: &str) -> String {
    name.replace('.', "_")
}
