//! Index files that are lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pinion::kafka::error_code::ErrorCode;

use crate::process::{Broker, pinion};
use crate::{eventually, requests, scratch};

/// The index files of a partition by path, but for those of the active segment.
fn indexes(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> = files.collect();
    let active = files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "log")).max().expect("a log");
    let is_index = |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "index" || kind == "timeindex");
    let sealed = files.iter().filter(is_index).filter(|path| path.file_stem() != active.file_stem());
    sealed.map(|path| (path.clone(), std::fs::read(path).unwrap_or_default())).collect()
}

#[test]
fn lost_indexes_of_sealed_segments_come_back_in_the_background() {
    let root = scratch();
    let dir = root.path().join("data");
    let arguments = ["--set", "log.segment.bytes=1MiB", "--set", "message.max.bytes=512KiB"];
    let mut broker = Broker::start(&dir, &arguments);
    let topic = requests::create_topic(&broker.kafka, "t");
    let mut client = requests::connect(&broker.kafka);
    for _ in 0..30 {
        let (error, _) =
            requests::produce(&mut client, &topic, -1, &[7; 100_000]).unwrap_or_else(|f| panic!("{}", f.message));
        assert_eq!(error, ErrorCode::NONE);
    }
    assert_eq!(broker.terminate().0.code(), Some(0), "{}", broker.log());
    let partition = dir.join("t-0");
    let before = indexes(&partition);
    assert!(before.len() >= 4 && before.values().all(|file| !file.is_empty()), "{:?}", before.keys());
    before.keys().for_each(|path| std::fs::remove_file(path).expect("removed"));
    let mut broker = Broker::start(&dir, &arguments);
    eventually("the indexes are as they were", || indexes(&partition) == before);
    assert_eq!(requests::read_from(&broker.kafka, &topic, 0).len(), 30);
    assert_eq!(broker.terminate().0.code(), Some(0), "{}", broker.log());
    let path = partition.to_str().expect("a path of ours");
    let verified = pinion(&["log", "verify", path]).output().expect("it runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}
