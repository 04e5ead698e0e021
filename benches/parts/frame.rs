//! Header and body of a request as the broker reads them: beside the same with the messages of the schema, which
//! allocate.

use std::hint::black_box;

use pinion::ids::{Offset, PartitionIndex, TopicId};
use pinion::kafka::api::ApiKey;
use pinion::kafka::fetch::FetchView;
use pinion::kafka::frame::{request_header, write_request_header};
use pinion::kafka::produce::ProduceView;
use pinion::kafka::schema::{Api, Message, Reader, fetch, produce};

use crate::{Clock, beside};

const TOPIC: TopicId = TopicId([7; 16]);

pub fn run(clock: &Clock) {
    for partitions in [1, 100] {
        parse_produce(clock, partitions);
        parse_fetch(clock, partitions);
    }
}

fn parse_produce(clock: &Clock, partitions: i32) {
    let version = produce::Produce::MAX;
    let of = |index| produce::PartitionProduceData { index: PartitionIndex(index), records: Some(&[7; 1100]) };
    let data = produce::TopicProduceData {
        topic_id: TOPIC,
        partition_data: (0..partitions).map(of).collect(),
        ..Default::default()
    };
    let request = produce::ProduceRequest { acks: 1, topic_data: vec![data], ..Default::default() };
    let frame = frame(version, &request);
    let view = clock.nanos(100_000 / partitions as usize, |_| {
        let header = request_header(&frame).expect("a header");
        let view = ProduceView::parse(version, header.body(&frame)).expect("a request");
        let mut bytes = 0;
        for topic in view.topics() {
            bytes += topic.partitions().filter_map(|partition| partition.records).map(<[u8]>::len).sum::<usize>();
        }
        black_box(bytes);
    });
    let decoded = clock.nanos(100_000 / partitions as usize, |_| {
        let header = request_header(&frame).expect("a header");
        black_box(produce::ProduceRequest::decode(version, &mut Reader::new(header.body(&frame))).expect("a request"));
    });
    beside(&format!("produce request of {partitions} partitions"), view, "decoded into messages", decoded);
}

fn parse_fetch(clock: &Clock, partitions: i32) {
    let version = fetch::Fetch::MAX;
    let of = |index| fetch::FetchPartition {
        partition: PartitionIndex(index),
        fetch_offset: Offset(5),
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic =
        fetch::FetchTopic { topic_id: TOPIC, partitions: (0..partitions).map(of).collect(), ..Default::default() };
    let frame = frame(version, &fetch::FetchRequest { topics: vec![topic], ..Default::default() });
    let view = clock.nanos(100_000 / partitions as usize, |_| {
        let header = request_header(&frame).expect("a header");
        let view = FetchView::parse(version, header.body(&frame)).expect("a request");
        black_box(
            view.topics().map(|topic| topic.partitions().map(|one| one.fetch_offset.0).sum::<i64>()).sum::<i64>(),
        );
    });
    let decoded = clock.nanos(100_000 / partitions as usize, |_| {
        let header = request_header(&frame).expect("a header");
        black_box(fetch::FetchRequest::decode(version, &mut Reader::new(header.body(&frame))).expect("a request"));
    });
    beside(&format!("fetch request of {partitions} partitions"), view, "decoded into messages", decoded);
}

fn frame<'q, Q: Message<'q>>(version: i16, request: &Q) -> Vec<u8> {
    let mut frame = Vec::new();
    write_request_header(ApiKey(Q::Api::KEY), version, 1, Some("bench"), &mut frame);
    request.encode(version, &mut frame);
    frame
}
