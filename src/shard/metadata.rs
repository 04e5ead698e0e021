//! What the cluster looks like: ApiVersions, Metadata, DescribeCluster and DescribeTopicPartitions, answered from the
//! view that the control core publishes.

use crate::control::command::Command;
use crate::control::image::{PartitionImage, TopicImage};
use crate::ids::{BrokerId, Now, PartitionId, PartitionIndex, TopicId};
use crate::kafka::api;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::{api_versions, describe_cluster, describe_topic_partitions, metadata};
use crate::shard::Shard;
use crate::shard::action::Actions;
use crate::shard::dispatch::Request;
use crate::shard::message::ClusterView;
use crate::shard::partition::is_internal;

/// Partitions of one DescribeTopicPartitions answer, at most (Kafka's `max.request.partition.size.limit`).
const DESCRIBED_PARTITIONS_MAX: usize = 2000;

impl Shard {
    pub(super) fn on_api_versions(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<api_versions::ApiVersionsRequest<'_>>(now, request, out) else { return };
        let error_code = self.check_api_versions(request.header.api_version, &message).err().unwrap_or(ErrorCode::NONE);
        let api_keys = if error_code == ErrorCode::NONE { advertised() } else { Vec::new() };
        let response = api_versions::ApiVersionsResponse {
            error_code,
            api_keys,
            finalized_features_epoch: 0,
            ..Default::default()
        };
        self.reply(request, &response, out);
    }

