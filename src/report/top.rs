//! `top`: which operators take the memory and the time, as PyTorch's key averages count it.
//!
//! What the numbers mean stands in [`averages`](crate::analysis::averages). Here they are sorted, filtered, cut and
//! named. One list, `METRICS`, says what can be sorted by and shown.

use super::memory::{MOST_DEVICES, oddities};
use super::{Block, Cell, Column, Finding, LeftOut, Report, Table, TorchTable, TorchWidths, names};
use crate::analysis::allocations::{Allocations, DeviceMemory};
use crate::analysis::averages::{AveragesOptions, KeyAverage, KeyAverages};
use crate::analysis::op_allocations::OpAllocations;
use crate::analysis::tree::OpTree;
use crate::error::{Error, Result};
use crate::trace::{Keep, Trace};
use crate::units::Bytes;
use regex::Regex;
use serde_json::{Map, Value, json};

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Top {
    /// What to count and to group by.
    pub averages: AveragesOptions,
    /// The column to sort by, greatest first, by any of its names; `none` for the order of first appearance. Where it
    /// is not given: device memory, or the next best that the trace holds.
    pub sort_by: Option<String>,
    /// How many rows to show; negative for all.
    pub limit: i64,
    /// Show only rows whose name matches.
    pub filter: Option<Regex>,
    /// Make [`Report::torch`], which is not cheap where there are many rows.
    pub torch: Option<TorchOptions>,
}

/// Options of PyTorch's own table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TorchOptions {
    /// A line over the table.
    pub header: Option<String>,
    /// The most characters of columns of text.
    pub max_widths: TorchWidths,
}

impl Default for Top {
    fn default() -> Self {
        Self { averages: AveragesOptions::default(), sort_by: None, limit: 10, filter: None, torch: None }
    }
}

/// What a share is a share of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    CpuTime,
    DeviceTime,
    /// What all rows gained by themselves: the net sum can be anything down to nothing.
    DeviceMemory,
    CpuMemory,
    /// The sum over all rows.
    Sum,
}

/// A number of a row.
struct Metric {
    /// Its name for programs; PyTorch's, with the unit as suffix.
    key: &'static str,
    /// Its name for people, where `{}` is the accelerator.
    title: &'static str,
    priority: u8,
    whole: Whole,
    get: fn(&KeyAverage) -> Cell,
}

/// Everything that rows can be sorted by, in the order of the columns.
const METRICS: &[Metric] = &[
    Metric {
        key: "self_device_memory_usage_bytes",
        title: "Self {} Mem",
        priority: 1,
        whole: Whole::DeviceMemory,
        get: |r| Cell::Bytes(r.self_device_memory_usage),
    },
    Metric {
        key: "device_memory_usage_bytes",
        title: "{} Mem",
        priority: 2,
        whole: Whole::DeviceMemory,
        get: |r| Cell::Bytes(r.device_memory_usage),
    },
    Metric {
        key: "allocated_bytes",
        title: "Allocated",
        priority: 4,
        whole: Whole::Sum,
        get: |r| r.allocated_bytes.into(),
    },
    Metric {
        key: "allocation_count",
        title: "Allocs",
        priority: 9,
        whole: Whole::Sum,
        get: |r| r.allocation_count.map_or(Cell::Absent, Cell::Count),
    },
    Metric {
        key: "peak_live_bytes",
        title: "Live at Peak",
        priority: 3,
        whole: Whole::Sum,
        get: |r| r.peak_live_bytes.into(),
    },
    Metric {
        key: "self_cpu_memory_usage_bytes",
        title: "Self CPU Mem",
        priority: 10,
        whole: Whole::CpuMemory,
        get: |r| Cell::Bytes(r.self_cpu_memory_usage),
    },
    Metric {
        key: "cpu_memory_usage_bytes",
        title: "CPU Mem",
        priority: 11,
        whole: Whole::CpuMemory,
        get: |r| Cell::Bytes(r.cpu_memory_usage),
    },
    Metric { key: "count", title: "Calls", priority: 2, whole: Whole::Sum, get: |r| Cell::Count(r.count) },
    Metric {
        key: "self_device_time_total_ns",
        title: "Self {}",
        priority: 5,
        whole: Whole::DeviceTime,
        get: |r| Cell::Nanos(r.self_device_time_total),
    },
    Metric {
        key: "device_time_total_ns",
        title: "{} total",
        priority: 7,
        whole: Whole::DeviceTime,
        get: |r| Cell::Nanos(r.device_time_total),
    },
    Metric {
        key: "self_cpu_time_total_ns",
        title: "Self CPU",
        priority: 6,
        whole: Whole::CpuTime,
        get: |r| Cell::Nanos(r.self_cpu_time_total),
    },
    Metric {
        key: "cpu_time_total_ns",
        title: "CPU total",
        priority: 8,
        whole: Whole::CpuTime,
        get: |r| Cell::Nanos(r.cpu_time_total),
    },
    Metric { key: "flops", title: "FLOPs", priority: Column::DETAIL, whole: Whole::Sum, get: |r| Cell::Flops(r.flops) },
];

