//! What happened in a run: a hash of everything, and the last lines in words.

use std::collections::VecDeque;
use std::env;
use std::fmt::{self, Write};

/// Lines that are kept for a failure's report, unless `SIM_LINES` says otherwise.
const TAIL_LINES: usize = 120;

/// The record of one run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    count: u64,
    tail: VecDeque<String>,
    lines: usize,
    line: String,
}

impl Trace {
    /// Nothing has happened.
    pub fn new() -> Trace {
        let lines = env::var("SIM_LINES").map_or(TAIL_LINES, |lines| lines.parse().expect("a number"));
        Trace { hash: 0, count: 0, tail: VecDeque::new(), lines, line: String::new() }
    }

    /// Notes one event or action.
    pub fn note(&mut self, at: u64, what: fmt::Arguments<'_>) {
        self.line.clear();
        write!(self.line, "{at:>10} {what}").expect("a string takes all");
        self.hash = hash(self.hash, self.line.as_bytes());
        self.count += 1;
        let mut kept =
            if self.tail.len() < self.lines { String::new() } else { self.tail.pop_front().unwrap_or_default() };
        kept.clear();
        kept.push_str(&self.line);
        self.tail.push_back(kept);
    }

    /// Hash of all lines, and their count.
    pub fn digest(&self) -> (u64, u64) {
        (self.hash, self.count)
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        self.tail.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}

/// FNV-1a by words of eight, going on from `state`.
pub fn hash(state: u64, bytes: &[u8]) -> u64 {
    let mut hash = state ^ 0xcbf2_9ce4_8422_2325;
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        hash = (hash ^ u64::from_le_bytes(word.try_into().expect("8 bytes"))).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    }
    for byte in words.remainder() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ bytes.len() as u64
}
