//! What a completion belongs to, and how old the oldest disk operation is.
//!
//! A submission's user_data is a [`Token`]: a kind, which says whose table to look into, and a slot of that table.
//! The entry in the slot owns the leases, buffers and descriptors that the kernel may touch.

use std::collections::VecDeque;

use crate::ids::MonoMicros;

/// Names a submission in its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// A segment write, flush or read: slot of `file::Disk`.
    Disk(u32),
    /// One step of a file job: slot of `job::Jobs`.
    Job(u32),
    /// The receive of a connection: slot of `socket::Net`.
    Recv(u32),
    /// The send of a connection, or its wait for room in the socket: slot of `socket::Net`.
    Send(u32),
    /// The accept of the listener.
    Accept,
    /// The read of this thread's own eventfd.
    Bell,
    /// Posted by another ring's MSG_RING; no submission of this ring.
    Rung,
    /// The sending half of a MSG_RING: index of the peer in `mailbox`.
    Rang(u32),
    /// Nobody waits for it: a cancellation.
    Ignore,
}

impl Token {
    /// As user_data: the kind above bit 32, the slot below.
    pub fn to_bits(self) -> u64 {
        let (kind, slot) = match self {
            Token::Ignore => (0, 0),
            Token::Disk(slot) => (1, slot),
            Token::Job(slot) => (2, slot),
            Token::Recv(slot) => (3, slot),
            Token::Send(slot) => (4, slot),
            Token::Accept => (5, 0),
            Token::Bell => (6, 0),
            Token::Rung => (7, 0),
            Token::Rang(peer) => (8, peer),
        };
        (kind << 32) | u64::from(slot)
    }

    /// Back from user_data.
    ///
    /// # Panics
    /// On bits that `to_bits` does not make: the ring was handed something else.
    pub fn from_bits(bits: u64) -> Token {
        let slot = bits as u32;
        match bits >> 32 {
            0 => Token::Ignore,
            1 => Token::Disk(slot),
            2 => Token::Job(slot),
            3 => Token::Recv(slot),
            4 => Token::Send(slot),
            5 => Token::Accept,
            6 => Token::Bell,
            7 => Token::Rung,
            8 => Token::Rang(slot),
            kind => panic!("completion of unknown kind {kind}"),
        }
    }
}

/// Start times of operations that end in any order; amortised O(1), no allocation once it has grown to the most in
/// flight at a time.
#[derive(Debug, Default)]
pub struct Ages {
    /// Number of the front entry.
    first: u64,
    /// Start times in order; `None` once ended. The front one is always `Some`.
    started: VecDeque<Option<MonoMicros>>,
}

/// Names one start in [`Ages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(u64);

impl Ages {
    /// An operation starts.
    pub fn start(&mut self, now: MonoMicros) -> Age {
        self.started.push_back(Some(now));
        Age(self.first + self.started.len() as u64 - 1)
    }

    /// It has ended.
    ///
    /// # Panics
    /// When it had ended before.
    pub fn end(&mut self, age: Age) {
        let index = age.0.checked_sub(self.first).expect("ended before") as usize;
        assert!(self.started[index].take().is_some(), "operation {age:?} ended twice");
        while let Some(None) = self.started.front() {
            self.started.pop_front();
            self.first += 1;
        }
    }

    /// Operations that have not ended. Cost is linear in those since the oldest of them.
    pub fn in_flight(&self) -> u32 {
        self.started.iter().flatten().count() as u32
    }

    /// When the oldest operation that has not ended was started.
    pub fn oldest(&self) -> Option<MonoMicros> {
        self.started.front().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_way_through_user_data() {
        let tokens = [
            Token::Disk(0),
            Token::Disk(u32::MAX),
            Token::Job(7),
            Token::Recv(1),
            Token::Send(2),
            Token::Accept,
            Token::Bell,
            Token::Rung,
            Token::Rang(9),
            Token::Ignore,
        ];
        for token in tokens {
            assert_eq!(Token::from_bits(token.to_bits()), token);
        }
    }

    #[test]
    fn the_oldest_operation_is_the_first_that_has_not_ended() {
        let mut ages = Ages::default();
        assert_eq!(ages.oldest(), None);
        let [first, second, third] = [10, 20, 30].map(|at| ages.start(MonoMicros(at)));
        ages.end(second);
        assert_eq!(ages.oldest(), Some(MonoMicros(10)));
        ages.end(first);
        assert_eq!(ages.oldest(), Some(MonoMicros(30)));
        let fourth = ages.start(MonoMicros(40));
        ages.end(third);
        assert_eq!(ages.oldest(), Some(MonoMicros(40)));
        ages.end(fourth);
        assert_eq!(ages.oldest(), None);
    }
}
