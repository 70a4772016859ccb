//! The command line: parse, read, run, write; exit codes, broken pipes.
//!
//! A command is a file of its own with its arguments and one `run`, and one line in `Command`. What all commands share
//! (reading, formats, whole files, diagnostics) is in `run`, `input` and `output`. Only this module writes to the
//! standard streams.
//!
//! Exit codes: 0 done, 1 a check failed, 2 the input or the command line is wrong.

mod baseline;
mod beside;
mod blocks;
mod check;
mod completions;
mod diff;
mod flamegraph;
mod input;
mod interrupt;
mod lines;
mod memory;
mod output;
mod peak;
mod progress;
mod reconcile;
mod run;
mod segments;
mod smi;
mod steps;
mod summary;
mod timeline;
mod top;
mod tree;

use crate::error::{Error, Result};
use crate::render::visible;
use clap::error::ErrorKind as ClapKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Find out what holds GPU memory: reads PyTorch profiler traces, gzipped or not.
#[derive(Debug, Parser)]
#[command(name = "tracetool", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Exit codes: 0 done, 1 a check failed, 2 the input or the command line is wrong.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one value, made once")]
enum Command {
    Top(top::TopArgs),
    Peak(peak::PeakArgs),
    Blocks(blocks::BlocksArgs),
    Steps(steps::StepsArgs),
    Summary(summary::SummaryArgs),
    Tree(tree::TreeArgs),
    Flamegraph(flamegraph::FlamegraphArgs),
    Lines(lines::LinesArgs),
    Timeline(timeline::TimelineArgs),
    Smi(smi::SmiArgs),
    Reconcile(reconcile::ReconcileArgs),
    Baseline(baseline::BaselineArgs),
    Diff(diff::DiffArgs),
    Segments(segments::SegmentsArgs),
    Check(check::CheckArgs),
    Completions(completions::CompletionsArgs),
}

impl Command {
    fn run(self) -> Result<Outcome> {
        match self {
            Self::Top(args) => args.run(),
            Self::Peak(args) => args.run(),
            Self::Blocks(args) => args.run(),
            Self::Steps(args) => args.run(),
            Self::Summary(args) => args.run(),
            Self::Tree(args) => args.run(),
            Self::Flamegraph(args) => args.run(),
            Self::Lines(args) => args.run(),
            Self::Timeline(args) => args.run(),
            Self::Baseline(args) => args.run(),
            Self::Diff(args) => args.run(),
            Self::Segments(args) => args.run(),
            Self::Smi(args) => args.run(),
            Self::Reconcile(args) => args.run(),
            Self::Check(args) => args.run(),
            Self::Completions(args) => args.run(),
        }
    }
}

/// How a command ended that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// What was to be checked does not hold.
    CheckFailed,
}

/// Runs the command line `args`, whose first is the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = match Cli::command().try_get_matches_from(args).and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli.command.run(),
        Err(error) if matches!(error.kind(), ClapKind::DisplayHelp | ClapKind::DisplayVersion) => {
            // Help goes to standard output, with colours only where that is a terminal.
            error.print().map_err(Error::from).map(|()| Outcome::Done)
        }
        Err(error) => Err(Error::usage(one_line(&error))),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::CheckFailed) => ExitCode::from(1),
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

/// A line on standard error. Where that is closed there is no one to tell.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "tracetool: {}", visible(message));
}

/// The parser's message on one line, without the usage text.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ClapKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "no command given (try 'tracetool --help')".to_owned();
    }
    let text = error.to_string();
    let parts: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let mut message = parts.join("; ").replace(":; ", ": ");
    if error.kind() == ClapKind::InvalidSubcommand {
        let commands: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
        message = format!("{message}; the commands are {}", commands.join(", "));
    }
    format!("{} (try '--help')", message.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_in_its_help() {
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }
}
