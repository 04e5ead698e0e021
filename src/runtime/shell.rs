//! The shell of a data core: executes the actions of its shard and reports what came of them as events. It decides
//! nothing; what it keeps is what the kernel may still touch.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::arena::{ChunkChange, Regions};
use crate::fatal::Reason;
use crate::ids::{CoreId, MonoMicros, Now};
use crate::io::Io;
use crate::io::clock;
use crate::io::crowd::Crowds;
use crate::io::disk::{Disk, WriteOrder};
use crate::io::file::{DiskFault, Files, Registry, hold_lock};
use crate::io::job::Jobs;
use crate::io::memory::{Memory, Taken};
use crate::io::op::Token;
use crate::io::ring::{Completion, Ring, RingSettings, Wait};
use crate::io::small_pool::SmallPool;
use crate::io::socket::Net;
use crate::runtime::mailbox::{Letter, Post};
use crate::runtime::pulse::Pulse;
use crate::shard::action::{Action, Actions};
use crate::shard::event::Event;
use crate::shard::message::Peer;

/// The shell of one data core; lives and dies on that core's thread.
pub struct Shell {
    // The ring in here is dropped before everything that it may still touch.
    io: Io,
    disk: Disk,
    jobs: Jobs,
    net: Net,
    post: Post,
    completions: Vec<Completion>,
    pulse: Arc<Pulse>,
    strict: bool,
    warned: bool,
    busy_poll_us: u64,
    /// When something last happened, for busy polling.
    busy_until: MonoMicros,
}

/// What a shell is made of.
pub struct ShellParts {
    /// Which core.
    pub core: CoreId,
    /// Its arena's memory.
    pub memory: Memory,
    /// The memory of all cores.
    pub regions: Arc<Regions>,
    /// Open data directories, by `DirId`.
    pub dirs: Arc<[OwnedFd]>,
    /// The lock files of the data directories, held until the ring's last operation.
    pub locks: Arc<[OwnedFd]>,
    /// The sealed files of all cores.
    pub registry: Arc<Registry>,
    /// Its listener; `None` for a core without clients.
    pub listener: Option<OwnedFd>,
    /// Its mail.
    pub post: Post,
    /// The connections of all cores.
    pub crowds: Arc<Crowds>,
    /// Where it shows that it lives.
    pub pulse: Arc<Pulse>,
    /// Limits and modes.
    pub settings: ShellSettings,
}

/// Limits and modes of a shell.
#[derive(Clone, Debug)]
pub struct ShellSettings {
    /// Connections at a time.
    pub connections_max: u32,
    /// Small blocks that the shard may lend at a time; a power of two up to 32,768.
    pub small_blocks_max: u16,
    /// Active segments that get a slot in the ring's file table; more work, with a descriptor lookup per write.
    pub active_files_max: u32,
    /// io-wq workers for files; 0 leaves the kernel's default of 4 per CPU.
    pub workers_max: u32,
    /// CPUs of those workers; empty leaves them unbound.
    pub worker_cpus: Vec<usize>,
    /// Refuse to run with unregistered memory.
    pub strict: bool,
    /// Poll for so long before sleeping, in µs; 0 sleeps at once.
    pub busy_poll_us: u64,
    /// A disk that goes bad, for tests.
    pub fault: Option<DiskFault>,
}

impl Default for ShellSettings {
    fn default() -> Self {
        ShellSettings {
            connections_max: 16_384,
            small_blocks_max: 1_024,
            active_files_max: 16_384,
            workers_max: 0,
            worker_cpus: Vec::new(),
            strict: false,
            busy_poll_us: 0,
            fault: None,
        }
    }
}

/// How long a thread with letters held back sleeps before it looks for room again.
const HELD_LETTERS_US: u64 = 1_000;

impl Shell {
    /// Sets a shell up on the calling thread.
    ///
    /// # Errors
    /// `Reason::Kernel` with a remedy when the ring cannot be had.
    pub fn new(parts: ShellParts) -> Result<Shell, Reason> {
        let ShellParts { core, memory, regions, dirs, locks, registry, listener, post, crowds, pulse, settings } =
            parts;
        let mut ring = Ring::new(&RingSettings {
            buffers: memory.chunks(),
            files: settings.active_files_max + locks.len() as u32,
            workers_max: settings.workers_max,
            worker_cpus: settings.worker_cpus.clone(),
            ..RingSettings::default()
        })?;
        locks.iter().for_each(|lock| hold_lock(&mut ring, lock.as_fd()));
        let pool = SmallPool::new(&mut ring, settings.small_blocks_max)
            .map_err(|errno| Reason::Kernel(format!("no ring of provided buffers: {errno}; use Linux 6.1 or newer")))?;
        let jobs = Jobs::new(core, &ring, dirs.len());
        let files = Files::new(dirs, registry, settings.fault);
        post.announce_ring(ring.fd());
        let mut shell = Shell {
            io: Io { ring, core, memory, regions, files, now: clock::mono(), events: Vec::new() },
            disk: Disk::default(),
            jobs,
            net: Net::new(listener, settings.connections_max, crowds, pool),
            post,
            completions: Vec::new(),
            pulse,
            strict: settings.strict,
            warned: false,
            busy_poll_us: settings.busy_poll_us,
            busy_until: MonoMicros(0),
        };
        shell.listen_for_bell();
        Ok(shell)
    }