/// What the trace has to show.
struct Facets {
    accelerator: String,
    device_memory: bool,
    cpu_memory: bool,
    device_time: bool,
}

/// Why there is no row, and what brings some.
fn nothing(trace: &Trace) -> Error {
    let kinds: Vec<&str> = trace.unmodelled().iter().take(4).map(|(kind, _)| kind.as_str()).collect();
    let what = match kinds.as_slice() {
        // The only events that are known and make no row.
        [] if trace.events() > 0 => {
            "the trace holds no operators, runtime calls or kernels, only Python frames".to_owned()
        }
        [] => "the trace holds no events".to_owned(),
        kinds => {
            format!("the trace holds no operators, runtime calls or kernels, only other events ({})", kinds.join("; "))
        }
    };
    let hint = if trace.diagnostics().lost_data() {
        "the file is incomplete or damaged"
    } else {
        "wrap the code to look at in `with torch.profiler.profile():`, and export after the block"
    };
    Error::missing(what, hint)
}

impl Top {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        Keep { frames: self.averages.group_by_stack_n > 0, ..Keep::REPORTS }
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where [`sort_by`](Self::sort_by) names no column.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        // A wrong name is answered before the work.
        let chosen = self.sort_by.as_deref().filter(|name| *name != "none").map(metric).transpose()?;
        let allocations = || {
            let memory = Allocations::build(trace);
            let allocated = OpAllocations::of(trace, &memory, self.averages.device);
            (memory, allocated)
        };
        let (tree, (mut memory, allocated)) = rayon::join(|| OpTree::build(trace), allocations);
        let averages = self.averages(trace, &tree, allocated.as_ref());
        if self.averages.device.is_none() {
            memory.keep_largest(MOST_DEVICES);
        }
        if averages.rows.is_empty() {
            return Err(nothing(trace));
        }
        let facets = self.facets(trace, &averages);
        let sort = match &self.sort_by {
            Some(_) => chosen,
            None => Some(metric(facets.best())?),
        };
        let rows = self.sorted(&averages, sort);
        let shown = &rows[..rows.len().min(usize::try_from(self.limit).unwrap_or(usize::MAX))];
        let torch = self.torch.as_ref().map(|options| self.torch_table(options, trace, &averages, &facets, shown));
        let table = self.table(&averages, &facets, sort, shown, rows.len());
        let peaks: Vec<&DeviceMemory> = memory.devices().iter().filter(|m| self.counts(m)).collect();
        let facts = totals(&averages, &facets).into_iter().chain(peaks.iter().flat_map(|m| peak_facts(m)));
        let mut blocks = vec![Block::Table(table), Block::Facts(facts.collect())];
        blocks.extend(self.findings(trace, &averages).into_iter().map(Block::Finding));
        blocks.extend(oddities(&memory));
        let mut document = self.document(&averages, &facets, sort, rows.len());
        document.insert("peaks".into(), peaks.into_iter().map(peak_json).collect());
        document.insert("rows".into(), rows_json(shown)?);
        let diagnostics = memory.findings().clone();
        Ok(Report { command: "top", blocks, document, diagnostics, torch, ..Report::default() })
    }

    /// Whether the device's memory is asked for.
    fn counts(&self, memory: &DeviceMemory) -> bool {
        self.averages.device.is_none_or(|wanted| wanted == memory.device())
    }

    fn averages(&self, trace: &Trace, tree: &OpTree, allocated: Option<&OpAllocations>) -> KeyAverages {
        // Rows inside others are left out here and not there: PyTorch's widths and columns count them.
        let options = AveragesOptions {
            top_level_only: false,
            torch_shapes: self.averages.torch_shapes || self.torch.is_some(),
            ..self.averages.clone()
        };
        KeyAverages::of_tree(trace, tree, allocated, &options)
    }

    fn facets(&self, trace: &Trace, averages: &KeyAverages) -> Facets {
        let accelerator = match self.averages.device {
            Some(device) if !device.kind.is_cpu() => device.kind,
            _ => trace.accelerator(),
        };
        let has = |cpu: bool| {
            let mut devices = trace.memory().device().iter().map(|id| trace.device(*id));
            devices.any(|d| d.kind.is_cpu() == cpu && self.averages.device.is_none_or(|wanted| wanted == d))
        };
        Facets {
            accelerator: accelerator.to_string().to_uppercase(),
            device_memory: has(false),
            cpu_memory: has(true),
            device_time: averages.rows.iter().any(|r| !r.self_device_time_total.is_zero()),
        }
    }

    /// The rows that pass the filters, in order.
    fn sorted<'a>(&self, averages: &'a KeyAverages, sort: Option<&Metric>) -> Vec<&'a KeyAverage> {
        let passes = |row: &&KeyAverage| {
            (row.top_level || !self.averages.top_level_only)
                && self.filter.as_ref().is_none_or(|filter| filter.is_match(&row.key))
        };
        let mut rows: Vec<&KeyAverage> = averages.rows.iter().filter(passes).collect();
        if let Some(metric) = sort {
            rows.sort_by_cached_key(|row| std::cmp::Reverse(number(&(metric.get)(row))));
        }
        rows
    }

    fn table(
        &self,
        averages: &KeyAverages,
        facets: &Facets,
        sort: Option<&Metric>,
        shown: &[&KeyAverage],
        all: usize,
    ) -> Table {
        let mut table = Table::default();
        add_column(&mut table, Column::new("key", "Name"), shown, |r| r.key.as_str().into());
        let grouped = |on: bool| if on { 1 } else { Column::DETAIL };
        let shapes = Column::new("input_shapes", "Input Shapes").priority(grouped(self.averages.group_by_input_shape));
        add_column(&mut table, shapes, shown, |r| r.input_shapes.clone().into());
        let stack = Column::new("stack", "Stack").priority(grouped(self.averages.group_by_stack_n > 0));
        add_column(&mut table, stack, shown, |r| {
            if r.stack.is_empty() { Cell::Absent } else { Cell::Text(r.stack.join("; ")) }
        });
        for metric in METRICS {
            let sorted = sort.is_some_and(|s| s.key == metric.key);
            let numbers = || shown.iter().filter_map(|r| number(&(metric.get)(r)));
            let priority = match () {
                () if sorted => 0,
                () if numbers().next().is_none() || !facets.has(metric.whole) => Column::DETAIL,
                // A column of zeros tells the least.
                () if numbers().all(|n| n == 0) => metric.priority.max(Column::DETAIL / 2),
                () => metric.priority,
            };
            let column = Column::new(metric.key, facets.title(metric)).priority(priority);
            add_column(&mut table, column, shown, metric.get);
            if sorted {
                let whole = whole(metric, averages);
                let share = |r: &KeyAverage| match number(&(metric.get)(r)) {
                    Some(part) if whole > 0.0 => Cell::Ratio(part as f64 / whole),
                    _ => Cell::Absent,
                };
                add_column(&mut table, Column::new("share", "Share"), shown, share);
            }
        }
        let detail = |key, title| Column::new(key, title).priority(Column::DETAIL);
        add_column(&mut table, detail("device_type", "Side"), shown, |r| side(r).into());
        add_column(&mut table, detail("is_user_annotation", "Annotation"), shown, |r| {
            if r.is_user_annotation { "true" } else { "false" }.into()
        });
        let rows = all - shown.len();
        table.left_out = (rows > 0).then_some(LeftOut { rows, option: "--limit -1" });
        table
    }

    fn torch_table(
        &self,
        options: &TorchOptions,
        trace: &Trace,
        averages: &KeyAverages,
        facets: &Facets,
        shown: &[&KeyAverage],
    ) -> TorchTable {
        let profile_memory = trace.info().profile_memory.unwrap_or(false) || !trace.memory().is_empty();
        let with_flops = trace.info().with_flops.unwrap_or(false);
        TorchTable {
            header: options.header.clone(),
            top_level_only: self.averages.top_level_only,
            max_widths: options.max_widths,
            rows: shown.iter().map(|row| (*row).clone()).collect(),
            ..TorchTable::over(averages, facets.accelerator.clone(), profile_memory, with_flops)
        }
    }

    fn findings(&self, trace: &Trace, averages: &KeyAverages) -> Vec<Finding> {
        let finding =
            |code, message: &str, advice: &str| Finding { code, message: message.into(), advice: advice.into() };
        let mut findings = Vec::new();
        let (info, grouped) = (trace.info(), &self.averages);
        if trace.memory().is_empty() && info.profile_memory == Some(true) {
            findings.push(finding(
                "no-memory-events",
                "Memory was profiled, but nothing was allocated or freed while the profiler ran.",
                "",
            ));
        } else if trace.memory().is_empty() {
            findings.push(finding(
                "no-memory-events",
                "The trace holds no memory events: times only.",
                "Profile with profile_memory=True to see memory.",
            ));
        }
        if grouped.group_by_input_shape
            && averages.rows.iter().all(|r| r.input_shapes.as_ref().is_none_or(|s| s == "[]"))
        {
            findings.push(finding(
                "no-shapes",
                "The trace holds no input shapes, so rows are not split by them.",
                "Profile with record_shapes=True.",
            ));
        }
        if grouped.group_by_stack_n > 0 && averages.rows.iter().all(|r| r.stack.is_empty()) {
            findings.push(finding(
                "no-stacks",
                "The trace holds no Python stacks, so rows are not split by them.",
                "Profile with with_stack=True.",
            ));
        }
        findings
    }

    fn document(
        &self,
        averages: &KeyAverages,
        facets: &Facets,
        sort: Option<&Metric>,
        all: usize,
    ) -> Map<String, Value> {
        let mut document = Map::new();
        document.insert("device".into(), self.averages.device.map(|d| d.to_string()).into());
        document.insert("accelerator".into(), facets.accelerator.as_str().into());
        document.insert("sort_by".into(), sort.map(|m| m.key).into());
        document.insert("row_count".into(), all.into());
        document.insert(
            "totals".into(),
            json!({
                "self_cpu_time_total_ns": averages.self_cpu_time_total,
                "self_device_time_total_ns": averages.self_device_time_total,
                "self_cpu_memory_usage_bytes": sum(averages, |r| r.self_cpu_memory_usage),
                "self_device_memory_usage_bytes": sum(averages, |r| r.self_device_memory_usage),
            }),
        );
        document
    }
}

