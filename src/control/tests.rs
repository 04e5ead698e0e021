//! Transcripts of the control core (`tests/golden/control`): a world of one disk, some cores and a background thread
//! that answers when the script says so, and properties over random runs of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::fmt::Write;

use goldenscript::{ArgumentConsumer, Command as Script, Context};
use proptest::prelude::*;

use super::command::{Alteration, Alterations, ConfigChange, CreatedTopic, NewPartitions, NewTopic, TopicRef};
use super::job::FoundDir;
use super::raft_log::{RaftFiles, recover};
use super::strays::is_partition_dir_name;
use super::*;
use crate::ids::{PartitionId, PartitionIndex, Ticket, TopicId, WallMillis};
use crate::log::recovery::RecoveredLog;
use crate::shard::action::PartitionDir;
use crate::shard::message::Route;

type Failure = Box<dyn Error>;

/// Everything around one control core.
#[derive(Default)]
struct World {
    control: Option<Control>,
    now: Now,
    logs: BTreeMap<u64, Vec<u8>>,
    snapshots: BTreeMap<LogIndex, Vec<u8>>,
    /// Partition directories: topic id, and when the name last changed.
    dirs: BTreeMap<PartitionDir, (Option<TopicId>, i64)>,
    /// Completions that the world owes, in the order of their actions.
    owed: VecDeque<Event>,
    /// Errors with which the next jobs end, by name of the job.
    faults: BTreeMap<String, Errno>,
    ticket: u64,
    /// Where the last write to the log went, and how long it was.
    last_write: Option<(u64, usize)>,
    /// In random runs: the topic that a command is about, by ticket.
    names: BTreeMap<u64, String>,
    /// In random runs: the same, for commands that wait for their answer.
    unanswered: BTreeMap<u64, String>,
    /// In random runs: topics about which a command was never answered.
    open: BTreeSet<String>,
}

impl World {
    fn start(&mut self, options: &StartOptions) -> Result<String, Failure> {
        let files = RaftFiles {
            snapshots: self.snapshots.clone().into_iter().collect(),
            logs: self.logs.clone().into_iter().collect(),
        };
        self.owed.clear();
        self.control = None;
        let recovery = match recover(&files) {
            Ok(recovery) => recovery,
            Err(damage) => {
                let reason = start::reason_of("/d0", &damage);
                return Ok(format!("refused with status {}: {reason}\n", reason.status()));
            }
        };
        let mut out = String::new();
        for note in &recovery.notes {
            writeln!(out, "note: {note}")?;
        }
        let online = |dir: DirId| dir.0 < options.dirs && dir.0 != options.away;
        let listed = self.dirs.iter().filter(|(dir, _)| online(dir.dir) && is_partition_dir_name(&dir.name));
        let found =
            listed.map(|(dir, (topic, at))| FoundDir { dir: dir.clone(), topic: *topic, changed_ms: *at }).collect();
        match Control::new(options.config(), recovery, found, options.seed) {
            Ok(control) => self.control = Some(control),
            Err(reason) => writeln!(out, "refused with status {}: {reason}", reason.status())?,
        }
        Ok(out)
    }

    fn control(&mut self) -> Result<&mut Control, Failure> {
        self.control.as_mut().ok_or_else(|| "not started".into())
    }

    fn handle(&mut self, event: Event) -> Result<String, Failure> {
        let now = self.now;
        let mut actions = Actions::new();
        self.control()?.handle(now, event, &mut actions);
        while self.control()?.deadline().is_some_and(|at| at <= now.mono) {
            self.control()?.handle(now, Event::Deadline, &mut actions);
        }
        let mut out = String::new();
        for action in actions {
            self.act(action, &mut out)?;
        }
        Ok(out)
    }

    /// Answers everything that is owed until nothing is.
    fn run(&mut self) -> Result<String, Failure> {
        let mut out = self.handle(Event::Deadline)?;
        loop {
            while let Some(event) = self.owed.pop_front() {
                out += &self.handle(event)?;
            }
            // What is only put off for a moment belongs to the answer too.
            let soon = self.now.mono.plus_millis(20);
            match self.control()?.deadline().filter(|at| *at <= soon) {
                Some(at) => self.now.mono = at,
                None => return Ok(out),
            }
            out += &self.handle(Event::Deadline)?;
        }
    }

