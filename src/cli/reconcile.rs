//! `tracetool reconcile`.

use super::Outcome;
use super::input::{ReadingArgs, file_name};
use super::output::OutputArgs;
use super::smi::SmiLogArgs;
use super::timeline::parse_time;
use crate::analysis::card::RunMemory;
use crate::error::{Error, Result};
use crate::report::reconcile::Reconcile;
use crate::trace::{Device, Keep, Trace};
use crate::units::Nanos;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

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
    /// A snapshot of the same process, for what was before and after the trace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    snapshot: Option<PathBuf>,
    /// Logs of nvidia-smi of the same time: --query-gpu and --query-compute-apps as CSV, dmon, pmon
    #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath, required = true, num_args = 1..)]
    smi: Vec<PathBuf>,
    /// The process's number in the logs, where it is not the trace's (containers)
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// The device that the trace is looked at for [default: its first accelerator]
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
    /// Set the clock of trace and snapshot forward by this: 1.5s, or back: -200ms
    #[arg(long, value_name = "TIME", value_parser = parse_offset, default_value = "0s", allow_hyphen_values = true)]
    offset: Nanos,
    #[command(flatten)]
    logs: SmiLogArgs,
    /// Height: pixels of a picture, lines of a chart
    #[arg(long, value_name = "N")]
    height: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    reading: ReadingArgs,
}

fn parse_offset(text: &str) -> std::result::Result<Nanos, String> {
    match text.strip_prefix('-') {
        Some(back) => parse_time(back).map(|time| -time),
        None => parse_time(text.strip_prefix('+').unwrap_or(text)),
    }
}

impl ReconcileArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        self.output.check()?;
        let log = self.logs.read(&self.smi)?;
        super::input::tell(&log.diagnostics);
        let trace = self.read(&self.trace)?;
        let mut run = self.memory(&trace, &self.trace)?;
        let mut diagnostics = trace.diagnostics().clone();
        if let Some(path) = &self.snapshot {
            let snapshot = self.read(path)?;
            run.extend(&self.memory(&snapshot, path)?);
            diagnostics.append(snapshot.diagnostics().clone());
        }
        run.pid = self.pid.or(run.pid);
        let mut report = self.report().run(&log, &run)?;
        report.diagnostics.append(diagnostics);
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    fn read(&self, path: &Path) -> Result<Trace> {
        let keep = Keep { ops: false, device_events: false, frames: false, details: false, ..Keep::ALL };
        self.reading.read(path, keep)
    }

    fn memory(&self, trace: &Trace, path: &Path) -> Result<RunMemory> {
        RunMemory::of(trace, self.device, self.offset).ok_or_else(|| {
            Error::missing(
                "no reserved memory of an accelerator over wall-clock time",
                "profile with profile_memory=True and torch 2.3 or later, or record a snapshot's history",
            )
            .at_path(path)
        })
    }

    fn report(&self) -> Reconcile {
        let names = [&self.trace].into_iter().chain(&self.snapshot).chain(&self.smi).map(|path| file_name(path));
        Reconcile { source: names.collect::<Vec<_>>().join(", "), width: self.output.width(), height: self.height }
    }
}
