//! Directories that are no partition of ours, or not any more: set aside, kept for a while, removed.
//!
//! A directory whose topic the metadata does not know is renamed and kept for 24 hours, never removed at once: should
//! the metadata be what is wrong, the data is still there. One that a deletion has renamed before a crash goes at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::control::image::Image;
use crate::control::job::{FoundDir, Job};
use crate::control::prng::Prng;
use crate::control::{Action, Actions};
use crate::ids::{Errno, MonoMicros, Now, PartitionId, PartitionIndex};
use crate::shard::action::PartitionDir;

/// How long a stray directory is kept, in ms.
pub const STRAY_KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// Whether the name of a directory below a data directory is one that a partition has or had, so that it is ours to
/// rename or remove: `<topic>-<partition>`, with or without the suffix of a deletion or a stray.
pub fn is_partition_dir_name(name: &str) -> bool {
    split_dir_name(name).is_some() || name.ends_with(DELETE) || name.ends_with(STRAY)
}

/// Directories that are set aside or about to be.
#[derive(Debug)]
pub struct Strays {
    prng: Prng,
    /// What the start has found, until it is sorted.
    found: Vec<FoundDir>,
    /// Renames in flight: where to, and what happens then.
    renaming: BTreeMap<PartitionDir, (Arc<str>, Fate)>,
    /// Strays and when their time is over.
    kept: Vec<(MonoMicros, PartitionDir)>,
    /// Now plus [`STRAY_KEPT_MS`], as of the last call that knew the time.
    keep_until: MonoMicros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Remove,
    Keep,
}

impl Strays {
    /// With the directories that the start has found and the seed of the random part of names.
    pub fn new(found: Vec<FoundDir>, seed: u64) -> Strays {
        Strays {
            prng: Prng::new(seed),
            found,
            renaming: BTreeMap::new(),
            kept: Vec::new(),
            keep_until: MonoMicros::default(),
        }
    }

    /// Sorts what the start has found: the directories of partitions that the metadata knows are the result, all
    /// others are set aside or removed.
    pub fn sort(&mut self, image: &Image, now: Now, out: &mut Actions) -> BTreeMap<PartitionId, PartitionDir> {
        self.keep_until = now.mono.plus_millis(STRAY_KEPT_MS);
        let mut ours = BTreeMap::new();
        for found in std::mem::take(&mut self.found) {
            if found.dir.name.ends_with(DELETE) {
                out.push(Action::Job(Job::Remove(found.dir)));
            } else if found.dir.name.ends_with(STRAY) {
                self.keep(found, now);
            } else {
                match partition_of(&found, image).filter(|id| !ours.contains_key(id)) {
                    Some(id) => {
                        ours.insert(id, found.dir);
                    }
                    None => self.set_aside(found.dir, out),
                }
            }
        }
        ours
    }

    /// Renames the directory of a deleted partition, then removes it.
    pub fn delete(&mut self, dir: PartitionDir, out: &mut Actions) {
        self.rename(dir, DELETE, Fate::Remove, out);
    }

    /// Directories whose rename is in flight.
    pub fn renaming(&self) -> impl Iterator<Item = &PartitionDir> {
        self.renaming.keys()
    }

    /// A rename is done.
    pub fn on_renamed(&mut self, from: &PartitionDir, result: Result<(), Errno>, out: &mut Actions) {
        let Some((name, fate)) = self.renaming.remove(from) else { return };
        let dir = PartitionDir { dir: from.dir, name };
        match (result, fate) {
            (Ok(()), Fate::Remove) => out.push(Action::Job(Job::Remove(dir))),
            (Ok(()), Fate::Keep) => self.kept.push((self.keep_until, dir)),
            (Err(errno), _) => tracing::error!(dir = %from.name, %errno, "a directory could not be renamed"),
        }
    }

