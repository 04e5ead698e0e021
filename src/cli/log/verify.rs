//! `pinion log verify`: a table of what was checked, and each fault with file, position and reason.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::Stop;
use super::check::{self, Checked};
use super::files::{self, Kind, LogFile, Target};
use crate::cli::table::Table;
use crate::ids::{Offset, PartitionId, PartitionIndex};
use crate::log::checkpoint::{self, Checkpoint};
use crate::shard::action::FileKind;

/// Checks all below `path`. Returns the faults, a line for each.
pub(super) fn verify(path: &Path, json: bool, out: &mut impl Write) -> Result<Vec<String>, Stop> {
    let mut report = Report { json, damage: Vec::new(), table: Table::new(HEADING) };
    match files::target(path)? {
        Target::File(file) => {
            let checked = one_file(&file)?;
            report.files("", checked, out)?;
        }
        Target::Partition(files) => {
            let checked = partition(&files)?;
            report.files("", checked, out)?;
        }
        Target::DataDir { partitions, files } => data_dir(&partitions, &files, &mut report, out)?,
    }
    if !json {
        write!(out, "{}", report.table)?;
    }
    Ok(report.damage)
}

const HEADING: &[&str] = &["FILE", "BYTES", "ENTRIES", "RECORDS", "OFFSETS", "STATUS"];

fn data_dir(
    partitions: &[std::path::PathBuf],
    files: &[LogFile],
    report: &mut Report,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let own = files.iter().map(one_file).collect::<Result<Vec<_>, _>>()?;
    report.files("", own.into_iter().flatten().collect(), out)?;
    let checkpoint = merged(files)?;
    for dir in partitions {
        let files = match files::files_of(dir) {
            // A broker has removed it since it was listed.
            Err(_) if !dir.exists() => continue,
            files => files?,
        };
        let mut checked = partition(&files)?;
        against_checkpoint(dir, &mut checked, &checkpoint);
        report.partition(&files::file_name(dir), checked, out)?;
    }
    Ok(())
}

/// What the checkpoints of all cores say together; one that cannot be read was reported already.
fn merged(files: &[LogFile]) -> Result<Checkpoint, Stop> {
    let mut slots = Vec::new();
    for file in files.iter().filter(|file| file.kind == Kind::Checkpoint) {
        slots.extend(checkpoint::newest(&file.read()?).ok().flatten());
    }
    Ok(Checkpoint::merge(slots))
}

/// A log that ends below what was stable has lost records, and so has one with a gap: nothing of Pinion's makes gaps.
fn against_checkpoint(dir: &Path, checked: &mut Vec<Checked>, checkpoint: &Checkpoint) {
    let name = files::file_name(dir);
    let index = name.rsplit_once('-').and_then(|(_, index)| index.parse().ok()).map(PartitionIndex);
    let id = files::topic_of(dir).zip(index).map(|(topic, index)| PartitionId { topic, index });
    let Some(entry) = id.and_then(|id| checkpoint.entries.get(&id)) else { return };
    for log in checked.iter_mut() {
        if let Some(gap) = log.gap.take() {
            log.fault(gap.at, gap.reason);
        }
    }
    let last = checked.iter_mut().rfind(|checked| checked.kind == "log");
    match last {
        Some(log) if log.end() < entry.stable => {
            let end = log.end();
            log.fault(log.bytes, format!("the log ends at {end}, the checkpoint knows {} as stable", entry.stable));
        }
        None if entry.log_start < entry.stable => {
            let mut missing = Checked::new("*.log", "log", 0);
            missing.fault(0, format!("no segment is there, the checkpoint knows {} as stable", entry.stable));
            checked.push(missing);
        }
        _ => {}
    }
}

/// Checks the files of a partition, and that its segments follow each other.
fn partition(files: &[LogFile]) -> Result<Vec<Checked>, Stop> {
    let logs: BTreeSet<Offset> = files.iter().filter_map(|file| log_base(file.kind)).collect();
    let mut all: Vec<Checked> = Vec::new();
    let mut end = None;
    for file in files {
        let found = match file.kind {
            Kind::Partition(FileKind::Log(base)) => check::segment(file, base),
            // Read along with its log.
            Kind::Partition(FileKind::Index(base) | FileKind::TimeIndex(base)) if logs.contains(&base) => continue,
            _ => one_file(file),
        };
        let mut found = match found {
            // A broker has removed it since it was listed.
            Err(_) if !file.path.exists() => continue,
            found => found?,
        };
        if let Kind::Partition(FileKind::Log(base)) = file.kind {
            found[0].follow(end, base);
            // Where a damaged one ends is not known.
            end = found[0].damage.is_empty().then(|| found[0].end());
        }
        all.append(&mut found);
    }
    Ok(all)
}

fn log_base(kind: Kind) -> Option<Offset> {
    match kind {
        Kind::Partition(FileKind::Log(base)) => Some(base),
        _ => None,
    }
}

