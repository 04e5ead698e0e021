//! A partition begins with what recovery found.

use std::collections::VecDeque;

use super::{Partition, SegmentFiles, State};
use crate::ids::{FilePos, LeaderEpoch, Now, Offset, WallMillis};
use crate::log::appender::{Appender, TailWrites};
use crate::log::epochs::LeaderEpochs;
use crate::log::index::SegmentIndex;
use crate::log::offsets::Offsets;
use crate::log::producer_snapshot::SnapshotPacer;
use crate::log::recovery::{RecoveredActive, RecoveredLog, RecoveredSegment};
use crate::log::segment::{Segment, SegmentSet, SegmentState};
use crate::replica::acks::Acks;
use crate::replica::high_watermark::InSync;
use crate::shard::message::HostPartition;

impl Partition {
    /// Opens a partition. All that recovery found is on the device, so that it is stable and, with one replica,
    /// committed.
    pub fn open(host: HostPartition, tail_writes: TailWrites, now: Now) -> Partition {
        let HostPartition { id, topic, dir, leader_epoch, config, log } = host;
        let recorded_epoch = log.epochs.last().map_or(LeaderEpoch(-1), |(epoch, _)| *epoch);
        let mut epochs = LeaderEpochs::recovered(&log.epochs);
        epochs.assign(leader_epoch, log.end);
        let pacer = SnapshotPacer::new(log.snapshot, log.uncovered_from, now.mono);
        let segments = recovered_segments(&log, now.wall);
        let allocated = log.active.as_ref().map(|active| active.allocated);
        let base = log.active.as_ref().map_or(log.end, |active| active.base);
        let index = recovered_index(&log, base, config.index_interval_bytes);
        let (end, partial) = log.active.map_or((FilePos(0), Vec::new()), |active| (active.end, active.partial_block));
        Partition {
            offsets: Offsets::recovered(log.log_start, log.end, log.end),
            appender: Appender::new(base, end, log.end, partial).with_tail_writes(tail_writes),
            files: SegmentFiles::new(base, allocated),
            dirty: false,
            awaits_flush: false,
            rolled: VecDeque::new(),
            recorded_epoch,
            unrecorded_epoch: None,
            recording_epoch: false,
            in_sync: InSync { count: 1, min: 1 },
            acks: Acks::default(),
            watches: Vec::new(),
            state: State::Serving,
            dropped: false,
            id,
            topic,
            dir,
            config,
            leader_epoch,
            epochs,
            producers: log.producers,
            pacer,
            segments,
            index,
        }
    }
}

fn recovered_segments(log: &RecoveredLog, now: WallMillis) -> SegmentSet {
    let mut segments = SegmentSet::default();
    log.sealed.iter().for_each(|segment| segments.push(sealed(segment)));
    match &log.active {
        Some(recovered) => segments.push(active(recovered, log.end, now)),
        None => segments.push(Segment::active(log.end, now, None)),
    }
    segments
}

fn recovered_index(log: &RecoveredLog, base: Offset, interval_bytes: u32) -> SegmentIndex {
    match &log.active {
        None => SegmentIndex::new(base, interval_bytes),
        Some(active) => {
            let entries = (&active.index[..], &active.time_index[..]);
            SegmentIndex::recovered(base, interval_bytes, entries, active.max_timestamp)
        }
    }
}

fn sealed(segment: &RecoveredSegment) -> Segment {
    Segment {
        base: segment.base,
        end: segment.end,
        len: segment.len,
        first_timestamp: -1,
        max_timestamp: segment.max_timestamp,
        touched: WallMillis(segment.modified_ms),
        state: SegmentState::Sealed,
        file: None,
    }
}

fn active(recovered: &RecoveredActive, end: Offset, now: WallMillis) -> Segment {
    Segment {
        end,
        len: recovered.end.0,
        first_timestamp: recovered.first_timestamp,
        max_timestamp: recovered.max_timestamp.0,
        ..Segment::active(recovered.base, now, None)
    }
}
