//! Watches the data cores and the disks (design §2 *Stall*). A core that is not asleep and makes no turn is stuck, and a
//! process with a stuck core ends itself, so that somebody else can serve its partitions. A disk operation that does not
//! end fails its data directory, as an error would.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{DirId, MonoMicros};
use crate::io::clock;
use crate::runtime::inbox::{Inbox, Input};
use crate::runtime::pulse::{OldestDisk, Pulse};

/// How often the cores are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// A watcher that was itself late by more than this was stopped with the whole process, and starts its counts anew.
const LATE_US: u64 = 500_000;
/// A core without a turn for so long ends the process.
const STUCK_MS: u64 = 10_000;
/// The directory of the metadata log.
const METADATA_DIR: DirId = DirId(0);

/// What is watched.
pub struct Watched {
    /// The data cores.
    pub pulses: Vec<Arc<Pulse>>,
    /// Count of data directories.
    pub dirs: u16,
    /// Writes of the metadata log, which lies in the first directory.
    pub metadata: Arc<OldestDisk>,
    /// The time after which a disk operation fails its directory, and a standing core is named in the log.
    pub patience_ms: u64,
    /// Hears of directories that hang.
    pub inbox: Inbox,
}

/// Starts the watching thread.
///
/// # Errors
/// When the thread cannot be had.
pub fn start(watched: Watched) -> io::Result<()> {
    let watch = move || {
        let mut cores: Vec<Standstill<u64>> = watched.pulses.iter().map(|_| Standstill::default()).collect();
        let mut disks = Disks::new(&watched);
        let mut last = clock::mono();
        loop {
            std::thread::park_timeout(EVERY);
            let now = clock::mono();
            let late = now.micros_since(last) > EVERY.as_micros() as u64 + LATE_US;
            let passed_ms = if late { 0 } else { now.micros_since(last) / 1000 };
            last = now;
            for (core, (pulse, standstill)) in watched.pulses.iter().zip(&mut cores).enumerate() {
                watch_core(core, pulse, standstill, passed_ms, watched.patience_ms);
            }
            if let Some((dir, ms)) = disks.look(&watched, passed_ms) {
                tracing::error!(%dir, ms, "a disk operation does not end (disk.stall.timeout.ms)");
                watched.pulses.iter().for_each(|pulse| pulse.give_up(dir));
                watched.inbox.put(Input::DiskHangs(dir));
            }
        }
    };
    std::thread::Builder::new().name("stall".to_owned()).spawn(watch).map(drop)
}

fn watch_core(core: usize, pulse: &Pulse, standstill: &mut Standstill<u64>, passed_ms: u64, patience_ms: u64) {
    let before = standstill.ms;
    let still_ms = standstill.look((!pulse.is_asleep()).then(|| pulse.turns()), passed_ms);
    if before < patience_ms && patience_ms <= still_ms {
        tracing::error!(core, still_ms, "a data core makes no turn");
    }
    assert!(still_ms < STUCK_MS, "data core {core} is stuck for {still_ms} ms");
}

/// For how long something that should change has been seen unchanged.
#[derive(Clone, Copy, Debug)]
struct Standstill<T> {
    seen: Option<T>,
    ms: u64,
}

impl<T> Default for Standstill<T> {
    fn default() -> Self {
        Standstill { seen: None, ms: 0 }
    }
}

impl<T: PartialEq> Standstill<T> {
    /// What is seen now, `None` for nothing that could stand still. Time in which the watcher could not watch counts as
    /// 0, and begins the count anew.
    fn look(&mut self, now: Option<T>, passed_ms: u64) -> u64 {
        let still = now.is_some() && now == self.seen && passed_ms > 0;
        self.ms = if still { self.ms + passed_ms } else { 0 };
        self.seen = now;
        self.ms
    }
}

/// The oldest disk operation of every core in every directory, and that of the metadata log behind them.
struct Disks {
    standstills: Vec<Standstill<MonoMicros>>,
    /// By directory, whether it was reported.
    reported: Vec<bool>,
}

impl Disks {
    fn new(watched: &Watched) -> Disks {
        let dirs = usize::from(watched.dirs);
        Disks { standstills: vec![Standstill::default(); watched.pulses.len() * dirs + 1], reported: vec![false; dirs] }
    }