    fn command(&mut self, command: Command) -> Result<String, Failure> {
        self.ticket += 1;
        let origin = Origin { core: CoreId(0), ticket: Ticket(self.ticket), slot: 0 };
        self.handle(Event::Mail { from: CoreId(0), message: Message::Command { origin, command } })
    }

    fn act(&mut self, action: Action, out: &mut String) -> Result<(), Failure> {
        match action {
            Action::Log(append) => {
                let made = if append.create { " in a new file" } else { "" };
                writeln!(out, "log {}: {} bytes at {}{made}", append.file, append.bytes.len(), append.at)?;
                let result = self.fault("log");
                if result.is_ok() {
                    self.write(append);
                }
                self.owed.push_back(Event::Logged(result));
            }
            Action::SaveSnapshot { index, bytes } => {
                writeln!(out, "snapshot {index}")?;
                let result = self.fault("snapshot");
                if result.is_ok() {
                    self.snapshots.insert(index, bytes);
                }
                self.owed.push_back(Event::SnapshotSaved { index, result });
            }
            Action::RemoveRaftFiles { snapshots, logs } => {
                writeln!(out, "remove snapshots {snapshots:?} and logs {logs:?}")?;
                self.snapshots.retain(|index, _| !snapshots.contains(index));
                self.logs.retain(|number, _| !logs.contains(number));
            }
            Action::Job(job) => self.job(job, out)?,
            Action::Mail { to: Peer::Core(core), message } => self.mail(core, message, out)?,
            Action::Mail { to, message } => return Err(format!("{message:?} to {to:?}").into()),
            Action::Scraped { tickets, scraped, state } => {
                let cores: Vec<_> = scraped.cores.keys().collect();
                writeln!(out, "reports of {cores:?} without {:?} for {tickets:?}, {:?}", scraped.missing, state.phase)?;
            }
            // The script measures when it wants to (`disk`).
            Action::MeasureDisks => {}
            Action::Ready => writeln!(out, "ready")?,
            Action::Stopped { clean, .. } => writeln!(out, "stopped, clean under {clean:?}")?,
            Action::Fatal { reason } => writeln!(out, "ends with status {}: {reason}", reason.status())?,
        }
        Ok(())
    }

    fn write(&mut self, append: Append) {
        let file = self.logs.entry(append.file).or_default();
        assert_eq!(file.is_empty(), append.create, "log {} is made once", append.file);
        file.resize(file.len().max(append.at as usize + append.bytes.len()), 0);
        self.last_write = Some((append.at, append.bytes.len()));
        file[append.at as usize..][..append.bytes.len()].copy_from_slice(&append.bytes);
    }

    fn job(&mut self, job: Job, out: &mut String) -> Result<(), Failure> {
        let at = self.now.wall.0;
        let done = match job {
            Job::CreateDirs { dir, partitions } => {
                let names: Vec<_> = partitions.iter().map(|new| &*new.name).collect();
                writeln!(out, "dir {dir}: make {}", shorten(&names))?;
                let result = self.fault("make");
                for new in partitions.iter().filter(|_| result.is_ok()) {
                    let place = PartitionDir { dir, name: new.name.clone() };
                    let before = self.dirs.insert(place, (Some(new.id.topic), at));
                    assert!(before.is_none_or(|(topic, _)| topic == Some(new.id.topic)), "{} is taken", new.name);
                }
                JobDone::DirsCreated { dir, partitions: partitions.iter().map(|new| new.id).collect(), result }
            }
            Job::Recover { dir, partitions } => {
                let names: Vec<_> = partitions.iter().map(|ask| &*ask.dir.name).collect();
                writeln!(out, "dir {dir}: recover {}", shorten(&names))?;
                let log = self.fault("recover").map(|()| RecoveredLog::default());
                JobDone::Recovered { dir, partitions: partitions.iter().map(|ask| (ask.id, log.clone())).collect() }
            }
            Job::Rename { from, to } => {
                writeln!(out, "dir {}: rename {} to {}", from.dir, from.name, without_digits(&to))?;
                let moved = self.dirs.remove(&from);
                let (topic, _) = moved.unwrap_or_default();
                self.dirs.insert(PartitionDir { dir: from.dir, name: to }, (topic, at));
                JobDone::Renamed { from, result: Ok(()) }
            }
            Job::Remove(dir) => {
                writeln!(out, "dir {}: remove {}", dir.dir, without_digits(&dir.name))?;
                self.dirs.remove(&dir);
                JobDone::Removed { dir, result: Ok(()) }
            }
        };
        self.owed.push_back(Event::JobDone(done));
        Ok(())
    }

