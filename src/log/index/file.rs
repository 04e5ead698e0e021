//! Index files as bytes: entries, lookups, and the checks before one is trusted.

use zerocopy::byteorder::big_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{FilePos, Offset};
use crate::limits::INDEX_BYTES_MAX;
use crate::log::segment::Segment;

/// One entry of `.index`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OffsetEntry {
    pub(super) relative: U32,
    pub(super) position: U32,
}

/// One entry of `.timeindex`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TimeEntry {
    pub(super) timestamp: I64,
    pub(super) relative: U32,
}

/// Bytes of an offset entry.
pub const OFFSET_ENTRY_BYTES: usize = size_of::<OffsetEntry>();
/// Bytes of a time entry.
pub const TIME_ENTRY_BYTES: usize = size_of::<TimeEntry>();
const _: () = assert!(OFFSET_ENTRY_BYTES == 8 && TIME_ENTRY_BYTES == 12);

impl OffsetEntry {
    pub(super) fn decode(self, base: Offset) -> (Offset, FilePos) {
        (absolute(base, self.relative), FilePos(u64::from(self.position.get())))
    }
}

impl TimeEntry {
    pub(super) fn decode(self, base: Offset) -> (i64, Offset) {
        (self.timestamp.get(), absolute(base, self.relative))
    }
}

/// Saturates on garbage, which `check_*` reports.
fn absolute(base: Offset, relative: U32) -> Offset {
    Offset(base.0.saturating_add(i64::from(relative.get())))
}

/// The greatest entry of an offset index at or below `target`: last offset of a batch, and the batch's position.
/// `None` when the scan must begin at the start of the segment. O(log entries).
pub fn lookup_offset(bytes: &[u8], base: Offset, target: Offset) -> Option<(Offset, FilePos)> {
    let entries = entries::<OffsetEntry>(bytes);
    let after = entries.partition_point(|entry| absolute(base, entry.relative) <= target);
    Some(entries[after.checked_sub(1)?].decode(base))
}

/// The greatest entry of a time index at or below `timestamp`: the first record at or after it lies at or behind that
/// entry's offset. `None` when the scan must begin at the start of the segment. O(log entries).
pub fn lookup_time(bytes: &[u8], base: Offset, timestamp: i64) -> Option<(i64, Offset)> {
    let entries = entries::<TimeEntry>(bytes);
    let after = entries.partition_point(|entry| entry.timestamp.get() <= timestamp);
    Some(entries[after.checked_sub(1)?].decode(base))
}

/// The entries of an offset index in order.
pub fn offset_entries(bytes: &[u8], base: Offset) -> impl ExactSizeIterator<Item = (Offset, FilePos)> {
    entries::<OffsetEntry>(bytes).iter().map(move |entry| entry.decode(base))
}

/// The entries of a time index in order.
pub fn time_entries(bytes: &[u8], base: Offset) -> impl ExactSizeIterator<Item = (i64, Offset)> {
    entries::<TimeEntry>(bytes).iter().map(move |entry| entry.decode(base))
}

/// Whole entries only; a part of one at the end is left out.
fn entries<E: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> &[E] {
    let whole = bytes.len() - bytes.len() % size_of::<E>();
    <[E]>::ref_from_bytes(&bytes[..whole]).unwrap_or_default()
}

/// Why an index file cannot be used. The remedy is to rebuild it from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexFault {
    /// Its length is not a multiple of the entry size, or above the limit.
    #[error("{0} bytes are no whole number of entries")]
    Length(usize),
    /// An entry does not ascend.
    #[error("entry {0} does not ascend")]
    Order(usize),
    /// An entry names a position or offset outside the segment.
    #[error("entry {0} lies outside the segment")]
    Range(usize),
}

/// What a segment's log says its indexes may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBounds {
    /// Its base offset.
    pub base: Offset,
    /// Offset after its last record.
    pub end: Offset,
    /// Bytes of its batches.
    pub len: u64,
}

impl SegmentBounds {
    /// Those of a segment whose batches are known.
    pub fn of(segment: &Segment) -> SegmentBounds {
        SegmentBounds { base: segment.base, end: segment.end, len: segment.len }
    }
}

/// Checks an offset index and returns its valid part: a preallocated file ends in zeros. O(entries).
///
/// # Errors
/// The first thing that no writer of such a file does.
pub fn check_offset_index(bytes: &[u8], segment: SegmentBounds) -> Result<&[u8], IndexFault> {
    let (bytes, entries) = valid_part::<OffsetEntry>(bytes, 0)?;
    check_entries(entries, |previous, entry| {
        let (offset, at) = entry.decode(segment.base);
        let ascends = |p: &OffsetEntry| p.relative < entry.relative && p.position < entry.position;
        (previous.is_none_or(ascends), offset < segment.end && at.0 < segment.len)
    })?;
    Ok(bytes)
}

/// Checks a time index and returns its valid part. O(entries).
///
/// # Errors
/// The first thing that no writer of such a file does.
pub fn check_time_index(bytes: &[u8], segment: SegmentBounds) -> Result<&[u8], IndexFault> {
    // A first entry of zeros is legal here: a record with timestamp 0 at the base offset.
    let (bytes, entries) = valid_part::<TimeEntry>(bytes, 1)?;
    check_entries(entries, |previous, entry| {
        let (timestamp, offset) = entry.decode(segment.base);
        let ascends = |p: &TimeEntry| p.timestamp.get() < timestamp && p.relative <= entry.relative;
        (previous.is_none_or(ascends), 0 <= timestamp && offset < segment.end)
    })?;
    Ok(bytes)
}

/// Cuts the zeros off the end: the first entry of nothing but zeros, from entry `from` on, ends what was written.
fn valid_part<E>(bytes: &[u8], from: usize) -> Result<(&[u8], &[E]), IndexFault>
where
    E: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned,
{
    if !bytes.len().is_multiple_of(size_of::<E>()) || bytes.len() as u64 > INDEX_BYTES_MAX {
        return Err(IndexFault::Length(bytes.len()));
    }
    let entries = entries::<E>(bytes);
    let zero = entries.iter().skip(from).position(|entry| entry.as_bytes().iter().all(|&byte| byte == 0));
    let count = zero.map_or(entries.len(), |zero| from + zero);
    Ok((&bytes[..count * size_of::<E>()], &entries[..count]))
}

/// Runs `check` over each entry and the one before it; it says whether they ascend and whether the entry is in range.
fn check_entries<E>(entries: &[E], check: impl Fn(Option<&E>, &E) -> (bool, bool)) -> Result<(), IndexFault> {
    for (i, entry) in entries.iter().enumerate() {
        match check(i.checked_sub(1).map(|i| &entries[i]), entry) {
            (false, _) => return Err(IndexFault::Order(i)),
            (_, false) => return Err(IndexFault::Range(i)),
            (true, true) => {}
        }
    }
    Ok(())
}
