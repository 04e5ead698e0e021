use proptest::prelude::*;

use super::*;
use crate::kafka::batch_builder::BatchBuilder;
use crate::kafka::compression::plain_payload;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::fuzz;
use crate::kafka::record::OwnedRecord;

const NOW: WallMillis = WallMillis(1_700_000_000_000);

fn rules() -> AppendRules {
    AppendRules::new(&TopicConfig::default(), NOW)
}

fn builder() -> BatchBuilder {
    BatchBuilder::new().value(NOW.0 - 10, b"one").value(NOW.0 - 5, b"two").value(NOW.0 - 7, b"three")
}

/// The batch with a field of its header changed and the CRC made right again.
fn with_header(batch: &[u8], change: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let (header, payload) = batch.split_at(HEADER_BYTES);
    let mut header = BatchHeader::read_from_bytes(header).expect("a whole header");
    change(&mut header);
    header.crc.set(header.crc_with(payload));
    [header.as_bytes(), payload].concat()
}

fn fault_of(batch: &[u8], rules: &AppendRules) -> (BatchFault, ErrorCode) {
    let fault = BatchView::parse_single(batch).and_then(|view| view.validate(rules)).expect_err("must be refused");
    (fault, fault.code())
}

#[test]
fn the_header_lies_where_kafka_puts_it() {
    let batch = BatchBuilder::new()
        .appended(Offset(0x0102_0304_0506_0708), LeaderEpoch(0x1112_1314))
        .producer(ProducerId(0x2122), ProducerEpoch(0x31), 0x41)
        .transactional()
        .value(0x5152, b"v")
        .build();
    assert_eq!(batch[..8], 0x0102_0304_0506_0708i64.to_be_bytes());
    assert_eq!(batch[8..12], (batch.len() as i32 - 12).to_be_bytes());
    assert_eq!(batch[12..17], [0x11, 0x12, 0x13, 0x14, 2]);
    assert_eq!(batch[17..21], crc32c::crc32c(&batch[21..]).to_be_bytes());
    assert_eq!(batch[21..23], [0, 0x10]);
    assert_eq!(batch[23..27], [0; 4]);
    assert_eq!(batch[27..35], 0x5152i64.to_be_bytes());
    assert_eq!(batch[35..43], 0x5152i64.to_be_bytes());
    assert_eq!(batch[43..51], 0x2122i64.to_be_bytes());
    assert_eq!(batch[51..53], [0, 0x31]);
    assert_eq!(batch[53..57], 0x41i32.to_be_bytes());
    assert_eq!(batch[57..61], 1i32.to_be_bytes());
    // Length 7, attributes, deltas 0, null key, value "v", no headers.
    assert_eq!(batch[61..], [14, 0, 0, 0, 1, 2, b'v', 0]);
}

#[test]
fn a_good_batch_goes_in_as_it_is_in_every_codec() {
    for codec in Codec::ALL {
        let batch = builder().codec(codec).build();
        let view = BatchView::parse_single(&batch).expect("one batch");
        assert_eq!(view.validate(&rules()), Ok(Accepted { max_timestamp: NOW.0 - 5, restamp: None }), "{codec:?}");
        let plain = plain_payload(&view, 1000).expect("decompresses");
        let values: Vec<_> = view.records_in(&plain).map(|record| record.expect("a record").value).collect();
        assert_eq!(values, [Some(&b"one"[..]), Some(b"two"), Some(b"three")], "{codec:?}");
    }
}

#[test]
fn assigning_offset_and_epoch_keeps_the_checksum() {
    let batch = builder().build();
    let view = BatchView::parse(&batch).expect("one batch");
    let header = view.stamped(Offset(77), LeaderEpoch(5), None);
    let stored = [header.as_bytes(), view.payload()].concat();
    let stored = BatchView::parse_single(&stored).expect("one batch");
    assert_eq!(stored.check_stored(), Ok(()));
    assert_eq!(
        (stored.base_offset(), stored.last_offset(), stored.next_offset()),
        (Offset(77), Offset(79), Offset(80))
    );
    assert_eq!(stored.leader_epoch(), LeaderEpoch(5));
    assert_eq!(stored.bytes()[16..], view.bytes()[16..]);
}

