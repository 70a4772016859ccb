//! What the columns of a log are: by their names, else by their values.

use crate::units::{Bytes, Nanos};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Timestamp,
    Date,
    Time,
    Index,
    Uuid,
    BusId,
    Name,
    Total,
    Used,
    Free,
    Utilization,
    MemoryUtilization,
    Pid,
    ProcessName,
    ProcessUsed,
    Other,
}

/// The columns of a log and how its lines are split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    columns: Vec<Column>,
    /// Commas, or blanks as in `dmon` and `pmon`.
    commas: bool,
}

/// Names as `nvidia-smi --help-query-gpu`, `--help-query-compute-apps`, `dmon -h` and `pmon -h` have them.
fn of_name(name: &str, process: bool) -> Column {
    let name = name.split('[').next().unwrap_or(name).trim();
    match name.to_ascii_lowercase().as_str() {
        "timestamp" => Column::Timestamp,
        "date" => Column::Date,
        "time" => Column::Time,
        "index" | "gpu" => Column::Index,
        "uuid" | "gpu_uuid" => Column::Uuid,
        "pci.bus_id" | "gpu_bus_id" | "gpu_bus_id.id" | "pci.bus" => Column::BusId,
        // In a list of processes `name` is the process's.
        "name" if process => Column::ProcessName,
        "name" | "gpu_name" => Column::Name,
        "memory.total" => Column::Total,
        "memory.used" => Column::Used,
        "memory.free" => Column::Free,
        "utilization.gpu" | "sm" => Column::Utilization,
        "utilization.memory" | "mem" => Column::MemoryUtilization,
        "pid" => Column::Pid,
        "process_name" | "command" => Column::ProcessName,
        "used_gpu_memory" | "used_memory" => Column::ProcessUsed,
        "fb" if process => Column::ProcessUsed,
        "fb" => Column::Used,
        _ => Column::Other,
    }
}

/// How many lines without header tell what their columns are.
pub(super) const GUESSED_FROM: usize = 256;

impl Format {
    /// A format of columns with these names.
    pub(super) fn of_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let process = names.clone().any(|name| name.trim().eq_ignore_ascii_case("pid"));
        Self { columns: names.map(|name| of_name(name, process)).collect(), commas: true }
    }

    /// The format that a header line tells; `None` if the line is none.
    pub(super) fn of_header(line: &str) -> Option<Self> {
        if let Some(line) = line.strip_prefix('#') {
            let commas = line.contains(',');
            let names: Vec<&str> =
                if commas { line.split(',').map(str::trim).collect() } else { line.split_whitespace().collect() };
            return Some(Self { commas, ..Self::of_names(names.into_iter()) });
        }
        let names = line.split(',').map(str::trim);
        let format = Self::of_names(names.clone());
        // A header has names that mean something and no value among them.
        let known = format.columns.iter().filter(|c| **c != Column::Other).count();
        let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic());
        (known > 0 && known * 2 >= format.columns.len().min(6) && names.clone().all(is_name)).then_some(format)
    }

    /// Whether this is the second header line of `dmon` and `pmon`, which holds units.
    pub(super) fn is_units_line(&self) -> bool {
        self.columns.iter().all(|c| matches!(c, Column::Other | Column::Name | Column::ProcessName))
    }

    /// The columns of a line with their values; `None` where the numbers of both differ.
    pub(super) fn split<'a>(&self, line: &'a str) -> Option<Vec<(Column, &'a str)>> {
        let values: Vec<&str> = if self.commas {
            self.split_commas(line)?
        } else {
            // A command at the end may hold blanks.
            let mut values: Vec<&str> = line.split_whitespace().collect();
            if values.len() > self.columns.len() && self.columns.last() == Some(&Column::ProcessName) {
                values.truncate(self.columns.len());
            }
            values
        };
        (values.len() == self.columns.len()).then(|| self.columns.iter().copied().zip(values).collect())
    }

    /// nvidia-smi quotes nothing: commas too many belong to the program's name.
    fn split_commas<'a>(&self, line: &'a str) -> Option<Vec<&'a str>> {
        let parts: Vec<&str> = line.split(',').collect();
        let surplus = parts.len().checked_sub(self.columns.len())?;
        let Some(name) = self.columns.iter().position(|c| *c == Column::ProcessName).filter(|_| surplus > 0) else {
            return Some(parts);
        };
        let before = if name == 0 { 0 } else { line.match_indices(',').nth(name - 1)?.0 + 1 };
        let after = line.match_indices(',').nth(name + surplus).map_or(line.len(), |(at, _)| at);
        let mut joined = parts[..name].to_vec();
        joined.push(&line[before..after]);
        joined.extend(&parts[name + surplus + 1..]);
        Some(joined)
    }

    /// The format of lines without header, from the values of the first [`GUESSED_FROM`] of them.
    pub(super) fn guess(text: &str) -> Option<Self> {
        let rows: Vec<Vec<&str>> =
            text.lines().take(GUESSED_FROM).map(|line| line.split(',').map(str::trim).collect()).collect();
        let width = rows.first()?.len();
        let column = |i: usize| rows.iter().filter(|row| row.len() == width).map(move |row| row[i]);
        let mut columns: Vec<Column> = (0..width).map(|i| shape(column(i))).collect();
        if width < 2 || !columns.iter().any(|c| matches!(c, Column::Timestamp | Column::Uuid | Column::BusId)) {
            return None;
        }
        let process = columns.iter().zip(&rows[0]).any(|(c, value)| *c == Column::Name && value.contains('/'));
        let numbers: Vec<(usize, f64, f64, bool)> = (0..width)
            .filter(|i| columns[*i] == Column::Other)
            .filter_map(|i| range(column(i)).map(|(low, high, percent)| (i, low, high, percent)))
            .collect();
        let is_memory = |high: f64, unit: bool| !unit && high > 100.0;
        let memory: Vec<usize> = numbers.iter().filter(|n| is_memory(n.2, n.3)).map(|n| n.0).collect();
        if process {
            for c in columns.iter_mut().filter(|c| **c == Column::Name) {
                *c = Column::ProcessName;
            }
            // Process ids are bare whole numbers; what they hold comes after them.
            for (place, kind) in memory.iter().zip([Column::Pid, Column::ProcessUsed]) {
                columns[*place] = kind;
            }
            return Some(Self { columns, commas: true });
        }
        let mut rest = [Column::Utilization, Column::MemoryUtilization].into_iter();
        for (place, (i, low, high, unit)) in numbers.iter().enumerate() {
            if memory.binary_search(i).is_ok() {
                continue;
            }
            // A small number right at the beginning that is no share is the card's index.
            let first = place == 0 && !unit && *high < 64.0 && low.fract() == 0.0 && numbers.len() > 1;
            columns[*i] = if first { Column::Index } else { rest.next().unwrap_or(Column::Other) };
        }
        name_memory(&mut columns, &memory, |i| range(column(i)).map_or((0.0, 0.0), |(low, high, _)| (low, high)));
        Some(Self { columns, commas: true })
    }
}

