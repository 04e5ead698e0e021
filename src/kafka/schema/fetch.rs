//! Fetch (1): record batches to read, for consumers and followers.

use crate::ids::{BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::{Records, schema};

schema! {
    api Fetch = 1, versions 4..=18, flexible 12;

    request FetchRequest<'a> {
        /// Only metadata fetches of Kafka itself set it.
        cluster_id: Option<&'a str>, from(12).nullable().tag(0).ignorable();
        /// The follower that fetches, −1 for a consumer.
        replica_id: BrokerId = BrokerId(-1), until(14);
        /// The follower that fetches, and its broker epoch (KIP-903).
        replica_state: ReplicaState, from(15).tag(1).ignorable();
        /// How long to wait for `min_bytes`, in milliseconds.
        max_wait_ms: i32;
        min_bytes: i32;
        /// Bytes of records to return at most, but for the first batch.
        max_bytes: i32 = 0x7fffffff;
        /// 0 up to the high watermark, 1 up to the last stable offset.
        isolation_level: i8;
        session_id: i32, from(7).ignorable();
        /// −1 without a session, 0 to open one, then counting up (KIP-227).
        session_epoch: i32 = -1, from(7).ignorable();
        topics: Vec<FetchTopic<'a>>;
        /// Partitions that leave the session.
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
        /// The epoch that the client knows of the leader; −1 for none.
        current_leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(9).ignorable();
        fetch_offset: Offset;
        /// Epoch of the record before `fetch_offset` (KIP-595); −1 for none.
        last_fetched_epoch: LeaderEpoch = LeaderEpoch(-1), from(12);
        /// Log start of the follower; −1 from a consumer.
        log_start_offset: Offset = Offset(-1), from(5).ignorable();
        partition_max_bytes: i32;
        replica_directory_id: [u8; 16], from(17).tag(0).ignorable();
        /// High watermark of the follower; the default says that it does not tell.
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
        /// Set when the follower has to truncate; its default says that it need not.
        diverging_epoch: EpochEndOffset, from(12).tag(0);
        current_leader: LeaderIdAndEpoch, from(12).tag(1);
        snapshot_id: SnapshotId, from(12).tag(2);
        /// Null unless the isolation level asks for it.
        aborted_transactions: Option<Vec<AbortedTransaction>>, nullable();
        /// Where a consumer should read instead (KIP-392); −1 for here.
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
