//! Sixteen partitions, batches of 128 KiB, acks=1, synced, as much as goes: beside synced O_DIRECT writes of the size and
//! depth that the broker used, and beside what one core can receive from loopback.

use crate::Run;
use crate::disk::{Extents, synced_throughput};
use crate::figures::{MB, Target, fact, figure, median};
use crate::load::Load;
use crate::loopback::receive_limit;
use crate::node::Node;
use crate::wire::Wire;

pub fn run(run: &Run) {
    let settings = ["arena.bytes=256MiB"];
    let node = Node::start(&run.dir.join("sustained"), &settings);
    let topic = Wire::connect(&node.kafka).create_topic("sustained", 16);
    let load = Load { connections: 8, window: 8, partitions: 16, records: 125, record_bytes: 1024 };
    // Past the small growth steps and with the arena in its steady state.
    load.produce(&node, &topic, run.size(32 << 20, 1 << 30));
    let bytes = run.size(16 << 20, 1 << 30);
    let [mut rates, mut overwrites, mut unwritten, mut of_core] = [(); 4].map(|()| Vec::new());
    let (punts, writes, written) = counts(&node);
    for _ in 0..run.size(1, 3) {
        let before = counts(&node);
        let core = node.data_core_seconds();
        let took = load.produce(&node, &topic, bytes).as_secs_f64();
        let after = counts(&node);
        rates.push(bytes as f64 / took);
        of_core.push((node.data_core_seconds() - core) / took);
        let write_bytes = ((after.2 - before.2) / (after.1 - before.1)) as usize;
        let depth = (load.bytes_in_flight() / write_bytes).clamp(1, 128);
        fact("mean write of the broker", write_bytes as f64 / 1024.0, "KiB");
        let raw = |extents| synced_throughput(&run.dir, extents, 16, write_bytes, depth, bytes);
        overwrites.push(raw(Extents::Zeroed));
        unwritten.push(raw(Extents::Unwritten));
    }
    let (rate, overwrite, fresh) = (median(rates), median(overwrites), median(unwritten));
    let (receive_wall, receive_cpu) = receive_limit(bytes);
    let core_share = median(of_core);
    fact("raw DSYNC writes of that size and depth, overwrites", overwrite / MB, "MB/s");
    fact("raw DSYNC writes of that size and depth, unwritten extents", fresh / MB, "MB/s");
    fact("one thread receives from loopback", receive_wall / MB, "MB/s");
    fact("one thread receives from loopback, per second of its CPU", receive_cpu / MB, "MB/s");
    fact("produce", rate / MB, "MB/s");
    figure("produce / raw on unwritten extents", rate / fresh, "x", Target::AtLeast(0.8));
    figure("produce / raw overwrites", rate / overwrite, "x", Target::AtLeast(0.45));
    fact("share of the data core's CPU that was used", core_share, "x");
    figure("or: produce / receive limit of one core", rate / receive_wall, "x", Target::AtLeast(0.9));
    let after = counts(&node);
    fact("writes", after.1 - writes, "writes");
    fact("bytes written / bytes produced", (after.2 - written) / (run.size(1.0, 3.0) * bytes as f64), "x");
    figure("io-wq punts of writes", (after.0 - punts) / (after.1 - writes) * 100.0, "%", Target::AtMost(1.0));
}

/// Punts, writes and bytes written so far.
fn counts(node: &Node) -> (f64, f64, f64) {
    let write_punts = node.metric("pinion_iowq_punts_total{op=\"write\"}");
    (write_punts, node.metric("pinion_writes_total"), node.metric("pinion_bytes_written_total"))
}
