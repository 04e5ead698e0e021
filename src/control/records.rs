//! The records of the metadata log: what a decision of the controller looks like once it is a fact.
//!
//! One entry of the log carries the records of one command, so that a command is in effect whole or not at all. A
//! snapshot is the same records in the order in which they rebuild the image.

use std::sync::Arc;

use crate::control::codec::{DecodeError, Reader, Writer};
use crate::control::image::{FlushMode, PartitionImage};
use crate::ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId};

/// Version of this format. A newer one is refused; records of a new kind wait for a finalized feature level.
pub const RECORDS_VERSION: u16 = 1;

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The cluster exists; the first record of every log.
    ClusterFormed {
        /// Its id.
        cluster_id: Arc<str>,
        /// What "stable" means in it.
        flush_mode: FlushMode,
    },
    /// A broker's incarnation is known.
    BrokerRegistered {
        /// Its node id.
        id: BrokerId,
        /// Its epoch; −1 in the log, where it is the entry's index, and the number itself in a snapshot.
        epoch: BrokerEpoch,
        /// Random id of the process.
        incarnation: TopicId,
        /// Host that clients connect to.
        host: String,
        /// Port that clients connect to.
        port: u16,
        /// Its rack.
        rack: Option<String>,
        /// Directory ids of its data directories.
        directories: Vec<TopicId>,
        /// Whether it is kept out of client metadata until it is unfenced.
        fenced: bool,
    },
    /// A broker leaves client metadata, or comes back.
    BrokerFenced {
        /// Its node id.
        id: BrokerId,
        /// Which of the two.
        fenced: bool,
    },
    /// A topic exists, with no partitions yet.
    TopicCreated {
        /// Its id.
        id: TopicId,
        /// Its name.
        name: Arc<str>,
    },
    /// Partitions follow those that the topic has.
    PartitionsAdded {
        /// The topic.
        topic: TopicId,
        /// Their state at birth.
        partitions: Vec<PartitionImage>,
    },
    /// Partitions have a new state.
    PartitionsChanged {
        /// The topic.
        topic: TopicId,
        /// Which ones, and their whole new state.
        changes: Vec<(PartitionIndex, PartitionImage)>,
    },
    /// Settings of a topic are set (with a value) or go back to the broker's defaults (without).
    TopicConfigured {
        /// The topic.
        topic: TopicId,
        /// Name and value.
        changes: Vec<(String, Option<String>)>,
    },
    /// A topic is gone.
    TopicDeleted {
        /// The topic.
        topic: TopicId,
    },
    /// Every producer id below this one may have been given out.
    ProducerIdsAllocated {
        /// First id still free.
        next: i64,
    },
}

/// Appends records to a buffer: version, count, then kind, length and body of each.
pub fn encode(records: &[Record], writer: &mut Writer) {
    writer.u16(RECORDS_VERSION);
    writer.count(records.len());
    for record in records {
        let mut body = Writer::default();
        let kind = encode_body(record, &mut body);
        writer.u8(kind);
        writer.blob(&body.bytes);
    }
}

/// Reads what [`encode`] wrote; all of `bytes`.
pub fn decode(bytes: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let found = reader.u16()?;
    if found > RECORDS_VERSION {
        return Err(DecodeError::Newer { found, known: RECORDS_VERSION });
    }
    let records = reader.list(5, |reader| {
        let kind = reader.u8()?;
        let mut body = Reader::new(reader.blob()?);
        let record = decode_body(kind, &mut body)?;
        body.finish()?;
        Ok(record)
    })?;
    reader.finish()?;
    Ok(records)
}

