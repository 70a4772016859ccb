//! `flamegraph`: where memory or time goes, by step, module, Python frame and operator, as a picture or as stacks.
//!
//! What the paths are stands in [`flame`](crate::analysis::flame). Values below 0, which only net memory has, cannot be
//! drawn: they are left out and said so.

use super::memory::{cut, shown};
use super::sentence::sentence;
use super::{Block, Cell, Column, Figure, Finding, Report, Sentence, Table, names};
use crate::analysis::context::FrameName;
use crate::analysis::flame::{Flame, FlameOptions, Metric, PythonFrames};
use crate::error::{Error, Result};
use crate::trace::{Device, Keep, Trace};
use crate::units::{Bytes, Nanos};
use serde_json::{Map, Value, json};

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Flamegraph {
    /// What to measure, by any of its names. Where it is not given: what is live at the peak, or the next best that the
    /// trace holds.
    pub metric: Option<String>,
    /// Which Python frames are on the paths.
    pub python: PythonFrames,
    /// What they are told apart by.
    pub frames: FrameName,
    /// Only this device.
    pub device: Option<Device>,
    /// How many paths the table shows; negative for all. The picture, the stacks and JSON have all.
    pub limit: i64,
    /// What the picture is called; empty for a title that tells what is measured.
    pub title: String,
}

impl Default for Flamegraph {
    fn default() -> Self {
        let (python, frames) = (PythonFrames::default(), FrameName::default());
        Self { metric: None, python, frames, device: None, limit: 20, title: String::new() }
    }
}

/// What a flame graph counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanos,
    /// Allocations.
    Count,
}

impl Unit {
    fn cell(self, value: u64) -> Cell {
        let signed = i64::try_from(value).unwrap_or(i64::MAX);
        match self {
            Self::Bytes => Bytes(signed).into(),
            Self::Nanos => Nanos(signed).into(),
            Self::Count => Cell::Count(value),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nanos => "ns",
            Self::Count => "count",
        }
    }
}

/// A flame graph to draw.
#[derive(Clone, Debug)]
pub struct FlameFigure {
    /// What it shows.
    pub title: String,
    /// The whole, and what is left out of it.
    pub subtitle: Sentence,
    /// What the values are.
    pub unit: Unit,
    /// The nodes; a parent stands before its children.
    pub nodes: Vec<FlameNode>,
}

/// A node of a flame graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameNode {
    /// Its name.
    pub name: String,
    /// The node that it stands on; `None` for the lowest.
    pub parent: Option<usize>,
    /// What it measures without the nodes on it.
    pub value: u64,
}

/// What a trace needs for a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Memory,
    Addresses,
    Kernels,
    Ops,
}

struct Measure {
    key: &'static str,
    title: &'static str,
    unit: Unit,
    needs: Needs,
    metric: Metric,
}

/// All that can be measured, best first.
const MEASURES: &[Measure] = &[
    Measure {
        key: "live_at_peak_bytes",
        title: "Memory live at the peak",
        unit: Unit::Bytes,
        needs: Needs::Addresses,
        metric: Metric::LiveAtPeak,
    },
    Measure {
        key: "allocated_bytes",
        title: "Memory allocated",
        unit: Unit::Bytes,
        needs: Needs::Memory,
        metric: Metric::Allocated,
    },
    Measure {
        key: "self_device_time_total_ns",
        title: "Device time",
        unit: Unit::Nanos,
        needs: Needs::Kernels,
        metric: Metric::Cost(|c| c.device_time.0),
    },
    Measure {
        key: "self_cpu_time_total_ns",
        title: "CPU time",
        unit: Unit::Nanos,
        needs: Needs::Ops,
        metric: Metric::Cost(|c| c.cpu_time.0),
    },
    Measure {
        key: "allocation_count",
        title: "Allocations",
        unit: Unit::Count,
        needs: Needs::Memory,
        metric: Metric::Allocations,
    },
    Measure {
        key: "self_device_memory_usage_bytes",
        title: "Device memory, net",
        unit: Unit::Bytes,
        needs: Needs::Memory,
        metric: Metric::Cost(|c| c.device_memory.0),
    },
    Measure {
        key: "self_cpu_memory_usage_bytes",
        title: "CPU memory, net",
        unit: Unit::Bytes,
        needs: Needs::Memory,
        metric: Metric::Cost(|c| c.cpu_memory.0),
    },
];

