//! A partition whose data directory has failed, once the control core has published so.

use super::*;

/// Asks for the partition in every way that clients do.
fn codes(world: &mut World) -> [ErrorCode; 3] {
    let (produced, _) = world.produce(1, &batch(b"one"));
    let (fetched, ..) = world.fetch(0, 0).expect("an answer");
    let partition = list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() };
    let topic = list_offsets::ListOffsetsTopic { name: "t", partitions: vec![partition] };
    let request = list_offsets::ListOffsetsRequest { topics: vec![topic], ..Default::default() };
    let body = world.ask(ApiKey::LIST_OFFSETS, 6, &request);
    let response = list_offsets::ListOffsetsResponse::decode(6, &mut Reader::new(&body)).expect("a response");
    [produced, fetched, response.topics[0].partitions[0].error_code]
}

fn publish(world: &mut World, route: Route) {
    let routes = BTreeMap::from([(TOPIC, Arc::from(vec![route]))]);
    let view = ClusterView { routes, ..view(1) };
    world.event(Event::Mail { from: Peer::Control, message: Message::View(Arc::new(view)) });
}

/// They were told to look for another leader, as soon as the view was out that leads nobody there.
#[test]
fn clients_are_told_that_the_storage_has_failed_as_long_as_it_has() {
    let mut world = World::new();
    assert_eq!(codes(&mut world), [ErrorCode::NONE; 3]);
    world.event(Event::Mail { from: Peer::Control, message: Message::FailDir { dir: DirId(0), errno: Errno(5) } });
    assert_eq!(codes(&mut world), [ErrorCode::KAFKA_STORAGE_ERROR; 3]);
    publish(&mut world, Route::Offline);
    assert_eq!(codes(&mut world), [ErrorCode::KAFKA_STORAGE_ERROR; 3]);
    publish(&mut world, Route::Nowhere);
    assert_eq!(codes(&mut world), [ErrorCode::NOT_LEADER_OR_FOLLOWER; 3], "a partition that is not served yet");
}

#[test]
fn metadata_names_no_leader_and_the_replica_as_offline() {
    for (route, error, leader, offline) in [
        (Route::Core(CoreId(0)), ErrorCode::NONE, 1, vec![]),
        (Route::Nowhere, ErrorCode::LEADER_NOT_AVAILABLE, -1, vec![]),
        (Route::Offline, ErrorCode::LEADER_NOT_AVAILABLE, -1, vec![BrokerId(1)]),
    ] {
        let mut world = World::new();
        publish(&mut world, route);
        let body = world.ask(ApiKey::METADATA, 9, &metadata::MetadataRequest { topics: None, ..Default::default() });
        let response = metadata::MetadataResponse::decode(9, &mut Reader::new(&body)).expect("a response");
        let partition = &response.topics[0].partitions[0];
        assert_eq!((partition.error_code, partition.leader_id), (error, BrokerId(leader)));
        assert_eq!((&partition.offline_replicas, &partition.isr_nodes), (&offline, &vec![BrokerId(1)]));
    }
}
