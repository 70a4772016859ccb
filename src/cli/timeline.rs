//! `tracetool timeline`.

use super::Outcome;
use super::input::{InputArgs, parse_size};
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::analysis::grouping::GroupBy;
use crate::analysis::peak::Moment;
use crate::analysis::timeline::{TimelineOptions, Window};
use crate::error::Result;
use crate::render::picture_columns;
use crate::report::timeline::MemoryTimeline;
use crate::units::{Bytes, Nanos};
use clap::Args;

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
  tracetool timeline trace.json.gz -o mem.csv --device cuda:0"
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
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
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
            source: self.input.name(),
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
