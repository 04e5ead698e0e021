//! Fetch on the wire: the request with its session applied, and the answer with its records by reference.

use std::sync::Arc;

use crate::ids::{Now, PartitionId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::fetch as schema;
use crate::kafka::schema::{Message as _, Records};
use crate::shard::Shard;
use crate::shard::action::{Actions, Part};
use crate::shard::dispatch::{Reply, Request};
use crate::shard::fetch::{Fetch, FetchPart, Wanted};
use crate::shard::fetch_session::{Key, Opened, Opening, SessionRef, WireFetch};
use crate::shard::message::FetchOutcome;

impl Shard {
    pub(super) fn on_fetch(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<schema::FetchRequest<'_>>(now, request, out) else { return };
        if message.replica_id.0 >= 0 || message.replica_state.replica_id.0 >= 0 {
            return self.close_for(now, request.conn, "a replica fetched on a client listener", out);
        }
        let reply = Reply::of(request);
        match self.open_fetch(now, reply, &message) {
            Ok(wire) => self.start_fetch(now, wire, out),
            Err(code) => self.encode_fetch_answer(reply, Fetch::default(), code, out),
        }
    }

    fn open_fetch(
        &mut self,
        now: Now,
        reply: Reply,
        request: &schema::FetchRequest<'_>,
    ) -> Result<WireFetch, ErrorCode> {
        let by_id = reply.version >= 13;
        let named = named(request);
        let forgotten = forgotten(request);
        let opening = Opening { id: request.session_id, epoch: request.session_epoch, by_id };
        let (session, parts) = match self.fetch_sessions.open(now.mono, opening, &named, &forgotten) {
            Opened::Refused(code) => return Err(code),
            Opened::Sessionless => (None, named.iter().map(|(key, wanted)| self.fetch_part(key, *wanted)).collect()),
            Opened::Session(session) => {
                let parts = self.fetch_sessions.parts(session).map(|(key, wanted)| self.fetch_part(key, wanted));
                (Some(session), parts.collect())
            }
        };
        Ok(WireFetch {
            reply,
            session,
            parts,
            max_wait_ms: request.max_wait_ms,
            bytes_min: request.min_bytes.max(0) as u32,
            bytes_max: request.max_bytes.max(0) as u32,
        })
    }

    fn fetch_part(&self, key: &Key, wanted: Wanted) -> FetchPart {
        let topic = self.view.topic_id(&key.topic, key.topic_id);
        let partition = topic.map(|topic| PartitionId { topic, index: key.index });
        FetchPart::new((key.topic.clone(), key.topic_id), key.index, partition, wanted)
    }

    /// Sends the answer of a fetch whose partitions have all answered.
    pub(super) fn send_fetch_answer(&mut self, reply: Reply, mut fetch: Fetch, out: &mut Actions) {
        let code = match self.fetch_sessions.conclude(&mut fetch) {
            Ok(()) => ErrorCode::NONE,
            Err(code) => {
                for part in fetch.parts.drain(..) {
                    let records = part.outcome.map(|outcome| outcome.records).unwrap_or_default();
                    self.release_records(records, out);
                }
                code
            }
        };
        self.encode_fetch_answer(reply, fetch, code, out);
    }

    fn encode_fetch_answer(&mut self, reply: Reply, mut fetch: Fetch, code: ErrorCode, out: &mut Actions) {
        let mut frame = self.begin_answer(&reply);
        let mut holes = std::mem::take(&mut self.buffers.holes);
        response(&fetch, code).encode_with_holes(reply.version, &mut frame, &mut holes);
        self.metrics.request(reply.api, code);
        let found = fetch.parts.iter_mut().filter_map(|part| part.outcome.as_mut());
        let mut records = found.filter(|outcome| outcome.bytes > 0).map(|outcome| std::mem::take(&mut outcome.records));
        let mut rest = self.buffers.parts();
        // The frame is cut at the holes, from the end, so that each cut moves little.
        let mut tails: Vec<Vec<u8>> = Vec::with_capacity(holes.len());
        for hole in holes.iter().rev() {
            let mut tail = self.buffers.bytes();
            tail.extend_from_slice(&frame[hole.at..]);
            frame.truncate(hole.at);
            tails.push(tail);
        }
        holes.clear();
        while let Some(tail) = tails.pop() {
            rest.extend(records.next().expect("a hole for each partition with records"));
            if tail.is_empty() {
                self.buffers.recycle_bytes(tail);
            } else {
                rest.push(Part::Bytes(tail));
            }
        }
        drop(records);
        self.buffers.holes = holes;
        self.answer(reply.conn, reply.ticket, frame, rest, out);
    }
}

fn named(request: &schema::FetchRequest<'_>) -> Vec<(Key, Wanted)> {
    let mut named = Vec::new();
    for topic in &request.topics {
        let name: Arc<str> = topic.topic.into();
        for partition in &topic.partitions {
            let key = Key { topic: name.clone(), topic_id: topic.topic_id, index: partition.partition };
            let wanted = Wanted {
                offset: partition.fetch_offset,
                bytes_max: partition.partition_max_bytes.max(0) as u32,
                current_leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
            };
            named.push((key, wanted));
        }
    }
    named
}

fn forgotten(request: &schema::FetchRequest<'_>) -> Vec<Key> {
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let name: Arc<str> = topic.topic.into();
        let keys = topic.partitions.iter();
        forgotten.extend(keys.map(|index| Key { topic: name.clone(), topic_id: topic.topic_id, index: *index }));
    }
    forgotten
}

fn response(fetch: &Fetch, code: ErrorCode) -> schema::FetchResponse<'_> {
    let mut responses: Vec<schema::FetchableTopicResponse<'_>> = Vec::new();
    for part in &fetch.parts {
        let outcome = part.outcome.as_ref().expect("a fetch is answered when all its partitions are");
        let same =
            |last: &schema::FetchableTopicResponse<'_>| last.topic == &*part.topic && last.topic_id == part.topic_id;
        if !responses.last().is_some_and(same) {
            responses.push(schema::FetchableTopicResponse {
                topic: &part.topic,
                topic_id: part.topic_id,
                partitions: Vec::new(),
            });
        }
        responses.last_mut().expect("pushed above").partitions.push(partition_data(part, outcome));
    }
    schema::FetchResponse {
        error_code: code,
        session_id: fetch.session.map_or(0, |session: SessionRef| session.id),
        responses,
        ..Default::default()
    }
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
