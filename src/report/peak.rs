//! `peak`: who holds the memory at its worst moment, or at another; the numbers sum exactly.
//!
//! What the numbers mean stands in [`peak`](crate::analysis::peak). Here they are cut and named.

use super::memory::{MemoryOptions, cut, keep, lacks, oddities, shown, since_start, to_json};
use super::sentence::sentence;
use super::{Block, Cell, Column, Finding, Report, Sentence, Table};
use crate::analysis::grouping::GroupBy;
use crate::analysis::peak::{DevicePeak, Moment, MomentAt, PeakOptions, peaks, trace_start};
use crate::error::{Error, Result};
use crate::trace::{Keep, Trace};
use crate::units::{Bytes, Nanos};
use serde_json::{Map, Value};

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Peak {
    /// The moment, and how to group.
    pub peak: PeakOptions,
    /// How allocations are attributed.
    pub memory: MemoryOptions,
    /// How many rows of a device to show; negative for all.
    pub limit: i64,
}

impl Default for Peak {
    fn default() -> Self {
        Self { peak: PeakOptions::default(), memory: MemoryOptions::default(), limit: 10 }
    }
}

impl Peak {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        keep(&[self.peak.group_by], true)
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, or not the moment asked for.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let (memory, who) = self.memory.read(trace)?;
        if let Moment::Step(number) = self.peak.at
            && who.context.steps().numbered(number).is_none()
        {
            return Err(who.context.steps().no_step(trace, number));
        }
        let options = PeakOptions { device: self.memory.device, ..self.peak.clone() };
        let mut devices = peaks(trace, &memory, &who, &options);
        if devices.is_empty() {
            let hint = "--at peak shows the worst moment";
            return Err(Error::missing("the trace holds no out-of-memory event", hint));
        }
        let mut blocks: Vec<Block> = Vec::new();
        let view = View { trace, start: trace_start(trace), options: self };
        blocks.extend(devices.iter().map(|d| Block::Text(view.headline(d))));
        blocks.push(Block::Table(view.rows(&devices)));
        let major: Vec<&DevicePeak> = major(&devices);
        blocks.push(Block::Table(view.largest(&major)));
        blocks.extend(major.iter().filter_map(|d| view.next_peak(d)).map(Block::Text));
        blocks.extend(lacks(trace, &who, self.peak.group_by).map(Block::Finding));
        blocks.extend(devices.iter().filter_map(not_exact).map(Block::Finding));
        blocks.extend(oddities(&memory));
        let document = self.document(&mut devices)?;
        let diagnostics = memory.findings().clone();
        Ok(Report { command: "peak", blocks, document, diagnostics, ..Report::default() })
    }

    fn document(&self, devices: &mut [DevicePeak]) -> Result<Map<String, Value>> {
        let mut list = Vec::with_capacity(devices.len());
        for device in devices {
            let all = device.rows.len();
            device.rows.truncate(shown(self.limit, all));
            let mut value = to_json(device)?;
            if let Value::Object(members) = &mut value {
                members.insert("row_count".into(), all.into());
            }
            list.push(value);
        }
        let mut document = Map::new();
        document.insert("group_by".into(), self.peak.group_by.name().into());
        document.insert("attribute_to".into(), self.peak.attribute_to.name().into());
        document.insert("devices".into(), list.into());
        Ok(document)
    }
}

/// The devices worth more than a line: not those, mostly the host, that hold next to nothing beside another.
fn major(devices: &[DevicePeak]) -> Vec<&DevicePeak> {
    let most = devices.iter().map(|d| d.peak_allocated_bytes).max().unwrap_or_default();
    devices.iter().filter(|d| d.peak_allocated_bytes.0 >= most.0 / 10_000).collect()
}

/// What of a device's numbers is not exact, and why.
fn not_exact(device: &DevicePeak) -> Option<Finding> {
    let name = device.device.as_str();
    if !device.paired {
        let message = sentence![
            "The memory events of ",
            name,
            " carry no addresses, so nobody can tell which blocks are live: only the \
             curve is known",
            if device.estimated { ", and that only from an assumed start." } else { "." },
        ];
        let advice = "Profile with PyTorch 1.12 or later.".into();
        return Some(Finding { code: "no-addresses", message, advice });
    }
    device.estimated.then(|| Finding {
        code: "estimated",
        message: sentence![
            "The memory events of ",
            name,
            " carry no totals: the curve is the running sum from the smallest start that \
             keeps it at or above 0."
        ],
        advice: "Profile with PyTorch 1.12 or later for the allocator's own totals.".into(),
    })
}

struct View<'a> {
    trace: &'a Trace,
    start: Nanos,
    options: &'a Peak,
}

