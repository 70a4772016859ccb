//! Memory by line of Python, as memory_profiler counts it.
//!
//! Where the allocator recorded stacks (snapshots, and operators of old traces), lines are exact: a line counts for each
//! allocation in whose stack it stands. Else the frames of a trace tell functions by the line where they start, and a
//! call counts by how the allocated total changed from its start to its end, with all that it calls, on whatever thread.
//! What is allocated and live at the peak counts for the innermost frame of the user's own code alone, so it sums to the
//! whole.

use super::allocations::{Allocations, DeviceMemory};
use super::context::{Context, PathId, RecordedStack, is_user_frame, parse_frame, recorded_stack};
use super::net_memory::first_after;
use super::owners::Owners;
use super::step_spans::StepSpans;
use crate::trace::{FrameKind, StrId, ThreadId, Trace};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use serde::Serialize;

/// The lines of a device's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lines {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Whether lines are those that ran; else they are where functions start.
    pub exact: bool,
    /// The greatest allocated total.
    pub peak_allocated_bytes: Bytes,
    /// What is live at the peak from before the trace; `None` where blocks are not known.
    pub before_trace_bytes: Option<Bytes>,
    /// What was allocated in no frame of Python.
    pub elsewhere_allocated_bytes: Bytes,
    /// What of it is live at the peak.
    pub elsewhere_peak_live_bytes: Option<Bytes>,
    /// The lines, in the order in which they first appear.
    pub lines: Vec<Line>,
}

/// A line of Python, or a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// The file, as the trace names it.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function that it stands in.
    pub function: String,
    /// Whether it is of the user's own code.
    pub is_user: bool,
    /// The greatest allocated total right after it; `None` where nothing was seen.
    pub mem_usage_bytes: Option<Bytes>,
    /// By how much the allocated total changed in it; of exact lines what they allocated and nobody freed. `None` where
    /// blocks are not known.
    pub increment_bytes: Option<Bytes>,
    /// How many calls; of exact lines how many allocations.
    pub occurrences: u64,
    /// Gross bytes allocated with this as the user's innermost frame.
    pub allocated_bytes: Bytes,
    /// What of it is live at the peak.
    pub peak_live_bytes: Option<Bytes>,
}

impl Lines {
    /// The lines of this memory; `None` where the trace holds no frames of Python.
    pub fn compute(trace: &Trace, memory: &DeviceMemory) -> Option<Self> {
        let owners = Owners::build(trace);
        let peak = memory.peak().map_or(0, |event| event + 1);
        let mut lines = LineTable {
            trace,
            memory,
            peak,
            of_name: HashMap::new(),
            lines: Lines {
                device: memory.device().to_string(),
                peak_allocated_bytes: memory.allocated_at(peak),
                before_trace_bytes: memory.before_trace_at(peak),
                elsewhere_peak_live_bytes: memory.is_paired().then_some(Bytes::ZERO),
                ..Lines::default()
            },
        };
        if trace.has_stacks() || trace.details().iter().any(|d| d.call_stack != StrId::EMPTY) {
            lines.lines.exact = true;
            lines.add_recorded(&owners);
        } else if trace.frames().is_empty() {
            return None;
        } else {
            lines.add_calls();
            lines.add_owned(&owners);
        }
        Some(lines.lines)
    }

    /// The device with the greatest peak.
    pub fn busiest(memory: &Allocations) -> Option<&DeviceMemory> {
        let peak = |m: &&DeviceMemory| m.peak().map(|event| m.allocated()[event]);
        // Of equals the first, which is an accelerator.
        let accelerators = memory.devices().iter().filter(|m| !m.device().kind.is_cpu());
        accelerators.rev().max_by_key(peak).or_else(|| memory.devices().iter().rev().max_by_key(peak))
    }
}

/// A recorded stack as lines.
struct StackLines {
    /// Each line once.
    all: Vec<u32>,
    /// The innermost of the user's own code, else the innermost.
    own: Option<u32>,
}

