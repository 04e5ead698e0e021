//! What a core must not forget to do later. Entries are never cancelled: one that fires for something gone is ignored.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{MonoMicros, Ticket};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A parked fetch has waited `max_wait_ms`.
    FetchWait(Ticket),
    /// Look for acks=all requests past their `timeout_ms`.
    ProduceTimeouts,
    /// Write checkpoints and pending index entries.
    Checkpoint,
    /// Apply retention, roll by age, expire producers.
    Retention,
    /// Close idle connections, give unused memory back.
    Idle,
    /// Remove what was renamed `-delete` its delay ago.
    Removals,
    /// Read the next piece of a segment whose index is lost.
    Rebuild,
    /// Try again to create or grow files that found the disk full.
    Space,
}

/// Timers by due time; equal times fire in the order they were set.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(MonoMicros, u64, Timer)>>,
    set: u64,
}

impl Timers {
    /// Sets a timer.
    pub fn set(&mut self, due: MonoMicros, timer: Timer) {
        self.set += 1;
        self.heap.push(Reverse((due, self.set, timer)));
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<MonoMicros> {
        self.heap.peek().map(|Reverse((due, _, _))| *due)
    }

    /// Takes the next one that is due by `now`.
    pub fn pop_due(&mut self, now: MonoMicros) -> Option<Timer> {
        let due = self.next_due()?;
        if now < due {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, timer))| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_time_order_and_then_in_the_order_they_were_set() {
        let mut timers = Timers::default();
        timers.set(MonoMicros(20), Timer::Retention);
        timers.set(MonoMicros(10), Timer::Idle);
        timers.set(MonoMicros(20), Timer::Checkpoint);
        assert_eq!(timers.pop_due(MonoMicros(9)), None);
        assert_eq!(timers.pop_due(MonoMicros(20)), Some(Timer::Idle));
        assert_eq!(timers.pop_due(MonoMicros(20)), Some(Timer::Retention));
        assert_eq!(timers.pop_due(MonoMicros(20)), Some(Timer::Checkpoint));
        assert_eq!(timers.next_due(), None);
    }
}
