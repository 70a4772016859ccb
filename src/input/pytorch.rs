//! PyTorch's names and their old spellings: from the fields of an event to the rows of the model.
//!
//! The one file that knows what exporters of 2020 to 2026 and of several vendors call things. See
//! [`super::event`] for the fields.

use super::cursor::Interest;
use super::event::{RawEvent, Text};
use super::layout::PassageId;
use super::text;
use crate::trace::{
    Detail, DetailId, Device, DeviceEvent, DeviceEventKind, DeviceProperties, DeviceType, Distributed, Frame,
    FrameKind, Info, Keep, MemoryEvent, Op, OpKind, OutOfMemory, Severity, StackId, StrId, ThreadId, TraceBuilder,
};
use crate::units::{Bytes, Nanos};
use serde_json::Value;

/// What a category means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Op(OpKind),
    Device(DeviceEventKind),
    Python,
    /// No category at all.
    Missing,
    Other,
}

/// The meaning of a category in lower case, of every exporter that is known.
fn class_of(category: &[u8]) -> Class {
    match category {
        b"cpu_op" | b"operator" => Class::Op(OpKind::Operator),
        b"user_annotation" => Class::Op(OpKind::Annotation),
        b"cuda_runtime"
        | b"runtime"
        | b"hip_runtime"
        | b"xpu_runtime"
        | b"mtia_runtime"
        | b"glow_runtime"
        | b"privateuse1_runtime" => Class::Op(OpKind::Runtime),
        b"cuda_driver" | b"xpu_driver" | b"privateuse1_driver" => Class::Op(OpKind::Driver),
        b"overhead" => Class::Op(OpKind::Overhead),
        b"kernel" | b"mtia_ccp_events" | b"mtia_insight" | b"hpu_op" => Class::Device(DeviceEventKind::Kernel),
        b"gpu_memcpy" | b"memcpy" => Class::Device(DeviceEventKind::Memcpy),
        b"gpu_memset" | b"memset" => Class::Device(DeviceEventKind::Memset),
        b"gpu_user_annotation" => Class::Device(DeviceEventKind::Annotation),
        b"python_function" => Class::Python,
        b"" => Class::Missing,
        _ => Class::Other,
    }
}

/// The meaning of a task's type on an Ascend NPU.
fn class_of_task(task_type: &[u8]) -> Class {
    let has = |word: &[u8]| memchr::memmem::find(task_type, word).is_some();
    if has(b"EVENT") || has(b"NOTIFY") {
        // A stream that waits runs nothing.
        Class::Other
    } else if has(b"MEMCPY") || has(b"SDMA") {
        Class::Device(DeviceEventKind::Memcpy)
    } else {
        Class::Device(DeviceEventKind::Kernel)
    }
}

fn class(event: &RawEvent<'_>) -> Class {
    let category = event.category.raw;
    let class = match class_of(category) {
        // Old exporters capitalise.
        Class::Other if category.len() <= 32 && category.iter().any(u8::is_ascii_uppercase) => {
            class_of(&category.to_ascii_lowercase())
        }
        class => class,
    };
    match class {
        // The autograd profiler's own exporter, before Kineto, names the rows and gives no category.
        Class::Missing if event.pid.raw == b"CPU functions" => Class::Op(OpKind::Operator),
        Class::Missing if event.pid.raw == b"CUDA functions" => Class::Device(DeviceEventKind::Kernel),
        // Ascend's profiler gives the tasks of an NPU no category either.
        Class::Missing if !event.args.task_type.raw.is_empty() => class_of_task(event.args.task_type.raw),
        class => class,
    }
}

/// Turns events into rows of a [`TraceBuilder`].
pub(super) struct Decoder {
    builder: TraceBuilder,
    keep: Keep,
    /// Place of the batch's first byte in the input.
    base: u64,
    last_thread: ThreadMemo,
    last_device: Option<(i16, i32, crate::trace::DeviceId)>,
    /// The details of the inputs of each passage: most operators are called with the shapes of an earlier call.
    details: Vec<Option<DetailId>>,
    /// Events of each phase that is never modelled, such as flows.
    phases: [u64; 256],
    /// Objects that were no events.
    strangers: u64,
}

/// The thread of the event before, which is most often that of the next one.
#[derive(Default)]
struct ThreadMemo {
    pid: Vec<u8>,
    tid: Vec<u8>,
    thread: Option<ThreadId>,
}

