//! `tree`: which operator called which, with the memory and the time of each.
//!
//! What the numbers mean stands in [`call_tree`](crate::analysis::call_tree). Here the nodes that matter most are picked
//! and named: from the roots down, always the largest next, so that every node shown hangs on one that is shown.

use super::memory::{cut, shown, to_json};
use super::top::number;
use super::{Block, Cell, Column, Finding, Report, Table, names};
use crate::analysis::call_tree::{CallTree, CallTreeOptions, Costs, NodeChildren};
use crate::analysis::paths::Paths;
use crate::error::{Error, Result};
use crate::trace::{Keep, Trace};
use crate::units::Bytes;
use regex::Regex;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Tree {
    /// What to count, and whether calls of one path are one node.
    pub tree: CallTreeOptions,
    /// The column that decides which nodes are shown, and their order among siblings: greatest first. Where it is not
    /// given: what is live at the peak, or the next best that the trace holds.
    pub sort_by: Option<String>,
    /// Leave out nodes that allocate less than this, with all below them.
    pub min_memory: Bytes,
    /// Leave out nodes deeper than this; 0 for none.
    pub depth: usize,
    /// Show only nodes whose name matches, what is around them and what is in them.
    pub filter: Option<Regex>,
    /// How many nodes to show; negative for all.
    pub limit: i64,
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            tree: CallTreeOptions::default(),
            sort_by: None,
            min_memory: Bytes::ZERO,
            depth: 0,
            filter: None,
            limit: 40,
        }
    }
}

/// A number of a node.
struct Metric {
    key: &'static str,
    /// For people, where `{}` is the accelerator.
    title: &'static str,
    priority: u8,
    /// From what it costs with and without its children.
    get: fn(&Costs, &Costs) -> Cell,
}

const fn metric(key: &'static str, title: &'static str, priority: u8, get: fn(&Costs, &Costs) -> Cell) -> Metric {
    Metric { key, title, priority, get }
}

/// Everything that nodes can be sorted by, in the order of the columns.
const METRICS: &[Metric] = &[
    metric("peak_live_bytes", "Live at Peak", 1, |t, _| t.peak_live.into()),
    metric("self_peak_live_bytes", "Self Live", 7, |_, s| s.peak_live.into()),
    metric("allocated_bytes", "Allocated", 2, |t, _| t.allocated.into()),
    metric("self_allocated_bytes", "Self Alloc", 8, |_, s| s.allocated.into()),
    metric("allocation_count", "Allocs", 12, |t, _| Cell::Count(t.allocations)),
    metric("device_memory_usage_bytes", "{} Mem", 6, |t, _| t.device_memory.into()),
    metric("self_device_memory_usage_bytes", "Self {} Mem", 9, |_, s| s.device_memory.into()),
    metric("cpu_memory_usage_bytes", "CPU Mem", 10, |t, _| t.cpu_memory.into()),
    metric("self_cpu_memory_usage_bytes", "Self CPU Mem", 11, |_, s| s.cpu_memory.into()),
    metric("device_time_total_ns", "{} total", 3, |t, _| t.device_time.into()),
    metric("self_device_time_total_ns", "Self {}", 13, |_, s| s.device_time.into()),
    metric("cpu_time_total_ns", "CPU total", 5, |t, _| t.cpu_time.into()),
    metric("self_cpu_time_total_ns", "Self CPU", 14, |_, s| s.cpu_time.into()),
];

impl Tree {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        Keep { frames: false, details: false, ..Keep::REPORTS }
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where [`sort_by`](Self::sort_by) names no column, or the trace holds no operators and no memory.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let known: Vec<&str> = METRICS.iter().map(|m| m.key).chain(["count"]).collect();
        let chosen = self.sort_by.as_deref().map(|name| names::find(name, &known, "sort key")).transpose()?;
        let calls = CallTree::compute(trace, &self.tree);
        if calls.paths.len() == 1 {
            let hint = "wrap the code to look at in `with torch.profiler.profile():`";
            return Err(Error::missing("the trace holds no operators and no memory events", hint));
        }
        let sort = known[chosen.unwrap_or_else(|| best(&calls))];
        let view = View { options: self, trace, calls: &calls, children: calls.children(), sort };
        let passing = view.passing();
        let picked = view.picked(&passing);
        let all = passing.iter().filter(|p| **p).count();
        let accelerator = self.tree.device.map_or(trace.accelerator(), |d| d.kind).to_string().to_uppercase();
        let mut table = view.table(&picked, &accelerator);
        cut(&mut table, all);
        let total = &calls.total[0];
        let mut facts = vec![
            ("Self CPU time total".to_owned(), total.cpu_time.into()),
            (format!("Self {accelerator} time total"), total.device_time.into()),
        ];
        if !trace.memory().is_empty() {
            facts.push(("Allocated".to_owned(), total.allocated.into()));
            facts.push(("Live at Peak, from the trace".to_owned(), total.peak_live.into()));
        }
        let mut blocks = vec![Block::Table(table), Block::Facts(facts)];
        blocks.extend(lacks(trace).map(Block::Finding));
        let document = view.document(&picked, all)?;
        Ok(Report { command: "tree", blocks, document, ..Report::default() })
    }
}