impl Facets {
    /// The key of the first column to look at.
    fn best(&self) -> &'static str {
        match () {
            () if self.device_memory => "self_device_memory_usage_bytes",
            () if self.cpu_memory => "self_cpu_memory_usage_bytes",
            () if self.device_time => "self_device_time_total_ns",
            () => "self_cpu_time_total_ns",
        }
    }

    fn has(&self, whole: Whole) -> bool {
        match whole {
            Whole::DeviceMemory => self.device_memory,
            Whole::CpuMemory => self.cpu_memory,
            Whole::DeviceTime => self.device_time,
            Whole::CpuTime | Whole::Sum => true,
        }
    }

    fn title(&self, metric: &Metric) -> String {
        metric.title.replace("{}", &self.accelerator)
    }
}

/// The metric that a name means.
fn metric(name: &str) -> Result<&'static Metric> {
    let known: Vec<&str> = METRICS.iter().map(|m| m.key).collect();
    Ok(&METRICS[names::find(name, &known, "sort key")?])
}

fn add_column(table: &mut Table, column: Column, rows: &[&KeyAverage], cell: impl Fn(&KeyAverage) -> Cell) {
    table.columns.push(column);
    table.rows.resize_with(rows.len(), Vec::new);
    for (cells, row) in table.rows.iter_mut().zip(rows) {
        cells.push(cell(row));
    }
}

