//! What the arena does, and what it refuses.

mod model;
mod receipts;

use super::*;

/// Arenas of cores 0, 1, … over heap regions that know of each other.
fn arenas(cores: u16, chunks: u64) -> (Arc<Regions>, Vec<Arena>) {
    let configs: Vec<_> = (0..cores)
        .map(|core| ArenaConfig {
            core: CoreId(core),
            budget_bytes: chunks * CHUNK,
            window_bytes_max: WINDOW_BYTES_MAX,
            pools: PoolMinima::of_budget(chunks * CHUNK),
        })
        .collect();
    let regions = Regions::new(configs.iter().map(|config| Region::heap(Arena::region_bytes(config))).collect());
    let arenas = configs.into_iter().map(|config| Arena::new(config, regions.clone())).collect();
    (regions, arenas)
}

fn arena(chunks: u64) -> Arena {
    arenas(1, chunks).1.remove(0)
}

const WINDOW_BYTES_MAX: u64 = 5 << 20;

fn block_with(arena: &mut Arena, bytes: &[u8]) -> Block {
    let mut block = arena.alloc(Pool::Produce, bytes.len() as u64, &mut Vec::new()).unwrap();
    arena.write(&mut block, 0, bytes);
    block
}

#[test]
fn a_block_is_free_when_its_writer_and_all_leases_are_back() {
    let mut arena = arena(4);
    let mut changes = Vec::new();
    let mut block = arena.alloc(Pool::Produce, 5000, &mut changes).unwrap();
    assert_eq!(changes, [ChunkChange::Take { index: 0 }]);
    assert_eq!(block.len(), 8192);
    arena.write(&mut block, 0, b"hello");
    let lease = arena.lease(&block, 1, 3);
    let part = arena.split(&lease, 1, 1);
    assert_eq!((arena.bytes(&lease), arena.bytes(&part)), (&b"ell"[..], &b"l"[..]));
    arena.free(block);
    arena.release(lease);
    assert_eq!(arena.outstanding().bytes(Pool::Produce), 8192);
    arena.release(part);
    arena.assert_idle();
}

#[test]
fn size_classes_are_powers_of_two_from_4_kib_to_a_chunk() {
    let mut arena = arena(8);
    for (bytes, len) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (CHUNK / 2 + 1, CHUNK as u32)] {
        let block = arena.alloc(Pool::Produce, bytes, &mut Vec::new()).unwrap();
        assert_eq!(block.len(), len, "for {bytes} bytes");
        arena.free(block);
    }
    arena.assert_idle();
}

#[test]
fn a_device_write_may_cover_zeros_that_later_data_fills() {
    let (regions, mut arenas) = arenas(1, 4);
    let arena = &mut arenas[0];
    let mut block = block_with(arena, b"first");
    arena.zero(&mut block, 5, 4096);
    let write = arena.lease(&block, 0, 4096);
    let mut image = [0xff; 8];
    regions.copy_out(&write, 0, &mut image);
    assert_eq!(&image, b"first\0\0\0");
    arena.write(&mut block, 5, b"next");
    regions.copy_out(&write, 0, &mut image);
    assert_eq!(&image, b"firstnex", "what was written when the lease was made stays, only its padding fills");
    assert_eq!(regions.bytes_of(&write, 0, 5), b"first");
    arena.release(write);
    arena.free(block);
    arena.assert_idle();
}

#[test]
fn bytes_may_be_patched_until_they_are_leased() {
    let mut arena = arena(4);
    let mut block = block_with(&mut arena, b"offset=? crc");
    arena.write(&mut block, 7, b"7");
    assert_eq!(arena.read(&block, 0, 12), b"offset=7 crc");
    let lease = arena.lease(&block, 0, 12);
    arena.write(&mut block, 12, b" more");
    assert_eq!(arena.bytes(&lease), b"offset=7 crc");
    arena.release(lease);
    arena.free(block);
    arena.assert_idle();
}

