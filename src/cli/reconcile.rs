//! `tracetool reconcile`.

use super::Outcome;
use super::beside::{BesideArgs, KEEP, no_memory};
use super::input::{ReadingArgs, file_name};
use super::output::OutputArgs;
use crate::error::{Error, Result};
use crate::report::reconcile::Reconcile;
use crate::trace::Device;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Account for what nvidia-smi says is used: tensors, cached, context and libraries, other processes
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Inputs",
    after_help = "\
Examples:
  tracetool reconcile trace.json.gz --smi gpu.csv apps.csv
  tracetool reconcile trace.json.gz --snapshot snapshot.pickle --smi gpu.csv apps.csv -o all.svg
  tracetool reconcile snapshot.pickle --smi gpu.csv apps.csv --pid 4711"
)]
pub(super) struct ReconcileArgs {
    /// The trace or allocator snapshot, gzipped or not
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath, help_heading = None)]
    trace: PathBuf,
    /// The device that the trace is looked at for [default: its first accelerator]
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    #[command(flatten)]
    beside: BesideArgs,
    /// Height: pixels of a picture, lines of a chart
    #[arg(long, value_name = "N")]
    height: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

impl ReconcileArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        self.output.check()?;
        let Some(log) = self.beside.log(&self.reading)? else {
            return Err(Error::usage("reconcile needs logs of nvidia-smi: --smi gpu.csv apps.csv"));
        };
        let trace = self.reading.read(&self.trace, KEEP)?;
        let (run, diagnostics) = self.beside.run(&trace, self.device, &self.reading)?;
        let run = run.ok_or_else(|| no_memory(&self.trace))?;
        let mut report = self.report().run(&log, &run)?;
        report.diagnostics.append(trace.diagnostics().clone());
        report.diagnostics.append(diagnostics);
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    fn report(&self) -> Reconcile {
        let names: Vec<String> = std::iter::once(file_name(&self.trace)).chain(self.beside.names()).collect();
        Reconcile { source: names.join(", "), width: self.output.width(), height: self.height }
    }
}