fn encode_body(record: &Record, to: &mut Writer) -> u8 {
    match record {
        Record::ClusterFormed { cluster_id, flush_mode } => {
            to.text(cluster_id);
            to.u8(match flush_mode {
                FlushMode::Synced => 0,
                FlushMode::Written => 1,
            });
            1
        }
        Record::BrokerRegistered { id, epoch, incarnation, host, port, rack, directories, fenced } => {
            to.i32(id.0);
            to.i64(epoch.0);
            to.id(incarnation.0);
            to.text(host);
            to.u16(*port);
            to.optional_text(rack.as_deref());
            to.count(directories.len());
            directories.iter().for_each(|directory| to.id(directory.0));
            to.u8(u8::from(*fenced));
            2
        }
        Record::BrokerFenced { id, fenced } => {
            to.i32(id.0);
            to.u8(u8::from(*fenced));
            3
        }
        Record::TopicCreated { id, name } => {
            to.id(id.0);
            to.text(name);
            4
        }
        Record::PartitionsAdded { topic, partitions } => {
            to.id(topic.0);
            to.count(partitions.len());
            partitions.iter().for_each(|partition| encode_partition(partition, to));
            5
        }
        Record::PartitionsChanged { topic, changes } => {
            to.id(topic.0);
            to.count(changes.len());
            for (index, partition) in changes {
                to.i32(index.0);
                encode_partition(partition, to);
            }
            6
        }
        Record::TopicConfigured { topic, changes } => {
            to.id(topic.0);
            to.count(changes.len());
            for (name, value) in changes {
                to.text(name);
                to.optional_text(value.as_deref());
            }
            7
        }
        Record::TopicDeleted { topic } => {
            to.id(topic.0);
            8
        }
        Record::ProducerIdsAllocated { next } => {
            to.i64(*next);
            9
        }
    }
}

fn decode_body(kind: u8, from: &mut Reader<'_>) -> Result<Record, DecodeError> {
    Ok(match kind {
        1 => Record::ClusterFormed { cluster_id: from.text()?.into(), flush_mode: decode_flush_mode(from)? },
        2 => Record::BrokerRegistered {
            id: BrokerId(from.i32()?),
            epoch: BrokerEpoch(from.i64()?),
            incarnation: TopicId(from.id()?),
            host: from.text()?.to_owned(),
            port: from.u16()?,
            rack: from.optional_text()?.map(str::to_owned),
            directories: from.list(16, |from| Ok(TopicId(from.id()?)))?,
            fenced: from.flag("fenced")?,
        },
        3 => Record::BrokerFenced { id: BrokerId(from.i32()?), fenced: from.flag("fenced")? },
        4 => Record::TopicCreated { id: TopicId(from.id()?), name: from.text()?.into() },
        5 => Record::PartitionsAdded {
            topic: TopicId(from.id()?),
            partitions: from.list(PARTITION_LEN_MIN, decode_partition)?,
        },
        6 => Record::PartitionsChanged {
            topic: TopicId(from.id()?),
            changes: from.list(PARTITION_LEN_MIN, |from| Ok((PartitionIndex(from.i32()?), decode_partition(from)?)))?,
        },
        7 => Record::TopicConfigured {
            topic: TopicId(from.id()?),
            changes: from.list(5, |from| Ok((from.text()?.to_owned(), from.optional_text()?.map(str::to_owned))))?,
        },
        8 => Record::TopicDeleted { topic: TopicId(from.id()?) },
        9 => Record::ProducerIdsAllocated { next: from.i64()? },
        _ => return Err(DecodeError::Tag { what: "the kind of a metadata record", value: kind.into() }),
    })
}

fn decode_flush_mode(from: &mut Reader<'_>) -> Result<FlushMode, DecodeError> {
    match from.u8()? {
        0 => Ok(FlushMode::Synced),
        1 => Ok(FlushMode::Written),
        value => Err(DecodeError::Tag { what: "flush.mode", value: value.into() }),
    }
}

/// Two empty lists, the leader and two epochs.
const PARTITION_LEN_MIN: usize = 20;

fn encode_partition(partition: &PartitionImage, to: &mut Writer) {
    for brokers in [&partition.replicas, &partition.isr] {
        to.count(brokers.len());
        brokers.iter().for_each(|broker| to.i32(broker.0));
    }
    to.i32(partition.leader.0);
    to.i32(partition.leader_epoch.0);
    to.i32(partition.partition_epoch.0);
}

