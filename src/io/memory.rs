//! The memory below a core's arena: one memfd, mapped once and never unmapped, used in chunks of 2 MiB.
//!
//! A chunk that is taken is populated, collapsed into a huge page where the kernel can (MADV_COLLAPSE works where
//! `shmem_enabled` is `never`, as on most hosts), kept out of core dumps, and registered in its own slot of the ring's
//! buffer table. A chunk that is dropped is punched out whole: sends in flight keep the old pages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use crate::arena::{ChunkChange, Region};
use crate::fatal::Reason;
use crate::ids::{CoreId, Errno};
use crate::io::ring::Ring;
use crate::limits::CHUNK;

/// Most chunks of one core: the kernel's limit for registered buffers of a ring.
pub const CHUNKS_MAX: u64 = 16_384;

/// The memory of one core.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: u64,
    /// For each chunk, whether its slot of the buffer table holds it.
    registered: Vec<bool>,
}

// SAFETY: an address and descriptors; it is made on the main thread and moved to the core that owns it.
unsafe impl Send for Memory {}

/// How a chunk was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Registered: writes need not pin it each time.
    Registered,
    /// RLIMIT_MEMLOCK does not allow more: it is used all the same, at more CPU per write.
    Unregistered,
}

impl Memory {
    /// Reserves `bytes`, a multiple of 2 MiB, of which none is backed yet.
    ///
    /// # Errors
    /// `Reason::Settings` when the budget is beyond what a ring can register; `Reason::Kernel` when the kernel refuses.
    pub fn reserve(core: CoreId, bytes: u64) -> Result<Memory, Reason> {
        assert!(bytes > 0 && bytes.is_multiple_of(CHUNK), "arena of {bytes} bytes");
        if bytes / CHUNK > CHUNKS_MAX {
            let gib = (CHUNKS_MAX * CHUNK) >> 30;
            return Err(Reason::Settings(format!("more than {gib} GiB of arena per core: lower the memory budget")));
        }
        let refused = |error: rustix::io::Errno| {
            Reason::Kernel(format!("no memory for the arena of core {core} ({error}): lower the memory budget"))
        };
        let fd = memfd_create(format!("pinion-arena-{core}"), MemfdFlags::CLOEXEC).map_err(refused)?;
        ftruncate(&fd, bytes).map_err(refused)?;
        let base = map(fd.as_fd(), bytes).map_err(refused)?;
        Ok(Memory { fd, base, len: bytes, registered: vec![false; (bytes / CHUNK) as usize] })
    }

    /// Its bytes as the arena sees them.
    pub fn region(&self) -> Region {
        // SAFETY: readable, writable, zeroed, and mapped for the life of the process.
        unsafe { Region::new(self.base, self.len) }
    }

    /// The memfd: what sendfile reads from.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Length in chunks: as many slots the ring's buffer table needs.
    pub fn chunks(&self) -> u32 {
        self.registered.len() as u32
    }

    /// Executes what the arena asks for; some 0.3 ms for a chunk that is taken.
    ///
    /// # Errors
    /// The errno when the chunk cannot be populated: the host has no memory left.
    pub fn change(&mut self, ring: &mut Ring, change: ChunkChange) -> Result<Option<Taken>, Errno> {
        match change {
            ChunkChange::Take { index } => self.take(ring, index).map(Some),
            ChunkChange::Drop { index } => {
                self.give_back(ring, index);
                Ok(None)
            }
            ChunkChange::DropWindow { first, count } => {
                self.punch(first, count);
                Ok(None)
            }
        }
    }

    /// The buffer slot that covers `len` bytes at `at`, when they lie in one registered chunk.
    pub fn buffer_slot(&self, at: u64, len: u32) -> Option<u16> {
        let chunk = at / CHUNK;
        let inside = at + u64::from(len) <= (chunk + 1) * CHUNK;
        (inside && self.registered[chunk as usize]).then_some(chunk as u16)
    }

    fn take(&mut self, ring: &mut Ring, index: u32) -> Result<Taken, Errno> {
        let chunk = self.chunk(index);
        assert!(!self.registered[index as usize], "chunk {index} taken twice");
        advise(chunk, libc::MADV_POPULATE_WRITE)?;
        // Both are improvements only: the host may have no free huge page, and may not care about core dumps.
        let _ = advise(chunk, MADV_COLLAPSE);
        let _ = advise(chunk, libc::MADV_DONTDUMP);
        // SAFETY: mapped for the life of the process.
        match unsafe { ring.register_buffer(index, chunk.as_ptr(), CHUNK as usize) } {
            Ok(()) => {
                self.registered[index as usize] = true;
                Ok(Taken::Registered)
            }
            Err(_) => Ok(Taken::Unregistered),
        }
    }

    fn give_back(&mut self, ring: &mut Ring, index: u32) {
        if std::mem::take(&mut self.registered[index as usize]) {
            ring.clear_buffer(index);
        }
        self.punch(index, 1);
    }

