//! Segment writes, flushes, reads and residency probes.
//!
//! Writes of active segments leave from registered chunks with O_DIRECT. Each first asks not to block (RWF_NOWAIT): the
//! kernel does the same by itself, but then moves the write to an io-wq worker without telling. Asked explicitly it
//! says EAGAIN, so that such *punts* can be counted, and the write is sent again for a worker to do.

use std::io::IoSliceMut;

use io_uring::squeue::{self, Flags};
use io_uring::{opcode, types};
use rustix::io::{ReadWriteFlags, preadv2};
use slab::Slab;
use std::sync::Arc;

use crate::arena::Lease;
use crate::ids::{Errno, FileId, FilePos, FlushId, ProbeId, ReadId, WriteId};
use crate::io::Io;
use crate::io::file::{DiskFault, FaultEffect, OpenFile, on_target};
use crate::io::op::{Age, Token};
use crate::io::ring::outcome;
use crate::limits::{BLOCK, WRITE_BYTES_MAX};
use crate::shard::action::FileRange;
use crate::shard::event::Event;

/// The disk operations in flight of one core.
#[derive(Debug, Default)]
pub struct Disk {
    flight: Slab<Flight>,
    counts: DiskCounts,
}

/// What the disk has done, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Writes completed.
    pub writes: u64,
    /// Flushes completed; each runs on an io-wq worker.
    pub flushes: u64,
    /// Reads completed.
    pub reads: u64,
    /// Writes that would have blocked and went to an io-wq worker.
    pub write_punts: u64,
    /// O_DIRECT reads that would have blocked and went to an io-wq worker.
    pub read_punts: u64,
}

/// One operation; its lease is the kernel's until the last completion.
#[derive(Debug)]
struct Flight {
    what: What,
    file: Arc<OpenFile>,
    at: FilePos,
    len: u32,
    /// Bytes read so far.
    done: u32,
    /// Whether the submission out there carries RWF_NOWAIT.
    eager: bool,
    age: Age,
}

#[derive(Debug)]
enum What {
    Write { write: WriteId, block: Lease, sync: bool },
    Flush { flush: FlushId },
    Read { read: ReadId, into: Lease },
}

/// A write as the action names it.
#[derive(Debug)]
pub struct WriteOrder {
    /// Names it in its completion.
    pub write: WriteId,
    /// Which file.
    pub file: FileId,
    /// Where in the file.
    pub at: FilePos,
    /// What.
    pub block: Lease,
    /// With RWF_DSYNC.
    pub sync: bool,
}

impl Disk {
    /// What was done so far.
    pub fn counts(&self) -> DiskCounts {
        self.counts
    }

    /// Starts a write; completes as `Written`.
    ///
    /// # Panics
    /// When it is not one that the action allows: unaligned, too long, of another core's memory, or of a file that is
    /// not an active segment here.
    pub fn write(&mut self, io: &mut Io, order: WriteOrder) {
        let WriteOrder { write, file, at, block, sync } = order;
        let len = block.len();
        assert!(len > 0 && u64::from(len) <= WRITE_BYTES_MAX, "write of {len} bytes");
        assert!(u64::from(len).is_multiple_of(BLOCK) && block.at().is_multiple_of(BLOCK), "write of {block:?}");
        assert!(at.0.is_multiple_of(BLOCK), "write at {at}");
        assert_eq!(block.core(), io.core, "write from another core's memory");
        let file = io.files.active(file).unwrap_or_else(|| panic!("write to file {file}, which is not active here"));
        self.start(io, What::Write { write, block, sync }, file, at, len);
    }

    /// Starts an fdatasync; completes as `Flushed`.
    pub fn flush(&mut self, io: &mut Io, flush: FlushId, file: FileId) {
        match io.files.find(file) {
            Some(file) => self.start(io, What::Flush { flush }, file, FilePos(0), 0),
            None => io.events.push(Event::Flushed { flush, result: Err(Errno(libc::EBADF)) }),
        }
    }

    /// Starts a read; completes as `Read`.
    ///
    /// # Panics
    /// When the lease is shorter than the range or belongs to another core.
    pub fn read(&mut self, io: &mut Io, read: ReadId, range: FileRange, into: Lease) {
        assert!(range.len > 0 && range.len <= u64::from(into.len()), "read of {range:?} into {into:?}");
        assert_eq!(into.core(), io.core, "read into another core's memory");
        let Some(file) = io.files.find(range.file) else {
            return io.events.push(Event::Read { read, into, result: Err(Errno(libc::EBADF)) });
        };
        assert!(
            !file.direct || (range.at.0 | range.len).is_multiple_of(BLOCK),
            "unaligned {range:?} of an active file"
        );
        self.start(io, What::Read { read, into }, file, range.at, range.len as u32);
    }

    /// Looks whether a range of a sealed segment is in the page cache; `Resident` follows at once. Reads one byte in
    /// every 128 KiB, the default readahead, and one of the last page: some 0.4 µs each.
    pub fn probe(&mut self, io: &mut Io, probe: ProbeId, range: FileRange) {
        let missing = match io.files.find(range.file) {
            Some(file) => missing(&file, range),
            None => Some(range),
        };
        io.events.push(Event::Resident { probe, missing });
    }

    /// Takes the completion of slot `slot`.
    pub fn complete(&mut self, io: &mut Io, slot: u32, result: i32) {
        let flight = &mut self.flight[slot as usize];
        match outcome(result) {
            Err(Errno(libc::EAGAIN | libc::EOPNOTSUPP)) if flight.eager => {
                io.files.eager[usize::from(flight.file.dir.0)] &= result == -libc::EAGAIN;
                match flight.what {
                    What::Write { .. } => self.counts.write_punts += 1,
                    What::Read { .. } | What::Flush { .. } => self.counts.read_punts += 1,
                }
                flight.eager = false;
                self.submit(io, slot);
            }
            Ok(count) if flight.goes_on(count) => {
                flight.done += count;
                self.submit(io, slot);
            }
            result => self.finish(io, slot, result),
        }
    }

