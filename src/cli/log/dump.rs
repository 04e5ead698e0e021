//! `pinion log dump`: one line for each batch, entry, producer or partition, and for each record when asked.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::Stop;
use super::files::{self, Kind, LogFile, Target};
use super::segment::{Ending, Next, SegmentReader, StoredBatch};
use crate::ids::{FilePos, Offset};
use crate::kafka::batch::BatchView;
use crate::kafka::compression::plain_payload;
use crate::kafka::record::Record;
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{offset_entries, time_entries};
use crate::log::{checkpoint, producer_snapshot, text_files};
use crate::shard::action::FileKind;

/// Bytes that the records of one batch may have when decompressed.
const PLAIN_BYTES_MAX: usize = 1 << 30;

/// Prints all below `path`.
pub(super) fn dump(path: &Path, records: bool, json: bool, out: &mut impl Write) -> Result<(), Stop> {
    let mut dump = Dump { records, json, file: String::new(), out };
    match files::target(path)? {
        Target::File(file) => dump.file("", &file),
        Target::Partition(files) => files.iter().try_for_each(|file| dump.listed("", file)),
        Target::DataDir { partitions, files } => {
            files.iter().try_for_each(|file| dump.listed("", file))?;
            for dir in &partitions {
                let name = files::file_name(dir);
                let files = match files::files_of(dir) {
                    // A broker has removed it since it was listed.
                    Err(_) if !dir.exists() => continue,
                    files => files?,
                };
                files.iter().try_for_each(|file| dump.listed(&name, file))?;
            }
            Ok(())
        }
    }
}

struct Dump<'a, W> {
    records: bool,
    json: bool,
    /// What JSON lines say they are from.
    file: String,
    out: &'a mut W,
}

