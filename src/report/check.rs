//! `check`: which limits a trace keeps, by how much it passes the others, and who brings that.
//!
//! What limits are stands in [`limits`](crate::analysis::limits). Traces are held one after the other, so that only one is
//! in memory; the report is of all.

use super::baseline::{MakeBaseline, same_options};
use super::diff::{rise, rows};
use super::memory::{shown, to_json};
use super::sentence::sentence;
use super::{Block, Case, CaseOutcome, Cell, Column, Finding, LeftOut, Report, Sentence, Table};
use crate::analysis::baseline::{Baseline, Place};
use crate::analysis::check::{Checked, Limit, Quantity, Verdict, check, checked_pairs};
use crate::analysis::diff::{DeviceDiff, device};
use crate::analysis::grouping::GroupBy;
use crate::analysis::limits::{Increase, Limits};
use crate::analysis::steps::Keeper;
use crate::error::{Error, Result};
use crate::trace::{Diagnostics, Trace};
use crate::units::Bytes;
use serde_json::{Map, Value, json};

/// How many rows bring a rise, at most, that a message names of each grouping.
const NAMED: usize = 3;

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Check {
    /// The limits.
    pub limits: Limits,
    /// How to summarise a trace.
    pub make: MakeBaseline,
    /// How many rows to show, of limits and of those who bring a rise; negative for all.
    pub limit: i64,
}

impl Default for Check {
    fn default() -> Self {
        Self { limits: Limits::default(), make: MakeBaseline::default(), limit: 10 }
    }
}

/// A trace that was held against the limits.
#[derive(Clone, Debug)]
pub struct Held {
    trace: String,
    baseline: Option<String>,
    results: Vec<Checked>,
    /// For each device whose peak rises too far, what rises by each grouping.
    rises: Vec<Rise>,
    /// For each device that grows too much from step to step, who keeps the most of it.
    keepers: Vec<(String, Keeper)>,
    diagnostics: Diagnostics,
}

/// What makes the peak of a device rise.
#[derive(Clone, Debug)]
struct Rise {
    device: String,
    by: Vec<DeviceDiff>,
    place: Option<(String, Place)>,
}

impl Held {
    fn failures(&self) -> usize {
        self.results.iter().filter(|r| r.fails()).count()
    }
}

impl Check {
    /// Holds the trace called `name` against the limits, and against a baseline with its name.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, the baseline was made with other options, or there is nothing to check.
    pub fn hold(&self, name: &str, trace: &Trace, baseline: Option<(&str, &Baseline)>) -> Result<Held> {
        let after = self.make.run(trace)?;
        let none = Baseline::empty(after.options.clone());
        let before = baseline.map_or(&none, |(_, b)| b);
        same_options(before, &after)?;
        let limits = if baseline.is_some() { self.limits.clone() } else { self.limits.clone().without_baseline() };
        let mut results = check(before, &after, &limits);
        if baseline.is_none() {
            results.iter_mut().for_each(|r| r.before = None);
        }
        if results.is_empty() {
            let missing = match baseline {
                None => "there is nothing to check: give a --baseline, or a limit such as --max-peak 10GiB",
                Some(_) => "there is nothing to check: all limits are none, or no device has the name asked for",
            };
            return Err(Error::usage(missing));
        }
        let (mut rises, mut keepers) = (Vec::new(), Vec::new());
        for (b, a) in checked_pairs(before, &after, &limits) {
            let Some(a) = a else { continue };
            let failed = || results.iter().filter(|r| r.fails() && r.group_by.is_none() && r.device == a.device);
            if failed().any(|r| r.quantity == Quantity::Growth) {
                keepers.extend(self.make.keeper(trace, &a.device)?.map(|keeper| (a.device.clone(), keeper)));
            }
            if !failed().any(|r| r.quantity == Quantity::Peak) {
                continue;
            }
            // Where nothing rose, those who hold the peak are to be named.
            let b = b.filter(|b| b.peak_allocated_bytes < a.peak_allocated_bytes);
            let both = |by: &GroupBy| b.is_none_or(|b| b.rows(*by).is_some()) && a.rows(*by).is_some();
            // People think in categories first, of which a snapshot, that knows no operators, has next to none.
            let both = |by: &GroupBy| both(by) && !(trace.has_stacks() && *by == GroupBy::Category);
            let by = [GroupBy::Category, GroupBy::Op, GroupBy::Module].into_iter().filter(both);
            let by: Vec<DeviceDiff> = by.filter_map(|by| device(b, Some(a), by)).collect();
            let ops = by.iter().find(|d| d.group_by == GroupBy::Op);
            let place = match ops.and_then(|d| d.rows.iter().find(|r| r.live_bytes.change.0 > 0)) {
                Some(row) => self.make.place(trace, &a.device, &row.key)?.map(|place| (row.key.clone(), place)),
                None => None,
            };
            rises.push(Rise { device: a.device.clone(), by, place });
        }
        let baseline = baseline.map(|(name, _)| name.to_owned());
        let diagnostics = trace.diagnostics().clone();
        Ok(Held { trace: name.to_owned(), baseline, results, rises, keepers, diagnostics })
    }

