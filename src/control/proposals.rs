//! Commands between their decision and their answer.
//!
//! An answer leaves when its entry is committed, the partitions that it is about are settled on this broker, and every
//! core has been sent the metadata that says so. A refusal may rest on an entry that is not committed yet, so it waits
//! for the entries before it too.

use std::collections::VecDeque;

use crate::control::command::{CommandResult, Refusal};
use crate::control::hosting::Hosting;
use crate::ids::{BrokerEpoch, LogIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::shard::message::Origin;

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A client, by way of a data core.
    Core(Origin),
    /// The control core itself: its broker's registration.
    Own,
}

/// An answer that waits.
#[derive(Debug)]
pub struct Proposal {
    /// The entry that has to be committed.
    pub index: LogIndex,
    /// Who asked.
    pub asker: Asker,
    /// What is said then.
    pub result: CommandResult,
}

/// The answers that wait, in the order of their entries.
#[derive(Debug, Default)]
pub struct Proposals {
    uncommitted: VecDeque<Proposal>,
    /// Committed, but their partitions are on their way.
    unsettled: Vec<Proposal>,
}

impl Proposals {
    /// Queues an answer.
    ///
    /// # Panics
    /// When its entry lies before that of the last one.
    pub fn push(&mut self, proposal: Proposal) {
        let last = self.uncommitted.back().map_or(LogIndex(0), |last| last.index);
        assert!(last <= proposal.index, "an answer for entry {} behind one for {last}", proposal.index);
        self.uncommitted.push_back(proposal);
    }

    /// Entries up to `applied` are committed and applied.
    pub fn on_applied(&mut self, applied: LogIndex) {
        while self.uncommitted.front().is_some_and(|proposal| proposal.index <= applied) {
            let mut proposal = self.uncommitted.pop_front().expect("there is a front");
            if proposal.result == CommandResult::Registered(BrokerEpoch(-1)) {
                proposal.result = CommandResult::Registered(BrokerEpoch(proposal.index.0 as i64));
            }
            self.unsettled.push(proposal);
        }
    }

    /// Takes the answers that can leave, in order.
    pub fn take_settled(&mut self, hosting: &Hosting) -> Vec<Proposal> {
        let (mut ready, unsettled): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unsettled).into_iter().partition(|proposal| proposal.is_settled(hosting));
        self.unsettled = unsettled;
        for proposal in &mut ready {
            report_trouble(&mut proposal.result, hosting);
        }
        ready
    }

    /// Whether [`Proposals::take_settled`] would give any.
    pub fn has_settled(&self, hosting: &Hosting) -> bool {
        self.unsettled.iter().any(|proposal| proposal.is_settled(hosting))
    }
}

impl Proposal {
    fn is_settled(&self, hosting: &Hosting) -> bool {
        topics_of(&self.result).all(|topic| hosting.is_settled(topic))
    }
}

/// The topics whose partitions an answer waits for.
fn topics_of(result: &CommandResult) -> Box<dyn Iterator<Item = TopicId> + '_> {
    match result {
        CommandResult::Created(outcomes) => Box::new(outcomes.iter().flatten().map(|created| created.id)),
        CommandResult::Deleted(outcomes) => Box::new(outcomes.iter().flatten().map(|deleted| deleted.id)),
        CommandResult::Altered(outcomes) => Box::new(outcomes.iter().flatten().copied()),
        CommandResult::Refused(_) | CommandResult::ProducerIds { .. } | CommandResult::Registered(_) => {
            Box::new(std::iter::empty())
        }
    }
}

/// A topic that exists but has no place on the disk is not what the client hoped for.
fn report_trouble(result: &mut CommandResult, hosting: &Hosting) {
    if let CommandResult::Created(outcomes) = result {
        for outcome in outcomes {
            let trouble = outcome.as_ref().ok().and_then(|created| hosting.trouble(created.id));
            if let Some(errno) = trouble {
                let message = format!("The topic is created, but its directories cannot be made: {errno}");
                *outcome = Err(Refusal::new(ErrorCode::KAFKA_STORAGE_ERROR, message));
            }
        }
    }
}
