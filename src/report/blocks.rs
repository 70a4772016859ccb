//! `blocks`: every block of memory as a row: where, how large, whose, from when to when.
//!
//! Blocks from before the trace are known by their frees alone, and stand in the list as far as they are. Grouped, a row
//! is of all blocks of a device with one key.

use super::memory::{MemoryOptions, cut, keep, lacks, oddities, shown};
use super::peak::title;
use super::sentence::sentence;
use super::{Block as Part, Cell, Column, Report, Table, names};
use crate::analysis::allocations::DeviceMemory;
use crate::analysis::grouping::{Attribution, GroupBy};
use crate::analysis::owners::AttributeTo;
use crate::analysis::peak::{Moment, resolve, trace_start};
use crate::error::{Error, Result};
use crate::trace::{Keep, Trace};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;

/// The key of blocks that were allocated before the trace.
const BEFORE: &str = "(before the trace)";

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// How allocations are attributed.
    pub memory: MemoryOptions,
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// Show a row for all blocks with the same of this, and not one for each.
    pub group_by: Option<GroupBy>,
    /// Show only blocks that are live at this moment.
    pub alive_at: Option<Moment>,
    /// Show only blocks of at least so many bytes.
    pub min_size: Bytes,
    /// What to sort by, one of [`SORTS`].
    pub sort_by: String,
    /// How many rows to show; negative for all.
    pub limit: i64,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            memory: MemoryOptions::default(),
            attribute_to: AttributeTo::default(),
            group_by: None,
            alive_at: None,
            min_size: Bytes::ZERO,
            sort_by: SORTS[0].to_owned(),
            limit: 20,
        }
    }
}

/// What blocks can be sorted by: sizes and lifetimes greatest first, times and addresses lowest first. Groups have no
/// address; they are sorted by all their bytes, their first allocation, their last free, and the longest lifetime.
pub const SORTS: [&str; 5] = ["bytes", "allocated_time_ns", "freed_time_ns", "lifetime_ns", "address"];

/// A block, not yet in words.
#[derive(Clone, Copy)]
struct Row {
    device: usize,
    address: u64,
    bytes: Bytes,
    /// The row of `Trace::memory`, and the time; `None` from before the trace.
    allocated: Option<(usize, Nanos)>,
    freed: Option<Nanos>,
}

impl Blocks {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        match self.group_by {
            Some(by) => keep(&[by], false),
            None => keep(&[GroupBy::Category], true),
        }
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events or none with addresses, or not the moment asked for.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let sort = names::find(&self.sort_by, &SORTS, "sort key")?;
        if self.group_by.is_some() && SORTS[sort] == "address" {
            return Err(Error::usage("groups of blocks have no address to sort by"));
        }
        let (memory, who) = self.memory.read(trace)?;
        let devices = self.memory.devices(&memory);
        if devices.iter().all(|m| !m.is_paired()) {
            let hint = "profile with PyTorch 1.10 or later";
            return Err(Error::missing(
                "the memory events carry no addresses, so there are no blocks to tell apart",
                hint,
            ));
        }
        let mut rows = Vec::new();
        let mut moments = 0;
        for (i, m) in devices.iter().enumerate() {
            let position = self.alive_at.map(|at| resolve(trace, m, &who, at));
            if position != Some(None) {
                moments += 1;
                let position = position.flatten().map(|(position, ..)| position);
                rows.extend(self.rows(i, m, position));
            }
        }
        if moments == 0 {
            return Err(Error::usage("the trace holds no such moment to be alive at"));
        }
        let end = devices.iter().filter_map(|m| m.time().last()).max().copied().unwrap_or_default();
        let held: Bytes = rows.iter().map(|r| r.bytes).sum();
        let total = sentence![Cell::Count(rows.len() as u64), " blocks, ", held, "."];
        let view = View { trace, who: &who, devices: &devices, options: self };
        let mut document = Map::new();
        document.insert("attribute_to".into(), self.attribute_to.name().into());
        document.insert("group_by".into(), self.group_by.map(GroupBy::name).into());
        document.insert("sort_by".into(), SORTS[sort].into());
        document.insert("block_count".into(), rows.len().into());
        document.insert("total_bytes".into(), held.0.into());
        let (mut table, all, json) = match self.group_by {
            Some(by) => {
                let groups = view.groups(&rows, by, sort);
                let chosen = &groups[..shown(self.limit, groups.len())];
                (view.group_table(chosen, by), groups.len(), chosen.iter().map(|g| view.group_json(g)).collect())
            }
            None => {
                order(&mut rows, sort, end);
                let chosen = &rows[..shown(self.limit, rows.len())];
                (view.table(chosen), rows.len(), chosen.iter().map(|r| view.json(r)).collect::<Vec<Value>>())
            }
        };
        cut(&mut table, all);
        document.insert("rows".into(), json.into());
        let mut parts = vec![Part::Table(table), Part::Text(total)];
        parts.extend(lacks(trace, &who, self.group_by.unwrap_or(GroupBy::Category)).map(Part::Finding));
        parts.extend(oddities(&memory));
        let diagnostics = memory.findings().clone();
        Ok(Report { command: "blocks", blocks: parts, document, diagnostics, ..Report::default() })
    }

    /// The blocks of a device that pass the filters.
    fn rows(&self, device: usize, m: &DeviceMemory, position: Option<usize>) -> Vec<Row> {
        let in_trace = m.blocks().iter().filter(|b| position.is_none_or(|p| b.is_live(p))).map(|b| Row {
            device,
            address: b.address,
            bytes: b.bytes,
            allocated: Some((m.events()[b.allocated()] as usize, m.time()[b.allocated()])),
            freed: b.freed().map(|f| m.time()[f]),
        });
        let before = m.early_blocks().iter().filter(|b| position.is_none_or(|p| b.freed() >= p)).map(|b| Row {
            device,
            address: b.address,
            bytes: b.bytes,
            allocated: None,
            freed: Some(m.time()[b.freed()]),
        });
        in_trace.chain(before).filter(|r| r.bytes >= self.min_size).collect()
    }
}

