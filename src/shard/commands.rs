//! Requests that only the metadata log can decide: each becomes a command to the control core, and is answered with what
//! came of it.

use crate::control::command::{
    Alteration, Alterations, Command, CommandResult, ConfigChange, CreatedTopic, DeletedTopic, NewPartitions, NewTopic,
    Refusal, TopicRef,
};
use crate::ids::{Now, ProducerEpoch, ProducerId, Ticket, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::{
    create_partitions, create_topics, delete_topics, incremental_alter_configs, init_producer_id,
};
use crate::log::topic_config::{Described, describe};
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};
use crate::shard::dispatch::{Reply, Request};
use crate::shard::message::{Message, Origin, Peer};
use crate::shard::requests::{InService, Kind};

/// What a waiting request needs to be answered.
#[derive(Debug)]
pub enum Waiting {
    /// CreateTopics: the names in order.
    CreateTopics(Vec<String>),
    /// DeleteTopics: how each topic was named.
    DeleteTopics(Vec<TopicRef>),
    /// CreatePartitions: the names in order.
    CreatePartitions(Vec<String>),
    /// IncrementalAlterConfigs: the resources in order.
    AlterConfigs(Vec<(i8, String)>),
    /// InitProducerId: the block that comes is this core's.
    ProducerId,
    /// Nobody waits.
    Unasked,
}

/// Producer ids that this core may give out.
#[derive(Debug, Default)]
pub struct ProducerIds {
    next: i64,
    left: u32,
    /// Requests that wait for the next block.
    waiting: Vec<Reply>,
    asked: bool,
}

impl Shard {
    fn command(&mut self, request: &Request<'_>, waiting: Waiting, command: Command, out: &mut Actions) {
        let kind = Kind::Command(Box::new(waiting));
        let ticket = self.requests.start(InService { reply: Reply::of(request), kind });
        self.send_command(ticket, command, out);
    }

    /// Sends a command that no client waits for.
    pub(super) fn command_unasked(&mut self, command: Command, out: &mut Actions) {
        self.send_command(Ticket(0), command, out);
    }

    fn send_command(&mut self, ticket: Ticket, command: Command, out: &mut Actions) {
        let origin = Origin { core: self.config.core, ticket, slot: 0 };
        out.push(Action::Mail { to: Peer::Control, message: Message::Command { origin, command } });
    }

    pub(super) fn on_create_topics(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<create_topics::CreateTopicsRequest<'_>>(now, request, out) else { return };
        let topics: Vec<NewTopic> = message.topics.iter().map(new_topic).collect();
        let names = topics.iter().map(|topic| topic.name.clone()).collect();
        let command = Command::CreateTopics { topics, validate_only: message.validate_only };
        self.command(request, Waiting::CreateTopics(names), command, out);
    }

    pub(super) fn on_delete_topics(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<delete_topics::DeleteTopicsRequest<'_>>(now, request, out) else { return };
        let named = message.topic_names.iter().map(|name| TopicRef::Name((*name).to_owned()));
        let states = message.topics.iter().map(|topic| match topic.name {
            Some(name) => TopicRef::Name(name.to_owned()),
            None => TopicRef::Id(topic.topic_id),
        });
        let topics: Vec<TopicRef> = named.chain(states).collect();
        self.command(request, Waiting::DeleteTopics(topics.clone()), Command::DeleteTopics { topics }, out);
    }

