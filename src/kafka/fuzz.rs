//! Fuzz bodies: each takes any bytes and must return. The tests run them on a corpus and on seeds; `cargo fuzz` can
//! drive the same functions.

use super::api::{self, ApiKey};
use super::fetch::FetchView;
use super::frame::{self, HEAD_BYTES};
use super::produce::ProduceView;
use super::schema::fetch::FetchRequest;
use super::schema::produce::ProduceRequest;
use super::schema::{Declared, DecodeError, Message, Reader, Transcode, Transcoded};

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
