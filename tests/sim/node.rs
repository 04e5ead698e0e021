//! One incarnation of the node: its cores with the memory and identity of this start.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pinion::arena::{Arena, ArenaConfig, Lease, PoolMinima, Region, Regions};
use pinion::control::image::{BrokerImage, Image, PartitionImage, TopicImage};
use pinion::ids::*;
use pinion::log::checkpoint::{Checkpoint, SlotWriter, newest};
use pinion::log::recovery::RecoveredLog;
use pinion::log::topic_config::TopicDefaults;
use pinion::shard::Shard;
use pinion::shard::action::{Actions, PartitionDir};
use pinion::shard::config::ShardConfig;
use pinion::shard::message::{ClusterView, DirView, HostPartition, Route};

use crate::checks::Watermarks;
use crate::disk::Disk;
use crate::plan::Plan;

pub const TOPIC: TopicId = TopicId([7; 16]);
const NODE: BrokerId = BrokerId(1);

/// One data core.
#[derive(Debug)]
pub struct Core {
    pub shard: Shard,
    /// Small blocks lent to the receives.
    pub small: VecDeque<Lease>,
    pub timer_at: Option<u64>,
    pub stopped: Option<bool>,
    pub dropped: usize,
}

/// One incarnation.
#[derive(Debug)]
pub struct Node {
    pub cores: Vec<Core>,
    pub memory: Arc<Regions>,
    pub epoch: i32,
    pub failed_dirs: BTreeMap<DirId, Errno>,
    pub watermarks: Vec<Watermarks>,
}

impl Node {
    /// Starts the cores. Each one's first actions go to `out`.
    pub fn start(plan: &Plan, disk: &Disk, epoch: i32, now: Now, out: &mut Vec<(usize, Actions)>) -> Node {
        let region = |_| Region::heap(Arena::region_bytes(&arena_config(plan, 0)));
        let memory = Regions::new((0..plan.cores).map(region).collect());
        let cores = (0..plan.cores).map(|core| {
            let writers = (0..plan.dirs).map(|dir| slot_writer(disk, DirId(dir), CoreId(core)));
            let mut actions = Actions::new();
            let config = Arc::new(config(plan, core));
            let shard = Shard::new(config, memory.clone(), writers.collect(), now, &mut actions);
            out.push((usize::from(core), actions));
            Core { shard, small: VecDeque::new(), timer_at: None, stopped: None, dropped: 0 }
        });
        Node {
            cores: cores.collect(),
            memory,
            epoch,
            failed_dirs: BTreeMap::new(),
            watermarks: vec![Watermarks::default(); plan.partitions],
        }
    }
}

/// Where a partition lives.
pub fn dir_of(plan: &Plan, partition: usize) -> PartitionDir {
    let dir = DirId((partition % usize::from(plan.dirs)) as u16);
    PartitionDir { dir, name: format!("t-{partition}").into() }
}

/// Which core serves it.
pub fn core_of(plan: &Plan, partition: usize) -> usize {
    partition % usize::from(plan.cores)
}

pub fn id_of(partition: usize) -> PartitionId {
    PartitionId { topic: TOPIC, index: PartitionIndex(partition as i32) }
}

/// What the control core sends for a partition.
pub fn hosted(plan: &Plan, partition: usize, epoch: i32, log: RecoveredLog) -> HostPartition {
    HostPartition {
        id: id_of(partition),
        topic: "t".into(),
        dir: dir_of(plan, partition),
        leader_epoch: LeaderEpoch(epoch),
        config: plan.topic.clone(),
        log,
    }
}

/// What the checkpoints of a directory say together.
pub fn checkpoint(disk: &Disk, dir: DirId) -> Checkpoint {
    let slots = disk.checkpoints(dir).filter_map(|(_, file)| newest(file).expect("our own format"));
    Checkpoint::merge(slots.collect())
}

fn slot_writer(disk: &Disk, dir: DirId, core: CoreId) -> SlotWriter {
    let sequence = checkpoint(disk, dir).sequence;
    let own = disk.checkpoints(dir).find(|(of, _)| *of == core);
    let slot = own.and_then(|(_, file)| newest(file).expect("our own format"));
    SlotWriter::new(core, sequence, slot.as_ref())
}

fn arena_config(plan: &Plan, core: u16) -> ArenaConfig {
    let pools = PoolMinima { produce_bytes: 2 << 20, replica_bytes: 0, reads_bytes: 2 << 20 };
    ArenaConfig { core: CoreId(core), budget_bytes: plan.arena_bytes, window_bytes_max: plan.window_bytes_max, pools }
}

fn config(plan: &Plan, core: u16) -> ShardConfig {
    ShardConfig {
        core: CoreId(core),
        cores: plan.cores,
        node: NODE,
        arena: arena_config(plan, core),
        flush_ways: vec![plan.way; usize::from(plan.dirs)],
        tail_writes: vec![plan.tail_writes; usize::from(plan.dirs)],
        connections_max: 100,
        connections_per_address_max: 100,
        connection_idle_ms_max: 600_000,
        request_bytes_max: plan.window_bytes_max as u32,
        small_blocks: plan.small_blocks,
        fetch_bytes_max: 50 << 20,
        fetch_sessions_max: 3,
        auto_create_topics: false,
        retention_check_ms: plan.retention_check_ms,
        index_cache_bytes: 64 << 20,
        topic_defaults: Arc::new(TopicDefaults::default()),
        broker_settings: Vec::new(),
        seed: 42,
    }
}

/// The metadata that cores answer from.
pub fn view(plan: &Plan, epoch: i32) -> ClusterView {
    let partition = PartitionImage {
        replicas: vec![NODE],
        isr: vec![NODE],
        leader: NODE,
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: PartitionEpoch(0),
    };
    let topic = TopicImage {
        id: TOPIC,
        name: "t".into(),
        partitions: vec![partition; plan.partitions],
        overrides: BTreeMap::new(),
        config: plan.topic.clone(),
    };
    let broker = BrokerImage {
        epoch: BrokerEpoch(i64::from(epoch)),
        incarnation: TopicId([1; 16]),
        host: "127.0.0.1".into(),
        port: 9092,
        rack: None,
        directories: Vec::new(),
        fenced: false,
    };
    let image = Image {
        cluster_id: "cluster".into(),
        controller: NODE,
        brokers: BTreeMap::from([(NODE, Arc::new(broker))]),
        topics: BTreeMap::from([("t".into(), Arc::new(topic))]),
        names: BTreeMap::from([(TOPIC, "t".into())]),
        ..Image::default()
    };
    let routes = (0..plan.partitions).map(|partition| Route::Core(CoreId(core_of(plan, partition) as u16)));
    let dir = |dir| DirView { path: format!("d{dir}"), online: true, total_bytes: -1, usable_bytes: -1 };
    ClusterView {
        node: NODE,
        image: Arc::new(image),
        routes: BTreeMap::from([(TOPIC, routes.collect())]),
        dirs: (0..plan.dirs).map(dir).collect(),
    }
}
