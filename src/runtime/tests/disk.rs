//! Writes, flushes, reads and probes on a real file system.

use crate::arena::Lease;
use crate::ids::{DirId, Errno, FileId, FilePos, FlushId, ProbeId, ReadId, WriteId};
use crate::io::file::{DiskFault, FaultEffect};
use crate::runtime::shell::ShellSettings;
use crate::shard::action::{Action, Extents, FileJob, FileRange};
use crate::shard::event::{Event, FileDone};

use super::core::{Core, pattern, segment};

const FILE: FileId = FileId(1);

impl Core {
    fn write(&mut self, write: u64, at: u64, block: Lease, sync: bool) {
        self.act(Action::Write { write: WriteId(write), file: FILE, at: FilePos(at), block, sync });
    }

    fn written(&mut self, wanted: u64) -> (Lease, Result<(), Errno>) {
        self.until("write", |event| match event {
            Event::Written { write, block, result } if write == WriteId(wanted) => Ok((block, result)),
            other => Err(other),
        })
    }

    fn read(&mut self, file: FileId, at: u64, len: u64) -> (Lease, Result<u32, Errno>) {
        let into = self.window(len);
        self.act(Action::Read { read: ReadId(9), range: FileRange { file, at: FilePos(at), len }, into });
        self.until("read", |event| match event {
            Event::Read { into, result, .. } => Ok((into, result)),
            other => Err(other),
        })
    }

    fn probe(&mut self, file: FileId, at: u64, len: u64) -> Option<FileRange> {
        self.act(Action::Probe { probe: ProbeId(3), range: FileRange { file, at: FilePos(at), len } });
        self.until("probe", |event| match event {
            Event::Resident { probe: ProbeId(3), missing } => Ok(missing),
            other => Err(other),
        })
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.act(Action::Flush { flush: FlushId(5), dir: DirId(0), file: FILE });
        self.until("flush", |event| match event {
            Event::Flushed { flush: FlushId(5), result } => Ok(result),
            other => Err(other),
        })
    }
}

#[test]
fn what_was_written_is_in_the_file_at_its_place_and_the_lease_comes_back() {
    let mut core = Core::new();
    core.create_segment(FILE, 1 << 20);
    let (first, second) = (pattern(512 * 1024, 1), pattern(4096, 2));
    let lease = core.lease(&first);
    let name = (lease.at(), lease.len());
    core.write(1, 0, lease, true);
    let lease = core.lease(&second);
    core.write(2, 512 * 1024, lease, false);
    let (back, result) = core.written(1);
    assert_eq!(((back.at(), back.len()), result), (name, Ok(())));
    assert_eq!(core.written(2).1, Ok(()));
    assert_eq!(core.flush(), Ok(()));
    let file = std::fs::read(core.file_path(&segment(0))).expect("read");
    assert!(file[..512 * 1024] == first[..] && file[512 * 1024..][..4096] == second[..]);
    assert!(file[512 * 1024 + 4096..].iter().all(|&byte| byte == 0), "growth leaves zeros");
}

#[test]
fn the_tail_block_is_rewritten_with_more_in_it() {
    let mut core = Core::new();
    core.create_segment(FILE, 256 * 1024);
    for filled in [100, 1000, 4096] {
        let mut block = pattern(filled, 7);
        block.resize(4096, 0);
        let lease = core.lease(&block);
        core.write(1, 8192, lease, true);
        assert_eq!(core.written(1).1, Ok(()));
        let (into, result) = core.read(FILE, 8192, 4096);
        assert_eq!((result, core.bytes(&into)), (Ok(4096), block));
        core.arena.release(into);
    }
}

#[test]
fn overwrites_and_unwritten_extents_do_not_punt_but_cached_pages_do() {
    let mut core = Core::new();
    core.create_segment(FILE, 1 << 20);
    let from = FilePos(1 << 20);
    let grown = core.job(FileJob::Grow { file: FILE, from, to: FilePos(2 << 20), extents: Extents::Unwritten });
    assert_eq!(grown, Ok(FileDone::Done));
    let blocks: Vec<u64> = (0..32).map(|index| index * 65_536).collect();
    for &at in &blocks {
        let lease = core.lease(&pattern(65_536, 3));
        core.write(1, at, lease, true);
        let (lease, result) = core.written(1);
        assert_eq!(result, Ok(()));
        core.arena.release(lease);
    }
    core.turn(Some(crate::ids::MonoMicros(0)));
    let before = core.pulse.disk();
    assert_eq!((before.writes, before.write_punts), (32, 0));
    // A buffered reader has filled the page cache: the kernel must throw the pages out first, which may block.
    std::fs::read(core.file_path(&segment(0))).expect("read");
    let lease = core.lease(&pattern(4096, 4));
    core.write(1, 0, lease, true);
    assert_eq!(core.written(1).1, Ok(()), "a punted write is done all the same");
    core.turn(Some(crate::ids::MonoMicros(0)));
    assert_eq!(core.pulse.disk().write_punts, 1);
    let (into, _) = core.read(FILE, 0, 4096);
    assert_eq!(core.bytes(&into), pattern(4096, 4));
}

#[test]
fn a_write_past_the_end_that_the_file_system_refuses_is_an_error_with_its_errno() {
    let mut core = Core::new();
    core.create_segment(FILE, 256 * 1024);
    // Beyond the largest file of ext4 with 4 KiB blocks (16 TiB); XFS says EFBIG at 8 EiB.
    let lease = core.lease(&pattern(4096, 1));
    core.write(1, i64::MAX as u64 & !4095, lease, true);
    let (_, result) = core.written(1);
    assert!(matches!(result, Err(Errno(libc::EFBIG | libc::EINVAL | libc::EOVERFLOW))), "{result:?}");
}

