//! The broker under test: a process of its own, seen from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::Wire;

/// A running broker; killed when dropped, its data removed unless it is kept.
pub struct Node {
    child: Child,
    dir: PathBuf,
    keep: bool,
    /// Where clients connect.
    pub kafka: String,
    http: String,
    /// From the start of the process to its first answer.
    pub started_in: Duration,
}

impl Node {
    /// Starts a broker with its data in `dir` and these settings, and waits for its first answer.
    pub fn start(dir: &Path, settings: &[&str]) -> Node {
        let begun = Instant::now();
        let log = std::fs::File::create(dir.with_extension("log")).expect("a log file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pinion"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(dir).args(settings.iter().flat_map(|setting| ["--set", setting]));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("the binary");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its stdout");
        let field = |name: &str| {
            let value = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            value.unwrap_or_else(|| panic!("no {name} in {line:?}; see {}", dir.display())).to_owned()
        };
        let (kafka, http) = (field("kafka="), field("http="));
        Wire::connect(&kafka).api_versions();
        Node { child, dir: dir.to_owned(), keep: false, kafka, http, started_in: begun.elapsed() }
    }

    /// kill -9. The data stays.
    pub fn kill(mut self) {
        self.keep = true;
    }

    /// The logs of all its partitions, in the order of their names.
    pub fn logs(&self) -> Vec<PathBuf> {
        let entries =
            |dir: &Path| std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("readable").path());
        let dirs = entries(&self.dir).filter(|path| path.is_dir());
        let mut logs: Vec<PathBuf> = dirs
            .flat_map(|dir| entries(&dir).collect::<Vec<_>>())
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort();
        logs
    }

    /// CPU seconds of all its threads so far, those of its io-wq workers included.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |index: usize| fields[index].parse::<f64>().expect("a number");
        // Fields 14 and 15 of proc(5), behind the name: user and system time in ticks of 10 ms.
        (ticks(11) + ticks(12)) / 100.0
    }

    /// CPU seconds of its first data core's thread so far.
    pub fn data_core_seconds(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let paths = tasks.map(|task| task.expect("readable").path());
        let named =
            |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == "data-0");
        let path = paths.into_iter().find(named).expect("a thread data-0");
        let stat = std::fs::read_to_string(path.join("schedstat")).expect("it runs");
        stat.split_whitespace().next().expect("three numbers").parse::<f64>().expect("a number") / 1e9
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of that name");
        line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") * 1024.0
    }

    /// The sum of all rows of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(&self.http).expect("HTTP listens");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let value = if rest.starts_with(['{', ' ']) { rest.rsplit_once(' ')?.1 } else { return None };
            value.parse::<f64>().ok()
        };
        answer.lines().filter_map(value).sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself, and its data may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
