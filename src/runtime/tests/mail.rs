//! Mail between threads, and doorbells.

use std::io::Write;
use std::net::TcpStream;

use crate::ids::{CoreId, MonoMicros, PartitionId, Ticket};
use crate::io::op::Token;
use crate::io::ring::{Ring, RingSettings, Wait};
use crate::runtime::mailbox::{Letter, Post, posts};
use crate::shard::action::Action;
use crate::shard::event::{Crowd, Event, Received};
use crate::shard::message::{Message, Origin, Peer};

use super::core::Core;

/// A request that carries a number.
fn request(number: u32) -> Letter {
    Letter::Message(Message::Unwatch { origin: origin(number), partition: PartitionId::default() })
}

/// An answer that carries a number.
fn answer(number: u32) -> Letter {
    Letter::Message(Message::Grew { origin: origin(number) })
}

fn origin(number: u32) -> Origin {
    Origin { core: CoreId(0), ticket: Ticket(0), slot: number }
}

fn number(letter: Letter) -> u32 {
    match letter {
        Letter::Message(Message::Unwatch { origin, .. } | Message::Grew { origin }) => origin.slot,
        other => panic!("unexpected {other:?}"),
    }
}

fn received(post: &mut Post) -> Vec<(Peer, u32)> {
    let mut all = Vec::new();
    post.receive(|from, letter| all.push((from, number(letter))));
    all
}

#[test]
fn letters_arrive_in_order_and_answers_overtake_requests() {
    let mut posts = posts(2, 4).expect("posts");
    let core = Peer::Core(CoreId(0));
    for number in 0..3 {
        posts[1].send(core, request(number));
        posts[1].send(core, answer(10 + number));
    }
    posts[2].send(core, request(20));
    let (one, control) = (Peer::Core(CoreId(1)), Peer::Control);
    let wanted = [(one, 10), (one, 11), (one, 12), (one, 0), (one, 1), (one, 2), (control, 20)];
    assert_eq!(received(&mut posts[0]), wanted);
}

#[test]
fn a_full_queue_holds_letters_back_in_order_and_loses_none() {
    let mut posts = posts(1, 4).expect("posts");
    let control = Peer::Control;
    for number in 0..10 {
        posts[0].send(control, request(number));
    }
    posts[0].send(control, answer(100));
    assert!(posts[0].holds_letters());
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(received(&mut posts[1]).into_iter().map(|(_, number)| number));
        posts[0].flush();
    }
    assert_eq!(all, [100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "a full lane of requests does not stop answers");
    assert!(!posts[0].holds_letters());
}

#[test]
fn only_a_sleeper_is_rung_and_only_once() {
    let mut posts = posts(2, 4).expect("posts");
    let (to, mut rung) = (Peer::Core(CoreId(1)), Vec::new());
    posts[1].announce_ring(77);
    posts[0].send(to, request(1));
    posts[0].ring_bells(|index, ring| {
        rung.push((index, ring));
        true
    });
    assert!(rung.is_empty(), "it is awake");
    assert!(!posts[1].may_sleep(), "there is mail");
    received(&mut posts[1]);
    assert!(posts[1].may_sleep());
    for number in 0..2 {
        posts[0].send(to, request(number));
        posts[0].ring_bells(|index, ring| {
            rung.push((index, ring));
            true
        });
    }
    assert_eq!(rung, [(1, 77)]);
}

/// Passes a number to and fro between two threads that sleep whenever they have nothing to do. A lost wake-up would
/// leave both asleep; then the test hangs, which the runner reports.
#[test]
fn no_wake_up_is_lost_between_two_threads_that_sleep() {
    const ROUNDS: u32 = 20_000;
    let mut posts = posts(0, 4).expect("posts");
    let (background, control) = (posts.remove(1), posts.remove(0));
    let play = |mut post: Post, other: Peer, serves: bool| {
        if serves {
            post.send(other, request(0));
            post.ring_bells(|_, _| false);
        }
        let mut last = 0;
        while last < ROUNDS {
            if post.may_sleep() {
                post.bell().wait();
                post.woke();
            }
            for (_, number) in received(&mut post) {
                last = number.max(last);
                post.send(other, request(number + 1));
            }
            post.flush();
            post.ring_bells(|_, _| false);
        }
        last
    };
    let partner = std::thread::spawn(move || play(background, Peer::Control, false));
    let last = play(control, Peer::Background, true);
    assert!((ROUNDS..=ROUNDS + 1).contains(&last));
    partner.join().expect("partner");
}