    /// The report of all traces.
    ///
    /// # Errors
    ///
    /// None that a user could bring about.
    pub fn report(&self, all: &[Held]) -> Result<Report> {
        let mut report = Report { command: "check", ..Report::default() };
        for held in all {
            report.blocks.push(Block::Text(verdict(held)));
            let failures: Vec<&Checked> = held.results.iter().filter(|r| r.fails()).collect();
            let most = shown(self.limit, failures.len());
            report.blocks.extend(failures[..most].iter().map(|r| Block::Finding(finding(held, r))));
            report.cases.extend(held.results.iter().map(|r| case(held, r)));
            report.diagnostics.append(held.diagnostics.clone());
        }
        report.blocks.push(Block::Table(self.table(all)));
        for held in all {
            report.blocks.extend(self.who(held, all.len() > 1));
        }
        report.document = document(all)?;
        Ok(report)
    }

    /// All limits, those that fail first.
    fn table(&self, all: &[Held]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let several = all.len() > 1;
        let mut results: Vec<(&Held, &Checked)> =
            all.iter().flat_map(|h| h.results.iter().map(move |r| (h, r))).collect();
        let devices = results.iter().any(|(_, r)| Some(&r.device) != results.first().map(|(_, first)| &first.device));
        let mut table = Table {
            columns: vec![
                Column::new("checked", "Checked"),
                column("limit", "Limit", 0),
                column("trace", "Trace", if several { 2 } else { Column::DETAIL }),
                column("device", "Device", if devices { 3 } else { Column::DETAIL }),
                column("before", "Baseline", 1),
                column("after", "Now", 0),
                column("allowed", "Allowed", 4),
                column("over", "Too much", 5),
                column("verdict", "Verdict", 0),
            ],
            ..Table::default()
        };
        results.sort_by_key(|(_, r)| !r.fails());
        let most = shown(self.limit, results.len());
        let rows = results.len() - most;
        table.left_out = (rows > 0).then_some(LeftOut { rows, option: "--limit -1" });
        for (held, r) in &results[..most] {
            let cell = |n: Option<i64>| n.map_or(Cell::Absent, |n| number(r.quantity, n));
            table.rows.push(vec![
                subject(r).into(),
                limit_cell(r),
                held.trace.as_str().into(),
                r.device.as_str().into(),
                cell(r.before),
                cell(r.after),
                cell(r.allowed),
                if r.fails() { cell(over(r)) } else { Cell::Absent },
                verdict_word(r.verdict).into(),
            ]);
        }
        table
    }

    /// The rows that bring the rises of a trace's peaks: by category, and by operator and module where there is room.
    fn who(&self, held: &Held, several: bool) -> Vec<Block> {
        let mut blocks = Vec::new();
        for rise in &held.rises {
            let of = if several { format!("{} of {}", rise.device, held.trace) } else { rise.device.clone() };
            let table = |d: &DeviceDiff| {
                let mut d = d.clone();
                d.rows.retain(|r| !r.live_bytes.change.is_zero());
                let what = match d.before_device {
                    Some(_) => format!("What makes the peak of {of} rise"),
                    None => format!("Who holds the peak of {of}"),
                };
                let title = format!("{what}, by {}", d.group_by.name());
                Table { title, ..rows(&[&d], d.group_by, self.limit) }
            };
            let mut tables = rise.by.iter().map(|d| Block::Table(table(d)));
            blocks.extend(tables.next());
            let others: Vec<Block> = tables.collect();
            if !others.is_empty() {
                blocks.push(Block::Details("By operator and module".into(), others));
            }
        }
        blocks
    }
}

