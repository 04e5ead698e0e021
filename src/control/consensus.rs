//! Adapter over the `raft` crate: proposals in, writes and committed entries out.
//!
//! The crate decides, our loop acts: what it is `Ready` with goes to the disk first, as one [`Append`], and whatever
//! depends on that leaves only after [`Consensus::logged`]. One write is in flight at a time; what is proposed
//! meanwhile goes into the next one, so that commands share their syncs. The crate never times an election: its
//! timeouts come from a global random generator, so ours call [`Consensus::campaign`].

use raft::{Config, RawNode, StateRole};

use crate::control::raft_log::{Append, HardState, LogEntry, LogFile, LogWriter, Recovery, Snapshot};
use crate::control::raft_storage::{RaftStorage, from_raft};
use crate::ids::{LogIndex, Term};

/// The Raft state machine of this node.
pub struct Consensus {
    node: RawNode<RaftStorage>,
    writer: LogWriter,
    /// Number of the `Ready` whose write is in flight.
    in_flight: Option<u64>,
    /// A hard state that nothing waits for (a new commit index): it goes with the next write.
    lazy_hard_state: Option<HardState>,
    /// Indexes of the snapshots on disk, oldest first.
    snapshots: Vec<LogIndex>,
    /// The snapshot that is being written.
    saving: Option<LogIndex>,
}

/// What has to happen now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// A write; [`Consensus::logged`] answers it.
    pub append: Option<Append>,
    /// Entries that are committed, in order; to be applied at once.
    pub committed: Vec<LogEntry>,
}

/// Only a leader can propose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeader;

impl Consensus {
    /// Goes on from what a start has found. Nothing is led yet.
    ///
    /// # Panics
    /// Without a snapshot in `recovery`, or with raft id 0.
    pub fn new(raft_id: u64, recovery: &Recovery) -> Consensus {
        let storage = RaftStorage::new(recovery);
        let applied = recovery.snapshot.as_ref().map_or(0, |snapshot| snapshot.index.0);
        let config = Config {
            id: raft_id,
            applied,
            // A range of one value, beyond any tick count: elections are timed by us.
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 1,
            min_election_tick: NEVER_TICKS,
            max_election_tick: NEVER_TICKS + 1,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, storage, &logger).expect("the configuration above is valid");
        Consensus {
            node,
            writer: LogWriter::new(recovery),
            in_flight: None,
            lazy_hard_state: None,
            snapshots: recovery.snapshots.clone(),
            saving: None,
        }
    }

    /// Stands for election; a single voter wins at once.
    pub fn campaign(&mut self) {
        // The crate refuses only while committed changes of the voter set are not applied; the timer tries again.
        if let Err(refused) = self.node.campaign() {
            tracing::warn!(%refused, "no campaign now");
        }
    }

    /// Whether this node leads. What it leads is committed only once the entry of its own term is.
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// The present term.
    pub fn term(&self) -> Term {
        Term(self.node.raft.term)
    }

    /// How many voters there are.
    pub fn voter_count(&self) -> usize {
        self.node.store().voters().len()
    }

    /// Appends an entry; its index is final once it is committed in this term.
    ///
    /// # Errors
    /// When this node does not lead.
    pub fn propose(&mut self, data: Vec<u8>) -> Result<LogIndex, NotLeader> {
        self.node.propose(Vec::new(), data).map_err(|_| NotLeader)?;
        Ok(LogIndex(self.node.raft.raft_log.last_index()))
    }

    /// What has to happen now. To be called until nothing more comes, after every call that changes something.
    pub fn step(&mut self) -> Step {
        let mut step = Step::default();
        while self.in_flight.is_none() && self.node.has_ready() {
            self.take_ready(&mut step);
        }
        step
    }

    /// The write of the last [`Step::append`] is durable.
    ///
    /// # Panics
    /// When none is in flight.
    pub fn logged(&mut self) {
        let number = self.in_flight.take().expect("a write of the Raft log is in flight");
        self.node.on_persist_ready(number);
    }

    /// Begins a snapshot when the log has grown enough and none is being written. `data` makes the image's records.
    pub fn maybe_snapshot(&mut self, applied: LogIndex, data: impl FnOnce() -> Vec<u8>) -> Option<Snapshot> {
        if self.saving.is_some() || !self.writer.is_snapshot_due() || Some(&applied) == self.snapshots.last() {
            return None;
        }
        self.writer.begin_snapshot();
        self.saving = Some(applied);
        let storage = self.node.store();
        let term = raft::Storage::term(storage, applied.0).expect("what is applied is in the log");
        let (voters, learners) = (storage.voters().to_vec(), storage.learners().to_vec());
        Some(Snapshot { index: applied, term: Term(term), voters, learners, data: data() })
    }

    /// The snapshot is durable: what nobody needs any more, as indexes of snapshots and numbers of log files. The
    /// generation before this one is kept, with the log behind it.
    ///
    /// # Panics
    /// When no snapshot of this index is being written.
    pub fn snapshot_saved(&mut self, index: LogIndex) -> (Vec<LogIndex>, Vec<u64>) {
        assert_eq!(self.saving.take(), Some(index), "the snapshot that was being written");
        self.snapshots.push(index);
        let older = self.snapshots.len() - 2;
        let gone: Vec<LogIndex> = self.snapshots.drain(..older).collect();
        self.node.mut_store().compact(index.0);
        (gone, self.writer.release(self.snapshots[0]))
    }

    /// The log files that exist.
    pub fn log_files(&self) -> &[LogFile] {
        self.writer.files()
    }

    fn take_ready(&mut self, step: &mut Step) {
        let mut ready = self.node.ready();
        step.committed.extend(ready.take_committed_entries().iter().map(from_raft));
        let entries = ready.take_entries();
        self.node.mut_store().append(&entries);
        if let Some(hard_state) = ready.hs() {
            let (term, commit) = (Term(hard_state.term), LogIndex(hard_state.commit));
            self.lazy_hard_state = Some(HardState { term, vote: hard_state.vote, commit });
        }
        if ready.must_sync() {
            let entries: Vec<LogEntry> = entries.iter().map(from_raft).collect();
            step.append = Some(self.writer.append(self.lazy_hard_state.take(), &entries));
            self.in_flight = Some(ready.number());
        }
        let number = ready.number();
        self.node.advance_append_async(ready);
        if self.in_flight.is_none() {
            self.node.on_persist_ready(number);
        }
        self.node.advance_apply();
    }
}

/// 20 ms each: 200 ms without contact to a quorum and a leader steps down (design.md §7).
const ELECTION_TICKS: usize = 10;
const NEVER_TICKS: usize = 1 << 40;
/// Bytes of entries in one message to another voter.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
