//! Memory over time: who holds how much at every moment, and what went on meanwhile.
//!
//! At every point `allocated = before_trace + sum of the series`. A point stands after one of the device's events; what
//! it says holds until the next. Of a window cut into columns, as a screen cuts it, the events with the least and the
//! greatest total, the greatest reserved total and the last of each column are kept: what is lost shows nowhere.

use super::allocations::{Allocations, DeviceMemory};
use super::context::Phase;
use super::grouping::{Attribution, GroupBy, Groups};
use super::owners::AttributeTo;
use super::peak::trace_start;
use crate::error::{Error, Result};
use crate::trace::{Device, Trace};
use crate::units::{Bytes, Nanos};
use serde::Serialize;

/// No series: the end of a block from before the trace.
const NO_SERIES: u32 = u32::MAX;
/// More failed requests than these are counted, not listed.
const MOST_FAILURES: usize = 100;

/// The part of the trace to show. Times count from the trace's first event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// From here on; `None` from the first memory event or step.
    pub from: Option<Nanos>,
    /// Up to here; `None` to the last memory event or the end of the last step.
    pub to: Option<Nanos>,
    /// The step of this number; `from` and `to` then cut it further.
    pub step: Option<u64>,
}

/// What to show over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// What to group live blocks by; `None` for categories, or owners where the allocator recorded them.
    pub group_by: Option<GroupBy>,
    /// Only this device.
    pub device: Option<Device>,
    /// The part of the trace.
    pub window: Window,
    /// How many columns the window is shown in; `None` keeps every event.
    pub columns: Option<u32>,
    /// How many series a device has at most, one for all the rest included.
    pub most_series: usize,
}

impl Default for TimelineOptions {
    fn default() -> Self {
        let (attribute_to, window) = (AttributeTo::default(), Window::default());
        Self { attribute_to, group_by: None, device: None, window, columns: None, most_series: 12 }
    }
}

impl TimelineOptions {
    /// What live blocks of this trace are grouped by.
    pub fn grouping(&self, trace: &Trace) -> GroupBy {
        self.group_by.unwrap_or(if trace.has_stacks() { GroupBy::Op } else { GroupBy::Category })
    }
}

/// Memory over time. All times are of one clock: the trace's as [`timeline`] makes it, that of Unix where several inputs
/// share one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// The trace's first event, which times for people count from.
    pub trace_start_ns: Nanos,
    /// Where the window starts.
    pub start_ns: Nanos,
    /// Where the window ends.
    pub end_ns: Nanos,
    /// The devices: accelerators first.
    pub devices: Vec<DeviceTimeline>,
    /// The steps in the window.
    pub steps: Vec<Stretch>,
    /// Forward, backward and optimizer by turns, told by what the memory events happened in.
    pub phases: Vec<Stretch>,
}

/// A stretch of time with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// Its name.
    pub name: String,
    /// Where it starts.
    pub start_ns: Nanos,
    /// Where it ends.
    pub end_ns: Nanos,
}

/// The memory of one device over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceTimeline {
    /// Its name, such as `cuda:0`.
    pub device: String,
    /// What its total counts.
    #[serde(skip)]
    pub measure: Measure,
    /// Whether totals are running sums from the smallest possible baseline, not the allocator's.
    pub estimated: bool,
    /// What belongs to no series.
    #[serde(skip)]
    pub unattributed: Unattributed,
    /// The memory of the device, where the trace says.
    pub capacity_bytes: Option<Bytes>,
    /// The greatest total in the window.
    pub peak: PeakMark,
    /// Requests in the window that could not be served: the first few.
    pub out_of_memory: Vec<FailedRequest>,
    /// How many such requests there were.
    pub out_of_memory_count: usize,
    /// The series, the one that holds most at the peak first; the last may be all the rest.
    pub series: Vec<Series>,
    /// The points, by time; the first is the state as the window starts, or as the input begins to tell of it.
    pub points: Vec<Point>,
    /// Up to when the last point holds: the end of the window, or of what the input tells.
    pub end_ns: Nanos,
    /// Calls of functions meanwhile, by their start, where the input tells of any.
    pub calls: Vec<Stretch>,
    /// For each point the bytes of each series: row by row.
    pub live_bytes: Vec<Bytes>,
}

