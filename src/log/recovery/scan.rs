//! Reads one segment file in pieces and says which of its batches count, and why the first one that does not.
//!
//! A batch counts only when magic, size and CRC hold, its base offset is *exactly* the one after the last batch, and its
//! leader epoch lies between that batch's and the highest this replica can have adopted. Offsets and epochs of every
//! topic start at 0 and no CRC covers the topic: whatever is weaker takes in the batches of a file's former owner. The
//! bytes of a batch are never gathered: a batch may be 100 MiB, a piece is at most 1 MiB.

use zerocopy::FromBytes;

use crate::ids::{Errno, FilePos, LeaderEpoch, Offset};
use crate::kafka::batch::{BatchHeader, HEADER_BYTES, MAGIC, OVERHEAD_BYTES};

/// Why a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanEnd {
    /// The file ends behind a batch.
    #[error("end of file")]
    File,
    /// Zeros follow the last batch, as in every active file.
    #[error("zeros")]
    Zeros,
    /// The next segment begins with the offset that is due.
    #[error("next segment begins")]
    NextSegment,
    /// The file ends inside a batch.
    #[error("file ends inside a batch")]
    Torn,
    /// A length that no batch has.
    #[error("batch length {0}")]
    Length(i32),
    /// Another format.
    #[error("magic {0}")]
    Magic(i8),
    /// Not the offset that is due: a gap, or a batch of another log.
    #[error("base offset {found} where {expected} is due")]
    BaseOffset {
        /// The offset after the last batch.
        expected: Offset,
        /// What the batch says.
        found: Offset,
    },
    /// Not the batch that the index names.
    #[error("last offset {found} where the index says {expected}")]
    LastOffset {
        /// What the index says.
        expected: Offset,
        /// What the batch says.
        found: Offset,
    },
    /// A leader epoch that cannot follow.
    #[error("leader epoch {found}, not within {from} to {to}")]
    Epoch {
        /// What the batch says.
        found: LeaderEpoch,
        /// Epoch of the batch before.
        from: LeaderEpoch,
        /// Highest epoch that this replica can have adopted.
        to: LeaderEpoch,
    },
    /// Count of records and offset delta contradict each other.
    #[error("{count} records with last offset delta {last_offset_delta}")]
    Count {
        /// Count in the header.
        count: i32,
        /// Delta in the header.
        last_offset_delta: i32,
    },
    /// The content does not match its checksum.
    #[error("crc {stored:#010x}, computed {computed:#010x}")]
    Crc {
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// The device cannot read on.
    #[error("read error: {0}")]
    Read(Errno),
}

impl ScanEnd {
    /// Whether nothing but emptiness follows the last batch.
    pub fn is_clean(self) -> bool {
        matches!(self, ScanEnd::File | ScanEnd::Zeros | ScanEnd::NextSegment)
    }
}

/// What the next batch must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// One with this base offset.
    Base(Offset),
    /// One with this last offset: where a scan starts from an index entry.
    Last(Offset),
}

/// A batch that counts.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// Its header.
    pub header: BatchHeader,
    /// Where it begins.
    pub at: FilePos,
    /// Byte after it.
    pub end: FilePos,
}

impl Accepted {
    /// Its first offset.
    pub fn base(&self) -> Offset {
        Offset(self.header.base_offset.get())
    }

    /// Its last offset.
    pub fn last(&self) -> Offset {
        self.base().plus(i64::from(self.header.last_offset_delta.get()))
    }
}

/// Where a scan starts and what bounds it.
#[derive(Clone, Copy, Debug)]
pub struct ScanStart {
    /// Position of the first batch.
    pub at: FilePos,
    /// What the first batch must be.
    pub due: Due,
    /// Lowest epoch of the first batch.
    pub epoch_min: LeaderEpoch,
    /// Highest epoch of any batch.
    pub epoch_max: LeaderEpoch,
    /// Length of the file.
    pub len: u64,
    /// Base offset of the segment that follows; the scan goes no further.
    pub next_segment: Option<Offset>,
}

/// The scan of one file, fed piece by piece.
#[derive(Clone, Debug)]
pub struct SegmentScan {
    bounds: ScanStart,
    due: Due,
    epoch: LeaderEpoch,
    /// Byte after the last batch that counts.
    end: FilePos,
    /// Next byte to be fed.
    fed: FilePos,
    accepted: u64,
    header: [u8; HEADER_BYTES],
    open: Option<Open>,
}

/// The batch whose header is known and whose content is being fed.
#[derive(Clone, Copy, Debug)]
struct Open {
    header: BatchHeader,
    crc: u32,
    end: FilePos,
}

/// First byte that the CRC of a batch covers.
const CRC_FROM: usize = 21;

impl SegmentScan {
    /// A scan that wants its first byte at `start.at`.
    pub fn new(start: ScanStart) -> SegmentScan {
        SegmentScan {
            bounds: start,
            due: start.due,
            epoch: start.epoch_min,
            end: start.at,
            fed: start.at,
            accepted: 0,
            header: [0; HEADER_BYTES],
            open: None,
        }
    }

    /// The next byte wanted.
    pub fn wanted(&self) -> FilePos {
        self.fed
    }

    /// Byte after the last batch that counts.
    pub fn end(&self) -> FilePos {
        self.end
    }

    /// How many batches counted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Epoch of the last batch that counts.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The offset after the last batch; `None` when the first one, known by its last offset only, did not count.
    pub fn next_offset(&self) -> Option<Offset> {
        match self.due {
            Due::Base(offset) => Some(offset),
            Due::Last(_) => None,
        }
    }

