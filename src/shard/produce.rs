//! Produce: one request becomes one append per partition; its answer leaves when the last of them is decided.
//!
//! The request's bytes are needed only until its batches are copied; names and indexes for the answer are kept apart, in
//! buffers that are used again.

use crate::ids::{MonoMicros, Now, Offset, PartitionId, PartitionIndex, Ticket, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::produce::{ProduceResponseWriter, ProduceView};
use crate::kafka::schema::produce::PartitionProduceResponse;
use crate::metrics::ProduceStage;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, Linger};
use crate::shard::dispatch::{Reply, Request};
use crate::shard::message::{Acks, AppendAsk, AppendOutcome, Message, Origin, Peer};
use crate::shard::requests::{InService, Kind};
use crate::shard::timers::Timer;

/// A produce request in service.
#[derive(Debug, Default)]
pub struct Produce {
    acks: Option<Acks>,
    /// When the first of its partitions was decided.
    first_decided: Option<MonoMicros>,
    /// When partitions that still wait answer REQUEST_TIMED_OUT; only acks=all waits for others.
    deadline: Option<MonoMicros>,
    pub(super) names: Vec<u8>,
    pub(super) topics: Vec<Topic>,
    pub(super) parts: Vec<PartAnswer>,
    /// Partitions that are not decided, and one more while there may be others to come.
    waiting: u32,
}

/// A topic of the request, for the answer.
#[derive(Debug)]
pub(super) struct Topic {
    /// Its name's range in `names`.
    pub name: (u32, u32),
    /// Its id, from version 13 on.
    pub id: TopicId,
    /// How many of `parts` are its.
    pub parts: u32,
}

/// A partition of the request, for the answer.
#[derive(Debug)]
pub(super) struct PartAnswer {
    /// Which partition.
    pub index: PartitionIndex,
    /// What came of it; `None` while it waits.
    pub outcome: Option<AppendOutcome>,
}

/// Produce requests kept for reuse.
#[derive(Debug, Default)]
pub struct ProducePool {
    #[expect(clippy::vec_box, reason = "a request moves between here and the table without being copied")]
    kept: Vec<Box<Produce>>,
    timer_set: bool,
}

/// Requests kept for reuse.
const KEPT_MAX: usize = 256;
/// How often time-outs are looked for, while any acks=all request waits.
const TIMEOUT_CHECK_US: u64 = 100_000;

/// An answer that says why nothing was written.
fn refused(code: ErrorCode) -> AppendOutcome {
    AppendOutcome::Refused { code, message: None, leader: None }
}

impl Produce {
    fn begin(&mut self, now: MonoMicros, acks: Option<Acks>, timeout_ms: i32) {
        self.acks = acks;
        self.first_decided = None;
        self.deadline = (acks == Some(Acks::All)).then(|| now.plus_millis(timeout_ms.max(0) as u64));
        self.waiting = 1;
        self.names.clear();
        self.topics.clear();
        self.parts.clear();
    }

    fn begin_topic(&mut self, name: &str, id: TopicId) {
        let from = self.names.len() as u32;
        self.names.extend_from_slice(name.as_bytes());
        self.topics.push(Topic { name: (from, self.names.len() as u32), id, parts: 0 });
    }

    /// Adds a partition that waits; returns its slot.
    fn begin_part(&mut self, index: PartitionIndex) -> u32 {
        self.topics.last_mut().expect("a partition follows its topic").parts += 1;
        self.parts.push(PartAnswer { index, outcome: None });
        self.waiting += 1;
        self.parts.len() as u32 - 1
    }

    fn decide(&mut self, slot: u32, outcome: AppendOutcome) {
        let part = &mut self.parts[slot as usize];
        // A partition that has timed out may still be decided later; its answer has been given.
        if part.outcome.is_none() {
            part.outcome = Some(outcome);
            self.waiting -= 1;
        }
    }

