//! One io_uring, owned by the thread that made it.
//!
//! SINGLE_ISSUER and DEFER_TASKRUN: completions appear only while this thread is inside [`Ring::enter`], so they never
//! interrupt it. `enter` always passes GETEVENTS; without it a deferred ring hands out nothing (reference/io.md §5.1).
//! The crate's own `Submitter` cannot remember a registered ring descriptor across calls, so the one call of the hot
//! loop, io_uring_enter, is made here.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use libc::{c_int, c_long, c_uint, c_void};

use crate::fatal::Reason;
use crate::ids::Errno;
use crate::io::op::Token;

/// A ring with its two tables: registered buffers (one slot per arena chunk) and files.
pub struct Ring {
    uring: IoUring,
    /// What io_uring_enter gets as descriptor, and the flag that says of which kind it is.
    enter_fd: RawFd,
    enter_flags: c_uint,
    /// Submissions whose last completion has not been reaped.
    in_flight: u64,
    /// Free slots of the file table.
    free_files: Vec<u32>,
}

/// How a ring is set up.
#[derive(Clone, Debug)]
pub struct RingSettings {
    /// Submissions gathered before they must be handed over.
    pub entries: u32,
    /// Completions the shared queue holds; more are kept by the kernel, at a price.
    pub completions: u32,
    /// Slots of the registered buffer table.
    pub buffers: u32,
    /// Slots of the file table.
    pub files: u32,
    /// Most io-wq workers for files of this thread; 0 leaves the kernel's default.
    pub workers_max: u32,
    /// CPUs that io-wq workers of this thread may use; empty leaves them unbound.
    pub worker_cpus: Vec<usize>,
}

impl Default for RingSettings {
    fn default() -> Self {
        RingSettings { entries: 1024, completions: 8192, buffers: 0, files: 0, workers_max: 0, worker_cpus: Vec::new() }
    }
}

/// How long [`Ring::enter`] may wait for a first completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something completes.
    Forever,
    /// Until something completes or the time is over.
    For(Duration),
}

/// One reaped completion.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// What it belongs to.
    pub token: Token,
    /// Count or descriptor, or a negated errno.
    pub result: i32,
    /// IORING_CQE_F_* flags.
    pub flags: u32,
}

impl Completion {
    /// The result with its errno as a value.
    pub fn outcome(&self) -> Result<u32, Errno> {
        outcome(self.result)
    }
}

/// A kernel result: non-negative, or a negated errno.
pub fn outcome(result: i32) -> Result<u32, Errno> {
    u32::try_from(result).map_err(|_| Errno(-result))
}

