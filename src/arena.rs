//! The tail memory of a core: 2 MiB chunks, size-classed blocks, counted leases. Accounting only; the memory itself is
//! handed in as a region.

use crate::ids::CoreId;

/// The right to read some bytes of an arena, of this core or another. Not copyable: each one is given back exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease {
    core: CoreId,
    block: u32,
    at: u64,
    len: u32,
}

impl Lease {
    /// Whose arena the bytes lie in.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Byte position in that core's region (and memfd).
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Count of bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it covers no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What the shell must do for the arena's memory. No completion: it happens in order with the writes that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkChange {
    /// Chunk `index` will be used: populate, collapse, register.
    Take {
        /// Index of the chunk in the region.
        index: u32,
    },
    /// No block, lease or disk operation names chunk `index`: give its memory back.
    Drop {
        /// Index of the chunk in the region.
        index: u32,
    },
}