    /// The first error among its partitions, for the counters and for acks=0.
    fn first_error(&self) -> ErrorCode {
        let code = |part: &PartAnswer| match part.outcome {
            Some(AppendOutcome::Refused { code, .. }) => Some(code),
            _ => None,
        };
        self.parts.iter().find_map(code).unwrap_or(ErrorCode::NONE)
    }

    fn time_out(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.outcome.is_none()) {
            part.outcome = Some(refused(ErrorCode::REQUEST_TIMED_OUT));
        }
        self.waiting = 0;
    }
}

impl Produce {
    /// Appends the body of the answer; all partitions are decided.
    fn encode(&self, version: i16, out: &mut Vec<u8>) {
        let mut writer = ProduceResponseWriter::begin(version, self.topics.len(), out);
        let mut parts = self.parts.iter();
        for topic in &self.topics {
            let name = &self.names[topic.name.0 as usize..topic.name.1 as usize];
            let name = std::str::from_utf8(name).expect("copied from a str");
            writer.topic(name, topic.id, topic.parts as usize);
            for part in parts.by_ref().take(topic.parts as usize) {
                writer.partition(&part.response());
            }
        }
        writer.finish(0, &[]);
    }
}

impl PartAnswer {
    fn response(&self) -> PartitionProduceResponse<'_> {
        let index = self.index;
        match self.outcome.as_ref().expect("an answer is written when all partitions are decided") {
            AppendOutcome::Appended { base_offset, log_append_time, log_start } => PartitionProduceResponse {
                index,
                base_offset: *base_offset,
                log_append_time_ms: *log_append_time,
                log_start_offset: *log_start,
                ..Default::default()
            },
            AppendOutcome::Refused { code, message, .. } => PartitionProduceResponse {
                index,
                error_code: *code,
                base_offset: Offset(-1),
                error_message: *message,
                ..Default::default()
            },
        }
    }
}

impl Shard {
    /// A produce request starts: its partitions are appended to, here or on their cores.
    pub(super) fn on_produce(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let view = match ProduceView::parse(request.header.api_version, request.body) {
            Ok(view) => view,
            Err(fault) => return self.close_unreadable(now, request, &fault, out),
        };
        let memory = self.memory.clone();
        let bytes = memory.bytes(request.frame);
        let acks = match view.acks() {
            -1 => Some(Acks::All),
            0 => Some(Acks::None),
            1 => Some(Acks::Leader),
            _ => None,
        };
        let mut produce = self.produces.kept.pop().unwrap_or_default();
        produce.begin(now.mono, acks, view.timeout_ms());
        self.metrics.produce_stage(ProduceStage::Validated, now.mono.micros_since(request.received));
        let id = self.requests.start(InService { reply: Reply::of(request), kind: Kind::Produce(produce) });
        let internal_allowed = request.header.client_id == Some("__admin_client");
        let zstd_allowed = request.header.api_version >= 7;
        for topic in view.topics() {
            let topic_id = self.view.topic_id(topic.name, topic.id);
            self.produce_at(id).begin_topic(topic.name, topic.id);
            for partition in topic.partitions() {
                let slot = self.produce_at(id).begin_part(partition.index);
                let origin = Origin { core: self.config.core, ticket: id, slot };
                let records = partition.records.unwrap_or_default();
                let ask = topic_id.and_then(|topic| {
                    let acks = acks.ok_or(ErrorCode::INVALID_REQUIRED_ACKS)?;
                    let partition = PartitionId { topic, index: partition.index };
                    if records.is_empty() {
                        return Err(ErrorCode::INVALID_RECORD);
                    }
                    let from = records.as_ptr() as usize - bytes.as_ptr() as usize;
                    let records = self.arena.split(request.frame, from as u32, records.len() as u32);
                    let since = now.mono;
                    Ok(AppendAsk { origin, partition, records, acks, internal_allowed, zstd_allowed, since })
                });
                match ask {
                    Ok(ask) => self.route_append(now, ask, out),
                    Err(code) => self.produce_at(id).decide(slot, refused(code)),
                }
            }
        }
        // Partitions may have been decided on the way; the request is answered only now that all of them are known.
        self.produce_at(id).waiting -= 1;
        self.finish_produce(now, id, out);
        self.set_produce_timer(now);
    }

