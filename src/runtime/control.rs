//! The loop of the control thread: wait → handle → act. There is no decision in it; what may block runs on threads of
//! its own, which answer through the inbox.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::disk_watch::DiskSpace;
use crate::control::job::Job;
use crate::control::scrape::{HttpTicket, Scraped};
use crate::control::{Action, Actions, Control, ControlState, Event, Phase};
use crate::ids::{BrokerEpoch, Now};
use crate::io::bell::Bell;
use crate::io::{clock, cpu};
use crate::metrics::NodeReport;
use crate::runtime::http::{HttpAsk, HttpQuery};
use crate::runtime::inbox::{Inbox, Input};
use crate::runtime::mailbox::{Letter, Post};
use crate::runtime::pulse::Pulse;
use crate::runtime::raft_files::Order;
use crate::runtime::supervise::Report;
use crate::shard::message::{FinalOffsets, Peer};

/// Priority of the control thread.
const NICE: i32 = -10;

/// What the control thread is started with.
pub struct ControlThread {
    /// The decisions.
    pub control: Control,
    /// Mail of the data cores.
    pub post: Post,
    /// Everything else that comes in, its bell, and its sending end.
    pub inputs: (Receiver<Input>, Arc<Bell>, Inbox),
    /// Takes log writes.
    pub raft: Sender<Order>,
    /// Takes jobs on directories.
    pub background: Sender<Job>,
    /// What the ring of each core counts.
    pub pulses: Vec<Arc<Pulse>>,
    /// Where Kafka's text checkpoints go at a clean stop, by data directory.
    pub dirs: Vec<PathBuf>,
    /// The CPU it stays on, when threads are pinned.
    pub cpu: Option<usize>,
    /// Whether it may be real-time; not on a host where it shares its CPU with a data core.
    pub real_time: bool,
    /// Tells the main thread.
    pub reports: Sender<Report>,
}

