use std::error::Error;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;

/// A partition's segments, rolled before an append when they must be.
struct Script {
    segments: SegmentSet,
    config: TopicConfig,
    index_full: bool,
    now: WallMillis,
    end: Offset,
}

#[derive(goldenscript::Command)]
enum Command {
    /// `segment.bytes` and `segment.ms`.
    Config {
        #[arg(key)]
        bytes: u64,
        #[arg(key)]
        ms: u64,
    },
    /// A batch.
    Append {
        #[arg(key)]
        bytes: u64,
        #[arg(key)]
        time: Option<i64>,
        #[arg(key)]
        count: Option<i64>,
    },
    /// The clock.
    Now { ms: i64 },
    /// An index of the active segment is full.
    IndexFull,
    /// The oldest sealing segment has its exact length.
    Sealed { base: i64 },
    /// Delete the oldest.
    RemoveOldest { count: usize },
    /// Cut the log.
    RemoveFrom { end: i64 },
    /// Which segment holds an offset.
    Floor { offset: i64 },
    /// Show all.
    Show,
    /// The next growth step of an active file.
    Growth {
        #[arg(key)]
        end: u64,
        #[arg(key)]
        allocated: u64,
        #[arg(key)]
        rate: u64,
        #[arg(key)]
        waiting: Option<u64>,
        #[arg(key)]
        write: Option<u64>,
        #[arg(key, optional)]
        written_mode: bool,
    },
}

impl Script {
    fn new() -> Script {
        let mut segments = SegmentSet::default();
        segments.push(Segment::active(Offset(0), WallMillis(0), None));
        Script {
            segments,
            config: TopicConfig { segment_bytes: 1000, ..TopicConfig::default() },
            index_full: false,
            now: WallMillis(0),
            end: Offset(0),
        }
    }

    fn append(&mut self, bytes: u64, max_timestamp: i64, count: i64) -> Option<RollReason> {
        let batch = Incoming { bytes, last_offset: self.end.plus(count - 1), max_timestamp };
        let active = self.segments.active().expect("an active segment");
        let reason = roll_reason(active, &batch, self.index_full, self.now, &self.config);
        if reason.is_some() {
            self.segments.roll(self.now);
            self.segments.push(Segment::active(self.end, self.now, None));
            self.index_full = false;
        }
        self.end = self.end.plus(count);
        self.segments.active_mut().expect("an active segment").on_append(self.end, bytes, max_timestamp);
        self.segments.invariants();
        reason
    }
}

fn show(segment: &Segment) -> String {
    let Segment { base, end, len, first_timestamp, max_timestamp, state, .. } = segment;
    format!("{base}..{end} {len} bytes {state:?} times {first_timestamp}..={max_timestamp}")
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match *command {
            Command::Config { bytes, ms } => {
                self.config.segment_bytes = bytes;
                self.config.segment_ms = ms;
            }
            Command::Append { bytes, time, count } => {
                let reason = self.append(bytes, time.unwrap_or(-1), count.unwrap_or(1));
                writeln!(out, "{}", reason.map_or("appended".to_owned(), |reason| format!("rolled: {reason:?}")))?;
            }
            Command::Now { ms } => self.now = WallMillis(ms),
            Command::IndexFull => self.index_full = true,
            Command::Sealed { base } => self.segments.on_sealed(Offset(base)),
            Command::RemoveOldest { count } => {
                self.segments.remove_oldest(count).for_each(|removed| out.push_str(&(show(&removed) + "\n")));
            }
            Command::RemoveFrom { end } => {
                self.segments.remove_from(Offset(end)).for_each(|removed| out.push_str(&(show(&removed) + "\n")));
            }
            Command::Floor { offset } => {
                writeln!(out, "{}", self.segments.floor(Offset(offset)).map_or("none".to_owned(), show))?;
            }
            Command::Show => {
                self.segments.iter().for_each(|segment| out.push_str(&(show(segment) + "\n")));
                writeln!(out, "{} bytes", self.segments.bytes())?;
            }
            Command::Growth { end, allocated, rate, waiting, write, written_mode } => {
                let fill = FileFill { end: FilePos(end), allocated: FilePos(allocated), waiting: waiting.unwrap_or(0) };
                let unwritten = match written_mode {
                    true => UnwrittenExtents::Forbidden,
                    false => UnwrittenExtents::Allowed,
                };
                let (write_bytes, segment_bytes) = (write.unwrap_or(4096), self.config.segment_bytes);
                let rules = GrowthRules { bytes_per_s: rate, write_bytes, segment_bytes, unwritten };
                let growth = growth(&fill, &rules);
                let growth = growth.map_or("none".to_owned(), |g| format!("to {} {:?}", g.to, g.extents));
                writeln!(out, "{growth}")?;
            }
        }
        Ok(out)
    }
}

