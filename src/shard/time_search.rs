//! Looking through the batches of a block of a segment: for an offset, for a timestamp, for whole batches. Pure.

use crate::ids::{LeaderEpoch, Offset};
use zerocopy::FromBytes;

use crate::kafka::batch::{BatchHeader, BatchView, HEADER_BYTES, MAGIC};
use crate::kafka::compression;
use crate::log::segment::{Segment, SegmentSet};
use crate::shard::message::QueryAnswer;

/// What a look through a block found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The wanted batch starts at this byte and is this long; it may go on behind the block.
    Batch {
        /// Byte in the block.
        at: usize,
        /// Its length.
        len: u32,
    },
    /// The wanted record.
    Offset {
        /// Its offset.
        offset: Offset,
        /// Its timestamp.
        timestamp: i64,
        /// Epoch of its batch.
        epoch: LeaderEpoch,
    },
    /// Not in the block: the next batch starts at this byte, and needs at least `len` bytes to be looked at.
    Beyond {
        /// Byte in the block.
        at: usize,
        /// Bytes that the next look needs.
        len: u32,
    },
    /// No record can match.
    Nothing,
    /// What starts at this byte is no batch.
    Corrupt(usize),
}

/// Bytes from which a batch's length, offsets and timestamps can be read.
const HEAD_BYTES: usize = HEADER_BYTES;

/// What a batch's header says, without its records being there.
struct Head<'a>(&'a BatchHeader);

impl Head<'_> {
    /// Reads the header of what should be a batch.
    fn read(bytes: &[u8]) -> Option<Head<'_>> {
        let (header, _) = BatchHeader::ref_from_prefix(bytes).ok()?;
        let whole = header.batch_length.get() >= (HEADER_BYTES - LENGTH_ENDS_AT) as i32;
        (header.magic == MAGIC && whole && header.last_offset_delta.get() >= 0).then_some(Head(header))
    }

    fn total_len(&self) -> u32 {
        self.0.batch_length.get() as u32 + LENGTH_ENDS_AT as u32
    }

    fn base_offset(&self) -> Offset {
        Offset(self.0.base_offset.get())
    }

    fn last_offset(&self) -> Offset {
        self.base_offset().plus(i64::from(self.0.last_offset_delta.get()))
    }

    fn max_timestamp(&self) -> i64 {
        self.0.max_timestamp.get()
    }
}

/// Bytes up to the end of the length field.
const LENGTH_ENDS_AT: usize = 12;
/// Bytes of one batch that a search by time decompresses, some 30 ms of the core's time at the most. When they do not
/// bring the record, the answer is the first one that was not looked at: whoever reads from there on misses nothing.
const PLAIN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Finds the batch that holds `offset`, or the first one behind it. Only headers are looked at.
pub fn find_offset(bytes: &[u8], offset: Offset) -> Found {
    let mut at = 0;
    loop {
        let Some(head) = bytes.get(at..at + HEAD_BYTES) else {
            return Found::Beyond { at, len: HEAD_BYTES as u32 };
        };
        let Some(head) = Head::read(head) else { return Found::Corrupt(at) };
        if offset <= head.last_offset() {
            return Found::Batch { at, len: head.total_len() };
        }
        at += head.total_len() as usize;
        if at > bytes.len() {
            return Found::Beyond { at, len: HEAD_BYTES as u32 };
        }
    }
}

/// Finds the first record with a timestamp at or after `timestamp` below `limit`.
pub fn find_time(bytes: &[u8], timestamp: i64, limit: Offset) -> Found {
    let mut at = 0;
    loop {
        let Some(head) = bytes.get(at..at + HEAD_BYTES) else {
            return Found::Beyond { at, len: HEAD_BYTES as u32 };
        };
        let Some(head) = Head::read(head) else { return Found::Corrupt(at) };
        if limit <= head.base_offset() {
            return Found::Nothing;
        }
        let end = at + head.total_len() as usize;
        if timestamp <= head.max_timestamp() {
            let Some(whole) = bytes.get(at..end) else { return Found::Beyond { at, len: head.total_len() } };
            return match first_at_or_after(whole, timestamp, limit, PLAIN_BYTES_MAX) {
                Some(found) => found,
                None => Found::Corrupt(at),
            };
        }
        at = end;
        if at > bytes.len() {
            return Found::Beyond { at, len: HEAD_BYTES as u32 };
        }
    }
}

/// The first matching record of a batch whose largest timestamp matches; `None` when the batch is corrupt.
fn first_at_or_after(batch: &[u8], timestamp: i64, limit: Offset, plain_bytes_max: usize) -> Option<Found> {
    let view = BatchView::parse(batch).ok()?;
    view.check_crc().ok()?;
    let found = |offset, timestamp| match offset < limit {
        true => Found::Offset { offset, timestamp, epoch: view.leader_epoch() },
        false => Found::Nothing,
    };
    let (plain, cut) = compression::plain_prefix(&view, plain_bytes_max).ok()?;
    let mut next = view.base_offset();
    for record in view.records_in(&plain) {
        let record = match record {
            Ok(record) => record,
            Err(_) if cut => break,
            Err(_) => return None,
        };
        let offset = Offset(view.base_offset().0 + i64::from(record.offset_delta));
        let at = view.timestamp_of(record.timestamp_delta);
        if timestamp <= at {
            return Some(found(offset, at));
        }
        next = offset.plus(1);
    }
    cut.then(|| found(next, view.max_timestamp()))
}

