//! The hot path of Produce: a view of the request and a writer of the response, neither of which allocates.
//!
//! Both say the same as [`schema::produce`](super::schema::produce), which the tests hold against them.

use super::schema::produce::{
    NodeEndpoint, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
};
use super::schema::{DecodeError, Message, Reader, Wire, Writer};
use super::topics::{Elements, TopicView, TopicsWriter, write_node_endpoints};
use crate::ids::TopicId;

/// A Produce request whose structure has been checked. The record batches in it have not been looked at.
#[derive(Clone, Debug)]
pub struct ProduceView<'a> {
    transactional_id: Option<&'a str>,
    acks: i16,
    timeout_ms: i32,
    topics: Elements<'a, TopicView<'a, PartitionProduceData<'a>>>,
}

impl<'a> ProduceView<'a> {
    /// Checks the body of a request. The cost grows with the number of partitions, not with their bytes.
    ///
    /// # Errors
    /// When the bytes are no Produce request of this version.
    pub fn parse(version: i16, body: &'a [u8]) -> Result<ProduceView<'a>, DecodeError> {
        let form = ProduceRequest::form(version).ok_or(DecodeError::Version(version))?;
        let reader = &mut Reader::new(body);
        let transactional_id = Wire::read(reader, form.nullable())?;
        let acks = Wire::read(reader, form)?;
        let timeout_ms = Wire::read(reader, form)?;
        let topics = Elements::check(reader, form)?;
        if form.flexible {
            reader.skip_tags()?;
        }
        Ok(ProduceView { transactional_id, acks, timeout_ms, topics })
    }

    /// Id of the transaction; null outside of one.
    pub fn transactional_id(&self) -> Option<&'a str> {
        self.transactional_id
    }

    /// When to answer: 0 never, 1 when the leader has the records, −1 when the in-sync replicas have them. Other values
    /// are the client's mistake.
    pub fn acks(&self) -> i16 {
        self.acks
    }

    /// How long to wait for the in-sync replicas, in milliseconds.
    pub fn timeout_ms(&self) -> i32 {
        self.timeout_ms
    }

    /// The same as a message of the schema, which allocates; the tests compare.
    pub fn to_message(&self) -> ProduceRequest<'a> {
        let topic = |topic: TopicView<'a, _>| TopicProduceData {
            name: topic.name,
            topic_id: topic.id,
            partition_data: topic.partitions().collect(),
        };
        let &ProduceView { transactional_id, acks, timeout_ms, .. } = self;
        ProduceRequest { transactional_id, acks, timeout_ms, topic_data: self.topics().map(topic).collect() }
    }

    /// The topics in the order of the request.
    pub fn topics(&self) -> Elements<'a, TopicView<'a, PartitionProduceData<'a>>> {
        self.topics.clone()
    }
}

/// Writes the body of a Produce response piece by piece.
#[derive(Debug)]
pub struct ProduceResponseWriter<'o> {
    topics: TopicsWriter<'o>,
    version: i16,
}

impl<'o> ProduceResponseWriter<'o> {
    /// Begins a response with this many topics; it is appended to `out`.
    ///
    /// # Panics
    /// When the version is not declared; requests are checked for it.
    pub fn begin(version: i16, topics: usize, out: &'o mut Vec<u8>) -> ProduceResponseWriter<'o> {
        let form = ProduceResponse::form(version).expect("the version was checked with the request");
        ProduceResponseWriter { topics: TopicsWriter::begin(Writer::new(out), form, topics), version }
    }

    /// Begins a topic with this many partitions; the version decides whether name or id is written.
    ///
    /// # Panics
    /// When more topics or fewer partitions come than were announced.
    pub fn topic(&mut self, name: &str, id: TopicId, partitions: usize) {
        self.topics.topic(name, id, partitions);
    }

    /// Appends what became of a partition of the topic begun last.
    ///
    /// # Panics
    /// When more partitions come than were announced.
    pub fn partition(&mut self, partition: &PartitionProduceResponse<'_>) {
        self.topics.partition(partition);
    }

    /// Ends the response. `endpoints` are the addresses of the current leaders that partitions name (KIP-951).
    ///
    /// # Panics
    /// When fewer topics or partitions came than were announced.
    pub fn finish(self, throttle_time_ms: i32, endpoints: &[NodeEndpoint<'_>]) {
        let form = ProduceResponse::form(self.version).expect("checked at the beginning");
        let mut writer = self.topics.end();
        throttle_time_ms.write(&mut writer, form);
        write_node_endpoints(&mut writer, form, NODE_ENDPOINTS_FROM, endpoints);
    }
}

/// First version with the addresses of current leaders.
const NODE_ENDPOINTS_FROM: i16 = 10;

#[cfg(test)]
mod tests {
    use super::super::schema::Api;
    use super::super::schema::dice::Dice;
    use super::super::schema::produce::{Produce, TopicProduceResponse};
    use super::*;

    fn versions_and_dice() -> impl Iterator<Item = (i16, Dice)> {
        (Produce::MIN..=Produce::MAX).flat_map(|version| (0..50).map(move |seed| (version, Dice::new(seed))))
    }

    #[test]
    fn the_view_says_what_the_schema_says() {
        for (version, mut dice) in versions_and_dice() {
            let form = ProduceRequest::form(version).expect("declared");
            let request = ProduceRequest::random(&mut dice, form);
            let mut body = Vec::new();
            request.encode(version, &mut body);
            let view = ProduceView::parse(version, &body).expect("what the schema encodes");
            assert_eq!(view.to_message(), request, "version {version}");
        }
    }

    #[test]
    fn the_writer_writes_what_the_schema_writes() {
        for (version, mut dice) in versions_and_dice() {
            let form = ProduceResponse::form(version).expect("declared");
            let response = ProduceResponse::random(&mut dice, form);
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            response.encode(version, &mut whole);
            let mut writer = ProduceResponseWriter::begin(version, response.responses.len(), &mut pieces);
            for TopicProduceResponse { name, topic_id, partition_responses } in &response.responses {
                writer.topic(name, *topic_id, partition_responses.len());
                partition_responses.iter().for_each(|partition| writer.partition(partition));
            }
            writer.finish(response.throttle_time_ms, &response.node_endpoints);
            assert_eq!(pieces, whole, "version {version}");
        }
    }

    #[test]
    fn a_view_of_any_half_of_a_request_is_a_fault() {
        let mut body = Vec::new();
        let records = PartitionProduceData { records: Some(b"records"), ..Default::default() };
        let topic = TopicProduceData { name: "t", partition_data: vec![records], ..Default::default() };
        ProduceRequest { topic_data: vec![topic], ..Default::default() }.encode(9, &mut body);
        for end in 0..body.len() {
            assert!(ProduceView::parse(9, &body[..end]).is_err(), "{end} of {} bytes", body.len());
        }
        assert!(ProduceView::parse(2, &body).is_err());
    }
}