/// What a total counts, and so who tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of tensors, of PyTorch's allocator.
    #[default]
    Allocated,
    /// Memory of a card in use by all processes, of nvidia-smi.
    Used,
    /// Resident memory of processes of the host, of memory_profiler.
    Resident,
}

impl Measure {
    /// What the total is called.
    pub fn total(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Used => "used",
            Self::Resident => "resident",
        }
    }
}

/// What the memory is that belongs to no series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unattributed {
    /// It was there before the trace.
    #[default]
    BeforeTrace,
    /// Blocks are not known: it is all.
    BlocksNotKnown,
    /// No process that was seen holds it: the driver, or processes of other users and containers.
    NoProcess,
}

/// The greatest total of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeakMark {
    /// When.
    pub time_ns: Nanos,
    /// The total.
    pub allocated_bytes: Bytes,
    /// What of it was there before the trace.
    pub before_trace_bytes: Bytes,
    /// The step that holds it.
    pub step: Option<String>,
    /// The phase of the event that led to it.
    pub phase: Option<&'static str>,
    /// The operator that the event that led to it happened in.
    pub operator: Option<String>,
}

/// A request that could not be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FailedRequest {
    /// When.
    pub time_ns: Nanos,
    /// Bytes asked for.
    pub requested_bytes: Bytes,
}

/// What a group of blocks holds over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Series {
    /// What the blocks have in common; empty for the rest.
    pub key: String,
    /// How many groups it stands for: 1 but for the rest.
    pub groups: usize,
    /// Its bytes at the peak.
    pub peak_live_bytes: Bytes,
    /// The most that it holds at any event of the window.
    pub most_bytes: Bytes,
}

/// A state of a device that holds until the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Since when.
    pub time_ns: Nanos,
    /// The allocated total.
    pub allocated_bytes: Bytes,
    /// What of it was there before the trace.
    pub before_trace_bytes: Bytes,
    /// The reserved total; `None` where the trace has none.
    pub reserved_bytes: Option<Bytes>,
    /// What of the device is free; `None` where nobody tells.
    pub free_bytes: Option<Bytes>,
}

impl Timeline {
    /// Sets the clock of all times forward.
    pub fn shift(&mut self, by: Nanos) {
        let stretches =
            self.devices.iter_mut().flat_map(|d| &mut d.calls).chain(&mut self.steps).chain(&mut self.phases);
        stretches.for_each(|s| (s.start_ns, s.end_ns) = (s.start_ns + by, s.end_ns + by));
        for d in &mut self.devices {
            let times =
                d.points.iter_mut().map(|p| &mut p.time_ns).chain(d.out_of_memory.iter_mut().map(|f| &mut f.time_ns));
            times.chain([&mut d.peak.time_ns, &mut d.end_ns]).for_each(|time| *time += by);
        }
        [&mut self.trace_start_ns, &mut self.start_ns, &mut self.end_ns].into_iter().for_each(|time| *time += by);
    }
}

impl Series {
    /// What to call it: its key, or how many groups it stands for.
    pub fn name(&self) -> String {
        if self.groups == 1 && !self.key.is_empty() { self.key.clone() } else { format!("({} more)", self.groups) }
    }
}

impl DeviceTimeline {
    /// The bytes of each series at point `i`.
    pub fn live(&self, i: usize) -> &[Bytes] {
        let n = self.series.len();
        self.live_bytes.get(i * n..(i + 1) * n).unwrap_or_default()
    }

    /// Since when memory is known.
    pub fn start_ns(&self) -> Nanos {
        self.points.first().map_or(self.end_ns, |p| p.time_ns)
    }

