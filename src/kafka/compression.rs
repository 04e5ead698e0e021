//! The four codecs of Kafka's batches, on whole payloads. The broker keeps batches as they came; this is for tools,
//! searches by timestamp, tests and benches. What comes out is bounded, whatever the bytes claim.

use std::borrow::Cow;
use std::io::{Read, Write};

use crate::kafka::batch::{BatchView, Codec};

/// First bytes of a snappy stream in xerial's framing, which Kafka's own clients write: the magic, then version and
/// compatible version, both 1.
const XERIAL_HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const XERIAL_MAGIC_BYTES: usize = 8;
/// Bytes that xerial puts in one block.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// Why a payload could not be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressFault {
    /// It would be larger than the caller has room for.
    #[error("more than {0} bytes when decompressed")]
    TooLarge(usize),
    /// The bytes are not what the codec writes.
    #[error("{codec:?}: {cause}")]
    Corrupt {
        /// The codec.
        codec: Codec,
        /// What it said.
        cause: String,
    },
    /// The attributes name no codec.
    #[error("unknown codec")]
    UnknownCodec,
}

/// The records of a batch, decompressed, at most `bytes_max` of them; uncompressed ones are only borrowed.
///
/// # Errors
/// When the codec is unknown, the payload is not what it writes, or there is more.
pub fn plain_payload<'a>(batch: &BatchView<'a>, bytes_max: usize) -> Result<Cow<'a, [u8]>, DecompressFault> {
    match batch.attributes().codec() {
        None => Err(DecompressFault::UnknownCodec),
        Some(Codec::None) => Ok(Cow::Borrowed(batch.payload())),
        Some(codec) => decompress(codec, batch.payload(), bytes_max).map(Cow::Owned),
    }
}

/// As [`plain_payload`], but a payload that is larger is cut after `bytes_max` bytes; the second value says whether.
///
/// # Errors
/// When the codec is unknown or the payload is not what it writes.
pub fn plain_prefix<'a>(batch: &BatchView<'a>, bytes_max: usize) -> Result<(Cow<'a, [u8]>, bool), DecompressFault> {
    let payload = batch.payload();
    match batch.attributes().codec() {
        None => Err(DecompressFault::UnknownCodec),
        Some(Codec::None) => Ok((Cow::Borrowed(payload), false)),
        Some(codec) => prefix(codec, payload, bytes_max).map(|(plain, cut)| (Cow::Owned(plain), cut)),
    }
}

/// Decompresses `bytes`, at most `bytes_max` of them.
///
/// # Errors
/// When the bytes are not what the codec writes, or there is more.
pub fn decompress(codec: Codec, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressFault> {
    match prefix(codec, bytes, bytes_max)? {
        (plain, false) => Ok(plain),
        (_, true) => Err(DecompressFault::TooLarge(bytes_max)),
    }
}

/// The first `bytes_max` bytes, and whether there are more.
fn prefix(codec: Codec, bytes: &[u8], bytes_max: usize) -> Result<(Vec<u8>, bool), DecompressFault> {
    let corrupt = |cause: std::io::Error| DecompressFault::Corrupt { codec, cause: cause.to_string() };
    match codec {
        Codec::None => read_bounded(codec, bytes, bytes_max),
        Codec::Gzip => read_bounded(codec, flate2::bufread::MultiGzDecoder::new(bytes), bytes_max),
        Codec::Snappy => unsnappy(bytes, bytes_max),
        Codec::Lz4 => read_bounded(codec, lz4_flex::frame::FrameDecoder::new(bytes), bytes_max),
        Codec::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(corrupt)?;
            read_bounded(codec, decoder, bytes_max)
        }
    }
}

/// Compresses `bytes` the way Kafka's Java client frames them, at each codec's default level.
///
/// # Panics
/// When a codec fails to write into memory, which none does.
pub fn compress(codec: Codec, bytes: &[u8]) -> Vec<u8> {
    let infallible = "compression into memory does not fail";
    match codec {
        Codec::None => bytes.to_vec(),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).expect(infallible);
            encoder.finish().expect(infallible)
        }
        Codec::Snappy => snappy(bytes),
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).expect(infallible);
            encoder.finish().expect(infallible)
        }
        Codec::Zstd => zstd::stream::encode_all(bytes, 0).expect(infallible),
    }
}

