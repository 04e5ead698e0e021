//! What a data core publishes once per turn, for the watcher of stalled cores and disks and for the exporter. Plain
//! counters that one thread stores and others load; no order among them is promised.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ids::{DirId, MonoMicros};
use crate::io::disk::DiskCounts;

/// The signs of life of one data core.
#[derive(Debug)]
pub struct Pulse {
    turns: AtomicU64,
    /// When the core went to sleep in its ring; 0 while it is awake.
    asleep_since: AtomicU64,
    /// For each data directory.
    oldest_disk: Box<[OldestDisk]>,
    /// For each data directory, whether it was given up since the core last looked.
    given_up: Box<[AtomicBool]>,
    writes: AtomicU64,
    flushes: AtomicU64,
    reads: AtomicU64,
    write_punts: AtomicU64,
    read_punts: AtomicU64,
    connections: AtomicU64,
}

impl Pulse {
    /// Of a core that has not started yet.
    pub fn new(dir_count: usize) -> Pulse {
        let zero = || AtomicU64::new(0);
        Pulse {
            turns: zero(),
            asleep_since: zero(),
            oldest_disk: (0..dir_count).map(|_| OldestDisk::default()).collect(),
            given_up: (0..dir_count).map(|_| AtomicBool::new(false)).collect(),
            writes: zero(),
            flushes: zero(),
            reads: zero(),
            write_punts: zero(),
            read_punts: zero(),
            connections: zero(),
        }
    }

    /// Turns of the loop so far.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Whether the core waits for something to happen: then standing still is no stall.
    pub fn is_asleep(&self) -> bool {
        self.asleep_since.load(Ordering::Relaxed) != 0
    }

    /// When the oldest disk operation in flight in a directory was started.
    pub fn oldest_disk(&self, dir: DirId) -> Option<MonoMicros> {
        self.oldest_disk[usize::from(dir.0)].started()
    }

    /// Disk operations so far.
    pub fn disk(&self) -> DiskCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskCounts {
            writes: load(&self.writes),
            flushes: load(&self.flushes),
            reads: load(&self.reads),
            write_punts: load(&self.write_punts),
            read_punts: load(&self.read_punts),
        }
    }

    /// Connections that are open now.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// What is in flight while the core waits. It is published before the wait, which may last for as long as the disk
    /// hangs.
    pub(super) fn waits_for(&self, oldest: impl Iterator<Item = Option<MonoMicros>>) {
        self.oldest_disk.iter().zip(oldest).for_each(|(slot, at)| slot.publish(at));
    }

    /// The operations in flight in a directory are not expected to end any more.
    pub(super) fn give_up(&self, dir: DirId) {
        self.given_up[usize::from(dir.0)].store(true, Ordering::Relaxed);
    }

    /// Takes the directories that were given up since the last time.
    pub(super) fn take_given_up(&self) -> impl Iterator<Item = DirId> + '_ {
        let taken = |flag: &AtomicBool| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Relaxed);
        (0..).map(DirId).zip(&self.given_up).filter(move |(_, flag)| taken(flag)).map(|(dir, _)| dir)
    }

    pub(super) fn sleeps(&self, now: MonoMicros) {
        self.asleep_since.store(now.0.max(1), Ordering::Relaxed);
    }

    pub(super) fn wakes(&self) {
        self.asleep_since.store(0, Ordering::Relaxed);
        self.turns.store(self.turns() + 1, Ordering::Relaxed);
    }

    pub(super) fn publish(&self, counts: DiskCounts, connections: usize) {
        let store = |counter: &AtomicU64, value: u64| counter.store(value, Ordering::Relaxed);
        store(&self.writes, counts.writes);
        store(&self.flushes, counts.flushes);
        store(&self.reads, counts.reads);
        store(&self.write_punts, counts.write_punts);
        store(&self.read_punts, counts.read_punts);
        store(&self.connections, connections as u64);
    }
}

/// When the oldest disk operation in flight of one thread in one directory was started; 0 without one.
#[derive(Debug, Default)]
pub struct OldestDisk(AtomicU64);

impl OldestDisk {
    /// When it was started; `None` when nothing is in flight.
    pub fn started(&self) -> Option<MonoMicros> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&at| at != 0).map(MonoMicros)
    }

    pub(super) fn publish(&self, at: Option<MonoMicros>) {
        self.0.store(at.map_or(0, |at| at.0), Ordering::Relaxed);
    }
}
