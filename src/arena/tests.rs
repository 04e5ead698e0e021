use super::*;

fn arena(chunks: u64) -> Arena {
    let config = ArenaConfig {
        core: CoreId(0),
        budget_bytes: chunks * CHUNK,
        window_bytes_max: 5 << 20,
        pools: PoolMinima::of_budget(chunks * CHUNK),
    };
    let regions = Regions::new(vec![Region::heap(Arena::region_bytes(&config))]);
    Arena::new(config, regions)
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
