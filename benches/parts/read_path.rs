//! By which way bytes leave for a consumer: CPU of the sending thread for a copying send, SEND_ZC and sendfile, from
//! memory and from the page cache, on loopback. `io/send_path.rs` holds the choice.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, types};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::time::{ClockId, clock_gettime};

use crate::Clock;

/// Bytes of one piece: a fetch of a consumer at the tail, and a slice of a catch-up read.
const PIECES: [usize; 3] = [4 << 10, 64 << 10, 256 << 10];

pub fn run(clock: &Clock) {
    for piece in PIECES {
        let bytes = clock.size(4, 4096) * (256 << 10);
        let content = vec![7; piece];
        let memory = File::from(memfd_create("bench", MemfdFlags::CLOEXEC).expect("a memfd"));
        let cached = tempfile::tempfile().expect("a file");
        for file in [&memory, &cached] {
            let mut file = file;
            file.write_all(&content).expect("room");
        }
        let copying = spent(bytes, piece, |socket| send(socket, &content));
        let zero_copy = spent_by_ring(bytes, &content);
        let from_memory = spent(bytes, piece, |socket| send_file(socket, &memory, piece));
        let from_cache = spent(bytes, piece, |socket| send_file(socket, &cached, piece));
        println!(
            "  pieces of {:>3} KiB, CPU s per GB: copying send {copying:.3}, SEND_ZC {zero_copy:.3}, sendfile of a memfd \
             {from_memory:.3}, sendfile of cached pages {from_cache:.3}",
            piece >> 10
        );
    }
}

/// CPU seconds of the calling thread per 10^9 bytes that `send` hands to a socket, one piece a call.
fn spent(bytes: usize, piece: usize, mut send: impl FnMut(&TcpStream)) -> f64 {
    let (socket, reader) = drained();
    let begun = cpu_seconds();
    (0..bytes / piece).for_each(|_| send(&socket));
    let spent = cpu_seconds() - begun;
    drop(socket);
    reader.join().expect("it only reads");
    spent / (bytes as f64 / 1e9)
}

fn spent_by_ring(bytes: usize, content: &[u8]) -> f64 {
    let mut ring = IoUring::new(8).expect("a ring");
    spent(bytes, content.len(), |socket| {
        let fd = types::Fd(socket.as_raw_fd());
        let send = opcode::SendZc::new(fd, content.as_ptr(), content.len() as u32).flags(libc::MSG_WAITALL);
        // SAFETY: content and socket live until the last completion, which is waited for below.
        unsafe { ring.submission().push(&send.build()) }.expect("an empty queue");
        let mut over = false;
        while !over {
            ring.submit_and_wait(1).expect("a ring");
            for entry in ring.completion() {
                assert!(entry.result() >= 0, "a connected socket: {}", entry.result());
                over = !cqueue::more(entry.flags());
            }
        }
    })
}

fn send(socket: &TcpStream, content: &[u8]) {
    let mut socket = socket;
    socket.write_all(content).expect("the other side reads");
}

fn send_file(socket: &TcpStream, file: &File, piece: usize) {
    let mut at = 0;
    while at < piece as u64 {
        let left = piece - at as usize;
        sendfile(socket, file, Some(&mut at), left).expect("a file and a socket");
    }
}

fn drained() -> (TcpStream, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (mut reader, _) = listener.accept().expect("just connected");
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while reader.read(&mut buffer).expect("a socket") > 0 {}
    });
    (socket, reading)
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
