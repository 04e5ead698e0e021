//! Killed while it writes, restarted, and compared with what it acknowledged.
//!
//! `PINION_CRASH_ROUNDS` (default 20) says how often it is killed and `PINION_CRASH_SEED` when; `scripts/soak` uses more
//! and other ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pinion::kafka::error_code::ErrorCode;

use crate::process::Broker;
use crate::requests::{self, Topic};
use crate::scratch;

/// What was acknowledged: offset → value.
type Acked = Arc<Mutex<BTreeMap<i64, Vec<u8>>>>;

/// A seeded source of choices, so that a failing round can be run again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Produces until the broker is gone; notes what it acknowledged.
fn produce_until_dead(address: &str, topic: &Topic, acks: i16, writer: u64, round: u64, acked: &Acked) {
    let mut client = requests::connect(address);
    for sequence in 0u64.. {
        let size = 10 + (sequence * 37 + writer * 11) % 3000;
        let mut value = format!("{round}/{writer}/{sequence}/").into_bytes();
        value.resize(value.len() + size as usize, b'x');
        let Ok((error, offset)) = requests::produce(&mut client, topic, acks, &value) else { return };
        assert_eq!(error, ErrorCode::NONE, "round {round}, writer {writer}");
        let before = acked.lock().expect("no writer panics").insert(offset, value);
        assert_eq!(before, None, "offset {offset} was given out twice");
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let root = scratch();
    let dir = root.path().join("data");
    let mut dice = Dice(setting("PINION_CRASH_SEED", 0x5eed).max(1));
    let acked: Acked = Arc::default();
    let start = |round: u64| {
        // Another number of data cores each time: partitions find a new core, and most requests come from another one.
        let cores = ["1", "3", "2"][round as usize % 3];
        Broker::start(&dir, &["--cores", cores, "--set", "log.segment.bytes=2MiB"])
    };
    let mut started = start(0);
    let topic = requests::create_topic(&started.kafka, "t");
    for round in 0..setting("PINION_CRASH_ROUNDS", 20) {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (address, topic, acked) = (started.kafka.clone(), topic.clone(), Arc::clone(&acked));
                let acks = if writer == 0 { -1 } else { 1 };
                thread::spawn(move || produce_until_dead(&address, &topic, acks, writer, round, &acked))
            })
            .collect();
        // Every fourth round sees checkpoints, index entries and leader epochs written, which come once a second.
        let lifetime = 50 + dice.roll(400) + if round % 4 == 3 { 1_500 } else { 0 };
        thread::sleep(Duration::from_millis(lifetime));
        started.kill();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer saw a wrong answer"));
        started = start(round + 1);
        let found = requests::read_all(&started.kafka, &topic);
        for (offset, value) in acked.lock().expect("writers have ended").iter() {
            assert_eq!(found.get(offset), Some(value), "round {round}: acknowledged offset {offset}");
        }
        // What was found but never acknowledged stays where it is, too.
        *acked.lock().expect("writers have ended") = found;
    }
    assert!(acked.lock().expect("writers have ended").len() > 100, "hardly anything was written");
}

#[test]
fn a_topic_of_the_same_name_never_sees_the_records_of_its_predecessor() {
    let root = scratch();
    let dir = root.path().join("data");
    for round in 0..3u64 {
        let mut started = Broker::start(&dir, &[]);
        let topic = requests::create_topic(&started.kafka, "again");
        let mut client = requests::connect(&started.kafka);
        let value = |n: u64| format!("{round}-{n:08}").into_bytes();
        let count = 50 - 20 * round;
        for n in 0..count {
            let (error, offset) = requests::produce(&mut client, &topic, 1, &value(n)).expect("an answer");
            assert_eq!((error, offset), (ErrorCode::NONE, n as i64), "offsets of every topic start at 0");
        }
        started.kill();
        let mut started = Broker::start(&dir, &[]);
        let found = requests::read_all(&started.kafka, &topic);
        let expected: BTreeMap<i64, Vec<u8>> = (0..count).map(|n| (n as i64, value(n))).collect();
        assert_eq!(found, expected, "round {round}");
        requests::delete_topic(&started.kafka, "again");
        started.kill();
    }
}

#[test]
fn a_clean_stop_leaves_exact_files_and_a_marker() {
    let root = scratch();
    let dir = root.path().join("data");
    let mut started = Broker::start(&dir, &[]);
    let topic = requests::create_topic(&started.kafka, "t");
    let mut client = requests::connect(&started.kafka);
    for n in 0..10u8 {
        requests::produce(&mut client, &topic, 1, &[n; 500]).expect("an answer");
    }
    let bytes = requests::fetch(&mut client, &topic, 0).1;
    assert!(started.terminate().0.success(), "SIGTERM ends it with status 0");
    let log = std::fs::read(dir.join("t-0/00000000000000000000.log")).expect("the segment");
    assert_eq!(log, bytes, "the file ends at its last batch");
    assert!(dir.join(".kafka_cleanshutdown").exists());
    let started = Broker::start(&dir, &[]);
    assert!(!dir.join(".kafka_cleanshutdown").exists(), "the marker is gone once it was read");
    assert_eq!(requests::read_all(&started.kafka, &topic).len(), 10);
}

/// The exact length is no multiple of a block: a file that grew from there could not be written past the page cache, and
/// its data directory was given up.
#[test]
fn a_log_goes_on_behind_a_clean_stop() {
    let root = scratch();
    let dir = root.path().join("data");
    let mut started = Broker::start(&dir, &[]);
    let topic = requests::create_topic(&started.kafka, "t");
    for round in 0..3usize {
        assert_eq!(requests::read_all(&started.kafka, &topic).len(), round * 10);
        let mut client = requests::connect(&started.kafka);
        for n in 0..10u8 {
            let (error, _) = requests::produce(&mut client, &topic, 1, &[n; 500]).expect("an answer");
            assert_eq!(error, ErrorCode::NONE, "round {round}");
        }
        assert!(started.terminate().0.success(), "SIGTERM ends it with status 0");
        started = Broker::start(&dir, &[]);
    }
    assert_eq!(requests::read_all(&started.kafka, &topic).len(), 30);
}
