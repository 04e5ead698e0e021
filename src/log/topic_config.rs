//! Settings of a topic: what there is, what was given, and what follows from it.
//!
//! Names, types, defaults and ranges are Kafka's. A topic stores only what was given (its *overrides*, as typed); what
//! it was not given comes from the broker's defaults and then from the table in `definitions`. Settings of things that
//! Pinion does differently are accepted and stored, so that tools work, and their documentation says "No effect".

mod definitions;
mod describe;

use std::collections::BTreeMap;
use std::fmt;

pub use definitions::{Definition, Kind, Range, definition, definitions};
pub use describe::{Described, Source, Synonym, describe};

use crate::spelling::nearest;

/// Settings as typed, by name.
pub type Overrides = BTreeMap<String, String>;

/// Which timestamp records get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's clock at the append.
    LogAppendTime,
}

/// All settings of a topic that take effect, resolved from overrides and broker defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// `retention.ms`; `None` keeps for ever.
    pub retention_ms: Option<u64>,
    /// `retention.bytes`; `None` is unlimited.
    pub retention_bytes: Option<u64>,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// `segment.ms`.
    pub segment_ms: u64,
    /// `max.message.bytes`: largest batch, 12-byte log overhead included.
    pub max_message_bytes: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: u64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: u64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: u32,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: u64,
}

impl Default for TopicConfig {
    /// Kafka's defaults.
    fn default() -> TopicConfig {
        resolve(&Overrides::new(), &TopicDefaults::default()).expect("the defaults of the table are valid")
    }
}

/// What the broker's own settings (`log.retention.ms` and the like) say for topics that were not told otherwise, by the
/// *topic's* name of each setting. Checked when built.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TopicDefaults(Overrides);

impl TopicDefaults {
    /// Checks `values`, which are keyed by topic setting (`retention.ms`, not `log.retention.ms`).
    pub fn new(values: Overrides) -> Result<TopicDefaults, ConfigFault> {
        values.iter().try_for_each(|(name, value)| check(name, value))?;
        Ok(TopicDefaults(values))
    }

    /// What the broker was told about one setting.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// Why a setting is refused; the client learns all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The setting, as typed.
    pub name: String,
    /// Its value, as typed.
    pub value: String,
    /// A sentence about what is wrong with it.
    pub reason: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid value {:?} for configuration {}: {}", self.value, self.name, self.reason)
    }
}

/// The settings that take effect for a topic with these overrides. All overrides are checked.
pub fn resolve(overrides: &Overrides, defaults: &TopicDefaults) -> Result<TopicConfig, ConfigFault> {
    overrides.iter().try_for_each(|(name, value)| check(name, value))?;
    let values = Values { overrides, defaults };
    Ok(TopicConfig {
        retention_ms: values.bounded("retention.ms"),
        retention_bytes: values.bounded("retention.bytes"),
        segment_bytes: values.count("segment.bytes"),
        segment_ms: values.count("segment.ms"),
        max_message_bytes: values.small("max.message.bytes"),
        timestamp_type: match values.text("message.timestamp.type") {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        },
        timestamp_before_max_ms: values.count("message.timestamp.before.max.ms"),
        timestamp_after_max_ms: values.count("message.timestamp.after.max.ms"),
        min_insync_replicas: values.small("min.insync.replicas"),
        index_interval_bytes: values.small("index.interval.bytes"),
        file_delete_delay_ms: values.count("file.delete.delay.ms"),
    })
}

/// Checks one setting of a topic by its definition.
pub fn check(name: &str, value: &str) -> Result<(), ConfigFault> {
    let fault = |reason: String| ConfigFault { name: name.to_string(), value: value.to_string(), reason };
    match definition(name) {
        Some(definition) => definition.check(value).map_err(fault),
        None => Err(fault(unknown(name))),
    }
}

/// One operation of IncrementalAlterConfigs on the overrides of a topic. The result is checked by [`resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Give a value.
    Set,
    /// Return to the default.
    Delete,
    /// Add entries to a list.
    Append,
    /// Take entries out of a list.
    Subtract,
}

impl Change {
    /// The operation with this number on the wire.
    pub fn from_wire(operation: i8) -> Option<Change> {
        match operation {
            0 => Some(Change::Set),
            1 => Some(Change::Delete),
            2 => Some(Change::Append),
            3 => Some(Change::Subtract),
            _ => None,
        }
    }

    /// Applies the operation to `overrides`. Lists start from the value in effect, as in Kafka.
    pub fn apply(
        self,
        overrides: &mut Overrides,
        defaults: &TopicDefaults,
        name: &str,
        operand: Option<&str>,
    ) -> Result<(), ConfigFault> {
        let text = operand.unwrap_or_default();
        let fault = |reason: &str| ConfigFault { name: name.into(), value: text.into(), reason: reason.into() };
        let definition = definition(name).ok_or_else(|| fault(&unknown(name)))?;
        let value = match self {
            Change::Delete => {
                overrides.remove(name);
                return Ok(());
            }
            _ if operand.is_none() => return Err(fault("A value is needed.")),
            Change::Set => text.to_string(),
            _ if definition.kind != Kind::List => {
                return Err(fault("Only a list can be appended to or subtracted from."));
            }
            Change::Append | Change::Subtract => {
                let present = Values { overrides, defaults }.text(name).to_string();
                combined(&present, text, self == Change::Append)
            }
        };
        overrides.insert(name.to_string(), value);
        Ok(())
    }
}

