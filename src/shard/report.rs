//! What a core reports to `/metrics`.

use crate::arena::Pool;
use crate::metrics::{CoreReport, PartitionReport, PoolReport};
use crate::shard::Shard;

impl Shard {
    /// A copy of everything that the exporter shows of this core. O(partitions).
    pub fn report(&self) -> CoreReport {
        let outstanding = self.arena.outstanding();
        let pool = |pool, name| PoolReport {
            pool: name,
            used_bytes: outstanding.bytes(pool),
            limit_bytes: self.config.arena.budget_bytes,
        };
        let partitions = self.partitions.iter().map(|(_, partition)| PartitionReport {
            topic: partition.topic.clone(),
            index: partition.id.index,
            isr_size: partition.in_sync_count(),
            start: partition.offsets.log_start(),
            high_watermark: partition.offsets.high_watermark(),
            stable: partition.offsets.stable(),
            end: partition.offsets.end(),
            size_bytes: partition.segments.bytes(),
        });
        CoreReport {
            connections: u64::from(self.connections.count()),
            requests_in_flight: self.requests.len() as u64,
            arena: vec![pool(Pool::Produce, "ingest"), pool(Pool::Replica, "replica"), pool(Pool::Reads, "read")],
            partitions: partitions.collect(),
            ..self.metrics.report(self.config.core)
        }
    }
}
