//! A `pinion serve` process: started on free ports, read until it is ready, ended with the test.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

/// A running broker. Dropping it kills it.
pub struct Broker {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    log: PathBuf,
    /// Where clients connect.
    pub kafka: String,
    /// Where HTTP is.
    pub http: String,
    /// The line it printed when it was ready.
    pub ready: String,
}

/// `pinion` with these arguments, not started yet.
pub fn pinion(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinion"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What a test that says nothing about it gets: a busy machine is no hanging disk, and a full one is full enough only for
/// tests of full disks.
const CALM: [(&str, &str); 2] = [("disk.stall.timeout.ms", "60s"), ("log.min.free.bytes", "0")];

/// `pinion serve` on free ports with its data in `dir`, and these further arguments.
pub fn serve(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = pinion(&["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"]);
    command.args(["--http", "127.0.0.1:0", "--set", "arena.bytes=64MiB", "--data-dir"]).arg(dir).args(arguments);
    for (name, value) in CALM {
        if !arguments.iter().any(|argument| argument.starts_with(name)) {
            command.args(["--set", &format!("{name}={value}")]);
        }
    }
    command
}

impl Broker {
    /// Starts a broker and waits until it is ready.
    pub fn start(dir: &Path, arguments: &[&str]) -> Broker {
        let log = dir.with_extension("log");
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let mut child = serve(dir, arguments).stdout(Stdio::piped()).stderr(file).spawn().expect("pinion starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut ready = String::new();
        stdout.read_line(&mut ready).expect("text");
        let field = |name: &str| {
            let value = ready.split_whitespace().find_map(|word| word.strip_prefix(name));
            value.unwrap_or_else(|| panic!("no {name} in {ready:?}; {}", read(&log))).to_string()
        };
        let (kafka, http) = (field("kafka="), field("http="));
        Broker { child, stdout, log, kafka, http, ready }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Whether the process has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    /// Sends SIGTERM.
    pub fn ask_to_end(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(&mut self) -> (ExitStatus, String) {
        self.ask_to_end();
        self.wait()
    }

    /// Waits for the end; gives the status and what it printed after the ready line.
    pub fn wait(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("ended"), rest)
    }

    /// Kills it (SIGKILL) and waits for the end.
    pub fn kill(&mut self) {
        self.child.kill().expect("running");
        self.child.wait().expect("ended");
    }

    /// The value of a metric without labels; 0 when it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = self.get("/metrics").1;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_default()
    }

    /// The status line and body of an HTTP GET.
    pub fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.http).expect("HTTP listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.lines().next().unwrap_or_default().to_string(), body.to_string())
    }

    /// Runs `pinion topic …` against it.
    pub fn topic(&self, arguments: &[&str]) -> Output {
        pinion(&["topic", "--bootstrap", &self.kafka]).args(arguments).output().expect("pinion runs")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// Says that something could not be tested here; fails where everything is required.
pub fn skip(name: &str, reason: &str) {
    assert_ne!(std::env::var("PINION_REQUIRE_ALL").as_deref(), Ok("1"), "{name} is required: {reason}");
    eprintln!("skipped {name}: {reason}");
    if let Ok(skips) = std::env::var("PINION_SKIPS") {
        let mut file = File::options().create(true).append(true).open(skips).expect("the file of skips");
        writeln!(file, "{name}: {reason}").expect("written");
    }
}
