//! The table of topic settings: name, type, default, range, the broker setting it falls back to, and what it does.

/// One setting that a topic may have.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name, as in Kafka.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// Kafka's default, as text.
    pub default: &'static str,
    /// Which values are valid.
    pub range: Range,
    /// The broker setting that topics without this one take theirs from; `None` when there is none.
    pub broker_name: Option<&'static str>,
    /// What it does, with unit.
    pub doc: &'static str,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// 32-bit integer.
    Int,
    /// 64-bit integer.
    Long,
    /// Decimal fraction.
    Double,
    /// Comma-separated texts.
    List,
}

impl Kind {
    /// Its number in DescribeConfigs (kafka-spec §1.8).
    pub fn wire(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::String => "STRING",
            Kind::Int => "INT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::List => "LIST",
        }
    }
}

/// Which values are valid, beyond the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All of the type.
    Any,
    /// Integers from the first to the second.
    Between(i64, i64),
    /// Fractions from 0 to 1.
    Fraction,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Only this text for now, with the sentence that says why.
    Only(&'static str, &'static str),
}

impl Definition {
    /// What is wrong with `value`, as a sentence.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let value = value.trim();
        match self.kind {
            Kind::Int => self.check_integer(value, i64::from(i32::MIN), i64::from(i32::MAX)),
            Kind::Long => self.check_integer(value, i64::MIN, i64::MAX),
            Kind::Double => match value.parse::<f64>() {
                Ok(number) if (0.0..=1.0).contains(&number) || self.range == Range::Any => Ok(()),
                Ok(_) => Err("It must lie between 0 and 1.".to_string()),
                Err(_) => Err(format!("Not a number of type {}.", self.kind.name())),
            },
            Kind::Boolean if !["true", "false"].contains(&value) => Err("It must be true or false.".to_string()),
            Kind::Boolean | Kind::String | Kind::List => self.check_text(value),
        }
    }

    fn check_integer(&self, value: &str, min: i64, max: i64) -> Result<(), String> {
        let (low, high) = match self.range {
            Range::Between(low, high) => (low.max(min), high.min(max)),
            _ => (min, max),
        };
        match value.parse::<i64>() {
            Ok(number) if (low..=high).contains(&number) => Ok(()),
            Ok(number) if (min..=max).contains(&number) => Err(match high {
                i64::MAX => format!("It must be at least {low}."),
                _ => format!("It must lie between {low} and {high}."),
            }),
            _ => Err(format!("Not a number of type {}.", self.kind.name())),
        }
    }

    fn check_text(&self, value: &str) -> Result<(), String> {
        match self.range {
            Range::OneOf(values) if !values.contains(&value) => Err(format!("It must be {}.", values.join(" or "))),
            Range::Only(only, why) if value != only => Err(format!("Only {only} is possible: {why}.")),
            _ => Ok(()),
        }
    }
}

/// The setting with this name.
pub fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// All settings, by name.
pub fn definitions() -> &'static [Definition] {
    DEFINITIONS
}

const INT_MAX: i64 = i32::MAX as i64;
const LONG_MAX: i64 = i64::MAX;

