//! Many connections at a time, idle and busy.

use std::collections::BTreeSet;
use std::thread;

use pinion::cli::client::Client;
use pinion::kafka::error_code::ErrorCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::process::{Broker, skip};
use crate::requests::{self, Topic};
use crate::{eventually, scratch};

const IDLE: usize = 1_000;
const BUSY: usize = 500;
/// Threads that keep the busy connections busy.
const THREADS: usize = 20;
const ROUNDS: usize = 8;

/// Lets this process open so many files; false when it may not.
fn may_open(files: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let room = limit.maximum.is_none_or(|maximum| maximum >= files);
    room && setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..limit }).is_ok()
}

/// Every client has its turn, again and again; the offsets that were given out.
fn keep_busy(mut clients: Vec<Client>, topic: &Topic) -> Vec<i64> {
    let mut offsets = Vec::new();
    for round in 0..ROUNDS {
        for client in &mut clients {
            let answer = requests::produce(client, topic, -1, format!("round {round}").as_bytes());
            let (error, offset) = answer.unwrap_or_else(|failure| panic!("{}", failure.message));
            assert_eq!(error, ErrorCode::NONE);
            let (high_watermark, bytes) = requests::fetch(client, topic, offset);
            assert!(offset < high_watermark && !bytes.is_empty(), "what was acknowledged can be read");
            offsets.push(offset);
        }
    }
    offsets
}

#[test]
fn a_thousand_idle_and_five_hundred_busy_connections_are_served_side_by_side() {
    let needed = (IDLE + BUSY + 200) as u64;
    if !may_open(needed) {
        return skip("broker: 1,500 connections", &format!("this process may not open {needed} files"));
    }
    let root = scratch();
    let mut broker = Broker::start(&root.path().join("data"), &["--cores", "2"]);
    let topic = requests::create_topic(&broker.kafka, "t");
    let mut idle: Vec<Client> = (0..IDLE).map(|_| requests::connect(&broker.kafka)).collect();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let clients = (0..BUSY / THREADS).map(|_| requests::connect(&broker.kafka)).collect();
            let topic = topic.clone();
            thread::spawn(move || keep_busy(clients, &topic))
        })
        .collect();
    let offsets: BTreeSet<i64> = threads.into_iter().flat_map(|thread| thread.join().expect("served")).collect();
    assert_eq!(offsets.len(), BUSY * ROUNDS, "every offset was given out once");
    assert_eq!(offsets.last(), Some(&((BUSY * ROUNDS) as i64 - 1)), "and none was left out");
    for client in &mut idle {
        assert_eq!(requests::fetch(client, &topic, 0).0, (BUSY * ROUNDS) as i64, "nobody was forgotten");
    }
    assert!(broker.metric("pinion_connections") >= IDLE as f64, "{}", broker.get("/metrics").1);
    drop(idle);
    eventually("closed connections are let go", || broker.metric("pinion_connections") < 10.0);
    assert_eq!(broker.terminate().0.code(), Some(0), "{}", broker.log());
}

#[test]
fn one_address_gets_no_more_connections_than_it_may_have() {
    let root = scratch();
    // The limit is the broker's, at whichever of its cores the connections are.
    let broker = Broker::start(&root.path().join("data"), &["--cores", "2", "--set", "max.connections.per.ip=20"]);
    let mut clients: Vec<Client> = Vec::new();
    eventually("the limit is met", || match Client::connect(&broker.kafka) {
        Ok(client) => {
            clients.push(client);
            assert!(clients.len() <= 20, "more than the limit");
            false
        }
        Err(_) => true,
    });
    assert_eq!(clients.len(), 20);
    let log = broker.log();
    let line = log.lines().find(|line| line.contains("max.connections.per.ip")).expect("a line names the setting");
    assert!(line.contains("127.0.0.1"), "{line}");
    drop(clients);
    eventually("there is room again", || Client::connect(&broker.kafka).is_ok());
}
