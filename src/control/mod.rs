//! The control core: metadata, and who may change it. Pure, one thread, same shape as a data core.
//!
//! Commands of the data cores are decided against the newest image ([`controller`]), become records of the Raft log
//! ([`consensus`]), and are in effect when the log has them on disk: the image follows ([`image`]), partitions are
//! brought into service or out of it ([`hosting`]), every core gets the new view, and then the asker gets the answer.
//! A single node is a cluster of one voter; more brokers add voters, not a second mechanism.
//!
//! The shell around it moves events in and actions out. It calls [`Control::handle`] with `Deadline` whenever
//! [`Control::deadline`] has come, at the latest after it has handed in everything that was there.

pub mod codec;
pub mod command;
pub mod configs;
pub mod consensus;
pub mod controller;
pub mod directories;
pub mod disk_watch;
pub mod hosting;
pub mod image;
pub mod job;
pub mod placement;
pub mod prng;
pub mod proposals;
pub mod raft_log;
pub mod raft_storage;
pub mod records;
pub mod scrape;
pub mod start;
pub mod strays;
pub mod topics;

use std::sync::Arc;

use crate::control::command::{Command, CommandResult, Refusal, Registration};
use crate::control::consensus::Consensus;
use crate::control::controller::{ControllerConfig, decide};
use crate::control::disk_watch::{DiskSpace, DiskWatch};
use crate::control::hosting::{FailedDir, Hosting, HostingCounts};
use crate::control::image::{Image, diff};
use crate::control::job::{Job, JobDone};
use crate::control::prng::Prng;
use crate::control::proposals::{Asker, Proposal, Proposals};
use crate::control::raft_log::{Append, LogEntry, Snapshot};
use crate::control::scrape::{HttpTicket, Scrape, Scraped};
use crate::fatal::Reason;
use crate::ids::{BrokerEpoch, BrokerId, CoreId, DirId, Errno, LogIndex, MonoMicros, Now, Term, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::log::topic_config::TopicDefaults;
use crate::shard::message::{ClusterView, DirView, FinalOffsets, Message, Origin, Peer};

/// One thing that happened to the control core.
#[derive(Debug)]
pub enum Event {
    /// The one write of the Raft log that was in flight is durable, or has failed.
    Logged(Result<(), Errno>),
    /// A snapshot is durable under its name, or could not be written.
    SnapshotSaved {
        /// Its index.
        index: LogIndex,
        /// Written, synced and renamed, or why not.
        result: Result<(), Errno>,
    },
    /// A message of a data core.
    Mail {
        /// Which core.
        from: CoreId,
        /// What it says.
        message: Message,
    },
    /// The background thread is done with a job.
    JobDone(JobDone),
    /// `Action::MeasureDisks` is done: the file systems of all data directories, in their order.
    DisksMeasured(Vec<DiskSpace>),
    /// A disk operation in a data directory has not ended in `disk.stall.timeout.ms`.
    DiskHangs(DirId),
    /// The HTTP thread asks for the reports of all cores.
    Scrape(HttpTicket),
    /// End in an orderly way (SIGTERM).
    Stop,
    /// `now` reached what `Control::deadline` asked for.
    Deadline,
}

/// The actions of one event, in order.
pub type Actions = Vec<Action>;

/// One thing for the world to do.
#[derive(Debug)]
pub enum Action {
    /// Write to the Raft log; completes as `Logged`. One at a time.
    Log(Append),
    /// Write a snapshot under a temporary name, sync, rename to its index, sync the directory; completes as
    /// `SnapshotSaved`. One at a time.
    SaveSnapshot {
        /// Its index, for the name.
        index: LogIndex,
        /// The file's contents.
        bytes: Vec<u8>,
    },
    /// Remove files of the Raft directory that nobody needs any more. No completion; failing costs space only.
    RemoveRaftFiles {
        /// Snapshots, by index.
        snapshots: Vec<LogIndex>,
        /// Log files, by number.
        logs: Vec<u64>,
    },
    /// A job for the background thread; completes as `JobDone`.
    Job(Job),
    /// Put a message into the queue of a data core.
    Mail {
        /// To whom.
        to: Peer,
        /// What.
        message: Message,
    },
    /// Look how full the file systems of the data directories are; completes as `DisksMeasured`.
    MeasureDisks,
    /// Answer the HTTP thread.
    Scraped {
        /// Which requests.
        tickets: Vec<HttpTicket>,
        /// What came together.
        scraped: Scraped,
        /// The state of the control core itself.
        state: ControlState,
    },
    /// This broker is registered and every partition of it that can be served is served: say so on stdout.
    Ready,
    /// All cores have ended; the process may.
    Stopped {
        /// Every partition was flushed and sealed, under this incarnation: the clean-shutdown marker may be written.
        /// `None` when a directory had failed, or this broker was not registered yet.
        clean: Option<BrokerEpoch>,
        /// Where each partition ended.
        offsets: Vec<FinalOffsets>,
    },
    /// End the process: something the operator must act on.
    Fatal {
        /// Why, with the remedy.
        reason: Reason,
    },
}

/// What the control core is told at its start.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// What this broker says when it registers; its id is the node id. The incarnation is filled in here.
    pub registration: Registration,
    /// The cluster's id, from `meta.properties` or freshly drawn.
    pub cluster_id: Arc<str>,
    /// `flush.mode`: what "stable" means.
    pub flush_mode: image::FlushMode,
    /// Count of data cores.
    pub cores: u16,
    /// Data directories in the order of the configuration; the first holds the Raft log.
    pub dirs: Vec<DirView>,
    /// `log.dirs.lost`: ids of data directories whose contents are given up.
    pub dirs_lost: Vec<TopicId>,
    /// `log.min.free.bytes` of each data directory.
    pub free_bytes_min: Vec<u64>,
    /// Settings of the controller.
    pub controller: ControllerConfig,
    /// What the broker's settings say for topics.
    pub topic_defaults: Arc<TopicDefaults>,
}

