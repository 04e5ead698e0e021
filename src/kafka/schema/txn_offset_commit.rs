//! TxnOffsetCommit (28).

use crate::ids::{LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api TxnOffsetCommit = 28, versions 0..=6, flexible 3;

    request TxnOffsetCommitRequest<'a> {
        transactional_id: &'a str;
        group_id: &'a str;
        producer_id: ProducerId;
        producer_epoch: ProducerEpoch;
        generation_id_or_member_epoch: i32 = -1, from(3);
        member_id: &'a str, from(3);
        group_instance_id: Option<&'a str>, from(3).nullable();
        topics: Vec<TxnOffsetCommitRequestTopic<'a>>;
    }

    struct TxnOffsetCommitRequestTopic<'a> {
        name: &'a str, until(5).ignorable();
        topic_id: TopicId, from(6).ignorable();
        partitions: Vec<TxnOffsetCommitRequestPartition<'a>>;
    }

    struct TxnOffsetCommitRequestPartition<'a> {
        partition_index: PartitionIndex;
        committed_offset: Offset;
        committed_leader_epoch: LeaderEpoch = LeaderEpoch(-1), from(2).ignorable();
        committed_metadata: Option<&'a str>, nullable();
    }

    response TxnOffsetCommitResponse<'a> {
        throttle_time_ms: i32;
        topics: Vec<TxnOffsetCommitResponseTopic<'a>>;
    }

    struct TxnOffsetCommitResponseTopic<'a> {
        name: &'a str, until(5);
        topic_id: TopicId, from(6);
        partitions: Vec<TxnOffsetCommitResponsePartition>;
    }

    struct TxnOffsetCommitResponsePartition {
        partition_index: PartitionIndex;
        error_code: ErrorCode;
    }
}
