//! The crate `kafka-protocol` as the oracle for every declared message and version.
//!
//! For random values: what we encode, the crate decodes and encodes to the same bytes; what the crate encodes, we decode
//! to the value that we started from. So both directions of both codecs meet.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::declared::for_each_api;
use super::dice::Dice;
use super::{Api, Message, Reader, Wire};

/// Random values per message and version.
const ROUNDS: u64 = 60;

/// Versions that the crate does not know although Kafka does: (key, first version it lacks).
const UNKNOWN_TO_THE_ORACLE: [(i16, i16); 9] = [
    (2, 11), // ListOffsets
    (8, 10), // OffsetCommit
    (9, 10), // OffsetFetch
    (18, 5), // ApiVersions
    (28, 6), // TxnOffsetCommit
    (35, 5), // DescribeLogDirs
    (42, 3), // DeleteGroups
    (78, 2), // ShareFetch
    (79, 2), // ShareAcknowledge
];

macro_rules! check_all {
    ($($module:ident: $api:ident, $request:ident, $response:ident;)+) => {$(
        mod $module {
            use crate::kafka::schema::$module::{$api, $request, $response};
            use super::*;

            check_message!(request, $api, $request);
            check_message!(response, $api, $response);
        }
    )+};
}

macro_rules! check_message {
    ($test:ident, $api:ident, $message:ident) => {
        #[test]
        fn $test() {
            for (version, seed) in rounds::<$api>() {
                let form = $message::form(version).expect("a declared version");
                let value = $message::random(&mut Dice::new(seed), form);
                let mut ours = Vec::new();
                value.encode(version, &mut ours);
                let theirs = through_the_oracle::<kafka_protocol::messages::$message>(version, &ours);
                assert_eq!(theirs, ours, "version {version}, seed {seed}: {value:?}");
                let mut reader = Reader::new(&theirs);
                assert_eq!($message::decode(version, &mut reader), Ok(value), "version {version}, seed {seed}");
                assert_eq!(reader.remaining(), 0, "version {version}, seed {seed}");
            }
        }
    };
}

for_each_api!(check_all);

fn rounds<A: Api>() -> impl Iterator<Item = (i16, u64)> {
    let known = |version: &i16| !UNKNOWN_TO_THE_ORACLE.iter().any(|&(key, first)| key == A::KEY && first <= *version);
    (A::MIN..=A::MAX).filter(known).flat_map(|version| (0..ROUNDS).map(move |seed| (version, seed)))
}

fn through_the_oracle<Theirs: Decodable + Encodable>(version: i16, ours: &[u8]) -> Vec<u8> {
    let mut rest = Bytes::copy_from_slice(ours);
    let value = Theirs::decode(&mut rest, version).expect("the oracle decodes what we encode");
    assert!(rest.is_empty(), "the oracle leaves {} bytes", rest.len());
    let mut theirs = BytesMut::new();
    value.encode(&mut theirs, version).expect("the oracle encodes what it has decoded");
    theirs.to_vec()
}
