//! The broker's own settings as DescribeConfigs shows them.

use std::sync::LazyLock;

use super::Config;
use super::knobs::{KNOBS, Kind, Knob, Preset};
use crate::log::topic_config::{self, Definition, Described, Range, Source, Synonym};

/// The table of settings in the form that topic settings have.
static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| KNOBS.iter().map(definition).collect());

fn definition(knob: &'static Knob) -> Definition {
    let default = match knob.default {
        // Lives as long as the table does.
        Preset::Fixed(value) => knob.normalized(value).map_or(value, |plain| &*plain.leak()),
        Preset::Derived(_) => "",
    };
    let doc = knob.topic.and_then(topic_config::definition).map_or(knob.doc, |definition| definition.doc);
    let kind = match knob.kind {
        Kind::Number(_, _, high) if high <= i64::from(i32::MAX) => topic_config::Kind::Int,
        Kind::Number(..) => topic_config::Kind::Long,
        Kind::Switch => topic_config::Kind::Boolean,
        Kind::Directories => topic_config::Kind::List,
        Kind::Choice(_) | Kind::Address | Kind::Text | Kind::Cpus => topic_config::Kind::String,
    };
    Definition { name: knob.name, kind, default, range: Range::Any, broker_name: Some(knob.name), doc }
}

impl Config {
    /// Every setting of this broker with its value in effect, in the order of the table.
    pub fn described(&self) -> Vec<Described> {
        DEFINITIONS.iter().map(|definition| self.describe(definition)).collect()
    }

    fn describe(&self, definition: &'static Definition) -> Described {
        let given = self.given.get(definition.name).cloned();
        let source = if given.is_some() { Source::StaticBroker } else { Source::Default };
        let value = given.or_else(|| self.derived(definition.name)).unwrap_or_else(|| definition.default.to_string());
        let synonyms = vec![Synonym { name: definition.name, value: value.clone(), source }];
        Described { definition, value, source, synonyms }
    }

    /// The value in effect of a setting without a fixed default.
    fn derived(&self, name: &str) -> Option<String> {
        let cpus = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let (threads, budgets) = (&self.threads, &self.budgets);
        Some(match name {
            "advertised.listeners" => self.advertise.as_ref().unwrap_or(&self.listen).to_string(),
            "cores" => cpus(&threads.data_cpus),
            "control_core" => threads.control_cpu.to_string(),
            "background_cores" => cpus(&threads.background_cpus),
            "pin" => threads.pin.to_string(),
            "arena.bytes" => budgets.arena_bytes.to_string(),
            "max.connections" => budgets.connections_max.to_string(),
            "max.connections.per.ip" => budgets.connections_per_ip_max.to_string(),
            "disk.stall.timeout.ms" => self.disk.stall_timeout_ms.to_string(),
            "partitions.max" => budgets.partitions_max.to_string(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Host, RawConfig};

    #[test]
    fn given_derived_and_default_values_are_shown_in_plain_numbers() {
        let mut raw = RawConfig::default();
        raw.set("log.retention.hours=1").expect("valid");
        let host = Host { cpus: (0..4).collect(), memory_bytes: 16 << 30, files_max: 65_536 };
        let all = Config::resolve(&raw, &host).expect("valid").described();
        let shown = |name: &str| {
            let one = all.iter().find(|one| one.definition.name == name).expect(name);
            (one.value.clone(), one.source)
        };
        assert_eq!(shown("log.retention.ms"), ("3600000".to_string(), Source::StaticBroker));
        assert_eq!(shown("log.segment.bytes"), ("1073741824".to_string(), Source::Default));
        assert_eq!(shown("cores"), ("1,2,3".to_string(), Source::Default));
        assert_eq!(shown("disk.stall.timeout.ms"), ("2000".to_string(), Source::Default));
        assert_eq!(all.len(), KNOBS.len());
    }
}
