//! The real process on a real file system: killed while it writes, restarted, and compared with what it acknowledged.
//!
//! `PINION_CRASH_ROUNDS` (default 20) says how often it is killed and `PINION_CRASH_SEED` when; `scripts/soak` uses more
//! and other ones.

mod broker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use broker::{Broker, Topic};
use pinion::kafka::error_code::ErrorCode;

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
    let mut client = broker::connect(address);
    for sequence in 0u64.. {
        let size = 10 + (sequence * 37 + writer * 11) % 3000;
        let mut value = format!("{round}/{writer}/{sequence}/").into_bytes();
        value.resize(value.len() + size as usize, b'x');
        let Ok((error, offset)) = broker::produce(&mut client, topic, acks, &value) else { return };
        assert_eq!(error, ErrorCode::NONE, "round {round}, writer {writer}");
        let before = acked.lock().expect("no writer panics").insert(offset, value);
        assert_eq!(before, None, "offset {offset} was given out twice");
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut dice = Dice(setting("PINION_CRASH_SEED", 0x5eed).max(1));
    let acked: Acked = Arc::default();
    let start = |round: u64| {
        // Another number of data cores each time: partitions find a new core, and most requests come from another one.
        let cores = ["1", "3", "2"][round as usize % 3];
        Broker::start(dir.path(), &["--cores", cores, "--set", "log.segment.bytes=2MiB"])
    };
    let mut started = start(0);
    let topic = broker::create_topic(&started.address, "t");
    for round in 0..setting("PINION_CRASH_ROUNDS", 20) {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (address, topic, acked) = (started.address.clone(), topic.clone(), Arc::clone(&acked));
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
        let found = broker::read_all(&started.address, &topic);
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
    let dir = tempfile::tempdir().expect("a directory");
    for round in 0..3u64 {
        let mut started = Broker::start(dir.path(), &[]);
        let topic = broker::create_topic(&started.address, "again");
        let mut client = broker::connect(&started.address);
        let value = |n: u64| format!("{round}-{n:08}").into_bytes();
        let count = 50 - 20 * round;
        for n in 0..count {
            let (error, offset) = broker::produce(&mut client, &topic, 1, &value(n)).expect("an answer");
            assert_eq!((error, offset), (ErrorCode::NONE, n as i64), "offsets of every topic start at 0");
        }
        started.kill();
        let mut started = Broker::start(dir.path(), &[]);
        let found = broker::read_all(&started.address, &topic);
        let expected: BTreeMap<i64, Vec<u8>> = (0..count).map(|n| (n as i64, value(n))).collect();
        assert_eq!(found, expected, "round {round}");
        broker::delete_topic(&started.address, "again");
        started.kill();
    }
}

#[test]
fn a_clean_stop_leaves_exact_files_and_a_marker() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut started = Broker::start(dir.path(), &[]);
    let topic = broker::create_topic(&started.address, "t");
    let mut client = broker::connect(&started.address);
    for n in 0..10u8 {
        broker::produce(&mut client, &topic, 1, &[n; 500]).expect("an answer");
    }
    let bytes = broker::fetch(&mut client, &topic, 0).1;
    assert!(started.terminate().success(), "SIGTERM ends it with status 0");
    let log = std::fs::read(dir.path().join("t-0/00000000000000000000.log")).expect("the segment");
    assert_eq!(log, bytes, "the file ends at its last batch");
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    let started = Broker::start(dir.path(), &[]);
    assert!(!dir.path().join(".kafka_cleanshutdown").exists(), "the marker is gone once it was read");
    assert_eq!(broker::read_all(&started.address, &topic).len(), 10);
}

/// The exact length is no multiple of a block: a file that grew from there could not be written past the page cache, and
/// its data directory was given up.
#[test]
fn a_log_goes_on_behind_a_clean_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut started = Broker::start(dir.path(), &[]);
    let topic = broker::create_topic(&started.address, "t");
    for round in 0..3usize {
        assert_eq!(broker::read_all(&started.address, &topic).len(), round * 10);
        let mut client = broker::connect(&started.address);
        for n in 0..10u8 {
            let (error, _) = broker::produce(&mut client, &topic, 1, &[n; 500]).expect("an answer");
            assert_eq!(error, ErrorCode::NONE, "round {round}");
        }
        assert!(started.terminate().success(), "SIGTERM ends it with status 0");
        started = Broker::start(dir.path(), &[]);
    }
    assert_eq!(broker::read_all(&started.address, &topic).len(), 30);
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let _first = Broker::start(dir.path(), &[]);
    let (status, stderr) = broker::run_to_end(dir.path(), &[]);
    assert_eq!(status, Some(13), "{stderr}");
    assert!(stderr.contains("remedy"), "{stderr}");
}
