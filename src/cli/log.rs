//! `pinion log`: what files of a log hold, and whether they are sound. It reads files of any Kafka and of Pinion, active
//! segments with their zeros too, asks no broker and changes nothing.

mod check;
mod dump;
mod files;
mod segment;
mod verify;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use crate::cli::Failure;

/// Flags of `pinion log`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Print what the files hold: batches, index entries, producers, checkpoints
    #[command(after_long_help = EXAMPLES)]
    Dump {
        /// Print each record, too
        #[arg(long)]
        records: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
        /// A file, the directory of a partition, or a data directory
        path: PathBuf,
    },
    /// Check the files, and indexes against their logs; exit status 1 on damage
    #[command(after_long_help = EXAMPLES)]
    Verify {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
        /// A file, the directory of a partition, or a data directory
        path: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  pinion log verify pinion-data
      One line for each partition of a data directory; what is damaged follows with file and position.
  pinion log verify --json pinion-data | jq -c 'select(.ok | not)'
      Only the damaged files, with every fault.
  pinion log dump pinion-data/orders-0
      Batches, index entries, producers and epochs of one partition.
  pinion log dump --records --json pinion-data/orders-0/00000000000000000000.log | jq -r 'select(.value).value'
      The values of all records in one segment.

A file is told by its name: .log, .index, .timeindex, .snapshot, leader-epoch-checkpoint, partition.metadata, Kafka's offset
checkpoints, and .pinion/checkpoint-*. The broker may be running: what it is just writing is read again before it
counts as damage.";

/// Runs the command.
///
/// # Errors
/// What cannot be read, or that damage was found.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match &args.action {
        Action::Dump { records, json, path } => dump::dump(path, *records, *json, &mut out).map(|()| Vec::new()),
        Action::Verify { json, path } => verify::verify(path, *json, &mut out),
    };
    match done.and_then(|damage| out.flush().map(|()| damage).map_err(Stop::Pipe)) {
        Ok(damage) if damage.is_empty() => Ok(()),
        Ok(damage) => Err(Failure::new(damage.join("\n"))),
        // A reader that has seen enough is no failure.
        Err(Stop::Pipe(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(Stop::Pipe(error)) => Err(Failure::new(format!("cannot write to stdout: {error}"))),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// Why output ends before its end.
#[derive(Debug)]
enum Stop {
    /// Nobody reads on, or stdout failed.
    Pipe(io::Error),
    /// A file cannot be read.
    Failed(Failure),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Pipe(error)
    }
}

impl Stop {
    fn unreadable(path: &std::path::Path, error: &io::Error) -> Stop {
        Stop::Failed(Failure::new(format!("cannot read {}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests;
