//! The front door: starting, refusing to start, stopping, and the commands that talk to it.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use crate::process::{self, Broker, pinion, serve};
use crate::scratch;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a start that must be refused; gives the exit status and what stderr says.
fn refused(output: Output) -> (Option<i32>, String) {
    assert_eq!(text(&output.stdout), "", "nothing on stdout unless it is ready");
    (output.status.code(), text(&output.stderr))
}

/// The status of a refused start, which must name a remedy and `word`.
fn status_of(output: Output, word: &str) -> Option<i32> {
    let (status, stderr) = refused(output);
    assert!(stderr.contains("\n  remedy: ") && stderr.contains(word), "{stderr}");
    status
}

#[test]
fn a_node_says_on_one_line_that_it_is_ready_and_stops_on_sigterm() {
    let root = scratch();
    let dir = root.path().join("data");
    let mut broker = Broker::start(&dir, &[]);
    assert!(broker.ready.starts_with("ready node=1 kafka=127.0.0.1:"), "{}", broker.ready);
    assert!(!broker.kafka.ends_with(":0") && !broker.http.ends_with(":0"), "{}", broker.ready);
    assert!(broker.log().contains("flush.mode synced"), "{}", broker.log());
    let (status, rest) = broker.terminate();
    assert_eq!((status.code(), rest.as_str()), (Some(0), ""), "{}", broker.log());
    assert!(dir.join(".kafka_cleanshutdown").exists(), "the marker of a clean stop");
    let again = Broker::start(&dir, &[]);
    assert!(!dir.join(".kafka_cleanshutdown").exists(), "a crash from now on must count as one");
    assert_eq!(again.get("/readyz").0, "HTTP/1.1 200 OK");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_the_nearest_name() {
    let root = scratch();
    let set = |pair: &str| serve(&root.path().join("data"), &["--set", pair]).output().expect("runs");
    assert_eq!(status_of(set("log.segement.bytes=1MiB"), "the nearest one is log.segment.bytes"), Some(2));
    assert_eq!(status_of(set("log.segment.bytes=5"), "1 MiB to"), Some(2));
    assert_eq!(status_of(set("message.max.bytes=512MiB"), "socket.request.max.bytes"), Some(2));
    assert!(!root.path().join("data").exists(), "a refused start leaves nothing behind");
}

#[test]
fn a_taken_port_and_a_locked_directory_are_refused() {
    let root = scratch();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let on_port =
        pinion(&["serve", "--listen", &address, "--http", "off", "--data-dir"]).arg(root.path().join("a")).output();
    assert_eq!(status_of(on_port.expect("runs"), &address), Some(12));
    let dir = root.path().join("b");
    let _broker = Broker::start(&dir, &[]);
    assert_eq!(status_of(serve(&dir, &[]).output().expect("runs"), ".lock"), Some(13));
}

#[test]
fn directories_of_another_node_or_of_somebody_else_are_refused() {
    let root = scratch();
    let dir = root.path().join("data");
    Broker::start(&dir, &[]).kill();
    let other = serve(&dir, &["--node-id", "2"]).output().expect("runs");
    assert_eq!(status_of(other, "belongs to node 1, not to 2"), Some(14));
    let home = root.path().join("home");
    std::fs::create_dir(&home).expect("created");
    std::fs::write(home.join("letter.txt"), "dear").expect("written");
    assert_eq!(status_of(serve(&home, &[]).output().expect("runs"), "letter.txt"), Some(14));
}

#[test]
fn a_file_system_without_o_direct_is_refused() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return process::skip("front_door: a file system without O_DIRECT", "there is no /dev/shm");
    }
    let root = tempfile::tempdir_in(shm).expect("a directory");
    assert_eq!(status_of(serve(&root.path().join("data"), &[]).output().expect("runs"), "O_DIRECT"), Some(11));
}

#[test]
fn topics_are_administered_over_the_wire() {
    let root = scratch();
    let broker = Broker::start(&root.path().join("data"), &[]);
    let run = |arguments: &[&str]| {
        let output = broker.topic(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stderr), broker.log());
        text(&output.stdout)
    };
    let fails = |arguments: &[&str]| {
        let output = broker.topic(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    };
    run(&["create", "orders", "--partitions", "3", "--config", "segment.bytes=16MiB", "--config", "retention.ms=2d"]);
    assert_eq!(run(&["list"]), "orders\n");
    assert_eq!(run(&["create", "orders", "--if-not-exists"]), "orders is there already\n");
    assert!(fails(&["create", "orders"]).contains("(TOPIC_ALREADY_EXISTS)"));
    assert!(fails(&["create", "x", "--config", "retension.ms=1"]).contains("retention.ms"));
    assert!(fails(&["create", "x", "--config", "cleanup.policy=compact"]).contains("compaction does not exist yet"));
    run(&["alter", "orders", "--partitions", "5", "--config", "retention.ms=1d", "--delete-config", "segment.bytes"]);
    assert!(fails(&["alter", "orders", "--partitions", "2"]).contains("cannot give orders 2 partitions"));
    let described: serde_json::Value = serde_json::from_str(&run(&["describe", "orders", "--json"])).expect("JSON");
    assert_eq!(described["partitions"].as_array().map(Vec::len), Some(5));
    assert_eq!(described["configs"], serde_json::json!({ "retention.ms": "86400000" }));
    let (status, metrics) = broker.get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(metrics.contains("pinion_partition_end_offset{topic=\"orders\",partition=\"4\"} 0"), "{metrics}");
    assert!(
        metrics.contains("pinion_requests_total{api=\"CreateTopics\",error=\"TOPIC_ALREADY_EXISTS\"} 2"),
        "{metrics}"
    );
    run(&["delete", "orders"]);
    assert_eq!(run(&["list"]), "");
    assert!(fails(&["describe", "orders"]).contains("(UNKNOWN_TOPIC_OR_PARTITION)"));
}

#[test]
fn a_command_without_a_broker_says_whom_it_could_not_reach() {
    let output = pinion(&["topic", "--bootstrap", "127.0.0.1:1", "list"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("pinion: no broker can be reached; 127.0.0.1:1: "));
}

#[test]
fn completions_manual_and_settings_are_printed() {
    for (arguments, word) in [
        (&["completions", "bash"][..], "_pinion"),
        (&["man"], ".TH pinion"),
        (&["serve", "--list-settings"], "\nlog.segment.bytes\n"),
        (&["serve", "--help"], "Examples:"),
    ] {
        let output = pinion(arguments).output().expect("runs");
        assert!(output.status.success() && text(&output.stdout).contains(word), "{arguments:?}");
    }
}
