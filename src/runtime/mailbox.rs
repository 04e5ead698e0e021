//! Mail between threads: between every two of them a bounded queue each way for requests and another for answers, so
//! that an answer never waits behind requests; and doorbells, rung only for who sleeps.
//!
//! A letter that finds its queue full stays with the sender, in order, and goes as soon as there is room; what waits
//! there is bounded by the requests outstanding. Nothing is dropped.
//!
//! Sleeping: a thread sets its flag and then looks at all its queues again; a sender fills the queue and then looks at
//! the flag. With a sequentially consistent fence between the two steps on both sides at least one of them sees the
//! other, so no letter lies unseen beside a sleeper.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering, fence};

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::fatal::Reason;
use crate::ids::CoreId;
use crate::io::bell::Bell;
use crate::io::socket::Handed;
use crate::shard::message::{Message, Peer};

/// What the queues carry.
#[derive(Debug)]
pub enum Letter {
    /// A message of the decisions on the other side.
    Message(Message),
    /// A connection that another core hands over.
    Socket(Handed),
}

/// The mail of one thread.
pub struct Post {
    me: usize,
    cores: usize,
    incoming: Vec<Incoming>,
    /// By index of the peer; `None` for itself.
    outgoing: Vec<Option<Outgoing>>,
    hall: Arc<Hall>,
}

/// What all threads see of each other.
struct Hall {
    boxes: Vec<Sleeper>,
}

/// One thread as the others see it. Aligned, so that two of them share no cache line.
#[repr(align(128))]
struct Sleeper {
    sleeps: AtomicBool,
    bell: Bell,
    /// Descriptor of a data core's ring, for MSG_RING; −1 when there is none.
    ring: AtomicI32,
}

struct Incoming {
    from: usize,
    answers: Consumer<Letter>,
    requests: Consumer<Letter>,
}

struct Outgoing {
    answers: Lane,
    requests: Lane,
    /// Something was queued since the bell was last thought of.
    queued: bool,
}

struct Lane {
    queue: Producer<Letter>,
    held: VecDeque<Letter>,
}

/// The posts of `cores` data cores, of the control core, and of the background thread, in this order. Each queue holds
/// `capacity` letters.
///
/// # Errors
/// `Reason::Kernel` when no descriptor is left for the doorbells.
pub fn posts(cores: usize, capacity: usize) -> Result<Vec<Post>, Reason> {
    let peers = cores + 2;
    let sleeper = |bell| Sleeper { sleeps: AtomicBool::new(false), bell, ring: AtomicI32::new(-1) };
    let boxes = (0..peers).map(|_| Bell::new().map(sleeper)).collect::<Result<_, _>>()?;
    let hall = Arc::new(Hall { boxes });
    let post = |me| Post {
        me,
        cores,
        incoming: Vec::new(),
        outgoing: (0..peers).map(|_| None).collect(),
        hall: Arc::clone(&hall),
    };
    let mut posts: Vec<Post> = (0..peers).map(post).collect();
    for (from, to) in (0..peers).flat_map(|from| (0..peers).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        let (answers_in, answers) = RingBuffer::new(capacity);
        let (requests_in, requests) = RingBuffer::new(capacity);
        let lane = |queue| Lane { queue, held: VecDeque::new() };
        posts[from].outgoing[to] =
            Some(Outgoing { answers: lane(answers_in), requests: lane(requests_in), queued: false });
        posts[to].incoming.push(Incoming { from, answers, requests });
    }
    Ok(posts)
}

impl Post {
    /// Queues a letter; it is seen at the receiver's next turn, for which `ring_bells` wakes it.
    ///
    /// # Panics
    /// When it is addressed to the sender.
    pub fn send(&mut self, to: Peer, letter: Letter) {
        let index = self.index(to);
        let outgoing = self.outgoing[index].as_mut().unwrap_or_else(|| panic!("mail to {to:?} from itself"));
        outgoing.lane(&letter).send(letter);
        outgoing.queued = true;
    }

    /// Sends what was held back and finds room now; call it once per turn.
    pub fn flush(&mut self) {
        for outgoing in self.outgoing.iter_mut().flatten() {
            outgoing.queued |= outgoing.answers.flush() | outgoing.requests.flush();
        }
    }

    /// Whether letters are held back because a queue is full: then look again soon.
    pub fn holds_letters(&self) -> bool {
        self.outgoing.iter().flatten().any(|out| !out.answers.held.is_empty() || !out.requests.held.is_empty())
    }

