//! Reads a segment file batch by batch, also one that a broker is writing to.
//!
//! The broker writes past the page cache, so that a read beside it may see a batch half written. What looks wrong in a
//! file that was written a moment ago is therefore read again before it counts.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::kafka::batch::{BatchFault, BatchView, HEADER_BYTES};

/// A file written to within this time may be written to now.
const LIVE: Duration = Duration::from_secs(5);
/// How long a write that is under way is given before its bytes are read again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How often a file is read again in all without anything having changed.
const AGAIN_MAX: u32 = 10;

/// A segment file that is being read. Holds one batch at a time.
pub(super) struct SegmentReader {
    file: BufReader<File>,
    at: u64,
    len: u64,
    batch: Vec<u8>,
    again: u32,
}

/// What comes next in a segment.
pub(super) enum Next<'a> {
    /// A batch.
    Batch(StoredBatch<'a>),
    /// No more batches.
    End(Ending),
}

/// A batch of a file.
pub(super) struct StoredBatch<'a> {
    /// Its position.
    pub at: u64,
    pub batch: BatchView<'a>,
    /// What is wrong with it.
    pub fault: Option<BatchFault>,
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Behind its last batch.
    File,
    /// With zeros, as an active one does.
    Zeros,
    /// With zeros and then something else, at this position.
    Stale(u64),
    /// With something that is no batch.
    Invalid(BatchFault),
}

/// What was read at one position.
enum One {
    /// A batch, which is in the buffer now, and what is wrong with it.
    Batch(Option<BatchFault>),
    End(Ending),
}

impl One {
    /// Whether it is wrong, or seems so. Zeros are how an active segment ends.
    fn is_suspect(&self) -> bool {
        !matches!(self, One::Batch(None) | One::End(Ending::File | Ending::Zeros))
    }
}

impl SegmentReader {
    pub fn open(path: &Path) -> io::Result<SegmentReader> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let file = BufReader::with_capacity(256 * 1024, file);
        Ok(SegmentReader { file, at: 0, len, batch: Vec::new(), again: 0 })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Where the next batch begins, or would.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Whether a broker may be writing to the file.
    pub fn is_live(&self) -> bool {
        let modified = self.file.get_ref().metadata().and_then(|metadata| metadata.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < LIVE))
    }

    pub fn next(&mut self) -> io::Result<Next<'_>> {
        let mut one = self.read_one()?;
        while one.is_suspect() && self.again < AGAIN_MAX && self.is_live() {
            let before = std::mem::take(&mut self.batch);
            std::thread::sleep(AGAIN_AFTER);
            self.file.seek(SeekFrom::Start(self.at))?;
            one = self.read_one()?;
            self.again += u32::from(self.batch == before);
        }
        Ok(match one {
            One::End(ending) => Next::End(ending),
            One::Batch(fault) => {
                let at = self.at;
                let batch = BatchView::parse(&self.batch).expect("parsed when it was read");
                self.at += batch.size_bytes() as u64;
                Next::Batch(StoredBatch { at, batch, fault })
            }
        })
    }

    /// Reads the batch at the present position, or finds out how the file ends there.
    fn read_one(&mut self) -> io::Result<One> {
        match self.read_within(self.len - self.at) {
            // It was sealed meanwhile, and its zeros cut off.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.len = self.file.get_ref().metadata()?.len().max(self.at);
                self.file.seek(SeekFrom::Start(self.at))?;
                self.read_within(self.len - self.at)
            }
            read => read,
        }
    }

    fn read_within(&mut self, left: u64) -> io::Result<One> {
        if left == 0 {
            return Ok(One::End(Ending::File));
        }
        self.fill(left.min(HEADER_BYTES as u64) as usize, 0)?;
        if self.batch.iter().all(|&byte| byte == 0) {
            return self.zeros().map(One::End);
        }
        let have = self.batch.len();
        if let Err(BatchFault::Incomplete { need, .. }) = BatchView::parse(&self.batch)
            && have < need
            && need as u64 <= left
        {
            self.fill(need, have)?;
        }
        Ok(match BatchView::parse(&self.batch) {
            Ok(batch) => One::Batch(batch.check_stored().err()),
            // "Have" is the whole rest of the file, not what was read of it.
            Err(BatchFault::Incomplete { need, .. }) => {
                One::End(Ending::Invalid(BatchFault::Incomplete { have: left as usize, need }))
            }
            Err(fault) => One::End(Ending::Invalid(fault)),
        })
    }

    /// Makes the batch `len` bytes long, of which `have` are there.
    fn fill(&mut self, len: usize, have: usize) -> io::Result<()> {
        self.batch.resize(len, 0);
        self.file.read_exact(&mut self.batch[have..])
    }

    /// What follows the zeros that were read.
    fn zeros(&mut self) -> io::Result<Ending> {
        let mut at = self.at + self.batch.len() as u64;
        let mut piece = [0; 64 * 1024];
        loop {
            match self.file.read(&mut piece)? {
                0 => return Ok(Ending::Zeros),
                count => match piece[..count].iter().position(|&byte| byte != 0) {
                    Some(stale) => return Ok(Ending::Stale(at + stale as u64)),
                    None => at += count as u64,
                },
            }
        }
    }
}

impl Drop for SegmentReader {
    /// Leaves no pages behind: they would get in the way of a broker's writes, which go past the page cache.
    fn drop(&mut self) {
        let _ = fadvise(self.file.get_ref(), 0, None, Advice::DontNeed);
    }
}
