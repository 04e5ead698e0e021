//! Clients: they produce, read, ask and hang up, several requests at a time, and check every answer.

use std::collections::{BTreeMap, VecDeque};

use pinion::ids::{LeaderEpoch, Offset, PartitionIndex};
use pinion::kafka::api::ApiKey;
use pinion::kafka::batch::{BatchFault, batches};
use pinion::kafka::error_code::ErrorCode;
use pinion::kafka::frame;
use pinion::kafka::schema::{Message, Reader, Records, delete_records, fetch, list_offsets, produce};

use crate::checks::{Fate, History, WALL_START};
use crate::plan::Plan;
use crate::rng::Rng;

/// What a client may use in a step.
pub struct Step<'a> {
    pub rng: &'a mut Rng,
    pub history: &'a mut History,
    pub plan: &'a Plan,
    /// Acknowledgements to hold against the disk: partition and offset.
    pub acks: &'a mut Vec<(usize, i64)>,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Asked {
    correlation: i32,
    api: ApiKey,
    version: i16,
    what: What,
}

#[derive(Debug)]
enum What {
    Produce(Vec<usize>),
    Fetch,
    ListOffsets,
    DeleteRecords(usize),
}

/// How a client behaves.
#[derive(Debug)]
enum Role {
    Producer { acks: i16, in_flight_max: usize, many: bool },
    Idempotent { id: i64, in_flight_max: usize, sequences: BTreeMap<usize, i32>, unresolved: VecDeque<usize> },
    Consumer(Consumer),
    Asker,
}

#[derive(Debug, Default)]
struct Consumer {
    positions: BTreeMap<usize, i64>,
    sessions: bool,
    /// Id and next epoch of the session, and the positions that the broker knows.
    session: (i32, i32),
    told: BTreeMap<usize, (i64, i32)>,
    bytes_max: i32,
    version: i16,
    /// It reads everything once and is done.
    verifier: bool,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    role: Role,
    input: Vec<u8>,
    asked: VecDeque<Asked>,
    correlation: i32,
    /// It hangs up this often in a thousand steps.
    pub drops: u64,
    /// µs that it takes to read an answer.
    pub slowness: u64,
    /// What it is told when the connection ends.
    pub answered: u64,
    /// A batch of it was refused for the moment.
    refused: bool,
}

impl Client {
    /// A client of a random kind; the first two are a producer and a consumer.
    pub fn new(index: usize, plan: &Plan, rng: &mut Rng) -> Client {
        let role = match (index, rng.below(10)) {
            (1, _) | (_, 0..3) => Role::Consumer(Consumer::new(plan, rng)),
            (0, 0..5) | (_, 3..6) => Role::Producer {
                acks: rng.pick(&[0, 1, 1, -1]),
                in_flight_max: rng.range(1, 9) as usize,
                many: rng.chance(400),
            },
            (0, _) | (_, 6..9) => Role::Idempotent {
                id: 100 + index as i64,
                in_flight_max: rng.range(1, 6) as usize,
                sequences: BTreeMap::new(),
                unresolved: VecDeque::new(),
            },
            _ => Role::Asker,
        };
        let drops = rng.pick(&[0, 0, 5, 40]);
        Client::of(role, drops, rng.pick(&[20, 20, 200, 20_000]))
    }

    /// A client that reads every partition from its first to its last offset.
    pub fn verifier(plan: &Plan) -> Client {
        let positions = (0..plan.partitions).map(|partition| (partition, -1)).collect();
        let consumer = Consumer { positions, verifier: true, bytes_max: 1 << 20, version: 11, ..Consumer::default() };
        Client::of(Role::Consumer(consumer), 0, 20)
    }

    /// The verifier has read everything; it asks for nothing any more.
    pub fn retire(&mut self) {
        if let Role::Consumer(consumer) = &mut self.role {
            consumer.verifier = false;
        }
    }

    fn of(role: Role, drops: u64, slowness: u64) -> Client {
        let (input, asked) = (Vec::new(), VecDeque::new());
        Client { role, input, asked, correlation: 0, drops, slowness, answered: 0, refused: false }
    }

