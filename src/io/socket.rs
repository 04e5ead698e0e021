//! The connections of one core: accept, receive, close. At most one receive and one send are in flight on each.
//!
//! Sockets are non-blocking, for the sake of sendfile; the ring waits on them all the same (it looks at MSG_DONTWAIT of
//! a receive or send, not at the socket's mode).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use io_uring::squeue::Flags;
use io_uring::{cqueue, opcode, types};
use rustix::net::{Shutdown, SocketAddrAny, connect_unspec, getpeername, shutdown};

use crate::arena::Lease;
use crate::ids::{ConnId, CoreId, Errno, MonoMicros};
use crate::io::Io;
use crate::io::crowd::Crowds;
use crate::io::op::Token;
use crate::io::ring::outcome;
use crate::io::sending::{Outgoing, Step};
use crate::io::small_pool::{GROUP, SmallPool};
use crate::shard::action::{Linger, Parts, RecvInto};
use crate::shard::event::{Crowd, Event, Received};

/// The connections of one core.
pub struct Net {
    listener: Option<OwnedFd>,
    accepting: bool,
    /// After a shortage of descriptors or memory: when to accept again.
    accept_again: Option<MonoMicros>,
    slots: Vec<Slot>,
    /// Slots that were used and are free again.
    free: Vec<u32>,
    connections_max: u32,
    crowds: Arc<Crowds>,
    pool: SmallPool,
    /// Connections whose small receive found no block.
    starved: VecDeque<ConnId>,
    /// Connections whose send goes on in the next turn.
    unfinished: Vec<ConnId>,
    /// Send states that are not in use.
    spare: Vec<Outgoing>,
}

/// A connection on its way from one core to another.
#[derive(Debug)]
pub struct Handed {
    fd: OwnedFd,
    peer: SocketAddr,
}

struct Slot {
    turn: u32,
    conn: Option<Conn>,
}

struct Conn {
    fd: OwnedFd,
    peer: SocketAddr,
    recv: Receiving,
    send: Option<Outgoing>,
    closing: bool,
}

enum Receiving {
    No,
    /// A small receive is in flight.
    Small,
    /// A small receive waits for a block.
    Starved,
    /// A receive into a window is in flight.
    Window(Lease),
}

/// How long accepting pauses when descriptors or memory have run out.
const ACCEPT_PAUSE_MS: u64 = 100;

