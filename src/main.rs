//! The `pinion` binary.

use std::process::ExitCode;

use clap::Parser;
use pinion::cli::{self, Cli, Command};
use pinion::fatal;

fn main() -> ExitCode {
    fatal::install_panic_hook();
    let outcome = match Cli::parse().command {
        Command::Serve(args) if args.list_settings => cli::print(cli::serve::settings_text().as_bytes()),
        Command::Serve(_) => Err(cli::Failure::new("the data path is not wired yet")),
        Command::Topic(args) => cli::topic::run(&args),
        Command::Completions { shell } => cli::completions(shell),
        Command::Man => cli::man(),
    };
    outcome.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
