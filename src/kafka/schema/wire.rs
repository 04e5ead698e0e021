//! How each type of a field looks on the wire, in the old and in the compact form.

use super::{DecodeError, Reader, Writer};
use crate::ids::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId, WallMillis,
};
use crate::kafka::error_code::ErrorCode;

/// Longest string in bytes; a longer one of ours (an error message that quotes the client) is cut.
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Which of its shapes a field has: all that the version of its message decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Version of the message.
    pub version: i16,
    /// Whether lengths are compact and structs end with a tag section.
    pub flexible: bool,
    /// Whether this field may be null.
    pub nullable: bool,
    /// Whether a value that the version cannot carry is a bug (requests) or is left out (responses, where the peer
    /// chooses the version).
    pub strict: bool,
}

impl Form {
    /// The same form for a field that may be null.
    pub fn nullable(self) -> Form {
        Form { nullable: true, ..self }
    }
}

/// A type that a field of a message may have.
pub trait Wire<'a>: Sized {
    /// Reads a value.
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError>;

    /// Appends the value.
    fn write(&self, writer: &mut Writer<'_>, form: Form);

    /// The fewest bytes that a value takes.
    fn bytes_min(form: Form) -> usize;

    /// A value that the version of `form` can carry.
    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, form: Form) -> Self;
}

/// A type that has a null on the wire. The provided methods are the form of a nullable struct: a byte, −1 for null.
pub trait Nullable<'a>: Wire<'a> {
    /// Reads a value or null.
    fn read_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
        match i8::read(reader, form)? {
            i8::MIN..0 => Ok(None),
            _ => Self::read(reader, form).map(Some),
        }
    }

    /// Appends a value or null.
    fn write_nullable(value: Option<&Self>, writer: &mut Writer<'_>, form: Form) {
        match value {
            None => (-1i8).write(writer, form),
            Some(value) => {
                1i8.write(writer, form);
                value.write(writer, form);
            }
        }
    }

    /// What stands for null in a version that has none.
    fn empty() -> Self;
}

impl<'a, T: Nullable<'a>> Wire<'a> for Option<T> {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        if !form.nullable {
            return T::read(reader, form).map(Some);
        }
        T::read_nullable(reader, Form { nullable: false, ..form })
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        let inner = Form { nullable: false, ..form };
        match self {
            value if form.nullable => T::write_nullable(value.as_ref(), writer, inner),
            Some(value) => value.write(writer, inner),
            None => {
                assert!(!form.strict, "null in a request field that has no null in version {}", form.version);
                T::empty().write(writer, inner);
            }
        }
    }

    fn bytes_min(_: Form) -> usize {
        1
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, form: Form) -> Self {
        let null = form.nullable && dice.one_in(4);
        (!null).then(|| T::random(dice, Form { nullable: false, ..form }))
    }
}

macro_rules! number {
    ($($type:ty),+) => {$(
        impl<'a> Wire<'a> for $type {
            fn read(reader: &mut Reader<'a>, _: Form) -> Result<Self, DecodeError> {
                reader.array().map(<$type>::from_be_bytes)
            }

            fn write(&self, writer: &mut Writer<'_>, _: Form) {
                writer.put(&self.to_be_bytes());
            }

            fn bytes_min(_: Form) -> usize {
                size_of::<$type>()
            }

            #[cfg(test)]
            fn random(dice: &mut super::dice::Dice, _: Form) -> Self {
                dice.number() as $type
            }
        }
    )+};
}

number!(i8, i16, u16, i32, i64, f64);

macro_rules! newtype {
    ($($type:ident($inner:ty)),+) => {$(
        impl<'a> Wire<'a> for $type {
            fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
                <$inner>::read(reader, form).map($type)
            }

            fn write(&self, writer: &mut Writer<'_>, form: Form) {
                self.0.write(writer, form);
            }

            fn bytes_min(form: Form) -> usize {
                <$inner>::bytes_min(form)
            }

            #[cfg(test)]
            fn random(dice: &mut super::dice::Dice, form: Form) -> Self {
                $type(<$inner>::random(dice, form))
            }
        }
    )+};
}

newtype!(BrokerId(i32), BrokerEpoch(i64), LeaderEpoch(i32), Offset(i64), PartitionIndex(i32));
newtype!(ProducerId(i64), ProducerEpoch(i16), WallMillis(i64), TopicId([u8; 16]));

