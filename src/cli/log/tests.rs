//! `pinion log` on files made here, and its table on damage.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use tempfile::TempDir;

use super::{Stop, dump, verify};
use crate::ids::{BrokerEpoch, CoreId, FilePos, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicId};
use crate::kafka::batch::{BatchView, Codec};
use crate::kafka::batch_builder::BatchBuilder;
use crate::kafka::record::OwnedRecord;
use crate::log::checkpoint::{Entry, SlotWriter};
use crate::log::index::{BatchSpan, SegmentIndex};
use crate::log::text_files::encode_partition_metadata;

const LOG: &str = "00000000000000000000.log";

/// A data directory with one partition of three batches at positions 0, 1000…, with its indexes, and a checkpoint.
fn data_dir(zeros: usize) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let partition = dir.path().join("orders-2");
    fs::create_dir_all(&partition).expect("a directory");
    let mut log = Vec::new();
    let mut index = SegmentIndex::new(Offset(0), 1000);
    for base in [0, 2, 4] {
        let batch = batch(base, 2);
        index.on_append(&BatchSpan::of(FilePos(log.len() as u64), &BatchView::parse(&batch).expect("just built")));
        log.extend_from_slice(&batch);
    }
    let end = log.len() as u64;
    log.resize(log.len() + zeros, 0);
    let write = |name: &str, bytes: &[u8]| write(&partition.join(name), bytes);
    write(LOG, &log);
    write("00000000000000000000.index", index.offsets.as_bytes());
    write("00000000000000000000.timeindex", index.times.as_bytes());
    write("partition.metadata", encode_partition_metadata(TopicId([9; 16])).as_bytes());
    write("leader-epoch-checkpoint", b"0\n1\n1 0\n");
    checkpoint(dir.path(), 6, end);
    dir
}

fn checkpoint(dir: &Path, stable: i64, at: u64) {
    let entry = Entry {
        partition: PartitionId { topic: TopicId([9; 16]), index: PartitionIndex(2) },
        stable: Offset(stable),
        segment: Offset(0),
        at: FilePos(at),
        high_watermark: Offset(stable),
        log_start: Offset(0),
        producers_from: None,
    };
    let mut slot = Vec::new();
    SlotWriter::new(CoreId(0), 0, None).encode(BrokerEpoch(3), [entry].into_iter(), &mut slot);
    fs::create_dir_all(dir.join(".pinion")).expect("a directory");
    fs::write(dir.join(".pinion/checkpoint-0"), slot).expect("space");
}

fn verified(path: &Path) -> (String, Vec<String>) {
    let mut out = Vec::new();
    let damage = verify::verify(path, false, &mut out).expect("it can be read");
    (String::from_utf8(out).expect("text"), damage)
}

fn dumped(path: &Path, records: bool, json: bool) -> String {
    let mut out = Vec::new();
    dump::dump(path, records, json, &mut out).expect("it can be read");
    String::from_utf8(out).expect("text")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("there");
    bytes[at] ^= 1;
    write(path, &bytes);
}

/// Writes a file that no broker has touched lately.
fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("space");
    let file = fs::File::options().write(true).open(path).expect("just written");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("a time");
}

fn batch(base: i64, count: usize) -> Vec<u8> {
    BatchBuilder::new().appended(Offset(base), LeaderEpoch(1)).values(count, 100 + base, &[b'v'; 700]).build()
}

#[test]
fn a_sound_data_directory_has_no_damage() {
    for zeros in [0, 10_000] {
        let dir = data_dir(zeros);
        let (table, damage) = verified(dir.path());
        assert_eq!(damage, Vec::<String>::new(), "{table}");
        assert!(table.contains("orders-2"), "{table}");
        assert!(table.lines().any(|line| line.contains("0..5") && line.ends_with("ok, 1 segment")), "{table}");
    }
}

#[test]
fn zeros_behind_the_last_batch_are_said_and_are_no_damage() {
    let dir = data_dir(10_000);
    let (table, damage) = verified(&dir.path().join("orders-2").join(LOG));
    assert!(table.contains("ok, 10000 zeros at the end"), "{table}");
    assert!(damage.is_empty());
    assert!(dumped(&dir.path().join("orders-2").join(LOG), false, false).contains("zeros to the end"));
}

#[test]
fn a_flipped_bit_is_named_with_file_position_and_reason() {
    let dir = data_dir(0);
    let log = dir.path().join("orders-2").join(LOG);
    let second = BatchView::parse(&fs::read(&log).expect("there")).expect("a batch").size_bytes();
    flip(&log, second + 300);
    let (_, damage) = verified(dir.path());
    assert!(damage[0].starts_with(&format!("orders-2/{LOG} at {second}: crc ")), "{damage:?}");
    assert_eq!(damage.len(), 1);
}