#[test]
fn bytes_of_another_core_are_read_and_copied_here_and_go_home() {
    let (regions, mut arenas) = arenas(2, 4);
    let block = block_with(&mut arenas[1], b"from one");
    let lease = arenas[1].lease(&block, 5, 3);
    assert_eq!(lease.core(), CoreId(1));
    let mut copy = arenas[0].alloc(Pool::Reads, 10, &mut Vec::new()).unwrap();
    arenas[0].copy(&mut copy, 0, &lease, 1, 2);
    assert_eq!((arenas[0].read(&copy, 0, 2), regions.bytes(&lease)), (&b"ne"[..], &b"one"[..]));
    arenas[1].free(block);
    arenas[1].release(lease);
    arenas[0].free(copy);
    arenas.iter().for_each(Arena::assert_idle);
}

#[test]
fn a_window_is_filled_by_the_shell_and_becomes_a_block_again_when_nobody_else_reads_it() {
    let (regions, mut arenas) = arenas(1, 4);
    let arena = &mut arenas[0];
    let block = arena.alloc(Pool::Produce, 4096, &mut Vec::new()).unwrap();
    let mut window = arena.into_lease(block);
    regions.fill(&mut window, 0, b"frame");
    let part = arena.split(&window, 1, 4);
    assert_eq!(regions.bytes(&part), b"rame");
    let window = arena.into_block(window).expect_err("a part of it is lent");
    let part = arena.into_block(part).expect_err("it is only a part");
    arena.release(part);
    let block = arena.into_block(window).expect("the only reference, of all of it");
    assert_eq!(arena.read(&block, 0, 5), b"frame");
    arena.free(block);
    arena.assert_idle();
}

#[test]
fn a_window_may_be_as_long_as_the_frame_that_it_waits_for() {
    let (regions, mut arenas) = arenas(1, 4);
    let block = block_with(&mut arenas[0], b"fra");
    let mut window = arenas[0].into_window(block, 5);
    regions.fill(&mut window, 3, b"me");
    assert_eq!(regions.bytes(&window), b"frame");
    let window = arenas[0].into_block(window).expect_err("it is only a part");
    arenas[0].release(window);
    arenas[0].assert_idle();
}

#[test]
fn the_large_window_is_one_at_a_time_and_its_memory_goes_back_on_the_timer() {
    let mut arena = arena(4);
    let block = arena.alloc_window(CHUNK + 1).unwrap();
    assert_eq!(u64::from(block.len()), CHUNK + BLOCK);
    assert!(arena.alloc_window(CHUNK + 1).is_none(), "the window is taken");
    let lease = arena.into_lease(block);
    assert_eq!((lease.at(), arena.outstanding().window_bytes), (4 * CHUNK, CHUNK + BLOCK));
    let mut changes = Vec::new();
    assert_eq!(arena.give_back(true, &mut changes), 0, "in use");
    arena.release(lease);
    assert_eq!(arena.give_back(false, &mut changes), 2);
    assert_eq!(changes, [ChunkChange::DropWindow { first: 4, count: 2 }]);
    assert!(arena.alloc_window(WINDOW_BYTES_MAX).is_some());
}

#[test]
fn every_pool_gets_its_minimum_whole_whatever_the_others_hold() {
    let mut arena = arena(8);
    // The smallest blocks, so that nothing whole is left of any chunk they touch.
    let mut small = Vec::new();
    while let Some(block) = arena.alloc(Pool::Produce, 1, &mut Vec::new()) {
        small.push(block);
    }
    assert_eq!(arena.outstanding().bytes(Pool::Produce), 5 * CHUNK, "all but the minima of the others");
    let replica: Vec<_> = (0..2).map(|_| arena.alloc(Pool::Replica, CHUNK, &mut Vec::new()).unwrap()).collect();
    let reads = arena.alloc(Pool::Reads, CHUNK, &mut Vec::new()).unwrap();
    assert!(Pool::ALL.iter().all(|&pool| arena.alloc(pool, 1, &mut Vec::new()).is_none()), "now it is full");
    small.into_iter().chain(replica).chain([reads]).for_each(|block| arena.free(block));
    arena.assert_idle();
}

#[test]
fn chunks_that_were_not_needed_between_two_timer_calls_go_back() {
    let mut arena = arena(8);
    let mut changes = Vec::new();
    let blocks: Vec<_> = (0..4).map(|_| arena.alloc(Pool::Produce, CHUNK, &mut changes).unwrap()).collect();
    arena.give_back(false, &mut changes);
    changes.clear();
    blocks.into_iter().for_each(|block| arena.free(block));
    assert_eq!(arena.give_back(false, &mut changes), 0, "all of them were needed since the last call");
    let block = arena.alloc(Pool::Reads, CHUNK, &mut changes).unwrap();
    assert_eq!(changes, [], "an idle chunk goes to any pool as it is");
    arena.free(block);
    assert_eq!(arena.give_back(false, &mut changes), 3, "one was needed");
    let dropped = [3, 2, 1].map(|index| ChunkChange::Drop { index });
    assert_eq!(changes, dropped, "the highest first");
    assert_eq!(arena.give_back(true, &mut changes), 0, "the last one stays");
}