    fn mail(&mut self, core: CoreId, message: Message, out: &mut String) -> Result<(), Failure> {
        let answer = match message {
            Message::View(view) => {
                if core == CoreId(0) {
                    writeln!(out, "cores: view of {}", show_view(&view))?;
                }
                return Ok(());
            }
            Message::Host(partitions) => {
                let shown: Vec<String> = partitions
                    .iter()
                    .map(|host| format!("{}@{} epoch {}", host.dir.name, host.dir.dir, host.leader_epoch))
                    .collect();
                writeln!(out, "core {core}: host {}", shorten(&shown))?;
                Message::Hosted(partitions.iter().map(|host| host.id).collect())
            }
            Message::Drop(partitions) => {
                let indexes: Vec<String> = partitions.iter().map(|id| id.index.to_string()).collect();
                writeln!(out, "core {core}: drop partitions {}", shorten(&indexes))?;
                self.dirs.retain(|dir, (topic, _)| !partitions.iter().any(|id| is_dir_of(*id, &dir.name, *topic)));
                Message::Dropped(partitions)
            }
            Message::Stop => {
                writeln!(out, "core {core}: stop")?;
                Message::Stopped { clean: self.fault("stop").is_ok(), offsets: vec![] }
            }
            Message::Scrape => match self.fault("scrape") {
                Ok(()) => Message::Report(Box::default()),
                Err(_) => return Ok(()),
            },
            Message::Configure { config, .. } => {
                let retention = config.retention_ms.map_or(-1, |ms| ms as i64);
                return Ok(writeln!(out, "core {core}: configure retention.ms={retention}")?);
            }
            Message::FailDir { dir, .. } => return Ok(writeln!(out, "core {core}: directory {dir} has failed")?),
            Message::DiskLow { low } => return Ok(writeln!(out, "core {core}: disk low={low}")?),
            Message::CommandDone { origin, result } => {
                self.unanswered.remove(&origin.ticket.0);
                return Ok(writeln!(out, "answer {}: {}", origin.ticket, show_result(&result))?);
            }
            other => return Err(format!("{other:?} to core {core}").into()),
        };
        self.owed.push_back(Event::Mail { from: core, message: answer });
        Ok(())
    }

    fn fault(&mut self, job: &str) -> Result<(), Errno> {
        self.faults.remove(job).map_or(Ok(()), Err)
    }

    fn show_state(&mut self) -> Result<String, Failure> {
        let mut out = String::new();
        let state = self.control()?.state();
        let (image, hosting) = (&state.image, state.hosting);
        writeln!(
            out,
            "{:?} ready={} leader={} term={} applied={} next producer id {}",
            state.phase, state.ready, state.leader, state.term, state.applied, image.next_producer_id
        )?;
        writeln!(out, "served {} unsettled {} failed {}", hosting.served, hosting.unsettled, hosting.failed)?;
        for (id, broker) in &image.brokers {
            writeln!(out, "broker {id} epoch {} fenced={}", broker.epoch, broker.fenced)?;
        }
        for topic in image.topics.values() {
            let partitions: Vec<String> = topic
                .partitions
                .iter()
                .map(|p| format!("{:?} leader {} epoch {}", numbers(&p.replicas), p.leader, p.leader_epoch))
                .collect();
            writeln!(out, "topic {} {:?}: {}", topic.name, topic.overrides, shorten(&partitions))?;
        }
        Ok(out)
    }

