//! The simulator: one node with its disk, network and clients in one thread under a seed. It runs the production
//! `Shard::handle`; only the loop around it and the kernel below it are replaced.
//!
//! `SIM_SEEDS` (300) is how many seeds run, over all tests; `SIM_FIRST_SEED` (0) is the first of each. A failure names
//! its seed and ends with the last events and actions.

#[path = "sim/checks.rs"]
mod checks;
#[path = "sim/cluster.rs"]
mod cluster;
#[path = "sim/complete.rs"]
mod complete;
#[path = "sim/disk.rs"]
mod disk;
#[path = "sim/happen.rs"]
mod happen;
#[path = "sim/network.rs"]
mod network;
#[path = "sim/node.rs"]
mod node;
#[path = "sim/plan.rs"]
mod plan;
#[path = "sim/restart.rs"]
mod restart;
#[path = "sim/rng.rs"]
mod rng;
#[path = "sim/run.rs"]
mod run;
#[path = "sim/trace.rs"]
mod trace;
#[path = "sim/workload.rs"]
mod workload;

use plan::Emphasis;
use run::{Broken, check_seeds, run_seed};

#[test]
fn nothing_acknowledged_is_lost_in_crashes() {
    check_seeds(Emphasis::Crashes);
}

#[test]
fn cores_serve_each_others_partitions() {
    check_seeds(Emphasis::Cores);
}

#[test]
fn full_memory_pushes_back_and_lets_go() {
    check_seeds(Emphasis::Memory);
}

#[test]
fn failing_and_full_disks_break_no_promise() {
    check_seeds(Emphasis::Disks);
}

#[test]
fn a_disk_that_does_not_sync_is_caught() {
    let caught = (0..20).filter(|seed| run_seed(Emphasis::Crashes, *seed, Broken::DiskLies).is_err()).count();
    assert!(caught >= 5, "{caught} of 20 seeds saw that the disk lies");
}