/// The list `present` with the entries of `operand` added (those not there yet) or taken out.
fn combined(present: &str, operand: &str, add: bool) -> String {
    let entries = |list: &str| list.split(',').map(str::trim).filter(|e| !e.is_empty()).map(String::from).collect();
    let (mut list, operand): (Vec<String>, Vec<String>) = (entries(present), entries(operand));
    list.retain(|entry| add || !operand.contains(entry));
    for entry in operand.into_iter().filter(|_| add) {
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
    list.join(",")
}

fn unknown(name: &str) -> String {
    let names = definitions().iter().map(|definition| definition.name);
    match nearest(name, names) {
        Some(meant) => format!("Unknown topic config name: {name}. The nearest one is {meant}."),
        None => format!("Unknown topic config name: {name}."),
    }
}

/// Looks settings up: override, else broker default, else the table. Values are checked before.
struct Values<'a> {
    overrides: &'a Overrides,
    defaults: &'a TopicDefaults,
}

impl Values<'_> {
    fn text(&self, name: &str) -> &str {
        let table = || definition(name).expect("a setting of the table").default;
        self.overrides.get(name).map(String::as_str).or_else(|| self.defaults.value(name)).unwrap_or_else(table)
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).trim().parse().expect("checked by its definition")
    }

    /// A setting that is at least 0 by its range.
    fn count(&self, name: &str) -> u64 {
        u64::try_from(self.number(name)).expect("its range starts at 0 or above")
    }

    /// A setting that is at least 0 and of type INT.
    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).expect("its range lies in 0 to 2^31 - 1")
    }

    /// A setting whose −1 means "no limit".
    fn bounded(&self, name: &str) -> Option<u64> {
        u64::try_from(self.number(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> Overrides {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn refusal(name: &str, value: &str) -> String {
        resolve(&given(&[(name, value)]), &TopicDefaults::default()).expect_err("refused").to_string()
    }

    #[test]
    fn without_settings_a_topic_has_kafkas_defaults() {
        let config = TopicConfig::default();
        assert_eq!(config.retention_ms, Some(604_800_000));
        assert_eq!(config.retention_bytes, None);
        assert_eq!(config.segment_bytes, 1 << 30);
        assert_eq!(config.max_message_bytes, 1_048_588);
        assert_eq!(config.timestamp_type, TimestampType::CreateTime);
        assert_eq!(config.timestamp_before_max_ms, i64::MAX as u64);
        assert_eq!(config.timestamp_after_max_ms, 3_600_000);
        assert_eq!(config.file_delete_delay_ms, 60_000);
    }

    #[test]
    fn an_override_wins_over_the_brokers_default_and_that_over_kafkas() {
        let defaults = TopicDefaults::new(given(&[("retention.ms", "5000"), ("segment.ms", "70")])).expect("valid");
        let config = resolve(&given(&[("retention.ms", "-1")]), &defaults).expect("valid");
        assert_eq!(config.retention_ms, None);
        assert_eq!(config.segment_ms, 70);
        assert_eq!(config.min_insync_replicas, 1);
    }

    #[test]
    fn a_refusal_names_the_setting_and_the_reason() {
        assert_eq!(
            refusal("retention.ms", "soon"),
            "Invalid value \"soon\" for configuration retention.ms: Not a number of type LONG."
        );
        assert_eq!(
            refusal("segment.bytes", "100"),
            "Invalid value \"100\" for configuration segment.bytes: It must lie between 1048576 and 2147483647."
        );
        assert!(refusal("retension.ms", "1").ends_with("The nearest one is retention.ms."));
        assert!(refusal("message.timestamp.type", "Now").contains("CreateTime or LogAppendTime"));
        assert!(refusal("preallocate", "yes").contains("true or false"));
    }

    #[test]
    fn what_does_not_exist_yet_is_refused_and_not_ignored() {
        assert!(refusal("cleanup.policy", "compact").contains("compaction does not exist yet"));
        assert!(refusal("cleanup.policy", "compact,delete").contains("compaction does not exist yet"));
        assert!(refusal("compression.type", "zstd").contains("producer"));
        assert!(refusal("remote.storage.enable", "true").contains("does not exist"));
    }

    #[test]
    fn settings_without_effect_are_accepted() {
        let harmless =
            [("flush.messages", "1"), ("flush.ms", "1000"), ("preallocate", "true"), ("segment.jitter.ms", "5")];
        assert_eq!(resolve(&given(&harmless), &TopicDefaults::default()), Ok(TopicConfig::default()));
    }

    #[test]
    fn lists_are_appended_to_and_subtracted_from() {
        let name = "leader.replication.throttled.replicas";
        let (mut overrides, defaults) = (Overrides::new(), TopicDefaults::default());
        let mut apply = |change: Change, value| change.apply(&mut overrides, &defaults, name, Some(value));
        apply(Change::Append, "0:1,1:2").expect("a list");
        apply(Change::Append, "1:2,2:3").expect("a list");
        apply(Change::Subtract, "0:1").expect("a list");
        assert_eq!(overrides[name], "1:2,2:3");
        let not_a_list = Change::Append.apply(&mut overrides, &defaults, "retention.ms", Some("5"));
        assert!(not_a_list.is_err());
    }

    #[test]
    fn deleting_returns_to_the_default() {
        let (mut overrides, defaults) = (given(&[("retention.ms", "5")]), TopicDefaults::default());
        Change::Delete.apply(&mut overrides, &defaults, "retention.ms", None).expect("known");
        assert_eq!(overrides, Overrides::new());
        assert!(Change::Delete.apply(&mut overrides, &defaults, "retention.sm", None).is_err(), "a name that is none");
    }
}
