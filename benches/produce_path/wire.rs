//! A client that costs little: requests are encoded once and sent again with another correlation id.

use std::io::{Read, Write};
use std::net::TcpStream;

use pinion::ids::{BrokerId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId};
use pinion::kafka::api::ApiKey;
use pinion::kafka::batch_builder::BatchBuilder;
use pinion::kafka::error_code::ErrorCode;
use pinion::kafka::frame::{response_header, write_request_header};
use pinion::kafka::schema::{Api, Message, Reader, Records};
use pinion::kafka::schema::{api_versions, create_topics, fetch, init_producer_id, list_offsets, metadata, produce};

/// A connection; answers come in the order of the requests.
pub struct Wire {
    stream: TcpStream,
    frame: Vec<u8>,
    sent: i32,
}

/// A topic of the broker.
#[derive(Clone)]
pub struct Topic {
    name: String,
    id: TopicId,
}

impl Wire {
    /// Connects.
    pub fn connect(address: &str) -> Wire {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_nodelay(true).expect("a socket");
        Wire { stream, frame: Vec::new(), sent: 0 }
    }

    /// Sends an encoded request.
    pub fn send(&mut self, request: &mut [u8]) {
        self.sent += 1;
        request[8..12].copy_from_slice(&self.sent.to_be_bytes());
        self.stream.write_all(request).expect("the broker reads");
    }

    /// Waits for the next answer; its bytes without the length.
    pub fn receive(&mut self) -> &[u8] {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("the broker answers");
        self.frame.resize(u32::from_be_bytes(length) as usize, 0);
        self.stream.read_exact(&mut self.frame).expect("the broker answers");
        &self.frame
    }

    /// Waits for the answer to a produce request; it must say that all went well. Returns its first base offset.
    pub fn receive_produced(&mut self) -> i64 {
        let (_, body) = response_header(ApiKey::PRODUCE, produce::Produce::MAX, self.receive()).expect("a header");
        let answer =
            produce::ProduceResponse::decode(produce::Produce::MAX, &mut Reader::new(body)).expect("an answer");
        let partitions = || answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        partitions().for_each(|partition| assert_eq!(partition.error_code, ErrorCode::NONE));
        partitions().next().expect("a partition").base_offset.0
    }

    /// Asks for the versions; the shortest exchange there is.
    pub fn api_versions(&mut self) {
        self.call(0, &api_versions::ApiVersionsRequest::default());
    }

    /// Whether the broker knows a controller: the last thing that it learns when it starts.
    pub fn knows_controller(&mut self) -> bool {
        let version = metadata::Metadata::MAX;
        let body = self.call(version, &metadata::MetadataRequest::default());
        let answer = metadata::MetadataResponse::decode(version, &mut Reader::new(&body)).expect("an answer");
        answer.controller_id.0 >= 0 && !answer.brokers.is_empty()
    }

