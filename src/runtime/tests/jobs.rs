//! File jobs, and what is on disk after them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::arena::Lease;
use crate::ids::{CoreId, DirId, Errno, FileId, FilePos, Offset, WriteId};
use crate::runtime::shell::ShellSettings;
use crate::shard::action::{Action, Extents, FileJob, FileKind, FileRange, PartitionDir};
use crate::shard::event::{Event, FileDone};

use super::core::{Core, of_partition, partition, pattern, segment};

const FILE: FileId = FileId(1);
const DONE: Result<FileDone, Errno> = Ok(FileDone::Done);

fn write(core: &mut Core, at: u64, bytes: &[u8]) {
    let block: Lease = core.lease(bytes);
    core.act(Action::Write { write: WriteId(1), file: FILE, at: FilePos(at), block, sync: true });
    let (block, result) = core.until("write", |event| match event {
        Event::Written { block, result, .. } => Ok((block, result)),
        other => Err(other),
    });
    core.arena.release(block);
    assert_eq!(result, Ok(()));
}

#[test]
fn a_new_segment_has_its_length_and_extents_at_once() {
    for extents in [Extents::Zeroed, Extents::Unwritten] {
        let mut core = Core::new();
        let done = core.job(FileJob::CreateSegment { file: FILE, path: segment(0), len: 1 << 20, extents });
        assert_eq!(done, Ok(FileDone::Opened { file: FILE, len: 1 << 20 }));
        let metadata = fs::metadata(core.file_path(&segment(0))).expect("metadata");
        assert_eq!(metadata.len(), 1 << 20);
        assert!(metadata.blocks() * 512 >= 1 << 20, "only {} blocks allocated", metadata.blocks());
    }
}

#[test]
fn a_segment_that_is_there_already_is_not_touched() {
    let mut core = Core::new();
    fs::write(core.file_path(&segment(0)), b"acknowledged").expect("write");
    let job = FileJob::CreateSegment { file: FILE, path: segment(0), len: 4096, extents: Extents::Zeroed };
    assert_eq!(core.job(job), Err(Errno(libc::EEXIST)));
    assert_eq!(fs::read(core.file_path(&segment(0))).expect("read"), b"acknowledged");
}

#[test]
fn a_creation_that_fails_half_way_leaves_no_file_and_can_be_tried_again() {
    let mut core = Core::new();
    let create = |len| FileJob::CreateSegment { file: FILE, path: segment(0), len, extents: Extents::Unwritten };
    let refused = core.job(create(1 << 60)).expect_err("no disk is that large");
    assert!([libc::EFBIG, libc::ENOSPC].contains(&refused.0), "{refused}");
    assert!(!core.file_path(&segment(0)).exists());
    assert!(core.job(create(4096)).is_ok());
}