impl View<'_> {
    fn passed(&self, absolute: Nanos) -> Nanos {
        since_start(self.trace, self.start, absolute)
    }

    /// What there was, when, and what went on.
    fn headline(&self, d: &DevicePeak) -> Sentence {
        let at_peak = self.options.peak.at == Moment::Peak;
        let about = if d.estimated { "about " } else { "" };
        let what = if at_peak { ": the peak is " } else { ": " };
        let mut text = sentence![d.device.as_str(), what, about, d.at.allocated_bytes, " allocated"];
        if let Some(before) = d.before_trace_bytes.filter(|b| !b.is_zero()) {
            text = text.and(", ").and(before).and(" of it before the trace");
        }
        text = text.and(", at ").and(self.passed(d.at.time_ns)).then(surroundings(&d.at));
        if let Some(bytes) = d.at.requested_bytes {
            text = text.and(", where ").and(bytes).and(" more were asked for and not had");
        }
        if !at_peak {
            text = text.and("; the peak is ").and(d.peak_allocated_bytes).and(" at ").and(self.passed(d.peak_time_ns));
        }
        if let Some(reserved) = d.at.reserved_bytes {
            text = text.and("; ").and(reserved).and(" reserved then");
            if let Some(most) = d.peak_reserved_bytes.filter(|most| *most != reserved) {
                text = text.and(", ").and(most).and(" at most");
            }
        }
        text.and(".")
    }

    fn rows(&self, devices: &[DevicePeak]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let mut table = Table {
            columns: vec![
                Column::new("key", title(self.options.peak.group_by)),
                column("device", "Device", if devices.len() > 1 { 1 } else { Column::DETAIL }),
                column("live_bytes", "Live", 0),
                column("share", "Share", 2),
                column("blocks", "Blocks", 3),
                column("largest_block_bytes", "Largest", 5),
                column("oldest_time_ns", "Since", 6),
                column("peak_without_bytes", "Peak without", 4),
            ],
            ..Table::default()
        };
        let mut all = 0;
        for d in devices {
            let live = d.at.allocated_bytes;
            for row in &d.rows[..shown(self.options.limit, d.rows.len())] {
                table.rows.push(vec![
                    row.key.as_str().into(),
                    d.device.as_str().into(),
                    row.live_bytes.into(),
                    share(row.live_bytes, live),
                    Cell::Count(row.blocks),
                    row.largest_block_bytes.into(),
                    self.passed(row.oldest_time_ns).into(),
                    row.peak_without_bytes.into(),
                ]);
            }
            all += d.rows.len();
            if let Some(before) = d.before_trace_bytes.filter(|b| !b.is_zero()) {
                let head =
                    vec!["(before the trace)".into(), d.device.as_str().into(), before.into(), share(before, live)];
                table.rows.push(head.into_iter().chain((0..4).map(|_| Cell::Absent)).collect());
                all += 1;
            }
        }
        cut(&mut table, all);
        table
    }

    fn largest(&self, devices: &[&DevicePeak]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let any_module = devices.iter().any(|d| d.largest_blocks.iter().any(|b| b.module.is_some()));
        let mut table = Table {
            title: "Largest blocks".into(),
            columns: vec![
                Column::new("owner", "Owner"),
                column("device", "Device", if devices.len() > 1 { 1 } else { Column::DETAIL }),
                column("bytes", "Size", 0),
                column("address", "Address", 5),
                column("module", "Module", if any_module { 2 } else { Column::DETAIL }),
                column("allocated_time_ns", "Allocated", 3),
                column("freed_time_ns", "Freed", 4),
            ],
            ..Table::default()
        };
        for d in devices {
            for b in &d.largest_blocks {
                table.rows.push(vec![
                    b.owner.as_str().into(),
                    d.device.as_str().into(),
                    b.bytes.into(),
                    Cell::Address(b.address),
                    b.module.clone().into(),
                    self.passed(b.allocated_time_ns).into(),
                    b.freed_time_ns.map(|t| self.passed(t)).into(),
                ]);
            }
        }
        table
    }

    /// What would have to go for the peak to fall, and how far.
    fn next_peak(&self, d: &DevicePeak) -> Option<Sentence> {
        let next = d.next_peak.as_ref().filter(|_| !d.rows.is_empty())?;
        let what = if self.options.peak.at == Moment::Peak { "the peak" } else { "this moment" };
        let text = sentence![
            d.device.as_str(),
            ": without the blocks that ",
            what,
            " holds, memory would still reach ",
            next.without_live_set_bytes,
            " at ",
            self.passed(next.time_ns),
        ];
        let text = text.then(whereabouts(next.step.as_deref(), next.phase, next.operator.as_deref()));
        let gain = d.peak_allocated_bytes - next.without_live_set_bytes;
        Some(match gain.0 {
            0 => text.and(": it is as high again there, so those must go as well for the peak to fall."),
            _ => text.and(": no more than ").and(gain).and(" can be won here."),
        })
    }
}

fn surroundings(at: &MomentAt) -> Sentence {
    let text = whereabouts(at.step.as_deref(), at.phase, at.operator.as_deref());
    match &at.module {
        Some(module) => text.and(format!(", in {module}")),
        None => text,
    }
}

/// Step, phase and operator, in brackets.
fn whereabouts(step: Option<&str>, phase: Option<&str>, operator: Option<&str>) -> Sentence {
    let known: Vec<&str> = [step, phase, operator].into_iter().flatten().collect();
    if known.is_empty() { Sentence::default() } else { format!(" ({})", known.join(", ")).into() }
}

fn share(part: Bytes, whole: Bytes) -> Cell {
    if whole.0 > 0 { Cell::Ratio(part.0 as f64 / whole.0 as f64) } else { Cell::Absent }
}

/// What a grouping's keys are, as the title of their column.
pub(super) fn title(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Op => "Owner",
        GroupBy::Category => "Category",
        GroupBy::Module => "Module",
        GroupBy::Stack => "Stack",
        GroupBy::File => "File",
        GroupBy::Function => "Function",
        GroupBy::Line => "Line",
        GroupBy::Shape => "Owner and shapes",
        GroupBy::Phase => "Phase",
        GroupBy::Step => "Step",
        GroupBy::Thread => "Thread",
        GroupBy::Device => "Device",
        GroupBy::Annotation => "Annotation",
    }
}