    pub(super) fn on_create_partitions(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<create_partitions::CreatePartitionsRequest<'_>>(now, request, out) else {
            return;
        };
        let topics: Vec<NewPartitions> = message.topics.iter().map(new_partitions).collect();
        let names = topics.iter().map(|topic| topic.topic.clone()).collect();
        let command = Command::CreatePartitions { topics, validate_only: message.validate_only };
        self.command(request, Waiting::CreatePartitions(names), command, out);
    }

    pub(super) fn on_incremental_alter_configs(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        type Message<'a> = incremental_alter_configs::IncrementalAlterConfigsRequest<'a>;
        let Some(message) = self.read::<Message<'_>>(now, request, out) else { return };
        let changes: Vec<ConfigChange> = message.resources.iter().map(config_change).collect();
        let resources = changes.iter().map(|c| (c.resource_type, c.resource_name.clone())).collect();
        let command = Command::AlterConfigs { changes, validate_only: message.validate_only };
        self.command(request, Waiting::AlterConfigs(resources), command, out);
    }

    pub(super) fn on_init_producer_id(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<init_producer_id::InitProducerIdRequest<'_>>(now, request, out) else { return };
        if message.transactional_id.is_some() {
            // Transactions are not served; this code is one that no client tries again.
            let error_code = ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
            let response = init_producer_id::InitProducerIdResponse {
                error_code,
                producer_epoch: ProducerEpoch(-1),
                ..Default::default()
            };
            return self.reply(request, &response, out);
        }
        self.producer_ids.waiting.push(Reply::of(request));
        self.give_producer_ids(out);
    }

    /// Answers who waits for a producer id, and asks for another block when there is none left.
    fn give_producer_ids(&mut self, out: &mut Actions) {
        while self.producer_ids.left > 0
            && let Some(reply) = self.producer_ids.waiting.pop()
        {
            let producer_id = ProducerId(self.producer_ids.next);
            self.producer_ids.next += 1;
            self.producer_ids.left -= 1;
            let response = init_producer_id::InitProducerIdResponse { producer_id, ..Default::default() };
            self.reply_to(reply, &response, out);
        }
        if !self.producer_ids.waiting.is_empty() && !self.producer_ids.asked {
            self.producer_ids.asked = true;
            self.command_unasked(Command::AllocateProducerIds, out);
        }
    }

    fn on_producer_ids(&mut self, result: CommandResult, out: &mut Actions) {
        self.producer_ids.asked = false;
        match result {
            CommandResult::ProducerIds { first, count } => {
                self.producer_ids.next = first;
                self.producer_ids.left = count;
                self.give_producer_ids(out);
            }
            _ => {
                for reply in std::mem::take(&mut self.producer_ids.waiting) {
                    let error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
                    let producer_epoch = ProducerEpoch(-1);
                    let response =
                        init_producer_id::InitProducerIdResponse { error_code, producer_epoch, ..Default::default() };
                    self.reply_to(reply, &response, out);
                }
            }
        }
    }

    /// The control core has decided.
    pub(super) fn on_command_done(&mut self, origin: Origin, result: CommandResult, out: &mut Actions) {
        if matches!(result, CommandResult::ProducerIds { .. }) {
            return self.on_producer_ids(result, out);
        }
        if origin.ticket == Ticket(0) {
            if let CommandResult::Refused(refusal) = &result
                && self.producer_ids.asked
            {
                tracing::warn!(reason = refusal.message, "no producer ids");
                self.on_producer_ids(result, out);
            }
            return;
        }
        let Some(InService { reply, kind: Kind::Command(waiting) }) = self.requests.finish(origin.ticket) else {
            return; // Its connection has ended.
        };
        match *waiting {
            Waiting::CreateTopics(names) => self.reply_created(reply, &names, &result, out),
            Waiting::DeleteTopics(topics) => self.reply_deleted(reply, &topics, &result, out),
            Waiting::CreatePartitions(names) => self.reply_partitions(reply, &names, &result, out),
            Waiting::AlterConfigs(resources) => self.reply_altered(reply, &resources, &result, out),
            Waiting::ProducerId | Waiting::Unasked => {}
        }
    }

    fn reply_created(&mut self, reply: Reply, names: &[String], result: &CommandResult, out: &mut Actions) {
        let defaults = self.config.topic_defaults.clone();
        let settings: Vec<Vec<Described>> = (0..names.len())
            .map(|index| created(result, index).map(|topic| describe(&topic.overrides, &defaults)).unwrap_or_default())
            .collect();
        let topics = names.iter().enumerate().map(|(index, name)| match created(result, index) {
            Ok(topic) => created_topic(name, topic, &settings[index]),
            Err(refusal) => create_topics::CreatableTopicResult {
                name,
                error_code: refusal.code,
                error_message: Some(&refusal.message),
                ..Default::default()
            },
        });
        let response = create_topics::CreateTopicsResponse { topics: topics.collect(), ..Default::default() };
        self.reply_to(reply, &response, out);
    }

    fn reply_deleted(&mut self, reply: Reply, topics: &[TopicRef], result: &CommandResult, out: &mut Actions) {
        let responses = topics.iter().enumerate().map(|(index, topic)| {
            let (name, id) = match topic {
                TopicRef::Name(name) => (Some(name.as_str()), TopicId::NONE),
                TopicRef::Id(id) => (None, *id),
            };
            match deleted(result, index) {
                Ok(topic) => delete_topics::DeletableTopicResult {
                    name: Some(&topic.name),
                    topic_id: topic.id,
                    ..Default::default()
                },
                Err(refusal) => delete_topics::DeletableTopicResult {
                    name,
                    topic_id: id,
                    error_code: refusal.code,
                    error_message: Some(&refusal.message),
                },
            }
        });
        let response = delete_topics::DeleteTopicsResponse { responses: responses.collect(), ..Default::default() };
        self.reply_to(reply, &response, out);
    }

    fn reply_partitions(&mut self, reply: Reply, names: &[String], result: &CommandResult, out: &mut Actions) {
        let results = names.iter().enumerate().map(|(index, name)| {
            let refusal = altered(result, index).err();
            create_partitions::CreatePartitionsTopicResult {
                name,
                error_code: refusal.map_or(ErrorCode::NONE, |refusal| refusal.code),
                error_message: refusal.map(|refusal| refusal.message.as_str()),
            }
        });
        let response = create_partitions::CreatePartitionsResponse { results: results.collect(), ..Default::default() };
        self.reply_to(reply, &response, out);
    }

    fn reply_altered(&mut self, reply: Reply, resources: &[(i8, String)], result: &CommandResult, out: &mut Actions) {
        let responses = resources.iter().enumerate().map(|(index, (resource_type, resource_name))| {
            let refusal = altered(result, index).err();
            incremental_alter_configs::AlterConfigsResourceResponse {
                error_code: refusal.map_or(ErrorCode::NONE, |refusal| refusal.code),
                error_message: refusal.map(|refusal| refusal.message.as_str()),
                resource_type: *resource_type,
                resource_name,
            }
        });
        let response = incremental_alter_configs::IncrementalAlterConfigsResponse {
            responses: responses.collect(),
            ..Default::default()
        };
        self.reply_to(reply, &response, out);
    }
}