/// `CPU`, or the accelerator's name.
fn side(row: &KeyAverage) -> String {
    row.device_type.to_string().to_uppercase()
}

/// A cell to sort by; what is absent comes last.
pub(super) fn number(cell: &Cell) -> Option<i128> {
    match cell {
        Cell::Count(n) | Cell::Flops(n) | Cell::Address(n) | Cell::Number(n) => Some(i128::from(*n)),
        Cell::Bytes(n) | Cell::BytesChange(n) => Some(i128::from(n.0)),
        Cell::CountChange(n) => Some(i128::from(*n)),
        Cell::Nanos(n) => Some(i128::from(n.0)),
        Cell::Absent | Cell::Text(_) | Cell::Node { .. } | Cell::Ratio(_) => None,
    }
}

/// What 100 % of a metric is.
fn whole(metric: &Metric, averages: &KeyAverages) -> f64 {
    let gained = |of: fn(&KeyAverage) -> Bytes| averages.rows.iter().map(|r| of(r).0.max(0) as f64).sum();
    match metric.whole {
        Whole::CpuTime => averages.self_cpu_time_total.0 as f64,
        Whole::DeviceTime => averages.self_device_time_total.0 as f64,
        Whole::DeviceMemory => gained(|r| r.self_device_memory_usage),
        Whole::CpuMemory => gained(|r| r.self_cpu_memory_usage),
        Whole::Sum => averages.rows.iter().filter_map(|r| number(&(metric.get)(r))).map(|n| n as f64).sum(),
    }
}

