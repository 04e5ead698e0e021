//! What a file job does, as a list of steps: here the promises of `FileJob` can be read and tested; `job.rs` runs any
//! list.

use std::ffi::CString;

use crate::ids::{CoreId, DirId, FileId};
use crate::io::path;
use crate::limits::BLOCK;
use crate::shard::action::{Extents, FileJob, PartitionDir, PartitionFile};

/// One step. Paths are relative to the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open a file to work on. One that is created exclusively (O_EXCL) is unlinked again if a later step fails.
    Open {
        /// Which.
        path: CString,
        /// O_* flags.
        flags: i32,
    },
    /// Work on an open segment.
    Use(FileId),
    /// Allocate extents; the file's length becomes at least `to`.
    Allocate {
        /// First byte.
        from: u64,
        /// Byte after the last.
        to: u64,
    },
    /// Write zeros.
    Zero {
        /// First byte.
        from: u64,
        /// Byte after the last.
        to: u64,
    },
    /// Write the contents.
    Write {
        /// Where.
        at: u64,
    },
    /// Make room for the whole file; longer than `len_max` is `EFBIG`.
    Measure {
        /// Longest accepted, in bytes.
        len_max: u64,
    },
    /// Read the whole file.
    Read,
    /// Cut the file.
    Truncate {
        /// To this length.
        len: u64,
    },
    /// fdatasync of the file.
    SyncData,
    /// fsync of the file.
    Sync,
    /// Open a partition's directory. Where there is none the job is over, and well.
    OpenDir {
        /// Which.
        path: CString,
    },
    /// fsync of the opened directory.
    SyncDir,
    /// fsync of the data directory itself.
    SyncDataDir,
    /// Rename.
    Rename {
        /// Present path.
        from: CString,
        /// New path.
        to: CString,
    },
    /// Unlink; what is not there is not an error.
    Unlink {
        /// Which.
        path: CString,
        /// AT_REMOVEDIR for a directory.
        flags: i32,
    },
    /// Unlink every file in the opened directory.
    Empty {
        /// The directory's own path.
        path: CString,
    },
    /// Hand the opened file over to the table of open ones.
    Publish {
        /// Under which id.
        file: FileId,
        /// Active, for O_DIRECT, or sealed.
        direct: bool,
        /// Whether the job reports it with its length.
        report: bool,
    },
    /// Take a file out of the table of open ones; it becomes the job's own when nobody else uses it.
    Forget(FileId),
    /// Close the job's own file.
    Close,
}

/// A job as its steps.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The data directory it works in.
    pub dir: DirId,
    /// What to do, in order; the first failure ends it.
    pub steps: Vec<Step>,
    /// What `Step::Write` writes.
    pub contents: Vec<u8>,
}

/// Spells a job out. `dir_of` knows the directory of an open file.
pub fn plan(core: CoreId, what: FileJob, dir_of: impl Fn(FileId) -> DirId) -> Plan {
    let (dir, steps, contents) = spell_out(core, what, dir_of);
    Plan { dir, steps, contents }
}

fn spell_out(core: CoreId, what: FileJob, of_file: impl Fn(FileId) -> DirId) -> (DirId, Vec<Step>, Vec<u8>) {
    match what {
        FileJob::CreateSegment { file, path, len, extents } => {
            (path.dir.dir, create_segment(file, &path, len, extents), Vec::new())
        }
        FileJob::Grow { file, from, to, extents } => {
            let mut steps = vec![Step::Use(file)];
            steps.extend(growth(from.0, to.0, extents));
            steps.push(Step::SyncData);
            (of_file(file), steps, Vec::new())
        }
        FileJob::OpenActive { file, path } => {
            let open = Step::Open { path: path::file(&path), flags: libc::O_RDWR | libc::O_DIRECT };
            (path.dir.dir, vec![open, Step::Publish { file, direct: true, report: true }], Vec::new())
        }
        FileJob::OpenSealed { file, path } => {
            let open = Step::Open { path: path::file(&path), flags: libc::O_RDONLY };
            (path.dir.dir, vec![open, Step::Publish { file, direct: false, report: true }], Vec::new())
        }
        FileJob::Seal { file, path, len } => {
            let open = Step::Open { path: path::file(&path), flags: libc::O_RDONLY };
            let publish = Step::Publish { file, direct: false, report: false };
            (path.dir.dir, vec![Step::Use(file), Step::Truncate { len: len.0 }, Step::Sync, open, publish], Vec::new())
        }
        FileJob::Zero { file, from, to } => {
            let steps = vec![Step::Use(file), Step::Zero { from: from.0, to: to.0 }, Step::SyncData];
            (of_file(file), steps, Vec::new())
        }
        FileJob::Close { file } => (of_file(file), vec![Step::Forget(file), Step::Close], Vec::new()),
        FileJob::Remove { dir, files } => {
            let unlink = |kind| Step::Unlink { path: path::file(&PartitionFile { dir: dir.clone(), kind }), flags: 0 };
            let mut steps: Vec<Step> = files.into_iter().map(unlink).collect();
            steps.extend([open_dir(&dir), Step::SyncDir]);
            (dir.dir, steps, Vec::new())
        }
        FileJob::RenameDir { from, to } => {
            let rename = Step::Rename { from: path::dir(&from), to: path::c_string(to.to_string()) };
            (from.dir, vec![rename, Step::SyncDataDir], Vec::new())
        }
        FileJob::RemoveDir { dir } => {
            let path = path::dir(&dir);
            let remove = Step::Unlink { path: path.clone(), flags: libc::AT_REMOVEDIR };
            (dir.dir, vec![open_dir(&dir), Step::Empty { path }, remove], Vec::new())
        }
        FileJob::Replace { path, contents } => (path.dir.dir, replace(&path), contents),
        FileJob::AppendIndex { path, at, contents } => {
            let open = Step::Open { path: path::file(&path), flags: libc::O_CREAT | libc::O_WRONLY };
            (path.dir.dir, vec![open, Step::Write { at: at.0 }, Step::Close], contents)
        }
        FileJob::ReadWhole { path, len_max } => {
            let open = Step::Open { path: path::file(&path), flags: libc::O_RDONLY };
            (path.dir.dir, vec![open, Step::Measure { len_max }, Step::Read, Step::Close], Vec::new())
        }
        FileJob::Checkpoint { dir, at, contents } => {
            let open = Step::Open { path: path::checkpoint(core), flags: libc::O_CREAT | libc::O_WRONLY };
            (dir, vec![open, Step::Write { at: at.0 }, Step::Close], contents)
        }
    }
}

