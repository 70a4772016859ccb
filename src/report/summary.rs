//! `summary`: the one page to read first: memory of each device, how busy it was, who holds the peak, and findings.

use super::findings::{Known, findings};
use super::memory::{MOST_DEVICES, MemoryOptions, keep, to_json};
use super::sentence::sentence;
use super::snapshot_summary;
use super::{Block, Cell, Column, Finding, Report, Table};
use crate::analysis::allocations::Allocations;
use crate::analysis::busy::{DeviceBusy, device_busy};
use crate::analysis::grouping::{Attribution, GroupBy};
use crate::analysis::peak::{DevicePeak, PeakOptions, peaks};
use crate::analysis::peak_parts::{PeakParts, PoolUse, reserved_growths};
use crate::analysis::snapshot_stats::device_stats;
use crate::analysis::steps::{DeviceSteps, StepsOptions, Verdict, steps};
use crate::error::{Error, ErrorKind, Result};
use crate::trace::{Keep, Severity, Trace};
use crate::units::Bytes;
use serde::Serialize;
use serde_json::Map;

/// Rows of each table.
const ROWS: usize = 6;

/// The options of the report.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How allocations are attributed, and what makes a step.
    pub memory: MemoryOptions,
}

/// The numbers of a device.
#[derive(Debug, Serialize)]
struct DeviceSummary {
    #[serde(flatten)]
    peak: DevicePeak,
    by_op: Vec<(String, Bytes)>,
    by_phase: Vec<(String, Bytes)>,
    attention_written_out_bytes: Bytes,
    large_pool: PoolUse,
    small_pool: PoolUse,
    reserved_growths: u64,
}