impl Ring {
    /// Sets a ring up for the calling thread, which alone may use it.
    ///
    /// # Errors
    /// `Reason::Kernel` with a remedy when io_uring is disabled or the kernel older than 6.1.
    pub fn new(settings: &RingSettings) -> Result<Ring, Reason> {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let refused = |error: std::io::Error| refusal(error.raw_os_error().unwrap_or(0), &release);
        if kernel_version(&release) < (6, 1) {
            return Err(refusal(libc::EINVAL, &release));
        }
        // NO_SQARRAY saves a cache line per submission and needs 6.6.
        let uring = match build(settings, true) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => build(settings, false),
            built => built,
        }
        .map_err(refused)?;
        let mut ring =
            Ring { enter_fd: uring.as_raw_fd(), enter_flags: 0, uring, in_flight: 0, free_files: Vec::new() };
        ring.register_own_fd();
        ring.register_tables(settings).map_err(refused)?;
        Ok(ring)
    }

    /// The ring's descriptor, which other rings address with MSG_RING.
    pub fn fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }

    /// Submissions whose last completion is outstanding.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Queues a submission; it leaves with the next [`Ring::enter`], or now when the queue is full.
    ///
    /// # Safety
    /// Memory and descriptors that the entry names must stay valid until the completion of `token` has been reaped, or
    /// the ring has been dropped.
    pub unsafe fn push(&mut self, entry: squeue::Entry, token: Token) {
        let entry = entry.user_data(token.to_bits());
        // SAFETY: the caller keeps what the entry names alive.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.enter(Wait::No);
        }
        self.in_flight += 1;
    }

    /// Waits for poll events (POLLIN, POLLOUT) of a descriptor, once. It must stay open until the completion.
    pub fn poll(&mut self, fd: BorrowedFd<'_>, events: i16, token: Token) {
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events as u32).build();
        // SAFETY: no memory is named; a descriptor closed too early would be polled in vain.
        unsafe { self.push(entry, token) };
    }

    /// Wakes the thread that waits in another ring, with a completion of `Token::Rung` there. The completion here, of
    /// `token`, says whether that worked.
    pub fn wake_other(&mut self, other: RawFd, token: Token) {
        let entry = opcode::MsgRingData::new(types::Fd(other), 0, Token::Rung.to_bits(), None).build();
        // SAFETY: no memory is named, and a descriptor that is no ring any more is refused.
        unsafe { self.push(entry, token) };
    }

    /// Hands over what was pushed and waits for a completion as long as `wait` says. Says whether the kernel took
    /// everything; it takes less only when it is short of memory, and the next call tries again.
    pub fn enter(&mut self, wait: Wait) -> bool {
        let timespec = match wait {
            Wait::For(time) => Timespec { seconds: time.as_secs() as i64, nanos: i64::from(time.subsec_nanos()) },
            Wait::No | Wait::Forever => Timespec { seconds: 0, nanos: 0 },
        };
        let argument = EnterArgument {
            sigmask: 0,
            sigmask_len: 8,
            min_wait_us: 0,
            timespec: if matches!(wait, Wait::For(_)) { &raw const timespec as u64 } else { 0 },
        };
        let pushed = self.uring.submission().len() as c_uint;
        let flags = self.enter_flags | ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the argument and what it points at live through the call; the entries are covered by `push`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd as c_long,
                c_long::from(pushed),
                c_long::from(wait != Wait::No),
                c_long::from(flags),
                &raw const argument,
                size_of::<EnterArgument>(),
            )
        };
        if result < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            // A signal, the end of the time, a full completion queue or a shortage of memory: reaping helps them all.
            let harmless = [libc::EINTR, libc::ETIME, libc::EBUSY, libc::EAGAIN, libc::ENOMEM].contains(&errno);
            assert!(harmless, "io_uring_enter of {pushed} entries: {}", Errno(errno));
        }
        self.uring.submission().is_empty()
    }

    /// Moves all completions that are there into `into`.
    pub fn reap(&mut self, into: &mut Vec<Completion>) {
        for entry in self.uring.completion() {
            let token = Token::from_bits(entry.user_data());
            let last = !io_uring::cqueue::more(entry.flags());
            if last && token != Token::Rung {
                assert!(self.in_flight > 0, "completion of {token:?} while nothing is in flight");
                self.in_flight -= 1;
            }
            into.push(Completion { token, result: entry.result(), flags: entry.flags() });
        }
    }

    /// Puts a descriptor into the file table and returns its slot; `None` when the table is full.
    pub fn install_file(&mut self, fd: BorrowedFd<'_>) -> Option<u32> {
        let slot = self.free_files.pop()?;
        match self.uring.submitter().register_files_update(slot, &[fd.as_raw_fd()]) {
            Ok(_) => Some(slot),
            Err(_) => {
                self.free_files.push(slot);
                None
            }
        }
    }

    /// Empties a slot of the file table. Operations in flight keep the file.
    pub fn remove_file(&mut self, slot: u32) {
        let removed = self.uring.submitter().register_files_update(slot, &[-1]);
        assert!(removed.is_ok(), "file slot {slot}: {removed:?}");
        self.free_files.push(slot);
    }

    /// Registers memory under a slot of the buffer table, which pins it.
    ///
    /// # Errors
    /// `ENOMEM` when RLIMIT_MEMLOCK does not allow it.
    ///
    /// # Safety
    /// The memory must stay mapped until the slot is cleared or the ring dropped.
    pub unsafe fn register_buffer(&mut self, slot: u32, base: *mut u8, len: usize) -> Result<(), Errno> {
        let iovec = libc::iovec { iov_base: base.cast::<c_void>(), iov_len: len };
        // SAFETY: the caller keeps the memory mapped.
        let updated = unsafe { self.uring.submitter().register_buffers_update(slot, &[iovec], None) };
        updated.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Empties a slot of the buffer table.
    pub fn clear_buffer(&mut self, slot: u32) {
        // SAFETY: an empty entry names no memory.
        let cleared = unsafe { self.register_buffer(slot, std::ptr::null_mut(), 0) };
        assert!(cleared.is_ok(), "buffer slot {slot}: {cleared:?}");
    }

    /// Registers a ring of provided buffers as group `group`.
    ///
    /// # Safety
    /// The `entries` entries at `base` (page aligned) must stay valid until the ring is dropped.
    pub unsafe fn register_buffer_ring(&mut self, base: u64, entries: u16, group: u16) -> Result<(), Errno> {
        // SAFETY: the caller keeps the entries valid.
        let registered = unsafe { self.uring.submitter().register_buf_ring_with_flags(base, entries, group, 0) };
        registered.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Whether the kernel knows an operation.
    pub fn knows(&self, opcode: u8) -> bool {
        let mut probe = io_uring::Probe::new();
        self.uring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode)
    }

    /// Saves a descriptor lookup per turn. Where it is refused the plain descriptor serves as well.
    fn register_own_fd(&mut self) {
        let mut update = RingFdUpdate { offset: u32::MAX, reserved: 0, data: self.enter_fd as u64 };
        // SAFETY: one element of the array that REGISTER_RING_FDS reads and writes.
        let registered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.enter_fd as c_long,
                REGISTER_RING_FDS,
                &raw mut update,
                1 as c_long,
            )
        };
        if registered == 1 {
            self.enter_fd = update.offset as RawFd;
            self.enter_flags = ENTER_REGISTERED_RING;
        }
    }

    fn register_tables(&mut self, settings: &RingSettings) -> std::io::Result<()> {
        let submitter = self.uring.submitter();
        if settings.buffers > 0 {
            submitter.register_buffers_sparse(settings.buffers)?;
        }
        if settings.files > 0 {
            submitter.register_files_sparse(settings.files)?;
        }
        if settings.workers_max > 0 {
            submitter.register_iowq_max_workers(&mut [settings.workers_max, 0])?;
        }
        if !settings.worker_cpus.is_empty() {
            submitter.register_iowq_aff(&super::cpu::cpu_set(&settings.worker_cpus))?;
        }
        self.free_files = (0..settings.files).rev().collect();
        Ok(())
    }
}

