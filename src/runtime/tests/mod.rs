//! The shell of a data core against real files and real sockets.

pub mod core;
mod disk;
mod jobs;
mod mail;
mod net;