impl Decoder {
    /// A decoder for a batch that begins at byte `base` of the input, into an empty builder.
    pub(super) fn new(builder: TraceBuilder, base: u64) -> Self {
        Self {
            keep: builder.kept(),
            builder,
            base,
            last_thread: ThreadMemo::default(),
            last_device: None,
            details: Vec::new(),
            phases: [0; 256],
            strangers: 0,
        }
    }

    /// The rows so far.
    pub(super) fn finish(mut self) -> TraceBuilder {
        for (phase, count) in (0..=u8::MAX).zip(self.phases) {
            if count > 0 {
                self.builder.count_unmodelled(&format!("ph {}", phase_name(phase)), count);
            }
        }
        self.builder
    }

    /// Counts something odd at byte `at` of the batch.
    pub(super) fn note(&mut self, code: &'static str, severity: Severity, at: usize, message: &str) {
        let offset = Some(self.base + at as u64);
        self.builder.diagnostics_mut().note(code, severity, offset, || message.to_owned());
    }

    /// Whether an event of this phase and category is worth reading.
    #[inline(always)]
    pub(super) fn interest(keep: Keep, event: &RawEvent<'_>) -> Interest {
        let wanted = match event.phase {
            b'X' | b'B' | b'E' => match class(event) {
                Class::Op(_) => keep.ops,
                Class::Device(_) => keep.device_events,
                Class::Python => keep.frames,
                Class::Missing => true,
                Class::Other => false,
            },
            b'i' | b'I' | b'n' => keep.memory,
            // Flows are not held, but read: what is skipped may be half of one and half of an event that is held.
            _ => true,
        };
        if wanted { Interest::All } else { Interest::None }
    }

    /// Adds an event that begins at byte `at` of the batch.
    #[inline(always)]
    pub(super) fn push(&mut self, event: &RawEvent<'_>, at: usize) {
        self.builder.count_event();
        self.builder.set_place(self.base + at as u64);
        if event.odd_value {
            self.note("odd-value", Severity::Warning, at, "numbers that are none or too large; taken as not given");
        }
        if event.repeated {
            self.repeated(at);
        }
        match event.phase {
            b'X' => match class(event) {
                Class::Op(kind) if self.keep.ops => self.op(event, kind, at),
                Class::Device(kind) if self.keep.device_events => self.device_event(event, kind, at),
                Class::Python if self.keep.frames => self.frame(event, at),
                Class::Missing | Class::Other => self.unmodelled(event),
                _ => {}
            },
            b'B' | b'E' => self.mark(event, at),
            b'i' | b'I' | b'n' => self.instant(event, at),
            b'M' => self.metadata(event, at),
            phase => self.phases[usize::from(phase)] += 1,
        }
    }

    #[cold]
    fn repeated(&mut self, at: usize) {
        let message = "events with two names, times or durations, as where two run into one; the last counts";
        self.note("repeated-key", Severity::Warning, at, message);
    }

    /// Counts an object among the events that is none. `{}` closes the list of some exporters.
    #[cold]
    pub(super) fn stranger(&mut self, is_empty: bool, at: usize) {
        if !is_empty {
            self.note("not-an-event", Severity::Warning, at, "objects among the events without a phase (ph); left out");
        }
        self.strangers += 1;
    }

    #[cold]
    fn unmodelled(&mut self, event: &RawEvent<'_>) {
        let category = String::from_utf8_lossy(event.category.raw);
        let category = if category.is_empty() { "no category" } else { &category };
        self.builder.count_unmodelled(&format!("ph {}, {category}", phase_name(event.phase)), 1);
    }

    /// The times of an event with a duration; `None`, with a diagnostic, if it has no start.
    #[inline(always)]
    fn span(&mut self, event: &RawEvent<'_>, at: usize) -> Option<(Nanos, Nanos)> {
        let Some(start) = event.time else {
            self.note("event-without-time", Severity::Loss, at, "events without a readable time (ts); left out");
            return None;
        };
        let duration = event.duration.unwrap_or_else(|| self.no_duration(at));
        if start == Nanos::ZERO {
            self.builder.note_zero();
        }
        if duration < Nanos::ZERO {
            self.note("negative-duration", Severity::Warning, at, "negative durations; taken as 0");
        }
        Some((start, duration.max(Nanos::ZERO)))
    }

