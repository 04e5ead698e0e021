//! The main thread between start and end: it waits for signals and for what the threads report, and decides when the
//! process is over.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::fatal::Reason;
use crate::ids::BrokerEpoch;

/// What the main thread hears.
#[derive(Debug)]
pub enum Report {
    /// SIGTERM or SIGINT.
    Signal,
    /// Every partition that can be served is served.
    Ready,
    /// All threads have ended their work.
    Stopped {
        /// Every partition was flushed and sealed, under this incarnation; `None` when a directory had failed.
        clean: Option<BrokerEpoch>,
    },
    /// Something the operator must act on.
    Fatal(Reason),
}

/// How the process ends.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is on the device and sealed: the markers of a clean stop may be written.
    Clean(BrokerEpoch),
    /// In an orderly way, but the next start must recover.
    Unclean,
    /// A second signal came: at once.
    Hurried,
    /// The grace time was over.
    OutOfTime,
    /// For the operator.
    Fatal(Reason),
}

/// Sends a [`Report::Signal`] for each SIGTERM and SIGINT from now on.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn watch_signals(reports: Sender<Report>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for _ in signals.forever() {
            // The main thread is past caring when it no longer listens.
            let _ = reports.send(Report::Signal);
        }
    })?;
    Ok(())
}

/// Waits for the end. `ready` is called once, when the node serves; `stop` once, at the first signal.
pub fn supervise(reports: &Receiver<Report>, grace: Duration, ready: impl FnOnce(), stop: impl FnOnce()) -> End {
    let (mut ready, mut stop) = (Some(ready), Some(stop));
    let mut deadline: Option<Instant> = None;
    loop {
        let report = match deadline {
            None => reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => reports.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        match report {
            Ok(Report::Ready) => ready.take().into_iter().for_each(|ready| ready()),
            Ok(Report::Signal) => match stop.take() {
                Some(stop) => {
                    deadline = Some(Instant::now() + grace);
                    tracing::info!(
                        grace_s = grace.as_secs(),
                        "stopping: answer, flush, seal; a second signal leaves at once"
                    );
                    stop();
                }
                None => return End::Hurried,
            },
            Ok(Report::Stopped { clean }) => return clean.map_or(End::Unclean, End::Clean),
            Ok(Report::Fatal(reason)) => return End::Fatal(reason),
            Err(RecvTimeoutError::Timeout) => return End::OutOfTime,
            Err(RecvTimeoutError::Disconnected) => panic!("every thread ended without a word"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Runs the reports through; says how it ended, and how often `ready` and `stop` were called.
    fn run(reports: Vec<Report>, grace: Duration) -> (End, u32, u32) {
        let (sender, receiver) = channel();
        reports.into_iter().for_each(|report| sender.send(report).expect("received"));
        let (mut ready, mut stopped) = (0, 0);
        let end = supervise(&receiver, grace, || ready += 1, || stopped += 1);
        (end, ready, stopped)
    }

    #[test]
    fn a_signal_stops_in_an_orderly_way() {
        let reports = vec![Report::Ready, Report::Signal, Report::Stopped { clean: Some(BrokerEpoch(4)) }];
        assert_eq!(run(reports, LONG), (End::Clean(BrokerEpoch(4)), 1, 1));
        let reports = vec![Report::Ready, Report::Signal, Report::Stopped { clean: None }];
        assert_eq!(run(reports, LONG), (End::Unclean, 1, 1));
    }

    #[test]
    fn a_signal_before_the_node_is_ready_stops_it_too() {
        let reports = vec![Report::Signal, Report::Stopped { clean: Some(BrokerEpoch(0)) }];
        assert_eq!(run(reports, LONG), (End::Clean(BrokerEpoch(0)), 0, 1));
    }

    #[test]
    fn a_second_signal_leaves_at_once() {
        assert_eq!(run(vec![Report::Ready, Report::Signal, Report::Signal], LONG), (End::Hurried, 1, 1));
    }

    #[test]
    fn the_grace_time_ends_a_stop_that_hangs() {
        assert_eq!(run(vec![Report::Ready, Report::Signal], Duration::ZERO), (End::OutOfTime, 1, 1));
    }

    #[test]
    fn a_fatal_reason_ends_it_whatever_it_was_doing() {
        let reason = Reason::DirFailed("x".to_string());
        let (end, ..) = run(vec![Report::Signal, Report::Fatal(reason.clone())], LONG);
        assert_eq!(end, End::Fatal(reason));
    }

    #[test]
    fn signals_of_the_process_are_heard() {
        let (sender, receiver) = channel();
        watch_signals(sender).expect("installed");
        signal_hook::low_level::raise(SIGTERM).expect("raised");
        assert!(matches!(receiver.recv(), Ok(Report::Signal)));
    }
}
