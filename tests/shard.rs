//! A data core in a world that completes everything at once and in order: from a client's bytes to the file and back.
//!
//! What may go wrong is the simulator's subject; this shows that the parts fit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pinion::arena::{Arena, ArenaConfig, Lease, PoolMinima, Region, Regions};
use pinion::control::image::{BrokerImage, Image, PartitionImage, TopicImage};
use pinion::ids::*;
use pinion::kafka::api::ApiKey;
use pinion::kafka::batch_builder::BatchBuilder;
use pinion::kafka::error_code::ErrorCode;
use pinion::kafka::frame;
use pinion::kafka::record::OwnedRecord;
use pinion::kafka::schema::{Message as _, Reader, Records, fetch, find_coordinator, list_offsets, metadata, produce};
use pinion::log::checkpoint::SlotWriter;
use pinion::log::group_commit::FlushWay;
use pinion::log::recovery::RecoveredLog;
use pinion::log::topic_config::{TopicConfig, TopicDefaults};
use pinion::shard::Shard;
use pinion::shard::action::{Action, Actions, FileJob, FileKind, Part, PartitionDir, RecvInto};
use pinion::shard::config::ShardConfig;
use pinion::shard::event::{Event, FileDone, Received};
use pinion::shard::message::{ClusterView, DirView, HostPartition, Message, Peer};

const CONN: ConnId = ConnId { slot: 0, turn: 1 };
const TOPIC: TopicId = TopicId([7; 16]);

struct World {
    shard: Shard,
    memory: Arc<Regions>,
    now: Now,
    small: VecDeque<Lease>,
    input: VecDeque<u8>,
    waiting: Option<RecvInto>,
    output: Vec<u8>,
    files: BTreeMap<FileId, Vec<u8>>,
    mail: Vec<Message>,
    writes: usize,
}

fn arena_config() -> ArenaConfig {
    let pools = PoolMinima::of_budget(16 << 20);
    ArenaConfig { core: CoreId(0), budget_bytes: 16 << 20, window_bytes_max: 8 << 20, pools }
}

fn config() -> Arc<ShardConfig> {
    Arc::new(ShardConfig {
        core: CoreId(0),
        cores: 1,
        node: BrokerId(1),
        arena: arena_config(),
        flush_ways: vec![FlushWay::Sync],
        connections_max: 10,
        connections_per_address_max: 10,
        connection_idle_ms_max: 600_000,
        request_bytes_max: 8 << 20,
        small_blocks: 4,
        fetch_bytes_max: 50 << 20,
        fetch_sessions_max: 10,
        auto_create_topics: true,
        retention_check_ms: 300_000,
        index_cache_bytes: 64 << 20,
        topic_defaults: Arc::new(TopicDefaults::default()),
        broker_settings: Vec::new(),
        seed: 42,
    })
}

fn view() -> ClusterView {
    let replica = BrokerId(1);
    let partition = PartitionImage {
        replicas: vec![replica],
        isr: vec![replica],
        leader: replica,
        leader_epoch: LeaderEpoch(3),
        partition_epoch: PartitionEpoch(0),
    };
    let topic = TopicImage {
        id: TOPIC,
        name: "t".into(),
        partitions: vec![partition],
        overrides: BTreeMap::new(),
        config: Arc::new(TopicConfig::default()),
    };
    let broker = BrokerImage {
        epoch: BrokerEpoch(1),
        incarnation: TopicId([1; 16]),
        host: "127.0.0.1".into(),
        port: 9092,
        rack: None,
        directories: Vec::new(),
        fenced: false,
    };
    let image = Image {
        cluster_id: "cluster".into(),
        controller: replica,
        brokers: BTreeMap::from([(replica, Arc::new(broker))]),
        topics: BTreeMap::from([("t".into(), Arc::new(topic))]),
        names: BTreeMap::from([(TOPIC, "t".into())]),
        ..Image::default()
    };
    ClusterView {
        node: replica,
        image: Arc::new(image),
        routes: BTreeMap::from([(TOPIC, Arc::from([Some(CoreId(0))]))]),
        dirs: Arc::from([DirView { path: "d".into(), online: true, total_bytes: -1, usable_bytes: -1 }]),
    }
}

