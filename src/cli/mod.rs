//! The command line: one file per subcommand. Parsing is clap's; what a command means is in its file.

pub mod log;
pub mod serve;
pub mod topic;

pub mod client;
pub mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::fatal::Reason;

/// A broker that speaks Kafka's protocol, for dedicated Linux hosts with NVMe.
#[derive(Debug, Parser)]
#[command(name = "pinion", version, propagate_version = true, max_term_width = 110, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker
    Serve(Box<serve::Args>),
    /// Create, list, describe, alter and delete topics of a cluster
    Topic(topic::Args),
    /// Look into the files of a log and check them, offline
    Log(log::Args),
    /// Print completions for a shell: pinion completions bash > /etc/bash_completion.d/pinion
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page: pinion man | man -l -
    Man,
}

/// How a command other than `serve` fails: a message, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// For stderr, without the program's name.
    pub message: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// Something that the user asked for did not work out.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 1 }
    }

    /// The command line makes no sense.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 2 }
    }

    /// Prints it and gives the exit status.
    pub fn report(&self) -> ExitCode {
        eprintln!("pinion: {}", self.message);
        ExitCode::from(self.status)
    }
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Failure {
        let message = reason.message();
        let message = message.strip_prefix("pinion: ").unwrap_or(&message).to_string();
        Failure { message, status: reason.status() }
    }
}

/// Prints completions for a shell.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pinion", &mut script);
    print(&script)
}

/// Prints one manual page for all subcommands.
pub fn man() -> Result<(), Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let failed = |error: std::io::Error| Failure::new(format!("cannot render the manual page: {error}"));
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(failed)?;
    for subcommand in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        writeln!(page, ".SH \"PINION {}\"", subcommand.get_name().to_uppercase()).map_err(failed)?;
        let man = clap_mangen::Man::new(subcommand.clone());
        man.render_synopsis_section(&mut page).map_err(failed)?;
        man.render_description_section(&mut page).map_err(failed)?;
        man.render_options_section(&mut page).map_err(failed)?;
    }
    print(&page)
}

/// Writes to stdout; a reader that has seen enough (a closed pipe) is no failure.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_reason_becomes_a_failure_with_its_status_and_remedy() {
        let failure = Failure::from(Reason::Port("taken".to_string()));
        assert_eq!(failure.status, 12);
        assert!(failure.message.starts_with("cannot listen: taken\n  remedy: "));
    }
}
