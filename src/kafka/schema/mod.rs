//! Kafka's messages, each declared once; the declaration yields bounded, borrowed decoding and exact encoding.
//!
//! A file per API family holds one `schema!` block per API: key, versions and first flexible version, then the request
//! and the response with their structs. A field is `name: Type [= default][, attributes];` and the attributes say where
//! it departs from "in every version, never null, not tagged": `from(v)`, `until(v)`, `nullable()`, `nullable_from(v)`,
//! `tag(n)`, `ignorable()` ([`Field`]). Field names are Kafka's, in snake case.
//!
//! Encoding a value that the chosen version cannot carry: in a request it is an assertion unless the field is ignorable
//! (a request would mean something else without it); in a response it is left out, because there the peer chooses the
//! version and must not be able to trip an assertion. Versions themselves are checked by [`Message::decode`].
//!
//! What is not here: headers ([`frame`](super::frame)), record batches ([`batch`](super::batch)), and views that need
//! no allocation for the hot requests ([`produce`](super::produce), [`fetch`](super::fetch)).

#[cfg(test)]
pub mod dice;
#[cfg(test)]
mod oracle;
mod reader;
mod wire;
mod writer;

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod alter_client_quotas;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_client_quotas;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_topic_partitions;
pub mod describe_transactions;
pub mod elect_leaders;
pub mod end_txn;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod list_transactions;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod share_acknowledge;
pub mod share_fetch;
pub mod share_group_heartbeat;
pub mod sync_group;
pub mod txn_offset_commit;
pub mod unregister_broker;

mod declared;

pub use declared::{DECLARED, Declared, Transcode};
pub use reader::{DecodeError, Reader};
pub use wire::{Form, Nullable, Records, Wire, read_count, write_count};
pub use writer::{Hole, Writer};

use crate::kafka::error_code::ErrorCode;

/// One API: the facts that its request and its response share.
pub trait Api {
    /// The key that names it in a request header.
    const KEY: i16;
    /// Kafka's name for it.
    const NAME: &'static str;
    /// Lowest declared version.
    const MIN: i16;
    /// Highest declared version.
    const MAX: i16;
    /// First version with compact lengths and tag sections; `i16::MAX` when there is none.
    const FLEXIBLE: i16;
}

/// A request or a response as a whole.
pub trait Message<'a>: Wire<'a> {
    /// The API it belongs to.
    type Api: Api;
    /// Whether a value that the version cannot carry is a bug; see the module.
    const STRICT: bool;

    /// Reads the body that follows the header. Bytes behind it stay in the reader; real requests have such bytes (the
    /// Metadata requests of librdkafka do), so they are no fault.
    ///
    /// # Errors
    /// When the bytes are no such message or the version is not declared.
    fn decode(version: i16, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read(reader, Self::form(version).ok_or(DecodeError::Version(version))?)
    }

    /// Appends the body to `out`.
    ///
    /// # Panics
    /// When the version is not declared, or a request holds a value that it cannot carry.
    fn encode(&self, version: i16, out: &mut Vec<u8>) {
        self.write_version(version, &mut Writer::new(out));
    }

    /// As [`Message::encode`]; gives the first error code that the message tells, `NONE` without any.
    ///
    /// # Panics
    /// As [`Message::encode`].
    fn encode_telling_error(&self, version: i16, out: &mut Vec<u8>) -> ErrorCode {
        let mut writer = Writer::new(out);
        self.write_version(version, &mut writer);
        writer.first_error()
    }

    /// Appends the body to `out` except for bytes that are sent by reference; `holes` receives where those belong, in
    /// ascending order.
    ///
    /// # Panics
    /// As [`Message::encode`].
    fn encode_with_holes(&self, version: i16, out: &mut Vec<u8>, holes: &mut Vec<Hole>) {
        self.write_version(version, &mut Writer::with_holes(out, holes));
    }

    /// Appends the body.
    ///
    /// # Panics
    /// As [`Message::encode`].
    fn write_version(&self, version: i16, writer: &mut Writer<'_>) {
        let form = Self::form(version);
        assert!(form.is_some(), "{} has no version {version}", Self::Api::NAME);
        form.into_iter().for_each(|form| self.write(writer, form));
    }

    /// The form of a declared version.
    fn form(version: i16) -> Option<Form> {
        let flexible = version >= Self::Api::FLEXIBLE;
        let declared = Self::Api::MIN <= version && version <= Self::Api::MAX;
        declared.then_some(Form { version, flexible, nullable: false, strict: Self::STRICT })
    }