    #[cold]
    fn no_duration(&mut self, at: usize) -> Nanos {
        let message = "events without a readable duration (dur); taken as 0";
        self.note("event-without-duration", Severity::Warning, at, message);
        Nanos::ZERO
    }

    #[inline(always)]
    fn op(&mut self, event: &RawEvent<'_>, kind: OpKind, at: usize) {
        if event.name.is_some_and(|n| n.raw == b"[memory]") && event.args.memory_bytes.is_some() {
            return self.instant(event, at);
        }
        let Some((start, duration)) = self.span(event, at) else { return };
        let op = self.op_row(event, kind, start, duration, at);
        self.builder.push_op(op);
    }

    #[inline(always)]
    fn op_row(&mut self, event: &RawEvent<'_>, kind: OpKind, start: Nanos, duration: Nanos, at: usize) -> Op {
        let args = &event.args;
        Op {
            name: self.name(event, at),
            kind,
            thread: self.thread(event),
            start,
            duration,
            external_id: args.external_id,
            correlation: args.correlation,
            sequence: args.sequence,
            forward_thread: args.forward_thread,
            detail: if self.keep.details { self.detail(event, at) } else { DetailId::NONE },
            unfinished: args.unfinished,
        }
    }

    #[inline(always)]
    fn device_event(&mut self, event: &RawEvent<'_>, kind: DeviceEventKind, at: usize) {
        let Some((start, duration)) = self.span(event, at) else { return };
        let args = &event.args;
        let row = DeviceEvent {
            name: self.name(event, at),
            kind,
            lane: self.thread(event),
            start,
            duration,
            device: args.device,
            stream: args.stream,
            external_id: args.external_id,
            correlation: args.correlation,
            bytes: Bytes(args.moved_bytes),
            occupancy: args.occupancy,
        };
        self.builder.push_device_event(row);
    }

    #[inline(always)]
    fn frame(&mut self, event: &RawEvent<'_>, at: usize) {
        let Some((start, duration)) = self.span(event, at) else { return };
        let is_module = event.name.is_some_and(|n| n.raw.starts_with(b"nn.Module: "));
        let row = Frame {
            name: self.name(event, at),
            kind: if is_module { FrameKind::Module } else { FrameKind::Function },
            thread: self.thread(event),
            start,
            duration,
            python_id: event.args.python_id,
            parent_id: event.args.python_parent,
        };
        self.builder.push_frame(row);
    }

    /// A begin or an end of its own (`ph` `B`, `E`); an end may leave out everything but thread and time.
    #[cold]
    fn mark(&mut self, event: &RawEvent<'_>, at: usize) {
        let class = class(event);
        let kind = match class {
            Class::Op(kind) => Some(kind),
            Class::Missing if event.phase == b'E' => Some(OpKind::Operator),
            _ => None,
        };
        let (Some(kind), Some(time)) = (kind, event.time) else {
            return match class {
                Class::Op(_) => {
                    self.span(event, at);
                }
                _ => self.unmodelled(event),
            };
        };
        if !self.keep.ops {
            return;
        }
        if time == Nanos::ZERO {
            self.builder.note_zero();
        }
        if event.phase == b'E' {
            let thread = self.thread(event);
            self.builder.push_end(thread, time);
        } else {
            let op = self.op_row(event, kind, time, Nanos::ZERO, at);
            self.builder.push_begin(op);
        }
    }

    #[inline(always)]
    fn instant(&mut self, event: &RawEvent<'_>, at: usize) {
        if !self.keep.memory {
            return;
        }
        let name = event.name.map_or(&b""[..], |n| n.raw);
        let out_of_memory = name == b"[OutOfMemory]";
        if !out_of_memory && name != b"[memory]" {
            return self.unmodelled(event);
        }
        let Some(time) = event.time else {
            self.span(event, at);
            return;
        };
        if time == Nanos::ZERO {
            self.builder.note_zero();
        }
        let args = &event.args;
        let Some(bytes) = args.memory_bytes else {
            return self.note("memory-without-bytes", Severity::Loss, at, "memory events without a size; left out");
        };
        if out_of_memory {
            let row = OutOfMemory {
                time,
                bytes: Bytes(bytes),
                device: self.device(event),
                thread: self.thread(event),
                total_allocated: Bytes(args.total_allocated),
                total_reserved: Bytes(args.total_reserved),
                stack: StackId::NONE,
            };
            return self.builder.push_out_of_memory(row);
        }
        if args.total_allocated < 0 {
            self.builder.note_no_total();
        }
        let row = MemoryEvent {
            time,
            bytes: Bytes(bytes),
            device: self.device(event),
            thread: self.thread(event),
            address: args.address,
            total_allocated: Bytes(args.total_allocated),
            total_reserved: Bytes(args.total_reserved),
            stack: StackId::NONE,
        };
        self.builder.push_memory(row);
    }

