//! Requests in service on a core, by ticket.
//!
//! A ticket is never used twice, so that a late answer finds nothing instead of somebody else's request.

use crate::ids::Ticket;
use crate::shard::commands::Waiting;
use crate::shard::dispatch::Reply;
use crate::shard::fetch::Fetch;
use crate::shard::produce::Produce;
use crate::shard::queries::Queries;

/// A request that is being answered.
#[derive(Debug)]
pub struct InService {
    /// Where the answer goes.
    pub reply: Reply,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of request that take more than one step.
#[derive(Debug)]
pub enum Kind {
    /// Waits for appends and acks.
    Produce(Box<Produce>),
    /// Reads, or waits for data.
    Fetch(Box<Fetch>),
    /// Asks partitions small questions.
    Queries(Box<Queries>),
    /// Waits for the controller.
    Command(Box<Waiting>),
}

/// The table.
#[derive(Debug, Default)]
pub struct Requests {
    count: u64,
    slots: slab::Slab<(u64, InService)>,
}

/// Low bits of a ticket: its slot. The others count.
const SLOT_BITS: u32 = 24;

impl Requests {
    /// A ticket for a request that has just been received; its connection knows it by this one.
    pub fn next_ticket(&mut self) -> Ticket {
        self.count += 1;
        Ticket(self.count)
    }

    /// Puts a request into the table and gives the ticket that answers must carry.
    pub fn start(&mut self, request: InService) -> Ticket {
        let count = request.reply.ticket.0;
        let slot = self.slots.insert((count, request));
        assert!(slot < 1 << SLOT_BITS, "{slot} requests in service");
        ticket(count, slot)
    }

    /// The request that an answer is for, unless it is over.
    pub fn at(&mut self, id: Ticket) -> Option<&mut InService> {
        let (count, request) = self.slots.get_mut(slot(id))?;
        (*count == id.0 >> SLOT_BITS).then_some(request)
    }

    /// Takes a request out: it is answered or abandoned.
    pub fn finish(&mut self, id: Ticket) -> Option<InService> {
        self.at(id)?;
        Some(self.slots.remove(slot(id)).1)
    }

    /// All requests in service with their tickets, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &InService)> {
        self.slots.iter().map(|(slot, (count, request))| (ticket(*count, slot), request))
    }

    /// How many are in service.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

fn ticket(count: u64, slot: usize) -> Ticket {
    Ticket(count << SLOT_BITS | slot as u64)
}

fn slot(id: Ticket) -> usize {
    (id.0 & ((1 << SLOT_BITS) - 1)) as usize
}