/// What checkers, `/metrics` and `/readyz` read.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlState {
    /// What the control core is doing.
    pub phase: Phase,
    /// Whether `Action::Ready` was given.
    pub ready: bool,
    /// Whether this node leads the metadata log.
    pub leader: bool,
    /// Its Raft term.
    pub term: Term,
    /// Last entry of the metadata log that is applied.
    pub applied: LogIndex,
    /// The committed metadata.
    pub image: Arc<Image>,
    /// Partitions of this broker.
    pub hosting: HostingCounts,
}

/// What the control core is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Writing the seed of a new cluster.
    Seeding,
    /// Finding a leader of the metadata log.
    Electing,
    /// Registering this broker.
    Registering,
    /// In service.
    Serving,
    /// Waiting for the cores to end.
    Stopping,
    /// Over.
    Ended,
}

/// The control core.
pub struct Control {
    config: ControlConfig,
    phase: Phase,
    ready: bool,
    consensus: Consensus,
    /// Committed and applied.
    image: Arc<Image>,
    /// With everything on top that this leader has proposed.
    proposed: Image,
    proposals: Proposals,
    /// Commands that came before this broker was registered.
    held: Vec<(Origin, Command)>,
    hosting: Hosting,
    prng: Prng,
    /// The image that the cores have.
    viewed: Arc<Image>,
    dirs: Arc<[DirView]>,
    /// Whether a directory has failed since the cores got the last view.
    dirs_stale: bool,
    /// When the cores get the next view; `None` when they have the newest.
    view_at: Option<MonoMicros>,
    /// When they got the last one.
    last_view: Option<MonoMicros>,
    campaign_at: Option<MonoMicros>,
    /// The seed of a new cluster, until it is handed to the disk.
    seed: Option<Snapshot>,
    /// Cores that have not said `Stopped` yet, and whether all others were clean.
    stopping: Vec<CoreId>,
    clean: bool,
    final_offsets: Vec<FinalOffsets>,
    disk: DiskWatch,
    scrape: Scrape,
}

impl Control {
    /// Handles one event.
    pub fn handle(&mut self, now: Now, event: Event, out: &mut Actions) {
        if self.phase == Phase::Ended {
            return;
        }
        match event {
            Event::Logged(Ok(())) => self.on_logged(now, out),
            Event::Logged(Err(errno)) => self.metadata_failed("write the metadata log", errno, out),
            Event::SnapshotSaved { index, result: Ok(()) } => self.on_snapshot_saved(now, index, out),
            Event::SnapshotSaved { result: Err(errno), .. } => self.metadata_failed("save a snapshot", errno, out),
            Event::Mail { from, message } => self.on_mail(now, from, message, out),
            Event::JobDone(done) => self.on_job_done(now, done, out),
            Event::DisksMeasured(spaces) => self.on_disks_measured(now, &spaces, out),
            // A disk that hangs is no better than one that fails.
            Event::DiskHangs(dir) => self.on_dir_failed(now, FailedDir { dir, errno: Errno(ETIMEDOUT) }, None, out),
            Event::Scrape(ticket) => self.scrape.ask(ticket, now.mono, out),
            Event::Stop => self.on_stop(out),
            Event::Deadline => self.on_deadline(now, out),
        }
    }

