//! Connections: accept, receive, send by every way, close while operations are in flight.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;

use crate::arena::Lease;
use crate::ids::{ConnId, Errno, FileId, FilePos, MonoMicros};
use crate::io::clock;
use crate::runtime::shell::ShellSettings;
use crate::shard::action::{Action, FileRange, Linger, Part, Parts, RecvInto};
use crate::shard::event::{Event, Received};
use socket2::{Domain, Socket, Type};

use super::core::{Core, pattern};

impl Core {
    fn connect(&mut self) -> (TcpStream, ConnId) {
        let client = TcpStream::connect(self.address).expect("connect");
        (client, self.accepted())
    }

    fn received_small(&mut self, wanted: ConnId) -> Vec<u8> {
        let (lease, len) = self.until("small receive", |event| match event {
            Event::Received { conn, bytes: Received::Small { lease, len } } if conn == wanted => Ok((lease, len)),
            other => Err(other),
        });
        let bytes = self.bytes(&lease)[..len as usize].to_vec();
        self.arena.release(lease);
        bytes
    }

    fn recv_window(&mut self, conn: ConnId, lease: Lease, from: u32) {
        self.act(Action::Recv { conn, into: RecvInto::Window { lease, from } });
    }

    fn received_window(&mut self, wanted: ConnId) -> (Lease, u32) {
        self.until("window receive", |event| match event {
            Event::Received { conn, bytes: Received::Window { lease, len } } if conn == wanted => Ok((lease, len)),
            other => Err(other),
        })
    }

    fn hangup(&mut self, wanted: ConnId) -> (Option<Lease>, Option<Errno>) {
        self.until("hangup", |event| match event {
            Event::Hangup { conn, window, error } if conn == wanted => Ok((window, error)),
            other => Err(other),
        })
    }

    fn sent(&mut self, wanted: ConnId) -> (Parts, Result<(), Errno>) {
        self.until("sent", |event| match event {
            Event::Sent { conn, parts, result } if conn == wanted => Ok((parts, result)),
            other => Err(other),
        })
    }

    fn close(&mut self, conn: ConnId, linger: Linger) {
        self.act(Action::Close { conn, linger });
    }

    fn closed(&mut self, wanted: ConnId) {
        self.until("closed", |event| match event {
            Event::Closed { conn } if conn == wanted => Ok(()),
            other => Err(other),
        });
    }

    /// Some turns without an event of interest.
    fn idle_turns(&mut self) {
        for _ in 0..10 {
            self.turn(Some(clock::mono().plus_micros(500)));
        }
    }
}

/// A client with a receive buffer so small that every larger response is sent in many pieces.
fn narrow_client(core: &mut Core) -> (TcpStream, ConnId) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
    socket.set_recv_buffer_size(4096).expect("receive buffer");
    socket.connect(&core.address.into()).expect("connect");
    (socket.into(), core.accepted())
}

fn read_slowly(mut client: TcpStream, len: usize) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; len];
        for piece in bytes.chunks_mut(1_777) {
            client.read_exact(piece).expect("read");
        }
        bytes
    })
}

#[test]
fn a_small_receive_takes_a_block_only_when_bytes_arrive() {
    let mut core = Core::new();
    let (mut client, conn) = core.connect();
    core.provide();
    core.recv_small(conn);
    core.idle_turns();
    assert!(core.left().is_empty());
    client.write_all(b"hello").expect("write");
    assert_eq!(core.received_small(conn), b"hello");
}

#[test]
fn more_connections_than_blocks_wait_without_being_closed() {
    let mut core = Core::new();
    core.provide();
    let mut clients: Vec<(TcpStream, ConnId)> = (0..5).map(|_| core.connect()).collect();
    for (client, conn) in &mut clients {
        core.recv_small(*conn);
        client.write_all(b"request").expect("write");
    }
    core.idle_turns();
    let served = core.left().iter().filter(|event| matches!(event, Event::Received { .. })).count();
    assert_eq!((served, core.left().len()), (1, 1), "one block serves one, the others wait");
    for _ in 0..5 {
        let (lease, len) = core.until("small receive", |event| match event {
            Event::Received { bytes: Received::Small { lease, len }, .. } => Ok((lease, len)),
            other => Err(other),
        });
        assert_eq!(&core.bytes(&lease)[..len as usize], b"request");
        core.act(Action::Provide { lease });
    }
}

#[test]
fn closing_a_connection_that_waits_for_a_block_ends_its_receive_first() {
    let mut core = Core::new();
    let (mut client, conn) = core.connect();
    core.recv_small(conn);
    client.write_all(b"request").expect("write");
    core.idle_turns();
    core.close(conn, Linger::Graceful);
    assert_eq!(core.hangup(conn), (None, Some(Errno(libc::ECANCELED))));
    core.closed(conn);
    core.provide();
    let (mut next, conn) = core.connect();
    core.recv_small(conn);
    next.write_all(b"next").expect("write");
    assert_eq!(core.received_small(conn), b"next");
}

