//! What can happen to a data core: the only way in.
//!
//! Borrowed bytes live in the arena and are named by a [`Lease`]. The completion of an action gives back every lease
//! that the action carried, never earlier, so that whoever reads the bytes late still reads what was announced.

use std::net::SocketAddr;

use crate::arena::Lease;
use crate::ids::{ConnId, CoreId, Errno, FileId, FileJobId, FlushId, ProbeId, ReadId, WriteId};
use crate::shard::action::{FileRange, Parts};
use crate::shard::message::{Message, Peer};

/// One thing that happened to this core.
#[derive(Debug)]
pub enum Event {
    /// A client connected; the shell has chosen the slot. The answer is a `Recv`, a `Close` or a `HandOver`.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// Its address, for limits per address and for log lines.
        peer: SocketAddr,
        /// How full the cores are; `None` when another core handed it over, or there is no other.
        crowd: Option<Crowd>,
        /// Connections of its address to the whole broker, this one included; `None` when another core handed it over,
        /// which looked at that.
        from_address: Option<u32>,
    },
    /// Bytes arrived for the one `Recv` that was outstanding on this connection.
    Received {
        /// The connection.
        conn: ConnId,
        /// Where the bytes are.
        bytes: Received,
    },
    /// The peer closed, or the socket failed, while a `Recv` was outstanding. `window` is the one that `Recv` carried.
    Hangup {
        /// The connection.
        conn: ConnId,
        /// The window that the failed `Recv` carried, if it carried one.
        window: Option<Lease>,
        /// Why, unless it was an orderly end of stream.
        error: Option<Errno>,
    },
    /// A whole `Send` left, or the connection is dead. `parts` gives its leases and buffers back.
    Sent {
        /// The connection.
        conn: ConnId,
        /// What was sent; emptied by the shard, then reused.
        parts: Parts,
        /// Whether all of it reached the socket.
        result: Result<(), Errno>,
    },
    /// A `Close` is done: no operation of this connection is in flight any more and the slot may be used again.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// The device has completed a write. Whether its bytes are *stable* is decided by `log/`, not here.
    Written {
        /// Which write.
        write: WriteId,
        /// The bytes that were written.
        block: Lease,
        /// All of it, or the error. A short write is an error of the shell's making (`EIO`).
        result: Result<(), Errno>,
    },
    /// A device flush is done; it covers the writes whose `Written` was handled before the `Flush` was emitted.
    Flushed {
        /// Which flush.
        flush: FlushId,
        /// Done, or the error after which nothing of the data directory is trusted.
        result: Result<(), Errno>,
    },
    /// A file read is done.
    Read {
        /// Which read.
        read: ReadId,
        /// The block that was read into.
        into: Lease,
        /// Bytes read (fewer than asked only at the end of the file), or the error.
        result: Result<u32, Errno>,
    },
    /// A residency probe of a sealed segment is done.
    Resident {
        /// Which probe.
        probe: ProbeId,
        /// The first part of the range that is not in the page cache; `None` when all of it is. An error counts as
        /// missing: the read that follows will meet and report it.
        missing: Option<FileRange>,
    },
    /// A file job is done.
    File {
        /// Which job.
        job: FileJobId,
        /// What came of it.
        result: Result<FileDone, Errno>,
    },
    /// A message of another thread.
    Mail {
        /// Who sent it.
        from: Peer,
        /// What it says.
        message: Message,
    },
    /// `now` reached what `Shard::deadline` asked for.
    Deadline,
}

/// Connections of the core that accepted one, this one included, and of the core that has fewest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Here.
    pub here: u32,
    /// At the least loaded other core.
    pub least: u32,
    /// Which that is.
    pub at: CoreId,
}

impl Crowd {
    /// Whether the cores are more even after the newest connection has moved.
    pub fn is_uneven(&self) -> bool {
        self.least + 1 < self.here
    }
}

/// Where received bytes are.
#[derive(Debug)]
pub enum Received {
    /// In one of the small blocks that `Action::Provide` had lent to the shell; the block is the shard's again.
    Small {
        /// The whole small block.
        lease: Lease,
        /// How many of its first bytes hold data, at least 1.
        len: u32,
    },
    /// In the window that `Recv` carried, behind the bytes it already held.
    Window {
        /// The window.
        lease: Lease,
        /// How many bytes were added, at least 1.
        len: u32,
    },
}

/// What a file job brought.
#[derive(Debug, PartialEq, Eq)]
pub enum FileDone {
    /// Nothing beyond having happened.
    Done,
    /// The file is open under this id and this long.
    Opened {
        /// The id that the job named.
        file: FileId,
        /// Its length in bytes.
        len: u64,
    },
    /// The contents of a small file.
    Contents(Vec<u8>),
}
