//! Answers on their way out: one frame built per answer, sent in the order of the requests, several in one send.

use crate::arena::Lease;
use crate::ids::{ConnId, Errno, Now, Ticket};
use crate::kafka::schema::Hole;
use crate::metrics::{FetchStage, ProduceStage};
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, Linger, Part, Parts};
use crate::shard::connection::{Entry, Phase, RequestKind, Stage};
use crate::shard::message::{Message, Peer};
use crate::shard::requests::{InService, Kind};

/// Buffers kept for reuse, so that answers allocate nothing in the steady state.
#[derive(Debug, Default)]
pub struct Buffers {
    bytes: Vec<Vec<u8>>,
    parts: Vec<Parts>,
    /// Places of record bytes in the answer that is being encoded.
    pub(super) holes: Vec<Hole>,
    /// Connections with a new answer since they were last looked at.
    touched: Vec<ConnId>,
}

/// Buffers of each kind that are kept.
const KEPT_MAX: usize = 256;
/// Buffers larger than this are not kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

impl Buffers {
    /// An empty byte buffer.
    pub fn bytes(&mut self) -> Vec<u8> {
        self.bytes.pop().unwrap_or_default()
    }

    /// Keeps a byte buffer for later.
    pub fn recycle_bytes(&mut self, mut buffer: Vec<u8>) {
        if self.bytes.len() < KEPT_MAX && buffer.capacity() <= KEPT_BYTES_MAX {
            buffer.clear();
            self.bytes.push(buffer);
        }
    }

    /// An empty list of parts.
    pub fn parts(&mut self) -> Parts {
        self.parts.pop().unwrap_or_default()
    }

    /// Keeps an empty list of parts for later.
    pub fn recycle_parts(&mut self, parts: Parts) {
        assert!(parts.is_empty(), "{} parts would be lost", parts.len());
        if self.parts.len() < KEPT_MAX && parts.capacity() > 0 {
            self.parts.push(parts);
        }
    }
}

impl Shard {
    /// Answers a request with one frame: `head` holds everything up to the first of `rest`, its first four bytes are
    /// the place of the length.
    pub(super) fn answer(&mut self, conn: ConnId, ticket: Ticket, mut head: Vec<u8>, rest: Parts, out: &mut Actions) {
        let size = head.len() as u64 - 4 + rest.iter().map(Part::len).sum::<u64>();
        let size = u32::try_from(size).expect("an answer is bounded by fetch.max.bytes and limits.rs");
        head[..4].copy_from_slice(&size.to_be_bytes());
        let mut parts = self.buffers.parts();
        parts.push(Part::Bytes(head));
        let mut rest = rest;
        parts.append(&mut rest);
        self.buffers.recycle_parts(rest);
        self.note_answer(conn, ticket, Some(parts), out);
    }

    /// Notes that a request needs no answer (acks=0).
    pub(super) fn answer_nothing(&mut self, conn: ConnId, ticket: Ticket, out: &mut Actions) {
        self.note_answer(conn, ticket, None, out);
    }

    fn note_answer(&mut self, conn: ConnId, ticket: Ticket, parts: Option<Parts>, out: &mut Actions) {
        let Some(connection) = self.connections.at(conn) else {
            return self.release_parts(parts, out);
        };
        match connection.answer(ticket, self.metrics.now(), parts) {
            Ok(()) => self.buffers.touched.push(conn),
            Err(parts) => self.release_parts(parts, out),
        }
    }

    /// Starts what may start and sends what may leave on every connection with a new answer.
    pub(super) fn advance_touched(&mut self, now: Now, out: &mut Actions) {
        while let Some(conn) = self.buffers.touched.pop() {
            self.advance(now, conn, out);
            self.receive(conn, out);
        }
    }

    /// Starts the requests of a connection that may start, then sends the answers that are next.
    pub(super) fn advance(&mut self, now: Now, conn: ConnId, out: &mut Actions) {
        while let Some((ticket, received, frame)) = self.connections.at(conn).and_then(|conn| conn.start_next()) {
            self.dispatch(now, (conn, ticket, received), frame, out);
            self.send_answers(conn, out);
        }
        self.send_answers(conn, out);
    }

    fn send_answers(&mut self, conn: ConnId, out: &mut Actions) {
        let Some(connection) = self.connections.at(conn) else { return };
        if connection.sending || connection.phase == Phase::Closing {
            return;
        }
        let mut parts = self.buffers.parts();
        let buffers = &mut self.buffers;
        connection.take_answers(&mut parts, |empty| buffers.recycle_parts(empty));
        if parts.is_empty() {
            return self.buffers.recycle_parts(parts);
        }
        connection.sending = true;
        self.metrics.count.bytes_sent += parts.iter().map(Part::len).sum::<u64>();
        out.push(Action::Send { conn, parts });
    }

    pub(super) fn on_sent(
        &mut self,
        now: Now,
        conn: ConnId,
        parts: Parts,
        result: Result<(), Errno>,
        out: &mut Actions,
    ) {
        self.release_parts(Some(parts), out);
        let Some(connection) = self.connections.at(conn) else { return };
        connection.sending = false;
        connection.last_active = now.mono;
        for (kind, since) in connection.leaving.drain(..) {
            let waited = now.mono.micros_since(since);
            match kind {
                RequestKind::Produce => self.metrics.produce_stage(ProduceStage::Sent, waited),
                RequestKind::Fetch => self.metrics.fetch_stage(FetchStage::Sent, waited),
                RequestKind::Other => {}
            }
        }
        match result {
            Ok(()) => {
                self.advance(now, conn, out);
                self.receive(conn, out);
            }
            Err(errno) => {
                tracing::debug!(peer = %connection.peer, %errno, "send failed");
                self.close(conn, Linger::Reset, out);
            }
        }
    }

    /// Gives back what a connection that ends held for one request.
    pub(super) fn abandon(&mut self, conn: ConnId, entry: Entry, out: &mut Actions) {
        match entry.stage {
            Stage::Waiting(frame) => self.release_window(frame),
            Stage::Started => self.abandon_started(conn, entry.ticket, out),
            Stage::Answered(parts) => self.release_parts(parts, out),
        }
    }

    /// A request in service goes on without its connection; a fetch has nothing to go on for.
    fn abandon_started(&mut self, conn: ConnId, ticket: Ticket, out: &mut Actions) {
        let is_it = |request: &InService| request.reply.conn == conn && request.reply.ticket == ticket;
        let found = self.requests.iter().find(|(_, request)| is_it(request));
        if let Some((id, InService { kind: Kind::Fetch(_), .. })) = found {
            self.abandon_fetch(id, out);
        }
    }

    /// Gives the leases and buffers of parts back.
    pub(super) fn release_parts(&mut self, parts: Option<Parts>, out: &mut Actions) {
        let Some(mut parts) = parts else { return };
        for part in parts.drain(..) {
            self.release_part(part, out);
        }
        self.buffers.recycle_parts(parts);
    }

    /// Gives a lease back to the core that it belongs to.
    pub(super) fn give_back(&mut self, lease: Lease, out: &mut Actions) {
        if lease.core() == self.config.core {
            self.arena.release(lease);
        } else {
            let to = Peer::Core(lease.core());
            out.push(Action::Mail { to, message: Message::Return(lease) });
        }
    }
}
