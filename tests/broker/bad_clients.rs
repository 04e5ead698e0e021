//! Clients that send nonsense, half of something, far too much, or never read: they are told or cut off, one line in the
//! log says so, and nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pinion::kafka::api::ApiKey;
use pinion::kafka::batch::batches;
use pinion::kafka::error_code::ErrorCode;
use pinion::kafka::frame;
use pinion::kafka::schema::{Message, Reader, Records, fetch};

use crate::process::Broker;
use crate::requests::{self, Topic};
use crate::{PATIENCE, eventually, scratch};

const CLIENT_ID: &str = "a-bad-client";

/// A frame with a header of this API and version, and these bytes behind it.
fn request(api: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    frame::write_request_header(api, version, 7, Some(CLIENT_ID), &mut bytes);
    bytes.extend_from_slice(body);
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the broker listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Sends bytes and reads to the end of the stream, which the broker must bring about. What it answered before.
fn is_cut_off(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    // The broker may have had enough before it has all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => answer,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => answer,
        Err(error) => panic!("not cut off: {error}"),
    }
}

/// A client that behaves, before, between and after those that do not.
struct Neighbour<'a> {
    address: &'a str,
    topic: Topic,
    produced: i64,
}

impl Neighbour<'_> {
    fn new(address: &str) -> Neighbour<'_> {
        Neighbour { address, topic: requests::create_topic(address, "neighbour"), produced: 0 }
    }

    fn is_served(&mut self) {
        let mut client = requests::connect(self.address);
        let answer = requests::produce(&mut client, &self.topic, -1, b"hello");
        let answer = answer.unwrap_or_else(|failure| panic!("{}", failure.message));
        assert_eq!(answer, (ErrorCode::NONE, self.produced));
        self.produced += 1;
        assert_eq!(requests::fetch(&mut client, &self.topic, 0).0, self.produced);
    }
}

/// Lines of the log that tell of a closed connection.
fn closed_lines(broker: &Broker) -> Vec<String> {
    broker.log().lines().filter(|line| line.contains("connection closed")).map(str::to_owned).collect()
}

/// A count of two billion where these APIs have an array or a length, in versions with plain lengths.
fn huge_counts() -> Vec<Vec<u8>> {
    let count = 2_000_000_000u32.to_be_bytes();
    // transactional id null, acks 1, timeout; then the topics.
    let produce = [&[0xff, 0xff, 0, 1, 0, 0, 0x75, 0x30][..], &count].concat();
    // replica, max wait, min bytes, max bytes, isolation; then the topics.
    let fetch = [&[0xff; 4][..], &[0; 4], &[0; 4], &[0; 4], &[0], &count].concat();
    vec![
        request(ApiKey::PRODUCE, 3, &produce),
        request(ApiKey::FETCH, 4, &fetch),
        request(ApiKey::METADATA, 4, &count),
        request(ApiKey::CREATE_TOPICS, 2, &count),
        request(ApiKey::LIST_OFFSETS, 1, &[&[0xff; 4][..], &count].concat()),
    ]
}

#[test]
fn nonsense_closes_its_own_connection_and_is_named_in_the_log() {
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &[]);
    let address = broker.kafka.clone();
    let mut neighbour = Neighbour::new(&address);
    neighbour.is_served();
    let mut nonsense = huge_counts();
    nonsense.extend([
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n".to_vec(),
        vec![0xff; 64],
        vec![0; 64],
        request(ApiKey(999), 0, &[]),
        request(ApiKey::METADATA, 99, &[]),
        // A version that nobody serves any more, of an API that is advertised from 0.
        request(ApiKey::PRODUCE, 0, &[0; 8]),
        // The client id is longer than the frame.
        vec![0, 0, 0, 12, 0, 3, 0, 4, 0, 0, 0, 1, 0x7f, 0xff, 0, 0],
        // The tagged fields of the header never end.
        vec![0, 0, 0, 16, 0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    ]);
    for bytes in &nonsense {
        let answer = is_cut_off(&address, bytes);
        assert_eq!(answer, [0u8; 0], "{:02x?} was answered", &bytes[..bytes.len().min(32)]);
        neighbour.is_served();
    }
    assert!(broker.is_alive());
    let lines = closed_lines(&broker);
    assert!(!lines.is_empty() && lines.len() <= nonsense.len(), "{lines:#?}");
    let named = |line: &String| line.contains(CLIENT_ID) && line.contains("Produce") && line.contains("reason");
    assert!(lines.iter().any(named), "client, API and reason are named: {lines:#?}");
    let closed = broker.get("/metrics").1;
    assert!(closed.contains("closed_for_fault"), "{closed}");
}

