//! DescribeConfigs: settings of topics with their sources and documentation, and the broker's own.

use crate::control::image::TopicImage;
use crate::ids::Now;
use crate::ids::TopicId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::describe_configs as schema;
use crate::log::topic_config::{Described, describe};
use crate::shard::Shard;
use crate::shard::action::Actions;
use crate::shard::dispatch::Request;

/// Resource types on the wire (kafka-spec §1.8).
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// What one resource shows.
struct Shown {
    code: ErrorCode,
    message: Option<String>,
    settings: Vec<Described>,
}

impl Shard {
    pub(super) fn on_describe_configs(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<schema::DescribeConfigsRequest<'_>>(now, request, out) else { return };
        let shown: Vec<Shown> = message.resources.iter().map(|resource| self.shown(resource)).collect();
        let results = message.resources.iter().zip(&shown).map(|(resource, shown)| schema::DescribeConfigsResult {
            error_code: shown.code,
            error_message: shown.message.as_deref(),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs: shown
                .settings
                .iter()
                .filter(|one| wanted(resource, one))
                .map(|one| schema::DescribeConfigsResourceResult {
                    // The broker's own settings are given at its start.
                    read_only: resource.resource_type == BROKER,
                    ..result(&message, one)
                })
                .collect(),
        });
        let response = schema::DescribeConfigsResponse { results: results.collect(), ..Default::default() };
        self.reply(request, &response, out);
    }

    fn shown(&self, resource: &schema::DescribeConfigsResource<'_>) -> Shown {
        match resource.resource_type {
            TOPIC => match self.view.topic(resource.resource_name, TopicId::NONE) {
                Ok(topic) => Shown { code: ErrorCode::NONE, message: None, settings: self.topic_settings(topic) },
                Err(code) => refused(code, code.message().to_owned()),
            },
            BROKER if self.is_this_broker(resource.resource_name) => {
                Shown { code: ErrorCode::NONE, message: None, settings: self.config.broker_settings.clone() }
            }
            BROKER => {
                let node = self.config.node;
                let message = format!("this is broker {node}; ask broker {} itself", resource.resource_name);
                refused(ErrorCode::INVALID_REQUEST, message)
            }
            other => refused(ErrorCode::INVALID_REQUEST, format!("resource type {other} is not served")),
        }
    }

    fn topic_settings(&self, topic: &TopicImage) -> Vec<Described> {
        describe(&topic.overrides, &self.config.topic_defaults)
    }

    /// An empty name stands for the defaults of all brokers, which are this one's, too.
    fn is_this_broker(&self, name: &str) -> bool {
        name.is_empty() || name.parse() == Ok(self.config.node.0)
    }
}

fn refused(code: ErrorCode, message: String) -> Shown {
    Shown { code, message: Some(message), settings: Vec::new() }
}

fn wanted(resource: &schema::DescribeConfigsResource<'_>, one: &Described) -> bool {
    resource.configuration_keys.as_ref().is_none_or(|keys| keys.contains(&one.definition.name))
}

fn result<'a>(
    message: &schema::DescribeConfigsRequest<'_>,
    one: &'a Described,
) -> schema::DescribeConfigsResourceResult<'a> {
    let synonyms = one.synonyms.iter().filter(|_| message.include_synonyms);
    let synonyms = synonyms.map(|synonym| schema::DescribeConfigsSynonym {
        name: synonym.name,
        value: Some(&synonym.value),
        source: synonym.source.wire(),
    });
    schema::DescribeConfigsResourceResult {
        name: one.definition.name,
        value: Some(&one.value),
        config_source: one.source.wire(),
        is_sensitive: false,
        synonyms: synonyms.collect(),
        config_type: one.definition.kind.wire(),
        documentation: message.include_documentation.then_some(one.definition.doc),
        ..Default::default()
    }
}
