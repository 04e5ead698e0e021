//! The data core: all logic of connections, produce, fetch and partitions, as a function of (state, event, now).
//!
//! Lives on one thread, for the life of the process; a partition is touched by that thread only. This file is the
//! conductor: it holds the state and one `match` over the events; what each of them means is in the files below it.
//!
//! It never blocks, reads no clock, and allocates nothing in the steady state of produce and fetch.

pub mod action;
pub mod answers;
pub mod appends;
pub mod cold_read;
pub mod commands;
pub mod config;
pub mod configs;
pub mod connection;
pub mod coordinator;
pub mod dispatch;
pub mod event;
pub mod fetch;
pub mod fetch_session;
pub mod fetch_wire;
pub mod file_jobs;
pub mod hosting;
pub mod index_rebuild;
pub mod intake;
pub mod mail;
pub mod memory;
pub mod message;
pub mod metadata;
pub mod named_files;
pub mod partition;
pub mod partitions;
pub mod produce;
pub mod queries;
pub mod read;
pub mod report;
pub mod requests;
pub mod respond;
pub mod session_parts;
pub mod shutdown;
pub mod time_search;
pub mod timers;
pub mod upkeep;
pub mod view;
pub mod writes;

use std::sync::Arc;

use crate::arena::{Arena, Regions};
use crate::ids::{MonoMicros, Now};
use crate::log::checkpoint::SlotWriter;
use crate::log::index_cache::IndexCache;
use crate::metrics::CoreMetrics;
use crate::shard::action::Actions;
use crate::shard::appends::Appends;
use crate::shard::cold_read::ColdReads;
use crate::shard::commands::ProducerIds;
use crate::shard::config::ShardConfig;
use crate::shard::connection::Connections;
use crate::shard::event::Event;
use crate::shard::fetch::FetchPool;
use crate::shard::fetch_session::FetchSessions;
use crate::shard::file_jobs::FileJobs;
use crate::shard::index_rebuild::IndexRebuilds;
use crate::shard::intake::IntakeState;
use crate::shard::memory::MemoryState;
use crate::shard::message::ClusterView;
use crate::shard::named_files::NamedFiles;
use crate::shard::partitions::Partitions;
use crate::shard::produce::ProducePool;
use crate::shard::read::Grown;
use crate::shard::requests::Requests;
use crate::shard::respond::Buffers;
use crate::shard::shutdown::Stopping;
use crate::shard::timers::Timers;
use crate::shard::upkeep::Upkeep;
use crate::shard::writes::Writes;

/// All state of one data core.
#[derive(Debug)]
pub struct Shard {
    config: Arc<ShardConfig>,
    /// Read access to every core's arena; apart from `arena` so that a view into it may live while blocks are made.
    memory: Arc<Regions>,
    arena: Arena,
    view: Arc<ClusterView>,
    connections: Connections,
    intake: IntakeState,
    requests: Requests,
    buffers: Buffers,
    partitions: Partitions,
    appends: Appends,
    writes: Writes,
    file_jobs: FileJobs,
    named_files: NamedFiles,
    /// Partitions whose files found the disk full.
    no_space: Vec<u32>,
    pressure: MemoryState,
    producer_ids: ProducerIds,
    produces: ProducePool,
    fetches: FetchPool,
    fetch_sessions: FetchSessions,
    grown: Grown,
    cold_reads: ColdReads,
    index_cache: IndexCache,
    rebuilds: IndexRebuilds,
    upkeep: Upkeep,
    timers: Timers,
    stopping: Stopping,
    metrics: CoreMetrics,
}

impl Shard {
    /// A core that hosts nothing yet. `memory` holds the regions of all cores, this one's of the size that
    /// `Arena::region_bytes` asks for. `checkpoints` go on where recovery found them, one per data directory.
    pub fn new(
        config: Arc<ShardConfig>,
        memory: Arc<Regions>,
        checkpoints: Vec<SlotWriter>,
        now: Now,
        out: &mut Actions,
    ) -> Shard {
        let arena = Arena::new(config.arena, memory.clone());
        let mut shard = Shard {
            view: Arc::new(ClusterView::default()),
            connections: Connections::new(config.connections_max),
            intake: IntakeState::default(),
            requests: Requests::default(),
            buffers: Buffers::default(),
            partitions: Partitions::default(),
            appends: Appends::default(),
            writes: Writes::new(&config.flush_ways),
            file_jobs: FileJobs::new(config.core),
            named_files: NamedFiles::default(),
            no_space: Vec::new(),
            pressure: MemoryState::default(),
            producer_ids: ProducerIds::default(),
            produces: ProducePool::default(),
            fetches: FetchPool::default(),
            fetch_sessions: FetchSessions::new(config.fetch_sessions_max, config.seed),
            grown: Grown::default(),
            cold_reads: ColdReads::default(),
            index_cache: IndexCache::new(config.index_cache_bytes),
            rebuilds: IndexRebuilds::default(),
            upkeep: Upkeep::new(checkpoints),
            timers: Timers::default(),
            stopping: Stopping::default(),
            metrics: CoreMetrics::default(),
            config,
            memory,
            arena,
        };
        shard.set_first_timers(now.mono);
        shard.provide_small_blocks(out);
        shard
    }

    /// Something happened. Appends what is to be done to `out`.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Actions) {
        self.metrics.set_now(now.mono);
        match event {
            Event::Accepted { conn, peer, crowd, from_address } => {
                self.on_accepted(now, (conn, peer), crowd, from_address, out);
            }
            Event::Received { conn, bytes } => self.on_received(now, conn, bytes, out),
            Event::Hangup { conn, window, error } => self.on_hangup(conn, window, error, out),
            Event::Sent { conn, parts, result } => self.on_sent(now, conn, parts, result, out),
            Event::Closed { conn } => self.on_closed(conn, out),
            Event::Written { write, block, result } => self.on_written(now, write, block, result, out),
            Event::Flushed { flush, result } => self.on_flushed(now, flush, result, out),
            Event::Read { read, into, result } if IndexRebuilds::owns(read) => {
                self.on_rebuild_read(now, read, into, result, out);
            }
            Event::Read { read, into, result } => self.on_read(now, read, into, result, out),
            Event::Resident { probe, missing } => self.on_resident(now, probe, missing, out),
            Event::File { job, result } => self.on_file_job(now, job, result, out),
            Event::Mail { from, message } => self.on_mail(now, from, message, out),
            Event::Deadline => self.on_deadline(now, out),
        }
    }

    /// The end of a turn: what was gathered over its events leaves together (group commit, flushes, wake-ups).
    pub fn turn_end(&mut self, now: Now, out: &mut Actions) {
        self.retry_appends(now, out);
        self.advance_touched(now, out);
        self.submit_writes(now, out);
        self.submit_flushes(out);
        self.wake_fetches(now, out);
        self.retry_starved(now, out);
        self.advance_touched(now, out);
        self.check_stopped(now, out);
    }

    /// When `Event::Deadline` is wanted next.
    pub fn deadline(&self) -> Option<MonoMicros> {
        self.timers.next_due()
    }
}
