//! Client connections of a core: bytes in, frames, requests in order, answers in order.
//!
//! An idle connection holds no memory: its receive takes a small block only when bytes arrive. A frame that is not whole
//! in that block gets one contiguous window of its size, and the rest is received straight into it. Not asking for more
//! bytes is the back-pressure: a connection with too much in service, or without memory for its window, is not read.
//!
//! Order (kafka-spec §3.8, design §4.6): produce requests are pipelined; any other request starts when all before it are
//! answered, and a produce when all others before it are. Answers leave in the order of the requests.
//!
//! This file holds the state and its transitions; `shard/intake.rs` and `shard/mod.rs` act on them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::arena::Lease;
use crate::ids::{ConnId, MonoMicros, Ticket};
use crate::limits::{REQUEST_BYTES_PER_CONN_MAX, REQUESTS_PER_CONN_MAX};
use crate::shard::action::Parts;

/// Bytes of a frame that must be known before it is bounded and given memory: its length, API key and version.
pub const HEAD_BYTES: usize = 8;

/// What arrived of the frame that is being received.
#[derive(Debug)]
pub enum Intake {
    /// Between frames, or in the first bytes of one.
    Head {
        /// The first bytes.
        bytes: [u8; HEAD_BYTES],
        /// How many there are.
        have: usize,
    },
    /// A window is being filled by the outstanding receive, which carries it.
    Filling {
        /// Bytes in the window so far.
        have: u32,
        /// Bytes of the whole frame, without its length field.
        size: u32,
    },
    /// There is no memory for the window. `first` holds what arrived of the frame.
    Starved {
        /// Bytes of the whole frame, without its length field.
        size: u32,
        /// What arrived of it.
        first: Vec<u8>,
    },
}

impl Intake {
    /// Between two frames.
    pub fn empty() -> Intake {
        Intake::Head { bytes: [0; HEAD_BYTES], have: 0 }
    }
}

/// How far a request of the queue is.
#[derive(Debug)]
pub enum Stage {
    /// Received, not started; its frame without the length field.
    Waiting(Lease),
    /// In service under its ticket.
    Started,
    /// Answered; `None` for acks=0, which has no answer.
    Answered(Option<Parts>),
}

/// What kind of request it is, as far as order and metrics ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Produce, which may overtake the wait of the ones before it.
    Produce,
    /// Fetch.
    Fetch,
    /// Any other.
    Other,
}

/// One request of a connection.
#[derive(Debug)]
pub struct Entry {
    /// Its ticket.
    pub ticket: Ticket,
    /// What kind it is.
    pub kind: RequestKind,
    /// When it came to the stage that it is in, as far as it waits there.
    pub since: MonoMicros,
    /// Bytes of its frame.
    pub bytes: u64,
    /// How far it is.
    pub stage: Stage,
}

/// How a connection is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Open,
    /// `Close` was asked for; everything it still completes is only given back.
    Closing,
}

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    /// Its id.
    pub id: ConnId,
    /// The client's address.
    pub peer: SocketAddr,
    /// How it is ending.
    pub phase: Phase,
    /// The frame being received.
    pub intake: Intake,
    /// Whether a `Recv` is outstanding.
    pub receiving: bool,
    /// Whether a `Send` is outstanding.
    pub sending: bool,
    /// When bytes last came or left.
    pub last_active: MonoMicros,
    /// When the first byte of the frame came that is being received.
    pub frame_began: MonoMicros,
    /// Answers that are being sent, and since when they could be.
    pub leaving: Vec<(RequestKind, MonoMicros)>,
    queue: VecDeque<Entry>,
    queued_bytes: u64,
}

impl Connection {
    fn new(id: ConnId, peer: SocketAddr, now: MonoMicros) -> Connection {
        Connection {
            id,
            peer,
            phase: Phase::Open,
            intake: Intake::empty(),
            receiving: false,
            sending: false,
            last_active: now,
            frame_began: now,
            leaving: Vec::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
        }
    }

    /// Whether more bytes may be asked for.
    pub fn may_receive(&self) -> bool {
        self.phase == Phase::Open
            && !self.receiving
            && self.queue.len() < REQUESTS_PER_CONN_MAX
            && self.queued_bytes < REQUEST_BYTES_PER_CONN_MAX
    }

