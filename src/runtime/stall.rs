//! Watches the data cores (design §2 *Stall*): a core that is not asleep and makes no turn is stuck, and a process with a
//! stuck core ends itself, so that somebody else can serve its partitions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::io::clock;
use crate::runtime::pulse::Pulse;

/// How often the cores are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// A watcher that was itself late by more than this was stopped with the whole process, and starts its counts anew.
const LATE_US: u64 = 500_000;
/// A core without a turn for so long ends the process.
const STUCK_MS: u64 = 10_000;

/// Starts the watching thread. `patience_ms` is the time after which a standing core is named in the log.
///
/// # Errors
/// When the thread cannot be had.
pub fn start(pulses: Vec<Arc<Pulse>>, patience_ms: u64) -> io::Result<()> {
    let watch = move || {
        let mut seen: Vec<(u64, u64)> = pulses.iter().map(|pulse| (pulse.turns(), 0)).collect();
        let mut last = clock::mono();
        loop {
            std::thread::park_timeout(EVERY);
            let now = clock::mono();
            let late = now.micros_since(last) > EVERY.as_micros() as u64 + LATE_US;
            let passed_ms = now.micros_since(last) / 1000;
            last = now;
            for (core, (pulse, (turns, still_ms))) in pulses.iter().zip(&mut seen).enumerate() {
                let moved = pulse.turns() != *turns || pulse.is_asleep();
                *turns = pulse.turns();
                let before = *still_ms;
                *still_ms = if moved || late { 0 } else { before + passed_ms };
                if before < patience_ms && patience_ms <= *still_ms {
                    tracing::error!(core, still_ms, "a data core makes no turn");
                }
                assert!(*still_ms < STUCK_MS, "data core {core} is stuck for {still_ms} ms");
            }
        }
    };
    std::thread::Builder::new().name("stall".to_owned()).spawn(watch).map(drop)
}
