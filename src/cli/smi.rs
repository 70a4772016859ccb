//! `tracetool smi`.

use super::input::{ReadingArgs, file_name, tell};
use super::interrupt::Ending;
use super::output::OutputArgs;
use super::timeline::parse_time;
use super::{Outcome, say};
use crate::analysis::smi::SmiThresholds;
use crate::error::{Error, Result};
use crate::input::{LiveSmi, SmiOptions};
use crate::report::smi::Smi;
use crate::trace::smi::SmiLog;
use crate::units::Nanos;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Show who used the cards, how much and how well, from logs of nvidia-smi or from the driver (--live)
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Logs",
    after_help = "\
Examples:
  nvidia-smi --query-gpu=timestamp,index,name,memory.total,memory.used,utilization.gpu --format=csv -lms 200 > gpu.csv
  nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory --format=csv -lms 200 > apps.csv
  tracetool smi gpu.csv apps.csv
  tracetool smi gpu.csv apps.csv -o cards.svg
  tracetool smi --live
  tracetool smi --live --interval 100ms --duration 60s -o cards.svg"
)]
pub(super) struct SmiArgs {
    /// Logs of one machine: --query-gpu and --query-compute-apps as CSV, dmon, pmon; - for standard input
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath, required_unless_present = "live", help_heading = None)]
    logs: Vec<PathBuf>,
    /// Ask the NVIDIA driver of this machine instead, until Ctrl-C or --duration ends it; then show the same
    #[arg(long, conflicts_with_all = ["logs", "utc_offset", "query"], help_heading = "Live")]
    live: bool,
    /// How often to ask
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "500ms", requires = "live",
          help_heading = "Live")]
    interval: Duration,
    /// How long to ask: 10s [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = parse_interval, requires = "live", help_heading = "Live")]
    duration: Option<Duration>,
    #[command(flatten)]
    log: SmiLogArgs,
    #[command(flatten)]
    reading: ReadingArgs,
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
    pub(super) fn read(&self, paths: &[PathBuf], reading: &ReadingArgs) -> Result<SmiLog> {
        let mut all: Option<SmiLog> = None;
        for path in paths {
            let log = reading.read_log(path, &self.options())?;
            match &mut all {
                Some(all) => all.append(log).map_err(|error| error.at_path(path))?,
                None => all = Some(log),
            }
        }
        Ok(all.unwrap_or_default())
    }

    fn options(&self) -> SmiOptions {
        let columns = (!self.query.is_empty()).then(|| self.query.clone());
        SmiOptions { utc_offset: self.utc_offset, columns }
    }
}

/// A time that passes.
fn parse_interval(text: &str) -> std::result::Result<Duration, String> {
    let time = parse_time(text)?;
    let nanos = u64::try_from(time.0).ok().filter(|n| *n > 0);
    nanos.map(Duration::from_nanos).ok_or_else(|| format!("expected a time above 0, found {text:?}"))
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
        let log = if self.live { self.record()? } else { self.log.read(&self.logs, &self.reading)? };
        if log.gpu_samples.is_empty() && log.process_samples.is_empty() {
            return Err(Error::missing("the logs hold no samples", "record with nvidia-smi ... --format=csv -l 1"));
        }
        let mut report = self.report().run(&log)?;
        if self.live {
            tell(&log.diagnostics);
        }
        self.output.write(&mut report)?;
        Ok(Outcome::Done)
    }

    /// What the driver says, until time is up or somebody asks for an end.
    fn record(&self) -> Result<SmiLog> {
        let mut driver = LiveSmi::open()?;
        let ending = Ending::begin();
        let end = if self.duration.is_none() { "; Ctrl-C ends it and shows what was seen" } else { "" };
        say(&format!("asking the NVIDIA driver every {:?}{end}", self.interval));
        let begun = Instant::now();
        loop {
            driver.sample();
            let passed = begun.elapsed();
            // The next of the moments that are an interval apart, whatever a sample takes.
            let to_next = self.interval - Duration::from_nanos((passed.as_nanos() % self.interval.as_nanos()) as u64);
            let left = self.duration.map(|all| all.saturating_sub(passed));
            let is_last = left.is_some_and(|left| left < to_next);
            if ending.wait(left.unwrap_or(to_next).min(to_next)) || is_last {
                return Ok(driver.into_log());
            }
        }
    }

    fn report(&self) -> Smi {
        let names: Vec<String> = match self.live {
            true => vec!["the NVIDIA driver".into()],
            false => self.logs.iter().map(|path| file_name(path)).collect(),
        };
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
