//! `diff`: what became of memory from one trace to another, and what adds to the change of the peak.
//!
//! What the numbers mean stands in [`diff`](crate::analysis::diff).

use super::baseline::same_options;
use super::memory::{cut, shown, to_json};
use super::sentence::sentence;
use super::{Block, Cell, Column, Report, Sentence, Table};
use crate::analysis::baseline::Baseline;
use crate::analysis::diff::{Change, CountChange, DeviceDiff, DiffRow, diff};
use crate::analysis::grouping::GroupBy;
use crate::error::{Error, Result};
use crate::units::Bytes;
use serde_json::{Map, Value};

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Diff {
    /// What the rows have in common.
    pub group_by: GroupBy,
    /// How many rows of a device to show; negative for all.
    pub limit: i64,
}

impl Default for Diff {
    fn default() -> Self {
        Self { group_by: GroupBy::default(), limit: 10 }
    }
}

/// A side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What people call it, such as the name of its file.
    pub name: &'a str,
    /// Its summary.
    pub baseline: &'a Baseline,
}

impl Diff {
    /// The report.
    ///
    /// # Errors
    ///
    /// Where the sides were made with different options, or one lacks the grouping.
    pub fn run(&self, before: Side<'_>, after: Side<'_>) -> Result<Report> {
        same_options(before.baseline, after.baseline)?;
        for side in [before, after] {
            has_grouping(side, self.group_by)?;
        }
        let devices = diff(before.baseline, after.baseline, self.group_by);
        let changed = changed(&devices);
        let nothing = if changed.is_empty() { " nothing differs." } else { ":" };
        let mut blocks = vec![Block::Text(sentence!["From ", before.name, " to ", after.name, nothing])];
        blocks.extend(changed.iter().map(|d| Block::Text(headline(d))));
        blocks.push(Block::Table(rows(&changed, self.group_by, self.limit)));
        blocks.push(Block::Table(totals(&changed)));
        blocks.extend(self.details(before, after));
        let mut document = Map::new();
        document.insert("before".into(), before.name.into());
        document.insert("after".into(), after.name.into());
        document.insert("group_by".into(), self.group_by.name().into());
        document.insert("devices".into(), self.document(devices)?);
        Ok(Report { command: "diff", blocks, document, ..Report::default() })
    }

    /// The other groupings that both sides have, folded away.
    fn details(&self, before: Side<'_>, after: Side<'_>) -> Option<Block> {
        let has = |by: &GroupBy| has_grouping(before, *by).and(has_grouping(after, *by)).is_ok();
        let others = Baseline::GROUPINGS.into_iter().filter(|by| *by != self.group_by && has(by));
        let tables: Vec<Block> = others
            .filter_map(|by| {
                let devices = diff(before.baseline, after.baseline, by);
                let table = Table { title: format!("By {}", by.name()), ..rows(&changed(&devices), by, self.limit) };
                (!table.rows.is_empty()).then_some(Block::Table(table))
            })
            .collect();
        (!tables.is_empty()).then(|| Block::Details("The same by other groupings".into(), tables))
    }

    fn document(&self, devices: Vec<DeviceDiff>) -> Result<Value> {
        let with_count = |mut device: DeviceDiff| {
            let all = device.rows.len();
            device.rows.truncate(shown(self.limit, all));
            let mut value = to_json(&device)?;
            if let Value::Object(members) = &mut value {
                members.insert("row_count".into(), all.into());
            }
            Ok(value)
        };
        devices.into_iter().map(with_count).collect::<Result<Vec<Value>>>().map(Value::from)
    }
}

/// The devices that people are told of: not those without a change, nor those, mostly the host, that hold next to nothing
/// beside another.
fn changed(devices: &[DeviceDiff]) -> Vec<&DeviceDiff> {
    let size = |d: &DeviceDiff| d.peak_allocated_bytes.before.max(d.peak_allocated_bytes.after);
    let most = devices.iter().map(size).max().unwrap_or_default();
    devices.iter().filter(|d| !d.is_empty() && size(d).0 >= most.0 / 10_000).collect()
}

/// Says where a side cannot be grouped like that.
fn has_grouping(side: Side<'_>, by: GroupBy) -> Result<()> {
    let name = by.name();
    if side.baseline.devices.iter().all(|d| d.rows(by).is_some()) {
        return Ok(());
    }
    let hint = match by {
        GroupBy::Module => "profile with with_stack=True and with_modules=True",
        _ => "a baseline holds op, category and, where the trace has it, module; for others compare two traces",
    };
    Err(Error::missing(format!("{} holds no rows by {name}", side.name), hint))
}

/// What became of a device's peak, and what adds the most to that.
pub(super) fn headline(d: &DeviceDiff) -> Sentence {
    let peak = d.peak_allocated_bytes;
    let device = match (&d.before_device, &d.after_device) {
        (Some(before), Some(after)) if before != after => format!("{after} ({before} before)"),
        (Some(_), Some(_)) => d.device.clone(),
        (None, _) => return sentence![d.device.as_str(), " is new: its peak is ", peak.after, "."],
        (_, None) => return sentence![d.device.as_str(), " is gone: its peak was ", peak.before, "."],
    };
    if peak.change.is_zero() {
        return sentence![device, ": the peak is ", peak.after, " as before."];
    }
    let text = sentence![device, ": the peak "].then(rise(peak.before.0, peak.after.0, |n| Cell::Bytes(Bytes(n))));
    // The row that adds the most to a rise, or takes the most from what falls.
    let most = d.rows.iter().find(|r| r.live_bytes.change.0.signum() == peak.change.0.signum());
    match most {
        Some(row) => {
            let change = Cell::BytesChange(row.live_bytes.change);
            let does = if peak.change.0 > 0 { " adds the most" } else { " takes the most" };
            text.and("; ").and(row.key.as_str()).and(does).and(" (").and(change).and(").")
        }
        None => text.and("."),
    }
}