    /// Whether it waits for an answer.
    pub fn waits(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether it has something left that it must get done: a retry, or the rest of a log.
    pub fn must_go_on(&self) -> bool {
        match &self.role {
            Role::Idempotent { unresolved, .. } => !unresolved.is_empty(),
            Role::Consumer(consumer) => consumer.verifier,
            _ => false,
        }
    }

    /// The verifier's positions.
    pub fn positions(&self) -> Option<&BTreeMap<usize, i64>> {
        match &self.role {
            Role::Consumer(consumer) => Some(&consumer.positions),
            _ => None,
        }
    }

    /// What it waits for, for reports.
    pub fn waiting_for(&self) -> String {
        format!("{:?}", self.asked)
    }

    /// The connection has ended; what was under way may have happened or not.
    pub fn disconnected(&mut self) {
        self.input.clear();
        self.asked.clear();
        if let Role::Consumer(consumer) = &mut self.role {
            consumer.session = (0, 0);
            consumer.told.clear();
        }
    }

    /// The connection begins: what must be sent again.
    pub fn connected(&mut self, step: &mut Step<'_>) -> Vec<u8> {
        let Role::Idempotent { unresolved, .. } = &self.role else { return Vec::new() };
        let again: Vec<usize> = unresolved.iter().copied().collect();
        let mut out = Vec::new();
        for id in again {
            self.send_batches(step, -1, 9, vec![id], &mut out);
        }
        out
    }

    /// The next request, if it has one to make. `more` is false once only what must be done is done.
    pub fn next(&mut self, step: &mut Step<'_>, more: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let full = step.plan.batches <= step.history.len();
        let waiting = self.asked.len();
        match &mut self.role {
            Role::Producer { acks, in_flight_max, many } if more && !full && waiting < *in_flight_max => {
                let (acks, many) = (*acks, *many);
                self.produce_some(step, acks, many, &mut out);
            }
            Role::Idempotent { in_flight_max, .. } if more && !full && waiting < *in_flight_max => {
                self.produce_next(step, &mut out);
            }
            Role::Consumer(consumer) if (more || consumer.verifier) && waiting == 0 => self.fetch(step, &mut out),
            Role::Asker if more && waiting < 3 => self.ask(step, &mut out),
            _ => {}
        }
        out
    }

    fn produce_some(&mut self, step: &mut Step<'_>, acks: i16, many: bool, out: &mut Vec<u8>) {
        let first = step.rng.below(step.plan.partitions as u64) as usize;
        let count = if many { step.rng.range(1, step.plan.partitions as u64 + 1) as usize } else { 1 };
        let ids = (0..count).map(|i| {
            let bytes = batch_bytes(step);
            step.history.make(step.rng, (first + i) % step.plan.partitions, bytes, None)
        });
        let ids = ids.collect();
        let version = step.rng.range(3, 13) as i16;
        self.send_batches(step, acks, version, ids, out);
    }

    fn produce_next(&mut self, step: &mut Step<'_>, out: &mut Vec<u8>) {
        let partition = step.rng.below(step.plan.partitions as u64) as usize;
        let bytes = batch_bytes(step);
        let Role::Idempotent { id: producer, sequences, unresolved, .. } = &mut self.role else { return };
        let sequence = sequences.entry(partition).or_default();
        let id = step.history.make(step.rng, partition, bytes, Some((*producer, *sequence)));
        *sequence += step.history.batch(id).count as i32;
        unresolved.push_back(id);
        self.send_batches(step, -1, 9, vec![id], out);
    }

    fn send_batches(&mut self, step: &mut Step<'_>, acks: i16, version: i16, ids: Vec<usize>, out: &mut Vec<u8>) {
        let sent: Vec<_> = ids.iter().map(|id| step.history.batch(*id).clone()).collect();
        let partition_data = sent.iter().map(|sent| produce::PartitionProduceData {
            index: PartitionIndex(sent.partition as i32),
            records: Some(&sent.bytes),
        });
        let partition_data = partition_data.collect();
        let topic = produce::TopicProduceData { name: "t", partition_data, ..Default::default() };
        let request =
            produce::ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() };
        let what = (acks != 0).then_some(What::Produce(ids));
        self.send(ApiKey::PRODUCE, version, &request, what, out);
    }

