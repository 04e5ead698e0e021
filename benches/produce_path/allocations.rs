//! Allocations on a data core's thread in the steady state. The broker runs inside this process, whose allocator counts
//! by thread; the rest of the process may allocate as it likes.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use pinion::cli::serve::Args;
use pinion::runtime::{host, serve};

use crate::Run;
use crate::figures::{Target, fact, figure};
use crate::wire::{Reading, Topic, Wire, batch, produce_request};

/// Threads that are told apart.
const THREADS_MAX: usize = 1024;

static NEXT: AtomicUsize = AtomicUsize::new(1);
static COUNTS: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];
static THREADS: [AtomicI32; THREADS_MAX] = [const { AtomicI32::new(0) }; THREADS_MAX];

thread_local! {
    /// This thread's place in the tables; 0 before its first allocation.
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count() {
    if PLACE.get() == 0 {
        let place = NEXT.fetch_add(1, Ordering::Relaxed).min(THREADS_MAX - 1);
        PLACE.set(place);
        THREADS[place].store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }
    COUNTS[PLACE.get()].fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call goes to the system allocator unchanged; what counts allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

pub fn run(run: &Run) {
    let address = serve_here(&run.dir.join("allocations"));
    let mut wire = Wire::connect(&address);
    let topic = wire.create_topic("allocations", 4);
    let batches = run.size(200, 20_000);
    let target = Target::AtMost(1.0);
    // Buffers and tables reach their sizes.
    produce(&mut wire, &topic, batches / 2, 1);
    let of_produce = per_ten_thousand(batches, || produce(&mut wire, &topic, batches, 1));
    figure("allocations per 10,000 batches produced one by one", of_produce, "", target);
    produce(&mut wire, &topic, batches / 2, 16);
    let of_many = per_ten_thousand(batches, || produce(&mut wire, &topic, batches, 16));
    figure("allocations per 10,000 batches produced, 16 in flight", of_many, "", target);
    consume(&mut wire, &topic, batches / 2);
    let of_fetch = per_ten_thousand(batches, || consume(&mut wire, &topic, batches));
    figure("allocations per 10,000 batches produced and consumed", of_fetch, "", target);
}

/// Runs a broker in this process; it ends with it.
fn serve_here(dir: &Path) -> String {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let args = Args {
        listen: Some(free.to_string()),
        internal_listen: Some("127.0.0.1:0".into()),
        http: Some("off".into()),
        data_dir: vec![dir.to_string_lossy().into_owned()],
        set: vec!["arena.bytes=64MiB".into()],
        ..Args::default()
    };
    let config = args.resolve(&host::facts()).expect("valid settings");
    std::thread::spawn(move || serve::run(&config).map(|_| ()).expect("it starts"));
    let (address, begun) = (free.to_string(), std::time::Instant::now());
    while std::net::TcpStream::connect(free).is_err() || !Wire::connect(&address).knows_controller() {
        assert!(begun.elapsed().as_secs() < 60, "a broker that does not serve after a minute");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    address
}

fn per_ten_thousand(batches: usize, work: impl FnOnce()) -> f64 {
    let (before, begun) = (allocated(), std::time::Instant::now());
    work();
    let (count, took) = ((allocated() - before) as f64, begun.elapsed().as_secs_f64());
    fact("batches per second", batches as f64 / took, "");
    // What remains is by the clock: checkpoints and index entries, written once a second.
    fact("allocations per second", count / took, "");
    count / (batches as f64 / 1e4)
}

/// Allocations of the data core's thread so far.
fn allocated() -> u64 {
    let of_core = |place: &usize| {
        let path = format!("/proc/self/task/{}/comm", THREADS[*place].load(Ordering::Relaxed));
        std::fs::read_to_string(path).is_ok_and(|comm| comm.trim() == "data-0")
    };
    let used = NEXT.load(Ordering::Relaxed).min(THREADS_MAX);
    (1..used).find(of_core).map_or(0, |place| COUNTS[place].load(Ordering::Relaxed))
}

fn produce(wire: &mut Wire, topic: &Topic, batches: usize, window: usize) {
    let batch = batch(1, 1024);
    let mut requests: Vec<_> = (0..4).map(|partition| produce_request(topic, 1, &[(partition, &batch)])).collect();
    for sent in 0..batches + window {
        if sent >= window {
            wire.receive_produced();
        }
        if sent < batches {
            wire.send(&mut requests[sent % 4]);
        }
    }
}

/// Produces batches and consumes each at once, as a consumer at the tail does.
fn consume(wire: &mut Wire, topic: &Topic, batches: usize) {
    let mut reading = Reading::at_end(wire, topic, 4);
    let batch = batch(1, 1024);
    let mut requests: Vec<_> = (0..4).map(|partition| produce_request(topic, 1, &[(partition, &batch)])).collect();
    for number in 0..batches {
        wire.send(&mut requests[number % 4]);
        wire.receive_produced();
        assert!(reading.fetch(wire) > 0, "what was acknowledged can be read");
    }
}
