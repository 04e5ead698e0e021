//! One response on its way into a socket, by the ways that `send_path` chooses.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{opcode, types};
use rustix::fs::sendfile;

use crate::arena::Regions;
use crate::ids::Errno;
use crate::io::Io;
use crate::io::file::OpenFile;
use crate::io::op::Token;
use crate::io::send_path::{Cursor, GATHER_PARTS_MAX, Next, SENDFILE_BYTES_PER_TURN};
use crate::limits::SENDFILE_SLICE_BYTES;
use crate::shard::action::{Part, Parts};

/// A response, how far it has left, and what the kernel reads while it leaves. Reused, so that idle connections hold
/// none.
pub struct Outgoing {
    parts: Parts,
    cursor: Cursor,
    /// For each part its file, if it has one; open until the response has left.
    files: Vec<Option<Arc<OpenFile>>>,
    flight: Flight,
    gathered: Box<Gathered>,
}

/// What a gathered send names besides the bytes; boxed, because the kernel knows its address.
struct Gathered {
    message: libc::msghdr,
    iovecs: [libc::iovec; GATHER_PARTS_MAX],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flight {
    None,
    /// A gathered send.
    Gather,
    /// A wait for room in the socket.
    Room,
}

/// What a step came to.
pub enum Step {
    /// A completion will tell.
    Waiting,
    /// There is more to do, but other connections come first.
    Unfinished,
    /// The response has left, or cannot.
    Done(Result<(), Errno>),
}

impl Default for Outgoing {
    fn default() -> Self {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a message of zeros names nothing.
        let message = unsafe { std::mem::zeroed() };
        let gathered = Box::new(Gathered { message, iovecs: [nothing; GATHER_PARTS_MAX] });
        let (parts, cursor, files) = (Parts::new(), Cursor::default(), Vec::new());
        Outgoing { parts, cursor, files, flight: Flight::None, gathered }
    }
}

impl Outgoing {
    /// Takes a response in and holds its files open.
    ///
    /// # Errors
    /// `EBADF` when one of its files has been closed meanwhile.
    pub fn start(&mut self, io: &Io, parts: Parts) -> Result<(), Errno> {
        (self.parts, self.cursor) = (parts, Cursor::default());
        self.cursor.advance(&self.parts, 0);
        for part in &self.parts {
            self.files.push(match part {
                Part::File(range) => Some(io.files.find(range.file).ok_or(Errno(libc::EBADF))?),
                Part::Bytes(_) | Part::Arena(_) => None,
            });
        }
        Ok(())
    }

    /// Gives the parts back.
    ///
    /// # Panics
    /// While the kernel reads them.
    pub fn end(&mut self) -> Parts {
        assert!(!self.is_in_flight(), "parts given back while they are sent");
        self.files.clear();
        std::mem::take(&mut self.parts)
    }

    /// Whether a completion is outstanding.
    pub fn is_in_flight(&self) -> bool {
        self.flight != Flight::None
    }

    /// Sends on, as far as it goes without waiting.
    pub fn step(&mut self, io: &mut Io, socket: BorrowedFd<'_>, slot: u32) -> Step {
        let mut share = SENDFILE_BYTES_PER_TURN;
        loop {
            match self.cursor.next(&self.parts) {
                Next::Done => return Step::Done(Ok(())),
                Next::Gather { count, more } => {
                    self.gather(io, socket, slot, count, more);
                    return Step::Waiting;
                }
                Next::File if share == 0 => return Step::Unfinished,
                Next::File => match self.send_slice(socket, share) {
                    Ok(sent) => share -= sent,
                    Err(Errno(libc::EAGAIN)) => {
                        self.await_room(io, socket, slot);
                        return Step::Waiting;
                    }
                    Err(errno) => return Step::Done(Err(errno)),
                },
            }
        }
    }

    /// Takes the completion of what was in flight.
    pub fn took(&mut self, result: Result<u32, Errno>) -> Result<(), Errno> {
        let count = match std::mem::replace(&mut self.flight, Flight::None) {
            Flight::None => panic!("completion of a send that is not in flight"),
            Flight::Room => result.map(|_events| 0)?,
            // Only a socket that takes nothing any more answers 0 to a send of something.
            Flight::Gather => result.and_then(|count| if count == 0 { Err(Errno(libc::EIO)) } else { Ok(count) })?,
        };
        self.cursor.advance(&self.parts, u64::from(count));
        Ok(())
    }

    /// Hands parts to the ring as one send. MSG_WAITALL makes the kernel go on by itself when the socket fills up.
    fn gather(&mut self, io: &mut Io, socket: BorrowedFd<'_>, slot: u32, count: usize, more: bool) {
        let parts = &self.parts[self.cursor.part..][..count];
        let Gathered { message, iovecs } = &mut *self.gathered;
        for (iovec, part) in iovecs.iter_mut().zip(parts) {
            *iovec = iovec_of(&io.regions, part);
        }
        let done = self.cursor.done as usize;
        let first = &mut iovecs[0];
        *first = libc::iovec { iov_base: first.iov_base.wrapping_byte_add(done), iov_len: first.iov_len - done };
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        let fd = types::Fd(socket.as_raw_fd());
        let entry = if count == 1 {
            opcode::Send::new(fd, first.iov_base.cast(), first.iov_len as u32).flags(flags).build()
        } else {
            message.msg_iov = iovecs.as_mut_ptr();
            message.msg_iovlen = count;
            opcode::SendMsg::new(fd, message).flags(flags as u32).build()
        };
        self.flight = Flight::Gather;
        // SAFETY: the connection keeps this state, with its box, parts and socket, until the completion; arena memory
        // stays mapped.
        unsafe { io.ring.push(entry, Token::Send(slot)) };
    }

    /// One non-blocking sendfile. Its bytes are in the page cache: the shard has had them probed.
    fn send_slice(&mut self, socket: BorrowedFd<'_>, share: u64) -> Result<u64, Errno> {
        let part = self.cursor.part;
        let (Part::File(range), Some(file)) = (&self.parts[part], &self.files[part]) else {
            panic!("part {part} is no file");
        };
        let len = (range.len - self.cursor.done).min(SENDFILE_SLICE_BYTES).min(share);
        let mut at = range.at.0 + self.cursor.done;
        let sent =
            sendfile(socket, file.fd(), Some(&mut at), len as usize).map_err(|error| Errno(error.raw_os_error()))?;
        if sent == 0 {
            // The file is shorter than announced, and what was announced cannot be taken back.
            return Err(Errno(libc::EIO));
        }
        self.cursor.advance(&self.parts, sent as u64);
        Ok(sent as u64)
    }

    fn await_room(&mut self, io: &mut Io, socket: BorrowedFd<'_>, slot: u32) {
        self.flight = Flight::Room;
        io.ring.poll(socket, libc::POLLOUT, Token::Send(slot));
    }
}

fn iovec_of(regions: &Regions, part: &Part) -> libc::iovec {
    let (address, len) = match part {
        Part::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
        Part::Arena(lease) => (regions.address(lease), lease.len() as usize),
        Part::File(_) => panic!("a file part is not gathered"),
    };
    libc::iovec { iov_base: address.cast_mut().cast(), iov_len: len }
}
