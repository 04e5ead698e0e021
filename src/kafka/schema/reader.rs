//! Bounded reading of Kafka's primitive types from bytes that a peer sent.
//!
//! A [`Reader`] never reads past its slice, never panics, and never lets a length or a count that the peer made up
//! decide how much memory is reserved: a count is checked against the bytes that are left, and every array is paid for
//! out of a fixed allowance.

use std::fmt;

use crate::limits::DECODED_BYTES_MAX;

/// What is wrong with bytes that do not parse. The connection they came from is closed (kafka-spec §1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// A field or a stated length goes past the end of the bytes.
    Truncated,
    /// A variable-length integer is longer than 32 bits.
    Varint,
    /// A length below −1.
    NegativeLength(i32),
    /// Null where this version has none.
    Null,
    /// An array states more elements than its bytes can hold.
    Count(u32),
    /// The decoded form would need more memory than one message may take.
    Memory,
    /// A string that is not UTF-8.
    Utf8,
    /// A string longer than 32,767 bytes, which no version of the protocol can carry in the old form.
    StringTooLong(usize),
    /// A tagged field whose stated size differs from its content.
    TagSize(u32),
    /// A version that the message does not have.
    Version(i16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("a field ends behind the end of the frame"),
            DecodeError::Varint => f.write_str("a variable-length integer is longer than 32 bits"),
            DecodeError::NegativeLength(length) => write!(f, "a length of {length}"),
            DecodeError::Null => f.write_str("null in a field that has no null in this version"),
            DecodeError::Count(count) => write!(f, "an array of {count} elements in too few bytes"),
            DecodeError::Memory => write!(f, "decoding would take more than {DECODED_BYTES_MAX} bytes"),
            DecodeError::Utf8 => f.write_str("a string that is not UTF-8"),
            DecodeError::StringTooLong(length) => write!(f, "a string of {length} bytes"),
            DecodeError::TagSize(tag) => write!(f, "tagged field {tag} differs from its stated size"),
            DecodeError::Version(version) => write!(f, "version {version} does not exist"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A cursor over the bytes of one message. What it returns borrows from them.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    memory_left: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` with the default allowance of [`DECODED_BYTES_MAX`] for arrays.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, memory_left: DECODED_BYTES_MAX }
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many bytes have not been read.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// An unsigned LEB128 integer of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            let group = u32::from(byte & 0x7f);
            if shift == 28 && group > 0xf {
                return Err(DecodeError::Varint);
            }
            value |= group << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint)
    }

    /// A length or count in the compact form (unsigned varint, plus one, 0 for null).
    pub fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        Ok(self.uvarint()?.checked_sub(1).map(|length| length as usize))
    }

    /// A length of the old form in 16 bits, −1 for null.
    pub fn short_length(&mut self) -> Result<Option<usize>, DecodeError> {
        length(i32::from(i16::from_be_bytes(self.array()?)))
    }

    /// A length or count of the old form in 32 bits, −1 for null.
    pub fn long_length(&mut self) -> Result<Option<usize>, DecodeError> {
        length(i32::from_be_bytes(self.array()?))
    }

    /// Pays for an array of `count` elements of at least `wire_bytes` each on the wire and `memory_bytes` each in
    /// memory; refuses it when the bytes that are left cannot hold it or the allowance is used up.
    pub fn admit(&mut self, count: usize, wire_bytes: usize, memory_bytes: usize) -> Result<(), DecodeError> {
        if count > self.remaining() / wire_bytes.max(1) {
            return Err(DecodeError::Count(u32::try_from(count).unwrap_or(u32::MAX)));
        }
        let memory = count.saturating_mul(memory_bytes);
        self.memory_left = self.memory_left.checked_sub(memory).ok_or(DecodeError::Memory)?;
        Ok(())
    }

    /// Walks a tag section: `known` reads the fields it knows and says so, all others are skipped.
    pub fn tags(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            let mut content = Reader { bytes: self.take(size)?, memory_left: self.memory_left };
            if known(tag, &mut content)? && content.remaining() > 0 {
                return Err(DecodeError::TagSize(tag));
            }
            self.memory_left = content.memory_left;
        }
        Ok(())
    }

    /// Skips a tag section.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        self.tags(|_, _| Ok(false))
    }
}

fn length(raw: i32) -> Result<Option<usize>, DecodeError> {
    match raw {
        -1 => Ok(None),
        _ => usize::try_from(raw).map(Some).map_err(|_| DecodeError::NegativeLength(raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_is_read_up_to_32_bits_and_refused_above() {
        let read = |bytes: &[u8]| Reader::new(bytes).uvarint();
        assert_eq!(read(&[0]), Ok(0));
        assert_eq!(read(&[0xac, 0x02]), Ok(300));
        assert_eq!(read(&[0x80, 0x00]), Ok(0), "Kafka reads a needlessly long form, too");
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(DecodeError::Varint));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0x00]), Err(DecodeError::Varint));
        assert_eq!(read(&[0x80]), Err(DecodeError::Truncated));
    }

    #[test]
    fn a_count_is_held_against_the_bytes_that_are_left() {
        let mut reader = Reader::new(&[0; 8]);
        assert_eq!(reader.admit(8, 1, 1), Ok(()));
        assert_eq!(reader.admit(9, 1, 1), Err(DecodeError::Count(9)));
        assert_eq!(reader.admit(3, 3, 1), Err(DecodeError::Count(3)));
        assert_eq!(reader.admit(2, 3, DECODED_BYTES_MAX), Err(DecodeError::Memory));
    }

    #[test]
    fn the_memory_allowance_is_shared_with_tagged_fields() {
        let mut reader = Reader::new(&[1, 0, 1, 7]);
        let all = DECODED_BYTES_MAX;
        assert_eq!(reader.tags(|_, content| content.admit(1, 1, all).and(content.take(1)).map(|_| true)), Ok(()));
        assert_eq!(reader.admit(0, 1, 1), Ok(()));
        assert_eq!(Reader { bytes: &[0], ..reader }.admit(1, 1, 1), Err(DecodeError::Memory));
    }

    #[test]
    fn unknown_tags_are_skipped_and_known_ones_must_fill_their_size() {
        let section = [2, 5, 2, 9, 9, 6, 1, 7];
        assert_eq!(Reader::new(&section).skip_tags(), Ok(()));
        let one_byte = |tag, content: &mut Reader<'_>| match tag {
            5 => content.take(1).map(|_| true),
            _ => Ok(false),
        };
        assert_eq!(Reader::new(&section).tags(one_byte), Err(DecodeError::TagSize(5)));
    }

    #[test]
    fn lengths_below_minus_one_are_refused() {
        assert_eq!(Reader::new(&[0xff, 0xff]).short_length(), Ok(None));
        assert_eq!(Reader::new(&[0xff, 0xfe]).short_length(), Err(DecodeError::NegativeLength(-2)));
        assert_eq!(Reader::new(&[0x80, 0, 0, 0]).long_length(), Err(DecodeError::NegativeLength(i32::MIN)));
    }
}
