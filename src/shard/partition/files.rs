//! The files of the segments that are still written: created at the first append, grown ahead of the writes, sealed
//! when their last write is stable.
//!
//! It says what it wishes; `shard/file_jobs.rs` runs the jobs and reports back. One job per file at a time.

use std::collections::VecDeque;

use super::{Partition, RolledIndexes};
use crate::ids::{FileId, FilePos, MonoMicros, Now, Offset};
use crate::log::appender::Writable;
use crate::log::index::SegmentIndex;
use crate::log::segment::{self, AppendRate, FileFill, GrowthRules, Incoming, MeanWrite, Segment, UnwrittenExtents};
use crate::shard::action::Extents;

/// One file that is written.
#[derive(Debug)]
struct SegmentFile {
    base: Offset,
    file: FileId,
    state: FileState,
}

#[derive(Debug, PartialEq, Eq)]
enum FileState {
    /// It does not exist, or is not open, and nobody is at it.
    Absent,
    /// A create or open job is at it.
    Opening,
    /// It may be written up to `allocated`; a write below `unwritten_to` may meet unwritten extents.
    Open { allocated: FilePos, unwritten_to: FilePos, growing: bool },
    /// A seal job is at it.
    Sealing,
}

/// What a partition wants done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileWish {
    /// Create the segment at `base`.
    Create {
        /// Its base offset.
        base: Offset,
        /// First length.
        len: u64,
        /// State of the extents.
        extents: Extents,
    },
    /// Open the recovered active segment at `base`.
    Open {
        /// Its base offset.
        base: Offset,
    },
    /// Lengthen it.
    Grow {
        /// Its base offset.
        base: Offset,
        /// Its file.
        file: FileId,
        /// Present length.
        from: FilePos,
        /// New length.
        to: FilePos,
        /// State of the new extents.
        extents: Extents,
    },
    /// Cut it to its exact length: it is complete.
    Seal {
        /// Its base offset.
        base: Offset,
        /// Its file.
        file: FileId,
        /// Exact length.
        len: FilePos,
    },
}

impl FileWish {
    /// Whether it may find the disk full.
    pub fn takes_space(self) -> bool {
        matches!(self, FileWish::Create { .. } | FileWish::Grow { .. })
    }
}

/// The files of one partition that are written, oldest first; the last one is the active segment's.
#[derive(Debug)]
pub struct SegmentFiles {
    files: VecDeque<SegmentFile>,
    /// Length of the recovered file that is not open yet.
    recovered: Option<FilePos>,
    rate: AppendRate,
    mean_write: MeanWrite,
}

impl SegmentFiles {
    /// The active segment starts at `base`; `allocated` is the length of the file that recovery found, if it found one.
    /// Zeros that are read may be unwritten extents, so that every write into such a file syncs itself.
    pub fn new(base: Offset, allocated: Option<FilePos>) -> SegmentFiles {
        let active = SegmentFile { base, file: FileId(0), state: FileState::Absent };
        let (rate, mean_write) = (AppendRate::default(), MeanWrite::default());
        SegmentFiles { files: VecDeque::from([active]), recovered: allocated, rate, mean_write }
    }

    /// How far the segment at `base` may be written; `None` while its file is not open.
    pub fn writable(&self, base: Offset) -> Option<Writable> {
        match self.at(base)?.state {
            FileState::Open { allocated, unwritten_to, .. } => Some(Writable { to: allocated, unwritten_to }),
            _ => None,
        }
    }

    /// State of the extents that a write at `at` of the segment at `base` goes into. What was grown unwritten stays so
    /// until the writes have passed it, whatever the steps behind it are.
    pub fn extents(&self, base: Offset, at: FilePos) -> Extents {
        match self.at(base).map(|file| &file.state) {
            Some(FileState::Open { unwritten_to, .. }) if *unwritten_to <= at => Extents::Zeroed,
            _ => Extents::Unwritten,
        }
    }

    /// The id under which the segment at `base` is open.
    pub fn file(&self, base: Offset) -> Option<FileId> {
        let file = self.at(base)?;
        (!matches!(file.state, FileState::Absent | FileState::Opening)).then_some(file.file)
    }

    /// Bytes were appended: feeds the rate that growth steps follow.
    pub fn note_appended(&mut self, now: MonoMicros, bytes: u64) {
        self.rate.on_append(now, bytes);
    }

    /// A write of these bytes is submitted: growth steps follow the size of the writes, too.
    pub fn note_write(&mut self, bytes: u64) {
        self.mean_write.on_write(bytes);
    }

    /// A job has been given to the file at `base`; `file` names it when it is new.
    pub fn on_job(&mut self, wish: FileWish, file: FileId) {
        match wish {
            FileWish::Create { base, .. } | FileWish::Open { base } => {
                let entry = self.at_mut(base);
                entry.file = file;
                entry.state = FileState::Opening;
            }
            FileWish::Grow { base, .. } => match &mut self.at_mut(base).state {
                FileState::Open { growing, .. } => *growing = true,
                state => panic!("growing a file that is {state:?}"),
            },
            FileWish::Seal { base, .. } => self.at_mut(base).state = FileState::Sealing,
        }
    }

