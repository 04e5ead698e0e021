//! The world of one run: time, the queue of what will happen, and the node in it.
//!
//! It does what the production loop and the kernel do, only late, in another order, and not always.

use std::collections::BTreeMap;

use pinion::arena::Lease;
use pinion::ids::*;
use pinion::log::group_commit::FlushWay;
use pinion::log::recovery::RecoveredLog;
use pinion::shard::action::{Action, Actions, FileJob, FileRange, Linger, Part, Parts};
use pinion::shard::message::{Message, Peer};

use crate::checks::{History, WALL_START};
use crate::complete::{Brief, BriefAction};
use crate::disk::{Crash, Disk, Open};
use crate::network::Network;
use crate::node::{self, Node};
use crate::plan::Plan;
use crate::restart;
use crate::rng::Rng;
use crate::trace::{Trace, hash};
use crate::workload::Client;

/// The disk is full.
const ENOSPC: Errno = Errno(28);

/// What comes to a core.
#[derive(Debug)]
pub enum Due {
    Accepted {
        conn: ConnId,
    },
    Receive {
        conn: ConnId,
    },
    Sent {
        conn: ConnId,
        parts: Parts,
        /// Its file parts, held open; `None` when one of them was closed.
        files: Option<Vec<Open>>,
        before: u64,
    },
    Closed {
        conn: ConnId,
    },
    Written {
        write: WriteId,
        file: FileId,
        at: FilePos,
        block: Lease,
        before: Vec<u8>,
        sync: bool,
        error: Option<Errno>,
    },
    Flushed {
        flush: FlushId,
        upto: u64,
        error: Option<Errno>,
    },
    Read {
        read: ReadId,
        range: FileRange,
        /// `None` when it was closed.
        open: Option<Open>,
        into: Lease,
        error: Option<Errno>,
    },
    Probe {
        probe: ProbeId,
        range: FileRange,
    },
    Job {
        job: FileJobId,
        what: FileJob,
        error: Option<Errno>,
    },
    Mail {
        from: Peer,
        message: Message,
    },
    Timer,
}

/// What will happen.
#[derive(Debug)]
pub enum Happening {
    Core(usize, Due),
    /// A client takes its next step.
    Client(usize),
    /// The node ends without warning.
    Crash(Crash),
    /// The wall clock is set.
    Clock(i64),
    /// The page cache loses pages.
    Evict,
    /// The disk is, or is not any more, below its floor.
    DiskLow(bool),
}

/// One client's place in the world.
#[derive(Debug)]
pub struct Seat {
    pub client: Client,
    pub conn: Option<(usize, ConnId)>,
}

/// The world.
pub struct World<'t> {
    pub plan: Plan,
    pub rng: Rng,
    pub trace: &'t mut Trace,
    pub now: u64,
    pub disk: Disk,
    pub node: Option<Node>,
    pub history: History,
    pub seats: Vec<Seat>,
    pub network: Network,
    /// Clients make new requests.
    pub busy: bool,
    /// Nothing goes wrong any more.
    pub calm: bool,
    /// Answers are checked against the disk: it keeps what it syncs.
    pub check_acks: bool,
    queue: BTreeMap<(u64, u64), Happening>,
    next: u64,
    clock: i64,
    /// When the last message of each lane arrives: they keep their order.
    lanes: BTreeMap<(usize, usize, bool), u64>,
    writing: Vec<(FileId, u64, u64)>,
    pub acks: Vec<(usize, i64)>,
}

