//! What a broker does end to end, each figure beside the limit that the machine sets, measured in the same run.
//!
//! It starts the real binary, speaks the wire itself and looks at the process from outside. Sections by name:
//!
//! ```text
//! cargo bench --bench produce_path -- [SECTION…] [--dir DIRECTORY]
//! ```
//!
//! Without a section all of them run, in a few minutes. Without cargo's `--bench` (so under `cargo test`) each runs at a
//! smoke size that shows that it works and says nothing about speed. Data goes below the target directory, or below
//! `--dir`: to the device that is to be measured.

mod allocations;
mod catch_up;
mod cpu;
mod disk;
mod figures;
mod idle;
mod latency;
mod load;
mod loopback;
mod node;
mod partitions;
mod sustained;
mod wire;

use std::path::PathBuf;

/// What a section is told.
pub struct Run {
    /// Everything as small as possible.
    pub smoke: bool,
    /// Where data goes; each broker gets a directory of its own below it.
    pub dir: PathBuf,
}

impl Run {
    /// The smoke size or the full one.
    pub fn size<T>(&self, smoke: T, full: T) -> T {
        if self.smoke { smoke } else { full }
    }
}

type Section = (&'static str, fn(&Run));

const SECTIONS: &[Section] = &[
    ("idle", idle::run),
    ("latency", latency::run),
    ("sustained", sustained::run),
    ("cpu", cpu::run),
    ("catch-up", catch_up::run),
    ("spread", partitions::spread),
    ("partitions", partitions::many),
    ("allocations", allocations::run),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut smoke, mut wanted, mut dir) = (true, Vec::new(), PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => smoke = false,
            "--dir" => dir = arguments.next().expect("--dir names a directory").into(),
            flag if flag.starts_with('-') => {}
            name => wanted.push(name.to_owned()),
        }
    }
    let unknown = wanted.iter().find(|name| !SECTIONS.iter().any(|(section, _)| section == name));
    assert_eq!(unknown, None, "no such section; the list in the source names them");
    let run = Run { smoke, dir: dir.join(format!("produce-path-{}", std::process::id())) };
    std::fs::create_dir_all(&run.dir).expect("a place for data");
    for (name, section) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            println!("{name}:");
            section(&run);
        }
    }
    std::fs::remove_dir_all(&run.dir).expect("it was made here");
}
