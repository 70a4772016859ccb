//! Who holds the memory at its worst moment, or at another: the live set of a device, which sums exactly.
//!
//! `allocated = sum of the rows + before_trace`, where before_trace is what was live before the first event of the trace
//! and still is. Definitions: [`allocations`](super::allocations) for blocks and curves, [`owners`](super::owners) and
//! [`grouping`](super::grouping) for whom they belong to.

use super::allocations::{Allocations, DeviceMemory};
use super::grouping::{Attribution, GroupBy, Groups};
use super::owners::AttributeTo;
use super::without::peaks_without;
use crate::trace::{Device, Trace};
use crate::units::{Bytes, Nanos};
use serde::Serialize;
use std::str::FromStr;

/// The moment to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// When each device's allocated total is greatest, for the first time.
    #[default]
    Peak,
    /// When that much time has passed since the trace's first event.
    Time(Nanos),
    /// When the total is greatest within the step of this number.
    Step(u64),
    /// After the last event.
    End,
    /// When the device first could not serve a request. Devices that always could are left out.
    OutOfMemory,
}

impl FromStr for Moment {
    type Err = String;

    /// `peak`, `end`, `oom`, `step:3`, or a time since the trace's first event: `12.5ms`, `300us`, `1.2s`, `1500ns`.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected peak, end, oom, step:3 or a time such as 12.5ms or 300us, found {text:?}");
        match text {
            "peak" => return Ok(Self::Peak),
            "end" => return Ok(Self::End),
            "oom" => return Ok(Self::OutOfMemory),
            _ => {}
        }
        if let Some(number) = text.strip_prefix("step:") {
            return number.parse().map(Self::Step).map_err(|_| expected());
        }
        // How many powers of ten the unit is from a microsecond, which is what the digits are read as.
        let units = [("ns", "e-3"), ("us", ""), ("µs", ""), ("ms", "e3"), ("s", "e6")];
        let time = units.iter().find_map(|(unit, power)| {
            let digits = text.strip_suffix(unit)?.trim_end();
            Nanos::from_micros(format!("{digits}{power}").as_bytes())
        });
        time.filter(|t| t.0 >= 0).map(Self::Time).ok_or_else(expected)
    }
}

/// What to show of a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakOptions {
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// What to group the live blocks by.
    pub group_by: GroupBy,
    /// The moment to look at.
    pub at: Moment,
    /// Only this device.
    pub device: Option<Device>,
    /// How many of the largest single blocks to name.
    pub largest_blocks: usize,
}

impl Default for PeakOptions {
    fn default() -> Self {
        let (attribute_to, group_by, at) = (AttributeTo::default(), GroupBy::default(), Moment::default());
        Self { attribute_to, group_by, at, device: None, largest_blocks: 10 }
    }
}

/// A device at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DevicePeak {
    /// Its name, such as `cuda:0`.
    pub device: String,
    /// The greatest allocated total of the trace.
    pub peak_allocated_bytes: Bytes,
    /// When it was reached first.
    pub peak_time_ns: Nanos,
    /// The reserved total then; `None` where the trace has none.
    pub reserved_at_peak_bytes: Option<Bytes>,
    /// The greatest reserved total of the trace.
    pub peak_reserved_bytes: Option<Bytes>,
    /// What was live before the first event and still is at the moment; `None` where blocks are not known.
    pub before_trace_bytes: Option<Bytes>,
    /// Gross bytes allocated in the trace.
    pub allocated_bytes: Bytes,
    /// The number of allocations in the trace.
    pub allocation_count: u64,
    /// Gross bytes freed in the trace.
    pub freed_bytes: Bytes,
    /// The number of frees in the trace.
    pub free_count: u64,
    /// Whether the totals are not the allocator's but running sums from the smallest possible baseline.
    pub estimated: bool,
    /// Whether allocations could be paired with frees; where not there are no rows.
    pub paired: bool,
    /// The moment that the rows are of.
    pub at: MomentAt,
    /// The owners of what is live, by size: they sum to `at.allocated_bytes - before_trace_bytes`.
    pub rows: Vec<PeakRow>,
    /// The largest single blocks that are live.
    pub largest_blocks: Vec<LiveBlock>,
    /// How high the curve still goes without all blocks that are live at the moment. `None` where blocks are not known.
    pub next_peak: Option<NextPeak>,
}

