//! Reads on the core that owns the partition.
//!
//! What is in memory is leased at once. What is not is read by `shard/cold_read.rs`, which answers later.

use crate::ids::{Now, Offset, PartitionId};
use crate::kafka::error_code::ErrorCode;
use crate::log::appender::TailRange;
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, Part, Parts};
use crate::shard::message::{FetchAsk, FetchOutcome, Message, Origin, Peer};
use crate::shard::partition::Partition;

/// Partitions whose watchers are woken at the end of the turn.
#[derive(Debug, Default)]
pub struct Grown {
    slots: Vec<u32>,
    /// Who is being woken; kept for its capacity.
    woken: Vec<Origin>,
}

impl Grown {
    /// The readable end of a partition has moved.
    pub fn note(&mut self, slot: u32) {
        self.slots.push(slot);
    }
}

impl FetchOutcome {
    /// No records, for this reason; the offsets are unknown.
    pub fn refused(code: ErrorCode) -> FetchOutcome {
        FetchOutcome {
            error: code,
            high_watermark: Offset(-1),
            last_stable: Offset(-1),
            log_start: Offset(-1),
            ..FetchOutcome::default()
        }
    }

    /// No records yet, with the offsets of a partition.
    pub fn of(partition: &Partition) -> FetchOutcome {
        FetchOutcome {
            high_watermark: partition.offsets.high_watermark(),
            last_stable: partition.offsets.high_watermark(),
            log_start: partition.offsets.log_start(),
            ..FetchOutcome::default()
        }
    }
}

/// Where a read goes on.
enum Look {
    /// The answer is there already: an error, a divergence, or nothing to read.
    Done(FetchOutcome),
    /// The offset's batch is in memory.
    Resident,
    /// It is in a file.
    Cold,
}

impl Shard {
    /// One partition of a fetch, of this core's or of another.
    pub(super) fn on_fetch_ask(&mut self, now: Now, ask: FetchAsk, out: &mut Actions) {
        let look = match self.partitions.by_id(ask.partition) {
            Some((_, partition)) => look(partition, &ask),
            None => Look::Done(FetchOutcome::refused(self.view.not_hosted(ask.partition))),
        };
        match look {
            Look::Done(outcome) => self.answer_ask(now, &ask, outcome, out),
            Look::Resident => {
                let outcome = self.read_resident(&ask);
                self.answer_ask(now, &ask, outcome, out);
            }
            Look::Cold => self.start_cold_read(now, ask, out),
        }
    }

    /// Leases the batches in memory that are wanted and committed; those that follow each other in a block together.
    fn read_resident(&mut self, ask: &FetchAsk) -> FetchOutcome {
        let (_, partition) = self.partitions.by_id(ask.partition).expect("looked at above");
        let mut outcome = FetchOutcome::of(partition);
        let end = partition.offsets.high_watermark();
        let mut records = self.buffers.parts();
        let mut run: Option<TailRange> = None;
        for batch in partition.tail().resident(ask.fetch_offset) {
            let first = outcome.bytes == 0 && ask.whole_first;
            let fits = u64::from(outcome.bytes) + u64::from(batch.len) <= u64::from(ask.bytes_max);
            if batch.next > end || !(fits || first) {
                break;
            }
            outcome.bytes += batch.len;
            let next = TailRange::of(batch);
            if let Some(whole) = run.as_ref().and_then(|run| run.joined(next)) {
                run = Some(whole);
            } else if let Some(done) = run.replace(next) {
                partition.tail().lease(done, &mut self.arena, |lease| records.push(Part::Arena(lease)));
            }
        }
        if let Some(last) = run {
            partition.tail().lease(last, &mut self.arena, |lease| records.push(Part::Arena(lease)));
        }
        match outcome.bytes {
            0 => self.buffers.recycle_parts(records),
            _ => outcome.records = records,
        }
        outcome
    }

    /// Answers an ask, and leaves the watch that it asked for when there is too little.
    pub(super) fn answer_ask(&mut self, now: Now, ask: &FetchAsk, outcome: FetchOutcome, out: &mut Actions) {
        let quiet = outcome.error == ErrorCode::NONE && outcome.diverging.is_none();
        if quiet
            && outcome.bytes < ask.watch_below
            && let Some((slot, partition)) = self.partitions.by_id(ask.partition)
        {
            partition.watch(ask.origin);
            // What grew while a file was being read has woken nobody yet.
            if partition.offsets.high_watermark() != outcome.high_watermark {
                self.grown.note(slot);
            }
        }
        if ask.origin.core == self.config.core {
            return self.on_fetched(now, ask.origin, outcome, out);
        }
        let message = Message::Fetched { origin: ask.origin, outcome: Box::new(outcome) };
        out.push(Action::Mail { to: Peer::Core(ask.origin.core), message });
    }

    pub(super) fn on_unwatch(&mut self, origin: Origin, partition: PartitionId) {
        if let Some((_, partition)) = self.partitions.by_id(partition) {
            partition.unwatch(origin);
        }
    }

    /// Wakes whoever waits for partitions that grew in this turn; once per turn.
    pub(super) fn wake_fetches(&mut self, now: Now, out: &mut Actions) {
        let mut slots = std::mem::take(&mut self.grown.slots);
        for slot in slots.drain(..) {
            self.wake_watches(now, slot, out);
        }
        if self.grown.slots.is_empty() {
            self.grown.slots = slots;
        }
    }

    /// Wakes whoever watches a partition.
    pub(super) fn wake_watches(&mut self, now: Now, slot: u32, out: &mut Actions) {
        let Some(partition) = self.partitions.by_slot(slot) else { return };
        let mut woken = std::mem::take(&mut self.grown.woken);
        woken.extend(partition.take_watches());
        for origin in woken.drain(..) {
            if origin.core == self.config.core {
                self.on_grew(now, origin, out);
            } else {
                out.push(Action::Mail { to: Peer::Core(origin.core), message: Message::Grew { origin } });
            }
        }
        self.grown.woken = woken;
    }

    /// Gives back what records hold.
    pub(super) fn release_records(&mut self, mut records: Parts, out: &mut Actions) {
        for part in records.drain(..) {
            self.release_part(part, out);
        }
        self.buffers.recycle_parts(records);
    }
}

/// The checks of kafka-spec §4.3 from row 2 on, for consumers.
fn look(partition: &Partition, ask: &FetchAsk) -> Look {
    let checked = partition.check_serving().and_then(|()| partition.check_epoch(ask.current_leader_epoch));
    if let Err(code) = checked {
        return Look::Done(FetchOutcome::refused(code));
    }
    let offsets = &partition.offsets;
    if ask.fetch_offset < offsets.log_start() || ask.fetch_offset > offsets.end() {
        return Look::Done(FetchOutcome { error: ErrorCode::OFFSET_OUT_OF_RANGE, ..FetchOutcome::of(partition) });
    }
    match partition.epochs.divergence(ask.last_fetched_epoch, ask.fetch_offset, offsets.end()) {
        Err(_) => {
            return Look::Done(FetchOutcome { error: ErrorCode::OFFSET_OUT_OF_RANGE, ..FetchOutcome::of(partition) });
        }
        Ok(Some(diverging)) => {
            return Look::Done(FetchOutcome { diverging: Some(diverging), ..FetchOutcome::of(partition) });
        }
        Ok(None) => {}
    }
    if ask.fetch_offset >= offsets.high_watermark() {
        return Look::Done(FetchOutcome::of(partition));
    }
    match partition.tail().resident_from() {
        Some(first) if first <= ask.fetch_offset => Look::Resident,
        _ => Look::Cold,
    }
}
