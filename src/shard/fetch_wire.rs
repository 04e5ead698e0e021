//! Fetch on the wire: the request with its session applied, and the answer with its records by reference.

use crate::ids::{Now, PartitionId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::fetch::{FetchHead, FetchResponseWriter, FetchView};
use crate::kafka::schema::fetch as schema;
use crate::kafka::schema::{Hole, Records};
use crate::metrics::FetchStage;
use crate::shard::Shard;
use crate::shard::action::{Actions, Part};
use crate::shard::dispatch::{Reply, Request};
use crate::shard::fetch::{Fetch, FetchPart, FetchPool, Wanted};
use crate::shard::fetch_session::{Key, Opened, Opening, WireFetch};
use crate::shard::message::{ClusterView, FetchOutcome};

impl Shard {
    pub(super) fn on_fetch(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let view = match FetchView::parse(request.header.api_version, request.body) {
            Ok(view) => view,
            Err(fault) => return self.close_unreadable(now, request, &fault, out),
        };
        if view.replica.replica_id.0 >= 0 {
            return self.close_for(now, request.conn, "a replica fetched on a client listener", out);
        }
        self.metrics.fetch_stage(FetchStage::Planned, self.metrics.micros_since(request.received));
        let reply = Reply::of(request);
        match self.open_fetch(now, reply, &view) {
            Ok(wire) => self.start_fetch(now, wire, out),
            Err(code) => {
                let fetch = self.fetches.take();
                self.encode_fetch_answer(reply, fetch, code, out);
            }
        }
    }

    fn open_fetch(&mut self, now: Now, reply: Reply, request: &FetchView<'_>) -> Result<WireFetch, ErrorCode> {
        self.fetches.read_names(&self.view, request);
        let opening = Opening { id: request.session_id, epoch: request.session_epoch, by_id: reply.version >= 13 };
        let FetchPool { named, forgotten, .. } = &self.fetches;
        let opened = self.fetch_sessions.open(now.mono, opening, named, forgotten);
        let mut fetch = self.fetches.take();
        let view = &self.view;
        match opened {
            Opened::Refused(code) => {
                self.fetches.recycle(fetch);
                return Err(code);
            }
            Opened::Sessionless => {
                fetch.parts.extend(self.fetches.named.iter().map(|(key, wanted)| fetch_part(view, key, *wanted)));
            }
            Opened::Session(session) => {
                fetch.session = Some(session);
                let parts = self.fetch_sessions.parts(session);
                fetch.parts.extend(parts.map(|(key, wanted)| fetch_part(view, key, wanted)));
            }
        }
        Ok(WireFetch {
            reply,
            fetch,
            max_wait_ms: request.max_wait_ms,
            bytes_min: request.min_bytes.max(0) as u32,
            bytes_max: request.max_bytes.max(0) as u32,
        })
    }

    /// Sends the answer of a fetch whose partitions have all answered.
    pub(super) fn send_fetch_answer(&mut self, reply: Reply, mut fetch: Box<Fetch>, out: &mut Actions) {
        let code = match self.fetch_sessions.conclude(&mut fetch) {
            Ok(()) => ErrorCode::NONE,
            Err(code) => {
                self.release_all_records(&mut fetch, out);
                fetch.parts.clear();
                code
            }
        };
        self.encode_fetch_answer(reply, fetch, code, out);
    }

    fn encode_fetch_answer(&mut self, reply: Reply, mut fetch: Box<Fetch>, code: ErrorCode, out: &mut Actions) {
        let mut frame = self.begin_answer(&reply);
        let mut holes = std::mem::take(&mut self.buffers.holes);
        write_response(&fetch, code, reply.version, &mut frame, &mut holes);
        self.metrics.request(reply.api, code);
        let found = fetch.parts.iter_mut().filter_map(|part| part.outcome.as_mut());
        let mut found = found.filter(|outcome| outcome.bytes > 0);
        let mut rest = self.buffers.parts();
        for (index, hole) in holes.iter().enumerate() {
            let outcome = found.next().expect("a hole for each partition with records");
            self.metrics.count.bytes_fetched += u64::from(outcome.bytes);
            rest.append(&mut outcome.records);
            self.buffers.recycle_parts(std::mem::take(&mut outcome.records));
            let end = holes.get(index + 1).map_or(frame.len(), |next| next.at);
            if hole.at < end {
                let mut piece = self.buffers.bytes();
                piece.extend_from_slice(&frame[hole.at..end]);
                rest.push(Part::Bytes(piece));
            }
        }
        if let Some(first) = holes.first() {
            frame.truncate(first.at);
        }
        holes.clear();
        self.buffers.holes = holes;
        self.fetches.recycle(fetch);
        self.answer(reply.conn, reply.ticket, frame, rest, out);
    }
}

impl FetchPool {
    /// Takes what a request names and forgets into the lists. A topic that exists lends its name.
    fn read_names(&mut self, view: &ClusterView, request: &FetchView<'_>) {
        self.named.clear();
        self.forgotten.clear();
        let FetchPool { named, forgotten, no_name, .. } = self;
        let name = |name: &str| match view.image.topics.get(name) {
            _ if name.is_empty() => no_name.clone(),
            Some(topic) => topic.name.clone(),
            None => name.into(),
        };
        for topic in request.topics() {
            let shared = name(topic.name);
            for partition in topic.partitions() {
                let key = Key { topic: shared.clone(), topic_id: topic.id, index: partition.partition };
                named.push((key, wanted(&partition)));
            }
        }
        for topic in request.forgotten() {
            let shared = name(topic.name);
            let keys = topic.partitions();
            forgotten.extend(keys.map(|index| Key { topic: shared.clone(), topic_id: topic.id, index }));
        }
    }
}

fn wanted(partition: &schema::FetchPartition) -> Wanted {
    Wanted {
        offset: partition.fetch_offset,
        bytes_max: partition.partition_max_bytes.max(0) as u32,
        current_leader_epoch: partition.current_leader_epoch,
        last_fetched_epoch: partition.last_fetched_epoch,
    }
}

fn fetch_part(view: &ClusterView, key: &Key, wanted: Wanted) -> FetchPart {
    let topic = view.topic_id(&key.topic, key.topic_id);
    let partition = topic.map(|topic| PartitionId { topic, index: key.index });
    FetchPart::new((key.topic.clone(), key.topic_id), key.index, partition, wanted)
}

/// Neighbours of one topic are told together.
fn same_topic(one: &FetchPart, next: &FetchPart) -> bool {
    one.topic_id == next.topic_id && one.topic == next.topic
}

fn write_response(fetch: &Fetch, code: ErrorCode, version: i16, frame: &mut Vec<u8>, holes: &mut Vec<Hole>) {
    let session_id = fetch.session.map_or(0, |session| session.id);
    let head = FetchHead { throttle_time_ms: 0, error_code: code, session_id };
    let topics = || fetch.parts.chunk_by(same_topic);
    let mut writer = FetchResponseWriter::begin(version, head, topics().count(), frame, holes);
    for topic in topics() {
        writer.topic(&topic[0].topic, topic[0].topic_id, topic.len());
        for part in topic {
            let outcome = part.outcome.as_ref().expect("a fetch is answered when all its partitions are");
            writer.partition(&partition_data(part, outcome));
        }
    }
    writer.finish(&[]);
}

fn partition_data<'a>(part: &FetchPart, outcome: &FetchOutcome) -> schema::PartitionData<'a> {
    let mut data = schema::PartitionData {
        partition_index: part.index,
        error_code: outcome.error,
        high_watermark: outcome.high_watermark,
        last_stable_offset: outcome.last_stable,
        log_start_offset: outcome.log_start,
        records: Records::ByReference(outcome.bytes),
        ..Default::default()
    };
    if let Some((epoch, end_offset)) = outcome.diverging {
        data.diverging_epoch = schema::EpochEndOffset { epoch: epoch.0, end_offset };
    }
    data
}
