//! Settings: as typed ([`RawConfig`]) → validated, derived and cross-checked once ([`Config`]), then passed as values.
//!
//! Nothing reads a setting after the start, and nothing here touches the world: facts about the machine come in as
//! [`Host`].

mod chosen;
pub mod cores;
mod describe;
pub mod knobs;
pub mod quantity;
mod raw;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub use cores::Threads;
pub use raw::RawConfig;

use crate::control::image::FlushMode;
use crate::ids::{BrokerId, TopicId};
use crate::limits::CHUNK;
use crate::log::topic_config::{self, TopicConfig, TopicDefaults};
use knobs::{Kind, Preset};

/// What the machine gives this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// CPUs it may use, ascending.
    pub cpus: Vec<usize>,
    /// RAM in bytes, by the machine or by the process's control group.
    pub memory_bytes: u64,
    /// Files it may open (hard RLIMIT_NOFILE).
    pub files_max: u64,
}

/// All settings of a broker, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Id of this broker.
    pub node: BrokerId,
    /// Its rack.
    pub rack: Option<String>,
    /// Where clients connect.
    pub listen: Endpoint,
    /// Where clients are told to connect; `None` is where they are listened to.
    pub advertise: Option<Endpoint>,
    /// Where other brokers connect.
    pub internal_listen: Endpoint,
    /// Where HTTP is served; `None` is nowhere.
    pub http_listen: Option<Endpoint>,
    /// Data directories, in the order of their `DirId`.
    pub data_dirs: Vec<PathBuf>,
    /// Ids of former ones whose contents are given up.
    pub dirs_lost: Vec<TopicId>,
    /// Threads and CPUs.
    pub threads: Threads,
    /// Limits of memory, connections, requests and partitions.
    pub budgets: Budgets,
    /// The disk.
    pub disk: DiskConfig,
    /// What topics get that were not told otherwise.
    pub topics: TopicPolicy,
    /// After SIGTERM: how long an orderly stop may take, in ms.
    pub shutdown_grace_ms: u64,
    /// Refuse to start where a fall-back would cost speed.
    pub strict: bool,
    /// Log lines as JSON.
    pub log_json: bool,
    /// What was accepted but has no effect, a sentence each.
    pub notes: Vec<String>,
    /// What was given, by setting, in the setting's unit.
    pub given: BTreeMap<&'static str, String>,
}

/// Limits of the whole broker; a core gets its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Tail memory of each data core in bytes, a multiple of a chunk.
    pub arena_bytes: u64,
    /// Sealed indexes in memory, bytes per data core.
    pub index_cache_bytes: u64,
    /// Client connections.
    pub connections_max: u32,
    /// Client connections of one address.
    pub connections_per_ip_max: u32,
    /// Silence after which a connection is closed, in ms.
    pub connection_idle_ms_max: u64,
    /// Largest Produce request in bytes.
    pub request_bytes_max: u32,
    /// Largest fetch answer in bytes.
    pub fetch_bytes_max: u32,
    /// Incremental fetch sessions.
    pub fetch_sessions_max: u32,
    /// Partitions of this broker.
    pub partitions_max: u32,
    /// Silence after which an idempotent producer is forgotten, in ms.
    pub producer_expiry_ms: u64,
}

/// Settings of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// When bytes count as stable.
    pub flush_mode: FlushMode,
    /// Free bytes below which producers are refused; `None` is [`DiskConfig::free_bytes_min_of`].
    pub free_bytes_min: Option<u64>,
    /// A disk operation that takes longer fails its directory, in ms.
    pub stall_timeout_ms: u64,
    /// How often old segments are looked for, in ms.
    pub retention_check_ms: u64,
}

impl DiskConfig {
    /// Free bytes below which producers are refused on a file system of this size.
    pub fn free_bytes_min_of(&self, file_system_bytes: u64) -> u64 {
        self.free_bytes_min.unwrap_or((file_system_bytes / 20).min(5 << 30))
    }
}

/// What topics get that were not told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPolicy {
    /// Partitions.
    pub partitions: u32,
    /// Replicas.
    pub replication_factor: u16,
    /// Create a topic when a client first asks for it.
    pub auto_create: bool,
    /// The broker's defaults as given.
    pub defaults: TopicDefaults,
    /// Settings of a topic without any, resolved.
    pub config: TopicConfig,
}

