//! The wire: bytes ↔ views. Pure, and never panics on input.

pub mod error_code;