fn one_file(file: &LogFile) -> Result<Vec<Checked>, Stop> {
    Ok(match file.kind {
        Kind::Partition(FileKind::Log(base)) => vec![check::segment(file, base)?.swap_remove(0)],
        Kind::Partition(FileKind::Index(base)) => vec![index(file, base, "index")?],
        Kind::Partition(FileKind::TimeIndex(base)) => vec![index(file, base, "timeindex")?],
        Kind::Partition(FileKind::Snapshot(at)) => vec![check::snapshot(file, at)?],
        Kind::Partition(FileKind::LeaderEpochs) => vec![check::epochs(file)?],
        Kind::Partition(FileKind::Metadata) => vec![check::metadata(file)?],
        Kind::Offsets => vec![check::offsets(file)?],
        Kind::Checkpoint => vec![check::checkpoint(file)?],
    })
}

/// An index is checked against the log beside it.
fn index(file: &LogFile, base: Offset, kind: &'static str) -> Result<Checked, Stop> {
    let log = LogFile { path: file.path.with_extension("log"), kind: Kind::Partition(FileKind::Log(base)) };
    let missing = || {
        let mut checked = Checked::new(&file.name(), kind, 0);
        checked.fault(0, format!("there is no {} to check it against", log.name()));
        checked
    };
    if !log.path.exists() {
        return Ok(missing());
    }
    let checked = check::segment(&log, base)?;
    Ok(checked.into_iter().find(|checked| checked.kind == kind).unwrap_or_else(missing))
}

struct Report {
    json: bool,
    damage: Vec<String>,
    table: Table,
}

impl Report {
    /// A row for each file.
    fn files(&mut self, dir: &str, checked: Vec<Checked>, out: &mut impl Write) -> Result<(), Stop> {
        for file in checked {
            self.note_damage(dir, &file);
            if self.json {
                writeln!(out, "{}", to_json(dir, &file))?;
            } else {
                self.table.row(row(&file.file, &file, &status(&file)));
            }
        }
        Ok(())
    }

    /// One row for all files of a partition; JSON has one line for each file still.
    fn partition(&mut self, name: &str, checked: Vec<Checked>, out: &mut impl Write) -> Result<(), Stop> {
        if self.json {
            return self.files(name, checked, out);
        }
        let mut sum = Checked::new(name, "partition", 0);
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        let mut damaged = 0;
        for file in &checked {
            self.note_damage(name, file);
            damaged += usize::from(!file.damage.is_empty());
            *kinds.entry(file.kind).or_default() += 1;
            sum.bytes += file.bytes;
            if file.kind == "log" {
                sum.items += file.items;
                sum.records += file.records;
                sum.offsets = match (sum.offsets, file.offsets) {
                    (Some((first, _)), Some((_, end))) => Some((first, end)),
                    (before, found) => before.or(found),
                };
            }
        }
        let segments = kinds.get("log").copied().unwrap_or(0);
        let status = match damaged {
            0 if segments == 1 => "ok, 1 segment".to_owned(),
            0 => format!("ok, {segments} segments"),
            files => format!("DAMAGED, {files} of {} files", checked.len()),
        };
        self.table.row(row(name, &sum, &status));
        Ok(())
    }

    fn note_damage(&mut self, dir: &str, file: &Checked) {
        let path = if dir.is_empty() { file.file.clone() } else { format!("{dir}/{}", file.file) };
        let lines = file.damage.iter().map(|damage| format!("{path} at {}: {}", damage.at, damage.reason));
        self.damage.extend(lines);
        if file.unnamed() > 0 {
            self.damage.push(format!("{path}: {} more", file.unnamed()));
        }
    }
}

fn row(name: &str, file: &Checked, status: &str) -> Vec<String> {
    let offsets = file.offsets.map_or_else(|| "-".to_owned(), |(first, end)| format!("{first}..{}", end.0 - 1));
    let is_log = matches!(file.kind, "log" | "partition");
    let records = if is_log { file.records.to_string() } else { "-".to_owned() };
    vec![name.to_owned(), file.bytes.to_string(), file.items.to_string(), records, offsets, status.to_owned()]
}

fn status(file: &Checked) -> String {
    match (&file.damage[..], file.note.as_str()) {
        ([], "") => "ok".to_owned(),
        ([], note) => format!("ok, {note}"),
        ([first, ..], _) => format!("DAMAGED at {}: {}", first.at, first.reason),
    }
}

fn to_json(dir: &str, file: &Checked) -> serde_json::Value {
    let damage: Vec<_> = file.damage.iter().map(|d| json!({"at": d.at, "reason": d.reason})).collect();
    let mut line = json!({
        "file": if dir.is_empty() { file.file.clone() } else { format!("{dir}/{}", file.file) },
        "kind": file.kind,
        "bytes": file.bytes,
        "entries": file.items,
        "ok": damage.is_empty(),
        "damage": damage,
        "damage_unnamed": file.unnamed(),
    });
    if file.kind == "log" {
        line["records"] = json!(file.records);
        line["first_offset"] = json!(file.offsets.map(|(first, _)| first.0));
        line["end_offset"] = json!(file.offsets.map(|(_, end)| end.0));
        line["note"] = json!(file.note);
    }
    line
}
