//! One producer, one request of one 1 KiB record in flight, acks=1, synced: beside a DSYNC write plus a ping-pong.

use std::time::Instant;

use crate::Run;
use crate::disk::SyncedWrites;
use crate::figures::{Samples, Target, fact, figure};
use crate::loopback::PingPong;
use crate::node::Node;
use crate::wire::{Wire, batch, produce_request};

/// Exchanges of one kind before the other kinds have their turn, so that all of them see the same machine.
const TURN: usize = 50;

pub fn run(run: &Run) {
    let node = Node::start(&run.dir.join("latency"), &[]);
    let mut wire = Wire::connect(&node.kafka);
    let topic = wire.create_topic("latency", 1);
    let mut request = produce_request(&topic, 1, &[(0, &batch(1, 1024))]);
    let mut exchange = || {
        let begun = Instant::now();
        wire.send(&mut request);
        wire.receive_produced();
        begun.elapsed()
    };
    let mut disk = SyncedWrites::new(&run.dir, 256 * 1024);
    let mut ping = PingPong::start(1200, 70);
    (0..run.size(5, 500)).for_each(|_| {
        exchange();
    });
    let [mut produce, mut sync, mut echo] = [(); 3].map(|()| Samples::default());
    for _ in 0..run.size(1, 200) {
        (0..TURN).for_each(|_| sync.push(disk.write()));
        (0..TURN).for_each(|_| echo.push(ping.exchange()));
        (0..TURN).for_each(|_| produce.push(exchange()));
    }
    let sum = sync.plus(&echo);
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        fact(&format!("DSYNC write of 4 KiB, {name}"), sync.quantile_us(share), "us");
        fact(&format!("ping-pong on loopback, {name}"), echo.quantile_us(share), "us");
        fact(&format!("produce of 1 KiB, acks=1, {name}"), produce.quantile_us(share), "us");
    }
    let limit = sync.quantile_us(0.5) + echo.quantile_us(0.5);
    figure("produce p50 / (DSYNC p50 + ping-pong p50)", produce.quantile_us(0.5) / limit, "x", Target::AtMost(1.3));
    let p99 = produce.quantile_us(0.99) / sum.quantile_us(0.99);
    figure("produce p99 / p99 of DSYNC + ping-pong", p99, "x", Target::AtMost(2.0));
    fact("io-wq punts of writes, growth steps included", node.metric("pinion_iowq_punts_total"), "punts");
    fact("writes", node.metric("pinion_writes_total"), "writes");
}
