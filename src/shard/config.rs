//! What a data core must know of the configuration: plain values, resolved once at start.

use std::sync::Arc;

use crate::arena::ArenaConfig;
use crate::ids::{BrokerId, CoreId};
use crate::log::appender::TailWrites;
use crate::log::group_commit::FlushWay;
use crate::log::topic_config::{Described, TopicDefaults};

/// The settings of one data core.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// This core.
    pub core: CoreId,
    /// How many data cores there are.
    pub cores: u16,
    /// This broker.
    pub node: BrokerId,
    /// Memory of the core's arena.
    pub arena: ArenaConfig,
    /// What makes a write stable, per data directory.
    pub flush_ways: Vec<FlushWay>,
    /// Whether tail blocks may be filled further while they are written, per data directory.
    pub tail_writes: Vec<TailWrites>,
    /// Connections this core takes (its share of `max.connections`).
    pub connections_max: u32,
    /// Connections the whole broker takes from one address.
    pub connections_per_address_max: u32,
    /// `connections.max.idle.ms`.
    pub connection_idle_ms_max: u64,
    /// `socket.request.max.bytes`: largest Produce request.
    pub request_bytes_max: u32,
    /// Small blocks lent to the pool of first receives.
    pub small_blocks: u32,
    /// `fetch.max.bytes`: most bytes of one fetch answer.
    pub fetch_bytes_max: u32,
    /// `max.incremental.fetch.session.cache.slots`, this core's share.
    pub fetch_sessions_max: u32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `log.retention.check.interval.ms`.
    pub retention_check_ms: u64,
    /// Bytes of sealed indexes kept in memory.
    pub index_cache_bytes: u64,
    /// What topics without overrides get, for descriptions.
    pub topic_defaults: Arc<TopicDefaults>,
    /// The broker's own settings, for descriptions.
    pub broker_settings: Vec<Described>,
    /// Where random-looking ids of this core come from.
    pub seed: u64,
}
