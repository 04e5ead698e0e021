//! What a data core asks of the world: the only way out.
//!
//! Every action has exactly one completion (`Event`) or, for `Provide`, `Chunk`, `Mail`, `HandOver` and `Fatal`, none.
//! Completions may arrive in any order. At most one `Recv` and one `Send` are in flight on a connection.

use std::sync::Arc;

use crate::arena::{ChunkChange, Lease};
use crate::fatal::Reason;
use crate::ids::{ConnId, CoreId, DirId, FileId, FileJobId, FilePos, FlushId, Offset, ProbeId, ReadId, WriteId};
use crate::shard::message::{Message, Peer};

/// The actions of one turn, in order.
pub type Actions = Vec<Action>;

/// One thing for the world to do.
#[derive(Debug)]
pub enum Action {
    /// Lend a 4 KiB block to the pool that small receives take theirs from. It comes back as `Received::Small`.
    Provide {
        /// The block.
        lease: Lease,
    },
    /// Receive on a connection; completes as `Received` or `Hangup`.
    Recv {
        /// The connection.
        conn: ConnId,
        /// Where to.
        into: RecvInto,
    },
    /// Send parts in order, all of them; completes as `Sent`.
    Send {
        /// The connection.
        conn: ConnId,
        /// What to send.
        parts: Parts,
    },
    /// Close a connection. Outstanding operations complete first (as `Hangup` / `Sent` with an error), then `Closed`.
    Close {
        /// The connection.
        conn: ConnId,
        /// Whether data already sent is still delivered.
        linger: Linger,
    },
    /// Write a block of an active segment; completes as `Written`.
    Write {
        /// Names the write in its completion.
        write: WriteId,
        /// Which file.
        file: FileId,
        /// Where in the file; a multiple of 4 KiB.
        at: FilePos,
        /// What; a multiple of 4 KiB, at most 512 KiB, inside one arena chunk.
        block: Lease,
        /// Write with RWF_DSYNC.
        sync: bool,
    },
    /// Flush the device of a data directory (fdatasync of `file`, which lies on it); completes as `Flushed`.
    Flush {
        /// Names the flush in its completion.
        flush: FlushId,
        /// Which directory.
        dir: DirId,
        /// A file of that directory with completed writes.
        file: FileId,
    },
    /// Read a range of a file; completes as `Read`.
    Read {
        /// Names the read in its completion.
        read: ReadId,
        /// What to read. Block aligned when the file is active (O_DIRECT).
        range: FileRange,
        /// Where to; at least as long as the range.
        into: Lease,
    },
    /// Ask whether a range of a sealed segment is in the page cache; completes as `Resident`.
    Probe {
        /// Names the probe in its completion.
        probe: ProbeId,
        /// The range.
        range: FileRange,
    },
    /// Run a file job; completes as `File`.
    File {
        /// Names the job in its completion.
        job: FileJobId,
        /// What to do.
        what: FileJob,
    },
    /// The arena takes or drops a chunk: populate and register it, or give its memory back. In order with the writes.
    Chunk {
        /// What changes.
        change: ChunkChange,
    },
    /// Put a message into the queue of another thread.
    Mail {
        /// To whom.
        to: Peer,
        /// What.
        message: Message,
    },
    /// Give a connection that has neither `Recv` nor `Send` in flight to a less loaded core; it arrives there as
    /// `Accepted`, and its slot here is free at once.
    HandOver {
        /// The connection.
        conn: ConnId,
        /// The core that takes it.
        to: CoreId,
    },
    /// End the process: something the operator must act on.
    Fatal {
        /// Why, with the remedy.
        reason: Reason,
    },
}

/// Where a receive puts its bytes.
#[derive(Debug)]
pub enum RecvInto {
    /// Into a small block of the provided pool, taken only when bytes arrive: what an idle connection waits on.
    Small,
    /// Into a window from byte `from` to its end; completes when it is full (MSG_WAITALL), or at hang-up.
    Window {
        /// The window.
        lease: Lease,
        /// How many bytes of it are already filled.
        from: u32,
    },
}

/// Parts of one response, in wire order.
pub type Parts = Vec<Part>;

/// One contiguous piece of a response.
#[derive(Debug)]
pub enum Part {
    /// Small bytes owned by the response: frame headers, and whole responses of the rarer APIs.
    Bytes(Vec<u8>),
    /// Bytes of an arena, of this core or another; held until the send is done.
    Arena(Lease),
    /// Bytes of a sealed segment, known to be in the page cache when the action was made.
    File(FileRange),
}