    #[cold]
    fn metadata(&mut self, event: &RawEvent<'_>, at: usize) {
        let label = event.args.label;
        match event.name.map(|n| n.raw) {
            _ if label.raw.is_empty() => {}
            Some(b"process_name") => {
                let (pid, name) = (self.plain(event.pid), self.text(label, at));
                let name = self.builder.str(name).to_owned();
                self.builder.name_process(&pid, &name);
            }
            Some(b"thread_name") => {
                let (thread, name) = (self.thread(event), self.text(label, at));
                let name = self.builder.str(name).to_owned();
                self.builder.name_thread(thread, &name);
            }
            _ => {}
        }
        self.phases[usize::from(b'M')] += 1;
    }

    fn plain(&self, text: Text<'_>) -> String {
        text::decode(text.raw, text.escaped).0.into_owned()
    }

    #[inline(always)]
    fn name(&mut self, event: &RawEvent<'_>, at: usize) -> StrId {
        event.name.map_or(StrId::EMPTY, |name| self.text(name, at))
    }

    /// The id of a string's text.
    #[inline(always)]
    fn text(&mut self, text: Text<'_>, at: usize) -> StrId {
        if text.irregular {
            self.note(
                "unescaped-text",
                Severity::Warning,
                at,
                "strings with quotes, line breaks or control characters that are not escaped; read to where the next key shows their end",
            );
        }
        if !text.escaped
            && let Some(known) = self.builder.find(text.raw)
        {
            return known;
        }
        self.new_text(text, at)
    }

    #[cold]
    fn new_text(&mut self, text: Text<'_>, at: usize) -> StrId {
        let (plain, repairs) = text::decode(text.raw, text.escaped);
        if repairs.bad_escape {
            self.note(
                "bad-escape",
                Severity::Warning,
                at,
                "strings with backslashes that escape nothing; kept as they are",
            );
        }
        if repairs.bad_utf8 {
            self.note(
                "bad-utf8",
                Severity::Warning,
                at,
                "strings that are no UTF-8; the bytes in question are shown as U+FFFD",
            );
        }
        self.builder.intern(&plain)
    }

    #[inline(always)]
    fn thread(&mut self, event: &RawEvent<'_>) -> ThreadId {
        let memo = &mut self.last_thread;
        if let Some(thread) = memo.thread
            && same_short(&memo.pid, event.pid.raw)
            && same_short(&memo.tid, event.tid.raw)
        {
            return thread;
        }
        self.other_thread(event)
    }

    fn other_thread(&mut self, event: &RawEvent<'_>) -> ThreadId {
        let thread = self.builder.thread(
            &text::decode(event.pid.raw, event.pid.escaped).0,
            &text::decode(event.tid.raw, event.tid.escaped).0,
        );
        let memo = &mut self.last_thread;
        memo.pid.clear();
        memo.pid.extend_from_slice(event.pid.raw);
        memo.tid.clear();
        memo.tid.extend_from_slice(event.tid.raw);
        memo.thread = Some(thread);
        thread
    }

    #[inline(always)]
    fn device(&mut self, event: &RawEvent<'_>) -> crate::trace::DeviceId {
        // Before 1.9 only the host's memory was recorded, without a device type.
        let kind = event.args.device_type.unwrap_or(0);
        let index = if kind == 0 { -1 } else { event.args.device_id };
        if let Some((k, i, device)) = self.last_device
            && (k, i) == (kind, index)
        {
            return device;
        }
        let device = self.builder.device(Device { kind: DeviceType(kind), index });
        self.last_device = Some((kind, index, device));
        device
    }

