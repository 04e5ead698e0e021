//! Which segments a partition may give up, decided from metadata alone (kafka-spec §2.7).
//!
//! Only a prefix of the log goes, only sealed segments, and only what lies below the high watermark. The caller persists
//! the new log start first, then removes the files once nothing reads them any more.

use crate::ids::{Offset, WallMillis};
use crate::log::offsets::Offsets;
use crate::log::segment::{Segment, SegmentSet, SegmentState};
use crate::log::topic_config::TopicConfig;

/// What retention decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPlan {
    /// Segments to delete, oldest first: base offset and reason. They are the first ones of the set.
    pub delete: Vec<(Offset, Breach)>,
    /// The log start from then on; the present one when nothing is deleted.
    pub log_start: Offset,
    /// The active segment is over the limit itself and everything before it goes: roll it, so that the next check can
    /// delete it.
    pub roll_active: Option<Breach>,
}

/// Why a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// It lies below the log start (DeleteRecords, or a leader's log start).
    LogStart,
    /// Without it the log still has `retention.bytes`.
    Size,
    /// Its newest record is older than `retention.ms`.
    Time,
}

/// Decides what may be deleted now. O(segments).
pub fn plan(segments: &SegmentSet, offsets: &Offsets, now: WallMillis, config: &TopicConfig) -> RetentionPlan {
    let mut delete = Vec::new();
    let mut log_start = offsets.log_start();
    let mut roll_active = None;
    let mut bytes = segments.bytes();
    for segment in segments.iter() {
        let below_high_watermark = segment.end <= offsets.high_watermark() && !segment.is_empty();
        let next = segments.after(segment.base);
        let breach = breach(segment, next, bytes, log_start, now, config).filter(|_| below_high_watermark);
        let Some(breach) = breach else { break };
        match segment.state {
            SegmentState::Sealing => break,
            SegmentState::Active => roll_active = Some(breach),
            SegmentState::Sealed => {
                bytes -= segment.len;
                log_start = log_start.max(next.map_or(segment.end, |next| next.base));
                delete.push((segment.base, breach));
            }
        }
    }
    RetentionPlan { delete, log_start, roll_active }
}

fn breach(
    segment: &Segment,
    next: Option<&Segment>,
    bytes: u64,
    log_start: Offset,
    now: WallMillis,
    config: &TopicConfig,
) -> Option<Breach> {
    let old = |ms: u64| now.0.saturating_sub(segment.newest()) > i64::try_from(ms).unwrap_or(i64::MAX);
    if next.is_some_and(|next| next.base <= log_start) {
        Some(Breach::LogStart)
    } else if config.retention_bytes.is_some_and(|limit| bytes - segment.len >= limit) {
        Some(Breach::Size)
    } else if config.retention_ms.is_some_and(old) {
        Some(Breach::Time)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
