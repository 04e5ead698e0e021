//! From received bytes to requests: frames are found, bounded, given memory, and queued on their connection.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::arena::{Lease, Pool};
use crate::ids::{ConnId, Errno, Now};
use crate::kafka::api::ApiKey;
use crate::kafka::frame;
use crate::limits::{BLOCK, CHUNK};
use crate::metrics::{FetchStage, ProduceStage};
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, Linger, RecvInto};
use crate::shard::connection::{HEAD_BYTES, Intake, Phase, RequestKind};
use crate::shard::event::{Crowd, Received};

/// What intake keeps beyond the connections.
#[derive(Debug, Default)]
pub struct IntakeState {
    /// Connections that wait for window memory, in the order they began to.
    starved: VecDeque<ConnId>,
    /// Small blocks that could not be replaced yet.
    small_owed: u32,
    /// Bytes of frames that were received, or are being, and not yet given back.
    window_bytes: u64,
}

impl Shard {
    /// Lends the first small blocks to the shell.
    pub(super) fn provide_small_blocks(&mut self, out: &mut Actions) {
        self.intake.small_owed = self.config.small_blocks;
        self.provide_owed(out);
    }

    pub(super) fn on_accepted(
        &mut self,
        now: Now,
        (conn, peer): (ConnId, SocketAddr),
        crowd: Option<Crowd>,
        from_address: Option<u32>,
        out: &mut Actions,
    ) {
        let crowded = from_address.is_some_and(|count| self.config.connections_per_address_max < count);
        if let Some(crowd) = crowd.filter(Crowd::is_uneven).filter(|_| !crowded) {
            self.metrics.count.connections_handed_over += 1;
            return out.push(Action::HandOver { conn, to: crowd.at });
        }
        self.metrics.count.connections_accepted += 1;
        let taken = self.connections.accept(conn, peer, now.mono);
        if crowded || !taken {
            let setting = if crowded { "max.connections.per.ip" } else { "max.connections" };
            if self.pressure.may_log(now.mono) {
                tracing::warn!(%peer, setting, "connection refused: too many");
            }
            self.metrics.count.connections_refused += 1;
            return self.close(conn, Linger::Reset, out);
        }
        if self.stopping.is_asked() {
            return self.close(conn, Linger::Graceful, out);
        }
        self.receive(conn, out);
    }

    pub(super) fn on_received(&mut self, now: Now, conn: ConnId, bytes: Received, out: &mut Actions) {
        if let Some(connection) = self.connections.at(conn) {
            connection.receiving = false;
            connection.last_active = now.mono;
        }
        match bytes {
            Received::Small { lease, len } => {
                self.intake.small_owed += 1;
                self.metrics.count.bytes_received += u64::from(len);
                self.take_small(now, conn, &lease, len, out);
                self.arena.release(lease);
                self.provide_owed(out);
            }
            Received::Window { lease, len } => {
                self.metrics.count.bytes_received += u64::from(len);
                self.take_window(now, conn, lease, len, out);
            }
        }
        self.advance(now, conn, out);
        self.receive(conn, out);
    }

    pub(super) fn on_hangup(&mut self, conn: ConnId, window: Option<Lease>, error: Option<Errno>, out: &mut Actions) {
        if let Some(lease) = window {
            self.release_window(lease);
        }
        let Some(connection) = self.connections.at(conn) else { return };
        connection.receiving = false;
        if let Some(errno) = error {
            tracing::debug!(peer = %connection.peer, %errno, "connection lost");
        }
        self.close(conn, Linger::Graceful, out);
    }

    /// Asks for more bytes of a connection, unless it has enough in service.
    pub(super) fn receive(&mut self, conn: ConnId, out: &mut Actions) {
        let Some(connection) = self.connections.at(conn).filter(|conn| conn.may_receive()) else { return };
        if matches!(connection.intake, Intake::Head { .. }) {
            connection.receiving = true;
            out.push(Action::Recv { conn, into: RecvInto::Small });
        }
    }

    /// Gives window memory to connections that wait for it, in order.
    pub(super) fn retry_starved(&mut self, now: Now, out: &mut Actions) {
        for _ in 0..self.intake.starved.len() {
            let conn = *self.intake.starved.front().expect("counted");
            if !self.feed_starved(now, conn, out) {
                break;
            }
            self.intake.starved.pop_front();
        }
        self.provide_owed(out);
    }

