//! `pinion topic`: create, list, describe, alter and delete topics of any Kafka-compatible cluster, over the wire.

use clap::{Args as ClapArgs, Subcommand};

use crate::cli::client::{Client, TIMEOUT_MS};
use crate::cli::table::Table;
use crate::cli::{Failure, print};
use crate::config::quantity::Unit;
use crate::ids::{BrokerId, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use crate::kafka::schema::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use crate::kafka::schema::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use crate::kafka::schema::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use crate::kafka::schema::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use crate::kafka::schema::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};
use crate::log::topic_config::{Kind, definition};

/// Kind of a topic in the APIs about settings (kafka-spec §1.8).
const RESOURCE_TOPIC: i8 = 2;
/// Source of a setting that was given to the topic.
const SOURCE_TOPIC: i8 = 1;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Flags of `pinion topic`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Brokers to ask, the first that answers is taken
    #[arg(long, global = true, value_name = "HOST:PORT,…", default_value = "127.0.0.1:9092")]
    pub bootstrap: String,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Create a topic
    Create(CreateArgs),
    /// List the names of all topics
    List,
    /// Show partitions and settings of a topic, or one line for each topic
    Describe {
        /// Which topic
        name: Option<String>,
    },
    /// Give a topic more partitions or other settings
    Alter(AlterArgs),
    /// Delete a topic with all its data
    Delete {
        /// Which topic
        name: String,
    },
}

/// Flags of `pinion topic create`.
#[derive(Debug, Default, ClapArgs)]
pub struct CreateArgs {
    /// Its name: letters, digits, '.', '_' and '-', at most 249
    pub name: String,
    /// How many partitions [num.partitions of the broker]
    #[arg(long, value_name = "N")]
    pub partitions: Option<i32>,
    /// How many replicas of each [default.replication.factor of the broker]
    #[arg(long, value_name = "N")]
    pub replication_factor: Option<i16>,
    /// A setting; sizes and durations take units: segment.bytes=256MiB, retention.ms=7d
    #[arg(long, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// Brokers of each partition, leader first: 1:2,2:3 is two partitions of two replicas
    #[arg(long, value_name = "IDS", conflicts_with_all = ["partitions", "replication_factor"])]
    pub assignment: Option<String>,
    /// A topic that is there already is fine
    #[arg(long)]
    pub if_not_exists: bool,
}

/// Flags of `pinion topic alter`.
#[derive(Debug, Default, ClapArgs)]
#[group(required = true, multiple = true)]
pub struct AlterArgs {
    /// Which topic
    #[arg(group = "subject")]
    pub name: String,
    /// How many partitions it shall have; never fewer than now
    #[arg(long, value_name = "N")]
    pub partitions: Option<i32>,
    /// A setting to give
    #[arg(long, value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// A setting to return to its default
    #[arg(long, value_name = "KEY")]
    pub delete_config: Vec<String>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    // What is wrong with the command line is said before anybody is asked.
    match &args.action {
        Action::Create(create) => {
            configs(&create.config)?;
            create.assignment.as_deref().map(assignments).transpose()?;
        }
        Action::Alter(alter) => {
            configs(&alter.config)?;
            if alter.partitions.is_none() && alter.config.is_empty() && alter.delete_config.is_empty() {
                return Err(Failure::usage("topic alter: --partitions, --config or --delete-config is needed"));
            }
        }
        Action::List | Action::Describe { .. } | Action::Delete { .. } => {}
    }
    let mut client = Client::connect(&args.bootstrap)?;
    let text = match &args.action {
        Action::Create(create) => created(&mut client, create, args.json)?,
        Action::List => listed(&mut client, args.json)?,
        Action::Describe { name: Some(name) } => described(&mut client, name, args.json)?,
        Action::Describe { name: None } => overview(&mut client, args.json)?,
        Action::Alter(alter) => altered(&mut client, alter)?,
        Action::Delete { name } => deleted(&mut client, name)?,
    };
    print(text.as_bytes())
}

