//! What threads say to each other. Bounded queues carry it, and it may be late.
//!
//! A request names its [`Origin`]; the answer carries the same origin back, by a lane with room for every request
//! outstanding. A lease that crosses to another core comes back as `Message::Return`, whichever side is done with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arena::Lease;
use crate::control::command::{Command, CommandResult};
use crate::control::image::Image;
use crate::ids::{
    BrokerId, CoreId, DirId, Errno, FileId, LeaderEpoch, MonoMicros, Offset, PartitionId, PartitionIndex,
};
use crate::ids::{Ticket, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::log::recovery::RecoveredLog;
use crate::log::topic_config::TopicConfig;
use crate::metrics::CoreReport;
use crate::shard::action::{Part, PartitionDir};

/// The other end of a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Peer {
    /// A data core.
    Core(CoreId),
    /// The control core.
    Control,
    /// The background thread.
    Background,
}

/// Where an answer goes: the core and ticket of the request, and which of its partitions asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Origin {
    /// The core that owns the client's connection.
    pub core: CoreId,
    /// The request in service there.
    pub ticket: Ticket,
    /// Index of the partition inside the request.
    pub slot: u32,
}

/// One message.
#[derive(Debug)]
pub enum Message {
    /// Core → owner: append one batch.
    Append(AppendAsk),
    /// Owner → core: the append is decided, at the moment that its acks setting asks for.
    Appended {
        /// Who asked.
        origin: Origin,
        /// What came of it.
        outcome: AppendOutcome,
    },
    /// Core → owner: read from one partition.
    Fetch(FetchAsk),
    /// Owner → core: what can be read.
    Fetched {
        /// Who asked.
        origin: Origin,
        /// What there is.
        outcome: Box<FetchOutcome>,
    },
    /// Owner → core: a partition that this parked fetch watches has grown, or fails now; at most one per watch.
    Grew {
        /// The watch that fired, now gone.
        origin: Origin,
    },
    /// Core → owner: the fetch is answered; forget its watch.
    Unwatch {
        /// The watch.
        origin: Origin,
        /// The partition it watches.
        partition: PartitionId,
    },
    /// Core → owner: one of the small questions about a partition.
    Query {
        /// Who asks.
        origin: Origin,
        /// About which partition.
        partition: PartitionId,
        /// What.
        query: Query,
    },
    /// Owner → core: its answer.
    Queried {
        /// Who asked.
        origin: Origin,
        /// The answer.
        answer: QueryAnswer,
    },
    /// Back to the core whose arena a lease belongs to.
    Return(Lease),
    /// Back to the core that opened a file: an answer that named it is gone.
    ReturnFile(FileId),
    /// Core → control: a decision that only the metadata log can make.
    Command {
        /// Who asks.
        origin: Origin,
        /// What for.
        command: Command,
    },
    /// Control → core: it is committed and in effect on this broker, or refused.
    CommandDone {
        /// Who asked.
        origin: Origin,
        /// What came of it.
        result: CommandResult,
    },
    /// Control → every core: the metadata to answer clients from. Newer ones replace older ones.
    View(Arc<ClusterView>),
    /// Control → owner: serve these partitions from now on; at most `PARTITIONS_PER_MESSAGE_MAX` of them.
    Host(Vec<HostPartition>),
    /// Owner → control: they are served.
    Hosted(Vec<PartitionId>),
    /// Control → owner: the settings of a topic have changed, for every partition of it that is hosted here.
    Configure {
        /// The topic.
        topic: TopicId,
        /// Its new settings.
        config: Arc<TopicConfig>,
    },
    /// Control → owner: the topic is deleted; close these partitions and rename their directories. At most
    /// `PARTITIONS_PER_MESSAGE_MAX` of them.
    Drop(Vec<PartitionId>),
    /// Owner → control: they are closed, their directories renamed (or the data directory has failed).
    Dropped(Vec<PartitionId>),
    /// Core → control: a data directory has failed; its partitions here serve nothing any more.
    DirFailed {
        /// The directory.
        dir: DirId,
        /// What the kernel said.
        errno: Errno,
    },
    /// Control → core: another core or the watcher saw this directory fail.
    FailDir {
        /// The directory.
        dir: DirId,
        /// What is reported as its error.
        errno: Errno,
    },
    /// Control → core: whether some data directory has less than `log.min.free.bytes` left.
    DiskLow {
        /// It has.
        low: bool,
    },
    /// Control → core: send a report for `/metrics`.
    Scrape,
    /// Core → control: the report.
    Report(Box<CoreReport>),
    /// Control → core: end in an orderly way: accept nothing, answer what is in flight, flush, seal.
    Stop,
    /// Core → control: all of that is done. `clean` is false when a directory had failed.
    Stopped {
        /// Whether every partition was flushed and sealed.
        clean: bool,
        /// Where each partition ended, for Kafka's text checkpoints.
        offsets: Vec<FinalOffsets>,
    },
}

