//! `tracetool timeline`.

use super::Outcome;
use super::beside::BesideArgs;
use super::input::{InputArgs, file_name, parse_size};
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use crate::analysis::grouping::GroupBy;
use crate::analysis::peak::Moment;
use crate::analysis::timeline::{TimelineOptions, Window};
use crate::error::{Error, Result};
use crate::input::Recording;
use crate::render::picture_columns;
use crate::report::timeline::{Beside, MemoryTimeline};
use crate::units::{Bytes, Nanos};
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Show memory over time: a picture (-o mem.svg), a chart in the terminal, or every point (csv, json)
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Picture",
    after_help = "\
Examples:
  tracetool timeline trace.json.gz
  tracetool timeline trace.json.gz -o mem.svg
  tracetool timeline trace.json.gz -o step.svg --step 3 --group-by module
  tracetool timeline trace.json.gz -o mem.svg --from 12ms --to 40ms --max-memory 4GiB
  tracetool timeline trace.json.gz -o mem.csv --device cuda:0
  tracetool timeline trace.json.gz --smi gpu.csv apps.csv --snapshot snapshot.pickle --mprof mprofile.dat -o all.svg
  tracetool timeline mprofile.dat -o host.svg"
)]
pub(super) struct TimelineArgs {
    /// Group what is live by this: op, category, module, stack, file, function, line, shape, phase, step, thread, device
    /// or annotation [default: category; of a snapshot op]
    #[arg(long, value_name = "WORD")]
    group_by: Option<GroupBy>,
    /// Show only the step of this number
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Start here, counted from the trace's first event: 12.5ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Nanos>,
    /// End here, counted from the trace's first event: 1.2s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Nanos>,
    /// How many groups to show by name; the rest is one
    #[arg(long, value_name = "N", default_value_t = TimelineOptions::default().most_series)]
    most_groups: usize,
    /// Where the scale of memory ends, to compare pictures: 4GiB [default: above the highest]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_memory: Option<u64>,
    /// Height: pixels of a picture, lines of a chart
    #[arg(long, value_name = "N")]
    height: Option<u32>,
    #[command(flatten)]
    memory: MemoryArgs,
    /// A recording of memory_profiler of the same time (mprof run): the memory of the host
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Beside the trace")]
    mprof: Option<PathBuf>,
    #[command(flatten)]
    beside: BesideArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// What is kept for a chart of characters: several columns for each of its own.
const CHART_COLUMNS: u32 = 2000;

pub(super) fn parse_time(text: &str) -> std::result::Result<Nanos, String> {
    match text.parse() {
        Ok(Moment::Time(time)) => Ok(time),
        _ => Err(format!("expected a time such as 12.5ms or 300us, found {text:?}")),
    }
}

impl TimelineArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report()?;
        self.output.check()?;
        let smi = self.beside.log(self.input.reading())?;
        let host = self.mprof.as_deref().map(|path| self.input.reading().read_host(path)).transpose()?;
        let recording = self.input.read_any(report.keep())?;
        let mut report = match recording {
            Recording::Trace(trace) => {
                let (run, diagnostics) = match &smi {
                    Some(_) => self.beside.run(&trace, self.memory.accelerator(), self.input.reading())?,
                    None => Default::default(),
                };
                let beside = Beside { smi, run, host, offset: self.beside.offset() };
                let mut of_trace = report.run_beside(&trace, &beside)?;
                of_trace.diagnostics.append(trace.diagnostics().clone());
                of_trace.diagnostics.append(diagnostics);
                of_trace
            }
            Recording::Host(memory) => {
                if smi.is_some() || host.is_some() {
                    return Err(Error::usage(
                        "--smi and --mprof stand beside a trace: give one, and the recording by --mprof",
                    ));
                }
                report.run_host(&memory)?
            }
        };
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    fn source(&self) -> String {
        let beside = self.beside.names().chain(self.mprof.as_deref().map(file_name));
        std::iter::once(self.input.name()).chain(beside).collect::<Vec<_>>().join(", ")
    }

    fn report(&self) -> Result<MemoryTimeline> {
        let width = self.output.width();
        let columns = match self.output.format() {
            "csv" | "json" => None,
            "svg" => Some(picture_columns(width)),
            _ => Some(CHART_COLUMNS),
        };
        let timeline = TimelineOptions {
            attribute_to: self.memory.attribute_to,
            group_by: self.group_by,
            window: Window { from: self.from, to: self.to, step: self.step },
            columns,
            most_series: self.most_groups,
            ..TimelineOptions::default()
        };
        Ok(MemoryTimeline {
            timeline,
            memory: self.memory.options()?,
            for_programs: columns.is_none(),
            source: self.source(),
            max_memory: self.max_memory.map(|bytes| Bytes(i64::try_from(bytes).unwrap_or(i64::MAX))),
            width,
            height: self.height,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyTimeline {
        #[command(flatten)]
        timeline: TimelineArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyTimeline::parse_from(["test", "x.json", "--format", "json"]).timeline.report().unwrap();
        let theirs = MemoryTimeline { for_programs: true, source: "x.json".into(), ..MemoryTimeline::default() };
        assert_eq!(format!("{parsed:?}"), format!("{theirs:?}"));
    }
}
