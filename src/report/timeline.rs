//! `timeline`: memory over time, as a picture, as a chart of characters, or every point of it.
//!
//! What the numbers mean stands in [`timeline`](crate::analysis::timeline).

use super::memory::{MemoryOptions, keep, lacks, oddities, to_json};
use super::peak::title;
use super::reconcile::{apart, cards_of_run, meets, not_seen};
use super::sentence::sentence;
use super::{Block, Cell, Column, Figure, Report, Table};
use crate::analysis::card::{RunMemory, cards};
use crate::analysis::grouping::GroupBy;
use crate::analysis::host::host_timeline;
use crate::analysis::timeline::{
    DeviceTimeline, Measure, Point, Timeline, TimelineOptions, Unattributed, Window, timeline,
};
use crate::error::{Error, Result};
use crate::trace::host_memory::HostMemory;
use crate::trace::smi::SmiLog;
use crate::trace::{Diagnostics, Keep, Trace};
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
        self.run_beside(trace, &Beside::default())
    }

    /// The report, with what others saw on the same axis of time.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, or nothing of the window; where others are to stand beside it and it tells
    /// no wall-clock time, or shares no moment with them.
    pub fn run_beside(&self, trace: &Trace, beside: &Beside) -> Result<Report> {
        let (memory, who) = self.memory.read(trace)?;
        let by = self.timeline.grouping(trace);
        let options = TimelineOptions { device: self.memory.device, ..self.timeline.clone() };
        let mut timeline = timeline(trace, &memory, &who, &options)?;
        let hidden = if self.for_programs { Vec::new() } else { hide_minor(&mut timeline.devices) };
        let mut notes: Vec<Block> = hidden.iter().map(left_out).collect();
        if !beside.is_empty() {
            if !trace.is_wall_clock(timeline.trace_start_ns) {
                return Err(Error::missing(
                    "the trace tells no wall-clock time, so nothing can be laid beside it",
                    "profile with torch 2.3 or later (baseTimeNanoseconds), or record a snapshot's history",
                ));
            }
            timeline.shift(trace.absolute(Nanos::ZERO) + beside.offset);
            notes.extend(beside.lay(&mut timeline, self.timeline.window == Window::default())?);
        } else if self.for_programs {
            timeline.shift(trace.absolute(Nanos::ZERO));
        }
        let mut report = self.report(timeline, by, "the trace's first event")?;
        report.diagnostics = memory.findings().clone();
        report.diagnostics.append(beside.diagnostics());
        report.blocks.extend(notes);
        report.blocks.extend(lacks(trace, &who, by).map(Block::Finding));
        report.blocks.extend(oddities(&memory));
        Ok(report)
    }

    /// The report of a recording of memory_profiler alone.
    ///
    /// # Errors
    ///
    /// Where the options ask for what only a trace tells, or for nothing of the recording.
    pub fn run_host(&self, memory: &HostMemory) -> Result<Report> {
        of_a_trace(self.timeline.group_by.is_none(), "--group-by")?;
        of_a_trace(self.timeline.window.step.is_none(), "--step")?;
        of_a_trace(self.memory.device.is_none(), "--device")?;
        let device = host_timeline(memory, None).ok_or_else(nothing)?;
        let zero = device.start_ns();
        let (from, to) = (self.timeline.window.from, self.timeline.window.to);
        let window = (from.map_or(zero, |from| zero + from), to.map_or(device.end_ns, |to| zero + to));
        let timeline = Timeline {
            trace_start_ns: zero,
            start_ns: window.0,
            end_ns: window.1,
            devices: host_timeline(memory, Some(window)).into_iter().collect(),
            steps: Vec::new(),
            phases: Vec::new(),
        };
        let mut report = self.report(timeline, GroupBy::Category, "the first sample")?;
        report.diagnostics = memory.diagnostics.clone();
        Ok(report)
    }

    fn report(&self, timeline: Timeline, by: GroupBy, zero: &'static str) -> Result<Report> {
        if timeline.devices.is_empty() {
            return Err(nothing());
        }
        let mut report = Report { command: "timeline", ..Report::default() };
        if self.for_programs {
            report.document = self.document(&timeline, by)?;
            report.blocks.push(Block::Table(points(&timeline)));
        } else {
            report.blocks.push(Block::Table(self.at_the_peak(&timeline, by)));
            report.figure = Some(Figure::Memory(Box::new(MemoryFigure {
                title: title_of(&timeline, by),
                source: self.source.clone(),
                timeline,
                zero,
                max_memory: self.max_memory,
                width: self.width,
                height: self.height,
            })));
        }
        Ok(report)
    }

    /// What the series hold at the peak of each device.
    fn at_the_peak(&self, timeline: &Timeline, by: GroupBy) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let several = timeline.devices.len() > 1;
        let name = match timeline.devices.iter().any(|d| d.measure != Measure::Allocated) {
            true => "Part",
            false => title(by),
        };
        let mut table = Table {
            title: "At the peak".into(),
            columns: vec![
                Column::new("key", name),
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
            let at_peak = d.points.iter().find(|p| p.time_ns == d.peak.time_ns);
            if let Some(free) = at_peak.and_then(|p| p.free_bytes) {
                table.rows.push(vec!["(free)".into(), device(), free.into(), Cell::Absent, Cell::Absent]);
            }
        }
        table
    }

    fn document(&self, timeline: &Timeline, by: GroupBy) -> Result<Map<String, Value>> {
        let mut document = Map::new();
        let of = |measure| timeline.devices.iter().filter(move |d| d.measure == measure);
        if of(Measure::Allocated).next().is_some() {
            document.insert("group_by".into(), by.name().into());
            document.insert("attribute_to".into(), self.timeline.attribute_to.name().into());
        }
        document.insert("start_ns".into(), to_json(&timeline.start_ns)?);
        document.insert("end_ns".into(), to_json(&timeline.end_ns)?);
        document.insert("steps".into(), to_json(&timeline.steps)?);
        document.insert("phases".into(), to_json(&timeline.phases)?);
        document.insert("devices".into(), of(Measure::Allocated).map(device_document).collect());
        for (key, measure) in [("cards", Measure::Used), ("hosts", Measure::Resident)] {
            if of(measure).next().is_some() {
                document.insert(key.into(), of(measure).map(device_document).collect());
            }
        }
        Ok(document)
    }
}

