//! Producers that keep a broker busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::figures::Samples;
use crate::node::Node;
use crate::wire::{Topic, Wire, batch, produce_request};

/// How a load is spread.
#[derive(Clone, Copy)]
pub struct Load {
    /// Producers, each a connection and a thread.
    pub connections: usize,
    /// Requests that each has in flight.
    pub window: usize,
    /// Partitions; each belongs to one producer.
    pub partitions: usize,
    /// Records of a batch; a request has one batch.
    pub records: usize,
    /// Bytes of a record's value.
    pub record_bytes: usize,
}

impl Load {
    /// Bytes of one batch.
    pub fn batch_bytes(&self) -> usize {
        batch(self.records, self.record_bytes).len()
    }

    /// Bytes that are in flight at a time.
    pub fn bytes_in_flight(&self) -> usize {
        self.connections * self.window * self.batch_bytes()
    }

    /// Produces `bytes` with acks=1. Returns how long it took.
    pub fn produce(&self, node: &Node, topic: &Topic, bytes: u64) -> Duration {
        let batches = bytes.div_ceil(self.batch_bytes() as u64).div_ceil(self.connections as u64) as usize;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for connection in 0..self.connections {
                scope.spawn(move || self.produce_on(connection, batches, node, topic));
            }
        });
        begun.elapsed()
    }

    fn produce_on(&self, connection: usize, batches: usize, node: &Node, topic: &Topic) {
        let batch = batch(self.records, self.record_bytes);
        let partitions = (connection..self.partitions).step_by(self.connections);
        let request = |partition| produce_request(topic, 1, &[(partition as i32, batch.as_slice())]);
        let mut requests: Vec<Vec<u8>> = partitions.map(request).collect();
        let mut wire = Wire::connect(&node.kafka);
        let mut answered = 0;
        for sent in 0..batches {
            if sent - answered == self.window {
                wire.receive_produced();
                answered += 1;
            }
            let turn = sent % requests.len();
            wire.send(&mut requests[turn]);
        }
        (answered..batches).for_each(|_| {
            wire.receive_produced();
        });
    }
}

/// Produces one record of 1 KiB at a time with acks=1, `per_second` of them on schedule, to the partitions in turn, until
/// `stop` or `count`. A late answer delays the next request, whose time counts from when it was due.
pub fn paced(node: &Node, topic: &Topic, partitions: i32, per_second: f64, count: usize, stop: &AtomicBool) -> Samples {
    let batch = batch(1, 1024);
    let mut requests: Vec<Vec<u8>> =
        (0..partitions).map(|partition| produce_request(topic, 1, &[(partition, batch.as_slice())])).collect();
    let mut wire = Wire::connect(&node.kafka);
    let (mut samples, begun) = (Samples::default(), Instant::now());
    for number in 0..count {
        let due = begun + Duration::from_secs_f64(number as f64 / per_second);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let turn = number % requests.len();
        let due = due.max(Instant::now().checked_sub(Duration::from_micros(60)).unwrap_or(due));
        wire.send(&mut requests[turn]);
        wire.receive_produced();
        samples.push(due.elapsed());
    }
    samples
}