fn verdict(held: &Held) -> Sentence {
    let number_of = |verdict: &[Verdict]| held.results.iter().filter(|r| verdict.contains(&r.verdict)).count();
    let limits = |n: usize| sentence![Cell::Count(n as u64), if n == 1 { " limit" } else { " limits" }];
    let beside = held.baseline.as_ref().map(|b| format!(", beside {b}")).unwrap_or_default();
    let name = sentence![format!("{}{beside}: ", held.trace)];
    let text = match held.failures() {
        0 => name.and("passed ").then(limits(number_of(&[Verdict::Passed]))),
        failed => name.and("FAILED ").and(Cell::Count(failed as u64)).and(" of ").then(limits(held.results.len())),
    };
    match number_of(&[Verdict::NotKnown, Verdict::NothingMatches]) {
        0 => text.and("."),
        unknown => text.and("; ").and(Cell::Count(unknown as u64)).and(" could not be told."),
    }
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed | Verdict::DeviceMissing => "FAILED",
        Verdict::NotKnown => "not known",
        Verdict::NothingMatches => "no such row",
    }
}

fn number(quantity: Quantity, n: i64) -> Cell {
    if quantity == Quantity::Allocations { Cell::Count(n.max(0).unsigned_abs()) } else { Cell::Bytes(Bytes(n)) }
}

fn number_change(quantity: Quantity, n: i64) -> Cell {
    if quantity == Quantity::Allocations { Cell::CountChange(n) } else { Cell::BytesChange(Bytes(n)) }
}

fn over(r: &Checked) -> Option<i64> {
    Some(r.after?.saturating_sub(r.allowed?))
}

/// What was measured, without the device.
fn subject(r: &Checked) -> String {
    let row = match (r.group_by, &r.key) {
        (Some(by), Some(key)) => format!("{} {key}", by.name()),
        _ => String::new(),
    };
    match (r.quantity, r.group_by.is_some()) {
        (Quantity::Peak, _) => "allocated peak".into(),
        (Quantity::Reserved, _) => "reserved peak".into(),
        (Quantity::Growth, _) => "growth a step".into(),
        (Quantity::Allocations, false) => "allocations a step".into(),
        (Quantity::Allocations, true) => format!("{row}, allocations a step"),
        (Quantity::Live, _) => format!("{row}, live at the peak"),
        (Quantity::Allocated, _) => format!("{row}, allocated a step"),
    }
}

fn limit(r: &Checked) -> Sentence {
    match r.limit {
        Limit::Max(most) => sentence!["at most ", number(r.quantity, most)],
        Limit::Increase(Increase::By(most)) => sentence![number_change(r.quantity, most)],
        Limit::Increase(share) => sentence![format!("+{share}")],
        Limit::NoNew => "no new row".into(),
        Limit::NoVanished => "still there".into(),
    }
}

/// The limit as a cell; a share is of the baseline, on top of it.
fn limit_cell(r: &Checked) -> Cell {
    match r.limit {
        Limit::Max(most) => number(r.quantity, most),
        Limit::Increase(Increase::By(most)) => number_change(r.quantity, most),
        Limit::Increase(Increase::Share(millionths)) => Cell::Ratio(millionths as f64 / 1e6),
        Limit::NoNew | Limit::NoVanished => Cell::Absent,
    }
}

/// What became of the number, and the limit.
fn message(r: &Checked) -> Sentence {
    let about = sentence![r.device.as_str(), ": ", subject(r)];
    let cell = |n: i64| number(r.quantity, n);
    match (r.verdict, r.limit, r.before, r.after) {
        (Verdict::DeviceMissing, _, before, _) => {
            let text = sentence![r.device.as_str(), ": the trace holds no memory of it; in the baseline its peak is "];
            text.and(cell(before.unwrap_or(0))).and(".")
        }
        (Verdict::NotKnown, ..) if r.quantity == Quantity::Growth => {
            about.and(" is not known: it takes a trace of 4 steps or more.")
        }
        (Verdict::NotKnown, ..) => about.and(" is not known: the trace or the baseline lacks it."),
        (Verdict::NothingMatches, ..) => about.and(": nothing has such a name, in the trace or in the baseline."),
        (Verdict::Failed, Limit::NoNew, ..) => {
            about.and(" is ").and(cell(r.after.unwrap_or(0))).and(" and new: the baseline has no such row.")
        }
        (Verdict::Failed, Limit::NoVanished, ..) => {
            about.and(" was ").and(cell(r.before.unwrap_or(0))).and(": the trace has no such row.")
        }
        (_, _, before, Some(after)) => {
            let text = match before {
                Some(before) if before != after => about.and(" ").then(rise(before, after, cell)),
                _ => about.and(" is ").and(cell(after)),
            };
            let text = text.and("; the limit is ").then(limit(r));
            let text = match (r.limit, r.allowed) {
                (Limit::Increase(_), Some(allowed)) => text.and(", up to ").and(cell(allowed)),
                _ => text,
            };
            match over(r).filter(|_| r.fails()) {
                Some(over) => text.and(": ").and(cell(over)).and(" too much."),
                None => text.and("."),
            }
        }
        // Several rows that all keep the limit.
        (_, _, _, None) => {
            let text = about.and(": the limit of ").then(limit(r)).and(" is kept by ").and(Cell::Count(r.rows));
            text.and(if r.rows == 1 { " row." } else { " rows." })
        }
    }
}

