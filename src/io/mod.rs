//! The only syscalls of the data path. Everything here executes what `shard::action` asks for and reports it as
//! `shard::event` has it; nothing here decides. Each data core's thread owns one of each of these, except the
//! [`file::Registry`], which all share because any core may send any core's sealed file.
//!
//! Two rules keep it sound. **The kernel owns what it may touch**: whatever a submission names (a lease, a buffer, a
//! path, a file descriptor) sits in a table entry that its last completion alone removes. **The ring closes before
//! memory goes**: [`ring::Ring`] waits for its last completion when it is dropped, and the arena's mapping is never
//! unmapped.

#![allow(unsafe_code)]

pub mod bell;
pub mod clock;
pub mod cpu;
pub mod crowd;
pub mod device;
pub mod disk;
pub mod file;
pub mod job;
pub mod listen;
pub mod memory;
pub mod op;
pub mod path;
pub mod plan;
pub mod ring;
pub mod send_path;
pub mod sending;
pub mod small_pool;
pub mod socket;

use std::sync::Arc;

use crate::arena::Regions;
use crate::ids::{CoreId, MonoMicros};
use crate::shard::event::Event;

/// What all parts of one core's IO work with. The ring comes first, because it must be dropped first.
pub struct Io {
    /// The ring.
    pub ring: ring::Ring,
    /// Which core this is.
    pub core: CoreId,
    /// The memory of this core's arena.
    pub memory: memory::Memory,
    /// The memory of all cores' arenas, which sends may name.
    pub regions: Arc<Regions>,
    /// Open files.
    pub files: file::Files,
    /// When this turn began.
    pub now: MonoMicros,
    /// What has happened and is not handled yet.
    pub events: Vec<Event>,
}
