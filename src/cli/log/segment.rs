//! Reads a segment file batch by batch.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::kafka::batch::{BatchFault, BatchView, HEADER_BYTES};

/// A segment file that is being read. Holds one batch at a time.
pub(super) struct SegmentReader {
    file: BufReader<File>,
    at: u64,
    len: u64,
    batch: Vec<u8>,
}

/// What comes next in a segment.
pub(super) enum Next<'a> {
    /// A batch and its position. Its CRC was not looked at.
    Batch(u64, BatchView<'a>),
    /// No more batches.
    End(Ending),
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

impl SegmentReader {
    pub fn open(path: &Path) -> io::Result<SegmentReader> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(SegmentReader { file: BufReader::with_capacity(256 * 1024, file), at: 0, len, batch: Vec::new() })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Where the next batch begins, or would.
    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn next(&mut self) -> io::Result<Next<'_>> {
        let left = self.len - self.at;
        if left == 0 {
            return Ok(Next::End(Ending::File));
        }
        self.fill(left.min(HEADER_BYTES as u64) as usize, 0)?;
        if self.batch.iter().all(|&byte| byte == 0) {
            return Ok(Next::End(self.zeros()?));
        }
        let have = self.batch.len();
        if let Err(BatchFault::Incomplete { need, .. }) = BatchView::parse(&self.batch)
            && have < need
            && need as u64 <= left
        {
            self.fill(need, have)?;
        }
        let at = self.at;
        match BatchView::parse(&self.batch) {
            Ok(batch) => {
                self.at += batch.size_bytes() as u64;
                Ok(Next::Batch(at, batch))
            }
            // "Have" is the whole rest of the file, not what was read of it.
            Err(BatchFault::Incomplete { need, .. }) => {
                Ok(Next::End(Ending::Invalid(BatchFault::Incomplete { have: left as usize, need })))
            }
            Err(fault) => Ok(Next::End(Ending::Invalid(fault))),
        }
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
