//! The hot path of Fetch: a view of the request and a writer of the response, neither of which allocates.
//!
//! Both say the same as [`schema::fetch`](super::schema::fetch), which the tests hold against them.

use super::error_code::ErrorCode;
use super::schema::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, NodeEndpoint, PartitionData, ReplicaState,
};
use super::schema::{DecodeError, Hole, Message, Reader, Wire, Writer};
use super::topics::{Elements, TopicView, TopicsWriter, write_node_endpoints};
use crate::ids::{BrokerId, PartitionIndex, TopicId};

/// A Fetch request whose structure has been checked.
#[derive(Clone, Debug)]
pub struct FetchView<'a> {
    /// Who fetches: the follower, or −1 and −1 for a consumer, whichever field the version has it in.
    pub replica: ReplicaState,
    /// Cluster that the follower thinks it is in.
    pub cluster_id: Option<&'a str>,
    /// How long to wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: i32,
    /// Answer at once when this many bytes are there.
    pub min_bytes: i32,
    /// Bytes of records to return at most, but for the first batch.
    pub max_bytes: i32,
    /// 0: all records below the high watermark; 1: below the last stable offset.
    pub isolation_level: i8,
    /// Fetch session (KIP-227); 0 for none.
    pub session_id: i32,
    /// Epoch of the session: −1 without one, 0 to open one.
    pub session_epoch: i32,
    /// Rack of the consumer; empty when it says none.
    pub rack_id: &'a str,
    version: i16,
    topics: Elements<'a, TopicView<'a, FetchPartition>>,
    forgotten: Elements<'a, TopicView<'a, PartitionIndex>>,
}

impl<'a> FetchView<'a> {
    /// Checks the body of a request.
    ///
    /// # Errors
    /// When the bytes are no Fetch request of this version.
    pub fn parse(version: i16, body: &'a [u8]) -> Result<FetchView<'a>, DecodeError> {
        let form = FetchRequest::form(version).ok_or(DecodeError::Version(version))?;
        let reader = &mut Reader::new(body);
        let mut replica = ReplicaState::default();
        if version < REPLICA_STATE_FROM {
            replica.replica_id = BrokerId::read(reader, form)?;
        }
        let [max_wait_ms, min_bytes, max_bytes] =
            [i32::read(reader, form)?, i32::read(reader, form)?, i32::read(reader, form)?];
        let isolation_level = i8::read(reader, form)?;
        let with_session = version >= SESSIONS_FROM;
        let session_id = if with_session { i32::read(reader, form)? } else { 0 };
        let session_epoch = if with_session { i32::read(reader, form)? } else { -1 };
        let topics = Elements::check(reader, form)?;
        let forgotten = if with_session { Elements::check(reader, form)? } else { Elements::none(form) };
        let rack_id = if version >= RACKS_FROM { Wire::read(reader, form)? } else { "" };
        let mut cluster_id = None;
        if form.flexible {
            reader.tags(|tag, content| {
                match tag {
                    0 => cluster_id = Wire::read(content, form.nullable())?,
                    1 if version >= REPLICA_STATE_FROM => replica = Wire::read(content, form)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(FetchView {
            replica,
            cluster_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            rack_id,
            version,
            topics,
            forgotten,
        })
    }

    /// The same as a message of the schema, which allocates; the tests compare.
    pub fn to_message(&self) -> FetchRequest<'a> {
        let tagged = self.version >= REPLICA_STATE_FROM;
        let topic = |topic: TopicView<'a, _>| FetchTopic {
            topic: topic.name,
            topic_id: topic.id,
            partitions: topic.partitions().collect(),
        };
        let forgotten = |topic: TopicView<'a, _>| ForgottenTopic {
            topic: topic.name,
            topic_id: topic.id,
            partitions: topic.partitions().collect(),
        };
        FetchRequest {
            cluster_id: self.cluster_id,
            replica_id: if tagged { BrokerId(-1) } else { self.replica.replica_id },
            replica_state: if tagged { self.replica.clone() } else { ReplicaState::default() },
            max_wait_ms: self.max_wait_ms,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            isolation_level: self.isolation_level,
            session_id: self.session_id,
            session_epoch: self.session_epoch,
            topics: self.topics().map(topic).collect(),
            forgotten_topics_data: self.forgotten().map(forgotten).collect(),
            rack_id: self.rack_id,
        }
    }

    /// The topics to read, in the order of the request.
    pub fn topics(&self) -> Elements<'a, TopicView<'a, FetchPartition>> {
        self.topics.clone()
    }

    /// The partitions that leave the session.
    pub fn forgotten(&self) -> Elements<'a, TopicView<'a, PartitionIndex>> {
        self.forgotten.clone()
    }
}

/// Writes the body of a Fetch response piece by piece. Record bytes may be given by reference
/// ([`Records::ByReference`](super::schema::Records)): then the buffer has none of them and `holes` says where they go.
#[derive(Debug)]
pub struct FetchResponseWriter<'o> {
    topics: TopicsWriter<'o>,
    version: i16,
}

/// What a Fetch response says before its topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FetchHead {
    /// How long the client was throttled, in milliseconds.
    pub throttle_time_ms: i32,
    /// An error of the request as a whole; versions below 7 cannot say it.
    pub error_code: ErrorCode,
    /// The session; 0 for none.
    pub session_id: i32,
}

