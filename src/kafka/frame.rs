//! Frames and headers: the length in front of every message, and what stands between it and the body (kafka-spec §1.1).
//!
//! Faults are values; the connection closes and one rate-limited log line names the reason.

use std::fmt;

use super::api::ApiKey;
use super::schema::{DecodeError, Form, Nullable, Reader, Wire, Writer};
use crate::limits::FRAME_BYTES_MAX;

/// Bytes that decide whether a frame is taken in: its length, API key and version.
pub const HEAD_BYTES: usize = 8;

/// Bytes of the shortest request header: key, version, correlation id and a null client id.
const HEADER_BYTES_MIN: i32 = 10;

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameFault {
    /// The length is negative.
    Negative(i32),
    /// The length leaves no room for a header.
    TooShort(i32),
    /// The frame is larger than a request of this API may be.
    TooLarge {
        /// What the frame claims to be.
        api: ApiKey,
        /// Its length in bytes.
        bytes: u32,
        /// The limit in bytes.
        bytes_max: u32,
    },
    /// The header does not parse.
    Header(DecodeError),
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameFault::Negative(bytes) => write!(f, "a frame of {bytes} bytes"),
            FrameFault::TooShort(bytes) => write!(f, "a frame of {bytes} bytes, too short for a header"),
            FrameFault::TooLarge { api, bytes, bytes_max } => {
                write!(f, "{api} request of {bytes} bytes, above the limit of {bytes_max}")
            }
            FrameFault::Header(fault) => write!(f, "unreadable request header: {fault}"),
        }
    }
}

impl std::error::Error for FrameFault {}

/// The length in bytes of the frame that starts with `head`, not counting the length field itself.
///
/// Produce may be as large as `produce_bytes_max` (`socket.request.max.bytes`), everything else [`FRAME_BYTES_MAX`] or
/// that setting, whichever is less.
///
/// # Errors
/// When the frame must not be taken in; nothing of it has been buffered then.
pub fn bounded_size(head: &[u8; HEAD_BYTES], produce_bytes_max: u32) -> Result<u32, FrameFault> {
    let [a, b, c, d, key @ .., _, _] = *head;
    let stated = i32::from_be_bytes([a, b, c, d]);
    let bytes = u32::try_from(stated).map_err(|_| FrameFault::Negative(stated))?;
    if stated < HEADER_BYTES_MIN {
        return Err(FrameFault::TooShort(stated));
    }
    let api = ApiKey(i16::from_be_bytes(key));
    let bytes_max = if api == ApiKey::PRODUCE { produce_bytes_max } else { FRAME_BYTES_MAX.min(produce_bytes_max) };
    if bytes > bytes_max {
        return Err(FrameFault::TooLarge { api, bytes, bytes_max });
    }
    Ok(bytes)
}

/// What a client says before the body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader<'a> {
    /// Which API; it may be one that the broker does not serve.
    pub api_key: ApiKey,
    /// Which version of it; it may be one that the broker does not serve.
    pub api_version: i16,
    /// The response carries it back.
    pub correlation_id: i32,
    /// The client's name for itself; not unique, not proven.
    pub client_id: Option<&'a str>,
    body_at: usize,
}

impl RequestHeader<'_> {
    /// The body inside the frame that this header was read from.
    pub fn body<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.body_at..]
    }

    /// Whether this is a Produce request.
    pub fn is_produce(&self) -> bool {
        self.api_key == ApiKey::PRODUCE
    }
}

/// Reads the header of a request from its frame (without the length field). The client id keeps its 16-bit length in
/// the flexible form, too. The header of an API or version that is not declared is read as far as it is certain.
///
/// # Errors
/// When the bytes are no header.
pub fn request_header(frame: &[u8]) -> Result<RequestHeader<'_>, FrameFault> {
    read_request_header(frame).map_err(FrameFault::Header)
}

fn read_request_header(frame: &[u8]) -> Result<RequestHeader<'_>, DecodeError> {
    let mut reader = Reader::new(frame);
    let api_key = ApiKey(i16::read(&mut reader, PLAIN)?);
    let api_version = i16::read(&mut reader, PLAIN)?;
    let correlation_id = i32::read(&mut reader, PLAIN)?;
    let client_id = <&str>::read_nullable(&mut reader, PLAIN)?;
    if api_key.is_flexible(api_version) {
        reader.skip_tags()?;
    }
    let body_at = frame.len() - reader.remaining();
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id, body_at })
}

/// Appends the header of a request, for the commands that talk to a cluster.
pub fn write_request_header(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    out: &mut Vec<u8>,
) {
    let mut writer = Writer::new(out);
    writer.put(&api.0.to_be_bytes());
    writer.put(&version.to_be_bytes());
    writer.put(&correlation_id.to_be_bytes());
    <&str>::write_nullable(client_id.as_ref(), &mut writer, PLAIN);
    if api.is_flexible(version) {
        writer.uvarint(0);
    }
}

