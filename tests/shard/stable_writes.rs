//! A device that reads the memory of a write more than once, as one with checksums does.

use pinion::kafka::batch::batches;

use super::*;

/// A world on such a device, or on another one; a write of a batch is held, and others are appended behind it. Returns
/// whether the memory of the held write is as it was.
fn memory_in_flight_stays(tail_writes: TailWrites) -> bool {
    let config = ShardConfig { tail_writes: vec![tail_writes], ..(*config()).clone() };
    let mut world = World::on(Arc::new(config), 1, TopicConfig::default());
    world.produce(1, &batch(b"zero"));
    world.hold = Some(|action| matches!(action, Action::Write { .. }));
    world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(b"one")));
    let before = world.held_bytes();
    for value in [&b"two"[..], &[7; 6000], b"four"] {
        world.post(ApiKey::PRODUCE, 9, &produce_request(1, &batch(value)));
    }
    let stays = world.held_bytes() == before;
    world.release();
    for offset in 1..5 {
        let body = world.answer(ApiKey::PRODUCE, 9);
        let response = produce::ProduceResponse::decode(9, &mut Reader::new(&body)).expect("a response");
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, Offset(offset)));
    }
    let (error, _, records) = world.fetch(0, 0).expect("an answer");
    let offsets: Vec<i64> = batches(&records).map(|(_, batch)| batch.expect("a whole batch").base_offset().0).collect();
    assert_eq!((error, offsets), (ErrorCode::NONE, vec![0, 1, 2, 3, 4]));
    stays
}

impl World {
    fn held_bytes(&self) -> Vec<u8> {
        let [Action::Write { block, .. }] = &self.held[..] else { panic!("one write is out: {:?}", self.held) };
        let mut bytes = vec![0; block.len() as usize];
        self.memory.copy_out(block, 0, &mut bytes);
        bytes
    }
}

#[test]
fn where_the_device_wants_stable_pages_memory_in_flight_never_changes() {
    assert!(memory_in_flight_stays(TailWrites::Copied));
    assert!(!memory_in_flight_stays(TailWrites::Shared), "the comparison sees what is appended");
}