impl Summary {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        keep(&[GroupBy::Category, GroupBy::Stack], false)
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where the trace holds neither memory events nor device events.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let mut busy = device_busy(trace);
        let idle = busy.len().saturating_sub(MOST_DEVICES);
        if idle > 0 {
            busy.sort_by_key(|card| std::cmp::Reverse(card.busy_ns));
            busy.truncate(MOST_DEVICES);
            busy.sort_by_key(|card| card.device);
        }
        let read = self.memory.read(trace);
        let mut blocks = Vec::new();
        let mut document = Map::new();
        let mut found = Vec::new();
        let mut diagnostics = crate::trace::Diagnostics::default();
        match read {
            Ok((memory, who)) => {
                diagnostics = memory.findings().clone();
                let options = StepsOptions { device: self.memory.device, ..StepsOptions::default() };
                let grows = steps(trace, &memory, &who, &options);
                let devices = self.devices(trace, &memory, &who);
                for device in &devices {
                    let steps = grows.iter().find(|s| s.device == device.peak.device);
                    let card = busy.iter().find(|b| device.peak.device.ends_with(&format!(":{}", b.device)));
                    blocks.push(Block::Heading(device.peak.device.clone()));
                    blocks.push(Block::Facts(memory_facts(trace, device, steps)));
                    if device.peak.device != "cpu" {
                        // The operators that make categories are not in a snapshot.
                        if trace.snapshot().is_none() {
                            blocks.push(Block::Table(by_category(device)));
                        }
                        blocks.push(Block::Table(by_op(device)));
                    }
                    found.extend(findings(&Known {
                        peak: &device.peak,
                        attention_written_out: device.attention_written_out_bytes,
                        by_phase: &device.by_phase,
                        steps,
                        busy: card,
                        capacity: capacity(trace, &device.peak.device),
                    }));
                }
                found.extend(trace.snapshot().and_then(snapshot_summary::failed).or_else(|| out_of_memory(trace)));
                // A snapshot has no shapes; steps are in it where record_function marked them.
                let asked = [GroupBy::Category, GroupBy::Step, GroupBy::Stack];
                let asked = if trace.snapshot().is_some() { &asked[2..] } else { &asked[..] };
                found.extend(asked.iter().filter_map(|by| super::memory::lacks(trace, &who, *by)));
                document.insert("devices".into(), to_json(&devices)?);
                document.insert("steps".into(), to_json(&grows)?);
            }
            Err(error) if busy.is_empty() && trace.ops().is_empty() => return Err(error),
            Err(error) => found.push(no_memory(&error)),
        }
        if let Some(snapshot) = trace.snapshot() {
            let stats = device_stats(snapshot);
            blocks.extend(stats.iter().flat_map(snapshot_summary::blocks));
            blocks.extend(snapshot_summary::settings(&snapshot.settings));
            document.insert("snapshot".into(), snapshot_summary::document(snapshot, &stats));
        }
        for card in &busy {
            // -1 where the file does not say.
            let which = if card.device < 0 { "the device".to_owned() } else { format!("device {}", card.device) };
            blocks.push(Block::Heading(format!("Work of {which}")));
            blocks.push(Block::Facts(busy_facts(card)));
        }
        document.insert("busy".into(), to_json(&busy)?);
        diagnostics.note_many("many-devices", Severity::Warning, idle as u64, None, || {
            format!("devices besides the {MOST_DEVICES} that worked longest; left out")
        });
        if !found.is_empty() {
            blocks.push(Block::Heading("Findings".into()));
            blocks.extend(found.into_iter().map(Block::Finding));
        }
        if blocks.is_empty() {
            return Err(Error::missing(
                "the trace holds neither memory nor device events",
                "profile with profile_memory=True",
            ));
        }
        Ok(Report { command: "summary", blocks, document, diagnostics, ..Report::default() })
    }

    fn devices(&self, trace: &Trace, memory: &Allocations, who: &Attribution<'_>) -> Vec<DeviceSummary> {
        let options = PeakOptions { group_by: GroupBy::Category, device: self.memory.device, ..PeakOptions::default() };
        let summary = |peak: DevicePeak| {
            let device = memory.device(peak.device.parse().ok()?)?;
            let live = PeakParts::of(device);
            let by_op = live.by(device, who, GroupBy::Op);
            let by_phase = live.by(device, who, GroupBy::Phase);
            let (large_pool, small_pool) = live.pools(device);
            Some(DeviceSummary {
                attention_written_out_bytes: live.attention_written_out(device, who),
                by_op,
                by_phase,
                large_pool,
                small_pool,
                reserved_growths: reserved_growths(device),
                peak,
            })
        };
        peaks(trace, memory, who, &options).into_iter().filter_map(summary).collect()
    }
}

/// The memory of a device by its name, such as `cuda:0`.
fn capacity(trace: &Trace, device: &str) -> Option<Bytes> {
    let index: i64 = device.split_once(':')?.1.parse().ok()?;
    let properties = trace.info().device_properties.iter().find(|p| p.id == index)?;
    i64::try_from(properties.total_memory_bytes?).ok().map(Bytes)
}

fn memory_facts(trace: &Trace, device: &DeviceSummary, steps: Option<&DeviceSteps>) -> Vec<(String, Cell)> {
    let peak = &device.peak;
    let mut facts: Vec<(&str, Cell)> = vec![("Peak allocated", peak.peak_allocated_bytes.into())];
    if let Some(capacity) = capacity(trace, &peak.device).filter(|c| c.0 > 0) {
        facts.push(("of the device", Cell::Ratio(peak.peak_allocated_bytes.0 as f64 / capacity.0 as f64)));
    }
    facts.push(("Before the trace", peak.before_trace_bytes.into()));
    if let Some(reserved) = peak.reserved_at_peak_bytes.filter(|r| r.0 > 0) {
        facts.push(("Reserved at the peak", reserved.into()));
        // Of what is cached, all or nothing may be usable: a trace does not tell where the free blocks lie.
        facts.push(("Cached at the peak", (reserved - peak.peak_allocated_bytes).into()));
        facts.push(("Peak reserved", peak.peak_reserved_bytes.into()));
        facts.push(("Growths of reserved", Cell::Count(device.reserved_growths)));
    }
    facts.push(("Allocated, all told", peak.allocated_bytes.into()));
    facts.push(("Allocations", Cell::Count(peak.allocation_count)));
    facts.push(("Freed, all told", peak.freed_bytes.into()));
    if peak.device != "cpu" {
        facts.push(("Large blocks at the peak", device.large_pool.live_at_peak_bytes.into()));
        facts.push(("Small blocks at the peak", device.small_pool.live_at_peak_bytes.into()));
    }
    if let Some(steps) = steps.filter(|s| s.verdict != Verdict::TooFewSteps) {
        facts.push(("Growth a step", steps.growth_bytes_per_step.into()));
    }
    facts.into_iter().map(|(name, cell)| (name.to_owned(), cell)).collect()
}