impl<'a> Wire<'a> for ErrorCode {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        i16::read(reader, form).map(ErrorCode)
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        writer.note(*self);
        self.0.write(writer, form);
    }

    fn bytes_min(form: Form) -> usize {
        i16::bytes_min(form)
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, form: Form) -> Self {
        ErrorCode(i16::random(dice, form))
    }
}

impl<'a> Wire<'a> for bool {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Ok(i8::read(reader, form)? != 0)
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        i8::from(*self).write(writer, form);
    }

    fn bytes_min(_: Form) -> usize {
        1
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, _: Form) -> Self {
        dice.one_in(2)
    }
}

impl<'a> Wire<'a> for [u8; 16] {
    fn read(reader: &mut Reader<'a>, _: Form) -> Result<Self, DecodeError> {
        reader.array()
    }

    fn write(&self, writer: &mut Writer<'_>, _: Form) {
        writer.put(self);
    }

    fn bytes_min(_: Form) -> usize {
        16
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, _: Form) -> Self {
        (u128::from(dice.number()) << 64 | u128::from(dice.number())).to_be_bytes()
    }
}

impl<'a> Wire<'a> for &'a str {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Self::read_nullable(reader, form)?.ok_or(DecodeError::Null)
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        Self::write_nullable(Some(self), writer, form);
    }

    fn bytes_min(form: Form) -> usize {
        if form.flexible { 1 } else { 2 }
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, _: Form) -> Self {
        dice.text()
    }
}

impl<'a> Nullable<'a> for &'a str {
    fn read_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
        let length = if form.flexible { reader.compact_length()? } else { reader.short_length()? };
        let Some(length) = length else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::StringTooLong(length));
        }
        std::str::from_utf8(reader.take(length)?).map(Some).map_err(|_| DecodeError::Utf8)
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer<'_>, form: Form) {
        let text = value.map(|text| cut(text));
        let length = text.map(str::len);
        if form.flexible {
            writer.compact_length(length)
        } else {
            writer.short_length(length)
        }
        writer.put(text.unwrap_or_default().as_bytes());
    }

    fn empty() -> Self {
        ""
    }
}

/// The longest part from the start of `text` that fits a string field and ends between two characters.
fn cut(text: &str) -> &str {
    let end = (0..=STRING_BYTES_MAX.min(text.len())).rev().find(|&index| text.is_char_boundary(index));
    &text[..end.unwrap_or(0)]
}

impl<'a> Wire<'a> for &'a [u8] {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Self::read_nullable(reader, form)?.ok_or(DecodeError::Null)
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        Self::write_nullable(Some(self), writer, form);
    }

    fn bytes_min(form: Form) -> usize {
        if form.flexible { 1 } else { 4 }
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, _: Form) -> Self {
        dice.text().as_bytes()
    }
}

impl<'a> Nullable<'a> for &'a [u8] {
    fn read_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
        let length = if form.flexible { reader.compact_length()? } else { reader.long_length()? };
        length.map(|length| reader.take(length)).transpose()
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer<'_>, form: Form) {
        let length = value.map(|bytes| bytes.len());
        if form.flexible {
            writer.compact_length(length)
        } else {
            writer.long_length(length)
        }
        writer.put(value.copied().unwrap_or_default());
    }

    fn empty() -> Self {
        &[]
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Vec<T> {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Self::read_nullable(reader, form)?.ok_or(DecodeError::Null)
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        Self::write_nullable(Some(self), writer, form);
    }

    fn bytes_min(form: Form) -> usize {
        if form.flexible { 1 } else { 4 }
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, form: Form) -> Self {
        (0..dice.count()).map(|_| T::random(dice, form)).collect()
    }
}

impl<'a, T: Wire<'a>> Nullable<'a> for Vec<T> {
    fn read_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>, DecodeError> {
        let Some(count) = read_count(reader, form)? else { return Ok(None) };
        reader.admit(count, T::bytes_min(form), size_of::<T>())?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::read(reader, form)?);
        }
        Ok(Some(elements))
    }

    fn write_nullable(value: Option<&Self>, writer: &mut Writer<'_>, form: Form) {
        write_count(writer, form, value.map(Vec::len));
        for element in value.into_iter().flatten() {
            element.write(writer, form);
        }
    }

    fn empty() -> Self {
        Vec::new()
    }
}

