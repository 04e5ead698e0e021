//! How long recovery takes after a kill: partitions that are all non-empty, their active files allocated ahead, with a
//! checkpoint that is a second old. Prints the wall time until the last log is recovered, beside the time that one read
//! of each file takes on the same device.
//!
//! `cargo bench --bench recovery -- [PARTITIONS [DIRECTORY]]`; without numbers 10,000 below the target directory. Under
//! `cargo test` it runs a smoke size.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinion::control::job::RecoverAsk;
use pinion::ids::{BrokerEpoch, CoreId, DirId, FilePos, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicId};
use pinion::ids::{ProducerEpoch, ProducerId};
use pinion::kafka::batch_builder::BatchBuilder;
use pinion::limits::{FIRST_GROWTH_BYTES, PARTITIONS_PER_MESSAGE_MAX};
use pinion::log::checkpoint::{Entry, SlotWriter};
use pinion::log::epochs::LeaderEpochs;
use pinion::log::recovery::RecoveredLog;
use pinion::log::segment::UnwrittenExtents;
use pinion::log::topic_config::TopicConfig;
use pinion::runtime::recover::{self, Buffer, DirState};
use pinion::shard::action::PartitionDir;

const SMOKE: usize = 40;
const FULL: usize = 10_000;
const THREADS: usize = 2;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let smoke = !std::env::args().any(|arg| arg == "--bench");
    let count =
        args.first().map_or(if smoke { SMOKE } else { FULL }, |arg| arg.parse().expect("a count of partitions"));
    let root = args.get(1).map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    for producers in [false, true] {
        let dir = root.join(format!("recovery-{}", std::process::id()));
        run(&dir, count, producers);
        fs::remove_dir_all(&dir).expect("the directory is ours");
    }
}

fn run(dir: &Path, count: usize, producers: bool) {
    let built = Instant::now();
    build(dir, count, producers);
    let built = built.elapsed();
    let fd = OwnedFd::from(File::open(dir).expect("just made"));
    let read = bare_reads(dir, count);
    let begun = Instant::now();
    let state = recover::read_state(&fd, false).expect("a checkpoint");
    let recovered = recover_all(&fd, &state, count);
    let took = begun.elapsed();
    assert_eq!(recovered, count);
    let what = if producers { "with producer state" } else { "without producers" };
    println!(
        "{count} partitions {what}: recovered in {:.3} s by {THREADS} threads, {:.0} us each (built in {:.1} s; one 16 KiB \
         O_DIRECT read of each file: {:.3} s)",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / count as f64,
        built.as_secs_f64(),
        read.as_secs_f64(),
    );
}

fn recover_all(fd: &OwnedFd, state: &DirState, count: usize) -> usize {
    let asks: Vec<RecoverAsk> = (0..count).map(ask).collect();
    let jobs: Vec<&[RecoverAsk]> = asks.chunks(PARTITIONS_PER_MESSAGE_MAX).collect();
    let (next, recovered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut buffer = Buffer::new();
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let logs = recover::partitions(fd, state, job, UnwrittenExtents::Allowed, &mut buffer);
                    // The fourth batch came after the checkpoint.
                    let whole = |log: &RecoveredLog| log.end == Offset(4) && !log.below_checkpoint;
                    let good = logs.iter().filter(|(_, log)| log.as_ref().is_ok_and(whole)).count();
                    recovered.fetch_add(good, Ordering::Relaxed);
                }
            });
        }
    });
    recovered.into_inner()
}

fn id(index: usize) -> PartitionId {
    PartitionId { topic: TopicId([3; 16]), index: PartitionIndex(index as i32) }
}

fn ask(index: usize) -> RecoverAsk {
    RecoverAsk {
        id: id(index),
        dir: PartitionDir { dir: DirId(0), name: Arc::from(format!("bench-{index}")) },
        leader_epoch_max: LeaderEpoch(0),
        config: Arc::new(TopicConfig::default()),
    }
}

fn build(dir: &Path, count: usize, producers: bool) {
    fs::create_dir_all(dir.join(".pinion")).expect("a place to write");
    let (log, at) = log_of(producers);
    let epochs = LeaderEpochs::recovered(&[(LeaderEpoch(0), Offset(0))]).encode();
    for index in 0..count {
        let partition = dir.join(format!("bench-{index}"));
        fs::create_dir_all(&partition).expect("a directory");
        let file = File::create(partition.join("00000000000000000000.log")).expect("a log");
        file.write_all_at(&log, 0).expect("space on the disk");
        fs::write(partition.join("leader-epoch-checkpoint"), &epochs).expect("space on the disk");
        fs::write(partition.join("partition.metadata"), "version: 0\n").expect("space on the disk");
    }
    let entries = (0..count).map(|index| Entry {
        partition: id(index),
        stable: Offset(3),
        segment: Offset(0),
        at: FilePos(at),
        high_watermark: Offset(3),
        log_start: Offset(0),
        producers_from: producers.then_some(Offset(0)),
    });
    let mut slot = Vec::new();
    SlotWriter::new(CoreId(0), 0, None).encode(BrokerEpoch(1), entries, &mut slot);
    File::create(dir.join(".pinion/checkpoint-0")).and_then(|mut file| file.write_all(&slot)).expect("a checkpoint");
    rustix::fs::syncfs(File::open(dir).expect("just made")).expect("a sync");
    drop_pages(dir, count);
}

/// The logs were written with O_DIRECT: no page of them is cached.
fn drop_pages(dir: &Path, count: usize) {
    for index in 0..count {
        let file = File::open(dir.join(format!("bench-{index}/00000000000000000000.log"))).expect("a log");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is free");
    }
}

fn log_of(producers: bool) -> (Vec<u8>, u64) {
    let mut log = Vec::new();
    let mut checkpointed = 0;
    for base in 0..4 {
        checkpointed = log.len() as u64;
        let batch = BatchBuilder::new().appended(Offset(base), LeaderEpoch(0)).value(1000 + base, &[b'v'; 700]);
        let batch = match producers {
            true => batch.producer(ProducerId(base), ProducerEpoch(0), 0),
            false => batch,
        };
        log.extend_from_slice(&batch.build());
    }
    log.resize(FIRST_GROWTH_BYTES as usize, 0);
    (log, checkpointed)
}

/// What the device needs for one read of each file, by as many threads.
fn bare_reads(dir: &Path, count: usize) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut bytes = vec![0_u8; 16384 + 4096];
                let from = bytes.as_ptr().align_offset(4096);
                for index in (thread..count).step_by(THREADS) {
                    let path = dir.join(format!("bench-{index}/00000000000000000000.log"));
                    let file =
                        fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).expect("a log");
                    file.read_at(&mut bytes[from..from + 16384], 0).expect("a readable file");
                }
            });
        }
    });
    begun.elapsed()
}
