//! The indexes of a sealed segment, anew from its batches: what is left to do when their files are lost or wrong.
//!
//! Batches are checked as recovery checks them, CRC included: an index must not lead into what is damaged. Whoever feeds
//! it chooses the pace.

use crate::ids::{FilePos, LeaderEpoch};
use crate::log::index::{BatchSpan, SegmentBounds, SegmentIndex};
use crate::log::recovery::ScanEnd;
use crate::log::recovery::scan::{Due, ScanStart, SegmentScan};

/// A rebuild under way.
#[derive(Debug)]
pub struct IndexRebuild {
    segment: SegmentBounds,
    scan: SegmentScan,
    index: SegmentIndex,
}

/// What a piece of the segment brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Rebuilt {
    /// More is wanted, from [`IndexRebuild::wanted`] on.
    More,
    /// All batches are there: the indexes, the final time entry included.
    Done(SegmentIndex),
    /// The segment is damaged: it stays without indexes.
    Damaged {
        /// Where the batch begins that does not count.
        at: FilePos,
        /// Why not.
        why: ScanEnd,
    },
}

impl IndexRebuild {
    /// Of a sealed segment; `interval_bytes` is `index.interval.bytes`, and no batch may have an epoch above
    /// `epoch_max`.
    pub fn new(segment: SegmentBounds, interval_bytes: u32, epoch_max: LeaderEpoch) -> IndexRebuild {
        let start = ScanStart {
            at: FilePos(0),
            due: Due::Base(segment.base),
            epoch_min: LeaderEpoch(0),
            epoch_max,
            len: segment.len,
            next_segment: None,
        };
        let index = SegmentIndex::new(segment.base, interval_bytes);
        IndexRebuild { segment, scan: SegmentScan::new(start), index }
    }

    /// The next byte wanted.
    pub fn wanted(&self) -> FilePos {
        self.scan.wanted()
    }

    /// How many bytes are left to be fed.
    pub fn left(&self) -> u64 {
        self.segment.len - self.wanted().0
    }

    /// Takes the bytes from [`IndexRebuild::wanted`] on; none at all when the file ends there. Reads every byte once.
    pub fn feed(&mut self, bytes: &[u8]) -> Rebuilt {
        let index = &mut self.index;
        let ended = self.scan.feed(bytes, &mut |batch| {
            let max_timestamp = batch.header.max_timestamp.get();
            let span = BatchSpan { at: batch.at, last_offset: batch.last(), max_timestamp };
            if index.can_take(&span) {
                index.on_append(&span);
            }
        });
        let ended = ended.or_else(|| bytes.is_empty().then(|| self.scan.at_end_of_file()));
        let Some(why) = ended else { return Rebuilt::More };
        // After compaction the last batches may be gone.
        let whole = self.scan.next_offset().is_some_and(|next| next <= self.segment.end);
        if !why.is_clean() || !whole {
            return Rebuilt::Damaged { at: self.scan.end(), why };
        }
        self.index.seal();
        Rebuilt::Done(std::mem::replace(&mut self.index, SegmentIndex::new(self.segment.base, 0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::Offset;
    use crate::kafka::batch_builder::BatchBuilder;

    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    /// A segment from offset 7 on with a batch for each of these lengths, and the indexes that it had when it was sealed.
    fn segment(values: &[usize], interval_bytes: u32) -> (Vec<u8>, SegmentBounds, SegmentIndex) {
        let (base, mut log) = (Offset(7), Vec::new());
        let mut index = SegmentIndex::new(base, interval_bytes);
        for (count, len) in values.iter().enumerate() {
            let (offset, timestamp) = (base.plus(count as i64), 1000 + (*len as i64 * 7) % 500);
            let batch = BatchBuilder::new().appended(offset, EPOCH).value(timestamp, &vec![b'v'; *len]).build();
            let at = FilePos(log.len() as u64);
            index.on_append(&BatchSpan { at, last_offset: offset, max_timestamp: timestamp });
            log.extend(batch);
        }
        index.seal();
        let bounds = SegmentBounds { base, end: base.plus(values.len() as i64), len: log.len() as u64 };
        (log, bounds, index)
    }

    fn rebuild(log: &[u8], bounds: SegmentBounds, interval_bytes: u32, piece: usize) -> Rebuilt {
        let mut rebuild = IndexRebuild::new(bounds, interval_bytes, EPOCH);
        loop {
            let at = rebuild.wanted().0 as usize;
            let piece = &log[at..log.len().min(at + piece)];
            match rebuild.feed(piece) {
                Rebuilt::More => assert!(rebuild.left() > 0, "more than the segment is wanted"),
                ended => return ended,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn rebuilt_indexes_are_those_that_sealing_wrote(
            values in proptest::collection::vec(0usize..3000, 0..40),
            interval_bytes in prop_oneof![Just(0), Just(4096), 1u32..10_000],
            piece in 1usize..9000,
        ) {
            let (log, bounds, index) = segment(&values, interval_bytes);
            let rebuilt = rebuild(&log, bounds, interval_bytes, piece);
            prop_assert_eq!(rebuilt, Rebuilt::Done(index));
        }
    }

    #[test]
    fn a_damaged_segment_is_told_with_its_place_and_gets_no_index() {
        let (mut log, bounds, _) = segment(&[100, 200, 300], 0);
        let second = log.len() - 300 - 70 - 200;
        log[second] ^= 1;
        let Rebuilt::Damaged { at, why } = rebuild(&log, bounds, 0, 50) else { panic!("damage was not seen") };
        assert!(FilePos(0) < at && at.0 < second as u64, "at {at}");
        assert!(matches!(why, ScanEnd::Crc { .. }), "{why}");
    }

    #[test]
    fn a_segment_that_is_shorter_than_it_was_is_damaged() {
        let (log, bounds, _) = segment(&[100, 200], 0);
        let cut = &log[..log.len() - 1];
        assert!(matches!(rebuild(cut, bounds, 0, 1 << 20), Rebuilt::Damaged { why: ScanEnd::Torn, .. }));
    }

    /// A crash before the cut to the exact length leaves them.
    #[test]
    fn zeros_behind_the_last_batch_are_no_damage() {
        let (mut log, bounds, index) = segment(&[100, 200], 0);
        log.resize(8192, 0);
        let bounds = SegmentBounds { len: 8192, ..bounds };
        assert_eq!(rebuild(&log, bounds, 0, 1000), Rebuilt::Done(index));
    }
}