    /// A device whose series are these, from its states by time with what each series holds then. What they sum to is
    /// what the point's total has beyond `before_trace_bytes`. `None` without a state in the window.
    pub(super) fn of_states(
        device: String,
        names: Vec<String>,
        mut states: Vec<(Point, Vec<Bytes>)>,
        window: Option<(Nanos, Nanos)>,
    ) -> Option<Self> {
        let time = |state: &(Point, Vec<Bytes>)| state.0.time_ns;
        let (first, last) = (time(states.first()?), time(states.last()?));
        let (start, end) = window.map_or((first, last), |(start, end)| (start.max(first), end.min(last)));
        if start > end {
            return None;
        }
        states.truncate(states.partition_point(|state| time(state) <= end));
        // What held as the window starts holds in it.
        states.drain(..states.partition_point(|state| time(state) <= start) - 1);
        states[0].0.time_ns = start;
        let mut peak = 0;
        for (i, (point, _)) in states.iter().enumerate() {
            peak = if point.allocated_bytes > states[peak].0.allocated_bytes { i } else { peak };
        }
        let (top, at_peak) = states.get(peak)?.clone();
        let most = |k: usize| states.iter().map(|(_, row)| row[k]).max().unwrap_or_default();
        let series = names.into_iter().enumerate().map(|(k, key)| Series {
            key,
            groups: 1,
            peak_live_bytes: at_peak[k],
            most_bytes: most(k),
        });
        Some(Self {
            device,
            measure: Measure::default(),
            estimated: false,
            unattributed: Unattributed::default(),
            capacity_bytes: None,
            peak: PeakMark {
                time_ns: top.time_ns,
                allocated_bytes: top.allocated_bytes,
                before_trace_bytes: top.before_trace_bytes,
                step: None,
                phase: None,
                operator: None,
            },
            out_of_memory: Vec::new(),
            out_of_memory_count: 0,
            series: series.collect(),
            points: states.iter().map(|(point, _)| *point).collect(),
            end_ns: end,
            calls: Vec::new(),
            live_bytes: states.into_iter().flat_map(|(_, row)| row).collect(),
        })
    }
}

/// Which of `columns` equal parts of the time from `start` to `end` holds `time`.
pub fn column_of(time: Nanos, start: Nanos, end: Nanos, columns: u32) -> u32 {
    let wide = |n: Nanos| i128::from(n.0);
    let (passed, all) = (wide(time) - wide(start), (wide(end) - wide(start)).max(1));
    let column = passed.max(0) * i128::from(columns) / all;
    u32::try_from(column).unwrap_or(u32::MAX).min(columns.saturating_sub(1))
}

/// Memory over time.
///
/// # Errors
///
/// Where there is no such step, or nothing between the ends of the window.
pub fn timeline(
    trace: &Trace,
    memory: &Allocations,
    who: &Attribution<'_>,
    options: &TimelineOptions,
) -> Result<Timeline> {
    let devices: Vec<&DeviceMemory> = match options.device {
        Some(device) => memory.device(device).into_iter().collect(),
        None => memory.devices().iter().collect(),
    };
    let known = known(trace, &devices, who);
    let (start, end) = ends(trace, known, who, options.window)?;
    let look = Look { trace, who, options, known, start, end };
    Ok(Timeline {
        trace_start_ns: trace_start(trace),
        start_ns: start,
        end_ns: end,
        devices: devices.iter().filter_map(|m| look.device(m)).collect(),
        steps: look.steps(),
        phases: look.phases(),
    })
}

/// From when to when the trace tells of memory.
fn known(trace: &Trace, devices: &[&DeviceMemory], who: &Attribution<'_>) -> (Nanos, Nanos) {
    let steps = who.context.steps().steps();
    let first = devices.iter().filter_map(|m| m.time().first()).chain(steps.iter().map(|s| &s.start)).min();
    let last = devices.iter().filter_map(|m| m.time().last()).chain(steps.iter().map(|s| &s.end));
    let last = last.chain(trace.out_of_memory().time()).max();
    (first.copied().unwrap_or_default(), last.copied().unwrap_or_default())
}

