//! Fetch (1): record batches to read, for consumers and followers.

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::{Records, schema};

schema! {
    api Fetch = 1, versions 4..=18, flexible 12;

    request FetchRequest<'a> {
        cluster_id: Option<&'a str>, from(12).nullable().tag(0).ignorable();
        replica_id: BrokerId = BrokerId(-1), until(14);
        replica_state: ReplicaState, from(15).tag(1).ignorable();
        max_wait_ms: i32;
        min_bytes: i32;
        max_bytes: i32 = 0x7fffffff;
        isolation_level: i8;
        session_id: i32, from(7).ignorable();
        session_epoch: i32 = -1, from(7).ignorable();
        topics: Vec<FetchTopic<'a>>;
        forgotten_topics_data: Vec<ForgottenTopic<'a>>, from(7);
        rack_id: &'a str, from(11).ignorable();
    }

    struct ReplicaState {
        replica_id: BrokerId = BrokerId(-1);
        replica_epoch: i64 = -1;
    }

    struct FetchTopic<'a> {
        topic: &'a str, until(12).ignorable();
        topic_id: TopicId, from(13).ignorable();
        partitions: Vec<FetchPartition>;
    }

    struct FetchPartition {
        partition: PartitionIndex;
        current_leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(9).ignorable();
        fetch_offset: Offset;
        last_fetched_epoch: LeaderEpoch = LeaderEpoch(-1), from(12);
        log_start_offset: Offset = Offset(-1), from(5).ignorable();
        partition_max_bytes: i32;
        replica_directory_id: [u8; 16], from(17).tag(0).ignorable();
        high_watermark: Offset = Offset(i64::MAX), from(18).tag(1).ignorable();
    }

    struct ForgottenTopic<'a> {
        topic: &'a str, until(12).ignorable();
        topic_id: TopicId, from(13).ignorable();
        partitions: Vec<PartitionIndex>;
    }

    response FetchResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode, from(7);
        session_id: i32, from(7);
        responses: Vec<FetchableTopicResponse<'a>>;
        node_endpoints: Vec<NodeEndpoint<'a>>, from(16).tag(0);
    }

    struct FetchableTopicResponse<'a> {
        topic: &'a str, until(12);
        topic_id: TopicId, from(13);
        partitions: Vec<PartitionData<'a>>;
    }

    struct PartitionData<'a> {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
        high_watermark: Offset;
        last_stable_offset: Offset = Offset(-1);
        log_start_offset: Offset = Offset(-1), from(5);
        diverging_epoch: EpochEndOffset, from(12).tag(0);
        current_leader: LeaderIdAndEpoch, from(12).tag(1);
        snapshot_id: SnapshotId, from(12).tag(2);
        aborted_transactions: Option<Vec<AbortedTransaction>>, nullable();
        preferred_read_replica: BrokerId = BrokerId(-1), from(11);
        records: Records<'a>;
    }

    struct EpochEndOffset {
        epoch: i32 = -1;
        end_offset: Offset = Offset(-1);
    }

    struct LeaderIdAndEpoch {
        leader_id: BrokerId = BrokerId(-1);
        leader_epoch: LeaderEpoch = LeaderEpoch(-1);
    }

    struct SnapshotId {
        end_offset: Offset = Offset(-1);
        epoch: i32 = -1;
    }

    struct AbortedTransaction {
        producer_id: ProducerId;
        first_offset: Offset;
    }

    struct NodeEndpoint<'a> {
        node_id: BrokerId;
        host: &'a str;
        port: i32;
        rack: Option<&'a str>, nullable();
    }
}
