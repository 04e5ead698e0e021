//! Fixed little-endian encoding of everything the metadata log holds. Ours, so that what lies on disk never depends on
//! a library's format; reading is bounded by the bytes that are there and never panics.

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too early, or hold more than they should.
    #[error("length does not fit the contents at byte {at}")]
    Length {
        /// Where.
        at: usize,
    },
    /// Text that is not UTF-8.
    #[error("text at byte {at} is not UTF-8")]
    Text {
        /// Where.
        at: usize,
    },
    /// A tag or flag with no meaning.
    #[error("{what} has the unknown value {value}")]
    Tag {
        /// Of what.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// Written by a newer Pinion.
    #[error("format version {found} is newer than {known}, the newest that this version of Pinion reads")]
    Newer {
        /// The version found.
        found: u16,
        /// The newest one known.
        known: u16,
    },
}

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    /// What was written so far.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A count, before as many items.
    ///
    /// # Panics
    /// Above 2^32: no table of ours can hold that many.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("a count fits in four bytes"));
    }

    /// A length and as many bytes.
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// A length and as many bytes of UTF-8.
    pub fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    /// A flag, then the text if there is one.
    pub fn optional_text(&mut self, text: Option<&str>) {
        self.u8(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// 16 bytes as they are.
    pub fn id(&mut self, id: [u8; 16]) {
        self.bytes.extend_from_slice(&id);
    }
}

/// Takes values from the front of a slice.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        if self.left() < len {
            return Err(DecodeError::Length { at: self.at });
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    /// Ends a decoding: nothing may be left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.left() == 0 { Ok(()) } else { Err(DecodeError::Length { at: self.at }) }
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A count of items of at least `item_len` bytes each; one that the bytes left cannot hold is refused, so that it
    /// may be reserved for.
    pub fn count(&mut self, item_len: usize) -> Result<usize, DecodeError> {
        let at = self.at;
        let count = self.u32()? as usize;
        if count.saturating_mul(item_len.max(1)) > self.left() {
            return Err(DecodeError::Length { at });
        }
        Ok(count)
    }

    /// A counted list, each item read by `item`.
    pub fn list<T>(
        &mut self,
        item_len: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.count(item_len)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A length and as many bytes.
    pub fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.count(1)?;
        self.take(len)
    }

    /// A length and as many bytes of UTF-8.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let at = self.at;
        std::str::from_utf8(self.blob()?).map_err(|_| DecodeError::Text { at })
    }

    /// A flag, then the text if there is one.
    pub fn optional_text(&mut self) -> Result<Option<&'a str>, DecodeError> {
        Ok(if self.flag("a text's presence")? { Some(self.text()?) } else { None })
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Tag { what, value: value.into() }),
        }
    }

    /// 16 bytes as they are.
    pub fn id(&mut self) -> Result<[u8; 16], DecodeError> {
        self.array()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("take gives exactly as many bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_bytes_left_is_refused_before_anything_is_reserved() {
        let mut writer = Writer::default();
        writer.u32(u32::MAX);
        assert_eq!(Reader::new(&writer.bytes).count(1), Err(DecodeError::Length { at: 0 }));
    }

    #[test]
    fn optional_text_round_trips_and_flags_are_strict() {
        let mut writer = Writer::default();
        writer.optional_text(Some("rack"));
        writer.optional_text(None);
        writer.u8(2);
        let mut reader = Reader::new(&writer.bytes);
        assert_eq!(reader.optional_text(), Ok(Some("rack")));
        assert_eq!(reader.optional_text(), Ok(None));
        assert_eq!(reader.flag("x"), Err(DecodeError::Tag { what: "x", value: 2 }));
        assert_eq!(reader.finish(), Ok(()));
    }
}