/// Sorts as [`SORTS`] says; `end` is when those that were not freed count as over.
fn order(rows: &mut [Row], sort: usize, end: Nanos) {
    let allocated = |r: &Row| r.allocated.map(|(_, time)| time);
    let lifetime = |r: &Row| r.freed.unwrap_or(end) - allocated(r).unwrap_or_default();
    match sort {
        0 => rows.sort_by_key(|r| Reverse(r.bytes)),
        1 => rows.sort_by_key(allocated),
        2 => rows.sort_by_key(|r| r.freed.unwrap_or(Nanos(i64::MAX))),
        3 => rows.sort_by_key(|r| Reverse((r.freed.is_none(), lifetime(r)))),
        _ => rows.sort_by_key(|r| (r.device, r.address, allocated(r))),
    }
}

/// All blocks of a device with one key.
struct Group {
    key: String,
    device: usize,
    count: u64,
    bytes: Bytes,
    largest: Bytes,
    /// The first allocation; `None` from before the trace.
    allocated: Option<Nanos>,
    /// The last free; `None` where a block outlived the trace.
    freed: Option<Nanos>,
    /// The longest of those known from end to end.
    lifetime: Option<Nanos>,
}

struct View<'a, 't> {
    trace: &'t Trace,
    who: &'a Attribution<'t>,
    devices: &'a [&'a DeviceMemory],
    options: &'a Blocks,
}

/// What is said of a block in words.
struct Words {
    owner: String,
    category: Option<String>,
    module: Option<String>,
    phase: Option<String>,
    step: Option<String>,
    thread: Option<String>,
}

impl View<'_, '_> {
    fn words(&self, row: &Row) -> Words {
        let level = self.options.attribute_to;
        let text = |by| row.allocated.map(|(event, _)| self.who.key_text(event, by, level));
        // What has no place under these is as good as absent.
        let place = |by| text(by).filter(|t: &String| !t.starts_with("(outside"));
        Words {
            owner: text(GroupBy::Op).unwrap_or_else(|| BEFORE.to_owned()),
            category: text(GroupBy::Category),
            module: place(GroupBy::Module),
            phase: text(GroupBy::Phase),
            step: place(GroupBy::Step),
            thread: text(GroupBy::Thread),
        }
    }

    fn table(&self, rows: &[Row]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let words: Vec<Words> = rows.iter().map(|r| self.words(r)).collect();
        let any_module = words.iter().any(|w| w.module.is_some());
        let start = trace_start(self.trace);
        let mut table = Table {
            columns: vec![
                Column::new("owner", "Owner"),
                column("device", "Device", if self.devices.len() > 1 { 4 } else { Column::DETAIL }),
                column("address", "Address", 3),
                column("bytes", "Size", 0),
                column("category", "Category", 6),
                column("module", "Module", if any_module { 5 } else { Column::DETAIL }),
                column("allocated_time_ns", "Allocated", 1),
                column("freed_time_ns", "Freed", 1),
                column("lifetime_ns", "Lifetime", 2),
                column("phase", "Phase", 7),
                column("step", "Step", 8),
                column("thread", "Thread", Column::DETAIL),
            ],
            ..Table::default()
        };
        for (row, words) in rows.iter().zip(words) {
            let allocated = row.allocated.map(|(_, time)| time);
            table.rows.push(vec![
                words.owner.into(),
                self.devices[row.device].device().to_string().into(),
                Cell::Address(row.address),
                row.bytes.into(),
                words.category.into(),
                words.module.into(),
                allocated.map(|t| t - start).into(),
                row.freed.map(|t| t - start).into(),
                lifetime(row).into(),
                words.phase.into(),
                words.step.into(),
                words.thread.into(),
            ]);
        }
        table
    }

