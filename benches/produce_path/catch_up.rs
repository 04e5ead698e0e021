//! A consumer that reads cold sealed segments: beside plain sendfile of cold files; and what a producer on the same core
//! notices of it, beside what it notices of the plain sendfile, which shares only the device with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::Run;
use crate::figures::{MB, Samples, Target, fact, figure, median};
use crate::load::{Load, paced};
use crate::loopback::{make_cold, sendfile_of};
use crate::node::Node;
use crate::wire::{Reading, Wire};

const LOAD: Load = Load { connections: 4, window: 4, partitions: 4, records: 125, record_bytes: 1024 };
/// Records per second of the producer beside it.
const PER_SECOND: f64 = 500.0;

pub fn run(run: &Run) {
    let node = Node::start(&run.dir.join("catch-up"), &["arena.bytes=64MiB", "log.segment.bytes=64MiB"]);
    let mut wire = Wire::connect(&node.kafka);
    let (old, live) = (wire.create_topic("old", 4), wire.create_topic("live", 1));
    LOAD.produce(&node, &old, run.size(8 << 20, 2 << 30));
    let never = AtomicBool::new(false);
    let alone = paced(&node, &live, 1, PER_SECOND, run.size(50, 5_000), &never);
    let (mut rates, mut plain) = (Vec::new(), Vec::new());
    let (mut beside, mut beside_plain) = (Samples::default(), Samples::default());
    for _ in 0..run.size(1, 3) {
        let files = node.logs();
        make_cold(&files);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (node, live, over) = (&node, &live, &over);
            let producer = scope.spawn(move || paced(node, live, 1, PER_SECOND, usize::MAX, over));
            plain.push(sendfile_of(&files).0);
            over.store(true, Ordering::Relaxed);
            beside_plain.append(producer.join().expect("it only produces"));
        });
        make_cold(&files);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (node, live, over) = (&node, &live, &over);
            let producer = scope.spawn(move || paced(node, live, 1, PER_SECOND, usize::MAX, over));
            let (mut reading, mut bytes, begun) = (Reading::new(&old, 4), 0, Instant::now());
            loop {
                match reading.fetch(&mut wire) {
                    0 => break,
                    more => bytes += more,
                }
            }
            rates.push(bytes as f64 / begun.elapsed().as_secs_f64());
            over.store(true, Ordering::Relaxed);
            beside.append(producer.join().expect("it only produces"));
        });
    }
    let (rate, plain) = (median(rates), median(plain));
    fact("plain sendfile of cold files", plain / MB, "MB/s");
    fact("cold catch-up read", rate / MB, "MB/s");
    figure("cold catch-up / plain sendfile", rate / plain, "x", Target::AtLeast(0.8));
    let (alone, beside) = (alone.quantile_us(0.99), beside.quantile_us(0.99));
    fact("produce p99 alone", alone, "us");
    fact("produce p99 while another process reads by plain sendfile", beside_plain.quantile_us(0.99), "us");
    fact("produce p99 beside the catch-up", beside, "us");
    figure("produce p99 beside the catch-up / alone", beside / alone, "x", Target::AtMost(1.5));
}
