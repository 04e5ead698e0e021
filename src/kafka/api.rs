//! The APIs that this broker serves: one row each.

use std::fmt;

use super::schema::{self, Api, Declared};

/// The number that names an API in a request header; also one that nobody knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(pub i16);

/// What the broker serves of one API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The API.
    pub key: ApiKey,
    /// Kafka's name of it.
    pub name: &'static str,
    /// Lowest version that is served.
    pub min: i16,
    /// Highest version that is served.
    pub max: i16,
    /// Lowest version that ApiVersions tells; it is below `min` where clients test for a version that nobody sends.
    pub advertised_min: i16,
    /// First version with compact lengths and tag sections, `i16::MAX` for none.
    pub flexible: i16,
}

/// All rows, ascending by key.
pub const TABLE: &[Row] = &[
    // Older librdkafka switches compression off when versions 0 to 2 are missing from the advertisement (KAFKA-18659).
    Row { advertised_min: 0, ..served::<schema::produce::Produce>() },
    served::<schema::fetch::Fetch>(),
    served::<schema::list_offsets::ListOffsets>(),
    served::<schema::metadata::Metadata>(),
    // librdkafka compresses with LZ4 only where this is advertised from version 0; the answer is always a refusal.
    served::<schema::find_coordinator::FindCoordinator>(),
    served::<schema::api_versions::ApiVersions>(),
    served::<schema::create_topics::CreateTopics>(),
    served::<schema::delete_topics::DeleteTopics>(),
    served::<schema::delete_records::DeleteRecords>(),
    served::<schema::init_producer_id::InitProducerId>(),
    served::<schema::offset_for_leader_epoch::OffsetForLeaderEpoch>(),
    served::<schema::describe_configs::DescribeConfigs>(),
    served::<schema::describe_log_dirs::DescribeLogDirs>(),
    served::<schema::create_partitions::CreatePartitions>(),
    served::<schema::incremental_alter_configs::IncrementalAlterConfigs>(),
    served::<schema::describe_cluster::DescribeCluster>(),
    served::<schema::describe_producers::DescribeProducers>(),
    served::<schema::describe_topic_partitions::DescribeTopicPartitions>(),
];

/// The row of an API; `None` when the broker does not serve it. Walks the table, which starts with Produce and Fetch.
pub fn row(key: ApiKey) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.key == key)
}

impl Row {
    /// Whether a request of this version is served.
    pub fn serves(&self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

const fn served<A: Api>() -> Row {
    let (key, name, min, max, flexible) = (ApiKey(A::KEY), A::NAME, A::MIN, A::MAX, A::FLEXIBLE);
    Row { key, name, min, max, advertised_min: min, flexible }
}

macro_rules! keys {
    ($($name:ident = $module:ident::$api:ident;)+) => {
        impl ApiKey {$(
            #[doc = concat!("Key of ", stringify!($api), ".")]
            pub const $name: ApiKey = ApiKey(schema::$module::$api::KEY);
        )+}
    };
}

keys! {
    PRODUCE = produce::Produce;
    FETCH = fetch::Fetch;
    LIST_OFFSETS = list_offsets::ListOffsets;
    METADATA = metadata::Metadata;
    FIND_COORDINATOR = find_coordinator::FindCoordinator;
    API_VERSIONS = api_versions::ApiVersions;
    CREATE_TOPICS = create_topics::CreateTopics;
    DELETE_TOPICS = delete_topics::DeleteTopics;
    DELETE_RECORDS = delete_records::DeleteRecords;
    INIT_PRODUCER_ID = init_producer_id::InitProducerId;
    OFFSET_FOR_LEADER_EPOCH = offset_for_leader_epoch::OffsetForLeaderEpoch;
    DESCRIBE_CONFIGS = describe_configs::DescribeConfigs;
    DESCRIBE_LOG_DIRS = describe_log_dirs::DescribeLogDirs;
    CREATE_PARTITIONS = create_partitions::CreatePartitions;
    INCREMENTAL_ALTER_CONFIGS = incremental_alter_configs::IncrementalAlterConfigs;
    DESCRIBE_CLUSTER = describe_cluster::DescribeCluster;
    DESCRIBE_PRODUCERS = describe_producers::DescribeProducers;
    DESCRIBE_TOPIC_PARTITIONS = describe_topic_partitions::DescribeTopicPartitions;
}

impl ApiKey {
    /// Whether headers and body of this version are in the flexible form; false for an API that is not declared.
    pub fn is_flexible(self, version: i16) -> bool {
        Declared::find(self.0).is_some_and(|declared| version >= declared.flexible)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Declared::find(self.0) {
            Some(declared) => f.write_str(declared.name),
            None => write!(f, "Api{}", self.0),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ascend_and_lie_inside_what_is_declared() {
        assert!(TABLE.is_sorted_by_key(|row| row.key));
        for row in TABLE {
            let declared = Declared::find(row.key.0).expect("a served API is declared");
            assert!(declared.min <= row.min && row.min <= row.max && row.max <= declared.max, "{}", row.name);
            assert!(row.advertised_min <= row.min, "{}", row.name);
        }
    }

    #[test]
    fn produce_is_advertised_from_zero_and_served_from_three() {
        let produce = row(ApiKey::PRODUCE).expect("Produce is served");
        assert_eq!(produce.advertised_min, 0);
        assert!(!produce.serves(2) && produce.serves(3) && produce.serves(13) && !produce.serves(14));
    }

    #[test]
    fn an_unknown_key_has_no_row_and_prints_its_number() {
        assert_eq!(row(ApiKey(-7)), None);
        assert_eq!(ApiKey(-7).to_string(), "Api-7");
        assert_eq!(ApiKey::PRODUCE.to_string(), "Produce");
    }
}
