//! Which partitions this broker serves, on which core and in which data directory.
//!
//! These choices are this broker's own: they are not in the metadata log but follow from it and from the directories
//! that a start finds. A new partition waits for its directory, an old one for its recovery; then its core gets it,
//! and only when the core has said `Hosted` does a route to it appear. A deleted one is dropped by its core, which
//! renames the directory; a successor of the same name waits for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::control::image::{Image, ImageDiff, TopicImage};
use crate::control::job::{Job, JobDone, NewDir, RecoverAsk};
use crate::control::strays::Strays;
use crate::control::{Action, Actions};
use crate::ids::{BrokerId, CoreId, DirId, Errno, MonoMicros, PartitionId, PartitionIndex, TopicId};
use crate::limits::PARTITIONS_PER_MESSAGE_MAX;
use crate::log::recovery::RecoveredLog;
use crate::shard::action::PartitionDir;
use crate::shard::message::{HostPartition, Message, Peer, Route};

/// The partitions of this broker.
#[derive(Debug)]
pub struct Hosting {
    node: BrokerId,
    /// Partitions on each core.
    core_loads: Vec<usize>,
    dirs: Vec<DirState>,
    partitions: BTreeMap<PartitionId, Local>,
    /// Partitions of each topic that are on their way into service or out of it.
    unsettled: BTreeMap<TopicId, usize>,
    routes: BTreeMap<TopicId, Arc<[Route]>>,
    stale_routes: BTreeSet<TopicId>,
    /// Directories that are being renamed: their names are not free yet.
    leaving: BTreeSet<PartitionDir>,
    strays: Strays,
    /// When directories that could not be made are tried again.
    retry_at: Option<MonoMicros>,
}

#[derive(Debug)]
struct DirState {
    online: bool,
    partitions: usize,
}

/// One partition of this broker.
#[derive(Debug)]
struct Local {
    dir: PartitionDir,
    core: CoreId,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its directory's name is still taken by one that is being renamed.
    Waiting,
    /// The background thread makes its directory.
    Creating,
    /// The background thread reads its log.
    Recovering,
    /// Its core has been told.
    Hosting,
    /// Its core serves it.
    Served,
    /// Its core has been told to let go.
    Dropping,
    /// The topic was deleted while the background thread had it; what comes back is renamed.
    Doomed,
    /// The directory could not be made and is tried again.
    Stuck(Errno),
    /// Its data directory has failed.
    Failed,
}

/// A data directory that has turned out to be unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedDir {
    /// Which one.
    pub dir: DirId,
    /// What the kernel said.
    pub errno: Errno,
}

/// How many partitions are in which condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostingCounts {
    /// Served by a core.
    pub served: usize,
    /// On their way into service or out of it.
    pub unsettled: usize,
    /// Without service: their data directory has failed, or could not be written to.
    pub failed: usize,
}

impl Hosting {
    /// No partition yet. `dirs_online` says which data directories can be used.
    pub fn new(node: BrokerId, cores: u16, dirs_online: &[bool], strays: Strays) -> Hosting {
        assert!(cores > 0 && !dirs_online.is_empty(), "{cores} cores, {} directories", dirs_online.len());
        Hosting {
            node,
            core_loads: vec![0; cores.into()],
            dirs: dirs_online.iter().map(|online| DirState { online: *online, partitions: 0 }).collect(),
            partitions: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            routes: BTreeMap::new(),
            stale_routes: BTreeSet::new(),
            leaving: BTreeSet::new(),
            strays,
            retry_at: None,
        }
    }

    /// Takes up service with the directories that the start has found: those that belong to partitions of this broker
    /// are recovered, all others set aside. A partition without a directory gets a new one, unless a data directory is
    /// missing that may hold it.
    pub fn start(&mut self, image: &Image, now: crate::ids::Now, out: &mut Actions) {
        let missing_dir = self.dirs.iter().position(|dir| !dir.online);
        let mut found = self.strays.sort(image, now, out);
        self.leaving.extend(self.strays.renaming().cloned());
        let mut recovering = Vec::new();
        let local: Vec<PartitionId> = image.topics.values().flat_map(|topic| self.local_ids(topic, 0)).collect();
        for id in local {
            match (found.remove(&id), missing_dir) {
                (Some(dir), _) => {
                    self.insert(id, dir, State::Recovering);
                    recovering.push(id);
                }
                (None, Some(missing)) => {
                    let dir = PartitionDir { dir: DirId(missing as u16), name: dir_name(image, id) };
                    self.insert(id, dir, State::Failed);
                }
                (None, None) => self.plan(id, dir_name(image, id)),
            }
        }
        self.recover(&recovering, image, out);
        self.create_planned(out);
    }