/// Appends the header of a response.
pub fn write_response_header(api: ApiKey, version: i16, correlation_id: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&correlation_id.to_be_bytes());
    if has_response_tags(api, version) {
        out.push(0);
    }
}

/// Reads the header of a response from its frame: correlation id and body.
///
/// # Errors
/// When the bytes are no header.
pub fn response_header(api: ApiKey, version: i16, frame: &[u8]) -> Result<(i32, &[u8]), FrameFault> {
    let read = |reader: &mut Reader<'_>| {
        let correlation_id = i32::read(reader, PLAIN)?;
        if has_response_tags(api, version) {
            reader.skip_tags()?;
        }
        Ok(correlation_id)
    };
    let mut reader = Reader::new(frame);
    let correlation_id = read(&mut reader).map_err(FrameFault::Header)?;
    Ok((correlation_id, reader.rest()))
}

/// The header of an ApiVersions response never has tags: the client does not know yet which version it may get.
fn has_response_tags(api: ApiKey, version: i16) -> bool {
    api != ApiKey::API_VERSIONS && api.is_flexible(version)
}

/// Headers are in the old form throughout, but for the tag section behind them.
const PLAIN: Form = Form { version: 1, flexible: false, nullable: false, strict: false };

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: i32, api: ApiKey) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&bytes.to_be_bytes());
        head[4..6].copy_from_slice(&api.0.to_be_bytes());
        head
    }

    #[test]
    fn only_produce_may_be_larger_than_four_mebibytes() {
        let large = FRAME_BYTES_MAX as i32 + 1;
        assert_eq!(bounded_size(&head(large, ApiKey::PRODUCE), 100 << 20), Ok(large as u32));
        assert_eq!(bounded_size(&head(large - 1, ApiKey::FETCH), 100 << 20), Ok(FRAME_BYTES_MAX));
        let fault = bounded_size(&head(large, ApiKey::FETCH), 100 << 20).expect_err("one byte too large");
        assert_eq!(fault.to_string(), "Fetch request of 4194305 bytes, above the limit of 4194304");
        assert!(bounded_size(&head((100 << 20) + 1, ApiKey::PRODUCE), 100 << 20).is_err());
        assert!(bounded_size(&head(2000, ApiKey::FETCH), 1000).is_err(), "the setting bounds all requests");
    }

    #[test]
    fn lengths_without_room_for_a_header_are_refused() {
        assert_eq!(bounded_size(&head(-1, ApiKey::FETCH), 1000), Err(FrameFault::Negative(-1)));
        assert_eq!(bounded_size(&head(9, ApiKey::FETCH), 1000), Err(FrameFault::TooShort(9)));
        assert_eq!(bounded_size(&head(10, ApiKey::FETCH), 1000), Ok(10));
    }

    #[test]
    fn a_request_header_reads_back_in_both_forms() {
        for version in [8, 9] {
            let mut frame = Vec::new();
            write_request_header(ApiKey::PRODUCE, version, 77, Some("me"), &mut frame);
            frame.extend_from_slice(b"body");
            let header = request_header(&frame).expect("our own header");
            assert_eq!((header.api_key, header.api_version), (ApiKey::PRODUCE, version));
            assert_eq!((header.correlation_id, header.client_id), (77, Some("me")));
            assert_eq!(header.body(&frame), b"body");
        }
    }

    #[test]
    fn unknown_tags_of_a_header_are_skipped() {
        let frame = [0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 1, 7, 2, 5, 5, b'x'];
        let header = request_header(&frame).expect("an unknown tag is no fault");
        assert_eq!((header.client_id, header.body(&frame)), (None, &b"x"[..]));
    }

    #[test]
    fn the_header_of_an_unknown_api_is_read_without_tags() {
        let frame = [0x7f, 0xff, 0, 1, 0, 0, 0, 1, 0, 1, b'c'];
        let header = request_header(&frame).expect("all of it is certain");
        assert_eq!((header.api_key, header.client_id), (ApiKey(0x7fff), Some("c")));
    }

    #[test]
    fn a_half_header_is_a_fault() {
        assert_eq!(request_header(&[0, 0, 0]), Err(FrameFault::Header(DecodeError::Truncated)));
    }

    #[test]
    fn only_flexible_responses_have_header_tags_and_api_versions_never() {
        let header = |api, version| {
            let mut out = Vec::new();
            write_response_header(api, version, 5, &mut out);
            assert_eq!(response_header(api, version, &out), Ok((5, &[][..])));
            out.len()
        };
        assert_eq!(header(ApiKey::FETCH, 11), 4);
        assert_eq!(header(ApiKey::FETCH, 12), 5);
        assert_eq!(header(ApiKey::API_VERSIONS, 4), 4);
    }
}
