//! What lies in a partition's directory, by name, and what of it is left over from something that was interrupted.

use std::collections::BTreeMap;

use crate::ids::Offset;
use crate::shard::action::FileKind;

/// A file as the directory lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written, ms since the epoch.
    pub modified_ms: i64,
}

/// Which file of a partition a name stands for; `None` for one that is none of them (kafka-spec §2.2).
pub fn parse_name(name: &str) -> Option<FileKind> {
    match name {
        "leader-epoch-checkpoint" => return Some(FileKind::LeaderEpochs),
        "partition.metadata" => return Some(FileKind::Metadata),
        _ => {}
    }
    let (digits, suffix) = name.split_at_checked(20)?;
    let offset = Offset(digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??);
    match suffix {
        ".log" => Some(FileKind::Log(offset)),
        ".index" => Some(FileKind::Index(offset)),
        ".timeindex" => Some(FileKind::TimeIndex(offset)),
        ".snapshot" => Some(FileKind::Snapshot(offset)),
        _ => None,
    }
}

/// The files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct SegmentFiles {
    pub len: u64,
    pub modified_ms: i64,
    /// Length of the offset index, if there is one.
    pub index: Option<u64>,
    /// Length of the time index, if there is one.
    pub time_index: Option<u64>,
}

/// A directory's files, sorted out.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub segments: BTreeMap<Offset, SegmentFiles>,
    /// Lengths of the producer snapshots.
    pub snapshots: BTreeMap<Offset, u64>,
    /// Length of leader-epoch-checkpoint.
    pub epochs: Option<u64>,
    /// Files to remove: of an interrupted write, deletion or compaction, and indexes without a log.
    pub leftovers: Vec<String>,
    /// Segments that compaction had finished but not yet put in place.
    pub swaps: Vec<(String, FileKind)>,
}

impl Listing {
    pub fn new(files: &[FoundFile]) -> Listing {
        let mut listing = Listing::default();
        // Logs come before their indexes, and a finished compaction replaces the log of the same name.
        files.iter().for_each(|file| listing.add_log(file));
        files.iter().for_each(|file| listing.add_swap(file));
        files.iter().for_each(|file| listing.add_other(file));
        listing.leftovers.sort();
        listing
    }

    fn add_log(&mut self, file: &FoundFile) {
        if let Some(FileKind::Log(base)) = parse_name(&file.name) {
            let files = SegmentFiles { len: file.len, modified_ms: file.modified_ms, ..SegmentFiles::default() };
            self.segments.insert(base, files);
        }
    }

    fn add_swap(&mut self, file: &FoundFile) {
        let Some(kind @ FileKind::Log(base)) = file.name.strip_suffix(".swap").and_then(parse_name) else { return };
        let files = SegmentFiles { len: file.len, modified_ms: file.modified_ms, ..SegmentFiles::default() };
        self.segments.insert(base, files);
        self.swaps.push((file.name.clone(), kind));
    }

    fn add_other(&mut self, file: &FoundFile) {
        match parse_name(&file.name) {
            Some(FileKind::Index(base)) => self.add_index(file, base, |files| &mut files.index),
            Some(FileKind::TimeIndex(base)) => self.add_index(file, base, |files| &mut files.time_index),
            Some(FileKind::Snapshot(at)) => _ = self.snapshots.insert(at, file.len),
            Some(FileKind::LeaderEpochs) => self.epochs = Some(file.len),
            Some(FileKind::Log(_) | FileKind::Metadata) => {}
            None if is_leftover(&file.name) => self.leftovers.push(file.name.clone()),
            None => {}
        }
    }

    fn add_index(&mut self, file: &FoundFile, base: Offset, field: fn(&mut SegmentFiles) -> &mut Option<u64>) {
        let swapped = self.swaps.iter().any(|&(_, kind)| kind == FileKind::Log(base));
        match self.segments.get_mut(&base) {
            Some(files) if !swapped => *field(files) = Some(file.len),
            _ => self.leftovers.push(file.name.clone()),
        }
    }

    /// The last segment whose base is at or below `offset`, else the first one.
    pub fn segment_of(&self, offset: Offset) -> Option<Offset> {
        let floor = self.segments.range(..=offset).next_back().or(self.segments.first_key_value());
        floor.map(|(&base, _)| base)
    }

    /// The segment after the one with this base.
    pub fn after(&self, base: Offset) -> Option<Offset> {
        self.segments.range(base.plus(1)..).next().map(|(&base, _)| base)
    }
}

fn is_leftover(name: &str) -> bool {
    let finished_index = name.strip_suffix(".swap").and_then(parse_name).is_some_and(|kind| !is_log(kind));
    finished_index || [".deleted", ".cleaned", ".tmp"].iter().any(|suffix| name.ends_with(suffix))
}

fn is_log(kind: FileKind) -> bool {
    matches!(kind, FileKind::Log(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        let found = |name: &&str| FoundFile { name: name.to_string(), len: 8, modified_ms: 0 };
        Listing::new(&names.iter().map(found).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_twenty_digits_and_a_known_suffix() {
        assert_eq!(parse_name("00000000000000000042.log"), Some(FileKind::Log(Offset(42))));
        assert_eq!(parse_name("00000000000000000042.txnindex"), None);
        assert_eq!(parse_name("0000000000000000042.log"), None);
        assert_eq!(parse_name("+0000000000000000042.log"), None);
        assert_eq!(parse_name("99999999999999999999.log"), None, "not an offset");
        assert_eq!(parse_name("ééééééééééé.log"), None);
    }

    #[test]
    fn leftovers_are_what_interrupted_work_leaves() {
        let listing = listing(&[
            "00000000000000000000.log",
            "00000000000000000000.index",
            "00000000000000000005.index",
            "00000000000000000007.log.deleted",
            "00000000000000000000.log.cleaned",
            "00000000000000000009.snapshot",
            "leader-epoch-checkpoint.tmp",
            "notes.txt",
        ]);
        let names =
            ["00000000000000000000.log.cleaned", "00000000000000000005.index", "00000000000000000007.log.deleted"];
        assert_eq!(listing.leftovers[..3], names);
        assert_eq!(listing.leftovers[3..], ["leader-epoch-checkpoint.tmp"]);
        assert_eq!(listing.segments[&Offset(0)].index, Some(8));
    }

    #[test]
    fn a_finished_compaction_takes_the_place_of_the_old_segment() {
        let listing = listing(&[
            "00000000000000000000.log",
            "00000000000000000000.log.swap",
            "00000000000000000000.index",
            "00000000000000000000.index.swap",
        ]);
        assert_eq!(listing.swaps, [("00000000000000000000.log.swap".to_owned(), FileKind::Log(Offset(0)))]);
        assert_eq!(listing.leftovers, ["00000000000000000000.index", "00000000000000000000.index.swap"]);
        assert_eq!(listing.segments[&Offset(0)].index, None);
    }
}
