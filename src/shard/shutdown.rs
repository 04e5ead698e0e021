//! An orderly end: nothing new is taken, what is in flight is answered, everything is flushed, and every active segment
//! is cut to its exact length, so that the next start needs no scan and Kafka's tools read the files.

use crate::ids::Now;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, FileJob, FileKind, Linger, PartitionFile};
use crate::shard::file_jobs::Purpose;
use crate::shard::message::{FinalOffsets, Message, Peer};
use crate::shard::partition::{FileWish, StaleFile};

/// How far the end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Serving,
    /// Answering what is in service.
    Draining,
    /// Trimming segments and writing the small files.
    Sealing,
    /// Said so.
    Done,
}

/// The end of a core.
#[derive(Debug, Default)]
pub struct Stopping {
    phase: Phase,
    /// A small file could not be brought up to date for the end.
    file_lacking: bool,
}

impl Stopping {
    /// Whether the end was asked for.
    pub fn is_asked(&self) -> bool {
        self.phase != Phase::Serving
    }

    /// A file that recovery reads lacks its newest state. At the end nobody writes it again, and the end is not clean.
    pub fn note_file_lacking(&mut self) {
        self.file_lacking |= self.phase == Phase::Sealing;
    }
}

impl Shard {
    pub(super) fn on_stop(&mut self, now: Now, out: &mut Actions) {
        if self.stopping.is_asked() {
            return;
        }
        self.stopping.phase = Phase::Draining;
        self.answer_parked_fetches(now, out);
        self.stop_rebuilds(out);
        self.check_stopped(now, out);
    }

    /// Takes the next step towards the end, if it was asked for and nothing holds it up.
    pub(super) fn check_stopped(&mut self, now: Now, out: &mut Actions) {
        if self.stopping.phase == Phase::Draining && self.is_drained(out) {
            self.stopping.phase = Phase::Sealing;
            self.seal_all(now, out);
        }
        if self.stopping.phase == Phase::Sealing && self.are_jobs_quiet() {
            self.say_stopped(out);
        }
    }

    /// Closes connections with nothing in service; true when none is left and all bytes are on the device.
    fn is_drained(&mut self, out: &mut Actions) -> bool {
        let quiet: Vec<_> = self.connections.iter().filter(|conn| conn.is_quiet()).map(|conn| conn.id).collect();
        for conn in quiet {
            self.close(conn, Linger::Graceful, out);
        }
        self.connections.count() == 0
            && self.requests.is_empty()
            && self.appends_waiting() == 0
            && self.writes.is_quiet()
            && self.rebuilds.is_quiet()
            && self.are_jobs_quiet()
            && self
                .partitions
                .iter()
                .all(|(_, partition)| partition.failed().is_some() || partition.is_dropped() || partition.is_quiet())
    }

    fn seal_all(&mut self, now: Now, out: &mut Actions) {
        let slots: Vec<u32> = self.partitions.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let partition = self.partitions.by_slot(slot).expect("listed above");
            // One whose topic is deleted is set aside at the next start.
            if partition.failed().is_none() && !partition.is_dropped() {
                partition.begin_close();
                self.seal_last(now, slot, out);
            }
        }
        for index in 0..self.config.flush_ways.len() {
            self.write_checkpoint(crate::ids::DirId(index as u16), out);
        }
    }

    /// Trims the active segment of a partition and writes its small files.
    fn seal_last(&mut self, now: Now, slot: u32, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("looked at by the caller");
        let mut stale = Vec::new();
        partition.last_files(now, |file| stale.push(file));
        let wish = partition.last_wish();
        for file in stale {
            self.write_stale(slot, file, out);
        }
        if let Some(wish) = wish {
            self.run_last(slot, wish, out);
        }
    }

    fn run_last(&mut self, slot: u32, wish: FileWish, out: &mut Actions) {
        let partition = self.partitions.by_slot(slot).expect("looked at by the caller");
        match wish {
            FileWish::Seal { base, file, len } => {
                let path = PartitionFile { dir: partition.dir.clone(), kind: FileKind::Log(base) };
                partition.files.on_job(wish, file);
                self.file_jobs.start(Purpose::LastSeal { slot }, FileJob::Seal { file, path, len }, out);
            }
            _ => self.run_wish(slot, wish, out),
        }
    }

    /// A partition's file job came back while the broker stops: a recovered segment that was opened for its trimming
    /// is trimmed now.
    pub(super) fn continue_stop(&mut self, slot: u32, out: &mut Actions) {
        if self.stopping.phase != Phase::Sealing {
            return;
        }
        let Some(partition) = self.partitions.by_slot(slot) else { return };
        if partition.failed().is_none()
            && !partition.is_dropped()
            && let Some(wish) = partition.last_wish()
        {
            self.run_last(slot, wish, out);
        }
    }

    /// Writes one small file that a partition named.
    pub(super) fn write_stale(&mut self, slot: u32, file: StaleFile, out: &mut Actions) {
        let dir = self.partitions.by_slot(slot).expect("it named the file").dir.clone();
        match file {
            StaleFile::Index { base, at, contents } => {
                self.append_index(slot, FileKind::Index(base), (at, contents), out);
            }
            StaleFile::TimeIndex { base, at, contents } => {
                self.append_index(slot, FileKind::TimeIndex(base), (at, contents), out);
            }
            StaleFile::Epochs { contents, .. } => {
                let path = PartitionFile { dir, kind: FileKind::LeaderEpochs };
                self.file_jobs.start(Purpose::Epochs { slot }, FileJob::Replace { path, contents }, out);
            }
            StaleFile::Producers { upto, contents } => {
                let path = PartitionFile { dir, kind: FileKind::Snapshot(upto) };
                self.file_jobs.start(Purpose::Producers { slot, upto }, FileJob::Replace { path, contents }, out);
            }
        }
    }

    fn say_stopped(&mut self, out: &mut Actions) {
        self.stopping.phase = Phase::Done;
        let sound = self.partitions.iter().all(|(_, partition)| partition.failed().is_none());
        let clean = sound && !self.stopping.file_lacking;
        let offsets = self.partitions.iter().map(|(_, partition)| FinalOffsets {
            dir: partition.dir.dir,
            topic: partition.topic.clone(),
            index: partition.id.index,
            recovery_point: partition.offsets.stable(),
            high_watermark: partition.offsets.high_watermark(),
            log_start: partition.offsets.log_start(),
        });
        let message = Message::Stopped { clean, offsets: offsets.collect() };
        out.push(Action::Mail { to: Peer::Control, message });
    }
}
