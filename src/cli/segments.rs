//! `tracetool segments`.

use super::Outcome;
use super::input::InputArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::error::Result;
use crate::report::segments::Segments;
use crate::trace::Device;
use clap::Args;

/// Show what the allocator had reserved when a snapshot was taken: a picture (-o segments.svg) or a table
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool segments snapshot.pickle
  tracetool segments snapshot.pickle -o segments.svg
  tracetool segments snapshot.pickle --sort-by free_bytes --limit 5
  tracetool segments snapshot.pickle --blocks --limit -1 --format csv -o blocks.csv"
)]
pub(super) struct SegmentsArgs {
    /// A row for each block, and not for each segment
    #[arg(long)]
    blocks: bool,
    /// Sort by bytes, free_bytes or address
    #[arg(long, value_name = "NAME", default_value_t = Segments::default().sort_by)]
    sort_by: String,
    /// How many rows to show; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Segments::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    /// Show only this device: cuda:1
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl SegmentsArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report();
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }

    fn report(&self) -> Segments {
        Segments {
            blocks: self.blocks,
            device: self.device,
            sort_by: self.sort_by.clone(),
            limit: self.limit,
            source: self.input.name(),
            width: self.output.width(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlySegments {
        #[command(flatten)]
        segments: SegmentsArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlySegments::parse_from(["test", "x.pickle"]).segments.report();
        let theirs = Segments { source: "x.pickle".into(), ..Segments::default() };
        assert_eq!(format!("{parsed:?}"), format!("{theirs:?}"));
    }
}