fn decode_partition(from: &mut Reader<'_>) -> Result<PartitionImage, DecodeError> {
    Ok(PartitionImage {
        replicas: from.list(4, |from| Ok(BrokerId(from.i32()?)))?,
        isr: from.list(4, |from| Ok(BrokerId(from.i32()?)))?,
        leader: BrokerId(from.i32()?),
        leader_epoch: LeaderEpoch(from.i32()?),
        partition_epoch: PartitionEpoch(from.i32()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn partition() -> impl Strategy<Value = PartitionImage> {
        let brokers = || vec(any::<i32>().prop_map(BrokerId), 0..4);
        (brokers(), brokers(), any::<i32>(), any::<i32>(), any::<i32>()).prop_map(|(replicas, isr, a, b, c)| {
            PartitionImage {
                replicas,
                isr,
                leader: BrokerId(a),
                leader_epoch: LeaderEpoch(b),
                partition_epoch: PartitionEpoch(c),
            }
        })
    }

    fn topic() -> impl Strategy<Value = TopicId> {
        any::<[u8; 16]>().prop_map(TopicId)
    }

    fn record() -> impl Strategy<Value = Record> {
        let registration = (
            (any::<i32>(), any::<i64>(), topic(), ".{0,20}"),
            (any::<u16>(), option::of(".{0,8}"), vec(topic(), 0..4), any::<bool>()),
        );
        prop_oneof![
            ("[a-z]{0,22}", any::<bool>()).prop_map(|(id, written)| Record::ClusterFormed {
                cluster_id: id.as_str().into(),
                flush_mode: if written { FlushMode::Written } else { FlushMode::Synced },
            }),
            registration.prop_map(|((id, epoch, incarnation, host), (port, rack, directories, fenced))| {
                let (id, epoch) = (BrokerId(id), BrokerEpoch(epoch));
                Record::BrokerRegistered { id, epoch, incarnation, host, port, rack, directories, fenced }
            }),
            (any::<i32>(), any::<bool>()).prop_map(|(id, fenced)| Record::BrokerFenced { id: BrokerId(id), fenced }),
            (topic(), ".{0,30}").prop_map(|(id, name)| Record::TopicCreated { id, name: name.as_str().into() }),
            (topic(), vec(partition(), 0..5))
                .prop_map(|(topic, partitions)| Record::PartitionsAdded { topic, partitions }),
            (topic(), vec((any::<i32>().prop_map(PartitionIndex), partition()), 0..5))
                .prop_map(|(topic, changes)| Record::PartitionsChanged { topic, changes }),
            (topic(), vec((".{0,9}", option::of(".{0,9}")), 0..4))
                .prop_map(|(topic, changes)| Record::TopicConfigured { topic, changes }),
            topic().prop_map(|topic| Record::TopicDeleted { topic }),
            any::<i64>().prop_map(|next| Record::ProducerIdsAllocated { next }),
        ]
    }

    proptest! {
        #[test]
        fn records_round_trip(records in vec(record(), 0..8)) {
            let mut writer = Writer::default();
            encode(&records, &mut writer);
            prop_assert_eq!(decode(&writer.bytes), Ok(records));
        }

        #[test]
        fn every_strict_prefix_is_refused(records in vec(record(), 1..4), cut in any::<prop::sample::Index>()) {
            let mut writer = Writer::default();
            encode(&records, &mut writer);
            let len = cut.index(writer.bytes.len());
            prop_assert!(decode(&writer.bytes[..len]).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(records) = decode(&bytes) {
                let mut writer = Writer::default();
                encode(&records, &mut writer);
                prop_assert_eq!(decode(&writer.bytes), Ok(records));
            }
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        assert_eq!(decode(&[9, 0, 0, 0, 0, 0]), Err(DecodeError::Newer { found: 9, known: RECORDS_VERSION }));
    }
}
