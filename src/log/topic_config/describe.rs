//! What DescribeConfigs and CreateTopics answer about a topic's settings.

use super::{Definition, Overrides, TopicDefaults, definitions};

/// One setting of a topic with its value in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The setting.
    pub definition: &'static Definition,
    /// Its value in effect.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
    /// Every place that has a value, the one in effect first.
    pub synonyms: Vec<Synonym>,
}

/// A place that has a value for a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// Name of the setting there.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// Which place.
    pub source: Source,
}

/// Where a value comes from (kafka-spec §1.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Given to the topic.
    Topic,
    /// Given to the broker in its flags or file.
    StaticBroker,
    /// Nobody gave one.
    Default,
}

impl Source {
    /// Its number in DescribeConfigs.
    pub fn wire(self) -> i8 {
        match self {
            Source::Topic => 1,
            Source::StaticBroker => 4,
            Source::Default => 5,
        }
    }
}

/// All settings of a topic with these overrides, by name.
pub fn describe(overrides: &Overrides, defaults: &TopicDefaults) -> Vec<Described> {
    definitions().iter().map(|definition| describe_one(definition, overrides, defaults)).collect()
}

fn describe_one(definition: &'static Definition, overrides: &Overrides, defaults: &TopicDefaults) -> Described {
    let broker_name = definition.broker_name.unwrap_or(definition.name);
    let places = [
        (definition.name, overrides.get(definition.name).map(String::as_str), Source::Topic),
        (broker_name, defaults.value(definition.name), Source::StaticBroker),
        (broker_name, Some(definition.default), Source::Default),
    ];
    let given = places.iter().filter_map(|&(name, value, source)| Some((name, value?.to_string(), source)));
    let synonyms: Vec<Synonym> = given.map(|(name, value, source)| Synonym { name, value, source }).collect();
    // The last place always has a value.
    let Synonym { value, source, .. } = synonyms[0].clone();
    Described { definition, value, source, synonyms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_with_a_value_is_named_the_one_in_effect_first() {
        let one = |value: &str| Overrides::from([("retention.ms".to_string(), value.to_string())]);
        let defaults = TopicDefaults::new(one("20")).expect("valid");
        let all = describe(&one("10"), &defaults);
        let retention = all.iter().find(|entry| entry.definition.name == "retention.ms").expect("described");
        assert_eq!((retention.value.as_str(), retention.source), ("10", Source::Topic));
        let places: Vec<(&str, &str, i8)> =
            retention.synonyms.iter().map(|s| (s.name, s.value.as_str(), s.source.wire())).collect();
        assert_eq!(
            places,
            [("retention.ms", "10", 1), ("log.retention.ms", "20", 4), ("log.retention.ms", "604800000", 5)]
        );
    }

    #[test]
    fn a_setting_nobody_gave_is_a_default() {
        let all = describe(&Overrides::new(), &TopicDefaults::default());
        assert_eq!(all.len(), definitions().len());
        assert!(all.iter().all(|entry| entry.source == Source::Default && entry.value == entry.definition.default));
    }
}
