//! Partitions come, change and go, as the control core says; and data directories fail.

use std::sync::Arc;

use crate::ids::{DirId, Errno, Now, PartitionId, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::log::topic_config::TopicConfig;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, FileJob};
use crate::shard::file_jobs::Purpose;
use crate::shard::message::{AppendOutcome, HostPartition, Message, Peer};
use crate::shard::partition::Partition;

impl Shard {
    pub(super) fn on_host(&mut self, now: Now, partitions: Vec<HostPartition>, out: &mut Actions) {
        let ids = partitions.iter().map(|partition| partition.id).collect();
        for host in partitions {
            let failed = self.writes.has_failed(host.dir.dir);
            let (id, unindexed) = (host.id, host.log.unindexed.clone());
            let tail_writes = self.config.tail_writes[usize::from(host.dir.dir.0)];
            let mut partition = Partition::open(host, tail_writes, now);
            if failed {
                partition.fail(Errno(EIO), |_| {});
            }
            self.partitions.add(partition);
            self.rebuild_indexes(id, &unindexed, out);
        }
        out.push(Action::Mail { to: Peer::Control, message: Message::Hosted(ids) });
    }

    pub(super) fn on_configure(&mut self, topic: TopicId, config: &Arc<TopicConfig>) {
        for (_, partition) in self.partitions.iter_mut().filter(|(_, partition)| partition.id.topic == topic) {
            partition.config = config.clone();
        }
    }

    /// The topic is deleted: nothing more is appended or served, and the directory is renamed once nothing is in flight
    /// at its files.
    pub(super) fn on_drop(&mut self, now: Now, ids: &[PartitionId], out: &mut Actions) {
        for id in ids {
            let Some(slot) = self.partitions.slot(*id) else {
                out.push(Action::Mail { to: Peer::Control, message: Message::Dropped(vec![*id]) });
                continue;
            };
            self.partitions.by_slot(slot).expect("found by its id").begin_drop();
            self.refuse_waiting(now, slot, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, out);
            self.wake_watches(now, slot, out);
            self.continue_close(slot, out);
        }
    }

    /// Takes the next step towards the end of a partition, if nothing of it is in flight any more: a write, a flush that
    /// must cover one, or a job that finds its file by the name of the directory.
    pub(super) fn continue_close(&mut self, slot: u32, out: &mut Actions) {
        if self.stopping.is_asked() {
            return self.continue_stop(slot, out);
        }
        let Some(partition) = self.partitions.by_slot(slot) else { return };
        if !partition.is_dropped() || self.file_jobs.is_busy(slot) || self.writes.is_busy(slot) {
            return;
        }
        if partition.failed().is_some() {
            // Its directory cannot be renamed; the next start sets it aside.
            let mut partition = self.partitions.remove(slot);
            partition.release_memory(&mut self.arena);
            return out.push(Action::Mail { to: Peer::Control, message: Message::Dropped(vec![partition.id]) });
        }
        let from = partition.dir.clone();
        let to: Arc<str> = deleted_name(&partition.topic, partition.id).into();
        for file in partition.open_files().collect::<Vec<_>>() {
            self.close_file(from.dir, file, out);
        }
        self.file_jobs.start(Purpose::RenameDropped { slot }, FileJob::RenameDir { from, to }, out);
    }

    pub(super) fn on_renamed(&mut self, now: Now, slot: u32, result: Result<(), Errno>, out: &mut Actions) {
        let mut partition = self.partitions.remove(slot);
        partition.release_memory(&mut self.arena);
        out.push(Action::Mail { to: Peer::Control, message: Message::Dropped(vec![partition.id]) });
        match result {
            Ok(()) => {
                let renamed = deleted_name(&partition.topic, partition.id);
                self.schedule_removal(now, partition.config.file_delete_delay_ms, partition.dir.dir, renamed);
            }
            Err(errno) => self.fail_dir(now, partition.dir.dir, errno, out),
        }
    }

    /// A write, flush or file job of a data directory has failed: nothing of it is acknowledged, served or appended from
    /// now on, and nothing is tried again as if it had worked.
    pub(super) fn fail_dir(&mut self, now: Now, dir: DirId, errno: Errno, out: &mut Actions) {
        if !self.writes.fail(dir) {
            return;
        }
        tracing::error!(%dir, %errno, "data directory failed: its partitions are offline until a restart");
        out.push(Action::Mail { to: Peer::Control, message: Message::DirFailed { dir, errno } });
        let slots: Vec<u32> = self.partitions.iter().filter(|(_, p)| p.dir.dir == dir).map(|(slot, _)| slot).collect();
        for slot in slots {
            let mut waiting = Vec::new();
            let partition = self.partitions.by_slot(slot).expect("listed above");
            partition.fail(errno, |origin| waiting.push(origin));
            for origin in waiting {
                let outcome = AppendOutcome::refused(ErrorCode::KAFKA_STORAGE_ERROR);
                self.deliver_append(now, origin, outcome, out);
            }
            self.wake_watches(now, slot, out);
            self.continue_close(slot, out);
        }
        self.lose_reads(now, dir, out);
        self.lose_rebuild(dir, out);
    }

    /// Everybody who waits for an append of this partition is told that the promise is off.
    pub(super) fn refuse_waiting(&mut self, now: Now, slot: u32, code: ErrorCode, out: &mut Actions) {
        let mut waiting = Vec::new();
        let partition = self.partitions.by_slot(slot).expect("looked at by the caller");
        partition.refuse_waiting(|origin| waiting.push(origin));
        for origin in waiting {
            self.deliver_append(now, origin, AppendOutcome::refused(code), out);
        }
    }
}

/// What a partition that the kernel has not complained about itself is told: its directory failed before.
const EIO: i32 = 5;

/// Kafka's name for the directory of a deleted partition; cut so that it stays within 255 bytes.
fn deleted_name(topic: &str, id: PartitionId) -> String {
    let suffix = format!(".{}-delete", id.topic.to_string().replace(['-', '_'], "0"));
    let mut name = format!("{topic}-{}", id.index);
    let index = format!("-{}", id.index);
    if name.len() + suffix.len() > 255 {
        name = format!("{}{index}", &topic[..255 - suffix.len() - index.len()]);
    }
    name + &suffix
}
