//! The wire: bytes ↔ views and messages. Pure, bounded, and never a panic on any input.

pub mod api;
pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod fuzz;
pub mod produce;
pub mod schema;
mod topics;

pub use topics::{Element, Elements, TopicView};