    /// Who the client says that it is, and from version 5 on whom it means to talk to (KIP-1242): a client that has the
    /// address of another cluster or of another broker starts again from its bootstrap servers.
    fn check_api_versions(
        &self,
        version: i16,
        message: &api_versions::ApiVersionsRequest<'_>,
    ) -> Result<(), ErrorCode> {
        let named = [message.client_software_name, message.client_software_version].into_iter().all(is_software_name);
        if version >= 3 && !named {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        match (message.cluster_id, message.node_id) {
            (None, BrokerId(-1)) => Ok(()),
            (None, _) | (_, BrokerId(-1)) => Err(ErrorCode::INVALID_REQUEST),
            (Some(cluster), node) => {
                // At a start the cluster's id may not be known yet.
                let ours = self.view.image.cluster_id.is_empty() || *cluster == *self.view.image.cluster_id;
                if ours && node == self.config.node { Ok(()) } else { Err(ErrorCode::REBOOTSTRAP_REQUIRED) }
            }
        }
    }

    /// An ApiVersions request of a version that is not known is answered in version 0, so that the client can ask again
    /// in one that is (KIP-511).
    pub(super) fn on_unknown_api_versions(&mut self, request: &Request<'_>, out: &mut Actions) {
        let mut in_v0 = *request;
        in_v0.header.api_version = 0;
        let error_code = ErrorCode::UNSUPPORTED_VERSION;
        let response = api_versions::ApiVersionsResponse { error_code, api_keys: advertised(), ..Default::default() };
        self.reply(&in_v0, &response, out);
    }

    pub(super) fn on_metadata(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<metadata::MetadataRequest<'_>>(now, request, out) else { return };
        let version = request.header.api_version;
        let view = self.view.clone();
        let asked = message.topics.as_deref().filter(|topics| version > 0 || !topics.is_empty());
        let topics = match asked {
            None => view.image.topics.values().map(|topic| described(&view, topic)).collect(),
            Some(topics) => topics.iter().map(|topic| asked_topic(&view, version, topic)).collect::<Vec<_>>(),
        };
        if message.allow_auto_topic_creation && self.config.auto_create_topics {
            self.auto_create(&topics, out);
        }
        let response = metadata::MetadataResponse {
            brokers: brokers(&view),
            cluster_id: Some(&view.image.cluster_id),
            controller_id: view.image.controller,
            topics,
            ..Default::default()
        };
        self.reply(request, &response, out);
    }

    /// Asks for the topics that were named and do not exist; nobody waits, the client looks again.
    fn auto_create(&mut self, topics: &[metadata::MetadataResponseTopic<'_>], out: &mut Actions) {
        let missing = topics.iter().filter(|topic| topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        let names: Vec<String> = missing.filter_map(|topic| topic.name).map(str::to_owned).collect();
        if !names.is_empty() {
            self.command_unasked(Command::AutoCreateTopics { names }, out);
        }
    }

    pub(super) fn on_describe_cluster(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<describe_cluster::DescribeClusterRequest>(now, request, out) else { return };
        let view = self.view.clone();
        let shown = view.image.brokers.iter().filter(|(_, b)| !b.fenced || message.include_fenced_brokers);
        let brokers = shown.map(|(id, broker)| describe_cluster::DescribeClusterBroker {
            broker_id: *id,
            host: &broker.host,
            port: i32::from(broker.port),
            rack: broker.rack.as_deref(),
            is_fenced: broker.fenced,
        });
        let only_brokers = message.endpoint_type == 1;
        let response = describe_cluster::DescribeClusterResponse {
            error_code: if only_brokers { ErrorCode::NONE } else { ErrorCode::INVALID_REQUEST },
            error_message: (!only_brokers).then_some("this listener serves endpoint type 1 (brokers)"),
            endpoint_type: message.endpoint_type,
            cluster_id: &view.image.cluster_id,
            controller_id: view.image.controller,
            brokers: if only_brokers { brokers.collect() } else { Vec::new() },
            ..Default::default()
        };
        self.reply(request, &response, out);
    }

    pub(super) fn on_describe_topic_partitions(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        type Message<'a> = describe_topic_partitions::DescribeTopicPartitionsRequest<'a>;
        let Some(message) = self.read::<Message<'_>>(now, request, out) else { return };
        let view = self.view.clone();
        let mut names: Vec<&str> = message.topics.iter().map(|topic| topic.name).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            names = view.image.topics.keys().map(|name| &**name).collect();
        }
        let limit = (message.response_partition_limit.max(1) as usize).min(DESCRIBED_PARTITIONS_MAX);
        let start = message.cursor.as_ref().map(|cursor| (cursor.topic_name, cursor.partition_index));
        let response = describe_partitions(&view, &names, start, limit);
        self.reply(request, &response, out);
    }
}

fn advertised() -> Vec<api_versions::ApiVersion> {
    let row = |row: &api::Row| api_versions::ApiVersion {
        api_key: row.key.0,
        min_version: row.advertised_min,
        max_version: row.max,
    };
    api::TABLE.iter().map(row).collect()
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`, as Kafka demands of software names and versions.
fn is_software_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'.';
    let ends = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|c| inner(*c))
}

fn brokers(view: &ClusterView) -> Vec<metadata::MetadataResponseBroker<'_>> {
    let alive = view.image.brokers.iter().filter(|(_, broker)| !broker.fenced);
    let broker = alive.map(|(id, broker)| metadata::MetadataResponseBroker {
        node_id: *id,
        host: &broker.host,
        port: i32::from(broker.port),
        rack: broker.rack.as_deref(),
    });
    broker.collect()
}

fn asked_topic<'a>(
    view: &'a ClusterView,
    version: i16,
    topic: &metadata::MetadataRequestTopic<'a>,
) -> metadata::MetadataResponseTopic<'a> {
    let refused = |error_code| metadata::MetadataResponseTopic {
        error_code,
        name: topic.name,
        topic_id: topic.topic_id,
        ..Default::default()
    };
    // The Java client asks by id with an empty name, not with none.
    let by_id = topic.name.is_none() || !topic.topic_id.is_none();
    if version < 12 && by_id {
        return refused(ErrorCode::INVALID_REQUEST);
    }
    match view.topic(topic.name.unwrap_or_default(), if by_id { topic.topic_id } else { TopicId::NONE }) {
        Ok(topic) => described(view, topic),
        Err(_) if !by_id && !is_topic_name(topic.name.unwrap_or_default()) => {
            refused(ErrorCode::INVALID_TOPIC_EXCEPTION)
        }
        Err(code) => refused(if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { code }),
    }
}

fn described<'a>(view: &ClusterView, topic: &'a TopicImage) -> metadata::MetadataResponseTopic<'a> {
    let partitions = (0..).zip(&topic.partitions).map(|(index, partition)| {
        let (error_code, leader_id) = leader(view, topic.id, index, partition);
        metadata::MetadataResponsePartition {
            error_code,
            partition_index: PartitionIndex(index),
            leader_id,
            leader_epoch: partition.leader_epoch,
            replica_nodes: partition.replicas.clone(),
            isr_nodes: partition.isr.clone(),
            offline_replicas: offline(view, topic.id, index, partition),
        }
    });
    metadata::MetadataResponseTopic {
        name: Some(&topic.name),
        topic_id: topic.id,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        ..Default::default()
    }
}

/// The leader, or that there is none now: it is offline, or it is this broker and does not serve the partition yet.
fn leader(view: &ClusterView, topic: TopicId, index: i32, partition: &PartitionImage) -> (ErrorCode, BrokerId) {
    let id = PartitionId { topic, index: PartitionIndex(index) };
    let served = view.route(id).is_ok() || partition.leader != view.node;
    let known = view.image.brokers.get(&partition.leader).is_some_and(|broker| !broker.fenced);
    if served && known { (ErrorCode::NONE, partition.leader) } else { (ErrorCode::LEADER_NOT_AVAILABLE, BrokerId(-1)) }
}

/// Replicas on brokers that are not there, and the one here when its data directory has failed.
fn offline(view: &ClusterView, topic: TopicId, index: i32, partition: &PartitionImage) -> Vec<BrokerId> {
    let failed_here = view.is_offline(PartitionId { topic, index: PartitionIndex(index) });
    let alive = |id: &BrokerId| view.image.brokers.get(id).is_some_and(|broker| !broker.fenced);
    let serves = |id: &&BrokerId| alive(id) && !(failed_here && **id == view.node);
    partition.replicas.iter().filter(|id| !serves(id)).copied().collect()
}

/// 1 to 249 characters of `[a-zA-Z0-9._-]`, and neither "." nor "..".
fn is_topic_name(name: &str) -> bool {
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

fn describe_partitions<'a>(
    view: &'a ClusterView,
    names: &[&'a str],
    start: Option<(&'a str, PartitionIndex)>,
    limit: usize,
) -> describe_topic_partitions::DescribeTopicPartitionsResponse<'a> {
    use describe_topic_partitions as schema;
    let mut left = limit;
    let mut response = schema::DescribeTopicPartitionsResponse::default();
    for name in names {
        let from = match start {
            Some((topic, _)) if *name < topic => continue,
            Some((topic, index)) if *name == topic => index.0.max(0),
            _ => 0,
        };
        let Ok(topic) = view.topic(name, TopicId::NONE) else {
            let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let name = Some(*name);
            response.topics.push(schema::DescribeTopicPartitionsResponseTopic {
                error_code,
                name,
                ..Default::default()
            });
            continue;
        };
        if left == 0 {
            response.next_cursor =
                Some(schema::Cursor { topic_name: &topic.name, partition_index: PartitionIndex(from) });
            return response;
        }
        let described = (0..).zip(&topic.partitions).skip(from as usize).take(left);
        let partitions: Vec<_> = described.map(|(index, p)| described_partition(view, topic, index, p)).collect();
        left -= partitions.len();
        let next = from + partitions.len() as i32;
        response.topics.push(schema::DescribeTopicPartitionsResponseTopic {
            name: Some(&topic.name),
            topic_id: topic.id,
            is_internal: is_internal(&topic.name),
            partitions,
            ..Default::default()
        });
        if (next as usize) < topic.partitions.len() {
            response.next_cursor =
                Some(schema::Cursor { topic_name: &topic.name, partition_index: PartitionIndex(next) });
            return response;
        }
    }
    response
}

fn described_partition(
    view: &ClusterView,
    topic: &TopicImage,
    index: i32,
    partition: &PartitionImage,
) -> describe_topic_partitions::DescribeTopicPartitionsResponsePartition {
    let (error_code, leader_id) = leader(view, topic.id, index, partition);
    describe_topic_partitions::DescribeTopicPartitionsResponsePartition {
        error_code,
        partition_index: PartitionIndex(index),
        leader_id,
        leader_epoch: partition.leader_epoch,
        replica_nodes: partition.replicas.clone(),
        isr_nodes: partition.isr.clone(),
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        offline_replicas: offline(view, topic.id, index, partition),
    }
}