impl Net {
    /// No connections yet, at most `connections_max` at a time.
    pub fn new(listener: Option<OwnedFd>, connections_max: u32, crowds: Arc<Crowds>, pool: SmallPool) -> Net {
        Net {
            listener,
            accepting: false,
            accept_again: None,
            // Reserved for good but touched only as far as used.
            slots: Vec::with_capacity(connections_max as usize),
            free: Vec::with_capacity(connections_max as usize),
            connections_max,
            crowds,
            pool,
            starved: VecDeque::new(),
            unfinished: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Accepts again when it may; call it once per turn. With a full table connections wait in the backlog.
    pub fn accept(&mut self, io: &mut Io) {
        let Some(listener) = &self.listener else { return };
        if self.accepting || self.is_full() || self.accept_again.is_some_and(|at| io.now < at) {
            return;
        }
        self.accept_again = None;
        self.accepting = true;
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let nowhere = std::ptr::null_mut();
        let fd = types::Fd(listener.as_raw_fd());
        let entry = opcode::Accept::new(fd, nowhere, nowhere.cast()).flags(flags).build();
        // SAFETY: no memory is named, and the listener outlives the ring.
        unsafe { io.ring.push(entry, Token::Accept) };
    }

    /// When to call `accept` although nothing has happened.
    pub fn accept_again(&self) -> Option<MonoMicros> {
        self.accept_again
    }

    /// Whether a send has more to do without waiting for anything.
    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Connections in the table.
    pub fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes the completion of the accept.
    pub fn accepted(&mut self, io: &mut Io, result: i32) {
        self.accepting = false;
        match outcome(result) {
            Ok(fd) => {
                // SAFETY: the result of an accept of ours, which nobody else has seen.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
                // One whose peer has left already has no address.
                let Some(peer) = peer_of(fd.as_fd()) else { return };
                let from_address = self.crowds.came(io.core, peer.ip());
                let crowd = self.crowds.seen_from(io.core);
                self.take(io, Handed { fd, peer }, crowd, Some(from_address));
            }
            Err(Errno(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)) => {
                self.accept_again = Some(io.now.plus_millis(ACCEPT_PAUSE_MS));
            }
            // The connection was gone before it was accepted (accept(2), ERRORS).
            Err(_) => {}
        }
    }

    /// Takes a connection that another core has handed over; it arrives as `Accepted`.
    pub fn adopt(&mut self, io: &mut Io, handed: Handed) {
        self.take(io, handed, None, None);
    }

    /// Takes a counted socket into the table. Without room it is closed.
    fn take(&mut self, io: &mut Io, handed: Handed, crowd: Option<Crowd>, from_address: Option<u32>) {
        let Handed { fd, peer } = handed;
        let Some(slot) = self.free_slot() else { return self.crowds.went(io.core, peer.ip()) };
        let entry = &mut self.slots[slot as usize];
        entry.conn = Some(Conn { fd, peer, recv: Receiving::No, send: None, closing: false });
        io.events.push(Event::Accepted { conn: ConnId { slot, turn: entry.turn }, peer, crowd, from_address });
    }

    /// Gives a connection without operations away to core `to`; its slot is free at once.
    ///
    /// # Panics
    /// When an operation is in flight.
    pub fn release(&mut self, io: &Io, conn: ConnId, to: CoreId) -> Handed {
        assert!(self.conn(conn).is_idle(), "{conn:?} handed over with an operation in flight");
        self.crowds.moved(io.core, to);
        self.vacate(conn.slot)
    }

    /// Lends a block to small receives.
    pub fn provide(&mut self, io: &mut Io, lease: Lease) {
        self.pool.provide(&io.regions, lease);
        while let Some(conn) = self.starved.pop_front() {
            let slot = &mut self.slots[conn.slot as usize];
            let waits = |open: &Conn| matches!(open.recv, Receiving::Starved);
            if slot.turn == conn.turn && slot.conn.as_ref().is_some_and(waits) {
                return self.recv_small(io, conn.slot);
            }
        }
    }

    /// Starts a receive; completes as `Received` or `Hangup`.
    ///
    /// # Panics
    /// When one is in flight, the connection is closing, or the window is full.
    pub fn recv(&mut self, io: &mut Io, conn: ConnId, into: RecvInto) {
        let open = self.conn(conn);
        assert!(!open.closing && matches!(open.recv, Receiving::No), "second receive on {conn:?}");
        match into {
            RecvInto::Small => self.recv_small(io, conn.slot),
            RecvInto::Window { lease, from } => {
                assert!(from < lease.len(), "receive into a full window, {from} of {lease:?}");
                assert_eq!(lease.core(), io.core, "receive into another core's memory");
                let address = io.regions.address(&lease).cast_mut().wrapping_add(from as usize);
                let fd = types::Fd(open.fd.as_raw_fd());
                let entry = opcode::Recv::new(fd, address, lease.len() - from).flags(libc::MSG_WAITALL).build();
                open.recv = Receiving::Window(lease);
                // SAFETY: the connection keeps lease and socket until the completion; arena memory stays mapped.
                unsafe { io.ring.push(entry, Token::Recv(conn.slot)) };
            }
        }
    }

    /// Takes the completion of a receive.
    pub fn received(&mut self, io: &mut Io, slot: u32, result: i32, flags: u32) {
        let conn = ConnId { slot, turn: self.slots[slot as usize].turn };
        let open = self.conn(conn);
        let (recv, closing) = (std::mem::replace(&mut open.recv, Receiving::No), open.closing);
        let result = if closing { Err(Errno(libc::ECANCELED)) } else { outcome(result) };
        let block = cqueue::buffer_select(flags).map(|id| self.pool.take(id));
        match (recv, result, block) {
            (Receiving::Small, Ok(len), Some(lease)) if len > 0 => {
                io.events.push(Event::Received { conn, bytes: Received::Small { lease, len } });
            }
            (Receiving::Window(lease), Ok(len), None) if len > 0 => {
                io.events.push(Event::Received { conn, bytes: Received::Window { lease, len } });
            }
            (Receiving::Small, Err(Errno(libc::ENOBUFS)), None) => {
                self.conn(conn).recv = Receiving::Starved;
                if self.pool.is_empty() { self.starved.push_back(conn) } else { self.recv_small(io, slot) }
            }
            (recv, result, block) => {
                let window = if let Receiving::Window(lease) = recv { Some(lease) } else { None };
                io.events.push(Event::Hangup { conn, window, error: result.err() });
                if let Some(block) = block {
                    self.provide(io, block);
                }
            }
        }
        self.close_when_idle(io, slot);
    }

    /// Starts a send; completes as `Sent`.
    ///
    /// # Panics
    /// When one is in flight or the connection is closing.
    pub fn send(&mut self, io: &mut Io, conn: ConnId, parts: Parts) {
        let mut outgoing = self.spare.pop().unwrap_or_default();
        let ready = outgoing.start(io, parts);
        let open = self.conn(conn);
        assert!(!open.closing && open.send.is_none(), "second send on {conn:?}");
        open.send = Some(outgoing);
        match ready {
            Ok(()) => self.send_on(io, conn.slot),
            Err(errno) => self.sent(io, conn.slot, Err(errno)),
        }
    }

    /// Takes the completion of a send or of the wait for room in the socket.
    pub fn sent_some(&mut self, io: &mut Io, slot: u32, result: i32) {
        let open = self.slots[slot as usize].conn.as_mut().expect("an open connection");
        let outgoing = open.send.as_mut().expect("a send in flight");
        match outgoing.took(outcome(result)) {
            Ok(()) if open.closing => self.sent(io, slot, Err(Errno(libc::ECANCELED))),
            Ok(()) => self.send_on(io, slot),
            Err(errno) => self.sent(io, slot, Err(errno)),
        }
        self.close_when_idle(io, slot);
    }

    /// Goes on with the sends that had used up their share of the last turn.
    pub fn resume(&mut self, io: &mut Io) {
        let handled = self.unfinished.len();
        for index in 0..handled {
            let conn = self.unfinished[index];
            let slot = &self.slots[conn.slot as usize];
            if slot.turn == conn.turn && slot.conn.as_ref().is_some_and(|open| open.send.is_some()) {
                self.send_on(io, conn.slot);
            }
        }
        // What was added meanwhile has its turn next time.
        self.unfinished.drain(..handled);
    }

    /// Ends a connection; `Closed` follows when nothing of it is in flight any more.
    ///
    /// # Panics
    /// When it is closing already.
    pub fn close(&mut self, io: &mut Io, conn: ConnId, linger: Linger) {
        let open = self.conn(conn);
        assert!(!open.closing, "{conn:?} closed twice");
        open.closing = true;
        // Both wake what waits on the socket. An error means that it is not connected any more, which is the aim.
        let _ = match linger {
            Linger::Graceful => shutdown(&open.fd, Shutdown::Both),
            // Dissolving the association (connect(2)) resets the connection now; closing with SO_LINGER 0 would have to
            // wait for what is in flight.
            Linger::Reset => connect_unspec(&open.fd),
        };
        if matches!(open.recv, Receiving::Starved) {
            open.recv = Receiving::No;
            io.events.push(Event::Hangup { conn, window: None, error: Some(Errno(libc::ECANCELED)) });
        }
        if open.send.as_ref().is_some_and(|outgoing| !outgoing.is_in_flight()) {
            self.sent(io, conn.slot, Err(Errno(libc::ECANCELED)));
        }
        self.close_when_idle(io, conn.slot);
    }

    fn recv_small(&mut self, io: &mut Io, slot: u32) {
        let open = self.slots[slot as usize].conn.as_mut().expect("an open connection");
        open.recv = Receiving::Small;
        let fd = types::Fd(open.fd.as_raw_fd());
        // The peer has just been answered or has just connected: there is nothing to receive yet, so wait first.
        let entry = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP).ioprio(RECV_POLL_FIRST).build();
        // SAFETY: the pool keeps its blocks, and the connection its socket, until the completion.
        unsafe { io.ring.push(entry.flags(Flags::BUFFER_SELECT), Token::Recv(slot)) };
    }

    fn send_on(&mut self, io: &mut Io, slot: u32) {
        let turn = self.slots[slot as usize].turn;
        let open = self.slots[slot as usize].conn.as_mut().expect("an open connection");
        let outgoing = open.send.as_mut().expect("a send to go on with");
        match outgoing.step(io, open.fd.as_fd(), slot) {
            Step::Waiting => {}
            Step::Unfinished => self.unfinished.push(ConnId { slot, turn }),
            Step::Done(result) => self.sent(io, slot, result),
        }
    }

    fn sent(&mut self, io: &mut Io, slot: u32, result: Result<(), Errno>) {
        let conn = ConnId { slot, turn: self.slots[slot as usize].turn };
        let mut outgoing = self.conn(conn).send.take().expect("a send to end");
        io.events.push(Event::Sent { conn, parts: outgoing.end(), result });
        self.spare.push(outgoing);
    }

    fn close_when_idle(&mut self, io: &mut Io, slot: u32) {
        let turn = self.slots[slot as usize].turn;
        if self.slots[slot as usize].conn.as_ref().is_some_and(|open| open.closing && open.is_idle()) {
            let Handed { fd, peer } = self.vacate(slot);
            drop(fd);
            self.crowds.went(io.core, peer.ip());
            io.events.push(Event::Closed { conn: ConnId { slot, turn } });
        }
    }

    fn is_full(&self) -> bool {
        self.open() == self.connections_max as usize
    }

    fn free_slot(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let slot = self.slots.len() as u32;
            (slot < self.connections_max).then(|| {
                self.slots.push(Slot { turn: 0, conn: None });
                slot
            })
        })
    }

    fn vacate(&mut self, slot: u32) -> Handed {
        let entry = &mut self.slots[slot as usize];
        entry.turn += 1;
        self.free.push(slot);
        let Conn { fd, peer, .. } = entry.conn.take().expect("an open connection");
        Handed { fd, peer }
    }

    fn conn(&mut self, conn: ConnId) -> &mut Conn {
        let slot = &mut self.slots[conn.slot as usize];
        assert_eq!(slot.turn, conn.turn, "{conn:?} is closed");
        slot.conn.as_mut().unwrap_or_else(|| panic!("{conn:?} is not open"))
    }
}

impl Conn {
    fn is_idle(&self) -> bool {
        matches!(self.recv, Receiving::No) && self.send.is_none()
    }
}

/// IORING_RECVSEND_POLL_FIRST of linux/io_uring.h.
const RECV_POLL_FIRST: u16 = 1;

fn peer_of(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    let address: SocketAddrAny = getpeername(fd).ok()??;
    SocketAddr::try_from(address).ok()
}
