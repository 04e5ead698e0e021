//! What reaches the control thread besides the mail of the data cores: answers of workers, questions of HTTP, the wish
//! to stop. A channel and a doorbell.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::control::job::JobDone;
use crate::fatal::Reason;
use crate::ids::{DirId, Errno, LogIndex};
use crate::io::bell::Bell;
use crate::runtime::http::{HttpQueries, HttpQuery};

/// One thing for the control thread.
#[derive(Debug)]
pub enum Input {
    /// The write of the metadata log is durable, or has failed.
    Logged(Result<(), Errno>),
    /// A snapshot is durable under its name, or not.
    SnapshotSaved {
        /// Its index.
        index: LogIndex,
        /// What came of it.
        result: Result<(), Errno>,
    },
    /// A disk operation in a data directory does not end.
    DiskHangs(DirId),
    /// The background is done with a job.
    JobDone(JobDone),
    /// HTTP asks.
    Http(HttpQuery),
    /// The process is to end in an orderly way.
    Stop,
}

/// The sending end; cheap to clone.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: Sender<Input>,
    bell: Arc<Bell>,
}

impl Inbox {
    /// A new inbox, its receiving end, and the bell that rings for it.
    ///
    /// # Errors
    /// When no descriptor is left for the bell.
    pub fn new() -> Result<(Inbox, Receiver<Input>, Arc<Bell>), Reason> {
        let bell = Arc::new(Bell::new()?);
        let (sender, receiver) = mpsc::channel();
        Ok((Inbox { sender, bell: Arc::clone(&bell) }, receiver, bell))
    }

    /// Puts something in and rings.
    pub fn put(&self, input: Input) {
        // The control thread lives as long as the process; during its end nobody reads any more.
        let _ = self.sender.send(input);
        self.bell.ring();
    }

    /// Passes the questions of HTTP on, from a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be had.
    pub fn forward(&self, mut queries: HttpQueries) -> std::io::Result<()> {
        let inbox = self.clone();
        let pass = move || {
            while let Some(query) = queries.blocking_recv() {
                inbox.put(Input::Http(query));
            }
        };
        std::thread::Builder::new().name("http-mail".to_owned()).spawn(pass).map(drop)
    }
}