    /// Follows a step of the metadata.
    pub fn on_diff(&mut self, diff: &ImageDiff, image: &Image, out: &mut Actions) {
        self.drop_topics(&diff.deleted, out);
        for (topic, before) in &diff.grown {
            for id in self.local_ids(topic, *before) {
                self.plan(id, dir_name(image, id));
            }
            self.stale_routes.insert(topic.id);
        }
        self.create_planned(out);
        for topic in &diff.configured {
            self.configure(topic, out);
        }
    }

    /// The background thread is done with a job. The result names a directory that has to be given up.
    pub fn on_job(&mut self, done: JobDone, image: &Image, now: MonoMicros, out: &mut Actions) -> Option<FailedDir> {
        match done {
            JobDone::DirsCreated { partitions, result: Ok(()), .. } => {
                let logs = partitions.into_iter().map(|id| (id, RecoveredLog::default())).collect();
                self.host(logs, State::Creating, image, out);
                None
            }
            JobDone::DirsCreated { dir, partitions, result: Err(errno) } => {
                self.on_dirs_refused(FailedDir { dir, errno }, &partitions, now, out)
            }
            JobDone::Recovered { dir, partitions } => self.on_recovered(dir, partitions, image, out),
            JobDone::Renamed { from, result } => self.on_renamed(&from, result, out),
            JobDone::Removed { dir, result } => {
                if let Err(errno) = result {
                    tracing::warn!(dir = %dir.name, %errno, "a deleted directory could not be removed");
                }
                None
            }
        }
    }

    /// A core serves these partitions.
    pub fn on_hosted(&mut self, partitions: &[PartitionId]) {
        for id in partitions {
            if self.state(*id) == Some(State::Hosting) {
                self.set_state(*id, State::Served);
            }
        }
    }

    /// A core has let go of these partitions and renamed their directories.
    pub fn on_dropped(&mut self, partitions: &[PartitionId], out: &mut Actions) {
        for id in partitions {
            if self.state(*id) == Some(State::Dropping) {
                let dir = self.forget(*id);
                self.leaving.remove(&dir);
            }
        }
        self.create_planned(out);
    }

