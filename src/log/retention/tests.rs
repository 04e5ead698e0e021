use std::error::Error;
use std::fmt::Write as _;

use super::*;

/// A partition with segments as the script lists them.
struct Script {
    segments: SegmentSet,
    offsets: Offsets,
    config: TopicConfig,
}

#[derive(goldenscript::Command)]
enum Command {
    /// Adds a segment behind the others.
    Segment {
        base: i64,
        end: i64,
        #[arg(key)]
        bytes: u64,
        #[arg(key)]
        time: Option<i64>,
        #[arg(key)]
        touched: Option<i64>,
        #[arg(key)]
        state: Option<String>,
    },
    /// Sets log start and high watermark; the log ends where its last segment does.
    Offsets {
        #[arg(key)]
        log_start: i64,
        #[arg(key)]
        high_watermark: i64,
    },
    /// `retention.ms` and `retention.bytes`; not given is unlimited.
    Retention {
        #[arg(key)]
        ms: Option<u64>,
        #[arg(key)]
        bytes: Option<u64>,
    },
    /// Decide at a moment.
    Plan { now: i64 },
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match command {
            Command::Segment { base, end, bytes, time, touched, state } => {
                let touched = WallMillis(touched.unwrap_or(0));
                let mut segment = Segment::active(Offset(*base), touched, None);
                if base < end {
                    segment.on_append(Offset(*end), *bytes, time.unwrap_or(-1));
                }
                segment.state = match state.as_deref() {
                    Some("active") => SegmentState::Active,
                    Some("sealing") => SegmentState::Sealing,
                    _ => SegmentState::Sealed,
                };
                self.segments.push(segment);
            }
            Command::Offsets { log_start, high_watermark } => {
                let end = self.segments.iter().last().map_or(Offset(0), |segment| segment.end);
                self.offsets = Offsets::recovered(Offset(*log_start), Offset(*high_watermark), end);
            }
            Command::Retention { ms, bytes } => {
                self.config.retention_ms = *ms;
                self.config.retention_bytes = *bytes;
            }
            Command::Plan { now } => {
                let plan = plan(&self.segments, &self.offsets, WallMillis(*now), &self.config);
                for (base, breach) in &plan.delete {
                    writeln!(out, "delete {base} ({breach:?})")?;
                }
                if let Some(breach) = plan.roll_active {
                    writeln!(out, "roll the active segment ({breach:?})")?;
                }
                writeln!(out, "log start {}", plan.log_start)?;
            }
        }
        Ok(out)
    }
}

fn run(script: &str) {
    let path = format!("{}/tests/golden/log/retention/{script}", env!("CARGO_MANIFEST_DIR"));
    let config = TopicConfig { retention_ms: None, retention_bytes: None, ..TopicConfig::default() };
    let mut script = Script { segments: SegmentSet::default(), offsets: Offsets::default(), config };
    goldenscript::run(&mut script, path).expect("the script runs");
}

#[test]
fn old_segments_go_until_the_first_that_is_not() {
    run("by_time");
}

#[test]
fn the_oldest_segments_go_while_enough_is_left() {
    run("by_size");
}

#[test]
fn what_lies_below_the_log_start_goes() {
    run("by_log_start");
}

#[test]
fn nothing_at_or_above_the_high_watermark_goes() {
    run("high_watermark_holds");
}

#[test]
fn an_active_segment_over_the_limit_is_rolled_first() {
    run("active_is_rolled");
}