#[test]
fn append_time_replaces_type_timestamp_and_checksum() {
    let batch = builder().build();
    let view = BatchView::parse(&batch).expect("one batch");
    let rules = AppendRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    let accepted = view.validate(&rules).expect("accepted");
    assert_eq!(accepted.max_timestamp, NOW.0);
    let header = view.stamped(Offset(0), LeaderEpoch(0), accepted.restamp);
    let stored = [header.as_bytes(), view.payload()].concat();
    let stored = BatchView::parse_single(&stored).expect("one batch");
    assert_eq!(stored.check_stored(), Ok(()));
    assert_eq!(stored.attributes().timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(stored.max_timestamp(), NOW.0);
    assert_eq!(stored.timestamp_of(3), NOW.0, "every record has the append time");
}

#[test]
fn a_wrong_max_timestamp_is_put_right() {
    let batch = with_header(&builder().build(), |header| header.max_timestamp.set(NOW.0 + 1));
    let accepted = BatchView::parse(&batch).and_then(|view| view.validate(&rules())).expect("accepted");
    let right = Restamp { timestamp_type: TimestampType::CreateTime, max_timestamp: NOW.0 - 5 };
    assert_eq!(accepted, Accepted { max_timestamp: NOW.0 - 5, restamp: Some(right) });
}

#[test]
fn a_stray_append_time_bit_is_cleared_on_a_create_time_topic() {
    let batch = builder().timestamp_type(TimestampType::LogAppendTime).build();
    let accepted = BatchView::parse(&batch).and_then(|view| view.validate(&rules())).expect("accepted");
    assert_eq!(accepted.restamp.map(|restamp| restamp.timestamp_type), Some(TimestampType::CreateTime));
}

#[test]
fn each_fault_has_kafkas_code() {
    let good = builder().build();
    let len = good.len();
    let mut bad_crc = good.clone();
    *bad_crc.last_mut().expect("not empty") ^= 1;
    let mut magic_1 = good.clone();
    magic_1[16] = 1;
    let mut short = good.clone();
    short[8..12].copy_from_slice(&48i32.to_be_bytes());
    let gap = BatchBuilder::new().value(NOW.0, b"x").build();
    let mut gap = with_header(&gap, |_| ());
    gap[HEADER_BYTES + 3] = 2;
    let gap = with_header(&gap, |_| ());
    let cases = [
        (Vec::new(), BatchFault::Incomplete { have: 0, need: 12 }, ErrorCode::INVALID_RECORD),
        (good[..len - 1].to_vec(), BatchFault::Incomplete { have: len - 1, need: len }, ErrorCode::INVALID_RECORD),
        (vec![0; 100], BatchFault::Length(0), ErrorCode::CORRUPT_MESSAGE),
        (short, BatchFault::Length(48), ErrorCode::CORRUPT_MESSAGE),
        (magic_1, BatchFault::Magic(1), ErrorCode::INVALID_RECORD),
        ([&good[..], &good].concat(), BatchFault::NotSingle(len), ErrorCode::INVALID_RECORD),
        (
            with_header(&good, |h| h.attributes.set(5)),
            BatchFault::UnknownCodec(5),
            ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
        ),
        (with_header(&good, |h| h.base_offset.set(1)), BatchFault::BaseOffset(1), ErrorCode::INVALID_RECORD),
        (
            with_header(&good, |h| h.record_count.set(2)),
            BatchFault::Count { count: 2, last_offset_delta: 2 },
            ErrorCode::INVALID_RECORD,
        ),
        (
            with_header(&good, |h| h.record_count.set(0)),
            BatchFault::Count { count: 0, last_offset_delta: 2 },
            ErrorCode::INVALID_RECORD,
        ),
        (builder().control().build(), BatchFault::Control, ErrorCode::INVALID_RECORD),
        (builder().transactional().build(), BatchFault::Transactional, ErrorCode::INVALID_TXN_STATE),
        (
            with_header(&good, |h| h.producer_id.set(9)),
            BatchFault::Sequence { id: 9, sequence: -1 },
            ErrorCode::INVALID_RECORD,
        ),
        (gap, BatchFault::Record { index: 0, fault: RecordFault::OffsetDelta(1) }, ErrorCode::INVALID_RECORD),
    ];
    for (bytes, fault, code) in cases {
        assert_eq!(fault_of(&bytes, &rules()), (fault, code));
    }
    let BatchFault::Crc { .. } = fault_of(&bad_crc, &rules()).0 else { panic!("the checksum must be wrong") };
    assert_eq!(fault_of(&bad_crc, &rules()).1, ErrorCode::CORRUPT_MESSAGE);
}

#[test]
fn size_limits_are_kafkas_two() {
    let good = builder().build();
    let len = good.len();
    let exact = AppendRules { message_bytes_max: len as u32, segment_bytes: len as u64, ..rules() };
    assert!(BatchView::parse(&good).expect("one batch").validate(&exact).is_ok());
    let small = AppendRules { message_bytes_max: len as u32 - 1, ..exact };
    let fault = BatchFault::TooLarge { len, max: len as u32 - 1 };
    assert_eq!(fault_of(&good, &small), (fault, ErrorCode::MESSAGE_TOO_LARGE));
    let small = AppendRules { segment_bytes: len as u64 - 1, ..exact };
    let fault = BatchFault::LargerThanSegment { len, max: len as u64 - 1 };
    assert_eq!(fault_of(&good, &small), (fault, ErrorCode::RECORD_LIST_TOO_LARGE));
}

#[test]
fn zstd_needs_a_request_version_that_allows_it() {
    let batch = builder().codec(Codec::Zstd).build();
    let rules = AppendRules { zstd_allowed: false, ..rules() };
    assert_eq!(fault_of(&batch, &rules), (BatchFault::ZstdNotAllowed, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE));
}

#[test]
fn timestamps_outside_the_topics_range_are_refused() {
    let hour = AppendRules { timestamp_before_max_ms: 3_600_000, timestamp_after_max_ms: 3_600_000, ..rules() };
    for codec in [Codec::None, Codec::Gzip] {
        for (timestamp, fits) in [(-3_600_001, false), (-3_600_000, true), (3_600_000, true), (3_600_001, false)] {
            let batch = BatchBuilder::new().codec(codec).value(NOW.0 + timestamp, b"x").value(NOW.0, b"y").build();
            let result = BatchView::parse(&batch).expect("one batch").validate(&hour);
            assert_eq!(result.is_ok(), fits, "{codec:?} {timestamp}: {result:?}");
            assert!(fits || fault_of(&batch, &hour).1 == ErrorCode::INVALID_TIMESTAMP);
        }
        let untimed = BatchBuilder::new().codec(codec).value(-1, b"x").build();
        let accepted = BatchView::parse(&untimed).expect("one batch").validate(&hour);
        assert_eq!(accepted, Ok(Accepted { max_timestamp: -1, restamp: None }), "no timestamp is never out of range");
    }
}

#[test]
fn append_time_set_by_a_producer_is_refused_where_it_would_count() {
    let claimed = builder().timestamp_type(TimestampType::LogAppendTime).build();
    let append_time = AppendRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    assert_eq!(fault_of(&claimed, &append_time), (BatchFault::TimestampType, ErrorCode::INVALID_TIMESTAMP));
    let untimed = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime).value(-1, b"x").build();
    assert_eq!(fault_of(&untimed, &rules()), (BatchFault::TimestampType, ErrorCode::INVALID_TIMESTAMP));
}

