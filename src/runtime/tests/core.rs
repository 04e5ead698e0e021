//! One data core without a shard: the tests play the shard.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::arena::{Arena, ArenaConfig, ChunkChange, Lease, Pool, PoolMinima, Regions};
use crate::ids::{ConnId, CoreId, DirId, FileId, FileJobId, MonoMicros, Offset};
use crate::io::clock;
use crate::io::crowd::Crowds;
use crate::io::file::Registry;
use crate::io::listen::listen;
use crate::io::memory::Memory;
use crate::limits::CHUNK;
use crate::runtime::mailbox::{Post, posts};
use crate::runtime::pulse::Pulse;
use crate::runtime::shell::{Shell, ShellParts, ShellSettings};
use crate::shard::action::{Action, Extents, FileJob, FileKind, Part, PartitionDir, PartitionFile, RecvInto};
use crate::shard::event::{Event, FileDone};
use tempfile::TempDir;

/// How long a test waits for an event before it gives up.
const PATIENCE_MS: u64 = 20_000;
/// The ring's file table counts as open files, of which a login on Debian may have 1,024.
const ACTIVE_FILES_MAX: u32 = 256;

/// A core with one data directory, one partition directory `t-0` in it, and a listener on loopback.
pub struct Core {
    pub shell: Shell,
    pub arena: Arena,
    pub regions: Arc<Regions>,
    pub pulse: Arc<Pulse>,
    pub crowds: Arc<Crowds>,
    pub address: SocketAddr,
    pub path: PathBuf,
    events: Vec<Event>,
    jobs: u64,
    /// The mail of core 1, of the control core and of the background thread.
    pub others: Vec<Post>,
    _dir: TempDir,
}

impl Core {
    pub fn new() -> Core {
        Core::with(ShellSettings::default())
    }

    pub fn with(settings: ShellSettings) -> Core {
        let dir = tempfile::tempdir().expect("data dir");
        std::fs::create_dir_all(dir.path().join("t-0")).expect("partition dir");
        std::fs::create_dir_all(dir.path().join(".pinion")).expect("own dir");
        Core::over(dir, settings)
    }

    /// A core over an existing data directory, as after a restart.
    pub fn over(dir: TempDir, settings: ShellSettings) -> Core {
        let core = CoreId(0);
        let settings = ShellSettings { active_files_max: settings.active_files_max.min(ACTIVE_FILES_MAX), ..settings };
        let pools = PoolMinima { produce_bytes: CHUNK, replica_bytes: CHUNK, reads_bytes: CHUNK };
        let config = ArenaConfig { core, budget_bytes: 16 * CHUNK, window_bytes_max: 8 * CHUNK, pools };
        let memory = Memory::reserve(core, Arena::region_bytes(&config)).expect("memory");
        let regions = Regions::new(vec![memory.region()]);
        let (listeners, address) = listen(([127, 0, 0, 1], 0).into(), 1).expect("listen");
        let open: OwnedFd = std::fs::File::open(dir.path()).expect("open data dir").into();
        let mut posts = posts(2, 64).expect("posts");
        let pulse = Arc::new(Pulse::new(1));
        let crowds = Arc::new(Crowds::new(2));
        let shell = Shell::new(ShellParts {
            core,
            memory,
            regions: Arc::clone(&regions),
            dirs: [open].into(),
            locks: [].into(),
            registry: Arc::new(Registry::default()),
            listener: listeners.into_iter().next(),
            post: posts.remove(0),
            crowds: Arc::clone(&crowds),
            pulse: Arc::clone(&pulse),
            settings,
        })
        .expect("shell");
        let arena = Arena::new(config, Arc::clone(&regions));
        let path = dir.path().to_path_buf();
        Core {
            shell,
            arena,
            regions,
            pulse,
            crowds,
            address,
            path,
            events: Vec::new(),
            jobs: 0,
            others: posts,
            _dir: dir,
        }
    }

    /// Ends the core in an orderly way and keeps its files.
    pub fn stop(self) -> TempDir {
        self._dir
    }

    pub fn act(&mut self, action: Action) {
        self.shell.execute(&mut vec![action]);
    }

    /// A lease on bytes that are in the arena.
    pub fn lease(&mut self, bytes: &[u8]) -> Lease {
        let mut changes = Vec::new();
        let block = self.arena.alloc(Pool::Produce, bytes.len() as u64, &mut changes);
        self.change(changes);
        let mut block = block.expect("arena full");
        self.arena.write(&mut block, 0, bytes);
        let lease = self.arena.lease(&block, 0, bytes.len() as u32);
        self.arena.free(block);
        lease
    }