/// `rose from 1.86 GiB to 3.61 GiB, by 1.75 GiB (1,882,189,824 bytes, 94.2%)`.
pub(super) fn rise(before: i64, after: i64, cell: impl Fn(i64) -> Cell) -> Sentence {
    let verb = if after < before { "fell" } else { "rose" };
    let by = i64::try_from(after.abs_diff(before)).unwrap_or(i64::MAX);
    let text = sentence![verb, " from ", cell(before), " to ", cell(after), ", by ", cell(by)];
    let exact = match cell(by) {
        Cell::Bytes(_) => sentence![Cell::Count(by.unsigned_abs()), " bytes"],
        _ => Sentence::default(),
    };
    let share = match share(by, before) {
        Cell::Absent => Sentence::default(),
        share if exact.is_empty() => sentence![share],
        share => sentence![", ", share],
    };
    if exact.is_empty() && share.is_empty() { text } else { text.and(" (").then(exact).then(share).and(")") }
}

fn share(part: i64, whole: i64) -> Cell {
    if whole != 0 { Cell::Ratio(part as f64 / whole as f64) } else { Cell::Absent }
}

/// What differs in the rows of these devices, and in what belongs to no row: the changes sum to that of the peak.
pub(super) fn rows(devices: &[&DeviceDiff], by: GroupBy, limit: i64) -> Table {
    let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
    let mut table = Table {
        columns: vec![
            Column::new("key", super::peak::title(by)),
            column("device", "Device", if devices.len() > 1 { 4 } else { Column::DETAIL }),
            column("change_bytes", "At the peak", 0),
            column("share", "Of change", 3),
            column("before_bytes", "Before", 1),
            column("after_bytes", "After", 1),
            column("state", "State", 2),
            column("step_allocated_change_bytes", "A step", 5),
            column("step_allocations_change", "Allocs a step", 6),
            column("blocks_change", "Blocks", 7),
        ],
        ..Table::default()
    };
    let mut all = 0;
    for d in devices {
        let whole = d.peak_allocated_bytes.change.0;
        let cells = |key: &str, live: Change| {
            vec![
                key.into(),
                d.device.as_str().into(),
                Cell::BytesChange(live.change),
                share(live.change.0, whole),
                live.before.into(),
                live.after.into(),
            ]
        };
        let row = |r: &DiffRow| {
            let rest = [
                r.state.name().into(),
                Cell::BytesChange(r.step_allocated_bytes.change),
                count_change(r.step_allocation_count),
                count_change(r.live_blocks),
            ];
            cells(&r.key, r.live_bytes).into_iter().chain(rest).collect()
        };
        table.rows.extend(d.rows[..shown(limit, d.rows.len())].iter().map(row));
        all += d.rows.len();
        if !d.unattributed_bytes.change.is_zero() {
            let rest = (0..4).map(|_| Cell::Absent);
            table.rows.push(cells("(before the trace)", d.unattributed_bytes).into_iter().chain(rest).collect());
            all += 1;
        }
    }
    cut(&mut table, all);
    table
}

fn count_change(change: CountChange) -> Cell {
    let change = i128::from(change.after) - i128::from(change.before);
    Cell::CountChange(change.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

/// The numbers of whole devices.
fn totals(devices: &[&DeviceDiff]) -> Table {
    let columns = [("key", "Whole device"), ("device", "Device"), ("before", "Before"), ("after", "After")];
    let mut table = Table {
        columns: columns
            .into_iter()
            .chain([("change", "Change"), ("share", "Share")])
            .map(|(k, t)| Column::new(k, t))
            .collect(),
        ..Table::default()
    };
    for d in devices {
        let size = |key: &str, change: Change| {
            let cells: Vec<Cell> =
                vec![key.into(), d.device.as_str().into(), change.before.into(), change.after.into()];
            let rest = [Cell::BytesChange(change.change), share(change.change.0, change.before.0)];
            cells.into_iter().chain(rest).collect::<Vec<Cell>>()
        };
        table.rows.push(size("Peak, allocated", d.peak_allocated_bytes));
        table.rows.extend(d.peak_reserved_bytes.map(|c| size("Peak, reserved", c)));
        table.rows.push(size("Allocated a step", d.step_allocated_bytes));
        let (before, after) = (d.step_allocation_count.before, d.step_allocation_count.after);
        table.rows.push(vec![
            "Allocations a step".into(),
            d.device.as_str().into(),
            Cell::Count(before),
            Cell::Count(after),
            count_change(d.step_allocation_count),
            if before > 0 { Cell::Ratio((after as f64 - before as f64) / before as f64) } else { Cell::Absent },
        ]);
        table.rows.extend(d.growth_bytes_per_step.map(|c| size("Growth a step", c)));
    }
    table
}
