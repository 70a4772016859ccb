//! nvidia-smi logs as people record them: `--query-gpu` and `--query-compute-apps` as CSV, `dmon` and `pmon`.
//!
//! Any columns in any order, with or without header and units, headers repeated (a loop around nvidia-smi, or `-l`),
//! `[N/A]` and `[Not Supported]`, several cards a tick, several logs in one file. A line that is none of these is
//! counted and skipped. What columns mean is decided in [`columns`].

mod columns;
mod live;

use super::log_lines;
use crate::error::{Error, Result};
use crate::trace::smi::{Clock, Gpu, GpuSample, Process, ProcessSample, SmiLog};
use crate::trace::{Diagnostics, Severity};
use crate::units::{Bytes, Nanos};
use columns::{Column, Format};
use hashbrown::{HashMap, HashSet};
pub use live::LiveSmi;

/// How to read a log.
#[derive(Clone, Debug, Default)]
pub struct SmiOptions {
    /// How far the log's clock is ahead of UTC: nvidia-smi prints local time without its zone.
    pub utc_offset: Nanos,
    /// The columns of a log without header, as given to `--query-gpu`; without, they are guessed from their values.
    pub columns: Option<Vec<String>>,
}

/// Reads a log from its bytes.
///
/// # Errors
///
/// Where no line is a sample.
pub fn read_smi(bytes: &[u8], options: &SmiOptions) -> Result<SmiLog> {
    let mut reader = Reader {
        format: options.columns.as_ref().map(|names| Format::of_names(names.iter().map(String::as_str))),
        log: SmiLog::default(),
        places: HashMap::new(),
        offset: options.utc_offset,
        days: 0,
        time_of_day: Nanos::ZERO,
        ticks: 0,
        first_of_tick: None,
        processes_of_tick: HashSet::new(),
    };
    let odd = log_lines::lines(bytes, |place, line, _| reader.line(line, place, bytes));
    let mut log = reader.log;
    log.diagnostics.append(odd);
    if log.gpu_samples.is_empty() && log.process_samples.is_empty() {
        let first = log_lines::first_line(bytes);
        return Err(Error::format("a log of nvidia-smi", format!("{first:?}")).with_hint(
            "record one with `nvidia-smi --query-gpu=timestamp,index,memory.used,memory.total --format=csv -l 1`",
        ));
    }
    log.gpu_samples.sort_by_key(|s| s.time);
    log.process_samples.sort_by_key(|s| s.time);
    Ok(log)
}

/// More cards than any machine has: each is compared with those that are known, as logs name one by different words.
const MOST_CARDS: usize = 1024;

struct Reader {
    format: Option<Format>,
    log: SmiLog,
    places: HashMap<(usize, u32), usize>,
    offset: Nanos,
    /// Midnights passed, where the log tells the time of day only.
    days: i64,
    time_of_day: Nanos,
    /// Samples of a log without any time.
    ticks: i64,
    first_of_tick: Option<usize>,
    /// The processes that the tick has told of: what comes again is of the next one.
    processes_of_tick: HashSet<(usize, u32)>,
}

/// The values of one line.
#[derive(Default)]
struct Row {
    date: Option<i64>,
    time: Option<Nanos>,
    gpu: Gpu,
    used: Option<Bytes>,
    free: Option<Bytes>,
    utilization: Option<f64>,
    memory_utilization: Option<f64>,
    pid: Option<u32>,
    process_name: Option<String>,
    process_used: Option<Bytes>,
}

impl Reader {
    fn line(&mut self, line: &str, offset: u64, log: &[u8]) {
        if line.is_empty() {
            return;
        }
        if let Some(format) = Format::of_header(line) {
            // The second line of a dmon header holds the units, which are always the same.
            if !format.is_units_line() {
                self.format = Some(format);
            }
            return;
        }
        if self.format.is_none() {
            self.format = Format::guess(first_lines(&log[offset as usize..]));
            if self.format.is_some() {
                self.log.diagnostics.note("guessed-columns", Severity::Warning, Some(offset), || {
                    "the log has no header: what its columns are was guessed from their values".into()
                });
            }
        }
        let taken = self.format.as_ref().and_then(|format| row(format, line));
        let taken = taken.and_then(|row| self.push(row, offset));
        if taken.is_none() {
            self.skip(offset);
        }
    }

    fn skip(&mut self, offset: u64) {
        note_skipped(&mut self.log.diagnostics, offset);
    }

