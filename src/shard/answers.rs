//! The small questions on the core that owns the partition.

use crate::ids::{LeaderEpoch, Now, Offset, PartitionId};
use crate::kafka::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};
use crate::shard::message::{Message, Origin, Peer, Query, QueryAnswer};
use crate::shard::partition::Partition;

impl Shard {
    pub(super) fn on_query(
        &mut self,
        now: Now,
        origin: Origin,
        partition: PartitionId,
        query: Query,
        out: &mut Actions,
    ) {
        let Some((slot, state)) = self.partitions.by_id(partition) else {
            let code = self.view.not_hosted(partition);
            return self.answer_query(origin, QueryAnswer::Refused(code), out);
        };
        if let Err(code) = state.check_serving() {
            return self.answer_query(origin, QueryAnswer::Refused(code), out);
        }
        let answer = match query {
            Query::ListOffsets { timestamp, current_leader_epoch, to_end } => {
                match list_offset(state, timestamp, current_leader_epoch, to_end) {
                    Listed::Answer(answer) => answer,
                    Listed::Search(timestamp) => return self.start_time_search(now, origin, slot, timestamp, out),
                }
            }
            Query::EpochEnd { current_leader_epoch, epoch } => epoch_end(state, current_leader_epoch, epoch),
            Query::DeleteRecords { before } => {
                let answer = delete_records(state, before);
                self.apply_retention(now, slot);
                answer
            }
            Query::Producers => QueryAnswer::Producers(state.producers.summaries()),
            Query::Size => QueryAnswer::Size { bytes: state.segments.bytes(), dir: state.dir.dir },
        };
        self.answer_query(origin, answer, out);
    }

    pub(super) fn answer_query(&mut self, origin: Origin, answer: QueryAnswer, out: &mut Actions) {
        if origin.core == self.config.core {
            return self.on_queried(origin, answer, out);
        }
        out.push(Action::Mail { to: Peer::Core(origin.core), message: Message::Queried { origin, answer } });
    }
}

enum Listed {
    Answer(QueryAnswer),
    /// Records must be looked at: the first one at or after this timestamp, or the one with the largest (−3).
    Search(i64),
}

fn list_offset(partition: &Partition, timestamp: i64, epoch: LeaderEpoch, to_end: bool) -> Listed {
    if let Err(code) = partition.check_epoch(epoch) {
        return Listed::Answer(QueryAnswer::Refused(code));
    }
    let offsets = &partition.offsets;
    let latest = if to_end { offsets.end() } else { offsets.high_watermark() };
    match timestamp {
        -1 => Listed::Answer(at(latest, partition.leader_epoch)),
        -2 | -4 => {
            let start = offsets.log_start();
            Listed::Answer(at(start, partition.epochs.epoch_of(start).unwrap_or(LeaderEpoch(-1))))
        }
        -5 | -6 => Listed::Answer(at(Offset(-1), LeaderEpoch(-1))),
        _ => Listed::Search(timestamp),
    }
}

fn at(offset: Offset, leader_epoch: LeaderEpoch) -> QueryAnswer {
    QueryAnswer::Offset { offset, timestamp: -1, leader_epoch }
}

fn epoch_end(partition: &Partition, current: LeaderEpoch, epoch: LeaderEpoch) -> QueryAnswer {
    if let Err(code) = partition.check_epoch(current) {
        return QueryAnswer::Refused(code);
    }
    match partition.epochs.end_offset_for(epoch, partition.offsets.end()) {
        Some((epoch, end)) => QueryAnswer::EpochEnd { epoch, end },
        None => QueryAnswer::EpochEnd { epoch: LeaderEpoch(-1), end: Offset(-1) },
    }
}

/// Moves the log start up to `before`, or to the high watermark for −1; never past it (kafka-spec §4.8).
fn delete_records(partition: &mut Partition, before: Offset) -> QueryAnswer {
    let high_watermark = partition.offsets.high_watermark();
    let target = if before == Offset(-1) { high_watermark } else { before };
    if target < Offset::ZERO || target > high_watermark {
        return QueryAnswer::Refused(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    if partition.offsets.log_start() < target {
        partition.raise_log_start(target);
    }
    QueryAnswer::LogStart(partition.offsets.log_start())
}
