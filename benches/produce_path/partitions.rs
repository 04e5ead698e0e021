//! Many partitions: the same rate spread over 1,000 of them, and 10,000 created, killed and recovered.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pinion::ids::{ProducerEpoch, ProducerId};

use crate::Run;
use crate::figures::{Target, fact, figure};
use crate::load::{Load, paced};
use crate::node::Node;
use crate::wire::{Topic, Wire, batch, idempotent_batch, produce_request};

/// Records per second over all partitions.
const PER_SECOND: f64 = 500.0;
/// Room for all of them where few files may be open: the broker derives its limit from that.
const ROOM: [&str; 2] = ["partitions.max=10000", "max.connections=1000"];
/// Partitions that one produce request writes.
const PER_REQUEST: usize = 250;

/// One partition against 1,000 at the same total rate.
pub fn spread(run: &Run) {
    let count = run.size(10, 1_000);
    let node = Node::start(&run.dir.join("spread"), &[]);
    let mut wire = Wire::connect(&node.kafka);
    let (one, many) = (wire.create_topic("one", 1), wire.create_topic("many", count));
    // Past the first growth step of 256 KiB.
    let mut preload = Load { connections: 1, window: 8, partitions: 1, records: 125, record_bytes: 1024 };
    preload.produce(&node, &one, 384 << 10);
    preload.partitions = count as usize;
    preload.produce(&node, &many, count as u64 * (384 << 10));
    let (never, samples) = (AtomicBool::new(false), run.size(20, 2_500));
    let [mut alone, mut all] = [(); 2].map(|()| crate::figures::Samples::default());
    for _ in 0..run.size(1, 4) {
        alone.append(paced(&node, &one, 1, PER_SECOND, samples, &never));
        all.append(paced(&node, &many, count, PER_SECOND, samples, &never));
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        fact(&format!("one partition, {name}"), alone.quantile_us(share), "us");
        fact(&format!("{count} partitions, {name}"), all.quantile_us(share), "us");
    }
    let ratio = all.quantile_us(0.99) / alone.quantile_us(0.99);
    figure(&format!("p99 of {count} partitions / of one"), ratio, "x", Target::AtMost(2.0));
    fact("io-wq punts", node.metric("pinion_iowq_punts_total"), "punts");
    fact("writes", node.metric("pinion_writes_total"), "writes");
}

/// 10,000 partitions, all with records, 1,000 of them written in the last second before a kill; without and with
/// idempotent producers.
pub fn many(run: &Run) {
    for idempotent in [false, true] {
        let count = run.size(50, 10_000);
        let dir = run.dir.join("partitions");
        let node = Node::start(&dir, &ROOM);
        let mut wire = Wire::connect(&node.kafka);
        let begun = Instant::now();
        let topic = wire.create_topic("many", count);
        let created = begun.elapsed().as_secs_f64();
        if !idempotent {
            figure(&format!("{count} partitions created"), created, "s", Target::AtMost(3.0));
        }
        let producer = idempotent.then(|| wire.producer_id());
        let begun = Instant::now();
        write_all(&mut wire, &topic, 0..count, producer, 0);
        fact("one record to each of them", begun.elapsed().as_secs_f64(), "s");
        assert_eq!(wire.partitions_served(&topic, count), count as usize);
        // A checkpoint covers what is older than a second.
        std::thread::sleep(Duration::from_millis(run.size(10, 2_500)));
        write_all(&mut wire, &topic, 0..run.size(5, 1_000), producer, 1);
        drop(wire);
        let begun = Instant::now();
        node.kill();
        let node = Node::start(&dir, &ROOM);
        let answered = begun.elapsed().as_secs_f64();
        let mut wire = Wire::connect(&node.kafka);
        while wire.partitions_served(&topic, count) < count as usize {
            assert!(begun.elapsed().as_secs() < 120, "partitions that are not served after two minutes");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (what, limit) = if idempotent { (", with producer state", 4.0) } else { ("", 2.0) };
        let served = begun.elapsed().as_secs_f64();
        fact("kill -9 to first answer", answered, "s");
        figure(&format!("kill -9 to last partition served{what}"), served, "s", Target::AtMost(limit));
    }
}

fn write_all(
    wire: &mut Wire,
    topic: &Topic,
    partitions: std::ops::Range<i32>,
    producer: Option<(ProducerId, ProducerEpoch)>,
    sequence: i32,
) {
    let batch = producer.map_or_else(|| batch(1, 1024), |producer| idempotent_batch(producer, sequence, 1024));
    let all: Vec<(i32, &[u8])> = partitions.map(|partition| (partition, batch.as_slice())).collect();
    for some in all.chunks(PER_REQUEST) {
        wire.send(&mut produce_request(topic, 1, some));
        wire.receive_produced();
    }
}
