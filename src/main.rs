//! The `pinion` binary.

use std::process::ExitCode;

use clap::Parser;
use pinion::cli::{self, Cli, Command};
use pinion::fatal;
use pinion::runtime::supervise::End;
use pinion::runtime::{host, serve as node};

fn main() -> ExitCode {
    fatal::install_panic_hook();
    let outcome = match Cli::parse().command {
        Command::Serve(args) if args.list_settings => cli::print(cli::serve::settings_text().as_bytes()),
        Command::Serve(args) => serve(&args),
        Command::Topic(args) => cli::topic::run(&args),
        Command::Log(args) => cli::log::run(&args),
        Command::Completions { shell } => cli::completions(shell),
        Command::Man => cli::man(),
    };
    outcome.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// A node, from its flags to its end. Whatever the operator must act on ends the process where it is met.
fn serve(args: &cli::serve::Args) -> Result<(), cli::Failure> {
    let machine = host::facts();
    let config = args.resolve(&machine).unwrap_or_else(|reason| reason.end());
    host::start_logging(config.log_json);
    tracing::info!("node {}: {}", config.node, config.chosen(&machine));
    config.notes.iter().for_each(|note| tracing::info!("{note}"));
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    match node::run(&config) {
        Ok(End::Clean(_)) => Ok(()),
        Ok(End::Unclean) => Err(cli::Failure::new("stopped, but a data directory had failed: the next start recovers")),
        Ok(End::Hurried) => Err(cli::Failure::new("left at once, as asked: the next start recovers")),
        Ok(End::OutOfTime) => {
            let text =
                "the grace time (shutdown.grace.ms) was over before everything was sealed: the next start recovers";
            Err(cli::Failure::new(text))
        }
        Ok(End::Fatal(reason)) | Err(reason) => reason.end(),
    }
}
