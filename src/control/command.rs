//! What may be asked of the controller, and what it answers.

/// One wish to change the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A block of producer ids.
    AllocateProducerIds,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// The first id of the block, and how many it holds.
    ProducerIds {
        /// First id.
        first: i64,
        /// Count of ids.
        count: u32,
    },
}
