//! `tracetool smi`.

use super::Outcome;
use super::input::{file_name, read_bytes};
use super::output::OutputArgs;
use crate::analysis::smi::SmiThresholds;
use crate::error::{Error, Result};
use crate::input::{SmiOptions, read_smi};
use crate::report::smi::Smi;
use crate::trace::smi::SmiLog;
use crate::units::Nanos;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

/// Show who used the cards, how much and how well, from logs of nvidia-smi
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Logs",
    after_help = "\
Examples:
  nvidia-smi --query-gpu=timestamp,index,name,memory.total,memory.used,utilization.gpu --format=csv -lms 200 > gpu.csv
  nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory --format=csv -lms 200 > apps.csv
  tracetool smi gpu.csv apps.csv
  tracetool smi gpu.csv apps.csv -o cards.svg"
)]
pub(super) struct SmiArgs {
    /// Logs of one machine: --query-gpu and --query-compute-apps as CSV, dmon, pmon; - for standard input
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath, required = true, help_heading = None)]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    reading: SmiLogArgs,
    /// Height: pixels of a picture, lines of a chart
    #[arg(long, value_name = "N")]
    height: Option<u32>,
    #[command(flatten)]
    output: OutputArgs,
}

/// How to read logs of nvidia-smi.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct SmiLogArgs {
    /// How far the log's clock is ahead of UTC: nvidia-smi writes local time without its zone
    #[arg(long, value_name = "HH:MM", value_parser = parse_zone, default_value = "+00:00", allow_hyphen_values = true)]
    utc_offset: Nanos,
    /// The columns of a log without header, as they were given to --query-gpu or --query-compute-apps
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    query: Vec<String>,
}

impl SmiLogArgs {
    /// All logs as one.
    pub(super) fn read(&self, paths: &[PathBuf]) -> Result<SmiLog> {
        let mut all = SmiLog::default();
        for path in paths {
            all.append(self.read_one(path).map_err(|e| e.at_path(path))?);
        }
        Ok(all)
    }

    fn read_one(&self, path: &Path) -> Result<SmiLog> {
        let columns = (!self.query.is_empty()).then(|| self.query.clone());
        read_smi(&read_bytes(path)?, &SmiOptions { utc_offset: self.utc_offset, columns })
    }
}

/// `+05:30`, `-08:00`, `2`.
fn parse_zone(text: &str) -> std::result::Result<Nanos, String> {
    let wrong = || format!("expected an offset such as +02:00 or -08:00, found {text:?}");
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let number = |text: &str| text.parse::<u8>().map_err(|_| wrong());
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if hours > 14 || minutes > 59 {
        return Err(wrong());
    }
    Ok(Nanos(sign * (i64::from(hours) * 60 + i64::from(minutes)) * 60_000_000_000))
}

impl SmiArgs {
    pub(super) fn run(self) -> Result<Outcome> {
        self.output.check()?;
        let log = self.reading.read(&self.logs)?;
        if log.gpu_samples.is_empty() && log.process_samples.is_empty() {
            return Err(Error::missing("the logs hold no samples", "record with nvidia-smi ... --format=csv -l 1"));
        }
        let mut report = self.report().run(&log)?;
        super::input::tell(&log.diagnostics);
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    fn report(&self) -> Smi {
        let names: Vec<String> = self.logs.iter().map(|path| file_name(path)).collect();
        Smi {
            run: None,
            thresholds: SmiThresholds::default(),
            source: names.join(", "),
            width: self.output.width(),
            height: self.height,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_hours_and_minutes_ahead_of_utc() {
        assert_eq!(parse_zone("+05:30"), Ok(Nanos(19_800_000_000_000)));
        assert_eq!(parse_zone("-8"), Ok(Nanos(-28_800_000_000_000)));
        assert!(parse_zone("CET").is_err());
        assert!(parse_zone("+25:00").is_err());
    }
}
