//! The arguments of every command that lays beside a trace what others saw of the run, and the reading of it.

use super::input::{ReadingArgs, file_name};
use super::smi::SmiLogArgs;
use super::timeline::parse_time;
use crate::analysis::card::RunMemory;
use crate::error::{Error, Result};
use crate::trace::smi::SmiLog;
use crate::trace::{Device, Diagnostics, Keep, Trace};
use crate::units::Nanos;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

/// What else saw the run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Beside the trace")]
pub(super) struct BesideArgs {
    /// A snapshot of the same process, for what was before and after the trace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "smi")]
    snapshot: Option<PathBuf>,
    /// Logs of nvidia-smi of the same time: --query-gpu and --query-compute-apps as CSV, dmon, pmon
    #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath, num_args = 1..)]
    smi: Vec<PathBuf>,
    /// The process's number in the logs, where it is not the trace's (containers)
    #[arg(long, value_name = "PID", requires = "smi")]
    pid: Option<u32>,
    /// Set the clock of trace and snapshot forward by this: 1.5s, or back: -200ms
    #[arg(long, value_name = "TIME", value_parser = parse_offset, default_value = "0s", allow_hyphen_values = true)]
    offset: Nanos,
    #[command(flatten)]
    logs: SmiLogArgs,
}

fn parse_offset(text: &str) -> std::result::Result<Nanos, String> {
    match text.strip_prefix('-') {
        Some(back) => parse_time(back).map(|time| -time),
        None => parse_time(text.strip_prefix('+').unwrap_or(text)),
    }
}

impl BesideArgs {
    /// How far the trace's clock is to be set forward.
    pub(super) fn offset(&self) -> Nanos {
        self.offset
    }

    /// The names of the files, without their folders.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.snapshot.iter().chain(&self.smi).map(|path| file_name(path))
    }

    /// All logs of nvidia-smi as one; `None` without any.
    pub(super) fn log(&self, reading: &ReadingArgs) -> Result<Option<SmiLog>> {
        if self.smi.is_empty() {
            return Ok(None);
        }
        self.logs.read(&self.smi, reading).map(Some)
    }

    /// The memory of the run's allocator as trace and snapshot tell it, where they do, and what was odd in the snapshot.
    pub(super) fn run(
        &self,
        trace: &Trace,
        device: Option<Device>,
        reading: &ReadingArgs,
    ) -> Result<(Option<RunMemory>, Diagnostics)> {
        let mut run = RunMemory::of(trace, device, self.offset);
        let mut diagnostics = Diagnostics::default();
        if let Some(path) = &self.snapshot {
            let snapshot = reading.read(path, KEEP)?;
            let more = RunMemory::of(&snapshot, device, self.offset).ok_or_else(|| no_memory(path))?;
            match &mut run {
                Some(run) => run.extend(&more),
                None => run = Some(RunMemory { pid: RunMemory::pid_of(trace).or(more.pid), ..more }),
            }
            diagnostics = snapshot.diagnostics().clone();
        }
        if let Some(run) = &mut run {
            run.pid = self.pid.or(run.pid);
        }
        Ok((run, diagnostics))
    }
}

/// What of a trace or snapshot the memory of its allocator needs.
pub(super) const KEEP: Keep = Keep { ops: false, device_events: false, frames: false, details: false, ..Keep::REPORTS };

/// That a trace or snapshot does not tell what a card could be split by.
pub(super) fn no_memory(path: &Path) -> Error {
    Error::missing(
        "no reserved memory of an accelerator over wall-clock time",
        "profile with profile_memory=True and torch 2.3 or later, or record a snapshot's history",
    )
    .at_path(path)
}