/// A moment on a device's curve, and what went on then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MomentAt {
    /// When.
    pub time_ns: Nanos,
    /// How many of the device's memory events have happened.
    pub events: usize,
    /// The allocated total.
    pub allocated_bytes: Bytes,
    /// The reserved total; `None` where the trace has none.
    pub reserved_bytes: Option<Bytes>,
    /// The step that holds the moment.
    pub step: Option<String>,
    /// The phase of the event that led to it.
    pub phase: Option<&'static str>,
    /// The operator that the event that led to it happened in.
    pub operator: Option<String>,
    /// The path of modules that it happened in.
    pub module: Option<String>,
    /// Bytes that were asked for and could not be had, at an out-of-memory event.
    pub requested_bytes: Option<Bytes>,
}

/// A group of live blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeakRow {
    /// What the blocks have in common.
    pub key: String,
    /// Their bytes.
    pub live_bytes: Bytes,
    /// Their number.
    pub blocks: u64,
    /// The size of the largest.
    pub largest_block_bytes: Bytes,
    /// When the oldest of them was allocated.
    pub oldest_time_ns: Nanos,
    /// How high the device's curve would go if nothing of this key were ever allocated, all else being the same.
    pub peak_without_bytes: Bytes,
}

/// A live block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveBlock {
    /// Where it starts.
    pub address: u64,
    /// How large it is.
    pub bytes: Bytes,
    /// The operator that it belongs to.
    pub owner: String,
    /// Its key under the grouping.
    pub key: String,
    /// The path of modules that it was allocated in.
    pub module: Option<String>,
    /// When it was allocated.
    pub allocated_time_ns: Nanos,
    /// When it was freed; `None` if it outlived the trace.
    pub freed_time_ns: Option<Nanos>,
}

/// The highest that the curve goes without the blocks that a moment holds.
///
/// For each moment `q` take from the allocated total the bytes of those blocks, allocated in the trace and live at the
/// moment looked at, that are live at `q` too; `q` is the first where what is left is greatest. However much of the live
/// set goes, the device needs at least that much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextPeak {
    /// When.
    pub time_ns: Nanos,
    /// The allocated total then.
    pub allocated_bytes: Bytes,
    /// What of it does not belong to the live set.
    pub without_live_set_bytes: Bytes,
    /// The step that holds it.
    pub step: Option<String>,
    /// The phase of the event that led to it.
    pub phase: Option<&'static str>,
    /// The operator that the event that led to it happened in.
    pub operator: Option<String>,
}

/// The devices of a trace at a moment.
pub fn peaks(trace: &Trace, memory: &Allocations, who: &Attribution<'_>, options: &PeakOptions) -> Vec<DevicePeak> {
    let only = options.device.and_then(|d| memory.device(d)).map(DeviceMemory::device);
    let wanted = |m: &&DeviceMemory| options.device.is_none() || only == Some(m.device());
    let devices = memory.devices().iter().filter(wanted);
    devices.filter_map(|m| Look { trace, memory: m, who, options }.run()).collect()
}

/// A look at one device.
struct Look<'a, 't> {
    trace: &'t Trace,
    memory: &'a DeviceMemory,
    who: &'a Attribution<'t>,
    options: &'a PeakOptions,
}