    /// When `Event::Deadline` is wanted.
    pub fn deadline(&self) -> Option<MonoMicros> {
        if self.phase == Phase::Ended {
            return None;
        }
        let deadlines =
            [self.campaign_at, self.view_at, self.disk.deadline(), self.hosting.deadline(), self.scrape.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// What checkers and `/metrics` read. Cost is linear in this broker's partitions.
    pub fn state(&self) -> ControlState {
        ControlState {
            phase: self.phase,
            ready: self.ready,
            leader: self.consensus.is_leader(),
            term: self.consensus.term(),
            applied: self.image.applied,
            image: self.image.clone(),
            hosting: self.hosting.counts(),
        }
    }

    fn on_mail(&mut self, now: Now, from: CoreId, message: Message, out: &mut Actions) {
        match message {
            Message::Command { origin, command } => self.on_command(now, origin, command, out),
            Message::Hosted(partitions) => {
                self.hosting.on_hosted(&partitions);
                self.want_view(now.mono);
            }
            Message::Dropped(partitions) => {
                self.hosting.on_dropped(&partitions, out);
                self.want_view(now.mono);
            }
            Message::DirFailed { dir, errno } => self.on_dir_failed(now, FailedDir { dir, errno }, Some(from), out),
            Message::Report(report) => {
                let finished = self.scrape.on_report(from, *report);
                self.answer_scrape(finished, out);
            }
            Message::Stopped { clean, offsets } => self.on_stopped(from, clean, offsets, out),
            other => unreachable!("core {from} sent {other:?}, which is not for the control core"),
        }
    }

    fn on_deadline(&mut self, now: Now, out: &mut Actions) {
        if self.campaign_at.is_some_and(|at| at <= now.mono) {
            self.campaign_at = None;
            self.campaign(now, out);
        }
        self.hosting.on_deadline(now.mono, out);
        if self.disk.on_deadline(now.mono) {
            out.push(Action::MeasureDisks);
        }
        let finished = self.scrape.on_deadline(now.mono);
        self.answer_scrape(finished, out);
        if self.view_at.is_some_and(|at| at <= now.mono) {
            self.publish(now, out);
        }
    }

    // The metadata log.

    /// Stands for election, once the seed of a new cluster is on the disk.
    fn campaign(&mut self, now: Now, out: &mut Actions) {
        match self.seed.take() {
            Some(seed) => out.push(save_snapshot(&seed)),
            None => {
                self.consensus.campaign();
                self.advance(now, out);
            }
        }
    }

    fn on_logged(&mut self, now: Now, out: &mut Actions) {
        self.consensus.logged();
        self.advance(now, out);
    }

    fn on_snapshot_saved(&mut self, now: Now, index: LogIndex, out: &mut Actions) {
        if self.phase == Phase::Seeding {
            self.phase = Phase::Electing;
            self.campaign_at = Some(now.mono);
            return;
        }
        let (snapshots, logs) = self.consensus.snapshot_saved(index);
        if !(snapshots.is_empty() && logs.is_empty()) {
            out.push(Action::RemoveRaftFiles { snapshots, logs });
        }
    }

    /// Does what the consensus is ready with, until it waits for the disk or has nothing more.
    fn advance(&mut self, now: Now, out: &mut Actions) {
        loop {
            let step = self.consensus.step();
            out.extend(step.append.map(Action::Log));
            if step.committed.is_empty() {
                break;
            }
            if let Err(reason) = self.on_committed(now, step.committed, out) {
                return self.end(reason, out);
            }
        }
        self.maybe_snapshot(out);
    }

    fn on_committed(&mut self, now: Now, entries: Vec<LogEntry>, out: &mut Actions) -> Result<(), Reason> {
        let before = self.image.clone();
        let image = Arc::make_mut(&mut self.image);
        image.controller = if self.consensus.is_leader() { self.config.registration.id } else { BrokerId(-1) };
        let mut own_term = false;
        for entry in &entries {
            own_term |= entry.term == self.consensus.term();
            start::apply_entry(image, entry)?;
        }
        if self.proposed.applied <= self.image.applied {
            self.proposed = (*self.image).clone();
        }
        self.proposals.on_applied(self.image.applied);
        if self.phase >= Phase::Serving {
            self.hosting.on_diff(&diff(&before, &self.image), &self.image, out);
        }
        if self.phase == Phase::Electing && own_term && self.consensus.is_leader() {
            self.register(now, out);
        }
        self.answer_own(now, out);
        self.want_view(now.mono);
        Ok(())
    }

    fn maybe_snapshot(&mut self, out: &mut Actions) {
        let image = &self.image;
        let snapshot = self.consensus.maybe_snapshot(image.applied, || start::encode_image(image));
        out.extend(snapshot.as_ref().map(save_snapshot));
    }

    // Commands.

    fn on_command(&mut self, now: Now, origin: Origin, command: Command, out: &mut Actions) {
        match self.phase {
            Phase::Seeding | Phase::Electing | Phase::Registering => self.held.push((origin, command)),
            Phase::Serving if self.consensus.is_leader() => {
                self.propose(Asker::Core(origin), &command);
                self.advance(now, out);
                self.want_view(now.mono);
            }
            Phase::Serving => refuse(origin, "This broker is not the controller.", out),
            Phase::Stopping | Phase::Ended => refuse(origin, "This broker is ending.", out),
        }
    }

    fn propose(&mut self, asker: Asker, command: &Command) {
        let decision = decide(&self.proposed, &self.config.controller, &mut self.prng, command);
        let mut index = self.proposed.applied;
        let mut result = decision.result;
        if !decision.records.is_empty() {
            match self.consensus.propose(start::encode_records(&decision.records)) {
                Ok(proposed_at) => {
                    index = proposed_at;
                    self.proposed.apply(index, &decision.records);
                }
                Err(consensus::NotLeader) => result = not_controller("This broker is not the controller."),
            }
        }
        self.proposals.push(Proposal { index, asker, result });
        self.proposals.on_applied(self.image.applied);
    }

    fn register(&mut self, now: Now, out: &mut Actions) {
        self.phase = Phase::Registering;
        self.propose(Asker::Own, &Command::RegisterBroker(self.config.registration.clone()));
        self.advance(now, out);
    }

    /// The registration of this broker is in effect: take up service.
    fn answer_own(&mut self, now: Now, out: &mut Actions) {
        let registered = self.image.brokers.get(&self.node()).map(|broker| broker.incarnation);
        if self.phase != Phase::Registering || registered != Some(self.config.registration.incarnation) {
            return;
        }
        self.phase = Phase::Serving;
        self.hosting.start(&self.image, now, out);
        for (origin, command) in std::mem::take(&mut self.held) {
            self.on_command(now, origin, command, out);
        }
    }

    // Partitions and directories.

    fn on_job_done(&mut self, now: Now, done: JobDone, out: &mut Actions) {
        let failed = self.hosting.on_job(done, &self.image, now.mono, out);
        if let Some(failed) = failed {
            self.on_dir_failed(now, failed, None, out);
        }
        self.want_view(now.mono);
    }

    fn on_dir_failed(&mut self, now: Now, failed: FailedDir, by: Option<CoreId>, out: &mut Actions) {
        let path = &self.dirs[usize::from(failed.dir.0)].path;
        if failed.dir == DirId(0) {
            let text = format!("data directory {path}, which holds the metadata log, has failed: {}", failed.errno);
            return self.end(Reason::DirFailed(text), out);
        }
        if self.hosting.fail_dir(failed.dir) {
            tracing::error!(%path, errno = %failed.errno, "a data directory has failed: its partitions are not served");
            let others = self.cores().filter(|core| Some(*core) != by);
            out.extend(others.map(|core| mail(core, Message::FailDir { dir: failed.dir, errno: failed.errno })));
            Arc::make_mut(&mut self.dirs)[usize::from(failed.dir.0)].online = false;
            self.dirs_stale = true;
            self.want_view(now.mono);
        }
    }

    /// Tells every core when the disks become too full for producers, or empty enough again.
    fn on_disks_measured(&mut self, now: Now, spaces: &[DiskSpace], out: &mut Actions) {
        for (dir, space) in Arc::make_mut(&mut self.dirs).iter_mut().zip(spaces) {
            (dir.total_bytes, dir.usable_bytes) = (space.total_bytes as i64, space.free_bytes as i64);
        }
        // The sizes go along with the next view; they are no reason for one.
        if let Some(low) = self.disk.on_measured(now.mono, spaces) {
            out.extend(self.cores().map(|core| mail(core, Message::DiskLow { low })));
        }
    }

    // What the cores know.

    /// Lets the cores have a new view when something has changed: at once for somebody who waits, else not more often
    /// than every few milliseconds, so that thousands of partitions coming into service cost few of them.
    fn want_view(&mut self, now: MonoMicros) {
        let somebody_waits = self.proposals.has_settled(&self.hosting);
        if self.phase >= Phase::Serving && (somebody_waits || self.is_view_stale()) {
            let calm = self.last_view.map_or(now, |last| last.plus_millis(VIEW_INTERVAL_MS));
            let at = if somebody_waits { now } else { calm.max(now) };
            self.view_at = Some(self.view_at.map_or(at, |planned| planned.min(at)));
        }
    }

    fn is_view_stale(&self) -> bool {
        self.dirs_stale || self.hosting.has_stale_routes() || !Arc::ptr_eq(&self.image, &self.viewed)
    }

    /// Sends the newest view, then the answers that waited for it.
    fn publish(&mut self, now: Now, out: &mut Actions) {
        self.view_at = None;
        if self.is_view_stale() {
            self.send_view(out);
            self.last_view = Some(now.mono);
        }
        for proposal in self.proposals.take_settled(&self.hosting) {
            if let Asker::Core(origin) = proposal.asker {
                out.push(mail(origin.core, Message::CommandDone { origin, result: proposal.result }));
            }
        }
        if !self.ready && self.phase == Phase::Serving && self.hosting.is_all_settled() {
            self.ready = true;
            out.push(Action::Ready);
        }
    }

    fn send_view(&mut self, out: &mut Actions) {
        self.hosting.refresh_routes(&self.image);
        let (node, image, dirs) = (self.node(), self.image.clone(), self.dirs.clone());
        self.viewed = image.clone();
        self.dirs_stale = false;
        let view = Arc::new(ClusterView { node, image, routes: self.hosting.routes().clone(), dirs });
        out.extend(self.cores().map(|core| mail(core, Message::View(view.clone()))));
    }

    fn answer_scrape(&mut self, finished: Option<(Vec<HttpTicket>, Scraped)>, out: &mut Actions) {
        if let Some((tickets, scraped)) = finished {
            out.push(Action::Scraped { tickets, scraped, state: self.state() });
        }
    }

    // Ends.

    fn on_stop(&mut self, out: &mut Actions) {
        if self.phase < Phase::Stopping {
            self.phase = Phase::Stopping;
            self.stopping = self.cores().collect();
            out.extend(self.cores().map(|core| mail(core, Message::Stop)));
        }
    }

    fn on_stopped(&mut self, core: CoreId, clean: bool, offsets: Vec<FinalOffsets>, out: &mut Actions) {
        self.clean &= clean;
        self.final_offsets.extend(offsets);
        self.stopping.retain(|waiting| *waiting != core);
        if self.phase == Phase::Stopping && self.stopping.is_empty() {
            self.phase = Phase::Ended;
            let epoch = self.image.brokers.get(&self.node()).map(|broker| broker.epoch).filter(|_| self.clean);
            out.push(Action::Stopped { clean: epoch, offsets: std::mem::take(&mut self.final_offsets) });
        }
    }

    fn metadata_failed(&mut self, what: &str, errno: Errno, out: &mut Actions) {
        let path = &self.dirs[0].path;
        let text = format!("cannot {what} in {path}/.pinion/raft: {errno}");
        let reason = match errno {
            Errno(ENOSPC | EDQUOT) => Reason::DiskFull(text),
            _ => Reason::DirFailed(text),
        };
        self.end(reason, out);
    }

    fn end(&mut self, reason: Reason, out: &mut Actions) {
        self.phase = Phase::Ended;
        out.push(Action::Fatal { reason });
    }

    fn node(&self) -> BrokerId {
        self.config.registration.id
    }

    fn cores(&self) -> impl Iterator<Item = CoreId> + use<> {
        (0..self.config.cores).map(CoreId)
    }
}

/// Views that nobody waits for leave at most this often.
const VIEW_INTERVAL_MS: u64 = 10;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// What a directory whose disk hangs has failed with.
const ETIMEDOUT: i32 = 110;

fn mail(core: CoreId, message: Message) -> Action {
    Action::Mail { to: Peer::Core(core), message }
}

fn save_snapshot(snapshot: &Snapshot) -> Action {
    Action::SaveSnapshot { index: snapshot.index, bytes: snapshot.encode() }
}

fn not_controller(message: &str) -> CommandResult {
    CommandResult::Refused(Refusal::new(ErrorCode::NOT_CONTROLLER, message))
}

fn refuse(origin: Origin, message: &str, out: &mut Actions) {
    out.push(mail(origin.core, Message::CommandDone { origin, result: not_controller(message) }));
}

#[cfg(test)]
mod tests;
