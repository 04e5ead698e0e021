//! How often a broken or hostile peer may write into the log: some lines per address and minute, then a count.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::ids::MonoMicros;

/// Lines per address and window before silence.
const LINES_MAX: u32 = 5;
/// Length of a window.
const WINDOW_MICROS: u64 = 60_000_000;
/// Addresses that are counted on their own; while more misbehave at once, the others are silent.
const ADDRESSES_MAX: usize = 256;

/// Decides which lines about peers are written.
#[derive(Debug, Default)]
pub struct Quiet {
    addresses: BTreeMap<IpAddr, Window>,
    suppressed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: MonoMicros,
    lines: u32,
    suppressed: u64,
}

/// What to do about one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Write it; so many earlier lines about this address were left out.
    Write {
        /// Lines left out since the last one written.
        suppressed_before: u64,
    },
    /// Leave it out.
    Suppress,
}

impl Quiet {
    /// Decides about one line about `peer`. O(log addresses), and now and then O(addresses).
    pub fn line(&mut self, now: MonoMicros, peer: IpAddr) -> Line {
        if !self.addresses.contains_key(&peer) && self.addresses.len() >= ADDRESSES_MAX {
            self.addresses.retain(|_, window| now.micros_since(window.since) < WINDOW_MICROS);
            if self.addresses.len() >= ADDRESSES_MAX {
                self.suppressed += 1;
                return Line::Suppress;
            }
        }
        let window = self.addresses.entry(peer).or_insert(Window { since: now, lines: 0, suppressed: 0 });
        if now.micros_since(window.since) >= WINDOW_MICROS {
            *window = Window { since: now, lines: 0, suppressed: window.suppressed };
        }
        if window.lines >= LINES_MAX {
            window.suppressed += 1;
            self.suppressed += 1;
            return Line::Suppress;
        }
        window.lines += 1;
        Line::Write { suppressed_before: std::mem::take(&mut window.suppressed) }
    }

    /// Lines left out so far, for `/metrics`.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Line = Line::Write { suppressed_before: 0 };

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[test]
    fn a_noisy_address_falls_silent_and_says_later_what_was_left_out() {
        let (mut quiet, start) = (Quiet::default(), MonoMicros(7));
        for _ in 0..LINES_MAX {
            assert_eq!(quiet.line(start, address(1)), WRITE);
        }
        assert_eq!(quiet.line(start, address(1)), Line::Suppress);
        assert_eq!(quiet.line(start, address(1)), Line::Suppress);
        assert_eq!(quiet.line(start, address(2)), WRITE, "others are not silenced");
        let later = start.plus_micros(WINDOW_MICROS);
        assert_eq!(quiet.line(later, address(1)), Line::Write { suppressed_before: 2 });
        assert_eq!(quiet.line(later, address(1)), WRITE);
        assert_eq!(quiet.suppressed(), 2);
    }

    #[test]
    fn more_addresses_than_the_table_holds_do_not_make_it_grow() {
        let mut quiet = Quiet::default();
        for n in 0..10_000 {
            quiet.line(MonoMicros(0), address(n));
        }
        assert_eq!(quiet.addresses.len(), ADDRESSES_MAX);
        assert_eq!(quiet.line(MonoMicros(WINDOW_MICROS), address(10_001)), WRITE, "old windows make room");
    }
}