impl Ring {
    /// Allows for so many more io-wq workers, as those that are there may never come back from what they do.
    pub fn add_workers(&mut self, count: u32) {
        let mut limits: [u32; 2] = [0, 0];
        let submitter = self.uring.submitter();
        let raised = submitter.register_iowq_max_workers(&mut limits).and_then(|()| {
            limits = limits.map(|limit| limit.saturating_add(count));
            submitter.register_iowq_max_workers(&mut limits)
        });
        if let Err(error) = raised {
            tracing::error!(%error, count, "io-wq workers that hang cannot be replaced");
        }
        // The kernel looks at the limit when work comes in; work that waits already is done along with it.
        let work = opcode::Nop::new().build().flags(squeue::Flags::ASYNC);
        // SAFETY: it names no memory.
        unsafe { self.push(work, Token::Ignore) };
    }
}

impl Drop for Ring {
    /// Cancels what is in flight and waits for it, because the kernel may write into its buffers until then. Disk
    /// operations cannot be cancelled; one that never ends leaves no choice but to end the process.
    fn drop(&mut self) {
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        let mut reaped = Vec::new();
        for _ in 0..DRAIN_ROUNDS {
            if self.in_flight == 0 {
                return;
            }
            // SAFETY: a cancellation names no memory.
            unsafe { self.push(cancel.clone(), Token::Ignore) };
            self.enter(Wait::For(Duration::from_millis(100)));
            self.reap(&mut reaped);
        }
        let what = format!("{} operations of a ring that is dropped do not end", self.in_flight);
        crate::fatal::end_as_bug(crate::fatal::STATUS_STUCK, &what)
    }
}

/// How often `Drop` cancels and waits for 100 ms.
const DRAIN_ROUNDS: u32 = 100;

const ENTER_GETEVENTS: c_uint = 1 << 0;
const ENTER_EXT_ARG: c_uint = 1 << 3;
const ENTER_REGISTERED_RING: c_uint = 1 << 4;
const REGISTER_RING_FDS: c_long = 20;

/// `struct io_uring_getevents_arg` of linux/io_uring.h.
#[repr(C)]
struct EnterArgument {
    sigmask: u64,
    sigmask_len: u32,
    min_wait_us: u32,
    timespec: u64,
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

fn build(settings: &RingSettings, no_sqarray: bool) -> std::io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(settings.completions)
        .dontfork();
    if no_sqarray {
        builder.setup_no_sqarray();
    }
    builder.build(settings.entries)
}

