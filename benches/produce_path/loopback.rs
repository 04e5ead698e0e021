//! What loopback sets as limits: the time of a ping-pong, what a thread can receive, what plain sendfile moves.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise, sendfile};

/// A peer that answers every request of one size with an answer of another.
pub struct PingPong {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl PingPong {
    /// Starts the peer; it ends with this.
    pub fn start(request_bytes: usize, answer_bytes: usize) -> PingPong {
        let (stream, mut peer) = pair();
        let (mut request, answer) = (vec![0; request_bytes], vec![0; answer_bytes]);
        std::thread::spawn(move || {
            while peer.read_exact(&mut request).is_ok() {
                peer.write_all(&answer).expect("the other side reads");
            }
        });
        PingPong { stream, request: vec![0; request_bytes], answer: vec![0; answer_bytes] }
    }

    /// One exchange.
    pub fn exchange(&mut self) -> Duration {
        let begun = Instant::now();
        self.stream.write_all(&self.request).expect("the peer reads");
        self.stream.read_exact(&mut self.answer).expect("the peer answers");
        begun.elapsed()
    }
}

/// Bytes per second of wall time, and per second of the receiver's CPU, when one thread receives `bytes` in pieces of
/// 128 KiB and does nothing else.
pub fn receive_limit(bytes: u64) -> (f64, f64) {
    let (mut sender, mut receiver) = pair();
    let sending = std::thread::spawn(move || {
        let piece = vec![7; 128 * 1024];
        (0..bytes.div_ceil(piece.len() as u64)).for_each(|_| sender.write_all(&piece).expect("the other side reads"));
    });
    let (mut buffer, mut received) = (vec![0; 128 * 1024], 0);
    let (begun, cpu) = (Instant::now(), thread_cpu_seconds());
    loop {
        match receiver.read(&mut buffer).expect("a socket") {
            0 => break,
            count => received += count as u64,
        }
    }
    sending.join().expect("it only sends");
    (received as f64 / begun.elapsed().as_secs_f64(), received as f64 / (thread_cpu_seconds() - cpu))
}

/// CPU seconds of the sender per 10^9 bytes, when one thread sends `bytes` in pieces of 128 KiB and does nothing else.
pub fn send_limit(bytes: u64) -> f64 {
    let (mut sender, receiver) = pair();
    let draining = drain(receiver);
    let (piece, cpu) = (vec![7; 128 * 1024], thread_cpu_seconds());
    let pieces = bytes.div_ceil(piece.len() as u64);
    (0..pieces).for_each(|_| sender.write_all(&piece).expect("the other side reads"));
    let spent = thread_cpu_seconds() - cpu;
    drop(sender);
    draining.join().expect("it only reads");
    spent / (pieces as f64 * piece.len() as f64 / 1e9)
}

/// CPU seconds of the calling thread.
pub fn thread_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes per second, and CPU seconds of the sender per 10^9 bytes, when files are sent whole by plain sendfile.
pub fn sendfile_of(files: &[PathBuf]) -> (f64, f64) {
    let (sender, receiver) = pair();
    let draining = drain(receiver);
    let (begun, cpu, mut sent) = (Instant::now(), thread_cpu_seconds(), 0u64);
    for path in files {
        let file = std::fs::File::open(path).expect("a segment");
        let (mut at, len) = (0, file.metadata().expect("open").len());
        while at < len {
            sent += sendfile(&sender, &file, Some(&mut at), 256 * 1024).expect("a file and a socket") as u64;
        }
    }
    let cpu = thread_cpu_seconds() - cpu;
    drop(sender);
    draining.join().expect("it only reads");
    (sent as f64 / begun.elapsed().as_secs_f64(), cpu / (sent as f64 / 1e9))
}

/// Takes the pages of files out of the page cache.
pub fn make_cold(files: &[PathBuf]) {
    for path in files {
        let file = std::fs::File::open(path).expect("a segment");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice is free");
    }
}

fn drain(mut receiver: TcpStream) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while receiver.read(&mut buffer).expect("a socket") > 0 {}
    })
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (other, _) = listener.accept().expect("just connected");
    for stream in [&one, &other] {
        stream.set_nodelay(true).expect("a socket");
    }
    (one, other)
}
