use std::error::Error;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

#[derive(goldenscript::Command)]
enum Command {
    /// Records of the epoch begin here.
    Assign { epoch: i32, start: i64 },
    /// The log was cut.
    TruncateFromEnd { end: i64 },
    /// The log begins later.
    TruncateFromStart { start: i64 },
    /// Where an epoch ends, in a log that ends at 100.
    EndOf { epoch: i32 },
    /// A fetch by somebody whose last record has this epoch.
    Fetch {
        #[arg(key)]
        last_epoch: i32,
        #[arg(key)]
        from: i64,
    },
    /// The epoch of a record.
    EpochAt { offset: i64 },
    /// The file.
    Encode,
    /// Read a file.
    Decode { text: String },
}

#[derive(Default)]
struct Script(LeaderEpochs);

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        let changed = match command {
            Command::Assign { epoch, start } => self.0.assign(LeaderEpoch(*epoch), Offset(*start)),
            Command::TruncateFromEnd { end } => self.0.truncate_from_end(Offset(*end)),
            Command::TruncateFromStart { start } => self.0.truncate_from_start(Offset(*start)),
            Command::EndOf { epoch } => {
                let end = self.0.end_offset_for(LeaderEpoch(*epoch), Offset(100));
                let end = end.map_or("undefined".to_owned(), |(epoch, end)| format!("epoch {epoch} ends at {end}"));
                writeln!(out, "{end}")?;
                return Ok(out);
            }
            Command::EpochAt { offset } => {
                writeln!(out, "{:?}", self.0.epoch_of(Offset(*offset)))?;
                return Ok(out);
            }
            Command::Fetch { last_epoch, from } => {
                let divergence = self.0.divergence(LeaderEpoch(*last_epoch), Offset(*from), Offset(100));
                let divergence = match divergence {
                    Ok(None) => "agrees".to_owned(),
                    Ok(Some((epoch, end))) => format!("diverges: epoch {epoch} ends at {end}"),
                    Err(undefined) => format!("out of range: {undefined}"),
                };
                writeln!(out, "{divergence}")?;
                return Ok(out);
            }
            Command::Encode => return Ok(self.0.encode()),
            Command::Decode { text } => {
                let decoded = LeaderEpochs::decode(text.as_bytes());
                match decoded {
                    Ok(epochs) => self.0 = epochs,
                    Err(fault) => return Ok(format!("refused: {fault}\n")),
                }
                true
            }
        };
        let entries: Vec<_> = self.0.entries().iter().map(|(epoch, start)| format!("{epoch}@{start}")).collect();
        writeln!(out, "{}{}", entries.join(" "), if changed { "" } else { " (unchanged)" })?;
        Ok(out)
    }
}

fn run(script: &str) {
    let path = format!("{}/tests/golden/log/epochs/{script}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut Script::default(), path).expect("the script runs");
}

#[test]
fn an_epoch_without_data_is_replaced_by_the_next() {
    run("empty_epoch_is_replaced");
}

#[test]
fn truncation_keeps_the_epoch_that_holds_the_start() {
    run("truncation");
}

#[test]
fn the_end_of_an_epoch_is_where_the_next_one_begins() {
    run("end_of_epoch");
}

#[test]
fn a_reader_with_records_that_are_not_here_diverges() {
    run("divergence");
}

#[test]
fn the_file_is_kafkas() {
    run("checkpoint_file");
}

#[test]
#[should_panic(expected = "leader epochs out of order: [(LeaderEpoch(1), Offset(5)), (LeaderEpoch(1), Offset(9))]")]
fn entries_that_do_not_ascend_are_our_bug() {
    LeaderEpochs::recovered(&[(LeaderEpoch(1), Offset(5)), (LeaderEpoch(1), Offset(9))]);
}

/// The naive form: the epoch of each record from the log start on.
#[derive(Clone, Debug, Default)]
struct Naive {
    start: i64,
    records: Vec<i32>,
}

impl Naive {
    fn end(&self) -> i64 {
        self.start + self.records.len() as i64
    }

    fn entries(&self) -> Vec<(LeaderEpoch, Offset)> {
        let mut entries: Vec<(LeaderEpoch, Offset)> = Vec::new();
        for (offset, &epoch) in (self.start..).zip(&self.records) {
            if entries.last().is_none_or(|&(last, _)| last != LeaderEpoch(epoch)) {
                entries.push((LeaderEpoch(epoch), Offset(offset)));
            }
        }
        entries
    }

    /// By definition: the largest epoch at or below with records, and the first record of a higher one.
    fn end_offset_for(&self, epoch: i32) -> Option<(LeaderEpoch, Offset)> {
        let position = |index: usize| Offset(self.start + index as i64);
        if self.records.last() == Some(&epoch) {
            return Some((LeaderEpoch(epoch), Offset(self.end())));
        }
        let higher = self.records.iter().position(|&record| epoch < record).filter(|_| epoch >= 0)?;
        let floor = self.records[..higher].last().copied().unwrap_or(epoch);
        Some((LeaderEpoch(floor), position(higher)))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lead { epoch_plus: i32, records: usize },
    CutEnd(proptest::sample::Index),
    CutStart(proptest::sample::Index),
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<proptest::sample::Index>;
    let step = prop_oneof![
        4 => (0..3i32, 1..6usize).prop_map(|(epoch_plus, records)| Step::Lead { epoch_plus, records }),
        1 => index().prop_map(Step::CutEnd),
        1 => index().prop_map(Step::CutStart),
    ];
    proptest::collection::vec(step, 0..30)
}

proptest! {
    #[test]
    fn epochs_agree_with_the_records_themselves(steps in any_steps()) {
        let (mut epochs, mut naive) = (LeaderEpochs::default(), Naive::default());
        let mut newest = 0;
        for step in steps {
            match step {
                Step::Lead { epoch_plus, records } => {
                    newest += epoch_plus;
                    epochs.assign(LeaderEpoch(newest), Offset(naive.end()));
                    naive.records.extend(std::iter::repeat_n(newest, records));
                }
                Step::CutEnd(at) => {
                    naive.records.truncate(at.index(naive.records.len() + 1));
                    epochs.truncate_from_end(Offset(naive.end()));
                }
                Step::CutStart(at) => {
                    // At least one record stays: an empty log keeps its last epoch, the records cannot say so.
                    let cut = at.index(naive.records.len().max(1));
                    naive.records.drain(..cut);
                    naive.start += cut as i64;
                    epochs.truncate_from_start(Offset(naive.start));
                }
            }
            let entries = naive.entries();
            prop_assert_eq!(epochs.entries(), &entries[..]);
            for epoch in -1..newest + 2 {
                let end = epochs.end_offset_for(LeaderEpoch(epoch), Offset(naive.end()));
                prop_assert_eq!(end, naive.end_offset_for(epoch), "epoch {}", epoch);
            }
            for (offset, &epoch) in (naive.start..).zip(&naive.records) {
                prop_assert_eq!(epochs.epoch_of(Offset(offset)), Some(LeaderEpoch(epoch)));
            }
            let decoded = LeaderEpochs::decode(epochs.encode().as_bytes());
            prop_assert_eq!(decoded.as_ref(), Ok(&epochs));
        }
    }

    #[test]
    fn any_bytes_are_a_value_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "[0-9 \n]{0,40}") {
        for bytes in [&bytes[..], text.as_bytes()] {
            crate::kafka::fuzz::log_files(bytes);
            if let Ok(epochs) = LeaderEpochs::decode(bytes) {
                epochs.invariants();
            }
        }
    }
}