fn sum(averages: &KeyAverages, of: fn(&KeyAverage) -> Bytes) -> Bytes {
    averages.rows.iter().map(of).sum()
}

/// The totals below the table.
fn totals(averages: &KeyAverages, facets: &Facets) -> Vec<(String, Cell)> {
    let device = &facets.accelerator;
    let mut totals = vec![("Self CPU time total".to_owned(), Cell::Nanos(averages.self_cpu_time_total))];
    if facets.device_time {
        totals.push((format!("Self {device} time total"), Cell::Nanos(averages.self_device_time_total)));
    }
    if facets.cpu_memory {
        totals.push(("Self CPU Mem, net".to_owned(), Cell::Bytes(sum(averages, |r| r.self_cpu_memory_usage))));
    }
    if facets.device_memory {
        totals.push((format!("Self {device} Mem, net"), Cell::Bytes(sum(averages, |r| r.self_device_memory_usage))));
    }
    totals
}

/// The greatest memory of a device, below the totals.
fn peak_facts(memory: &DeviceMemory) -> Vec<(String, Cell)> {
    let (device, about) = (memory.device(), if memory.is_estimated() { ", estimated" } else { "" });
    let peak =
        memory.peak().map(|event| (format!("Peak of {device}, allocated{about}"), memory.allocated()[event].into()));
    // The host's allocator reserves nothing.
    let reserved = memory
        .peak_reserved()
        .filter(|bytes| !bytes.is_zero())
        .map(|bytes| (format!("Peak of {device}, reserved"), bytes.into()));
    peak.into_iter().chain(reserved).collect()
}

fn peak_json(memory: &DeviceMemory) -> Value {
    json!({
        "device": memory.device().to_string(),
        "peak_allocated_bytes": memory.peak().map(|event| memory.allocated()[event]),
        "peak_reserved_bytes": memory.peak_reserved(),
        "estimated": memory.is_estimated(),
    })
}

fn rows_json(rows: &[&KeyAverage]) -> Result<Value> {
    serde_json::to_value(rows).map_err(|e| Error::from(std::io::Error::from(e)))
}
