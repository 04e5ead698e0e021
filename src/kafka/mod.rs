//! The wire: bytes ↔ views and messages. Pure, bounded, and never a panic on any input.

pub mod api;
pub mod batch;
pub mod batch_builder;
pub mod compression;
pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod fuzz;
pub mod produce;
pub mod record;
pub mod schema;
mod topics;

pub use topics::{Element, Elements, TopicView};
