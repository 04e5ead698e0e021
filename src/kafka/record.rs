//! Records inside a batch: a borrowed reader, and the encoding a builder needs (kafka-spec §2.1).
//!
//! A record is its length and then attributes, timestamp delta, offset delta, key, value and headers, with zigzag
//! varints for every number. The reader is bounded by the bytes there are; faults are values.

/// Largest encoded varint of 32 bits.
const VARINT_BYTES_MAX: usize = 5;
/// Largest encoded varint of 64 bits.
const VARLONG_BYTES_MAX: usize = 10;

/// One record, borrowed from decompressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Unused by Kafka, 0.
    pub attributes: i8,
    /// Timestamp less the batch's base timestamp, in ms.
    pub timestamp_delta: i64,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// Headers in order.
    pub headers: Headers<'a>,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The bytes end before the record does.
    #[error("the bytes end inside the record")]
    Incomplete,
    /// A varint longer than its type.
    #[error("a varint is too long")]
    Varint,
    /// A length or count that is negative where it must not be, or larger than what is left.
    #[error("length {0} does not fit")]
    Length(i64),
    /// The declared length is not what the fields take.
    #[error("{0} bytes are left over")]
    Leftover(usize),
    /// The offset delta is not the record's index.
    #[error("offset delta {0}")]
    OffsetDelta(i32),
}

/// The records of one batch, in order. Ends after the last one or after the first fault; bytes behind the last record
/// are a fault as well.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    left: u32,
    reader: Reader<'a>,
}

impl<'a> Records<'a> {
    /// `count` records out of `plain`, which must hold them and nothing else. A negative count reads as 0.
    pub fn new(plain: &'a [u8], count: i32) -> Records<'a> {
        Records { left: u32::try_from(count).unwrap_or(0), reader: Reader { bytes: plain } }
    }

    fn stop(&mut self, fault: RecordFault) -> Option<Result<Record<'a>, RecordFault>> {
        self.left = 0;
        self.reader.bytes = &[];
        Some(Err(fault))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(left) = self.left.checked_sub(1) else {
            let leftover = self.reader.bytes.len();
            return if leftover == 0 { None } else { self.stop(RecordFault::Leftover(leftover)) };
        };
        self.left = left;
        match self.reader.record() {
            Ok(record) => Some(Ok(record)),
            Err(fault) => self.stop(fault),
        }
    }
}

/// The headers of one record; their structure was checked when the record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: u32,
    bytes: &'a [u8],
}

/// One header: its key (UTF-8 by convention, unchecked) and its value, `None` when null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Value; `None` is null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut reader = Reader { bytes: self.bytes };
        (0..self.count).map_while(move |_| reader.header().ok())
    }
}

/// Appends a record to `out`, its length first.
///
/// # Panics
/// When a key, value or header is larger than 2 GiB, or there are more than 2^31 headers.
pub fn encode_record(out: &mut Vec<u8>, record: &OwnedRecord, timestamp_delta: i64, offset_delta: i32) {
    let mut body = vec![0];
    put_varlong(&mut body, timestamp_delta);
    put_varint(&mut body, offset_delta);
    put_nullable(&mut body, record.key.as_deref());
    put_nullable(&mut body, record.value.as_deref());
    put_len(&mut body, record.headers.len());
    for (key, value) in &record.headers {
        put_nullable(&mut body, Some(key.as_bytes()));
        put_nullable(&mut body, value.as_deref());
    }
    put_len(out, body.len());
    out.extend_from_slice(&body);
}

/// A record to be encoded.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OwnedRecord {
    /// Timestamp in ms, −1 for none.
    pub timestamp: i64,
    /// Key; `None` is null.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is null.
    pub value: Option<Vec<u8>>,
    /// Headers in order; a value of `None` is null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_len(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    put_varint(out, i32::try_from(len).expect("a part of a record is larger than 2 GiB"));
}

fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, i64::from(value));
}

fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn record(&mut self) -> Result<Record<'a>, RecordFault> {
        let len = self.len()?;
        let mut body = Reader { bytes: self.take(len)? };
        let attributes = body.take(1)?[0] as i8;
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = body.nullable()?;
        let value = body.nullable()?;
        let headers = body.headers()?;
        match body.bytes.len() {
            0 => Ok(Record { attributes, timestamp_delta, offset_delta, key, value, headers }),
            leftover => Err(RecordFault::Leftover(leftover)),
        }
    }

    /// Reads through the headers, which end the record.
    fn headers(&mut self) -> Result<Headers<'a>, RecordFault> {
        let count = self.len()? as u32;
        let bytes = self.bytes;
        for _ in 0..count {
            self.header()?;
        }
        Ok(Headers { count, bytes })
    }

    fn header(&mut self) -> Result<Header<'a>, RecordFault> {
        let key_len = self.len()?;
        Ok(Header { key: self.take(key_len)?, value: self.nullable()? })
    }

    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        match self.varint()? {
            -1 => Ok(None),
            len => {
                let len = self.fitting(i64::from(len))?;
                self.take(len).map(Some)
            }
        }
    }

    /// A length or a count: each of what it counts takes at least a byte.
    fn len(&mut self) -> Result<usize, RecordFault> {
        let len = self.varint()?;
        self.fitting(i64::from(len))
    }

    fn fitting(&self, len: i64) -> Result<usize, RecordFault> {
        usize::try_from(len).ok().filter(|&len| len <= self.bytes.len()).ok_or(RecordFault::Length(len))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], RecordFault> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(RecordFault::Incomplete)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<i32, RecordFault> {
        let value = self.uvarlong(VARINT_BYTES_MAX)?;
        let value = u32::try_from(value).map_err(|_| RecordFault::Varint)?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    fn varlong(&mut self) -> Result<i64, RecordFault> {
        let value = self.uvarlong(VARLONG_BYTES_MAX)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn uvarlong(&mut self, bytes_max: usize) -> Result<u64, RecordFault> {
        let mut value = 0u64;
        for (i, &byte) in self.bytes.iter().take(bytes_max).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if i == VARLONG_BYTES_MAX - 1 && bits > 1 {
                return Err(RecordFault::Varint);
            }
            value |= bits << (7 * i);
            if byte < 0x80 {
                self.bytes = &self.bytes[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.bytes.len() < bytes_max { RecordFault::Incomplete } else { RecordFault::Varint })
    }
}