/// Where a partition ended at a clean stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalOffsets {
    /// Its data directory.
    pub dir: DirId,
    /// Name of its topic.
    pub topic: Arc<str>,
    /// Which partition of it.
    pub index: PartitionIndex,
    /// Everything below is flushed.
    pub recovery_point: Offset,
    /// High watermark.
    pub high_watermark: Offset,
    /// First offset that is kept.
    pub log_start: Offset,
}

/// What a producer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// Nothing: no answer is sent.
    None,
    /// The leader's stable offset.
    Leader,
    /// The high watermark, with enough replicas in sync.
    All,
}

/// One batch for one partition.
#[derive(Debug)]
pub struct AppendAsk {
    /// Who asks.
    pub origin: Origin,
    /// For which partition.
    pub partition: PartitionId,
    /// The batch as received; returned by `Message::Return` once copied.
    pub records: Lease,
    /// When to answer.
    pub acks: Acks,
    /// Whether an internal topic may be written (client id `__admin_client`).
    pub internal_allowed: bool,
    /// Whether the request's version may carry zstd.
    pub zstd_allowed: bool,
    /// When its request was taken up.
    pub since: MonoMicros,
}

/// What came of an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppendOutcome {
    /// In the log; for a duplicate these are the values of the original.
    Appended {
        /// Offset of the first record.
        base_offset: Offset,
        /// Append time in ms, or −1 on CreateTime topics.
        log_append_time: i64,
        /// First offset of the log.
        log_start: Offset,
    },
    /// Not in the log, or not with the promise asked for.
    Refused {
        /// What the client is told.
        code: ErrorCode,
        /// A sentence for the client, when the code alone does not say enough.
        message: Option<&'static str>,
        /// Leader to go to instead, when known (KIP-951).
        leader: Option<(i32, LeaderEpoch)>,
    },
}

impl AppendOutcome {
    /// Nothing was written, for this reason.
    pub fn refused(code: ErrorCode) -> AppendOutcome {
        AppendOutcome::Refused { code, message: None, leader: None }
    }
}

/// A read of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchAsk {
    /// Who asks.
    pub origin: Origin,
    /// Which partition.
    pub partition: PartitionId,
    /// First offset wanted.
    pub fetch_offset: Offset,
    /// Most bytes wanted; a first batch larger than this is given whole when `whole_first` is set.
    pub bytes_max: u32,
    /// KIP-74: the first batch of the response is always given whole.
    pub whole_first: bool,
    /// The client's leader epoch, −1 when it does not say.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record the client has, −1 when it does not say.
    pub last_fetched_epoch: LeaderEpoch,
    /// Leave a watch when fewer than `watch_below` bytes are there; 0 asks for none.
    pub watch_below: u32,
}

