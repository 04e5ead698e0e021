//! The partitions of a core, by slot and by id.

use std::collections::BTreeMap;

use crate::ids::PartitionId;
use crate::shard::partition::Partition;

/// All partitions of a core. A slot is used again only after its partition is gone with all it had in flight.
#[derive(Debug, Default)]
pub struct Partitions {
    slots: slab::Slab<Partition>,
    by_id: BTreeMap<PartitionId, u32>,
}

impl Partitions {
    /// Adds a partition; returns its slot.
    pub fn add(&mut self, partition: Partition) -> u32 {
        let id = partition.id;
        let slot = self.slots.insert(partition) as u32;
        assert!(self.by_id.insert(id, slot).is_none(), "partition {id:?} is hosted twice");
        slot
    }

    /// Removes a partition that has nothing in flight.
    pub fn remove(&mut self, slot: u32) -> Partition {
        let partition = self.slots.remove(slot as usize);
        self.by_id.remove(&partition.id);
        partition
    }

    /// The slot of a partition.
    pub fn slot(&self, id: PartitionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The partition in a slot to look at, if there is one.
    pub fn at(&self, slot: u32) -> Option<&Partition> {
        self.slots.get(slot as usize)
    }

    /// The partition in a slot, if there is one.
    pub fn by_slot(&mut self, slot: u32) -> Option<&mut Partition> {
        self.slots.get_mut(slot as usize)
    }

    /// The partition with this id, and its slot.
    pub fn by_id(&mut self, id: PartitionId) -> Option<(u32, &mut Partition)> {
        let slot = self.slot(id)?;
        Some((slot, &mut self.slots[slot as usize]))
    }

    /// All partitions with their slots, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Partition)> {
        self.slots.iter_mut().map(|(slot, partition)| (slot as u32, partition))
    }

    /// All partitions with their slots, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Partition)> {
        self.slots.iter().map(|(slot, partition)| (slot as u32, partition))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