/// The place of the first column that tells something.
fn best(calls: &CallTree) -> usize {
    let total = &calls.total[0];
    let wanted = match () {
        () if calls.peak_is_known && total.peak_live.0 > 0 => "peak_live_bytes",
        () if total.allocated.0 > 0 => "allocated_bytes",
        () if total.device_time.0 > 0 => "device_time_total_ns",
        () => "cpu_time_total_ns",
    };
    METRICS.iter().position(|m| m.key == wanted).unwrap_or(0)
}

fn lacks(trace: &Trace) -> Option<Finding> {
    let (message, advice) = match trace.info().profile_memory {
        _ if !trace.memory().is_empty() => return None,
        Some(true) => ("Memory was profiled, but nothing was allocated or freed while the profiler ran.", ""),
        _ => ("The trace holds no memory events: times only.", "Profile with profile_memory=True to see memory."),
    };
    Some(Finding { code: "no-memory-events", message: message.into(), advice: advice.into() })
}

struct View<'a> {
    options: &'a Tree,
    trace: &'a Trace,
    calls: &'a CallTree,
    children: NodeChildren,
    sort: &'static str,
}

impl View<'_> {
    /// Which nodes the options leave; the parent of each is one of them.
    fn passing(&self) -> Vec<bool> {
        let paths = &self.calls.paths;
        let len = paths.len();
        let most =
            if self.options.depth == 0 { u32::MAX } else { u32::try_from(self.options.depth).unwrap_or(u32::MAX) };
        let mut passing = vec![true; len];
        if let Some(filter) = &self.options.filter {
            let mut inside = vec![false; len];
            for node in 1..len as u32 {
                inside[node as usize] =
                    inside[paths.parent(node) as usize] || filter.is_match(&paths.label(node).text(self.trace));
            }
            passing = inside;
            for node in (1..len as u32).rev().filter(|n| passing[*n as usize]).collect::<Vec<_>>() {
                let mut at = paths.parent(node);
                while !std::mem::replace(&mut passing[at as usize], true) {
                    at = paths.parent(at);
                }
            }
        }
        passing[0] = false;
        for node in 1..len as u32 {
            let (at, parent) = (node as usize, paths.parent(node));
            passing[at] &= (parent == Paths::ROOT || passing[parent as usize])
                && paths.depth(node) <= most
                && self.calls.total[at].allocated >= self.options.min_memory;
        }
        passing
    }

    /// The nodes to show, in the order of the page.
    fn picked(&self, passing: &[bool]) -> Vec<u32> {
        let order = |node: u32| (self.value(node), Reverse(node));
        let below = |node: u32| self.children.of(node).iter().copied().filter(|c| passing[*c as usize]);
        let limit = shown(self.options.limit, self.calls.paths.len());
        let mut picked = vec![false; self.calls.paths.len()];
        let mut next: BinaryHeap<_> = below(Paths::ROOT).map(order).collect();
        for _ in 0..limit {
            let Some((_, Reverse(node))) = next.pop() else { break };
            picked[node as usize] = true;
            next.extend(below(node).map(order));
        }
        let mut page = Vec::new();
        let mut open = vec![Paths::ROOT];
        while let Some(node) = open.pop() {
            if node != Paths::ROOT {
                page.push(node);
            }
            let mut shown: Vec<u32> = below(node).filter(|c| picked[*c as usize]).collect();
            shown.sort_by_key(|c| order(*c));
            open.extend(shown);
        }
        page
    }

    /// What a node is sorted by.
    fn value(&self, node: u32) -> i128 {
        let at = node as usize;
        let metric = METRICS.iter().find(|m| m.key == self.sort);
        let cell =
            metric.map_or(Cell::Count(self.calls.count[at]), |m| (m.get)(&self.calls.total[at], &self.calls.own[at]));
        number(&cell).unwrap_or(i128::MIN)
    }

    fn cell(&self, metric: &Metric, node: u32) -> Cell {
        let at = node as usize;
        if metric.key.ends_with("peak_live_bytes") && !self.calls.peak_is_known {
            return Cell::Absent;
        }
        (metric.get)(&self.calls.total[at], &self.calls.own[at])
    }

    fn table(&self, picked: &[u32], accelerator: &str) -> Table {
        let paths = &self.calls.paths;
        let name = |node: u32| paths.label(node).text(self.trace).into_owned();
        let mut columns = vec![Column::new("key", "Name")];
        let node = |node: &u32| vec![Cell::Node { name: name(*node), depth: paths.depth(*node) as usize - 1 }];
        let mut rows: Vec<Vec<Cell>> = picked.iter().map(node).collect();
        let has_memory = !self.trace.memory().is_empty();
        for metric in METRICS {
            let cells: Vec<Cell> = picked.iter().map(|n| self.cell(metric, *n)).collect();
            let priority = match () {
                () if metric.key == self.sort => 0,
                () if cells.iter().all(|c| *c == Cell::Absent) => Column::DETAIL,
                () if !has_memory && !metric.key.ends_with("_ns") => Column::DETAIL,
                // A column of zeros tells the least.
                () if cells.iter().all(|c| number(c) == Some(0)) => Column::DETAIL / 2,
                () => metric.priority,
            };
            columns.push(Column::new(metric.key, metric.title.replace("{}", accelerator)).priority(priority));
            rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
        }
        columns.push(Column::new("count", "Calls").priority(if self.sort == "count" { 0 } else { 4 }));
        columns.push(Column::new("depth", "Depth").priority(Column::DETAIL));
        columns.push(Column::new("path", "Path").priority(Column::DETAIL));
        for (row, node) in rows.iter_mut().zip(picked) {
            row.push(Cell::Count(self.calls.count[*node as usize]));
            row.push(Cell::Count(u64::from(paths.depth(*node) - 1)));
            row.push(paths.path(*node).into_iter().map(name).collect::<Vec<_>>().join(" > ").into());
        }
        Table { columns, rows, ..Table::default() }
    }

    fn document(&self, picked: &[u32], all: usize) -> Result<Map<String, Value>> {
        let paths = &self.calls.paths;
        let name = |node: u32| paths.label(node).text(self.trace).into_owned();
        let mut rows: Vec<Value> = Vec::with_capacity(picked.len());
        for node in picked {
            let mut row = Map::new();
            row.insert("key".into(), name(*node).into());
            row.insert("depth".into(), (paths.depth(*node) - 1).into());
            row.insert("path".into(), paths.path(*node).into_iter().map(name).collect::<Vec<_>>().into());
            row.insert("count".into(), self.calls.count[*node as usize].into());
            self.insert_metrics(&mut row, |metric| self.cell(metric, *node))?;
            rows.push(row.into());
        }
        let mut totals = Map::new();
        self.insert_metrics(&mut totals, |metric| self.cell(metric, Paths::ROOT))?;
        totals.retain(|key, _| !key.starts_with("self_"));
        let mut document = Map::new();
        document.insert("device".into(), self.options.tree.device.map(|d| d.to_string()).into());
        document.insert("raw".into(), self.options.tree.raw.into());
        document.insert("sort_by".into(), self.sort.into());
        document.insert("row_count".into(), json!(all));
        document.insert("totals".into(), totals.into());
        document.insert("rows".into(), rows.into());
        Ok(document)
    }

    fn insert_metrics(&self, into: &mut Map<String, Value>, cell: impl Fn(&Metric) -> Cell) -> Result<()> {
        for metric in METRICS {
            let value = match number(&cell(metric)) {
                Some(n) => to_json(&i64::try_from(n).unwrap_or(i64::MAX))?,
                None => Value::Null,
            };
            into.insert(metric.key.into(), value);
        }
        Ok(())
    }
}
