//! A node from its settings to its end: each thing is made by its own module, here they only follow one another.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::arena::{Arena, ArenaConfig, PoolMinima, Regions};
use crate::config::{Config, Endpoint};
use crate::control::command::Registration;
use crate::control::controller::ControllerConfig;
use crate::control::image::FlushMode;
use crate::control::{Control, ControlConfig, raft_log, start as control_start};
use crate::fatal::Reason;
use crate::ids::CoreId;
use crate::io::crowd::Crowds;
use crate::io::device::{self, DeviceFacts, check_direct_io};
use crate::io::file::Registry;
use crate::io::listen;
use crate::io::memory::Memory;
use crate::limits::CHUNK;
use crate::log::appender::TailWrites;
use crate::log::checkpoint::SlotWriter;
use crate::log::group_commit::FlushWay;
use crate::log::segment::UnwrittenExtents;
use crate::runtime::background::{self, Background};
use crate::runtime::control::{self, ControlThread};
use crate::runtime::data::{self, DataCore};
use crate::runtime::data_dirs::DataDirs;
use crate::runtime::inbox::{Inbox, Input};
use crate::runtime::mailbox::{self, Post};
use crate::runtime::pulse::{OldestDisk, Pulse};
use crate::runtime::recover::{self, DirState};
use crate::runtime::shell::{ShellParts, ShellSettings};
use crate::runtime::stall::Watched;
use crate::runtime::supervise::{self, End, Report};
use crate::runtime::{host, http, identity, raft_files, stall};
use crate::shard::config::ShardConfig;
use crate::shard::message::DirView;

/// Letters of one queue between two threads.
const QUEUE_LETTERS: usize = 4096;
/// Small blocks that a core lends for first receives.
const SMALL_BLOCKS: u32 = 64;

/// Serves until the end; says how it came.
///
/// # Errors
/// Whatever keeps the node from starting.
pub fn run(config: &Config) -> Result<End, Reason> {
    host::raise_files_max();
    let dirs = DataDirs::open(&config.data_dirs, config.node)?;
    let states = read_states(&dirs)?;
    let devices = devices(&dirs)?;
    let cores = config.threads.data_cpus.len();
    let (listeners, kafka) = listen::listen(resolve("--listen", &config.listen)?, cores)?;
    let http = bind_http(config)?;
    let (reports, heard) = mpsc::channel();
    supervise::watch_signals(reports.clone()).map_err(|error| kernel("install signal handlers", &error))?;
    let (inbox, inputs, bell) = Inbox::new()?;
    let mut posts = mailbox::posts(cores, QUEUE_LETTERS)?;
    posts.truncate(cores + 1);
    let control_post = posts.pop().expect("a post for the control core");
    let pulses: Vec<Arc<Pulse>> = (0..cores).map(|_| Arc::new(Pulse::new(dirs.dirs.len()))).collect();
    let parts = Parts { config, dirs: &dirs, states: &states, devices: &devices, pulses: &pulses, reports: &reports };
    parts.start_cores(posts, listeners)?;
    let raft_dir = config.data_dirs[0].join(".pinion/raft");
    let control = parts.control(&raft_dir, kafka)?;
    let metadata: Arc<OldestDisk> = Arc::default();
    let raft = raft_files::start(raft_dir, inbox.clone(), Arc::clone(&metadata))
        .map_err(|error| kernel("start a thread", &error))?;
    let background = parts.start_background(&states, inbox.clone())?;
    let http_address = http.as_ref().and_then(|listener| listener.local_addr().ok());
    if let Some(listener) = http {
        let (_, queries) = http::start(listener).map_err(|error| kernel("start the HTTP thread", &error))?;
        inbox.forward(queries).map_err(|error| kernel("start a thread", &error))?;
    }
    let watched = Watched {
        pulses: pulses.clone(),
        dirs: dirs.dirs.len() as u16,
        metadata,
        patience_ms: config.disk.stall_timeout_ms,
        inbox: inbox.clone(),
    };
    stall::start(watched).map_err(|error| kernel("start a thread", &error))?;
    let thread = ControlThread {
        control,
        post: control_post,
        inputs: (inputs, bell, inbox.clone()),
        raft,
        background,
        pulses,
        dirs: config.data_dirs.clone(),
        cpu: config.threads.pin.then_some(config.threads.control_cpu),
        real_time: !config.threads.small_host,
        reports,
    };
    control::start(thread).map_err(|error| kernel("start the control thread", &error))?;
    Ok(supervise_node(config, &dirs, &heard, &inbox, (kafka, http_address)))
}

