//! How many connections each data core has, so that one with more than its share can hand new ones over. Counters of
//! all cores, touched only when a connection comes, moves or goes; a stale look moves one connection too many at worst.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ids::CoreId;
use crate::shard::event::Crowd;

/// Open connections by core. A connection under way between two cores counts where it goes.
#[derive(Debug)]
pub struct Crowds(Box<[AtomicU32]>);

impl Crowds {
    /// Of `cores` cores without connections.
    pub fn new(cores: usize) -> Crowds {
        Crowds((0..cores).map(|_| AtomicU32::new(0)).collect())
    }

    /// A connection was accepted at `core`.
    pub fn came(&self, core: CoreId) {
        self.of(core).fetch_add(1, Ordering::Relaxed);
    }

    /// A connection of `core` has ended.
    ///
    /// # Panics
    /// When `core` has none.
    pub fn went(&self, core: CoreId) {
        let before = self.of(core).fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "core {core} ended a connection that it did not have");
    }

    /// A connection goes from one core to another.
    pub fn moved(&self, from: CoreId, to: CoreId) {
        self.came(to);
        self.went(from);
    }

    /// `core` beside the least loaded of the others, the first of several; `None` when it is alone.
    pub fn seen_from(&self, core: CoreId) -> Option<Crowd> {
        let cores = self.0.iter().enumerate().map(|(index, open)| (open.load(Ordering::Relaxed), CoreId(index as u16)));
        let (least, at) = cores.filter(|(_, other)| *other != core).min()?;
        Some(Crowd { here: self.of(core).load(Ordering::Relaxed), least, at })
    }

    fn of(&self, core: CoreId) -> &AtomicU32 {
        &self.0[usize::from(core.0)]
    }
}
