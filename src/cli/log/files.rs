//! What a path stands for: a data directory, a partition's directory, or one of their files.

use std::fs;
use std::path::{Path, PathBuf};

use super::Stop;
use crate::cli::Failure;
use crate::log::recovery::parse_name;
use crate::log::text_files::{HIGH_WATERMARKS, LOG_STARTS, PARTITION_METADATA, RECOVERY_POINTS};
use crate::shard::action::FileKind;

/// What a path stands for.
pub(super) enum Target {
    /// A data directory: the directories of its partitions, and its own files.
    DataDir { partitions: Vec<PathBuf>, files: Vec<LogFile> },
    /// The directory of a partition, with its files in order.
    Partition(Vec<LogFile>),
    /// One file.
    File(LogFile),
}

/// A file that this command understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogFile {
    pub path: PathBuf,
    pub kind: Kind,
}

/// Which of them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A file of a partition.
    Partition(FileKind),
    /// One of Kafka's three offset checkpoints.
    Offsets,
    /// A checkpoint of a core.
    Checkpoint,
}

impl LogFile {
    pub fn name(&self) -> String {
        file_name(&self.path)
    }

    pub fn read(&self) -> Result<Vec<u8>, Stop> {
        fs::read(&self.path).map_err(|error| Stop::unreadable(&self.path, &error))
    }
}

/// Finds out what a path stands for.
pub(super) fn target(path: &Path) -> Result<Target, Stop> {
    let metadata = fs::metadata(path).map_err(|error| Stop::unreadable(path, &error))?;
    if !metadata.is_dir() {
        let kind = kind_of(path).ok_or_else(|| {
            let known = "a .log, .index, .timeindex or .snapshot file, or a checkpoint";
            Stop::Failed(Failure::new(format!("{} is not {known}", path.display())))
        })?;
        return Ok(Target::File(LogFile { path: path.to_owned(), kind }));
    }
    let files = files_of(path)?;
    if files.iter().any(|file| matches!(file.kind, Kind::Partition(_))) {
        return Ok(Target::Partition(files));
    }
    data_dir(path, files)
}

fn data_dir(path: &Path, mut files: Vec<LogFile>) -> Result<Target, Stop> {
    let inner = path.join(".pinion");
    if inner.is_dir() {
        files.extend(files_of(&inner)?.into_iter().filter(|file| file.kind == Kind::Checkpoint));
    }
    let mut partitions = Vec::new();
    for entry in entries(path)? {
        if entry.is_dir() && files_of(&entry)?.iter().any(|file| matches!(file.kind, Kind::Partition(_))) {
            partitions.push(entry);
        }
    }
    // A new data directory holds nothing yet.
    let ours = inner.is_dir();
    match partitions.is_empty() && files.is_empty() && !ours {
        true => Err(Stop::Failed(Failure::new(format!("{} holds no files of a log", path.display())))),
        false => Ok(Target::DataDir { partitions, files }),
    }
}

/// The files of a directory that this command understands, in order.
pub(super) fn files_of(dir: &Path) -> Result<Vec<LogFile>, Stop> {
    let found = entries(dir)?.into_iter().filter(|path| path.is_file());
    let mut files: Vec<_> = found.filter_map(|path| Some(LogFile { kind: kind_of(&path)?, path })).collect();
    files.sort_by_key(|file| (base_of(file.kind), file.kind));
    Ok(files)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Stop> {
    let unreadable = |error| Stop::unreadable(dir, &error);
    let entries = fs::read_dir(dir).map_err(unreadable)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    paths.sort();
    Ok(paths)
}

fn kind_of(path: &Path) -> Option<Kind> {
    let name = file_name(path);
    match name.as_str() {
        RECOVERY_POINTS | HIGH_WATERMARKS | LOG_STARTS => Some(Kind::Offsets),
        name if name.strip_prefix("checkpoint-").is_some_and(|core| core.parse::<u16>().is_ok()) => {
            Some(Kind::Checkpoint)
        }
        name => parse_name(name).map(Kind::Partition),
    }
}

/// Segments in order, each followed by its indexes; then what belongs to none.
fn base_of(kind: Kind) -> i64 {
    match kind {
        Kind::Partition(FileKind::Log(at) | FileKind::Index(at) | FileKind::TimeIndex(at) | FileKind::Snapshot(at)) => {
            at.0
        }
        _ => i64::MAX,
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The topic id of a partition's directory, when it says one.
pub(super) fn topic_of(dir: &Path) -> Option<crate::ids::TopicId> {
    let text = fs::read_to_string(dir.join(PARTITION_METADATA)).ok()?;
    crate::log::text_files::parse_partition_metadata(&text).ok()
}
