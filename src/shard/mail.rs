//! Messages of the other threads, one arm each.

use crate::ids::Now;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};
use crate::shard::message::{Message, Peer};

impl Shard {
    pub(super) fn on_mail(&mut self, now: Now, from: Peer, message: Message, out: &mut Actions) {
        match message {
            Message::Append(ask) => self.on_append(now, ask, out),
            Message::Appended { origin, outcome } => self.on_appended(now, origin, outcome, out),
            Message::Fetch(ask) => self.on_fetch_ask(now, ask, out),
            Message::Fetched { origin, outcome } => self.on_fetched(now, origin, *outcome, out),
            Message::Grew { origin } => self.on_grew(now, origin, out),
            Message::Unwatch { origin, partition } => self.on_unwatch(origin, partition),
            Message::Query { origin, partition, query } => self.on_query(now, origin, partition, query, out),
            Message::Queried { origin, answer } => self.on_queried(origin, answer, out),
            Message::Return(lease) => self.arena.release(lease),
            Message::ReturnFile(file) => self.on_file_returned(file, out),
            Message::CommandDone { origin, result } => self.on_command_done(origin, result, out),
            Message::View(view) => self.view = view,
            Message::Host(partitions) => self.on_host(now, partitions, out),
            Message::Configure { topic, config } => self.on_configure(topic, &config),
            Message::Drop(partitions) => self.on_drop(now, &partitions, out),
            Message::FailDir { dir, errno } => self.fail_dir(now, dir, errno, out),
            Message::DiskLow { low } => self.pressure.set_disk_low(low),
            Message::Scrape => {
                let report = Message::Report(Box::new(self.report()));
                out.push(Action::Mail { to: Peer::Control, message: report });
            }
            Message::Stop => self.on_stop(now, out),
            Message::Command { .. }
            | Message::Hosted(_)
            | Message::Dropped(_)
            | Message::DirFailed { .. }
            | Message::Report(_)
            | Message::Stopped { .. } => panic!("{from:?} sent {message:?} to a data core"),
        }
    }
}
