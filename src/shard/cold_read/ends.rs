//! How cold reads end: with records, with nothing, refused, or left behind on a disk that has failed.

use crate::ids::{DirId, Now};
use crate::kafka::error_code::ErrorCode;
use crate::shard::Shard;
use crate::shard::action::Actions;
use crate::shard::cold_read::{ColdRead, Reader, Step};
use crate::shard::message::{FetchOutcome, QueryAnswer};
use crate::shard::time_search;

impl Shard {
    pub(super) fn answer_empty(&mut self, now: Now, id: usize, out: &mut Actions) {
        let read = self.end_read(id);
        match read.reader {
            Reader::Fetch(ask) => {
                let outcome = match self.partitions.by_id(ask.partition) {
                    Some((_, partition)) => FetchOutcome::of(partition),
                    None => FetchOutcome::refused(self.view.not_hosted(ask.partition)),
                };
                self.answer_ask(now, &ask, outcome, out);
            }
            Reader::Time { origin, .. } => self.answer_query(origin, time_search::nothing(), out),
            Reader::Nobody => panic!("a lost read went on"),
        }
        self.start_queued_read(now, out);
    }

    /// A data directory has failed: whoever reads from it is told so. What hangs there takes no place from others.
    pub(in crate::shard) fn lose_reads(&mut self, now: Now, dir: DirId, out: &mut Actions) {
        let reads = &self.cold_reads.reads;
        for id in reads.iter().filter(|(_, read)| read.dir == dir).map(|(id, _)| id).collect::<Vec<_>>() {
            let read = &mut self.cold_reads.reads[id];
            match (&read.reader, &read.step) {
                (Reader::Nobody, _) => {}
                (_, Step::Queued | Step::Awaiting) => self.fail_read(now, id, ErrorCode::KAFKA_STORAGE_ERROR, out),
                _ => {
                    let reader = std::mem::replace(&mut read.reader, Reader::Nobody);
                    self.cold_reads.lost += 1;
                    self.refuse_reader(now, reader, ErrorCode::KAFKA_STORAGE_ERROR, out);
                }
            }
        }
    }

    pub(super) fn fail_read(&mut self, now: Now, id: usize, code: ErrorCode, out: &mut Actions) {
        let read = self.end_read(id);
        self.refuse_reader(now, read.reader, code, out);
    }

    fn refuse_reader(&mut self, now: Now, reader: Reader, code: ErrorCode, out: &mut Actions) {
        match reader {
            Reader::Fetch(ask) => self.answer_ask(now, &ask, FetchOutcome::refused(code), out),
            Reader::Time { origin, .. } => self.answer_query(origin, QueryAnswer::Refused(code), out),
            Reader::Nobody => panic!("a lost read went on"),
        }
        self.start_queued_read(now, out);
    }

    pub(super) fn finish_fetch_read(&mut self, now: Now, id: usize, outcome: FetchOutcome, out: &mut Actions) {
        let read = self.end_read(id);
        let Reader::Fetch(ask) = read.reader else { panic!("records for a search by time") };
        self.answer_ask(now, &ask, outcome, out);
        self.start_queued_read(now, out);
    }

    pub(super) fn finish_time_search(&mut self, now: Now, id: usize, answer: QueryAnswer, out: &mut Actions) {
        let read = self.end_read(id);
        let Reader::Time { origin, .. } = read.reader else { panic!("a time for a fetch") };
        self.answer_query(origin, answer, out);
        self.start_queued_read(now, out);
    }

    fn end_read(&mut self, id: usize) -> ColdRead {
        self.cold_reads.reads.remove(id)
    }

    fn start_queued_read(&mut self, now: Now, out: &mut Actions) {
        if let Some((reader, partition, offset)) = self.cold_reads.queue.pop_front() {
            self.begin_read(now, reader, partition, offset, out);
        }
    }
}
