//! The table of settings: name, unit, default, range, what each does and what raising it costs.

use super::quantity::Unit;

/// One setting.
#[derive(Debug)]
pub struct Knob {
    /// Name in `--set` and in the file; Kafka's where Kafka has it.
    pub name: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// Its value when nobody gives one.
    pub default: Preset,
    /// The topic setting that it is the default of.
    pub topic: Option<&'static str>,
    /// What it does.
    pub doc: &'static str,
}

/// Which values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number from the first to the second.
    Number(Unit, i64, i64),
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `host:port`.
    Address,
    /// Any text.
    Text,
    /// A count, or CPU numbers such as `1-3,6`.
    Cpus,
    /// Directories, separated by commas.
    Directories,
}

/// A value that nobody has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Always this one.
    Fixed(&'static str),
    /// From the host or from other settings, as this says.
    Derived(&'static str),
}

use Kind::{Address, Choice, Cpus, Directories, Number, Switch, Text};
use Preset::{Derived, Fixed};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const COUNT_MAX: i64 = i32::MAX as i64;
const NO_LIMIT: i64 = i64::MAX;

const fn knob(name: &'static str, kind: Kind, default: Preset, doc: &'static str) -> Knob {
    Knob { name, kind, default, topic: None, doc }
}

/// The broker's default of a topic setting; Kafka's default and the topic's range hold.
const fn topic_default(name: &'static str, kind: Kind, default: &'static str, topic: &'static str) -> Knob {
    Knob { name, kind, default: Fixed(default), topic: Some(topic), doc: "Default of the topic setting" }
}

/// All settings, in the order in which they are shown.
pub const KNOBS: &[Knob] = &[
    // Identity and addresses.
    knob("node.id", Number(Unit::One, 0, COUNT_MAX), Fixed("1"), "Id of this broker; kept in its data directories."),
    knob("broker.rack", Text, Derived("none"), "Rack of this broker, for the placement of replicas."),
    knob("listeners", Address, Fixed("127.0.0.1:9092"), "Where clients connect. Port 0 takes a free one."),
    knob("advertised.listeners", Address, Derived("listeners"), "Address that clients are told to connect to."),
    knob("internal.listener", Address, Fixed("127.0.0.1:9192"), "Where other brokers connect."),
    knob("http.listener", Text, Fixed("127.0.0.1:9644"), "Where /healthz, /readyz and /metrics are; off for nowhere."),
    knob("log.dirs", Directories, Fixed("./pinion-data"), "Data directories; a new partition goes to the emptiest."),
    knob(
        "log.dirs.lost",
        Text,
        Derived("none"),
        "Ids of former data directories whose contents are lost for good: their partitions start anew, empty.",
    ),
    // Threads.
    knob("cores", Cpus, Derived("all CPUs but the control core's"), "Data cores: how many, or which CPUs (1-7)."),
    knob("control_core", Number(Unit::One, 0, 4095), Derived("the first CPU"), "CPU of the control core."),
    knob(
        "background_cores",
        Cpus,
        Derived("the control core"),
        "CPUs (2 or 2-3) of recovery, cold reads and slow work.",
    ),
    knob("pin", Switch, Derived("true where every thread has a CPU"), "Tie each thread to its CPU."),
    knob(
        "busy_poll_us",
        Number(Unit::Micros, 0, 1_000_000),
        Fixed("0"),
        "How long an idle data core spins before it sleeps. Costs a whole CPU per core while it spins.",
    ),
    // Memory.
    knob(
        "arena.bytes",
        Number(Unit::Bytes, 8 * MIB, 1024 * GIB),
        Derived("a quarter of RAM / data cores"),
        "Tail memory of each data core. More keeps more of the log's end readable without the disk.",
    ),
    knob(
        "index.cache.bytes",
        Number(Unit::Bytes, MIB, 64 * GIB),
        Fixed("16MiB"),
        "Indexes of sealed segments that each data core keeps in memory.",
    ),
    // Connections and requests.
    knob(
        "max.connections",
        Number(Unit::One, 1, 1_000_000),
        Derived("20000, at most a quarter of the open files allowed"),
        "Client connections; further ones are closed at once.",
    ),
    knob(
        "max.connections.per.ip",
        Number(Unit::One, 1, COUNT_MAX),
        Derived("max.connections"),
        "Client connections from one address.",
    ),
    knob(
        "connections.max.idle.ms",
        Number(Unit::Millis, 1_000, NO_LIMIT),
        Fixed("10min"),
        "A connection that says nothing for this long is closed.",
    ),
    knob(
        "socket.request.max.bytes",
        Number(Unit::Bytes, 64 << 10, GIB),
        Fixed("100MiB"),
        "Largest Produce request. Each data core reserves address space for one of this size.",
    ),
    knob(
        "fetch.max.bytes",
        Number(Unit::Bytes, 1024, GIB),
        Fixed("55MiB"),
        "Most bytes of one fetch answer, whatever the client asks for.",
    ),
    knob(
        "max.incremental.fetch.session.cache.slots",
        Number(Unit::One, 0, 1_000_000),
        Fixed("1000"),
        "Incremental fetch sessions kept; further clients send whole requests.",
    ),
    // Disk.
    knob(
        "flush.mode",
        Choice(&["synced", "written"]),
        Fixed("synced"),
        "When bytes count as stable: on stable media, or written with O_DIRECT. Fixed when the cluster forms.",
    ),
    knob(
        "log.min.free.bytes",
        Number(Unit::Bytes, 0, NO_LIMIT),
        Derived("5 % of the file system, at most 5 GiB"),
        "Producers are refused while less than this is free.",
    ),
    knob(
        "disk.stall.timeout.ms",
        Number(Unit::Millis, 100, 3_600_000),
        Derived("2s, five times that on a small host"),
        "A disk operation that takes longer fails its data directory.",
    ),
    knob(
        "partitions.max",
        Number(Unit::One, 1, 1_000_000),
        Derived("50000, at most a third of the open files left by connections"),
        "Partitions of this broker. Each one open for writing needs a file.",
    ),
    knob(
        "log.retention.check.interval.ms",
        Number(Unit::Millis, 1, NO_LIMIT),
        Fixed("5min"),
        "How often each data core looks for segments to delete.",
    ),
    // Topics.
    knob("num.partitions", Number(Unit::One, 1, 10_000), Fixed("1"), "Partitions of a topic that asks for none."),
    knob(
        "default.replication.factor",
        Number(Unit::One, 1, 1),
        Fixed("1"),
        "Replicas of a topic that asks for none. More than one needs a cluster, which comes later.",
    ),
    knob("auto.create.topics.enable", Switch, Fixed("true"), "Create a topic when a client first asks for it."),
    topic_default("log.retention.ms", Number(Unit::Millis, -1, NO_LIMIT), "7d", "retention.ms"),
    topic_default("log.retention.bytes", Number(Unit::Bytes, -1, NO_LIMIT), "-1", "retention.bytes"),
    topic_default("log.segment.bytes", Number(Unit::Bytes, MIB, COUNT_MAX), "1GiB", "segment.bytes"),
    topic_default("log.roll.ms", Number(Unit::Millis, 1, NO_LIMIT), "7d", "segment.ms"),
    topic_default("message.max.bytes", Number(Unit::Bytes, 0, COUNT_MAX), "1048588", "max.message.bytes"),
    topic_default(
        "log.message.timestamp.type",
        Choice(&["CreateTime", "LogAppendTime"]),
        "CreateTime",
        "message.timestamp.type",
    ),
    topic_default(
        "log.message.timestamp.before.max.ms",
        Number(Unit::Millis, 0, NO_LIMIT),
        "9223372036854775807",
        "message.timestamp.before.max.ms",
    ),
    topic_default(
        "log.message.timestamp.after.max.ms",
        Number(Unit::Millis, 0, NO_LIMIT),
        "1h",
        "message.timestamp.after.max.ms",
    ),
    topic_default("min.insync.replicas", Number(Unit::One, 1, COUNT_MAX), "1", "min.insync.replicas"),
    topic_default("log.index.interval.bytes", Number(Unit::Bytes, 0, COUNT_MAX), "4KiB", "index.interval.bytes"),
    topic_default("log.segment.delete.delay.ms", Number(Unit::Millis, 0, NO_LIMIT), "1min", "file.delete.delay.ms"),
    topic_default("log.cleanup.policy", Choice(&["delete"]), "delete", "cleanup.policy"),
    topic_default("compression.type", Choice(&["producer"]), "producer", "compression.type"),
    knob(
        "producer.id.expiration.ms",
        Number(Unit::Millis, 1_000, NO_LIMIT),
        Fixed("1d"),
        "An idempotent producer that is silent for this long is forgotten.",
    ),
    // The process.
    knob(
        "shutdown.grace.ms",
        Number(Unit::Millis, 0, 3_600_000),
        Fixed("30s"),
        "After SIGTERM: how long answering, flushing and sealing may take.",
    ),
    knob("strict", Switch, Fixed("false"), "Refuse to start where a fall-back would cost speed."),
    knob("log.format", Choice(&["human", "json"]), Fixed("human"), "Form of the log lines on stderr."),
];

/// Other names for a setting, with the factor to its unit.
pub const ALIASES: &[(&str, &str, i64)] = &[
    ("broker.id", "node.id", 1),
    ("log.dir", "log.dirs", 1),
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
];

/// Settings of Kafka's that mean nothing here: they are accepted, so that a file can be kept, and a line says why not.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("num.network.threads", "the data cores (cores) serve the network"),
    ("num.io.threads", "the data cores (cores) serve requests"),
    ("num.replica.fetchers", "each core fetches for its own partitions"),
    ("num.recovery.threads.per.data.dir", "recovery uses background_cores"),
    ("background.threads", "slow work runs on background_cores"),
    ("queued.max.requests", "requests in flight are bounded per connection"),
    ("socket.send.buffer.bytes", "the kernel sizes socket buffers"),
    ("socket.receive.buffer.bytes", "the kernel sizes socket buffers"),
    ("socket.listen.backlog.size", "the backlog is as long as the kernel allows"),
    ("log.flush.interval.messages", "flush.mode decides when a record is stable, before it is acknowledged"),
    ("log.flush.interval.ms", "flush.mode decides when a record is stable, before it is acknowledged"),
    ("log.flush.scheduler.interval.ms", "flush.mode decides when a record is stable, before it is acknowledged"),
    ("log.flush.offset.checkpoint.interval.ms", "checkpoints are written once a second"),
    ("log.preallocate", "segment files always grow ahead of the data"),
    ("log.index.size.max.bytes", "indexes are as long as their entries"),
    ("log.roll.jitter.ms", "sealing a segment is cheap enough not to be spread"),
    ("log.cleaner.enable", "there is no compaction yet"),
    ("log.cleaner.threads", "there is no compaction yet"),
    ("delete.topic.enable", "topics can always be deleted"),
    ("controlled.shutdown.enable", "a stop is always an orderly one"),
    ("process.roles", "every broker holds the metadata"),
    ("zookeeper.connection.timeout.ms", "there is no ZooKeeper"),
];

