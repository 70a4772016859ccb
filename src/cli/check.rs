//! `tracetool check`.

use super::baseline::{file_of, make};
use super::diff::read_baseline;
use super::input::{ReadingArgs, file_name};
use super::memory::MemoryArgs;
use super::output::{OutputArgs, check_file, replace_file};
use super::{Outcome, say};
use crate::analysis::baseline::Baseline;
use crate::analysis::limits::Limits;
use crate::error::{Error, Result};
use crate::render::{Format, Options};
use crate::report::check::Check;
use crate::report::{CaseOutcome, Report};
use clap::{Args, ValueHint};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file that limits are read from, here or in a folder above.
const CONFIG: &str = "tracetool.toml";

/// Fail where memory rises above limits, and name who brings it
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Limits",
    after_help = "\
Without a file of limits, the peak may rise by 5 % over the baseline and the growth from step to step by
1 MiB. In tracetool.toml:
  max_peak = \"10 GiB\"
  max_increase = \"2 %\"
  [op.\"aten::bmm\"]
  max_increase = \"16 MiB\"

Examples:
  tracetool check trace.json.gz --baseline memory-baseline.json
  tracetool check trace.json.gz --max-peak 10GiB
  tracetool check rank*.json.gz --baseline memory-baseline.json --max-increase '2 %'
  tracetool check trace.json.gz --baseline memory-baseline.json --format junit -o memory.xml
  tracetool check trace.json.gz --baseline memory-baseline.json --update"
)]
pub(super) struct CheckArgs {
    /// The traces or snapshots to check, one a rank
    #[arg(value_name = "TRACE", required = true, value_hint = ValueHint::FilePath, help_heading = None)]
    traces: Vec<PathBuf>,
    /// The baseline to hold them against: once for all of them, or as often as there are traces
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    baseline: Vec<PathBuf>,
    /// Write the baseline anew from the trace, whole or not at all, and check nothing
    #[arg(long, requires = "baseline")]
    update: bool,
    /// Read limits from this file [default: tracetool.toml here or in a folder above]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// The peak: no more than this, such as 10GiB
    #[arg(long, value_name = "SIZE")]
    max_peak: Option<String>,
    /// The peak: no more than this over the baseline, such as '2 %' or 100MiB; none for any [default: 5 %]
    #[arg(long, value_name = "RISE")]
    max_increase: Option<String>,
    /// The peak of reserved memory: no more than this
    #[arg(long, value_name = "SIZE")]
    max_reserved: Option<String>,
    /// The peak of reserved memory: no more than this over the baseline
    #[arg(long, value_name = "RISE")]
    max_reserved_increase: Option<String>,
    /// Allocations in a step: no more than this
    #[arg(long, value_name = "N")]
    max_allocations: Option<String>,
    /// Allocations in a step: no more than this over the baseline
    #[arg(long, value_name = "RISE")]
    max_allocations_increase: Option<String>,
    /// The growth from step to step: no more than this
    #[arg(long, value_name = "SIZE")]
    max_growth: Option<String>,
    /// The growth from step to step: no more than this over the baseline [default: 1 MiB]
    #[arg(long, value_name = "RISE")]
    max_growth_increase: Option<String>,
    /// One more limit, as tracetool.toml writes it: 'category.attention.max = "2 GiB"'
    #[arg(long, value_name = "TOML")]
    rule: Vec<String>,
    /// How many rows to show, of limits and of who brings a rise; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Check::default().limit,
          allow_negative_numbers = true, help_heading = "Rows")]
    limit: i64,
    /// Append the report as markdown to the file that GITHUB_STEP_SUMMARY names
    #[arg(long, help_heading = "Output")]
    step_summary: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