#[test]
fn batches_back_to_back_are_found_with_their_positions_up_to_the_zeros() {
    let (a, b) = (builder().build(), builder().codec(Codec::Lz4).build());
    let file = [&a[..], &b, &[0; 4096]].concat();
    let found: Vec<_> = batches(&file).map(|(at, batch)| (at, batch.map(|batch| batch.size_bytes()))).collect();
    let expected = [(0, Ok(a.len())), (a.len(), Ok(b.len())), (a.len() + b.len(), Err(BatchFault::Length(0)))];
    assert_eq!(found, expected);
    let cut = &file[..a.len() + 70];
    let last = batches(cut).last().expect("two items");
    assert_eq!(last, (a.len(), Err(BatchFault::Incomplete { have: 70, need: b.len() })));
}

#[test]
fn a_stored_batch_may_have_lost_records_but_not_its_offsets() {
    let good = builder().appended(Offset(5), LeaderEpoch(1)).build();
    let check = |batch: Vec<u8>| BatchView::parse(&batch).expect("one batch").check_stored();
    assert_eq!(check(with_header(&good, |h| h.record_count.set(0))), Ok(()), "emptied by compaction");
    assert!(check(with_header(&good, |h| h.record_count.set(4))).is_err());
    assert!(check(with_header(&good, |h| h.last_offset_delta.set(-1))).is_err());
    assert!(check(with_header(&good, |h| h.base_offset.set(-1))).is_err());
    assert!(check(with_header(&good, |h| h.base_offset.set(i64::MAX - 2))).is_err());
}

fn unbase64(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter(|&byte| byte != b'=').map(|byte| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    });
    let bits: Vec<u8> = digits.flat_map(|digit| (0..6).rev().map(move |bit| digit >> bit & 1)).collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
}

/// Every batch in a frame: what starts there parses and its checksum is right, which does not happen by chance.
fn batches_within(frame: &[u8]) -> Vec<BatchView<'_>> {
    let at = |from: usize| BatchView::parse(&frame[from..]).ok().filter(|batch| batch.check_crc().is_ok());
    (0..frame.len()).filter_map(at).collect()
}