/// Where the window starts and ends.
fn ends(trace: &Trace, known: (Nanos, Nanos), who: &Attribution<'_>, window: Window) -> Result<(Nanos, Nanos)> {
    let (first, last) = match window.step {
        Some(number) => match who.context.steps().numbered(number) {
            Some(step) => (step.start, step.end),
            None => return Err(who.context.steps().no_step(trace, number)),
        },
        None => known,
    };
    let zero = trace_start(trace);
    let start = window.from.map_or(first, |t| if window.step.is_some() { first.max(zero + t) } else { zero + t });
    let end = window.to.map_or(last, |t| if window.step.is_some() { last.min(zero + t) } else { zero + t });
    if start > end || start == end && (window.from.is_some() || window.to.is_some()) {
        return Err(Error::usage("the window is empty: it has to end after it starts"));
    }
    Ok((start, end))
}

struct Look<'a, 't> {
    trace: &'t Trace,
    who: &'a Attribution<'t>,
    options: &'a TimelineOptions,
    /// From when to when the trace tells of memory.
    known: (Nanos, Nanos),
    start: Nanos,
    end: Nanos,
}

impl Look<'_, '_> {
    fn device(&self, m: &DeviceMemory) -> Option<DeviceTimeline> {
        let end_ns = self.end.min(self.known.1);
        if self.first() > end_ns {
            return None;
        }
        let from = m.time().partition_point(|t| *t < self.start);
        let to = m.position_at(self.end).max(from);
        // The position of the peak: that of the state as the window starts, or after an event in it.
        let top = m.peak_in(from, to).filter(|top| from == 0 || m.allocated()[*top] > m.allocated_at(from));
        let peak = top.map_or(from, |event| event + 1);
        let kept = self.kept(m, from, to);
        let events = m.blocks().iter().map(|b| m.events()[b.allocated()] as usize);
        let groups = self.who.group(events, self.options.grouping(self.trace), self.options.attribute_to);
        let changes = Changes::of(m, &groups);
        let (series, place) = chosen(&changes, groups, (from, peak, to), self.options.most_series);
        let (points, live_bytes) = self.points(m, &changes, (series.len(), &place), from, &kept);
        let held: Bytes = series.iter().map(|s| s.peak_live_bytes).sum();
        let (out_of_memory, out_of_memory_count) = self.failures(m);
        Some(DeviceTimeline {
            device: m.device().to_string(),
            measure: Measure::Allocated,
            estimated: m.is_estimated(),
            unattributed: if m.is_paired() { Unattributed::BeforeTrace } else { Unattributed::BlocksNotKnown },
            capacity_bytes: self.capacity(m),
            peak: self.peak(m, peak, held),
            out_of_memory,
            out_of_memory_count,
            series,
            points,
            end_ns,
            calls: Vec::new(),
            live_bytes,
        })
    }

    /// When the part of the window begins that the trace tells of.
    fn first(&self) -> Nanos {
        self.start.max(self.known.0)
    }

    /// The events of the window to keep, in order.
    fn kept(&self, m: &DeviceMemory, from: usize, to: usize) -> Vec<usize> {
        let Some(columns) = self.options.columns else { return (from..to).collect() };
        let column = |i: usize| column_of(m.time()[i], self.start, self.end, columns);
        let (mut kept, mut first) = (Vec::new(), from);
        while first < to {
            let here = column(first);
            let next =
                first + m.time()[first..to].partition_point(|t| column_of(*t, self.start, self.end, columns) <= here);
            let (mut least, mut most, mut most_reserved) = (first, first, first);
            for i in first..next {
                least = if m.allocated()[i] < m.allocated()[least] { i } else { least };
                most = if m.allocated()[i] > m.allocated()[most] { i } else { most };
                most_reserved = if m.reserved(i) > m.reserved(most_reserved) { i } else { most_reserved };
            }
            let mut of_column = [least, most, most_reserved, next - 1];
            of_column.sort_unstable();
            kept.extend(of_column);
            first = next;
        }
        kept.dedup();
        kept
    }