/// Who makes a peak rise, a sentence for each grouping and one for the place in the code; or who makes memory grow.
fn who(held: &Held, r: &Checked) -> Vec<Sentence> {
    match (r.verdict, r.quantity) {
        (Verdict::Failed, Quantity::Peak) => who_holds(held, r),
        (Verdict::Failed, Quantity::Growth) => {
            held.keepers.iter().filter(|(device, _)| *device == r.device).map(|(_, k)| who_keeps(k)).collect()
        }
        _ => Vec::new(),
    }
}

fn who_keeps(k: &Keeper) -> Sentence {
    let text = sentence![k.owner.as_str(), " keeps the most, ", k.bytes_per_step, " a step, allocated in "];
    let text = text.and(k.phase.as_str());
    // What has no frames is in brackets.
    if k.stack.starts_with('(') { text.and(".") } else { text.and(", from ").and(k.stack.as_str()).and(".") }
}

fn who_holds(held: &Held, r: &Checked) -> Vec<Sentence> {
    let Some(rise) = held.rises.iter().find(|rise| rise.device == r.device) else { return Vec::new() };
    let mut sentences: Vec<Sentence> = rise.by.iter().filter_map(by_whom).collect();
    if let Some((key, place)) = &rise.place {
        sentences.push(sentence![key.as_str(), " holds ", place.live_bytes, " from ", place.stack.as_str(), "."]);
    }
    sentences
}

fn by_whom(d: &DeviceDiff) -> Option<Sentence> {
    let (whole, rises) = (d.peak_allocated_bytes.change.0, d.before_device.is_some());
    let mut rising = d.rows.iter().filter(|r| r.live_bytes.change.0 > 0).take(NAMED).peekable();
    rising.peek()?;
    let mut text = sentence!["By ", d.group_by.name(), ": "];
    for (i, row) in rising.enumerate() {
        let change = row.live_bytes.change;
        text = text.and(if i > 0 { ", " } else { "" }).and(row.key.as_str()).and(" ");
        text = text.and(if rises { Cell::BytesChange(change) } else { Cell::Bytes(change) });
        if whole > 0 {
            let of = if rises { " of the rise)" } else { " of the peak)" };
            text = text.and(" (").and(Cell::Ratio(change.0 as f64 / whole as f64)).and(of);
        }
    }
    Some(text.and("."))
}

fn finding(held: &Held, r: &Checked) -> Finding {
    let advice = who(held, r).into_iter().fold(Sentence::default(), |text, next| {
        let gap = if text.is_empty() { "" } else { " " };
        text.and(gap).then(next)
    });
    Finding { code: "limit-not-kept", message: message(r), advice }
}

fn case(held: &Held, r: &Checked) -> Case {
    let outcome = match r.verdict {
        Verdict::Passed => CaseOutcome::Passed,
        Verdict::Failed | Verdict::DeviceMissing => CaseOutcome::Failed,
        Verdict::NotKnown | Verdict::NothingMatches => CaseOutcome::Skipped,
    };
    let name = sentence![r.device.as_str(), ": ", subject(r), ", limit "].then(limit(r));
    Case { suite: held.trace.clone(), name, outcome, message: message(r), details: who(held, r) }
}

fn document(all: &[Held]) -> Result<Map<String, Value>> {
    let mut document = Map::new();
    document.insert("passed".into(), all.iter().all(|h| h.failures() == 0).into());
    let trace = |held: &Held| {
        let mut rises = Vec::new();
        for rise in &held.rises {
            let place = match &rise.place {
                Some((op, place)) => json!({"op": op, "stack": place.stack, "live_bytes": place.live_bytes}),
                None => Value::Null,
            };
            rises.push(json!({"device": rise.device, "by": to_json(&rise.by)?, "place": place}));
        }
        let (name, baseline) = (&held.trace, &held.baseline);
        let keepers: Vec<Value> =
            held.keepers.iter().map(|(device, k)| json!({"device": device, "keeper": k})).collect();
        Ok(json!({"trace": name, "baseline": baseline, "passed": held.failures() == 0,
                  "limits": to_json(&held.results)?, "rises": rises, "keepers": keepers}))
    };
    document.insert("traces".into(), all.iter().map(trace).collect::<Result<Vec<Value>>>()?.into());
    Ok(document)
}
