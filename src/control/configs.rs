//! Changing settings (IncrementalAlterConfigs, AlterConfigs; kafka-spec §1.8, §5.10).

use std::collections::BTreeSet;

use crate::control::command::{Alteration, Alterations, CommandResult, ConfigChange, Refusal};
use crate::control::controller::Decision;
use crate::control::image::{Image, TopicImage};
use crate::control::records::Record;
use crate::control::topics::named_twice;
use crate::ids::TopicId;
use crate::kafka::error_code::ErrorCode;
use crate::log::topic_config::{Change, ConfigFault, Overrides, resolve};

/// Decides on a request to change settings. The changes of one resource are in effect together or not at all.
pub fn alter(image: &Image, changes: &[ConfigChange], validate_only: bool) -> Decision {
    let resource = |change: &ConfigChange| (change.resource_type, change.resource_name.clone());
    let named_twice = named_twice(changes.iter().map(resource));
    let mut records = Vec::new();
    let outcomes = changes
        .iter()
        .map(|change| {
            if named_twice.contains(&resource(change)) {
                let message = format!("The request names resource '{}' more than once.", change.resource_name);
                return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
            }
            let (topic, record) = alter_resource(image, change)?;
            records.extend(record);
            Ok(topic)
        })
        .collect();
    let records = if validate_only { vec![] } else { records };
    Decision { records, result: CommandResult::Altered(outcomes) }
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;

fn alter_resource(image: &Image, change: &ConfigChange) -> Result<(TopicId, Option<Record>), Refusal> {
    match change.resource_type {
        TOPIC => alter_topic(image, change),
        BROKER => refuse(
            ErrorCode::INVALID_REQUEST,
            "Broker settings are read at start: change them with --set or in the configuration file, then restart.",
        ),
        BROKER_LOGGER => {
            refuse(ErrorCode::INVALID_REQUEST, "Log levels are read at start: set PINION_LOG, then restart.")
        }
        other => refuse(ErrorCode::INVALID_REQUEST, format!("Resources of type {other} have no settings here.")),
    }
}

fn alter_topic(image: &Image, change: &ConfigChange) -> Result<(TopicId, Option<Record>), Refusal> {
    let name = change.resource_name.as_str();
    let Some(topic) = image.topics.get(name) else {
        return refuse(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("There is no topic '{name}'."));
    };
    let wanted = match &change.alterations {
        Alterations::Incremental(alterations) => incremental(topic, alterations, image)?,
        Alterations::Replace(settings) => replaced(settings)?,
    };
    resolve(&wanted, &image.topic_defaults).map_err(invalid)?;
    let changes = difference(&topic.overrides, &wanted);
    let record = (!changes.is_empty()).then(|| Record::TopicConfigured { topic: topic.id, changes });
    Ok((topic.id, record))
}

fn incremental(topic: &TopicImage, alterations: &[Alteration], image: &Image) -> Result<Overrides, Refusal> {
    let mut wanted = topic.overrides.clone();
    let mut seen = BTreeSet::new();
    for Alteration { name, operation, value } in alterations {
        if !seen.insert(name.as_str()) {
            return refuse(ErrorCode::INVALID_REQUEST, format!("Setting '{name}' is named more than once."));
        }
        let Some(change) = Change::from_wire(*operation) else {
            return refuse(ErrorCode::INVALID_REQUEST, format!("There is no operation {operation} on settings."));
        };
        change.apply(&mut wanted, &image.topic_defaults, name, value.as_deref()).map_err(invalid)?;
    }
    Ok(wanted)
}

fn replaced(settings: &[(String, Option<String>)]) -> Result<Overrides, Refusal> {
    let mut wanted = Overrides::new();
    for (name, value) in settings {
        let Some(value) = value else {
            return refuse(ErrorCode::INVALID_CONFIG, format!("A value is missing for setting '{name}'."));
        };
        if wanted.insert(name.clone(), value.clone()).is_some() {
            return refuse(ErrorCode::INVALID_REQUEST, format!("Setting '{name}' is named more than once."));
        }
    }
    Ok(wanted)
}

fn difference(present: &Overrides, wanted: &Overrides) -> Vec<(String, Option<String>)> {
    let removed = present.keys().filter(|name| !wanted.contains_key(*name)).map(|name| (name.clone(), None));
    let set = wanted
        .iter()
        .filter(|(name, value)| present.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), Some(value.clone())));
    removed.chain(set).collect()
}

fn invalid(fault: ConfigFault) -> Refusal {
    Refusal::new(ErrorCode::INVALID_CONFIG, fault.to_string())
}

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, message))
}