    fn fetch(&mut self, step: &mut Step<'_>, out: &mut Vec<u8>) {
        let Role::Consumer(consumer) = &mut self.role else { return };
        if consumer.verifier && consumer.positions.values().any(|at| *at < 0) {
            return self.ask_starts(out);
        }
        consumer.wander(step);
        let (session_id, session_epoch) = if consumer.sessions { consumer.session } else { (0, -1) };
        let wanted: Vec<fetch::FetchPartition> = consumer.wanted(step.rng);
        let topic = fetch::FetchTopic { topic: "t", partitions: wanted, ..Default::default() };
        let request = fetch::FetchRequest {
            max_wait_ms: step.rng.pick(&[0, 1, 50, 500]),
            min_bytes: step.rng.pick(&[0, 1, 1, 2_000, 1 << 20]),
            max_bytes: step.rng.pick(&[1, 10_000, 1 << 20, 50 << 20]),
            session_id,
            session_epoch,
            topics: if topic.partitions.is_empty() { Vec::new() } else { vec![topic] },
            ..Default::default()
        };
        let version = consumer.version;
        self.send(ApiKey::FETCH, version, &request, Some(What::Fetch), out);
    }

    fn ask_starts(&mut self, out: &mut Vec<u8>) {
        let Role::Consumer(consumer) = &self.role else { return };
        let unknown = consumer.positions.iter().filter(|(_, at)| **at < 0);
        let partitions: Vec<_> = unknown.map(|(partition, _)| list_partition(*partition, -2)).collect();
        let topic = list_offsets::ListOffsetsTopic { name: "t", partitions };
        let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
        self.send(ApiKey::LIST_OFFSETS, 5, &request, Some(What::ListOffsets), out);
    }

    fn ask(&mut self, step: &mut Step<'_>, out: &mut Vec<u8>) {
        let partition = step.rng.below(step.plan.partitions as u64) as usize;
        if step.plan.deletes && step.rng.chance(200) {
            let offset = step.rng.pick(&[-1, 3, 20, 100]);
            // It may take effect although the answer is lost, and −1 stands for whatever is committed by then.
            step.history.log_start_may_be(partition, if offset < 0 { i64::MAX } else { offset });
            let asked = delete_records::DeleteRecordsPartition {
                partition_index: PartitionIndex(partition as i32),
                offset: Offset(offset),
            };
            let topic = delete_records::DeleteRecordsTopic { name: "t", partitions: vec![asked] };
            let request = delete_records::DeleteRecordsRequest { topics: vec![topic], ..Default::default() };
            return self.send(ApiKey::DELETE_RECORDS, 2, &request, Some(What::DeleteRecords(partition)), out);
        }
        let timestamp = match step.rng.below(5) {
            0 => -1,
            1 => -2,
            2 => -3,
            _ => WALL_START + step.rng.below(step.history.len() as u64 + 2) as i64,
        };
        let topic =
            list_offsets::ListOffsetsTopic { name: "t", partitions: vec![list_partition(partition, timestamp)] };
        let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
        self.send(ApiKey::LIST_OFFSETS, 7, &request, Some(What::ListOffsets), out);
    }

