//! The arguments of every command that reads a trace, and the reading.

use super::progress::Progress;
use super::say;
use crate::error::{Error, Result};
use crate::input::{ReadOptions, Recording, SmiOptions, read_recording, read_smi_path};
use crate::render::numbers;
use crate::trace::host_memory::HostMemory;
use crate::trace::smi::SmiLog;
use crate::trace::{Diagnostics, Keep, Severity, Trace};
use crate::units::Bytes;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

/// What to read, and how.
#[derive(Clone, Debug, Args)]
pub(super) struct InputArgs {
    /// The trace, gzipped or not; - for standard input
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath, help_heading = None)]
    trace: PathBuf,
    #[command(flatten)]
    reading: ReadingArgs,
}

/// How to read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reading")]
pub(super) struct ReadingArgs {
    /// Threads to read with; 0 for one a core. The result is the same for any number
    #[arg(long, value_name = "N", default_value_t = ReadOptions::default().threads)]
    threads: usize,
    /// Exit with 2, and write nothing, where data was lost: a truncated file, broken events
    #[arg(long)]
    strict: bool,
    /// Give up on inputs larger than this once inflated, such as 500MiB or 2GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1TiB")]
    max_input_size: u64,
}

impl InputArgs {
    /// The name of the file, without its folders.
    pub(super) fn name(&self) -> String {
        file_name(&self.trace)
    }

    /// Reads the trace, and tells on standard error what was odd in it.
    pub(super) fn read(&self, keep: Keep) -> Result<Trace> {
        self.reading.read(&self.trace, keep)
    }

    /// Reads the trace or the recording of memory_profiler, likewise.
    pub(super) fn read_any(&self, keep: Keep) -> Result<Recording> {
        self.reading.read_any(&self.trace, keep)
    }

    /// How to read.
    pub(super) fn reading(&self) -> &ReadingArgs {
        &self.reading
    }
}

/// The name of a file for people, without its folders.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

impl ReadingArgs {
    /// Reads the trace at `path`, and tells on standard error what was odd in it.
    pub(super) fn read(&self, path: &Path, keep: Keep) -> Result<Trace> {
        self.read_any(path, keep)?.into_trace().map_err(|error| error.at_path(path))
    }

    /// Reads the trace or the recording of memory_profiler at `path`, likewise.
    fn read_any(&self, path: &Path, keep: Keep) -> Result<Recording> {
        // The analyses use as many. An error says that the pool exists: an earlier input of this run asked for the same.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build_global();
        let progress = Progress::start(path);
        let options = ReadOptions { progress: Some(progress.counter()), ..self.options(keep) };
        let recording = read_recording(path, &options);
        drop(progress);
        let recording = recording?;
        self.accept(path, recording.diagnostics())?;
        Ok(recording)
    }

    /// Reads the recording of memory_profiler at `path`, likewise.
    pub(super) fn read_host(&self, path: &Path) -> Result<HostMemory> {
        match self.read_any(path, Keep::REPORTS)? {
            Recording::Host(memory) => Ok(memory),
            Recording::Trace(_) => {
                Err(Error::format("a recording of memory_profiler (mprof run)", "a trace or a snapshot").at_path(path))
            }
        }
    }

    /// Reads the log of nvidia-smi at `path`, likewise.
    pub(super) fn read_log(&self, path: &Path, smi: &SmiOptions) -> Result<SmiLog> {
        let log = read_smi_path(path, &self.options(Keep::ALL), smi)?;
        self.accept(path, &log.diagnostics)?;
        Ok(log)
    }

    /// Tells what was odd in an input; an error where that is too much.
    fn accept(&self, path: &Path, diagnostics: &Diagnostics) -> Result<()> {
        tell(diagnostics);
        if self.strict && diagnostics.lost_data() {
            return Err(Error::format("an input without loss (--strict)", "lost data, as told above").at_path(path));
        }
        Ok(())
    }

    fn options(&self, keep: Keep) -> ReadOptions {
        ReadOptions { keep, threads: self.threads, max_input_size: self.max_input_size, progress: None }
    }
}

/// One line a diagnostic.
pub(super) fn tell(diagnostics: &Diagnostics) {
    for d in diagnostics.iter() {
        let word = match d.severity {
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Loss => "DATA LOST",
        };
        let times = match d.count {
            1 => "once".to_owned(),
            n => format!("{} times", numbers::count(n)),
        };
        let place = d.first_offset.map(|at| format!(", first at byte {at}")).unwrap_or_default();
        say(&format!("{word}: {} ({times}{place}) [{}]", d.message, d.code));
    }
}

/// A size such as `500MiB`.
pub(super) fn parse_size(text: &str) -> std::result::Result<u64, String> {
    // A size is never negative.
    text.parse::<Bytes>().map(|b| b.0.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OnlyInput {
        #[command(flatten)]
        input: InputArgs,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let args = OnlyInput::parse_from(["test", "x.json"]);
        let (ours, theirs) = (args.input.reading.options(Keep::ALL), ReadOptions::default());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
}
