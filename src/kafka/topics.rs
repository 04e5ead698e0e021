//! The nested arrays topic → partition of Produce and Fetch, read and written without building them.
//!
//! Both APIs name topics by name up to version 12 and by id from 13 on. A view walks its bytes once when it is made, so
//! that iterating later meets no fault.

use std::marker::PhantomData;

use super::schema::{DecodeError, Form, Reader, Wire, Writer, read_count, write_count};
use crate::ids::TopicId;

/// First version that names topics by id instead of by name.
const IDS_FROM: i16 = 13;

/// What an array of a view may hold: any type of the schema, and a topic with its partitions.
pub trait Element<'a>: Sized {
    /// Reads one.
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError>;

    /// The fewest bytes that one takes.
    fn bytes_min(form: Form) -> usize;
}

impl<'a, T: Wire<'a>> Element<'a> for T {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        Wire::read(reader, form)
    }

    fn bytes_min(form: Form) -> usize {
        <T as Wire>::bytes_min(form)
    }
}

/// An array in a request whose bytes have been checked.
#[derive(Clone, Debug)]
pub struct Elements<'a, T> {
    reader: Reader<'a>,
    left: usize,
    form: Form,
    element: PhantomData<T>,
}

impl<'a, T: Element<'a>> Elements<'a, T> {
    /// Checks the array at the reader and moves behind it.
    pub(super) fn check(reader: &mut Reader<'a>, form: Form) -> Result<Elements<'a, T>, DecodeError> {
        let left = read_count(reader, form)?.ok_or(DecodeError::Null)?;
        reader.admit(left, T::bytes_min(form), 0)?;
        let elements = Elements { reader: reader.clone(), left, form, element: PhantomData };
        for _ in 0..left {
            T::read(reader, form)?;
        }
        Ok(elements)
    }
}

impl<T> Elements<'_, T> {
    /// The array in a version that has none.
    pub(super) fn none(form: Form) -> Self {
        Elements { reader: Reader::new(&[]), left: 0, form, element: PhantomData }
    }
}

impl<'a, T: Element<'a>> Iterator for Elements<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        Some(T::read(&mut self.reader, self.form).expect("the bytes were checked when the view was made"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: Element<'a>> ExactSizeIterator for Elements<'a, T> {}

/// A topic with the part of a request that is about its partitions.
#[derive(Clone, Debug)]
pub struct TopicView<'a, T> {
    /// Its name; empty from version 13 on.
    pub name: &'a str,
    /// Its id; none before version 13.
    pub id: TopicId,
    partitions: Elements<'a, T>,
}

impl<'a, T: Wire<'a> + Clone> TopicView<'a, T> {
    /// What the request says of each partition.
    pub fn partitions(&self) -> Elements<'a, T> {
        self.partitions.clone()
    }
}

impl<'a, T: Wire<'a>> Element<'a> for TopicView<'a, T> {
    fn read(reader: &mut Reader<'a>, form: Form) -> Result<Self, DecodeError> {
        let by_id = form.version >= IDS_FROM;
        let name = if by_id { "" } else { Wire::read(reader, form)? };
        let id = if by_id { Wire::read(reader, form)? } else { TopicId::NONE };
        let partitions = Elements::check(reader, form)?;
        if form.flexible {
            reader.skip_tags()?;
        }
        Ok(TopicView { name, id, partitions })
    }

    fn bytes_min(form: Form) -> usize {
        let length = if form.flexible { 1 } else { size_of::<i16>() };
        let topic = if form.version >= IDS_FROM { size_of::<TopicId>() } else { length };
        topic + <Vec<T> as Wire>::bytes_min(form) + usize::from(form.flexible)
    }
}

/// Writes a response's topics one after the other into a buffer of the caller.
#[derive(Debug)]
pub(super) struct TopicsWriter<'o> {
    writer: Writer<'o>,
    form: Form,
    topics_left: usize,
    partitions_left: usize,
}

impl<'o> TopicsWriter<'o> {
    /// Begins the array of topics.
    pub(super) fn begin(mut writer: Writer<'o>, form: Form, topics: usize) -> TopicsWriter<'o> {
        write_count(&mut writer, form, Some(topics));
        TopicsWriter { writer, form, topics_left: topics, partitions_left: 0 }
    }

    /// Begins a topic.
    ///
    /// # Panics
    /// When more topics or fewer partitions come than were announced.
    pub(super) fn topic(&mut self, name: &str, id: TopicId, partitions: usize) {
        assert_eq!(self.partitions_left, 0, "partitions of the topic before are missing");
        assert!(self.topics_left > 0, "more topics than were announced");
        self.topics_left -= 1;
        if self.form.version >= IDS_FROM {
            id.write(&mut self.writer, self.form);
        } else {
            name.write(&mut self.writer, self.form);
        }
        write_count(&mut self.writer, self.form, Some(partitions));
        self.partitions_left = partitions;
        self.end_topic();
    }

    /// Appends a partition of the topic begun last.
    ///
    /// # Panics
    /// When more partitions come than were announced.
    pub(super) fn partition<'a>(&mut self, partition: &impl Wire<'a>) {
        assert!(self.partitions_left > 0, "more partitions than were announced");
        partition.write(&mut self.writer, self.form);
        self.partitions_left -= 1;
        self.end_topic();
    }

    /// Ends the array; what follows it is the caller's.
    ///
    /// # Panics
    /// When fewer topics or partitions came than were announced.
    pub(super) fn end(self) -> Writer<'o> {
        let left = (self.topics_left, self.partitions_left);
        assert_eq!(left, (0, 0), "topics and partitions that are missing");
        self.writer
    }

    fn end_topic(&mut self) {
        if self.partitions_left == 0 && self.form.flexible {
            self.writer.uvarint(0);
        }
    }
}

/// Appends the tag section of a response whose only tagged field, `node_endpoints` under tag 0, is an array.
pub(super) fn write_node_endpoints<'a>(writer: &mut Writer<'_>, form: Form, first: i16, endpoints: &[impl Wire<'a>]) {
    if !form.flexible {
        return;
    }
    if form.version < first || endpoints.is_empty() {
        return writer.uvarint(0);
    }
    writer.uvarint(1);
    writer.tagged(0, |content| {
        write_count(content, form, Some(endpoints.len()));
        endpoints.iter().for_each(|endpoint| endpoint.write(content, form));
    });
}
