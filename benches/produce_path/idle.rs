//! A broker that nobody uses: how soon it answers, what memory and CPU it takes.

use std::time::{Duration, Instant};

use crate::Run;
use crate::figures::{Target, fact, figure, median};
use crate::node::Node;
use crate::wire::Wire;

pub fn run(run: &Run) {
    let dir = run.dir.join("idle");
    let starts = (0..run.size(1, 5)).map(|_| {
        let node = Node::start(&dir, &[]);
        let took = node.started_in.as_secs_f64() * 1e3;
        node.kill();
        took
    });
    let again = median(starts.collect());
    figure("start to first answer, after a kill", again, "ms", Target::AtMost(200.0));
    let node = Node::start(&run.dir.join("idle-fresh"), &[]);
    let fresh = node.started_in.as_secs_f64() * 1e3;
    figure("start to first answer, empty directory", fresh, "ms", Target::AtMost(200.0));
    let connections: Vec<Wire> = (0..10).map(|_| Wire::connect(&node.kafka)).collect();
    std::thread::sleep(Duration::from_millis(run.size(100, 2_000)));
    let (cpu, begun) = (node.cpu_seconds(), Instant::now());
    std::thread::sleep(Duration::from_millis(run.size(200, 20_000)));
    let share = (node.cpu_seconds() - cpu) / begun.elapsed().as_secs_f64() * 100.0;
    fact("idle connections", connections.len() as f64, "");
    figure("CPU while idle", share, "%", Target::AtMost(0.1));
    figure("resident memory", node.rss_bytes() / f64::from(1 << 20), "MiB", Target::AtMost(64.0));
    std::fs::remove_dir_all(&dir).expect("it was made here");
}
