//! Key averages: the rows of PyTorch's `prof.key_averages()`, recovered from a trace alone.
//!
//! Definitions are PyTorch's: memory of a row is the net of all memory events while its operators ran, on whatever
//! thread; device time is that of the kernels, copies and sets that its operators launched. Gross
//! bytes and what is live at the peak go beyond it and count for the owner of a block alone: see
//! [`op_allocations`](super::op_allocations).

use super::allocations::Allocations;
use super::device_time::{DeviceTime, OnDevice, ShadowSpans};
use super::flops::FlopCounter;
use super::net_memory::{NetMemory, is_counted, outside_ops};
use super::op_allocations::{Allocated, OpAllocations};
use super::op_stacks::OpStacks;
use super::shapes::{as_torch_prints, spaced};
use super::tree::{OpTree, Role, is_step, merged_names};
use crate::trace::{DetailId, Device, DeviceEventKind, DeviceType, OpKind, StrId, Trace};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use serde::{Serialize, Serializer};

/// What to group by and what to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AveragesOptions {
    /// Rows of one name with different input shapes are different rows.
    pub group_by_input_shape: bool,
    /// Rows of one name whose innermost stack frames differ are different rows; 0 for not.
    pub group_by_stack_n: usize,
    /// Count only memory events of this device, and only device events that ran on it.
    pub device: Option<Device>,
    /// Keep only rows whose first event stands in no other (PyTorch's `top_level_only`). Totals still count all.
    pub top_level_only: bool,
    /// Show and group shapes exactly as PyTorch prints them: a list of tensors is `[]`, and so is knowing no shapes.
    /// Otherwise shapes are as the trace has them.
    pub torch_shapes: bool,
}

/// The rows, in the order in which they first appear, and PyTorch's totals over all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyAverages {
    /// The rows by the start of their first event.
    pub rows: Vec<KeyAverage>,
    /// The sum of the rows' self CPU times.
    #[serde(rename = "self_cpu_time_total_ns")]
    pub self_cpu_time_total: Nanos,
    /// The sum of the device-side rows' times, without annotations (`Self CUDA time total`).
    #[serde(rename = "self_device_time_total_ns")]
    pub self_device_time_total: Nanos,
}

/// Events of one name (and side, shapes, stack): PyTorch's `FunctionEventAvg`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyAverage {
    /// The events' name; all steps are `ProfilerStep*`.
    pub key: String,
    /// `CPU`, or the accelerator's type for device-side events; serialized in upper case.
    #[serde(serialize_with = "upper_case")]
    pub device_type: DeviceType,
    /// Whether the events are annotations, or their shadows on the device.
    pub is_user_annotation: bool,
    /// The input shapes as text, where they are grouped by and known.
    pub input_shapes: Option<String>,
    /// The innermost frames, innermost first, where they are grouped by.
    pub stack: Vec<String>,
    /// How many events.
    pub count: u64,
    /// Time from start to end; 0 for device-side events.
    #[serde(rename = "cpu_time_total_ns")]
    pub cpu_time_total: Nanos,
    /// The same without the events inside.
    #[serde(rename = "self_cpu_time_total_ns")]
    pub self_cpu_time_total: Nanos,
    /// Time of the kernels, copies and sets that the events and those inside them launched.
    #[serde(rename = "device_time_total_ns")]
    pub device_time_total: Nanos,
    /// The same without the events inside.
    #[serde(rename = "self_device_time_total_ns")]
    pub self_device_time_total: Nanos,
    /// Net bytes of host memory allocated while the events ran.
    #[serde(rename = "cpu_memory_usage_bytes")]
    pub cpu_memory_usage: Bytes,
    /// The same without the events inside.
    #[serde(rename = "self_cpu_memory_usage_bytes")]
    pub self_cpu_memory_usage: Bytes,
    /// Net bytes of device memory allocated while the events ran.
    #[serde(rename = "device_memory_usage_bytes")]
    pub device_memory_usage: Bytes,
    /// The same without the events inside.
    #[serde(rename = "self_device_memory_usage_bytes")]
    pub self_device_memory_usage: Bytes,
    /// Floating point operations by PyTorch's formulas; 0 where it has none.
    pub flops: u64,
    /// Gross bytes allocated by the row's operators themselves; `None` without memory events, and on the device's side.
    pub allocated_bytes: Option<Bytes>,
    /// Number of these allocations.
    pub allocation_count: Option<u64>,
    /// Bytes of these allocations live at the device's peak; `None` also where blocks are not known.
    pub peak_live_bytes: Option<Bytes>,
    /// Whether the events may end on another thread than they begin on, and have no time of their own for that.
    pub is_async: bool,
    /// Whether the row's first event stands in no other.
    #[serde(skip)]
    pub top_level: bool,
}