/// Of two or three columns of memory, the largest that never changes is the total; the others are used, then free.
fn name_memory(columns: &mut [Column], memory: &[usize], range: impl Fn(usize) -> (f64, f64)) {
    let constant = |i: &usize| range(*i).0 == range(*i).1;
    let largest = memory.iter().copied().max_by(|a, b| range(*a).1.total_cmp(&range(*b).1));
    let total = largest.filter(|i| memory.len() > 1 && constant(i));
    let mut rest = [Column::Used, Column::Free].into_iter();
    for i in memory {
        let kind = if Some(*i) == total { Some(Column::Total) } else { rest.next() };
        columns[*i] = kind.unwrap_or(Column::Other);
    }
}

/// What a column without a name is, where its values tell; numbers are `Other`.
fn shape<'a>(mut values: impl Iterator<Item = &'a str>) -> Column {
    let Some(value) = values.find(|v| !v.is_empty() && !v.starts_with('[')) else { return Column::Other };
    let is_date = |(date_text, time): (&str, &str)| date(date_text).is_some() && time_of_day(time).is_some();
    if value.split_once(' ').is_some_and(is_date) {
        Column::Timestamp
    } else if value.starts_with("GPU-") || value.starts_with("MIG-") {
        Column::Uuid
    } else if value.len() > 10
        && value.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
        && value.contains(':')
    {
        Column::BusId
    } else if value.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        Column::Other
    } else {
        Column::Name
    }
}

/// The lowest and highest number of a column, and whether its unit is a share.
fn range<'a>(values: impl Iterator<Item = &'a str>) -> Option<(f64, f64, bool)> {
    let mut range: Option<(f64, f64, bool)> = None;
    for value in values.filter(|v| !v.starts_with('[')) {
        let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
        if !matches!(unit, "" | "MiB" | "%") {
            return None;
        }
        let n: f64 = number.parse().ok()?;
        let (low, high, _) = range.unwrap_or((n, n, false));
        range = Some((low.min(n), high.max(n), unit == "%"));
    }
    range
}

/// `2026/12/01`, `20261201` or `2026-12-01` as days since 1970.
pub(super) fn date(text: &str) -> Option<i64> {
    let digits: String = text.chars().filter(|c| !matches!(c, '/' | '-')).collect();
    if digits.len() != 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| digits[range].parse::<i64>().ok();
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days before a date of the proleptic Gregorian calendar, in years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    Some(days - 719_468)
}

/// `03:08:25.836` as time since midnight.
pub(super) fn time_of_day(text: &str) -> Option<Nanos> {
    let mut parts = text.trim().splitn(3, ':');
    let mut whole = |limit: i64| parts.next()?.parse::<i64>().ok().filter(|n| (0..limit).contains(n));
    let (hours, minutes) = (whole(24)?, whole(60)?);
    let seconds = parts.next()?;
    let seconds = decimal_nanos(seconds).filter(|s| (0..61_000_000_000).contains(s))?;
    Some(Nanos((hours * 3600 + minutes * 60) * 1_000_000_000 + seconds))
}

/// Decimal seconds as nanoseconds.
fn decimal_nanos(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let scale = 10i64.pow(9 - fraction.len() as u32);
    let fraction: i64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction * scale)
}

/// `5739 MiB` or `5739`: nvidia-smi's unit is the MiB, also where `dmon` writes MB.
pub(super) fn mebibytes(text: &str) -> Option<Bytes> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    if !matches!(unit, "" | "MiB" | "MB") {
        return None;
    }
    let whole: i64 = number.parse().ok().filter(|n| *n >= 0)?;
    whole.checked_mul(1 << 20).map(Bytes)
}

/// `22 %` or `22`.
pub(super) fn percent(text: &str) -> Option<f64> {
    text.trim_end_matches('%').trim().parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0)
}