    /// A data directory is given up: its partitions are served no more. False when it was given up before.
    pub fn fail_dir(&mut self, dir: DirId) -> bool {
        let state = &mut self.dirs[usize::from(dir.0)];
        if !std::mem::replace(&mut state.online, false) {
            return false;
        }
        let lost: Vec<PartitionId> =
            self.partitions.iter().filter(|(_, local)| local.dir.dir == dir).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.lose(id));
        true
    }

    /// What is due: directories that could not be made, strays whose time is over.
    pub fn on_deadline(&mut self, now: MonoMicros, out: &mut Actions) {
        self.strays.on_deadline(now, out);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            let stuck: Vec<PartitionId> = self.in_state(|state| matches!(state, State::Stuck(_))).collect();
            stuck.iter().for_each(|id| self.set_state(*id, State::Creating));
            self.create_dirs(&stuck, out);
        }
    }

    /// When [`Hosting::on_deadline`] is wanted.
    pub fn deadline(&self) -> Option<MonoMicros> {
        self.retry_at.into_iter().chain(self.strays.deadline()).min()
    }

    /// Whether no partition of the topic is on its way into service or out of it.
    pub fn is_settled(&self, topic: TopicId) -> bool {
        !self.unsettled.contains_key(&topic)
    }

    /// Whether no partition at all is on its way.
    pub fn is_all_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Why a partition of the topic has no directory, if one has not. Cost is linear in the topic's partitions.
    pub fn trouble(&self, topic: TopicId) -> Option<Errno> {
        self.of_topic(topic).find_map(|(_, local)| match local.state {
            State::Stuck(errno) => Some(errno),
            _ => None,
        })
    }

    /// Brings the routes of changed topics up to date.
    pub fn refresh_routes(&mut self, image: &Image) {
        for topic in std::mem::take(&mut self.stale_routes) {
            match image.topic(topic) {
                Some(topic) => {
                    let routes = self.topic_routes(topic);
                    self.routes.insert(topic.id, routes);
                }
                None => {
                    self.routes.remove(&topic);
                }
            }
        }
    }

    /// Whether [`Hosting::refresh_routes`] would change anything.
    pub fn has_stale_routes(&self) -> bool {
        !self.stale_routes.is_empty()
    }

    /// For each topic with partitions here: where each partition is served.
    pub fn routes(&self) -> &BTreeMap<TopicId, Arc<[Route]>> {
        &self.routes
    }

    /// How many partitions are in which condition. Cost is linear in their number.
    pub fn counts(&self) -> HostingCounts {
        let mut counts = HostingCounts::default();
        for local in self.partitions.values() {
            match local.state {
                State::Served => counts.served += 1,
                State::Failed | State::Stuck(_) => counts.failed += 1,
                _ => counts.unsettled += 1,
            }
        }
        counts
    }

    // What comes back from the background thread.

    /// Directories could not be made: tried again when the reason may pass, else the data directory is given up.
    fn on_dirs_refused(
        &mut self,
        failed: FailedDir,
        partitions: &[PartitionId],
        now: MonoMicros,
        out: &mut Actions,
    ) -> Option<FailedDir> {
        if !is_passing(failed.errno) {
            return Some(failed);
        }
        tracing::warn!(dir = failed.dir.0, errno = %failed.errno, "directories cannot be made, trying again in 5 s");
        self.discard_doomed(partitions, out);
        for id in partitions {
            if self.state(*id) == Some(State::Creating) {
                self.set_state(*id, State::Stuck(failed.errno));
            }
        }
        self.retry_at = Some(now.plus_millis(RETRY_MS));
        None
    }

    fn on_recovered(
        &mut self,
        dir: DirId,
        partitions: Vec<(PartitionId, Result<RecoveredLog, Errno>)>,
        image: &Image,
        out: &mut Actions,
    ) -> Option<FailedDir> {
        let mut failed = None;
        let mut logs = Vec::with_capacity(partitions.len());
        for (id, result) in partitions {
            match result {
                Ok(log) => logs.push((id, log)),
                Err(errno) => {
                    tracing::error!(topic = %id.topic, partition = id.index.0, %errno, "a partition cannot be recovered");
                    match is_passing(errno) {
                        true => self.lose(id),
                        false => failed = Some(FailedDir { dir, errno }),
                    }
                }
            }
        }
        self.host(logs, State::Recovering, image, out);
        failed
    }

    fn on_renamed(&mut self, from: &PartitionDir, result: Result<(), Errno>, out: &mut Actions) -> Option<FailedDir> {
        self.strays.on_renamed(from, result, out);
        match result {
            Ok(()) => {
                self.leaving.remove(from);
                self.create_planned(out);
                None
            }
            Err(errno) => Some(FailedDir { dir: from.dir, errno }),
        }
    }

    // Steps into service.

    /// Chooses core and directory for a new partition.
    fn plan(&mut self, id: PartitionId, name: Arc<str>) {
        let online = (0..).zip(&self.dirs).filter(|(_, dir)| dir.online);
        let Some((index, _)) = online.min_by_key(|(_, dir)| dir.partitions) else {
            // The first data directory holds the metadata log: without it this process has ended.
            unreachable!("a broker has at least one working data directory");
        };
        let dir = PartitionDir { dir: DirId(index), name };
        self.insert(id, dir, State::Waiting);
    }

    /// Makes the directories of all planned partitions whose name is free: one job per data directory.
    fn create_planned(&mut self, out: &mut Actions) {
        let planned: Vec<PartitionId> = match self.unsettled.is_empty() {
            true => vec![],
            false => self.in_state(|state| state == State::Waiting).collect(),
        };
        let is_free = |id: &PartitionId| !self.leaving.contains(&self.partitions[id].dir);
        let free: Vec<PartitionId> = planned.into_iter().filter(is_free).collect();
        free.iter().for_each(|id| self.set_state(*id, State::Creating));
        self.create_dirs(&free, out);
    }

    fn create_dirs(&self, ids: &[PartitionId], out: &mut Actions) {
        let mut by_dir: BTreeMap<DirId, Vec<NewDir>> = BTreeMap::new();
        for id in ids {
            let dir = &self.partitions[id].dir;
            by_dir.entry(dir.dir).or_default().push(NewDir { id: *id, name: dir.name.clone() });
        }
        out.extend(by_dir.into_iter().map(|(dir, partitions)| Action::Job(Job::CreateDirs { dir, partitions })));
    }

    fn recover(&self, ids: &[PartitionId], image: &Image, out: &mut Actions) {
        let mut by_dir: BTreeMap<DirId, Vec<RecoverAsk>> = BTreeMap::new();
        for id in ids {
            let dir = self.partitions[id].dir.clone();
            let topic = image.topic(id.topic).expect("a recovered partition is in the image");
            let leader_epoch_max = topic.partitions[id.index.0 as usize].leader_epoch;
            let ask = RecoverAsk { id: *id, dir, leader_epoch_max, config: topic.config.clone() };
            by_dir.entry(ask.dir.dir).or_default().push(ask);
        }
        for (dir, asks) in by_dir {
            let per_job = asks.len().div_ceil(RECOVER_JOBS).clamp(RECOVER_PER_JOB_MIN, PARTITIONS_PER_MESSAGE_MAX);
            let jobs = asks.chunks(per_job).map(<[_]>::to_vec);
            out.extend(jobs.map(|partitions| Action::Job(Job::Recover { dir, partitions })));
        }
    }

    /// Gives partitions to their cores, those that are still wanted.
    fn host(&mut self, logs: Vec<(PartitionId, RecoveredLog)>, expected: State, image: &Image, out: &mut Actions) {
        let ids: Vec<PartitionId> = logs.iter().map(|(id, _)| *id).collect();
        self.discard_doomed(&ids, out);
        let mut by_core: BTreeMap<CoreId, Vec<HostPartition>> = BTreeMap::new();
        for (id, log) in logs {
            if self.state(id) == Some(expected) {
                self.set_state(id, State::Hosting);
                let local = &self.partitions[&id];
                by_core.entry(local.core).or_default().push(host_partition(id, local, log, image));
            }
        }
        for (core, mut partitions) in by_core {
            while !partitions.is_empty() {
                let rest = partitions.split_off(partitions.len().min(PARTITIONS_PER_MESSAGE_MAX));
                out.push(mail(core, Message::Host(std::mem::replace(&mut partitions, rest))));
            }
        }
    }

    fn configure(&self, topic: &TopicImage, out: &mut Actions) {
        let hosted = self.of_topic(topic.id).filter(|(_, local)| matches!(local.state, State::Hosting | State::Served));
        let cores: BTreeSet<CoreId> = hosted.map(|(_, local)| local.core).collect();
        out.extend(
            cores
                .into_iter()
                .map(|core| mail(core, Message::Configure { topic: topic.id, config: topic.config.clone() })),
        );
    }

    // Steps out of service.

    fn drop_topics(&mut self, topics: &[Arc<TopicImage>], out: &mut Actions) {
        let mut by_core: BTreeMap<CoreId, Vec<PartitionId>> = BTreeMap::new();
        for topic in topics {
            let ids: Vec<PartitionId> = self.of_topic(topic.id).map(|(id, _)| *id).collect();
            for id in ids {
                if let Some(core) = self.drop_partition(id) {
                    by_core.entry(core).or_default().push(id);
                }
            }
            self.stale_routes.insert(topic.id);
        }
        for (core, ids) in by_core {
            out.extend(ids.chunks(PARTITIONS_PER_MESSAGE_MAX).map(|ids| mail(core, Message::Drop(ids.to_vec()))));
        }
    }

    /// The core that has to let go of the partition first, if one has it.
    fn drop_partition(&mut self, id: PartitionId) -> Option<CoreId> {
        let local = &self.partitions[&id];
        let (core, dir) = (local.core, local.dir.clone());
        match local.state {
            State::Hosting | State::Served => {
                self.set_state(id, State::Dropping);
                self.leaving.insert(dir);
                Some(core)
            }
            State::Creating | State::Recovering => {
                self.set_state(id, State::Doomed);
                self.leaving.insert(dir);
                None
            }
            State::Waiting | State::Stuck(_) | State::Failed => {
                self.forget(id);
                None
            }
            State::Dropping | State::Doomed => None,
        }
    }

    /// Renames what the background thread still had of deleted topics.
    fn discard_doomed(&mut self, ids: &[PartitionId], out: &mut Actions) {
        for id in ids {
            if self.state(*id) == Some(State::Doomed) {
                let dir = self.forget(*id);
                self.strays.delete(dir, out);
            }
        }
    }

    /// Serves this partition no more, until the next start.
    fn lose(&mut self, id: PartitionId) {
        match self.state(id) {
            // Its core answers for it: `Dropped` comes with a failed directory too.
            None | Some(State::Dropping) => {}
            Some(State::Doomed) => {
                self.forget(id);
            }
            Some(_) => self.set_state(id, State::Failed),
        }
    }

    // Bookkeeping.

    fn local_ids(&self, topic: &TopicImage, from: usize) -> Vec<PartitionId> {
        let partitions = (0..).map(PartitionIndex).zip(&topic.partitions).skip(from);
        partitions
            .filter(|(_, partition)| partition.replicas.contains(&self.node))
            .map(|(index, _)| PartitionId { topic: topic.id, index })
            .collect()
    }

    fn of_topic(&self, topic: TopicId) -> impl Iterator<Item = (&PartitionId, &Local)> {
        let (first, last) = (PartitionIndex(0), PartitionIndex(i32::MAX));
        self.partitions.range(PartitionId { topic, index: first }..=PartitionId { topic, index: last })
    }

    fn in_state(&self, wanted: impl Fn(State) -> bool) -> impl Iterator<Item = PartitionId> {
        self.partitions.iter().filter(move |(_, local)| wanted(local.state)).map(|(id, _)| *id)
    }

    fn state(&self, id: PartitionId) -> Option<State> {
        self.partitions.get(&id).map(|local| local.state)
    }

    fn insert(&mut self, id: PartitionId, dir: PartitionDir, state: State) {
        let (core, load) =
            self.core_loads.iter_mut().enumerate().min_by_key(|(_, load)| **load).expect("at least one core");
        *load += 1;
        let core = CoreId(core as u16);
        self.dirs[usize::from(dir.dir.0)].partitions += 1;
        let before = self.partitions.insert(id, Local { dir, core, state });
        assert!(before.is_none(), "{id:?} is hosted already");
        self.count_unsettled(id.topic, 0, state.is_unsettled().into());
        self.stale_routes.insert(id.topic);
    }

    fn forget(&mut self, id: PartitionId) -> PartitionDir {
        let local = self.partitions.remove(&id).expect("only a known partition is forgotten");
        self.core_loads[usize::from(local.core.0)] -= 1;
        self.dirs[usize::from(local.dir.dir.0)].partitions -= 1;
        self.count_unsettled(id.topic, local.state.is_unsettled().into(), 0);
        local.dir
    }

    fn set_state(&mut self, id: PartitionId, state: State) {
        let local = self.partitions.get_mut(&id).expect("only a known partition changes its state");
        let before = std::mem::replace(&mut local.state, state);
        self.count_unsettled(id.topic, before.is_unsettled().into(), state.is_unsettled().into());
        if before == State::Served || matches!(state, State::Served | State::Failed) {
            self.stale_routes.insert(id.topic);
        }
    }

    fn count_unsettled(&mut self, topic: TopicId, before: usize, after: usize) {
        if before == after {
            return;
        }
        let count = self.unsettled.entry(topic).or_insert(0);
        *count = *count + after - before;
        if *count == 0 {
            self.unsettled.remove(&topic);
        }
    }

    fn topic_routes(&self, topic: &TopicImage) -> Arc<[Route]> {
        let mut routes = vec![Route::Nowhere; topic.partitions.len()];
        for (id, local) in self.of_topic(topic.id) {
            routes[id.index.0 as usize] = match local.state {
                State::Served => Route::Core(local.core),
                State::Failed => Route::Offline,
                _ => Route::Nowhere,
            };
        }
        routes.into()
    }
}