fn read_bounded(codec: Codec, reader: impl Read, bytes_max: usize) -> Result<(Vec<u8>, bool), DecompressFault> {
    let mut out = Vec::new();
    let read = reader.take(bytes_max as u64 + 1).read_to_end(&mut out);
    read.map_err(|cause| DecompressFault::Corrupt { codec, cause: cause.to_string() })?;
    let cut = bytes_max < out.len();
    out.truncate(bytes_max);
    Ok((out, cut))
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = XERIAL_HEADER.to_vec();
    for block in bytes.chunks(XERIAL_BLOCK_BYTES) {
        let block = snap::raw::Encoder::new().compress_vec(block).expect("a block of 32 KiB is never too large");
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}

/// xerial's framing when its magic is there, else one raw block (librdkafka, and what the format's description says).
fn unsnappy(bytes: &[u8], bytes_max: usize) -> Result<(Vec<u8>, bool), DecompressFault> {
    let mut out = Vec::new();
    if !bytes.starts_with(&XERIAL_HEADER[..XERIAL_MAGIC_BYTES]) {
        let cut = unsnappy_block(bytes, bytes_max, &mut out)?;
        return Ok((out, cut));
    }
    let mut rest = bytes.get(XERIAL_HEADER.len()..).ok_or_else(|| corrupt_snappy("the header is cut"))?;
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk().ok_or_else(|| corrupt_snappy("a block's length is cut"))?;
        let block = after.split_at_checked(u32::from_be_bytes(*len) as usize);
        let (block, after) = block.ok_or_else(|| corrupt_snappy("a block is cut"))?;
        if unsnappy_block(block, bytes_max, &mut out)? {
            return Ok((out, true));
        }
        rest = after;
    }
    Ok((out, false))
}

/// Appends a block. One that would pass the limit is left out whole, which the result says: a raw block cannot be
/// decompressed in part.
fn unsnappy_block(block: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<bool, DecompressFault> {
    let len = snap::raw::decompress_len(block).map_err(|fault| corrupt_snappy(&fault.to_string()))?;
    if len > bytes_max - out.len() {
        return Ok(true);
    }
    let start = out.len();
    out.resize(start + len, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[start..]);
    let written = written.map_err(|fault| corrupt_snappy(&fault.to_string()))?;
    out.truncate(start + written);
    Ok(false)
}

fn corrupt_snappy(cause: &str) -> DecompressFault {
    DecompressFault::Corrupt { codec: Codec::Snappy, cause: cause.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several xerial blocks, compressible, with a tail that is not.
    fn sample() -> Vec<u8> {
        let mut bytes = b"the same words again and ".repeat(4000);
        bytes.extend((0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8));
        bytes
    }

    #[test]
    fn every_codec_reads_what_it_writes() {
        for codec in Codec::ALL {
            for bytes in [sample(), Vec::new()] {
                let packed = compress(codec, &bytes);
                assert_eq!(decompress(codec, &packed, bytes.len()), Ok(bytes), "{codec:?}");
            }
        }
    }

    #[test]
    fn output_stops_at_the_limit_whatever_the_bytes_claim() {
        for codec in Codec::ALL {
            let packed = compress(codec, &sample());
            let max = sample().len() - 1;
            assert_eq!(decompress(codec, &packed, max), Err(DecompressFault::TooLarge(max)), "{codec:?}");
        }
        // A raw snappy block that says it holds 4 GiB.
        let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        assert_eq!(decompress(Codec::Snappy, &bomb, 1 << 20), Err(DecompressFault::TooLarge(1 << 20)));
    }

    #[test]
    fn a_raw_snappy_block_is_read_as_well() {
        let raw = snap::raw::Encoder::new().compress_vec(&sample()).expect("compresses");
        assert_eq!(decompress(Codec::Snappy, &raw, sample().len()), Ok(sample()));
    }

    #[test]
    fn cut_and_foreign_bytes_are_faults() {
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let packed = compress(codec, &sample());
            for bytes in [&packed[..packed.len() / 2], b"certainly not compressed"] {
                let result = decompress(codec, bytes, 1 << 20);
                assert!(matches!(result, Err(DecompressFault::Corrupt { .. })), "{codec:?}: {result:?}");
            }
        }
    }
}
