//! A run from its seed to its end, and what must hold there.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pinion::ids::CoreId;
use pinion::shard::action::FileKind;
use pinion::shard::message::Message;

use crate::cluster::{Happening, World};
use crate::disk::Crash;
use crate::node;
use crate::plan::{Emphasis, Plan};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Client;

/// Tests that share the seeds.
const TESTS: u64 = 4;
/// µs within which everything that was asked must be answered once faults have stopped.
const PATIENCE_US: u64 = 120_000_000;

/// A rule that is broken on purpose, to prove that the checks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// The disk confirms syncs that it does not make.
    DiskLies,
}

/// Runs this test's share of the seeds, each of them twice.
pub fn check_seeds(emphasis: Emphasis) {
    let number = |name: &str, default| env::var(name).map_or(default, |value| value.parse().expect("a number"));
    let (count, first): (u64, u64) = (number("SIM_SEEDS", 300) / TESTS, number("SIM_FIRST_SEED", 0));
    let mut total = (0, 0, 0);
    let mut failed: Vec<String> = Vec::new();
    for seed in first..first + count.max(1) {
        let one = run_seed(emphasis, seed, Broken::Nothing);
        let two = run_seed(emphasis, seed, Broken::Nothing);
        let (one, two) = match (one, two) {
            (Ok(one), Ok(two)) => (one, two),
            (Err(report), _) | (_, Err(report)) => {
                failed.push(report);
                continue;
            }
        };
        assert_eq!(one.digest, two.digest, "{emphasis:?} seed {seed} does not run the same way twice");
        total = (total.0 + one.digest.1, total.1 + one.acked, total.2 + one.read);
    }
    let names: Vec<_> = failed.iter().filter_map(|report| report.lines().next()).collect();
    assert!(failed.is_empty(), "{}\n{names:#?}", failed[0]);
    println!("{emphasis:?}: {count} seeds, {} events and actions, {} acks, {} batches read", total.0, total.1, total.2);
    assert!(total.1 > 0 && total.2 > 0, "nothing was acknowledged or read");
}

/// What a run did.
#[derive(Debug)]
pub struct Outcome {
    pub digest: (u64, u64),
    pub acked: u64,
    pub read: u64,
}

/// Runs a seed; an error is the report of what failed.
pub fn run_seed(emphasis: Emphasis, seed: u64, broken: Broken) -> Result<Outcome, String> {
    let mut trace = Trace::new();
    let run = catch_unwind(AssertUnwindSafe(|| run(emphasis, seed, broken, &mut trace)));
    run.map(|(acked, read)| Outcome { digest: trace.digest(), acked, read }).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
        format!("{emphasis:?} seed {seed} failed: {text}\n{}{emphasis:?} seed {seed} failed: {text}", trace.tail())
    })
}

fn run(emphasis: Emphasis, seed: u64, broken: Broken, trace: &mut Trace) -> (u64, u64) {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(emphasis as u64));
    let plan = Plan::new(emphasis, &mut rng);
    trace.note(0, format_args!("{plan:?}"));
    let mut world = World::new(plan, rng, trace);
    world.disk.lies = broken == Broken::DiskLies;
    world.check_acks = broken == Broken::Nothing;
    world.start(1);
    for index in 0..world.plan.clients {
        let client = Client::new(index, &world.plan, &mut world.rng);
        world.join(client);
    }
    world.schedule(20_000, Happening::Evict);
    plan_faults(&mut world);
    let end = work(&mut world);
    settle(&mut world, end);
    (world.history.acked, world.history.read)
}

fn plan_faults(world: &mut World<'_>) {
    let mut at = 0;
    for _ in 0..world.plan.crashes {
        at += world.rng.range(500, 60_000);
        let crash = world.rng.pick(&[Crash::Killed, Crash::PowerLost]);
        world.schedule(at, Happening::Crash(crash));
    }
    if world.plan.disk_full > 0 {
        let at = world.rng.below(50_000);
        world.schedule(at, Happening::DiskLow(true));
        world.schedule(at + 20_000, Happening::DiskLow(false));
    }
    for _ in 0..world.rng.below(3) {
        let (at, by) = (world.rng.below(50_000), world.rng.pick(&[-1_800_000, -50, 50, 700_000]));
        world.schedule(at, Happening::Clock(by));
    }
}

/// Clients work until they have sent what was planned, and a while longer.
fn work(world: &mut World<'_>) -> u64 {
    let least = world.now + 300_000;
    let most = world.now + 3_000_000;
    while world.now < most && (world.history.len() < world.plan.batches || world.now < least) {
        world.step(most);
    }
    world.now
}

