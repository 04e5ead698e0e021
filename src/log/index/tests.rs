use std::error::Error;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// A segment that grows by batches, with its index.
struct Script {
    base: Offset,
    index: SegmentIndex,
    batches: Vec<(BatchSpan, Offset)>,
    end: Offset,
    len: FilePos,
}

#[derive(goldenscript::Command)]
enum Command {
    /// A batch of `count` records and `bytes` bytes.
    Append {
        #[arg(key)]
        count: i64,
        #[arg(key)]
        bytes: u64,
        #[arg(key)]
        time: Option<i64>,
        /// How often.
        #[arg(key)]
        times: Option<u32>,
    },
    /// The segment takes no more appends.
    Seal,
    /// What is to be written, and where; from then on it is.
    Flush,
    /// Where to scan from for an offset.
    Offset { offset: i64 },
    /// Where to scan from for a timestamp.
    Time { timestamp: i64 },
    /// Cut the log.
    Truncate { end: i64 },
    /// Show all entries.
    Show,
}

impl Script {
    fn new() -> Script {
        let base = Offset(1000);
        Script { base, index: SegmentIndex::new(base, 4096), batches: Vec::new(), end: base, len: FilePos(0) }
    }

    fn append(&mut self, count: i64, bytes: u64, time: i64) {
        let first = self.end;
        let batch = BatchSpan { at: self.len, last_offset: first.plus(count - 1), max_timestamp: time };
        self.index.on_append(&batch);
        self.batches.push((batch, first));
        self.end = first.plus(count);
        self.len = self.len.plus(bytes);
    }

    fn truncate(&mut self, end: Offset) -> TruncatedIndex {
        let kept = self.batches.partition_point(|(batch, _)| batch.last_offset < end);
        if let Some((cut, first)) = self.batches.get(kept) {
            self.len = cut.at;
            self.end = *first;
        }
        self.batches.truncate(kept);
        let truncated = self.index.truncate(self.end);
        let replay = self.batches.iter().filter(|(batch, _)| truncated.replay_from <= batch.at);
        replay.for_each(|(batch, _)| self.index.on_append(batch));
        truncated
    }

    fn show(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        for (offset, at) in offset_entries(self.index.offsets.as_bytes(), self.base) {
            writeln!(out, "offset {offset} at {at}")?;
        }
        for (timestamp, offset) in time_entries(self.index.times.as_bytes(), self.base) {
            writeln!(out, "time {timestamp} at offset {offset}")?;
        }
        let (timestamp, offset) = self.index.times.max_timestamp();
        writeln!(out, "largest {timestamp} at offset {offset}; the log ends at {} byte {}", self.end, self.len)?;
        Ok(out)
    }
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match *command {
            Command::Append { count, bytes, time, times } => {
                (0..times.unwrap_or(1)).for_each(|_| self.append(count, bytes, time.unwrap_or(-1)));
            }
            Command::Seal => self.index.seal(),
            Command::Flush => {
                for (name, (at, bytes)) in
                    [("index", self.index.offsets.take_pending()), ("timeindex", self.index.times.take_pending())]
                {
                    writeln!(out, "{name} at {at}: {bytes:02x?}")?;
                }
            }
            Command::Offset { offset } => writeln!(out, "from byte {}", self.index.offsets.position(Offset(offset)))?,
            Command::Time { timestamp } => writeln!(out, "from offset {}", self.index.times.offset(timestamp))?,
            Command::Truncate { end } => {
                let truncated = self.truncate(Offset(end));
                let files = if truncated.files_stale { "the files go" } else { "the files stay" };
                writeln!(out, "replayed from byte {}; {files}", truncated.replay_from)?;
            }
            Command::Show => out = self.show()?,
        }
        Ok(out)
    }
}

