//! The tail against a disk that reads what it writes as late as it may: at the completion.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::arena::{ArenaConfig, PoolMinima, Region, Regions};
use crate::ids::CoreId;

const BUDGET: u64 = 16 << 20;

/// An appender, its core's memory, and the files that its writes end up in.
struct Script {
    memory: Arc<Regions>,
    arena: Arena,
    appender: Appender,
    next: Offset,
    /// What was appended, by segment.
    log: BTreeMap<Offset, Vec<u8>>,
    /// What was written, by segment.
    files: BTreeMap<Offset, Vec<u8>>,
    writable: BTreeMap<Offset, Writable>,
    /// Writes that are out, by number.
    out: BTreeMap<u32, WritePlan>,
    /// What their memory held when they were submitted.
    submitted: BTreeMap<u32, Vec<u8>>,
    numbers: u32,
}

#[derive(goldenscript::Command)]
enum Command {
    /// A batch of one record and this many bytes.
    Append { bytes: usize },
    /// The next batch goes into a new segment.
    Roll,
    /// The file of the active segment, or of another one, may be written up to this length.
    Allocate {
        bytes: u64,
        #[arg(key)]
        segment: Option<i64>,
        /// Up to here its extents may be unwritten.
        #[arg(key)]
        unwritten: Option<u64>,
    },
    /// Submit what may be written.
    Plan,
    /// A write has completed, by itself on stable media or not.
    Written {
        number: u32,
        #[arg(key, optional)]
        durable: bool,
    },
    /// A flush is submitted.
    Flush,
    /// It is done.
    Flushed,
    /// Memory is wanted.
    Evict,
    /// Which batches are in memory from here on.
    Read { offset: i64 },
    /// Writes that are out and whose memory has changed since they were submitted.
    Changed,
    /// Where everything is.
    Show,
}

