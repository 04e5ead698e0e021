//! Kafka's small text files: offset checkpoints, `partition.metadata`, `.kafka_cleanshutdown`. Byte for byte, so that
//! Kafka's tools read a directory that was stopped cleanly. `leader-epoch-checkpoint` is in `log/epochs`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::ids::{BrokerEpoch, Offset, PartitionIndex, TopicId};

/// Name of the checkpoint of everything that is on the device.
pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// Name of the checkpoint of high watermarks.
pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// Name of the checkpoint of log starts.
pub const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// Name of the marker of a clean stop.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Name of the file that says which incarnation of a topic a partition directory belongs to.
pub const PARTITION_METADATA: &str = "partition.metadata";

/// What is wrong with a text file: the line, from 1, and what was expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}")]
pub struct TextFault {
    /// The line, from 1.
    pub line: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// Offsets by topic and partition, as the offset checkpoints hold them.
pub type Offsets = BTreeMap<(String, PartitionIndex), Offset>;

/// The contents of an offset checkpoint (kafka-spec §2.5).
pub fn encode_offsets<'a>(offsets: impl ExactSizeIterator<Item = (&'a str, PartitionIndex, Offset)>) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (topic, partition, offset) in offsets {
        writeln!(text, "{topic} {partition} {offset}").expect("a string takes everything");
    }
    text
}

/// Reads an offset checkpoint.
///
/// # Errors
/// The first line that is not as it must be.
pub fn parse_offsets(text: &str) -> Result<Offsets, TextFault> {
    let fault = |line, expected| TextFault { line, expected };
    let mut lines = text.lines();
    if lines.next() != Some("0") {
        return Err(fault(1, "version 0"));
    }
    let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or(fault(2, "a count of entries"))?;
    let mut offsets = Offsets::new();
    for (at, line) in lines.enumerate() {
        let (key, offset) = offset_line(line).ok_or(fault(at + 3, "topic, partition and offset"))?;
        offsets.insert(key, offset);
    }
    if offsets.len() != count {
        return Err(fault(2, "the count of the entries that follow"));
    }
    Ok(offsets)
}

fn offset_line(line: &str) -> Option<((String, PartitionIndex), Offset)> {
    let mut words = line.split(' ');
    let topic = words.next().filter(|topic| !topic.is_empty())?;
    let partition = words.next()?.parse().ok()?;
    let offset = words.next()?.parse().ok()?;
    words.next().is_none().then(|| ((topic.to_owned(), PartitionIndex(partition)), Offset(offset)))
}

/// What `.kafka_cleanshutdown` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanShutdown {
    version: u16,
    broker_epoch: i64,
}

impl CleanShutdown {
    /// The marker of this incarnation.
    pub fn new(epoch: BrokerEpoch) -> CleanShutdown {
        CleanShutdown { version: 0, broker_epoch: epoch.0 }
    }

    /// The incarnation that stopped.
    pub fn broker_epoch(self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch)
    }

    /// The file's contents.
    pub fn encode(self) -> String {
        serde_json::to_string(&self).expect("two numbers are JSON")
    }

    /// Reads the file. `None` when it is no marker that this broker understands: then the stop counts as unclean.
    pub fn parse(text: &[u8]) -> Option<CleanShutdown> {
        serde_json::from_slice(text).ok().filter(|marker: &CleanShutdown| marker.version == 0)
    }
}

/// The contents of `partition.metadata`.
pub fn encode_partition_metadata(topic: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic}")
}

/// Reads `partition.metadata`.
///
/// # Errors
/// The first line that is not as it must be.
pub fn parse_partition_metadata(text: &str) -> Result<TopicId, TextFault> {
    let mut lines = text.lines();
    if lines.next() != Some("version: 0") {
        return Err(TextFault { line: 1, expected: "version: 0" });
    }
    let id = lines.next().and_then(|line| line.strip_prefix("topic_id: ")).and_then(TopicId::parse);
    id.filter(|id| !id.is_none()).ok_or(TextFault { line: 2, expected: "topic_id: and a topic id" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_checkpoints_are_kafkas_text_both_ways() {
        let text =
            encode_offsets([("a", PartitionIndex(0), Offset(5)), ("b-c", PartitionIndex(11), Offset(0))].into_iter());
        assert_eq!(text, "0\n2\na 0 5\nb-c 11 0\n");
        let offsets = parse_offsets(&text).expect("our own text");
        assert_eq!(offsets[&("b-c".to_owned(), PartitionIndex(11))], Offset(0));
        assert_eq!(offsets.len(), 2);
    }

    #[test]
    fn malformed_offset_checkpoints_name_the_line() {
        let line = |text| parse_offsets(text).expect_err("malformed").line;
        assert_eq!(line(""), 1);
        assert_eq!(line("1\n0\n"), 1);
        assert_eq!(line("0\nx\n"), 2);
        assert_eq!(line("0\n2\na 0 5\n"), 2);
        assert_eq!(line("0\n1\na 0\n"), 3);
        assert_eq!(line("0\n1\na 0 5 6\n"), 3);
        assert_eq!(line("0\n2\na 0 5\n\n"), 4);
    }

    #[test]
    fn clean_shutdown_marker_is_kafkas_json() {
        let marker = CleanShutdown::new(BrokerEpoch(17));
        assert_eq!(marker.encode(), r#"{"version":0,"brokerEpoch":17}"#);
        assert_eq!(CleanShutdown::parse(marker.encode().as_bytes()), Some(marker));
        assert_eq!(CleanShutdown::parse(br#"{"version":1,"brokerEpoch":17}"#), None);
        assert_eq!(CleanShutdown::parse(b""), None);
    }

    #[test]
    fn partition_metadata_is_kafkas_text_both_ways() {
        let id = TopicId(*b"0123456789abcdef");
        let text = encode_partition_metadata(id);
        assert_eq!(parse_partition_metadata(&text), Ok(id));
        assert_eq!(parse_partition_metadata(&format!("{text}\n")), Ok(id));
        assert_eq!(parse_partition_metadata("version: 1\n").expect_err("newer").line, 1);
        assert_eq!(parse_partition_metadata("version: 0\ntopic_id: x").expect_err("no id").line, 2);
    }
}