/// One row of the table, so that it reads as a table.
const fn row(
    name: &'static str,
    (kind, default): (Kind, &'static str),
    range: Range,
    broker_name: Option<&'static str>,
    doc: &'static str,
) -> Definition {
    Definition { name, kind, default, range, broker_name, doc }
}

const DEFINITIONS: &[Definition] = &[
    row(
        "cleanup.policy",
        (Kind::List, "delete"),
        Range::Only("delete", "compaction does not exist yet"),
        Some("log.cleanup.policy"),
        "What happens to old segments: delete removes them by retention.ms and retention.bytes.",
    ),
    row(
        "compression.gzip.level",
        (Kind::Int, "-1"),
        Range::Between(-1, 9),
        Some("compression.gzip.level"),
        "No effect: batches are stored as the producer compressed them.",
    ),
    row(
        "compression.lz4.level",
        (Kind::Int, "9"),
        Range::Between(1, 17),
        Some("compression.lz4.level"),
        "No effect: batches are stored as the producer compressed them.",
    ),
    row(
        "compression.type",
        (Kind::String, "producer"),
        Range::Only("producer", "the broker does not recompress yet; set the compression at the producer"),
        Some("compression.type"),
        "Compression of stored batches: producer keeps them as they arrive.",
    ),
    row(
        "compression.zstd.level",
        (Kind::Int, "3"),
        Range::Between(-131_072, 22),
        Some("compression.zstd.level"),
        "No effect: batches are stored as the producer compressed them.",
    ),
    row(
        "delete.retention.ms",
        (Kind::Long, "86400000"),
        Range::Between(0, LONG_MAX),
        Some("log.cleaner.delete.retention.ms"),
        "No effect until there is compaction: how long tombstones are kept, in ms.",
    ),
    row(
        "file.delete.delay.ms",
        (Kind::Long, "60000"),
        Range::Between(0, LONG_MAX),
        Some("log.segment.delete.delay.ms"),
        "How long the files of a deleted segment stay on disk, in ms.",
    ),
    row(
        "flush.messages",
        (Kind::Long, "9223372036854775807"),
        Range::Between(1, LONG_MAX),
        Some("log.flush.interval.messages"),
        "No effect: the broker's flush.mode decides when a record is on stable media, before it is acknowledged.",
    ),
    row(
        "flush.ms",
        (Kind::Long, "9223372036854775807"),
        Range::Between(0, LONG_MAX),
        Some("log.flush.interval.ms"),
        "No effect: the broker's flush.mode decides when a record is on stable media, before it is acknowledged.",
    ),
    row(
        "follower.replication.throttled.replicas",
        (Kind::List, ""),
        Range::Any,
        None,
        "No effect until replicas can be moved: replicas whose followers are throttled.",
    ),
    row(
        "index.interval.bytes",
        (Kind::Int, "4096"),
        Range::Between(0, INT_MAX),
        Some("log.index.interval.bytes"),
        "Bytes of log between two entries of the offset index.",
    ),
    row(
        "leader.replication.throttled.replicas",
        (Kind::List, ""),
        Range::Any,
        None,
        "No effect until replicas can be moved: replicas whose leader is throttled.",
    ),
    row(
        "local.retention.bytes",
        (Kind::Long, "-2"),
        Range::Between(-2, LONG_MAX),
        Some("log.local.retention.bytes"),
        "No effect: there is no remote storage.",
    ),
    row(
        "local.retention.ms",
        (Kind::Long, "-2"),
        Range::Between(-2, LONG_MAX),
        Some("log.local.retention.ms"),
        "No effect: there is no remote storage.",
    ),
    row(
        "max.compaction.lag.ms",
        (Kind::Long, "9223372036854775807"),
        Range::Between(1, LONG_MAX),
        Some("log.cleaner.max.compaction.lag.ms"),
        "No effect until there is compaction: longest time a record stays uncompacted, in ms.",
    ),
    row(
        "max.message.bytes",
        (Kind::Int, "1048588"),
        Range::Between(0, INT_MAX),
        Some("message.max.bytes"),
        "Largest batch in bytes, after compression, its 12 bytes of log overhead included.",
    ),
    row(
        "message.timestamp.after.max.ms",
        (Kind::Long, "3600000"),
        Range::Between(0, LONG_MAX),
        Some("log.message.timestamp.after.max.ms"),
        "How far a record's timestamp may lie ahead of the broker's clock, in ms (CreateTime only).",
    ),
    row(
        "message.timestamp.before.max.ms",
        (Kind::Long, "9223372036854775807"),
        Range::Between(0, LONG_MAX),
        Some("log.message.timestamp.before.max.ms"),
        "How far a record's timestamp may lie behind the broker's clock, in ms (CreateTime only).",
    ),
    row(
        "message.timestamp.type",
        (Kind::String, "CreateTime"),
        Range::OneOf(&["CreateTime", "LogAppendTime"]),
        Some("log.message.timestamp.type"),
        "Whether records keep the producer's timestamp or get the broker's at the append.",
    ),
    row(
        "min.cleanable.dirty.ratio",
        (Kind::Double, "0.5"),
        Range::Fraction,
        Some("log.cleaner.min.cleanable.ratio"),
        "No effect until there is compaction: share of uncompacted bytes that starts one.",
    ),
    row(
        "min.compaction.lag.ms",
        (Kind::Long, "0"),
        Range::Between(0, LONG_MAX),
        Some("log.cleaner.min.compaction.lag.ms"),
        "No effect until there is compaction: shortest time a record stays uncompacted, in ms.",
    ),
    row(
        "min.insync.replicas",
        (Kind::Int, "1"),
        Range::Between(1, INT_MAX),
        Some("min.insync.replicas"),
        "Replicas that must be in sync for acks=all; at most the replication factor counts.",
    ),
    row(
        "preallocate",
        (Kind::Boolean, "false"),
        Range::Any,
        Some("log.preallocate"),
        "No effect: segment files always grow in synced steps ahead of the data.",
    ),
    row(
        "remote.log.copy.disable",
        (Kind::Boolean, "false"),
        Range::Any,
        None,
        "No effect: there is no remote storage.",
    ),
    row(
        "remote.log.delete.on.disable",
        (Kind::Boolean, "false"),
        Range::Any,
        None,
        "No effect: there is no remote storage.",
    ),
    row(
        "remote.storage.enable",
        (Kind::Boolean, "false"),
        Range::Only("false", "remote storage does not exist"),
        None,
        "Remote storage of old segments.",
    ),
    row(
        "retention.bytes",
        (Kind::Long, "-1"),
        Range::Between(-1, LONG_MAX),
        Some("log.retention.bytes"),
        "Bytes a partition keeps before its oldest segments are deleted; -1 is unlimited.",
    ),
    row(
        "retention.ms",
        (Kind::Long, "604800000"),
        Range::Between(-1, LONG_MAX),
        Some("log.retention.ms"),
        "How long a segment is kept after its newest record, in ms; -1 is for ever.",
    ),
    row(
        "segment.bytes",
        (Kind::Int, "1073741824"),
        Range::Between(1 << 20, INT_MAX),
        Some("log.segment.bytes"),
        "Size at which a segment file is sealed, in bytes. Retention works on sealed segments.",
    ),
    row(
        "segment.index.bytes",
        (Kind::Int, "10485760"),
        Range::Between(4, INT_MAX),
        Some("log.index.size.max.bytes"),
        "No effect: index files are as long as their entries.",
    ),
    row(
        "segment.jitter.ms",
        (Kind::Long, "0"),
        Range::Between(0, LONG_MAX),
        Some("log.roll.jitter.ms"),
        "No effect: sealing a segment is cheap enough not to be spread.",
    ),
    row(
        "segment.ms",
        (Kind::Long, "604800000"),
        Range::Between(1, LONG_MAX),
        Some("log.roll.ms"),
        "Age at which a segment that is not full is sealed, in ms.",
    ),
    row(
        "unclean.leader.election.enable",
        (Kind::Boolean, "false"),
        Range::Only("false", "an unclean election is an explicit command, pinion cluster elect --unclean"),
        Some("unclean.leader.election.enable"),
        "Whether a replica outside the in-sync set may become leader by itself.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_defaults_are_valid() {
        assert!(definitions().is_sorted_by_key(|definition| definition.name));
        for definition in definitions() {
            assert_eq!(definition.check(definition.default), Ok(()), "{}", definition.name);
            assert!(definition.doc.ends_with('.'), "{}", definition.name);
        }
    }

    #[test]
    fn an_int_is_refused_beyond_32_bits() {
        let definition = definition("max.message.bytes").expect("in the table");
        assert_eq!(definition.check("2147483648"), Err("Not a number of type INT.".to_string()));
        assert_eq!(definition.check(" 5 "), Ok(()));
    }
}