impl KeyAverage {
    fn add_allocated(&mut self, more: Allocated, paired: bool) {
        self.allocated_bytes = Some(self.allocated_bytes.unwrap_or_default() + more.bytes);
        self.allocation_count = Some(self.allocation_count.unwrap_or_default() + more.count);
        if paired {
            self.peak_live_bytes = Some(self.peak_live_bytes.unwrap_or_default() + more.peak_live);
        }
    }
}

fn upper_case<S: Serializer>(kind: &DeviceType, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&kind.to_string().to_uppercase())
}

impl KeyAverages {
    /// The key averages of a trace.
    pub fn compute(trace: &Trace, options: &AveragesOptions) -> Self {
        let allocated = || OpAllocations::of(trace, &Allocations::build(trace), options.device);
        let (tree, allocated) = rayon::join(|| OpTree::build(trace), allocated);
        Self::of_tree(trace, &tree, allocated.as_ref(), options)
    }

    /// The key averages of a trace whose operator tree is known, and what operators allocate on the options' device, if
    /// the trace holds memory events.
    pub fn of_tree(trace: &Trace, tree: &OpTree, allocated: Option<&OpAllocations>, options: &AveragesOptions) -> Self {
        let mut rows = Rows::new(trace, tree, options);
        rows.add_ops(&Times::of(trace, tree, options.device), allocated);
        rows.add_device_events();
        rows.add_memory_outside_ops(allocated);
        rows.add_out_of_memory();
        rows.finish()
    }
}

/// What makes events one row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    name: Name,
    on_device: bool,
    is_annotation: bool,
    shape: u32,
    stack: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Recorded(StrId),
    Memory,
    OutOfMemory,
}

/// The rows while they are added up.
struct Rows<'t> {
    trace: &'t Trace,
    tree: &'t OpTree,
    options: &'t AveragesOptions,
    merged: Vec<StrId>,
    shapes: Shapes,
    stacks: OpStacks,
    places: HashMap<Key, u32>,
    /// For each name the place of its last event, which is most likely that of the next.
    recent: Vec<u32>,
    keys: Vec<Key>,
    rows: Vec<KeyAverage>,
    /// Start and negated duration of each row's first event, which is the order of the rows.
    first: Vec<(Nanos, Nanos)>,
}

impl<'t> Rows<'t> {
    fn new(trace: &'t Trace, tree: &'t OpTree, options: &'t AveragesOptions) -> Self {
        Self {
            trace,
            tree,
            options,
            merged: merged_names(trace),
            shapes: Shapes::new(trace, options),
            stacks: OpStacks::new(trace, tree, options.group_by_stack_n),
            places: HashMap::new(),
            recent: vec![0; trace.strings().len()],
            keys: Vec::new(),
            rows: Vec::new(),
            first: Vec::new(),
        }
    }

