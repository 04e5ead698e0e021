//! Disks that fill up, vanish or hang.

use std::collections::BTreeMap;
use std::path::Path;

use pinion::cli::client::Client;
use pinion::kafka::error_code::ErrorCode;

use crate::process::{Broker, serve};
use crate::requests::{self, Topic};
use crate::small_disk::SmallDisk;
use crate::{eventually, scratch};

const VALUE_BYTES: usize = 200_000;
/// Produces at most; a disk that takes more is not the small one.
const VALUES_MAX: u64 = 2_000;
/// How long an operation hangs before its directory is given up; the other one must be faster, however busy the machine.
const HANGS: &str = "disk.stall.timeout.ms=6s";
/// Exit status of a stop after which the next start must recover.
const NOT_CLEAN: i32 = 1;

/// What a topic has acknowledged.
#[derive(Default)]
struct Acked(BTreeMap<i64, Vec<u8>>);

impl Acked {
    /// Produces one value; the error code of the answer.
    fn produce(&mut self, client: &mut Client, topic: &Topic) -> ErrorCode {
        let mut value = format!("{}/{}/", topic.name, self.0.len()).into_bytes();
        value.resize(VALUE_BYTES, b'x');
        let (error, offset) = requests::produce(client, topic, -1, &value).unwrap_or_else(|f| panic!("{}", f.message));
        if error == ErrorCode::NONE {
            assert_eq!(self.0.insert(offset, value), None, "offset {offset} was given out twice");
        }
        error
    }

    /// Produces until the broker refuses; the error code.
    fn produce_until_refused(&mut self, client: &mut Client, topic: &Topic) -> ErrorCode {
        let refused = (0..VALUES_MAX).map(|_| self.produce(client, topic)).find(|error| *error != ErrorCode::NONE);
        refused.expect("the disk is small")
    }

