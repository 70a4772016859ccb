//! An independent reader of traces: slow, simple, whole file in memory, well-formed JSON only.
//!
//! It shares no code with `tracetool::input`, so that the two can be held against each other, and it feeds tests that
//! are about what follows reading.

use flate2::read::MultiGzDecoder;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tracetool::trace::{
    Detail, Device, DeviceEvent, DeviceEventKind, DeviceType, Frame, FrameKind, MemoryEvent, Op, OpKind, OutOfMemory,
    StackId, StrId, Trace, TraceBuilder,
};
use tracetool::units::{Bytes, Nanos};

type Object<'a> = BTreeMap<String, &'a RawValue>;

/// The bytes of a file, inflated if they are gzip.
pub fn inflated(path: &Path) -> Vec<u8> {
    let data = std::fs::read(path).unwrap();
    if !data.starts_with(&[0x1f, 0x8b]) {
        return data;
    }
    let mut out = Vec::new();
    MultiGzDecoder::new(data.as_slice()).read_to_end(&mut out).unwrap();
    out
}

/// The trace at `path`.
pub fn read(path: &Path) -> Trace {
    read_text(&String::from_utf8(inflated(path)).unwrap())
}

/// The trace in this JSON text.
pub fn read_text(json: &str) -> Trace {
    try_read_text(json).unwrap()
}

/// The trace in this text, if it is JSON and a list of objects.
pub fn try_read_text(json: &str) -> Option<Trace> {
    let mut b = TraceBuilder::new();
    let events: Vec<&RawValue> = match serde_json::from_str::<Object>(json) {
        Ok(document) => {
            read_info(&mut b, &document);
            serde_json::from_str(document.get("traceEvents")?.get()).ok()?
        }
        Err(_) => serde_json::from_str(json).ok()?,
    };
    for event in events {
        let event: Object = serde_json::from_str(event.get()).ok()?;
        if text(&event, "ph").is_some_and(|phase| !phase.is_empty()) {
            b.count_event();
            read_event(&mut b, &event);
        }
    }
    Some(b.finish())
}

fn read_info(b: &mut TraceBuilder, document: &Object) {
    let flag = |key: &str| document.get(key).map(|v| v.get() != "0" && v.get() != "false");
    let info = b.info_mut();
    info.base_time = document.get("baseTimeNanoseconds").and_then(|v| v.get().parse().ok()).map(Nanos);
    info.record_shapes = flag("record_shapes");
    info.profile_memory = flag("profile_memory");
    info.with_stack = flag("with_stack");
    info.with_modules = flag("with_modules");
    info.with_flops = flag("with_flops");
}

/// A string's characters, or the digits of anything else.
fn text(object: &Object, key: &str) -> Option<String> {
    let raw = object.get(key)?.get();
    if raw == "null" {
        return None;
    }
    Some(serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned()))
}

fn number<T: std::str::FromStr>(object: &Object, keys: &[&str]) -> Option<T> {
    keys.iter().find_map(|key| {
        let text = text(object, key)?;
        // `1e6` is a whole number too.
        let whole =
            || text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && n.abs() < 9e15)?.to_string().parse().ok();
        text.parse().ok().or_else(whole)
    })
}

fn read_event(b: &mut TraceBuilder, event: &Object) {
    let field = |key| text(event, key).unwrap_or_default();
    let args: Object = event.get("args").and_then(|a| serde_json::from_str(a.get()).ok()).unwrap_or_default();
    let (name, pid, tid) = (field("name"), field("pid"), field("tid"));
    let (phase, category) = (field("ph"), field("cat").to_lowercase());
    let time = text(event, "ts").and_then(|t| Nanos::from_micros(t.as_bytes()));
    let duration = text(event, "dur").and_then(|t| Nanos::from_micros(t.as_bytes()));
    if (name == "[memory]" || name == "[OutOfMemory]")
        && matches!(phase.as_str(), "i" | "I" | "n" | "X")
        && let (Some(time), Some(bytes)) = (time, number(&args, &["Bytes"]))
    {
        read_memory(b, &name, (&pid, &tid), time, Bytes(bytes), &args);
        return;
    }
    match (phase.as_str(), time) {
        ("M", _) => read_name(b, &name, (&pid, &tid), &args),
        ("X", Some(start)) => {
            let span = (start, duration.unwrap_or_default().max(Nanos::ZERO));
            if !read_span(b, &category, &name, (&pid, &tid), span, &args) {
                b.count_unmodelled(&format!("{phase}/{category}"), 1);
            }
        }
        ("B", Some(start)) => {
            if let Some(op) = op(b, &category, &name, (&pid, &tid), (start, Nanos::ZERO), &args) {
                b.push_begin(op);
            }
        }
        ("E", Some(end)) => {
            let thread = b.thread(&pid, &tid);
            b.push_end(thread, end);
        }
        _ => b.count_unmodelled(&format!("{phase}/{category}"), 1),
    }
}

