//! `tracetool diff`.

use super::Outcome;
use super::baseline::make;
use super::input::{ReadingArgs, file_name};
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use crate::analysis::baseline::Baseline;
use crate::analysis::grouping::GroupBy;
use crate::error::{Error, Result};
use crate::report::baseline::MakeBaseline;
use crate::report::diff::{Diff, Side};
use clap::{Args, ValueHint};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Show what made memory grow or shrink from one trace to another; the changes sum to that of the peak
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool diff before.json.gz after.json.gz
  tracetool diff memory-baseline.json trace.json.gz --group-by category
  tracetool diff before.json.gz after.json.gz --format markdown -o comment.md"
)]
pub(super) struct DiffArgs {
    /// The trace, snapshot or baseline to start from; - for a trace from standard input
    #[arg(value_name = "BEFORE", value_hint = ValueHint::FilePath, help_heading = None)]
    before: PathBuf,
    /// The trace, snapshot or baseline to compare with it
    #[arg(value_name = "AFTER", value_hint = ValueHint::FilePath, help_heading = None)]
    after: PathBuf,
    /// Group what is live by this: op, category or module; between two traces also stack, file, function, line,
    /// shape, phase, step, thread, device or annotation
    #[arg(long, value_name = "WORD", default_value = GroupBy::default().name())]
    group_by: GroupBy,
    /// How many rows of a device to show; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Diff::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

impl DiffArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        self.output.check()?;
        let mut make = make(&self.memory)?;
        if !make.group_by.contains(&self.group_by) {
            make.group_by.push(self.group_by);
        }
        let before = side(&self.before, &make, &self.reading)?;
        let after = side(&self.after, &make, &self.reading)?;
        let [before_name, after_name] = [&self.before, &self.after].map(|path| file_name(path));
        let mut report = self
            .report()
            .run(Side { name: &before_name, baseline: &before }, Side { name: &after_name, baseline: &after })?;
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    fn report(&self) -> Diff {
        Diff { group_by: self.group_by, limit: self.limit }
    }
}

/// A baseline from its file, or of the trace that the file holds: its first bytes tell.
fn side(path: &Path, make: &MakeBaseline, reading: &ReadingArgs) -> Result<Baseline> {
    if starts_as_baseline(path) {
        let mut baseline = read_baseline(path)?;
        if let Some(device) = make.memory.device {
            baseline.keep_device(device);
        }
        return Ok(baseline);
    }
    make.run(&reading.read(path, make.keep())?).map_err(|e| e.at_path(path))
}

fn starts_as_baseline(path: &Path) -> bool {
    let mut start = Vec::new();
    // Standard input and pipes give their first bytes only once.
    let file = || path.metadata().is_ok_and(|m| m.is_file()).then(|| File::open(path).ok()).flatten();
    let read = file().and_then(|f| f.take(256).read_to_end(&mut start).ok());
    read.is_some() && Baseline::is_one(&start)
}

/// Reads a baseline's file.
pub(super) fn read_baseline(path: &Path) -> Result<Baseline> {
    /// A baseline takes kilobytes.
    const MOST: u64 = 64 << 20;
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
        let hint = "make one of a trace with `tracetool baseline`";
        let no_text = |_| Error::format("a baseline of tracetool", "a file that is no text").with_hint(hint);
        Baseline::from_json(&String::from_utf8(bytes).map_err(no_text)?)
    };
    read().map_err(|e: Error| e.at_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyDiff {
        #[command(flatten)]
        diff: DiffArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyDiff::parse_from(["test", "a.json", "b.json"]).diff;
        assert_eq!(format!("{:?}", parsed.report()), format!("{:?}", Diff::default()));
    }
}