/// A host name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// 0 takes a free one.
    pub port: u16,
}

impl Endpoint {
    /// Reads `host:port`, also with a `PLAINTEXT://` in front and IPv6 in brackets.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let plain = text.strip_prefix("PLAINTEXT://").unwrap_or(text);
        if plain.contains("://") {
            return Err(format!("{text}: there is no TLS and no SASL yet, only PLAINTEXT"));
        }
        let refused = || format!("{text}: host:port is needed");
        let (host, port) = plain.rsplit_once(':').ok_or_else(refused)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| refused())?;
        if host.is_empty() {
            return Err(format!("{text}: a host is needed; 0.0.0.0 listens everywhere"));
        }
        Ok(Endpoint { host: host.to_string(), port })
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Config {
    /// Resolves what was typed against the machine. The error is a sentence that names the setting.
    pub fn resolve(raw: &RawConfig, host: &Host) -> Result<Config, String> {
        let values = Values(raw);
        let threads = threads(&values, host)?;
        let budgets = budgets(&values, host, &threads)?;
        let config = Config {
            node: BrokerId(values.number("node.id")),
            rack: raw.value("broker.rack").map(String::from),
            listen: values.endpoint("listeners")?,
            advertise: raw.value("advertised.listeners").map(Endpoint::parse).transpose()?,
            internal_listen: values.endpoint("internal.listener")?,
            http_listen: match values.text("http.listener") {
                "off" => None,
                address => Some(Endpoint::parse(address).map_err(|why| format!("http.listener = {why}"))?),
            },
            data_dirs: values.text("log.dirs").split(',').map(|dir| PathBuf::from(dir.trim())).collect(),
            dirs_lost: dirs_lost(raw.value("log.dirs.lost"))?,
            disk: DiskConfig {
                flush_mode: match values.text("flush.mode") {
                    "written" => FlushMode::Written,
                    _ => FlushMode::Synced,
                },
                free_bytes_min: values.given("log.min.free.bytes"),
                stall_timeout_ms: values.given("disk.stall.timeout.ms").unwrap_or(2_000 * threads.patience()),
                retention_check_ms: values.number("log.retention.check.interval.ms"),
            },
            topics: topic_policy(&values)?,
            shutdown_grace_ms: values.number("shutdown.grace.ms"),
            strict: values.switch("strict"),
            log_json: values.text("log.format") == "json",
            notes: raw.notes().to_vec(),
            given: raw.values(),
            threads,
            budgets,
        };
        config.cross_check()?;
        Ok(config)
    }

    /// Refuses settings that contradict each other.
    fn cross_check(&self) -> Result<(), String> {
        let (topic, budgets) = (&self.topics.config, &self.budgets);
        if topic.max_message_bytes > budgets.request_bytes_max {
            return Err(format!(
                "message.max.bytes = {} does not fit into socket.request.max.bytes = {}",
                topic.max_message_bytes, budgets.request_bytes_max
            ));
        }
        if u64::from(topic.max_message_bytes) > topic.segment_bytes {
            return Err(format!(
                "message.max.bytes = {} does not fit into log.segment.bytes = {}",
                topic.max_message_bytes, topic.segment_bytes
            ));
        }
        for (i, dir) in self.data_dirs.iter().enumerate() {
            if dir.as_os_str().is_empty() || self.data_dirs[..i].contains(dir) {
                return Err(format!("log.dirs: {:?} is given twice or is empty", dir.display().to_string()));
            }
        }
        let mut listeners = vec![("listeners", &self.listen), ("internal.listener", &self.internal_listen)];
        listeners.extend(self.http_listen.iter().map(|http| ("http.listener", http)));
        for (i, (name, endpoint)) in listeners.iter().enumerate() {
            let same = listeners[..i].iter().find(|(_, other)| other == endpoint && endpoint.port != 0);
            if let Some((other, _)) = same {
                return Err(format!("{name} and {other} are both {endpoint}"));
            }
        }
        Ok(())
    }
}

fn dirs_lost(ids: Option<&str>) -> Result<Vec<TopicId>, String> {
    let ids = ids.unwrap_or_default().split(',').map(str::trim).filter(|id| !id.is_empty());
    ids.map(|id| TopicId::parse(id).ok_or_else(|| format!("log.dirs.lost: {id} is no id of a data directory")))
        .collect()
}

