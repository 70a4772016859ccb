//! `timeline`: memory over time, as a picture, as a chart of characters, or every point of it.
//!
//! What the numbers mean stands in [`timeline`](crate::analysis::timeline).

use super::memory::{MemoryOptions, keep, lacks, oddities, to_json};
use super::peak::title;
use super::sentence::sentence;
use super::{Block, Cell, Column, Figure, Report, Table};
use crate::analysis::grouping::GroupBy;
use crate::analysis::timeline::{DeviceTimeline, Timeline, TimelineOptions, Unattributed, timeline};
use crate::error::Result;
use crate::trace::{Keep, Trace};
use crate::units::{Bytes, Nanos};
use serde_json::{Map, Value, json};

/// The options of the report.
#[derive(Clone, Debug, Default)]
pub struct MemoryTimeline {
    /// What to show over time.
    pub timeline: TimelineOptions,
    /// How allocations are attributed.
    pub memory: MemoryOptions,
    /// Whether people look at it, or programs, which get a table of all points.
    pub for_programs: bool,
    /// The name of the input, to be told in the picture.
    pub source: String,
    /// Where the scale of memory ends, so that pictures can be compared; `None` just above what there is.
    pub max_memory: Option<Bytes>,
    /// The width of the picture, in pixels.
    pub width: Option<u32>,
    /// The height of the picture, in pixels, or of the chart, in lines.
    pub height: Option<u32>,
}

/// Memory over time, with a panel for each device.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryFigure {
    /// What it shows.
    pub title: String,
    /// The name of the input; empty where there is none.
    pub source: String,
    /// The numbers.
    pub timeline: Timeline,
    /// What the total is called: allocated, or used.
    pub total: &'static str,
    /// What times count from.
    pub zero: &'static str,
    /// Where the scale of memory ends; `None` just above what there is.
    pub max_memory: Option<Bytes>,
    /// The width in pixels, where it is given.
    pub width: Option<u32>,
    /// The height in pixels, or in lines, where it is given.
    pub height: Option<u32>,
}

impl MemoryTimeline {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        keep(&[self.timeline.group_by.unwrap_or(GroupBy::Category)], false)
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, or nothing of the window.
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let (memory, who) = self.memory.read(trace)?;
        let by = self.timeline.grouping(trace);
        let options = TimelineOptions { device: self.memory.device, ..self.timeline.clone() };
        let mut timeline = timeline(trace, &memory, &who, &options)?;
        let mut report = Report { command: "timeline", diagnostics: memory.findings().clone(), ..Report::default() };
        if self.for_programs {
            report.document = self.document(trace, &timeline)?;
            report.blocks.push(Block::Table(points(&timeline)));
        } else {
            let hidden = hide_minor(&mut timeline.devices);
            report.figure = Some(Figure::Memory(Box::new(self.figure(timeline.clone(), by))));
            report.blocks.push(Block::Table(self.at_the_peak(&timeline, by)));
            report.blocks.extend(hidden.iter().map(|d| {
                let peak = d.peak.allocated_bytes;
                let option = format!(" at most (--device {} shows it).", d.device);
                Block::Text(sentence![d.device.as_str(), " is left out: it holds ", peak, option])
            }));
        }
        report.blocks.extend(lacks(trace, &who, by).map(Block::Finding));
        report.blocks.extend(oddities(&memory));
        Ok(report)
    }

    fn figure(&self, timeline: Timeline, by: GroupBy) -> MemoryFigure {
        MemoryFigure {
            title: format!("Memory by {}", by.name()),
            source: self.source.clone(),
            timeline,
            total: "allocated",
            zero: "the trace's first event",
            max_memory: self.max_memory,
            width: self.width,
            height: self.height,
        }
    }

    /// What the series hold at the peak of each device.
    fn at_the_peak(&self, timeline: &Timeline, by: GroupBy) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let several = timeline.devices.len() > 1;
        let mut table = Table {
            title: "At the peak".into(),
            columns: vec![
                Column::new("key", title(by)),
                column("device", "Device", if several { 1 } else { Column::DETAIL }),
                column("peak_live_bytes", "Live", 0),
                column("share", "Share", 2),
                column("most_bytes", "At most", 3),
            ],
            ..Table::default()
        };
        for d in &timeline.devices {
            let all = d.peak.allocated_bytes;
            let share = |b: Bytes| if all.0 > 0 { Cell::Ratio(b.0 as f64 / all.0 as f64) } else { Cell::Absent };
            let device = || Cell::from(d.device.as_str());
            for s in d.series.iter().filter(|s| s.groups > 0) {
                let bytes = s.peak_live_bytes;
                table.rows.push(vec![s.name().into(), device(), bytes.into(), share(bytes), s.most_bytes.into()]);
            }
            let before = d.peak.before_trace_bytes;
            if !before.is_zero() {
                table.rows.push(vec![before_name(d).into(), device(), before.into(), share(before), Cell::Absent]);
            }
        }
        table
    }

    fn document(&self, trace: &Trace, timeline: &Timeline) -> Result<Map<String, Value>> {
        let absolute = |t: Nanos| trace.absolute(t);
        let stretches = |list: &[crate::analysis::timeline::Stretch]| -> Vec<Value> {
            let one = |s: &crate::analysis::timeline::Stretch| json!({"name": s.name, "start_ns": absolute(s.start_ns), "end_ns": absolute(s.end_ns)});
            list.iter().map(one).collect()
        };
        let mut document = Map::new();
        document.insert("group_by".into(), self.timeline.grouping(trace).name().into());
        document.insert("attribute_to".into(), self.timeline.attribute_to.name().into());
        document.insert("start_ns".into(), to_json(&absolute(timeline.start_ns))?);
        document.insert("end_ns".into(), to_json(&absolute(timeline.end_ns))?);
        document.insert("steps".into(), stretches(&timeline.steps).into());
        document.insert("phases".into(), stretches(&timeline.phases).into());
        let devices: Vec<Value> = timeline.devices.iter().map(|d| device_document(trace, d)).collect();
        document.insert("devices".into(), devices.into());
        Ok(document)
    }
}