/// Reads the count in front of an array; `None` is a null array.
pub fn read_count(reader: &mut Reader<'_>, form: Form) -> Result<Option<usize>, DecodeError> {
    if form.flexible { reader.compact_length() } else { reader.long_length() }
}

/// Appends the count in front of an array; `None` is a null array.
pub fn write_count(writer: &mut Writer<'_>, form: Form, count: Option<usize>) {
    if form.flexible { writer.compact_length(count) } else { writer.long_length(count) }
}

/// The record bytes of one partition in a Fetch response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Records<'a> {
    /// No record set at all, as some errors have it.
    Null,
    /// Bytes that are copied into the response; empty when there is nothing to return. Decoding yields these.
    Bytes(&'a [u8]),
    /// This many bytes, which leave by reference: the encoder reports a [`Hole`](super::Hole) for them.
    ByReference(u32),
}

impl Default for Records<'_> {
    fn default() -> Self {
        Records::Bytes(&[])
    }
}

impl<'a> Wire<'a> for Records<'a> {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Ok(<&[u8]>::read_nullable(reader, form)?.map_or(Records::Null, Records::Bytes))
    }

    fn write(&self, writer: &mut Writer<'_>, form: Form) {
        match self {
            Records::Null => <&[u8]>::write_nullable(None, writer, form),
            Records::Bytes(bytes) => bytes.write(writer, form),
            Records::ByReference(bytes) => {
                write_count(writer, form, Some(*bytes as usize));
                writer.hole(*bytes);
            }
        }
    }

    fn bytes_min(form: Form) -> usize {
        <&[u8]>::bytes_min(form)
    }

    #[cfg(test)]
    fn random(dice: &mut super::dice::Dice, form: Form) -> Self {
        match dice.one_in(4) {
            true => Records::Null,
            false => Records::Bytes(<&[u8]>::random(dice, form)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Form = Form { version: 0, flexible: false, nullable: false, strict: true };
    const COMPACT: Form = Form { flexible: true, ..OLD };

    #[test]
    fn a_count_of_two_billion_reserves_nothing() {
        let huge = i32::MAX.to_be_bytes();
        assert_eq!(Vec::<i32>::read(&mut Reader::new(&huge), OLD), Err(DecodeError::Count(i32::MAX as u32)));
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(Vec::<&str>::read(&mut Reader::new(&huge), COMPACT), Err(DecodeError::Count(u32::MAX - 1)));
    }

    #[test]
    fn many_small_elements_are_refused_when_their_decoded_form_is_large() {
        let count = crate::limits::DECODED_BYTES_MAX / size_of::<&str>() + 1;
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).compact_length(Some(count));
        bytes.resize(bytes.len() + count, 1);
        assert_eq!(Vec::<&str>::read(&mut Reader::new(&bytes), COMPACT), Err(DecodeError::Memory));
    }

    #[test]
    fn a_string_that_is_too_long_is_cut_between_two_characters() {
        let text = "é".repeat(STRING_BYTES_MAX);
        let mut out = Vec::new();
        text.as_str().write(&mut Writer::new(&mut out), OLD);
        assert_eq!(out.len(), 2 + STRING_BYTES_MAX - 1);
        let whole = <&str>::read(&mut Reader::new(&out), OLD);
        assert_eq!(whole, Ok(&text[..STRING_BYTES_MAX - 1]));
    }

    #[test]
    fn a_compact_string_that_the_old_form_could_not_carry_is_refused() {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).compact_length(Some(STRING_BYTES_MAX + 1));
        bytes.resize(bytes.len() + STRING_BYTES_MAX + 1, b'a');
        let read = <&str>::read(&mut Reader::new(&bytes), COMPACT);
        assert_eq!(read, Err(DecodeError::StringTooLong(STRING_BYTES_MAX + 1)));
    }

    #[test]
    fn null_is_refused_or_emptied_where_the_version_has_none() {
        assert_eq!(<Option<&str>>::read(&mut Reader::new(&[0]), COMPACT), Err(DecodeError::Null));
        let mut out = Vec::new();
        None::<&str>.write(&mut Writer::new(&mut out), Form { strict: false, ..COMPACT });
        assert_eq!(out, [1]);
    }
}