fn run(script: &str) {
    let path = format!("{}/tests/golden/log/index/{script}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut Script::new(), path).expect("the script runs");
}

#[test]
fn an_entry_comes_when_more_than_the_interval_was_appended() {
    run("entry_per_interval");
}

#[test]
fn the_time_index_holds_the_largest_timestamp_so_far() {
    run("largest_timestamp_so_far");
}

#[test]
fn truncation_drops_entries_and_tells_when_the_files_must_go() {
    run("truncation");
}

#[test]
fn an_index_is_full_with_a_slot_held_back_for_the_last_time() {
    let mut index = SegmentIndex::new(Offset(0), 0);
    let batch = |i: usize| BatchSpan { at: FilePos(i as u64), last_offset: Offset(i as i64), max_timestamp: i as i64 };
    let mut appended = 0;
    while !index.is_full() {
        index.on_append(&batch(appended));
        appended += 1;
    }
    // The batch at position 0 gets no entry; times are the scarcer ones, at 12 bytes each.
    let entries = |index: &SegmentIndex| index.times.as_bytes().len() / TIME_ENTRY_BYTES;
    assert_eq!(entries(&index), TimeIndex::ENTRIES_MAX - 1);
    assert_eq!(appended, entries(&index) + 1);
    index.times.note(i64::MAX, Offset(appended as i64));
    index.seal();
    assert_eq!(entries(&index), TimeIndex::ENTRIES_MAX);
}

#[test]
fn check_cuts_preallocated_zeros_and_refuses_what_no_writer_makes() {
    let segment = SegmentBounds { base: Offset(100), end: Offset(200), len: 10_000 };
    let offset = |relative: u32, position: u32| [relative.to_be_bytes(), position.to_be_bytes()].concat();
    let good = [offset(5, 5000), offset(9, 9000)].concat();
    assert_eq!(check_offset_index(&good, segment), Ok(&good[..]));
    assert_eq!(check_offset_index(&[&good[..], &[0; 80]].concat(), segment), Ok(&good[..]));
    assert_eq!(check_offset_index(&[0; 80], segment), Ok(&[][..]), "created and never written");
    assert_eq!(check_offset_index(&good[..15], segment), Err(IndexFault::Length(15)));
    let order = [offset(9, 5000), offset(9, 9000)].concat();
    assert_eq!(check_offset_index(&order, segment), Err(IndexFault::Order(1)));
    assert_eq!(check_offset_index(&offset(5, 10_000), segment), Err(IndexFault::Range(0)));
    assert_eq!(check_offset_index(&offset(100, 5000), segment), Err(IndexFault::Range(0)));

    let time = |timestamp: i64, relative: u32| [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()].concat();
    let good = [time(0, 0), time(7, 3), time(8, 3)].concat();
    assert_eq!(check_time_index(&[&good[..], &[0; 120]].concat(), segment), Ok(&good[..]));
    assert_eq!(check_time_index(&[time(7, 3), time(7, 4)].concat(), segment), Err(IndexFault::Order(1)));
    assert_eq!(check_time_index(&[time(7, 3), time(8, 2)].concat(), segment), Err(IndexFault::Order(1)));
    assert_eq!(check_time_index(&time(-1, 0), segment), Err(IndexFault::Range(0)));
}

#[test]
#[should_panic(expected = "position 2147483648 does not fit an index entry")]
fn a_position_behind_two_gibibytes_is_our_bug() {
    OffsetIndex::new(Offset(0)).on_append(Offset(1), FilePos(1 << 31), 4096);
}

/// Batches of a segment: records, bytes, largest timestamp.
fn any_batches() -> impl Strategy<Value = Vec<(i64, u64, i64)>> {
    proptest::collection::vec((1..20i64, 61..9000u64, -1..60i64), 0..80)
}

fn filled(batches: &[(i64, u64, i64)]) -> Script {
    let mut script = Script::new();
    batches.iter().for_each(|&(count, bytes, time)| script.append(count, bytes, time));
    script
}

proptest! {
    #[test]
    fn a_scan_from_the_looked_up_position_finds_the_batch(batches in any_batches()) {
        let script = filled(&batches);
        for offset in script.base.0..script.end.0 {
            let from = script.index.offsets.position(Offset(offset));
            let found = script.batches.iter().find(|(batch, _)| from <= batch.at && Offset(offset) <= batch.last_offset);
            let right = script.batches.iter().find(|(batch, _)| Offset(offset) <= batch.last_offset);
            prop_assert_eq!(found, right, "offset {}", offset);
            let (right, _) = right.expect("the offset lies in the segment");
            // No more than the interval and the batch itself lie between.
            let next = script.batches.iter().map(|(batch, _)| batch.at).find(|&at| FilePos(from.0 + 4096) < at);
            prop_assert!(next.is_none_or(|next| right.at <= next), "offset {} scans too far", offset);
        }
    }

    #[test]
    fn a_scan_from_the_looked_up_time_finds_the_first_batch_that_is_new_enough(batches in any_batches()) {
        let mut script = filled(&batches);
        for seal in [false, true] {
            if seal {
                script.index.seal();
            }
            for timestamp in -1..61 {
                let from = script.index.times.offset(timestamp);
                let new_enough = |batch: &BatchSpan| timestamp <= batch.max_timestamp;
                let found = script.batches.iter().find(|(batch, _)| from <= batch.last_offset && new_enough(batch));
                let right = script.batches.iter().find(|(batch, _)| new_enough(batch));
                prop_assert_eq!(found, right, "timestamp {}", timestamp);
            }
        }
    }

    /// What kafka-dump-log checks (kafka-spec §2.8).
    #[test]
    fn dump_log_finds_nothing_wrong(batches in any_batches()) {
        let mut script = filled(&batches);
        script.index.seal();
        let (offsets, times) = (script.index.offsets.as_bytes(), script.index.times.as_bytes());
        let bounds = SegmentBounds { base: script.base, end: script.end, len: script.len.0 };
        prop_assert_eq!(check_offset_index(offsets, bounds), Ok(offsets));
        prop_assert_eq!(check_time_index(times, bounds), Ok(times));
        for (offset, at) in offset_entries(offsets, script.base) {
            let batch = script.batches.iter().find(|(batch, _)| batch.at == at);
            prop_assert_eq!(batch.map(|(batch, _)| batch.last_offset), Some(offset));
        }
        for (timestamp, offset) in time_entries(times, script.base) {
            let from = script.index.offsets.position(offset);
            let batch = script.batches.iter().find(|(batch, _)| from <= batch.at && offset <= batch.last_offset);
            let found = batch.map(|(batch, _)| (batch.max_timestamp, batch.last_offset));
            prop_assert_eq!(found, Some((timestamp, offset)));
        }
        let newest = script.batches.iter().map(|(batch, _)| batch.max_timestamp).max().unwrap_or(-1);
        let last = time_entries(times, script.base).last().map_or(-1, |(timestamp, _)| timestamp);
        prop_assert_eq!(last, newest, "the final entry holds the segment's largest timestamp");
    }

    /// A time entry may stay whose offset entry went: it is right all the same, only an entry more than a rebuild makes.
    #[test]
    fn a_cut_index_finds_what_the_index_of_the_cut_log_finds(
        batches in any_batches(), cut in any::<proptest::sample::Index>(),
    ) {
        let mut script = filled(&batches);
        let end = Offset(script.base.0 + cut.index((script.end.0 - script.base.0 + 1) as usize) as i64);
        script.truncate(end);
        let kept = script.batches.iter().map(|(batch, _)| *batch);
        let rebuilt = SegmentIndex::rebuild(script.base, 4096, kept);
        prop_assert_eq!(&script.index.offsets, &rebuilt.offsets);
        prop_assert_eq!(script.index.times.max_timestamp(), rebuilt.times.max_timestamp());
        let bounds = SegmentBounds { base: script.base, end: script.end, len: script.len.0 };
        prop_assert!(check_time_index(script.index.times.as_bytes(), bounds).is_ok());
        for timestamp in -1..61 {
            let first = |from: Offset| {
                script.batches.iter().find(|(batch, _)| from <= batch.last_offset && timestamp <= batch.max_timestamp)
            };
            prop_assert_eq!(first(script.index.times.offset(timestamp)), first(script.base), "timestamp {}", timestamp);
        }
    }

    #[test]
    fn a_recovered_index_goes_on_as_the_one_before(batches in any_batches(), more in any_batches()) {
        let mut script = filled(&batches);
        let offsets: Vec<_> = offset_entries(script.index.offsets.as_bytes(), script.base).collect();
        let times: Vec<_> = time_entries(script.index.times.as_bytes(), script.base).collect();
        let largest = script.index.times.max_timestamp();
        let mut before = filled(&batches);
        script.index = SegmentIndex::recovered(script.base, 4096, (&offsets, &times), largest);
        for (count, bytes, time) in more {
            script.append(count, bytes, time);
            before.append(count, bytes, time);
        }
        prop_assert_eq!(script.index, before.index);
    }

    #[test]
    fn lookups_and_checks_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), target in any::<i64>()) {
        let segment = SegmentBounds { base: Offset(7), end: Offset(1000), len: 1 << 20 };
        for base in [Offset(0), Offset(i64::MAX)] {
            let offset = lookup_offset(&bytes, base, Offset(target)).map(|(offset, _)| offset);
            prop_assert!(offset.is_none_or(|offset| base <= offset));
            let time = lookup_time(&bytes, base, target).map(|(_, offset)| offset);
            prop_assert!(time.is_none_or(|offset| base <= offset));
        }
        prop_assert!(check_offset_index(&bytes, segment).is_ok_and(|part| part.len() <= bytes.len())
            || check_offset_index(&bytes, segment).is_err());
        prop_assert!(check_time_index(&bytes, segment).is_ok_and(|part| part.len() <= bytes.len())
            || check_time_index(&bytes, segment).is_err());
    }
}