    /// That job is done.
    pub fn on_job_done(&mut self, wish: FileWish) {
        match wish {
            FileWish::Create { base, len, extents } => self.on_grown(base, FilePos(len), extents),
            FileWish::Open { base } => {
                let allocated = self.recovered.take().expect("only a recovered file is opened");
                self.on_grown(base, allocated, Extents::Unwritten);
            }
            FileWish::Grow { base, to, extents, .. } => self.on_grown(base, to, extents),
            FileWish::Seal { base, .. } => self.files.retain(|file| file.base != base),
        }
    }

    fn on_grown(&mut self, base: Offset, allocated: FilePos, extents: Extents) {
        let state = &mut self.at_mut(base).state;
        let before = match state {
            FileState::Open { unwritten_to, .. } => *unwritten_to,
            _ => FilePos(0),
        };
        let unwritten_to = if extents == Extents::Unwritten { allocated } else { before };
        *state = FileState::Open { allocated, unwritten_to, growing: false };
    }

    /// That job found the disk full; nothing has changed.
    pub fn on_job_failed(&mut self, wish: FileWish) {
        match wish {
            FileWish::Create { base, .. } => self.at_mut(base).state = FileState::Absent,
            FileWish::Grow { base, .. } => match &mut self.at_mut(base).state {
                FileState::Open { growing, .. } => *growing = false,
                state => panic!("a file grew that is {state:?}"),
            },
            FileWish::Open { .. } | FileWish::Seal { .. } => panic!("{wish:?} takes no space"),
        }
    }

    /// Bases of the segments that are written, oldest first.
    pub fn bases(&self) -> impl Iterator<Item = Offset> {
        self.files.iter().map(|file| file.base)
    }

    /// Whether the segment at `base` is being created or opened.
    pub fn is_opening(&self, base: Offset) -> bool {
        self.at(base).is_some_and(|file| file.state == FileState::Opening)
    }

    fn roll(&mut self, base: Offset) {
        self.files.push_back(SegmentFile { base, file: FileId(0), state: FileState::Absent });
    }

    /// Whether the segment at `base` has a recovered file that is not open yet. Only the oldest one can.
    pub fn is_recovered(&self, base: Offset) -> bool {
        self.recovered.is_some() && self.files.front().is_some_and(|file| file.base == base)
    }

    fn at(&self, base: Offset) -> Option<&SegmentFile> {
        self.files.iter().find(|file| file.base == base)
    }

    fn at_mut(&mut self, base: Offset) -> &mut SegmentFile {
        self.files.iter_mut().find(|file| file.base == base).expect("a job's file is in the list")
    }
}

impl Partition {
    /// What should be done with its files now; the caller runs it and reports with `files.on_job`.
    pub fn file_wish(&self, now: MonoMicros, unwritten: UnwrittenExtents) -> Option<FileWish> {
        let active = self.tail().active_base();
        let rules = self.growth_rules(now, unwritten);
        self.files.files.iter().find_map(|file| match file.state {
            FileState::Absent if file.base == active => self.wish_for_active(file, &rules),
            FileState::Absent => Some(self.wish_file(file, self.len_of(file.base), &rules)),
            FileState::Open { allocated, growing: false, .. } if file.base == active => {
                self.wish_growth(file, allocated, &rules)
            }
            FileState::Open { allocated, growing: false, .. } => self.wish_seal(file, allocated),
            _ => None,
        })
    }

    /// What is left to do with the active segment's file when the partition ends: it is cut to its exact length. A
    /// recovered file that was not opened since and is longer than its batches is opened first.
    pub fn last_wish(&self) -> Option<FileWish> {
        let file = self.files.files.back().expect("a partition has an active segment");
        let len = self.tail().active_end();
        match file.state {
            FileState::Absent => self
                .files
                .recovered
                .filter(|allocated| self.files.is_recovered(file.base) && *allocated != len)
                .map(|_| FileWish::Open { base: file.base }),
            FileState::Open { .. } => Some(FileWish::Seal { base: file.base, file: file.file, len }),
            FileState::Opening | FileState::Sealing => None,
        }
    }

    /// Whether a batch must start a new segment (kafka-spec §2.3).
    pub(super) fn must_roll(&self, now: Now, incoming: &Incoming) -> bool {
        let active = self.segments.active().expect("a partition has an active segment");
        segment::roll_reason(active, incoming, self.index.is_full(), now.wall, &self.config).is_some()
    }

    /// Starts a new segment; the old one goes on being written and is sealed when all of it is stable.
    pub fn roll(&mut self, now: Now) {
        let (old, base) = (self.appender.active_base(), self.offsets.end());
        self.appender.roll(base);
        self.files.roll(base);
        self.segments.roll(now.wall);
        self.segments.push(Segment::active(base, now.wall, None));
        let next = SegmentIndex::new(base, self.config.index_interval_bytes);
        let mut index = std::mem::replace(&mut self.index, next);
        index.seal();
        self.rolled.push_back(RolledIndexes { base: old, index });
    }