impl<W: Write> Dump<'_, W> {
    /// A file of a directory; a broker may have removed it since it was listed.
    fn listed(&mut self, dir: &str, file: &LogFile) -> Result<(), Stop> {
        match self.file(dir, file) {
            Err(Stop::Failed(_)) if !file.path.exists() => Ok(()),
            done => done,
        }
    }

    fn file(&mut self, dir: &str, file: &LogFile) -> Result<(), Stop> {
        self.file = if dir.is_empty() { file.name() } else { format!("{dir}/{}", file.name()) };
        if let Kind::Partition(FileKind::Log(_)) = file.kind {
            return self.log(file);
        }
        let bytes = file.read()?;
        self.heading(bytes.len() as u64)?;
        match file.kind {
            Kind::Partition(FileKind::Log(_)) => Ok(()),
            Kind::Partition(FileKind::Index(base)) => self.offset_index(&bytes, base),
            Kind::Partition(FileKind::TimeIndex(base)) => self.time_index(&bytes, base),
            Kind::Partition(FileKind::Snapshot(at)) => self.snapshot(&bytes, at),
            Kind::Partition(FileKind::LeaderEpochs) => self.epochs(&bytes),
            Kind::Partition(FileKind::Metadata) => self.metadata(&bytes),
            Kind::Offsets => self.offsets(&bytes),
            Kind::Checkpoint => self.checkpoint(&bytes),
        }
    }

    fn heading(&mut self, len: u64) -> Result<(), Stop> {
        if !self.json {
            writeln!(self.out, "{}, {len} bytes", self.file)?;
        }
        Ok(())
    }

    /// One line: as it is for people, or as an object that names its file.
    fn line(&mut self, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) -> Result<(), Stop> {
        if self.json {
            let mut object = object();
            object["file"] = json!(self.file);
            writeln!(self.out, "{object}")?;
        } else {
            writeln!(self.out, "  {}", text())?;
        }
        Ok(())
    }

    fn fault(&mut self, at: u64, reason: &str) -> Result<(), Stop> {
        self.line(|| format!("{at:>12}  INVALID: {reason}"), || json!({"at": at, "invalid": reason}))
    }

    fn log(&mut self, file: &LogFile) -> Result<(), Stop> {
        let unreadable = |error| Stop::unreadable(&file.path, &error);
        let mut reader = SegmentReader::open(&file.path).map_err(unreadable)?;
        let len = reader.len();
        self.heading(len)?;
        if !self.json {
            writeln!(self.out, "  {}", BATCH_HEADING)?;
        }
        loop {
            match reader.next().map_err(unreadable)? {
                Next::Batch(stored) => self.batch(&stored)?,
                Next::End(ending) => {
                    let at = reader.at();
                    return self.ending(at, len, ending);
                }
            }
        }
    }

    fn batch(&mut self, stored: &StoredBatch<'_>) -> Result<(), Stop> {
        self.line(|| batch_text(stored), || batch_json(stored))?;
        // The records of a damaged batch are as good as random.
        if !self.records || stored.fault.is_some() {
            return Ok(());
        }
        let StoredBatch { at, batch, .. } = stored;
        let at = *at;
        let plain = match plain_payload(batch, PLAIN_BYTES_MAX) {
            Ok(plain) => plain,
            Err(fault) => return self.fault(at, &fault.to_string()),
        };
        for record in batch.records_in(&plain) {
            match record {
                Ok(record) => self.line(|| record_text(batch, &record), || record_json(batch, &record))?,
                Err(fault) => self.fault(at, &fault.to_string())?,
            }
        }
        Ok(())
    }

    fn ending(&mut self, at: u64, len: u64, ending: Ending) -> Result<(), Stop> {
        match ending {
            Ending::File => Ok(()),
            Ending::Zeros => {
                self.line(|| format!("{at:>12}  zeros to the end"), || json!({"at": at, "zeros": len - at}))
            }
            Ending::Stale(stale) => self.fault(stale, &format!("bytes behind the zeros that begin at {at}")),
            Ending::Invalid(fault) => self.fault(at, &format!("{} bytes at the end: {fault}", len - at)),
        }
    }

    fn offset_index(&mut self, bytes: &[u8], base: Offset) -> Result<(), Stop> {
        // The first entry of zeros behind another one ends what was written.
        let blank = |&(i, (offset, at)): &(usize, (Offset, FilePos))| {
            !(offset == base && at.0 == 0 && (i > 0 || bytes.len() > 8))
        };
        for (i, (offset, at)) in offset_entries(bytes, base).enumerate().take_while(blank) {
            self.line(
                || format!("{:>12}  offset {offset:<12} position {at}", i * 8),
                || json!({"at": i * 8, "offset": offset.0, "position": at.0}),
            )?;
        }
        Ok(())
    }

    fn time_index(&mut self, bytes: &[u8], base: Offset) -> Result<(), Stop> {
        let blank = |&(i, (timestamp, offset)): &(usize, (i64, Offset))| {
            !(timestamp == 0 && offset == base && (i > 0 || bytes.len() > 12))
        };
        for (i, (timestamp, offset)) in time_entries(bytes, base).enumerate().take_while(blank) {
            self.line(
                || format!("{:>12}  timestamp {timestamp:<14} offset {offset}", i * 12),
                || json!({"at": i * 12, "timestamp": timestamp, "offset": offset.0}),
            )?;
        }
        Ok(())
    }

    fn snapshot(&mut self, bytes: &[u8], at: Offset) -> Result<(), Stop> {
        let producers = match producer_snapshot::decode(bytes, at) {
            Ok(producers) => producers,
            Err(fault) => return self.fault(0, &fault.to_string()),
        };
        for producer in producers.entries() {
            let last = producer.last.unwrap_or_default();
            let (id, epoch, timestamp) = (producer.id.0, producer.epoch.0, producer.timestamp);
            let (sequence, offset, delta) = (last.last_sequence, last.last_offset.0, last.offset_delta);
            self.line(
                || {
                    let sequences = format!("sequence {sequence:<11} offset {offset:<12} delta {delta:<6}");
                    format!("producer {id:<20} epoch {epoch:<6} {sequences} timestamp {timestamp}")
                },
                || {
                    json!({"producer": id, "epoch": epoch, "last_sequence": sequence, "last_offset": offset,
                        "offset_delta": delta, "timestamp": timestamp, "coordinator_epoch": producer.coordinator_epoch,
                        "transaction_start": producer.txn_start.map(|start| start.0)})
                },
            )?;
        }
        Ok(())
    }

    fn epochs(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let epochs = match LeaderEpochs::decode(bytes) {
            Ok(epochs) => epochs,
            Err(fault) => return self.fault(0, &fault.to_string()),
        };
        for (epoch, start) in epochs.entries() {
            let (text, object) =
                (format!("epoch {epoch:<10} from offset {start}"), json!({"epoch": epoch.0, "start": start.0}));
            self.line(|| text, || object)?;
        }
        Ok(())
    }

    fn metadata(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        match text_files::parse_partition_metadata(&String::from_utf8_lossy(bytes)) {
            Ok(topic) => self.line(|| format!("topic id {topic}"), || json!({"topic_id": topic.to_string()})),
            Err(fault) => self.fault(0, &fault.to_string()),
        }
    }

    fn offsets(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let offsets = match text_files::parse_offsets(&String::from_utf8_lossy(bytes)) {
            Ok(offsets) => offsets,
            Err(fault) => return self.fault(0, &fault.to_string()),
        };
        for ((topic, partition), offset) in &offsets {
            self.line(
                || format!("{topic}-{partition} {offset}"),
                || json!({"topic": topic, "partition": partition.0, "offset": offset.0}),
            )?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let slot = match checkpoint::newest(bytes) {
            Ok(Some(slot)) => slot,
            Ok(None) => return self.fault(0, "no valid slot"),
            Err(refused) => return self.fault(0, &refused.to_string()),
        };
        let (core, sequence, epoch) = (slot.core.0, slot.sequence, slot.broker_epoch.0);
        self.line(
            || format!("core {core}, sequence {sequence}, broker epoch {epoch}"),
            || json!({"core": core, "sequence": sequence, "broker_epoch": epoch}),
        )?;
        for entry in &slot.entries {
            self.line(|| entry_text(entry), || entry_json(entry))?;
        }
        Ok(())
    }
}