/// Starts the control thread. It ends with the process.
///
/// # Errors
/// When the thread cannot be had.
pub fn start(thread: ControlThread) -> std::io::Result<()> {
    let run = move || {
        if let Some(cpu) = thread.cpu {
            cpu::pin(cpu);
        }
        take_precedence(thread.real_time);
        let now = clock::now();
        Loop { thread, actions: Vec::new(), queries: BTreeMap::new(), asked: 0 }.run(now);
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(run).map(drop)
}

/// Puts the thread ahead of what shares its CPU: a late heartbeat would look like a dead broker.
fn take_precedence(real_time: bool) {
    if let Err(errno) = cpu::nice(NICE) {
        tracing::info!(%errno, "the control thread keeps its priority: nice {NICE} needs CAP_SYS_NICE or LimitNICE");
    }
    if real_time && let Err(errno) = cpu::become_real_time() {
        tracing::info!(%errno, "the control thread is not real-time: it needs CAP_SYS_NICE or LimitRTPRIO=1");
    }
}

struct Loop {
    thread: ControlThread,
    actions: Actions,
    queries: BTreeMap<HttpTicket, HttpQuery>,
    asked: u64,
}

impl Loop {
    fn run(mut self, start: Now) {
        self.handle(start, Event::Deadline);
        loop {
            self.act();
            self.send_mail();
            self.wait();
            let now = clock::now();
            self.receive(now);
            if self.thread.control.deadline().is_some_and(|deadline| deadline <= now.mono) {
                self.handle(now, Event::Deadline);
            }
        }
    }

    fn handle(&mut self, now: Now, event: Event) {
        self.thread.control.handle(now, event, &mut self.actions);
    }

    /// Sleeps until mail or input comes or the deadline does.
    fn wait(&mut self) {
        if !self.thread.post.may_sleep() {
            return;
        }
        let now = clock::mono();
        let held = self.thread.post.holds_letters().then(|| now.plus_millis(1));
        let until = [self.thread.control.deadline(), held].into_iter().flatten().min();
        let timeout = until.map(|at| {
            let micros = at.micros_since(now);
            Timespec { tv_sec: (micros / 1_000_000) as i64, tv_nsec: (micros % 1_000_000 * 1000) as i64 }
        });
        let (mail, input) = (self.thread.post.bell().fd(), self.thread.inputs.1.fd());
        let mut fds =
            [PollFd::from_borrowed_fd(mail.as_fd(), PollFlags::IN), PollFd::from_borrowed_fd(input, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("poll of two eventfds: {errno}"),
        }
        let rung = fds.map(|fd| fd.revents().contains(PollFlags::IN));
        self.thread.post.woke();
        // A bell that was not rung would be waited for.
        if rung[0] {
            self.thread.post.bell().clear();
        }
        if rung[1] {
            self.thread.inputs.1.clear();
        }
    }

    fn receive(&mut self, now: Now) {
        let mut letters = Vec::new();
        self.thread.post.receive(|from, letter| letters.push((from, letter)));
        for (from, letter) in letters {
            let (Peer::Core(from), Letter::Message(message)) = (from, letter) else {
                panic!("only data cores write to the control core, and only messages");
            };
            self.handle(now, Event::Mail { from, message });
        }
        while let Ok(input) = self.thread.inputs.0.try_recv() {
            self.take(now, input);
        }
    }

    fn take(&mut self, now: Now, input: Input) {
        match input {
            Input::Logged(result) => self.handle(now, Event::Logged(result)),
            Input::SnapshotSaved { index, result } => self.handle(now, Event::SnapshotSaved { index, result }),
            Input::DiskHangs(dir) => self.handle(now, Event::DiskHangs(dir)),
            Input::JobDone(done) => self.handle(now, Event::JobDone(done)),
            Input::Stop => self.handle(now, Event::Stop),
            Input::Http(query) => self.ask(now, query),
        }
    }

    fn ask(&mut self, now: Now, query: HttpQuery) {
        if query.ask == HttpAsk::Status {
            let report = status(&self.thread.control.state());
            let _ = query.reply.send(report);
            return;
        }
        self.asked += 1;
        let ticket = HttpTicket(self.asked);
        self.queries.insert(ticket, query);
        self.handle(now, Event::Scrape(ticket));
    }

    fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Log(append) => self.order(Order::Log(append)),
                Action::SaveSnapshot { index, bytes } => self.order(Order::Snapshot { index, bytes }),
                Action::RemoveRaftFiles { snapshots, logs } => self.order(Order::Remove { snapshots, logs }),
                Action::Job(job) => self.thread.background.send(job).expect("background threads live on"),
                Action::Mail { to, message } => self.thread.post.send(to, Letter::Message(message)),
                Action::Scraped { tickets, scraped, state } => self.answer(&tickets, scraped, &state),
                Action::Ready => self.report(Report::Ready),
                Action::Stopped { clean, offsets } => self.stopped(clean, &offsets),
                Action::MeasureDisks => self.measure(),
                Action::Fatal { reason } => self.report(Report::Fatal(reason)),
            }
        }
    }

    fn order(&self, order: Order) {
        self.thread.raft.send(order).expect("the raft-log thread lives on");
    }

    fn report(&self, report: Report) {
        self.thread.reports.send(report).expect("the main thread listens to the end");
    }

    fn stopped(&mut self, clean: Option<BrokerEpoch>, offsets: &[FinalOffsets]) {
        let clean = clean.filter(|_| super::text_checkpoints::write(&self.thread.dirs, offsets));
        self.report(Report::Stopped { clean });
    }

    /// How full the file systems are; one that cannot be asked counts as full.
    fn measure(&mut self) {
        let space = |path: &PathBuf| match rustix::fs::statvfs(path) {
            Ok(space) => {
                DiskSpace { total_bytes: space.f_blocks * space.f_frsize, free_bytes: space.f_bavail * space.f_frsize }
            }
            Err(errno) => {
                tracing::warn!(dir = %path.display(), %errno, "file system cannot be measured");
                DiskSpace::default()
            }
        };
        let spaces = self.thread.dirs.iter().map(space).collect();
        self.handle(clock::now(), Event::DisksMeasured(spaces));
    }

    fn answer(&mut self, tickets: &[HttpTicket], scraped: Scraped, state: &ControlState) {
        let mut report = status(state);
        report.cores_missing = scraped.missing.len() as u32;
        report.cores = scraped.cores.into_values().collect();
        for core in &mut report.cores {
            let pulse = &self.thread.pulses[usize::from(core.core.0)];
            core.ring.turns = pulse.turns();
            let disk = pulse.disk();
            core.ring.punts = vec![("write", disk.write_punts), ("read", disk.read_punts)];
        }
        for ticket in tickets {
            if let Some(query) = self.queries.remove(ticket) {
                // Who asked may have gone away.
                let _ = query.reply.send(report.clone());
            }
        }
    }

    fn send_mail(&mut self) {
        self.thread.post.flush();
        self.thread.post.ring_bells(|_, _| false);
    }
}

/// What HTTP shows of the control core itself.
fn status(state: &ControlState) -> NodeReport {
    let not_ready = match state.phase {
        Phase::Stopping | Phase::Ended => Some("stopping".to_owned()),
        _ if !state.ready => Some(format!("starting: {:?}, {:?}", state.phase, state.hosting)),
        _ => None,
    };
    let gauges = vec![
        ("active_controller", "Whether this node leads the metadata log", i64::from(state.leader)),
        ("metadata_applied_index", "Last applied entry of the metadata log", state.applied.0 as i64),
        ("topics", "Topics in the cluster", state.image.topics.len() as i64),
        ("partitions", "Partitions in the cluster", state.image.partition_count as i64),
    ];
    NodeReport { not_ready, gauges, ..NodeReport::default() }
}