impl World {
    fn new() -> World {
        World::with(TopicConfig::default())
    }

    fn with(topic_config: TopicConfig) -> World {
        let config = config();
        let memory = Regions::new(vec![Region::heap(Arena::region_bytes(&config.arena))]);
        let now = Now { mono: MonoMicros(1_000_000), wall: WallMillis(1_700_000_000_000) };
        let mut out = Actions::new();
        let writers = vec![SlotWriter::new(CoreId(0), 0, None)];
        let shard = Shard::new(config, memory.clone(), writers, now, &mut out);
        let mut world = World {
            shard,
            memory,
            now,
            small: VecDeque::new(),
            input: VecDeque::new(),
            waiting: None,
            output: Vec::new(),
            files: BTreeMap::new(),
            mail: Vec::new(),
            writes: 0,
        };
        world.run(out);
        let host = HostPartition {
            id: PartitionId { topic: TOPIC, index: PartitionIndex(0) },
            topic: "t".into(),
            dir: PartitionDir { dir: DirId(0), name: "t-0".into() },
            leader_epoch: LeaderEpoch(3),
            config: Arc::new(topic_config),
            log: RecoveredLog::default(),
        };
        world.event(Event::Mail { from: Peer::Control, message: Message::Host(vec![host]) });
        world.event(Event::Mail { from: Peer::Control, message: Message::View(Arc::new(view())) });
        world.event(Event::Accepted { conn: CONN, peer: "127.0.0.1:5000".parse().expect("an address") });
        world
    }

    fn event(&mut self, event: Event) {
        let mut out = Actions::new();
        self.shard.handle(self.now, event, &mut out);
        self.shard.turn_end(self.now, &mut out);
        self.run(out);
    }

    fn run(&mut self, actions: Actions) {
        let mut actions: VecDeque<Action> = actions.into();
        while let Some(action) = actions.pop_front() {
            let Some(event) = self.complete(action) else { continue };
            let mut out = Actions::new();
            self.shard.handle(self.now, event, &mut out);
            self.shard.turn_end(self.now, &mut out);
            actions.extend(out);
        }
        if self.waiting.is_some() && !self.input.is_empty() {
            let event = self.receive();
            self.event(event);
        }
    }

