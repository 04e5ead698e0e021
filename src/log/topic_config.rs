//! Settings of a topic, resolved.

/// Which timestamp records get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's clock at the append.
    LogAppendTime,
}

/// All settings of a topic that take effect, resolved from overrides and broker defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// `retention.ms`; `None` keeps for ever.
    pub retention_ms: Option<u64>,
    /// `retention.bytes`; `None` is unlimited.
    pub retention_bytes: Option<u64>,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`.
    pub segment_ms: u64,
    /// `max.message.bytes`: largest batch, 12-byte log overhead included.
    pub max_message_bytes: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: u64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: u64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: u32,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: u64,
}

impl Default for TopicConfig {
    /// Kafka's defaults.
    fn default() -> TopicConfig {
        TopicConfig {
            retention_ms: Some(604_800_000),
            retention_bytes: None,
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX as u64,
            timestamp_after_max_ms: 3_600_000,
            min_insync_replicas: 1,
            index_interval_bytes: 4096,
            file_delete_delay_ms: 60_000,
        }
    }
}