#[test]
fn a_torn_batch_and_bytes_behind_zeros_are_damage() {
    let dir = data_dir(5000);
    let log = dir.path().join("orders-2").join(LOG);
    let len = fs::metadata(&log).expect("there").len() as usize;
    flip(&log, len - 10);
    let (_, damage) = verified(&log);
    assert!(damage[0].contains(&format!("{LOG} at {}: bytes behind the zeros", len - 10)), "{damage:?}");
    let bytes = fs::read(&log).expect("there");
    write(&log, &bytes[..len - 5100]);
    let (_, damage) = verified(&log);
    assert!(damage[0].contains("invalid bytes at the end"), "{damage:?}");
}

#[test]
fn indexes_are_checked_against_the_log() {
    let dir = data_dir(0);
    let partition = dir.path().join("orders-2");
    flip(&partition.join("00000000000000000000.index"), 7);
    flip(&partition.join("00000000000000000000.timeindex"), 7);
    let (_, damage) = verified(&partition);
    assert!(damage[0].starts_with("00000000000000000000.index at 0: entry 0: position "), "{damage:?}");
    assert!(damage[1].starts_with("00000000000000000000.timeindex at 0: entry 0: timestamp "), "{damage:?}");
    assert_eq!(damage.len(), 2);
    let (_, alone) = verified(&partition.join("00000000000000000000.index"));
    assert_eq!(alone, damage[..1]);
    fs::remove_file(partition.join(LOG)).expect("there");
    let (_, orphan) = verified(&partition.join("00000000000000000000.index"));
    assert!(orphan[0].contains("there is no"), "{orphan:?}");
}

#[test]
fn a_preallocated_index_without_entries_is_sound() {
    let dir = data_dir(0);
    let partition = dir.path().join("orders-2");
    fs::write(partition.join("00000000000000000000.index"), [0; 800]).expect("space");
    fs::write(partition.join("00000000000000000000.timeindex"), [0; 1200]).expect("space");
    let (table, damage) = verified(&partition);
    assert!(damage.is_empty(), "{table}\n{damage:?}");
    let dump = dumped(&partition, false, false);
    assert!(!dump.contains("timestamp 0 ") && !dump.contains("position 0"), "{dump}");
}

#[test]
fn a_log_that_ends_below_the_checkpoint_has_lost_records() {
    let dir = data_dir(0);
    checkpoint(dir.path(), 8, 9999);
    let (_, damage) = verified(dir.path());
    assert!(damage[0].ends_with("the log ends at 6, the checkpoint knows 8 as stable"), "{damage:?}");
}

#[test]
fn segments_that_are_gone_are_missed() {
    let dir = data_dir(0);
    let partition = dir.path().join("orders-2");
    write(&partition.join("00000000000000000009.log"), &batch(9, 1));
    checkpoint(dir.path(), 10, 800);
    let gap = "orders-2/00000000000000000009.log at 0: offsets 6 to 8 are missing before this segment";
    assert_eq!(verified(dir.path()).1, [gap]);
    let (_, elsewhere) = verified(&partition);
    assert_eq!(elsewhere, Vec::<String>::new(), "compaction may have left the gap");
    fs::remove_file(partition.join("00000000000000000009.log")).expect("there");
    fs::remove_file(partition.join(LOG)).expect("there");
    let (_, damage) = verified(dir.path());
    assert!(damage.iter().any(|line| line.starts_with("orders-2/*.log at 0: no segment is there")), "{damage:?}");
}

#[test]
fn an_empty_segment_after_a_roll_does_not_hide_what_is_missing_before_it() {
    let dir = data_dir(0);
    write(&dir.path().join("orders-2/00000000000000000006.log"), &[]);
    assert_eq!(verified(dir.path()).1, Vec::<String>::new());
    checkpoint(dir.path(), 8, 9999);
    let (_, damage) = verified(dir.path());
    assert!(damage[0].ends_with("the log ends at 6, the checkpoint knows 8 as stable"), "{damage:?}");
}

