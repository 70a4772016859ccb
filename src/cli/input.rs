//! The arguments of every command that reads a trace, and the reading.

use super::progress::Progress;
use super::say;
use crate::error::{Error, Result};
use crate::input::{ReadOptions, read_path};
use crate::render::numbers;
use crate::trace::{Diagnostics, Keep, Severity, Trace};
use clap::{Args, ValueHint};
use std::path::PathBuf;

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
        self.trace.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Reads the trace, and tells on standard error what was odd in it.
    pub(super) fn read(&self, keep: Keep) -> Result<Trace> {
        // The analyses use as many. An error says that the pool exists: an earlier input of this run asked for the same.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(self.reading.threads).build_global();
        let progress = Progress::start(&self.trace);
        let options = ReadOptions { progress: Some(progress.counter()), ..self.reading.options(keep) };
        let trace = read_path(&self.trace, &options);
        drop(progress);
        let trace = trace?;
        tell(trace.diagnostics());
        if self.reading.strict && trace.diagnostics().lost_data() {
            return Err(
                Error::format("an input without loss (--strict)", "lost data, as told above").at_path(&self.trace)
            );
        }
        Ok(trace)
    }
}

impl ReadingArgs {
    fn options(&self, keep: Keep) -> ReadOptions {
        ReadOptions { keep, threads: self.threads, max_input_size: self.max_input_size, progress: None }
    }
}

/// One line a diagnostic.
fn tell(diagnostics: &Diagnostics) {
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

/// Bytes from `1000`, `500MiB`, `2GB` (powers of 1024 with `i`, of 1000 without).
pub(super) fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(format!("{unit:?} is no unit of bytes; expected such as 500MiB or 2GB")),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("{digits:?} is no whole number of bytes"))?;
    number.checked_mul(factor).ok_or_else(|| "that is more than 16 EiB".to_owned())
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

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1000"), Ok(1000));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("3 MB"), Ok(3_000_000));
        assert!(parse_size("2 parsecs").is_err());
        assert!(parse_size("99999999TiB").is_err());
        assert!(parse_size("").is_err());
    }
}