impl Flamegraph {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        Keep { details: false, ..Keep::REPORTS }
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where [`metric`](Self::metric) is none that there is, or the trace holds nothing to measure.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let measure = self.measure(trace)?;
        let options =
            FlameOptions { metric: measure.metric, python: self.python, frames: self.frames, device: self.device };
        let flame = Flame::compute(trace, &options);
        let figure = self.figure(trace, &flame, measure);
        let below: i64 = flame.own.iter().filter(|v| **v < 0).fold(0, |sum, v| sum.saturating_add(*v));
        let left_out = flame.own.iter().filter(|v| **v < 0).count();
        let total = figure.total();
        if total == 0 {
            let what = format!("there is nothing to draw: no path has any {}", measure.key);
            return Err(Error::missing(what, "--metric takes another measure"));
        }
        let mut blocks = vec![Block::Table(self.table(&flame, &figure))];
        blocks.push(Block::Facts(vec![(measure.title.to_owned(), measure.unit.cell(total))]));
        blocks.extend(self.findings(trace).map(Block::Finding));
        if left_out > 0 {
            let message = sentence![
                Cell::Count(left_out as u64),
                " paths with values below 0, of ",
                Bytes(below),
                " together, are left out: a flame graph cannot draw them."
            ];
            let advice = "--metric allocated and live_at_peak count no frees.".into();
            blocks.push(Block::Finding(Finding { code: "negative-left-out", message, advice }));
        }
        let mut document = Map::new();
        document.insert("metric".into(), measure.key.into());
        document.insert("unit".into(), measure.unit.name().into());
        document.insert("device".into(), self.device.map(|d| d.to_string()).into());
        document.insert("python".into(), self.python.name().into());
        document.insert("group_by".into(), self.frames.name().into());
        document.insert("total".into(), total.into());
        document.insert("left_out".into(), json!({"paths": left_out, "value": below}));
        document.insert("rows".into(), rows(&flame, &figure).into());
        let figure = Some(Figure::Flame(figure));
        Ok(Report { command: "flamegraph", blocks, document, figure, ..Report::default() })
    }

    fn measure(&self, trace: &Trace) -> Result<&'static Measure> {
        let Some(name) = &self.metric else {
            let found = MEASURES.iter().find(|m| m.lacks(trace).is_none());
            return found.ok_or_else(|| no_ops(trace));
        };
        // What `top` calls the same.
        let name = if name.starts_with("peak_live") { "live_at_peak" } else { name };
        let known: Vec<&str> = MEASURES.iter().map(|m| m.key).collect();
        let measure = &MEASURES[names::find(name, &known, "metric")?];
        measure.lacks(trace).map_or(Ok(measure), Err)
    }

    fn figure(&self, trace: &Trace, flame: &Flame, measure: &Measure) -> FlameFigure {
        let node = |node: u32| FlameNode {
            name: flame.paths.label(node).text(trace).into_owned(),
            parent: (flame.paths.parent(node) as usize).checked_sub(1),
            value: u64::try_from(flame.own[node as usize]).unwrap_or(0),
        };
        let nodes: Vec<FlameNode> = (1..flame.paths.len() as u32).map(node).collect();
        let of = self.device.map(|d| format!(" of {d}")).unwrap_or_default();
        let title = if self.title.is_empty() { format!("{}{of}", measure.title) } else { self.title.clone() };
        let mut figure = FlameFigure { title, subtitle: Sentence::default(), unit: measure.unit, nodes };
        let below: i64 = flame.own.iter().filter(|v| **v < 0).fold(0, |sum, v| sum.saturating_add(*v));
        figure.subtitle = sentence![measure.unit.cell(figure.total()), " in all"];
        if below < 0 {
            figure.subtitle = figure.subtitle.and("; left out: ").and(Bytes(below)).and(" of paths below 0");
        }
        figure
    }

    fn table(&self, flame: &Flame, figure: &FlameFigure) -> Table {
        let mut order: Vec<usize> = (0..figure.nodes.len()).filter(|i| figure.nodes[*i].value > 0).collect();
        order.sort_by_key(|i| std::cmp::Reverse(figure.nodes[*i].value));
        let columns = vec![
            Column::new("path", "Path"),
            Column::new(format!("value_{}", figure.unit.name()), "Self"),
            Column::new("share", "Share").priority(1),
        ];
        let total = figure.total();
        let row = |i: &usize| {
            let value = figure.nodes[*i].value;
            vec![
                path(flame, figure, *i).join(" > ").into(),
                figure.unit.cell(value),
                Cell::Ratio(value as f64 / total as f64),
            ]
        };
        let rows = order[..shown(self.limit, order.len())].iter().map(row).collect();
        let mut table = Table { columns, rows, ..Table::default() };
        cut(&mut table, order.len());
        table
    }

    fn findings(&self, trace: &Trace) -> impl Iterator<Item = Finding> {
        let no_frames = trace.frames().is_empty() && !trace.has_stacks();
        let message = if self.python == PythonFrames::None {
            "The trace holds no modules and no Python frames: paths are of operators alone."
        } else {
            "The trace holds no Python frames, so none are on the paths."
        };
        let advice = "Profile with with_stack=True.".into();
        no_frames.then(|| Finding { code: "no-stacks", message: message.into(), advice }).into_iter()
    }
}

impl FlameFigure {
    /// The sum of all values.
    pub fn total(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.value))
    }
}

impl Measure {
    /// What the trace lacks to measure this.
    fn lacks(&self, trace: &Trace) -> Option<Error> {
        let memory = trace.memory();
        match self.needs {
            Needs::Memory | Needs::Addresses if memory.is_empty() => {
                let hint = "profile with profile_memory=True";
                Some(Error::missing(format!("the trace holds no memory events for {}", self.key), hint))
            }
            Needs::Addresses if memory.address().iter().all(|a| *a == 0) => {
                let hint = "profile with PyTorch 1.12 or later; --metric allocated needs no addresses";
                Some(Error::missing("the memory events carry no addresses, so nobody can tell what is live", hint))
            }
            Needs::Kernels if trace.device_events().is_empty() => {
                let hint = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]";
                Some(Error::missing(format!("the trace holds no kernels for {}", self.key), hint))
            }
            Needs::Ops if trace.ops().is_empty() => Some(no_ops(trace)),
            _ => None,
        }
    }
}

fn no_ops(_: &Trace) -> Error {
    Error::missing("the trace holds no operators and no memory events", "profile with profile_memory=True")
}

fn path<'f>(flame: &Flame, figure: &'f FlameFigure, node: usize) -> Vec<&'f str> {
    flame.paths.path(node as u32 + 1).iter().map(|at| figure.nodes[*at as usize - 1].name.as_str()).collect()
}

/// Every path that has a value.
fn rows(flame: &Flame, figure: &FlameFigure) -> Vec<Value> {
    let valued = figure.nodes.iter().enumerate().filter(|(_, node)| node.value > 0);
    valued.map(|(i, node)| json!({"path": path(flame, figure, i), "value": node.value})).collect()
}
