//! The `pinion` binary.

fn main() {}
