//! Appends Kafka's primitive types to a buffer of the caller.

use crate::kafka::error_code::ErrorCode;

/// A run of bytes that belongs at a place of an encoded message but is not in its buffer: the record bytes of a
/// Fetch response, which leave by reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// Index in the buffer of the first byte that follows the run.
    pub at: usize,
    /// Length of the run in bytes.
    pub bytes: u32,
}

/// Where a message is encoded to.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    holes: Option<&'o mut Vec<Hole>>,
    first_error: ErrorCode,
}

impl<'o> Writer<'o> {
    /// Appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { out, holes: None, first_error: ErrorCode::NONE }
    }

    /// Appends to `out` and reports in `holes` where bytes that are sent by reference belong.
    pub fn with_holes(out: &'o mut Vec<u8>, holes: &'o mut Vec<Hole>) -> Writer<'o> {
        Writer { out, holes: Some(holes), first_error: ErrorCode::NONE }
    }

    /// Remembers an error code that is written, for the metrics.
    pub fn note(&mut self, code: ErrorCode) {
        if self.first_error == ErrorCode::NONE {
            self.first_error = code;
        }
    }

    /// The first error code outside of tags that was written and is one, `NONE` without any.
    pub fn first_error(&self) -> ErrorCode {
        self.first_error
    }

    /// Appends bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends an unsigned LEB128 integer.
    pub fn uvarint(&mut self, value: u32) {
        let (bytes, used) = uvarint_bytes(value);
        self.put(&bytes[..used]);
    }

    /// Appends a length or count in the compact form, `None` for null.
    ///
    /// # Panics
    /// When the length does not fit 32 bits.
    pub fn compact_length(&mut self, length: Option<usize>) {
        self.uvarint(length.map_or(0, |length| u32::try_from(length + 1).expect("length fits 32 bits")));
    }

    /// Appends a length of the old form in 16 bits, `None` for null.
    ///
    /// # Panics
    /// When the length does not fit 15 bits.
    pub fn short_length(&mut self, length: Option<usize>) {
        let raw = length.map_or(-1, |length| i16::try_from(length).expect("length fits 15 bits"));
        self.put(&raw.to_be_bytes());
    }

    /// Appends a length or count of the old form in 32 bits, `None` for null.
    ///
    /// # Panics
    /// When the length does not fit 31 bits.
    pub fn long_length(&mut self, length: Option<usize>) {
        let raw = length.map_or(-1, |length| i32::try_from(length).expect("length fits 31 bits"));
        self.put(&raw.to_be_bytes());
    }

    /// Leaves out `bytes` bytes here; the caller of [`Writer::with_holes`] sends them by reference.
    ///
    /// # Panics
    /// When the writer was made without a list of holes.
    pub fn hole(&mut self, bytes: u32) {
        let at = self.out.len();
        let holes = self.holes.as_mut().expect("record bytes by reference need a list of holes");
        if bytes > 0 {
            holes.push(Hole { at, bytes });
        }
    }

    /// Appends one tagged field: tag, size of the content, content.
    pub fn tagged(&mut self, tag: u32, content: impl FnOnce(&mut Writer<'_>)) {
        self.uvarint(tag);
        let start = self.out.len();
        content(&mut Writer::new(self.out));
        let size = u32::try_from(self.out.len() - start).expect("size of a tagged field fits 32 bits");
        let (bytes, used) = uvarint_bytes(size);
        self.out.splice(start..start, bytes[..used].iter().copied());
    }
}

fn uvarint_bytes(value: u32) -> ([u8; 5], usize) {
    let (mut bytes, mut used, mut left) = ([0; 5], 0, value);
    while left >= 0x80 {
        bytes[used] = left as u8 | 0x80;
        left >>= 7;
        used += 1;
    }
    bytes[used] = left as u8;
    (bytes, used + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_take_as_few_bytes_as_they_can() {
        let write = |value| {
            let mut out = Vec::new();
            Writer::new(&mut out).uvarint(value);
            out
        };
        assert_eq!(write(0), [0]);
        assert_eq!(write(127), [0x7f]);
        assert_eq!(write(128), [0x80, 0x01]);
        assert_eq!(write(u32::MAX), [0xff, 0xff, 0xff, 0xff, 0x0f]);
    }

    #[test]
    fn the_size_of_a_tagged_field_stands_before_it_however_long_it_is() {
        let mut out = vec![9];
        Writer::new(&mut out).tagged(3, |content| content.put(&[7; 200]));
        assert_eq!(out[..4], [9, 3, 0xc8, 0x01]);
        assert_eq!(out[4..], [7; 200]);
    }
}
