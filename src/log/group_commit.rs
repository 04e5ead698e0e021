//! When a core syncs its writes: each by itself, or many under one flush.
//!
//! One of these per core and data directory. A lone write carries RWF_DSYNC (one trip); several go plain and one
//! fdatasync covers all that had completed when it was submitted. It counts; which bytes a flush covers is known by each
//! partition's appender.

use crate::log::segment::UnwrittenExtents;

/// What makes a completed write stable on this device and in this `flush.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWay {
    /// `flush.mode = written`: its completion, into extents that are written and synced already.
    Written,
    /// Its completion: the device has no volatile cache.
    Completion,
    /// A sync: the device caches writes.
    Sync,
}

impl FlushWay {
    /// Whether writes may go into unwritten extents and sync themselves. With `flush.mode = written` no write syncs.
    pub fn unwritten_extents(self) -> UnwrittenExtents {
        match self {
            FlushWay::Written => UnwrittenExtents::Forbidden,
            FlushWay::Completion | FlushWay::Sync => UnwrittenExtents::Allowed,
        }
    }
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

    /// What makes a write stable here.
    pub fn way(&self) -> FlushWay {
        self.way
    }

    /// One write is about to be submitted, one of `in_turn` of this turn. Writes into `unwritten` extents always sync
    /// themselves: an fdatasync of another file would not commit their conversion.
    pub fn submit(&mut self, in_turn: usize, unwritten: bool) -> Submission {
        assert!(in_turn > 0, "a write is one of its turn's");
        let alone = in_turn == 1 && self.in_flight == 0 && self.unflushed == 0 && !self.flushing;
        let sync = unwritten || (self.way == FlushWay::Sync && alone);
        let durable = sync || self.way != FlushWay::Sync;
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
    use std::error::Error;
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    struct Script(GroupCommit);

    #[derive(goldenscript::Command)]
    enum Command {
        /// So many writes of one turn are submitted.
        Turn {
            writes: usize,
            #[arg(key, optional)]
            unwritten: bool,
        },
        /// So many plain writes have completed, and one that is durable by itself.
        Written {
            plain: usize,
            #[arg(key, optional)]
            durable: bool,
        },
        /// The end of a turn: is a flush submitted?
        Flush,
        /// It has completed.
        Flushed,
    }

    impl goldenscript::Runner for Script {
        type Command = Command;

        fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
            let Script(commit) = self;
            let mut out = String::new();
            match *command {
                Command::Turn { writes, unwritten } => {
                    for _ in 0..writes {
                        let Submission { sync, durable } = commit.submit(writes, unwritten);
                        let how = if sync { "RWF_DSYNC" } else { "plain" };
                        writeln!(
                            out,
                            "{how}, {}",
                            if durable { "durable when it completes" } else { "to be flushed" }
                        )?;
                    }
                }
                Command::Written { plain, durable } => {
                    (0..plain).for_each(|_| commit.on_written(false));
                    (0..usize::from(durable)).for_each(|_| commit.on_written(true));
                }
                Command::Flush => {
                    let flush = commit.should_flush();
                    if flush {
                        commit.on_flush_submitted();
                    }
                    writeln!(out, "{}", if flush { "flush" } else { "no flush" })?;
                }
                Command::Flushed => commit.on_flushed(),
            }
            if commit.is_quiet() {
                writeln!(out, "quiet")?;
            }
            Ok(out)
        }
    }

    fn run(script: &str, way: FlushWay) {
        let path = format!("{}/tests/golden/log/group_commit/{script}", env!("CARGO_MANIFEST_DIR"));
        goldenscript::run(&mut Script(GroupCommit::new(way)), path).expect("the script runs");
    }

    #[test]
    fn a_lone_write_syncs_itself_and_needs_no_flush() {
        run("lone_write", FlushWay::Sync);
    }

    #[test]
    fn writes_of_one_turn_share_one_flush() {
        run("shared_flush", FlushWay::Sync);
    }

    #[test]
    fn writes_that_complete_during_a_flush_wait_for_the_next_one() {
        run("one_flush_at_a_time", FlushWay::Sync);
    }

    #[test]
    fn writes_into_unwritten_extents_sync_themselves() {
        run("unwritten_extents", FlushWay::Sync);
    }

    #[test]
    fn a_write_through_device_needs_neither() {
        run("write_through", FlushWay::Completion);
    }

    proptest! {
        /// Whatever comes when: once nothing more is submitted, the last flush leaves nothing behind.
        #[test]
        fn every_plain_write_is_flushed_in_the_end(
            turns in proptest::collection::vec((0usize..4, any::<bool>(), any::<bool>()), 1..40)
        ) {
            let mut commit = GroupCommit::new(FlushWay::Sync);
            let (mut out, mut flushing) = (Vec::new(), false);
            let mut turns = turns.into_iter();
            loop {
                let next = turns.next();
                let (writes, completes, flushed) = next.unwrap_or((0, true, true));
                out.extend((0..writes).map(|_| commit.submit(writes, false).durable));
                if completes && !out.is_empty() {
                    commit.on_written(out.remove(0));
                }
                if flushing && flushed {
                    flushing = false;
                    commit.on_flushed();
                }
                if commit.should_flush() {
                    flushing = true;
                    commit.on_flush_submitted();
                }
                if next.is_none() && out.is_empty() && !flushing {
                    break;
                }
            }
            prop_assert!(commit.is_quiet(), "{:?}", commit);
        }
    }
}