fn device_document(trace: &Trace, d: &DeviceTimeline) -> Value {
    let series = d.series.iter().enumerate().filter(|(_, s)| s.groups > 0).map(|(i, s)| {
        let live: Vec<Bytes> = (0..d.points.len()).map(|p| d.live(p)[i]).collect();
        json!({"key": s.name(), "groups": s.groups, "peak_live_bytes": s.peak_live_bytes, "most_bytes": s.most_bytes,
               "live_bytes": live})
    });
    let failures = d
        .out_of_memory
        .iter()
        .map(|f| json!({"time_ns": trace.absolute(f.time_ns), "requested_bytes": f.requested_bytes}));
    json!({
        "device": d.device,
        "estimated": d.estimated,
        "capacity_bytes": d.capacity_bytes,
        "peak_allocated_bytes": d.peak.allocated_bytes,
        "peak_time_ns": trace.absolute(d.peak.time_ns),
        "peak_before_trace_bytes": d.peak.before_trace_bytes,
        "peak_step": d.peak.step,
        "peak_phase": d.peak.phase,
        "peak_operator": d.peak.operator,
        "out_of_memory": failures.collect::<Vec<_>>(),
        "out_of_memory_count": d.out_of_memory_count,
        "time_ns": d.points.iter().map(|p| trace.absolute(p.time_ns)).collect::<Vec<_>>(),
        "allocated_bytes": d.points.iter().map(|p| p.allocated_bytes).collect::<Vec<_>>(),
        "reserved_bytes": d.points.iter().map(|p| p.reserved_bytes).collect::<Vec<_>>(),
        "before_trace_bytes": d.points.iter().map(|p| p.before_trace_bytes).collect::<Vec<_>>(),
        "series": series.collect::<Vec<_>>(),
    })
}

/// What is called that belongs to no series.
pub fn before_name(d: &DeviceTimeline) -> &'static str {
    match d.unattributed {
        Unattributed::BeforeTrace => "(before the trace)",
        Unattributed::BlocksNotKnown => "(blocks not known)",
        Unattributed::NoProcess => "(no process seen)",
    }
}

/// Takes out the devices, mostly the host, that hold next to nothing beside another.
fn hide_minor(devices: &mut Vec<DeviceTimeline>) -> Vec<DeviceTimeline> {
    let most = devices.iter().map(|d| d.peak.allocated_bytes).max().unwrap_or_default();
    let minor = |d: &DeviceTimeline| d.peak.allocated_bytes.0 < most.0 / 100 && d.out_of_memory.is_empty();
    let (hidden, shown) = std::mem::take(devices).into_iter().partition(minor);
    *devices = shown;
    hidden
}

/// Every point, with a column for each series of any device.
fn points(timeline: &Timeline) -> Table {
    let mut keys: Vec<String> = Vec::new();
    for s in timeline.devices.iter().flat_map(|d| &d.series).filter(|s| s.groups > 0) {
        if !keys.contains(&s.name()) {
            keys.push(s.name());
        }
    }
    let fixed = ["device", "time_ns", "allocated_bytes", "reserved_bytes", "before_trace_bytes"];
    let columns = fixed.into_iter().map(str::to_owned).chain(keys.iter().cloned());
    let mut table = Table { columns: columns.map(|key| Column::new(key.clone(), key)).collect(), ..Table::default() };
    for d in &timeline.devices {
        let place: Vec<Option<usize>> = keys.iter().map(|k| d.series.iter().position(|s| s.name() == *k)).collect();
        table.rows.extend(d.points.iter().enumerate().map(|(i, p)| {
            let live = d.live(i);
            let head: [Cell; 5] = [
                d.device.as_str().into(),
                (p.time_ns - timeline.trace_start_ns).into(),
                p.allocated_bytes.into(),
                p.reserved_bytes.into(),
                p.before_trace_bytes.into(),
            ];
            head.into_iter().chain(place.iter().map(|s| s.map(|s| live[s]).into())).collect()
        }));
    }
    table
}