    /// Returns false when there is still no memory for this connection's window.
    fn feed_starved(&mut self, now: Now, conn: ConnId, out: &mut Actions) -> bool {
        let Some(connection) = self.connections.at(conn) else { return true };
        let intake = std::mem::replace(&mut connection.intake, Intake::empty());
        let Intake::Starved { size, first } = intake else {
            connection.intake = intake;
            return true;
        };
        let window = self.open_window(size, &first, out);
        let connection = self.connections.at(conn).expect("looked at above");
        let Some(window) = window else {
            connection.intake = Intake::Starved { size, first };
            return false;
        };
        connection.intake = Intake::Filling { have: 0, size };
        self.take_window(now, conn, window, first.len() as u32, out);
        self.buffers.recycle_bytes(first);
        self.advance(now, conn, out);
        self.receive(conn, out);
        true
    }

    fn provide_owed(&mut self, out: &mut Actions) {
        while self.intake.small_owed > 0 {
            let Some(block) = self.alloc(Pool::Produce, BLOCK, out) else { return };
            let lease = self.arena.into_lease(block);
            out.push(Action::Provide { lease });
            self.intake.small_owed -= 1;
        }
    }

    /// Takes what arrived in a small block: whole frames where they lie, the beginning of the last one into a window.
    fn take_small(&mut self, now: Now, conn: ConnId, lease: &Lease, len: u32, out: &mut Actions) {
        let memory = self.memory.clone();
        let bytes = &memory.bytes(lease)[..len as usize];
        let mut at = 0;
        while at < bytes.len() {
            let Some(connection) = self.connections.at(conn).filter(|conn| conn.phase == Phase::Open) else { return };
            let Intake::Head { bytes: head, have } = &mut connection.intake else {
                panic!("bytes in a small block while a window is open");
            };
            let (before, taken) = (*have, (HEAD_BYTES - *have).min(bytes.len() - at));
            if before == 0 {
                connection.frame_began = now.mono;
            }
            head[*have..*have + taken].copy_from_slice(&bytes[at..at + taken]);
            *have += taken;
            if *have < HEAD_BYTES {
                return;
            }
            let head = *head;
            connection.intake = Intake::empty();
            let size = match frame::bounded_size(&head, self.config.request_bytes_max) {
                Ok(size) => size,
                Err(fault) => return self.close_for(now, conn, &fault.to_string(), out),
            };
            at += taken;
            let rest = (size as usize - (HEAD_BYTES - 4)).min(bytes.len() - at);
            let whole = rest == size as usize - (HEAD_BYTES - 4);
            if whole && before == 0 {
                let frame = self.arena.split(lease, (at - taken + 4) as u32, size);
                self.intake.window_bytes += u64::from(size);
                self.take_frame(now, conn, frame, out);
            } else {
                let mut first = self.buffers.bytes();
                first.extend_from_slice(&head[4..]);
                first.extend_from_slice(&bytes[at..at + rest]);
                self.begin_window(now, conn, size, first, out);
            }
            at += rest;
        }
    }

    /// Opens the window of a frame of which `first` has arrived, or lets the connection wait for memory.
    fn begin_window(&mut self, now: Now, conn: ConnId, size: u32, first: Vec<u8>, out: &mut Actions) {
        let Some(window) = self.open_window(size, &first, out) else {
            self.metrics.count.windows_starved += 1;
            let connection = self.connections.at(conn).expect("bytes of it are being taken");
            connection.intake = Intake::Starved { size, first };
            return self.intake.starved.push_back(conn);
        };
        let connection = self.connections.at(conn).expect("bytes of it are being taken");
        connection.intake = Intake::Filling { have: 0, size };
        self.take_window(now, conn, window, first.len() as u32, out);
        self.buffers.recycle_bytes(first);
    }

    /// A window of exactly `size` bytes that starts with `first`; `None` when there is no memory for it now.
    fn open_window(&mut self, size: u32, first: &[u8], out: &mut Actions) -> Option<Lease> {
        let mut block = self.alloc_window(u64::from(size), out)?;
        self.arena.write(&mut block, 0, first);
        let window = self.arena.into_window(block, size);
        if u64::from(size) <= CHUNK {
            self.intake.window_bytes += u64::from(size);
        }
        Some(window)
    }