    /// A window of a whole size class to receive or read into.
    pub fn window(&mut self, len: u64) -> Lease {
        let mut changes = Vec::new();
        let block = self.arena.alloc(Pool::Reads, len, &mut changes);
        self.change(changes);
        self.arena.into_lease(block.expect("arena full"))
    }

    pub fn change(&mut self, changes: Vec<ChunkChange>) {
        for change in changes {
            self.act(Action::Chunk { change });
        }
    }

    pub fn bytes(&self, lease: &Lease) -> Vec<u8> {
        self.regions.bytes(lease).to_vec()
    }

    /// One turn that waits at most until `deadline`.
    pub fn turn(&mut self, deadline: Option<MonoMicros>) {
        self.shell.turn(deadline, &mut self.events);
    }

    /// Turns until an event is of interest; others stay for later.
    pub fn until<T>(&mut self, what: &str, mut pick: impl FnMut(Event) -> Result<T, Event>) -> T {
        let give_up = clock::mono().plus_millis(PATIENCE_MS);
        loop {
            for index in 0..self.events.len() {
                match pick(self.events.remove(index)) {
                    Ok(found) => return found,
                    Err(event) => self.events.insert(index, event),
                }
            }
            assert!(clock::mono() < give_up, "no {what} came; there is {:?}", self.events);
            self.turn(Some(give_up));
        }
    }

    /// Events that were not of interest so far.
    pub fn left(&self) -> &[Event] {
        &self.events
    }

    pub fn job(&mut self, what: FileJob) -> Result<FileDone, crate::ids::Errno> {
        let job = self.start_job(what);
        self.until("file job", |event| match event {
            Event::File { job: done, result } if done == job => Ok(result),
            other => Err(other),
        })
    }

    pub fn start_job(&mut self, what: FileJob) -> FileJobId {
        self.jobs += 1;
        let job = FileJobId(self.jobs);
        self.act(Action::File { job, what });
        job
    }

    /// Creates `<base 0>.log` of `t-0`, `len` bytes of zeroed extents.
    pub fn create_segment(&mut self, file: FileId, len: u64) {
        let path = segment(0);
        let done = self.job(FileJob::CreateSegment { file, path, len, extents: Extents::Zeroed });
        assert_eq!(done, Ok(FileDone::Opened { file, len }));
    }

    /// Puts bytes into a sealed segment `<base>.log` of `t-0`, none of them in the page cache, and opens it.
    pub fn sealed_segment(&mut self, file: FileId, base: i64, bytes: &[u8]) {
        write_cold(&self.file_path(&segment(base)), bytes);
        let done = self.job(FileJob::OpenSealed { file, path: segment(base) });
        assert_eq!(done, Ok(FileDone::Opened { file, len: bytes.len() as u64 }));
    }

    pub fn file_path(&self, file: &PartitionFile) -> PathBuf {
        let FileKind::Log(base) = file.kind else { panic!("only segments have a path here") };
        self.path.join(&*file.dir.name).join(format!("{base:020}.log"))
    }

    pub fn accepted(&mut self) -> ConnId {
        self.until("connection", |event| match event {
            Event::Accepted { conn, .. } => Ok(conn),
            other => Err(other),
        })
    }

    pub fn recv_small(&mut self, conn: ConnId) {
        self.act(Action::Recv { conn, into: RecvInto::Small });
    }

    pub fn provide(&mut self) {
        let lease = self.window(4096);
        self.act(Action::Provide { lease });
    }

    pub fn send(&mut self, conn: ConnId, parts: Vec<Part>) {
        self.act(Action::Send { conn, parts });
    }
}

pub fn partition() -> PartitionDir {
    PartitionDir { dir: DirId(0), name: "t-0".into() }
}

pub fn segment(base: i64) -> PartitionFile {
    of_partition(FileKind::Log(Offset(base)))
}

pub fn of_partition(kind: FileKind) -> PartitionFile {
    PartitionFile { dir: partition(), kind }
}

/// Bytes that differ from block to block, so that a mix-up shows.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 512) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

/// Writes a file past the page cache, so that nothing of it is resident: advice to throw pages out need not be taken.
fn write_cold(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    let mut aligned = vec![0; bytes.len().next_multiple_of(4096) + 4096];
    let skip = aligned.as_ptr().align_offset(4096);
    aligned[skip..skip + bytes.len()].copy_from_slice(bytes);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path).expect("create segment");
    file.write_all_at(&aligned[skip..][..bytes.len().next_multiple_of(4096)], 0).expect("write segment");
    file.set_len(bytes.len() as u64).expect("cut the padding off");
}