fn created(client: &mut Client, args: &CreateArgs, json: bool) -> Result<String, Failure> {
    let configs = configs(&args.config)?;
    let assigned = args.assignment.as_deref().map(assignments).transpose()?;
    let counts_given = assigned.is_none();
    let topic = CreatableTopic {
        name: &args.name,
        num_partitions: args.partitions.filter(|_| counts_given).unwrap_or(-1),
        replication_factor: args.replication_factor.filter(|_| counts_given).unwrap_or(-1),
        assignments: assigned.unwrap_or_default(),
        configs: configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect(),
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, validate_only: false };
    let answer = client.call(&request)?;
    let response: CreateTopicsResponse = answer.decode()?;
    let result = response.topics.first().ok_or_else(|| Failure::new("the broker answered about no topic"))?;
    if result.error_code == ErrorCode::TOPIC_ALREADY_EXISTS && args.if_not_exists {
        return Ok(format!("{} is there already\n", args.name));
    }
    refused(&format!("cannot create {}", args.name), result.error_code, result.error_message)?;
    Ok(match json {
        true => line(&serde_json::json!({
            "name": args.name, "id": result.topic_id.to_string(), "partitions": result.num_partitions,
            "replication_factor": result.replication_factor,
        })),
        false => format!("created {}\n", args.name),
    })
}

fn listed(client: &mut Client, json: bool) -> Result<String, Failure> {
    let answer = client.call(&all_topics())?;
    let response: MetadataResponse = answer.decode()?;
    let mut names: Vec<&str> = response.topics.iter().filter_map(|topic| topic.name).collect();
    names.sort_unstable();
    Ok(match json {
        true => line(&serde_json::json!(names)),
        false => names.iter().map(|name| format!("{name}\n")).collect(),
    })
}

fn overview(client: &mut Client, json: bool) -> Result<String, Failure> {
    let answer = client.call(&all_topics())?;
    let response: MetadataResponse = answer.decode()?;
    let mut topics: Vec<&MetadataResponseTopic> = response.topics.iter().collect();
    topics.sort_by_key(|topic| topic.name);
    if json {
        let topics: Vec<_> = topics.iter().map(|topic| topic_json(topic)).collect();
        return Ok(line(&serde_json::json!(topics)));
    }
    let mut table = Table::new(&["TOPIC", "PARTITIONS", "REPLICAS", "WITHOUT LEADER", "UNDER-REPLICATED", "ID"]);
    for topic in topics {
        let count = |matches: fn(&MetadataResponsePartition) -> bool| {
            topic.partitions.iter().filter(|partition| matches(partition)).count().to_string()
        };
        table.row(vec![
            topic.name.unwrap_or_default().to_string(),
            topic.partitions.len().to_string(),
            topic.partitions.first().map_or(0, |partition| partition.replica_nodes.len()).to_string(),
            count(|partition| partition.leader_id.0 < 0),
            count(|partition| partition.isr_nodes.len() < partition.replica_nodes.len()),
            topic.topic_id.to_string(),
        ]);
    }
    Ok(table.to_string())
}