    /// `len` more bytes are in a window: receive on, or take the frame.
    fn take_window(&mut self, now: Now, conn: ConnId, lease: Lease, len: u32, out: &mut Actions) {
        let open = self.connections.at(conn).filter(|conn| conn.phase == Phase::Open);
        let Some(connection) = open else { return self.release_window(lease) };
        let Intake::Filling { have, size } = connection.intake else { panic!("a window that was not asked for") };
        let have = have + len;
        assert!(have <= size, "{have} bytes in a window of {size}");
        if have < size {
            connection.intake = Intake::Filling { have, size };
            connection.receiving = true;
            return out.push(Action::Recv { conn, into: RecvInto::Window { lease, from: have } });
        }
        connection.intake = Intake::empty();
        self.take_frame(now, conn, lease, out);
    }

    /// A whole frame: its header is read and it joins the queue of its connection.
    fn take_frame(&mut self, now: Now, conn: ConnId, frame: Lease, out: &mut Actions) {
        let memory = self.memory.clone();
        let header = match frame::request_header(memory.bytes(&frame)) {
            Ok(header) => header,
            Err(fault) => {
                self.release_window(frame);
                return self.close_for(now, conn, &fault.to_string(), out);
            }
        };
        let ticket = self.requests.next_ticket();
        let kind = match header.api_key {
            ApiKey::PRODUCE => RequestKind::Produce,
            ApiKey::FETCH => RequestKind::Fetch,
            _ => RequestKind::Other,
        };
        let connection = self.connections.at(conn).expect("bytes of it are being taken");
        connection.push(ticket, kind, now.mono, frame);
        let took = now.mono.micros_since(connection.frame_began);
        match kind {
            RequestKind::Produce => self.metrics.produce_stage(ProduceStage::Received, took),
            RequestKind::Fetch => self.metrics.fetch_stage(FetchStage::Received, took),
            RequestKind::Other => {}
        }
    }

    /// Closes a connection for what its client sent.
    pub(super) fn close_for(&mut self, now: Now, conn: ConnId, fault: &str, out: &mut Actions) {
        let Some(connection) = self.connections.at(conn) else { return };
        if self.pressure.may_log(now.mono) {
            tracing::warn!(peer = %connection.peer, reason = fault, "connection closed");
        } else {
            self.metrics.count.log_lines_suppressed += 1;
        }
        self.metrics.count.connections_closed_for_fault += 1;
        self.close(conn, Linger::Graceful, out);
    }

    /// Closes a connection and gives back all it holds.
    pub(super) fn close(&mut self, conn: ConnId, linger: Linger, out: &mut Actions) {
        let Some(connection) = self.connections.at(conn).filter(|conn| conn.phase == Phase::Open) else { return };
        connection.phase = Phase::Closing;
        connection.intake = Intake::empty();
        let entries: Vec<_> = connection.drain().collect();
        for entry in entries {
            self.abandon(conn, entry, out);
        }
        out.push(Action::Close { conn, linger });
    }

    pub(super) fn on_closed(&mut self, conn: ConnId, _out: &mut Actions) {
        self.connections.remove(conn);
    }

    /// Memory for a receive window: a block of the pool, or the one large window for frames beyond a chunk. While
    /// appends wait for memory no window takes any, and windows together never more than half of it: what has been
    /// received must always find room in a tail, or nothing would ever move again.
    fn alloc_window(&mut self, bytes: u64, out: &mut Actions) -> Option<crate::arena::Block> {
        let counted = if bytes <= CHUNK { self.intake.window_bytes + bytes } else { 0 };
        if self.appends_waiting() > 0 || counted > self.config.arena.budget_bytes / 2 {
            return None;
        }
        if bytes <= CHUNK { self.alloc(Pool::Produce, bytes, out) } else { self.alloc_large(bytes) }
    }

    /// Gives a frame's bytes back.
    pub(super) fn release_window(&mut self, lease: Lease) {
        let bytes = u64::from(lease.len());
        if bytes <= CHUNK {
            let left = self.intake.window_bytes.checked_sub(bytes);
            self.intake.window_bytes = left.expect("a frame was given back that was not counted");
        }
        self.arena.release(lease);
    }
}