    /// Damages what is on the disk.
    fn damage(&mut self, script: &mut ArgumentConsumer<'_>) -> Result<String, Failure> {
        let what = script.next_pos().ok_or("what to damage")?;
        let at = option(script, "at", 0usize)?;
        if what == "snapshot" {
            let mut newest = self.snapshots.last_entry().ok_or("no snapshot")?;
            newest.get_mut()[at] ^= 1;
            return Ok(String::new());
        }
        let number: u64 = option(script, "file", *self.logs.keys().last().ok_or("no log")?)?;
        let log = self.logs.get_mut(&number).ok_or("no such log")?;
        match what {
            "flip" => log[at] ^= 1,
            "cut" => log.truncate(at),
            "version" => log[at + 4] = 9,
            "lose" => {
                self.logs.remove(&number);
            }
            other => return Err(format!("{other} is no damage").into()),
        }
        Ok(String::new())
    }
}

/// How a control core is started.
#[derive(Clone, Debug)]
struct StartOptions {
    cores: u16,
    dirs: u16,
    /// A data directory that cannot be read.
    away: u16,
    /// Ids of the data directories.
    ids: Vec<TopicId>,
    /// Ids of those that are given up.
    lost: Vec<TopicId>,
    seed: u64,
    node: i32,
    cluster: String,
    written: bool,
    partitions_max: usize,
}

impl Default for StartOptions {
    fn default() -> StartOptions {
        StartOptions {
            cores: 2,
            dirs: 1,
            away: u16::MAX,
            ids: Vec::new(),
            lost: Vec::new(),
            seed: 1,
            node: 1,
            cluster: "the-cluster".into(),
            written: false,
            partitions_max: 20_000,
        }
    }
}

impl StartOptions {
    /// [cores=N] [dirs=N] [away=DIR] [ids=N.N] [lost=N.N] [seed=N] [node=N] [cluster=C] [written=true] [max=N]
    fn parse(args: &mut ArgumentConsumer<'_>) -> Result<StartOptions, Failure> {
        let default = StartOptions::default();
        Ok(StartOptions {
            cores: option(args, "cores", default.cores)?,
            dirs: option(args, "dirs", default.dirs)?,
            away: option(args, "away", default.away)?,
            ids: ids(args, "ids")?,
            lost: ids(args, "lost")?,
            seed: option(args, "seed", default.seed)?,
            node: option(args, "node", default.node)?,
            cluster: option(args, "cluster", default.cluster)?,
            written: option(args, "written", default.written)?,
            partitions_max: option(args, "max", default.partitions_max)?,
        })
    }

    fn config(&self) -> ControlConfig {
        let dir =
            |dir| DirView { path: format!("/d{dir}"), online: dir != self.away, total_bytes: -1, usable_bytes: -1 };
        ControlConfig {
            registration: Registration {
                id: BrokerId(self.node),
                host: "h".into(),
                port: 9092,
                directories: self.ids.clone(),
                ..Registration::default()
            },
            dirs_lost: self.lost.clone(),
            cluster_id: self.cluster.as_str().into(),
            flush_mode: if self.written { image::FlushMode::Written } else { image::FlushMode::Synced },
            cores: self.cores,
            free_bytes_min: vec![100],
            dirs: (0..self.dirs).map(dir).collect(),
            controller: ControllerConfig { partitions_max: self.partitions_max, ..ControllerConfig::default() },
            topic_defaults: Arc::default(),
        }
    }
}

impl goldenscript::Runner for World {
    type Command = Script;