fn busy_facts(card: &DeviceBusy) -> Vec<(String, Cell)> {
    let mut facts = vec![
        ("Time of the trace".to_owned(), card.span_ns.into()),
        ("Busy".to_owned(), Cell::Ratio(card.share(card.busy_ns))),
        ("Kernels".to_owned(), Cell::Ratio(card.share(card.kernel_ns))),
        ("Copies and sets".to_owned(), Cell::Ratio(card.share(card.copy_ns))),
    ];
    if let Some(percent) = card.occupancy_percent {
        facts.push(("Achieved occupancy".to_owned(), Cell::Ratio(percent / 100.0)));
    }
    if card.streams.len() > 1 {
        for stream in card.streams.iter().take(8) {
            facts.push((format!("Busy, stream {}", stream.stream), Cell::Ratio(card.share(stream.busy_ns))));
        }
    }
    facts
}

/// The live set of the peak in rows, cut and with shares.
fn rows(peak: &DevicePeak, keys: impl Iterator<Item = (String, Bytes)>) -> Vec<Vec<Cell>> {
    let share = |bytes: Bytes| Cell::Ratio(bytes.0 as f64 / peak.peak_allocated_bytes.0.max(1) as f64);
    keys.filter(|(_, bytes)| bytes.0 > 0)
        .take(ROWS)
        .map(|(key, bytes)| vec![key.into(), bytes.into(), share(bytes)])
        .collect()
}

fn columns(first: &str) -> Vec<Column> {
    vec![
        Column::new(first.to_ascii_lowercase(), first),
        Column::new("live_bytes", "Live"),
        Column::new("share", "Share"),
    ]
}

fn by_category(device: &DeviceSummary) -> Table {
    let keys = device.peak.rows.iter().map(|row| (row.key.clone(), row.live_bytes));
    Table {
        title: "At the peak".into(),
        columns: columns("Category"),
        rows: rows(&device.peak, keys),
        ..Table::default()
    }
}

fn by_op(device: &DeviceSummary) -> Table {
    let keys = device.by_op.iter().cloned();
    Table { columns: columns("Owner"), rows: rows(&device.peak, keys), ..Table::default() }
}

/// Why there is nothing about memory: what the reading of it said.
fn no_memory(error: &Error) -> Finding {
    let (message, advice) = match error.kind() {
        ErrorKind::Missing { what, hint } => (what.clone(), hint.clone().unwrap_or_default()),
        _ => (error.to_string(), String::new()),
    };
    Finding { code: "no-memory", message: message.into(), advice: advice.into() }
}

/// Requests that could not be served.
fn out_of_memory(trace: &Trace) -> Option<Finding> {
    let events = trace.out_of_memory();
    let last = events.iter().last()?;
    let device = trace.device(last.device).to_string();
    let mut message = sentence![device.as_str(), ": a request for ", last.bytes, " could not be served"];
    if events.len() > 1 {
        message = message.and(", the last of ").and(Cell::Count(events.len() as u64));
    }
    let free = last.total_reserved - last.total_allocated;
    if last.total_allocated.0 >= 0 && free.0 > 0 {
        message =
            message.and("; ").and(free).and(" were free inside the cache, in blocks too small or of another pool");
    }
    Some(Finding {
        code: "out-of-memory",
        message: message.and("."),
        advice: "'tracetool peak --at oom' shows who held the memory then.".into(),
    })
}