#[test]
fn unregistered_memory_is_written_and_read_all_the_same() {
    let mut core = Core::new();
    core.create_segment(FILE, 256 * 1024);
    // The large window is never registered, as all memory is where the memory lock limit is too low.
    let block = core.arena.alloc_window(4 << 20).expect("window");
    let lease = core.arena.into_lease(block);
    let part = core.arena.split(&lease, 0, 65_536);
    core.write(1, 0, part, true);
    assert_eq!(core.written(1).1, Ok(()));
    let part = core.arena.split(&lease, 1 << 20, 65_536);
    let range = FileRange { file: FILE, at: FilePos(0), len: 65_536 };
    core.act(Action::Read { read: ReadId(1), range, into: part });
    let result = core.until("read", |event| match event {
        Event::Read { result, .. } => Ok(result),
        other => Err(other),
    });
    assert_eq!(result, Ok(65_536));
}

#[test]
fn a_read_ends_early_only_at_the_end_of_the_file() {
    let mut core = Core::new();
    let bytes = pattern(300_000, 5);
    core.sealed_segment(FileId(2), 10, &bytes);
    let (into, result) = core.read(FileId(2), 0, 1 << 19);
    assert_eq!(result, Ok(300_000));
    assert!(core.bytes(&into)[..300_000] == bytes[..]);
    core.arena.release(into);
    let (into, result) = core.read(FileId(2), 299_000, 4096);
    assert_eq!(result, Ok(1000));
    assert!(core.bytes(&into)[..1000] == bytes[299_000..]);
    core.arena.release(into);
    assert_eq!(core.read(FileId(2), 300_000, 4096).1, Ok(0));
}

#[test]
fn a_cold_range_is_found_missing_and_a_read_of_it_makes_it_resident() {
    let mut core = Core::new();
    core.sealed_segment(FileId(2), 10, &pattern(1 << 20, 6));
    let whole = (1_000, (1 << 20) - 1_000);
    let mut reads = 0;
    while let Some(missing) = core.probe(FileId(2), whole.0, whole.1) {
        assert!(missing.len > 0 && missing.at.0 >= whole.0 && missing.at.0 + missing.len <= 1 << 20, "{missing:?}");
        let (into, result) = core.read(FileId(2), missing.at.0, missing.len);
        assert_eq!(result, Ok(missing.len as u32));
        core.arena.release(into);
        reads += 1;
        assert!(reads <= 16, "the range does not become resident");
    }
    assert!(reads > 0, "the file was cold");
}

#[test]
fn only_what_is_missing_between_resident_parts_is_reported() {
    let mut core = Core::new();
    core.sealed_segment(FileId(2), 10, &pattern(2 << 20, 6));
    let path = core.file_path(&segment(10));
    let file = std::fs::File::open(&path).expect("open");
    // No readahead, so that the middle stays cold.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("fadvise");
    let mut part = vec![0; 512 * 1024];
    for at in [0, (2 << 20) - 512 * 1024] {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut part, at).expect("read");
    }
    let missing = core.probe(FileId(2), 0, 2 << 20).expect("a cold middle");
    assert!(missing.at.0 <= 512 * 1024 && missing.at.0 + missing.len >= (2 << 20) - 512 * 1024, "{missing:?}");
    assert!(missing.at.0 > 0 && missing.at.0 + missing.len < 2 << 20, "{missing:?}");
}

#[test]
fn a_file_that_is_not_open_is_an_error_of_the_read_and_missing_for_the_probe() {
    let mut core = Core::new();
    assert_eq!(core.read(FileId(77), 0, 4096).1, Err(Errno(libc::EBADF)));
    assert_eq!(core.probe(FileId(77), 0, 10), Some(FileRange { file: FileId(77), at: FilePos(0), len: 10 }));
}

#[test]
fn a_disk_that_fails_gives_every_lease_back_with_the_errno() {
    let fault = DiskFault { dir: DirId(0), after: 8, effect: FaultEffect::Fail(Errno(libc::EIO)) };
    let mut core = Core::with(ShellSettings { fault: Some(fault), ..ShellSettings::default() });
    core.create_segment(FILE, 256 * 1024);
    let mut failed = 0;
    for write in 0..16 {
        let lease = core.lease(&pattern(4096, 1));
        core.write(write, 4096 * write, lease, true);
        let (lease, result) = core.written(write);
        core.arena.release(lease);
        failed += u32::from(result == Err(Errno(libc::EIO)));
    }
    assert!(failed >= 8, "only {failed} of 16 writes failed");
    assert_eq!(core.flush(), Err(Errno(libc::EIO)));
    assert_eq!(core.arena.outstanding().leases, 0);
}

#[test]
fn a_disk_that_hangs_completes_nothing_and_its_age_shows() {
    let fault = DiskFault { dir: DirId(0), after: 7, effect: FaultEffect::Hang };
    let mut core = Core::with(ShellSettings { fault: Some(fault), ..ShellSettings::default() });
    core.create_segment(FILE, 256 * 1024);
    let before = crate::io::clock::mono();
    core.turn(Some(crate::ids::MonoMicros(0)));
    assert_eq!(core.pulse.oldest_disk(DirId(0)), None);
    for write in 0..8 {
        let lease = core.lease(&pattern(4096, 1));
        core.write(write, 4096 * write, lease, true);
    }
    for _ in 0..20 {
        core.turn(Some(crate::io::clock::mono().plus_millis(2)));
    }
    assert!(core.left().iter().filter(|event| matches!(event, Event::Written { .. })).count() < 8);
    let oldest = core.pulse.oldest_disk(DirId(0)).expect("an operation that never ends");
    assert!(before <= oldest && oldest <= crate::io::clock::mono());
}
