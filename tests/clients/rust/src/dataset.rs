//! The records that every client writes and expects back, as tests/clients/README.md describes them.

pub const PARTITIONS: i32 = 3;
pub const RECORDS: i64 = 60;
pub const PER_PARTITION: i64 = RECORDS / PARTITIONS as i64;

#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl PartialEq<&Record> for Record {
    fn eq(&self, other: &&Record) -> bool {
        self == *other
    }
}

/// Null keys, null values, a repeated and an empty header, a second between timestamps.
pub fn record(i: i64, base_ms: i64) -> Record {
    let key = (i % 5 != 0).then(|| format!("key-{i}").into_bytes());
    let value = (key.is_none() || i % 7 != 3)
        .then(|| format!("value-{i}-{}", "x".repeat((i * 37 % 200) as usize)).into_bytes());
    let header = |name: &str, value: String| (name.to_owned(), Some(value.into_bytes()));
    Record {
        partition: (i % i64::from(PARTITIONS)) as i32,
        offset: i / i64::from(PARTITIONS),
        timestamp: base_ms + i * 1000,
        key,
        value,
        headers: vec![header("n", i.to_string()), header("n", "again".into()), header("empty", String::new())],
    }
}