impl State {
    fn is_unsettled(self) -> bool {
        !matches!(self, State::Served | State::Failed | State::Stuck(_))
    }
}

/// Recovery jobs of a directory, as far as their sizes allow: many, so that the threads share the work and service
/// begins early, but not more, because each ends with a sync of the file system.
const RECOVER_JOBS: usize = 32;
/// Partitions of the smallest recovery job.
const RECOVER_PER_JOB_MIN: usize = 32;
const RETRY_MS: u64 = 5_000;
const _: () = assert!(RECOVER_PER_JOB_MIN <= PARTITIONS_PER_MESSAGE_MAX);

/// Errors that pass without the device being broken (errno.h): ENOMEM, EEXIST, ENFILE, EMFILE, ENOSPC, EDQUOT.
fn is_passing(errno: Errno) -> bool {
    [12, 17, 23, 24, 28, 122].contains(&errno.0)
}

fn dir_name(image: &Image, id: PartitionId) -> Arc<str> {
    let topic = image.topic(id.topic).expect("a partition that is planned is in the image");
    format!("{}-{}", topic.name, id.index).into()
}

fn host_partition(id: PartitionId, local: &Local, log: RecoveredLog, image: &Image) -> HostPartition {
    let topic = image.topic(id.topic).expect("a partition that is hosted is in the image");
    HostPartition {
        id,
        topic: topic.name.clone(),
        dir: local.dir.clone(),
        leader_epoch: topic.partitions[id.index.0 as usize].leader_epoch,
        config: topic.config.clone(),
        log,
    }
}

fn mail(core: CoreId, message: Message) -> Action {
    Action::Mail { to: Peer::Core(core), message }
}
