//! The provided-buffer ring: 4 KiB blocks that the shard lends, of which a small receive takes one only when bytes have
//! arrived. Thousands of idle connections wait without holding memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::arena::{Lease, Regions};
use crate::ids::Errno;
use crate::io::ring::Ring;

/// The buffer group of all small receives.
pub const GROUP: u16 = 0;

/// The blocks lent to the kernel.
#[derive(Debug)]
pub struct SmallPool {
    /// `capacity` entries shared with the kernel; the tail lies in a reserved field of the first.
    entries: NonNull<BufRingEntry>,
    capacity: u16,
    tail: u16,
    /// By buffer id.
    lent: Vec<Option<Lease>>,
    free_ids: Vec<u16>,
    /// Blocks that no reaped completion has taken.
    available: u16,
}

impl SmallPool {
    /// An empty pool for up to `capacity` blocks, a power of two up to 32,768. It must outlive the ring.
    ///
    /// # Errors
    /// What the kernel says, `ENOMEM` for instance.
    pub fn new(ring: &mut Ring, capacity: u16) -> Result<SmallPool, Errno> {
        assert!(capacity.is_power_of_two() && capacity <= 1 << 15, "{capacity} small blocks");
        let len = bytes(capacity);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) };
        let entries = NonNull::new(mapped.map_err(|error| Errno(error.raw_os_error()))?.cast()).expect("mmap: null");
        // SAFETY: page aligned, and unmapped only by `drop`, which comes after the ring's.
        unsafe { ring.register_buffer_ring(entries.as_ptr() as u64, capacity, GROUP)? };
        let lent = (0..capacity).map(|_| None).collect();
        Ok(SmallPool { entries, capacity, tail: 0, lent, free_ids: (0..capacity).rev().collect(), available: 0 })
    }

    /// Lends a block to the kernel.
    ///
    /// # Panics
    /// Above the capacity: the shard provides only as many as it was told.
    pub fn provide(&mut self, regions: &Regions, lease: Lease) {
        let id = self.free_ids.pop().unwrap_or_else(|| panic!("more than {} small blocks", self.capacity));
        let index = usize::from(self.tail & (self.capacity - 1));
        // SAFETY: inside the mapping; the kernel reads an entry only below the tail that is published below. The fields
        // are set one by one because the tail shares the first entry.
        unsafe {
            let entry = self.entries.add(index).as_mut();
            entry.set_addr(regions.address(&lease) as u64);
            entry.set_len(lease.len());
            entry.set_bid(id);
        }
        self.lent[usize::from(id)] = Some(lease);
        self.tail = self.tail.wrapping_add(1);
        self.available += 1;
        // SAFETY: the tail's place in the first entry, inside the mapping and aligned; only this thread writes it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Takes back the block that a completion names.
    ///
    /// # Panics
    /// When it was not lent.
    pub fn take(&mut self, id: u16) -> Lease {
        let lease = self.lent[usize::from(id)].take().unwrap_or_else(|| panic!("small block {id} was not lent"));
        self.free_ids.push(id);
        self.available -= 1;
        lease
    }

    /// Whether a receive would find a block.
    pub fn is_empty(&self) -> bool {
        self.available == 0
    }
}

impl Drop for SmallPool {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; the ring is gone by now and nothing else names it.
        let unmapped = unsafe { munmap(self.entries.as_ptr().cast(), bytes(self.capacity)) };
        assert!(unmapped.is_ok(), "munmap of the buffer ring: {unmapped:?}");
    }
}

fn bytes(capacity: u16) -> usize {
    usize::from(capacity) * size_of::<BufRingEntry>()
}
