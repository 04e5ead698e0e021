//! Endings for the operator: one exit status and one remedy per reason, printed where it happens.
//!
//! A [`Reason`] is for what somebody outside must change. A bug panics instead: the hook of [`install_panic_hook`] ends the
//! process with a status of 101 or above.

use std::fmt;
use std::io::Write;

/// Exit status of a panic.
pub const STATUS_BUG: u8 = 101;
/// Exit status when a thread makes no progress any more.
pub const STATUS_STUCK: u8 = 102;

/// Why the process ends. The numbers are those of design.md §10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 2: a flag or a setting.
    Settings(String),
    /// 10: the kernel, or io_uring.
    Kernel(String),
    /// 11: no O_DIRECT on this file system.
    NoDirectIo(String),
    /// 12: a port cannot be had.
    Port(String),
    /// 13: another process holds the data directory.
    Locked(String),
    /// 14: the data directory belongs to another node or cluster, or to a newer format.
    ForeignDir(String),
    /// 15: the disk is full.
    DiskFull(String),
    /// 16: the data directory is corrupt or has failed.
    DirFailed(String),
    /// 17: the metadata is lost.
    MetadataLost(String),
}

impl Reason {
    /// The exit status.
    pub fn status(&self) -> u8 {
        self.row().0
    }

    /// What cannot be done because of it.
    pub fn headline(&self) -> &'static str {
        self.row().1
    }

    /// The one thing to do about it.
    pub fn remedy(&self) -> &'static str {
        self.row().2
    }

    /// What was found, with names and numbers.
    pub fn text(&self) -> &str {
        match self {
            Reason::Settings(text)
            | Reason::Kernel(text)
            | Reason::NoDirectIo(text)
            | Reason::Port(text)
            | Reason::Locked(text)
            | Reason::ForeignDir(text)
            | Reason::DiskFull(text)
            | Reason::DirFailed(text)
            | Reason::MetadataLost(text) => text,
        }
    }

    fn row(&self) -> (u8, &'static str, &'static str) {
        match self {
            Reason::Settings(_) => (
                2,
                "cannot use these settings",
                "pinion serve --list-settings shows every setting with its unit, range and default",
            ),
            Reason::Kernel(_) => (
                10,
                "cannot run on this kernel",
                "use Linux 6.1 or newer with io_uring allowed (sysctl kernel.io_uring_disabled=0; in a container, a seccomp \
                 profile that permits it)",
            ),
            Reason::NoDirectIo(_) => (
                11,
                "cannot write here without the page cache",
                "put --data-dir on ext4 or XFS; tmpfs, overlayfs and most network file systems have no O_DIRECT",
            ),
            Reason::Port(_) => (
                12,
                "cannot listen",
                "stop the process that holds the port (ss -ltnp shows it), or choose another with --listen, \
                 --internal-listen or --http; port 0 takes a free one",
            ),
            Reason::Locked(_) => (
                13,
                "cannot lock the data directory",
                "stop the process that uses it, or give this one its own --data-dir",
            ),
            Reason::ForeignDir(_) => (
                14,
                "cannot use a data directory of somebody else",
                "start with the node id that it belongs to, or point --data-dir at an empty directory; a newer format needs \
                 the newer pinion that wrote it",
            ),
            Reason::DiskFull(_) => (
                15,
                "cannot go on, the disk is full",
                "free space on that file system, then start again; retention.ms and retention.bytes keep it free",
            ),
            Reason::DirFailed(_) => (
                16,
                "cannot trust the data directory",
                "look at the device (dmesg) and at the files (pinion log verify DIR); without this --data-dir the others \
                 can be served",
            ),
            Reason::MetadataLost(_) => {
                (17, "cannot find the metadata", "bring back .pinion/raft of the first --data-dir from a backup")
            }
        }
    }

    /// Prints the reason with its remedy on stderr, and ends the process with its status.
    pub fn end(&self) -> ! {
        // Nobody is left to tell when stderr is closed.
        let _ = writeln!(std::io::stderr().lock(), "{}", self.message());
        std::process::exit(i32::from(self.status()))
    }

    /// The lines that [`end`](Reason::end) prints.
    pub fn message(&self) -> String {
        format!("pinion: {}: {}\n  remedy: {}", self.headline(), self.text(), self.remedy())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Ends the process because of a bug that is not a panic, such as a thread that makes no progress.
pub fn end_as_bug(status: u8, what: &str) -> ! {
    assert!(status >= STATUS_BUG, "status {status} is an operator's");
    let _ = writeln!(std::io::stderr().lock(), "pinion: bug: {what}\n  remedy: {BUG_REMEDY}");
    std::process::exit(i32::from(status))
}

/// Makes every panic of any thread end the process with [`STATUS_BUG`] after one message.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let trace = std::backtrace::Backtrace::capture();
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "pinion: bug: thread {thread} {panic}\n  remedy: {BUG_REMEDY}");
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            let _ = writeln!(err, "{trace}");
        }
        std::process::exit(i32::from(STATUS_BUG))
    }));
}

const BUG_REMEDY: &str =
    "start it again, which recovers from the log, and report this message (with RUST_BACKTRACE=1 it says more)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_status_of_its_own_and_a_remedy() {
        let all = [
            Reason::Settings,
            Reason::Kernel,
            Reason::NoDirectIo,
            Reason::Port,
            Reason::Locked,
            Reason::ForeignDir,
            Reason::DiskFull,
            Reason::DirFailed,
            Reason::MetadataLost,
        ];
        let statuses: Vec<u8> = all.iter().map(|reason| reason(String::new()).status()).collect();
        assert_eq!(statuses, [2, 10, 11, 12, 13, 14, 15, 16, 17]);
    }

    #[test]
    fn the_message_says_what_why_and_what_to_do() {
        let reason = Reason::Port("127.0.0.1:9092 is in use".to_string());
        let message = reason.message();
        assert!(message.starts_with("pinion: cannot listen: 127.0.0.1:9092 is in use\n  remedy: stop the process"));
    }
}
