//! The steps of a recovery: what is asked for in which order, and the scan itself.

use std::collections::VecDeque;

use crate::ids::{Errno, FilePos, LeaderEpoch, Offset};
use crate::kafka::batch::BatchHeader;
use crate::limits::BLOCK;
use crate::shard::action::{Extents, FileKind};

use super::listing::{Listing, SegmentFiles};
use super::replay::Replay;
use super::scan::{Due, ScanEnd, ScanStart, SegmentScan};
use super::sealed::Sealed;
use super::start::ScanPlan;
use super::tail::{Piece, Tail};
use super::{Cut, LastStop, RecoveredLog, RecoveredSegment, RecoveryInput, Step};

/// Smallest and largest piece that a log is read in.
const PIECE_BYTES_MIN: u64 = 16 * 1024;
/// Largest piece that a log is read in; what the buffer of a runner must hold.
pub const PIECE_BYTES_MAX: u64 = 1024 * 1024;
/// What a device answers that cannot read a sector.
const EIO: Errno = Errno(5);
/// "Operation not supported", the answer of a file system without unwritten extents.
const EOPNOTSUPP: Errno = Errno(95);

/// The recovery of one partition. Ask [`Recovery::next`], do it, and say what came of it: [`Recovery::on_read`] after a
/// `Read`, [`Recovery::on_done`] after anything else but `Done` and `Failed`, which are the last steps.
#[derive(Clone, Debug)]
pub struct Recovery {
    pub(super) input: RecoveryInput,
    pub(super) listing: Listing,
    pub(super) phase: Phase,
    pub(super) replay: Replay,
    /// Snapshots above this cannot be used: the log ends below them.
    pub(super) snapshot_max: Offset,
    /// Snapshots that cannot be used.
    pub(super) unusable: Vec<Offset>,
    pub(super) plan: ScanPlan,
    scan: Option<SegmentScan>,
    piece: NextPiece,
    /// Segments that were scanned and are followed by another.
    pub(super) scanned: Vec<RecoveredSegment>,
    pub(super) sealed: Sealed,
    pub(super) tail: Option<Tail>,
    pub(super) log: RecoveredLog,
    pub(super) fixes: VecDeque<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    CleanUp,
    Snapshot(Offset),
    Epochs,
    OffsetIndex,
    TimeIndex,
    Scan,
    Tail,
    PartialBlock,
    FirstBatch,
    Sealed,
    Fix,
    Done,
    Failed(Errno),
}

/// The next read of a log.
#[derive(Clone, Copy, Debug, Default)]
struct NextPiece {
    at: FilePos,
    len: u64,
    /// After a read error: block by block, to find the last that can be read.
    blockwise: bool,
}

impl Recovery {
    /// A recovery of the directory that holds these files.
    pub fn new(input: RecoveryInput) -> Recovery {
        let listing = Listing::new(&input.files);
        let mut recovery = Recovery {
            phase: Phase::CleanUp,
            replay: Replay::new(input.index_interval_bytes),
            snapshot_max: Offset(i64::MAX),
            unusable: Vec::new(),
            plan: ScanPlan::default(),
            scan: None,
            piece: NextPiece::default(),
            scanned: Vec::new(),
            sealed: Sealed::default(),
            tail: None,
            log: RecoveredLog::default(),
            fixes: VecDeque::new(),
            listing,
            input,
        };
        recovery.plan_clean_up();
        recovery.advance();
        recovery
    }