/// What a picture of these devices shows.
fn title_of(timeline: &Timeline, by: GroupBy) -> String {
    let by = by.name();
    let has = |measure| timeline.devices.iter().any(|d| d.measure == measure);
    match [has(Measure::Used), has(Measure::Allocated), has(Measure::Resident)] {
        [false, true, false] => format!("Memory by {by}"),
        [false, false, _] => "Memory of the host by process".into(),
        [card, trace, host] => {
            let allocated = format!("PyTorch's by {by}");
            let parts = [(card, "of the card by whose it is"), (trace, allocated.as_str()), (host, "of the host")];
            let parts: Vec<&str> = parts.iter().filter(|(shown, _)| *shown).map(|(_, part)| *part).collect();
            format!("Memory {}", parts.join(", "))
        }
    }
}

/// What else saw the run, over wall-clock time.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// What nvidia-smi saw.
    pub smi: Option<SmiLog>,
    /// What PyTorch's allocator held, as far as trace and snapshot tell, with `offset` in it: it splits the card.
    pub run: Option<RunMemory>,
    /// What memory_profiler saw.
    pub host: Option<HostMemory>,
    /// How far to set the trace's clock forward.
    pub offset: Nanos,
}

impl Beside {
    fn is_empty(&self) -> bool {
        self.smi.is_none() && self.host.is_none()
    }

    fn diagnostics(&self) -> Diagnostics {
        let mut all = Diagnostics::default();
        self.smi.iter().for_each(|log| all.append(log.diagnostics.clone()));
        self.host.iter().for_each(|host| all.append(host.diagnostics.clone()));
        all
    }

    /// Puts the card before the trace's devices and the host behind them, and says what there is to say of that. The
    /// axis is widened to as much before and after the trace as the trace is long, where nobody asked for a window:
    /// logs of a day would leave no room for the trace.
    fn lay(&self, timeline: &mut Timeline, widen: bool) -> Result<Vec<Block>> {
        let mut notes = Vec::new();
        let own = (timeline.start_ns, timeline.end_ns);
        let of_log = self.smi.as_ref().and_then(SmiLog::span);
        let of_host = self.host.as_ref().and_then(|host| host_timeline(host, None)).map(|d| (d.start_ns(), d.end_ns));
        if widen {
            self.smi.as_ref().map_or(Ok(()), |log| meets(log, own))?;
            of_host.map_or(Ok(()), |host| apart("the recording of memory_profiler", host, own))?;
            let seen = of_log.iter().chain(&of_host).fold(own, |a, b| (a.0.min(b.0), a.1.max(b.1)));
            let around = own.1 - own.0;
            (timeline.start_ns, timeline.end_ns) = (seen.0.max(own.0 - around), seen.1.min(own.1 + around));
            if seen != (timeline.start_ns, timeline.end_ns) {
                let zero = timeline.trace_start_ns;
                notes.push(Block::Text(sentence![
                    "What is laid beside the trace tells of ",
                    seen.0 - zero,
                    " to ",
                    seen.1 - zero,
                    "; shown is as much of it before and after the trace as that is long (--from and --to show more)."
                ]));
            }
        }
        let window = (timeline.start_ns, timeline.end_ns);
        let mut devices = Vec::new();
        if let Some(log) = &self.smi {
            let shown = match &self.run {
                Some(run) => cards_of_run(log, run, Some(window))?,
                None => cards(log, None, Some(window)),
            };
            devices.extend(shown.iter().filter_map(|card| card.timeline(log, Some(window))));
            if let Some(run) = &self.run {
                notes.extend(shown.iter().filter_map(|card| not_seen(card, run)).map(Block::Finding));
            }
        }
        devices.append(&mut timeline.devices);
        devices.extend(self.host.as_ref().and_then(|host| host_timeline(host, Some(window))));
        timeline.devices = devices;
        Ok(notes)
    }
}

