//! A data core in a world that completes everything at once and in order: from a client's bytes to the file and back.
//!
//! What may go wrong is the simulator's subject; this shows that the parts fit.

#[path = "shard/fetch.rs"]
mod fetch_transcripts;

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
use pinion::kafka::schema::{
    Message as _, Reader, Records, api_versions, describe_configs, fetch, find_coordinator, list_offsets, metadata,
    produce,
};
use pinion::log::appender::TailWrites;
use pinion::log::checkpoint::{SlotWriter, newest};
use pinion::log::group_commit::FlushWay;
use pinion::log::recovery::RecoveredLog;
use pinion::log::topic_config::{TopicConfig, TopicDefaults, describe};
use pinion::shard::Shard;
use pinion::shard::action::{Action, Actions, FileJob, FileKind, Part, PartitionDir, RecvInto};
use pinion::shard::config::ShardConfig;
use pinion::shard::event::{Crowd, Event, FileDone, Received};
use pinion::shard::message::{ClusterView, DirView, FetchAsk, HostPartition, Message, Origin, Peer, Query, Route};

#[path = "shard/found.rs"]
mod found;
#[path = "shard/index_rebuild.rs"]
mod index_rebuild;
#[path = "shard/offline.rs"]
mod offline;
#[path = "shard/stable_writes.rs"]
mod stable_writes;

/// The connections of the world: the second one is for what must not wait behind the first.
const CONNS: [ConnId; 2] = [ConnId { slot: 0, turn: 1 }, ConnId { slot: 1, turn: 1 }];

/// One connection as its client sees it.
#[derive(Default)]
struct Pipe {
    input: VecDeque<u8>,
    waiting: Option<RecvInto>,
    output: Vec<u8>,
}
const TOPIC: TopicId = TopicId([7; 16]);
const PARTITION: PartitionId = PartitionId { topic: TOPIC, index: PartitionIndex(0) };

/// Which file jobs fail, and how.
type Refusal = (fn(&FileJob) -> bool, Errno);

struct World {
    shard: Shard,
    memory: Arc<Regions>,
    now: Now,
    small: VecDeque<Lease>,
    pipes: [Pipe; 2],
    /// The connection in use.
    at: usize,
    files: BTreeMap<FileId, Vec<u8>>,
    /// Files of the partition that were there at the start.
    stored: BTreeMap<FileKind, Vec<u8>>,
    /// File jobs that fail, and how.
    refused: Option<Refusal>,
    mail: Vec<Message>,
    writes: usize,
    reads: usize,
    /// Actions that wait in `held` instead of completing at once.
    hold: Option<fn(&Action) -> bool>,
    held: Vec<Action>,
    /// File jobs so far, by name.
    jobs: Vec<String>,
    /// Checkpoint slots so far.
    checkpoints: Vec<Vec<u8>>,
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
        tail_writes: vec![TailWrites::Shared],
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
        broker_settings: describe(&BTreeMap::new(), &TopicDefaults::default()),
        seed: 42,
    })
}

fn view(partitions: i32) -> ClusterView {
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
        partitions: vec![partition; partitions as usize],
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
        routes: BTreeMap::from([(TOPIC, Arc::from(vec![Route::Core(CoreId(0)); partitions as usize]))]),
        dirs: Arc::from([DirView { path: "d".into(), online: true, total_bytes: -1, usable_bytes: -1 }]),
    }
}

impl World {
    fn new() -> World {
        World::with(TopicConfig::default())
    }

    fn with(topic_config: TopicConfig) -> World {
        World::of(1, topic_config)
    }

    /// With so many partitions.
    fn of(partitions: i32, topic_config: TopicConfig) -> World {
        World::on(config(), partitions, topic_config)
    }

