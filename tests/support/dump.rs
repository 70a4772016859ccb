//! A trace as lines of text, with every id resolved: two traces are the same if their lines are.

use tracetool::trace::{DetailId, ThreadId, Trace};

/// Every row of every table, and what the file says of itself.
pub fn lines(trace: &Trace) -> Vec<String> {
    let text = |id| trace.str(id);
    let thread = |id: ThreadId| {
        let t = trace.thread(id);
        format!("{}/{} ({}, {})", text(t.process), text(t.id), text(t.process_name), text(t.name))
    };
    let detail = |id: DetailId| {
        let d = trace.detail(id);
        [d.input_dims, d.input_types, d.concrete_inputs, d.call_stack].map(text).join(" | ")
    };
    let info = trace.info();
    let flags = [info.record_shapes, info.profile_memory, info.with_stack, info.with_modules, info.with_flops];
    let mut lines = vec![format!("{:?} {flags:?} {} events", info.base_time, trace.events())];
    lines.extend(trace.ops().iter().map(|o| {
        format!(
            "op {:?} {:?} {} {}+{} {} {} {} {} {} {}",
            text(o.name),
            o.kind,
            thread(o.thread),
            o.start,
            o.duration,
            o.external_id,
            o.correlation,
            o.sequence,
            o.forward_thread,
            detail(o.detail),
            o.unfinished
        )
    }));
    lines.extend(trace.device_events().iter().map(|e| {
        format!(
            "device {:?} {:?} {} {}+{} {} {} {} {} {} {}",
            text(e.name),
            e.kind,
            thread(e.lane),
            e.start,
            e.duration,
            e.device,
            e.stream,
            e.external_id,
            e.correlation,
            e.bytes,
            e.occupancy
        )
    }));
    lines.extend(trace.frames().iter().map(|f| {
        format!(
            "frame {:?} {:?} {} {}+{} {} {}",
            text(f.name),
            f.kind,
            thread(f.thread),
            f.start,
            f.duration,
            f.python_id,
            f.parent_id
        )
    }));
    lines.extend(trace.memory().iter().map(|m| {
        format!(
            "memory {} {} {} {} {:x} {} {}",
            m.time,
            m.bytes,
            trace.device(m.device),
            thread(m.thread),
            m.address,
            m.total_allocated,
            m.total_reserved
        )
    }));
    lines.extend(trace.out_of_memory().iter().map(|m| {
        format!(
            "oom {} {} {} {} {} {}",
            m.time,
            m.bytes,
            trace.device(m.device),
            thread(m.thread),
            m.total_allocated,
            m.total_reserved
        )
    }));
    lines
}
