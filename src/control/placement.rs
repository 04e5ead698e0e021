//! Where replicas go: partitions and brokers sorted, one step further each time (design.md §7, kafka-spec §6).

use std::collections::BTreeMap;

use crate::ids::BrokerId;

/// A broker that can be given replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its node id.
    pub id: BrokerId,
    /// Its rack.
    pub rack: Option<String>,
}

/// Replicas of `partitions` new partitions, preferred leader first. `candidates` are the unfenced brokers in order of
/// their ids; `placed` is how many partitions were placed before, so that topics of one partition spread.
///
/// Without racks, replica j of partition i goes to broker i + j. With a rack on every broker the list of brokers goes
/// round the racks, and a rack is not used twice while another has no replica. Brokers with and without racks count as
/// without.
///
/// # Panics
/// Unless 1 ≤ `replication_factor` ≤ count of candidates: the controller has checked it.
pub fn place(
    candidates: &[Candidate],
    partitions: usize,
    replication_factor: usize,
    placed: usize,
) -> Vec<Vec<BrokerId>> {
    assert!(
        (1..=candidates.len()).contains(&replication_factor),
        "{replication_factor} replicas on {} brokers",
        candidates.len()
    );
    match rack_alternated(candidates) {
        Some(list) => (0..partitions).map(|i| place_in_racks(&list, replication_factor, placed + i)).collect(),
        None => (0..partitions).map(|i| place_in_order(candidates, replication_factor, placed + i)).collect(),
    }
}

fn place_in_order(candidates: &[Candidate], replication_factor: usize, partition: usize) -> Vec<BrokerId> {
    (0..replication_factor).map(|replica| candidates[(partition + replica) % candidates.len()].id).collect()
}

/// The brokers with one of each rack in turn, racks by name, or `None` when not all of them have one.
fn rack_alternated(candidates: &[Candidate]) -> Option<Vec<(BrokerId, &str)>> {
    let mut racks: BTreeMap<&str, Vec<BrokerId>> = BTreeMap::new();
    for candidate in candidates {
        racks.entry(candidate.rack.as_deref()?).or_default().push(candidate.id);
    }
    let rounds = racks.values().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..rounds).flat_map(|round| {
        racks.iter().filter_map(move |(rack, brokers)| brokers.get(round).map(|broker| (*broker, *rack)))
    });
    Some(in_turn.collect())
}

/// Kafka's rack-aware variant (kafka-spec §6.3): the start goes round the list, the shift grows with each round, and a
/// broker whose rack is used waits until every rack is.
fn place_in_racks(list: &[(BrokerId, &str)], replication_factor: usize, partition: usize) -> Vec<BrokerId> {
    let brokers = list.len();
    let mut rack_names: Vec<&str> = list.iter().map(|(_, rack)| *rack).collect();
    rack_names.sort_unstable();
    rack_names.dedup();
    let racks = rack_names.len();
    let first = partition % brokers;
    let shift = (partition / brokers) * racks;
    let mut chosen = vec![list[first]];
    let mut step = 0;
    while chosen.len() < replication_factor {
        let (broker, rack) = list[(first + 1 + (shift + step) % (brokers - 1)) % brokers];
        step += 1;
        let used_racks = rack_names.iter().filter(|name| chosen.iter().any(|(_, rack)| rack == *name)).count();
        let rack_waits = used_racks < racks && chosen.iter().any(|(_, used)| *used == rack);
        if !rack_waits && chosen.iter().all(|(used, _)| *used != broker) {
            chosen.push((broker, rack));
        }
    }
    chosen.into_iter().map(|(broker, _)| broker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(ids: std::ops::Range<i32>) -> Vec<Candidate> {
        ids.map(|id| Candidate { id: BrokerId(id), rack: None }).collect()
    }

    fn numbers(placed: Vec<Vec<BrokerId>>) -> Vec<Vec<i32>> {
        placed.into_iter().map(|replicas| replicas.into_iter().map(|broker| broker.0).collect()).collect()
    }

    #[test]
    fn partitions_go_round_the_brokers_in_order() {
        let placed = numbers(place(&plain(0..3), 4, 2, 0));
        assert_eq!(placed, [[0, 1], [1, 2], [2, 0], [0, 1]]);
    }

    #[test]
    fn counting_goes_on_from_what_was_placed_before() {
        let firsts: Vec<i32> = (0..5).map(|placed| numbers(place(&plain(1..4), 1, 1, placed))[0][0]).collect();
        assert_eq!(firsts, [1, 2, 3, 1, 2]);
    }

    #[test]
    fn racks_alternate_as_in_kafkas_own_example() {
        let racks = ["r1", "r3", "r3", "r2", "r2", "r1"];
        let candidates: Vec<Candidate> =
            (0..).zip(racks).map(|(id, rack)| Candidate { id: BrokerId(id), rack: Some(rack.to_owned()) }).collect();
        let placed = numbers(place(&candidates, 8, 3, 0));
        let expected = [[0, 3, 1], [3, 1, 5], [1, 5, 4], [5, 4, 2], [4, 2, 0], [2, 0, 3], [0, 4, 2], [3, 2, 0]];
        assert_eq!(placed, expected);
    }

    #[test]
    fn a_mix_of_brokers_with_and_without_racks_counts_as_without() {
        let mut candidates = plain(0..3);
        candidates[1].rack = Some("r1".into());
        assert_eq!(place(&candidates, 6, 3, 0), place(&plain(0..3), 6, 3, 0));
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        proptest::collection::vec(0..4u8, 1..10).prop_map(|racks| {
            (1..).zip(racks).map(|(id, rack)| Candidate { id: BrokerId(id), rack: Some(format!("r{rack}")) }).collect()
        })
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_and_first_replicas_even(
            mut candidates in candidates(),
            racked in any::<bool>(),
            partitions in 0..60usize,
            placed in 0..1000usize,
            factor in any::<prop::sample::Index>(),
        ) {
            if !racked {
                candidates.iter_mut().for_each(|candidate| candidate.rack = None);
            }
            let factor = 1 + factor.index(candidates.len());
            let replicas = place(&candidates, partitions, factor, placed);
            prop_assert_eq!(replicas.len(), partitions);
            let mut firsts = BTreeMap::new();
            for replicas in &replicas {
                let distinct: std::collections::BTreeSet<_> = replicas.iter().collect();
                prop_assert_eq!(distinct.len(), factor);
                *firsts.entry(replicas[0]).or_insert(0usize) += 1;
            }
            let counts = candidates.iter().map(|candidate| firsts.get(&candidate.id).copied().unwrap_or(0));
            prop_assert!(counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0) <= 1);
        }

        #[test]
        fn every_rack_gets_a_replica_when_there_are_enough(
            candidates in candidates(), placed in 0..500usize, factor in any::<prop::sample::Index>(),
        ) {
            let factor = 1 + factor.index(candidates.len());
            let racks: std::collections::BTreeSet<_> = candidates.iter().map(|candidate| &candidate.rack).collect();
            for replicas in place(&candidates, 20, factor, placed) {
                let used: std::collections::BTreeSet<_> = candidates
                    .iter()
                    .filter(|candidate| replicas.contains(&candidate.id))
                    .map(|candidate| &candidate.rack)
                    .collect();
                prop_assert_eq!(used.len(), factor.min(racks.len()));
            }
        }
    }
}
