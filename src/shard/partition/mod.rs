//! One partition: its log, and who waits for it.
//!
//! Lives on one data core. It is the only place where the parts of the log (offsets, tail, segments, indexes, epochs,
//! producers) move together; each of them is pure arithmetic of its own.

mod append;
mod files;
mod open;
mod place;
mod upkeep;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::arena::Arena;
use crate::ids::{Errno, FileId, FilePos, Generation, LeaderEpoch, MonoMicros, Offset, PartitionId};
use crate::kafka::error_code::ErrorCode;
use crate::log::appender::{Appender, LogPos, WritePlan};
use crate::log::epochs::LeaderEpochs;
use crate::log::index::SegmentIndex;
use crate::log::offsets::Offsets;
use crate::log::producer_snapshot::SnapshotPacer;
use crate::log::producers::Producers;
use crate::log::segment::SegmentSet;
use crate::log::topic_config::TopicConfig;
use crate::replica::acks::{Acks, Release};
use crate::replica::high_watermark::{InSync, high_watermark};
use crate::shard::action::PartitionDir;
use crate::shard::message::{AppendOutcome, Origin};

pub use append::{AppendStep, is_internal};
pub use files::{FileWish, SegmentFiles};
pub use place::{Placed, ReadFile};
pub use upkeep::StaleFile;

/// One partition on its core.
#[derive(Debug)]
pub struct Partition {
    /// Which one.
    pub id: PartitionId,
    /// Name of its topic.
    pub topic: Arc<str>,
    /// Where its files are.
    pub dir: PartitionDir,
    /// Settings of its topic.
    pub config: Arc<TopicConfig>,
    /// The epoch under which this broker leads it.
    pub leader_epoch: LeaderEpoch,
    /// Log start, high watermark, stable, end.
    pub offsets: Offsets,
    /// Leader epochs and where they start.
    pub epochs: LeaderEpochs,
    /// Idempotent producers.
    pub producers: Producers,
    /// Segments, sealed ones and the active one.
    pub segments: SegmentSet,
    /// Indexes of the active segment.
    pub index: SegmentIndex,
    /// Files of the segments that are written.
    pub files: SegmentFiles,
    /// It stands in the list of those with something to submit.
    pub dirty: bool,
    /// It stands in the list of those that the next flush covers.
    pub awaits_flush: bool,
    /// Indexes of segments that were rolled and are not sealed yet, oldest first.
    rolled: VecDeque<RolledIndexes>,
    pacer: SnapshotPacer,
    /// Newest epoch that the epoch file names.
    recorded_epoch: LeaderEpoch,
    /// First batch of an epoch that it does not name yet: offset, segment, position.
    unrecorded_epoch: Option<(Offset, Offset, FilePos)>,
    recording_epoch: bool,
    appender: Appender,
    in_sync: InSync,
    acks: Acks<Held>,
    watches: Vec<Origin>,
    state: State,
    dropped: bool,
}

/// The indexes of a segment that is complete but not sealed.
#[derive(Debug)]
pub struct RolledIndexes {
    /// Base offset of the segment.
    pub base: Offset,
    /// Its indexes, the final time entry included.
    pub index: SegmentIndex,
}

/// An answer that waits for its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who asked.
    pub origin: Origin,
    base_offset: Offset,
    log_append_time: i64,
    /// When it joined the log.
    since: MonoMicros,
}

/// Whether it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serving,
    /// Its data directory has failed: nothing is appended, served or acknowledged.
    Failed(Errno),
    /// Its topic is deleted, or the broker stops: nothing more is appended.
    Closing,
}