impl Look<'_, '_> {
    fn run(&self) -> Option<DevicePeak> {
        let m = self.memory;
        let peak = m.peak()?;
        let (position, time, requested) = resolve(self.trace, m, self.who, self.options.at)?;
        let groups = self.groups();
        let live: Vec<usize> = m.live_blocks(position).collect();
        let ((allocated_bytes, allocation_count), (freed_bytes, free_count)) =
            (m.allocated_in(0, m.len()), m.freed_in(0, m.len()));
        Some(DevicePeak {
            device: m.device().to_string(),
            peak_allocated_bytes: m.allocated()[peak],
            peak_time_ns: self.trace.absolute(m.time()[peak]),
            reserved_at_peak_bytes: m.reserved(peak),
            peak_reserved_bytes: m.peak_reserved(),
            before_trace_bytes: m.before_trace_at(position),
            allocated_bytes,
            allocation_count,
            freed_bytes,
            free_count,
            estimated: m.is_estimated(),
            paired: m.is_paired(),
            at: self.moment(position, time, requested),
            rows: self.rows(&live, &groups),
            largest_blocks: self.largest(&live, &groups),
            next_peak: self.next_peak(&live),
        })
    }

    fn moment(&self, position: usize, time: Nanos, requested_bytes: Option<Bytes>) -> MomentAt {
        let m = self.memory;
        let (step, phase, operator) = self.surroundings(position, time);
        let event = position.checked_sub(1).map(|last| m.events()[last] as usize);
        let module = event.and_then(|e| self.module(e));
        MomentAt {
            time_ns: self.trace.absolute(time),
            events: position,
            allocated_bytes: m.allocated_at(position),
            reserved_bytes: m.reserved_at(position),
            step,
            phase,
            operator,
            module,
            requested_bytes,
        }
    }

    /// Step at `time`; phase and operator of the event before `position`.
    fn surroundings(&self, position: usize, time: Nanos) -> (Option<String>, Option<&'static str>, Option<String>) {
        let Attribution { owners, context, .. } = self.who;
        let step = context.steps().place([time].into_iter())[0].map(|i| context.steps().steps()[i].label.clone());
        let Some(last) = position.checked_sub(1) else { return (step, None, None) };
        let event = self.memory.events()[last] as usize;
        let operator = owners.owner(event, AttributeTo::Op).map(|op| owners.name(op).to_owned());
        (step, Some(context.phase(owners, event).name()), operator)
    }

    fn module(&self, event: usize) -> Option<String> {
        let Attribution { owners, context, .. } = self.who;
        context.module(owners, event).map(|path| context.module_text(path))
    }

    /// The groups of all blocks of the device.
    fn groups(&self) -> Groups {
        let m = self.memory;
        let events = m.blocks().iter().map(|b| m.events()[b.allocated()] as usize);
        self.who.group(events, self.options.group_by, self.options.attribute_to)
    }

    fn rows(&self, live: &[usize], groups: &Groups) -> Vec<PeakRow> {
        let m = self.memory;
        let mut rows: Vec<Option<PeakRow>> = vec![None; groups.keys.len()];
        for i in live {
            let (block, group) = (m.blocks()[*i], groups.of[*i] as usize);
            let row = rows[group].get_or_insert_with(|| PeakRow {
                key: groups.keys[group].clone(),
                live_bytes: Bytes::ZERO,
                blocks: 0,
                largest_block_bytes: Bytes::ZERO,
                oldest_time_ns: self.trace.absolute(m.time()[block.allocated()]),
                peak_without_bytes: Bytes::ZERO,
            });
            row.live_bytes += block.bytes;
            row.blocks += 1;
            row.largest_block_bytes = row.largest_block_bytes.max(block.bytes);
        }
        for (row, peak) in rows.iter_mut().zip(peaks_without(m, groups)) {
            if let Some(row) = row {
                row.peak_without_bytes = peak;
            }
        }
        let mut rows: Vec<PeakRow> = rows.into_iter().flatten().collect();
        rows.sort_by_key(|r| -r.live_bytes);
        rows
    }

