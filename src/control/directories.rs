//! Which data directories this broker had, and whether all of them are here. A disk that was not mounted shows an empty
//! directory in its place: taken for a new one, it would be given what its partitions held anew, without a record.
//!
//! The metadata log knows them from the registrations: each names the directories of the start that it is of, and those
//! before that were not here and not given up.

use crate::control::ControlConfig;
use crate::control::raft_log::{Recovery, Snapshot};
use crate::control::records::{self, Record};
use crate::control::start::unreadable;
use crate::fatal::Reason;
use crate::ids::{BrokerId, TopicId};

/// Compares the directories of this start with those of the starts before. Those that are not here join the registration,
/// so that later starts look for them, too. Returns whether there are such that are not even named any more: what has no
/// directory may lie there.
///
/// # Errors
/// When one is missing while another is new: most likely they are one place, whose disk is not mounted.
pub fn account(config: &mut ControlConfig, recovery: &Recovery, formed: &Snapshot) -> Result<bool, Reason> {
    let before = registered_before(config.registration.id, recovery, formed)?;
    let here = &mut config.registration.directories;
    let is_gone = |id: &TopicId| !id.is_none() && !here.contains(id) && !config.dirs_lost.contains(id);
    let gone: Vec<TopicId> = before.iter().copied().filter(is_gone).collect();
    // One that cannot be read has no id, and may be any of those.
    let unread = here.iter().filter(|id| id.is_none()).count();
    let unnamed = gone.get(unread..).unwrap_or_default();
    let is_new = |id: &TopicId| !id.is_none() && !before.contains(id);
    let new = here.iter().position(is_new).and_then(|at| config.dirs.get(at));
    if let (Some(id), Some(new)) = (unnamed.first(), new) {
        let path = &new.path;
        return Err(Reason::DirFailed(format!(
            "{path} was empty, and the data directory with id {id}, which this broker had, is not there; mount the disk \
             of {path}, or say that its contents are lost for good: --set log.dirs.lost={id}"
        )));
    }
    for id in unnamed {
        tracing::error!(%id, "a data directory is not named any more: partitions that may lie there are offline");
    }
    let is_unnamed = !unnamed.is_empty();
    let mut gone = gone.into_iter();
    here.iter_mut().filter(|id| id.is_none()).zip(gone.by_ref()).for_each(|(id, known)| *id = known);
    here.extend(gone);
    Ok(is_unnamed)
}

/// What the newest registration of this broker says; nothing when there is none. Looks from the end of the log, where
/// the last start's is not far.
fn registered_before(node: BrokerId, recovery: &Recovery, formed: &Snapshot) -> Result<Vec<TopicId>, Reason> {
    let entries = recovery.entries.iter().rev().map(|entry| (entry.index, &entry.data));
    for (index, data) in entries.chain([(formed.index, &formed.data)]).filter(|(_, data)| !data.is_empty()) {
        let records = records::decode(data).map_err(|error| unreadable(index, error))?;
        let registered = records.into_iter().rev().find_map(|record| match record {
            Record::BrokerRegistered { id, directories, .. } if id == node => Some(directories),
            _ => None,
        });
        if let Some(directories) = registered {
            return Ok(directories);
        }
    }
    Ok(Vec::new())
}
