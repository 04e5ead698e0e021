//! Fuzz bodies: each takes any bytes and must return. The tests run them on a corpus and on seeds; `cargo fuzz` can
//! drive the same functions.

use super::api::{self, ApiKey};
use super::batch::{self, AppendRules, BatchView};
use super::compression;
use super::fetch::FetchView;
use super::frame::{self, HEAD_BYTES};
use super::produce::ProduceView;
use super::schema::fetch::FetchRequest;
use super::schema::produce::ProduceRequest;
use super::schema::{Declared, DecodeError, Message, Reader, Transcode, Transcoded};
use crate::ids::{LeaderEpoch, Offset, WallMillis};
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{self, SegmentBounds};
use crate::log::producer_snapshot;
use crate::log::topic_config::TopicConfig;

/// A byte stream as a connection receives it: lengths, headers and bodies, frame after frame.
pub fn stream(mut data: &[u8]) {
    while let Some(head) = data.first_chunk::<HEAD_BYTES>() {
        let Ok(bytes) = frame::bounded_size(head, u32::MAX >> 1) else { return };
        let end = (4 + bytes as usize).min(data.len());
        request(&data[4..end]);
        data = &data[end..];
    }
}

/// One request frame without its length: header, then the body by its API and version, whether served or not.
pub fn request(data: &[u8]) {
    let Ok(header) = frame::request_header(data) else { return };
    let (version, body) = (header.api_version, header.body(data));
    if let Some(declared) = Declared::find(header.api_key.0) {
        stable(declared.request, version, body);
    }
    match header.api_key {
        ApiKey::PRODUCE => produce(version, body),
        ApiKey::FETCH => fetch(version, body),
        _ => {}
    }
    let _ = api::row(header.api_key).is_some_and(|row| row.serves(version));
}

/// One response frame: API key, version, then header and body.
pub fn response(data: &[u8]) {
    let Some(([a, b, c, d], frame)) = data.split_first_chunk() else { return };
    let (key, version) = (i16::from_be_bytes([*a, *b]), i16::from_be_bytes([*c, *d]));
    let Some(declared) = Declared::find(key) else { return };
    let Ok((_, body)) = frame::response_header(ApiKey(key), version, frame) else { return };
    stable(declared.response, version, body);
}

/// The body of a Produce request: view and schema read the same out of it, or refuse it for the same reason.
pub fn produce(version: i16, body: &[u8]) {
    let message = ProduceRequest::decode(version, &mut Reader::new(body));
    let seen = ProduceView::parse(version, body).map(|view| view.to_message());
    assert!(message == Err(DecodeError::Memory) || seen == message, "{seen:?}\n{message:?}");
}

/// What one partition of a Produce request, a log file or a leader's answer holds: batches back to back. Whatever the
/// readers accept must fit together.
pub fn batches(data: &[u8]) {
    let rules = AppendRules::new(&TopicConfig::default(), WallMillis(1_700_000_000_000));
    let mut end = 0;
    for (at, batch) in batch::batches(data) {
        assert_eq!(at, end, "batches leave no gap");
        let Ok(batch) = batch else { break };
        end = at + batch.size_bytes();
        one_batch(&batch, &rules);
    }
    assert!(end <= data.len(), "{end} of {} bytes", data.len());
}

fn one_batch(batch: &BatchView<'_>, rules: &AppendRules) {
    let records = batch.records().map(|records| records.filter(Result::is_ok).count());
    if let (Ok(accepted), Some(records)) = (batch.validate(rules), records) {
        assert_eq!(records as i64, batch.offset_count(), "an accepted batch has the records it says");
        let header = batch.stamped(Offset(7), LeaderEpoch(1), accepted.restamp);
        assert_eq!(header.crc_with(batch.payload()), header.crc.get(), "an accepted batch goes in with its checksum");
    }
    if let Ok(plain) = compression::plain_payload(batch, PLAIN_BYTES_MAX) {
        let headers = batch.records_in(&plain).flatten().map(|record| record.headers.iter().count());
        assert!(headers.sum::<usize>() <= plain.len(), "a header takes at least a byte");
    }
}

/// Bound of what is decompressed, in bytes.
const PLAIN_BYTES_MAX: usize = 1 << 20;

/// Files beside a log: indexes, leader epochs, producer snapshot. Each reader gets the same bytes.
pub fn log_files(data: &[u8]) {
    let segment = SegmentBounds { base: Offset(100), end: Offset(1_000_000), len: 1 << 30 };
    if let Ok(index) = index::check_offset_index(data, segment) {
        let found = index::lookup_offset(index, segment.base, segment.end);
        assert_eq!(found, index::offset_entries(index, segment.base).last(), "the last entry is below the end");
    }
    if let Ok(times) = index::check_time_index(data, segment) {
        let found = index::lookup_time(times, segment.base, i64::MAX);
        assert_eq!(found, index::time_entries(times, segment.base).last(), "the last entry is the newest");
    }
    if let Ok(epochs) = LeaderEpochs::decode(data) {
        assert_eq!(LeaderEpochs::decode(epochs.encode().as_bytes()), Ok(epochs), "what is read is written the same");
    }
    if let Ok(producers) = producer_snapshot::decode(data, segment.end) {
        let bytes = producer_snapshot::encode(&producers);
        assert_eq!(producer_snapshot::decode(&bytes, segment.end), Ok(producers), "what is read is written the same");
    }
}

/// The body of a Fetch request: view and schema read the same out of it, or refuse it for the same reason.
pub fn fetch(version: i16, body: &[u8]) {
    let message = FetchRequest::decode(version, &mut Reader::new(body));
    let seen = FetchView::parse(version, body).map(|view| view.to_message());
    assert!(message == Err(DecodeError::Memory) || seen == message, "{seen:?}\n{message:?}");
}

/// What was decoded once and encoded decodes and encodes to the same bytes. (The first time they may differ: unknown
/// tags are dropped, and a length may have been written longer than needed.)
fn stable(transcode: Transcode, version: i16, body: &[u8]) {
    let Ok(once) = transcode(version, body) else { return };
    let twice = transcode(version, &once.encoded);
    let same = Transcoded { bytes_left: 0, encoded: once.encoded };
    assert_eq!(twice, Ok(same), "what we encode, we decode to the same");
}