fn read_name(b: &mut TraceBuilder, what: &str, (pid, tid): (&str, &str), args: &Object) {
    let Some(name) = text(args, "name") else { return };
    match what {
        "process_name" => b.name_process(pid, &name),
        "thread_name" => {
            let thread = b.thread(pid, tid);
            b.name_thread(thread, &name);
        }
        _ => {}
    }
}

fn read_memory(b: &mut TraceBuilder, name: &str, (pid, tid): (&str, &str), time: Nanos, bytes: Bytes, args: &Object) {
    let kind = DeviceType(number(args, &["Device Type"]).unwrap_or(0));
    let device = b.device(Device { kind, index: number(args, &["Device Id"]).unwrap_or(-1) });
    let thread = b.thread(pid, tid);
    let total_allocated = Bytes(number(args, &["Total Allocated"]).unwrap_or(-1));
    let total_reserved = Bytes(number(args, &["Total Reserved"]).unwrap_or(-1));
    let stack = StackId::NONE;
    if name == "[memory]" {
        let address = number(args, &["Addr"]).unwrap_or(0);
        b.push_memory(MemoryEvent { time, bytes, device, thread, address, total_allocated, total_reserved, stack });
    } else {
        b.push_out_of_memory(OutOfMemory { time, bytes, device, thread, total_allocated, total_reserved, stack });
    }
}

fn read_span(
    b: &mut TraceBuilder,
    category: &str,
    name: &str,
    place: (&str, &str),
    (start, duration): (Nanos, Nanos),
    args: &Object,
) -> bool {
    if let Some(op) = op(b, category, name, place, (start, duration), args) {
        b.push_op(op);
        return true;
    }
    if category == "python_function" {
        let frame = Frame {
            name: b.intern(name),
            kind: if name.starts_with("nn.Module: ") { FrameKind::Module } else { FrameKind::Function },
            thread: b.thread(place.0, place.1),
            start,
            duration,
            python_id: number(args, &["Python id"]).unwrap_or(0),
            parent_id: number(args, &["Python parent id"]).unwrap_or(0),
        };
        b.push_frame(frame);
        return true;
    }
    let kind = match category {
        "kernel" => DeviceEventKind::Kernel,
        "gpu_memcpy" | "memcpy" => DeviceEventKind::Memcpy,
        "gpu_memset" | "memset" => DeviceEventKind::Memset,
        "gpu_user_annotation" => DeviceEventKind::Annotation,
        _ => return false,
    };
    let (name, lane) = (b.intern(name), b.thread(place.0, place.1));
    b.push_device_event(DeviceEvent {
        device: number(args, &["device"]).unwrap_or(-1),
        stream: number(args, &["stream"]).unwrap_or(-1),
        external_id: number(args, &["External id", "external id"]).unwrap_or(0),
        correlation: number(args, &["correlation"]).unwrap_or(0),
        bytes: Bytes(number(args, &["bytes"]).unwrap_or(0)),
        occupancy: number(args, &["est. achieved occupancy %"]).unwrap_or(f32::NAN),
        ..DeviceEvent::new(name, kind, lane, start, duration)
    });
    true
}

fn op(
    b: &mut TraceBuilder,
    category: &str,
    name: &str,
    (pid, tid): (&str, &str),
    (start, duration): (Nanos, Nanos),
    args: &Object,
) -> Option<Op> {
    let kind = match category {
        "cpu_op" | "operator" => OpKind::Operator,
        "user_annotation" => OpKind::Annotation,
        "cuda_runtime" | "runtime" => OpKind::Runtime,
        "cuda_driver" => OpKind::Driver,
        "overhead" => OpKind::Overhead,
        _ => return None,
    };
    let detail = Detail {
        input_dims: json(b, args, &["Input Dims", "Input dims"]),
        input_types: json(b, args, &["Input type"]),
        concrete_inputs: json(b, args, &["Concrete Inputs"]),
        call_stack: text(args, "Call stack").map_or(StrId::EMPTY, |t| b.intern(&t)),
    };
    let (name, thread) = (b.intern(name), b.thread(pid, tid));
    Some(Op {
        external_id: number(args, &["External id", "external id"]).unwrap_or(0),
        correlation: number(args, &["correlation"]).unwrap_or(0),
        sequence: number(args, &["Sequence number"]).unwrap_or(-1),
        forward_thread: number(args, &["Fwd thread id"]).unwrap_or(0),
        detail: b.detail(detail),
        unfinished: args.get("finished").is_some_and(|v| v.get() == "false"),
        ..Op::new(name, kind, thread, start, duration)
    })
}

/// A list as its JSON text.
fn json(b: &mut TraceBuilder, args: &Object, keys: &[&str]) -> StrId {
    let found = keys.iter().find_map(|key| args.get(*key)).filter(|raw| raw.get().starts_with('['));
    found.map_or(StrId::EMPTY, |raw| b.intern(raw.get()))
}

/// A file of JSON as a value.
pub fn json_value(path: &Path) -> Value {
    serde_json::from_slice(&inflated(path)).unwrap()
}