fn run(script: &str) {
    let path = format!("{}/tests/golden/log/segment/{script}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut Script::new(), path).expect("the script runs");
}

#[test]
fn a_segment_rolls_by_size_age_full_index_and_offset_range() {
    run("roll");
}

#[test]
fn an_offset_is_found_by_the_base_below_it() {
    run("floor_and_removal");
}

#[test]
fn a_file_grows_by_doubling_steps_before_it_is_needed() {
    run("growth");
}

#[test]
#[should_panic(expected = "1 segments to remove, 0 sealed")]
fn a_segment_that_is_not_sealed_is_never_removed() {
    let mut script = Script::new();
    script.append(600, 0, 1);
    script.append(600, 0, 1);
    drop(script.segments.remove_oldest(1));
}

#[test]
fn the_rate_settles_at_what_is_appended_and_decays_to_nothing() {
    let mut rate = AppendRate::default();
    for tick in 0..200 {
        rate.on_append(MonoMicros(tick * SECOND / 10), 1_000_000);
    }
    let settled = rate.bytes_per_s(MonoMicros(20 * SECOND));
    assert!((9_900_000..=10_000_000).contains(&settled), "{settled}");
    assert!(rate.bytes_per_s(MonoMicros(80 * SECOND)) < 200_000);
}

#[test]
fn the_mean_write_follows_the_latest_ones() {
    let mut mean = MeanWrite::default();
    (0..40).for_each(|_| mean.on_write(128 << 10));
    assert!((127 << 10..=128 << 10).contains(&mean.bytes()), "{}", mean.bytes());
    (0..40).for_each(|_| mean.on_write(4096));
    assert!((4096..=5120).contains(&mean.bytes()), "{}", mean.bytes());
}

#[test]
fn a_burst_counts_before_its_first_second_is_over() {
    let mut rate = AppendRate::default();
    rate.on_append(MonoMicros(5 * SECOND), 0);
    rate.on_append(MonoMicros(5 * SECOND + 1000), 50 << 20);
    assert_eq!(rate.bytes_per_s(MonoMicros(5 * SECOND + 2000)), 50 << 20);
}

proptest! {
    #[test]
    fn a_step_holds_what_waits_and_ends_on_a_block(
        end in 0..1u64 << 31, free in prop_oneof![Just(0), 0..1u64 << 20], waiting in 0..1u64 << 27, bytes_per_s in 0..1u64 << 34,
    ) {
        let fill = FileFill { end: FilePos(end), allocated: FilePos(end + free), waiting };
        let unwritten = UnwrittenExtents::Allowed;
        let rules = GrowthRules { bytes_per_s, write_bytes: 1 << 17, segment_bytes: 1 << 30, unwritten };
        let Some(growth) = growth(&fill, &rules) else {
            let needed = FilePos(end + waiting).align_up();
            prop_assert!(needed <= fill.allocated, "what waits does not fit and nothing grows");
            return Ok(());
        };
        prop_assert!(fill.allocated < growth.to && growth.to == growth.to.align_up());
        prop_assert!(end + waiting <= growth.to.0);
        let step = growth.to.0 - fill.allocated.0;
        prop_assert!(step <= GROWTH_BYTES_MAX.max((FilePos(end + waiting).align_up().0).saturating_sub(fill.allocated.0)));
    }
}