    /// The directory that has begun to hang, and since when. What hangs may have kept the workers that another directory
    /// waits for: that one gets all of the time again, once this one has been given up.
    fn look(&mut self, watched: &Watched, passed_ms: u64) -> Option<(DirId, u64)> {
        let of_cores = watched
            .pulses
            .iter()
            .flat_map(|pulse| (0..watched.dirs).map(|dir| (DirId(dir), pulse.oldest_disk(DirId(dir)))));
        let all = of_cores.chain([(METADATA_DIR, watched.metadata.started())]);
        let mut hanging = Vec::new();
        for ((dir, oldest), standstill) in all.zip(&mut self.standstills) {
            let ms = standstill.look(oldest, passed_ms);
            if ms >= watched.patience_ms && !self.reported[usize::from(dir.0)] {
                hanging.push((oldest, dir, ms));
            }
        }
        let (_, dir, ms) = hanging.into_iter().min()?;
        self.reported[usize::from(dir.0)] = true;
        self.standstills.iter_mut().for_each(|standstill| standstill.ms = 0);
        Some((dir, ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(cores: usize, dirs: u16) -> Watched {
        let (inbox, ..) = Inbox::new().expect("a bell");
        let pulses = (0..cores).map(|_| Arc::new(Pulse::new(usize::from(dirs)))).collect();
        Watched { pulses, dirs, metadata: Arc::default(), patience_ms: 2_000, inbox }
    }

    /// Both directories of a core have operations in flight since these times.
    fn in_flight(watched: &Watched, core: usize, oldest: [Option<u64>; 2]) {
        watched.pulses[core].waits_for(oldest.map(|at| at.map(MonoMicros)).into_iter());
    }

    #[test]
    fn a_directory_with_an_operation_that_does_not_end_is_reported_once() {
        let watched = watched(2, 2);
        let mut disks = Disks::new(&watched);
        in_flight(&watched, 1, [None, Some(7)]);
        let reports: Vec<_> = (0..20).flat_map(|_| disks.look(&watched, 250)).collect();
        assert_eq!(reports, [(DirId(1), 2_000)]);
    }

    #[test]
    fn what_waits_behind_a_hanging_directory_gets_all_of_its_time() {
        let watched = watched(1, 2);
        let mut disks = Disks::new(&watched);
        in_flight(&watched, 0, [Some(8), Some(7)]);
        let reports: Vec<_> = (0..16).map(|_| disks.look(&watched, 250)).collect();
        assert_eq!(reports.iter().flatten().collect::<Vec<_>>(), [&(DirId(1), 2_000)]);
        assert_eq!(disks.look(&watched, 250), Some((DirId(0), 2_000)), "it hangs, too");
    }

    #[test]
    fn operations_that_end_are_no_stall_however_many_there_are() {
        let watched = watched(1, 2);
        let mut disks = Disks::new(&watched);
        for turn in 1..100 {
            in_flight(&watched, 0, [Some(turn), Some(turn)]);
            assert_eq!(disks.look(&watched, 1_500), None);
        }
    }

    #[test]
    fn time_in_which_the_whole_process_stood_still_does_not_count() {
        let watched = watched(1, 2);
        let mut disks = Disks::new(&watched);
        in_flight(&watched, 0, [Some(7), None]);
        for _ in 0..10 {
            assert_eq!(disks.look(&watched, 1_900), None);
            assert_eq!(disks.look(&watched, 0), None, "the count begins anew");
        }
    }

    #[test]
    fn a_hanging_write_of_the_metadata_log_fails_the_first_directory() {
        let watched = watched(1, 2);
        let mut disks = Disks::new(&watched);
        watched.metadata.publish(Some(MonoMicros(9)));
        let reports: Vec<_> = (0..20).flat_map(|_| disks.look(&watched, 250)).collect();
        assert_eq!(reports, [(METADATA_DIR, 2_000)]);
    }

    #[test]
    fn a_core_that_sleeps_does_not_stand_still() {
        let mut standstill = Standstill::default();
        assert_eq!([Some(1), Some(1), Some(1)].map(|turns| standstill.look(turns, 250)), [0, 250, 500]);
        assert_eq!([None, None, Some(1), Some(1)].map(|turns| standstill.look(turns, 250)), [0, 0, 0, 250]);
    }
}
