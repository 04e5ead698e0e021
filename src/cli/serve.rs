//! `pinion serve`: flags and files become settings; `main.rs` does the rest.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::config::knobs::{ALIASES, KNOBS, Preset, WITHOUT_EFFECT};
use crate::config::{Config, Host, RawConfig};
use crate::fatal::Reason;

/// Flags of `pinion serve`. Each is a setting; `--set` reaches all of them.
#[derive(Debug, Default, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Read settings from a TOML file: "log.segment.bytes" = "256MiB"
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Give a setting; several times for several
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Show every setting with unit, range, default and what it does, and leave
    #[arg(long)]
    pub list_settings: bool,
    /// Id of this broker [node.id, 1]
    #[arg(long, value_name = "N")]
    pub node_id: Option<String>,
    /// Where clients connect; port 0 takes a free one [listeners, 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Address that clients are told [advertised.listeners, that of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Where other brokers connect [internal.listener, 127.0.0.1:9192]
    #[arg(long, value_name = "HOST:PORT")]
    pub internal_listen: Option<String>,
    /// Where /healthz, /readyz and /metrics are; off for nowhere [http.listener, 127.0.0.1:9644]
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Option<String>,
    /// Rack of this broker [broker.rack]
    #[arg(long, value_name = "RACK")]
    pub rack: Option<String>,
    /// Data directory; several times for several disks [log.dirs, ./pinion-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Vec<String>,
    /// Data cores: how many, or which CPUs (1-7) [cores, all but the control core's]
    #[arg(long, value_name = "N|CPUS")]
    pub cores: Option<String>,
    /// CPU of the control core [control_core, the first]
    #[arg(long, value_name = "CPU")]
    pub control_core: Option<String>,
    /// Do not tie threads to CPUs [pin=false]
    #[arg(long)]
    pub no_pin: bool,
    /// Form of the log lines on stderr [log.format, human]
    #[arg(long, value_name = "human|json")]
    pub log_format: Option<String>,
    /// Refuse to start where a fall-back would cost speed [strict=true]
    #[arg(long)]
    pub strict: bool,
}

const EXAMPLES: &str = "\
Examples:
  pinion serve
      One node on loopback: clients on 127.0.0.1:9092, HTTP on 127.0.0.1:9644, data in ./pinion-data.
  pinion serve --data-dir /nvme0/pinion --data-dir /nvme1/pinion --listen 0.0.0.0:9092 --advertise broker-1:9092
      Two disks, reachable from other hosts.
  pinion serve --cores 1-7 --control-core 0 --set arena.bytes=2GiB --set log.retention.ms=2d
      Seven data cores with 2 GiB of tail memory each.
  pinion serve --listen 127.0.0.1:0 --internal-listen 127.0.0.1:0 --http 127.0.0.1:0 --data-dir \"$(mktemp -d)\"
      On free ports; the line on stdout says which.
  pinion serve --list-settings | less

When it serves, one line is printed on stdout:
  ready node=1 kafka=127.0.0.1:9092 internal=off http=127.0.0.1:9644
SIGTERM and SIGINT stop it in an orderly way; a second one leaves at once.

Exit status: 2 usage or settings, 10 kernel or io_uring, 11 no O_DIRECT, 12 port, 13 directory locked, 14 directory of
another node, cluster or newer format, 15 disk full, 16 directory corrupt or failed, 17 metadata lost, 101+ bug.";

impl Args {
    /// The settings that these flags and the file give, resolved for this machine.
    pub fn resolve(&self, host: &Host) -> Result<Config, Reason> {
        let raw = self.raw().map_err(Reason::Settings)?;
        Config::resolve(&raw, host).map_err(Reason::Settings)
    }