    /// The place of the row of `key`, whose first event is this one if it is new.
    fn place(&mut self, key: Key, start: Nanos, duration: Nanos, top_level: bool) -> usize {
        let Self { trace, shapes, stacks, places, recent, keys, rows, first, .. } = self;
        let mut unnamed = 0;
        let recent = if let Name::Recorded(id) = key.name { &mut recent[id.index()] } else { &mut unnamed };
        if keys.get(*recent as usize) == Some(&key) {
            return *recent as usize;
        }
        *recent = *places.entry(key).or_insert_with(|| {
            first.push((start, -duration));
            keys.push(key);
            let name = match key.name {
                Name::Recorded(id) if is_step(trace.str(id)) => "ProfilerStep*",
                Name::Recorded(id) => trace.str(id),
                Name::Memory => "[memory]",
                Name::OutOfMemory => "[OutOfMemory]",
            };
            rows.push(KeyAverage {
                key: name.to_owned(),
                device_type: if key.on_device { trace.accelerator() } else { DeviceType::CPU },
                is_user_annotation: key.is_annotation,
                input_shapes: shapes.texts[key.shape as usize].clone(),
                stack: stacks.frames(trace, key.stack),
                count: 0,
                cpu_time_total: Nanos::ZERO,
                self_cpu_time_total: Nanos::ZERO,
                device_time_total: Nanos::ZERO,
                self_device_time_total: Nanos::ZERO,
                cpu_memory_usage: Bytes::ZERO,
                self_cpu_memory_usage: Bytes::ZERO,
                device_memory_usage: Bytes::ZERO,
                self_device_memory_usage: Bytes::ZERO,
                flops: 0,
                allocated_bytes: None,
                allocation_count: None,
                peak_live_bytes: None,
                is_async: false,
                top_level,
            });
            (rows.len() - 1) as u32
        });
        *recent as usize
    }

    fn add_ops(&mut self, times: &Times, allocated: Option<&OpAllocations>) {
        let (trace, tree) = (self.trace, self.tree);
        let ops = trace.ops();
        let Times { inside, device } = times;
        let mut memory = NetMemory::new(trace, self.options.device);
        let mut flops = FlopCounter::new(trace);
        let mut places = vec![u32::MAX; ops.len()];
        for i in (0..ops.len()).filter(|i| tree.role(*i) != Role::LeftOut) {
            if let Some(into) = tree.folded_into(i) {
                if let Some(all) = allocated {
                    self.rows[places[into] as usize].add_allocated(all.of_op[i], all.paired);
                }
                continue;
            }
            let (start, duration, detail) = (ops.start()[i], ops.duration()[i], ops.detail()[i]);
            let parent = tree.parent(i);
            let key = Key {
                name: Name::Recorded(self.merged[ops.name()[i].index()]),
                on_device: false,
                is_annotation: ops.kind()[i] == OpKind::Annotation,
                shape: self.shapes.of(detail),
                stack: self.stacks.of(i),
            };
            let place = self.place(key, start, duration, parent.is_none());
            places[i] = place as u32;
            let net = memory.within(start, start + duration);
            let row = &mut self.rows[place];
            row.count += 1;
            row.cpu_time_total += duration;
            row.cpu_memory_usage += net.cpu;
            row.device_memory_usage += net.device;
            row.flops = row.flops.saturating_add(flops.of(ops.name()[i], detail));
            if let Some(all) = allocated {
                row.add_allocated(all.of_op[i], all.paired);
            }
            if tree.role(i) == Role::Async {
                row.is_async = true;
                continue;
            }
            row.self_cpu_time_total += (duration - inside[i]).max(Nanos::ZERO);
            row.device_time_total += device.total[i];
            row.self_device_time_total += device.own[i];
            row.self_cpu_memory_usage += net.cpu;
            row.self_device_memory_usage += net.device;
            if let Some(parent) = parent {
                let outer = &mut self.rows[places[parent] as usize];
                outer.self_cpu_memory_usage -= net.cpu;
                outer.self_device_memory_usage -= net.device;
            }
        }
    }

    fn add_device_events(&mut self) {
        let events = self.trace.device_events();
        let device = OnDevice::new(self.trace, self.options.device);
        let is_shadow = |k: usize| events.kind()[k] == DeviceEventKind::Annotation;
        let on_device = (0..events.len()).filter(|k| device.holds(*k));
        // Where a shadow spans but one kernel, PyTorch lists the kernel first.
        let (shadows, work): (Vec<usize>, Vec<usize>) = on_device.partition(|k| is_shadow(*k));
        let spans = ShadowSpans::new(events, &shadows);
        for k in work.into_iter().chain(shadows) {
            let (start, duration) = if is_shadow(k) { spans.of(k) } else { (events.start()[k], events.duration()[k]) };
            let key = Key {
                name: Name::Recorded(self.merged[events.name()[k].index()]),
                on_device: true,
                is_annotation: is_shadow(k),
                shape: self.shapes.of(DetailId::NONE),
                stack: OpStacks::NONE,
            };
            let place = self.place(key, start, duration, true);
            let row = &mut self.rows[place];
            row.count += 1;
            row.device_time_total += duration;
            row.self_device_time_total += duration;
        }
    }

