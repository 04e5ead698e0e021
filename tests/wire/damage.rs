//! Damaged copies of real frames: nothing panics, and nothing reserves what a peer made up.

use pinion::kafka::fetch::FetchView;
use pinion::kafka::frame;
use pinion::kafka::fuzz;
use pinion::kafka::produce::{ProduceResponseWriter, ProduceView};
use pinion::kafka::schema::produce::PartitionProduceResponse;
use pinion::limits::DECODED_BYTES_MAX;

use crate::captured::exchanges;
use crate::heap::taken;

/// Damaged copies of each captured frame.
const COPIES: u64 = 150;

/// What decoding and encoding may hold at one time: the decoded form, its two encodings and their growth.
const HEAP_BYTES_MAX: usize = DECODED_BYTES_MAX + 4 * 1024 * 1024;

#[test]
fn damaged_requests_are_refused_or_read_and_never_reserve_what_they_claim() {
    let mut seed = 1;
    for exchange in exchanges() {
        for copy in 0..COPIES {
            let mut bytes = exchange.request.clone();
            damage(&mut bytes, &mut seed, 8);
            let heap = taken(|| fuzz::request(&bytes));
            assert!(heap.bytes_peak <= HEAP_BYTES_MAX, "{exchange}, copy {copy}: {} bytes", heap.bytes_peak);
        }
    }
}

#[test]
fn damaged_responses_are_refused_or_read_and_never_reserve_what_they_claim() {
    let mut seed = 2;
    for exchange in exchanges() {
        let head = [exchange.api.0.to_be_bytes(), exchange.version.to_be_bytes()].concat();
        for copy in 0..COPIES {
            let mut bytes = [&head[..], &exchange.response[..]].concat();
            damage(&mut bytes, &mut seed, 8);
            let heap = taken(|| fuzz::response(&bytes));
            assert!(heap.bytes_peak <= HEAP_BYTES_MAX, "{exchange}, copy {copy}: {} bytes", heap.bytes_peak);
        }
    }
}

#[test]
fn a_stream_of_frames_survives_damage_anywhere() {
    let framed = |request: &Vec<u8>| [&(request.len() as u32).to_be_bytes()[..], &request[..]].concat();
    let whole: Vec<u8> = exchanges().iter().flat_map(|exchange| framed(&exchange.request)).collect();
    fuzz::stream(&whole);
    let mut seed = 3;
    for _ in 0..40 {
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut seed, 0);
        fuzz::stream(&bytes);
    }
}

#[test]
fn every_half_of_a_request_is_refused_or_read() {
    for exchange in exchanges() {
        (0..exchange.request.len().min(600)).for_each(|end| fuzz::request(&exchange.request[..end]));
    }
}

#[test]
fn noise_is_no_request() {
    let mut seed = 4;
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..draw(&mut seed) % 200).map(|_| draw(&mut seed) as u8).collect();
        if bytes.len() > 4 {
            bytes[0] = 0;
            bytes[1] %= 80;
            bytes[2] = 0;
            bytes[3] %= 19;
        }
        fuzz::request(&bytes);
        fuzz::response(&bytes);
    }
}

#[test]
fn views_of_produce_and_fetch_and_the_produce_answer_allocate_nothing() {
    let mut answer = Vec::with_capacity(64 * 1024);
    for exchange in exchanges().iter().filter(|exchange| exchange.api.0 <= 1) {
        let heap = taken(|| {
            let header = frame::request_header(&exchange.request).expect("a real header");
            let body = header.body(&exchange.request);
            match header.is_produce() {
                true => answer_produce(header.api_version, body, &mut answer),
                false => walk_fetch(header.api_version, body),
            }
        });
        assert_eq!(heap.calls, 0, "{exchange}");
    }
}

fn answer_produce(version: i16, body: &[u8], answer: &mut Vec<u8>) {
    answer.clear();
    let view = ProduceView::parse(version, body).expect("a real request");
    let mut writer = ProduceResponseWriter::begin(version, view.topics().len(), answer);
    for topic in view.topics() {
        writer.topic(topic.name, topic.id, topic.partitions().len());
        for data in topic.partitions() {
            writer.partition(&PartitionProduceResponse { index: data.index, ..Default::default() });
        }
    }
    writer.finish(0, &[]);
}

fn walk_fetch(version: i16, body: &[u8]) {
    let view = FetchView::parse(version, body).expect("a real request");
    let partitions: usize = view.topics().map(|topic| topic.partitions().count()).sum();
    let forgotten: usize = view.forgotten().map(|topic| topic.partitions().count()).sum();
    assert!(partitions + forgotten < 1000, "captured fetches are small");
}

/// Damages bytes from `from` on (the header decides what the body is read as, so most damage spares it).
fn damage(bytes: &mut Vec<u8>, seed: &mut u64, from: usize) {
    for _ in 0..1 + draw(seed) % 3 {
        if bytes.len() <= from + 5 {
            return;
        }
        let at = from + (draw(seed) as usize) % (bytes.len() - from);
        match draw(seed) % 6 {
            0 => bytes[at] ^= 1 << (draw(seed) % 8),
            1 => bytes[at] = draw(seed) as u8,
            2 => bytes.truncate(at),
            3 => overwrite(bytes, at, &i32::MAX.to_be_bytes()),
            4 => overwrite(bytes, at, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            _ => drop(bytes.splice(at..at, [0; 3])),
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    let end = (at + with.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&with[..end - at]);
}

/// A SplitMix64 draw.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