    fn points(
        &self,
        m: &DeviceMemory,
        changes: &Changes,
        (n, place): (usize, &[u32]),
        from: usize,
        kept: &[usize],
    ) -> (Vec<Point>, Vec<Bytes>) {
        let mut points = Vec::with_capacity(kept.len() + 1);
        let mut rows = Vec::with_capacity((kept.len() + 1) * n);
        let mut live = vec![Bytes::ZERO; n];
        let mut position = 0;
        let positions = std::iter::once(from).chain(kept.iter().map(|event| event + 1));
        for (i, wanted) in positions.enumerate() {
            changes.apply(position..wanted, |group, bytes| live[place[group] as usize] += bytes);
            position = wanted;
            let allocated = m.allocated_at(wanted);
            points.push(Point {
                time_ns: if i == 0 { self.first() } else { m.time()[wanted - 1] },
                allocated_bytes: allocated,
                before_trace_bytes: allocated - live.iter().copied().sum(),
                reserved_bytes: m.reserved_at(wanted),
                free_bytes: None,
            });
            rows.extend_from_slice(&live);
        }
        (points, rows)
    }

    fn peak(&self, m: &DeviceMemory, position: usize, held: Bytes) -> PeakMark {
        let event = position.checked_sub(1).map(|last| m.events()[last] as usize);
        let time = position.checked_sub(1).map_or(self.first(), |last| m.time()[last].max(self.first()));
        let owners = &self.who.owners;
        let steps = self.who.context.steps();
        let allocated = m.allocated_at(position);
        PeakMark {
            time_ns: time,
            allocated_bytes: allocated,
            before_trace_bytes: allocated - held,
            step: steps.place([time].into_iter())[0].map(|i| steps.steps()[i].label.clone()),
            phase: event.map(|e| self.who.context.phase(owners, e).name()),
            operator: event
                .and_then(|e| owners.owner(e, self.options.attribute_to))
                .map(|op| owners.name(op).to_owned()),
        }
    }

    fn failures(&self, m: &DeviceMemory) -> (Vec<FailedRequest>, usize) {
        let events = self.trace.out_of_memory();
        let mine = |i: &usize| {
            let (device, time) = (self.trace.device(events.device()[*i]), events.time()[*i]);
            let same = device == m.device() || device.kind.is_cpu() && m.device().kind.is_cpu();
            same && (self.start..=self.end).contains(&time)
        };
        let all: Vec<usize> = (0..events.len()).filter(mine).collect();
        let request = |i: &usize| FailedRequest { time_ns: events.time()[*i], requested_bytes: events.bytes()[*i] };
        (all.iter().take(MOST_FAILURES).map(request).collect(), all.len())
    }

    fn capacity(&self, m: &DeviceMemory) -> Option<Bytes> {
        let properties = &self.trace.info().device_properties;
        let mine = |id: i64| !m.device().kind.is_cpu() && id == i64::from(m.device().index);
        let bytes = properties.iter().find(|p| mine(p.id))?.total_memory_bytes?;
        i64::try_from(bytes).ok().map(Bytes)
    }

    /// Whether a stretch is wide enough to be seen.
    fn shows(&self, start: Nanos, end: Nanos) -> bool {
        let overlaps = start <= self.end && end >= self.start;
        let Some(columns) = self.options.columns else { return overlaps };
        let column = |t| column_of(t, self.start, self.end, columns);
        overlaps && column(start) < column(end)
    }

    fn clipped(&self, name: &str, start: Nanos, end: Nanos) -> Stretch {
        Stretch { name: name.to_owned(), start_ns: start.max(self.start), end_ns: end.min(self.end) }
    }

    fn steps(&self) -> Vec<Stretch> {
        let steps = self.who.context.steps().steps().iter();
        steps.filter(|s| self.shows(s.start, s.end)).map(|s| self.clipped(&s.label, s.start, s.end)).collect()
    }