    fn on(config: Arc<ShardConfig>, partitions: i32, topic_config: TopicConfig) -> World {
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
            pipes: Default::default(),
            at: 0,
            files: BTreeMap::new(),
            stored: BTreeMap::new(),
            refused: None,
            mail: Vec::new(),
            writes: 0,
            reads: 0,
            hold: None,
            held: Vec::new(),
            jobs: Vec::new(),
            checkpoints: Vec::new(),
        };
        world.run(out);
        let config = Arc::new(topic_config);
        let host = |index| HostPartition {
            id: PartitionId { topic: TOPIC, index: PartitionIndex(index) },
            topic: "t".into(),
            dir: PartitionDir { dir: DirId(0), name: format!("t-{index}").into() },
            leader_epoch: LeaderEpoch(3),
            config: Arc::clone(&config),
            log: RecoveredLog::default(),
        };
        let hosts = (0..partitions).map(host).collect();
        world.event(Event::Mail { from: Peer::Control, message: Message::Host(hosts) });
        world.event(Event::Mail { from: Peer::Control, message: Message::View(Arc::new(view(partitions))) });
        for conn in CONNS {
            let peer = "127.0.0.1:5000".parse().expect("an address");
            world.event(Event::Accepted { conn, peer, crowd: None, from_address: Some(1) });
        }
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
            if self.hold.is_some_and(|hold| hold(&action)) {
                self.held.push(action);
                continue;
            }
            let Some(event) = self.complete(action) else { continue };
            let mut out = Actions::new();
            self.shard.handle(self.now, event, &mut out);
            self.shard.turn_end(self.now, &mut out);
            actions.extend(out);
        }
        for slot in 0..CONNS.len() {
            if self.pipes[slot].waiting.is_some() && !self.pipes[slot].input.is_empty() {
                let event = self.receive(slot);
                self.event(event);
            }
        }
    }

    /// Lets what was held complete.
    fn release(&mut self) {
        self.hold = None;
        for action in std::mem::take(&mut self.held) {
            if let Some(event) = self.complete(action) {
                self.event(event);
            }
        }
    }

    fn complete(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::Provide { lease } => {
                self.small.push_back(lease);
                return None;
            }
            Action::Recv { conn, into } => {
                self.pipes[conn.slot as usize].waiting = Some(into);
                return None;
            }
            Action::Send { conn, parts } => {
                let output = &mut self.pipes[conn.slot as usize].output;
                for part in &parts {
                    match part {
                        Part::Bytes(bytes) => output.extend_from_slice(bytes),
                        Part::Arena(lease) => output.extend_from_slice(self.memory.bytes(lease)),
                        Part::File(range) => {
                            let from = range.at.0 as usize;
                            output.extend_from_slice(&self.files[&range.file][from..from + range.len as usize]);
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
                self.reads += 1;
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
        let text = format!("{what:?}");
        self.jobs.push(text.split_whitespace().next().unwrap_or_default().to_owned());
        if let Some((refused, errno)) = self.refused
            && refused(&what)
        {
            return Err(errno);
        }
        match what {
            FileJob::OpenActive { file, path } | FileJob::OpenSealed { file, path } => {
                let contents = self.stored.get(&path.kind).cloned().unwrap_or_default();
                let len = contents.len() as u64;
                self.files.insert(file, contents);
                Ok(FileDone::Opened { file, len })
            }
            FileJob::ReadWhole { path, .. } => {
                self.stored.get(&path.kind).cloned().map(FileDone::Contents).ok_or(Errno(2))
            }
            FileJob::Replace { path, contents } => {
                self.stored.insert(path.kind, contents);
                Ok(FileDone::Done)
            }
            FileJob::Checkpoint { contents, .. } => {
                self.checkpoints.push(contents);
                Ok(FileDone::Done)
            }
            FileJob::Close { file } => {
                self.files.remove(&file);
                Ok(FileDone::Done)
            }
            FileJob::CreateSegment { file, path, len, .. } => {
                assert_eq!(len % 4096, 0, "the file could not be filled with O_DIRECT");
                assert!(matches!(path.kind, FileKind::Log(_)));
                assert!(!self.stored.contains_key(&path.kind), "{path:?} is created and is there");
                self.files.insert(file, vec![0; len as usize]);
                Ok(FileDone::Opened { file, len })
            }
            FileJob::Grow { file, to, .. } => {
                assert_eq!(to.0 % 4096, 0, "the file could not be filled with O_DIRECT");
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

    fn receive(&mut self, slot: usize) -> Event {
        let pipe = &mut self.pipes[slot];
        match pipe.waiting.take().expect("looked at") {
            RecvInto::Small => {
                let mut lease = self.small.pop_front().expect("the shard provides small blocks");
                let len = pipe.input.len().min(lease.len() as usize);
                let bytes: Vec<u8> = pipe.input.drain(..len).collect();
                self.memory.fill(&mut lease, 0, &bytes);
                Event::Received { conn: CONNS[slot], bytes: Received::Small { lease, len: len as u32 } }
            }
            RecvInto::Window { mut lease, from } => {
                let len = pipe.input.len().min((lease.len() - from) as usize);
                let bytes: Vec<u8> = pipe.input.drain(..len).collect();
                self.memory.fill(&mut lease, from, &bytes);
                Event::Received { conn: CONNS[slot], bytes: Received::Window { lease, len: len as u32 } }
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
        self.pipes[self.at].input.extend(request);
        self.run(Actions::new());
    }

    fn answer(&mut self, api: ApiKey, version: i16) -> Vec<u8> {
        let output = &mut self.pipes[self.at].output;
        let size = u32::from_be_bytes(output[..4].try_into().expect("a length")) as usize;
        let frame: Vec<u8> = output.drain(..4 + size).skip(4).collect();
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
        if !self.is_answered() {
            return None;
        }
        let body = self.answer(ApiKey::FETCH, 11);
        let response = fetch::FetchResponse::decode(11, &mut Reader::new(&body)).expect("a response");
        let partition = &response.responses[0].partitions[0];
        let Records::Bytes(records) = partition.records else { panic!("no records field") };
        Some((partition.error_code, partition.high_watermark.0, records.to_vec()))
    }
}

impl World {
    fn is_answered(&self) -> bool {
        !self.pipes[self.at].output.is_empty()
    }

    fn wait(&mut self, millis: u64) {
        self.now.mono = self.now.mono.plus_millis(millis);
        self.event(Event::Deadline);
    }

    /// DeleteRecords of another core's client.
    fn delete_records(&mut self, before: i64) {
        let origin = Origin { core: CoreId(1), ticket: Ticket(1), slot: 0 };
        let query = Query::DeleteRecords { before: Offset(before) };
        let partition = PARTITION;
        self.event(Event::Mail { from: Peer::Core(CoreId(1)), message: Message::Query { origin, partition, query } });
        assert_eq!(self.mail.pop().map(|mail| format!("{mail:?}").contains(&format!("{before}"))), Some(true));
    }

    /// What the last checkpoint says of the partition.
    fn stable(&self) -> (Offset, FilePos) {
        let slot = newest(self.checkpoints.last().expect("written")).expect("this format").expect("a slot");
        assert_eq!(slot.entries[0].partition, PARTITION);
        (slot.entries[0].stable, slot.entries[0].at)
    }

    fn drop_topic(&mut self) {
        self.event(Event::Mail { from: Peer::Control, message: Message::Drop(vec![PARTITION]) });
    }

    fn has_dropped(&self) -> bool {
        self.mail.iter().any(|message| matches!(message, Message::Dropped(ids) if ids[..] == [PARTITION]))
    }

    fn has_failed(&self) -> bool {
        self.mail.iter().any(|message| matches!(message, Message::DirFailed { .. }))
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
fn a_new_connection_goes_to_a_core_that_has_at_least_two_fewer() {
    let mut world = World::new();
    let (conn, peer) = (ConnId { slot: 7, turn: 0 }, "127.0.0.1:5001".parse().expect("an address"));
    let accepted = |here, least| {
        let crowd = Some(Crowd { here, least, at: CoreId(1) });
        Event::Accepted { conn, peer, crowd, from_address: Some(10) }
    };
    let mut out = Actions::new();
    world.shard.handle(world.now, accepted(5, 3), &mut out);
    assert!(matches!(out[..], [Action::HandOver { conn: given, to: CoreId(1) }] if given == conn), "{out:?}");
    out.clear();
    world.shard.handle(world.now, accepted(5, 4), &mut out);
    assert!(matches!(out[..], [Action::Recv { conn: kept, .. }] if kept == conn), "{out:?}");
}

/// Whichever cores its connections are at. One that comes from another core was looked at there.
#[test]
fn an_address_has_one_limit_for_the_whole_broker() {
    let mut world = World::new();
    let (conn, peer) = (ConnId { slot: 7, turn: 0 }, "127.0.0.1:5001".parse().expect("an address"));
    let crowd = Some(Crowd { here: 5, least: 0, at: CoreId(1) });
    let mut out = Actions::new();
    world.shard.handle(world.now, Event::Accepted { conn, peer, crowd, from_address: Some(11) }, &mut out);
    assert!(matches!(out[..], [Action::Close { conn: refused, .. }] if refused == conn), "{out:?}");
    world.event(Event::Closed { conn });
    out.clear();
    world.shard.handle(world.now, Event::Accepted { conn, peer, crowd: None, from_address: None }, &mut out);
    assert!(matches!(out[..], [Action::Recv { conn: kept, .. }] if kept == conn), "{out:?}");
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
    assert!(!world.is_answered(), "acks=0 has no answer");
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

/// Without it a crash would mean reading everything since the last stop.
#[test]
fn a_checkpoint_follows_within_a_second_and_an_idle_core_writes_none() {
    let mut world = World::new();
    world.wait(5_000);
    assert!(world.checkpoints.is_empty(), "nothing has moved");
    world.produce(1, &batch(b"one"));
    world.wait(1_000);
    assert_eq!(world.stable(), (Offset(0), FilePos(0)), "no file names the leader epoch yet");
    world.wait(1_000);
    assert_eq!(world.stable(), (Offset(1), FilePos(batch(b"one").len() as u64)));
    world.wait(5_000);
    assert_eq!(world.checkpoints.len(), 2);
    assert_eq!(world.jobs.iter().filter(|job| *job == "Replace").count(), 1, "the leader epochs: {:?}", world.jobs);
}

/// A write that ends inside a batch has made the batches before it stable, and only these may be named.
#[test]
fn a_checkpoint_points_behind_whole_batches() {
    let mut world = World::new();
    world.produce(1, &batch(b"one"));
    world.wait(1_000);
    world.hold = Some(|action| matches!(action, Action::Write { at, .. } if at.0 > 0));
    world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(&[7; 1 << 20][..900_000])));
    assert!(!world.held.is_empty(), "a batch of several writes");
    world.wait(1_000);
    assert_eq!(world.stable(), (Offset(1), FilePos(batch(b"one").len() as u64)));
    world.release();
    assert!(world.is_answered(), "acknowledged now");
}

/// 40 segments of one batch each, of which the oldest are no longer in memory.
fn many_segments() -> World {
    let mut world = World::with(TopicConfig { segment_bytes: 1 << 20, retention_ms: None, ..TopicConfig::default() });
    for _ in 0..40 {
        world.produce(1, &batch(&[7; 1 << 20][..900_000]));
    }
    world
}

#[test]
fn a_segment_that_goes_while_it_is_read_is_out_of_range() {
    for held in [
        |action: &Action| matches!(action, Action::Read { .. }),
        |action: &Action| matches!(action, Action::Probe { .. }),
    ] {
        let mut world = many_segments();
        world.hold = Some(held);
        assert_eq!(world.fetch(0, 0), None);
        assert_eq!(world.held.len(), 1);
        world.delete_records(20);
        world.release();
        assert_eq!(world.fetched().map(|(error, ..)| error), Some(ErrorCode::OFFSET_OUT_OF_RANGE));
        assert!(world.fetch(20, 0).is_some_and(|(error, ..)| error == ErrorCode::NONE));
    }
}

#[test]
fn a_search_by_time_goes_on_where_the_log_starts_now() {
    let mut world = many_segments();
    world.hold = Some(|action| matches!(action, Action::Read { .. }));
    let partition = list_offsets::ListOffsetsPartition { timestamp: 0, ..Default::default() };
    let topic = list_offsets::ListOffsetsTopic { name: "t", partitions: vec![partition] };
    let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
    world.post(ApiKey::LIST_OFFSETS, 6, &request);
    assert_eq!(world.held.len(), 1);
    world.delete_records(20);
    world.release();
    let body = world.answer(ApiKey::LIST_OFFSETS, 6);
    let response = list_offsets::ListOffsetsResponse::decode(6, &mut Reader::new(&body)).expect("a response");
    assert_eq!(response.topics[0].partitions[0].offset, Offset(20));
}

/// An answer that waits for its turn may name the file of a segment that retention has taken.
#[test]
fn files_that_retention_takes_stay_open_as_long_as_they_are_not_removed() {
    let mut world = many_segments();
    let closed = |world: &World| world.jobs.iter().filter(|job| *job == "Close").count();
    world.delete_records(20);
    assert_eq!(closed(&world), 0);
    world.wait(TopicConfig::default().file_delete_delay_ms);
    assert_eq!(closed(&world), 20);
    assert!(world.jobs.contains(&"Remove".to_owned()));
}

/// A slow reader's connection was reset when its answer waited longer than `file.delete.delay.ms`.
#[test]
fn a_file_stays_open_until_the_last_answer_that_names_it_has_left() {
    let closed = |world: &World| world.jobs.iter().filter(|job| *job == "Close").count();
    for deleted in [true, false] {
        let mut world = many_segments();
        world.hold = Some(|action| matches!(action, Action::Send { .. }));
        assert_eq!(world.fetch(0, 0), None);
        let [Action::Send { parts, .. }] = &world.held[..] else { panic!("an answer is out: {:?}", world.held) };
        assert!(parts.iter().any(|part| matches!(part, Part::File(_))), "it names a file");
        match deleted {
            true => world.drop_topic(),
            false => world.delete_records(20),
        }
        world.wait(TopicConfig::default().file_delete_delay_ms);
        assert_eq!(world.has_dropped(), deleted, "the names are free");
        let others = closed(&world);
        assert!(others > 0);
        world.release();
        let (error, _, records) = world.fetched().expect("an answer");
        assert_eq!((error, records.len() > 900_000), (ErrorCode::NONE, true));
        assert_eq!(closed(&world), others + 1);
    }
}

#[test]
fn a_file_stays_open_until_the_core_that_sends_from_it_gives_it_back() {
    let mut world = many_segments();
    let ask = FetchAsk {
        origin: Origin { core: CoreId(1), ticket: Ticket(1), slot: 0 },
        partition: PARTITION,
        fetch_offset: Offset(0),
        bytes_max: 1 << 20,
        whole_first: true,
        current_leader_epoch: LeaderEpoch(-1),
        last_fetched_epoch: LeaderEpoch(-1),
        watch_below: 0,
    };
    world.event(Event::Mail { from: Peer::Core(CoreId(1)), message: Message::Fetch(ask) });
    let files = world.mail.iter().find_map(|mail| match mail {
        Message::Fetched { outcome, .. } => match outcome.records[..] {
            [Part::File(range)] => Some(range.file),
            _ => None,
        },
        _ => None,
    });
    let file = files.expect("an answer that names a file");
    world.delete_records(20);
    world.wait(TopicConfig::default().file_delete_delay_ms);
    assert!(world.files.contains_key(&file));
    world.event(Event::Mail { from: Peer::Core(CoreId(1)), message: Message::ReturnFile(file) });
    assert!(!world.files.contains_key(&file));
}

/// The deletion closes the file under the read: what the disk then says is no fault of the disk.
#[test]
fn a_topic_that_is_deleted_while_it_is_read_fails_no_directory() {
    let mut world = many_segments();
    world.hold = Some(|action| matches!(action, Action::Probe { .. }));
    assert_eq!(world.fetch(0, 0), None);
    world.drop_topic();
    world.hold = Some(|action| matches!(action, Action::Read { .. }));
    for action in std::mem::take(&mut world.held) {
        let Action::Probe { probe, range } = action else { panic!("a probe") };
        world.event(Event::Resident { probe, missing: Some(range) });
    }
    world.release();
    assert!(world.has_dropped() && !world.has_failed(), "{:?}", world.mail);
    assert_eq!(world.fetched().map(|(error, ..)| error), Some(ErrorCode::NOT_LEADER_OR_FOLLOWER));
}

/// The directory is renamed only when nothing that is in flight needs its name or its files.
#[test]
fn a_deletion_waits_for_writes_flushes_and_the_jobs_of_its_files() {
    let held: [fn(&Action) -> bool; 3] = [
        |action| matches!(action, Action::Write { .. }),
        |action| matches!(action, Action::Flush { .. }),
        |action| matches!(action, Action::File { what: FileJob::Replace { .. }, .. }),
    ];
    for held in held {
        let mut world = World::new();
        world.produce(1, &batch(b"one"));
        world.hold = Some(held);
        // Several writes, so that they go plain and a flush covers them.
        world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(&[7; 1 << 20][..900_000])));
        world.wait(1_000);
        assert!(!world.held.is_empty());
        world.drop_topic();
        assert!(!world.has_dropped() && !world.jobs.contains(&"RenameDir".to_owned()), "{:?}", world.jobs);
        world.release();
        assert!(world.has_dropped() && !world.has_failed(), "{:?} {:?}", world.jobs, world.mail);
    }
}

#[test]
fn a_topic_on_a_failed_directory_is_dropped_without_touching_the_disk() {
    let mut world = World::new();
    world.produce(1, &batch(b"one"));
    world.event(Event::Mail { from: Peer::Control, message: Message::FailDir { dir: DirId(0), errno: Errno(5) } });
    world.jobs.clear();
    world.drop_topic();
    assert!(world.has_dropped());
    assert_eq!(world.jobs, Vec::<String>::new());
}

/// What hangs may never come back: nobody waits for it, and what comes back all the same does no harm.
#[test]
fn a_directory_that_hangs_lets_its_readers_its_writers_and_the_process_go() {
    let ends_after = |mut world: World| {
        assert!(!world.held.is_empty());
        let hangs = Message::FailDir { dir: DirId(0), errno: Errno(110) };
        world.event(Event::Mail { from: Peer::Control, message: hangs });
        assert!(!world.pipes[0].output.is_empty(), "whoever waited has been told");
        world.event(Event::Mail { from: Peer::Control, message: Message::Stop });
        let stopped = |message: &Message| matches!(message, Message::Stopped { clean: false, .. });
        assert!(world.mail.iter().any(stopped), "{:?}", world.mail);
        let mut answered = std::mem::take(&mut world.pipes[0].output);
        world.release();
        std::mem::swap(&mut answered, &mut world.pipes[0].output);
        assert!(answered.is_empty(), "nobody is told twice");
        world
    };
    for held in [
        |action: &Action| matches!(action, Action::Read { .. }),
        |action: &Action| matches!(action, Action::Probe { .. }),
    ] {
        let mut world = many_segments();
        world.hold = Some(held);
        assert_eq!(world.fetch(0, 0), None);
        assert_eq!(ends_after(world).fetched().map(|(error, ..)| error), Some(ErrorCode::KAFKA_STORAGE_ERROR));
    }
    for held in [
        |action: &Action| matches!(action, Action::Write { .. }),
        |action: &Action| matches!(action, Action::File { .. }),
    ] {
        let mut world = World::new();
        world.hold = Some(held);
        world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(b"one")));
        let body = ends_after(world).answer(ApiKey::PRODUCE, 9);
        let response = produce::ProduceResponse::decode(9, &mut Reader::new(&body)).expect("a response");
        assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    }
}

/// A client that talks to another cluster or broker than it means to starts again from its bootstrap servers (KIP-1242).
#[test]
fn a_client_that_means_another_broker_is_sent_back() {
    let mut world = World::new();
    let mut error = |cluster_id, node| {
        let request = api_versions::ApiVersionsRequest {
            client_software_name: "x",
            client_software_version: "1",
            cluster_id,
            node_id: BrokerId(node),
        };
        let body = world.ask(ApiKey::API_VERSIONS, 5, &request);
        let response = api_versions::ApiVersionsResponse::decode(5, &mut Reader::new(&body)).expect("a response");
        assert_eq!(response.api_keys.is_empty(), response.error_code != ErrorCode::NONE);
        response.error_code
    };
    assert_eq!(error(None, -1), ErrorCode::NONE);
    assert_eq!(error(Some("cluster"), 1), ErrorCode::NONE);
    assert_eq!(error(Some("cluster"), 2), ErrorCode::REBOOTSTRAP_REQUIRED);
    assert_eq!(error(Some("another"), 1), ErrorCode::REBOOTSTRAP_REQUIRED);
    assert_eq!(error(Some("cluster"), -1), ErrorCode::INVALID_REQUEST);
    assert_eq!(error(None, 1), ErrorCode::INVALID_REQUEST);
}

#[test]
fn settings_of_the_broker_are_read_only_and_those_of_topics_are_not() {
    let mut world = World::new();
    for (resource_type, resource_name, expected) in [(4, "1", true), (2, "t", false)] {
        let resource = describe_configs::DescribeConfigsResource { resource_type, resource_name, ..Default::default() };
        let request = describe_configs::DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        let body = world.ask(ApiKey::DESCRIBE_CONFIGS, 4, &request);
        let response = describe_configs::DescribeConfigsResponse::decode(4, &mut Reader::new(&body)).expect("one");
        let configs = &response.results[0].configs;
        assert!(!configs.is_empty() && configs.iter().all(|config| config.read_only == expected), "{resource_name}");
    }
}