fn new_topic(topic: &create_topics::CreatableTopic<'_>) -> NewTopic {
    let assignments = topic.assignments.iter().map(|a| (a.partition_index, a.broker_ids.clone()));
    let configs = topic.configs.iter().map(|c| (c.name.to_owned(), c.value.map(str::to_owned)));
    NewTopic {
        name: topic.name.to_owned(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

fn new_partitions(topic: &create_partitions::CreatePartitionsTopic<'_>) -> NewPartitions {
    let assignments = topic.assignments.as_ref();
    NewPartitions {
        topic: topic.name.to_owned(),
        total: topic.count,
        assignments: assignments.map(|all| all.iter().map(|one| one.broker_ids.clone()).collect()),
    }
}

fn config_change(resource: &incremental_alter_configs::AlterConfigsResource<'_>) -> ConfigChange {
    let alterations = resource.configs.iter().map(|config| Alteration {
        name: config.name.to_owned(),
        operation: config.config_operation,
        value: config.value.map(str::to_owned),
    });
    ConfigChange {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.to_owned(),
        alterations: Alterations::Incremental(alterations.collect()),
    }
}

/// The outcome of one entry; a refused command refuses every entry.
fn created(result: &CommandResult, index: usize) -> Result<&CreatedTopic, &Refusal> {
    match result {
        CommandResult::Refused(refusal) => Err(refusal),
        CommandResult::Created(topics) => topics[index].as_ref(),
        other => panic!("CreateTopics answered with {other:?}"),
    }
}

fn deleted(result: &CommandResult, index: usize) -> Result<&DeletedTopic, &Refusal> {
    match result {
        CommandResult::Refused(refusal) => Err(refusal),
        CommandResult::Deleted(topics) => topics[index].as_ref(),
        other => panic!("DeleteTopics answered with {other:?}"),
    }
}

fn altered(result: &CommandResult, index: usize) -> Result<(), &Refusal> {
    match result {
        CommandResult::Refused(refusal) => Err(refusal),
        CommandResult::Altered(entries) => entries[index].as_ref().map(|_| ()),
        other => panic!("an alteration answered with {other:?}"),
    }
}

fn created_topic<'a>(
    name: &'a str,
    topic: &CreatedTopic,
    settings: &'a [Described],
) -> create_topics::CreatableTopicResult<'a> {
    let configs = settings.iter().map(|one| create_topics::CreatableTopicConfigs {
        name: one.definition.name,
        value: Some(&one.value),
        config_source: one.source.wire(),
        ..Default::default()
    });
    create_topics::CreatableTopicResult {
        name,
        topic_id: topic.id,
        num_partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        configs: Some(configs.collect()),
        ..Default::default()
    }
}