impl<'o> FetchResponseWriter<'o> {
    /// Begins a response with this many topics; it is appended to `out`.
    ///
    /// # Panics
    /// When the version is not declared; requests are checked for it.
    pub fn begin(
        version: i16,
        head: FetchHead,
        topics: usize,
        out: &'o mut Vec<u8>,
        holes: &'o mut Vec<Hole>,
    ) -> FetchResponseWriter<'o> {
        let form = FetchResponse::form(version).expect("the version was checked with the request");
        let mut writer = Writer::with_holes(out, holes);
        head.throttle_time_ms.write(&mut writer, form);
        if version >= SESSIONS_FROM {
            head.error_code.write(&mut writer, form);
            head.session_id.write(&mut writer, form);
        }
        FetchResponseWriter { topics: TopicsWriter::begin(writer, form, topics), version }
    }

    /// Begins a topic with this many partitions; the version decides whether name or id is written.
    ///
    /// # Panics
    /// When more topics or fewer partitions come than were announced.
    pub fn topic(&mut self, name: &str, id: TopicId, partitions: usize) {
        self.topics.topic(name, id, partitions);
    }

    /// Appends a partition of the topic begun last.
    ///
    /// # Panics
    /// When more partitions come than were announced.
    pub fn partition(&mut self, partition: &PartitionData<'_>) {
        self.topics.partition(partition);
    }

    /// Ends the response. `endpoints` are the addresses of the current leaders that partitions name (KIP-951).
    ///
    /// # Panics
    /// When fewer topics or partitions came than were announced.
    pub fn finish(self, endpoints: &[NodeEndpoint<'_>]) {
        let form = FetchResponse::form(self.version).expect("checked at the beginning");
        let mut writer = self.topics.end();
        write_node_endpoints(&mut writer, form, NODE_ENDPOINTS_FROM, endpoints);
    }
}

/// First version with sessions.
const SESSIONS_FROM: i16 = 7;
/// First version with the consumer's rack.
const RACKS_FROM: i16 = 11;
/// First version that has the follower in a tagged struct.
const REPLICA_STATE_FROM: i16 = 15;
/// First version with the addresses of current leaders.
const NODE_ENDPOINTS_FROM: i16 = 16;

#[cfg(test)]
mod tests {
    use super::super::schema::dice::Dice;
    use super::super::schema::fetch::{Fetch, FetchableTopicResponse};
    use super::super::schema::{Api, Records};
    use super::*;

    fn versions_and_dice() -> impl Iterator<Item = (i16, Dice)> {
        (Fetch::MIN..=Fetch::MAX).flat_map(|version| (0..50).map(move |seed| (version, Dice::new(seed))))
    }

    #[test]
    fn the_view_says_what_the_schema_says() {
        for (version, mut dice) in versions_and_dice() {
            let request = FetchRequest::random(&mut dice, FetchRequest::form(version).expect("declared"));
            let mut body = Vec::new();
            request.encode(version, &mut body);
            let view = FetchView::parse(version, &body).expect("what the schema encodes");
            assert_eq!(view.to_message(), request, "version {version}");
        }
    }

    #[test]
    fn the_writer_writes_what_the_schema_writes() {
        for (version, mut dice) in versions_and_dice() {
            let response = FetchResponse::random(&mut dice, FetchResponse::form(version).expect("declared"));
            let mut whole = Vec::new();
            response.encode(version, &mut whole);
            let by_reference = by_reference(&response);
            let (mut pieces, mut holes) = (Vec::new(), Vec::new());
            write_in_pieces(version, &by_reference, &mut pieces, &mut holes);
            assert_eq!(filled(&pieces, &holes, &response), whole, "version {version}");
            let (mut encoded, mut same_holes) = (Vec::new(), Vec::new());
            by_reference.encode_with_holes(version, &mut encoded, &mut same_holes);
            assert_eq!((encoded, same_holes), (pieces, holes), "version {version}");
        }
    }

    fn by_reference<'a>(response: &FetchResponse<'a>) -> FetchResponse<'a> {
        let mut changed = response.clone();
        for data in changed.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if let Records::Bytes(bytes) = data.records {
                data.records = Records::ByReference(bytes.len() as u32);
            }
        }
        changed
    }

    fn write_in_pieces(version: i16, response: &FetchResponse<'_>, out: &mut Vec<u8>, holes: &mut Vec<Hole>) {
        let &FetchResponse { throttle_time_ms, error_code, session_id, .. } = response;
        let head = FetchHead { throttle_time_ms, error_code, session_id };
        let mut writer = FetchResponseWriter::begin(version, head, response.responses.len(), out, holes);
        for FetchableTopicResponse { topic, topic_id, partitions } in &response.responses {
            writer.topic(topic, *topic_id, partitions.len());
            partitions.iter().for_each(|partition| writer.partition(partition));
        }
        writer.finish(&response.node_endpoints);
    }

    fn filled(pieces: &[u8], holes: &[Hole], response: &FetchResponse<'_>) -> Vec<u8> {
        let records =
            response.responses.iter().flat_map(|topic| &topic.partitions).filter_map(|data| match data.records {
                Records::Bytes(bytes) if !bytes.is_empty() => Some(bytes),
                _ => None,
            });
        let (mut out, mut from) = (Vec::new(), 0);
        for (hole, bytes) in holes.iter().zip(records) {
            assert_eq!(hole.bytes as usize, bytes.len());
            out.extend_from_slice(&pieces[from..hole.at]);
            out.extend_from_slice(bytes);
            from = hole.at;
        }
        out.extend_from_slice(&pieces[from..]);
        out
    }
}