    fn largest(&self, live: &[usize], groups: &Groups) -> Vec<LiveBlock> {
        let m = self.memory;
        let mut largest = live.to_vec();
        largest.sort_by_key(|i| -m.blocks()[*i].bytes);
        largest.truncate(self.options.largest_blocks);
        let block = |i: usize| {
            let block = m.blocks()[i];
            let event = m.events()[block.allocated()] as usize;
            LiveBlock {
                address: block.address,
                bytes: block.bytes,
                owner: self.who.key_text(event, GroupBy::Op, self.options.attribute_to),
                key: groups.keys[groups.of[i] as usize].clone(),
                module: self.module(event),
                allocated_time_ns: self.trace.absolute(m.time()[block.allocated()]),
                freed_time_ns: block.freed().map(|f| self.trace.absolute(m.time()[f])),
            }
        };
        largest.into_iter().map(block).collect()
    }

    fn next_peak(&self, live: &[usize]) -> Option<NextPeak> {
        let m = self.memory;
        if !m.is_paired() {
            return None;
        }
        let mut change = vec![Bytes::ZERO; m.len() + 1];
        for block in live.iter().map(|i| m.blocks()[*i]) {
            change[block.allocated()] += block.bytes;
            change[block.freed().unwrap_or(m.len())] -= block.bytes;
        }
        let mut shared = Bytes::ZERO;
        let mut best: Option<(usize, Bytes)> = None;
        for (event, total) in m.allocated().iter().enumerate() {
            shared += change[event];
            let left = *total - shared;
            if best.is_none_or(|(_, most)| left > most) {
                best = Some((event, left));
            }
        }
        let (event, without_live_set_bytes) = best?;
        let (step, phase, operator) = self.surroundings(event + 1, m.time()[event]);
        Some(NextPeak {
            time_ns: self.trace.absolute(m.time()[event]),
            allocated_bytes: m.allocated()[event],
            without_live_set_bytes,
            step,
            phase,
            operator,
        })
    }
}

/// How many of a device's events have happened at a moment, when that is, and what was asked for and not had. `None`
/// where the device has no such moment.
pub fn resolve(
    trace: &Trace,
    memory: &DeviceMemory,
    who: &Attribution<'_>,
    at: Moment,
) -> Option<(usize, Nanos, Option<Bytes>)> {
    let after = |event: usize| (event + 1, memory.time()[event], None);
    Some(match at {
        Moment::Peak => after(memory.peak()?),
        Moment::End => after(memory.len().checked_sub(1)?),
        Moment::Time(passed) => {
            let time = trace_start(trace) + passed;
            (memory.position_at(time), time, None)
        }
        Moment::Step(number) => {
            let step = who.context.steps().numbered(number)?;
            let from = memory.time().partition_point(|t| *t < step.start);
            let top = memory.peak_in(from, memory.position_at(step.end).max(from));
            // What was live as the step began can be more than anything in it.
            match top.filter(|top| memory.allocated()[*top] > memory.allocated_at(from) || from == 0) {
                Some(top) => after(top),
                None => (from, step.start, None),
            }
        }
        Moment::OutOfMemory => {
            let events = trace.out_of_memory();
            let mine = |i: &usize| trace.device(events.device()[*i]) == memory.device();
            let i = (0..events.len()).find(mine)?;
            (memory.position_at(events.time()[i]), events.time()[i], Some(events.bytes()[i]))
        }
    })
}