/// What a read of one partition found.
#[derive(Debug, Default)]
pub struct FetchOutcome {
    /// `NONE`, or why there are no records.
    pub error: ErrorCode,
    /// High watermark; −1 on an error.
    pub high_watermark: Offset,
    /// Last stable offset; equals the high watermark until there are transactions.
    pub last_stable: Offset,
    /// First offset of the log; −1 on an error.
    pub log_start: Offset,
    /// Divergence (KIP-595): epoch and end offset, when the client's log is not a prefix of this one.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// Leader to go to instead, when known.
    pub leader: Option<(i32, LeaderEpoch)>,
    /// The records in order. Their leases and files go back by `Message::Return` and `Message::ReturnFile`.
    pub records: Vec<Part>,
    /// Their bytes.
    pub bytes: u32,
}

/// The small questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Offset for a timestamp or one of the special values of ListOffsets (kafka-spec §4.8).
    ListOffsets {
        /// Timestamp in ms, or −1 latest, −2 earliest, −3 max timestamp, −4, −5, −6.
        timestamp: i64,
        /// The client's leader epoch, −1 when it does not say.
        current_leader_epoch: LeaderEpoch,
        /// A debugging consumer (replica id −2) sees up to the end.
        to_end: bool,
    },
    /// End offset of a leader epoch (KIP-101).
    EpochEnd {
        /// The client's leader epoch, −1 when it does not say.
        current_leader_epoch: LeaderEpoch,
        /// The epoch asked about.
        epoch: LeaderEpoch,
    },
    /// Move the log start up to `before` (−1: to the high watermark).
    DeleteRecords {
        /// First offset to keep.
        before: Offset,
    },
    /// The active idempotent producers (DescribeProducers).
    Producers,
    /// Size of the log in bytes (DescribeLogDirs).
    Size,
}

/// Their answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryAnswer {
    /// Refused.
    Refused(ErrorCode),
    /// ListOffsets: offset and timestamp (−1 when there is none), and the epoch of that offset.
    Offset {
        /// The offset, −1 when nothing matches.
        offset: Offset,
        /// Its timestamp, −1 for the special values.
        timestamp: i64,
        /// Its leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// EpochEnd: (−1, −1) when undefined.
    EpochEnd {
        /// The epoch found.
        epoch: LeaderEpoch,
        /// Its end offset.
        end: Offset,
    },
    /// DeleteRecords: the new log start.
    LogStart(Offset),
    /// The producers.
    Producers(Vec<crate::log::producers::ProducerSummary>),
    /// Bytes of the log's files, and the directory it lies in.
    Size {
        /// Bytes.
        bytes: u64,
        /// The data directory.
        dir: DirId,
    },
}

/// What every core answers clients from: the committed image, and which core serves which partition here.
#[derive(Debug, Clone, Default)]
pub struct ClusterView {
    /// This broker.
    pub node: BrokerId,
    /// The committed metadata.
    pub image: Arc<Image>,
    /// For each topic hosted here: where each partition is served.
    pub routes: BTreeMap<TopicId, Arc<[Route]>>,
    /// The data directories, by `DirId`, with whether each still works and how large it is.
    pub dirs: Arc<[DirView]>,
}

/// Where on this broker a partition is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By this core.
    Core(CoreId),
    /// Nowhere yet, or not here at all: clients are to look again.
    Nowhere,
    /// Nowhere until a restart: its data directory has failed.
    Offline,
}

/// One data directory as clients may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirView {
    /// Its path.
    pub path: String,
    /// Whether it is served.
    pub online: bool,
    /// Size of its file system in bytes, −1 when unknown.
    pub total_bytes: i64,
    /// Bytes that can still be used, −1 when unknown.
    pub usable_bytes: i64,
}

/// Everything a core needs to serve a partition.
#[derive(Debug)]
pub struct HostPartition {
    /// Which partition.
    pub id: PartitionId,
    /// Its topic's name.
    pub topic: Arc<str>,
    /// Where its files are.
    pub dir: PartitionDir,
    /// The epoch under which this broker leads it.
    pub leader_epoch: LeaderEpoch,
    /// Settings of its topic.
    pub config: Arc<TopicConfig>,
    /// What recovery found; empty for a new one.
    pub log: RecoveredLog,
}
