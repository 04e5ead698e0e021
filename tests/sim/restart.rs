//! From the files that a crash left to the logs that a core is given: runs the production recovery on the disk.

use pinion::ids::{LeaderEpoch, Offset};
use pinion::kafka::batch::batches;
use pinion::limits::BLOCK;
use pinion::log::checkpoint::Entry;
use pinion::log::recovery::{FoundFile, LastStop, RecoveredLog, Recovery, RecoveryInput, Step, parse_name};
use pinion::log::segment::UnwrittenExtents;
use pinion::shard::action::{FileKind, PartitionDir, PartitionFile};

use crate::checks::WALL_START;
use crate::disk::Disk;

/// What is known of a partition before its files are read.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub checkpoint: Option<Entry>,
    pub epoch_max: LeaderEpoch,
    pub index_interval_bytes: u32,
}

/// Recovers a partition's directory; returns its log and the batches that are in its files now. `None` when it was
/// interrupted after `steps_max` steps.
pub fn recover(
    disk: &mut Disk,
    dir: &PartitionDir,
    known: Known,
    steps_max: usize,
) -> Option<(RecoveredLog, Vec<Vec<u8>>)> {
    let found = |(kind, len)| FoundFile { name: name_of(kind), len, modified_ms: WALL_START };
    let mut recovery = Recovery::new(RecoveryInput {
        files: disk.files(dir).into_iter().map(found).collect(),
        checkpoint: known.checkpoint,
        last_stop: LastStop::Crash,
        leader_epoch_max: known.epoch_max,
        index_interval_bytes: known.index_interval_bytes,
        tail_read_bytes_max: 1 << 20,
        unwritten: UnwrittenExtents::Allowed,
    });
    for _ in 0..steps_max {
        match recovery.next() {
            Step::Done(log) => {
                let found = all_batches(disk, dir, &log);
                return Some((*log, found));
            }
            Step::Failed(errno) => panic!("recovery of {dir:?} failed: {errno:?}"),
            Step::Read { file, at, len } => {
                let contents = disk.contents(&PartitionFile { dir: dir.clone(), kind: file }).unwrap_or_default();
                let from = (at.0 as usize).min(contents.len());
                let to = ((at.0 + len) as usize).min(contents.len());
                recovery.on_read(Ok(&contents[from..to]));
            }
            step => {
                change(disk, dir, step);
                recovery.on_done(Ok(()));
            }
        }
    }
    None
}

/// Makes one change; only the sync behind them makes it durable.
fn change(disk: &mut Disk, dir: &PartitionDir, step: Step) {
    let path = |kind| PartitionFile { dir: dir.clone(), kind };
    match step {
        Step::ZeroTail { base, at, head, to } => {
            assert!(at.0.is_multiple_of(BLOCK) && to.0.is_multiple_of(BLOCK), "zeros from {at} to {to}");
            let mut bytes = head;
            bytes.resize((to.0 - at.0) as usize, 0);
            disk.overwrite(&path(FileKind::Log(base)), at, bytes);
        }
        Step::ZeroRange { base, from, to } => {
            disk.overwrite(&path(FileKind::Log(base)), from, vec![0; (to.0 - from.0) as usize]);
        }
        Step::Truncate { base, len } => disk.cut(&path(FileKind::Log(base)), len),
        Step::Remove { files, names } => {
            let named = names.iter().filter_map(|name| parse_name(name));
            files.into_iter().chain(named).for_each(|kind| disk.remove(&path(kind)));
        }
        Step::WriteFile { file, contents } => disk.replace(&path(file), contents),
        Step::Sync => disk.sync_all(),
        other => panic!("nothing was compacted: {other:?}"),
    }
}

fn name_of(kind: FileKind) -> String {
    match kind {
        FileKind::Log(base) => format!("{:020}.log", base.0),
        FileKind::Index(base) => format!("{:020}.index", base.0),
        FileKind::TimeIndex(base) => format!("{:020}.timeindex", base.0),
        FileKind::Snapshot(at) => format!("{:020}.snapshot", at.0),
        FileKind::LeaderEpochs => "leader-epoch-checkpoint".into(),
        FileKind::Metadata => "partition.metadata".into(),
    }
}

/// What the segments of a recovered log hold, read without their indexes.
fn all_batches(disk: &Disk, dir: &PartitionDir, log: &RecoveredLog) -> Vec<Vec<u8>> {
    let active = log.active.as_ref().map(|active| (active.base, active.end.0));
    let segments = log.sealed.iter().map(|segment| (segment.base, segment.len)).chain(active);
    let mut found = Vec::new();
    for (base, len) in segments {
        let path = PartitionFile { dir: dir.clone(), kind: FileKind::Log(base) };
        let contents = disk.contents(&path).expect("a recovered segment has a file");
        for (at, view) in batches(&contents[..len as usize]) {
            let view = view.unwrap_or_else(|fault| panic!("{path:?} at {at}: {fault:?}"));
            view.check_crc().unwrap_or_else(|fault| panic!("{path:?} at {at}: {fault:?}"));
            found.push(view.bytes().to_vec());
        }
    }
    found
}

/// Whether this batch would be found by a recovery from these bytes of its segment, whatever else is lost.
pub fn holds(base: Offset, contents: &[u8], offset: i64) -> bool {
    let mut held = false;
    for (_, view) in batches(contents) {
        let Ok(view) = view else { break };
        held |= view.base_offset().0 == offset && view.check_crc().is_ok();
        if view.base_offset().0 >= offset || view.base_offset() < base {
            break;
        }
    }
    held
}