fn described(client: &mut Client, name: &str, json: bool) -> Result<String, Failure> {
    let wanted = MetadataRequestTopic { topic_id: TopicId::NONE, name: Some(name) };
    let request =
        MetadataRequest { topics: Some(vec![wanted]), allow_auto_topic_creation: false, ..MetadataRequest::default() };
    let answer = client.call(&request)?;
    let response: MetadataResponse = answer.decode()?;
    let topic = response.topics.first().ok_or_else(|| Failure::new("the broker answered about no topic"))?;
    refused(&format!("cannot describe {name}"), topic.error_code, None)?;
    let settings = settings(client, name)?;
    if json {
        let mut object = topic_json(topic);
        let settings = settings.iter().map(|(name, value)| (name.clone(), serde_json::json!(value)));
        object["configs"] = serde_json::Value::Object(settings.collect());
        return Ok(line(&object));
    }
    let mut text =
        format!("topic       {name}\nid          {}\npartitions  {}\n", topic.topic_id, topic.partitions.len());
    for (i, (name, value)) in settings.iter().enumerate() {
        text.push_str(&format!("{}{name}={value}\n", if i == 0 { "settings    " } else { "            " }));
    }
    let mut table = Table::new(&["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "OFFLINE"]);
    let mut partitions: Vec<&MetadataResponsePartition> = topic.partitions.iter().collect();
    partitions.sort_by_key(|partition| partition.partition_index);
    for partition in partitions {
        table.row(vec![
            partition.partition_index.to_string(),
            if partition.leader_id.0 < 0 { "none".to_string() } else { partition.leader_id.to_string() },
            partition.leader_epoch.to_string(),
            ids(&partition.replica_nodes),
            ids(&partition.isr_nodes),
            ids(&partition.offline_replicas),
        ]);
    }
    Ok(format!("{text}\n{table}"))
}

/// The settings that were given to a topic.
fn settings(client: &mut Client, topic: &str) -> Result<Vec<(String, String)>, Failure> {
    let resource =
        DescribeConfigsResource { resource_type: RESOURCE_TOPIC, resource_name: topic, configuration_keys: None };
    let request = DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
    let answer = client.call(&request)?;
    let response: DescribeConfigsResponse = answer.decode()?;
    let result = response.results.first().ok_or_else(|| Failure::new("the broker answered about no topic"))?;
    refused(&format!("cannot read the settings of {topic}"), result.error_code, result.error_message)?;
    let given = result.configs.iter().filter(|config| config.config_source == SOURCE_TOPIC);
    Ok(given.map(|config| (config.name.to_string(), config.value.unwrap_or_default().to_string())).collect())
}

fn altered(client: &mut Client, args: &AlterArgs) -> Result<String, Failure> {
    let mut text = String::new();
    if !args.config.is_empty() || !args.delete_config.is_empty() {
        let given = configs(&args.config)?;
        let given =
            given.iter().map(|(name, value)| AlterableConfig { name, config_operation: SET, value: Some(value) });
        let removed = args.delete_config.iter();
        let removed = removed.map(|name| AlterableConfig { name, config_operation: DELETE, value: None });
        let configs = given.chain(removed).collect();
        let resource = AlterConfigsResource { resource_type: RESOURCE_TOPIC, resource_name: &args.name, configs };
        let answer =
            client.call(&IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false })?;
        let response: IncrementalAlterConfigsResponse = answer.decode()?;
        let result = response.responses.first().ok_or_else(|| Failure::new("the broker answered about no topic"))?;
        refused(&format!("cannot change the settings of {}", args.name), result.error_code, result.error_message)?;
        text.push_str(&format!("changed the settings of {}\n", args.name));
    }
    if let Some(count) = args.partitions {
        let topic = CreatePartitionsTopic { name: &args.name, count, assignments: None };
        let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, validate_only: false };
        let answer = client.call(&request)?;
        let response: CreatePartitionsResponse = answer.decode()?;
        let result = response.results.first().ok_or_else(|| Failure::new("the broker answered about no topic"))?;
        refused(&format!("cannot give {} {count} partitions", args.name), result.error_code, result.error_message)?;
        text.push_str(&format!("{} has {count} partitions\n", args.name));
    }
    Ok(text)
}

fn deleted(client: &mut Client, name: &str) -> Result<String, Failure> {
    let topics = vec![DeleteTopicState { name: Some(name), topic_id: TopicId::NONE }];
    let by_name = vec![name];
    let newest = client.version::<crate::kafka::schema::delete_topics::DeleteTopics>()? >= 6;
    let request = DeleteTopicsRequest {
        topics: if newest { topics } else { Vec::new() },
        topic_names: if newest { Vec::new() } else { by_name },
        timeout_ms: TIMEOUT_MS,
    };
    let answer = client.call(&request)?;
    let response: DeleteTopicsResponse = answer.decode()?;
    let result = response.responses.first().ok_or_else(|| Failure::new("the broker answered about no topic"))?;
    refused(&format!("cannot delete {name}"), result.error_code, result.error_message)?;
    Ok(format!("deleted {name}\n"))
}

