//! Files that answers name. An answer may wait long for its turn, here or on another core, behind a slow reader; whatever
//! wants its file closed meanwhile (retention, the end of the partition) has to wait for it, else what was announced
//! could not be sent, and the connection would have to be reset.
//!
//! The core that opened a file counts. Whoever is done with an answer gives the file back as it gives back leases.

use crate::ids::{DirId, FileId};
use crate::shard::Shard;
use crate::shard::action::{Action, Actions, FileJob, Part};
use crate::shard::file_jobs::{Purpose, core_of};
use crate::shard::message::{Message, Peer};

/// The files of this core that answers name, by id.
#[derive(Debug, Default)]
pub struct NamedFiles(Vec<Named>);

#[derive(Debug)]
struct Named {
    file: FileId,
    /// Parts of answers that name it; at least 1.
    parts: u32,
    /// It is to be closed then, in this data directory.
    close: Option<DirId>,
}

impl NamedFiles {
    /// An answer names a file.
    pub fn name(&mut self, file: FileId) {
        match self.find(file) {
            Ok(at) => self.0[at].parts += 1,
            Err(at) => self.0.insert(at, Named { file, parts: 1, close: None }),
        }
    }

    /// Whether some answer names a file that is to be closed; then it is to be closed after the last of them.
    fn defer_close(&mut self, file: FileId, dir: DirId) -> bool {
        let found = self.find(file);
        if let Ok(at) = found {
            self.0[at].close = Some(dir);
        }
        found.is_ok()
    }

    /// An answer that named a file is gone. Returns the data directory of a file that is to be closed now.
    fn unname(&mut self, file: FileId) -> Option<DirId> {
        let at = self.find(file).unwrap_or_else(|_| panic!("no answer names file {file}"));
        let named = &mut self.0[at];
        named.parts -= 1;
        if named.parts > 0 {
            return None;
        }
        self.0.remove(at).close
    }

    /// Where it stands, or belongs. The list keeps its memory, so that naming allocates nothing in the long run.
    fn find(&self, file: FileId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&file, |named| named.file)
    }
}

impl Shard {
    /// Closes a file, as soon as no answer names it.
    pub(super) fn close_file(&mut self, dir: DirId, file: FileId, out: &mut Actions) {
        if !self.named_files.defer_close(file, dir) {
            self.file_jobs.start(Purpose::Close { dir }, FileJob::Close { file }, out);
        }
    }

    /// An answer of this or another core named a file of this core, and is gone.
    pub(super) fn on_file_returned(&mut self, file: FileId, out: &mut Actions) {
        if let Some(dir) = self.named_files.unname(file) {
            self.file_jobs.start(Purpose::Close { dir }, FileJob::Close { file }, out);
        }
    }

    /// Gives back what a part of an answer holds.
    pub(super) fn release_part(&mut self, part: Part, out: &mut Actions) {
        match part {
            Part::Bytes(bytes) => self.buffers.recycle_bytes(bytes),
            Part::Arena(lease) => self.give_back(lease, out),
            Part::File(range) if core_of(range.file) == self.config.core => self.on_file_returned(range.file, out),
            Part::File(range) => {
                let to = Peer::Core(core_of(range.file));
                out.push(Action::Mail { to, message: Message::ReturnFile(range.file) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_closed_after_the_last_answer_that_names_it() {
        let (mut named, dir) = (NamedFiles::default(), DirId(1));
        for file in [7, 3, 7] {
            named.name(FileId(file));
        }
        assert!(named.defer_close(FileId(7), dir) && !named.defer_close(FileId(5), dir));
        assert_eq!(named.unname(FileId(7)), None, "another answer names it");
        assert_eq!(named.unname(FileId(3)), None, "nobody wants it closed");
        assert_eq!(named.unname(FileId(7)), Some(dir));
        assert!(!named.defer_close(FileId(7), dir), "it is forgotten");
    }
}