/// A Kafka follower appends several batches at once and writes one entry for them.
#[test]
fn an_index_entry_may_stand_for_several_batches() {
    let dir = tempfile::tempdir().expect("a directory");
    let log: Vec<u8> = [batch(0, 2), batch(2, 2), batch(4, 2)].concat();
    let second = batch(0, 2).len() as u32;
    let entry = |offset: u32, at: u32| [offset.to_be_bytes(), at.to_be_bytes()].concat();
    write(&dir.path().join(LOG), &log);
    let index = dir.path().join("00000000000000000000.index");
    write(&index, &entry(5, second));
    assert_eq!(verified(&index).1, Vec::<String>::new());
    for (offset, at, reason) in [
        (4, second, "offset 4, where no batch ends"),
        (2, second, "offset 2 for the batch at"),
        (6, second, "offset 6, where no batch ends"),
        (3, second + 1, "where no batch begins"),
        (9, 99_999, "position 99999, behind the last batch"),
    ] {
        write(&index, &entry(offset, at));
        let (_, damage) = verified(&index);
        assert!(damage.len() == 1 && damage[0].contains(reason), "{damage:?}");
    }
}

/// Entries are written ahead of their batches, so that a crash may leave them behind the end of an active segment.
#[test]
fn index_entries_behind_the_zeros_of_an_active_segment_are_no_damage() {
    let dir = data_dir(10_000);
    let index = dir.path().join("orders-2/00000000000000000000.index");
    let ahead = [fs::read(&index).expect("there"), vec![0, 0, 0, 99, 0, 0, 0x30, 0]].concat();
    write(&index, &ahead);
    assert_eq!(verified(dir.path()).1, Vec::<String>::new());
}

#[test]
fn a_damaged_batch_is_no_damage_of_its_indexes() {
    let dir = data_dir(0);
    let partition = dir.path().join("orders-2");
    let second = batch(0, 2).len();
    for at in [second + 300, second + 23, second + 30] {
        let sound = fs::read(partition.join(LOG)).expect("there");
        flip(&partition.join(LOG), at);
        let (_, damage) = verified(&partition);
        assert!(damage.len() == 1 && damage[0].starts_with(&format!("{LOG} at {second}: crc ")), "{damage:?}");
        let dump = dumped(&partition.join(LOG), true, false);
        assert!(dump.contains("INVALID: crc ") && dump.matches(" key ").count() == 4, "{dump}");
        write(&partition.join(LOG), &sound);
    }
}

/// The batch is completed while it is read, or before; in both cases it is sound.
#[test]
fn a_batch_that_is_being_written_is_read_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(LOG);
    let log = batch(0, 2);
    let mut torn = log.clone();
    torn[100..].fill(0);
    fs::write(&path, &torn).expect("space");
    let damage = std::thread::scope(|scope| {
        let writer = fs::File::options().write(true).open(&path).expect("there");
        scope.spawn(move || writer.write_all_at(&log[100..], 100).expect("space"));
        verified(&path).1
    });
    assert_eq!(damage, Vec::<String>::new());
}

#[test]
fn a_new_data_directory_is_sound() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(matches!(verify::verify(dir.path(), false, &mut Vec::new()), Err(Stop::Failed(_))), "no files of a log");
    fs::create_dir(dir.path().join(".pinion")).expect("a directory");
    assert_eq!(verified(dir.path()).1, Vec::<String>::new());
}

#[test]
fn records_are_dumped_with_keys_values_and_headers_whatever_the_codec() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(LOG);
    let record = OwnedRecord {
        timestamp: 1234,
        key: Some(b"k".to_vec()),
        value: Some(vec![0xff, b'x']),
        headers: vec![("h".to_owned(), None)],
    };
    let mut log = Vec::new();
    for (base, codec) in (0..).zip(Codec::ALL) {
        let batch = BatchBuilder::new().appended(Offset(base), LeaderEpoch(0)).codec(codec).record(record.clone());
        log.extend_from_slice(&batch.build());
    }
    fs::write(&path, &log).expect("space");
    let text = dumped(&path, true, false);
    assert_eq!(
        text.matches("timestamp 1234           key \"k\" value \"\\xffx\" header \"h\"=null").count(),
        5,
        "{text}"
    );
    let json = dumped(&path, true, true);
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[1]["key"], "k");
    assert_eq!(lines[1]["value"]["hex"], "ff78");
    assert_eq!(lines[8]["codec"], "zstd");
    assert_eq!(lines[9]["offset"], 4);
}

#[test]
fn json_of_verify_is_a_line_per_file() {
    let dir = data_dir(0);
    let mut out = Vec::new();
    let damage = verify::verify(dir.path(), true, &mut out).expect("it can be read");
    assert!(damage.is_empty());
    let text = String::from_utf8(out).expect("text");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 6, "{text}");
    let log = lines.iter().find(|line| line["kind"] == "log").expect("the log");
    assert_eq!(
        (log["entries"].as_i64(), log["records"].as_i64(), log["end_offset"].as_i64()),
        (Some(3), Some(6), Some(6))
    );
}
