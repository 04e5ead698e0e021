//! What the start needs to know of the machine, and the log lines.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Host;

/// Looks at the machine. Ask before the first thread is pinned: a pinned thread sees only its own CPU.
pub fn facts() -> Host {
    let cpus = core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    Host {
        cpus: Some(cpus).filter(|cpus: &Vec<usize>| !cpus.is_empty()).unwrap_or_else(|| vec![0]),
        memory_bytes: memory_bytes(),
        files_max: getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20),
    }
}

/// Raises the soft limit of open files to the hard one. Says how many may be open then.
pub fn raise_files_max() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limits.maximum, maximum: limits.maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limits.maximum.unwrap_or(u64::MAX),
        Err(_) => limits.current.unwrap_or(u64::MAX),
    }
}

/// RAM in bytes: the machine's, or less when the control group allows less.
fn memory_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    // A machine that does not say gets the smallest sensible arena.
    let machine = meminfo_total_bytes(&info).unwrap_or(1 << 30);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    group.and_then(|text| text.trim().parse().ok()).map_or(machine, |group: u64| group.min(machine))
}

fn meminfo_total_bytes(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Starts logging on stderr: human lines, or JSON objects. `PINION_LOG` filters (default `info`).
pub fn start_logging(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PINION_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A second start in one process (tests) keeps the first's.
    let started = match json {
        true => lines.json().flatten_event(true).with_thread_names(true).try_init(),
        false => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
    };
    if let Err(error) = started {
        eprintln!("pinion: logging was started before: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_cpus_memory_and_files() {
        let host = facts();
        assert!(!host.cpus.is_empty() && host.cpus.is_sorted());
        assert!(host.memory_bytes > 64 << 20, "{host:?}");
        assert!(host.files_max >= 256, "{host:?}");
        assert!(raise_files_max() >= 256);
    }

    #[test]
    fn meminfo_is_read_in_bytes() {
        assert_eq!(meminfo_total_bytes("MemTotal:       24627912 kB\nMemFree: 1 kB\n"), Some(24_627_912 * 1024));
        assert_eq!(meminfo_total_bytes("nothing"), None);
    }
}