    /// Runs of memory events in one phase of one step. What belongs to no phase neither starts nor ends a run.
    fn phases(&self) -> Vec<Stretch> {
        let (time, context) = (self.trace.memory().time(), &self.who.context);
        let steps = context.steps().steps();
        let mut runs: Vec<(Phase, Option<usize>, Nanos, Nanos)> = Vec::new();
        for (event, time) in time.iter().enumerate() {
            let (phase, step) = (context.phase(&self.who.owners, event), context.step(event));
            if phase == Phase::Other {
                continue;
            }
            match runs.last_mut() {
                Some(run) if (run.0, run.1) == (phase, step) => run.3 = *time,
                last => {
                    // One phase lasts until the next of its step starts, or until the step ends.
                    if let Some(run) = last {
                        run.3 = if run.1 == step { *time } else { run.1.map_or(run.3, |s| steps[s].end.max(run.3)) };
                    }
                    runs.push((phase, step, *time, *time));
                }
            }
        }
        let seen = runs.iter().filter(|(_, _, start, end)| self.shows(*start, *end));
        seen.map(|(phase, _, start, end)| self.clipped(phase.name(), *start, *end)).collect()
    }
}

/// What every event does to the groups.
struct Changes {
    /// For each event the group and the bytes that it adds or takes; a second one where a block ends as another starts.
    first: Vec<(u32, Bytes)>,
    second: Vec<(u32, u32, Bytes)>,
}

impl Changes {
    fn of(m: &DeviceMemory, groups: &Groups) -> Self {
        let mut first = vec![(NO_SERIES, Bytes::ZERO); m.len()];
        let mut second = Vec::new();
        for (block, group) in m.blocks().iter().zip(&groups.of) {
            first[block.allocated()] = (*group, block.bytes);
        }
        for (block, group) in m.blocks().iter().zip(&groups.of) {
            match block.freed() {
                Some(event) if first[event].0 == NO_SERIES => first[event] = (*group, -block.bytes),
                Some(event) => second.push((event as u32, *group, -block.bytes)),
                None => {}
            }
        }
        second.sort_unstable();
        Self { first, second }
    }

    /// Tells of all changes of these events, in order.
    fn apply(&self, events: std::ops::Range<usize>, mut change: impl FnMut(usize, Bytes)) {
        let mut second = self.second.partition_point(|(event, ..)| (*event as usize) < events.start);
        for event in events {
            let (group, bytes) = self.first[event];
            if group != NO_SERIES {
                change(group as usize, bytes);
            }
            while let Some((_, group, bytes)) = self.second.get(second).filter(|(at, ..)| *at as usize == event) {
                change(*group as usize, *bytes);
                second += 1;
            }
        }
    }
}

/// The series to show, those that hold most at the peak first, and the series of each group.
fn chosen(
    changes: &Changes,
    groups: Groups,
    (from, peak, to): (usize, usize, usize),
    most_series: usize,
) -> (Vec<Series>, Vec<u32>) {
    let n = groups.keys.len();
    let (mut live, mut at_peak) = (vec![Bytes::ZERO; n], vec![Bytes::ZERO; n]);
    changes.apply(0..from, |group, bytes| live[group] += bytes);
    let mut most = live.clone();
    let mut advance = |events, live: &mut Vec<Bytes>| {
        changes.apply(events, |group, bytes| {
            live[group] += bytes;
            most[group] = most[group].max(live[group]);
        });
    };
    advance(from..peak.max(from), &mut live);
    at_peak.copy_from_slice(&live);
    advance(peak.max(from)..to, &mut live);
    let mut order: Vec<usize> = (0..n).filter(|g| most[*g].0 > 0).collect();
    order.sort_by_key(|g| (-at_peak[*g], -most[*g], *g));
    // Which to show by the most that they ever hold, in the order of the peak.
    if order.len() > most_series {
        let mut shown = order.clone();
        shown.sort_by_key(|g| (-most[*g], *g));
        shown.truncate(most_series.saturating_sub(1));
        shown.sort_unstable();
        order.retain(|g| shown.binary_search(g).is_ok());
    }
    let mut place = vec![order.len() as u32; n];
    order.iter().enumerate().for_each(|(i, g)| place[*g] = i as u32);
    let mut keys = groups.keys;
    let mut series: Vec<Series> = order
        .iter()
        .map(|g| Series {
            key: std::mem::take(&mut keys[*g]),
            groups: 1,
            peak_live_bytes: at_peak[*g],
            most_bytes: most[*g],
        })
        .collect();
    let rest: Vec<usize> = (0..n).filter(|g| place[*g] as usize == order.len()).collect();
    if !rest.is_empty() {
        // Those that hold nothing in the window need a place all the same, if not a name.
        let named = rest.iter().filter(|g| most[**g].0 > 0).count();
        series.push(Series {
            key: String::new(),
            groups: named,
            peak_live_bytes: rest.iter().map(|g| at_peak[*g]).sum(),
            most_bytes: rest.iter().map(|g| most[*g]).sum(),
        });
    }
    (series, place)
}

