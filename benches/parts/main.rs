//! The parts of the hot path one by one, each beside what the machine needs at least for the same bytes.
//!
//! ```text
//! cargo bench --bench parts -- [append|frame|index|mailbox|read-path…]
//! ```
//!
//! Without cargo's `--bench` (so under `cargo test`) everything runs a few times only and says nothing about speed.

mod append;
mod frame;
mod index;
mod mailbox;
mod read_path;

use std::time::Instant;

type Part = (&'static str, fn(&Clock));

const PARTS: &[Part] = &[
    ("append", append::run),
    ("frame", frame::run),
    ("index", index::run),
    ("mailbox", mailbox::run),
    ("read-path", read_path::run),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let clock = Clock { smoke: !arguments.iter().any(|argument| argument == "--bench") };
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    for (name, part) in PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        println!("{name}:");
        part(&clock);
    }
}

/// Times things.
pub struct Clock {
    /// Everything as small as possible.
    pub smoke: bool,
}

/// Rounds, of which the median counts.
const ROUNDS: usize = 7;

impl Clock {
    /// The smoke size or the full one.
    pub fn size<T>(&self, smoke: T, full: T) -> T {
        if self.smoke { smoke } else { full }
    }

    /// Nanoseconds that one call of `work` takes: the median of some rounds of `count` calls each.
    pub fn nanos(&self, count: usize, mut work: impl FnMut(usize)) -> f64 {
        let count = self.size(3, count);
        let mut round = || {
            let begun = Instant::now();
            (0..count).for_each(&mut work);
            begun.elapsed().as_secs_f64() * 1e9 / count as f64
        };
        round();
        let mut rounds: Vec<f64> = (0..self.size(1, ROUNDS)).map(|_| round()).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    }
}

/// Prints a figure beside its limit.
pub fn beside(what: &str, nanos: f64, limit: &str, limit_nanos: f64) {
    println!("  {what:<44} {nanos:>11.1} ns   {limit:<36} {limit_nanos:>11.1} ns   {:>6.2} x", nanos / limit_nanos);
}