#[test]
fn growth_keeps_what_is_there_and_adds_zeros() {
    let mut core = Core::new();
    core.create_segment(FILE, 256 * 1024);
    write(&mut core, 0, &pattern(256 * 1024, 1));
    let grow = |from, to, extents| FileJob::Grow { file: FILE, from: FilePos(from), to: FilePos(to), extents };
    assert_eq!(core.job(grow(256 * 1024, 2 << 20, Extents::Zeroed)), DONE);
    assert_eq!(core.job(grow(2 << 20, 3 << 20, Extents::Unwritten)), DONE);
    let file = fs::read(core.file_path(&segment(0))).expect("read");
    assert_eq!(file.len(), 3 << 20);
    assert!(file[..256 * 1024] == pattern(256 * 1024, 1)[..] && file[256 * 1024..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_sealed_segment_ends_at_its_last_batch_and_is_read_under_the_same_id() {
    let mut core = Core::new();
    core.create_segment(FILE, 256 * 1024);
    write(&mut core, 0, &pattern(8192, 1));
    assert_eq!(core.job(FileJob::Seal { file: FILE, path: segment(0), len: FilePos(5_000) }), DONE);
    assert_eq!(fs::metadata(core.file_path(&segment(0))).expect("metadata").len(), 5_000);
    let into = core.window(8192);
    let range = FileRange { file: FILE, at: FilePos(1), len: 8_000 };
    core.act(Action::Read { read: crate::ids::ReadId(1), range, into });
    let (into, result) = core.until("read", |event| match event {
        Event::Read { into, result, .. } => Ok((into, result)),
        other => Err(other),
    });
    assert_eq!(result, Ok(4_999));
    assert!(core.bytes(&into)[..4_999] == pattern(8192, 1)[1..5_000]);
}

#[test]
fn a_truncated_range_is_zero_on_disk() {
    let mut core = Core::new();
    core.create_segment(FILE, 2 << 20);
    write(&mut core, 0, &pattern(512 * 1024, 1));
    let (from, to) = (FilePos(4096), FilePos(2 << 20));
    assert_eq!(core.job(FileJob::Zero { file: FILE, from, to }), DONE);
    let file = fs::read(core.file_path(&segment(0))).expect("read");
    assert!(file[..4096] == pattern(512 * 1024, 1)[..4096] && file[4096..].iter().all(|&byte| byte == 0));
}

#[test]
fn files_reopen_after_a_restart_as_they_were_left() {
    let mut core = Core::new();
    core.create_segment(FILE, 256 * 1024);
    write(&mut core, 4096, &pattern(4096, 9));
    let mut core = Core::over(core.stop(), ShellSettings::default());
    let opened = core.job(FileJob::OpenActive { file: FILE, path: segment(0) });
    assert_eq!(opened, Ok(FileDone::Opened { file: FILE, len: 256 * 1024 }));
    write(&mut core, 8192, &pattern(4096, 8));
    let file = fs::read(core.file_path(&segment(0))).expect("read");
    assert!(file[4096..8192] == pattern(4096, 9)[..] && file[8192..12_288] == pattern(4096, 8)[..]);
    let missing = core.job(FileJob::OpenActive { file: FileId(2), path: segment(7) });
    assert_eq!(missing, Err(Errno(libc::ENOENT)));
}

#[test]
fn a_closed_file_is_gone_and_its_id_can_be_used_again() {
    let mut core = Core::new();
    core.create_segment(FILE, 4096);
    assert_eq!(core.job(FileJob::Close { file: FILE }), DONE);
    let grow = FileJob::Grow { file: FILE, from: FilePos(4096), to: FilePos(8192), extents: Extents::Zeroed };
    assert_eq!(core.job(grow), Err(Errno(libc::EBADF)));
    assert!(core.job(FileJob::OpenSealed { file: FILE, path: segment(0) }).is_ok());
    assert_eq!(core.job(FileJob::Close { file: FILE }), DONE);
    assert_eq!(core.job(FileJob::Close { file: FILE }), DONE, "closing twice is harmless");
}

#[test]
fn removal_takes_only_the_files_named_and_does_not_mind_missing_ones() {
    let mut core = Core::new();
    for base in [0, 10] {
        fs::write(core.file_path(&segment(base)), b"x").expect("write");
    }
    let files = vec![FileKind::Log(Offset(0)), FileKind::Index(Offset(0)), FileKind::LeaderEpochs];
    assert_eq!(core.job(FileJob::Remove { dir: partition(), files: files.clone() }), DONE);
    assert!(!core.file_path(&segment(0)).exists() && core.file_path(&segment(10)).exists());
    let absent = PartitionDir { name: "absent-1".into(), ..partition() };
    assert_eq!(core.job(FileJob::Remove { dir: absent, files }), DONE);
}

#[test]
fn a_deleted_partition_is_renamed_and_then_removed_with_all_it_holds() {
    let mut core = Core::new();
    for name in ["00000000000000000000.log", "leader-epoch-checkpoint", "unknown file"] {
        fs::write(core.path.join("t-0").join(name), b"x").expect("write");
    }
    let to: std::sync::Arc<str> = "t-0.0123-delete".into();
    assert_eq!(core.job(FileJob::RenameDir { from: partition(), to: to.clone() }), DONE);
    assert!(!core.path.join("t-0").exists() && core.path.join(&*to).is_dir());
    let renamed = PartitionDir { name: to.clone(), ..partition() };
    assert_eq!(core.job(FileJob::RemoveDir { dir: renamed.clone() }), DONE);
    assert!(!core.path.join(&*to).exists());
    assert_eq!(core.job(FileJob::RemoveDir { dir: renamed }), DONE, "removing twice is harmless");
}

#[test]
fn a_small_file_is_replaced_whole_and_read_back() {
    let mut core = Core::new();
    let path = of_partition(FileKind::LeaderEpochs);
    for contents in [pattern(1_000_000, 1), b"short".to_vec(), Vec::new()] {
        assert_eq!(core.job(FileJob::Replace { path: path.clone(), contents: contents.clone() }), DONE);
        let read = core.job(FileJob::ReadWhole { path: path.clone(), len_max: 1 << 20 });
        assert_eq!(read, Ok(FileDone::Contents(contents)));
    }
    let names = fs::read_dir(core.path.join("t-0")).expect("list").count();
    assert_eq!(names, 1, "the temporary file is gone");
}

#[test]
fn a_file_longer_than_accepted_is_not_read() {
    let mut core = Core::new();
    let path = of_partition(FileKind::Snapshot(Offset(3)));
    assert_eq!(core.job(FileJob::Replace { path: path.clone(), contents: vec![1; 101] }), DONE);
    assert_eq!(core.job(FileJob::ReadWhole { path: path.clone(), len_max: 100 }), Err(Errno(libc::EFBIG)));
    let absent = of_partition(FileKind::Metadata);
    assert_eq!(core.job(FileJob::ReadWhole { path: absent, len_max: 100 }), Err(Errno(libc::ENOENT)));
}

#[test]
fn index_entries_are_appended_where_they_are_asked_for() {
    let mut core = Core::new();
    let path = of_partition(FileKind::TimeIndex(Offset(0)));
    let append =
        |at, contents: &[u8]| FileJob::AppendIndex { path: path.clone(), at: FilePos(at), contents: contents.to_vec() };
    assert_eq!(core.job(append(0, b"twelve bytes")), DONE);
    assert_eq!(core.job(append(12, b"and more")), DONE);
    let read = core.job(FileJob::ReadWhole { path: path.clone(), len_max: 100 });
    assert_eq!(read, Ok(FileDone::Contents(b"twelve bytesand more".to_vec())));
}

#[test]
fn checkpoint_slots_share_the_file_of_the_core() {
    let mut core = Core::new();
    for (at, byte) in [(4096, 2), (0, 1)] {
        let job = FileJob::Checkpoint { dir: DirId(0), at: FilePos(at), contents: vec![byte; 4096] };
        assert_eq!(core.job(job), DONE);
    }
    let name = format!(".pinion/checkpoint-{}", CoreId(0));
    let file = fs::read(core.path.join(name)).expect("read");
    assert_eq!((file.len(), file[0], file[8191]), (8192, 1, 2));
}

#[test]
fn many_jobs_of_one_directory_wait_for_each_other_and_all_end() {
    let mut core = Core::new();
    let jobs: Vec<_> = (0..40)
        .map(|base| {
            let (file, path) = (FileId(base as u64), segment(base));
            core.start_job(FileJob::CreateSegment { file, path, len: 65_536, extents: Extents::Zeroed })
        })
        .collect();
    for job in jobs {
        let result = core.until("job", |event| match event {
            Event::File { job: done, result } if done == job => Ok(result),
            other => Err(other),
        });
        assert!(matches!(result, Ok(FileDone::Opened { len: 65_536, .. })), "{result:?}");
    }
    assert_eq!(fs::read_dir(core.path.join("t-0")).expect("list").count(), 40);
}