    fn send<'a>(&mut self, api: ApiKey, version: i16, body: &impl Message<'a>, what: Option<What>, out: &mut Vec<u8>) {
        self.correlation += 1;
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        frame::write_request_header(api, version, self.correlation, Some("sim"), out);
        body.encode(version, out);
        let size = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
        let correlation = self.correlation;
        self.asked.extend(what.map(|what| Asked { correlation, api, version, what }));
    }

    /// Bytes from the broker. Returns false when the client hangs up over them.
    pub fn receive(&mut self, step: &mut Step<'_>, bytes: &[u8]) -> bool {
        self.input.extend_from_slice(bytes);
        while let Some(head) = self.input.get(..4) {
            let size = u32::from_be_bytes(head.try_into().expect("four bytes")) as usize;
            if self.input.len() < 4 + size {
                break;
            }
            let frame: Vec<u8> = self.input.drain(..4 + size).skip(4).collect();
            let asked = self.asked.pop_front().expect("an answer without a request");
            let (correlation, body) = frame::response_header(asked.api, asked.version, &frame).expect("a header");
            assert_eq!(correlation, asked.correlation, "answers out of order");
            self.answered += 1;
            if !self.answer(step, &asked, body) {
                return false;
            }
        }
        true
    }

    fn answer(&mut self, step: &mut Step<'_>, asked: &Asked, body: &[u8]) -> bool {
        let mut reader = Reader::new(body);
        match &asked.what {
            What::Produce(ids) => {
                let answer = produce::ProduceResponse::decode(asked.version, &mut reader).expect("a produce answer");
                self.on_produced(step, ids, &answer)
            }
            What::Fetch => {
                let answer = fetch::FetchResponse::decode(asked.version, &mut reader).expect("a fetch answer");
                self.on_fetched(step, &answer);
                true
            }
            What::ListOffsets => {
                let answer = list_offsets::ListOffsetsResponse::decode(asked.version, &mut reader).expect("an answer");
                self.on_listed(&answer);
                true
            }
            What::DeleteRecords(partition) => {
                let answer = delete_records::DeleteRecordsResponse::decode(2, &mut reader).expect("an answer");
                let low = answer.topics[0].partitions[0].low_watermark.0;
                step.history.log_start_may_be(*partition, low);
                true
            }
        }
    }

    fn on_produced(&mut self, step: &mut Step<'_>, ids: &[usize], answer: &produce::ProduceResponse<'_>) -> bool {
        let parts: Vec<_> = answer.responses.iter().flat_map(|topic| &topic.partition_responses).collect();
        assert_eq!(parts.len(), ids.len(), "an answer for every batch");
        let mut fine = true;
        for (part, &id) in parts.into_iter().zip(ids) {
            let partition = step.history.batch(id).partition;
            assert_eq!(part.index.0 as usize, partition, "answers in the order of the request");
            match part.error_code {
                ErrorCode::NONE => {
                    step.history.acked(id, part.base_offset.0);
                    step.acks.push((partition, part.base_offset.0));
                    self.resolve(id);
                }
                code => fine &= self.on_refused(step, id, code),
            }
        }
        fine
    }

    /// Returns whether to go on with this connection.
    fn on_refused(&mut self, step: &mut Step<'_>, id: usize, code: ErrorCode) -> bool {
        let large = step.history.batch(id).bytes.len() as u64;
        let too_large = large > step.plan.topic.segment_bytes || large > step.plan.arena_bytes / 4;
        match code {
            ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE if too_large => {
                step.history.refused(id);
                self.resolve(id);
                // The sequence goes on behind a batch that will never be there: the producer starts over.
                if let Role::Idempotent { .. } = self.role {
                    self.role = Role::Producer { acks: -1, in_flight_max: 3, many: false };
                    return false;
                }
                true
            }
            // Its first batch was refused for the moment, by a full disk or before its partition was there, and a later
            // one, already under way, was not: a broker that knows nothing of a producer takes any sequence.
            ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER if self.refused => {
                self.role = Role::Producer { acks: -1, in_flight_max: 3, many: false };
                false
            }
            ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                self.refused = true;
                !matches!(self.role, Role::Idempotent { .. })
            }
            code => panic!(
                "batch {id} of {large} bytes for partition {} was refused: {code:?} {:?}",
                step.history.batch(id).partition,
                self.role
            ),
        }
    }

    fn resolve(&mut self, id: usize) {
        if let Role::Idempotent { unresolved, .. } = &mut self.role {
            unresolved.retain(|other| *other != id);
        }
    }

    fn on_listed(&mut self, answer: &list_offsets::ListOffsetsResponse<'_>) {
        let Role::Consumer(consumer) = &mut self.role else { return };
        for part in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            if part.error_code == ErrorCode::NONE {
                consumer.positions.insert(part.partition_index.0 as usize, part.offset.0);
            }
        }
    }

    fn on_fetched(&mut self, step: &mut Step<'_>, answer: &fetch::FetchResponse<'_>) {
        let Role::Consumer(consumer) = &mut self.role else { return };
        match answer.error_code {
            ErrorCode::NONE if consumer.sessions => {
                consumer.session = match answer.session_id {
                    0 => (0, 0),
                    id => (id, consumer.session.1 + 1),
                };
                if answer.session_id == 0 {
                    consumer.told.clear();
                }
            }
            ErrorCode::NONE => {}
            ErrorCode::FETCH_SESSION_ID_NOT_FOUND | ErrorCode::INVALID_FETCH_SESSION_EPOCH => {
                consumer.session = (0, 0);
                consumer.told.clear();
            }
            code => panic!("a fetch was refused: {code:?}"),
        }
        for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            consumer.take(step, part);
        }
    }
}

