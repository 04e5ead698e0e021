//! A partition whose files were there before the start, and jobs of its files that fail.

use pinion::log::recovery::{RecoveredActive, RecoveredSegment};
use pinion::shard::action::Extents;
use pinion::shard::message::{FetchOutcome, QueryAnswer};

use super::*;

const EIO: Errno = Errno(5);
const ENOSPC: Errno = Errno(28);

pub(super) fn stored(offset: i64, value: &[u8]) -> Vec<u8> {
    BatchBuilder::new().appended(Offset(offset), LeaderEpoch(0)).value(1_000 + offset, value).build()
}

/// One sealed segment with the batch of offset 0, and an active one with that of offset 1.
fn found(topic: TopicConfig, first: &[u8]) -> World {
    hosted(topic, (stored(0, first), Offset(1)), Vec::new(), None)
}

/// One sealed segment with batches up to an offset, and an active one with the batch of that offset.
pub(super) fn hosted(
    topic: TopicConfig,
    (sealed, sealed_end): (Vec<u8>, Offset),
    unindexed: Vec<Offset>,
    hold: Option<fn(&Action) -> bool>,
) -> World {
    let mut world = World::of(0, topic.clone());
    world.hold = hold;
    let mut active = stored(sealed_end.0, b"second");
    let end = active.len();
    let last_timestamp = 1_000 + sealed_end.0;
    let log = RecoveredLog {
        sealed: vec![RecoveredSegment {
            base: Offset(0),
            len: sealed.len() as u64,
            end: sealed_end,
            max_timestamp: if unindexed.is_empty() { last_timestamp - 1 } else { -1 },
            modified_ms: 1_000,
        }],
        active: Some(RecoveredActive {
            base: sealed_end,
            end: FilePos(end as u64),
            allocated: FilePos(8192),
            extents: Extents::Zeroed,
            partial_block: active.clone(),
            first_timestamp: last_timestamp,
            max_timestamp: (last_timestamp, sealed_end),
            index: Vec::new(),
            time_index: Vec::new(),
        }),
        end: sealed_end.plus(1),
        high_watermark: sealed_end.plus(1),
        unindexed,
        ..RecoveredLog::default()
    };
    active.resize(8192, 0);
    world.stored = BTreeMap::from([(FileKind::Log(Offset(0)), sealed), (FileKind::Log(sealed_end), active)]);
    if log.unindexed.is_empty() {
        world
            .stored
            .extend([FileKind::Index(Offset(0)), FileKind::TimeIndex(Offset(0))].map(|kind| (kind, Vec::new())));
    }
    let host = HostPartition {
        id: PARTITION,
        topic: "t".into(),
        dir: PartitionDir { dir: DirId(0), name: "t-0".into() },
        leader_epoch: LeaderEpoch(3),
        config: Arc::new(topic),
        log,
    };
    world.event(Event::Mail { from: Peer::Control, message: Message::Host(vec![host]) });
    world.event(Event::Mail { from: Peer::Control, message: Message::View(Arc::new(view(1))) });
    world.mail.clear();
    world
}

impl World {
    pub(super) fn count(&self, job: &str) -> usize {
        self.jobs.iter().filter(|name| *name == job).count()
    }

    /// A fetch of another core's client.
    pub(super) fn ask_for(&mut self, offset: i64, bytes_max: u32, whole_first: bool) {
        let ask = FetchAsk {
            origin: Origin { core: CoreId(1), ticket: Ticket(1), slot: 0 },
            partition: PARTITION,
            fetch_offset: Offset(offset),
            bytes_max,
            whole_first,
            current_leader_epoch: LeaderEpoch(-1),
            last_fetched_epoch: LeaderEpoch(-1),
            watch_below: 0,
        };
        self.event(Event::Mail { from: Peer::Core(CoreId(1)), message: Message::Fetch(ask) });
    }

    pub(super) fn given(&mut self) -> Option<FetchOutcome> {
        let at = self.mail.iter().position(|mail| matches!(mail, Message::Fetched { .. }))?;
        let Message::Fetched { outcome, .. } = self.mail.remove(at) else { panic!("looked at") };
        Some(*outcome)
    }

    pub(super) fn stop(&mut self) -> Option<bool> {
        self.event(Event::Mail { from: Peer::Control, message: Message::Stop });
        self.mail.iter().find_map(|mail| if let Message::Stopped { clean, .. } = mail { Some(*clean) } else { None })
    }
}

/// The read was taken for one that waits for the active file, opened its own a second time, and panicked over the answer.
#[test]
fn a_read_that_opens_its_file_goes_on_only_when_that_is_open() {
    let mut world = found(TopicConfig::default(), b"first");
    world.hold = Some(|action| {
        matches!(action, Action::File { what: FileJob::OpenSealed { .. } | FileJob::OpenActive { .. }, .. })
    });
    world.ask_for(0, 1000, true);
    world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(b"third")));
    world.held.reverse();
    world.release();
    assert_eq!((world.count("OpenSealed"), world.count("OpenActive")), (1, 1));
    assert_eq!(world.given().map(|outcome| outcome.error), Some(ErrorCode::NONE));
    assert!(world.is_answered());
}