impl Knob {
    /// Its range and unit, for tables and messages.
    pub fn range(&self) -> String {
        match self.kind {
            Number(unit, low, NO_LIMIT) => format!("{} or more {}", unit.show(low), unit.name()).trim_end().to_string(),
            Number(unit, low, high) => format!("{} to {}", unit.show(low), unit.show(high)),
            Switch => "true or false".to_string(),
            Choice(words) => words.join(" or "),
            Address => "host:port".to_string(),
            Text => "text".to_string(),
            Cpus => "a count, or CPUs such as 1-3,6".to_string(),
            Directories => "directories, separated by commas".to_string(),
        }
    }

    /// What holds when nobody says anything.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Fixed(value) | Derived(value) => value,
        }
    }

    /// Checks a value and brings it into one form: numbers in the setting's unit, words as they are.
    pub fn normalized(&self, value: &str) -> Result<String, String> {
        let value = value.trim();
        let refused = |why: String| format!("{} = {value}: {why}", self.name);
        match self.kind {
            Number(unit, low, high) => match unit.parse(value) {
                Ok(number) if (low..=high).contains(&number) => Ok(number.to_string()),
                Ok(_) => Err(refused(format!("the range is {}", self.range()))),
                Err(accepted) => Err(refused(accepted)),
            },
            Switch if !["true", "false"].contains(&value) => Err(refused(format!("it is {}", self.range()))),
            Choice(words) if !words.contains(&value) => Err(refused(format!("it is {}", self.range()))),
            _ if value.is_empty() => Err(refused("it is empty".to_string())),
            _ => Ok(value.to_string()),
        }
    }
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::topic_config;

    #[test]
    fn names_are_unique_and_fixed_defaults_are_valid() {
        for (i, knob) in KNOBS.iter().enumerate() {
            assert!(KNOBS[..i].iter().all(|other| other.name != knob.name), "{} twice", knob.name);
            if let Fixed(value) = knob.default {
                assert!(knob.normalized(value).is_ok(), "{} = {value}", knob.name);
            }
        }
        assert!(WITHOUT_EFFECT.iter().all(|(name, _)| find(name).is_none()));
        assert!(ALIASES.iter().all(|(name, target, _)| find(name).is_none() && find(target).is_some()));
    }

    #[test]
    fn defaults_of_topic_settings_are_those_of_the_topic_table() {
        for knob in KNOBS {
            let Some(topic) = knob.topic else { continue };
            let definition = topic_config::definition(topic).expect(topic);
            assert_eq!(definition.broker_name, Some(knob.name));
            assert_eq!(knob.normalized(knob.default_text()).as_deref(), Ok(definition.default), "{}", knob.name);
        }
    }
}