impl Consumer {
    fn new(plan: &Plan, rng: &mut Rng) -> Consumer {
        let count = rng.range(1, plan.partitions as u64 + 1) as usize;
        Consumer {
            positions: (0..count).map(|partition| (partition, 0)).collect(),
            sessions: rng.chance(500),
            bytes_max: rng.pick(&[1, 5_000, 1 << 20]),
            version: rng.range(7, 13) as i16,
            ..Consumer::default()
        }
    }

    /// Goes back to old records now and then.
    fn wander(&mut self, step: &mut Step<'_>) {
        if self.verifier || !step.rng.chance(60) {
            return;
        }
        for at in self.positions.values_mut() {
            *at = step.rng.below(*at as u64 + 1) as i64;
        }
    }

    /// All partitions, or only those that the session does not know so.
    fn wanted(&mut self, rng: &mut Rng) -> Vec<fetch::FetchPartition> {
        let bytes_max = if self.sessions { self.bytes_max } else { self.bytes_max.max(rng.pick(&[1, 3_000])) };
        let known = self.sessions && self.session.1 > 0;
        let changed = self
            .positions
            .iter()
            .filter(|(partition, at)| !known || self.told.get(partition) != Some(&(**at, bytes_max)));
        let wanted: Vec<_> = changed
            .map(|(partition, at)| fetch::FetchPartition {
                partition: PartitionIndex(*partition as i32),
                fetch_offset: Offset(*at),
                current_leader_epoch: LeaderEpoch(-1),
                partition_max_bytes: bytes_max,
                ..Default::default()
            })
            .collect();
        self.told = self.positions.iter().map(|(partition, at)| (*partition, (*at, bytes_max))).collect();
        wanted
    }

    fn take(&mut self, step: &mut Step<'_>, part: &fetch::PartitionData<'_>) {
        let partition = part.partition_index.0 as usize;
        let Some(at) = self.positions.get_mut(&partition) else { panic!("partition {partition} was not asked for") };
        match part.error_code {
            ErrorCode::NONE => {}
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                let start = part.log_start_offset.0.max(0);
                assert!(*at < start || *at > 0, "offset {at} of partition {partition} is out of range");
                *at = start;
                return;
            }
            ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => return,
            code => panic!("a read of partition {partition} was refused: {code:?}"),
        }
        let Records::Bytes(bytes) = part.records else { return };
        let limit = part.high_watermark.0;
        let mut first = true;
        for (_, batch) in batches(bytes) {
            let view = match batch {
                Ok(view) => view,
                Err(BatchFault::Incomplete { .. }) if !first => break,
                Err(fault) => panic!("partition {partition} at {at}: {fault:?} in {} bytes", bytes.len()),
            };
            let (base, next) = (view.base_offset().0, view.next_offset().0);
            let follows = if first { base <= *at && *at < next } else { base == *at };
            assert!(follows, "partition {partition}: batch {base}..{next} where {at} was asked for");
            assert!(next <= limit, "partition {partition}: batch {base}..{next} above the high watermark {limit}");
            let (id, next) = step.history.seen(partition, view.bytes());
            step.history.read += 1;
            if step.history.batch(id).fate == Fate::Unknown {
                step.acks.push((partition, base));
            }
            *at = next;
            first = false;
        }
    }
}

fn list_partition(partition: usize, timestamp: i64) -> list_offsets::ListOffsetsPartition {
    list_offsets::ListOffsetsPartition {
        partition_index: PartitionIndex(partition as i32),
        timestamp,
        ..Default::default()
    }
}

fn batch_bytes(step: &mut Step<'_>) -> u64 {
    let most = step.plan.batch_bytes_max;
    match step.rng.below(10) {
        0 => most,
        1..4 => step.rng.range(1, most),
        _ => step.rng.range(1, most.min(2_000)),
    }
}