    /// Creates a topic.
    pub fn create_topic(&mut self, name: &str, partitions: i32) -> Topic {
        let topic = create_topics::CreatableTopic {
            name,
            num_partitions: partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request =
            create_topics::CreateTopicsRequest { topics: vec![topic], timeout_ms: 60_000, ..Default::default() };
        let version = create_topics::CreateTopics::MAX;
        let body = self.call(version, &request);
        let answer = create_topics::CreateTopicsResponse::decode(version, &mut Reader::new(&body)).expect("an answer");
        let topic = &answer.topics[0];
        assert_eq!(topic.error_code, ErrorCode::NONE, "{:?}", topic.error_message);
        Topic { name: name.to_owned(), id: topic.topic_id }
    }

    /// How many of the first `partitions` of a topic say that their log has records.
    pub fn partitions_served(&mut self, topic: &Topic, partitions: i32) -> usize {
        self.ends(topic, partitions).iter().filter(|end| end.is_some_and(|end| end > 0)).count()
    }

    /// Where the logs of the first `partitions` of a topic end; `None` for one that is not served.
    pub fn ends(&mut self, topic: &Topic, partitions: i32) -> Vec<Option<i64>> {
        let of = |index| list_offsets::ListOffsetsPartition {
            partition_index: PartitionIndex(index),
            timestamp: -1,
            ..Default::default()
        };
        let topic = list_offsets::ListOffsetsTopic { name: &topic.name, partitions: (0..partitions).map(of).collect() };
        let request = list_offsets::ListOffsetsRequest {
            replica_id: BrokerId(-1),
            topics: vec![topic],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let version = list_offsets::ListOffsets::MAX;
        let body = self.call(version, &request);
        let answer = list_offsets::ListOffsetsResponse::decode(version, &mut Reader::new(&body)).expect("an answer");
        let rows = answer.topics.iter().flat_map(|topic| &topic.partitions);
        rows.map(|row| (row.error_code == ErrorCode::NONE).then_some(row.offset.0)).collect()
    }

    /// A producer id for idempotent batches.
    pub fn producer_id(&mut self) -> (ProducerId, ProducerEpoch) {
        let request = init_producer_id::InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
        let version = init_producer_id::InitProducerId::MAX;
        let body = self.call(version, &request);
        let answer = init_producer_id::InitProducerIdResponse::decode(version, &mut Reader::new(&body));
        let answer = answer.expect("an answer");
        assert_eq!(answer.error_code, ErrorCode::NONE);
        (answer.producer_id, answer.producer_epoch)
    }

    fn call<'q, Q: Message<'q>>(&mut self, version: i16, request: &Q) -> Vec<u8> {
        let mut bytes = encode(version, request);
        self.send(&mut bytes);
        let (_, body) = response_header(ApiKey(Q::Api::KEY), version, self.receive()).expect("a header");
        body.to_vec()
    }
}

/// A whole frame; [`Wire::send`] fills in the correlation id.
fn encode<'q, Q: Message<'q>>(version: i16, request: &Q) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    write_request_header(ApiKey(Q::Api::KEY), version, 0, Some("bench"), &mut bytes);
    request.encode(version, &mut bytes);
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A produce request with one batch for each of some partitions.
pub fn produce_request(topic: &Topic, acks: i16, batches: &[(i32, &[u8])]) -> Vec<u8> {
    let of = |&(index, batch): &(i32, _)| produce::PartitionProduceData {
        index: PartitionIndex(index),
        records: Some(batch),
    };
    let data = produce::TopicProduceData {
        name: &topic.name,
        topic_id: topic.id,
        partition_data: batches.iter().map(of).collect(),
    };
    let request = produce::ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![data], ..Default::default() };
    encode(produce::Produce::MAX, &request)
}

/// A batch of `records` records whose values have `bytes` bytes each.
pub fn batch(records: usize, bytes: usize) -> Vec<u8> {
    let value: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
    BatchBuilder::new().values(records, 1_700_000_000_000, &value).build()
}

/// One batch of an idempotent producer.
pub fn idempotent_batch((id, epoch): (ProducerId, ProducerEpoch), sequence: i32, bytes: usize) -> Vec<u8> {
    BatchBuilder::new().producer(id, epoch, sequence).value(1_700_000_000_000, &vec![b'x'; bytes]).build()
}

/// Reads some partitions of a topic to their ends.
pub struct Reading {
    topic: Topic,
    next: Vec<i64>,
    /// Most bytes of a partition in one answer.
    pub partition_bytes: i32,
}

impl Reading {
    /// From the beginning of the first `partitions` partitions.
    pub fn new(topic: &Topic, partitions: i32) -> Reading {
        Reading { topic: topic.clone(), next: vec![0; partitions as usize], partition_bytes: 1 << 20 }
    }

    /// From the ends of the first `partitions` partitions.
    pub fn at_end(wire: &mut Wire, topic: &Topic, partitions: i32) -> Reading {
        let ends = wire.ends(topic, partitions).into_iter().map(|end| end.expect("a partition that is served"));
        Reading { next: ends.collect(), ..Reading::new(topic, partitions) }
    }

    /// One fetch. Returns the bytes of records in its answer; 0 at the ends.
    pub fn fetch(&mut self, wire: &mut Wire) -> u64 {
        let version = fetch::Fetch::MAX;
        wire.send(&mut self.request(version));
        let (_, body) = response_header(ApiKey::FETCH, version, wire.receive()).expect("a header");
        let answer = fetch::FetchResponse::decode(version, &mut Reader::new(body)).expect("an answer");
        let mut bytes = 0;
        for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            assert_eq!(partition.error_code, ErrorCode::NONE);
            let Records::Bytes(records) = partition.records else { continue };
            bytes += records.len() as u64;
            if let Some(next) = next_offset(records) {
                self.next[partition.partition_index.0 as usize] = next;
            }
        }
        bytes
    }

    fn request(&self, version: i16) -> Vec<u8> {
        let of = |(index, next): (usize, &i64)| fetch::FetchPartition {
            partition: PartitionIndex(index as i32),
            fetch_offset: Offset(*next),
            partition_max_bytes: self.partition_bytes,
            ..Default::default()
        };
        let partitions = self.next.iter().enumerate().map(of).collect();
        let topic = fetch::FetchTopic { topic: &self.topic.name, topic_id: self.topic.id, partitions };
        let request = fetch::FetchRequest {
            max_wait_ms: 500,
            min_bytes: 0,
            max_bytes: 50 << 20,
            topics: vec![topic],
            ..Default::default()
        };
        encode(version, &request)
    }
}

/// The offset behind the last whole batch of some records, by its headers alone.
fn next_offset(records: &[u8]) -> Option<i64> {
    let (mut at, mut next) = (0, None);
    while let Some(header) = records.get(at..at + 27) {
        let number = |from: usize, bytes: usize| {
            header[from..from + bytes].iter().fold(0i64, |number, byte| number << 8 | i64::from(*byte))
        };
        at += 12 + number(8, 4) as usize;
        if records.len() < at {
            break;
        }
        next = Some(number(0, 8) + number(23, 4) + 1);
    }
    next
}