    /// Hands over what was submitted, waits until something happens or `deadline` comes, and adds what happened to
    /// `events`.
    pub fn turn(&mut self, deadline: Option<MonoMicros>, events: &mut Vec<Event>) -> Now {
        self.replace_hung_workers();
        self.net.accept(&mut self.io);
        self.send_mail();
        let wait = self.wait(deadline);
        self.pulse.waits_for(self.io.files.oldest());
        self.io.ring.enter(wait);
        self.post.woke();
        self.pulse.wakes();
        let now = clock::now();
        self.io.now = now.mono;
        self.reap();
        self.net.resume(&mut self.io);
        self.receive_mail();
        if !self.io.events.is_empty() {
            self.busy_until = now.mono.plus_micros(self.busy_poll_us);
        }
        events.append(&mut self.io.events);
        self.pulse.publish(self.disk.counts(), self.net.open());
        now
    }

    /// Executes actions in order and empties the list.
    pub fn execute(&mut self, actions: &mut Actions) {
        for action in actions.drain(..) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let io = &mut self.io;
        match action {
            Action::Provide { lease } => self.net.provide(io, lease),
            Action::Recv { conn, into } => self.net.recv(io, conn, into),
            Action::Send { conn, parts } => self.net.send(io, conn, parts),
            Action::Close { conn, linger } => self.net.close(io, conn, linger),
            Action::Write { write, file, at, block, sync } => {
                self.disk.write(io, WriteOrder { write, file, at, block, sync });
            }
            Action::Flush { flush, dir: _, file } => self.disk.flush(io, flush, file),
            Action::Read { read, range, into } => self.disk.read(io, read, range, into),
            Action::Probe { probe, range } => self.disk.probe(io, probe, range),
            Action::File { job, what } => self.jobs.start(io, job, what),
            Action::Chunk { change } => self.change_chunk(change),
            Action::Mail { to, message } => self.post.send(to, Letter::Message(message)),
            Action::HandOver { conn, to } => {
                let socket = self.net.release(io, conn, to);
                self.post.send(Peer::Core(to), Letter::Socket(socket));
            }
            Action::Fatal { reason } => reason.end(),
        }
    }

    /// What hangs in a directory that was given up keeps its io-wq workers; the other directories need theirs.
    fn replace_hung_workers(&mut self) {
        for dir in self.pulse.take_given_up() {
            self.io.ring.add_workers(self.io.files.in_flight(dir));
        }
    }

    fn reap(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.io.ring.reap(&mut completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
    }

    fn complete(&mut self, completion: Completion) {
        let (io, result) = (&mut self.io, completion.result);
        match completion.token {
            Token::Disk(slot) => self.disk.complete(io, slot, result),
            Token::Job(slot) => self.jobs.complete(io, slot, result),
            Token::Recv(slot) => self.net.received(io, slot, result, completion.flags),
            Token::Send(slot) => self.net.sent_some(io, slot, result),
            Token::Accept => self.net.accepted(io, result),
            Token::Bell => {
                self.post.bell().clear();
                self.listen_for_bell();
            }
            Token::Rang(peer) if result < 0 => self.post.ring_bell_of(peer),
            Token::Rang(_) | Token::Rung | Token::Ignore => {}
        }
    }

    /// How long to wait. Whatever can go on without waiting forbids it.
    fn wait(&mut self, deadline: Option<MonoMicros>) -> Wait {
        if !self.io.events.is_empty() || self.net.has_unfinished() {
            return Wait::No;
        }
        let now = clock::mono();
        let held = self.post.holds_letters().then(|| now.plus_micros(HELD_LETTERS_US));
        let until = [deadline, self.net.accept_again(), held].into_iter().flatten().min();
        if now < self.busy_until || until.is_some_and(|at| at <= now) || !self.post.may_sleep() {
            return Wait::No;
        }
        self.pulse.sleeps(now);
        until.map_or(Wait::Forever, |at| Wait::For(Duration::from_micros(at.micros_since(now))))
    }

    fn send_mail(&mut self) {
        let ring = &mut self.io.ring;
        self.post.flush();
        self.post.ring_bells(|peer, target| {
            ring.wake_other(target, Token::Rang(peer));
            true
        });
    }

    fn receive_mail(&mut self) {
        let (io, net) = (&mut self.io, &mut self.net);
        self.post.receive(|from, letter| match letter {
            Letter::Message(message) => io.events.push(Event::Mail { from, message }),
            Letter::Socket(socket) => net.adopt(io, socket),
        });
    }

    fn listen_for_bell(&mut self) {
        self.io.ring.poll(self.post.bell().fd(), libc::POLLIN, Token::Bell);
    }

    fn change_chunk(&mut self, change: ChunkChange) {
        match self.io.memory.change(&mut self.io.ring, change) {
            Ok(Some(Taken::Unregistered)) => self.unregistered(),
            Ok(_) => {}
            Err(errno) => {
                let text = format!("no memory for the arena ({errno}): lower the memory budget, or free memory");
                Reason::Settings(text).end()
            }
        }
    }

    fn unregistered(&mut self) {
        let text = "the memory lock limit is too low to register the arena: every write pins its memory anew, at more \
                    CPU; set LimitMEMLOCK=infinity (ulimit -l unlimited)";
        if self.strict {
            Reason::Settings(text.to_string()).end();
        }
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(core = self.io.core.0, "{text}");
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.post.announce_ring(-1);
    }
}