fn threads(values: &Values, host: &Host) -> Result<Threads, String> {
    let wish = cores::Wish {
        cores: values.0.value("cores"),
        control: values.given("control_core"),
        background: values.0.value("background_cores"),
        pin: values.0.value("pin").map(|pin| pin == "true"),
        busy_poll_us: values.number("busy_poll_us"),
    };
    cores::distribute(&wish, host)
}

fn budgets(values: &Values, host: &Host, threads: &Threads) -> Result<Budgets, String> {
    let data_cores = threads.data_cpus.len() as u64;
    let arena_bytes = values.given("arena.bytes").unwrap_or(host.memory_bytes / 4 / data_cores);
    // Whole chunks, and enough of them for the minimum of each pool.
    let arena_bytes = (arena_bytes / CHUNK).max(4) * CHUNK;
    if arena_bytes * data_cores > host.memory_bytes / 4 * 3 {
        return Err(format!(
            "arena.bytes = {arena_bytes}: {data_cores} data cores would take more than three quarters of the {} bytes of RAM",
            host.memory_bytes
        ));
    }
    let connections_max = values.given("max.connections").unwrap_or((host.files_max / 4).clamp(1, 20_000));
    // Files for listeners, rings, checkpoints and the metadata log.
    let files_left = host.files_max.saturating_sub(connections_max + 256);
    let partitions_max = values.given("partitions.max").unwrap_or((files_left / 3).clamp(1, 50_000));
    if files_left < partitions_max {
        return Err(format!(
            "partitions.max = {partitions_max} and max.connections = {connections_max} need {} open files and RLIMIT_NOFILE \
             allows {}; raise it (LimitNOFILE=) or lower one of them",
            partitions_max + connections_max + 256,
            host.files_max
        ));
    }
    Ok(Budgets {
        arena_bytes,
        index_cache_bytes: values.number("index.cache.bytes"),
        connections_max: connections_max as u32,
        connections_per_ip_max: values.given("max.connections.per.ip").unwrap_or(connections_max) as u32,
        connection_idle_ms_max: values.number("connections.max.idle.ms"),
        request_bytes_max: values.number("socket.request.max.bytes"),
        fetch_bytes_max: values.number("fetch.max.bytes"),
        fetch_sessions_max: values.number("max.incremental.fetch.session.cache.slots"),
        partitions_max: partitions_max as u32,
        producer_expiry_ms: values.number("producer.id.expiration.ms"),
    })
}

fn topic_policy(values: &Values) -> Result<TopicPolicy, String> {
    let given = knobs::KNOBS.iter().filter_map(|knob| Some((knob.topic?, values.0.value(knob.name)?)));
    let given: BTreeMap<String, String> = given.map(|(topic, value)| (topic.to_string(), value.to_string())).collect();
    let defaults = TopicDefaults::new(given).map_err(|fault| fault.to_string())?;
    Ok(TopicPolicy {
        partitions: values.number("num.partitions"),
        replication_factor: values.number("default.replication.factor"),
        auto_create: values.switch("auto.create.topics.enable"),
        config: topic_config::resolve(&BTreeMap::new(), &defaults).map_err(|fault| fault.to_string())?,
        defaults,
    })
}

/// Typed access to what was given, else to the fixed defaults of the table.
struct Values<'a>(&'a RawConfig);

