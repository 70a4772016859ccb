//! `tracetool lines`.

use super::Outcome;
use super::input::InputArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::error::Result;
use crate::input::PythonFiles;
use crate::report::lines::Lines;
use crate::trace::Device;
use clap::{Args, ValueHint};
use globset::{Glob, GlobMatcher};
use std::path::PathBuf;

/// Show memory by line of Python, as memory_profiler prints it
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool lines trace.json.gz
  tracetool lines snapshot.pickle --source-root .
  tracetool lines trace.json.gz --file 'model/*.py' --format csv -o lines.csv

A trace (with_stack=True) tells functions; a snapshot tells exact lines."
)]
pub(super) struct LinesArgs {
    /// Show only files whose path, or the end of it, matches this: model.py, 'models/*.py', '*' [default: your own code,
    /// not PyTorch's and not packages]
    #[arg(long, value_name = "GLOB", value_parser = parse_glob)]
    file: Option<GlobMatcher>,
    /// Show the text of lines from the Python files below this folder, found by the end of their path; may be repeated.
    /// No other file is read
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    source_root: Vec<PathBuf>,
    /// The device: cuda:1, cpu [default: the accelerator with the greatest peak]
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    /// How many lines to show, those that hold most; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Lines::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

fn parse_glob(text: &str) -> std::result::Result<GlobMatcher, String> {
    Glob::new(text).map(|glob| glob.compile_matcher()).map_err(|e| e.to_string())
}

impl LinesArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let mut files = PythonFiles::in_folders(&self.source_root)?;
        let report = self.report();
        run_report(&self.input, &self.output, report.keep(), |trace| {
            report.run(trace, |file, line| files.line(file, line).map(str::to_owned))
        })
    }

    fn report(&self) -> Lines {
        Lines { file: self.file.clone(), device: self.device, limit: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyLines {
        #[command(flatten)]
        lines: LinesArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyLines::parse_from(["test", "x.json"]).lines.report();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Lines::default()));
    }
}
