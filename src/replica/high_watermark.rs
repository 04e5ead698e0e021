//! How far a partition is committed.

use crate::ids::Offset;

/// The committed in-sync set of a partition as its leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSync {
    /// Members, the leader included.
    pub count: u32,
    /// min(`min.insync.replicas`, replication factor).
    pub min: u32,
}

impl InSync {
    /// Whether acks=all may be promised.
    pub fn is_enough(self) -> bool {
        self.min <= self.count
    }
}

/// The high watermark that the stable offsets of the in-sync replicas allow: their minimum, but never below `current`,
/// and `current` while too few are in sync (KIP-966: a record that only the last replica standing has must not be
/// seen).
///
/// # Panics
/// When no replica is given: the leader is always in sync with itself.
pub fn high_watermark(current: Offset, stable: impl IntoIterator<Item = Offset>, in_sync: InSync) -> Offset {
    let committed = stable.into_iter().min().expect("the leader is in its in-sync set");
    if in_sync.is_enough() { committed.max(current) } else { current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_slowest_in_sync_replica() {
        let in_sync = InSync { count: 3, min: 2 };
        assert_eq!(high_watermark(Offset(5), [Offset(9), Offset(7), Offset(8)], in_sync), Offset(7));
    }

    #[test]
    fn it_never_goes_back() {
        assert_eq!(high_watermark(Offset(5), [Offset(3)], InSync { count: 1, min: 1 }), Offset(5));
    }

    #[test]
    fn it_stands_still_while_too_few_are_in_sync() {
        assert_eq!(high_watermark(Offset(5), [Offset(9)], InSync { count: 1, min: 2 }), Offset(5));
    }
}