const BATCH_HEADING: &str =
    "    POSITION  OFFSETS                    EPOCH  RECORDS      BYTES  CODEC   MAX TIMESTAMP   PRODUCER";

fn batch_text(StoredBatch { at, batch, fault }: &StoredBatch<'_>) -> String {
    let header = batch.header();
    let offsets = format!("{}..{}", batch.base_offset(), batch.last_offset());
    let (epoch, count, bytes) = (batch.leader_epoch().0, header.record_count.get(), batch.size_bytes());
    let mut text = format!(
        "{at:>12}  {offsets:<25}  {epoch:>5}  {count:>7}  {bytes:>9}  {:<6}  {:<14}",
        codec(batch),
        batch.max_timestamp()
    );
    let (id, epoch, sequence) = (header.producer_id.get(), header.producer_epoch.get(), header.base_sequence.get());
    match id {
        -1 => text += "  -",
        _ => text += &format!("  {id} epoch {epoch} sequence {sequence}"),
    }
    for (is_set, name) in flags(batch) {
        text += if is_set { name } else { "" };
    }
    if let Some(fault) = fault {
        text += &format!("  INVALID: {fault}");
    }
    text
}

fn flags(batch: &BatchView<'_>) -> [(bool, &'static str); 2] {
    let attributes = batch.attributes();
    [(attributes.is_transactional(), "  transactional"), (attributes.is_control(), "  control")]
}

fn codec(batch: &BatchView<'_>) -> String {
    batch.attributes().codec().map_or_else(|| "unknown".to_owned(), |codec| format!("{codec:?}").to_lowercase())
}

fn batch_json(StoredBatch { at, batch, fault }: &StoredBatch<'_>) -> Value {
    let header = batch.header();
    json!({
        "at": at,
        "base_offset": batch.base_offset().0,
        "last_offset": batch.last_offset().0,
        "leader_epoch": batch.leader_epoch().0,
        "records": header.record_count.get(),
        "bytes": batch.size_bytes(),
        "codec": codec(batch),
        "max_timestamp": batch.max_timestamp(),
        "producer_id": header.producer_id.get(),
        "producer_epoch": header.producer_epoch.get(),
        "base_sequence": header.base_sequence.get(),
        "transactional": batch.attributes().is_transactional(),
        "control": batch.attributes().is_control(),
        "crc": header.crc.get(),
        "invalid": fault.as_ref().map(ToString::to_string),
    })
}

fn record_text(batch: &BatchView<'_>, record: &Record<'_>) -> String {
    let offset = batch.base_offset().0.saturating_add(i64::from(record.offset_delta));
    let timestamp = batch.timestamp_of(record.timestamp_delta);
    let mut text = format!("{:>14}{offset:<12} timestamp {timestamp:<14}", "");
    text += &format!(" key {} value {}", quoted(record.key), quoted(record.value));
    for header in record.headers.iter() {
        text += &format!(" header {}={}", quoted(Some(header.key)), quoted(header.value));
    }
    text
}

/// In quotes, with everything escaped that is not printable ASCII; null has none.
fn quoted(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "null".to_owned(), |bytes| format!("\"{}\"", bytes.escape_ascii()))
}

fn record_json(batch: &BatchView<'_>, record: &Record<'_>) -> Value {
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|header| json!({"key": lossless(Some(header.key)), "value": lossless(header.value)}))
        .collect();
    json!({
        "offset": batch.base_offset().0.saturating_add(i64::from(record.offset_delta)),
        "timestamp": batch.timestamp_of(record.timestamp_delta),
        "key": lossless(record.key),
        "value": lossless(record.value),
        "headers": headers,
    })
}

/// A string where the bytes are one, else `{"hex": …}`.
fn lossless(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => Value::Null,
        Some((_, Ok(text))) => json!(text),
        Some((bytes, Err(_))) => json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()}),
    }
}

fn entry_text(entry: &checkpoint::Entry) -> String {
    let (stable, segment, at) = (entry.stable, entry.segment, entry.at);
    let place = format!("stable {stable:<12} segment {segment:<12} position {at:<12}");
    let (watermark, start) = (entry.high_watermark, entry.log_start);
    let producers = entry.producers_from.map_or_else(|| "-".to_owned(), |from| from.to_string());
    let id = format!("{}-{}", entry.partition.topic, entry.partition.index);
    format!("{id:<28} {place} watermark {watermark:<12} start {start:<12} producers from {producers}")
}

fn entry_json(entry: &checkpoint::Entry) -> Value {
    json!({
        "topic_id": entry.partition.topic.to_string(),
        "partition": entry.partition.index.0,
        "stable": entry.stable.0,
        "segment": entry.segment.0,
        "position": entry.at.0,
        "high_watermark": entry.high_watermark.0,
        "log_start": entry.log_start.0,
        "producers_from": entry.producers_from.map(|from| from.0),
    })
}
