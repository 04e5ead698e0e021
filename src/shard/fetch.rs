//! Fetch on the core that owns the connection: it asks the cores of all partitions, waits where there is too little, and
//! sends one answer in the order of the request.
//!
//! Waiting is parking, never polling: each partition that had too little keeps a watch, and the first that grows wakes
//! the fetch, which then reads everything again. One pass over the partitions is one `pass`; answers of an older pass
//! are given back unread.

use std::sync::Arc;

use crate::ids::{MonoMicros, Now, PartitionId, PartitionIndex, Ticket, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::metrics::FetchStage;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};
use crate::shard::fetch_session::{Key, SessionRef, WireFetch};
use crate::shard::message::{FetchAsk, FetchOutcome, Message, Origin, Peer};
use crate::shard::requests::{InService, Kind};
use crate::shard::timers::Timer;

/// A fetch in service.
#[derive(Debug, Default)]
pub struct Fetch {
    /// The session it belongs to, if it has one.
    pub session: Option<SessionRef>,
    /// Its partitions in the order in which they are served.
    pub parts: Vec<FetchPart>,
    bytes_max: u32,
    bytes_min: u32,
    deadline: MonoMicros,
    started: MonoMicros,
    /// Answers that this pass still waits for.
    waiting: u32,
    /// A pass is asking; answers that come at once only count.
    asking: bool,
    /// It waits for a partition to grow.
    parked: bool,
    /// It has waited so at least once.
    was_parked: bool,
    /// Its time is over: what the next pass finds is sent.
    last_pass: bool,
    /// A partition grew while a pass was under way.
    grown: bool,
}

/// Fetches and lists kept for reuse, so that a fetch allocates nothing in the steady state.
#[derive(Debug)]
pub struct FetchPool {
    #[expect(clippy::vec_box, reason = "a request moves between here and the table without being copied")]
    kept: Vec<Box<Fetch>>,
    /// What the request that is being read names, and what it forgets.
    pub(super) named: Vec<(Key, Wanted)>,
    pub(super) forgotten: Vec<Key>,
    /// The name of topics that are asked for by id.
    pub(super) no_name: Arc<str>,
}

/// Fetches kept for reuse.
const KEPT_MAX: usize = 256;

impl Default for FetchPool {
    fn default() -> FetchPool {
        FetchPool { kept: Vec::new(), named: Vec::new(), forgotten: Vec::new(), no_name: "".into() }
    }
}

impl FetchPool {
    /// A fetch of nothing.
    pub(super) fn take(&mut self) -> Box<Fetch> {
        self.kept.pop().unwrap_or_default()
    }

    /// Keeps one for later; the records in it have been taken out.
    pub(super) fn recycle(&mut self, mut fetch: Box<Fetch>) {
        if self.kept.len() < KEPT_MAX {
            let mut parts = std::mem::take(&mut fetch.parts);
            parts.clear();
            *fetch = Fetch { parts, ..Fetch::default() };
            self.kept.push(fetch);
        }
    }
}

/// One partition of a fetch.
#[derive(Debug)]
pub struct FetchPart {
    /// Name of its topic as the client knows it; empty when it asked by id.
    pub topic: Arc<str>,
    /// Id of its topic, from version 13 on.
    pub topic_id: TopicId,
    /// Which partition.
    pub index: PartitionIndex,
    /// Which partition, resolved; an error is its answer.
    pub partition: Result<PartitionId, ErrorCode>,
    /// What is asked for.
    pub wanted: Wanted,
    /// What was found.
    pub outcome: Option<FetchOutcome>,
    watching: bool,
}

/// What a client asks of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// First offset.
    pub offset: crate::ids::Offset,
    /// Most bytes.
    pub bytes_max: u32,
    /// The leader epoch that the client knows, −1 without one.
    pub current_leader_epoch: crate::ids::LeaderEpoch,
    /// Epoch of the last record the client has, −1 without one.
    pub last_fetched_epoch: crate::ids::LeaderEpoch,
}

impl FetchPart {
    /// A partition that has not been read yet.
    pub fn new(
        (topic, topic_id): (Arc<str>, TopicId),
        index: PartitionIndex,
        partition: Result<PartitionId, ErrorCode>,
        wanted: Wanted,
    ) -> FetchPart {
        FetchPart { topic, topic_id, index, partition, wanted, outcome: None, watching: false }
    }
}

