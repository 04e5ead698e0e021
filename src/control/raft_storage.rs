//! The Raft log in memory, as the `raft` crate wants to read it. What is in here has been handed to the disk, and
//! becomes part of a quorum only when the disk has answered (`Consensus::logged`).

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::control::raft_log::{LogEntry, Recovery};

/// Entries behind the last snapshot, and that snapshot's place.
pub struct RaftStorage {
    hard_state: HardState,
    conf_state: ConfState,
    /// Index and term of the last entry that is not in `entries` any more.
    base: (u64, u64),
    entries: Vec<Entry>,
}

impl RaftStorage {
    /// What a start has found.
    ///
    /// # Panics
    /// Without a snapshot: a cluster begins with its seed.
    pub fn new(recovery: &Recovery) -> RaftStorage {
        let snapshot = recovery.snapshot.as_ref().expect("a cluster begins with its seed snapshot");
        let found = recovery.hard_state;
        let hard_state =
            HardState { term: found.term.0, vote: found.vote, commit: found.commit.0, ..HardState::default() };
        RaftStorage {
            hard_state,
            conf_state: ConfState::from((snapshot.voters.clone(), snapshot.learners.clone())),
            base: (snapshot.index.0, snapshot.term.0),
            entries: recovery.entries.iter().map(to_raft).collect(),
        }
    }

    /// Adds entries, which replace those from the first one's index on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let kept = first.index.checked_sub(self.base.0 + 1).expect("entries come behind the snapshot") as usize;
        assert!(kept <= self.entries.len(), "entry {} behind {} entries", first.index, self.entries.len());
        self.entries.truncate(kept);
        self.entries.extend_from_slice(entries);
    }

    /// Drops the entries up to `index`, which a snapshot holds now.
    pub fn compact(&mut self, index: u64) {
        if index > self.base.0 {
            let gone = (index - self.base.0) as usize;
            self.base = (index, self.entries[gone - 1].term);
            self.entries.drain(..gone);
        }
    }

    /// Raft ids of the voters.
    pub fn voters(&self) -> &[u64] {
        &self.conf_state.voters
    }

    /// Raft ids of the learners.
    pub fn learners(&self) -> &[u64] {
        &self.conf_state.learners
    }

    fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }
}

impl Storage for RaftStorage {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last() + 1, "entries up to {high} asked, {} there", self.last());
        let first = self.base.0 + 1;
        let mut entries = self.entries[(low - first) as usize..(high - first) as usize].to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> Result<u64> {
        match index.checked_sub(self.base.0) {
            None => Err(Error::Store(StorageError::Compacted)),
            Some(0) => Ok(self.base.1),
            Some(behind) => self
                .entries
                .get(behind as usize - 1)
                .map(|entry| entry.term)
                .ok_or(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> Result<Snapshot> {
        // Snapshots go to other voters in chunks of our own; the crate never carries one.
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

/// Our form of an entry.
pub fn from_raft(entry: &Entry) -> LogEntry {
    LogEntry { index: crate::ids::LogIndex(entry.index), term: crate::ids::Term(entry.term), data: entry.data.to_vec() }
}

fn to_raft(entry: &LogEntry) -> Entry {
    Entry { index: entry.index.0, term: entry.term.0, data: entry.data.clone().into(), ..Entry::default() }
}
