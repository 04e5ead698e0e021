//! The calls of rdkafka that the cases need, without a consumer group.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{DeliveryResult, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::dataset::{PARTITIONS, Record};
use crate::{Failure, PATIENCE};

pub struct Client {
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
    consumer: BaseConsumer,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// librdkafka demands a group id but contacts no coordinator while it only assigns and commits nothing.
    pub fn new(bootstrap: &str) -> Result<Self, Failure> {
        let common = config(bootstrap, &[]);
        let consumer = config(
            bootstrap,
            &[
                ("group.id", "unused"),
                ("enable.auto.commit", "false"),
                ("auto.offset.reset", "error"),
                ("fetch.wait.max.ms", "20"),
            ],
        );
        Ok(Self {
            bootstrap: bootstrap.to_owned(),
            admin: common.create()?,
            consumer: consumer.create()?,
            runtime: tokio::runtime::Builder::new_current_thread().build()?,
        })
    }

    /// librdkafka remembers for long that a topic was unknown, so the consumer does not ask before the admin sees leaders.
    pub fn create(&self, topic: &str) -> Result<(), Failure> {
        let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
        only(self.runtime.block_on(self.admin.create_topics([&new], &AdminOptions::new()))?)?;
        crate::eventually("partitions with a leader", PARTITIONS as usize, || self.partitions(topic))
    }

    pub fn delete(&self, topic: &str) -> Result<(), Failure> {
        only(self.runtime.block_on(self.admin.delete_topics(&[topic], &AdminOptions::new()))?)
    }

    pub fn set_partitions(&self, topic: &str, count: usize) -> Result<(), Failure> {
        let wanted = NewPartitions::new(topic, count);
        only(self.runtime.block_on(self.admin.create_partitions([&wanted], &AdminOptions::new()))?)
    }

    pub fn config(&self, topic: &str, name: &str) -> Result<String, Failure> {
        let of = [ResourceSpecifier::Topic(topic)];
        let mut described = self.runtime.block_on(self.admin.describe_configs(&of, &AdminOptions::new()))?;
        let resource = described.pop().ok_or("no resource described")?.map_err(|code| code.to_string())?;
        let entry = resource.entries.into_iter().find(|entry| entry.name == name).ok_or("no such setting")?;
        Ok(entry.value.ok_or("setting without a value")?)
    }

    /// How many partitions of the topic have a leader; 0 also for an unknown topic.
    pub fn partitions(&self, topic: &str) -> Result<usize, Failure> {
        let metadata = self.admin.inner().fetch_metadata(Some(topic), PATIENCE)?;
        Ok(metadata
            .topics()
            .iter()
            .flat_map(|topic| topic.partitions())
            .filter(|partition| partition.leader() > 0)
            .count())
    }

    /// The offsets as acknowledged, in the order of `records`.
    pub fn write(
        &self,
        topic: &str,
        records: &[Record],
        codec: &str,
        settings: &[(&str, &str)],
    ) -> Result<Vec<i64>, Failure> {
        let mut producer = config(&self.bootstrap, settings);
        producer.set("compression.type", codec).set("linger.ms", "5");
        let producer: BaseProducer<Acknowledged> = producer.create_with_context(Acknowledged::default())?;
        for (at, record) in records.iter().enumerate() {
            producer.send(message(topic, record, at)).map_err(|(refused, _)| refused)?;
        }
        producer.flush(PATIENCE)?;
        let mut outcomes = producer.context().outcomes.lock().map_err(|poisoned| poisoned.to_string())?.clone();
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        crate::equal("number of delivery reports", &records.len(), &outcomes.len())?;
        outcomes.into_iter().map(|(_, outcome)| outcome.map_err(Failure::from)).collect()
    }

    /// `count` records from the given first offsets on; fewer when patience ends, more when there are more.
    pub fn read(&self, topic: &str, first: &[(i32, i64)], count: usize) -> Result<Vec<Record>, Failure> {
        let mut assignment = TopicPartitionList::new();
        for &(partition, offset) in first {
            assignment.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        }
        self.consumer.assign(&assignment)?;
        let (mut found, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while found.len() < count && Instant::now() < deadline {
            if let Some(message) = self.consumer.poll(Duration::from_millis(500)) {
                found.push(record(&message?));
            }
        }
        self.consumer.unassign()?;
        Ok(found)
    }

    /// The first offset at or after that time; None when there is none.
    pub fn offset_at(&self, topic: &str, partition: i32, ms: i64) -> Result<Option<i64>, Failure> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(topic, partition, Offset::Offset(ms))?;
        let answered = self.consumer.offsets_for_times(asked, PATIENCE)?;
        let found = answered.find_partition(topic, partition).ok_or("no answer for the partition")?;
        found.error()?;
        match found.offset() {
            Offset::Offset(offset) => Ok(Some(offset)),
            Offset::End => Ok(None),
            other => Err(format!("unexpected offset {other:?}").into()),
        }
    }

    /// The first and the end offset.
    pub fn bounds(&self, topic: &str, partition: i32) -> Result<(i64, i64), Failure> {
        Ok(self.consumer.fetch_watermarks(topic, partition, PATIENCE)?)
    }
}

/// Collects delivery reports: the position of the record and its offset, or the reason why it has none.
#[derive(Default)]
struct Acknowledged {
    outcomes: Mutex<Vec<(usize, Result<i64, String>)>>,
}

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, at: usize) {
        let outcome = result.as_ref().map(Message::offset).map_err(|(error, _)| error.to_string());
        self.outcomes.lock().expect("no other holder panics").push((at, outcome));
    }
}

fn config(bootstrap: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config
}

fn message<'a>(topic: &'a str, record: &'a Record, at: usize) -> BaseRecord<'a, Vec<u8>, Vec<u8>, usize> {
    let headers = record
        .headers
        .iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: value.as_ref() }));
    let message =
        BaseRecord::with_opaque_to(topic, at).partition(record.partition).timestamp(record.timestamp).headers(headers);
    let message = if let Some(key) = &record.key { message.key(key) } else { message };
    if let Some(value) = &record.value { message.payload(value) } else { message }
}

fn record(message: &impl Message) -> Record {
    let header = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
    Record {
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis().unwrap_or(-1),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: message.headers().map(|headers| headers.iter().map(header).collect()).unwrap_or_default(),
    }
}

/// The outcome of an admin call about one thing.
fn only<T, E: ToString>(mut outcomes: Vec<Result<T, (String, E)>>) -> Result<(), Failure> {
    match outcomes.pop() {
        Some(Ok(_)) => Ok(()),
        Some(Err((name, code))) => Err(format!("{name}: {}", code.to_string()).into()),
        None => Err("no outcome".into()),
    }
}
