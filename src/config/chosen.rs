//! The one line at start that says what was chosen and why.

use super::quantity::Unit;
use super::{Config, Host};

impl Config {
    /// What was chosen for this machine, and why; what falls back is named. What the devices say is added by who asks them.
    pub fn chosen(&self, host: &Host) -> String {
        let (threads, budgets) = (&self.threads, &self.budgets);
        let because = |name: &str, why: &str| match self.given.contains_key(name) {
            true => "given".to_string(),
            false => why.to_string(),
        };
        let cpus = host.cpus.len();
        let bytes = |bytes: u64| Unit::Bytes.show(bytes as i64);
        let mut parts = vec![
            format!("data cores on CPUs {:?} ({})", threads.data_cpus, because("cores", &format!("{cpus} CPUs"))),
            format!("control core on CPU {}", threads.control_cpu),
            format!("background on {:?}", threads.background_cpus),
            format!("pinned: {} ({})", threads.pin, because("pin", pinning(threads.small_host))),
            format!("flush.mode {}", self.disk.flush_mode),
            format!(
                "arena {} per core ({})",
                bytes(budgets.arena_bytes),
                because("arena.bytes", &format!("a quarter of {} MiB RAM", host.memory_bytes >> 20))
            ),
            format!("up to {} connections and {} partitions", budgets.connections_max, budgets.partitions_max),
            format!("({} open files allowed)", host.files_max),
        ];
        if threads.small_host {
            let stall = Unit::Millis.show(self.disk.stall_timeout_ms as i64);
            parts.push(format!("small host: 2 io-wq workers per core, no real-time thread, stall timeout {stall}"));
        }
        if threads.busy_poll_us > 0 {
            parts.push(format!("idle cores spin for {} µs", threads.busy_poll_us));
        }
        parts.join(", ").replace(", (", " (")
    }

    /// What the operator should be warned of, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let open = !self.listen.is_loopback();
        let text = "clients of other hosts can connect, and there is no TLS and no authentication yet";
        open.then(|| format!("{}: {text}", self.listen)).into_iter().collect()
    }
}

fn pinning(small_host: bool) -> &'static str {
    if small_host { "fewer CPUs than threads" } else { "every thread has a CPU" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    fn resolve(pairs: &[&str], cpus: usize) -> (Config, Host) {
        let host = Host { cpus: (0..cpus).collect(), memory_bytes: 8 << 30, files_max: 524_288 };
        let mut raw = RawConfig::default();
        pairs.iter().for_each(|pair| raw.set(pair).expect("valid"));
        (Config::resolve(&raw, &host).expect("valid"), host)
    }

    #[test]
    fn the_choice_is_told_with_its_reason() {
        let (config, host) = resolve(&[], 4);
        assert_eq!(
            config.chosen(&host),
            "data cores on CPUs [1, 2, 3] (4 CPUs), control core on CPU 0, background on [0], pinned: true (every thread has \
             a CPU), flush.mode synced, arena 682 MiB per core (a quarter of 8192 MiB RAM), up to 20000 connections and 50000 \
             partitions (524288 open files allowed)"
        );
    }

    #[test]
    fn what_was_given_and_what_falls_back_is_named() {
        let (config, host) = resolve(&["arena.bytes=64MiB", "busy_poll_us=50"], 2);
        let text = config.chosen(&host);
        assert!(text.contains("arena 64 MiB per core (given)"), "{text}");
        assert!(text.contains("pinned: false (fewer CPUs than threads)"), "{text}");
        assert!(text.contains("small host: 2 io-wq workers per core") && text.contains("stall timeout 10 s"), "{text}");
        assert!(text.ends_with("idle cores spin for 50 µs"), "{text}");
    }

    #[test]
    fn a_listener_off_loopback_is_warned_of_once() {
        assert_eq!(resolve(&[], 4).0.warnings(), Vec::<String>::new());
        let warnings = resolve(&["listeners=0.0.0.0:9092"], 4).0.warnings();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("0.0.0.0:9092: "));
    }
}