#[cfg(test)]
mod tests {
    use super::super::categories::CategoryRules;
    use super::super::step_spans::StepSpans;
    use super::super::testing::{Build, span};
    use super::*;
    use proptest::prelude::*;

    fn of(trace: &Trace, options: &TimelineOptions) -> Result<Timeline> {
        let memory = Allocations::build(trace);
        let who = Attribution::build(trace, StepSpans::find(trace), CategoryRules::default());
        timeline(trace, &memory, &who, options)
    }

    /// ```text
    /// ProfilerStep#1   |-----------------|          ProfilerStep#2 |-------|
    /// aten::mm            |+100   +50|                     |+30|
    /// aten::relu                           |+20|
    /// frees                        -50                  -100
    /// ```
    fn small() -> Trace {
        let mut b = Build::default();
        b.before(1000);
        b.span(span("ProfilerStep#1", 0, 50));
        b.span(span("aten::mm", 5, 20));
        b.alloc(10, 1, 100);
        b.alloc(12, 2, 50);
        b.alloc(25, 2, -50);
        b.span(span("aten::relu", 30, 35));
        b.alloc(31, 3, 20);
        b.span(span("ProfilerStep#2", 60, 100));
        b.alloc(61, 1, -100);
        b.span(span("aten::mm", 70, 80));
        b.alloc(71, 1, 30);
        b.finish()
    }

    #[test]
    fn every_event_is_a_point_and_its_series_and_what_was_before_sum_to_the_total() {
        let options = TimelineOptions { group_by: Some(GroupBy::Op), ..TimelineOptions::default() };
        let all = of(&small(), &options).unwrap();
        let d = &all.devices[0];
        let rows: Vec<(i64, i64, Vec<i64>)> = (0..d.points.len())
            .map(|i| (d.points[i].time_ns.0, d.points[i].before_trace_bytes.0, d.live(i).iter().map(|b| b.0).collect()))
            .collect();
        assert_eq!(d.series.iter().map(|s| s.key.as_str()).collect::<Vec<_>>(), ["aten::mm", "aten::relu"]);
        let expected = [
            (0, 1000, vec![0, 0]),
            (10, 1000, vec![100, 0]),
            (12, 1000, vec![150, 0]),
            (25, 1000, vec![100, 0]),
            (31, 1000, vec![100, 20]),
            (61, 1000, vec![0, 20]),
            (71, 1000, vec![30, 20]),
        ];
        assert_eq!(rows, expected);
        assert_eq!((d.peak.time_ns, d.peak.allocated_bytes), (Nanos(12), Bytes(1150)));
        assert_eq!(d.peak.operator.as_deref(), Some("aten::mm"));
        assert_eq!(all.steps.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["ProfilerStep#1", "ProfilerStep#2"]);
    }

    #[test]
    fn a_window_starts_with_what_is_live_and_its_peak_can_be_that() {
        let window = Window { step: Some(2), ..Window::default() };
        let options = TimelineOptions { group_by: Some(GroupBy::Op), window, ..TimelineOptions::default() };
        let d = of(&small(), &options).unwrap().devices.remove(0);
        assert_eq!(d.points[0].time_ns, Nanos(60));
        assert_eq!(d.peak.allocated_bytes, Bytes(1120), "what step 1 left is more than all of step 2");
        let missing = TimelineOptions { window: Window { step: Some(7), ..window }, ..options.clone() };
        assert!(of(&small(), &missing).unwrap_err().to_string().contains("steps 1 to 2"));
        let (from, to) = (Some(Nanos(50)), Some(Nanos(20)));
        let empty = TimelineOptions { window: Window { from, to, step: None }, ..options };
        assert!(of(&small(), &empty).is_err());
    }

