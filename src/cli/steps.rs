//! `tracetool steps`.

use super::Outcome;
use super::input::InputArgs;
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::error::Result;
use crate::report::steps::Steps;
use clap::Args;

/// Show the memory of each step, and whether it grows, by how much and who keeps it
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool steps trace.json.gz
  tracetool steps trace.json.gz --step-annotation '## forward ##'
  tracetool steps trace.json.gz --device cuda:0 --format json"
)]
pub(super) struct StepsArgs {
    /// How many of those who keep memory to show; -1 for all. Steps are all shown
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Steps::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl StepsArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report()?;
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }

    fn report(&self) -> Result<Steps> {
        Ok(Steps { memory: self.memory.options()?, attribute_to: self.memory.attribute_to, limit: self.limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlySteps {
        #[command(flatten)]
        steps: StepsArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlySteps::parse_from(["test", "x.json"]).steps.report().unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Steps::default()));
    }
}