/// That a device is not shown, and how it is.
fn left_out(d: &DeviceTimeline) -> Block {
    let option = format!(" at most (--device {} shows it).", d.device);
    Block::Text(sentence![d.device.as_str(), " is left out: it holds ", d.peak.allocated_bytes, option])
}

fn nothing() -> Error {
    Error::usage("the window holds nothing: no input tells of memory in it")
}

/// Refuses an option that only a trace can serve.
pub(super) fn of_a_trace(holds: bool, option: &str) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{option} needs a trace or a snapshot: a recording of memory_profiler tells no more than sizes"
    )))
}

fn device_document(d: &DeviceTimeline) -> Value {
    let series = d.series.iter().enumerate().filter(|(_, s)| s.groups > 0).map(|(i, s)| {
        let live: Vec<Bytes> = (0..d.points.len()).map(|p| d.live(p)[i]).collect();
        json!({"key": s.name(), "groups": s.groups, "peak_live_bytes": s.peak_live_bytes, "most_bytes": s.most_bytes,
               "live_bytes": live})
    });
    let column = |value: fn(&Point) -> Value| -> Vec<Value> { d.points.iter().map(value).collect() };
    let time = column(|p| json!(p.time_ns));
    let total = column(|p| json!(p.allocated_bytes));
    let mut value = match d.measure {
        Measure::Allocated => json!({
            "device": d.device,
            "estimated": d.estimated,
            "capacity_bytes": d.capacity_bytes,
            "peak_allocated_bytes": d.peak.allocated_bytes,
            "peak_time_ns": d.peak.time_ns,
            "peak_before_trace_bytes": d.peak.before_trace_bytes,
            "peak_step": d.peak.step,
            "peak_phase": d.peak.phase,
            "peak_operator": d.peak.operator,
            "out_of_memory": d.out_of_memory,
            "out_of_memory_count": d.out_of_memory_count,
            "time_ns": time,
            "allocated_bytes": total,
            "reserved_bytes": column(|p| json!(p.reserved_bytes)),
            "before_trace_bytes": column(|p| json!(p.before_trace_bytes)),
        }),
        Measure::Used => json!({
            "device": d.device,
            "capacity_bytes": d.capacity_bytes,
            "peak_used_bytes": d.peak.allocated_bytes,
            "peak_time_ns": d.peak.time_ns,
            "time_ns": time,
            "used_bytes": total,
            "free_bytes": column(|p| json!(p.free_bytes)),
            "no_process_bytes": column(|p| json!(p.before_trace_bytes)),
        }),
        Measure::Resident => json!({
            "device": d.device,
            "peak_resident_bytes": d.peak.allocated_bytes,
            "peak_time_ns": d.peak.time_ns,
            "calls": d.calls,
            "time_ns": time,
            "resident_bytes": total,
        }),
    };
    value["series"] = series.collect();
    value
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
    let has = |measure| timeline.devices.iter().any(|d| d.measure == measure);
    let told: Vec<Told> = TOLD.into_iter().filter(|(measure, ..)| has(*measure)).collect();
    let fixed = ["device", "time_ns"].into_iter().chain(told.iter().map(|(_, key, _)| *key));
    let columns = fixed.map(str::to_owned).chain(keys.iter().cloned());
    let mut table = Table { columns: columns.map(|key| Column::new(key.clone(), key)).collect(), ..Table::default() };
    for d in &timeline.devices {
        let place: Vec<Option<usize>> = keys.iter().map(|k| d.series.iter().position(|s| s.name() == *k)).collect();
        table.rows.extend(d.points.iter().enumerate().map(|(i, p)| {
            let live = d.live(i);
            let head: [Cell; 2] = [d.device.as_str().into(), (p.time_ns - timeline.trace_start_ns).into()];
            let told =
                told.iter().map(|(measure, _, value)| (*measure == d.measure).then(|| value(p)).flatten().into());
            head.into_iter().chain(told).chain(place.iter().map(|s| s.map(|s| live[s]).into())).collect()
        }));
    }
    table
}

/// What a kind of device tells at each point, besides its series: the column's name and its value.
type Told = (Measure, &'static str, fn(&Point) -> Option<Bytes>);
const TOLD: [Told; 7] = [
    (Measure::Allocated, "allocated_bytes", |p| Some(p.allocated_bytes)),
    (Measure::Allocated, "reserved_bytes", |p| p.reserved_bytes),
    (Measure::Allocated, "before_trace_bytes", |p| Some(p.before_trace_bytes)),
    (Measure::Used, "used_bytes", |p| Some(p.allocated_bytes)),
    (Measure::Used, "free_bytes", |p| p.free_bytes),
    (Measure::Used, "no_process_bytes", |p| Some(p.before_trace_bytes)),
    (Measure::Resident, "resident_bytes", |p| Some(p.allocated_bytes)),
];
