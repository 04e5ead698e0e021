//! Answers that promise durability, held until the promise is true.
//!
//! The only way out for an acknowledgement of acks=1 and acks=all: it is put here under the offset that must be stable
//! (or committed), and comes out of `release` when that offset is. An early send has no way into this queue, and a
//! promise has no other way out.

use std::collections::VecDeque;

use crate::ids::Offset;
use crate::replica::high_watermark::InSync;

/// An answer under the offset it waits for.
#[derive(Debug)]
struct Held<T> {
    upto: Offset,
    answer: T,
}

/// How a held answer comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The promise is true.
    Kept,
    /// Written and committed, but by fewer replicas than acks=all asks for.
    TooFewReplicas,
}

/// The waiting answers of one partition, in the order of their appends.
#[derive(Debug)]
pub struct Acks<T> {
    /// acks=1: wait for the leader's stable offset.
    leader: VecDeque<Held<T>>,
    /// acks=all: wait for the high watermark.
    all: VecDeque<Held<T>>,
}

impl<T> Default for Acks<T> {
    fn default() -> Acks<T> {
        Acks { leader: VecDeque::new(), all: VecDeque::new() }
    }
}

impl<T> Acks<T> {
    /// Holds an answer until everything below `upto` is stable on the leader.
    pub fn hold_for_stable(&mut self, upto: Offset, answer: T) {
        self.leader.push_back(Held { upto, answer });
    }

    /// Holds an answer until everything below `upto` is committed.
    pub fn hold_for_commit(&mut self, upto: Offset, answer: T) {
        self.all.push_back(Held { upto, answer });
    }

    /// Lets out what has become true, each queue in its order. A duplicate waits for an older offset than its
    /// predecessor; it comes out right behind it.
    pub fn release(
        &mut self,
        stable: Offset,
        high_watermark: Offset,
        in_sync: InSync,
        mut out: impl FnMut(T, Release),
    ) {
        assert!(high_watermark <= stable, "high watermark {high_watermark} > stable {stable}");
        while let Some(held) = self.leader.pop_front_if(|held| held.upto <= stable) {
            out(held.answer, Release::Kept);
        }
        while let Some(held) = self.all.pop_front_if(|held| held.upto <= high_watermark) {
            out(held.answer, if in_sync.is_enough() { Release::Kept } else { Release::TooFewReplicas });
        }
    }

    /// Lets everything out, unkept: leadership or the disk is gone.
    pub fn fail_all(&mut self, mut out: impl FnMut(T)) {
        self.leader.drain(..).chain(self.all.drain(..)).for_each(|held| out(held.answer));
    }

    /// How many answers wait.
    pub fn len(&self) -> usize {
        self.leader.len() + self.all.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: InSync = InSync { count: 1, min: 1 };

    fn released(acks: &mut Acks<&'static str>, stable: i64, high_watermark: i64) -> Vec<(&'static str, Release)> {
        let mut out = Vec::new();
        acks.release(Offset(stable), Offset(high_watermark), ENOUGH, |answer, how| out.push((answer, how)));
        out
    }

    #[test]
    fn acks_1_waits_for_stable_and_acks_all_for_the_commit() {
        let mut acks = Acks::default();
        acks.hold_for_stable(Offset(5), "one");
        acks.hold_for_commit(Offset(5), "all");
        assert_eq!(released(&mut acks, 4, 4), []);
        assert_eq!(released(&mut acks, 5, 4), [("one", Release::Kept)]);
        assert_eq!(released(&mut acks, 5, 5), [("all", Release::Kept)]);
        assert!(acks.is_empty());
    }

    #[test]
    fn a_duplicate_comes_out_behind_what_was_held_before_it() {
        let mut acks = Acks::default();
        acks.hold_for_commit(Offset(8), "new");
        acks.hold_for_commit(Offset(3), "duplicate of an older one");
        assert_eq!(released(&mut acks, 5, 5), []);
        assert_eq!(released(&mut acks, 8, 8).len(), 2);
    }

    #[test]
    fn acks_all_with_too_few_replicas_says_so_after_the_append() {
        let mut acks = Acks::default();
        acks.hold_for_commit(Offset(1), "all");
        let mut out = Vec::new();
        let too_few = InSync { count: 1, min: 2 };
        acks.release(Offset(1), Offset(1), too_few, |answer, how| out.push((answer, how)));
        assert_eq!(out, [("all", Release::TooFewReplicas)]);
    }

    #[test]
    fn a_lost_leadership_fails_all_that_wait() {
        let mut acks = Acks::default();
        acks.hold_for_stable(Offset(5), "one");
        acks.hold_for_commit(Offset(5), "all");
        let mut out = Vec::new();
        acks.fail_all(|answer| out.push(answer));
        assert_eq!(out, ["one", "all"]);
        assert!(acks.is_empty());
    }
}
