//! How many connections there are: at each data core, so that one with more than its share can hand new ones over, and
//! from each address, which has a limit for the whole broker. Touched only when a connection comes, moves or goes; a
//! stale look at the other cores moves one connection too many at worst.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::ids::CoreId;
use crate::shard::event::Crowd;

/// Open connections by core and by address. One under way between two cores counts where it goes.
#[derive(Debug)]
pub struct Crowds {
    cores: Box<[AtomicU32]>,
    addresses: Mutex<BTreeMap<IpAddr, u32>>,
}

impl Crowds {
    /// Of `cores` cores without connections.
    pub fn new(cores: usize) -> Crowds {
        let cores = (0..cores).map(|_| AtomicU32::new(0)).collect();
        Crowds { cores, addresses: Mutex::new(BTreeMap::new()) }
    }

    /// A connection from an address was accepted at `core`. Returns how many the address has now.
    pub fn came(&self, core: CoreId, address: IpAddr) -> u32 {
        self.of(core).fetch_add(1, Ordering::Relaxed);
        let mut addresses = self.addresses();
        let count = addresses.entry(address.to_canonical()).or_default();
        *count += 1;
        *count
    }

    /// A connection of `core` has ended.
    ///
    /// # Panics
    /// When `core` or the address has none.
    pub fn went(&self, core: CoreId, address: IpAddr) {
        self.left(core);
        let (address, mut addresses) = (address.to_canonical(), self.addresses());
        let count = addresses.get_mut(&address).unwrap_or_else(|| panic!("no connection came from {address}"));
        *count -= 1;
        if *count == 0 {
            addresses.remove(&address);
        }
    }

    /// A connection goes from one core to another.
    pub fn moved(&self, from: CoreId, to: CoreId) {
        self.of(to).fetch_add(1, Ordering::Relaxed);
        self.left(from);
    }

    /// `core` beside the least loaded of the others, the first of several; `None` when it is alone.
    pub fn seen_from(&self, core: CoreId) -> Option<Crowd> {
        let open = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let cores = self.cores.iter().enumerate().map(|(index, count)| (open(count), CoreId(index as u16)));
        let (least, at) = cores.filter(|(_, other)| *other != core).min()?;
        Some(Crowd { here: open(self.of(core)), least, at })
    }

    fn left(&self, core: CoreId) {
        let before = self.of(core).fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "core {core} ended a connection that it did not have");
    }

    fn of(&self, core: CoreId) -> &AtomicU32 {
        &self.cores[usize::from(core.0)]
    }

    /// Held for one look into a map, by cores that accept or close just then.
    fn addresses(&self) -> MutexGuard<'_, BTreeMap<IpAddr, u32>> {
        self.addresses.lock().expect("a core that panics ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_counted_over_all_cores_until_its_connections_end() {
        let crowds = Crowds::new(2);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        assert_eq!(crowds.came(CoreId(0), one), 1);
        assert_eq!(crowds.came(CoreId(1), other), 1);
        assert_eq!(crowds.came(CoreId(1), address("::ffff:10.0.0.1")), 2, "the same host by another family");
        crowds.moved(CoreId(1), CoreId(0));
        assert_eq!(crowds.came(CoreId(1), one), 3);
        assert_eq!(crowds.seen_from(CoreId(0)), Some(Crowd { here: 2, least: 2, at: CoreId(1) }));
        for core in [0, 0, 1] {
            crowds.went(CoreId(core), one);
        }
        assert_eq!(crowds.addresses().len(), 1, "who has none is forgotten");
        assert_eq!(crowds.came(CoreId(0), one), 1);
    }
}
