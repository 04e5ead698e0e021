//! What a broker's process spends per 10^9 bytes: produced, and consumed from the tail, from cached and from cold sealed
//! segments. Records of 1 KiB in batches of 128 KiB, acks=1, uncompressed.

use crate::Run;
use crate::figures::{GB, MB, Target, fact, figure};
use crate::load::Load;
use crate::loopback::{make_cold, receive_limit, send_limit};
use crate::node::Node;
use crate::wire::{Reading, Topic, Wire};

const LOAD: Load = Load { connections: 4, window: 4, partitions: 4, records: 125, record_bytes: 1024 };

pub fn run(run: &Run) {
    let bytes = run.size(16 << 20, 2 << 30);
    fact("limit: CPU per GB that a thread only receives", GB / receive_limit(bytes / 2).1, "s");
    fact("limit: CPU per GB that a thread only sends, copying", send_limit(bytes / 2), "s");
    sealed(run, bytes);
    tail(run, bytes / 4);
}

fn sealed(run: &Run, bytes: u64) {
    let settings = ["arena.bytes=64MiB", "log.segment.bytes=64MiB"];
    let node = Node::start(&run.dir.join("cpu"), &settings);
    let topic = Wire::connect(&node.kafka).create_topic("cpu", 4);
    LOAD.produce(&node, &topic, bytes / 4);
    let spent = spent_per_gb(&node, || {
        LOAD.produce(&node, &topic, bytes / 4 * 3);
        0.75 * bytes as f64
    });
    figure("broker CPU per GB produced", spent, "s", Target::AtMost(0.7));
    let files = node.logs();
    make_cold(&files);
    let cold = spent_per_gb(&node, || read_all(&node, &topic));
    figure("broker CPU per GB consumed, cold sealed segments", cold, "s", Target::AtMost(0.35));
    let cached = spent_per_gb(&node, || read_all(&node, &topic));
    figure("broker CPU per GB consumed, cached sealed segments", cached, "s", Target::AtMost(0.15));
}

fn tail(run: &Run, bytes: u64) {
    let node = Node::start(&run.dir.join("cpu-tail"), &["arena.bytes=1GiB"]);
    let topic = Wire::connect(&node.kafka).create_topic("cpu", 4);
    LOAD.produce(&node, &topic, bytes);
    let reads = node.metric("pinion_cold_reads_total");
    let tail = spent_per_gb(&node, || (0..4).map(|_| read_all(&node, &topic)).sum());
    assert_eq!(node.metric("pinion_cold_reads_total"), reads, "all of it is in memory");
    figure("broker CPU per GB consumed, tail", tail, "s", Target::AtMost(0.3));
}

/// CPU seconds per 10^9 of the bytes that `work` says it moved.
fn spent_per_gb(node: &Node, work: impl FnOnce() -> f64) -> f64 {
    let (before, begun) = (node.cpu_seconds(), std::time::Instant::now());
    let bytes = work();
    fact("moved", bytes / MB / begun.elapsed().as_secs_f64(), "MB/s");
    (node.cpu_seconds() - before) / (bytes / GB)
}

fn read_all(node: &Node, topic: &Topic) -> f64 {
    let (mut wire, mut reading, mut bytes) = (Wire::connect(&node.kafka), Reading::new(topic, 4), 0);
    loop {
        match reading.fetch(&mut wire) {
            0 => return bytes as f64,
            more => bytes += more,
        }
    }
}
