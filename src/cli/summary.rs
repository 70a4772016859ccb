//! `tracetool summary`.

use super::Outcome;
use super::input::InputArgs;
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::error::Result;
use crate::report::summary::Summary;
use clap::Args;

/// Show the one page to read first: memory, who holds the peak, how busy the device was, findings
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tracetool summary trace.json.gz
  tracetool summary trace.json.gz --device cuda:0 --format markdown -o summary.md
  tracetool summary snapshot.pickle")]
pub(super) struct SummaryArgs {
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl SummaryArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = Summary { memory: self.memory.options()? };
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }
}