/// Faults stop, and everything that was asked is answered; then the node ends in order.
fn settle(world: &mut World<'_>, from: u64) {
    world.calm = true;
    if !world.node.as_ref().expect("it runs").failed_dirs.is_empty() {
        world.crash(Crash::Killed);
    }
    world.busy = false;
    let until = from + PATIENCE_US;
    wait_for(world, until, "clients wait for answers", |world| {
        world.seats.iter().all(|seat| !seat.client.waits() && !seat.client.must_go_on())
    });
    verify(world);
    if world.plan.ends_by_drop {
        drop_all(world);
    } else {
        stop(world);
    }
}

fn wait_for(world: &mut World<'_>, until: u64, what: &str, done: impl Fn(&World<'_>) -> bool) {
    while !done(world) {
        if !world.step(until) {
            let waiting = world.seats.iter().filter(|seat| seat.client.waits());
            let waiting: Vec<_> = waiting.map(|seat| seat.client.waiting_for()).collect();
            panic!("{what}, and nothing happens any more: {waiting:?}");
        }
    }
}

/// A new client reads every log from its start to its end.
fn verify(world: &mut World<'_>) {
    let ends = |world: &World<'_>| {
        let cores = world.node.as_ref().expect("it runs").cores.iter();
        let partitions = cores.flat_map(|core| core.shard.report().partitions);
        partitions.map(|p| (p.index.0 as usize, p.high_watermark.0)).collect::<std::collections::BTreeMap<_, _>>()
    };
    world.join(Client::verifier(&world.plan));
    let until = world.now + PATIENCE_US;
    wait_for(world, until, "the verifier has not read everything", |world| {
        let last = world.seats.last().expect("it joined");
        last.client.positions() == Some(&ends(world))
    });
    world.seats.last_mut().expect("it joined").client.retire();
}

fn stop(world: &mut World<'_>) {
    for core in 0..world.plan.cores {
        world.mail(None, usize::from(core), Message::Stop);
    }
    let until = world.now + PATIENCE_US;
    wait_for(world, until, "the node does not stop", |world| {
        world.node.as_ref().expect("it runs").cores.iter().all(|core| core.stopped.is_some())
    });
    for partition in 0..world.plan.partitions {
        check_clean_files(world, partition);
    }
}

/// After a clean stop the files hold batches and nothing else.
fn check_clean_files(world: &World<'_>, partition: usize) {
    let dir = node::dir_of(&world.plan, partition);
    for (kind, len) in world.disk.files(&dir) {
        let FileKind::Log(base) = kind else { continue };
        let path = pinion::shard::action::PartitionFile { dir: dir.clone(), kind };
        let contents = world.disk.contents(&path).expect("listed");
        let mut end = 0;
        for (at, view) in pinion::kafka::batch::batches(&contents) {
            let view = view.unwrap_or_else(|fault| panic!("{path:?} at {at}: {fault:?}"));
            view.check_crc().unwrap_or_else(|fault| panic!("{path:?} at {at}: {fault:?}"));
            end = at + view.size_bytes();
        }
        assert_eq!(end as u64, len, "segment {base} of partition {partition} ends behind its last batch");
    }
}

/// All partitions are deleted: their memory is free again.
fn drop_all(world: &mut World<'_>) {
    let ids = (0..world.plan.partitions).map(|p| (node::core_of(&world.plan, p), node::id_of(p)));
    for (core, id) in ids.collect::<Vec<_>>() {
        world.mail(None, core, Message::Drop(vec![id]));
    }
    let (until, partitions) = (world.now + PATIENCE_US, world.plan.partitions);
    wait_for(world, until, "partitions are not dropped", |world| {
        world.node.as_ref().expect("it runs").cores.iter().map(|core| core.dropped).sum::<usize>() == partitions
    });
    world.hang_up_all();
    wait_for(world, until, "connections do not end", |world| world.network.len() == 0);
    let end = world.now + 1_000_000;
    while world.step(end) {}
    for (core, state) in world.node.as_ref().expect("it runs").cores.iter().enumerate() {
        let report = state.shard.report();
        let used: Vec<u64> = report.arena.iter().map(|pool| pool.used_bytes).collect();
        let lent = u64::from(world.plan.small_blocks) * 4096;
        assert_eq!(used, [lent, 0, 0], "memory of core {} is not given back", CoreId(core as u16));
        assert_eq!(report.requests_in_flight, 0, "requests of core {core} are left");
    }
}
