//! `steps`: the memory of each step, whether it grows, by how much and who keeps it.
//!
//! What the numbers mean stands in [`steps`](crate::analysis::steps).

use super::memory::{MemoryOptions, cut, keep, oddities, shown, since_start, to_json};
use super::sentence::sentence;
use super::{Block, Cell, Column, Finding, Report, Table};
use crate::analysis::grouping::GroupBy;
use crate::analysis::owners::AttributeTo;
use crate::analysis::peak::trace_start;
use crate::analysis::step_spans::StepSpans;
use crate::analysis::steps::{DeviceSteps, Keeper, LEAST_GROWTH, StepsOptions, Verdict, steps};
use crate::error::Result;
use crate::trace::{Keep, Trace};
use crate::units::Bytes;
use serde_json::Map;

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Steps {
    /// How allocations are attributed, and what makes a step.
    pub memory: MemoryOptions,
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// How many of those who keep memory to show; negative for all. Steps are all shown.
    pub limit: i64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { memory: MemoryOptions::default(), attribute_to: AttributeTo::default(), limit: 10 }
    }
}

impl Steps {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        keep(&[GroupBy::Stack], true)
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events or marks no steps.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let (memory, who) = self.memory.read(trace)?;
        if who.context.steps().steps().is_empty() {
            return Err(StepSpans::missing(trace));
        }
        let options = StepsOptions { attribute_to: self.attribute_to, device: self.memory.device };
        let devices = steps(trace, &memory, &who, &options);
        let mut blocks = vec![Block::Table(table(trace, &devices))];
        for device in &devices {
            blocks.push(verdict(device));
            if !device.keepers.is_empty() {
                blocks.push(Block::Table(self.keepers(device)));
            }
        }
        blocks.extend(oddities(&memory));
        let mut document = Map::new();
        document.insert("attribute_to".into(), self.attribute_to.name().into());
        document.insert("devices".into(), to_json(&devices)?);
        let diagnostics = memory.findings().clone();
        Ok(Report { command: "steps", blocks, document, diagnostics, ..Report::default() })
    }

    fn keepers(&self, device: &DeviceSteps) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let any_stack = device.keepers.iter().any(|k| !k.stack.starts_with('('));
        let row = |k: &Keeper| {
            vec![
                k.owner.as_str().into(),
                k.bytes_per_step.into(),
                k.kept_bytes.into(),
                Cell::Count(k.blocks),
                k.phase.as_str().into(),
                k.stack.as_str().into(),
            ]
        };
        let mut table = Table {
            title: format!("Who keeps memory of {}", device.device),
            columns: vec![
                Column::new("owner", "Owner"),
                column("bytes_per_step", "A step", 0),
                column("kept_bytes", "Kept", 2),
                column("blocks", "Blocks", 3),
                column("phase", "Phase", 1),
                column("stack", "Stack", if any_stack { 4 } else { Column::DETAIL }),
            ],
            rows: device.keepers[..shown(self.limit, device.keepers.len())].iter().map(row).collect(),
            ..Table::default()
        };
        cut(&mut table, device.keepers.len());
        table
    }
}

fn table(trace: &Trace, devices: &[DeviceSteps]) -> Table {
    let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
    let start = trace_start(trace);
    let mut table = Table {
        columns: vec![
            Column::new("step", "Step"),
            column("device", "Device", if devices.len() > 1 { 1 } else { Column::DETAIL }),
            column("peak_allocated_bytes", "Peak", 0),
            column("allocated_bytes", "Allocated", 3),
            column("allocation_count", "Allocs", 7),
            column("freed_bytes", "Freed", 4),
            column("free_count", "Frees", Column::DETAIL),
            column("net_growth_bytes", "Net", 1),
            column("end_allocated_bytes", "At the end", 2),
            column("survivor_bytes", "Survivors", 5),
            column("survivor_count", "Surviving blocks", Column::DETAIL),
            column("start_time_ns", "Start", Column::DETAIL),
            column("duration_ns", "Duration", 6),
        ],
        ..Table::default()
    };
    for device in devices {
        for row in &device.rows {
            table.rows.push(vec![
                row.step.as_str().into(),
                device.device.as_str().into(),
                row.peak_allocated_bytes.into(),
                row.allocated_bytes.into(),
                Cell::Count(row.allocation_count),
                row.freed_bytes.into(),
                Cell::Count(row.free_count),
                row.net_growth_bytes.into(),
                row.end_allocated_bytes.into(),
                row.survivor_bytes.into(),
                row.survivor_count.map_or(Cell::Absent, Cell::Count),
                since_start(trace, start, row.start_time_ns).into(),
                row.duration_ns.into(),
            ]);
        }
    }
    table
}

fn verdict(device: &DeviceSteps) -> Block {
    let name = device.device.as_str();
    let count = Cell::Count(device.rows.len() as u64);
    match device.verdict {
        Verdict::TooFewSteps => {
            Block::Text(sentence![name, ": with ", count, " steps, whether memory grows cannot be told; it takes 4."])
        }
        Verdict::Steady => Block::Text(sentence![name, ": memory does not grow over the ", count, " steps."]),
        Verdict::Grows if device.growth_bytes_per_step < LEAST_GROWTH => {
            let growth = device.growth_bytes_per_step;
            let text =
                sentence![name, ": memory grows by no more than ", growth, " a step over the ", count, " steps."];
            Block::Text(text)
        }
        Verdict::Grows => Block::Finding(grows(device, name, count)),
    }
}

fn grows(device: &DeviceSteps, name: &str, count: Cell) -> Finding {
    let mut message =
        sentence![name, ": memory grows by ", device.growth_bytes_per_step, " a step over the ", count, " steps",];
    let by_phase =
        |phase: &str| -> Bytes { device.keepers.iter().filter(|k| k.phase == phase).map(|k| k.bytes_per_step).sum() };
    if let Some(first) = device.keepers.first() {
        message = message.and("; the most is kept from ").and(first.owner.as_str());
        message = message
            .and(" (")
            .and(first.bytes_per_step)
            .and(" a step, allocated in ")
            .and(first.phase.as_str())
            .and(")");
    }
    let (forward, optimizer) = (by_phase("forward"), by_phase("optimizer"));
    let most = |part: Bytes| part.0.saturating_mul(2) > device.growth_bytes_per_step.0;
    let advice = if most(forward) {
        "It is what the forward pass leaves, activations: something keeps the graphs of past steps. Keep loss.item() or \
         loss.detach() and not the loss; drop retain_graph=True; clear lists of outputs."
    } else if most(optimizer) {
        "It is what the optimizer leaves: look for parameters or states that are added in each step."
    } else {
        "Look for what collects tensors from step to step: lists, caches, metrics."
    };
    Finding { code: "memory-grows", message: message.and("."), advice: advice.into() }
}