fn all_topics() -> MetadataRequest<'static> {
    MetadataRequest { topics: None, allow_auto_topic_creation: false, ..MetadataRequest::default() }
}

/// A failure that names the code and what the broker says about it.
fn refused(what: &str, code: ErrorCode, message: Option<&str>) -> Result<(), Failure> {
    if code == ErrorCode::NONE {
        return Ok(());
    }
    let name = code.name().map_or_else(|| format!("error {}", code.0), String::from);
    let message = message.filter(|message| !message.is_empty()).unwrap_or(code.message());
    Err(Failure::new(format!("{what}: {message} ({name})")))
}

/// Settings of the command line in Kafka's plain numbers.
fn configs(pairs: &[String]) -> Result<Vec<(String, String)>, Failure> {
    pairs.iter().map(|pair| config(pair)).collect()
}

fn config(pair: &str) -> Result<(String, String), Failure> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(Failure::usage(format!("--config {pair}: it has the form key=value")));
    };
    let (name, value) = (name.trim(), value.trim());
    let is_number = definition(name).is_some_and(|definition| matches!(definition.kind, Kind::Int | Kind::Long));
    let unit = match name {
        _ if name.ends_with(".ms") => Unit::Millis,
        _ if name.ends_with(".bytes") => Unit::Bytes,
        _ => Unit::One,
    };
    if !is_number {
        return Ok((name.to_string(), value.to_string()));
    }
    let number = unit.parse(value).map_err(|accepted| Failure::usage(format!("--config {pair}: {accepted}")))?;
    Ok((name.to_string(), number.to_string()))
}

/// `1:2,2:3` as the replicas of partitions 0 and 1.
fn assignments(text: &str) -> Result<Vec<CreatableReplicaAssignment>, Failure> {
    let broker = |id: &str| {
        let id = id.trim().parse().map(BrokerId);
        id.map_err(|_| Failure::usage(format!("--assignment {text}: it has the form 1:2,2:3")))
    };
    let partition = |(index, replicas): (usize, &str)| {
        let broker_ids = replicas.split(':').map(broker).collect::<Result<_, _>>()?;
        Ok(CreatableReplicaAssignment { partition_index: PartitionIndex(index as i32), broker_ids })
    };
    text.split(',').enumerate().map(partition).collect()
}

fn topic_json(topic: &MetadataResponseTopic) -> serde_json::Value {
    let plain = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
    let partition = |partition: &MetadataResponsePartition| {
        serde_json::json!({
            "partition": partition.partition_index.0, "leader": partition.leader_id.0,
            "leader_epoch": partition.leader_epoch.0, "replicas": plain(&partition.replica_nodes),
            "isr": plain(&partition.isr_nodes), "offline": plain(&partition.offline_replicas),
        })
    };
    let partitions: Vec<_> = topic.partitions.iter().map(partition).collect();
    serde_json::json!({
        "name": topic.name, "id": topic.topic_id.to_string(), "internal": topic.is_internal, "partitions": partitions,
    })
}

fn line(value: &serde_json::Value) -> String {
    format!("{value}\n")
}

