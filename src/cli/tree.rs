//! `tracetool tree`.

use super::Outcome;
use super::input::{InputArgs, parse_size};
use super::output::OutputArgs;
use super::run::run_report;
use crate::analysis::call_tree::CallTreeOptions;
use crate::error::Result;
use crate::report::tree::Tree;
use crate::trace::Device;
use crate::units::Bytes;
use clap::Args;
use regex::Regex;

/// Show which operator called which, with the memory and the time of each
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Nodes",
    after_help = "\
Examples:
  tracetool tree trace.json.gz
  tracetool tree trace.json.gz --min-memory 100MiB --depth 4
  tracetool tree trace.json.gz --filter softmax --limit -1
  tracetool tree trace.json.gz --raw --sort-by self_cuda_time_total --format json -o calls.json

The largest nodes are shown, from the outermost down, each with those around it. Calls of one path are one node. CUDA Mem
is PyTorch's: the net of all that is allocated and freed meanwhile, on whatever thread; Allocated and Live at Peak count
what the operators themselves allocate."
)]
pub(super) struct TreeArgs {
    /// A node for each call, instead of one for all calls of one path
    #[arg(long)]
    raw: bool,
    /// Leave out nodes that allocate less than this, such as 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    min_memory: u64,
    /// How many levels to show; 0 for all
    #[arg(long, value_name = "N", default_value_t = Tree::default().depth)]
    depth: usize,
    /// Show only nodes whose name matches this regular expression, with those around and in them
    #[arg(long, value_name = "REGEX")]
    filter: Option<Regex>,
    /// Show the greatest by this: peak_live, allocated, cuda_memory_usage, self_cpu_time_total, count and so on (cuda, xpu,
    /// hip and device are the same word) [default: the best that the trace holds, memory first]
    #[arg(long, value_name = "NAME")]
    sort_by: Option<String>,
    /// How many nodes to show; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Tree::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    /// Count only this device: cuda:1, cpu
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl TreeArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report();
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }

    fn report(&self) -> Tree {
        Tree {
            tree: CallTreeOptions { device: self.device, raw: self.raw },
            sort_by: self.sort_by.clone(),
            min_memory: Bytes(i64::try_from(self.min_memory).unwrap_or(i64::MAX)),
            depth: self.depth,
            filter: self.filter.clone(),
            limit: self.limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyTree {
        #[command(flatten)]
        tree: TreeArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyTree::parse_from(["test", "x.json"]).tree.report();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Tree::default()));
    }
}