fn supervise_node(
    config: &Config,
    dirs: &DataDirs,
    heard: &Receiver<Report>,
    inbox: &Inbox,
    (kafka, http): (SocketAddr, Option<SocketAddr>),
) -> End {
    let ready = || {
        let http = http.map_or("off".to_owned(), |address| address.to_string());
        // Nothing listens for other brokers before there is replication.
        println!("ready node={} kafka={kafka} internal=off http={http}", config.node);
    };
    let grace = Duration::from_millis(config.shutdown_grace_ms);
    let end = supervise::supervise(heard, grace, ready, || inbox.put(Input::Stop));
    if let End::Clean(epoch) = end
        && let Err(reason) = dirs.mark_clean(epoch)
    {
        return End::Fatal(reason);
    }
    end
}

/// What the starting of threads needs in many places.
struct Parts<'a> {
    config: &'a Config,
    dirs: &'a DataDirs,
    states: &'a [DirState],
    devices: &'a [DeviceFacts],
    pulses: &'a [Arc<Pulse>],
    reports: &'a Sender<Report>,
}

impl Parts<'_> {
    fn start_cores(&self, posts: Vec<Post>, listeners: Vec<std::os::fd::OwnedFd>) -> Result<(), Reason> {
        let cores = posts.len() as u16;
        let arenas: Vec<ArenaConfig> = (0..cores).map(|core| self.arena(CoreId(core))).collect();
        let memories: Vec<Memory> = arenas
            .iter()
            .map(|arena| Memory::reserve(arena.core, Arena::region_bytes(arena)))
            .collect::<Result<_, _>>()?;
        let regions = Regions::new(memories.iter().map(Memory::region).collect());
        let registry = Arc::new(Registry::default());
        let crowds = Arc::new(Crowds::new(posts.len()));
        let shared = |error: std::io::Error| kernel("share the data directories", &error);
        let (fds, locks) = (self.dirs.fds().map_err(shared)?, self.dirs.locks().map_err(shared)?);
        for (index, ((post, listener), memory)) in posts.into_iter().zip(listeners).zip(memories).enumerate() {
            let core = CoreId(index as u16);
            let shell = ShellParts {
                core,
                memory,
                regions: Arc::clone(&regions),
                dirs: Arc::clone(&fds),
                locks: Arc::clone(&locks),
                registry: Arc::clone(&registry),
                listener: Some(listener),
                post,
                crowds: Arc::clone(&crowds),
                pulse: Arc::clone(&self.pulses[index]),
                settings: self.shell_settings(),
            };
            let core = DataCore {
                config: Arc::new(self.shard(core, cores, arenas[index])?),
                regions: Arc::clone(&regions),
                checkpoints: self.slot_writers(core),
                shell,
                cpu: self.config.threads.pin.then(|| self.config.threads.data_cpus[index]),
            };
            data::start(core, self.reports.clone()).map_err(|error| kernel("start a data core", &error))?;
        }
        Ok(())
    }

    fn arena(&self, core: CoreId) -> ArenaConfig {
        let budgets = &self.config.budgets;
        let budget_bytes = budgets.arena_bytes;
        let window_bytes_max = u64::from(budgets.request_bytes_max).next_multiple_of(CHUNK);
        ArenaConfig { core, budget_bytes, window_bytes_max, pools: PoolMinima::of_budget(budget_bytes) }
    }

    fn shell_settings(&self) -> ShellSettings {
        let threads = &self.config.threads;
        ShellSettings {
            workers_max: threads.io_workers_max().unwrap_or(0),
            worker_cpus: if threads.pin { threads.background_cpus.clone() } else { Vec::new() },
            strict: self.config.strict,
            busy_poll_us: u64::from(threads.busy_poll_us),
            ..ShellSettings::default()
        }
    }

    fn shard(&self, core: CoreId, cores: u16, arena: ArenaConfig) -> Result<ShardConfig, Reason> {
        let budgets = &self.config.budgets;
        let share = |all: u32| all.div_ceil(u32::from(cores));
        Ok(ShardConfig {
            core,
            cores,
            node: self.config.node,
            arena,
            flush_ways: self.devices.iter().map(|device| flush_way(self.config.disk.flush_mode, device)).collect(),
            tail_writes: self.devices.iter().map(tail_writes).collect(),
            connections_max: share(budgets.connections_max),
            connections_per_address_max: budgets.connections_per_ip_max,
            connection_idle_ms_max: budgets.connection_idle_ms_max,
            request_bytes_max: budgets.request_bytes_max,
            small_blocks: SMALL_BLOCKS,
            fetch_bytes_max: budgets.fetch_bytes_max,
            fetch_sessions_max: share(budgets.fetch_sessions_max),
            auto_create_topics: self.config.topics.auto_create,
            retention_check_ms: self.config.disk.retention_check_ms,
            index_cache_bytes: budgets.index_cache_bytes,
            topic_defaults: Arc::new(self.config.topics.defaults.clone()),
            broker_settings: self.config.described(),
            seed: identity::random_seed()?,
        })
    }

    fn slot_writers(&self, core: CoreId) -> Vec<SlotWriter> {
        let writer = |state: &DirState| SlotWriter::new(core, state.checkpoint.sequence, state.slots.get(&core));
        self.states.iter().map(writer).collect()
    }

    fn control(&self, raft_dir: &std::path::Path, kafka: SocketAddr) -> Result<Control, Reason> {
        let path = self.config.data_dirs[0].display().to_string();
        let files = raft_files::read(raft_dir)
            .map_err(|error| Reason::DirFailed(format!("cannot read the metadata log in {path}: {error}")))?;
        let recovery = raft_log::recover(&files).map_err(|damage| control_start::reason_of(&path, &damage))?;
        for note in &recovery.notes {
            tracing::warn!("metadata log: {note}");
        }
        let found = self.dirs.partitions()?;
        Control::new(self.control_config(kafka), recovery, found, identity::random_seed()?)
    }

    fn control_config(&self, kafka: SocketAddr) -> ControlConfig {
        let (host, port) = match &self.config.advertise {
            Some(endpoint) => (endpoint.host.clone(), endpoint.port),
            None => (advertised_host(&self.config.listen, kafka), kafka.port()),
        };
        let dir = |dir: &crate::runtime::data_dirs::DataDir| DirView {
            path: dir.path.display().to_string(),
            online: dir.online,
            total_bytes: dir.file_system_bytes as i64,
            usable_bytes: dir.free_bytes as i64,
        };
        ControlConfig {
            registration: Registration {
                id: self.config.node,
                host,
                port,
                rack: self.config.rack.clone(),
                directories: self.dirs.dirs.iter().map(|dir| dir.id).collect(),
                ..Registration::default()
            },
            cluster_id: self.dirs.cluster_id.to_string().into(),
            flush_mode: self.config.disk.flush_mode,
            cores: self.config.threads.data_cpus.len() as u16,
            dirs: self.dirs.dirs.iter().map(dir).collect(),
            dirs_lost: self.config.dirs_lost.clone(),
            free_bytes_min: self.dirs.dirs.iter().map(|dir| self.floor(dir)).collect(),
            controller: ControllerConfig {
                partitions_default: self.config.topics.partitions,
                replication_factor_default: self.config.topics.replication_factor,
                partitions_max: self.config.budgets.partitions_max as usize,
                delete_enabled: true,
            },
            topic_defaults: Arc::new(self.config.topics.defaults.clone()),
        }
    }

    /// `log.min.free.bytes` of a directory; an offline one has no floor.
    fn floor(&self, dir: &crate::runtime::data_dirs::DataDir) -> u64 {
        if dir.online { self.config.disk.free_bytes_min_of(dir.file_system_bytes) } else { 0 }
    }

    fn start_background(&self, states: &[DirState], inbox: Inbox) -> Result<Sender<crate::control::job::Job>, Reason> {
        let threads = &self.config.threads;
        let states = states.iter().map(|state| DirState {
            checkpoint: state.checkpoint.clone(),
            slots: state.slots.clone(),
            clean: state.clean,
        });
        let background = Background {
            dirs: self.dirs.fds().map_err(|error| kernel("share the data directories", &error))?,
            states: states.collect(),
            unwritten: match self.config.disk.flush_mode {
                FlushMode::Synced => UnwrittenExtents::Allowed,
                FlushMode::Written => UnwrittenExtents::Forbidden,
            },
            workers: threads.data_cpus.len().max(2),
            cpus: if threads.pin { threads.background_cpus.clone() } else { Vec::new() },
        };
        background::start(background, inbox).map_err(|error| kernel("start a background thread", &error))
    }
}