    fn json(&self, row: &Row) -> Value {
        let words = self.words(row);
        json!({
            "owner": words.owner,
            "device": self.devices[row.device].device().to_string(),
            "address": row.address,
            "bytes": row.bytes,
            "category": words.category,
            "module": words.module,
            "allocated_time_ns": row.allocated.map(|(_, time)| self.trace.absolute(time)),
            "freed_time_ns": row.freed.map(|time| self.trace.absolute(time)),
            "lifetime_ns": lifetime(row),
            "phase": words.phase,
            "step": words.step,
            "thread": words.thread,
        })
    }
}

impl View<'_, '_> {
    fn groups(&self, rows: &[Row], by: GroupBy, sort: usize) -> Vec<Group> {
        let events = rows.iter().filter_map(|r| r.allocated).map(|(event, _)| event);
        let keyed = self.who.group(events, by, self.options.attribute_to);
        let mut of_event = keyed.of.iter();
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<(usize, Option<u32>), usize> = HashMap::new();
        for row in rows {
            let key = row.allocated.and_then(|_| of_event.next().copied());
            match places.entry((row.device, key)) {
                Entry::Occupied(place) => groups[*place.get()].add(row),
                Entry::Vacant(place) => {
                    place.insert(groups.len());
                    let key = key.map_or(BEFORE, |key| &keyed.keys[key as usize]);
                    groups.push(Group::of(key, row));
                }
            }
        }
        match sort {
            0 => groups.sort_by_key(|g| Reverse(g.bytes)),
            1 => groups.sort_by_key(|g| g.allocated),
            2 => groups.sort_by_key(|g| g.freed.unwrap_or(Nanos(i64::MAX))),
            _ => groups.sort_by_key(|g| Reverse(g.lifetime)),
        }
        groups
    }

    fn group_table(&self, groups: &[Group], by: GroupBy) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let start = trace_start(self.trace);
        let row = |g: &Group| {
            vec![
                g.key.as_str().into(),
                self.devices[g.device].device().to_string().into(),
                Cell::Count(g.count),
                g.bytes.into(),
                g.largest.into(),
                g.allocated.map(|t| t - start).into(),
                g.freed.map(|t| t - start).into(),
                g.lifetime.into(),
            ]
        };
        Table {
            columns: vec![
                Column::new("key", title(by)),
                column("device", "Device", if self.devices.len() > 1 { 4 } else { Column::DETAIL }),
                column("block_count", "Blocks", 0),
                column("bytes", "Size", 0),
                column("largest_bytes", "Largest", 2),
                column("first_allocated_time_ns", "First allocated", 3),
                column("last_freed_time_ns", "Last freed", 3),
                column("longest_lifetime_ns", "Longest lifetime", 1),
            ],
            rows: groups.iter().map(row).collect(),
            ..Table::default()
        }
    }

    fn group_json(&self, group: &Group) -> Value {
        json!({
            "key": group.key,
            "device": self.devices[group.device].device().to_string(),
            "block_count": group.count,
            "bytes": group.bytes,
            "largest_bytes": group.largest,
            "first_allocated_time_ns": group.allocated.map(|time| self.trace.absolute(time)),
            "last_freed_time_ns": group.freed.map(|time| self.trace.absolute(time)),
            "longest_lifetime_ns": group.lifetime,
        })
    }
}

impl Group {
    fn of(key: &str, row: &Row) -> Self {
        Self {
            key: key.to_owned(),
            device: row.device,
            count: 1,
            bytes: row.bytes,
            largest: row.bytes,
            allocated: row.allocated.map(|(_, time)| time),
            freed: row.freed,
            lifetime: lifetime(row),
        }
    }

    fn add(&mut self, row: &Row) {
        self.count += 1;
        self.bytes += row.bytes;
        self.largest = self.largest.max(row.bytes);
        self.allocated = self.allocated.min(row.allocated.map(|(_, time)| time));
        self.freed = self.freed.zip(row.freed).map(|(a, b)| a.max(b));
        self.lifetime = self.lifetime.max(lifetime(row));
    }
}

/// `None` where one end of it is not in the trace.
fn lifetime(row: &Row) -> Option<Nanos> {
    Some(row.freed? - row.allocated?.1)
}
