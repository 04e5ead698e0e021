//! The memory below the arenas: one region per data core, and the only places where its bytes are read or written.
//!
//! Who may touch which byte is decided by `Arena` (blocks and leases); here every access is checked against the region
//! and then made. Nothing else of the process knows an address of a region, except the kernel through operations that
//! carry a lease.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arena::Lease;
use crate::ids::CoreId;
use crate::limits::CHUNK;

/// The memory of one core's arena.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: u64,
    /// The allocation that holds it, when it is plain heap memory.
    heap: Option<(NonNull<u8>, Layout)>,
    /// Whether an arena owns it; two arenas over one region would lend the same bytes twice.
    claimed: AtomicBool,
}

// SAFETY: a region is an address and a length. Its bytes are reached only through `Regions`, whose callers hold a lease
// (bytes that do not change) or are the one arena that claimed the region (bytes that nobody else looks at).
unsafe impl Send for Region {}
// SAFETY: as above; `claimed` is atomic and the rest never changes.
unsafe impl Sync for Region {}

impl Region {
    /// The `len` bytes at `base`, in production the mapping of a memfd.
    ///
    /// # Safety
    /// They must be readable and writable, initialised (a fresh mapping is), outlive the region, and be touched by
    /// nobody else but the kernel on behalf of operations that hold leases.
    pub unsafe fn new(base: NonNull<u8>, len: u64) -> Region {
        assert!(usize::try_from(len).is_ok_and(|len| len <= isize::MAX as usize), "region of {len} bytes");
        Region { base, len, heap: None, claimed: AtomicBool::new(false) }
    }