fn read_states(dirs: &DataDirs) -> Result<Vec<DirState>, Reason> {
    let state = |dir: &crate::runtime::data_dirs::DataDir| {
        if !dir.online {
            return Ok(DirState::default());
        }
        recover::read_state(&dir.fd, dir.clean.is_some())
            .map_err(|why| Reason::DirFailed(format!("{}: {why}", dir.path.display())))
    };
    dirs.dirs.iter().map(state).collect()
}

/// What each data directory's device says of itself; refuses a file system without O_DIRECT.
fn devices(dirs: &DataDirs) -> Result<Vec<DeviceFacts>, Reason> {
    let device = |dir: &crate::runtime::data_dirs::DataDir| {
        let facts = DeviceFacts::of(std::os::fd::AsFd::as_fd(&dir.fd));
        if dir.online {
            check_direct_io(std::os::fd::AsFd::as_fd(&dir.fd), &dir.path.display().to_string())?;
            tracing::info!(dir = %dir.path.display(), "{facts}");
        }
        Ok(facts)
    };
    dirs.dirs.iter().map(device).collect()
}

/// How a device makes writes stable.
fn flush_way(mode: FlushMode, device: &DeviceFacts) -> FlushWay {
    match mode {
        FlushMode::Written => FlushWay::Written,
        FlushMode::Synced if device.way == device::FlushWay::WriteThrough => FlushWay::Completion,
        FlushMode::Synced => FlushWay::Sync,
    }
}