    fn complete(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::Provide { lease } => {
                self.small.push_back(lease);
                return None;
            }
            Action::Recv { into, .. } => {
                self.waiting = Some(into);
                return None;
            }
            Action::Send { conn, parts } => {
                for part in &parts {
                    match part {
                        Part::Bytes(bytes) => self.output.extend_from_slice(bytes),
                        Part::Arena(lease) => self.output.extend_from_slice(self.memory.bytes(lease)),
                        Part::File(range) => {
                            let from = range.at.0 as usize;
                            self.output.extend_from_slice(&self.files[&range.file][from..from + range.len as usize]);
                        }
                    }
                }
                Event::Sent { conn, parts, result: Ok(()) }
            }
            Action::Close { conn, .. } => Event::Closed { conn },
            Action::Write { write, file, at, block, .. } => {
                self.writes += 1;
                let mut bytes = vec![0; block.len() as usize];
                self.memory.copy_out(&block, 0, &mut bytes);
                let contents = self.files.get_mut(&file).expect("written files are open");
                let at = at.0 as usize;
                assert!(at + bytes.len() <= contents.len(), "a write outside what was allocated");
                contents[at..at + bytes.len()].copy_from_slice(&bytes);
                Event::Written { write, block, result: Ok(()) }
            }
            Action::Flush { flush, .. } => Event::Flushed { flush, result: Ok(()) },
            Action::Read { read, range, mut into } => {
                let contents = &self.files[&range.file];
                let from = range.at.0 as usize;
                let len = (range.len as usize).min(contents.len() - from);
                self.memory.fill(&mut into, 0, &contents[from..from + len]);
                Event::Read { read, into, result: Ok(len as u32) }
            }
            Action::Probe { probe, .. } => Event::Resident { probe, missing: None },
            Action::File { job, what } => Event::File { job, result: self.job(what) },
            Action::Mail { message, .. } => {
                self.mail.push(message);
                return None;
            }
            Action::Chunk { .. } => return None,
            other => panic!("unexpected {other:?}"),
        })
    }

    fn job(&mut self, what: FileJob) -> Result<FileDone, Errno> {
        match what {
            FileJob::CreateSegment { file, path, len, .. } => {
                assert!(matches!(path.kind, FileKind::Log(_)));
                self.files.insert(file, vec![0; len as usize]);
                Ok(FileDone::Opened { file, len })
            }
            FileJob::Grow { file, to, .. } => {
                self.files.get_mut(&file).expect("grown files are open").resize(to.0 as usize, 0);
                Ok(FileDone::Done)
            }
            FileJob::Seal { file, len, .. } => {
                self.files.get_mut(&file).expect("sealed files are open").truncate(len.0 as usize);
                Ok(FileDone::Opened { file, len: len.0 })
            }
            _ => Ok(FileDone::Done),
        }
    }

    fn receive(&mut self) -> Event {
        match self.waiting.take().expect("looked at") {
            RecvInto::Small => {
                let mut lease = self.small.pop_front().expect("the shard provides small blocks");
                let len = self.input.len().min(lease.len() as usize);
                let bytes: Vec<u8> = self.input.drain(..len).collect();
                self.memory.fill(&mut lease, 0, &bytes);
                Event::Received { conn: CONN, bytes: Received::Small { lease, len: len as u32 } }
            }
            RecvInto::Window { mut lease, from } => {
                let len = self.input.len().min((lease.len() - from) as usize);
                let bytes: Vec<u8> = self.input.drain(..len).collect();
                self.memory.fill(&mut lease, from, &bytes);
                Event::Received { conn: CONN, bytes: Received::Window { lease, len: len as u32 } }
            }
        }
    }

    /// Sends one request and returns the body of its answer.
    fn ask<'a>(&mut self, api: ApiKey, version: i16, message: &impl pinion::kafka::schema::Message<'a>) -> Vec<u8> {
        self.post(api, version, message);
        self.answer(api, version)
    }

    fn post<'a>(&mut self, api: ApiKey, version: i16, message: &impl pinion::kafka::schema::Message<'a>) {
        let mut request = vec![0; 4];
        frame::write_request_header(api, version, 9, Some("test"), &mut request);
        message.encode(version, &mut request);
        let len = request.len() as u32 - 4;
        request[..4].copy_from_slice(&len.to_be_bytes());
        self.input.extend(request);
        self.run(Actions::new());
    }

    fn answer(&mut self, api: ApiKey, version: i16) -> Vec<u8> {
        let size = u32::from_be_bytes(self.output[..4].try_into().expect("a length")) as usize;
        let frame: Vec<u8> = self.output.drain(..4 + size).skip(4).collect();
        let (correlation, body) = frame::response_header(api, version, &frame).expect("a header");
        assert_eq!(correlation, 9);
        body.to_vec()
    }

    fn produce(&mut self, acks: i16, batch: &[u8]) -> (ErrorCode, Offset) {
        let version = 9;
        self.post(ApiKey::PRODUCE, version, &produce_request(acks, batch));
        let body = self.answer(ApiKey::PRODUCE, version);
        let response = produce::ProduceResponse::decode(version, &mut Reader::new(&body)).expect("a response");
        let partition = &response.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    }

    fn fetch(&mut self, offset: i64, max_wait_ms: i32) -> Option<(ErrorCode, i64, Vec<u8>)> {
        self.post(ApiKey::FETCH, 11, &fetch_request(offset, max_wait_ms));
        self.fetched()
    }

    fn fetched(&mut self) -> Option<(ErrorCode, i64, Vec<u8>)> {
        if self.output.is_empty() {
            return None;
        }
        let body = self.answer(ApiKey::FETCH, 11);
        let response = fetch::FetchResponse::decode(11, &mut Reader::new(&body)).expect("a response");
        let partition = &response.responses[0].partitions[0];
        let Records::Bytes(records) = partition.records else { panic!("no records field") };
        Some((partition.error_code, partition.high_watermark.0, records.to_vec()))
    }
}