/// The time of the first event of any kind.
pub fn trace_start(trace: &Trace) -> Nanos {
    let firsts = [
        trace.ops().start().first(),
        trace.device_events().start().first(),
        trace.frames().start().first(),
        trace.memory().time().first(),
        trace.out_of_memory().time().first(),
    ];
    firsts.into_iter().flatten().min().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::categories::CategoryRules;
    use super::super::step_spans::StepSpans;
    use super::super::testing::{Build, span};
    use super::*;

    /// 100 bytes from before; A holds 50 from 10 on, B 30 from 20 to 40, C 60 from 50 to 60; D 25 from 70 on.
    fn look(at: Moment) -> Vec<DevicePeak> {
        let mut b = Build::default();
        b.before(100);
        for (name, start, end) in [("ProfilerStep#3", 0, 45), ("ProfilerStep#4", 46, 90)] {
            b.span(span(name, start, end));
        }
        for (name, start) in [("A", 5), ("B", 15), ("C", 48), ("D", 65)] {
            b.span(span(name, start, start + 8));
        }
        for (time, address, bytes) in [(10, 1, 50), (20, 2, 30), (40, 2, -30), (50, 3, 60), (60, 3, -60), (70, 4, 25)] {
            b.alloc(time, address, bytes);
        }
        let trace = b.finish();
        let who = Attribution::build(&trace, StepSpans::find(&trace), CategoryRules::default());
        let options = PeakOptions { at, ..PeakOptions::default() };
        peaks(&trace, &Allocations::build(&trace), &who, &options)
    }

    fn held(at: Moment) -> Vec<(String, i64)> {
        look(at)[0].rows.iter().map(|r| (r.key.clone(), r.live_bytes.0)).collect()
    }

    #[test]
    fn the_live_set_is_that_of_the_moment() {
        let (a, b, c, d) = (("A".to_owned(), 50), ("B".to_owned(), 30), ("C".to_owned(), 60), ("D".to_owned(), 25));
        assert_eq!(held(Moment::Peak), [c.clone(), a.clone()]);
        assert_eq!(held(Moment::Step(3)), [a.clone(), b]);
        assert_eq!(held(Moment::Step(4)), [c, a.clone()]);
        assert_eq!(held(Moment::End), [a.clone(), d]);
        assert_eq!(held(Moment::Time(Nanos(5))), []);
        assert_eq!(held(Moment::Time(Nanos(45))), [a]);
        assert!(look(Moment::OutOfMemory).is_empty());
    }

    #[test]
    fn the_peak_says_when_and_where_and_sums() {
        let d = &look(Moment::Peak)[0];
        assert_eq!(
            (d.peak_allocated_bytes, d.peak_time_ns, d.before_trace_bytes),
            (Bytes(210), Nanos(50), Some(Bytes(100)))
        );
        assert_eq!((d.reserved_at_peak_bytes, d.peak_reserved_bytes), (Some(Bytes(310)), Some(Bytes(310))));
        assert_eq!((d.allocated_bytes, d.allocation_count, d.freed_bytes, d.free_count), (Bytes(165), 4, Bytes(90), 2));
        assert_eq!(
            (d.at.step.as_deref(), d.at.phase, d.at.operator.as_deref()),
            (Some("ProfilerStep#4"), Some("forward"), Some("C"))
        );
    }

    #[test]
    fn without_a_group_and_without_the_whole_live_set_the_curve_is_that_much_lower() {
        // Totals 150 180 150 210 150 175; without C 180; without A 160; without A and C 130 (B at 20).
        let d = &look(Moment::Peak)[0];
        assert_eq!(d.rows.iter().map(|r| r.peak_without_bytes.0).collect::<Vec<_>>(), [180, 160]);
        let next = d.next_peak.as_ref().unwrap();
        assert_eq!(
            (next.time_ns, next.allocated_bytes, next.without_live_set_bytes),
            (Nanos(20), Bytes(180), Bytes(130))
        );
    }

    #[test]
    fn moments_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Moment>();
        assert_eq!(read("peak"), Ok(Moment::Peak));
        assert_eq!(read("step:3"), Ok(Moment::Step(3)));
        assert_eq!(read("12.5ms"), Ok(Moment::Time(Nanos(12_500_000))));
        assert_eq!(read("300 us"), Ok(Moment::Time(Nanos(300_000))));
        assert_eq!(read("1.2s"), Ok(Moment::Time(Nanos(1_200_000_000))));
        assert_eq!(read("15ns"), Ok(Moment::Time(Nanos(15))));
        for text in ["", "s", "-1ms", "step:", "12", "12 parsecs"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