/// Bytes of the whole batches at the start of a block that fit `bytes_max` and end at or below `limit`.
pub fn whole_batches(bytes: &[u8], bytes_max: u32, limit: Offset) -> u32 {
    let mut at = 0usize;
    while let Some(head) = bytes.get(at..at + HEAD_BYTES).and_then(Head::read) {
        let end = at + head.total_len() as usize;
        let fits = end <= bytes.len() && end as u64 <= u64::from(bytes_max);
        if !fits || limit <= head.last_offset() {
            break;
        }
        at = end;
    }
    at as u32
}

/// The segment that a search by time starts in, and the timestamp to look for: the first segment whose largest one is
/// late enough; for −3 the first with the largest of all. One whose largest timestamp nobody knows, because its index is
/// lost, may hold the record; so may one whose records have none, and there the search goes on.
pub fn first_to_search(segments: &SegmentSet, timestamp: i64) -> Option<(Offset, i64)> {
    let largest = segments.iter().map(|segment| segment.max_timestamp).max().unwrap_or(-1);
    let wanted = if timestamp == -3 { largest } else { timestamp };
    let unknown = |segment: &Segment| segment.max_timestamp < 0 && !segment.is_empty();
    let first = segments.iter().find(|segment| wanted <= segment.max_timestamp || unknown(segment))?;
    (wanted >= 0).then_some((first.base, wanted))
}

/// The answer when no record matches.
pub fn nothing() -> QueryAnswer {
    QueryAnswer::Offset { offset: Offset(-1), timestamp: -1, leader_epoch: LeaderEpoch(-1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WallMillis;
    use crate::kafka::batch::Codec;
    use crate::kafka::batch_builder::BatchBuilder;
    use crate::log::segment::SegmentState;

    /// Records at 100, 101, … with offsets from 10 on.
    fn batch(codec: Codec, count: i64) -> Vec<u8> {
        let builder = BatchBuilder::new().appended(Offset(10), LeaderEpoch(3)).codec(codec);
        (0..count).fold(builder, |builder, i| builder.value(100 + i, &[b'v'; 1000])).build()
    }

    fn found(offset: i64, timestamp: i64) -> Option<Found> {
        Some(Found::Offset { offset: Offset(offset), timestamp, epoch: LeaderEpoch(3) })
    }

    #[test]
    fn the_first_record_at_or_after_the_time_is_found_in_every_codec() {
        for codec in Codec::ALL {
            let batch = batch(codec, 50);
            let first = |timestamp| first_at_or_after(&batch, timestamp, Offset(1000), PLAIN_BYTES_MAX);
            assert_eq!(first(0), found(10, 100), "{codec:?}");
            assert_eq!(first(130), found(40, 130), "{codec:?}");
        }
    }

    #[test]
    fn a_record_behind_the_limit_is_not_told() {
        let batch = batch(Codec::None, 50);
        assert_eq!(first_at_or_after(&batch, 130, Offset(40), PLAIN_BYTES_MAX), Some(Found::Nothing));
    }

    /// A megabyte may hold gigabytes: what is not decompressed is answered with its first record, which comes earlier.
    #[test]
    fn a_batch_is_decompressed_only_so_far_and_nothing_is_passed_over() {
        for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
            let batch = batch(codec, 50);
            let first = |timestamp| first_at_or_after(&batch, timestamp, Offset(1000), 20_500);
            assert_eq!(first(110), found(20, 110), "{codec:?}");
            assert_eq!(first(145), found(30, 149), "{codec:?}: 20 records were looked at");
        }
        let snappy = batch(Codec::Snappy, 50);
        let first = |bytes_max| first_at_or_after(&snappy, 145, Offset(1000), bytes_max);
        assert_eq!(first(20_500), found(10, 149), "blocks of 32 KiB are all or nothing");
        assert_eq!(first(33_000), found(42, 149));
    }

    /// A segment whose index was lost was passed over, and with it the records that were looked for.
    #[test]
    fn a_segment_of_unknown_times_is_searched() {
        let mut segments = SegmentSet::default();
        for (base, max_timestamp) in [(0, 100), (10, -1), (20, 300)] {
            let mut segment = Segment::active(Offset(base), WallMillis(0), None);
            segment.on_append(Offset(base + 10), 1, max_timestamp);
            segment.state = SegmentState::Sealed;
            segments.push(segment);
        }
        segments.push(Segment::active(Offset(30), WallMillis(0), None));
        assert_eq!(first_to_search(&segments, 100), Some((Offset(0), 100)));
        assert_eq!(first_to_search(&segments, 101), Some((Offset(10), 101)));
        assert_eq!(first_to_search(&segments, -3), Some((Offset(10), 300)));
    }

    #[test]
    fn a_damaged_batch_is_corrupt() {
        let mut damaged = batch(Codec::Zstd, 50);
        *damaged.last_mut().expect("a batch has bytes") ^= 1;
        assert_eq!(first_at_or_after(&damaged, 145, Offset(1000), PLAIN_BYTES_MAX), None);
    }
}
