//! The list of all declared messages, for what works on every one of them.

use super::{Api, DecodeError, Message};

/// One declared API without its types.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// The key in a request header.
    pub key: i16,
    /// Kafka's name.
    pub name: &'static str,
    /// Lowest declared version.
    pub min: i16,
    /// Highest declared version.
    pub max: i16,
    /// First version with compact lengths and tag sections.
    pub flexible: i16,
    /// [`Message::transcode`] of the request.
    pub request: fn(i16, &[u8]) -> Result<Vec<u8>, DecodeError>,
    /// [`Message::transcode`] of the response.
    pub response: fn(i16, &[u8]) -> Result<Vec<u8>, DecodeError>,
}

impl Declared {
    /// The declared API with this key.
    pub fn find(key: i16) -> Option<&'static Declared> {
        DECLARED.iter().find(|declared| declared.key == key)
    }
}

/// Calls a macro with one row per declared API: module, API, request and response.
macro_rules! for_each_api {
    ($with:ident) => {
        $with! {
            api_versions: ApiVersions, ApiVersionsRequest, ApiVersionsResponse;
            metadata: Metadata, MetadataRequest, MetadataResponse;
            produce: Produce, ProduceRequest, ProduceResponse;
            fetch: Fetch, FetchRequest, FetchResponse;
            list_offsets: ListOffsets, ListOffsetsRequest, ListOffsetsResponse;
            offset_for_leader_epoch: OffsetForLeaderEpoch, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
            init_producer_id: InitProducerId, InitProducerIdRequest, InitProducerIdResponse;
            create_topics: CreateTopics, CreateTopicsRequest, CreateTopicsResponse;
            delete_topics: DeleteTopics, DeleteTopicsRequest, DeleteTopicsResponse;
            create_partitions: CreatePartitions, CreatePartitionsRequest, CreatePartitionsResponse;
            delete_records: DeleteRecords, DeleteRecordsRequest, DeleteRecordsResponse;
            describe_configs: DescribeConfigs, DescribeConfigsRequest, DescribeConfigsResponse;
            incremental_alter_configs: IncrementalAlterConfigs, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
            alter_configs: AlterConfigs, AlterConfigsRequest, AlterConfigsResponse;
            describe_cluster: DescribeCluster, DescribeClusterRequest, DescribeClusterResponse;
            describe_topic_partitions: DescribeTopicPartitions, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
            describe_log_dirs: DescribeLogDirs, DescribeLogDirsRequest, DescribeLogDirsResponse;
            describe_producers: DescribeProducers, DescribeProducersRequest, DescribeProducersResponse;
        }
    };
}
#[cfg(test)]
pub(super) use for_each_api;

macro_rules! table {
    ($($module:ident: $api:ident, $request:ident, $response:ident;)+) => {
        /// Every declared API, in the order of the modules.
        pub const DECLARED: &[Declared] = &[$(Declared {
            key: super::$module::$api::KEY,
            name: super::$module::$api::NAME,
            min: super::$module::$api::MIN,
            max: super::$module::$api::MAX,
            flexible: super::$module::$api::FLEXIBLE,
            request: |version, bytes| super::$module::$request::transcode(version, bytes),
            response: |version, bytes| super::$module::$response::transcode(version, bytes),
        }),+];
    };
}

for_each_api!(table);