struct LineTable<'t> {
    trace: &'t Trace,
    memory: &'t DeviceMemory,
    peak: usize,
    of_name: HashMap<&'t str, Option<u32>>,
    lines: Lines,
}

impl<'t> LineTable<'t> {
    /// The place of the line of a frame; `None` for built-ins and modules.
    fn line(&mut self, name: &'t str) -> Option<u32> {
        let (lines, memory) = (&mut self.lines.lines, self.memory);
        *self.of_name.entry(name).or_insert_with(|| {
            let (file, line, function) = parse_frame(name)?;
            let known = memory.is_paired().then_some(Bytes::ZERO);
            lines.push(Line {
                file: file.to_owned(),
                line,
                function: function.to_owned(),
                is_user: is_user_frame(name),
                increment_bytes: known.or((!self.lines.exact).then_some(Bytes::ZERO)),
                peak_live_bytes: known,
                ..Line::default()
            });
            Some(lines.len() as u32 - 1)
        })
    }

    /// Every allocation at all lines of its stack.
    fn add_recorded(&mut self, owners: &Owners<'t>) {
        let mut known: HashMap<RecordedStack<'t>, StackLines> = HashMap::new();
        for (event, bytes, live, kept) in self.allocations() {
            let row = self.memory.events()[event] as usize;
            let Some(stack) = recorded_stack(owners, row) else {
                self.add_own(None, bytes, live);
                continue;
            };
            let total = self.memory.allocated()[event];
            let stack = known.entry(stack).or_insert_with(|| self.stack_lines(stack));
            for place in &stack.all {
                let line = &mut self.lines.lines[*place as usize];
                line.occurrences += 1;
                line.mem_usage_bytes = line.mem_usage_bytes.max(Some(total));
                if let Some(increment) = line.increment_bytes.as_mut().filter(|_| kept) {
                    *increment += bytes;
                }
            }
            let own = stack.own;
            self.add_own(own, bytes, live);
        }
    }

