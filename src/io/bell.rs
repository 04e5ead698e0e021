//! A doorbell: an eventfd that wakes a thread which sleeps in its ring, its poll, or a read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::fatal::Reason;

/// The doorbell of one thread. Any thread may ring it.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    /// `Reason::Kernel` when no descriptor is left.
    pub fn new() -> Result<Bell, Reason> {
        eventfd(0, EventfdFlags::CLOEXEC)
            .map(Bell)
            .map_err(|error| Reason::Kernel(format!("eventfd: {error}; raise LimitNOFILE (ulimit -n)")))
    }

    /// Wakes its owner, now or at its next wait.
    pub fn ring(&self) {
        let rung = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        assert!(rung.is_ok(), "eventfd write: {rung:?}");
    }

    /// Sleeps until it is rung; at once when it was. For threads without a ring of their own.
    pub fn wait(&self) {
        let mut count = [0u8; 8];
        while rustix::io::read(&self.0, &mut count) == Err(rustix::io::Errno::INTR) {}
    }

    /// Makes it silent again after a poll said that it was rung. Sleeps when it was not.
    pub fn clear(&self) {
        self.wait();
    }

    /// For a poll; readable once it was rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