    #[test]
    fn groups_beyond_the_most_are_one_series() {
        let options = TimelineOptions { group_by: Some(GroupBy::Op), most_series: 1, ..TimelineOptions::default() };
        let d = of(&small(), &options).unwrap().devices.remove(0);
        assert_eq!((d.series.len(), d.series[0].groups, d.series[0].peak_live_bytes), (1, 2, Bytes(150)));
        assert_eq!(d.points[6].before_trace_bytes, Bytes(1000));
    }

    #[test]
    fn columns_hold_all_of_the_time_and_no_time_is_past_the_last() {
        assert_eq!(column_of(Nanos(0), Nanos(0), Nanos(100), 10), 0);
        assert_eq!(column_of(Nanos(100), Nanos(0), Nanos(100), 10), 9);
        assert_eq!(column_of(Nanos(59), Nanos(0), Nanos(100), 10), 5);
        assert_eq!(column_of(Nanos(i64::MAX), Nanos(i64::MIN), Nanos(i64::MAX), 7), 6);
        assert_eq!(column_of(Nanos(3), Nanos(3), Nanos(3), 7), 0);
    }

    proptest! {
        #[test]
        fn no_extreme_of_a_column_is_lost_and_kept_points_say_what_all_points_say(
            steps in prop::collection::vec((0i64..40, 0u64..6, 1i64..500), 1..200),
            columns in 1u32..40,
        ) {
            let mut b = Build::default();
            b.before(777);
            let (mut time, mut open) = (0, std::collections::BTreeMap::<u64, i64>::new());
            for (i, (passed, address, bytes)) in steps.iter().enumerate() {
                time += passed;
                match open.remove(address) {
                    Some(bytes) => b.alloc(time, *address + 1, -bytes),
                    None => {
                        b.span(span(&format!("aten::op{}", i % 3), time, time));
                        b.alloc(time, *address + 1, *bytes);
                        open.insert(*address, *bytes);
                    }
                }
            }
            let trace = b.finish();
            let options = TimelineOptions { group_by: Some(GroupBy::Op), ..TimelineOptions::default() };
            let all = of(&trace, &options).unwrap();
            let few = of(&trace, &TimelineOptions { columns: Some(columns), ..options }).unwrap();
            let (all_points, few_points) = (&all.devices[0], &few.devices[0]);
            let column = |p: &Point| column_of(p.time_ns, all.start_ns, all.end_ns, columns);
            for wanted in 0..columns {
                let of = |d: &DeviceTimeline| {
                    let part = d.points.iter().skip(1).filter(|p| column(p) == wanted);
                    let totals: Vec<Bytes> = part.map(|p| p.allocated_bytes).collect();
                    (totals.iter().min().copied(), totals.iter().max().copied(), totals.last().copied())
                };
                prop_assert_eq!(of(all_points), of(few_points));
            }
            prop_assert!(few_points.points.len() <= 4 * columns as usize + 1);
            for d in [all_points, few_points] {
                for i in 0..d.points.len() {
                    let live: Bytes = d.live(i).iter().copied().sum();
                    prop_assert_eq!(live + d.points[i].before_trace_bytes, d.points[i].allocated_bytes);
                    prop_assert_eq!(d.points[i].before_trace_bytes, Bytes(777));
                }
            }
            let rows = |d: &DeviceTimeline| -> Vec<(Point, Vec<Bytes>)> {
                (0..d.points.len()).map(|i| (d.points[i], d.live(i).to_vec())).collect()
            };
            let known = rows(all_points);
            prop_assert!(rows(few_points).iter().all(|row| known.contains(row)));
        }
    }
}
