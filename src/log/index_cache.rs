//! Indexes of sealed segments that were loaded from their files: the least recently used ones go when a core has too
//! many. What is here has been checked; what is not must be read first.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{Offset, PartitionId};
use crate::limits::INDEX_BYTES_MAX;

/// Which index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IndexKind {
    /// `.index`
    Offset,
    /// `.timeindex`
    Time,
}

/// The index of one segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IndexKey {
    /// Whose.
    pub partition: PartitionId,
    /// Base offset of the segment.
    pub base: Offset,
    /// Which of the two.
    pub kind: IndexKind,
}

/// Loaded indexes of one core, at most a given number of bytes.
#[derive(Clone, Debug)]
pub struct IndexCache {
    slots: BTreeMap<IndexKey, Slot>,
    by_use: BTreeMap<u64, IndexKey>,
    bytes: u64,
    bytes_max: u64,
    uses: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    bytes: Arc<[u8]>,
    used: u64,
}

impl IndexCache {
    /// What an entry costs besides its bytes, roughly: two tree nodes and an allocation.
    const SLOT_BYTES: u64 = 160;

    /// An empty cache.
    ///
    /// # Panics
    /// When the budget does not hold even one index of the largest size.
    pub fn new(bytes_max: u64) -> IndexCache {
        assert!(INDEX_BYTES_MAX + Self::SLOT_BYTES <= bytes_max, "{bytes_max} bytes hold no index");
        IndexCache { slots: BTreeMap::new(), by_use: BTreeMap::new(), bytes: 0, bytes_max, uses: 0 }
    }

    /// The index, if it is loaded. O(log indexes).
    pub fn lookup(&mut self, key: IndexKey) -> Option<&Arc<[u8]>> {
        let slot = self.slots.get_mut(&key)?;
        self.uses += 1;
        self.by_use.remove(&slot.used);
        slot.used = self.uses;
        self.by_use.insert(slot.used, key);
        Some(&slot.bytes)
    }

    /// Takes an index that was read and checked; others go until the budget holds. Replaces one with the same key.
    ///
    /// # Panics
    /// When it is larger than any index may be: its reader had to refuse it.
    pub fn insert(&mut self, key: IndexKey, bytes: Arc<[u8]>) {
        assert!(bytes.len() as u64 <= INDEX_BYTES_MAX, "an index of {} bytes", bytes.len());
        self.remove(key);
        self.uses += 1;
        self.bytes += Self::cost(&bytes);
        self.by_use.insert(self.uses, key);
        self.slots.insert(key, Slot { bytes, used: self.uses });
        while self.bytes > self.bytes_max {
            let (_, oldest) = self.by_use.first_key_value().expect("bytes without a slot");
            self.remove(*oldest);
        }
    }

    /// Forgets one index: its segment is deleted or rebuilt.
    pub fn remove(&mut self, key: IndexKey) {
        if let Some(slot) = self.slots.remove(&key) {
            self.by_use.remove(&slot.used);
            self.bytes -= Self::cost(&slot.bytes);
        }
    }

    /// Forgets all indexes of a partition from `base` on: it is closed (`Offset::ZERO`) or truncated.
    pub fn remove_from(&mut self, partition: PartitionId, base: Offset) {
        let first = IndexKey { partition, base, kind: IndexKind::Offset };
        let last = IndexKey { partition, base: Offset(i64::MAX), kind: IndexKind::Time };
        let keys: Vec<_> = self.slots.range(first..=last).map(|(&key, _)| key).collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn cost(bytes: &[u8]) -> u64 {
        bytes.len() as u64 + Self::SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PartitionIndex, TopicId};

    const MIB: usize = 1 << 20;

    fn key(partition: i32, base: i64) -> IndexKey {
        let partition = PartitionId { topic: TopicId([1; 16]), index: PartitionIndex(partition) };
        IndexKey { partition, base: Offset(base), kind: IndexKind::Offset }
    }

    /// Room for three indexes of 4 MiB.
    fn cache() -> IndexCache {
        let mut cache = IndexCache::new(13 * MIB as u64);
        for base in [0, 1, 2] {
            cache.insert(key(0, base), vec![0; 4 * MIB].into());
        }
        cache
    }

    #[test]
    fn the_least_recently_used_index_goes_first() {
        let mut cache = cache();
        assert!(cache.lookup(key(0, 0)).is_some());
        cache.insert(key(0, 3), vec![0; 4 * MIB].into());
        assert!(cache.lookup(key(0, 1)).is_none(), "it was used longest ago");
        let left = [0, 2, 3].map(|base| cache.lookup(key(0, base)).is_some());
        assert_eq!(left, [true; 3]);
    }

    #[test]
    fn a_large_index_drives_out_as_many_as_it_needs() {
        let mut cache = cache();
        cache.insert(key(1, 0), vec![0; INDEX_BYTES_MAX as usize].into());
        assert!(cache.lookup(key(1, 0)).is_some());
        assert!(cache.bytes() <= 13 * MIB as u64);
        assert!(cache.lookup(key(0, 2)).is_none());
    }

    #[test]
    fn replacing_and_removing_keep_the_count_right() {
        let mut cache = cache();
        cache.insert(key(0, 1), vec![0; MIB].into());
        cache.insert(key(7, 1), vec![0; MIB].into());
        assert_eq!(cache.bytes(), 10 * MIB as u64 + 4 * IndexCache::SLOT_BYTES);
        cache.remove_from(key(0, 0).partition, Offset(1));
        assert!(cache.lookup(key(0, 0)).is_some() && cache.lookup(key(7, 1)).is_some());
        assert!(cache.lookup(key(0, 1)).is_none() && cache.lookup(key(0, 2)).is_none());
        cache.remove(key(0, 0));
        cache.remove(key(7, 1));
        assert_eq!((cache.bytes(), cache.by_use.len()), (0, 0));
    }
}
