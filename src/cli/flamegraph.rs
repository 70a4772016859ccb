//! `tracetool flamegraph`.

use super::Outcome;
use super::input::InputArgs;
use super::output::OutputArgs;
use super::run::run_report;
use crate::analysis::context::FrameName;
use crate::analysis::flame::PythonFrames;
use crate::error::Result;
use crate::report::flamegraph::Flamegraph;
use crate::trace::Device;
use clap::Args;

/// Draw where memory or time goes, by step, module, Python frame and operator
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Picture",
    after_help = "\
Examples:
  tracetool flamegraph trace.json.gz -o peak.svg
  tracetool flamegraph trace.json.gz --metric self_cuda_time_total --python -o time.svg
  tracetool flamegraph trace.json.gz --metric allocated --device cuda:0 -o allocated.folded
  tracetool flamegraph snapshot.pickle --group-by function -o peak.svg
  tracetool flamegraph snapshot.pickle --python=all -o peak.svg"
)]
pub(super) struct FlamegraphArgs {
    /// Measure this: live_at_peak, allocated, allocation_count, self_cuda_time_total, self_cpu_time_total,
    /// self_device_memory_usage or self_cpu_memory_usage (net: what is below 0 is left out) [default: the first that the
    /// trace holds]
    #[arg(long, short, value_name = "NAME")]
    metric: Option<String>,
    /// Put Python frames on the paths, besides modules: user, those of your own code, or all
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_value = PythonFrames::None.name(), default_missing_value = PythonFrames::User.name())]
    python: PythonFrames,
    /// Tell Python frames apart by line, function or file
    #[arg(long, value_name = "WORD", default_value = FrameName::default().name())]
    group_by: FrameName,
    /// Count only this device: cuda:1, cpu
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    /// The title of the picture [default: what is measured]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    title: String,
    /// How many paths the table shows; -1 for all. The other formats have all
    #[arg(long, visible_alias = "row-limit", short = 'n', value_name = "N", allow_negative_numbers = true,
          default_value_t = Flamegraph::default().limit)]
    limit: i64,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

impl FlamegraphArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        let report = self.report();
        run_report(&self.input, &self.output, report.keep(), |trace| report.run(trace))
    }

    fn report(&self) -> Flamegraph {
        Flamegraph {
            metric: self.metric.clone(),
            python: self.python,
            frames: self.group_by,
            device: self.device,
            // CSV is for programs, which cut for themselves.
            limit: if self.output.format() == "csv" { -1 } else { self.limit },
            title: self.title.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyFlamegraph {
        #[command(flatten)]
        flamegraph: FlamegraphArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys_and_python_alone_means_the_users_own() {
        let parsed = |args: &[&str]| OnlyFlamegraph::parse_from([&["test", "x"], args].concat()).flamegraph.report();
        assert_eq!(format!("{:?}", parsed(&[])), format!("{:?}", Flamegraph::default()));
        assert_eq!(parsed(&["--python"]).python, PythonFrames::User);
        assert_eq!(parsed(&["--python=all"]).python, PythonFrames::All);
    }
}
