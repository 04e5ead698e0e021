//! The control core: metadata, and who may change it. Pure.

pub mod command;
pub mod image;
pub mod job;