impl Fetch {
    /// Whether what was found must be sent now (kafka-spec §4.2).
    fn is_due(&self) -> bool {
        let found = self.parts.iter().filter_map(|part| part.outcome.as_ref());
        let mut bytes = 0u64;
        for outcome in found {
            if outcome.error != ErrorCode::NONE || outcome.diverging.is_some() {
                return true;
            }
            bytes += u64::from(outcome.bytes);
        }
        self.last_pass || self.parts.is_empty() || bytes >= u64::from(self.bytes_min)
    }
}

impl Shard {
    /// A fetch starts.
    pub(super) fn start_fetch(&mut self, now: Now, wire: WireFetch, out: &mut Actions) {
        let WireFetch { reply, mut fetch, .. } = wire;
        let wait_ms = wire.max_wait_ms.max(0) as u64;
        fetch.bytes_max = wire.bytes_max.min(self.config.fetch_bytes_max);
        fetch.bytes_min = wire.bytes_min.min(fetch.bytes_max);
        (fetch.started, fetch.deadline) = (now.mono, now.mono.plus_millis(wait_ms));
        fetch.last_pass = wait_ms == 0;
        let id = self.requests.start(InService { reply, kind: Kind::Fetch(fetch) });
        self.read_pass(now, id, out);
    }

    /// Asks every partition once.
    fn read_pass(&mut self, now: Now, id: Ticket, out: &mut Actions) {
        let fetch = self.fetch_at(id);
        (fetch.asking, fetch.parked, fetch.grown) = (true, false, false);
        fetch.waiting = fetch.parts.len() as u32;
        let mut remaining = fetch.bytes_max;
        for slot in 0..self.fetch_at(id).parts.len() {
            let ask = self.ask_for(id, slot, remaining);
            self.route_fetch(now, id, slot, ask, out);
            let part = &self.fetch_at(id).parts[slot];
            let taken = part.outcome.as_ref().map_or(part.wanted.bytes_max, |outcome| outcome.bytes);
            remaining = remaining.saturating_sub(taken);
        }
        self.fetch_at(id).asking = false;
        self.conclude_pass(now, id, out);
    }

    fn ask_for(&mut self, id: Ticket, slot: usize, remaining: u32) -> Result<FetchAsk, ErrorCode> {
        let core = self.config.core;
        let fetch = self.fetch_at(id);
        let got_some = fetch.parts[..slot].iter().any(|part| part.outcome.as_ref().is_some_and(|o| o.bytes > 0));
        let watch_below = if fetch.last_pass { 0 } else { fetch.bytes_min.max(1) };
        let part = &fetch.parts[slot];
        Ok(FetchAsk {
            origin: Origin { core, ticket: id, slot: slot as u32 },
            partition: part.partition?,
            fetch_offset: part.wanted.offset,
            bytes_max: part.wanted.bytes_max.min(remaining),
            whole_first: !got_some,
            current_leader_epoch: part.wanted.current_leader_epoch,
            last_fetched_epoch: part.wanted.last_fetched_epoch,
            watch_below,
        })
    }

    fn route_fetch(&mut self, now: Now, id: Ticket, slot: usize, ask: Result<FetchAsk, ErrorCode>, out: &mut Actions) {
        let routed = ask.and_then(|ask| Ok((self.view.route(ask.partition)?, ask)));
        let core = self.config.core;
        match routed {
            Ok((owner, ask)) => {
                self.fetch_at(id).parts[slot].watching = ask.watch_below > 0;
                if owner == core {
                    self.on_fetch_ask(now, ask, out);
                } else {
                    out.push(Action::Mail { to: Peer::Core(owner), message: Message::Fetch(ask) });
                }
            }
            Err(code) => {
                let origin = Origin { core, ticket: id, slot: slot as u32 };
                self.on_fetched(now, origin, FetchOutcome::refused(code), out);
            }
        }
    }

    /// A partition of a fetch has answered.
    pub(super) fn on_fetched(&mut self, now: Now, origin: Origin, outcome: FetchOutcome, out: &mut Actions) {
        let Some(InService { kind: Kind::Fetch(fetch), .. }) = self.requests.at(origin.ticket) else {
            return self.release_records(outcome.records, out);
        };
        let part = &mut fetch.parts[origin.slot as usize];
        let old = part.outcome.replace(outcome);
        fetch.waiting -= 1;
        let asking = fetch.asking;
        if let Some(old) = old {
            self.release_records(old.records, out);
        }
        if !asking {
            self.conclude_pass(now, origin.ticket, out);
        }
    }

    /// Answers, or parks until something grows.
    fn conclude_pass(&mut self, now: Now, id: Ticket, out: &mut Actions) {
        let fetch = self.fetch_at(id);
        if fetch.waiting > 0 {
            return;
        }
        if fetch.is_due() {
            return self.finish_fetch(now, id, out);
        }
        if fetch.grown {
            return self.read_pass(now, id, out);
        }
        fetch.parked = true;
        if !std::mem::replace(&mut fetch.was_parked, true) {
            self.metrics.count.fetches_parked += 1;
            let deadline = self.fetch_at(id).deadline;
            self.timers.set(deadline, Timer::FetchWait(id));
        }
    }