    fn punch(&self, first: u32, count: u32) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(&self.fd, hole, u64::from(first) * CHUNK, u64::from(count) * CHUNK);
        assert!(punched.is_ok(), "{count} chunks from {first} cannot be punched out: {punched:?}");
    }

    fn chunk(&self, index: u32) -> NonNull<u8> {
        assert!(index < self.chunks(), "chunk {index} of {}", self.chunks());
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(index as usize * CHUNK as usize) }
    }
}

/// MADV_COLLAPSE of linux/mman.h (6.1).
const MADV_COLLAPSE: libc::c_int = 25;

/// Maps the whole memfd at an address aligned to chunks, which collapsing into huge pages needs.
fn map(fd: BorrowedFd<'_>, len: u64) -> rustix::io::Result<NonNull<u8>> {
    let (len, chunk) = (len as usize, CHUNK as usize);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh reservation one chunk longer than needed, then a mapping over its aligned part, which belongs to
    // nobody else. What is left of the reservation stays: address space without memory.
    unsafe {
        let reserved = mmap_anonymous(
            std::ptr::null_mut(),
            len + chunk,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?;
        let aligned = reserved.byte_add(reserved.addr().next_multiple_of(chunk) - reserved.addr());
        let mapped = mmap(aligned, len, access, MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED, fd, 0)?;
        Ok(NonNull::new(mapped.cast()).expect("mmap returned null"))
    }
}

fn advise(chunk: NonNull<u8>, advice: libc::c_int) -> Result<(), Errno> {
    // SAFETY: a whole chunk of our own mapping; none of the advices used here changes its contents.
    let result = unsafe { libc::madvise(chunk.as_ptr().cast(), CHUNK as usize, advice) };
    if result == 0 { Ok(()) } else { Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::ring::RingSettings;

    fn setup(chunks: u32) -> (Memory, Ring) {
        let memory = Memory::reserve(CoreId(0), u64::from(chunks) * CHUNK).expect("memory");
        let ring = Ring::new(&RingSettings { buffers: chunks, ..RingSettings::default() }).expect("ring");
        (memory, ring)
    }

    fn byte(memory: &Memory, at: u64) -> *mut u8 {
        // SAFETY: tests stay inside the mapping.
        unsafe { memory.base.as_ptr().add(at as usize) }
    }

    fn resident_bytes(memory: &Memory) -> u64 {
        rustix::fs::fstat(&memory.fd).expect("stat").st_blocks as u64 * 512
    }

    #[test]
    fn nothing_is_backed_until_a_chunk_is_taken_and_nothing_after_it_is_dropped() {
        let (mut memory, mut ring) = setup(4);
        assert_eq!(resident_bytes(&memory), 0);
        assert_eq!(memory.change(&mut ring, ChunkChange::Take { index: 2 }), Ok(Some(Taken::Registered)));
        assert_eq!(resident_bytes(&memory), CHUNK);
        assert_eq!(memory.buffer_slot(2 * CHUNK + 4096, 4096), Some(2));
        assert_eq!(memory.buffer_slot(0, 4096), None);
        assert_eq!(memory.buffer_slot(3 * CHUNK - 4096, 8192), None, "crosses into another chunk");
        assert_eq!(memory.change(&mut ring, ChunkChange::Drop { index: 2 }), Ok(None));
        assert_eq!(resident_bytes(&memory), 0);
        assert_eq!(memory.buffer_slot(2 * CHUNK, 4096), None);
    }

    #[test]
    fn a_chunk_taken_again_is_zero_and_can_be_registered_again() {
        let (mut memory, mut ring) = setup(1);
        for _ in 0..3 {
            assert_eq!(memory.change(&mut ring, ChunkChange::Take { index: 0 }), Ok(Some(Taken::Registered)));
            let last = byte(&memory, CHUNK - 1);
            // SAFETY: inside the mapping; no kernel operation is in flight.
            unsafe {
                assert_eq!(*last, 0);
                *last = 7;
            }
            memory.change(&mut ring, ChunkChange::Drop { index: 0 }).expect("drop");
        }
    }

    #[test]
    fn the_mapping_is_aligned_to_chunks() {
        let (memory, _ring) = setup(3);
        assert!(memory.base.as_ptr().addr().is_multiple_of(CHUNK as usize));
    }

    #[test]
    fn too_little_memlock_leaves_the_chunk_usable_but_unregistered() {
        let (mut memory, _) = setup(1);
        // A ring without a buffer table refuses the registration, as a small RLIMIT_MEMLOCK does for a user without
        // CAP_IPC_LOCK; tests may run as root, whom the limit does not bind.
        let mut ring = Ring::new(&RingSettings::default()).expect("ring");
        assert_eq!(memory.change(&mut ring, ChunkChange::Take { index: 0 }), Ok(Some(Taken::Unregistered)));
        assert_eq!(memory.buffer_slot(0, 4096), None);
        memory.change(&mut ring, ChunkChange::Drop { index: 0 }).expect("drop");
    }

    #[test]
    fn a_budget_beyond_the_buffer_table_is_refused() {
        let refused = Memory::reserve(CoreId(0), (CHUNKS_MAX + 1) * CHUNK).expect_err("too large");
        assert_eq!(refused.status(), 2);
    }
}
