//! Endings for the operator: one exit status and one remedy per reason, printed where it happens.

use std::fmt;

/// Why the process ends. The numbers are those of design.md §10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 2: a flag or a setting.
    Settings(String),
    /// 10: the kernel, or io_uring.
    Kernel(String),
    /// 11: no O_DIRECT on this file system.
    NoDirectIo(String),
    /// 12: a port cannot be had.
    Port(String),
    /// 13: another process holds the data directory.
    Locked(String),
    /// 14: the data directory belongs to another node or cluster, or to a newer format.
    ForeignDir(String),
    /// 15: the disk is full.
    DiskFull(String),
    /// 16: the data directory is corrupt or has failed.
    DirFailed(String),
    /// 17: the metadata is lost.
    MetadataLost(String),
}

impl Reason {
    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Reason::Settings(_) => 2,
            Reason::Kernel(_) => 10,
            Reason::NoDirectIo(_) => 11,
            Reason::Port(_) => 12,
            Reason::Locked(_) => 13,
            Reason::ForeignDir(_) => 14,
            Reason::DiskFull(_) => 15,
            Reason::DirFailed(_) => 16,
            Reason::MetadataLost(_) => 17,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Settings(text)
            | Reason::Kernel(text)
            | Reason::NoDirectIo(text)
            | Reason::Port(text)
            | Reason::Locked(text)
            | Reason::ForeignDir(text)
            | Reason::DiskFull(text)
            | Reason::DirFailed(text)
            | Reason::MetadataLost(text) => f.write_str(text),
        }
    }
}
