//! Where an offset lies among a partition's files.

use super::Partition;
use crate::ids::{FileId, FilePos, Offset};
use crate::log::segment::SegmentState;

/// Where a read finds an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// In a segment that is still written; its index is in memory.
    Written {
        /// Base of the segment.
        segment: Offset,
        /// Its file, once it is open.
        file: Option<FileId>,
        /// A batch at or before the offset starts here.
        at: FilePos,
    },
    /// In a sealed segment.
    Sealed {
        /// Base of the segment.
        segment: Offset,
        /// Its file, once it is open.
        file: Option<FileId>,
    },
    /// In none.
    Nowhere,
}

/// A segment's file as reads see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFile {
    /// The file.
    pub id: FileId,
    /// Opened with O_DIRECT: reads are block aligned.
    pub direct: bool,
}

impl Partition {
    /// Finds the segment of an offset.
    pub fn place(&self, offset: Offset) -> Placed {
        let Some(segment) = self.segments.floor(offset) else { return Placed::Nowhere };
        let base = segment.base;
        if segment.state == SegmentState::Sealed {
            return Placed::Sealed { segment: base, file: segment.file };
        }
        let active = base == self.tail().active_base();
        let rolled = self.rolled.iter().find(|rolled| rolled.base == base);
        let index = rolled.map_or(&self.index, |rolled| &rolled.index);
        assert!(active != rolled.is_some(), "segment {base} is neither active nor rolled");
        Placed::Written { segment: base, file: self.files.file(base), at: index.offsets.position(offset) }
    }

    /// Whether the segment at `base` is part of the log.
    pub fn has_segment(&self, base: Offset) -> bool {
        self.segments.floor(base).is_some_and(|segment| segment.base == base)
    }

    /// Where a read of a written segment for `offset` may start.
    pub fn index_position(&self, base: Offset, offset: Offset) -> FilePos {
        let rolled = self.rolled.iter().find(|rolled| rolled.base == base);
        rolled.map_or(&self.index, |rolled| &rolled.index).offsets.position(offset)
    }

    /// Where a search for a timestamp may start in a written segment; nothing for a sealed one.
    pub fn written_time(&self, base: Offset, timestamp: i64) -> Option<Offset> {
        let rolled = self.rolled.iter().find(|rolled| rolled.base == base).map(|rolled| &rolled.index);
        let active = (base == self.tail().active_base()).then_some(&self.index);
        Some(rolled.or(active)?.times.offset(timestamp))
    }

    /// The open file of a segment, and how far its bytes are on the device.
    pub fn readable(&self, base: Offset) -> Option<(ReadFile, FilePos)> {
        let segment = self.segments.floor(base).filter(|segment| segment.base == base)?;
        if segment.state == SegmentState::Sealed {
            return Some((ReadFile { id: segment.file?, direct: false }, FilePos(segment.len)));
        }
        let file = ReadFile { id: self.files.file(base)?, direct: true };
        let end = match base == self.tail().active_base() {
            true => self.tail().stable_in_active().unwrap_or(FilePos(0)),
            false => FilePos(segment.len),
        };
        Some((file, end))
    }
}