    /// Removes the strays whose time is over.
    pub fn on_deadline(&mut self, now: MonoMicros, out: &mut Actions) {
        self.keep_until = now.plus_millis(STRAY_KEPT_MS);
        let (over, kept) = std::mem::take(&mut self.kept).into_iter().partition(|(until, _)| *until <= now);
        self.kept = kept;
        let over: Vec<(MonoMicros, PartitionDir)> = over;
        out.extend(over.into_iter().map(|(_, dir)| Action::Job(Job::Remove(dir))));
    }

    /// When [`Strays::on_deadline`] is wanted.
    pub fn deadline(&self) -> Option<MonoMicros> {
        self.kept.iter().map(|(until, _)| *until).min()
    }

    fn keep(&mut self, found: FoundDir, now: Now) {
        let age_ms = u64::try_from(now.wall.0.saturating_sub(found.changed_ms)).unwrap_or(0);
        let left_ms = STRAY_KEPT_MS.saturating_sub(age_ms);
        self.kept.push((now.mono.plus_millis(left_ms), found.dir));
    }

    fn set_aside(&mut self, dir: PartitionDir, out: &mut Actions) {
        tracing::warn!(
            dir = dir.dir.0,
            name = %dir.name,
            "the metadata does not know this directory's topic: it is set aside and removed in 24 hours"
        );
        self.rename(dir, STRAY, Fate::Keep, out);
    }

    fn rename(&mut self, from: PartitionDir, suffix: &str, fate: Fate, out: &mut Actions) {
        let unique: String = self.prng.uuid().0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut kept_len = from.name.len().min(NAME_LEN_MAX - 1 - unique.len() - suffix.len());
        while !from.name.is_char_boundary(kept_len) {
            kept_len -= 1;
        }
        let to: Arc<str> = format!("{}.{unique}{suffix}", &from.name[..kept_len]).into();
        self.renaming.insert(from.clone(), (to.clone(), fate));
        out.push(Action::Job(Job::Rename { from, to }));
    }
}

const DELETE: &str = "-delete";
const STRAY: &str = "-stray";
/// Longest name of a directory in bytes (`NAME_MAX`).
const NAME_LEN_MAX: usize = 255;

/// The partition of the metadata that a directory belongs to: name and topic id have to agree.
fn partition_of(found: &FoundDir, image: &Image) -> Option<PartitionId> {
    let (topic_name, index) = split_dir_name(&found.dir.name)?;
    let id = PartitionId { topic: found.topic?, index };
    image.partition(id)?;
    (*image.topic(id.topic)?.name == *topic_name).then_some(id)
}

/// Topic and partition, split at the last '-'; `None` when it is no such name.
fn split_dir_name(name: &str) -> Option<(&str, PartitionIndex)> {
    let (topic, index) = name.rsplit_once('-')?;
    let digits = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (index == "0" || !index.starts_with('0'));
    let index = index.parse().ok().filter(|_| canonical && !topic.is_empty())?;
    Some((topic, PartitionIndex(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_partitions_are_ours_to_touch() {
        for name in ["t-0", "my-topic-12", "t-0.0123-delete", "t-0.0123-stray"] {
            assert!(is_partition_dir_name(name), "{name}");
        }
        for name in ["lost+found", ".pinion", "t", "-1", "t-", "t-01", "t-x", "t-0.0123-future"] {
            assert!(!is_partition_dir_name(name), "{name}");
        }
    }

    #[test]
    fn a_long_name_is_cut_to_what_a_file_system_takes() {
        let mut strays = Strays::new(vec![], 1);
        let mut out = Vec::new();
        let dir = PartitionDir { dir: Default::default(), name: format!("{}-0", "x".repeat(249)).into() };
        strays.delete(dir, &mut out);
        let Some(Action::Job(Job::Rename { to, .. })) = out.first() else { panic!("a rename in {out:?}") };
        assert_eq!(to.len(), NAME_LEN_MAX);
        assert!(to.ends_with(DELETE));
    }
}