impl Values<'_> {
    fn text(&self, name: &str) -> &str {
        let knob = knobs::find(name).expect("a setting of the table");
        match (self.0.value(name), knob.default) {
            (Some(value), _) | (None, Preset::Fixed(value)) => value,
            (None, Preset::Derived(how)) => panic!("{name} has no fixed default: {how}"),
        }
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> T {
        let knob = knobs::find(name).expect("a setting of the table");
        let Kind::Number(unit, ..) = knob.kind else { panic!("{name} is no number") };
        let number = unit.parse(self.text(name)).expect("checked when it was given");
        T::try_from(number).ok().expect("the range of the setting fits its type")
    }

    /// A number that was given.
    fn given<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        self.0.value(name).map(|_| self.number(name))
    }

    fn switch(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    fn endpoint(&self, name: &str) -> Result<Endpoint, String> {
        Endpoint::parse(self.text(name)).map_err(|why| format!("{name} = {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { cpus: (0..8).collect(), memory_bytes: 32 << 30, files_max: 524_288 }
    }

    fn resolve(pairs: &[&str]) -> Result<Config, String> {
        let mut raw = RawConfig::default();
        pairs.iter().try_for_each(|pair| raw.set(pair))?;
        Config::resolve(&raw, &host())
    }

    fn refusal(pairs: &[&str]) -> String {
        resolve(pairs).expect_err("refused")
    }

    #[test]
    fn without_settings_a_node_serves_loopback() {
        let config = resolve(&[]).expect("valid");
        assert_eq!(config.listen.to_string(), "127.0.0.1:9092");
        assert_eq!(config.http_listen.map(|http| http.to_string()).as_deref(), Some("127.0.0.1:9644"));
        assert_eq!(config.data_dirs, [PathBuf::from("./pinion-data")]);
        assert_eq!(config.threads.data_cpus.len(), 7);
        assert_eq!(config.budgets.arena_bytes, (32u64 << 30) / 4 / 7 / CHUNK * CHUNK);
        assert_eq!(config.topics.config, TopicConfig::default());
        assert_eq!(config.disk.flush_mode, FlushMode::Synced);
        assert_eq!(config.disk.stall_timeout_ms, 2_000);
        assert_eq!(config.disk.free_bytes_min_of(1 << 40), 5 << 30);
        assert_eq!(config.disk.free_bytes_min_of(20 << 20), 1 << 20);
    }

    #[test]
    fn settings_take_units_and_reach_topics() {
        let config = resolve(&["log.segment.bytes=64MiB", "log.retention.hours=2", "disk.stall.timeout.ms=1s"]);
        let config = config.expect("valid");
        assert_eq!(config.topics.config.segment_bytes, 64 << 20);
        assert_eq!(config.topics.config.retention_ms, Some(7_200_000));
        assert_eq!(config.topics.defaults.value("segment.bytes"), Some("67108864"));
        assert_eq!(config.disk.stall_timeout_ms, 1_000);
    }

    #[test]
    fn contradictions_are_refused_with_both_names() {
        let refused = refusal(&["message.max.bytes=2MiB", "log.segment.bytes=1MiB"]);
        assert_eq!(refused, "message.max.bytes = 2097152 does not fit into log.segment.bytes = 1048576");
        assert!(refusal(&["message.max.bytes=200MiB"]).contains("socket.request.max.bytes"));
        assert!(refusal(&["log.dirs=a,b,a"]).contains("given twice"));
        assert_eq!(refusal(&["http.listener=127.0.0.1:9092"]), "http.listener and listeners are both 127.0.0.1:9092");
        assert!(refusal(&["partitions.max=600000"]).contains("RLIMIT_NOFILE"));
        assert!(refusal(&["arena.bytes=20GiB"]).contains("three quarters"));
    }

    #[test]
    fn partitions_and_connections_follow_the_files_that_may_be_open() {
        let small = Host { files_max: 1024, ..host() };
        let config = Config::resolve(&RawConfig::default(), &small).expect("valid");
        assert_eq!((config.budgets.connections_max, config.budgets.partitions_max), (256, 170));
        let config = resolve(&[]).expect("valid");
        assert_eq!((config.budgets.connections_max, config.budgets.partitions_max), (20_000, 50_000));
    }

    #[test]
    fn addresses_are_read_in_kafkas_form_too() {
        let endpoint = |text| Endpoint::parse(text).map(|endpoint| endpoint.to_string());
        assert_eq!(endpoint("PLAINTEXT://0.0.0.0:9092"), Ok("0.0.0.0:9092".to_string()));
        assert_eq!(endpoint("[::1]:0"), Ok("[::1]:0".to_string()));
        assert!(endpoint("SASL_SSL://h:1").expect_err("refused").contains("TLS"));
        assert!(endpoint(":9092").expect_err("refused").contains("0.0.0.0"));
        assert!(endpoint("h").is_err() && endpoint("h:70000").is_err());
        assert!(Endpoint::parse("127.3.0.1:1").expect("valid").is_loopback());
        assert!(!Endpoint::parse("10.0.0.1:1").expect("valid").is_loopback());
    }

    #[test]
    fn http_can_be_switched_off() {
        assert_eq!(resolve(&["http.listener=off"]).expect("valid").http_listen, None);
        assert!(refusal(&["http.listener=nowhere"]).starts_with("http.listener = nowhere"));
    }
}
