//! What a seed decides before the run begins: the node, its topic, its clients, and what goes wrong.

use std::sync::Arc;

use pinion::log::appender::TailWrites;
use pinion::log::group_commit::FlushWay;
use pinion::log::topic_config::TopicConfig;

use crate::rng::Rng;

/// Which part of the world a test leans on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    /// One core, small batches, crashes.
    Crashes,
    /// Several cores and data directories.
    Cores,
    /// A small arena and large batches.
    Memory,
    /// Failing and full disks.
    Disks,
}

/// One run's settings.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cores: u16,
    pub dirs: u16,
    pub partitions: usize,
    pub arena_bytes: u64,
    pub window_bytes_max: u64,
    pub small_blocks: u32,
    pub topic: Arc<TopicConfig>,
    pub way: FlushWay,
    pub tail_writes: TailWrites,
    pub retention_check_ms: u64,
    pub clients: usize,
    /// Batches that the producers send between them.
    pub batches: usize,
    pub batch_bytes_max: u64,
    /// Crashes before the end.
    pub crashes: usize,
    /// Deletes of records, which let segments go.
    pub deletes: bool,
    /// Failures of disk operations in a thousand.
    pub disk_errors: u64,
    /// Full-disk answers to growing files in a thousand.
    pub disk_full: u64,
    /// Full-disk answers to small files in a thousand.
    pub disk_full_small: u64,
    /// Microseconds that a disk write usually takes.
    pub disk_us: u64,
    /// The end is a drop of all partitions and not a stop.
    pub ends_by_drop: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(emphasis: Emphasis, rng: &mut Rng) -> Plan {
        let mut plan = Plan::ordinary(rng);
        match emphasis {
            Emphasis::Crashes => plan.crashes = rng.range(1, 5) as usize,
            Emphasis::Cores => {
                plan.cores = rng.range(2, 4) as u16;
                plan.dirs = rng.range(1, 3) as u16;
                plan.partitions = rng.range(2, 7) as usize;
                plan.crashes = rng.below(2) as usize;
            }
            Emphasis::Memory => {
                plan.arena_bytes = rng.pick(&[8, 8, 10]) << 20;
                plan.batch_bytes_max = rng.pick(&[100_000, 700_000, 1_500_000, 3_000_000]);
                plan.batches = rng.range(30, 90) as usize;
                plan.crashes = rng.below(2) as usize;
                plan.small_blocks = 2;
            }
            Emphasis::Disks => {
                plan.disk_errors = rng.pick(&[0, 2, 10]);
                plan.disk_full = rng.pick(&[0, 100, 400]);
                plan.disk_full_small = rng.pick(&[0, 100, 400]);
                plan.disk_us = rng.pick(&[100, 5_000]);
                plan.dirs = rng.range(1, 3) as u16;
                plan.crashes = rng.below(3) as usize;
            }
        }
        plan
    }

    fn ordinary(rng: &mut Rng) -> Plan {
        Plan {
            cores: 1,
            dirs: 1,
            partitions: rng.range(1, 4) as usize,
            arena_bytes: rng.pick(&[10, 16]) << 20,
            window_bytes_max: 4 << 20,
            small_blocks: rng.range(2, 9) as u32,
            topic: Arc::new(topic(rng)),
            way: rng.pick(&[FlushWay::Sync, FlushWay::Sync, FlushWay::Completion]),
            tail_writes: rng.pick(&[TailWrites::Shared, TailWrites::Copied]),
            retention_check_ms: rng.pick(&[300, 3_000, 300_000]),
            clients: rng.range(2, 8) as usize,
            batches: rng.range(30, 200) as usize,
            batch_bytes_max: rng.pick(&[300, 3_000, 12_000, 60_000]),
            crashes: 0,
            deletes: rng.chance(300),
            disk_errors: 0,
            disk_full: 0,
            disk_full_small: 0,
            disk_us: rng.pick(&[60, 200, 2_000]),
            ends_by_drop: rng.chance(400),
        }
    }
}

fn topic(rng: &mut Rng) -> TopicConfig {
    TopicConfig {
        retention_ms: None,
        retention_bytes: rng.pick(&[None, None, Some(200_000)]),
        segment_bytes: rng.pick(&[20_000, 100_000, 600_000, 4_000_000, 1 << 30]),
        segment_ms: rng.pick(&[20, 200, 604_800_000, 604_800_000]),
        index_interval_bytes: rng.pick(&[0, 512, 4096]),
        file_delete_delay_ms: rng.pick(&[0, 50, 60_000]),
        max_message_bytes: 8 << 20,
        ..TopicConfig::default()
    }
}
