//! What clients were told and have seen, held against what may be true.

use std::collections::BTreeMap;
use std::sync::Arc;

use pinion::ids::{Offset, ProducerEpoch, ProducerId};
use pinion::kafka::batch::{BatchView, HEADER_BYTES};
use pinion::kafka::batch_builder::BatchBuilder;

use crate::rng::Rng;

/// Wall clock at the start of every run. A batch is known by its first timestamp: this plus its number.
pub const WALL_START: i64 = 1_700_000_000_000;

/// What became of a batch, as its producer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent; it may be in the log or not.
    Unknown,
    /// Acknowledged at this offset.
    Acked(i64),
    /// Refused for good.
    Refused,
}

/// One batch that a client sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub partition: usize,
    pub bytes: Arc<[u8]>,
    pub count: i64,
    pub fate: Fate,
}

/// What is known of one partition's log.
#[derive(Debug, Default)]
struct Log {
    /// Batches whose place can never change: acknowledged, read, or recovered.
    committed: BTreeMap<i64, usize>,
    places: BTreeMap<usize, i64>,
    /// Highest log start that anybody asked for or was told: what lies below may be gone.
    start_max: i64,
}

/// Everything that was sent, acknowledged and read in a run, over all crashes.
#[derive(Debug, Default)]
pub struct History {
    batches: Vec<Sent>,
    logs: Vec<Log>,
    /// Batches read by consumers, for the report that a run did something.
    pub read: u64,
    /// Acknowledged batches.
    pub acked: u64,
}

impl History {
    /// Nothing yet.
    pub fn new(partitions: usize) -> History {
        History { logs: (0..partitions).map(|_| Log::default()).collect(), ..History::default() }
    }

    /// A new batch of about `bytes` bytes. `producer` is its id and first sequence.
    pub fn make(&mut self, rng: &mut Rng, partition: usize, bytes: u64, producer: Option<(i64, i32)>) -> usize {
        let id = self.batches.len();
        let count = if bytes > 1_000 { rng.range(1, 9) } else { rng.range(1, 4) };
        let mut value = vec![0; (bytes / count).max(1) as usize];
        value.iter_mut().for_each(|byte| *byte = b'a' + (id % 26) as u8);
        let mut builder = BatchBuilder::new().values(count as usize, WALL_START + id as i64, &value);
        if let Some((producer, sequence)) = producer {
            builder = builder.producer(ProducerId(producer), ProducerEpoch(0), sequence);
        }
        let bytes = builder.build().into();
        self.batches.push(Sent { partition, bytes, count: count as i64, fate: Fate::Unknown });
        id
    }

    /// One batch.
    pub fn batch(&self, id: usize) -> &Sent {
        &self.batches[id]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// A producer was told that its batch is in the log.
    pub fn acked(&mut self, id: usize, offset: i64) {
        let batch = &mut self.batches[id];
        if let Fate::Acked(before) = batch.fate {
            assert_eq!(before, offset, "batch {id} acknowledged at two offsets");
        }
        batch.fate = Fate::Acked(offset);
        self.acked += 1;
        let partition = batch.partition;
        self.commit(partition, offset, id);
    }

    /// A producer was told that its batch will never be in the log.
    pub fn refused(&mut self, id: usize) {
        let known = self.logs[self.batches[id].partition].places.get(&id);
        assert!(known.is_none(), "batch {id} was refused and is in the log at {known:?}");
        self.batches[id].fate = Fate::Refused;
    }

    /// Somebody asked for, or was told of, this log start.
    pub fn log_start_may_be(&mut self, partition: usize, offset: i64) {
        let log = &mut self.logs[partition];
        log.start_max = log.start_max.max(offset);
    }

    /// Highest log start that is possible.
    pub fn start_max(&self, partition: usize) -> i64 {
        self.logs[partition].start_max
    }

    /// A whole batch as it came from the log. Returns its number and the offset after it.
    pub fn seen(&mut self, partition: usize, bytes: &[u8]) -> (usize, i64) {
        let view = BatchView::parse(bytes).unwrap_or_else(|fault| panic!("partition {partition}: {fault:?}"));
        let base = view.base_offset().0;
        let number = view.header().base_timestamp.get() - WALL_START;
        let id = usize::try_from(number).ok().filter(|id| *id < self.batches.len());
        let id = id.unwrap_or_else(|| panic!("partition {partition}: foreign bytes at offset {base}"));
        let sent = &self.batches[id];
        assert_eq!(sent.partition, partition, "batch {id} at offset {base} is another partition's");
        let same = sent.bytes.len() == bytes.len()
            && sent.bytes[8..12] == bytes[8..12]
            && sent.bytes[16..HEADER_BYTES] == bytes[16..HEADER_BYTES]
            && sent.bytes[HEADER_BYTES..] == bytes[HEADER_BYTES..];
        assert!(same, "batch {id} at offset {base} of partition {partition} is not as it was produced");
        assert!(sent.fate != Fate::Refused, "batch {id} at offset {base} was refused");
        self.commit(partition, base, id);
        (id, view.next_offset().0)
    }

    /// A log after recovery: all of it is there for good now, and nothing that was promised is missing.
    pub fn recovered(&mut self, partition: usize, start: i64, end: i64, batches: &[&[u8]]) {
        let found: BTreeMap<i64, usize> = batches
            .iter()
            .map(|bytes| {
                let (id, next) = self.seen(partition, bytes);
                (next - self.batches[id].count, id)
            })
            .collect();
        let log = &self.logs[partition];
        assert!(start <= log.start_max, "partition {partition} starts at {start}, above {}", log.start_max);
        for (base, id) in log.committed.range(start..) {
            let there = found.get(base) == Some(id);
            assert!(there, "partition {partition} ends at {end} and has lost batch {id} at offset {base}");
        }
    }

    fn commit(&mut self, partition: usize, base: i64, id: usize) {
        let count = self.batches[id].count;
        let log = &mut self.logs[partition];
        if let Some(place) = log.places.insert(id, base) {
            assert_eq!(place, base, "batch {id} of partition {partition} is in the log twice");
        }
        if log.committed.insert(base, id).is_some_and(|before| before != id) {
            panic!("offset {base} of partition {partition} changed its value to batch {id}");
        }
        let before = log.committed.range(..base).next_back();
        if let Some((at, other)) = before {
            let end = at + self.batches[*other].count;
            assert!(end <= base, "batch {id} at {base} overlaps batch {other} at {at}..{end}");
        }
        let next = log.committed.range(base + 1..).next().map_or(i64::MAX, |(at, _)| *at);
        assert!(base + count <= next, "batch {id} at {base} overlaps what is at {next}");
    }
}

/// The four offsets of a partition as a core reports them, from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watermarks {
    start: Offset,
    high_watermark: Offset,
    stable: Offset,
}

impl Watermarks {
    /// They keep their order, and within an incarnation none goes back.
    pub fn next(&mut self, report: &pinion::metrics::PartitionReport) {
        let now = (report.start, report.high_watermark, report.stable);
        let ordered = now.0 <= now.1 && now.1 <= now.2 && now.2 <= report.end;
        assert!(ordered, "offsets out of order: {report:?}");
        let forward = self.start <= now.0 && self.high_watermark <= now.1 && self.stable <= now.2;
        assert!(forward, "an offset went back: {self:?} to {report:?}");
        *self = Watermarks { start: now.0, high_watermark: now.1, stable: now.2 };
    }
}