fn produce_request(acks: i16, batch: &[u8]) -> produce::ProduceRequest<'_> {
    let partition = produce::PartitionProduceData { index: PartitionIndex(0), records: Some(batch) };
    let topic = produce::TopicProduceData { name: "t", partition_data: vec![partition], ..Default::default() };
    produce::ProduceRequest { acks, timeout_ms: 1000, topic_data: vec![topic], ..Default::default() }
}

fn fetch_request(offset: i64, max_wait_ms: i32) -> fetch::FetchRequest<'static> {
    let partition = fetch::FetchPartition {
        partition: PartitionIndex(0),
        fetch_offset: Offset(offset),
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = fetch::FetchTopic { topic: "t", partitions: vec![partition], ..Default::default() };
    fetch::FetchRequest { max_wait_ms, min_bytes: 1, topics: vec![topic], ..Default::default() }
}

fn batch(value: &[u8]) -> Vec<u8> {
    let record =
        OwnedRecord { timestamp: 5, key: Some(b"key".to_vec()), value: Some(value.to_vec()), headers: Vec::new() };
    BatchBuilder::new().record(record).build()
}

#[test]
fn a_record_goes_to_the_file_and_back_to_a_consumer() {
    let mut world = World::new();
    assert_eq!(world.produce(1, &batch(b"one")), (ErrorCode::NONE, Offset(0)));
    assert_eq!(world.produce(-1, &batch(b"two")), (ErrorCode::NONE, Offset(1)));
    let (error, high_watermark, records) = world.fetch(0, 0).expect("an answer");
    assert_eq!((error, high_watermark), (ErrorCode::NONE, 2));
    let one = batch(b"one");
    assert_eq!(&records[16..one.len()], &one[16..], "all but offset and epoch stays as sent");
    let file = world.files.values().next().expect("a segment");
    assert_eq!(&file[..records.len()], &records[..], "the file holds what the consumer got");
    assert!(file[records.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_fetch_without_data_is_answered_when_its_time_is_over() {
    let mut world = World::new();
    assert_eq!(world.fetch(0, 500), None);
    world.now.mono = world.now.mono.plus_millis(501);
    world.event(Event::Deadline);
    let (error, high_watermark, records) = world.fetched().expect("an empty answer");
    assert_eq!((error, high_watermark, records.len()), (ErrorCode::NONE, 0, 0));
}

#[test]
fn what_left_memory_is_read_from_the_file() {
    let mut world = World::new();
    for _ in 0..40 {
        world.produce(1, &batch(&[7; 1 << 20][..900_000]));
    }
    let (error, _, records) = world.fetch(0, 0).expect("an answer");
    assert_eq!(error, ErrorCode::NONE);
    assert_eq!(i64::from_be_bytes(records[..8].try_into().expect("8 bytes")), 0, "the first batch");
    assert!(records.len() > 900_000);
}

#[test]
fn metadata_and_offsets_are_answered() {
    let mut world = World::new();
    world.produce(1, &batch(b"one"));
    let topic = metadata::MetadataRequestTopic { name: Some("t"), ..Default::default() };
    let request = metadata::MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    let body = world.ask(ApiKey::METADATA, 9, &request);
    let response = metadata::MetadataResponse::decode(9, &mut Reader::new(&body)).expect("a response");
    assert_eq!(response.topics[0].partitions[0].leader_id, BrokerId(1));
    let by_id = metadata::MetadataRequestTopic { topic_id: TOPIC, name: Some("") };
    let request = metadata::MetadataRequest { topics: Some(vec![by_id]), ..Default::default() };
    let body = world.ask(ApiKey::METADATA, 12, &request);
    let response = metadata::MetadataResponse::decode(12, &mut Reader::new(&body)).expect("a response");
    assert_eq!(response.topics[0].name, Some("t"), "the Java client asks by id with an empty name");
    for (timestamp, expected) in [(-1, 1), (-2, 0), (0, 0), (i64::MAX, -1)] {
        let partition = list_offsets::ListOffsetsPartition { timestamp, ..Default::default() };
        let topic = list_offsets::ListOffsetsTopic { name: "t", partitions: vec![partition] };
        let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
        let body = world.ask(ApiKey::LIST_OFFSETS, 6, &request);
        let response = list_offsets::ListOffsetsResponse::decode(6, &mut Reader::new(&body)).expect("a response");
        assert_eq!(response.topics[0].partitions[0].offset, Offset(expected), "timestamp {timestamp}");
    }
}

/// librdkafka assigns partitions undisturbed only when this is what it hears about its group.
#[test]
fn a_group_has_no_coordinator_and_a_transaction_never_gets_one() {
    let mut world = World::new();
    let mut find = |version: i16, key_type: i8| {
        let (key, coordinator_keys) = if version < 4 { ("k", Vec::new()) } else { ("", vec!["k", "l"]) };
        let request = find_coordinator::FindCoordinatorRequest { key, key_type, coordinator_keys };
        let body = world.ask(ApiKey::FIND_COORDINATOR, version, &request);
        let response = find_coordinator::FindCoordinatorResponse::decode(version, &mut Reader::new(&body));
        let response = response.expect("a response");
        let codes: Vec<_> = response.coordinators.iter().map(|one| (one.key.to_owned(), one.error_code)).collect();
        (response.error_code, codes)
    };
    let (unavailable, forbidden) =
        (ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    for version in 0..4 {
        assert_eq!(find(version, 0), (unavailable, vec![]), "version {version}");
    }
    let of_both = |code| (ErrorCode::NONE, vec![("k".to_owned(), code), ("l".to_owned(), code)]);
    for version in 4..=6 {
        assert_eq!(find(version, 0), of_both(unavailable), "version {version}");
    }
    assert_eq!(find(3, 1), (forbidden, vec![]));
    assert_eq!(find(6, 1), of_both(forbidden));
    assert_eq!(find(6, 2), of_both(ErrorCode::INVALID_REQUEST));
}

/// Such partitions are decided while the request is still being taken apart.
#[test]
fn what_is_decided_at_once_is_answered_once() {
    let mut world = World::new();
    world.post(ApiKey::PRODUCE, 9, &produce_request(0, &batch(b"unanswered")));
    assert!(world.output.is_empty(), "acks=0 has no answer");
    let mut damaged = batch(b"damaged");
    *damaged.last_mut().expect("a batch has bytes") ^= 1;
    assert_eq!(world.produce(1, &damaged), (ErrorCode::CORRUPT_MESSAGE, Offset(-1)));
    assert_eq!(world.produce(1, &batch(b"next")), (ErrorCode::NONE, Offset(1)));
}

/// The room left in the old segment's last block is not the new one's.
#[test]
fn a_batch_that_rolls_the_segment_gets_memory_of_its_own() {
    let mut world = World::with(TopicConfig { segment_bytes: 1 << 20, ..TopicConfig::default() });
    for offset in 0..200 {
        assert_eq!(world.produce(1, &batch(&[7; 16_000])), (ErrorCode::NONE, Offset(offset)));
    }
    assert!(world.files.len() > 2, "several segments, not {}", world.files.len());
}

#[test]
fn an_orderly_end_writes_the_last_producer_snapshot_once() {
    let mut world = World::new();
    let idempotent = BatchBuilder::new().producer(ProducerId(9), ProducerEpoch(0), 0).value(5, b"one").build();
    assert_eq!(world.produce(1, &idempotent), (ErrorCode::NONE, Offset(0)));
    world.event(Event::Mail { from: Peer::Control, message: Message::Stop });
    assert!(world.mail.iter().any(|message| matches!(message, Message::Stopped { .. })), "{:?}", world.mail);
}
