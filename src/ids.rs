//! Newtypes for every id, offset, epoch and position of the broker, so that two of them cannot be mixed up.
//!
//! Each type is a plain number (or 16 bytes) with a name. Arithmetic exists only where it has a meaning in the field:
//! an [`Offset`] can be advanced by a count of records, a [`FilePos`] by a count of bytes.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

id!(/// Node id of a broker, as clients see it. −1 means "none".
    BrokerId(i32));
id!(/// One incarnation of a broker: the metadata log index of its registration. −1 means "unknown".
    BrokerEpoch(i64));
id!(/// Leader epoch of a partition (KIP-101). −1 means "undefined".
    LeaderEpoch(i32));
id!(/// Version of a partition's replicated state; the compare-and-swap token of AlterPartition.
    PartitionEpoch(i32));
id!(/// Position of an entry in the metadata (Raft) log; the first is 1.
    LogIndex(u64));
id!(/// Raft term of an entry of the metadata log.
    Term(u64));
id!(/// Position of a record in its partition's log.
    Offset(i64));
id!(/// Byte position in a segment file.
    FilePos(u64));
id!(/// Counts the truncations of a partition's log; a completion of an older generation moves nothing.
    Generation(u32));
id!(/// Index of a partition inside its topic.
    PartitionIndex(i32));
id!(/// Index of a data core, 0-based. It is not a CPU number.
    CoreId(u16));
id!(/// Index of a data directory in the order of the configuration.
    DirId(u16));
id!(/// Id of an idempotent producer. −1 means "none".
    ProducerId(i64));
id!(/// Epoch of an idempotent producer. −1 means "none".
    ProducerEpoch(i16));
id!(/// A segment file that the shell knows. The shard that asks for it chooses the number and never reuses it while a job
    /// or a send names it.
    FileId(u64));
id!(/// One write in flight.
    WriteId(u64));
id!(/// One device flush in flight.
    FlushId(u64));
id!(/// One file read in flight.
    ReadId(u64));
id!(/// One residency probe in flight.
    ProbeId(u64));
id!(/// One file job (create, grow, seal, remove, …) in flight.
    FileJobId(u64));
id!(/// One request in service on a connection; answers carry it back.
    Ticket(u64));
id!(/// Monotonic time in microseconds; drives deadlines only.
    MonoMicros(u64));
id!(/// Wall-clock time in milliseconds since the Unix epoch; only for timestamps in records and for retention.
    WallMillis(i64));

impl Offset {
    /// First offset of every partition.
    pub const ZERO: Offset = Offset(0);

    /// The offset `records` further on.
    ///
    /// # Panics
    /// On overflow: offsets come from checked counts, so that would be a bug.
    pub fn plus(self, records: i64) -> Offset {
        Offset(self.0.checked_add(records).expect("offset overflow"))
    }
}

impl FilePos {
    /// The position `bytes` further on.
    pub fn plus(self, bytes: u64) -> FilePos {
        FilePos(self.0 + bytes)
    }

    /// The 4 KiB boundary at or below this position (`BLOCK` in limits.rs).
    pub fn align_down(self) -> FilePos {
        FilePos(self.0 & !(crate::limits::BLOCK - 1))
    }

    /// The 4 KiB boundary at or above this position.
    pub fn align_up(self) -> FilePos {
        FilePos((self.0 + crate::limits::BLOCK - 1) & !(crate::limits::BLOCK - 1))
    }
}

impl MonoMicros {
    /// The moment `micros` later.
    pub fn plus_micros(self, micros: u64) -> MonoMicros {
        MonoMicros(self.0.saturating_add(micros))
    }

    /// The moment `millis` later.
    pub fn plus_millis(self, millis: u64) -> MonoMicros {
        MonoMicros(self.0.saturating_add(millis.saturating_mul(1000)))
    }

    /// Microseconds from `earlier` to this moment; 0 when `earlier` is later.
    pub fn micros_since(self, earlier: MonoMicros) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Random 128-bit id of one incarnation of a topic name (a Kafka uuid). All zero means "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id that stands for "no topic id" on the wire.
    pub const NONE: TopicId = TopicId([0; 16]);

    /// Whether this is the "no topic id" value.
    pub fn is_none(self) -> bool {
        self == TopicId::NONE
    }

    /// Reads the 22-character url-safe base64 form that `partition.metadata` and Kafka's tools use.
    pub fn parse(text: &str) -> Option<TopicId> {
        let text = text.as_bytes();
        if text.len() != 22 {
            return None;
        }
        let mut bits: u128 = 0;
        for (i, &byte) in text.iter().enumerate() {
            let digit = BASE64_URL.iter().position(|&c| c == byte)? as u128;
            // The last character carries two bits of the id and four that must be zero.
            bits = match i {
                21 if digit & 0xf == 0 => (bits << 2) | (digit >> 4),
                21 => return None,
                _ => (bits << 6) | digit,
            };
        }
        Some(TopicId(bits.to_be_bytes()))
    }
}

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        for i in 0..21 {
            let digit = (bits >> (122 - 6 * i)) & 0x3f;
            write!(f, "{}", BASE64_URL[digit as usize] as char)?;
        }
        write!(f, "{}", BASE64_URL[((bits & 0x3) << 4) as usize] as char)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// One partition of one incarnation of a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PartitionId {
    /// The incarnation of the topic.
    pub topic: TopicId,
    /// The partition inside it.
    pub index: PartitionIndex,
}

/// A client connection of one data core: a slot and how often that slot was used before, so that a late completion
/// for an old connection never touches its successor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ConnId {
    /// Index into the core's connection table.
    pub slot: u32,
    /// Use count of the slot.
    pub turn: u32,
}

/// An operating-system error number, kept from the completion to the log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}

/// The two clocks as data: `mono` drives deadlines, `wall` only timestamps in records and retention.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Monotonic time.
    pub mono: MonoMicros,
    /// Wall-clock time.
    pub wall: WallMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_text_is_kafkas_base64_both_ways() {
        let id = TopicId([0xff; 16]);
        assert_eq!(id.to_string(), "_____________________w");
        assert_eq!(TopicId::parse("_____________________w"), Some(id));
        let id = TopicId(*b"0123456789abcdef");
        assert_eq!(TopicId::parse(&id.to_string()), Some(id));
        assert_eq!(TopicId::parse("_____________________x"), None, "bits behind the 128th must be zero");
        assert_eq!(TopicId::parse("short"), None);
    }

    #[test]
    fn file_positions_align_to_blocks() {
        assert_eq!(FilePos(4097).align_down(), FilePos(4096));
        assert_eq!(FilePos(4097).align_up(), FilePos(8192));
        assert_eq!(FilePos(4096).align_up(), FilePos(4096));
    }
}