#[test]
fn a_core_that_sleeps_in_its_ring_is_woken_by_the_control_core() {
    let mut core = Core::new();
    let mut control = core.others.remove(1);
    let sender = std::thread::spawn(move || {
        for number in 0..1_000 {
            control.send(Peer::Core(CoreId(0)), request(number));
            control.flush();
            control.ring_bells(|_, _| false);
        }
        while control.holds_letters() {
            control.flush();
            control.ring_bells(|_, _| false);
            std::thread::yield_now();
        }
    });
    for wanted in 0..1_000 {
        let got = core.until("mail", |event| match event {
            Event::Mail { from: Peer::Control, message } => Ok(number(Letter::Message(message))),
            other => Err(other),
        });
        assert_eq!(got, wanted);
    }
    sender.join().expect("sender");
}

#[test]
fn mail_of_a_core_reaches_the_others() {
    let mut core = Core::new();
    let mut control = core.others.remove(1);
    assert!(control.may_sleep());
    core.act(Action::Mail { to: Peer::Control, message: Message::Grew { origin: origin(5) } });
    core.turn(Some(MonoMicros(0)));
    control.bell().wait();
    control.woke();
    assert_eq!(received(&mut control), [(Peer::Core(CoreId(0)), 5)]);
}

#[test]
fn a_handed_over_connection_arrives_elsewhere_with_what_was_not_read() {
    let mut core = Core::new();
    let mut neighbour = core.others.remove(0);
    let mut client = TcpStream::connect(core.address).expect("connect");
    client.write_all(b"unread").expect("write");
    let conn = core.accepted();
    core.act(Action::HandOver { conn, to: CoreId(1) });
    core.turn(Some(MonoMicros(0)));
    let after = Crowd { here: 0, least: 1, at: CoreId(1) };
    assert_eq!(core.crowds.seen_from(CoreId(0)), Some(after), "it counts where it goes");
    // The neighbour hands it back: the same way, in the other direction.
    core.crowds.moved(CoreId(1), CoreId(0));
    let mut sockets = Vec::new();
    neighbour.receive(|from, letter| match letter {
        Letter::Socket(socket) => sockets.push((from, socket)),
        other => panic!("unexpected {other:?}"),
    });
    let (from, socket) = sockets.remove(0);
    neighbour.send(from, Letter::Socket(socket));
    neighbour.ring_bells(|_, _| false);
    let again = core.accepted();
    assert_eq!((again.slot, again.turn), (conn.slot, conn.turn + 1));
    core.provide();
    core.recv_small(again);
    let len = core.until("bytes", |event| match event {
        Event::Received { bytes: Received::Small { len, .. }, .. } => Ok(len),
        other => Err(other),
    });
    assert_eq!(len, 6);
}

#[test]
fn a_core_that_sleeps_in_its_ring_is_woken_through_the_ring_of_another() {
    let mut core = Core::new();
    let mut neighbour = core.others.remove(0);
    let sender = std::thread::spawn(move || {
        let mut ring = Ring::new(&RingSettings::default()).expect("ring");
        for number in 0..1_000 {
            neighbour.send(Peer::Core(CoreId(0)), request(number));
            while neighbour.holds_letters() {
                neighbour.flush();
                std::thread::yield_now();
            }
            neighbour.ring_bells(|index, other| {
                ring.wake_other(other, Token::Rang(index));
                true
            });
            ring.enter(Wait::No);
        }
        let mut completions = Vec::new();
        while ring.in_flight() > 0 {
            ring.enter(Wait::Forever);
            ring.reap(&mut completions);
        }
        assert!(completions.iter().all(|completion| completion.result >= 0), "{completions:?}");
    });
    for wanted in 0..1_000 {
        let got = core.until("mail", |event| match event {
            Event::Mail { from: Peer::Core(CoreId(1)), message } => Ok(number(Letter::Message(message))),
            other => Err(other),
        });
        assert_eq!(got, wanted);
    }
    sender.join().expect("sender");
}
