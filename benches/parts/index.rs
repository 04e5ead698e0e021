//! A lookup in a full offset index: beside a binary search over as many plain numbers.

use std::hint::black_box;

use pinion::ids::{FilePos, Offset};
use pinion::log::index::{OffsetIndex, lookup_offset};

use crate::{Clock, beside};

pub fn run(clock: &Clock) {
    let entries = clock.size(1_000, 262_144);
    let mut index = OffsetIndex::new(Offset(0));
    for entry in 1..=entries {
        index.on_append(Offset(entry * 4 - 1), FilePos(entry as u64 * 4096), 0);
    }
    let plain: Vec<u32> = (1..=entries as u32).map(|entry| entry * 4 - 1).collect();
    let bytes = index.as_bytes();
    let offset = |number: usize| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64 & 0xf_ffff;
    let found = clock.nanos(200_000, |number| {
        black_box(lookup_offset(bytes, Offset(0), Offset(offset(number))));
    });
    let searched = clock.nanos(200_000, |number| {
        let target = offset(number) as u32;
        black_box(plain.partition_point(|entry| *entry <= target));
    });
    beside(&format!("lookup among {entries} entries"), found, "binary search of numbers", searched);
}