/// The records of a batch, checked against its header.
fn check_records(batch: &BatchView<'_>, what: &str) {
    let plain = plain_payload(batch, 1 << 20).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let mut max_timestamp = -1;
    for (i, record) in (0..).zip(batch.records_in(&plain)) {
        let record = record.unwrap_or_else(|fault| panic!("{what}: record {i}: {fault}"));
        assert_eq!(record.offset_delta, i, "{what}");
        max_timestamp = max_timestamp.max(batch.timestamp_of(record.timestamp_delta));
    }
    assert_eq!(max_timestamp, batch.max_timestamp(), "{what}");
}

#[test]
fn batches_of_real_clients_and_of_kafka_are_read() {
    let frames = include_str!("../../../tests/frames/kafka-4.4.tsv");
    let rules = AppendRules { now: WallMillis(i64::MAX), ..rules() };
    let (mut produced, mut fetched) = (std::collections::BTreeSet::new(), 0);
    for line in frames.lines().skip(1) {
        let fields: Vec<_> = line.split('\t').collect();
        let [api, _, version, client, request, response] = fields[..] else { panic!("not an exchange: {line}") };
        let what = format!("{api} v{version} {client}");
        let (request, response) = (unbase64(request), unbase64(response));
        for batch in batches_within(&request).into_iter().filter(|_| api == "Produce") {
            check_records(&batch, &what);
            let expected = match batch.attributes().is_transactional() {
                true => Err(BatchFault::Transactional),
                false => Ok(None),
            };
            assert_eq!(batch.validate(&rules).map(|accepted| accepted.restamp), expected, "{what}");
            produced.insert((client, batch.attributes().codec()));
        }
        for batch in batches_within(&response).into_iter().filter(|_| api == "Fetch") {
            check_records(&batch, &what);
            assert_eq!(batch.check_stored(), Ok(()), "{what}");
            fetched += 1;
        }
    }
    let clients: std::collections::BTreeSet<_> = produced.iter().map(|(client, _)| client).collect();
    let codecs: std::collections::BTreeSet<_> = produced.iter().filter_map(|(_, codec)| *codec).collect();
    assert_eq!((clients.len(), codecs.len()), (7, 4), "every producing client, all codecs but LZ4: {produced:?}");
    assert_eq!(fetched, 35, "batches that Kafka has stored");
}

fn any_record() -> impl Strategy<Value = OwnedRecord> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
    let header = ("[a-z]{0,5}", bytes());
    (0..i64::MAX / 2, bytes(), bytes(), proptest::collection::vec(header, 0..3))
        .prop_map(|(timestamp, key, value, headers)| OwnedRecord { timestamp, key, value, headers })
}

proptest! {
    #[test]
    fn what_the_builder_writes_is_what_the_view_reads(
        records in proptest::collection::vec(any_record(), 1..20),
        codec in proptest::sample::select(&Codec::ALL[..]),
        base in 0..i64::MAX / 2,
    ) {
        let mut builder = BatchBuilder::new().codec(codec).appended(Offset(base), LeaderEpoch(3));
        for record in &records {
            builder = builder.record(record.clone());
        }
        let batch = builder.build();
        let view = BatchView::parse_single(&batch).expect("one batch");
        prop_assert_eq!(view.check_stored(), Ok(()));
        prop_assert_eq!(view.offset_count() as usize, records.len());
        prop_assert_eq!(view.max_timestamp(), records.iter().map(|r| r.timestamp).max().unwrap_or(-1));
        let plain = plain_payload(&view, 1 << 20).expect("decompresses");
        let read: Vec<_> = view.records_in(&plain).map(|record| {
            let record = record.expect("a record");
            OwnedRecord {
                timestamp: view.timestamp_of(record.timestamp_delta),
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers.iter().map(|header| {
                    (String::from_utf8_lossy(header.key).into_owned(), header.value.map(<[u8]>::to_vec))
                }).collect(),
            }
        }).collect();
        prop_assert_eq!(read, records);
    }

    #[test]
    fn arbitrary_bytes_are_a_value_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::batches(&bytes);
    }

    #[test]
    fn a_damaged_batch_is_a_value_and_never_a_panic(
        codec in proptest::sample::select(&Codec::ALL[..]),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        reseal in any::<bool>(),
    ) {
        let mut batch = builder().codec(codec).build();
        for (at, byte) in damage {
            let at = at.index(batch.len());
            batch[at] = byte;
        }
        if reseal {
            batch = with_header(&batch, |_| ());
        }
        fuzz::batches(&batch);
    }
}