#[test]
fn a_window_is_filled_from_where_it_is_filled_already() {
    let mut core = Core::new();
    let (mut client, conn) = core.connect();
    let lease = core.window(65_536);
    core.recv_window(conn, lease, 100);
    let bytes = pattern(65_436, 1);
    // In two pieces: the receive ends only when the window is full.
    client.write_all(&bytes[..30_000]).expect("write");
    core.idle_turns();
    assert!(core.left().is_empty());
    client.write_all(&bytes[30_000..]).expect("write");
    let (lease, len) = core.received_window(conn);
    assert_eq!(len, 65_436);
    assert!(core.bytes(&lease)[100..] == bytes[..]);
}

#[test]
fn a_window_larger_than_all_socket_buffers_is_filled_in_one_receive() {
    let mut core = Core::new();
    let (mut client, conn) = core.connect();
    let block = core.arena.alloc_window(16 << 20).expect("window");
    let lease = core.arena.into_lease(block);
    core.recv_window(conn, lease, 0);
    let writer = std::thread::spawn(move || {
        client.write_all(&pattern(16 << 20, 2)).expect("write");
        client
    });
    let (lease, len) = core.received_window(conn);
    assert_eq!(len, 16 << 20);
    assert!(core.bytes(&lease) == pattern(16 << 20, 2));
    writer.join().expect("writer");
}

#[test]
fn a_peer_that_leaves_half_way_gives_what_came_and_then_hangs_up() {
    let mut core = Core::new();
    let (mut client, conn) = core.connect();
    let lease = core.window(8192);
    core.recv_window(conn, lease, 0);
    client.write_all(b"half").expect("write");
    client.shutdown(Shutdown::Write).expect("shutdown");
    let (lease, len) = core.received_window(conn);
    assert_eq!(len, 4);
    core.recv_window(conn, lease, 4);
    let (window, error) = core.hangup(conn);
    assert_eq!((window.map(|lease| lease.len()), error), (Some(8192), None));
    core.provide();
    core.recv_small(conn);
    assert_eq!(core.hangup(conn), (None, None));
}

#[test]
fn a_hang_up_takes_no_block_away() {
    let mut core = Core::new();
    core.provide();
    for _ in 0..3 {
        let (client, conn) = core.connect();
        core.recv_small(conn);
        drop(client);
        assert_eq!(core.hangup(conn), (None, None));
        core.close(conn, Linger::Graceful);
        core.closed(conn);
    }
    let (mut client, conn) = core.connect();
    core.recv_small(conn);
    client.write_all(b"still served").expect("write");
    assert_eq!(core.received_small(conn), b"still served");
}

#[test]
fn a_reset_by_the_peer_is_a_hang_up_with_its_errno() {
    let mut core = Core::new();
    let (client, conn) = core.connect();
    core.provide();
    core.recv_small(conn);
    core.turn(Some(MonoMicros(0)));
    Socket::from(client).set_linger(Some(std::time::Duration::ZERO)).expect("linger");
    assert_eq!(core.hangup(conn), (None, Some(Errno(libc::ECONNRESET))));
}

#[test]
fn parts_of_every_kind_arrive_in_order_and_come_back() {
    let mut core = Core::new();
    core.sealed_segment(FileId(1), 0, &pattern(3 << 20, 1));
    let (client, conn) = core.connect();
    let range = |at, len| Part::File(FileRange { file: FileId(1), at: FilePos(at), len });
    let arena = core.lease(&pattern(70_000, 2));
    let tail = core.lease(&pattern(10, 3));
    let parts = vec![
        Part::Bytes(b"header".to_vec()),
        Part::Arena(arena),
        range(1_000, 2 << 20),
        Part::Bytes(Vec::new()),
        range(7, 0),
        range(0, 1),
        Part::Bytes(b"between".to_vec()),
        Part::Arena(tail),
    ];
    let wanted = [
        &b"header"[..],
        &pattern(70_000, 2),
        &pattern(3 << 20, 1)[1_000..][..2 << 20],
        &pattern(3 << 20, 1)[..1],
        b"between",
        &pattern(10, 3),
    ]
    .concat();
    let reader = read_slowly(client, wanted.len());
    core.send(conn, parts);
    let (parts, result) = core.sent(conn);
    assert_eq!((parts.len(), result), (8, Ok(())));
    assert!(reader.join().expect("reader") == wanted);
}

#[test]
fn a_reader_with_a_tiny_buffer_gets_everything_and_holds_nobody_up() {
    let mut core = Core::new();
    core.sealed_segment(FileId(1), 0, &pattern(1 << 20, 1));
    let (narrow, conn) = narrow_client(&mut core);
    let file = Part::File(FileRange { file: FileId(1), at: FilePos(0), len: 1 << 20 });
    let big = Part::Bytes(pattern(8 << 20, 2));
    core.send(conn, vec![big, file]);
    core.idle_turns();
    assert!(core.left().is_empty(), "the send waits for room in the socket");
    let (mut other, other_conn) = core.connect();
    core.send(other_conn, vec![Part::Bytes(b"quick".to_vec())]);
    assert_eq!(core.sent(other_conn).1, Ok(()));
    let mut quick = [0; 5];
    other.read_exact(&mut quick).expect("read");
    let reader = read_slowly(narrow, 9 << 20);
    assert_eq!(core.sent(conn).1, Ok(()));
    let bytes = reader.join().expect("reader");
    assert!(bytes[..8 << 20] == pattern(8 << 20, 2)[..] && bytes[8 << 20..] == pattern(1 << 20, 1)[..]);
}