    /// `len` bytes of heap memory, for tests, where cores and devices share one thread: zeroed when first touched, aligned
    /// to a chunk.
    pub fn heap(len: u64) -> Region {
        // Zeroed memory is lazy only at the allocator's own alignment; so the alignment is made here.
        let size = usize::try_from(len + CHUNK).expect("region larger than the address space");
        let layout = Layout::from_size_align(size, 16).expect("region larger than the address space");
        // SAFETY: the layout is at least a chunk long, not zero-sized.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let shift = block.as_ptr().align_offset(CHUNK as usize);
        assert!(shift < CHUNK as usize, "shift of {shift} bytes to the next chunk boundary");
        // SAFETY: the allocation is a chunk longer than the region, and the shift is smaller than a chunk.
        let base = unsafe { block.add(shift) };
        Region { base, len, heap: Some((block, layout)), claimed: AtomicBool::new(false) }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of bytes `at .. at + len`.
    fn address(&self, at: u64, len: u32) -> NonNull<u8> {
        assert!(at + u64::from(len) <= self.len, "{len} bytes at {at} of a region of {} bytes", self.len);
        // SAFETY: inside the region, as just checked, and `new` checked that its length fits in isize.
        unsafe { self.base.add(at as usize) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some((block, layout)) = self.heap {
            // SAFETY: allocated in `heap` with this layout; leases cannot be read without the region.
            unsafe { dealloc(block.as_ptr(), layout) }
        }
    }
}

/// The regions of all data cores, by [`CoreId`]; shared by all threads, so that each can read what another lent to it.
#[derive(Debug)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// The regions in the order of their cores.
    pub fn new(regions: Vec<Region>) -> Arc<Regions> {
        Arc::new(Regions(regions))
    }

    /// The bytes of a lease, of any core.
    ///
    /// # Panics
    /// For a lease that covers more than was written when it was made (a device write's, padded to whole 4 KiB): its
    /// last bytes may still change. [`Regions::copy_out`] reads those.
    pub fn bytes<'a>(&'a self, lease: &'a Lease) -> &'a [u8] {
        self.bytes_of(lease, 0, lease.len)
    }

    /// Bytes `from .. from + len` of a lease, of any core.
    ///
    /// # Panics
    /// Outside the lease or in its padding.
    pub fn bytes_of<'a>(&'a self, lease: &'a Lease, from: u32, len: u32) -> &'a [u8] {
        lease.check_range(from, len);
        assert!(from + len <= lease.len - lease.padding, "the last bytes of {lease:?} may still change");
        let first = self.region(lease.core).address(lease.at + u64::from(from), len);
        // SAFETY: the bytes are initialised (a region is) and inside the region. They do not change while the lease
        // lives: the block's writer starts behind what was leased (`Arena::check_writable`), the memory goes to another
        // block only after the lease was given back by value, and `fill` and the kernel write only into a window
        // whose holder has given it to them by value.
        unsafe { slice::from_raw_parts(first.as_ptr(), len as usize) }
    }

    /// Where the bytes of a lease are, for an operation of the shell that holds the lease until its completion.
    ///
    /// # Panics
    /// When the lease does not lie in the region of its core.
    pub fn address(&self, lease: &Lease) -> *const u8 {
        self.region(lease.core).address(lease.at, lease.len).as_ptr()
    }

    /// Copies bytes of any lease from byte `from` on, padding included: what the device does with a block, as late as it
    /// likes.
    ///
    /// # Panics
    /// Outside the lease, and for padding of a region that is not heap memory: there only the device may read it.
    pub fn copy_out(&self, lease: &Lease, from: u32, into: &mut [u8]) {
        lease.check_range(from, into.len() as u32);
        let region = self.region(lease.core);
        let solid = from as usize + into.len() <= (lease.len - lease.padding) as usize;
        assert!(solid || region.heap.is_some(), "the last bytes of {lease:?} may still change");
        let source = region.address(lease.at + u64::from(from), into.len() as u32);
        // SAFETY: source checked by `address`; `into` is a Rust slice and cannot overlap a region. Padding may be
        // written by the block's owner, but a heap region is used by one thread (`Region::heap`).
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), into.as_mut_ptr(), into.len()) }
    }

    /// Puts bytes into a lent window: what the kernel does in production for a receive or a read.
    ///
    /// # Panics
    /// Outside the lease, when the lease is not one made by `Arena::into_window`, and for a region that is not heap
    /// memory.
    pub fn fill(&self, window: &mut Lease, at: u32, bytes: &[u8]) {
        window.check_range(at, bytes.len() as u32);
        let region = self.region(window.core);
        assert!(window.window && region.heap.is_some(), "{window:?} is no window (Arena::into_window) on the heap");
        let target = region.address(window.at + u64::from(at), bytes.len() as u32);
        // SAFETY: target checked by `address`; `bytes` is no slice of this window, which is borrowed mutably. Leases
        // split from the window cover what was received before, and a receive starts behind that.
        unsafe { ptr::copy(bytes.as_ptr(), target.as_ptr(), bytes.len()) }
    }

    /// The bytes `at .. at + len` of a block that the caller owns and does not write meanwhile.
    pub(super) fn block_bytes(&self, core: CoreId, at: u64, len: u32) -> &[u8] {
        // SAFETY: initialised and inside the region. Only the arena writes into its blocks, and it is borrowed for as
        // long as the slice lives (`Arena::read`).
        unsafe { slice::from_raw_parts(self.region(core).address(at, len).as_ptr(), len as usize) }
    }

    /// Writes into a block of a claimed region, at bytes that no lease promises.
    pub(super) fn write(&self, core: CoreId, at: u64, bytes: &[u8]) {
        let target = self.region(core).address(at, bytes.len() as u32);
        // SAFETY: target checked by `address`; the arena that claimed the region checked that these bytes are promised
        // to nobody, so `bytes` (perhaps of a lease) lies elsewhere and no other thread reads the target.
        unsafe { ptr::copy(bytes.as_ptr(), target.as_ptr(), bytes.len()) }
    }

    /// Zeroes bytes of a block of a claimed region that no lease promises.
    pub(super) fn zero(&self, core: CoreId, at: u64, len: u32) {
        // SAFETY: as in `write`.
        unsafe { ptr::write_bytes(self.region(core).address(at, len).as_ptr(), 0, len as usize) }
    }

    /// Marks a core's region as owned by an arena and returns its length.
    pub(super) fn claim(&self, core: CoreId) -> u64 {
        let region = self.region(core);
        assert!(!region.claimed.swap(true, Ordering::Relaxed), "the region of core {core} has an arena already");
        region.len
    }

    fn region(&self, core: CoreId) -> &Region {
        self.0.get(usize::from(core.0)).unwrap_or_else(|| panic!("core {core} of {} has no region", self.0.len()))
    }
}
