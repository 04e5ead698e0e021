//! The few requests that these tests make.

use std::collections::BTreeMap;

use pinion::cli::Failure;
use pinion::cli::client::Client;
use pinion::ids::{Offset, PartitionIndex, TopicId};
use pinion::kafka::batch::batches;
use pinion::kafka::batch_builder::BatchBuilder;
use pinion::kafka::error_code::ErrorCode;
use pinion::kafka::schema::{Records, create_topics, delete_topics, fetch, list_offsets, produce};

/// A topic; what is done with it is done with its partition 0.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    id: TopicId,
}

/// Connects.
pub fn connect(address: &str) -> Client {
    Client::connect(address).unwrap_or_else(|failure| panic!("{}", failure.message))
}

/// Creates a topic with one partition.
pub fn create_topic(address: &str, name: &str) -> Topic {
    try_create_topic(address, name).unwrap_or_else(|failure| panic!("{}", failure.message))
}

/// Creates a topic with one partition; an error is a connection that ended.
pub fn try_create_topic(address: &str, name: &str) -> Result<Topic, Failure> {
    let topic = create_topics::CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
    let request = create_topics::CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let answer = connect(address).call(&request)?;
    let response: create_topics::CreateTopicsResponse<'_> = answer.decode()?;
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
    Ok(Topic { name: name.to_owned(), id: response.topics[0].topic_id })
}

/// Deletes a topic.
pub fn delete_topic(address: &str, name: &str) {
    let state = delete_topics::DeleteTopicState { name: Some(name), ..Default::default() };
    let request = delete_topics::DeleteTopicsRequest { topics: vec![state], ..Default::default() };
    let answer = connect(address).call(&request).unwrap_or_else(|failure| panic!("{}", failure.message));
    let response: delete_topics::DeleteTopicsResponse<'_> = answer.decode().unwrap_or_else(|f| panic!("{}", f.message));
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
}

/// Produces one record; an error is a connection that ended.
pub fn produce(client: &mut Client, topic: &Topic, acks: i16, value: &[u8]) -> Result<(ErrorCode, i64), Failure> {
    let batch = BatchBuilder::new().value(1_700_000_000_000, value).build();
    let partition = produce::PartitionProduceData { index: PartitionIndex(0), records: Some(&batch) };
    let data = produce::TopicProduceData { name: &topic.name, topic_id: topic.id, partition_data: vec![partition] };
    let request = produce::ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![data], ..Default::default() };
    let answer = client.call(&request)?;
    let response: produce::ProduceResponse<'_> = answer.decode()?;
    let partition = &response.responses[0].partition_responses[0];
    Ok((partition.error_code, partition.base_offset.0))
}

/// A Fetch of one partition.
pub fn fetch_request(topic: &Topic, offset: i64, bytes_max: i32) -> fetch::FetchRequest<'_> {
    let partition = fetch::FetchPartition {
        partition: PartitionIndex(0),
        fetch_offset: Offset(offset),
        partition_max_bytes: bytes_max,
        ..Default::default()
    };
    let topic = fetch::FetchTopic { topic: &topic.name, topic_id: topic.id, partitions: vec![partition] };
    fetch::FetchRequest { min_bytes: 0, topics: vec![topic], ..Default::default() }
}

/// Fetches from an offset: the high watermark and the bytes of whole batches.
pub fn fetch(client: &mut Client, topic: &Topic, offset: i64) -> (i64, Vec<u8>) {
    let answer = client.call(&fetch_request(topic, offset, 1 << 20)).unwrap_or_else(|f| panic!("{}", f.message));
    let response: fetch::FetchResponse<'_> = answer.decode().unwrap_or_else(|f| panic!("{}", f.message));
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NONE, "fetch from {offset}");
    let Records::Bytes(bytes) = partition.records else { panic!("no records field") };
    (partition.high_watermark.0, bytes.to_vec())
}

/// Where the log starts.
pub fn log_start(address: &str, topic: &Topic) -> i64 {
    let partition = list_offsets::ListOffsetsPartition { timestamp: -2, ..Default::default() };
    let topic = list_offsets::ListOffsetsTopic { name: &topic.name, partitions: vec![partition] };
    let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
    let answer = connect(address).call(&request).unwrap_or_else(|failure| panic!("{}", failure.message));
    let response: list_offsets::ListOffsetsResponse<'_> = answer.decode().unwrap_or_else(|f| panic!("{}", f.message));
    response.topics[0].partitions[0].offset.0
}

/// Every record of a topic: offset → value.
pub fn read_all(address: &str, topic: &Topic) -> BTreeMap<i64, Vec<u8>> {
    read_from(address, topic, 0)
}

/// Every record of a topic from an offset on: offset → value.
pub fn read_from(address: &str, topic: &Topic, start: i64) -> BTreeMap<i64, Vec<u8>> {
    let mut client = connect(address);
    let mut found = BTreeMap::new();
    let mut next = start;
    loop {
        let (high_watermark, bytes) = fetch(&mut client, topic, next);
        for batch in batches(&bytes) {
            let (_, Ok(batch)) = batch else { break };
            batch.check_crc().expect("a batch as it was produced");
            for record in batch.records().expect("uncompressed") {
                let record = record.expect("a record as it was produced");
                let offset = batch.base_offset().0 + i64::from(record.offset_delta);
                if next <= offset {
                    assert_eq!(offset, next, "offsets have no gaps");
                    found.insert(offset, record.value.expect("a value").to_vec());
                    next = offset + 1;
                }
            }
        }
        if next >= high_watermark {
            return found;
        }
    }
}
