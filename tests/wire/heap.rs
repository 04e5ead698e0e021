//! Counts what the current thread allocates, so that a test can bound it.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system allocator unchanged; the counters are plain thread-local cells that allocate
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        LIVE.set(LIVE.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(LIVE.get()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// What a call took from the heap.
pub struct Taken {
    /// Most bytes that it held at one time.
    pub bytes_peak: usize,
    /// Number of allocations.
    pub calls: usize,
}

/// Runs `body` and says what it allocated on this thread.
pub fn taken(body: impl FnOnce()) -> Taken {
    LIVE.set(0);
    PEAK.set(0);
    CALLS.set(0);
    body();
    Taken { bytes_peak: PEAK.get(), calls: CALLS.get() }
}
