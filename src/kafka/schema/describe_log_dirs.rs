//! DescribeLogDirs (35): sizes of replicas per data directory.

use crate::ids::PartitionIndex;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::schema;

schema! {
    api DescribeLogDirs = 35, versions 1..=5, flexible 2;

    request DescribeLogDirsRequest<'a> {
        topics: Option<Vec<DescribableLogDirTopic<'a>>>, nullable();
    }

    struct DescribableLogDirTopic<'a> {
        topic: &'a str;
        partitions: Vec<PartitionIndex>;
    }

    response DescribeLogDirsResponse<'a> {
        throttle_time_ms: i32;
        error_code: ErrorCode, from(3);
        results: Vec<DescribeLogDirsResult<'a>>;
    }

    struct DescribeLogDirsResult<'a> {
        error_code: ErrorCode;
        log_dir: &'a str;
        topics: Vec<DescribeLogDirsTopic<'a>>;
        total_bytes: i64 = -1, from(4);
        usable_bytes: i64 = -1, from(4);
        is_cordoned: bool, from(5);
    }

    struct DescribeLogDirsTopic<'a> {
        name: &'a str;
        partitions: Vec<DescribeLogDirsPartition>;
    }

    struct DescribeLogDirsPartition {
        partition_index: PartitionIndex;
        partition_size: i64;
        offset_lag: i64;
        is_future_key: bool;
    }
}