fn create_segment(file: FileId, path: &PartitionFile, len: u64, extents: Extents) -> Vec<Step> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_DIRECT;
    let mut steps = vec![Step::Open { path: path::file(path), flags }];
    steps.extend(growth(0, len, extents));
    steps.extend([Step::Sync, open_dir(&path.dir), Step::SyncDir]);
    steps.push(Step::Publish { file, direct: true, report: true });
    steps
}

fn replace(path: &PartitionFile) -> Vec<Step> {
    let (temporary, target) = (path::temporary(path), path::file(path));
    vec![
        Step::Open { path: temporary.clone(), flags: libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY },
        Step::Write { at: 0 },
        Step::Sync,
        Step::Close,
        Step::Rename { from: temporary, to: target },
        open_dir(&path.dir),
        Step::SyncDir,
    ]
}

/// The file's length comes first, so that no write ever moves it: that would cost the lock and a journal entry.
fn growth(from: u64, to: u64, extents: Extents) -> Vec<Step> {
    let mut steps = vec![Step::Allocate { from, to }];
    if extents == Extents::Zeroed {
        // What a trimmed file holds in its last, partly filled block is data; behind it the allocation reads as zeros.
        steps.push(Step::Zero { from: from.next_multiple_of(BLOCK).min(to), to });
    }
    steps
}

fn open_dir(dir: &PartitionDir) -> Step {
    Step::OpenDir { path: path::dir(dir) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FilePos, Offset};
    use crate::shard::action::FileKind;

    fn steps(job: FileJob) -> Vec<Step> {
        let plan = plan(CoreId(3), job, |_| DirId(1));
        assert_eq!(plan.dir, DirId(1));
        plan.steps
    }

    fn partition() -> PartitionDir {
        PartitionDir { dir: DirId(1), name: "t-0".into() }
    }

    fn segment() -> PartitionFile {
        PartitionFile { dir: partition(), kind: FileKind::Log(Offset(5)) }
    }

    fn position(steps: &[Step], wanted: fn(&Step) -> bool) -> usize {
        steps.iter().position(wanted).unwrap_or_else(|| panic!("missing in {steps:?}"))
    }

    #[test]
    fn a_new_segment_is_synced_with_its_directory_before_anybody_can_write_to_it() {
        for extents in [Extents::Zeroed, Extents::Unwritten] {
            let steps = steps(FileJob::CreateSegment { file: FileId(1), path: segment(), len: 8192, extents });
            let order = [
                position(&steps, |step| matches!(step, Step::Allocate { from: 0, to: 8192 })),
                position(&steps, |step| *step == Step::Sync),
                position(&steps, |step| *step == Step::SyncDir),
                position(&steps, |step| matches!(step, Step::Publish { .. })),
            ];
            assert!(order.is_sorted(), "{steps:?}");
            let zeroed = steps.contains(&Step::Zero { from: 0, to: 8192 });
            assert_eq!(zeroed, extents == Extents::Zeroed);
        }
    }

    #[test]
    fn a_new_segment_never_overwrites_a_file_that_is_there() {
        let job = FileJob::CreateSegment { file: FileId(1), path: segment(), len: 8192, extents: Extents::Unwritten };
        let Step::Open { flags, .. } = &steps(job)[0] else { panic!("first step opens") };
        assert_eq!(flags & (libc::O_EXCL | libc::O_TRUNC), libc::O_EXCL);
    }

    #[test]
    fn growth_and_zeroing_end_with_a_data_sync() {
        let grow = FileJob::Grow { file: FileId(1), from: FilePos(0), to: FilePos(4096), extents: Extents::Zeroed };
        assert_eq!(steps(grow).last(), Some(&Step::SyncData));
        let zero = FileJob::Zero { file: FileId(1), from: FilePos(0), to: FilePos(4096) };
        assert_eq!(steps(zero).last(), Some(&Step::SyncData));
    }

    #[test]
    fn a_small_file_is_replaced_only_by_a_synced_one() {
        let path = PartitionFile { dir: partition(), kind: FileKind::LeaderEpochs };
        let steps = steps(FileJob::Replace { path, contents: vec![1] });
        let (sync, rename) = (Step::Sync, |step: &Step| matches!(step, Step::Rename { .. }));
        assert!(steps.iter().position(|step| *step == sync) < steps.iter().position(rename), "{steps:?}");
        assert_eq!(steps.last(), Some(&Step::SyncDir));
    }

    #[test]
    fn a_checkpoint_goes_to_the_file_of_its_core() {
        let plan =
            plan(CoreId(3), FileJob::Checkpoint { dir: DirId(0), at: FilePos(4096), contents: vec![9] }, |_| DirId(1));
        let path = path::checkpoint(CoreId(3));
        assert_eq!(plan.steps[0], Step::Open { path, flags: libc::O_CREAT | libc::O_WRONLY });
        assert_eq!((plan.dir, plan.contents), (DirId(0), vec![9]));
    }
}
