//! Lost indexes of a sealed segment are built again in the background, whatever happens meanwhile.

use pinion::log::index::{BatchSpan, SegmentIndex};
use pinion::shard::message::QueryAnswer;

use super::found::{hosted, stored};
use super::*;

const EIO: Errno = Errno(5);
const ENOSPC: Errno = Errno(28);
/// Batches of the sealed segment; it takes several pieces to read.
const BATCHES: i64 = 100;
const INTERVAL_BYTES: u32 = 10_000;

fn segment() -> Vec<u8> {
    (0..BATCHES).flat_map(|offset| stored(offset, &[7; 8000])).collect()
}

/// The indexes that the segment had.
fn index() -> SegmentIndex {
    let len = stored(0, &[7; 8000]).len() as u64;
    let batches = (0..BATCHES).map(|offset| BatchSpan {
        at: FilePos(offset as u64 * len),
        last_offset: Offset(offset),
        max_timestamp: 1_000 + offset,
    });
    let mut index = SegmentIndex::rebuild(Offset(0), INTERVAL_BYTES, batches);
    index.seal();
    index
}

/// A start that found the segment without its indexes.
fn lost(segment: Vec<u8>, hold: Option<fn(&Action) -> bool>) -> World {
    let topic = TopicConfig { index_interval_bytes: INTERVAL_BYTES, ..TopicConfig::default() };
    hosted(topic, (segment, Offset(BATCHES)), vec![Offset(0)], hold)
}

impl World {
    /// Lets the rebuild come to its end.
    fn let_rebuild(&mut self) {
        for _ in 0..20 {
            self.wait(10);
        }
    }

    fn indexes(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        let file = |kind| self.stored.get(&kind).map(Vec::as_slice);
        (file(FileKind::Index(Offset(0))), file(FileKind::TimeIndex(Offset(0))))
    }

    fn has_open_segment(&self) -> bool {
        let len = segment().len();
        self.files.values().any(|file| file.len() == len)
    }

    fn offset_at(&mut self, timestamp: i64) -> Option<Offset> {
        self.mail.clear();
        let origin = Origin { core: CoreId(1), ticket: Ticket(1), slot: 0 };
        let query = Query::ListOffsets { timestamp, current_leader_epoch: LeaderEpoch(-1), to_end: false };
        let message = Message::Query { origin, partition: PARTITION, query };
        self.event(Event::Mail { from: Peer::Core(CoreId(1)), message });
        let answer = self.mail.iter().find_map(|mail| match mail {
            Message::Queried { answer: QueryAnswer::Offset { offset, .. }, .. } => Some(*offset),
            _ => None,
        });
        self.mail.clear();
        answer
    }

    /// A fetch of another core's client brings something.
    fn serves(&mut self, offset: i64) -> bool {
        self.ask_for(offset, 1000, true);
        self.given().is_some_and(|outcome| outcome.error == ErrorCode::NONE && outcome.bytes > 0)
    }
}

fn reads(action: &Action) -> bool {
    matches!(action, Action::Read { .. })
}

fn opens(action: &Action) -> bool {
    matches!(action, Action::File { what: FileJob::OpenSealed { .. }, .. })
}

fn replaces(action: &Action) -> bool {
    matches!(action, Action::File { what: FileJob::Replace { .. }, .. })
}

#[test]
fn lost_indexes_are_rebuilt_as_they_were_while_the_segment_is_served() {
    let mut world = lost(segment(), None);
    assert_eq!(world.indexes(), (None, None), "it takes several pieces");
    assert!(world.serves(70));
    assert_eq!(world.offset_at(1_070), Some(Offset(70)));
    world.let_rebuild();
    let index = index();
    assert_eq!(world.indexes(), (Some(index.offsets.as_bytes()), Some(index.times.as_bytes())));
    assert!(!world.has_failed());
    let reads = world.reads;
    world.let_rebuild();
    assert_eq!(world.reads, reads, "it is over");
    assert_eq!(world.offset_at(1_070), Some(Offset(70)));
    assert!(world.serves(70));
    assert!(world.reads <= reads + 2, "the index leads to the batch: {} reads", world.reads - reads);
}

#[test]
fn an_index_that_a_read_finds_damaged_is_rebuilt() {
    let topic = TopicConfig { index_interval_bytes: INTERVAL_BYTES, ..TopicConfig::default() };
    let mut world = hosted(topic, (segment(), Offset(BATCHES)), Vec::new(), None);
    world.stored.insert(FileKind::Index(Offset(0)), vec![9; 800]);
    assert!(world.serves(70));
    world.let_rebuild();
    assert_eq!(world.indexes().0, Some(index().offsets.as_bytes()));
}

#[test]
fn a_damaged_segment_stays_without_indexes_and_is_served() {
    let mut damaged = segment();
    let at = damaged.len() / 2;
    damaged[at + 100] ^= 1;
    let mut world = lost(damaged, None);
    world.let_rebuild();
    assert_eq!((world.indexes(), world.has_failed()), ((None, None), false));
    assert!(!world.has_open_segment());
    assert!(world.serves(1) && world.serves(BATCHES - 1));
}

#[test]
fn a_rebuild_ends_with_its_topic_or_its_segment() {
    for held in [opens, reads, replaces] {
        for drop in [true, false] {
            let mut world = lost(segment(), Some(held));
            world.let_rebuild();
            assert_eq!(world.held.len(), 1);
            match drop {
                true => world.drop_topic(),
                false => world.delete_records(BATCHES),
            }
            world.release();
            world.let_rebuild();
            assert_eq!((world.has_dropped(), world.has_failed()), (drop, false));
            assert!(!world.has_open_segment());
            assert_eq!(world.indexes().1, None, "nobody needs it");
        }
    }
}

#[test]
fn a_stop_waits_for_the_read_of_a_rebuild_and_for_no_more() {
    let mut world = lost(segment(), Some(reads));
    world.let_rebuild();
    assert_eq!((world.held.len(), world.stop()), (1, None));
    world.release();
    assert_eq!(world.stop(), Some(true));
    assert_eq!(world.indexes(), (None, None));
    let mut resting = lost(segment(), None);
    assert_eq!(resting.stop(), Some(true));
}

#[test]
fn a_rebuild_is_lost_with_its_data_directory() {
    let mut world = lost(segment(), Some(reads));
    world.let_rebuild();
    world.event(Event::Mail { from: Peer::Control, message: Message::FailDir { dir: DirId(0), errno: EIO } });
    let held = std::mem::take(&mut world.held);
    assert_eq!(world.stop(), Some(false), "what hangs is not waited for");
    world.held = held;
    world.release();
    assert!(!world.jobs.contains(&"Replace".to_owned()));
}

#[test]
fn a_read_error_fails_the_directory_and_a_full_disk_does_not() {
    for (errno, fails) in [(EIO, true), (ENOSPC, false)] {
        let mut world = lost(segment(), None);
        world.refused = Some((|job| matches!(job, FileJob::Replace { .. }), errno));
        world.let_rebuild();
        assert_eq!(world.has_failed(), fails, "{errno}");
        assert_eq!(world.indexes(), (None, None));
    }
    let mut world = lost(segment(), Some(reads));
    world.let_rebuild();
    world.hold = None;
    for action in std::mem::take(&mut world.held) {
        let Action::Read { read, into, .. } = action else { panic!("a read") };
        world.event(Event::Read { read, into, result: Err(EIO) });
    }
    assert!(world.has_failed());
}