    /// Decodes `bytes` and encodes the result again; tests and fuzzing compare.
    ///
    /// # Errors
    /// As [`Message::decode`].
    fn transcode(version: i16, bytes: &'a [u8]) -> Result<Transcoded, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = Self::decode(version, &mut reader)?;
        let mut encoded = Vec::new();
        message.encode(version, &mut encoded);
        Ok(Transcoded { encoded, bytes_left: reader.remaining() })
    }
}

/// What [`Message::transcode`] makes of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transcoded {
    /// The message encoded again.
    pub encoded: Vec<u8>,
    /// Bytes behind the end of the message that was decoded.
    pub bytes_left: usize,
}

/// In which versions and in which shape a field is on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    first: i16,
    last: i16,
    nullable_from: i16,
    tag: Option<u32>,
    ignorable: bool,
}

impl Field {
    /// In every version, never null, not tagged.
    pub const EVERY: Field = Field { first: 0, last: i16::MAX, nullable_from: i16::MAX, tag: None, ignorable: false };

    /// Since this version.
    pub const fn from(self, first: i16) -> Field {
        Field { first, ..self }
    }

    /// Up to and including this version.
    pub const fn until(self, last: i16) -> Field {
        Field { last, ..self }
    }

    /// May be null.
    pub const fn nullable(self) -> Field {
        self.nullable_from(0)
    }

    /// May be null since this version.
    pub const fn nullable_from(self, nullable_from: i16) -> Field {
        Field { nullable_from, ..self }
    }

    /// Stands in the tag section, under this tag and only when it differs from its default.
    pub const fn tag(self, tag: u32) -> Field {
        Field { tag: Some(tag), ..self }
    }

    /// May be left out of a request whose version lacks it.
    pub const fn ignorable(self) -> Field {
        Field { ignorable: true, ..self }
    }

    const fn inline(self, form: Form) -> bool {
        self.tag.is_none() && self.covers(form)
    }

    const fn tagged(self, form: Form) -> bool {
        self.tag.is_some() && self.covers(form)
    }

    const fn covers(self, form: Form) -> bool {
        self.first <= form.version && form.version <= self.last
    }

    const fn form(self, form: Form) -> Form {
        Form { nullable: self.nullable_from <= form.version, ..form }
    }

    const fn may_be_absent(self, form: Form) -> bool {
        self.ignorable || !form.strict || self.covers(form)
    }
}

/// Checks that tags are declared in ascending order, which is the order on the wire.
const fn assert_tags_ascend(fields: &[Field]) {
    let (mut index, mut next) = (0, 0);
    while index < fields.len() {
        if let Some(tag) = fields[index].tag {
            assert!(tag >= next, "tags are declared out of order");
            next = tag + 1;
        }
        index += 1;
    }
}

