//! When a core syncs its writes: each by itself, or many under one flush.
//!
//! One of these per core and data directory. A lone write carries RWF_DSYNC (one trip); several go plain and one
//! fdatasync covers all that had completed when it was submitted. It counts; which bytes a flush covers is known by each
//! partition's appender.

/// What makes a completed write stable on this device and in this `flush.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWay {
    /// Its completion: the device has no volatile cache, or `flush.mode = written`.
    Completion,
    /// A sync: the device caches writes.
    Sync,
}

/// How one write is to be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// With RWF_DSYNC.
    pub sync: bool,
    /// Its completion alone makes it durable.
    pub durable: bool,
}

/// Counts of one core and data directory.
#[derive(Debug)]
pub struct GroupCommit {
    way: FlushWay,
    in_flight: u32,
    plain_in_flight: u32,
    unflushed: u32,
    flushing: bool,
}

impl GroupCommit {
    /// Nothing in flight.
    pub fn new(way: FlushWay) -> GroupCommit {
        GroupCommit { way, in_flight: 0, plain_in_flight: 0, unflushed: 0, flushing: false }
    }

    /// One write is about to be submitted, one of `in_turn` of this turn. Writes into `unwritten` extents always sync
    /// themselves: an fdatasync of another file would not commit their conversion.
    pub fn submit(&mut self, in_turn: usize, unwritten: bool) -> Submission {
        assert!(in_turn > 0, "a write is one of its turn's");
        let alone = in_turn == 1 && self.in_flight == 0 && self.unflushed == 0 && !self.flushing;
        let sync = unwritten || (self.way == FlushWay::Sync && alone);
        let durable = sync || self.way == FlushWay::Completion;
        self.in_flight += 1;
        self.plain_in_flight += u32::from(!durable);
        Submission { sync, durable }
    }

    /// A write submitted so has completed.
    pub fn on_written(&mut self, durable: bool) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a write completed that was not in flight");
        if !durable {
            self.plain_in_flight -= 1;
            self.unflushed += 1;
        }
    }

    /// Whether to submit a flush now. It waits while more writes are out than have come back, so that one flush covers
    /// the writes of one turn; the ones still out always come back, so that it never waits for ever.
    pub fn should_flush(&self) -> bool {
        !self.flushing && self.unflushed > 0 && self.unflushed >= self.plain_in_flight
    }

    /// A flush is being submitted; it covers all that had completed.
    pub fn on_flush_submitted(&mut self) {
        assert!(!self.flushing, "two flushes of one directory at a time");
        self.flushing = true;
        self.unflushed = 0;
    }

    /// It has completed.
    pub fn on_flushed(&mut self) {
        assert!(self.flushing, "a flush completed that was not in flight");
        self.flushing = false;
    }

    /// Whether anything is in flight or waits for a flush.
    pub fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.unflushed == 0 && !self.flushing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_write_syncs_itself_and_needs_no_flush() {
        let mut commit = GroupCommit::new(FlushWay::Sync);
        assert_eq!(commit.submit(1, false), Submission { sync: true, durable: true });
        commit.on_written(true);
        assert!(!commit.should_flush() && commit.is_quiet());
    }

    #[test]
    fn writes_of_one_turn_share_one_flush() {
        let mut commit = GroupCommit::new(FlushWay::Sync);
        for _ in 0..3 {
            assert_eq!(commit.submit(3, false), Submission { sync: false, durable: false });
        }
        commit.on_written(false);
        assert!(!commit.should_flush(), "two more are out");
        commit.on_written(false);
        commit.on_written(false);
        assert!(commit.should_flush());
        commit.on_flush_submitted();
        assert!(!commit.should_flush());
        commit.on_flushed();
        assert!(commit.is_quiet());
    }

    #[test]
    fn writes_that_complete_during_a_flush_wait_for_the_next_one() {
        let mut commit = GroupCommit::new(FlushWay::Sync);
        commit.submit(2, false);
        commit.submit(2, false);
        commit.on_written(false);
        commit.on_written(false);
        commit.on_flush_submitted();
        assert_eq!(commit.submit(1, false), Submission { sync: false, durable: false }, "a flush is in flight");
        commit.on_written(false);
        assert!(!commit.should_flush(), "one flush at a time");
        commit.on_flushed();
        assert!(commit.should_flush());
    }

    #[test]
    fn a_write_through_device_needs_neither() {
        let mut commit = GroupCommit::new(FlushWay::Completion);
        assert_eq!(commit.submit(2, false), Submission { sync: false, durable: true });
        assert_eq!(commit.submit(2, true), Submission { sync: true, durable: true }, "unwritten extents sync");
        commit.on_written(true);
        commit.on_written(true);
        assert!(!commit.should_flush() && commit.is_quiet());
    }
}
