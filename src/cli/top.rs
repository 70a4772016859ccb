//! `tracetool top`.

use super::Outcome;
use super::input::InputArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::analysis::averages::AveragesOptions;
use crate::error::Result;
use crate::report::TorchWidths;
use crate::report::top::{Top, TorchOptions};
use crate::trace::Device;
use clap::Args;
use regex::Regex;

/// Show which operators take memory and time, as PyTorch's key_averages() counts it
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool top trace.json.gz
  tracetool top trace.json.gz --sort-by self_cuda_time_total --limit 20
  tracetool top trace.json.gz --format torch --sort-by cuda_memory_usage
  tracetool top trace.json.gz --group-by-input-shape --filter 'aten::b?mm' --format csv -o mm.csv"
)]
pub(super) struct TopArgs {
    /// Sort by this, greatest first: self_cuda_memory_usage, cpu_time_total, count and so on as in PyTorch (cuda, xpu,
    /// hip and device are the same word), or none [default: the best that the trace holds, memory first]
    #[arg(long, value_name = "NAME")]
    sort_by: Option<String>,
    /// How many rows to show; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Top::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    /// One row for each input shape
    #[arg(long)]
    group_by_input_shape: bool,
    /// One row for each stack of N innermost Python frames
    #[arg(long, value_name = "N", default_value_t = Top::default().averages.group_by_stack_n)]
    group_by_stack_n: usize,
    /// Count only this device: cuda:1, cpu
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    /// Show only what is called by nothing else in the trace
    #[arg(long)]
    top_level_only: bool,
    /// Show only rows whose name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    filter: Option<Regex>,
    #[command(flatten)]
    torch: TorchArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// Arguments of PyTorch's own table.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --format torch")]
struct TorchArgs {
    /// A line over the table
    #[arg(long, value_name = "TEXT")]
    header: Option<String>,
    /// Most characters of a name
    #[arg(long, value_name = "N", default_value_t = TorchWidths::default().name)]
    max_name_column_width: usize,
    /// Most characters of input shapes
    #[arg(long, value_name = "N", default_value_t = TorchWidths::default().shapes)]
    max_shapes_column_width: usize,
    /// Most characters of a source location
    #[arg(long, value_name = "N", default_value_t = TorchWidths::default().source)]
    max_src_column_width: usize,
}

impl TopArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report();
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }

    fn report(&self) -> Top {
        let torch = self.output.format() == "torch";
        Top {
            averages: AveragesOptions {
                group_by_input_shape: self.group_by_input_shape,
                group_by_stack_n: self.group_by_stack_n,
                device: self.device,
                top_level_only: self.top_level_only,
                torch_shapes: torch,
            },
            sort_by: self.sort_by.clone(),
            limit: self.limit,
            filter: self.filter.clone(),
            torch: torch.then(|| self.torch.options()),
        }
    }
}

impl TorchArgs {
    fn options(&self) -> TorchOptions {
        TorchOptions {
            header: self.header.clone(),
            max_widths: TorchWidths {
                name: self.max_name_column_width,
                shapes: self.max_shapes_column_width,
                source: self.max_src_column_width,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyTop {
        #[command(flatten)]
        top: TopArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = |args: &[&str]| OnlyTop::parse_from([&["test", "x.json"], args].concat()).top.report();
        assert_eq!(format!("{:?}", parsed(&[])), format!("{:?}", Top::default()));
        assert_eq!(parsed(&["--format", "torch"]).torch, Some(TorchOptions::default()));
    }

    #[test]
    fn row_limit_is_limit_and_may_be_negative() {
        assert_eq!(OnlyTop::parse_from(["test", "x", "--row-limit", "-1"]).top.limit, -1);
    }
}