/// Declares one API; see the module for the notation.
macro_rules! schema {
    (
        $(#[$doc:meta])*
        api $api:ident = $key:literal, versions $min:literal..=$max:literal, flexible $flexible:expr;
        $($items:tt)*
    ) => {
        $(#[$doc])*
        #[doc = concat!("The API `", stringify!($api), "`.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $api;

        impl crate::kafka::schema::Api for $api {
            const KEY: i16 = $key;
            const NAME: &'static str = stringify!($api);
            const MIN: i16 = $min;
            const MAX: i16 = $max;
            const FLEXIBLE: i16 = $flexible;
        }

        crate::kafka::schema::schema! { @items $api $($items)* }
    };

    (@items $api:ident) => {};
    (@items $api:ident $(#[$doc:meta])* struct $name:ident { $($fields:tt)* } $($rest:tt)*) => {
        crate::kafka::schema::schema! { @record [$(#[$doc])*] 'a $name [] { $($fields)* } }
        crate::kafka::schema::schema! { @items $api $($rest)* }
    };
    (@items $api:ident $(#[$doc:meta])* struct $name:ident<$lt:lifetime> { $($fields:tt)* } $($rest:tt)*) => {
        crate::kafka::schema::schema! { @record [$(#[$doc])*] $lt $name [<$lt>] { $($fields)* } }
        crate::kafka::schema::schema! { @items $api $($rest)* }
    };
    (@items $api:ident $(#[$doc:meta])* request $name:ident $(<$lt:lifetime>)? { $($fields:tt)* } $($rest:tt)*) => {
        crate::kafka::schema::schema! { @message $api true $name $(<$lt>)? }
        crate::kafka::schema::schema! {
            @items $api $(#[$doc])* struct $name $(<$lt>)? { $($fields)* } $($rest)*
        }
    };
    (@items $api:ident $(#[$doc:meta])* response $name:ident $(<$lt:lifetime>)? { $($fields:tt)* } $($rest:tt)*) => {
        crate::kafka::schema::schema! { @message $api false $name $(<$lt>)? }
        crate::kafka::schema::schema! {
            @items $api $(#[$doc])* struct $name $(<$lt>)? { $($fields)* } $($rest)*
        }
    };

    (@message $api:ident $strict:literal $name:ident) => {
        impl crate::kafka::schema::Message<'_> for $name {
            type Api = $api;
            const STRICT: bool = $strict;
        }
    };
    (@message $api:ident $strict:literal $name:ident<$lt:lifetime>) => {
        impl<$lt> crate::kafka::schema::Message<$lt> for $name<$lt> {
            type Api = $api;
            const STRICT: bool = $strict;
        }
    };

    (@default $type:ty) => { <$type>::default() };
    (@default $type:ty = $default:expr) => { $default };

    (@field $($attribute:ident($($argument:literal)?)).*) => {
        const { crate::kafka::schema::Field::EVERY$(.$attribute($($argument)?))* }
    };

    (@record [$($doc:tt)*] $lt:lifetime $name:ident [$($generics:tt)*] {
        $($(#[$field_doc:meta])* $field:ident: $type:ty
            $(= $default:expr)? $(, $($attribute:ident($($argument:literal)?)).+)?;)*
    }) => {
        $($doc)*
        #[doc = concat!("Kafka's `", stringify!($name), "`.")]
        #[derive(Clone, PartialEq, Debug)]
        pub struct $name $($generics)* {$(
            $(#[$field_doc])*
            #[doc = concat!("`", stringify!($type $(= $default)? $(, $($attribute($($argument)?)).+)?), "`")]
            pub $field: $type,
        )*}

        impl $($generics)* Default for $name $($generics)* {
            fn default() -> Self {
                $name { $($field: crate::kafka::schema::schema!(@default $type $(= $default)?)),* }
            }
        }

        impl<$lt> crate::kafka::schema::Wire<$lt> for $name $($generics)* {
            fn read(
                reader: &mut crate::kafka::schema::Reader<$lt>,
                form: crate::kafka::schema::Form,
            ) -> Result<Self, crate::kafka::schema::DecodeError> {
                let mut value = Self::default();
                $({
                    let field = crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?);
                    if field.inline(form) {
                        value.$field = crate::kafka::schema::Wire::read(reader, field.form(form))?;
                    }
                })*
                if form.flexible {
                    reader.tags(|tag, content| {
                        $({
                            let field = crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?);
                            if field.tag == Some(tag) && field.tagged(form) {
                                value.$field = crate::kafka::schema::Wire::read(content, field.form(form))?;
                                return Ok(true);
                            }
                        })*
                        let _ = (tag, content);
                        Ok(false)
                    })?;
                }
                Ok(value)
            }

            fn write(&self, writer: &mut crate::kafka::schema::Writer<'_>, form: crate::kafka::schema::Form) {
                const { crate::kafka::schema::assert_tags_ascend(&[
                    $(crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?)),*
                ]) };
                let mut tags = 0;
                $({
                    let field = crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?);
                    if field.inline(form) {
                        self.$field.write(writer, field.form(form));
                    } else if field.tagged(form) || !field.may_be_absent(form) {
                        let is_set = self.$field != crate::kafka::schema::schema!(@default $type $(= $default)?);
                        tags += u32::from(is_set);
                        assert!(
                            !is_set || field.tagged(form),
                            concat!(stringify!($name), ".", stringify!($field), " is set, but version {} has no such field"),
                            form.version
                        );
                    }
                })*
                if !form.flexible {
                    return;
                }
                writer.uvarint(tags);
                $({
                    let field = crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?);
                    if let Some(tag) = field.tag
                        && field.tagged(form)
                        && self.$field != crate::kafka::schema::schema!(@default $type $(= $default)?)
                    {
                        writer.tagged(tag, |content| self.$field.write(content, field.form(form)));
                    }
                })*
            }

            fn bytes_min(form: crate::kafka::schema::Form) -> usize {
                let mut bytes = usize::from(form.flexible);
                $({
                    let field = crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?);
                    if field.inline(form) {
                        bytes += <$type as crate::kafka::schema::Wire<$lt>>::bytes_min(field.form(form));
                    }
                })*
                bytes
            }

            #[cfg(test)]
            fn random(dice: &mut crate::kafka::schema::dice::Dice, form: crate::kafka::schema::Form) -> Self {
                let mut value = Self::default();
                $({
                    let field = crate::kafka::schema::schema!(@field $($($attribute($($argument)?)).+)?);
                    if field.inline(form) || field.tagged(form) && dice.one_in(2) {
                        value.$field = crate::kafka::schema::Wire::random(dice, field.form(form));
                    }
                })*
                value
            }
        }

        impl<$lt> crate::kafka::schema::Nullable<$lt> for $name $($generics)* {
            fn empty() -> Self {
                Self::default()
            }
        }
    };
}
pub(crate) use schema;