    /// Whether everything acknowledged can be read, from offset `start` on.
    fn check(&self, address: &str, topic: &Topic, start: i64) {
        let found = requests::read_from(address, topic, start);
        for (offset, value) in self.0.range(start..) {
            assert!(found.get(offset) == Some(value), "acknowledged offset {offset} of {}", topic.name);
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of ours").to_owned()
}

/// `pinion topic …`, which must work.
fn topic(broker: &Broker, arguments: &[&str]) {
    let output = broker.topic(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn below_the_floor_producers_are_refused_until_deletion_or_retention_made_room() {
    let root = scratch();
    let Some(disk) = SmallDisk::new("disk floor", root.path(), 384) else { return };
    let settings = ["log.min.free.bytes=256MiB", "log.segment.bytes=4MiB", "log.segment.delete.delay.ms=0"];
    // The records are old; only their size is to let them go.
    let mut arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    arguments.extend(["--set", "log.retention.check.interval.ms=1s", "--set", "log.retention.ms=-1"]);
    let data = disk.data(root.path());
    let mut broker = Broker::start(&data, &arguments);
    let (kept, deleted) =
        (requests::create_topic(&broker.kafka, "kept"), requests::create_topic(&broker.kafka, "deleted"));
    let mut client = requests::connect(&broker.kafka);
    let (mut kept_acked, mut deleted_acked) = (Acked::default(), Acked::default());
    for _ in 0..20 {
        assert_eq!(kept_acked.produce(&mut client, &kept), ErrorCode::NONE);
    }
    assert_eq!(deleted_acked.produce_until_refused(&mut client, &deleted), ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(disk.free_bytes() > 0, "the floor is above the ground");
    kept_acked.check(&broker.kafka, &kept, 0);
    deleted_acked.check(&broker.kafka, &deleted, 0);

    // A deletion needs no room and gives it back.
    topic(&broker, &["delete", "deleted"]);
    eventually("a deletion makes room", || kept_acked.produce(&mut client, &kept) == ErrorCode::NONE);
    assert_eq!(kept_acked.produce_until_refused(&mut client, &kept), ErrorCode::KAFKA_STORAGE_ERROR);
    kept_acked.check(&broker.kafka, &kept, 0);

    // So does retention, whose setting can be changed on a full disk.
    topic(&broker, &["alter", "kept", "--config", "retention.bytes=8MiB"]);
    eventually("retention makes room", || kept_acked.produce(&mut client, &kept) == ErrorCode::NONE);
    assert!(broker.is_alive());
    broker.kill();
    let mut broker = Broker::start(&data, &arguments);
    let start = requests::log_start(&broker.kafka, &kept);
    assert!(start > 0, "retention has taken the oldest segments");
    kept_acked.check(&broker.kafka, &kept, start);
    assert_eq!(broker.terminate().0.code(), Some(0), "{}", broker.log());
}

#[test]
fn a_disk_that_is_full_to_the_last_byte_loses_nothing_and_goes_on_when_there_is_room() {
    let root = scratch();
    let Some(disk) = SmallDisk::new("disk full", root.path(), 128) else { return };
    let data = disk.data(root.path());
    let arguments = ["--set", "log.segment.bytes=4MiB", "--set", "log.retention.ms=-1"];
    let mut broker = Broker::start(&data, &arguments);
    let topic = requests::create_topic(&broker.kafka, "t");
    let mut client = requests::connect(&broker.kafka);
    let mut acked = Acked::default();
    assert_eq!(acked.produce(&mut client, &topic), ErrorCode::NONE);
    // Leaves a little, so that the segments meet the end while they grow.
    let filler = disk.fill(disk.free_bytes() / (1 << 20) - 24);
    assert_eq!(acked.produce_until_refused(&mut client, &topic), ErrorCode::KAFKA_STORAGE_ERROR);
    acked.check(&broker.kafka, &topic, 0);
    std::fs::remove_file(filler).expect("the filler");
    eventually("producers are let in again", || acked.produce(&mut client, &topic) == ErrorCode::NONE);
    acked.check(&broker.kafka, &topic, 0);
    broker.kill();
    let broker = Broker::start(&data, &arguments);
    acked.check(&broker.kafka, &topic, 0);
}

/// A broker with two data directories, of which the second is on `disk`, and a topic on each.
struct TwoDirs {
    broker: Broker,
    /// The second directory.
    second: String,
    on_first: Topic,
    on_second: Topic,
}

/// Settings of [`TwoDirs`], with its second directory.
fn two_dirs_arguments(second: &str) -> Vec<&str> {
    vec!["--data-dir", second, "--set", HANGS]
}

impl TwoDirs {
    fn start(first: &Path, disk: &SmallDisk) -> TwoDirs {
        let second = text(&disk.path.join("data"));
        let broker = Broker::start(first, &two_dirs_arguments(&second));
        // A new partition goes to the directory with the fewest.
        let topics = ["a", "b"].map(|name| requests::create_topic(&broker.kafka, name));
        let is_on_second = |topic: &Topic| Path::new(&second).join(format!("{}-0", topic.name)).exists();
        assert!(!is_on_second(&topics[0]) && is_on_second(&topics[1]), "one topic in each directory");
        let [on_first, on_second] = topics;
        TwoDirs { broker, second, on_first, on_second }
    }
}

/// Everything that does not need the failed directory works.
fn check_that_others_are_served(broker: &mut Broker, on_first: &Topic, acked: &mut Acked) {
    let mut client = requests::connect(&broker.kafka);
    assert_eq!(acked.produce(&mut client, on_first), ErrorCode::NONE);
    acked.check(&broker.kafka, on_first, 0);
    let name = format!("later-{}", acked.0.len());
    let later = requests::create_topic(&broker.kafka, &name);
    assert_eq!(Acked::default().produce(&mut client, &later), ErrorCode::NONE, "new topics go where a disk works");
    assert_eq!(broker.get("/readyz").0, "HTTP/1.1 200 OK");
    assert!(broker.is_alive());
}

#[test]
fn a_lost_data_directory_takes_only_its_own_partitions_down() {
    let root = scratch();
    let Some(disk) = SmallDisk::new("lost directory", root.path(), 128) else { return };
    let first = root.path().join("data");
    let TwoDirs { mut broker, second, on_first, on_second } = TwoDirs::start(&first, &disk);
    let (mut first_acked, mut second_acked) = (Acked::default(), Acked::default());
    let mut client = requests::connect(&broker.kafka);
    for _ in 0..10 {
        assert_eq!(first_acked.produce(&mut client, &on_first), ErrorCode::NONE);
        assert_eq!(second_acked.produce(&mut client, &on_second), ErrorCode::NONE);
    }
    disk.lose();
    assert_eq!(second_acked.produce_until_refused(&mut client, &on_second), ErrorCode::KAFKA_STORAGE_ERROR);
    check_that_others_are_served(&mut broker, &on_first, &mut first_acked);
    assert!(broker.log().contains("data directory has failed"), "{}", broker.log());
    topic(&broker, &["delete", "b"]);
    assert_eq!(broker.terminate().0.code(), Some(NOT_CLEAN), "{}", broker.log());

    // The disk is gone for good: the path leads nowhere.
    drop(disk);
    std::fs::write(root.path().join("disk/data"), "no directory").expect("written");
    let mut broker = Broker::start(&first, &two_dirs_arguments(&second));
    check_that_others_are_served(&mut broker, &on_first, &mut first_acked);
    assert_eq!(broker.terminate().0.code(), Some(0), "{}", broker.log());
}

#[test]
fn a_start_with_a_missing_directory_serves_the_others_and_finds_its_partitions_again() {
    let root = scratch();
    let Some(disk) = SmallDisk::new("missing directory", root.path(), 128) else { return };
    let first = root.path().join("data");
    let TwoDirs { mut broker, second, on_first, on_second } = TwoDirs::start(&first, &disk);
    let (mut first_acked, mut second_acked) = (Acked::default(), Acked::default());
    let mut client = requests::connect(&broker.kafka);
    assert_eq!(first_acked.produce(&mut client, &on_first), ErrorCode::NONE);
    assert_eq!(second_acked.produce(&mut client, &on_second), ErrorCode::NONE);
    broker.kill();
    let away = disk.path.join("away");
    std::fs::rename(&second, &away).expect("moved away");
    std::fs::write(&second, "no directory").expect("written");
    let mut broker = Broker::start(&first, &two_dirs_arguments(&second));
    let mut client = requests::connect(&broker.kafka);
    assert_eq!(Acked::default().produce(&mut client, &on_second), ErrorCode::KAFKA_STORAGE_ERROR);
    check_that_others_are_served(&mut broker, &on_first, &mut first_acked);
    broker.kill();
    std::fs::remove_file(&second).expect("removed");
    std::fs::rename(&away, &second).expect("moved back");
    let broker = Broker::start(&first, &two_dirs_arguments(&second));
    second_acked.check(&broker.kafka, &on_second, 0);
    first_acked.check(&broker.kafka, &on_first, 0);
}

/// Its disk is not mounted: a start that took the place for a new directory would make its partitions anew, empty.
#[test]
fn an_empty_directory_in_the_place_of_one_that_was_in_use_refuses_the_start() {
    let root = scratch();
    let (first, second, away) = (root.path().join("data"), root.path().join("second"), root.path().join("away"));
    let second_name = text(&second);
    let arguments = two_dirs_arguments(&second_name);
    let mut broker = Broker::start(&first, &arguments);
    let topics = ["a", "b"].map(|name| requests::create_topic(&broker.kafka, name));
    let mut client = requests::connect(&broker.kafka);
    let mut acked = [Acked::default(), Acked::default()];
    for (acked, topic) in acked.iter_mut().zip(&topics) {
        assert_eq!(acked.produce(&mut client, topic), ErrorCode::NONE);
    }
    broker.kill();
    std::fs::rename(&second, &away).expect("moved away");
    std::fs::create_dir(&second).expect("a mount point");
    let refused = serve(&first, &arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(16), "{said}");
    assert!(said.contains(&format!("mount the disk of {second_name}")), "{said}");

    // What it is told to do helps, one way or the other.
    std::fs::remove_dir_all(&second).expect("the mount point");
    std::fs::rename(&away, &second).expect("mounted");
    let mut broker = Broker::start(&first, &arguments);
    acked.iter().zip(&topics).for_each(|(acked, topic)| acked.check(&broker.kafka, topic, 0));
    broker.kill();
    std::fs::remove_dir_all(&second).expect("lost for good");
    let lost = said.split("--set ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a setting");
    let broker = Broker::start(&first, &[&arguments[..], &["--set", lost]].concat());
    acked[0].check(&broker.kafka, &topics[0], 0);
    let mut client = requests::connect(&broker.kafka);
    assert_eq!(Acked::default().produce(&mut client, &topics[1]), ErrorCode::NONE);
}

#[test]
fn a_disk_that_hangs_is_given_up_and_the_others_are_served() {
    let root = scratch();
    let Some(mut disk) = SmallDisk::new("hung disk", root.path(), 128) else { return };
    let first = root.path().join("data");
    let TwoDirs { mut broker, second, on_first, on_second } = TwoDirs::start(&first, &disk);
    let (mut first_acked, mut second_acked) = (Acked::default(), Acked::default());
    let mut client = requests::connect(&broker.kafka);
    for _ in 0..10 {
        assert_eq!(first_acked.produce(&mut client, &on_first), ErrorCode::NONE);
        assert_eq!(second_acked.produce(&mut client, &on_second), ErrorCode::NONE);
    }
    disk.freeze();
    // The write that hangs is answered when the directory is given up.
    assert_eq!(second_acked.produce(&mut client, &on_second), ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(broker.log().contains("disk.stall.timeout.ms"), "{}", broker.log());
    check_that_others_are_served(&mut broker, &on_first, &mut first_acked);
    assert_eq!(second_acked.produce(&mut client, &on_second), ErrorCode::KAFKA_STORAGE_ERROR, "it stays down");
    // What hung comes back late, and changes nothing.
    disk.thaw();
    check_that_others_are_served(&mut broker, &on_first, &mut first_acked);
    assert_eq!(second_acked.produce(&mut client, &on_second), ErrorCode::KAFKA_STORAGE_ERROR, "until a restart");
    assert_eq!(broker.terminate().0.code(), Some(NOT_CLEAN), "{}", broker.log());
    let broker = Broker::start(&first, &two_dirs_arguments(&second));
    second_acked.check(&broker.kafka, &on_second, 0);
    first_acked.check(&broker.kafka, &on_first, 0);
}

#[test]
fn a_stop_does_not_wait_for_a_disk_that_hangs() {
    let root = scratch();
    let Some(mut disk) = SmallDisk::new("stop with a hung disk", root.path(), 128) else { return };
    let first = root.path().join("data");
    let TwoDirs { mut broker, on_second, .. } = TwoDirs::start(&first, &disk);
    let mut client = requests::connect(&broker.kafka);
    disk.freeze();
    assert_eq!(Acked::default().produce(&mut client, &on_second), ErrorCode::KAFKA_STORAGE_ERROR);
    broker.ask_to_end();
    // Nothing can end a process whose write hangs in the kernel; what can be seen is that it wants to.
    eventually("the broker wants to end", || broker.log().contains("stopped, but a data directory had failed"));
    disk.thaw();
    assert_eq!(broker.wait().0.code(), Some(NOT_CLEAN), "{}", broker.log());
}

#[test]
fn a_hanging_metadata_log_ends_the_process_with_the_status_of_a_failed_directory() {
    let root = scratch();
    let Some(mut disk) = SmallDisk::new("hung metadata", root.path(), 128) else { return };
    let mut broker = Broker::start(&disk.data(root.path()), &["--set", HANGS]);
    requests::create_topic(&broker.kafka, "t");
    disk.freeze();
    let address = broker.kafka.clone();
    let asks = std::thread::spawn(move || requests::try_create_topic(&address, "u").is_err());
    eventually("the reason is in the log", || broker.log().contains("holds the metadata log, has failed"));
    disk.thaw();
    assert_eq!(broker.wait().0.code(), Some(16), "{}", broker.log());
    assert!(asks.join().expect("no panic"), "nobody is told that it worked");
}