    fn run(&mut self, script: &Script, _: &Context) -> Result<String, Failure> {
        let mut args = script.consume_args();
        let out = match script.name.as_str() {
            "start" => self.start(&StartOptions::parse(&mut args)?)?,
            // Answer all that is owed; `step` only the first.
            "run" => World::run(self)?,
            "step" => match self.owed.pop_front() {
                Some(event) => self.handle(event)?,
                None => self.handle(Event::Deadline)?,
            },
            // Many commands, of which only what happens to the files of the log is shown.
            "many" => {
                let count: usize = args.next_pos().ok_or("how many")?.parse()?;
                let mut out = String::new();
                for _ in 0..count {
                    out += &self.command(Command::AllocateProducerIds)?;
                    out += &World::run(self)?;
                }
                let shown = |line: &&str| ["snapshot", "remove", "new file"].iter().any(|word| line.contains(word));
                out.lines().filter(shown).map(|line| format!("{line}\n")).collect()
            }
            "restart" => {
                let count: u64 = args.next_pos().ok_or("how often")?.parse()?;
                let mut out = String::new();
                for seed in 0..count {
                    out += &self.start(&StartOptions { seed, ..StartOptions::default() })?;
                    out += &World::run(self)?;
                }
                let shown = |line: &&str| line.contains("snapshot") || line.contains("remove");
                out.lines().filter(shown).map(|line| format!("{line}\n")).collect()
            }
            "crash" => {
                self.control = None;
                String::new()
            }
            // A data directory is empty now.
            "wipe" => {
                let wiped: u16 = args.next_pos().ok_or("which directory")?.parse()?;
                self.dirs.retain(|dir, _| dir.dir != DirId(wiped));
                String::new()
            }
            "wait" => {
                let ms: u64 = args.next_pos().ok_or("how long")?.parse()?;
                self.now.mono = self.now.mono.plus_millis(ms);
                self.now.wall = WallMillis(self.now.wall.0 + ms as i64);
                self.handle(Event::Deadline)?
            }
            "fail" => {
                let (job, errno) = args.next_key().ok_or("which job")?;
                self.faults.insert(job.into(), Errno(errno.parse()?));
                String::new()
            }
            "dir" => self.add_dir(&mut args)?,
            "dirs" => self.dirs.keys().map(|dir| format!("{}/{}\n", dir.dir, without_digits(&dir.name))).collect(),
            "damage" => self.damage(&mut args)?,
            "state" => self.show_state()?,
            "files" => self.show_files(),
            "stop" => self.handle(Event::Stop)?,
            "scrape" => self.handle(Event::Scrape(HttpTicket(option(&mut args, "ticket", 1)?)))?,
            "disk" => {
                let free_bytes = option(&mut args, "free", 0)?;
                self.handle(Event::DisksMeasured(vec![DiskSpace { total_bytes: 1000, free_bytes }]))?
            }
            "dir-failed" => {
                let dir = DirId(args.next_pos().ok_or("which directory")?.parse()?);
                let (from, errno) = (CoreId(option(&mut args, "core", 0)?), Errno(5));
                self.handle(Event::Mail { from, message: Message::DirFailed { dir, errno } })?
            }
            "disk-hangs" => {
                let dir = DirId(args.next_pos().ok_or("which directory")?.parse()?);
                self.handle(Event::DiskHangs(dir))?
            }
            name => {
                let command = self.parse(name, &mut args)?;
                self.command(command)?
            }
        };
        args.reject_next()?;
        Ok(out)
    }
}

