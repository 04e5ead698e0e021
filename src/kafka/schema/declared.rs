//! The list of all declared messages, for what works on every one of them.

use super::{Api, DecodeError, Message, Transcoded};

/// [`Message::transcode`] of one message, by version and bytes.
pub type Transcode = fn(i16, &[u8]) -> Result<Transcoded, DecodeError>;

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
    pub request: Transcode,
    /// [`Message::transcode`] of the response.
    pub response: Transcode,
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
            find_coordinator: FindCoordinator, FindCoordinatorRequest, FindCoordinatorResponse;
            join_group: JoinGroup, JoinGroupRequest, JoinGroupResponse;
            sync_group: SyncGroup, SyncGroupRequest, SyncGroupResponse;
            heartbeat: Heartbeat, HeartbeatRequest, HeartbeatResponse;
            leave_group: LeaveGroup, LeaveGroupRequest, LeaveGroupResponse;
            offset_commit: OffsetCommit, OffsetCommitRequest, OffsetCommitResponse;
            offset_fetch: OffsetFetch, OffsetFetchRequest, OffsetFetchResponse;
            offset_delete: OffsetDelete, OffsetDeleteRequest, OffsetDeleteResponse;
            describe_groups: DescribeGroups, DescribeGroupsRequest, DescribeGroupsResponse;
            list_groups: ListGroups, ListGroupsRequest, ListGroupsResponse;
            delete_groups: DeleteGroups, DeleteGroupsRequest, DeleteGroupsResponse;
            elect_leaders: ElectLeaders, ElectLeadersRequest, ElectLeadersResponse;
            alter_partition_reassignments:
        AlterPartitionReassignments, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse;
            list_partition_reassignments:
        ListPartitionReassignments, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse;
            describe_quorum: DescribeQuorum, DescribeQuorumRequest, DescribeQuorumResponse;
            unregister_broker: UnregisterBroker, UnregisterBrokerRequest, UnregisterBrokerResponse;
            list_config_resources: ListConfigResources, ListConfigResourcesRequest, ListConfigResourcesResponse;
            describe_client_quotas: DescribeClientQuotas, DescribeClientQuotasRequest, DescribeClientQuotasResponse;
            alter_client_quotas: AlterClientQuotas, AlterClientQuotasRequest, AlterClientQuotasResponse;
            consumer_group_describe: ConsumerGroupDescribe, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse;
            consumer_group_heartbeat: ConsumerGroupHeartbeat, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse;
            describe_transactions: DescribeTransactions, DescribeTransactionsRequest, DescribeTransactionsResponse;
            list_transactions: ListTransactions, ListTransactionsRequest, ListTransactionsResponse;
            end_txn: EndTxn, EndTxnRequest, EndTxnResponse;
            txn_offset_commit: TxnOffsetCommit, TxnOffsetCommitRequest, TxnOffsetCommitResponse;
            share_acknowledge: ShareAcknowledge, ShareAcknowledgeRequest, ShareAcknowledgeResponse;
            share_fetch: ShareFetch, ShareFetchRequest, ShareFetchResponse;
            share_group_heartbeat: ShareGroupHeartbeat, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse;
            add_partitions_to_txn: AddPartitionsToTxn, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse;
            add_offsets_to_txn: AddOffsetsToTxn, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse;
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
