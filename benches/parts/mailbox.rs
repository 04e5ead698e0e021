//! Mail between two threads: beside the bare queue below it, and beside two eventfds.

use std::hint::black_box;
use std::sync::Arc;

use pinion::ids::CoreId;
use pinion::io::bell::Bell;
use pinion::runtime::mailbox::{Letter, Post, posts};
use pinion::shard::message::{Message, Peer};
use rtrb::RingBuffer;

use crate::{Clock, beside};

/// Letters that go in a turn.
const LETTERS: usize = 64;

pub fn run(clock: &Clock) {
    pass(clock);
    wake(clock);
}

fn letter() -> Letter {
    Letter::Message(Message::DiskLow { low: false })
}

/// What queueing and taking a letter costs while both sides are awake.
fn pass(clock: &Clock) {
    let mut both = posts(2, 4096).expect("doorbells");
    let (to, mut receiver) = (Peer::Core(CoreId(1)), both.remove(1));
    let mut sender = both.remove(0);
    let turn = clock.nanos(20_000, |_| {
        (0..LETTERS).for_each(|_| sender.send(to, letter()));
        sender.flush();
        sender.ring_bells(|_, _| true);
        receiver.receive(|_, letter| drop(black_box(letter)));
    });
    let (mut queue_in, mut queue_out) = RingBuffer::new(4096);
    let bare = clock.nanos(20_000, |_| {
        (0..LETTERS).for_each(|_| assert!(queue_in.push(letter()).is_ok(), "room for a turn"));
        while let Ok(letter) = queue_out.pop() {
            drop(black_box(letter));
        }
    });
    let each = |nanos| nanos / LETTERS as f64;
    beside("a letter, both awake", each(turn), "the bare queue", each(bare));
}

/// A letter to a thread that sleeps, and its answer.
fn wake(clock: &Clock) {
    let count = 5_000;
    let mut both = posts(2, 4096).expect("doorbells");
    let (mut echo, mut asker) = (both.remove(1), both.remove(0));
    std::thread::spawn(move || {
        while await_letter(&mut echo) {
            send(&mut echo, Peer::Core(CoreId(0)), letter());
        }
    });
    let trip = clock.nanos(count, |_| {
        send(&mut asker, Peer::Core(CoreId(1)), letter());
        await_letter(&mut asker);
    });
    send(&mut asker, Peer::Core(CoreId(1)), Letter::Message(Message::Stop));
    let (one, other) = (Arc::new(Bell::new().expect("an eventfd")), Arc::new(Bell::new().expect("an eventfd")));
    let (heard, answer) = (Arc::clone(&one), Arc::clone(&other));
    std::thread::spawn(move || {
        loop {
            heard.wait();
            answer.ring();
        }
    });
    let bells = clock.nanos(count, |_| {
        one.ring();
        other.wait();
    });
    beside("there and back, both asleep", trip, "two eventfds", bells);
}

fn send(post: &mut Post, to: Peer, letter: Letter) {
    post.send(to, letter);
    post.flush();
    post.ring_bells(|_, _| false);
}

/// Sleeps until a letter is there. False when it says to stop.
fn await_letter(post: &mut Post) -> bool {
    let (mut heard, mut go_on) = (false, true);
    while !heard {
        if post.may_sleep() {
            post.bell().wait();
            post.woke();
        }
        post.receive(|_, letter| {
            heard = true;
            go_on = !matches!(letter, Letter::Message(Message::Stop));
        });
    }
    go_on
}