    /// Takes the indexes of a segment that has been sealed.
    pub fn take_rolled(&mut self, base: Offset) -> Option<RolledIndexes> {
        self.rolled.pop_front_if(|rolled| rolled.base == base)
    }

    /// Every open file of the partition.
    pub fn open_files(&self) -> impl Iterator<Item = FileId> {
        let written = self.files.files.iter().filter(|file| file.state != FileState::Absent).map(|file| file.file);
        written.chain(self.segments.iter().filter_map(|segment| segment.file))
    }

    /// Bytes of the batches of a written segment.
    pub fn len_of(&self, base: Offset) -> u64 {
        self.segments.floor(base).filter(|segment| segment.base == base).map_or(0, |segment| segment.len)
    }

    fn wish_for_active(&self, file: &SegmentFile, rules: &GrowthRules) -> Option<FileWish> {
        if !self.tail().has_unsubmitted() {
            return None;
        }
        Some(self.wish_file(file, self.tail().active_end().0, rules))
    }

    /// The file of a segment of `bytes` so far: a recovered one is opened, also when the first append rolled it, and any
    /// other is created.
    fn wish_file(&self, file: &SegmentFile, bytes: u64, rules: &GrowthRules) -> FileWish {
        match self.files.is_recovered(file.base) {
            true => FileWish::Open { base: file.base },
            false => wish_create(file.base, bytes, rules),
        }
    }

    fn wish_growth(&self, file: &SegmentFile, allocated: FilePos, rules: &GrowthRules) -> Option<FileWish> {
        let fill = FileFill { end: self.tail().active_end(), allocated, waiting: 0 };
        let growth = segment::growth(&fill, rules)?;
        let (to, extents) = (growth.to, growth.extents);
        Some(FileWish::Grow { base: file.base, file: file.file, from: allocated, to, extents })
    }

    fn growth_rules(&self, now: MonoMicros, unwritten: UnwrittenExtents) -> GrowthRules {
        GrowthRules {
            bytes_per_s: self.files.rate.bytes_per_s(now),
            write_bytes: self.files.mean_write.bytes(),
            segment_bytes: self.config.segment_bytes,
            unwritten,
        }
    }

    /// Seals a segment that is not appended to any more once all its bytes are stable; before that it may have to grow.
    fn wish_seal(&self, file: &SegmentFile, allocated: FilePos) -> Option<FileWish> {
        let segment = self.segments.floor(file.base).expect("a written segment is in the set");
        let len = FilePos(segment.len);
        if allocated < len {
            let to = len.align_up();
            let (base, file, from) = (file.base, file.file, allocated);
            return Some(FileWish::Grow { base, file, from, to, extents: Extents::Zeroed });
        }
        (segment.end <= self.offsets.stable()).then_some(FileWish::Seal { base: file.base, file: file.file, len })
    }
}

fn wish_create(base: Offset, bytes: u64, rules: &GrowthRules) -> FileWish {
    let fill = FileFill { end: FilePos(bytes), allocated: FilePos(0), waiting: 0 };
    let growth = segment::growth(&fill, rules).expect("a file of no bytes grows");
    FileWish::Create { base, len: growth.to.0, extents: growth.extents }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_were_grown_unwritten_stay_so_until_the_writes_have_passed_them() {
        let (base, file) = (Offset(0), FileId(1));
        let mut files = SegmentFiles::new(base, None);
        let create = FileWish::Create { base, len: 8192, extents: Extents::Zeroed };
        files.on_job(create, file);
        files.on_job_done(create);
        assert_eq!(files.extents(base, FilePos(4096)), Extents::Zeroed);
        let mut grow = |from: u64, to: u64, extents| {
            let wish = FileWish::Grow { base, file, from: FilePos(from), to: FilePos(to), extents };
            files.on_job(wish, file);
            files.on_job_done(wish);
            [4096, 12288, 20480].map(|at| files.extents(base, FilePos(at)))
        };
        // What lies before the unwritten step may sync itself, too: that is only slower.
        assert_eq!(grow(8192, 16384, Extents::Unwritten), [Extents::Unwritten, Extents::Unwritten, Extents::Zeroed]);
        assert_eq!(grow(16384, 24576, Extents::Zeroed), [Extents::Unwritten, Extents::Unwritten, Extents::Zeroed]);
    }

    #[test]
    fn every_write_into_a_recovered_file_syncs_itself() {
        let base = Offset(0);
        let mut files = SegmentFiles::new(base, Some(FilePos(8192)));
        files.on_job(FileWish::Open { base }, FileId(1));
        files.on_job_done(FileWish::Open { base });
        assert_eq!(files.extents(base, FilePos(4096)), Extents::Unwritten);
        assert_eq!(files.extents(base, FilePos(8192)), Extents::Zeroed);
    }
}
