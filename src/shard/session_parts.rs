//! The partitions of one fetch session in the order in which they are served. Moving one to the end costs a lookup and
//! allocates nothing: it happens with every answer.

use std::collections::BTreeMap;

use slab::Slab;

use crate::ids::Offset;
use crate::shard::fetch::Wanted;
use crate::shard::fetch_session::Key;

/// One partition of a session.
#[derive(Debug)]
pub struct SessionPart {
    /// How requests name it.
    pub key: Key,
    /// What the client wants of it.
    pub wanted: Wanted,
    /// High watermark and log start that the client was last told; `None` after an error.
    pub told: Option<(Offset, Offset)>,
}

/// A list that is linked by index, and where each partition is in it.
#[derive(Debug, Default)]
pub struct SessionParts {
    places: BTreeMap<Key, usize>,
    nodes: Slab<Node>,
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Debug)]
struct Node {
    part: SessionPart,
    before: Option<usize>,
    behind: Option<usize>,
}

impl SessionParts {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &SessionPart> {
        let behind = |place: &usize| self.nodes[*place].behind;
        std::iter::successors(self.first, behind).map(|place| &self.nodes[place].part)
    }

    /// The one of this name.
    pub fn at(&mut self, key: &Key) -> Option<&mut SessionPart> {
        let place = *self.places.get(key)?;
        Some(&mut self.nodes[place].part)
    }

    /// Adds one at the end. There is none of its name yet.
    pub fn push(&mut self, part: SessionPart) {
        let key = part.key.clone();
        let place = self.nodes.insert(Node { part, before: None, behind: None });
        assert_eq!(self.places.insert(key, place), None, "a partition joins a session once");
        self.link_last(place);
    }

    /// Takes one out, if it is there.
    pub fn remove(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.unlink(place);
            self.nodes.remove(place);
        }
    }

    /// Puts one behind all others, if it is there.
    pub fn move_to_end(&mut self, key: &Key) {
        if let Some(place) = self.places.get(key).copied() {
            self.unlink(place);
            self.link_last(place);
        }
    }

    fn link_last(&mut self, place: usize) {
        let before = self.last.replace(place);
        (self.nodes[place].before, self.nodes[place].behind) = (before, None);
        match before {
            Some(before) => self.nodes[before].behind = Some(place),
            None => self.first = Some(place),
        }
    }

    fn unlink(&mut self, place: usize) {
        let Node { before, behind, .. } = self.nodes[place];
        match before {
            Some(before) => self.nodes[before].behind = behind,
            None => self.first = behind,
        }
        match behind {
            Some(behind) => self.nodes[behind].before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LeaderEpoch, PartitionIndex, TopicId};

    fn key(index: i32) -> Key {
        Key { topic: "t".into(), topic_id: TopicId::NONE, index: PartitionIndex(index) }
    }

    fn part(index: i32) -> SessionPart {
        let none = LeaderEpoch(-1);
        let wanted = Wanted { offset: Offset(0), bytes_max: 1, current_leader_epoch: none, last_fetched_epoch: none };
        SessionPart { key: key(index), wanted, told: None }
    }

    fn order(parts: &SessionParts) -> Vec<i32> {
        parts.iter().map(|part| part.key.index.0).collect()
    }

    #[test]
    fn order_follows_pushes_moves_and_removals() {
        let mut parts = SessionParts::default();
        (0..4).for_each(|index| parts.push(part(index)));
        assert_eq!(order(&parts), [0, 1, 2, 3]);
        parts.move_to_end(&key(0));
        parts.move_to_end(&key(2));
        assert_eq!(order(&parts), [1, 3, 0, 2]);
        parts.move_to_end(&key(2));
        parts.remove(&key(3));
        parts.remove(&key(7));
        assert_eq!(order(&parts), [1, 0, 2]);
        parts.remove(&key(1));
        parts.remove(&key(2));
        assert_eq!((order(&parts), parts.len()), (vec![0], 1));
        parts.remove(&key(0));
        parts.move_to_end(&key(0));
        assert!(parts.is_empty() && parts.iter().next().is_none());
        parts.push(part(9));
        assert_eq!(order(&parts), [9]);
    }
}