    fn finish_fetch(&mut self, now: Now, id: Ticket, out: &mut Actions) {
        self.unwatch_all(id, out);
        let Some(InService { reply, kind: Kind::Fetch(mut fetch) }) = self.requests.finish(id) else {
            panic!("request {id} is no fetch");
        };
        self.trim(&mut fetch, out);
        let waited = now.mono.micros_since(fetch.started);
        let stage = if fetch.was_parked { FetchStage::Parked } else { FetchStage::Read };
        self.metrics.fetch_stage(stage, waited);
        self.send_fetch_answer(reply, fetch, out);
    }

    /// Lets go of what exceeds the limit of the whole answer: partitions on other cores were asked before it was known
    /// what the ones before them would return.
    fn trim(&mut self, fetch: &mut Fetch, out: &mut Actions) {
        let mut bytes = 0u64;
        for part in &mut fetch.parts {
            let Some(outcome) = &mut part.outcome else { continue };
            let over = bytes > 0 && bytes + u64::from(outcome.bytes) > u64::from(fetch.bytes_max);
            if over {
                outcome.bytes = 0;
                let records = std::mem::take(&mut outcome.records);
                self.release_records(records, out);
            }
            bytes += u64::from(outcome.bytes);
        }
    }

    /// A watched partition has grown, or fails now.
    pub(super) fn on_grew(&mut self, now: Now, origin: Origin, out: &mut Actions) {
        let Some(InService { kind: Kind::Fetch(fetch), .. }) = self.requests.at(origin.ticket) else { return };
        fetch.parts[origin.slot as usize].watching = false;
        if fetch.parked {
            self.read_pass(now, origin.ticket, out);
        } else {
            fetch.grown = true;
        }
    }

    /// The time of a fetch is over: one last pass, and what it finds is sent.
    pub(super) fn on_fetch_wait_over(&mut self, now: Now, id: Ticket, out: &mut Actions) {
        let Some(InService { kind: Kind::Fetch(fetch), .. }) = self.requests.at(id) else { return };
        fetch.last_pass = true;
        if fetch.parked {
            self.read_pass(now, id, out);
        }
    }

    /// The broker stops: parked fetches are answered with what there is.
    pub(super) fn answer_parked_fetches(&mut self, now: Now, out: &mut Actions) {
        let is_fetch = |request: &InService| matches!(request.kind, Kind::Fetch(_));
        let parked: Vec<Ticket> = self.requests.iter().filter(|(_, r)| is_fetch(r)).map(|(id, _)| id).collect();
        for id in parked {
            self.on_fetch_wait_over(now, id, out);
        }
    }

    /// The connection of a fetch has ended.
    pub(super) fn abandon_fetch(&mut self, id: Ticket, out: &mut Actions) {
        self.unwatch_all(id, out);
        if let Some(InService { kind: Kind::Fetch(mut fetch), .. }) = self.requests.finish(id) {
            self.release_all_records(&mut fetch, out);
            self.fetches.recycle(fetch);
        }
    }

    /// Gives the records of all partitions back.
    pub(super) fn release_all_records(&mut self, fetch: &mut Fetch, out: &mut Actions) {
        for outcome in fetch.parts.iter_mut().filter_map(|part| part.outcome.as_mut()) {
            self.release_records(std::mem::take(&mut outcome.records), out);
        }
    }

    fn unwatch_all(&mut self, id: Ticket, out: &mut Actions) {
        let core = self.config.core;
        for slot in 0..self.fetch_at(id).parts.len() {
            let part = &mut self.fetch_at(id).parts[slot];
            let watching = std::mem::take(&mut part.watching);
            let (true, Ok(partition)) = (watching, part.partition) else { continue };
            let origin = Origin { core, ticket: id, slot: slot as u32 };
            match self.view.route(partition) {
                Ok(owner) if owner != core => {
                    out.push(Action::Mail { to: Peer::Core(owner), message: Message::Unwatch { origin, partition } });
                }
                _ => self.on_unwatch(origin, partition),
            }
        }
    }

    pub(super) fn fetch_at(&mut self, id: Ticket) -> &mut Fetch {
        match self.requests.at(id) {
            Some(InService { kind: Kind::Fetch(fetch), .. }) => fetch,
            _ => panic!("request {id} is no fetch in service"),
        }
    }
}
