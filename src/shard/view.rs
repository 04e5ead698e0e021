//! Lookups in the cluster view, with the code that a client is told when there is nothing.

use crate::control::image::TopicImage;
use crate::ids::{CoreId, PartitionId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::shard::message::ClusterView;

impl ClusterView {
    /// The topic that a request names, by id if it gives one, else by name.
    pub fn topic(&self, name: &str, id: TopicId) -> Result<&TopicImage, ErrorCode> {
        let topic = if id.is_none() { self.image.topics.get(name) } else { self.image.topic(id) };
        let missing = if id.is_none() { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION } else { ErrorCode::UNKNOWN_TOPIC_ID };
        topic.map(|topic| &**topic).ok_or(missing)
    }

    /// Its id.
    pub fn topic_id(&self, name: &str, id: TopicId) -> Result<TopicId, ErrorCode> {
        self.topic(name, id).map(|topic| topic.id)
    }

    /// The core of this broker that serves a partition.
    pub fn route(&self, partition: PartitionId) -> Result<CoreId, ErrorCode> {
        let index = usize::try_from(partition.index.0).map_err(|_| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let core = self.routes.get(&partition.topic).and_then(|cores| cores.get(index));
        core.copied().flatten().ok_or_else(|| self.not_hosted(partition))
    }

    /// What a client is told of a partition that is not served here: that it does not exist, or to look again.
    pub fn not_hosted(&self, partition: PartitionId) -> ErrorCode {
        match self.image.partition(partition) {
            Some(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}
