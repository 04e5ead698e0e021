//! Which arena bytes a follower may still be reading: what was sent to it stays leased until it has proved receipt.
//!
//! A follower sends its next Fetch on a connection only after it has read the whole previous response, so any Fetch
//! there is the receipt for everything announced before. A TCP acknowledgement proves nothing: on loopback and veth the
//! receiver's queue holds our pages, and after a close the peer can still read reused pages as new bytes. Therefore the
//! copied header of each part carries a [`PartDigest`]; the follower recomputes it and resets the connection on a
//! mismatch, which is why the blocks are free at close.

use crate::arena::Lease;
use crate::ids::{ConnId, Offset, PartitionId};

/// End of a list.
const NONE: u32 = u32::MAX;

/// The leases whose receipt is not proved yet, by connection. Allocates nothing after `new`.
#[derive(Debug)]
pub struct Receipts {
    parts_max: u32,
    /// By connection slot.
    conns: Vec<Announced>,
    parts: Vec<Part>,
    /// First part that is free.
    free: u32,
    outstanding: u32,
}

/// What one connection holds.
#[derive(Clone, Copy, Debug)]
struct Announced {
    turn: u32,
    head: u32,
}

#[derive(Debug)]
struct Part {
    lease: Option<Lease>,
    next: u32,
}

impl Receipts {
    /// Room for connections of slots below `conns_max` and for `parts_max` leases over all of them.
    pub fn new(conns_max: u32, parts_max: u32) -> Receipts {
        assert!(parts_max < NONE, "{parts_max} parts");
        Receipts {
            parts_max,
            conns: vec![Announced { turn: 0, head: NONE }; conns_max as usize],
            parts: Vec::with_capacity(parts_max as usize),
            free: NONE,
            outstanding: 0,
        }
    }

    /// How many leases may be announced now. With less room than a response has parts, it waits (or is sent as a copy).
    pub fn room(&self) -> u32 {
        self.parts_max - self.outstanding
    }

    /// Leases held for all connections.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Holds the leases of what was sent on a connection until the next receipt there. Empties `leases`.
    ///
    /// # Panics
    /// Beyond `room`, for a slot beyond `conns_max`, and when an earlier connection of the slot was not closed.
    pub fn announce(&mut self, conn: ConnId, leases: &mut Vec<Lease>) {
        assert!(leases.len() <= self.room() as usize, "{} parts with room for {}", leases.len(), self.room());
        let held = &mut self.conns[conn.slot as usize];
        assert!(held.head == NONE || held.turn == conn.turn, "{conn:?} before turn {} was closed", held.turn);
        held.turn = conn.turn;
        for lease in leases.drain(..) {
            self.push(conn.slot, lease);
        }
    }

    /// The peer has sent its next Fetch: everything announced on the connection so far is given back by way of `out`,
    /// the newest first. Leases of this core go to `Arena::release`, those of others home by `Message::Return`.
    pub fn on_receipt(&mut self, conn: ConnId, out: &mut Vec<Lease>) {
        let Some(held) = self.conns.get_mut(conn.slot as usize).filter(|held| held.turn == conn.turn) else { return };
        let mut at = std::mem::replace(&mut held.head, NONE);
        while at != NONE {
            let part = &mut self.parts[at as usize];
            out.push(part.lease.take().expect("a listed part holds a lease"));
            let next = std::mem::replace(&mut part.next, self.free);
            self.free = at;
            self.outstanding -= 1;
            at = next;
        }
    }

    /// The connection is closed: as for a receipt. What the peer still reads of reused bytes fails its digest.
    pub fn on_close(&mut self, conn: ConnId, out: &mut Vec<Lease>) {
        self.on_receipt(conn, out);
    }

    /// Checks the lists against the count.
    ///
    /// # Panics
    /// When something does not fit. Looks at every part.
    pub fn invariants(&self) {
        let listed: u32 = self.conns.iter().map(|held| self.list_len(held.head)).sum();
        let leased = self.parts.iter().filter(|part| part.lease.is_some()).count();
        assert_eq!(listed, self.outstanding, "parts listed, and outstanding");
        assert_eq!(leased, self.outstanding as usize, "parts with a lease, and outstanding");
        let free = self.list_len(self.free) as usize;
        assert_eq!(free + leased, self.parts.len(), "{free} free and {leased} leased parts");
        assert!(self.parts.len() <= self.parts_max as usize, "{} parts of {}", self.parts.len(), self.parts_max);
    }

    fn push(&mut self, slot: u32, lease: Lease) {
        if self.free == NONE {
            self.free = self.parts.len() as u32;
            self.parts.push(Part { lease: None, next: NONE });
        }
        let at = self.free;
        let part = &mut self.parts[at as usize];
        self.free = part.next;
        let head = &mut self.conns[slot as usize].head;
        *part = Part { lease: Some(lease), next: *head };
        *head = at;
        self.outstanding += 1;
    }

    fn list_len(&self, head: u32) -> u32 {
        let mut len = 0;
        let mut at = head;
        while at != NONE {
            at = self.parts[at as usize].next;
            len += 1;
            assert!(len as usize <= self.parts.len(), "a list of parts runs in a circle");
        }
        len
    }
}

/// The u32 that ties a part to what was announced: over topic id, partition, and base offset and CRC of its batches in
/// order. The CRC of a batch does not cover its base offset, and no CRC covers the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartDigest(u32);

impl PartDigest {
    /// Of a part of this partition without batches yet.
    pub fn new(partition: PartitionId) -> PartDigest {
        let topic = crc32c::crc32c(&partition.topic.0);
        PartDigest(crc32c::crc32c_append(topic, &partition.index.0.to_be_bytes()))
    }

    /// With one more batch behind the others; `crc` is the one in its header.
    #[must_use]
    pub fn with(self, base: Offset, crc: u32) -> PartDigest {
        let offset = crc32c::crc32c_append(self.0, &base.0.to_be_bytes());
        PartDigest(crc32c::crc32c_append(offset, &crc.to_be_bytes()))
    }

    /// The value on the wire.
    pub fn value(self) -> u32 {
        self.0
    }
}
