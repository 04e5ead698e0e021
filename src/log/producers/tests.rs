use std::error::Error;
use std::fmt::Write as _;

use super::*;
use crate::log::producer_snapshot;

/// Drives the producers of one partition whose log grows by what is accepted.
#[derive(Default)]
struct Script {
    producers: Producers,
    end: Offset,
}

#[derive(goldenscript::Command)]
enum Command {
    /// A produced batch: check it, and record it when it may be appended.
    Append {
        #[arg(key)]
        id: i64,
        #[arg(key)]
        epoch: i16,
        #[arg(key)]
        seq: i32,
        #[arg(key)]
        count: Option<i32>,
        #[arg(key)]
        time: Option<i64>,
        #[arg(key, optional)]
        transactional: bool,
    },
    /// Records without a producer, only to move the end.
    Plain { count: i64 },
    /// A transaction marker met in the log.
    Marker {
        #[arg(key)]
        id: i64,
        #[arg(key)]
        epoch: i16,
        #[arg(key)]
        time: i64,
    },
    /// Cut the log.
    Truncate { end: i64 },
    /// Forget the silent ones.
    Expire { now: i64 },
    /// Write a snapshot and start from it.
    Reload,
    /// Show the state.
    Show,
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match *command {
            Command::Append { id, epoch, seq, count, time, transactional } => {
                let batch = facts(id, epoch, seq, count.unwrap_or(1), time.unwrap_or(0), transactional);
                let verdict = self.producers.check(&batch);
                if verdict == Verdict::Append {
                    self.producers.record(&batch, self.end);
                    let base = self.end;
                    self.end = base.plus(i64::from(batch.last_offset_delta) + 1);
                    writeln!(out, "appended at {base}")?;
                } else {
                    writeln!(out, "{}", show_verdict(verdict))?;
                }
            }
            Command::Plain { count } => self.end = self.end.plus(count),
            Command::Marker { id, epoch, time } => {
                self.producers.record_marker(&Marker {
                    producer_id: ProducerId(id),
                    producer_epoch: ProducerEpoch(epoch),
                    coordinator_epoch: 7,
                    offset: self.end,
                    timestamp: time,
                });
                self.end = self.end.plus(1);
            }
            Command::Truncate { end } => {
                let complete = self.producers.truncate(Offset(end));
                self.end = Offset(end);
                writeln!(out, "{}", if complete { "complete" } else { "must be loaded again" })?;
            }
            Command::Expire { now } => writeln!(out, "{} forgotten", self.producers.expire(WallMillis(now)))?,
            Command::Reload => {
                let bytes = producer_snapshot::encode(&self.producers);
                self.producers = producer_snapshot::decode(&bytes, self.end)?;
                writeln!(out, "{} bytes", bytes.len())?;
            }
            Command::Show => {
                for (id, producer) in &self.producers.by_id {
                    writeln!(out, "{}", show_producer(*id, producer)?)?;
                }
            }
        }
        Ok(out)
    }
}

fn show_verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Append => "append".to_owned(),
        Verdict::Duplicate { base_offset, last_offset, timestamp } => {
            format!("duplicate of {base_offset}..={last_offset} time={timestamp}")
        }
        Verdict::Refuse(code) => format!("refused {}", code.name().unwrap_or("?")),
    }
}

fn show_producer(id: ProducerId, producer: &Producer) -> Result<String, std::fmt::Error> {
    let mut line = format!("id={id} epoch={} time={}", producer.epoch, producer.last_timestamp);
    if let Some(start) = producer.txn_start {
        write!(line, " transaction from {start}")?;
    }
    for batch in producer.batches.as_slice() {
        write!(line, " [seq {}..={} at {}]", batch.first_sequence(), batch.last_sequence, batch.base_offset())?;
    }
    Ok(line)
}

fn facts(id: i64, epoch: i16, seq: i32, count: i32, time: i64, transactional: bool) -> BatchHeaderFacts {
    BatchHeaderFacts {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        base_sequence: seq,
        last_offset_delta: count - 1,
        max_timestamp: time,
        transactional,
        control: false,
    }
}

fn run(script: &str) {
    let path = format!("{}/tests/golden/log/producers/{script}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut Script::default(), path).expect("the script runs");
}

#[test]
fn a_retry_of_the_last_five_batches_lands_once() {
    run("retry_lands_once");
}

#[test]
fn a_gap_in_sequence_is_refused_until_it_is_filled() {
    run("gap_is_refused");
}

#[test]
fn sequences_wrap_to_zero() {
    run("sequence_wraps");
}

#[test]
fn a_new_epoch_starts_at_zero_and_fences_the_old_one() {
    run("new_epoch_fences");
}

#[test]
fn an_unknown_producer_may_start_anywhere() {
    run("unknown_producer");
}

#[test]
fn silent_producers_are_forgotten_after_a_day() {
    run("expiry");
}

#[test]
fn a_snapshot_keeps_the_last_batch_of_each_producer() {
    run("snapshot_keeps_last_batch");
}

#[test]
fn truncation_forgets_what_was_cut_and_says_when_that_is_not_enough() {
    run("truncation");
}

#[test]
fn a_marker_ends_the_transaction() {
    run("marker_ends_transaction");
}

#[test]
fn check_changes_nothing_before_record() {
    let mut producers = Producers::default();
    let batch = facts(1, 0, 0, 3, 0, false);
    assert_eq!(producers.check(&batch), Verdict::Append);
    assert_eq!(producers.check(&batch), Verdict::Append, "the append failed, so the retry is new");
    producers.record(&batch, Offset(0));
    assert!(matches!(producers.check(&batch), Verdict::Duplicate { .. }));
}

#[test]
fn one_producer_too_many_forgets_the_least_recent_ones() {
    let mut producers = Producers::default();
    for id in 0..PRODUCERS_PER_PARTITION_MAX as i64 {
        producers.record(&facts(id, 0, 0, 1, 0, false), Offset(id));
    }
    let full = PRODUCERS_PER_PARTITION_MAX as i64;
    producers.record(&facts(0, 0, 1, 1, 0, false), Offset(full));
    assert_eq!(producers.len(), PRODUCERS_PER_PARTITION_MAX, "a known producer needs no room");
    producers.record(&facts(full, 0, 0, 1, 0, false), Offset(full + 1));
    let forgotten = PRODUCERS_PER_PARTITION_MAX / FORGOTTEN_PART;
    assert_eq!(producers.len(), PRODUCERS_PER_PARTITION_MAX - forgotten + 1);
    let known = |id: i64| producers.by_id.contains_key(&ProducerId(id));
    assert!(known(0), "it has appended again since");
    assert!(!known(1) && !known(forgotten as i64) && known(forgotten as i64 + 1) && known(full));
}

#[test]
#[should_panic(expected = "producer's batch at 2 after one at 2")]
fn a_second_record_of_the_same_offset_is_our_bug() {
    let mut producers = Producers::default();
    producers.record(&facts(1, 0, 0, 3, 0, false), Offset(0));
    producers.record(&facts(1, 0, 3, 3, 0, false), Offset(2));
}