    /// Sends an append to the core that serves its partition.
    fn route_append(&mut self, now: Now, ask: AppendAsk, out: &mut Actions) {
        match self.view.route(ask.partition) {
            Ok(core) if core == self.config.core => self.on_append(now, ask, out),
            Ok(core) => out.push(Action::Mail { to: Peer::Core(core), message: Message::Append(ask) }),
            Err(code) => {
                let (origin, records) = (ask.origin, ask.records);
                self.arena.release(records);
                self.produce_at(origin.ticket).decide(origin.slot, refused(code));
            }
        }
    }

    /// An append of this core's request is decided.
    pub(super) fn on_appended(&mut self, now: Now, origin: Origin, outcome: AppendOutcome, out: &mut Actions) {
        let Some(InService { kind: Kind::Produce(produce), .. }) = self.requests.at(origin.ticket) else {
            return; // Its connection has ended, or it has timed out.
        };
        produce.decide(origin.slot, outcome);
        produce.first_decided.get_or_insert(now.mono);
        self.finish_produce(now, origin.ticket, out);
    }

    /// Answers a request when none of its partitions waits any more.
    fn finish_produce(&mut self, now: Now, id: Ticket, out: &mut Actions) {
        if self.produce_at(id).waiting > 0 {
            return;
        }
        let Some(InService { reply, kind: Kind::Produce(produce) }) = self.requests.finish(id) else {
            panic!("request {id} is no produce");
        };
        self.metrics.request(reply.api, produce.first_error());
        let first = produce.first_decided.unwrap_or(now.mono);
        self.metrics.produce_stage(ProduceStage::Acked, now.mono.micros_since(first));
        if produce.acks == Some(Acks::None) {
            self.answer_nothing(reply.conn, reply.ticket, out);
            if produce.first_error() != ErrorCode::NONE {
                // acks=0 has no answer to say it in; the closed connection makes the client look again.
                self.close(reply.conn, Linger::Graceful, out);
            }
        } else {
            let mut head = self.begin_answer(&reply);
            produce.encode(reply.version, &mut head);
            let rest = self.buffers.parts();
            self.answer(reply.conn, reply.ticket, head, rest, out);
        }
        self.recycle_produce(produce);
    }

    /// Looks for acks=all requests whose time is over.
    pub(super) fn on_produce_timeouts(&mut self, now: Now, out: &mut Actions) {
        self.produces.timer_set = false;
        let over = |request: &InService| match &request.kind {
            Kind::Produce(produce) => produce.deadline.is_some_and(|deadline| deadline <= now.mono),
            _ => false,
        };
        let due: Vec<Ticket> = self.requests.iter().filter(|(_, request)| over(request)).map(|(id, _)| id).collect();
        for id in due {
            self.produce_at(id).time_out();
            self.finish_produce(now, id, out);
        }
        self.set_produce_timer(now);
    }

    fn set_produce_timer(&mut self, now: Now) {
        let waits = self.requests.iter().any(|(_, request)| matches!(request.kind, Kind::Produce(_)));
        if waits && !self.produces.timer_set {
            self.produces.timer_set = true;
            self.timers.set(now.mono.plus_micros(TIMEOUT_CHECK_US), Timer::ProduceTimeouts);
        }
    }

    fn produce_at(&mut self, id: Ticket) -> &mut Produce {
        match self.requests.at(id) {
            Some(InService { kind: Kind::Produce(produce), .. }) => produce,
            _ => panic!("request {id} is no produce in service"),
        }
    }

    fn recycle_produce(&mut self, produce: Box<Produce>) {
        if self.produces.kept.len() < KEPT_MAX {
            self.produces.kept.push(produce);
        }
    }
}
