//! Indexes of sealed segments, those of segments sealed just now and those loaded from their files. The least recently
//! used ones go when a core has too many.

use std::collections::BTreeMap;

use super::{
    IndexFault, OffsetIndex, SegmentBounds, TimeIndex, check_offset_index, check_time_index, lookup_offset, lookup_time,
};
use crate::ids::{FileId, FilePos, Offset};
use crate::limits::INDEX_BYTES_MAX;

/// Indexes of one core by the open log file of their segment, at most a given number of bytes.
#[derive(Clone, Debug)]
pub struct IndexCache {
    slots: BTreeMap<FileId, Slot>,
    by_use: BTreeMap<u64, FileId>,
    bytes: u64,
    bytes_max: u64,
    uses: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    base: Offset,
    offsets: Box<[u8]>,
    times: Box<[u8]>,
    used: u64,
}

impl IndexCache {
    /// What an entry costs besides its bytes, roughly: two tree nodes and two allocations.
    pub const SLOT_BYTES: u64 = 256;
    /// Smallest budget: the indexes of one segment must fit.
    pub const BYTES_MIN: u64 = 2 * INDEX_BYTES_MAX + Self::SLOT_BYTES;

    /// An empty cache.
    ///
    /// # Panics
    /// When the budget is below [`IndexCache::BYTES_MIN`].
    pub fn new(bytes_max: u64) -> IndexCache {
        assert!(Self::BYTES_MIN <= bytes_max, "{bytes_max} bytes do not hold the indexes of a segment");
        IndexCache { slots: BTreeMap::new(), by_use: BTreeMap::new(), bytes: 0, bytes_max, uses: 0 }
    }

    /// Takes the indexes of a segment that was sealed just now.
    pub fn insert(&mut self, file: FileId, offsets: OffsetIndex, times: TimeIndex) {
        self.put(file, offsets.0.base, offsets.as_bytes(), times.as_bytes());
    }

    /// Takes the contents of a segment's index files, as far as they can be trusted: lookups in one that cannot be give
    /// the start of the segment. O(entries).
    ///
    /// # Errors
    /// What is wrong with the first file that is not used.
    pub fn load(
        &mut self,
        file: FileId,
        segment: SegmentBounds,
        offsets: &[u8],
        times: &[u8],
    ) -> Result<(), IndexFault> {
        let offsets = check_offset_index(offsets, segment);
        let times = check_time_index(times, segment);
        self.put(file, segment.base, offsets.unwrap_or_default(), times.unwrap_or_default());
        offsets.and(times).map(|_| ())
    }

    /// A position at or before the batch that holds `offset`, to scan forward from; `None` when the index must be loaded
    /// first. O(log indexes + log entries).
    pub fn position(&mut self, file: FileId, offset: Offset) -> Option<FilePos> {
        let slot = self.touch(file)?;
        Some(lookup_offset(&slot.offsets, slot.base, offset).map_or(FilePos(0), |(_, at)| at))
    }

    /// The offset to scan forward from for the first record at or after `timestamp`; `None` when the index must be loaded
    /// first. O(log indexes + log entries).
    pub fn offset(&mut self, file: FileId, timestamp: i64) -> Option<Offset> {
        let slot = self.touch(file)?;
        Some(lookup_time(&slot.times, slot.base, timestamp).map_or(slot.base, |(_, offset)| offset))
    }

    /// Forgets the indexes of a file: it is closed, deleted or rebuilt.
    pub fn remove(&mut self, file: FileId) {
        if let Some(slot) = self.slots.remove(&file) {
            self.by_use.remove(&slot.used);
            self.bytes -= slot.cost();
        }
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn put(&mut self, file: FileId, base: Offset, offsets: &[u8], times: &[u8]) {
        self.remove(file);
        self.uses += 1;
        let slot = Slot { base, offsets: offsets.into(), times: times.into(), used: self.uses };
        self.bytes += slot.cost();
        self.by_use.insert(slot.used, file);
        self.slots.insert(file, slot);
        while self.bytes > self.bytes_max {
            let (_, &oldest) = self.by_use.first_key_value().expect("bytes without a slot");
            self.remove(oldest);
        }
    }

    fn touch(&mut self, file: FileId) -> Option<&Slot> {
        let slot = self.slots.get_mut(&file)?;
        self.uses += 1;
        self.by_use.remove(&slot.used);
        self.by_use.insert(self.uses, file);
        slot.used = self.uses;
        Some(slot)
    }
}

impl Slot {
    fn cost(&self) -> u64 {
        (self.offsets.len() + self.times.len()) as u64 + IndexCache::SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// An offset index of `mib` MiB: an entry each 100 bytes of log.
    fn index(mib: u64) -> OffsetIndex {
        let mut index = OffsetIndex::new(Offset(0));
        for i in 1..=mib * MIB / 8 {
            index.on_append(Offset(i as i64), FilePos(i * 100), 0);
        }
        index
    }

    /// Room for five indexes of 4 MiB, holding files 0 to 4.
    fn cache() -> IndexCache {
        let mut cache = IndexCache::new(21 * MIB);
        (0..5).for_each(|file| cache.insert(FileId(file), index(4), TimeIndex::new(Offset(0))));
        cache
    }

    fn held(cache: &mut IndexCache, file: u64) -> bool {
        cache.position(FileId(file), Offset(0)).is_some()
    }

    #[test]
    fn the_least_recently_used_index_goes_first() {
        let mut cache = cache();
        assert!(held(&mut cache, 0));
        cache.insert(FileId(5), index(4), TimeIndex::new(Offset(0)));
        let left = [0, 1, 2, 3, 4, 5].map(|file| held(&mut cache, file));
        assert_eq!(left, [true, false, true, true, true, true], "file 1 was used longest ago");
    }

    #[test]
    fn a_large_index_drives_out_as_many_as_it_needs() {
        let mut cache = cache();
        cache.insert(FileId(9), index(10), TimeIndex::new(Offset(0)));
        assert!(cache.bytes() <= 21 * MIB);
        let left = [0, 1, 2, 3, 4, 9].map(|file| held(&mut cache, file));
        assert_eq!(left, [false, false, false, true, true, true]);
    }

    #[test]
    fn replacing_and_removing_keep_the_count_right() {
        let mut cache = cache();
        cache.insert(FileId(1), index(1), TimeIndex::new(Offset(0)));
        assert_eq!(cache.bytes(), 17 * MIB + 5 * IndexCache::SLOT_BYTES);
        (0..5).for_each(|file| cache.remove(FileId(file)));
        cache.remove(FileId(77));
        assert_eq!((cache.bytes(), cache.by_use.len(), cache.slots.len()), (0, 0, 0));
    }

    #[test]
    fn an_index_that_cannot_be_trusted_means_a_scan_from_the_start() {
        let mut cache = cache();
        let segment = SegmentBounds { base: Offset(100), end: Offset(200), len: 1000 };
        let good = [0, 0, 0, 9, 0, 0, 0, 77];
        assert_eq!(cache.load(FileId(1), segment, &good, &[]), Ok(()));
        assert_eq!(cache.position(FileId(1), Offset(150)), Some(FilePos(77)));
        assert_eq!(cache.offset(FileId(1), 5), Some(Offset(100)));
        let outside = [0, 0, 0, 9, 0, 0, 9, 9];
        assert_eq!(cache.load(FileId(1), segment, &outside, &[]), Err(IndexFault::Range(0)));
        assert_eq!(cache.position(FileId(1), Offset(150)), Some(FilePos(0)));
    }
}