/// How the tail is written on a device.
fn tail_writes(device: &DeviceFacts) -> TailWrites {
    if device.stable_writes { TailWrites::Copied } else { TailWrites::Shared }
}

/// The address that a flag gives.
fn resolve(flag: &str, endpoint: &Endpoint) -> Result<SocketAddr, Reason> {
    let text = format!("{}:{}", endpoint.host, endpoint.port);
    let addresses = (endpoint.host.as_str(), endpoint.port).to_socket_addrs();
    let first = addresses.ok().and_then(|mut addresses| addresses.next());
    first.ok_or_else(|| Reason::Port(format!("{text} is no address of this host; choose another with {flag}")))
}

/// Clients are told the name that was given, unless it stands for every address.
fn advertised_host(listen: &Endpoint, bound: SocketAddr) -> String {
    if bound.ip().is_unspecified() { "127.0.0.1".to_owned() } else { listen.host.clone() }
}

fn bind_http(config: &Config) -> Result<Option<TcpListener>, Reason> {
    let Some(endpoint) = &config.http_listen else { return Ok(None) };
    let address = resolve("--http", endpoint)?;
    let bound = TcpListener::bind(address);
    bound
        .map(Some)
        .map_err(|error| Reason::Port(format!("cannot serve HTTP on {address}: {error}; choose another with --http")))
}

fn kernel(what: &str, error: &std::io::Error) -> Reason {
    Reason::Kernel(format!("cannot {what}: {error}"))
}