impl Script {
    /// A log that recovery found: `end` bytes in its only segment.
    fn new(end: u64, tail_writes: TailWrites) -> Script {
        let config = ArenaConfig {
            core: CoreId(0),
            budget_bytes: BUDGET,
            window_bytes_max: BUDGET,
            pools: PoolMinima::of_budget(BUDGET),
        };
        let memory = Regions::new(vec![Region::heap(Arena::region_bytes(&config))]);
        let arena = Arena::new(config, Arc::clone(&memory));
        let next = Offset(i64::from(end > 0));
        let recovered = vec![0xee; end as usize];
        let partial = recovered[FilePos(end).align_down().0 as usize..].to_vec();
        Script {
            memory,
            arena,
            appender: Appender::new(Offset(0), FilePos(end), next, partial).with_tail_writes(tail_writes),
            next,
            log: BTreeMap::from([(Offset(0), recovered.clone())]),
            files: BTreeMap::from([(Offset(0), recovered)]),
            writable: BTreeMap::new(),
            out: BTreeMap::new(),
            submitted: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// Appends a batch whose bytes tell it from its neighbours.
    fn append(&mut self, bytes: usize) -> BatchEntry {
        let fill: Vec<u8> = (0..bytes).map(|at| (self.next.0 as usize * 31 + at / 512) as u8 | 1).collect();
        assert!(self.appender.reserve(bytes as u64, &mut self.arena, &mut Vec::new()), "the arena is large enough");
        let mut block = self.arena.alloc(Pool::Reads, (bytes as u64).next_power_of_two().max(BLOCK), &mut Vec::new());
        let mut block = block.take().expect("the arena is large enough");
        self.arena.write(&mut block, 0, &fill);
        let rest = self.arena.into_window(block, bytes as u32);
        let (head, next) = (bytes.min(61), self.next.plus(1));
        let batch = NewBatch { base: self.next, next, epoch: LeaderEpoch(0), max_timestamp: -1 };
        self.appender.append(&mut self.arena, batch, &fill[..head], (&rest, head as u32));
        self.arena.release(rest);
        self.next = next;
        self.log.get_mut(&self.appender.active_base()).expect("it was rolled").extend_from_slice(&fill);
        *self.appender.resident(Offset(next.0 - 1)).next().expect("just appended")
    }

    fn roll(&mut self) {
        self.appender.roll(self.next);
        self.log.insert(self.next, Vec::new());
    }

    /// Submits what may be written; nothing of it touches the blocks of another write.
    fn plan(&mut self) -> Vec<u32> {
        let writable = &self.writable;
        let mut plans = Vec::new();
        self.appender.plan_writes(&mut self.arena, |base| writable.get(&base).copied(), &mut plans);
        let first = self.numbers + 1;
        for plan in plans {
            let end = |plan: &WritePlan| plan.at.0 + u64::from(plan.block.len());
            assert!(plan.at.0.is_multiple_of(BLOCK) && end(&plan).is_multiple_of(BLOCK), "unaligned {plan:?}");
            let meets =
                |other: &WritePlan| other.segment == plan.segment && other.at.0 < end(&plan) && plan.at.0 < end(other);
            assert!(!self.out.values().any(meets), "{plan:?} touches a block that is being written");
            self.numbers += 1;
            self.submitted.insert(self.numbers, self.copy_out(&plan));
            self.out.insert(self.numbers, plan);
        }
        (first..=self.numbers).collect()
    }

    fn written(&mut self, number: u32, durable: bool) {
        let plan = self.out.remove(&number).expect("a write that is out");
        let (file, at) = (self.files.entry(plan.segment).or_default(), plan.at.0 as usize);
        let len = plan.block.len() as usize;
        file.resize(file.len().max(at + len), 0);
        self.submitted.remove(&number);
        self.memory.copy_out(&plan.block, 0, &mut file[at..at + len]);
        self.arena.release(plan.block);
        self.appender.on_written(plan.generation, plan.to, durable);
        self.check();
    }

    fn copy_out(&self, plan: &WritePlan) -> Vec<u8> {
        let mut bytes = vec![0; plan.block.len() as usize];
        self.memory.copy_out(&plan.block, 0, &mut bytes);
        bytes
    }

    /// Writes whose memory is not what it was when they were submitted.
    fn changed(&self) -> Vec<u32> {
        let out = self.out.iter().filter(|(number, plan)| self.copy_out(plan) != self.submitted[number]);
        out.map(|(number, _)| *number).collect()
    }

    /// Everything below stable is in the files.
    fn check(&self) {
        let stable = self.appender.stable_offset();
        let mut first = Offset(0);
        for (base, log) in &self.log {
            let file = self.files.get(base).map_or(&[][..], |file| file);
            let whole = self.log.range(base.plus(1)..).next().is_some_and(|(next, _)| *next <= stable);
            let len = match self.appender.stable_in_active() {
                _ if whole => log.len(),
                Some(at) if *base == self.appender.active_base() => at.0 as usize,
                _ => 0,
            };
            assert!(len <= file.len() && file[..len] == log[..len], "segment {base} is not what was appended");
            first = first.max(*base);
        }
    }

    /// The bytes of a batch as a reader gets them.
    fn read(&mut self, batch: &BatchEntry) -> Vec<u8> {
        let (mut leases, mut bytes) = (Vec::new(), Vec::new());
        self.appender.lease(TailRange::of(batch), &mut self.arena, |lease| leases.push(lease));
        for lease in leases {
            bytes.extend_from_slice(self.arena.bytes(&lease));
            self.arena.release(lease);
        }
        bytes
    }

    fn resident(&mut self, offset: Offset) -> Vec<BatchEntry> {
        let found: Vec<BatchEntry> = self.appender.resident(offset).copied().collect();
        for batch in &found {
            let at = batch.at.0 as usize;
            assert_eq!(self.read(batch), self.log[&batch.segment][at..at + batch.len as usize], "{batch:?}");
        }
        found
    }

    fn show(&self) -> String {
        let Appender { end, submitted, stable, .. } = &self.appender;
        let resident = self.appender.resident_from().map_or("none".to_owned(), |offset| offset.to_string());
        let checkpoint = match self.appender.stable_in_active() {
            Some(at) => format!("{}+{at}", self.appender.active_base()),
            None => "not in the active segment".to_owned(),
        };
        let bytes = format!("stable {} submitted {} end {}", stable.0, submitted.0, end.0);
        let offsets =
            format!("offsets stable {} at {checkpoint}, in memory from {resident}", self.appender.stable_offset());
        format!("{bytes}; {offsets}; blocks {}", self.appender.blocks_held())
    }
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match *command {
            Command::Append { bytes } => {
                let batch = self.append(bytes);
                writeln!(out, "offset {} at {}+{}", batch.base, batch.segment, batch.at)?;
            }
            Command::Roll => self.roll(),
            Command::Allocate { bytes, segment, unwritten } => {
                let segment = segment.map_or(self.appender.active_base(), Offset);
                let unwritten_to = FilePos(unwritten.unwrap_or(0));
                self.writable.insert(segment, Writable { to: FilePos(bytes), unwritten_to });
            }
            Command::Plan => {
                let numbers = self.plan();
                let plans = numbers.iter().map(|number| (number, &self.out[number]));
                for (number, WritePlan { segment, at, block, to, .. }) in plans {
                    writeln!(out, "write {number}: {} bytes at {segment}+{at}, up to {}", block.len(), to.0)?;
                }
                if numbers.is_empty() {
                    writeln!(out, "nothing")?;
                }
            }
            Command::Written { number, durable } => {
                self.written(number, durable);
                writeln!(out, "{}", self.show())?;
            }
            Command::Flush => self.appender.on_flush_submitted(),
            Command::Flushed => {
                self.appender.on_flushed();
                self.check();
                writeln!(out, "{}", self.show())?;
            }
            Command::Evict => {
                let freed = self.appender.evict_oldest(&mut self.arena);
                writeln!(out, "{}: {}", if freed { "freed" } else { "nothing" }, self.show())?;
            }
            Command::Read { offset } => {
                let found = self.resident(Offset(offset));
                let offsets: Vec<String> = found.iter().map(|batch| batch.base.to_string()).collect();
                writeln!(out, "[{}]", offsets.join(" "))?;
            }
            Command::Changed => writeln!(out, "{:?}", self.changed())?,
            Command::Show => writeln!(out, "{}", self.show())?,
        }
        Ok(out)
    }
}

fn run(script: &str, mut appender: Script) {
    let path = format!("{}/tests/golden/log/appender/{script}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut appender, path).expect("the script runs");
}

#[test]
fn what_comes_while_a_write_is_out_gathers_for_the_next_one() {
    run("gathering", Script::new(0, TailWrites::Shared));
}

#[test]
fn a_write_does_not_span_what_was_written_before_and_unwritten_extents() {
    run("unwritten_extents", Script::new(0, TailWrites::Shared));
}

#[test]
fn stable_is_the_end_of_the_contiguous_prefix_of_durable_writes() {
    run("prefix", Script::new(0, TailWrites::Shared));
}

#[test]
fn a_flush_makes_durable_what_had_completed_before_it() {
    run("flush", Script::new(0, TailWrites::Shared));
}

#[test]
fn bytes_wait_for_their_file_and_its_room() {
    run("waiting_for_the_file", Script::new(0, TailWrites::Shared));
}

#[test]
fn a_roll_neither_stops_the_old_writes_nor_lets_the_new_ones_overtake() {
    run("roll", Script::new(0, TailWrites::Shared));
}

#[test]
fn only_what_is_on_the_device_leaves_memory() {
    run("eviction", Script::new(0, TailWrites::Shared));
}

#[test]
fn a_recovered_log_goes_on_inside_its_last_block() {
    run("recovered", Script::new(5000, TailWrites::Shared));
}

#[test]
fn what_comes_while_the_last_block_is_written_is_added_behind_it() {
    run("shared_tail", Script::new(0, TailWrites::Shared));
}

#[test]
fn where_pages_must_be_stable_what_comes_goes_behind_a_copy_of_the_last_block() {
    run("copied_tail", Script::new(5000, TailWrites::Copied));
}

/// One step of a random run.
#[derive(Clone, Debug)]
enum Random {
    Append(usize),
    Roll,
    Plan,
    Written(usize, bool),
    Flush,
    Flushed,
    Evict,
}

fn random() -> impl Strategy<Value = Random> {
    prop_oneof![
        6 => prop_oneof![1usize..6_000, Just(4096usize), 100_000usize..900_000].prop_map(Random::Append),
        1 => Just(Random::Roll),
        6 => Just(Random::Plan),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(which, durable)| Random::Written(which, durable)),
        2 => Just(Random::Flush),
        2 => Just(Random::Flushed),
        3 => Just(Random::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the order of completions: below stable the files hold what was appended, and readers see nothing else.
    /// Where tail blocks are copied, no byte of a write in flight changes.
    #[test]
    fn bytes_below_stable_are_in_the_files(
        end in 0u64..10_000,
        copied in any::<bool>(),
        unwritten_to in prop_oneof![Just(0), Just(1 << 30), 0..4u64 << 20],
        steps in proptest::collection::vec(random(), 1..80),
    ) {
        let mut script = Script::new(end, if copied { TailWrites::Copied } else { TailWrites::Shared });
        let mut flushing = false;
        let writable = Writable { to: FilePos(1 << 30), unwritten_to: FilePos(unwritten_to) };
        for step in steps {
            match step {
                Random::Append(bytes) if script.appender.unstable_bytes() < 6 << 20 => drop(script.append(bytes)),
                Random::Append(_) => {}
                Random::Roll if script.next > script.appender.active_base() => script.roll(),
                Random::Roll => {}
                Random::Plan => {
                    script.writable.insert(script.appender.active_base(), writable);
                    script.plan();
                }
                Random::Written(which, durable) => {
                    let out: Vec<u32> = script.out.keys().copied().collect();
                    if let Some(number) = out.get(which % out.len().max(1)) {
                        script.written(*number, durable);
                    }
                }
                Random::Flush if !flushing => {
                    flushing = true;
                    script.appender.on_flush_submitted();
                }
                Random::Flushed if flushing => {
                    flushing = false;
                    script.appender.on_flushed();
                    script.check();
                }
                Random::Flush | Random::Flushed => {}
                Random::Evict => _ = script.appender.evict_oldest(&mut script.arena),
            }
            prop_assert!(!copied || script.changed().is_empty(), "{:?} changed in flight", script.changed());
            let first = script.appender.resident_from().unwrap_or(script.next);
            let found = script.resident(first);
            prop_assert_eq!(found.last().map_or(script.next, |batch| batch.next), script.next, "the tail has no hole");
        }
        // In the end everything can be made stable.
        while !script.appender.is_quiet() {
            for base in script.log.keys() {
                script.writable.insert(*base, writable);
            }
            script.plan();
            for number in script.out.keys().copied().collect::<Vec<_>>() {
                script.written(number, true);
            }
            script.appender.on_flush_submitted();
            script.appender.on_flushed();
        }
        prop_assert_eq!(script.appender.stable_offset(), script.next);
        script.check();
    }
}