    fn start(&mut self, io: &mut Io, what: What, file: Arc<OpenFile>, at: FilePos, len: u32) {
        let dir = file.dir;
        let eager = io.files.eager[usize::from(dir.0)] && file.direct && !matches!(what, What::Flush { .. });
        let age = io.files.start(dir, io.now);
        let slot = self.flight.insert(Flight { what, file, at, len, done: 0, eager, age }) as u32;
        match DiskFault::strike(&mut io.files.fault, dir) {
            None => self.submit(io, slot),
            Some(FaultEffect::Hang) => {}
            Some(FaultEffect::Fail(errno)) => self.finish(io, slot, Err(errno)),
        }
    }

    fn submit(&mut self, io: &mut Io, slot: u32) {
        let entry = self.flight[slot as usize].entry(io);
        // SAFETY: the slot keeps lease and file until its completion, and arena memory stays mapped.
        unsafe { io.ring.push(entry, Token::Disk(slot)) };
    }

    fn finish(&mut self, io: &mut Io, slot: u32, result: Result<u32, Errno>) {
        let Flight { what, file, len, done, age, .. } = self.flight.remove(slot as usize);
        io.files.end(file.dir, age);
        io.events.push(match what {
            What::Write { write, block, .. } => {
                self.counts.writes += 1;
                // O_DIRECT inside the file's length is never cut short by anything but an error on the way.
                let whole = |count| if count == len { Ok(()) } else { Err(Errno(libc::EIO)) };
                Event::Written { write, block, result: result.and_then(whole) }
            }
            What::Flush { flush } => {
                self.counts.flushes += 1;
                Event::Flushed { flush, result: result.map(|_| ()) }
            }
            What::Read { read, into } => {
                self.counts.reads += 1;
                Event::Read { read, into, result: result.map(|count| done + count) }
            }
        });
    }

    /// Operations in flight, hung ones included.
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }
}

impl Flight {
    /// Whether a read that brought `count` bytes has more to fetch. A buffered one ends only at the end of the file; an
    /// O_DIRECT one that falls short is there already.
    fn goes_on(&self, count: u32) -> bool {
        let reads = matches!(self.what, What::Read { .. }) && !self.file.direct;
        reads && count > 0 && self.done + count < self.len
    }

    fn entry(&self, io: &Io) -> squeue::Entry {
        let target = self.file.target();
        let nowait = if self.eager { libc::RWF_NOWAIT } else { 0 };
        // What is known to block goes to a worker at once: a write that was refused, and buffered reads, whose copy out
        // of the page cache is no work for this thread either.
        let hand_over = if self.eager { Flags::empty() } else { Flags::ASYNC };
        match &self.what {
            What::Flush { .. } => {
                on_target!(target, |file| opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build())
            }
            What::Write { block, sync, .. } => {
                let flags = nowait | if *sync { libc::RWF_DSYNC } else { 0 };
                let (address, at) = (io.regions.address(block), self.at.0);
                match io.memory.buffer_slot(block.at(), self.len) {
                    Some(slot) => on_target!(target, |file| opcode::WriteFixed::new(file, address, self.len, slot)
                        .offset(at)
                        .rw_flags(flags)
                        .build()),
                    None => on_target!(target, |file| opcode::Write::new(file, address, self.len)
                        .offset(at)
                        .rw_flags(flags)
                        .build()),
                }
                .flags(hand_over)
            }
            What::Read { into, .. } => {
                let address = io.regions.address(into).cast_mut().wrapping_add(self.done as usize);
                let (at, len) = (self.at.0 + u64::from(self.done), self.len - self.done);
                match io.memory.buffer_slot(into.at(), self.len) {
                    Some(slot) if self.file.direct => {
                        on_target!(target, |file| opcode::ReadFixed::new(file, address, len, slot)
                            .offset(at)
                            .rw_flags(nowait)
                            .build())
                    }
                    _ => on_target!(target, |file| opcode::Read::new(file, address, len)
                        .offset(at)
                        .rw_flags(nowait)
                        .build()),
                }
                .flags(hand_over)
            }
        }
    }
}

/// One byte in so many is looked at.
const PROBE_STEP: u64 = 128 * 1024;

/// From behind the last page known to be cached to the next one known to be, around the first miss.
fn missing(file: &OpenFile, range: FileRange) -> Option<FileRange> {
    let end = range.at.0 + range.len;
    let last_page = page(end - 1);
    let last_sample = range.at.0 + (range.len - 1) / PROBE_STEP * PROBE_STEP;
    let samples = (range.at.0..end).step_by(PROBE_STEP as usize);
    let points = samples.chain((last_page > page(last_sample)).then_some(last_page));
    let (mut from, mut missed) = (range.at.0, false);
    for point in points {
        match (is_cached(file, point), missed) {
            (true, false) => from = page(point) + BLOCK,
            (true, true) => return Some(piece(range.file, from, point)),
            (false, _) => missed = true,
        }
    }
    missed.then(|| piece(range.file, from, end))
}

fn page(at: u64) -> u64 {
    at & !(BLOCK - 1)
}

fn piece(file: FileId, from: u64, to: u64) -> FileRange {
    assert!(from < to, "empty piece at {from}");
    FileRange { file, at: FilePos(from), len: to - from }
}

fn is_cached(file: &OpenFile, at: u64) -> bool {
    let mut byte = [0u8];
    let read = preadv2(file.fd(), &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT);
    read == Ok(1)
}