#[test]
fn new_blocks_go_to_the_lowest_chunk_with_room_so_that_the_highest_drains() {
    let mut arena = arena(8);
    let half = |arena: &mut Arena| arena.alloc(Pool::Produce, CHUNK / 2, &mut Vec::new()).unwrap();
    let mut blocks: Vec<_> = (0..4).map(|_| half(&mut arena)).collect();
    arena.free(blocks.remove(0));
    let lowest = half(&mut arena);
    assert_eq!(arena.records[lowest.id as usize].at, 0);
    blocks.into_iter().chain([lowest]).for_each(|block| arena.free(block));
    arena.assert_idle();
}

#[test]
fn a_heap_region_is_aligned_to_a_chunk_and_starts_as_zeros() {
    let (regions, mut arenas) = arenas(1, 3);
    let block = arenas[0].alloc(Pool::Produce, CHUNK, &mut Vec::new()).unwrap();
    let lease = arenas[0].into_lease(block);
    assert_eq!(regions.address(&lease) as usize % CHUNK as usize, 0);
    assert!(regions.bytes(&lease).iter().all(|&byte| byte == 0));
    arenas[0].release(lease);
}

#[test]
#[should_panic(expected = "are promised")]
fn what_a_lease_promised_cannot_be_written() {
    let mut arena = arena(4);
    let mut block = block_with(&mut arena, b"promise");
    let lease = arena.lease(&block, 0, 4);
    arena.release(lease);
    // Promised once is promised for good: a copy may be on its way to the device or to a follower.
    arena.write(&mut block, 3, b"M");
}

#[test]
#[should_panic(expected = "only 3 were written or zeroed")]
fn bytes_that_were_never_written_cannot_be_leased() {
    let mut arena = arena(4);
    let block = block_with(&mut arena, b"new");
    arena.lease(&block, 0, 4);
}

#[test]
#[should_panic(expected = "may still change")]
fn padding_cannot_be_borrowed() {
    let mut arena = arena(4);
    let mut block = block_with(&mut arena, b"new");
    arena.zero(&mut block, 3, 8);
    let lease = arena.lease(&block, 0, 8);
    arena.bytes(&lease);
}

#[test]
#[should_panic(expected = "goes home by Message::Return")]
fn a_lease_of_another_core_cannot_be_released_here() {
    let (_, mut arenas) = arenas(2, 4);
    let block = block_with(&mut arenas[1], b"theirs");
    let lease = arenas[1].lease(&block, 0, 6);
    arenas[0].release(lease);
}

#[test]
#[should_panic(expected = "is not out")]
fn a_lease_given_back_twice_is_noticed() {
    let mut arena = arena(4);
    let block = block_with(&mut arena, b"once");
    let lease = arena.lease(&block, 0, 4);
    let again = Lease { ..lease };
    arena.free(block);
    arena.release(lease);
    // The record is in use by another block by now.
    let other = block_with(&mut arena, b"next");
    let _other_lease = arena.lease(&other, 0, 4);
    arena.release(again);
}

#[test]
#[should_panic(expected = "is no window")]
fn only_windows_can_be_filled() {
    let (regions, mut arenas) = arenas(1, 4);
    let block = block_with(&mut arenas[0], b"tail");
    let mut lease = arenas[0].lease(&block, 0, 4);
    regions.fill(&mut lease, 0, b"x");
}

#[test]
#[should_panic(expected = "has an arena already")]
fn a_region_has_one_arena() {
    let (regions, arenas) = arenas(1, 4);
    Arena::new(arenas[0].config, regions);
}

#[test]
#[should_panic(expected = "left, among them")]
fn a_leaked_lease_is_noticed() {
    let mut arena = arena(4);
    let block = block_with(&mut arena, b"leak");
    let _lease = arena.lease(&block, 0, 4);
    arena.free(block);
    arena.assert_idle();
}