    /// Wakes the receivers that sleep. `ring_remote` may wake a data core through its ring, given its index and ring;
    /// it says whether it did.
    pub fn ring_bells(&mut self, mut ring_remote: impl FnMut(u32, i32) -> bool) {
        // Between filling the queues and looking at the flags; see the module's doc.
        fence(Ordering::SeqCst);
        for (index, outgoing) in self.outgoing.iter_mut().enumerate() {
            let queued = outgoing.as_mut().is_some_and(|outgoing| std::mem::take(&mut outgoing.queued));
            if !queued {
                continue;
            }
            let sleeper = &self.hall.boxes[index];
            if sleeper.sleeps.load(Ordering::Relaxed) && sleeper.sleeps.swap(false, Ordering::Relaxed) {
                let ring = sleeper.ring.load(Ordering::Acquire);
                if ring < 0 || !ring_remote(index as u32, ring) {
                    sleeper.bell.ring();
                }
            }
        }
    }

    /// Wakes a peer by its eventfd after its ring could not be reached.
    pub fn ring_bell_of(&self, index: u32) {
        self.hall.boxes[index as usize].bell.ring();
    }

    /// Hands out what has arrived, answers first; at most what is there now, so that a turn ends.
    pub fn receive(&mut self, mut each: impl FnMut(Peer, Letter)) {
        for incoming in &mut self.incoming {
            let from = peer(self.cores, incoming.from);
            for queue in [&mut incoming.answers, &mut incoming.requests] {
                for _ in 0..queue.slots() {
                    each(from, queue.pop().expect("as many as there were slots"));
                }
            }
        }
    }

    /// Announces that this thread will sleep. False when mail is there: then it must not. Call `woke` afterwards.
    pub fn may_sleep(&self) -> bool {
        let sleeps = &self.hall.boxes[self.me].sleeps;
        sleeps.store(true, Ordering::Relaxed);
        // Between setting the flag and looking at the queues; see the module's doc.
        fence(Ordering::SeqCst);
        let empty = self.incoming.iter().all(|incoming| incoming.answers.is_empty() && incoming.requests.is_empty());
        if !empty {
            self.woke();
        }
        empty
    }

    /// The thread is awake: nobody needs to ring.
    pub fn woke(&self) {
        self.hall.boxes[self.me].sleeps.store(false, Ordering::Relaxed);
    }

    /// Lets other data cores wake this one through its ring; −1 ends that.
    pub fn announce_ring(&self, ring: i32) {
        self.hall.boxes[self.me].ring.store(ring, Ordering::Release);
    }

    /// This thread's doorbell.
    pub fn bell(&self) -> &Bell {
        &self.hall.boxes[self.me].bell
    }

    /// Whose post this is.
    pub fn me(&self) -> Peer {
        peer(self.cores, self.me)
    }

    fn index(&self, peer: Peer) -> usize {
        match peer {
            Peer::Core(CoreId(core)) => usize::from(core),
            Peer::Control => self.cores,
            Peer::Background => self.cores + 1,
        }
    }
}

impl Outgoing {
    fn lane(&mut self, letter: &Letter) -> &mut Lane {
        match letter {
            Letter::Message(message) if is_answer(message) => &mut self.answers,
            Letter::Message(_) | Letter::Socket(_) => &mut self.requests,
        }
    }
}

impl Lane {
    fn send(&mut self, letter: Letter) {
        if !self.held.is_empty() {
            return self.held.push_back(letter);
        }
        if let Err(PushError::Full(letter)) = self.queue.push(letter) {
            self.held.push_back(letter);
        }
    }

    /// Says whether anything could be sent.
    fn flush(&mut self) -> bool {
        let sent = self.held.len().min(self.queue.slots());
        for letter in self.held.drain(..sent) {
            assert!(self.queue.push(letter).is_ok(), "a free slot of our own queue is gone");
        }
        sent > 0
    }
}

/// What ends something that the receiver has outstanding, and so is bounded by that.
fn is_answer(message: &Message) -> bool {
    match message {
        Message::Appended { .. }
        | Message::Fetched { .. }
        | Message::Grew { .. }
        | Message::Queried { .. }
        | Message::Return(_)
        | Message::ReturnFile(_)
        | Message::CommandDone { .. }
        | Message::Hosted(_)
        | Message::Dropped(_)
        | Message::Report(_)
        | Message::Stopped { .. } => true,
        Message::Append(_)
        | Message::Fetch(_)
        | Message::Unwatch { .. }
        | Message::Query { .. }
        | Message::Command { .. }
        | Message::View(_)
        | Message::Host(_)
        | Message::Configure { .. }
        | Message::Drop(_)
        | Message::DirFailed { .. }
        | Message::FailDir { .. }
        | Message::DiskLow { .. }
        | Message::Scrape
        | Message::Stop => false,
    }
}

fn peer(cores: usize, index: usize) -> Peer {
    match index.checked_sub(cores) {
        None => Peer::Core(CoreId(index as u16)),
        Some(0) => Peer::Control,
        Some(_) => Peer::Background,
    }
}