#[test]
fn more_parts_than_one_gather_holds_arrive_in_order() {
    let mut core = Core::new();
    let (client, conn) = core.connect();
    let parts: Vec<Part> = (0..200).map(|index| Part::Bytes(pattern(index, index as u8))).collect();
    let wanted: Vec<u8> = (0..200).flat_map(|index| pattern(index, index as u8)).collect();
    core.send(conn, parts);
    assert_eq!(core.sent(conn).1, Ok(()));
    assert!(read_slowly(client, wanted.len()).join().expect("reader") == wanted);
}

#[test]
fn one_fast_reader_of_a_long_file_does_not_keep_others_waiting() {
    let mut core = Core::new();
    core.sealed_segment(FileId(1), 0, &pattern(32 << 20, 1));
    let (client, conn) = core.connect();
    let reader = read_slowly(client, 32 << 20);
    core.send(conn, vec![Part::File(FileRange { file: FileId(1), at: FilePos(0), len: 32 << 20 })]);
    let (mut other, other_conn) = core.connect();
    core.provide();
    core.recv_small(other_conn);
    other.write_all(b"ping").expect("write");
    assert_eq!(core.received_small(other_conn), b"ping");
    assert_eq!(core.sent(conn).1, Ok(()));
    assert!(reader.join().expect("reader") == pattern(32 << 20, 1));
}

#[test]
fn a_response_from_a_closed_or_shortened_file_fails_instead_of_stopping_short() {
    let mut core = Core::new();
    core.sealed_segment(FileId(1), 0, b"short");
    let (_client, conn) = core.connect();
    let range = |file| vec![Part::File(FileRange { file: FileId(file), at: FilePos(0), len: 100 })];
    core.send(conn, range(2));
    assert_eq!(core.sent(conn).1, Err(Errno(libc::EBADF)));
    core.send(conn, range(1));
    assert_eq!(core.sent(conn).1, Err(Errno(libc::EIO)));
}

#[test]
fn a_graceful_close_delivers_what_was_sent() {
    let mut core = Core::new();
    let (client, conn) = core.connect();
    core.send(conn, vec![Part::Bytes(pattern(100_000, 1))]);
    assert_eq!(core.sent(conn).1, Ok(()));
    core.close(conn, Linger::Graceful);
    core.closed(conn);
    let mut bytes = Vec::new();
    (&client).read_to_end(&mut bytes).expect("an orderly end");
    assert!(bytes == pattern(100_000, 1));
}

#[test]
fn a_reset_reaches_the_peer_instead_of_what_is_still_queued() {
    let mut core = Core::new();
    let (mut client, conn) = narrow_client(&mut core);
    core.send(conn, vec![Part::Bytes(pattern(8 << 20, 1))]);
    core.idle_turns();
    core.close(conn, Linger::Reset);
    let (parts, result) = core.sent(conn);
    assert!(result.is_err() && parts.len() == 1, "{result:?}");
    core.closed(conn);
    let mut bytes = Vec::new();
    let error = client.read_to_end(&mut bytes).expect_err("no orderly end");
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
    assert!(bytes.len() < 1 << 20, "{} bytes came after the reset", bytes.len());
}

#[test]
fn closing_ends_what_is_in_flight_before_it_is_reported() {
    for linger in [Linger::Graceful, Linger::Reset] {
        let mut core = Core::new();
        let (_client, conn) = narrow_client(&mut core);
        let lease = core.window(4096);
        core.recv_window(conn, lease, 0);
        core.send(conn, vec![Part::Bytes(pattern(8 << 20, 1))]);
        core.idle_turns();
        core.close(conn, linger);
        let order: Vec<&str> = (0..3)
            .map(|_| {
                core.until("end of the connection", |event| match event {
                    Event::Hangup { window: Some(_), .. } => Ok("hangup"),
                    Event::Sent { result: Err(_), .. } => Ok("sent"),
                    Event::Closed { .. } => Ok("closed"),
                    other => Err(other),
                })
            })
            .collect();
        assert_eq!(order[2], "closed", "{order:?}");
        assert!(order.contains(&"hangup") && order.contains(&"sent"), "{order:?}");
    }
}

#[test]
fn a_slot_is_used_again_under_another_turn() {
    let mut core = Core::with(ShellSettings { connections_max: 1, ..ShellSettings::default() });
    let (_first, conn) = core.connect();
    // The table is full: the next connection waits in the backlog until there is room.
    let _second = TcpStream::connect(core.address).expect("connect");
    core.idle_turns();
    assert!(core.left().is_empty());
    core.close(conn, Linger::Graceful);
    core.closed(conn);
    let next = core.accepted();
    assert_eq!((next.slot, next.turn), (conn.slot, conn.turn + 1));
}