#[test]
fn a_recovered_segment_that_the_first_append_rolls_is_opened_and_sealed() {
    let mut world = found(TopicConfig { segment_bytes: 1 << 20, ..TopicConfig::default() }, b"first");
    assert_eq!(world.produce(1, &batch(&vec![7; (1 << 20) - 100])), (ErrorCode::NONE, Offset(2)));
    assert_eq!((world.count("OpenActive"), world.count("CreateSegment"), world.count("Seal")), (1, 1, 1));
    world.ask_for(1, 1, true);
    assert_eq!(world.given().map(|outcome| outcome.bytes), Some(stored(1, b"second").len() as u32));
}

#[test]
fn a_read_whose_directory_fails_is_answered() {
    let mut world = found(TopicConfig::default(), b"first");
    world.refused = Some((|job| matches!(job, FileJob::OpenActive { .. }), EIO));
    world.ask_for(1, 1000, true);
    assert!(world.has_failed());
    assert_eq!(world.given().map(|outcome| outcome.error), Some(ErrorCode::KAFKA_STORAGE_ERROR));
}

/// It waited for the opening of a file that was being created.
#[test]
fn a_search_by_time_passes_over_what_no_file_holds_yet() {
    let mut world = World::new();
    world.hold = Some(|action| matches!(action, Action::File { what: FileJob::CreateSegment { .. }, .. }));
    world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(b"one")));
    let origin = Origin { core: CoreId(1), ticket: Ticket(1), slot: 0 };
    let query = Query::ListOffsets { timestamp: 1, current_leader_epoch: LeaderEpoch(-1), to_end: false };
    let message = Message::Query { origin, partition: PARTITION, query };
    world.event(Event::Mail { from: Peer::Core(CoreId(1)), message });
    let answer =
        world.mail.iter().find_map(|mail| if let Message::Queried { answer, .. } = mail { Some(answer) } else { None });
    assert!(matches!(answer, Some(QueryAnswer::Offset { offset: Offset(-1), .. })), "{answer:?}");
    world.release();
    assert!(world.is_answered());
}

/// Java's consumer takes records without one whole batch for an error.
#[test]
fn a_batch_that_does_not_fit_is_left_out_and_not_cut() {
    let mut world = found(TopicConfig::default(), &[7; 200_000]);
    world.ask_for(0, 100_000, false);
    let outcome = world.given().expect("an answer");
    assert_eq!((outcome.error, outcome.bytes, outcome.records.len()), (ErrorCode::NONE, 0, 0));
}

/// It was read again and again: it was all there, and yet not below the high watermark.
#[test]
fn a_batch_whose_offsets_are_damaged_is_corrupt() {
    let mut damaged = stored(0, b"first");
    damaged[1] ^= 1;
    let mut world = hosted(TopicConfig::default(), (damaged, Offset(1)), Vec::new(), None);
    world.ask_for(0, 1, true);
    assert_eq!(world.given().map(|outcome| outcome.error), Some(ErrorCode::CORRUPT_MESSAGE));
}

/// Its answer was held until the next write, which nobody may ever make.
#[test]
fn a_repeated_batch_that_is_stable_is_answered_without_a_write() {
    let mut world = World::new();
    let idempotent = BatchBuilder::new().producer(ProducerId(9), ProducerEpoch(0), 0).value(5, b"one").build();
    for acks in [1, -1, 1] {
        assert_eq!(world.produce(acks, &idempotent), (ErrorCode::NONE, Offset(0)));
    }
    assert_eq!(world.writes, 1);
}

#[test]
fn a_disk_too_full_for_small_files_fails_no_directory() {
    let mut world = World::with(TopicConfig { index_interval_bytes: 0, ..TopicConfig::default() });
    let small = |job: &FileJob| {
        matches!(job, FileJob::Replace { .. } | FileJob::AppendIndex { .. } | FileJob::Checkpoint { .. })
    };
    world.refused = Some((small, ENOSPC));
    for sequence in 0..40 {
        let batch = BatchBuilder::new().producer(ProducerId(9), ProducerEpoch(0), sequence).value(5, b"one").build();
        assert_eq!(world.produce(1, &batch), (ErrorCode::NONE, Offset(i64::from(sequence))));
    }
    world.wait(1_000);
    assert!(world.count("Replace") >= 2 && world.count("AppendIndex") >= 1, "{:?}", world.jobs);
    assert!(!world.has_failed() && world.checkpoints.is_empty(), "{:?}", world.mail);
    world.refused = None;
    world.jobs.clear();
    world.wait(1_000);
    assert!(world.count("Replace") >= 2 && world.count("AppendIndex") >= 1, "{:?}", world.jobs);
    // The epoch's file is new; the next checkpoint may rely on it.
    world.wait(1_000);
    assert_eq!(world.stable().0, Offset(40));
}

#[test]
fn an_end_without_room_for_the_small_files_is_not_clean() {
    let mut world = World::new();
    world.produce(1, &batch(b"one"));
    world.refused = Some((|job| matches!(job, FileJob::Replace { .. }), ENOSPC));
    assert_eq!(world.stop(), Some(false));
}

/// What a failed directory had written is never flushed; the end waited for that.
#[test]
fn a_broker_stops_although_a_directory_has_failed() {
    let mut world = World::new();
    world.produce(1, &batch(b"one"));
    world.hold = Some(|action| matches!(action, Action::Flush { .. }));
    // Several writes, so that they go plain and a flush covers them.
    world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(&[7; 1 << 20][..900_000])));
    assert!(!world.held.is_empty());
    world.event(Event::Mail { from: Peer::Control, message: Message::FailDir { dir: DirId(0), errno: EIO } });
    world.release();
    assert_eq!(world.stop(), Some(false));
}