    /// Takes a request in that has just been received.
    pub fn push(&mut self, ticket: Ticket, kind: RequestKind, now: MonoMicros, frame: Lease) {
        let bytes = u64::from(frame.len());
        self.queued_bytes += bytes;
        self.queue.push_back(Entry { ticket, kind, since: now, bytes, stage: Stage::Waiting(frame) });
    }

    /// The next request that may start now, if any: its ticket, when it was received, and its frame.
    pub fn start_next(&mut self) -> Option<(Ticket, MonoMicros, Lease)> {
        let first_waiting = self.queue.iter().position(|entry| matches!(entry.stage, Stage::Waiting(_)))?;
        let open_before = |entry: &Entry| matches!(entry.stage, Stage::Started);
        let before = self.queue.range(..first_waiting);
        let is_produce = |entry: &Entry| entry.kind == RequestKind::Produce;
        let may = match is_produce(&self.queue[first_waiting]) {
            true => before.filter(|entry| open_before(entry)).all(is_produce),
            false => !before.into_iter().any(open_before),
        };
        if !may {
            return None;
        }
        let entry = &mut self.queue[first_waiting];
        match std::mem::replace(&mut entry.stage, Stage::Started) {
            Stage::Waiting(frame) => Some((entry.ticket, entry.since, frame)),
            _ => unreachable!("found by its stage"),
        }
    }

    /// Notes an answer. Returns it back when the request is not in service here.
    pub fn answer(&mut self, ticket: Ticket, now: MonoMicros, parts: Option<Parts>) -> Result<(), Option<Parts>> {
        let entry = self.queue.iter_mut().find(|entry| entry.ticket == ticket);
        match entry {
            Some(entry) if matches!(entry.stage, Stage::Started) => {
                entry.stage = Stage::Answered(parts);
                entry.since = now;
                Ok(())
            }
            _ => Err(parts),
        }
    }

    /// Moves the parts of every answer that is next in order to the end of `out`. Returns whether any request left the
    /// queue.
    pub fn take_answers(&mut self, out: &mut Parts, mut recycle: impl FnMut(Parts)) -> bool {
        let mut moved = false;
        while let Some(entry) = self.queue.pop_front_if(|entry| matches!(entry.stage, Stage::Answered(_))) {
            self.queued_bytes -= entry.bytes;
            moved = true;
            if let Stage::Answered(Some(mut parts)) = entry.stage {
                self.leaving.push((entry.kind, entry.since));
                out.append(&mut parts);
                recycle(parts);
            }
        }
        moved
    }

    /// Empties the queue of a connection that ends; the caller gives the frames and parts back.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry> {
        self.queued_bytes = 0;
        self.queue.drain(..)
    }

    /// Whether nothing is in service, waiting or being sent.
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty() && !self.sending
    }
}

/// All connections of a core.
#[derive(Debug)]
pub struct Connections {
    slots: Vec<Option<Connection>>,
    count: u32,
    count_max: u32,
}

impl Connections {
    /// None yet; the limit is this core's share.
    pub fn new(count_max: u32) -> Connections {
        Connections { slots: Vec::new(), count: 0, count_max }
    }

    /// Takes a connection into the table. Returns whether the limit allows it; one that it does not allow is to be closed.
    pub fn accept(&mut self, id: ConnId, peer: SocketAddr, now: MonoMicros) -> bool {
        let slot = id.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        assert!(self.slots[slot].is_none(), "connection slot {slot} is in use");
        self.count += 1;
        self.slots[slot] = Some(Connection::new(id, peer, now));
        self.count <= self.count_max
    }

    /// The connection, unless it has ended.
    pub fn at(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.slots.get_mut(id.slot as usize)?.as_mut().filter(|conn| conn.id == id)
    }

    /// Forgets a connection whose last completion has come.
    pub fn remove(&mut self, id: ConnId) {
        let conn = self.slots[id.slot as usize].take().expect("a connection ends once");
        assert_eq!(conn.id, id, "the end of another connection");
        self.count -= 1;
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// All of them, by slot.
    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten()
    }
}