impl CheckArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        self.output.check()?;
        let known = self.baseline.len();
        if known > 1 && known != self.traces.len() {
            let traces = self.traces.len();
            return Err(Error::usage(format!(
                "{known} baselines for {traces} traces: give one for all, or one for each"
            )));
        }
        if self.update { self.update() } else { self.check() }
    }

    fn check(&self) -> Result<Outcome> {
        let check = self.options()?;
        let mut baselines = self.baseline.iter().map(|path| read_baseline(path)).collect::<Result<Vec<Baseline>>>()?;
        if let Some(device) = check.make.memory.device {
            baselines.iter_mut().for_each(|baseline| baseline.keep_device(device));
        }
        let names: Vec<String> = self.baseline.iter().map(|path| file_name(path)).collect();
        let mut held = Vec::with_capacity(self.traces.len());
        for (i, path) in self.traces.iter().enumerate() {
            let own = if baselines.len() > 1 { i } else { 0 };
            let baseline = baselines.get(own).map(|b| (names[own].as_str(), b));
            let trace = self.reading.read(path, check.make.keep())?;
            held.push(check.hold(&file_name(path), &trace, baseline).map_err(|e| e.at_path(path))?);
        }
        let mut report = check.report(&held)?;
        // The summary first: it stands even where the output cannot be written.
        if self.step_summary {
            write_summary(&report)?;
        }
        self.output.write(&mut report)?;
        let failed = report.cases.iter().any(|case| case.outcome == CaseOutcome::Failed);
        Ok(if failed { Outcome::CheckFailed } else { Outcome::Done })
    }

    fn update(&self) -> Result<Outcome> {
        if self.baseline.len() != self.traces.len() {
            return Err(Error::usage("--update takes a baseline of its own for each trace"));
        }
        self.baseline.iter().try_for_each(|path| check_file(path))?;
        let make = make(&self.memory)?;
        // All of them are made before the first is written.
        let file = |path: &PathBuf| {
            let baseline = make.run(&self.reading.read(path, make.keep())?).map_err(|e| e.at_path(path))?;
            file_of(&baseline)
        };
        let files = self.traces.iter().map(file).collect::<Result<Vec<Vec<u8>>>>()?;
        for (path, bytes) in self.baseline.iter().zip(&files) {
            replace_file(path, bytes)?;
            say(&format!("wrote {}", path.display()));
        }
        Ok(Outcome::Done)
    }

    fn options(&self) -> Result<Check> {
        Ok(Check { limits: self.limits()?, make: make(&self.memory)?, limit: self.limit })
    }

    /// The defaults, then the file, then the command line.
    fn limits(&self) -> Result<Limits> {
        let mut limits = Limits::default();
        if let Some(path) = self.config.clone().or_else(found_upward) {
            let text = std::fs::read_to_string(&path).map_err(Error::from);
            text.and_then(|text| limits.add_toml(&text)).map_err(|e| e.at_path(&path))?;
        }
        for (name, value) in [
            ("max_peak", &self.max_peak),
            ("max_increase", &self.max_increase),
            ("max_reserved", &self.max_reserved),
            ("max_reserved_increase", &self.max_reserved_increase),
            ("max_allocations", &self.max_allocations),
            ("max_allocations_increase", &self.max_allocations_increase),
            ("max_growth", &self.max_growth),
            ("max_growth_increase", &self.max_growth_increase),
        ] {
            if let Some(value) = value {
                limits.set(name, value)?;
            }
        }
        self.rule.iter().try_for_each(|rule| limits.add_toml(rule))?;
        Ok(limits)
    }
}

/// The nearest file of limits, from the working folder upward.
fn found_upward() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(CONFIG)).find(|path| path.is_file())
}

/// Appends to the summary of the job, which other steps write to as well.
fn write_summary(report: &Report) -> Result<()> {
    let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|p| !p.is_empty()).map(PathBuf::from) else {
        say("note: GITHUB_STEP_SUMMARY is not set, so no summary is written");
        return Ok(());
    };
    let mut bytes = Vec::new();
    Format::find("markdown").map_or(Ok(()), |f| f.render(report, &Options::default(), &mut bytes))?;
    bytes.push(b'\n');
    append(&path, &bytes).map_err(|e| Error::from(e).at_path(&path))
}

fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    File::options().append(true).create(true).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyCheck {
        #[command(flatten)]
        check: CheckArgs,
    }

    fn parse(args: &[&str]) -> Check {
        OnlyCheck::parse_from([&["test", "x.json"], args].concat()).check.options().unwrap()
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        assert_eq!(format!("{:?}", parse(&[])), format!("{:?}", Check::default()));
    }

    #[test]
    fn the_command_line_writes_limits_as_the_file_does() {
        let args = ["--max-peak", "10GiB", "--max-increase", "none", "--rule", "op.\"aten::*\".max = 5"];
        let file = "max_peak = \"10 GiB\"\nmax_increase = \"none\"\n[op.\"aten::*\"]\nmax = 5\n";
        let (line, file) = (parse(&args).limits, Limits::from_toml(file).unwrap());
        assert_eq!(format!("{line:?}"), format!("{file:?}"));
    }
}