    /// Adds what a line says; `None` if that is nothing.
    fn push(&mut self, row: Row, offset: u64) -> Option<()> {
        let is_process = row.pid.is_some();
        let has_value = row.used.or(row.free).or(row.process_used).is_some()
            || row.utilization.or(row.memory_utilization).is_some();
        let is_named = row.gpu.index.is_some() || row.gpu.uuid.is_some() || row.gpu.bus_id.is_some();
        if !has_value && !is_process && !is_named {
            return None;
        }
        let gpu = self.log.gpu(row.gpu.clone());
        if self.log.gpus.len() > MOST_CARDS {
            self.log.gpus.pop();
            self.log.diagnostics.note("many-cards", Severity::Loss, Some(offset), || {
                format!("samples of cards beyond the first {MOST_CARDS}; left out")
            });
            return Some(());
        }
        // A card that tells nothing, or `pmon`'s line of dashes where no process runs: no sample, yet nothing wrong.
        if !has_value && !is_process {
            return Some(());
        }
        let time = self.time(&row, gpu);
        match row.pid {
            Some(pid) => {
                let process = Process { pid, name: row.process_name, gpu };
                let process = self.log.process(&mut self.places, process);
                let (used, utilization) = (row.process_used, row.utilization);
                self.log.process_samples.push(ProcessSample { time, process, used, utilization });
            }
            None => self.log.gpu_samples.push(GpuSample {
                time,
                gpu,
                used: row.used,
                free: row.free,
                utilization: row.utilization,
                memory_utilization: row.memory_utilization,
            }),
        }
        Some(())
    }

    fn time(&mut self, row: &Row, gpu: usize) -> Nanos {
        const DAY: i64 = 86_400_000_000_000;
        match (row.date, row.time) {
            (Some(days), Some(time)) => Nanos(days.saturating_mul(DAY)) + time - self.offset,
            (None, Some(time)) => {
                self.log.clock = self.log.clock.max(Clock::TimeOfDay);
                // Half a day back is a new day; less is a clock that was set.
                if (self.time_of_day - time).0 > DAY / 2 {
                    self.days += 1;
                }
                self.time_of_day = time;
                Nanos(self.days.saturating_mul(DAY)) + time - self.offset
            }
            (_, None) => {
                self.log.clock = Clock::Ticks;
                let begins = match row.pid {
                    Some(pid) => !self.processes_of_tick.insert((gpu, pid)) || self.ticks == 0,
                    None => *self.first_of_tick.get_or_insert(gpu) == gpu,
                };
                if begins {
                    self.ticks += 1;
                    self.processes_of_tick.clear();
                    self.processes_of_tick.extend(row.pid.map(|pid| (gpu, pid)));
                }
                Nanos((self.ticks - 1).max(0).saturating_mul(1_000_000_000))
            }
        }
    }
}

/// As many lines as the columns are guessed from.
fn first_lines(log: &[u8]) -> &str {
    let end = memchr::memchr_iter(b'\n', log).nth(columns::GUESSED_FROM - 1).unwrap_or(log.len());
    // What is no UTF-8 is no number either.
    match std::str::from_utf8(&log[..end]) {
        Ok(lines) => lines,
        Err(error) => std::str::from_utf8(&log[..error.valid_up_to()]).unwrap_or_default(),
    }
}

fn note_skipped(diagnostics: &mut Diagnostics, offset: u64) {
    diagnostics.note("no-sample", Severity::Warning, Some(offset), || {
        "lines that are no sample of nvidia-smi were skipped".into()
    });
}

/// The values of a line, or `None` where it does not have the format's columns.
fn row(format: &Format, line: &str) -> Option<Row> {
    let mut row = Row::default();
    let mut timed = false;
    for (column, value) in format.split(line)? {
        let value = value.trim();
        timed |= matches!(column, Column::Timestamp | Column::Time);
        if matches!(value, "" | "-" | "N/A") || value.starts_with('[') && value.ends_with(']') {
            continue;
        }
        let text = || Some(value.to_owned());
        match column {
            Column::Timestamp => {
                let (date, time) = value.split_once(' ')?;
                (row.date, row.time) = (Some(columns::date(date)?), Some(columns::time_of_day(time)?));
            }
            Column::Date => row.date = Some(columns::date(value)?),
            Column::Time => row.time = Some(columns::time_of_day(value)?),
            Column::Index => row.gpu.index = Some(value.parse().ok()?),
            Column::Uuid => row.gpu.uuid = text(),
            Column::BusId => row.gpu.bus_id = text(),
            Column::Name => row.gpu.name = text(),
            Column::Total => row.gpu.total = Some(columns::mebibytes(value)?),
            Column::Used => row.used = Some(columns::mebibytes(value)?),
            Column::Free => row.free = Some(columns::mebibytes(value)?),
            Column::Utilization => row.utilization = Some(columns::percent(value)?),
            Column::MemoryUtilization => row.memory_utilization = Some(columns::percent(value)?),
            Column::Pid => row.pid = Some(value.parse().ok()?),
            Column::ProcessName => row.process_name = text(),
            Column::ProcessUsed => row.process_used = Some(columns::mebibytes(value)?),
            Column::Other => {}
        }
    }
    // Among samples that have a time, one without is nowhere.
    (row.time.is_some() || !timed).then_some(row)
}

#[cfg(test)]
mod tests;