impl World {
    fn parse(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<Command, Failure> {
        let validate_only = option(args, "validate", false)?;
        let command = match name {
            // create NAME… [partitions=N] [replicas=N] [assign=1:2/2:1] [setting=value]…
            "create" => {
                let partitions = option(args, "partitions", -1)?;
                let replication_factor = option(args, "replicas", -1)?;
                let assignments: Vec<_> = (0..)
                    .map(PartitionIndex)
                    .zip(args.take_key("assign").into_iter().flat_map(|text| text.split('/').map(brokers)))
                    .map(|(index, brokers)| Ok((index, brokers?)))
                    .collect::<Result<_, Failure>>()?;
                let configs = rest_of_keys(args);
                let names = std::iter::from_fn(|| args.next_pos());
                let topics = names.map(|name| NewTopic {
                    name: name.into(),
                    partitions,
                    replication_factor,
                    assignments: assignments.clone(),
                    configs: configs.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect(),
                });
                Command::CreateTopics { topics: topics.collect(), validate_only }
            }
            "auto-create" => {
                Command::AutoCreateTopics { names: std::iter::from_fn(|| args.next_pos()).map(Into::into).collect() }
            }
            "delete" => {
                let names: Vec<&str> = std::iter::from_fn(|| args.next_pos()).collect();
                Command::DeleteTopics { topics: names.into_iter().map(|name| self.topic_ref(name)).collect() }
            }
            "grow" => {
                let topic: String = args.next_pos().ok_or("which topic")?.into();
                let total = args.next_pos().ok_or("how many")?.parse()?;
                let assigned = args.take_key("assign").map(|text| text.split('/').map(brokers).collect());
                let topic = NewPartitions { topic, total, assignments: assigned.transpose()? };
                Command::CreatePartitions { topics: vec![topic], validate_only }
            }
            // alter NAME [type=N] [op=N] [setting=value]…; replace NAME [setting=value]…
            "alter" | "replace" => {
                let resource_name = args.next_pos().ok_or("which topic")?.into();
                let (resource_type, operation) = (option(args, "type", 2)?, option(args, "op", 0)?);
                let settings = rest_of_keys(args).into_iter().map(|(name, value)| (name, Some(value)));
                let alterations = match name {
                    "replace" => Alterations::Replace(settings.collect()),
                    _ => Alterations::Incremental(
                        settings.map(|(name, value)| Alteration { name, operation, value }).collect(),
                    ),
                };
                Command::AlterConfigs {
                    changes: vec![ConfigChange { resource_type, resource_name, alterations }],
                    validate_only,
                }
            }
            "producer-ids" => Command::AllocateProducerIds,
            other => return Err(format!("there is no command {other}").into()),
        };
        Ok(command)
    }

    /// `id:NAME` names a topic by the id that it has now, `id:` by one that no topic has.
    fn topic_ref(&self, name: &str) -> TopicRef {
        let topics = self.control.as_ref().map(|control| &control.image.topics);
        match name.strip_prefix("id:") {
            None => TopicRef::Name(name.into()),
            Some(name) => {
                TopicRef::Id(topics.and_then(|topics| topics.get(name)).map_or(TopicId([9; 16]), |topic| topic.id))
            }
        }
    }

    fn add_dir(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<String, Failure> {
        let (dir, changed) = (DirId(option(args, "dir", 0)?), option(args, "changed", 0)?);
        let topic = option(args, "topic", 0u8)?;
        let name = args.next_pos().ok_or("which name")?.into();
        self.dirs.insert(PartitionDir { dir, name }, ((topic > 0).then_some(TopicId([topic; 16])), changed));
        Ok(String::new())
    }

    fn show_files(&self) -> String {
        let logs = self.logs.iter().map(|(number, bytes)| format!("log {number}: {} bytes\n", bytes.len()));
        let snapshots = self.snapshots.keys().map(|index| format!("snapshot {index}\n"));
        logs.chain(snapshots).collect()
    }
}

fn option<T: std::str::FromStr>(args: &mut ArgumentConsumer<'_>, key: &str, default: T) -> Result<T, Failure>
where
    T::Err: Error + 'static,
{
    args.take_key(key).map_or(Ok(default), |value| Ok(value.parse()?))
}

/// Ids of data directories, written as small numbers with dots between; 0 is that of one that cannot be read.
fn ids(args: &mut ArgumentConsumer<'_>, key: &str) -> Result<Vec<TopicId>, Failure> {
    let text = option(args, key, String::new())?;
    text.split('.').filter(|id| !id.is_empty()).map(|id| Ok(TopicId([id.parse()?; 16]))).collect()
}

fn rest_of_keys(args: &mut ArgumentConsumer<'_>) -> Vec<(String, String)> {
    std::iter::from_fn(|| args.next_key()).map(|(name, value)| (name.into(), value.into())).collect()
}

fn brokers(text: &str) -> Result<Vec<BrokerId>, Failure> {
    text.split(':').map(|id| Ok(BrokerId(id.parse()?))).collect()
}

fn numbers(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

fn is_dir_of(id: PartitionId, name: &str, topic: Option<TopicId>) -> bool {
    topic == Some(id.topic) && name.ends_with(&format!("-{}", id.index))
}

/// The random part of a renamed directory's name says nothing.
fn without_digits(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((front, suffix)) if suffix.contains('-') && suffix.len() > 32 => format!("{front}.…{}", &suffix[32..]),
        _ => name.into(),
    }
}

fn shorten<T: AsRef<str>>(items: &[T]) -> String {
    let shown: Vec<&str> = items.iter().take(8).map(AsRef::as_ref).collect();
    let more = items.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn show_view(view: &ClusterView) -> String {
    let topics: Vec<String> = view
        .image
        .topics
        .values()
        .map(|topic| {
            let routes = view.routes.get(&topic.id).map_or(&[][..], |routes| &routes[..]);
            let show = |route: &Route| match route {
                Route::Core(core) => core.to_string(),
                Route::Nowhere => "-".to_owned(),
                Route::Offline => "offline".to_owned(),
            };
            let routes: Vec<String> = routes.iter().map(show).collect();
            format!("{}[{}]", topic.name, shorten(&routes))
        })
        .collect();
    let offline = view.dirs.iter().filter(|dir| !dir.online).map(|dir| format!(", {} offline", dir.path));
    format!("entry {}: {}{}", view.image.applied, topics.join(" "), offline.collect::<String>())
}

fn show_result(result: &CommandResult) -> String {
    fn each<T>(outcomes: &[Result<T, Refusal>], ok: impl Fn(&T) -> String) -> String {
        let shown: Vec<String> = outcomes
            .iter()
            .map(|outcome| match outcome {
                Ok(done) => ok(done),
                Err(refusal) => format!("{} {}", refusal.code, refusal.message),
            })
            .collect();
        shown.join(" | ")
    }
    match result {
        CommandResult::Refused(refusal) => format!("refused, {} {}", refusal.code, refusal.message),
        CommandResult::Created(outcomes) => each(outcomes, |topic: &CreatedTopic| {
            let checked = if topic.id.is_none() { "would be " } else { "" };
            format!("{checked}created {} × {}", topic.partitions, topic.replication_factor)
        }),
        CommandResult::Deleted(outcomes) => each(outcomes, |topic| format!("deleted {}", topic.name)),
        CommandResult::Altered(outcomes) => each(outcomes, |_| "done".into()),
        CommandResult::ProducerIds { first, count } => {
            format!("producer ids {first} to {}", first + i64::from(*count) - 1)
        }
        CommandResult::Registered(epoch) => format!("registered under {epoch}"),
    }
}

#[test]
fn control_transcripts() {
    let scripts: BTreeSet<_> = std::fs::read_dir("tests/golden/control")
        .expect("the transcripts are there")
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    for path in scripts {
        goldenscript::run(&mut World::default(), &path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// One step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Create(u8, u8),
    Delete(u8),
    ProducerIds,
    /// Answer so many of the things that are owed.
    Answer(u8),
    /// Answer everything.
    Settle,
    /// The process dies; what is owed is lost, and of a write in flight only so many bytes arrive.
    Crash(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 1..4u8).prop_map(|(topic, partitions)| Step::Create(topic, partitions)),
        2 => (0..6u8).prop_map(Step::Delete),
        1 => Just(Step::ProducerIds),
        4 => (1..4u8).prop_map(Step::Answer),
        1 => Just(Step::Settle),
        1 => any::<u16>().prop_map(Step::Crash),
    ]
}

impl World {
    /// Runs one step; the transcript is the result.
    fn take(&mut self, step: &Step, starts: &mut u64) -> Result<String, Failure> {
        match step {
            Step::Create(topic, partitions) => {
                let topic = NewTopic {
                    name: format!("t{topic}"),
                    partitions: i32::from(*partitions),
                    replication_factor: 1,
                    ..NewTopic::default()
                };
                self.note(&topic.name);
                self.command(Command::CreateTopics { topics: vec![topic], validate_only: false })
            }
            Step::Delete(topic) => {
                self.note(&format!("t{topic}"));
                self.command(Command::DeleteTopics { topics: vec![TopicRef::Name(format!("t{topic}"))] })
            }
            Step::ProducerIds => self.command(Command::AllocateProducerIds),
            Step::Answer(count) => {
                let events: Vec<Event> = self.owed.drain(..self.owed.len().min((*count).into())).collect();
                events.into_iter().map(|event| self.handle(event)).collect()
            }
            Step::Settle => World::run(self),
            Step::Crash(torn) => {
                self.tear(usize::from(*torn));
                self.open.extend(std::mem::take(&mut self.unanswered).into_values());
                *starts += 1;
                let started = self.start(&StartOptions { dirs: 2, seed: *starts, ..StartOptions::default() })?;
                Ok(started + &World::run(self)?)
            }
        }
    }

    /// The next command is about this topic.
    fn note(&mut self, topic: &str) {
        self.names.insert(self.ticket + 1, topic.into());
        self.unanswered.insert(self.ticket + 1, topic.into());
    }

    /// Of the write in flight, if there is one, only the first bytes have arrived.
    fn tear(&mut self, len: usize) {
        let in_flight = self.owed.iter().any(|event| matches!(event, Event::Logged(_)));
        if let (true, Some((at, bytes))) = (in_flight, self.last_write)
            && let Some(mut log) = self.logs.last_entry()
        {
            log.get_mut().truncate(at as usize + len % bytes);
        }
    }
}

/// The blocks of producer ids that clients were given.
fn id_blocks(transcript: &str) -> Vec<&str> {
    transcript.lines().filter_map(|line| Some(line.split_once(": producer ids ")?.1)).collect()
}

/// Whether the last word that clients had of each topic was that it exists.
fn last_words(transcript: &str, world: &World) -> BTreeMap<String, bool> {
    let mut topics = BTreeMap::new();
    for line in transcript.lines() {
        let Some((ticket, answer)) = line.strip_prefix("answer ").and_then(|rest| rest.split_once(": ")) else {
            continue;
        };
        let ticket: u64 = ticket.parse().expect("a number");
        if let Some(name) = world.names.get(&ticket) {
            if answer.starts_with("created") {
                topics.insert(name.clone(), true);
            } else if answer.starts_with("deleted") {
                topics.insert(name.clone(), false);
            }
        }
    }
    topics
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_clients_were_told_survives_any_crash(steps in proptest::collection::vec(step(), 1..60)) {
        let run = || -> Result<(String, World), Failure> {
            let (mut world, mut starts) = (World::default(), 0);
            let mut transcript = world.take(&Step::Crash(0), &mut starts)?;
            for step in &steps {
                transcript += &world.take(step, &mut starts)?;
            }
            transcript += &world.take(&Step::Crash(0), &mut starts)?;
            Ok((transcript, world))
        };
        let (transcript, mut world) = run().expect("every start succeeds");
        prop_assert_eq!(&run().expect("again").0, &transcript, "one run is like another");
        let state = world.control().expect("started").state();
        prop_assert!(state.ready && state.hosting.unsettled == 0, "{:?}\n{}", state.hosting, transcript);
        let mut ids = id_blocks(&transcript);
        let given = ids.len();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), given, "a block was given out twice\n{}", transcript);
        for (name, exists) in last_words(&transcript, &world) {
            // What was asked but never answered before a crash may have happened or not.
            let is_open = world.open.contains(&name);
            let is_there = state.image.topics.contains_key(name.as_str());
            prop_assert!(is_open || is_there == exists, "topic {name} is there: {is_there}\n{transcript}");
        }
        let hosted: usize = state.image.topics.values().map(|topic| topic.partitions.len()).sum();
        prop_assert_eq!(state.hosting.served, hosted);
        for name in state.image.topics.keys() {
            prop_assert!(world.dirs.keys().any(|dir| *dir.name == *format!("{name}-0")), "{name} has no directory");
        }
    }
}
