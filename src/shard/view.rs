//! Lookups in the cluster view, with the code that a client is told when there is nothing.

use crate::control::image::TopicImage;
use crate::ids::{CoreId, PartitionId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::shard::message::{ClusterView, Route};

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
        match self.place_of(partition) {
            Route::Core(core) => Ok(core),
            Route::Nowhere | Route::Offline => Err(self.not_hosted(partition)),
        }
    }

    /// Whether a partition of this broker lies in a data directory that has failed.
    pub fn is_offline(&self, partition: PartitionId) -> bool {
        self.place_of(partition) == Route::Offline
    }

    /// What a client is told of a partition that is not served here: that it does not exist, that its storage has
    /// failed, or to look again.
    pub fn not_hosted(&self, partition: PartitionId) -> ErrorCode {
        match self.image.partition(partition) {
            Some(_) if self.is_offline(partition) => ErrorCode::KAFKA_STORAGE_ERROR,
            Some(_) => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }

    fn place_of(&self, partition: PartitionId) -> Route {
        let routes = self.routes.get(&partition.topic).zip(usize::try_from(partition.index.0).ok());
        routes.and_then(|(routes, index)| routes.get(index)).copied().unwrap_or(Route::Nowhere)
    }
}
