//! Whether the disks have room for producers (design.md §8, the disk floor).
//!
//! Below `log.min.free.bytes` of any data directory producers are refused, so that deletions, retention and the metadata
//! log still have room to work in.

use crate::ids::MonoMicros;

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Bytes that this process can still use.
    pub free_bytes: u64,
}

/// Asks for a measurement once a second, ten times a second near the floor, and says when the answer changes something.
#[derive(Debug)]
pub struct DiskWatch {
    /// By data directory; those that are offline have 0.
    free_bytes_min: Vec<u64>,
    low: bool,
    /// `None` while a measurement is on its way.
    measure_at: Option<MonoMicros>,
}

impl DiskWatch {
    /// With `log.min.free.bytes` of each data directory.
    pub fn new(free_bytes_min: Vec<u64>) -> DiskWatch {
        DiskWatch { free_bytes_min, low: false, measure_at: Some(MonoMicros(0)) }
    }

    /// Whether it is time to measure.
    pub fn on_deadline(&mut self, now: MonoMicros) -> bool {
        self.measure_at.take_if(|at| *at <= now).is_some()
    }

    /// When [`DiskWatch::on_deadline`] is wanted.
    pub fn deadline(&self) -> Option<MonoMicros> {
        self.measure_at
    }

    /// What was measured. The result is news: whether the disks are too full from now on. What was too full is so
    /// until a sixteenth more than the floor is free, so that producers do not see it flicker.
    pub fn on_measured(&mut self, now: MonoMicros, spaces: &[DiskSpace]) -> Option<bool> {
        let floors = || self.free_bytes_min.iter().zip(spaces);
        let near = floors().any(|(min, space)| space.free_bytes / NEAR < *min);
        self.measure_at = Some(now.plus_millis(if near { NEAR_INTERVAL_MS } else { INTERVAL_MS }));
        let was_low = self.low;
        let low = floors().any(|(min, space)| {
            let floor = if was_low { min.saturating_add(min / 16) } else { *min };
            space.free_bytes < floor
        });
        self.low = low;
        (low != was_low).then_some(low)
    }
}

/// A floor is near when less than so many times as much is free: fast disks fill some GiB in a second.
const NEAR: u64 = 4;
const INTERVAL_MS: u64 = 1_000;
const NEAR_INTERVAL_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_news_once_and_needs_some_more_room_to_recover() {
        let mut watch = DiskWatch::new(vec![0, 1600]);
        let mut measure = |free_bytes| {
            let spaces = [DiskSpace::default(), DiskSpace { total_bytes: 1 << 20, free_bytes }];
            watch.on_measured(MonoMicros(0), &spaces)
        };
        let news: Vec<Option<bool>> = [1600, 1599, 0, 1600, 1699, 1700, 1650].map(&mut measure).to_vec();
        assert_eq!(news, [None, Some(true), None, None, None, Some(false), None]);
    }

    #[test]
    fn one_measurement_is_on_its_way_at_a_time() {
        let mut watch = DiskWatch::new(vec![0]);
        assert!(watch.on_deadline(MonoMicros(0)));
        assert!(!watch.on_deadline(MonoMicros(9)));
        watch.on_measured(MonoMicros(10), &[]);
        assert_eq!(watch.deadline(), Some(MonoMicros(1_000_010)));
    }

    /// Producers went through the floor to the ground between two measurements.
    #[test]
    fn near_its_floor_a_disk_is_measured_more_often() {
        let mut watch = DiskWatch::new(vec![0, 1600]);
        let mut next = |free_bytes| {
            let spaces = [DiskSpace::default(), DiskSpace { total_bytes: 1 << 20, free_bytes }];
            watch.on_measured(MonoMicros(0), &spaces);
            watch.deadline().expect("asked for").0
        };
        assert_eq!([6_400, 6_399, 1_600, 0, 6_400].map(&mut next), [1_000_000, 100_000, 100_000, 100_000, 1_000_000]);
    }
}
