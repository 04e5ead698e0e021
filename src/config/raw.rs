//! Settings as typed: from a file, from flags and from `--set`, each checked by its own row of the table.

use std::collections::BTreeMap;

use super::knobs::{self, ALIASES, Knob, WITHOUT_EFFECT};
use super::quantity::Unit;
use crate::spelling::nearest;

/// The values that were given, by setting. The command line wins over the file; two different values in one of them are
/// a contradiction.
#[derive(Clone, Debug, Default)]
pub struct RawConfig {
    file: BTreeMap<&'static str, Given>,
    typed: BTreeMap<&'static str, Given>,
    notes: Vec<String>,
}

#[derive(Clone, Debug)]
struct Given {
    value: String,
    by: String,
}

impl RawConfig {
    /// Takes a value that a flag gives, such as `--listen`.
    pub fn flag(&mut self, flag: &str, name: &'static str, value: &str) -> Result<(), String> {
        self.give(Layer::Typed, flag, name, value)
    }

    /// Takes one `--set key=value`.
    pub fn set(&mut self, pair: &str) -> Result<(), String> {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("--set {pair}: it has the form key=value"))?;
        self.give(Layer::Typed, "--set", name.trim(), value)
    }

    /// Takes a TOML file: quoted Kafka names (`"log.segment.bytes" = "256MiB"`), or the same name as nested tables.
    pub fn file(&mut self, path: &str, text: &str) -> Result<(), String> {
        let table: toml::Table = text.parse().map_err(|error| format!("{path}: {error}"))?;
        let mut pairs = Vec::new();
        flatten("", &table, &mut pairs).map_err(|why| format!("{path}: {why}"))?;
        pairs.iter().try_for_each(|(name, value)| {
            self.give(Layer::File, path, name, value).map_err(|why| format!("{path}: {why}"))
        })
    }

    /// The value of a setting, in its own unit, if one was given.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.typed.get(name).or_else(|| self.file.get(name)).map(|given| given.value.as_str())
    }

    /// All values that were given, each in its setting's unit.
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        let names = self.file.keys().chain(self.typed.keys());
        names.filter_map(|&name| Some((name, self.value(name)?.to_string()))).collect()
    }

    /// What was accepted but has no effect, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn give(&mut self, layer: Layer, by: &str, name: &str, value: &str) -> Result<(), String> {
        if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name) {
            self.notes.push(format!("{name} has no effect: {why}"));
            return Ok(());
        }
        let (knob, value) = translated(name, value)?;
        let value = knob.normalized(&value)?;
        let layer = match layer {
            Layer::File => &mut self.file,
            Layer::Typed => &mut self.typed,
        };
        let by = format!("{by} {name}");
        match layer.insert(knob.name, Given { value: value.clone(), by: by.clone() }) {
            Some(before) if before.value != value => {
                Err(format!("{} is given twice: {} by {} and {value} by {by}", knob.name, before.value, before.by))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
enum Layer {
    File,
    Typed,
}

/// The setting that `name` means, and the value in its terms.
fn translated(name: &str, value: &str) -> Result<(&'static Knob, String), String> {
    if let Some(knob) = knobs::find(name) {
        return Ok((knob, value.to_string()));
    }
    let alias = ALIASES.iter().find(|(alias, ..)| *alias == name);
    let Some((_, target, factor)) = alias else { return Err(unknown(name)) };
    let knob = knobs::find(target).expect("aliases point into the table");
    if *factor == 1 {
        return Ok((knob, value.to_string()));
    }
    let number = Unit::One.parse(value).map_err(|accepted| format!("{name} = {value}: {accepted}"))?;
    // −1 is "no limit" in every unit.
    let scaled = if number < 0 { Some(number) } else { number.checked_mul(*factor) };
    let scaled = scaled.ok_or_else(|| format!("{name} = {value} is beyond 64 bits"))?;
    Ok((knob, scaled.to_string()))
}

fn unknown(name: &str) -> String {
    let known = knobs::KNOBS.iter().map(|knob| knob.name);
    let known = known.chain(ALIASES.iter().map(|(name, ..)| *name)).chain(WITHOUT_EFFECT.iter().map(|(name, _)| *name));
    match nearest(name, known) {
        Some(meant) => format!("there is no setting {name}; the nearest one is {meant}"),
        None => format!("there is no setting {name}"),
    }
}

/// Nested tables as dotted names.
fn flatten(prefix: &str, table: &toml::Table, pairs: &mut Vec<(String, String)>) -> Result<(), String> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, pairs)?,
            toml::Value::Array(items) => {
                let texts: Result<Vec<String>, String> = items.iter().map(|item| scalar(&name, item)).collect();
                pairs.push((name, texts?.join(",")));
            }
            value => pairs.push((name.clone(), scalar(&name, value)?)),
        }
    }
    Ok(())
}

fn scalar(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(switch) => Ok(switch.to_string()),
        other => Err(format!("{name} is a {}; a text, a whole number, true or false is needed", other.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest() {
        let refused = RawConfig::default().set("log.segement.bytes=5").expect_err("refused");
        assert_eq!(refused, "there is no setting log.segement.bytes; the nearest one is log.segment.bytes");
        let refused = RawConfig::default().set("zookeeper.connect=localhost").expect_err("refused");
        assert_eq!(refused, "there is no setting zookeeper.connect");
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        let refused = RawConfig::default().set("log.segment.bytes=100").expect_err("refused");
        assert_eq!(refused, "log.segment.bytes = 100: the range is 1 MiB to 2147483647 B");
        let refused = RawConfig::default().set("pin=maybe").expect_err("refused");
        assert_eq!(refused, "pin = maybe: it is true or false");
        assert!(RawConfig::default().set("pin").expect_err("refused").contains("key=value"));
    }

    #[test]
    fn two_values_for_one_setting_contradict_each_other() {
        let mut raw = RawConfig::default();
        raw.flag("--listen", "listeners", "127.0.0.1:1").expect("first");
        raw.set("listeners=127.0.0.1:1").expect("the same again");
        let refused = raw.set("listeners=127.0.0.1:2").expect_err("refused");
        assert!(refused.starts_with("listeners is given twice: 127.0.0.1:1 by --set listeners and 127.0.0.1:2"));
        let mut raw = RawConfig::default();
        raw.set("log.retention.ms=5d").expect("first");
        assert!(raw.set("log.retention.hours=1").expect_err("refused").contains("given twice"));
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let mut raw = RawConfig::default();
        raw.set("num.partitions=8").expect("valid");
        raw.file("f.toml", "\"num.partitions\" = 4\n\"log.dirs\" = [\"a\", \"b\"]\nlog.retention.hours = 2")
            .expect("valid");
        assert_eq!(raw.value("num.partitions"), Some("8"));
        assert_eq!(raw.value("log.dirs"), Some("a,b"));
        assert_eq!(raw.value("log.retention.ms"), Some("7200000"));
        assert_eq!(raw.value("node.id"), None);
    }

    #[test]
    fn what_means_nothing_here_is_noted() {
        let mut raw = RawConfig::default();
        raw.set("num.io.threads=8").expect("accepted");
        assert_eq!(raw.notes(), ["num.io.threads has no effect: the data cores (cores) serve requests"]);
    }

    #[test]
    fn a_broken_file_is_refused_with_its_name() {
        let refused = RawConfig::default().file("f.toml", "a = [").expect_err("refused");
        assert!(refused.starts_with("f.toml: "), "{refused}");
        let refused = RawConfig::default().file("f.toml", "\"node.id\" = 1.5").expect_err("refused");
        assert!(refused.contains("node.id is a float"), "{refused}");
    }
}