    fn add_memory_outside_ops(&mut self, allocated: Option<&OpAllocations>) {
        let trace = self.trace;
        let mut outside = allocated;
        for k in outside_ops(trace, self.tree, self.options.device) {
            let event = trace.memory().get(k);
            let place = self.instant(Name::Memory, event.time);
            let row = &mut self.rows[place];
            if let Some(all) = outside.take() {
                row.add_allocated(all.outside, all.paired);
            }
            if trace.device(event.device).kind.is_cpu() {
                row.cpu_memory_usage += event.bytes;
                row.self_cpu_memory_usage += event.bytes;
            } else {
                row.device_memory_usage += event.bytes;
                row.self_device_memory_usage += event.bytes;
            }
        }
    }

    fn add_out_of_memory(&mut self) {
        let trace = self.trace;
        for event in trace.out_of_memory().iter() {
            if is_counted(trace.device(event.device), self.options.device) {
                self.instant(Name::OutOfMemory, event.time);
            }
        }
    }

    /// Counts an event without duration.
    fn instant(&mut self, name: Name, time: Nanos) -> usize {
        let shape = self.shapes.of(DetailId::NONE);
        let key = Key { name, on_device: false, is_annotation: false, shape, stack: OpStacks::NONE };
        let place = self.place(key, time, Nanos::ZERO, true);
        self.rows[place].count += 1;
        place
    }

    fn finish(self) -> KeyAverages {
        let mut order: Vec<(usize, KeyAverage)> = self.rows.into_iter().enumerate().collect();
        order.sort_by_key(|(i, _)| (self.first[*i], *i));
        let mut rows: Vec<KeyAverage> = order.into_iter().map(|(_, row)| row).collect();
        let on_device = |row: &&KeyAverage| !row.device_type.is_cpu() && !row.is_user_annotation;
        let self_cpu_time_total = rows.iter().map(|r| r.self_cpu_time_total).sum();
        let self_device_time_total = rows.iter().filter(on_device).map(|r| r.self_device_time_total).sum();
        if self.options.top_level_only {
            rows.retain(|row| row.top_level);
        }
        KeyAverages { rows, self_cpu_time_total, self_device_time_total }
    }
}

/// What each operator's time went to.
struct Times {
    inside: Vec<Nanos>,
    device: DeviceTime,
}

impl Times {
    fn of(trace: &Trace, tree: &OpTree, only: Option<Device>) -> Self {
        let (inside, device) = rayon::join(|| time_of_children(trace, tree), || DeviceTime::of(trace, tree, only));
        Self { inside, device }
    }
}

/// Time of the events directly inside each.
fn time_of_children(trace: &Trace, tree: &OpTree) -> Vec<Nanos> {
    let mut inside = vec![Nanos::ZERO; tree.len()];
    for (i, duration) in trace.ops().duration().iter().enumerate() {
        if let Some(parent) = tree.parent(i) {
            inside[parent] += *duration;
        }
    }
    inside
}

/// The shapes that rows are grouped by: a number for each distinct text.
struct Shapes {
    /// For each detail the place of its text; empty if shapes are not grouped by.
    of_detail: Vec<u32>,
    texts: Vec<Option<String>>,
}

impl Shapes {
    fn new(trace: &Trace, options: &AveragesOptions) -> Self {
        let mut shapes = Self { of_detail: Vec::new(), texts: vec![None] };
        if !options.group_by_input_shape {
            return shapes;
        }
        let mut places: HashMap<String, u32> = HashMap::new();
        for detail in trace.details() {
            let dims = trace.str(detail.input_dims);
            let place = if options.torch_shapes || !dims.is_empty() {
                let text = if options.torch_shapes { as_torch_prints(dims) } else { spaced(dims) };
                *places.entry(text).or_insert_with_key(|text| {
                    shapes.texts.push(Some(text.clone()));
                    (shapes.texts.len() - 1) as u32
                })
            } else {
                0
            };
            shapes.of_detail.push(place);
        }
        shapes
    }

    fn of(&self, detail: DetailId) -> u32 {
        self.of_detail.get(detail.index()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