    fn stack_lines(&mut self, stack: RecordedStack<'t>) -> StackLines {
        let names: Vec<&'t str> = match stack {
            RecordedStack::Nodes(id) => self.trace.stack(id).collect(),
            RecordedStack::Text(text) => text.split(';').map(str::trim).collect(),
        };
        let frames: Vec<u32> = names.into_iter().filter_map(|name| self.line(name)).collect();
        let user = frames.iter().copied().find(|place| self.lines.lines[*place as usize].is_user);
        let own = user.or(frames.first().copied());
        let mut all = frames;
        all.sort_unstable();
        all.dedup();
        StackLines { all, own }
    }

    /// Every call of every function.
    fn add_calls(&mut self) {
        let (frames, time) = (self.trace.frames(), self.memory.time());
        let mut of_name: Vec<Option<Option<u32>>> = vec![None; self.trace.strings().len()];
        // A call inside a call of the same function counts once: the outer one has all of it.
        let mut busy_until: HashMap<(u32, ThreadId), Nanos> = HashMap::new();
        let mut before = 0;
        for i in (0..frames.len()).filter(|i| frames.kind()[*i] == FrameKind::Function) {
            let (start, end) = (frames.start()[i], frames.end(i));
            while time.get(before).is_some_and(|t| *t < start) {
                before += 1;
            }
            let name = frames.name()[i];
            let place = *of_name[name.index()].get_or_insert_with(|| self.line(self.trace.str(name)));
            let Some(place) = place else { continue };
            let after = before + first_after(&time[before..], end);
            let (from, to) = (self.memory.allocated_at(before), self.memory.allocated_at(after));
            let until = busy_until.entry((place, frames.thread()[i])).or_insert(Nanos(i64::MIN));
            let line = &mut self.lines.lines[place as usize];
            line.occurrences += 1;
            line.mem_usage_bytes = line.mem_usage_bytes.max(Some(to));
            if start >= *until {
                *until = end;
                line.increment_bytes = line.increment_bytes.map(|sum| sum + (to - from));
            }
        }
    }

    /// Every allocation at the innermost frame of the user's own code.
    fn add_owned(&mut self, owners: &Owners<'t>) {
        let context = Context::new(self.trace, StepSpans::default());
        let mut known: HashMap<PathId, Option<u32>> = HashMap::new();
        for (event, bytes, live, _) in self.allocations() {
            let path = context.stack(owners, self.memory.events()[event] as usize);
            let own = path.and_then(|path| {
                *known.entry(path).or_insert_with(|| context.names(path).find_map(|name| self.line(name)))
            });
            self.add_own(own, bytes, live);
        }
    }

    fn add_own(&mut self, place: Option<u32>, bytes: Bytes, live: bool) {
        let (allocated, peak_live) = match place {
            Some(place) => {
                let line = &mut self.lines.lines[place as usize];
                (&mut line.allocated_bytes, &mut line.peak_live_bytes)
            }
            None => (&mut self.lines.elsewhere_allocated_bytes, &mut self.lines.elsewhere_peak_live_bytes),
        };
        *allocated += bytes;
        if let Some(peak_live) = peak_live.as_mut().filter(|_| live) {
            *peak_live += bytes;
        }
    }

    /// The device's event of every allocation, its bytes, whether it is live at the peak, and whether nobody freed it.
    fn allocations(&self) -> Vec<(usize, Bytes, bool, bool)> {
        if self.memory.is_paired() {
            let block =
                |b: &super::allocations::Block| (b.allocated(), b.bytes, b.is_live(self.peak), b.freed().is_none());
            return self.memory.blocks().iter().map(block).collect();
        }
        let gained = self.memory.change().iter().enumerate().filter(|(_, b)| b.0 > 0);
        gained.map(|(event, b)| (event, *b, false, false)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;

    fn compute(trace: &Trace) -> Lines {
        let memory = Allocations::build(trace);
        Lines::compute(trace, Lines::busiest(&memory).unwrap()).unwrap()
    }

    fn told(lines: &Lines) -> Vec<String> {
        let bytes = |b: Option<Bytes>| b.map_or("-".to_owned(), |b| b.to_string());
        let line = |l: &Line| {
            let (usage, increment) = (bytes(l.mem_usage_bytes), bytes(l.increment_bytes));
            let live = bytes(l.peak_live_bytes);
            format!(
                "{}:{} {}: {usage} {increment} x{}, {} {live}",
                l.file, l.line, l.function, l.occurrences, l.allocated_bytes
            )
        };
        lines.lines.iter().map(line).collect()
    }

    #[test]
    fn a_call_counts_by_how_memory_changed_and_what_is_live_by_the_innermost_frame() {
        // [a.py(1): main [a.py(5): f +8  [a.py(5): f +4]  ]   -8  [a.py(5): f +16]]   +2
        let mut b = Build::default();
        b.before(100);
        b.frame("a.py(1): main", "1", 0, 100);
        b.frame("a.py(5): f", "1", 10, 40);
        b.frame("<built-in method g>", "1", 11, 39);
        b.frame("a.py(5): f", "1", 20, 30);
        b.frame("a.py(5): f", "1", 60, 80);
        b.span(span("aten::mm", 12, 28));
        b.alloc(15, 1, 8);
        b.alloc(25, 2, 4);
        b.alloc(50, 1, -8);
        b.alloc(70, 3, 16);
        b.alloc(110, 4, 2);
        let got = compute(&b.finish());
        assert!(!got.exact);
        assert_eq!(told(&got), ["a.py:1 main: 120 20 x1, 0 0", "a.py:5 f: 120 28 x3, 28 20"]);
        let live: Bytes = got.lines.iter().filter_map(|l| l.peak_live_bytes).sum();
        let elsewhere = got.elsewhere_peak_live_bytes.unwrap();
        assert_eq!(live + elsewhere + got.before_trace_bytes.unwrap(), got.peak_allocated_bytes);
        assert_eq!((elsewhere, got.elsewhere_allocated_bytes), (Bytes(2), Bytes(2)));
    }
}