#[test]
fn a_flood_of_nonsense_does_not_flood_the_log() {
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &[]);
    let address = broker.kafka.clone();
    let mut neighbour = Neighbour::new(&address);
    for _ in 0..500 {
        is_cut_off(&address, &[0xff; 16]);
    }
    neighbour.is_served();
    let lines = closed_lines(&broker);
    assert!(!lines.is_empty() && lines.len() < 100, "{} lines for 500 connections", lines.len());
    assert!(broker.is_alive());
}

#[test]
fn half_a_frame_hurts_nobody() {
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &[]);
    let address = broker.kafka.clone();
    let mut neighbour = Neighbour::new(&address);
    let whole = request(ApiKey::METADATA, 4, &[0xff, 0xff, 0xff, 0xff, 0]);
    let mut waiting = Vec::new();
    for len in 1..whole.len() {
        // One goes away in the middle, one waits there.
        let mut gone = connect(&address);
        gone.write_all(&whole[..len]).expect("sent");
        drop(gone);
        let mut waits = connect(&address);
        waits.write_all(&whole[..len]).expect("sent");
        waiting.push((len, waits));
    }
    neighbour.is_served();
    for (len, mut stream) in waiting {
        stream.write_all(&whole[len..]).expect("sent");
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("answered once it is whole");
    }
    // A large one stops half-way: its window is given back when it goes away.
    for _ in 0..10 {
        let mut gone = connect(&address);
        gone.write_all(&[0x03, 0x20, 0, 0, 0, 0, 0, 9]).expect("a Produce of 50 MiB begins");
        gone.write_all(&vec![0; 3 << 20]).expect("sent");
        drop(gone);
    }
    neighbour.is_served();
    assert!(broker.is_alive());
}

/// A Produce v3 of one record batch of this many bytes that is none: only its length field is right.
fn produce_of(topic: &Topic, bytes: usize) -> Vec<u8> {
    let mut body = vec![0xff, 0xff, 0, 1, 0, 0, 0x75, 0x30];
    body.extend(1u32.to_be_bytes());
    body.extend((topic.name.len() as u16).to_be_bytes());
    body.extend(topic.name.as_bytes());
    body.extend(1u32.to_be_bytes());
    body.extend(0u32.to_be_bytes());
    body.extend((bytes as u32).to_be_bytes());
    let records = body.len();
    body.resize(records + bytes, 0);
    body[records + 8..records + 12].copy_from_slice(&(bytes as u32 - 12).to_be_bytes());
    body[records + 16] = 2;
    request(ApiKey::PRODUCE, 3, &body)
}

#[test]
fn a_batch_of_a_hundred_megabytes_is_refused_whole() {
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &[]);
    let address = broker.kafka.clone();
    let mut neighbour = Neighbour::new(&address);
    // Within the limit of a frame: the answer says what is wrong with it.
    let mut stream = connect(&address);
    stream.write_all(&produce_of(&neighbour.topic, 50 << 20)).expect("taken in");
    let mut answer = vec![0; 4 + 4 + 4 + 2 + neighbour.topic.name.len() + 4 + 4 + 2];
    stream.read_exact(&mut answer).expect("answered");
    let code = ErrorCode(i16::from_be_bytes([answer[answer.len() - 2], answer[answer.len() - 1]]));
    assert!([ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::CORRUPT_MESSAGE].contains(&code), "{code:?}");
    neighbour.is_served();
    // Beyond it: not taken in at all.
    assert_eq!(is_cut_off(&address, &produce_of(&neighbour.topic, (100 << 20) + 1)), [0u8; 0]);
    neighbour.is_served();
    assert!(closed_lines(&broker).iter().any(|line| line.contains("above the limit")), "{}", broker.log());
    assert!(broker.is_alive());
}

