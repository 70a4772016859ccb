//! `tracetool blocks`.

use super::Outcome;
use super::input::{InputArgs, parse_size};
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::analysis::grouping::GroupBy;
use crate::analysis::peak::Moment;
use crate::error::Result;
use crate::report::blocks::Blocks;
use crate::units::Bytes;
use clap::Args;

/// Show every block of memory: address, size, owner, when it was allocated and freed
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool blocks trace.json.gz
  tracetool blocks trace.json.gz --alive-at end --min-size 1MiB
  tracetool blocks trace.json.gz --group-by function --sort-by lifetime
  tracetool blocks trace.json.gz --alive-at 12.5ms --sort-by address --limit -1 --format csv -o blocks.csv"
)]
pub(super) struct BlocksArgs {
    /// Show one row for all blocks with the same of this: op, category, module, stack, file, function, line, shape, phase,
    /// step, thread, device or annotation
    #[arg(long, value_name = "WORD")]
    group_by: Option<GroupBy>,
    /// Show only blocks that are live at this moment: peak, end, oom, step:3, or a time such as 12.5ms
    #[arg(long, value_name = "MOMENT")]
    alive_at: Option<Moment>,
    /// Show only blocks of at least this size, such as 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    min_size: u64,
    /// Sort by bytes, allocated_time, freed_time, lifetime or address
    #[arg(long, value_name = "NAME", default_value_t = Blocks::default().sort_by)]
    sort_by: String,
    /// How many rows to show; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Blocks::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl BlocksArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report()?;
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }

    fn report(&self) -> Result<Blocks> {
        Ok(Blocks {
            memory: self.memory.options()?,
            attribute_to: self.memory.attribute_to,
            group_by: self.group_by,
            alive_at: self.alive_at,
            min_size: Bytes(i64::try_from(self.min_size).unwrap_or(i64::MAX)),
            sort_by: self.sort_by.clone(),
            limit: self.limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyBlocks {
        #[command(flatten)]
        blocks: BlocksArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyBlocks::parse_from(["test", "x.json"]).blocks.report().unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Blocks::default()));
    }
}
