//! The real process on a real file system, as its users and its operator meet it.
//!
//! Every wait here is for something that must come, and gives up after [`PATIENCE`]; how long it took is not judged.

mod bad_clients;
mod crash;
mod crowd;
mod disks;
mod front_door;
mod indexes;
mod process;
mod requests;
mod small_disk;

use std::path::Path;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for one test. Not in /tmp, which may be a tmpfs, where there is no O_DIRECT.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a directory")
}

/// Asks again until the answer is yes.
fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ask() {
        assert!(started.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