const BIG: usize = 900_000;
const BIGS: i64 = 40;

/// A topic of 40 records of 900 kB.
fn big_topic(address: &str) -> Topic {
    let topic = requests::create_topic(address, "big");
    let mut client = requests::connect(address);
    for n in 0..BIGS {
        let answer = requests::produce(&mut client, &topic, 1, &vec![n as u8; BIG]);
        assert_eq!(answer.unwrap_or_else(|failure| panic!("{}", failure.message)), (ErrorCode::NONE, n));
    }
    topic
}

/// The bytes of a Fetch from an offset.
fn fetch_bytes(topic: &Topic, offset: i64) -> Vec<u8> {
    let mut body = Vec::new();
    requests::fetch_request(topic, offset, 1 << 20).encode(FETCH_VERSION, &mut body);
    request(ApiKey::FETCH, FETCH_VERSION, &body)
}

/// The last one with topic names.
const FETCH_VERSION: i16 = 11;

#[test]
fn clients_that_never_read_are_waited_for_by_nobody() {
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &[]);
    let address = broker.kafka.clone();
    let mut neighbour = Neighbour::new(&address);
    let topic = big_topic(&address);
    // More answers are asked for than the sockets and all of the broker's memory hold.
    let deaf: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = connect(&address);
            stream.set_nonblocking(true).expect("a socket");
            for n in 0..200 {
                // Once the broker takes in no more, neither does the socket.
                if stream.write_all(&fetch_bytes(&topic, n % BIGS)).is_err() {
                    break;
                }
            }
            stream
        })
        .collect();
    for _ in 0..20 {
        neighbour.is_served();
    }
    assert_eq!(requests::read_all(&address, &topic).len() as i64, BIGS, "others read the same topic");
    drop(deaf);
    eventually("their connections are let go", || broker.metric("pinion_connections") < 5.0);
    neighbour.is_served();
    assert_eq!(broker.terminate().0.code(), Some(0), "{}", broker.log());
}

#[test]
fn a_slow_reader_gets_every_byte_while_others_go_on() {
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &[]);
    let address = broker.kafka.clone();
    let mut neighbour = Neighbour::new(&address);
    let topic = big_topic(&address);
    let mut stream = connect(&address);
    (0..BIGS).for_each(|n| stream.write_all(&fetch_bytes(&topic, n)).expect("sent"));
    for n in 0..BIGS {
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("an answer");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        // In small bites, with the broker's other clients in between.
        for (at, bite) in frame.chunks_mut(64 << 10).enumerate() {
            stream.read_exact(bite).expect("the rest of it");
            if at == 0 {
                neighbour.is_served();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        check_fetched(&frame, n);
    }
    assert!(broker.is_alive());
}

/// The first batch of a Fetch answer is the record at this offset.
fn check_fetched(frame: &[u8], offset: i64) {
    let (_, body) = frame::response_header(ApiKey::FETCH, FETCH_VERSION, frame).expect("a header");
    let response = fetch::FetchResponse::decode(FETCH_VERSION, &mut Reader::new(body)).expect("a Fetch response");
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NONE);
    let Records::Bytes(bytes) = partition.records else { panic!("no records field") };
    let (_, Ok(batch)) = batches(bytes).next().expect("a batch") else { panic!("a damaged batch") };
    batch.check_crc().expect("as it was produced");
    assert_eq!(batch.base_offset().0, offset);
    let record = batch.records().expect("uncompressed").next().expect("one").expect("as it was produced");
    assert!(record.value == Some(&vec![offset as u8; BIG][..]), "every byte of offset {offset}");
}
