//! Which leader epoch wrote which part of the log (KIP-101, KIP-279; kafka-spec §2.5 and §4.5).
//!
//! Each entry says that an epoch's records begin at its start offset; it ends where the next one begins. Followers find
//! by it where their log parts from the leader's, and clients whether they read what was truncated later. The file
//! `leader-epoch-checkpoint` is Kafka's.

use crate::ids::{LeaderEpoch, Offset};

/// Leader epochs of one partition, epochs and start offsets both ascending.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaderEpochs {
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl LeaderEpochs {
    /// From entries that recovery found.
    ///
    /// # Panics
    /// When they do not ascend.
    pub fn recovered(entries: &[(LeaderEpoch, Offset)]) -> LeaderEpochs {
        let epochs = LeaderEpochs { entries: entries.to_vec() };
        epochs.invariants();
        epochs
    }

    /// All entries, ascending.
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// Records of `epoch` begin at `start`. An epoch at or above it and any that begins at or behind `start` is dropped:
    /// one without data is replaced by the next. Nothing changes when the latest epoch is `epoch` and begins before.
    /// Returns whether anything changed.
    ///
    /// # Panics
    /// On a negative epoch or offset.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        assert!(LeaderEpoch(0) <= epoch && Offset::ZERO <= start, "{epoch:?} assigned at {start:?}");
        if self.entries.last().is_some_and(|&(last, at)| last == epoch && at <= start) {
            return false;
        }
        while self.entries.pop_if(|&mut (last, at)| epoch <= last || start <= at).is_some() {}
        self.entries.push((epoch, start));
        self.invariants();
        true
    }

    /// The log was cut to end at `end`. Returns whether anything changed.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let kept = self.entries.partition_point(|&(_, start)| start < end);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// The log begins at `log_start` now: epochs that end below it go, and the one that holds it begins there. Returns
    /// whether anything changed.
    pub fn truncate_from_start(&mut self, log_start: Offset) -> bool {
        let after = self.entries.partition_point(|&(_, start)| start <= log_start);
        let Some(floor) = after.checked_sub(1) else { return false };
        let changed = self.entries[floor].1 < log_start;
        self.entries.drain(..floor);
        self.entries[0].1 = log_start;
        changed
    }

    /// Forgets all: the log starts anew.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Where `epoch` ends in a log that ends at `log_end`: the largest epoch known that is not above it, and the offset
    /// where the next one begins. `None` is Kafka's "undefined" (−1, −1): nothing is known, or `epoch` is from the
    /// future. O(log epochs).
    pub fn end_offset_for(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        if self.latest() == Some(epoch) {
            return Some((epoch, log_end));
        }
        let above = self.entries.partition_point(|&(known, _)| known <= epoch);
        let &(_, end) = self.entries.get(above).filter(|_| LeaderEpoch(0) <= epoch)?;
        let floor = above.checked_sub(1).map_or(epoch, |floor| self.entries[floor].0);
        Some((floor, end))
    }

    /// The epoch of the record at `offset`, if one is known. O(log epochs).
    pub fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|&(_, start)| start <= offset);
        after.checked_sub(1).map(|floor| self.entries[floor].0)
    }

    /// Where the log of a reader parts from this one, which ends at `log_end`: the reader has records up to
    /// `fetch_offset`, the last one of epoch `last_fetched`, −1 when it does not say. `Ok(None)` when the reader's log is
    /// a prefix of this one (KIP-595).
    ///
    /// # Errors
    /// When this log knows nothing of that epoch: the reader's offset is out of range.
    pub fn divergence(
        &self,
        last_fetched: LeaderEpoch,
        fetch_offset: Offset,
        log_end: Offset,
    ) -> Result<Option<(LeaderEpoch, Offset)>, EpochUndefined> {
        if last_fetched < LeaderEpoch(0) {
            return Ok(None);
        }
        let (epoch, end) = self.end_offset_for(last_fetched, log_end).ok_or(EpochUndefined(last_fetched))?;
        let diverges = epoch < last_fetched || end < fetch_offset;
        Ok(diverges.then_some((epoch, end)))
    }

    /// The contents of `leader-epoch-checkpoint`.
    pub fn encode(&self) -> String {
        let mut text = format!("{VERSION}\n{}\n", self.entries.len());
        for (epoch, start) in &self.entries {
            text.push_str(&format!("{epoch} {start}\n"));
        }
        text
    }

    /// Reads `leader-epoch-checkpoint`.
    ///
    /// # Errors
    /// Names the line that is wrong. The remedy is to take the epochs from the batches.
    pub fn decode(text: &[u8]) -> Result<LeaderEpochs, EpochsFault> {
        let text = std::str::from_utf8(text).map_err(|_| EpochsFault::NotText)?;
        let mut lines = (1..).zip(text.lines());
        let mut header = |line: usize| match lines.next() {
            Some((_, text)) => text.trim().parse::<i64>().map_err(|_| EpochsFault::Line(line)),
            None => Err(EpochsFault::Line(line)),
        };
        let (version, count) = (header(1)?, header(2)?);
        if version != VERSION {
            return Err(EpochsFault::Version(version));
        }
        let mut epochs = LeaderEpochs::default();
        for (line, text) in lines {
            let entry = parse_entry(text).filter(|&entry| epochs.may_follow(entry));
            epochs.entries.push(entry.ok_or(EpochsFault::Line(line))?);
        }
        if i64::try_from(epochs.entries.len()) != Ok(count) {
            return Err(EpochsFault::Count { promised: count, found: epochs.entries.len() });
        }
        Ok(epochs)
    }

    fn may_follow(&self, (epoch, start): (LeaderEpoch, Offset)) -> bool {
        let after = |&(last, at): &(LeaderEpoch, Offset)| last < epoch && at < start;
        LeaderEpoch(0) <= epoch && Offset::ZERO <= start && self.entries.last().is_none_or(after)
    }

    /// # Panics
    /// When epochs or start offsets do not ascend.
    pub fn invariants(&self) {
        let ascends = |pair: &[(LeaderEpoch, Offset)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        assert!(self.entries.windows(2).all(ascends), "leader epochs out of order: {:?}", self.entries);
    }
}

const VERSION: i64 = 0;

fn parse_entry(line: &str) -> Option<(LeaderEpoch, Offset)> {
    let (epoch, start) = line.split_once(' ')?;
    Some((LeaderEpoch(epoch.parse().ok()?), Offset(start.parse().ok()?)))
}

/// A log knows no records of an epoch or of one below it, or the epoch is from the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader epoch {0} is not known here")]
pub struct EpochUndefined(pub LeaderEpoch);

/// Why `leader-epoch-checkpoint` cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochsFault {
    /// It is not UTF-8.
    #[error("not a text file")]
    NotText,
    /// A line that does not say what belongs there, or does not ascend.
    #[error("line {0} is not valid")]
    Line(usize),
    /// Written by another version.
    #[error("version {0}")]
    Version(i64),
    /// Lines are missing or too many.
    #[error("{promised} entries promised, {found} found")]
    Count {
        /// What line 2 says.
        promised: i64,
        /// What follows it.
        found: usize,
    },
}

#[cfg(test)]
mod tests;
