//! `tracetool peak`.

use super::Outcome;
use super::input::InputArgs;
use super::memory::MemoryArgs;
use super::output::OutputArgs;
use crate::analysis::grouping::GroupBy;
use crate::analysis::peak::{Moment, PeakOptions};
use crate::error::Result;
use crate::input::Recording;
use crate::report::peak::Peak;
use clap::Args;

/// Show who holds the memory at its peak, or at another moment; the rows sum to it exactly
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Rows",
    after_help = "\
Examples:
  tracetool peak trace.json.gz
  tracetool peak trace.json.gz --group-by category
  tracetool peak trace.json.gz --group-by module --device cuda:0 --limit -1
  tracetool peak trace.json.gz --at step:3 --attribute-to root
  tracetool peak trace.json.gz --at oom --format json
  tracetool peak mprofile.dat"
)]
pub(super) struct PeakArgs {
    /// Group what is live by this: op, category, module, stack, file, function, line, shape, phase, step, thread, device
    /// or annotation
    #[arg(long, value_name = "WORD", default_value = GroupBy::default().name())]
    group_by: GroupBy,
    /// The moment: peak, end, oom, step:3 (the peak of step 3), or a time since the trace's start such as 12.5ms
    #[arg(long, value_name = "MOMENT", default_value = "peak")]
    at: Moment,
    /// How many rows of a device to show; -1 for all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", default_value_t = Peak::default().limit,
          allow_negative_numbers = true)]
    limit: i64,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl PeakArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report()?;
        self.output.check()?;
        let recording = self.input.read_any(report.keep())?;
        let mut report = match &recording {
            Recording::Trace(trace) => {
                let mut of_trace = report.run(trace)?;
                of_trace.diagnostics.append(trace.diagnostics().clone());
                of_trace
            }
            Recording::Host(memory) => report.run_host(memory)?,
        };
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    fn report(&self) -> Result<Peak> {
        let peak = PeakOptions {
            attribute_to: self.memory.attribute_to,
            group_by: self.group_by,
            at: self.at,
            ..PeakOptions::default()
        };
        Ok(Peak { peak, memory: self.memory.options()?, limit: self.limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyPeak {
        #[command(flatten)]
        peak: PeakArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let parsed = OnlyPeak::parse_from(["test", "x.json"]).peak.report().unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Peak::default()));
    }
}