    /// Takes the bytes from [`SegmentScan::wanted`] on; those behind the file's end are ignored. Each batch that counts
    /// goes to `accept`, in order. Returns why no more can follow, or `None` to be fed on. Reads every byte once.
    pub fn feed(&mut self, bytes: &[u8], accept: &mut impl FnMut(&Accepted)) -> Option<ScanEnd> {
        let left = self.bounds.len.saturating_sub(self.fed.0);
        let mut bytes = &bytes[..left.min(bytes.len() as u64) as usize];
        loop {
            if self.open.is_none() && self.next_is_elsewhere() {
                return Some(ScanEnd::NextSegment);
            }
            if bytes.is_empty() {
                return (self.fed.0 >= self.bounds.len).then(|| self.at_end_of_file());
            }
            let taken = match self.open {
                None => self.take_header(bytes, accept),
                Some(open) => self.take_content(open, bytes, accept),
            };
            match taken {
                Ok(count) => bytes = &bytes[count..],
                Err(end) => return Some(end),
            }
        }
    }

    /// The file is shorter than it was said to be: nothing follows what was fed.
    pub fn at_end_of_file(&self) -> ScanEnd {
        let have = (self.fed.0 - self.end.0).min(HEADER_BYTES as u64) as usize;
        match self.open.is_none() {
            true if have == 0 => ScanEnd::File,
            true if self.header[..have].iter().all(|&byte| byte == 0) => ScanEnd::Zeros,
            _ => ScanEnd::Torn,
        }
    }

    fn next_is_elsewhere(&self) -> bool {
        self.fed == self.end && matches!(self.due, Due::Base(due) if self.bounds.next_segment == Some(due))
    }

    fn take_header(&mut self, bytes: &[u8], accept: &mut impl FnMut(&Accepted)) -> Result<usize, ScanEnd> {
        let have = (self.fed.0 - self.end.0) as usize;
        let count = bytes.len().min(HEADER_BYTES - have);
        self.header[have..have + count].copy_from_slice(&bytes[..count]);
        self.fed = self.fed.plus(count as u64);
        if have + count == HEADER_BYTES {
            let open = self.open_batch()?;
            self.open = Some(open);
            // A batch may be its header alone: compaction leaves such ones.
            if open.end == self.fed {
                self.close_batch(open, accept)?;
            }
        }
        Ok(count)
    }

    fn open_batch(&self) -> Result<Open, ScanEnd> {
        if self.header.iter().all(|&byte| byte == 0) {
            return Err(ScanEnd::Zeros);
        }
        let header = BatchHeader::read_from_bytes(&self.header).expect("as many bytes as a header has");
        let length = header.batch_length.get();
        let size = i64::from(length) + OVERHEAD_BYTES as i64;
        if size < HEADER_BYTES as i64 {
            return Err(ScanEnd::Length(length));
        }
        if header.magic != MAGIC {
            return Err(ScanEnd::Magic(header.magic));
        }
        self.check_order(&header)?;
        let end = self.end.plus(size as u64);
        if end.0 > self.bounds.len {
            return Err(ScanEnd::Torn);
        }
        Ok(Open { header, crc: crc32c::crc32c(&self.header[CRC_FROM..]), end })
    }

    fn check_order(&self, header: &BatchHeader) -> Result<(), ScanEnd> {
        let (count, last_offset_delta) = (header.record_count.get(), header.last_offset_delta.get());
        let base = Offset(header.base_offset.get());
        let fits = base >= Offset::ZERO && base.0.checked_add(i64::from(last_offset_delta) + 1).is_some();
        if !fits || last_offset_delta < 0 || count < 0 || i64::from(count) > i64::from(last_offset_delta) + 1 {
            return Err(ScanEnd::Count { count, last_offset_delta });
        }
        let last = base.plus(i64::from(last_offset_delta));
        match self.due {
            Due::Base(expected) if base != expected => return Err(ScanEnd::BaseOffset { expected, found: base }),
            Due::Last(expected) if last != expected => return Err(ScanEnd::LastOffset { expected, found: last }),
            _ => {}
        }
        let (found, from, to) = (LeaderEpoch(header.leader_epoch.get()), self.epoch, self.bounds.epoch_max);
        if found < from || to < found {
            return Err(ScanEnd::Epoch { found, from, to });
        }
        Ok(())
    }

    fn take_content(
        &mut self,
        mut open: Open,
        bytes: &[u8],
        accept: &mut impl FnMut(&Accepted),
    ) -> Result<usize, ScanEnd> {
        let count = (open.end.0 - self.fed.0).min(bytes.len() as u64) as usize;
        open.crc = crc32c::crc32c_append(open.crc, &bytes[..count]);
        self.fed = self.fed.plus(count as u64);
        self.open = Some(open);
        if self.fed == open.end {
            self.close_batch(open, accept)?;
        }
        Ok(count)
    }

    fn close_batch(&mut self, open: Open, accept: &mut impl FnMut(&Accepted)) -> Result<(), ScanEnd> {
        let stored = open.header.crc.get();
        if stored != open.crc {
            return Err(ScanEnd::Crc { stored, computed: open.crc });
        }
        let batch = Accepted { header: open.header, at: self.end, end: open.end };
        self.due = Due::Base(batch.last().plus(1));
        self.epoch = LeaderEpoch(open.header.leader_epoch.get());
        self.end = open.end;
        self.open = None;
        self.accepted += 1;
        accept(&batch);
        Ok(())
    }
}