impl Partition {
    /// Whether reads and appends are served; else what a client is told.
    pub fn check_serving(&self) -> Result<(), ErrorCode> {
        match self.state {
            State::Serving => Ok(()),
            State::Failed(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            State::Closing => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        }
    }

    /// Compares the leader epoch that a client knows with this one (KIP-320); −1 says nothing.
    pub fn check_epoch(&self, client: LeaderEpoch) -> Result<(), ErrorCode> {
        match client {
            LeaderEpoch(-1) => Ok(()),
            older if older < self.leader_epoch => Err(ErrorCode::FENCED_LEADER_EPOCH),
            newer if newer > self.leader_epoch => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
            _ => Ok(()),
        }
    }

    /// Replicas in sync, this one included.
    pub fn in_sync_count(&self) -> u32 {
        self.in_sync.count
    }

    /// The tail in memory.
    pub fn tail(&self) -> &Appender {
        &self.appender
    }

    /// Cuts the writes that may start now.
    pub fn plan_writes(&mut self, arena: &mut Arena, out: &mut Vec<WritePlan>) {
        // What an ending partition has not submitted yet was acknowledged to nobody.
        if self.state != State::Serving {
            return;
        }
        let (files, before) = (&self.files, out.len());
        self.appender.plan_writes(arena, |base| files.writable(base), out);
        out[before..].iter().for_each(|plan| self.files.note_write(u64::from(plan.block.len())));
    }

    /// A write has completed. Returns whether it counted.
    pub fn on_written(&mut self, plan: (Generation, LogPos), durable: bool) -> bool {
        self.appender.on_written(plan.0, plan.1, durable)
    }

    /// A flush that covers all completed writes is being submitted.
    pub fn on_flush_submitted(&mut self) {
        self.appender.on_flush_submitted();
    }

    /// That flush is done.
    pub fn on_flushed(&mut self) {
        self.appender.on_flushed();
    }

    /// Moves stable and the high watermark to what the device has now, and lets out the answers whose promise that
    /// keeps, with the time at which each joined the log. Returns whether the high watermark moved.
    pub fn settle(&mut self, out: impl FnMut(Origin, AppendOutcome, MonoMicros)) -> bool {
        self.offsets.advance_stable(self.appender.stable_offset());
        let stable = self.offsets.stable();
        let moved =
            self.offsets.advance_high_watermark(high_watermark(self.offsets.high_watermark(), [stable], self.in_sync));
        self.release_acks(out);
        moved
    }

    fn release_acks(&mut self, mut out: impl FnMut(Origin, AppendOutcome, MonoMicros)) {
        let log_start = self.offsets.log_start();
        let (stable, high_watermark) = (self.offsets.stable(), self.offsets.high_watermark());
        self.acks.release(stable, high_watermark, self.in_sync, |held, release| {
            out(held.origin, held.outcome(log_start, release), held.since);
        });
    }

    /// Its data directory has failed: whoever waits is told so, and nothing is served from now on.
    pub fn fail(&mut self, errno: Errno, out: impl FnMut(Origin)) {
        self.state = State::Failed(errno);
        self.refuse_waiting(out);
    }

    /// Ends appends: the topic is deleted or the broker stops.
    pub fn begin_close(&mut self) {
        if self.state == State::Serving {
            self.state = State::Closing;
        }
    }

    /// Its topic is deleted: it ends, also when its data directory has failed.
    pub fn begin_drop(&mut self) {
        self.dropped = true;
        self.begin_close();
    }

    /// Whether its topic is deleted.
    pub fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Lets out everybody who waits for a promise, unkept.
    pub fn refuse_waiting(&mut self, mut out: impl FnMut(Origin)) {
        self.acks.fail_all(|held| out(held.origin));
    }

    /// Whether its data directory has failed.
    pub fn failed(&self) -> Option<Errno> {
        match self.state {
            State::Failed(errno) => Some(errno),
            _ => None,
        }
    }

    /// Whether it was told to close.
    pub fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Whether nothing is in flight or unwritten.
    pub fn is_quiet(&self) -> bool {
        self.appender.is_quiet() && self.acks.is_empty()
    }

    /// Gives the oldest block in memory back when it is on the device.
    pub fn evict_oldest(&mut self, arena: &mut Arena) -> bool {
        self.appender.evict_oldest(arena)
    }

    /// Blocks of the arena that it holds.
    pub fn blocks_held(&self) -> usize {
        self.appender.blocks_held()
    }

    /// Gives all memory back.
    pub fn release_memory(&mut self, arena: &mut Arena) {
        self.appender.close(arena);
    }

    /// A parked fetch wants to know when there is more to read.
    pub fn watch(&mut self, origin: Origin) {
        if !self.watches.contains(&origin) {
            self.watches.push(origin);
        }
    }

    /// It does not any more.
    pub fn unwatch(&mut self, origin: Origin) {
        self.watches.retain(|watch| *watch != origin);
    }

    /// Takes everybody who watches: there is more to read, or nothing will ever be.
    pub fn take_watches(&mut self) -> std::vec::Drain<'_, Origin> {
        self.watches.drain(..)
    }

    /// Whether anybody watches.
    pub fn is_watched(&self) -> bool {
        !self.watches.is_empty()
    }

    /// The id under which the file of the segment at `base` is open, when it is one of those that are written.
    pub fn written_file(&self, base: Offset) -> Option<FileId> {
        self.files.file(base)
    }
}

impl Held {
    fn outcome(&self, log_start: Offset, release: Release) -> AppendOutcome {
        match release {
            Release::Kept => AppendOutcome::Appended {
                base_offset: self.base_offset,
                log_append_time: self.log_append_time,
                log_start,
            },
            Release::TooFewReplicas => AppendOutcome::Refused {
                code: ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                message: None,
                leader: None,
            },
        }
    }
}