impl<'t> World<'t> {
    /// A world in which nothing runs yet.
    pub fn new(plan: Plan, rng: Rng, trace: &'t mut Trace) -> World<'t> {
        let mut history = History::new(plan.partitions);
        let mut disk = Disk::default();
        disk.write_through = plan.way == FlushWay::Completion;
        for partition in 0..plan.partitions {
            disk.mkdir(&node::dir_of(&plan, partition));
            if plan.topic.retention_bytes.is_some() {
                history.log_start_may_be(partition, i64::MAX);
            }
        }
        World {
            plan,
            rng,
            trace,
            now: 1_000_000,
            disk,
            node: None,
            history,
            seats: Vec::new(),
            network: Network::default(),
            busy: true,
            calm: false,
            check_acks: true,
            queue: BTreeMap::new(),
            next: 0,
            clock: 0,
            lanes: BTreeMap::new(),
            writing: Vec::new(),
            acks: Vec::new(),
        }
    }

    /// Something will happen in `delay` µs.
    pub fn schedule(&mut self, delay: u64, what: Happening) {
        self.schedule_at(self.now + delay, what);
    }

    fn schedule_at(&mut self, at: u64, what: Happening) {
        self.next += 1;
        self.queue.insert((at, self.next), what);
    }

    fn due(&mut self, core: usize, delay: u64, due: Due) {
        self.schedule(delay, Happening::Core(core, due));
    }

    /// Starts the node on what the disk holds.
    pub fn start(&mut self, epoch: i32) {
        let mut first = Vec::new();
        let node = Node::start(&self.plan, &self.disk, epoch, self.clock_now(), &mut first);
        self.node = Some(node);
        for (core, actions) in first {
            self.act(core, actions);
        }
        for partition in 0..self.plan.partitions {
            let (log, found) = self.recover(partition, epoch);
            let found: Vec<&[u8]> = found.iter().map(|batch| &batch[..]).collect();
            self.trace.note(self.now, format_args!("recovered {partition}: {}..{}", log.log_start, log.end));
            self.history.recovered(partition, log.log_start.0, log.end.0, &found);
            let host = node::hosted(&self.plan, partition, epoch, log);
            self.mail(None, node::core_of(&self.plan, partition), Message::Host(vec![host]));
        }
        let view = std::sync::Arc::new(node::view(&self.plan, epoch));
        for core in 0..usize::from(self.plan.cores) {
            self.mail(None, core, Message::View(view.clone()));
        }
    }

    /// Recovers a partition, now and then at the second or third attempt.
    fn recover(&mut self, partition: usize, epoch: i32) -> (RecoveredLog, Vec<Vec<u8>>) {
        let dir = node::dir_of(&self.plan, partition);
        let index_interval_bytes = self.plan.topic.index_interval_bytes;
        loop {
            let checkpoint = node::checkpoint(&self.disk, dir.dir).entries.get(&node::id_of(partition)).copied();
            let known = restart::Known { checkpoint, epoch_max: LeaderEpoch(epoch), index_interval_bytes };
            let interrupted = !self.calm && epoch > 1 && self.rng.chance(300);
            let steps_max = if interrupted { self.rng.below(8) as usize } else { usize::MAX };
            if let Some(recovered) = restart::recover(&mut self.disk, &dir, known, steps_max) {
                return recovered;
            }
            let crash = self.rng.pick(&[Crash::Killed, Crash::PowerLost]);
            self.trace.note(self.now, format_args!("crash in recovery of {partition}: {crash:?}"));
            self.disk.crash(crash, &mut self.rng);
        }
    }

    /// The next thing happens. False when there is none before `until`.
    pub fn step(&mut self, until: u64) -> bool {
        let Some((&(at, _), _)) = self.queue.first_key_value().filter(|((at, _), _)| *at <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        let (_, what) = self.queue.pop_first().expect("looked at above");
        self.now = at;
        match what {
            Happening::Core(core, due) => self.turn(core, due),
            Happening::Client(client) => self.client_step(client),
            Happening::Crash(crash) => self.crash(crash),
            Happening::Clock(by) => self.clock += by,
            Happening::DiskLow(low) => {
                for core in 0..usize::from(self.plan.cores) {
                    self.mail(None, core, Message::DiskLow { low });
                }
            }
            Happening::Evict => {
                self.disk.evict_pages(&mut self.rng);
                self.schedule(20_000, Happening::Evict);
            }
        }
        self.check_disk_has_acks();
        true
    }

    fn clock_now(&self) -> Now {
        let wall = WallMillis(WALL_START + (self.now / 1000) as i64 + self.clock);
        Now { mono: MonoMicros(self.now), wall }
    }

    // ---- a core's turn ----

    /// One turn of a core: this event, and what else of it is due by then.
    fn turn(&mut self, core: usize, due: Due) {
        if self.node.is_none() {
            return;
        }
        let mut actions = Actions::new();
        self.event(core, due, &mut actions);
        let until = self.now + self.rng.pick(&[0, 0, 30, 300]);
        while let Some((&key, Happening::Core(other, _))) = self.queue.first_key_value()
            && *other == core
            && key.0 <= until
        {
            let Some(Happening::Core(_, due)) = self.queue.remove(&key) else { panic!("looked at above") };
            self.now = self.now.max(key.0);
            self.event(core, due, &mut actions);
        }
        let now = self.clock_now();
        self.shard(core).turn_end(now, &mut actions);
        self.act(core, actions);
        self.arm_timer(core);
        self.look_at_offsets(core);
    }

    fn shard(&mut self, core: usize) -> &mut pinion::shard::Shard {
        &mut self.node.as_mut().expect("it runs").cores[core].shard
    }

    fn event(&mut self, core: usize, due: Due, actions: &mut Actions) {
        let Some(event) = self.complete(core, due) else { return };
        self.trace.note(self.now, format_args!("core {core} <- {}", Brief(&event)));
        let now = self.clock_now();
        self.shard(core).handle(now, event, actions);
    }

    fn arm_timer(&mut self, core: usize) {
        let late = self.rng.pick(&[0, 10, 2_000]);
        let now = self.now;
        let core_state = &mut self.node.as_mut().expect("it runs").cores[core];
        let Some(due) = core_state.shard.deadline() else { return };
        let at = due.0.max(now + 1);
        if core_state.timer_at.is_none_or(|armed| at < armed || armed < now) {
            core_state.timer_at = Some(at + late);
            self.schedule_at(at + late, Happening::Core(core, Due::Timer));
        }
    }

    /// Now and then: a report is made for an exporter and not for every turn.
    fn look_at_offsets(&mut self, core: usize) {
        if !self.rng.chance(50) {
            return;
        }
        let node = self.node.as_mut().expect("it runs");
        for partition in node.cores[core].shard.report().partitions {
            node.watermarks[partition.index.0 as usize].next(&partition);
        }
    }

    // ---- what a core asked for ----

    fn act(&mut self, core: usize, actions: Actions) {
        for action in actions {
            self.trace.note(self.now, format_args!("core {core} -> {}", BriefAction(&action)));
            self.act_one(core, action);
        }
    }

    fn act_one(&mut self, core: usize, action: Action) {
        match action {
            Action::Provide { lease } => {
                self.node.as_mut().expect("it runs").cores[core].small.push_back(lease);
                for conn in self.network.waiting_for_blocks(core) {
                    self.schedule_receive(core, conn);
                }
            }
            Action::Recv { conn, into } => {
                let state = self.network.at(core, conn);
                assert!(state.recv.is_none(), "two receives on {conn:?}");
                assert!(!state.closing, "a receive on {conn:?}, which closes");
                state.recv = Some(into);
                self.schedule_receive(core, conn);
            }
            Action::Send { conn, parts } => {
                let state = self.network.at(core, conn);
                assert!(!std::mem::replace(&mut state.sending, true), "two sends on {conn:?}");
                let client = state.client;
                let files = self.hold_files(&parts);
                let before = files.as_ref().map_or(0, |files| hash(0, &self.bytes_of(&parts, files)));
                let slowness = self.seats[client].client.slowness;
                let delay = self.rng.delay(slowness);
                self.due(core, delay, Due::Sent { conn, parts, files, before });
            }
            Action::Close { conn, linger } => self.close(core, conn, linger),
            Action::Write { write, file, at, block, sync } => self.write(core, (write, file, at), block, sync),
            Action::Flush { flush, file, .. } => {
                assert!(self.disk.hold(file).is_some(), "{file:?} is flushed and not open");
                let (delay, upto) = (self.rng.delay(self.plan.disk_us), self.disk.flush_point());
                let error = self.disk_error();
                self.due(core, delay, Due::Flushed { flush, upto, error });
            }
            Action::Read { read, range, into } => {
                assert!(range.len <= u64::from(into.len()), "a read of {range:?} into {} bytes", into.len());
                let delay = self.rng.delay(self.plan.disk_us);
                let (open, error) = (self.disk.hold(range.file), self.disk_error());
                self.due(core, delay, Due::Read { read, range, open, into, error });
            }
            Action::Probe { probe, range } => {
                let delay = self.rng.delay(30);
                self.due(core, delay, Due::Probe { probe, range });
            }
            Action::File { job, what } => {
                let delay = self.rng.delay(self.plan.disk_us * 4);
                let error = self.job_error(&what);
                self.due(core, delay, Due::Job { job, what, error });
            }
            Action::Chunk { .. } => {}
            Action::Mail { to, message } => self.post(core, to, message),
            Action::HandOver { .. } | Action::Fatal { .. } => panic!("unexpected {action:?}"),
        }
    }

    fn write(&mut self, core: usize, (write, file, at): (WriteId, FileId, FilePos), block: Lease, sync: bool) {
        self.disk.check_write(file, at, block.len());
        let end = at.0 + u64::from(block.len());
        let overlaps = |(of, from, to): &(FileId, u64, u64)| *of == file && *from < end && at.0 < *to;
        assert!(!self.writing.iter().any(overlaps), "two writes of {file:?} at {at} are in flight");
        self.writing.push((file, at.0, end));
        let before = self.copy(&block);
        let delay = self.rng.delay(self.plan.disk_us);
        let error = self.disk_error();
        self.due(core, delay, Due::Written { write, file, at, block, before, sync, error });
    }

    /// A write is no longer in flight.
    pub fn write_done(&mut self, file: FileId, at: FilePos) {
        self.writing.retain(|(of, from, _)| (*of, *from) != (file, at.0));
    }

    /// Takes everything that is on its way to a core.
    pub fn take_core_events(&mut self) -> Vec<Happening> {
        self.writing.clear();
        self.lanes.clear();
        let to_core = |what: &Happening| matches!(what, Happening::Core(..));
        let keys: Vec<_> = self.queue.iter().filter(|(_, what)| to_core(what)).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.queue.remove(&key)).collect()
    }

    fn disk_error(&mut self) -> Option<Errno> {
        (!self.calm && self.rng.chance(self.plan.disk_errors)).then_some(Errno(5))
    }

    fn job_error(&mut self, job: &FileJob) -> Option<Errno> {
        let grows = matches!(job, FileJob::CreateSegment { .. } | FileJob::Grow { .. });
        let small = matches!(job, FileJob::Replace { .. } | FileJob::AppendIndex { .. } | FileJob::Checkpoint { .. });
        let full = u64::from(grows) * self.plan.disk_full + u64::from(small) * self.plan.disk_full_small;
        if !self.calm && self.rng.chance(full) {
            return Some(ENOSPC);
        }
        self.disk_error()
    }

    fn close(&mut self, core: usize, conn: ConnId, linger: Linger) {
        let state = self.network.at(core, conn);
        assert!(!std::mem::replace(&mut state.closing, true), "{conn:?} is closed twice");
        state.client_gone |= linger == Linger::Reset;
        if state.recv.is_some() {
            state.recv_due = true;
            let delay = self.rng.delay(20);
            self.due(core, delay, Due::Receive { conn });
        }
        let delay = self.rng.delay(50);
        self.due(core, delay, Due::Closed { conn });
    }

    /// A receive completes once there are bytes, or none will come.
    pub fn schedule_receive(&mut self, core: usize, conn: ConnId) {
        let state = self.network.at(core, conn);
        let ready = !state.incoming.is_empty() || state.client_gone;
        if state.recv.is_some() && ready && !std::mem::replace(&mut state.recv_due, true) {
            let delay = self.rng.delay(20);
            self.due(core, delay, Due::Receive { conn });
        }
    }

    fn post(&mut self, core: usize, to: Peer, message: Message) {
        match to {
            Peer::Core(to) => self.mail(Some(core), usize::from(to.0), message),
            Peer::Control => self.control(core, message),
            Peer::Background => panic!("nothing is asked of the background thread: {message:?}"),
        }
    }

    /// Queues a message: those of one lane keep their order.
    pub fn mail(&mut self, from: Option<usize>, to: usize, message: Message) {
        let answer = matches!(
            message,
            Message::Appended { .. }
                | Message::Fetched { .. }
                | Message::Grew { .. }
                | Message::Queried { .. }
                | Message::Return(_)
                | Message::ReturnFile(_)
        );
        let arrives = self.now + self.rng.delay(30);
        let lane = self.lanes.entry((from.unwrap_or(usize::MAX), to, answer)).or_default();
        *lane = arrives.max(*lane);
        let at = *lane;
        let from = from.map_or(Peer::Control, |core| Peer::Core(CoreId(core as u16)));
        self.schedule_at(at, Happening::Core(to, Due::Mail { from, message }));
    }

    fn control(&mut self, core: usize, message: Message) {
        let node = self.node.as_mut().expect("it runs");
        match message {
            Message::Hosted(_) | Message::Report(_) => {}
            Message::Dropped(ids) => node.cores[core].dropped += ids.len(),
            Message::Stopped { clean, .. } => {
                assert!(node.cores[core].stopped.replace(clean).is_none(), "core {core} stopped twice");
            }
            Message::DirFailed { dir, errno } => {
                assert!(self.plan.disk_errors > 0, "{dir:?} has failed and no operation did: {errno:?}");
                node.failed_dirs.insert(dir, errno);
                for other in (0..usize::from(self.plan.cores)).filter(|other| *other != core) {
                    self.mail(None, other, Message::FailDir { dir, errno });
                }
            }
            other => panic!("core {core} sent {other:?} to the control core"),
        }
    }

    fn copy(&self, lease: &Lease) -> Vec<u8> {
        let mut bytes = vec![0; lease.len() as usize];
        self.node.as_ref().expect("it runs").memory.copy_out(lease, 0, &mut bytes);
        bytes
    }

    /// Takes hold of the files of an answer.
    fn hold_files(&self, parts: &Parts) -> Option<Vec<Open>> {
        let files = parts.iter().filter_map(|part| if let Part::File(range) = part { Some(range.file) } else { None });
        let held: Option<Vec<Open>> = files.map(|file| self.disk.hold(file)).collect();
        assert!(held.is_some(), "an answer names a file that is closed: {parts:?}");
        held
    }

    /// The bytes of an answer as they are now.
    pub fn bytes_of(&mut self, parts: &Parts, files: &[Open]) -> Vec<u8> {
        let (mut all, mut files) = (Vec::new(), files.iter());
        for part in parts {
            match part {
                Part::Bytes(bytes) => all.extend_from_slice(bytes),
                Part::Arena(lease) => all.extend_from_slice(&self.copy(lease)),
                Part::File(range) => {
                    let open = files.next().expect("held when it was submitted");
                    all.extend_from_slice(&self.disk.sendfile(*open, *range));
                }
            }
        }
        all
    }
}
