//! Receipts against a map, and the digest of parts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::block_with;
use crate::arena::{PartDigest, Receipts};
use crate::ids::{ConnId, Offset, PartitionId, PartitionIndex, TopicId};

const PARTS_MAX: u32 = 12;

#[derive(Clone, Copy, Debug)]
enum Step {
    Announce {
        slot: u32,
        parts: u32,
    },
    Receipt {
        slot: u32,
    },
    /// The connection of a slot closes and another one follows in it.
    Close {
        slot: u32,
    },
    /// Something late arrives for the connection that the slot had before.
    Late {
        slot: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u32, 0..5u32).prop_map(|(slot, parts)| Step::Announce { slot, parts }),
        3 => (0..3u32).prop_map(|slot| Step::Receipt { slot }),
        1 => (0..3u32).prop_map(|slot| Step::Close { slot }),
        1 => (0..3u32).prop_map(|slot| Step::Late { slot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_receipt_gives_back_all_that_was_announced_on_its_connection_and_nothing_else(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut arena = super::arena(3);
        let block = block_with(&mut arena, &[7; 4096]);
        let mut receipts = Receipts::new(3, PARTS_MAX);
        let mut model: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut turns = [1; 3];
        let (mut announced, mut given_back) = (Vec::new(), Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            let (slot, expected) = match step {
                Step::Announce { slot, parts } => {
                    let parts = parts.min(receipts.room());
                    for part in 0..parts {
                        let lease = arena.lease(&block, (number as u32 * 8 + part) % 4096, 1);
                        model.entry(slot).or_default().push(lease.at());
                        announced.push(lease);
                    }
                    receipts.announce(ConnId { slot, turn: turns[slot as usize] }, &mut announced);
                    prop_assert!(announced.is_empty());
                    (slot, Vec::new())
                }
                Step::Receipt { slot } => {
                    receipts.on_receipt(ConnId { slot, turn: turns[slot as usize] }, &mut given_back);
                    (slot, model.remove(&slot).unwrap_or_default())
                }
                Step::Close { slot } => {
                    receipts.on_close(ConnId { slot, turn: turns[slot as usize] }, &mut given_back);
                    turns[slot as usize] += 1;
                    (slot, model.remove(&slot).unwrap_or_default())
                }
                Step::Late { slot } => {
                    receipts.on_receipt(ConnId { slot, turn: turns[slot as usize] - 1 }, &mut given_back);
                    (slot, Vec::new())
                }
            };
            let given: Vec<_> = given_back.iter().rev().map(|lease| lease.at()).collect();
            prop_assert_eq!(given, expected, "on slot {}", slot);
            given_back.drain(..).for_each(|lease| arena.release(lease));
            let held: usize = model.values().map(Vec::len).sum();
            prop_assert_eq!(receipts.outstanding() as usize, held);
            prop_assert_eq!(arena.lease_count(&block) as usize, held);
            receipts.invariants();
        }
        (0..3).for_each(|slot| receipts.on_close(ConnId { slot, turn: turns[slot as usize] }, &mut given_back));
        given_back.drain(..).for_each(|lease| arena.release(lease));
        arena.free(block);
        arena.assert_idle();
    }
}

#[test]
#[should_panic(expected = "with room for 1")]
fn no_more_is_announced_than_there_is_room_for() {
    let mut arena = super::arena(3);
    let block = block_with(&mut arena, b"ab");
    let mut leases = vec![arena.lease(&block, 0, 1), arena.lease(&block, 1, 1)];
    Receipts::new(1, 1).announce(ConnId { slot: 0, turn: 0 }, &mut leases);
}

#[test]
fn a_digest_is_over_topic_partition_and_the_batches_in_order() {
    let partition = PartitionId { topic: TopicId(*b"0123456789abcdef"), index: PartitionIndex(3) };
    let digest = PartDigest::new(partition).with(Offset(10), 0xaaaa_aaaa).with(Offset(12), 0xbbbb_bbbb);
    let mut flat = b"0123456789abcdef\0\0\0\x03".to_vec();
    for (base, crc) in [(10i64, 0xaaaa_aaaau32), (12, 0xbbbb_bbbb)] {
        flat.extend(base.to_be_bytes());
        flat.extend(crc.to_be_bytes());
    }
    assert_eq!(digest.value(), crc32c::crc32c(&flat));
    let other_order = PartDigest::new(partition).with(Offset(12), 0xbbbb_bbbb).with(Offset(10), 0xaaaa_aaaa);
    assert_ne!(digest, other_order);
    let neighbour = PartitionId { index: PartitionIndex(4), ..partition };
    assert_ne!(PartDigest::new(partition), PartDigest::new(neighbour), "equal batches of another partition");
}