impl Part {
    /// How many bytes the part puts on the wire.
    pub fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Arena(lease) => u64::from(lease.len()),
            Part::File(range) => range.len,
        }
    }

    /// Whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub at: FilePos,
    /// Count of bytes.
    pub len: u64,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// Deliver what was sent, then FIN.
    Graceful,
    /// RST: whatever is still queued must not reach the peer.
    Reset,
}

/// The directory of one partition: which data directory, and its name below it (`<topic>-<partition>`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionDir {
    /// The data directory.
    pub dir: DirId,
    /// The directory's name.
    pub name: Arc<str>,
}

/// A file of a partition, named by what it is rather than by a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionFile {
    /// The partition's directory.
    pub dir: PartitionDir,
    /// Which of its files.
    pub kind: FileKind,
}

/// Which file of a partition's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `<base>.log`
    Log(Offset),
    /// `<base>.index`
    Index(Offset),
    /// `<base>.timeindex`
    TimeIndex(Offset),
    /// `<offset>.snapshot`: producer state up to that offset.
    Snapshot(Offset),
    /// `leader-epoch-checkpoint`
    LeaderEpochs,
    /// `partition.metadata`
    Metadata,
}

/// In which state a growth step leaves its extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extents {
    /// Zeros written and synced: later 4 KiB writes are pure overwrites.
    Zeroed,
    /// Allocated but unwritten: cheap to make, and the writes into them carry their own sync.
    Unwritten,
}

/// A job on files that may block and therefore runs away from the data core's thread. Each ends synced where its
/// description says so; a job that fails half way leaves what a start after a crash can deal with.
#[derive(Debug)]
pub enum FileJob {
    /// Create `<base>.log`, `len` bytes long with extents as asked, open it with O_DIRECT under `file`, fsync file and
    /// directory. Completes with `Opened`.
    CreateSegment {
        /// The id to open it under.
        file: FileId,
        /// Which segment.
        path: PartitionFile,
        /// First length in bytes.
        len: u64,
        /// State of the extents.
        extents: Extents,
    },
    /// Lengthen an active segment and fdatasync it.
    Grow {
        /// The segment.
        file: FileId,
        /// Present length.
        from: FilePos,
        /// New length.
        to: FilePos,
        /// State of the new extents.
        extents: Extents,
    },
    /// Open a recovered active segment with O_DIRECT. Completes with `Opened`.
    OpenActive {
        /// The id to open it under.
        file: FileId,
        /// Which segment.
        path: PartitionFile,
    },
    /// Open a sealed segment for buffered reads and sendfile. Completes with `Opened`.
    OpenSealed {
        /// The id to open it under.
        file: FileId,
        /// Which segment.
        path: PartitionFile,
    },
    /// Cut an active segment to its exact length, fsync it, and reopen it under the same id for buffered reads.
    Seal {
        /// The segment.
        file: FileId,
        /// Which segment, for the reopening.
        path: PartitionFile,
        /// Exact length in bytes.
        len: FilePos,
    },
    /// Overwrite a range of an active segment with synced zeros (truncation inside it).
    Zero {
        /// The segment.
        file: FileId,
        /// First byte; block aligned.
        from: FilePos,
        /// Byte after the last; block aligned.
        to: FilePos,
    },
    /// Forget an open file; bytes in flight keep it alive.
    Close {
        /// The file.
        file: FileId,
    },
    /// Remove files of one partition, then fsync its directory. A file that is not there is not an error.
    Remove {
        /// The partition's directory.
        dir: PartitionDir,
        /// Which files.
        files: Vec<FileKind>,
    },
    /// Rename a partition's directory (to `….<uuid>-delete`), then fsync the data directory.
    RenameDir {
        /// Present name.
        from: PartitionDir,
        /// New name in the same data directory.
        to: Arc<str>,
    },
    /// Remove a renamed partition directory with all it holds.
    RemoveDir {
        /// The directory.
        dir: PartitionDir,
    },
    /// Write a small file whole: temporary name, fsync, rename, and fsync of the directory.
    Replace {
        /// Which file.
        path: PartitionFile,
        /// Its contents.
        contents: Vec<u8>,
    },
    /// Append index entries at byte `at`, creating the file when it is not there; unsynced.
    AppendIndex {
        /// Which index.
        path: PartitionFile,
        /// Where the entries go.
        at: FilePos,
        /// The entries.
        contents: Vec<u8>,
    },
    /// Read a small file whole (at most `len_max` bytes, else `EFBIG`). Completes with `Contents`.
    ReadWhole {
        /// Which file.
        path: PartitionFile,
        /// Largest length accepted.
        len_max: u64,
    },
    /// Write one slot of this core's checkpoint file in a data directory; unsynced.
    Checkpoint {
        /// The data directory.
        dir: DirId,
        /// Byte position of the slot.
        at: FilePos,
        /// The slot.
        contents: Vec<u8>,
    },
}
