//! The loop of a data core: wait → handle → submit. There is no decision in it.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use crate::arena::Regions;
use crate::io::{clock, cpu};
use crate::log::checkpoint::SlotWriter;
use crate::runtime::shell::{Shell, ShellParts};
use crate::runtime::supervise::Report;
use crate::shard::Shard;
use crate::shard::config::ShardConfig;
use crate::shard::event::Event;

/// What a data core is started with.
pub struct DataCore {
    /// Its settings.
    pub config: Arc<ShardConfig>,
    /// The memory of all cores.
    pub regions: Arc<Regions>,
    /// Where its checkpoints go on, by data directory.
    pub checkpoints: Vec<SlotWriter>,
    /// What its shell is made of; set up on the core's own thread.
    pub shell: ShellParts,
    /// The CPU it stays on, when threads are pinned.
    pub cpu: Option<usize>,
}

/// Starts the thread of a data core. It ends with the process.
///
/// # Errors
/// When the thread cannot be had.
pub fn start(core: DataCore, reports: Sender<Report>) -> std::io::Result<JoinHandle<()>> {
    let name = format!("data-{}", core.config.core);
    std::thread::Builder::new().name(name).spawn(move || run(core, &reports))
}

fn run(core: DataCore, reports: &Sender<Report>) {
    if let Some(cpu) = core.cpu
        && !cpu::pin(cpu)
    {
        tracing::warn!(cpu, core = %core.config.core, "data core could not be pinned");
    }
    let mut shell = match Shell::new(core.shell) {
        Ok(shell) => shell,
        Err(reason) => {
            reports.send(Report::Fatal(reason)).expect("the main thread listens to the end");
            return;
        }
    };
    let mut actions = Vec::new();
    let mut events: Vec<Event> = Vec::new();
    let mut shard = Shard::new(core.config, core.regions, core.checkpoints, clock::now(), &mut actions);
    shell.execute(&mut actions);
    loop {
        let now = shell.turn(shard.deadline(), &mut events);
        for event in events.drain(..) {
            shard.handle(now, event, &mut actions);
        }
        if shard.deadline().is_some_and(|deadline| deadline <= now.mono) {
            shard.handle(now, Event::Deadline, &mut actions);
        }
        shard.turn_end(now, &mut actions);
        shell.execute(&mut actions);
    }
}