    fn raw(&self) -> Result<RawConfig, String> {
        let mut raw = RawConfig::default();
        if let Some(path) = &self.config {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| format!("--config {name}: {error}"))?;
            raw.file(&name, &text)?;
        }
        let given = [
            ("--node-id", "node.id", &self.node_id),
            ("--listen", "listeners", &self.listen),
            ("--advertise", "advertised.listeners", &self.advertise),
            ("--internal-listen", "internal.listener", &self.internal_listen),
            ("--http", "http.listener", &self.http),
            ("--rack", "broker.rack", &self.rack),
            ("--cores", "cores", &self.cores),
            ("--control-core", "control_core", &self.control_core),
            ("--log-format", "log.format", &self.log_format),
        ];
        for (flag, name, value) in given {
            value.iter().try_for_each(|value| raw.flag(flag, name, value))?;
        }
        if !self.data_dir.is_empty() {
            raw.flag("--data-dir", "log.dirs", &self.data_dir.join(","))?;
        }
        if self.no_pin {
            raw.flag("--no-pin", "pin", "false")?;
        }
        if self.strict {
            raw.flag("--strict", "strict", "true")?;
        }
        self.set.iter().try_for_each(|pair| raw.set(pair))?;
        Ok(raw)
    }
}

/// The table that `--list-settings` prints.
pub fn settings_text() -> String {
    let mut text = String::from(
        "Settings, for --set NAME=VALUE or as \"NAME\" = VALUE in the file of --config.\n\
         Sizes take kB MB GB TB KiB MiB GiB TiB, durations us ms s min h d; -1 is no limit where the range has it.\n",
    );
    for knob in KNOBS {
        let default = match knob.default {
            Preset::Fixed(value) => format!("default {value}"),
            Preset::Derived(how) => format!("default: {how}"),
        };
        let doc = match knob.topic {
            Some(topic) => {
                let doc = crate::log::topic_config::definition(topic).map_or("", |definition| definition.doc);
                format!("{doc} {} {topic}.", knob.doc)
            }
            None => knob.doc.to_string(),
        };
        text.push_str(&format!("\n{}\n    {doc}\n    {}; {default}\n", knob.name, knob.range()));
    }
    text.push_str("\nOther names for them:\n");
    for (name, target, factor) in ALIASES {
        let factor = if *factor == 1 { String::new() } else { format!(" / {factor}") };
        text.push_str(&format!("    {name} = {target}{factor}\n"));
    }
    text.push_str("\nAccepted without effect:\n");
    for (name, why) in WITHOUT_EFFECT {
        text.push_str(&format!("    {name}: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host { cpus: (0..4).collect(), memory_bytes: 16 << 30, files_max: 65_536 }
    }

    #[test]
    fn flags_are_settings() {
        let args = Args {
            node_id: Some("7".into()),
            listen: Some("127.0.0.1:0".into()),
            data_dir: vec!["a".into(), "b".into()],
            no_pin: true,
            set: vec!["num.partitions=3".into()],
            ..Args::default()
        };
        let config = args.resolve(&host()).expect("valid");
        assert_eq!(config.node.0, 7);
        assert_eq!(config.listen.port, 0);
        assert_eq!(config.data_dirs.len(), 2);
        assert!(!config.threads.pin);
        assert_eq!(config.topics.partitions, 3);
    }

    #[test]
    fn a_flag_and_a_set_that_differ_are_refused_with_status_2() {
        let args = Args { node_id: Some("7".into()), set: vec!["node.id=8".into()], ..Args::default() };
        let reason = args.resolve(&host()).expect_err("a contradiction");
        assert_eq!(reason.status(), 2);
        assert!(reason.text().contains("node.id is given twice: 7 by --node-id node.id and 8 by --set node.id"));
    }

    #[test]
    fn a_missing_file_is_refused_with_its_name() {
        let args = Args { config: Some("/nowhere/x.toml".into()), ..Args::default() };
        assert!(args.resolve(&host()).expect_err("missing").text().starts_with("--config /nowhere/x.toml: "));
    }

    #[test]
    fn every_setting_is_listed_with_range_and_default() {
        let text = settings_text();
        assert!(KNOBS.iter().all(|knob| text.contains(&format!("\n{}\n", knob.name))));
        assert!(text.contains("retention.ms"));
    }
}