/// Major and minor version of a kernel release such as `6.18.44-generic`.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// What the operator can do about a ring that cannot be had.
fn refusal(errno: c_int, release: &str) -> Reason {
    Reason::Kernel(match errno {
        libc::EPERM | libc::EACCES => {
            "io_uring is disabled: set kernel.io_uring_disabled=0 with sysctl; in a container \
             allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile"
                .to_string()
        }
        libc::ENOSYS => "this kernel has no io_uring, or a seccomp profile hides it: allow io_uring_setup, \
             io_uring_enter and io_uring_register, or use a kernel with CONFIG_IO_URING"
            .to_string(),
        libc::EINVAL => format!("io_uring of kernel {release} is too old: use Linux 6.1 or newer"),
        libc::ENOMEM => "no memory for io_uring: raise LimitMEMLOCK (ulimit -l), or lower the budgets".to_string(),
        libc::EMFILE | libc::ENFILE => {
            "no file descriptor left for io_uring: raise LimitNOFILE (ulimit -n)".to_string()
        }
        errno => format!("io_uring cannot be set up: {}", Errno(errno)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(settings: RingSettings) -> Ring {
        Ring::new(&settings).expect("ring")
    }

    #[test]
    fn a_full_submission_queue_is_handed_over_and_nothing_is_lost() {
        let mut ring = ring(RingSettings { entries: 4, completions: 8, ..RingSettings::default() });
        for index in 0..100 {
            // SAFETY: a nop names no memory.
            unsafe { ring.push(opcode::Nop::new().build(), Token::Job(index)) };
        }
        let mut reaped = Vec::new();
        while reaped.len() < 100 {
            ring.enter(Wait::Forever);
            ring.reap(&mut reaped);
        }
        let tokens: Vec<Token> = reaped.iter().map(|completion| completion.token).collect();
        assert_eq!(tokens, (0..100).map(Token::Job).collect::<Vec<_>>());
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn waiting_ends_without_a_completion_when_the_time_is_over() {
        let mut ring = ring(RingSettings::default());
        assert!(ring.enter(Wait::For(Duration::from_millis(1))));
        let mut reaped = Vec::new();
        ring.reap(&mut reaped);
        assert!(reaped.is_empty());
    }

    #[test]
    fn a_dropped_ring_ends_what_is_in_flight_first() {
        let (reader, _writer) = rustix::pipe::pipe().expect("pipe");
        let mut ring = ring(RingSettings::default());
        let mut buffer = [0u8; 8];
        let read = opcode::Read::new(types::Fd(reader.as_raw_fd()), buffer.as_mut_ptr(), 8).build();
        // SAFETY: the buffer and the pipe live longer than the ring.
        unsafe { ring.push(read, Token::Job(0)) };
        ring.enter(Wait::No);
        assert_eq!(ring.in_flight(), 1);
        drop(ring);
        assert_eq!(buffer, [0; 8]);
    }

    #[test]
    fn the_file_table_reuses_slots_and_says_when_it_is_full() {
        let mut ring = ring(RingSettings { files: 1, ..RingSettings::default() });
        let file = tempfile::tempfile().expect("file");
        let fd = std::os::fd::AsFd::as_fd(&file);
        assert_eq!(ring.install_file(fd), Some(0));
        assert_eq!(ring.install_file(fd), None);
        ring.remove_file(0);
        assert_eq!(ring.install_file(fd), Some(0));
    }

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert_eq!(kernel_version("6.18.44-fc"), (6, 18));
        assert_eq!(kernel_version("6.1"), (6, 1));
        assert!(kernel_version("5.15.0-91-generic") < (6, 1));
        assert_eq!(kernel_version("odd"), (0, 0));
    }

    #[test]
    fn every_refusal_names_a_remedy() {
        let text = |errno| refusal(errno, "5.15.0").to_string();
        assert!(text(libc::EPERM).contains("kernel.io_uring_disabled=0"));
        assert!(text(libc::EINVAL).contains("kernel 5.15.0") && text(libc::EINVAL).contains("6.1"));
        assert!(text(libc::ENOMEM).contains("LimitMEMLOCK"));
        assert!(text(libc::EMFILE).contains("LimitNOFILE"));
        assert_eq!(refusal(libc::ENOSYS, "").status(), 10);
    }
}