fn ids(ids: &[BrokerId]) -> String {
    match ids.is_empty() {
        true => "-".to_string(),
        false => ids.iter().map(BrokerId::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_sent_as_kafkas_plain_numbers() {
        let plain = |pair: &str| config(pair).map(|(name, value)| format!("{name}={value}"));
        assert_eq!(plain("segment.bytes=256MiB"), Ok("segment.bytes=268435456".to_string()));
        assert_eq!(plain("retention.ms=7d"), Ok("retention.ms=604800000".to_string()));
        assert_eq!(plain("cleanup.policy=delete"), Ok("cleanup.policy=delete".to_string()));
        assert_eq!(plain("made.up=7d"), Ok("made.up=7d".to_string()), "the broker knows its settings");
        assert_eq!(plain("retention.ms=soon").expect_err("refused").status, 2);
        assert_eq!(plain("retention.ms").expect_err("refused").status, 2);
    }

    #[test]
    fn an_assignment_lists_the_replicas_of_each_partition() {
        let parsed = assignments("1:2,2:3").expect("valid");
        assert_eq!(parsed[1].partition_index, PartitionIndex(1));
        assert_eq!(parsed[1].broker_ids, [BrokerId(2), BrokerId(3)]);
        assert!(assignments("1:x").is_err() && assignments("").is_err());
    }

    #[test]
    fn a_refusal_names_what_was_tried_the_reason_and_the_code() {
        let failure = refused("cannot create a", ErrorCode::TOPIC_ALREADY_EXISTS, Some("Topic 'a' already exists."));
        let message = failure.expect_err("refused").message;
        assert_eq!(message, "cannot create a: Topic 'a' already exists. (TOPIC_ALREADY_EXISTS)");
        assert_eq!(refused("x", ErrorCode::NONE, None), Ok(()));
    }

    #[test]
    fn a_topic_is_described_as_a_table_and_as_json() {
        use crate::cli::client::tests::broker;
        use crate::kafka::api::ApiKey;
        use crate::kafka::schema::Message;
        use crate::kafka::schema::api_versions::ApiVersion;
        use crate::kafka::schema::describe_configs::{DescribeConfigsResourceResult, DescribeConfigsResult};

        let serves = |api: ApiKey, max_version| ApiVersion { api_key: api.0, min_version: 0, max_version };
        let served = vec![serves(ApiKey::METADATA, 12), serves(ApiKey::DESCRIBE_CONFIGS, 4)];
        let (address, _) = broker(served, |api, version, _, out| match api {
            ApiKey::METADATA => {
                let partition = |index| MetadataResponsePartition {
                    partition_index: PartitionIndex(index),
                    leader_id: BrokerId(1),
                    replica_nodes: vec![BrokerId(1), BrokerId(2)],
                    isr_nodes: vec![BrokerId(1)],
                    ..MetadataResponsePartition::default()
                };
                let topic = MetadataResponseTopic {
                    name: Some("orders"),
                    partitions: vec![partition(1), partition(0)],
                    ..MetadataResponseTopic::default()
                };
                MetadataResponse { topics: vec![topic], ..MetadataResponse::default() }.encode(version, out);
            }
            _ => {
                let config = |name, config_source| DescribeConfigsResourceResult {
                    name,
                    value: Some("5"),
                    config_source,
                    ..DescribeConfigsResourceResult::default()
                };
                let configs = vec![config("retention.ms", SOURCE_TOPIC), config("segment.ms", 5)];
                let result = DescribeConfigsResult { configs, ..DescribeConfigsResult::default() };
                DescribeConfigsResponse { results: vec![result], ..DescribeConfigsResponse::default() }
                    .encode(version, out);
            }
        });
        let mut client = Client::connect(&address.to_string()).expect("connected");
        let text = described(&mut client, "orders", false).expect("described");
        assert_eq!(
            text,
            "topic       orders\nid          AAAAAAAAAAAAAAAAAAAAAA\npartitions  2\nsettings    retention.ms=5\n\n\
             PARTITION  LEADER  EPOCH  REPLICAS  IN SYNC  OFFLINE\n\
             0          1       -1     1,2       1        -\n\
             1          1       -1     1,2       1        -\n"
        );
        let json = described(&mut client, "orders", true).expect("described");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["configs"]["retention.ms"], "5");
        assert_eq!(json["partitions"][0]["isr"][0], 1);
    }
}