    /// What to do now. The same until it is said to be done.
    #[expect(
        clippy::should_implement_trait,
        reason = "the word of the protocol; it repeats itself, so it is no iterator"
    )]
    pub fn next(&mut self) -> Step {
        match self.phase {
            Phase::CleanUp | Phase::Fix => self.fixes.front().expect("a fix is due").clone(),
            Phase::Snapshot(at) => whole(FileKind::Snapshot(at), self.listing.snapshots.get(&at)),
            Phase::Epochs => whole(FileKind::LeaderEpochs, self.listing.epochs.as_ref()),
            Phase::OffsetIndex => whole(FileKind::Index(self.plan.segment), self.files().index.as_ref()),
            Phase::TimeIndex => whole(FileKind::TimeIndex(self.plan.segment), self.files().time_index.as_ref()),
            Phase::Scan | Phase::Tail | Phase::PartialBlock | Phase::FirstBatch => self.read_log(),
            Phase::Sealed => self.sealed.next().expect("an index entry is due"),
            Phase::Done => Step::Done(Box::new(std::mem::take(&mut self.log))),
            Phase::Failed(errno) => Step::Failed(errno),
        }
    }

    /// The read of the last [`Recovery::next`] is done.
    ///
    /// # Panics
    /// When that was not a read.
    pub fn on_read(&mut self, result: Result<&[u8], Errno>) {
        match self.phase {
            // Too many open files, say: that must not cost a record.
            _ if result.is_err_and(|errno| !is_medium_error(errno)) => self.phase = Phase::Failed(result.unwrap_err()),
            Phase::Snapshot(at) => self.on_snapshot(at, result.ok()),
            Phase::Epochs => self.on_epochs(result.ok()),
            Phase::OffsetIndex => self.on_offset_index(result.ok()),
            Phase::TimeIndex => self.on_time_index(result.ok()),
            Phase::Scan => self.on_piece(result),
            Phase::Tail => self.on_tail(result),
            Phase::PartialBlock => self.on_partial_block(result),
            Phase::FirstBatch => self.on_first_batch(result.ok()),
            Phase::Sealed => {
                self.sealed.on_entry(result.ok());
                self.begin_sealed();
            }
            phase => panic!("a read came back in {phase:?}"),
        }
    }

    /// The change of the last [`Recovery::next`] is made, or was refused.
    ///
    /// # Panics
    /// When that was not a change.
    pub fn on_done(&mut self, result: Result<(), Errno>) {
        let step = self.fixes.pop_front().expect("a change was asked for");
        match (result, step) {
            (Ok(()), _) => self.advance(),
            (Err(EOPNOTSUPP), Step::ZeroRange { base, from, .. }) => {
                self.fixes.push_front(Step::Truncate { base, len: from });
                let active = self.log.active.as_mut().expect("its tail is being cut");
                (active.allocated, active.extents) = (from, Extents::Zeroed);
            }
            (Err(errno), _) => self.phase = Phase::Failed(errno),
        }
    }

    pub(super) fn advance(&mut self) {
        match self.phase {
            _ if !self.fixes.is_empty() => {}
            Phase::CleanUp => self.begin(),
            _ => self.phase = Phase::Done,
        }
    }

    // ---- the scan ----

    pub(super) fn begin_scan_from_start(&mut self, segment: Offset) {
        self.plan.segment = segment;
        self.plan.without_index = true;
        self.plan.offsets.clear();
        self.plan.times.clear();
        self.begin_scan(FilePos(0), Due::Base(segment));
    }

    pub(super) fn begin_scan(&mut self, at: FilePos, due: Due) {
        let base = self.plan.segment;
        let (Due::Base(offset) | Due::Last(offset)) = due;
        self.replay.epochs.truncate_from_end(offset.plus(1));
        self.replay.begin_segment(base, &self.plan.offsets, &self.plan.times);
        let len = self.files().len;
        self.scan = Some(SegmentScan::new(ScanStart {
            at,
            due,
            epoch_min: self.replay.epochs.latest().unwrap_or(LeaderEpoch(0)),
            epoch_max: self.input.leader_epoch_max,
            len,
            next_segment: self.listing.after(base),
        }));
        let from = at.align_down();
        let up_to_target = (self.plan.target + 2 * BLOCK).saturating_sub(from.0);
        self.piece = NextPiece { at: from, len: piece_len(up_to_target, from, len), blockwise: false };
        self.phase = Phase::Scan;
        if len <= at.0 {
            self.end_scan(ScanEnd::File, Piece { at, bytes: &[] });
        }
    }

    fn on_piece(&mut self, result: Result<&[u8], Errno>) {
        let NextPiece { at, len, .. } = self.piece;
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(_) if BLOCK < len => return self.read_on(true),
            Err(errno) => {
                self.log.suspect = Some(errno);
                return self.end_scan(ScanEnd::Read(errno), Piece { at, bytes: &[] });
            }
        };
        let scan = self.scan.as_mut().expect("a scan runs");
        let skip = ((scan.wanted().0 - at.0) as usize).min(bytes.len());
        let mut end = scan.feed(&bytes[skip..], &mut |batch| self.replay.on_batch(batch));
        if end.is_none() && (bytes.len() as u64) < len {
            end = Some(scan.at_end_of_file());
        }
        match end {
            Some(end) => self.end_scan(end, Piece { at, bytes }),
            None => self.read_on(self.piece.blockwise),
        }
    }

    fn read_on(&mut self, blockwise: bool) {
        let scan = self.scan.as_ref().expect("a scan runs");
        let at = scan.wanted().align_down();
        let len = if blockwise { BLOCK } else { piece_len(self.piece.len * 2, at, self.files().len) };
        self.piece = NextPiece { at, len, blockwise };
    }

    fn end_scan(&mut self, why: ScanEnd, piece: Piece<'_>) {
        let scan = self.scan.take().expect("a scan runs");
        let segment = self.plan.segment;
        if scan.accepted() == 0 && !self.plan.without_index {
            self.log.suspect = None;
            return self.begin_scan_from_start(segment);
        }
        let end = scan.next_offset().expect("known from the start, or from a batch");
        match self.listing.after(segment) {
            Some(next) if next == end => self.seal_scanned(&scan, next),
            Some(next) if self.is_trusted_below(next) => self.keep_damaged(&scan, why, next),
            _ => self.end_log(&scan, end, why, piece),
        }
    }

    /// The segment is whole, and the next one goes on where it ends. Whatever lies behind its batches is cut off.
    fn seal_scanned(&mut self, scan: &SegmentScan, next: Offset) {
        let base = self.plan.segment;
        let SegmentFiles { len, modified_ms, .. } = self.files();
        if scan.end().0 < len {
            self.fixes.push_back(Step::Truncate { base, len: scan.end() });
        }
        let index = &mut self.replay.index;
        index.seal();
        let (max_timestamp, _) = index.times.max_timestamp();
        let (offsets, times) = (index.offsets.as_bytes().to_vec(), index.times.as_bytes().to_vec());
        self.fixes.push_back(Step::WriteFile { file: FileKind::Index(base), contents: offsets });
        self.fixes.push_back(Step::WriteFile { file: FileKind::TimeIndex(base), contents: times });
        self.scanned.push(RecoveredSegment { base, len: scan.end().0, end: next, max_timestamp, modified_ms });
        self.scan_next(next);
    }

    /// Whether all below this segment was on the device when the last run ended.
    fn is_trusted_below(&self, segment: Offset) -> bool {
        let below_checkpoint = self.input.checkpoint.is_some_and(|entry| segment <= entry.segment);
        below_checkpoint || self.input.last_stop == LastStop::Clean
    }

    /// The segment was whole once and is only read for what the producers did. It stays as it is: what lies behind the
    /// damage, here and in later segments, can still be read.
    fn keep_damaged(&mut self, scan: &SegmentScan, why: ScanEnd, next: Offset) {
        let base = self.plan.segment;
        let SegmentFiles { len, modified_ms, index, time_index } = self.files();
        let (max_timestamp, _) = self.replay.index.times.max_timestamp();
        self.scanned.push(RecoveredSegment { base, len, end: next, max_timestamp, modified_ms });
        if index.is_none() || time_index.is_none() {
            self.sealed.unindexed.push(base);
        }
        self.log.damaged.push(Cut { segment: base, at: scan.end(), why, segments_removed: 0 });
        self.log.suspect = None;
        self.scan_next(next);
    }

    fn scan_next(&mut self, next: Offset) {
        self.plan.target = match self.input.checkpoint {
            Some(entry) if entry.segment == next => entry.at.0,
            _ => 0,
        };
        self.begin_scan_from_start(next);
    }

    /// The log ends in this segment.
    fn end_log(&mut self, scan: &SegmentScan, end: Offset, why: ScanEnd, piece: Piece<'_>) {
        let base = self.plan.segment;
        if self.replay.snapshot.is_some_and(|at| end < at) {
            self.snapshot_max = end;
            self.fixes.clear();
            return self.begin();
        }
        if self.input.checkpoint.is_some_and(|entry| end < entry.log_start) {
            return self.start_anew();
        }
        let removed = self.listing.segments.range(base.plus(1)..).count();
        self.log.end = end;
        self.log.below_checkpoint =
            self.input.checkpoint.is_some_and(|entry| end < entry.stable || end < entry.high_watermark);
        if !why.is_clean() || removed > 0 || self.log.below_checkpoint {
            self.log.cut = Some(Cut { segment: base, at: scan.end(), why, segments_removed: removed });
        }
        self.tail = Some(Tail::new(base, scan.end(), self.files().len, piece));
        self.continue_tail();
    }

    // ---- after the scan ----

    fn continue_tail(&mut self) {
        let tail = self.tail.as_ref().expect("the log has an end");
        let unchecked = tail.unchecked();
        if 0 < unchecked && unchecked <= self.input.tail_read_bytes_max && self.log.suspect.is_none() {
            let at = tail.checked.align_down();
            self.piece = NextPiece { at, len: piece_len(PIECE_BYTES_MAX, at, tail.len), blockwise: false };
            self.phase = Phase::Tail;
        } else if tail.partial.is_none() {
            self.piece = NextPiece { at: tail.end.align_down(), len: BLOCK, blockwise: false };
            self.phase = Phase::PartialBlock;
        } else {
            self.begin_first_batch();
        }
    }

    fn on_tail(&mut self, result: Result<&[u8], Errno>) {
        let at = self.piece.at;
        let tail = self.tail.as_mut().expect("the log has an end");
        let before = tail.checked;
        tail.look(Piece { at, bytes: result.unwrap_or_default() });
        if tail.checked == before {
            // What cannot be read is given up. Nothing that counts is lost with it.
            self.input.tail_read_bytes_max = 0;
        }
        self.continue_tail();
    }

    fn on_partial_block(&mut self, result: Result<&[u8], Errno>) {
        let at = self.piece.at;
        let tail = self.tail.as_mut().expect("the log has an end");
        if let Ok(bytes) = result {
            tail.take_partial(Piece { at, bytes });
        }
        match tail.partial {
            Some(_) => self.begin_first_batch(),
            // It could be read a moment ago.
            None => self.phase = Phase::Failed(result.err().unwrap_or(EIO)),
        }
    }

    fn begin_first_batch(&mut self) {
        let tail = self.tail.as_ref().expect("the log has an end");
        if self.replay.first_timestamp.is_some() || tail.end == FilePos(0) {
            return self.begin_trusted();
        }
        self.piece = NextPiece { at: FilePos(0), len: BLOCK, blockwise: false };
        self.phase = Phase::FirstBatch;
    }

    fn on_first_batch(&mut self, bytes: Option<&[u8]>) {
        let header = bytes.and_then(|bytes| zerocopy::FromBytes::read_from_prefix(bytes).ok());
        self.replay.first_timestamp = header.map(|(header, _): (BatchHeader, _)| header.max_timestamp.get());
        self.begin_trusted();
    }

    fn begin_trusted(&mut self) {
        let trusted = self.listing.segments.range(..self.plan.first);
        let with_next = trusted.filter_map(|(&base, &files)| Some((base, self.listing.after(base)?, files)));
        self.sealed = Sealed::new(with_next);
        self.begin_sealed();
    }

    fn begin_sealed(&mut self) {
        self.phase = Phase::Sealed;
        // Asking twice gives the same entry, so that looking whether there is one costs nothing.
        if self.sealed.next().is_none() {
            self.finish();
        }
    }

    // ---- what is known ----

    pub(super) fn files(&self) -> SegmentFiles {
        self.listing.segments[&self.plan.segment]
    }

    pub(super) fn first_segment(&self) -> Offset {
        *self.listing.segments.first_key_value().expect("there are segments").0
    }

    fn read_log(&self) -> Step {
        let base = self.tail.as_ref().map_or(self.plan.segment, |tail| tail.base);
        Step::Read { file: FileKind::Log(base), at: self.piece.at, len: self.piece.len }
    }
}

/// Whether the device says that the bytes are gone (EIO, ENODATA, EILSEQ, EUCLEAN, EREMOTEIO) rather than the system
/// that it cannot do it now.
fn is_medium_error(errno: Errno) -> bool {
    matches!(errno.0, 5 | 61 | 84 | 117 | 121)
}

fn whole(file: FileKind, len: Option<&u64>) -> Step {
    Step::Read { file, at: FilePos(0), len: *len.expect("the file was listed") }
}

/// A piece of about `wanted` bytes, no longer than the file and a multiple of the block size.
fn piece_len(wanted: u64, from: FilePos, file_len: u64) -> u64 {
    let left = FilePos(file_len).align_up().0 - from.0;
    FilePos(wanted.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)).align_up().0.min(left)
}
