//! The data core: all logic of connections, produce, fetch and partitions, as a function of (state, event, now).

pub mod action;
pub mod event;
pub mod message;