    #[inline(always)]
    fn detail(&mut self, event: &RawEvent<'_>, at: usize) -> DetailId {
        let args = &event.args;
        if !args.call_stack.raw.is_empty() {
            return self.new_detail(event, at);
        }
        match event.inputs {
            PassageId::NONE => DetailId::NONE,
            PassageId::SEVERAL => self.new_detail(event, at),
            passage => {
                if let Some(Some(detail)) = self.details.get(passage.index()) {
                    return *detail;
                }
                let detail = self.new_detail(event, at);
                if self.details.len() <= passage.index() {
                    self.details.resize(passage.index() + 1, None);
                }
                self.details[passage.index()] = Some(detail);
                detail
            }
        }
    }

    fn new_detail(&mut self, event: &RawEvent<'_>, at: usize) -> DetailId {
        let args = &event.args;
        let detail = Detail {
            input_dims: self.inputs(args.input_dims, at),
            input_types: self.inputs(args.input_types, at),
            concrete_inputs: self.inputs(args.concrete_inputs, at),
            call_stack: self.text(args.call_stack, at),
        };
        self.builder.detail(detail)
    }

    /// The id of what an operator was called with, as JSON. The cursor only looked for its end.
    #[inline(always)]
    fn inputs(&mut self, json: &[u8], at: usize) -> StrId {
        if let Some(known) = self.builder.find(json) {
            return known;
        }
        if serde_json::from_slice::<serde::de::IgnoredAny>(json).is_err() {
            self.odd_inputs(at);
            return StrId::EMPTY;
        }
        self.new_text(Text::plain(json), at)
    }

    #[cold]
    fn odd_inputs(&mut self, at: usize) {
        let message = "shapes, types or constants of inputs that are no JSON; taken as not given";
        self.note("odd-inputs", Severity::Warning, at, message);
    }

    /// Objects among the events that were no events.
    pub(super) fn strangers(&self) -> u64 {
        self.strangers
    }
}

/// Whether two texts of a few bytes are the same, without the call that comparing slices is.
#[inline(always)]
fn same_short(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

fn phase_name(phase: u8) -> String {
    if phase.is_ascii_graphic() { char::from(phase).to_string() } else { format!("0x{phase:02x}") }
}

/// Adds a member of the file's head or foot to what is known of the file. `false` if the value is not as expected.
pub(super) fn head_member(info: &mut Info, key: &[u8], value: &[u8]) -> bool {
    let parse = || serde_json::from_slice::<Value>(value).ok();
    let flag = || match parse()? {
        Value::Bool(flag) => Some(flag),
        Value::Number(number) => Some(number.as_f64()? != 0.0),
        _ => None,
    };
    match key {
        b"baseTimeNanoseconds" => match parse() {
            Some(Value::Number(n)) => {
                info.base_time = n.as_i64().map(Nanos);
                info.base_time.is_some()
            }
            Some(Value::String(digits)) => {
                info.base_time = digits.parse().ok().map(Nanos);
                info.base_time.is_some()
            }
            _ => false,
        },
        b"record_shapes" => set(&mut info.record_shapes, flag()),
        b"profile_memory" => set(&mut info.profile_memory, flag()),
        b"with_stack" => set(&mut info.with_stack, flag()),
        b"with_modules" => set(&mut info.with_modules, flag()),
        b"with_flops" => set(&mut info.with_flops, flag()),
        b"deviceProperties" => match parse() {
            Some(Value::Array(devices)) => {
                info.device_properties = devices.iter().map(device_properties).collect();
                true
            }
            _ => false,
        },
        b"distributedInfo" => match parse() {
            Some(Value::Object(members)) => {
                let number = |key: &str| members.get(key).and_then(Value::as_i64);
                info.distributed = Some(Distributed {
                    rank: number("rank"),
                    world_size: number("world_size"),
                    backend: members.get("backend").and_then(Value::as_str).map(str::to_owned),
                });
                true
            }
            _ => false,
        },
        _ => true,
    }
}

fn set(place: &mut Option<bool>, value: Option<bool>) -> bool {
    *place = value.or(*place);
    value.is_some()
}

fn device_properties(value: &Value) -> DeviceProperties {
    DeviceProperties {
        id: value.get("id").and_then(Value::as_i64).unwrap_or(-1),
        name: value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        total_memory_bytes: value.get("totalGlobalMem").and_then(Value::as_u64),
        multiprocessors: value.get("numSms").and_then(Value::as_u64),
    }
}
