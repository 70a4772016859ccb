//! Tiny traces for tests, built in place.

use crate::trace::{Detail, Device, Frame, FrameKind, MemoryEvent, Op, OpKind, StackId, Trace, TraceBuilder};
use crate::units::{Bytes, Nanos};

/// A span to be added: an operator, or an annotation if its name starts as those of tests and PyTorch do.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    name: String,
    tid: String,
    start: i64,
    end: i64,
    sequence: i64,
    forward_thread: u64,
    dims: String,
}

/// An operator on thread 1. Names that start with `user: `, `ProfilerStep#` or `Optimizer.` are annotations.
pub(crate) fn span(name: &str, start: i64, end: i64) -> Span {
    let (name, tid) = (name.to_owned(), "1".to_owned());
    Span { name, tid, start, end, sequence: -1, forward_thread: 0, dims: String::new() }
}

impl Span {
    pub(crate) fn on(mut self, tid: &str) -> Self {
        self.tid = tid.to_owned();
        self
    }

    pub(crate) fn sequence(mut self, sequence: i64) -> Self {
        self.sequence = sequence;
        self
    }

    pub(crate) fn backward(mut self, sequence: i64, forward_thread: u64) -> Self {
        (self.sequence, self.forward_thread) = (sequence, forward_thread);
        self
    }

    pub(crate) fn dims(mut self, dims: &str) -> Self {
        self.dims = dims.to_owned();
        self
    }
}

/// A trace under construction whose allocator keeps exact totals of `cuda:0`.
#[derive(Debug, Default)]
pub(crate) struct Build {
    pub(crate) builder: TraceBuilder,
    total: i64,
}

impl Build {
    #[expect(clippy::needless_pass_by_value, reason = "a call with a borrow in it reads worse")]
    pub(crate) fn span(&mut self, span: Span) {
        let annotation = ["user: ", "ProfilerStep#", "Optimizer."].iter().any(|p| span.name.starts_with(p));
        let kind = if annotation { OpKind::Annotation } else { OpKind::Operator };
        let (name, thread) = (self.builder.intern(&span.name), self.builder.thread("1", &span.tid));
        let dims = self.builder.intern(&span.dims);
        let detail = self.builder.detail(Detail { input_dims: dims, ..Detail::NONE });
        let op = Op::new(name, kind, thread, Nanos(span.start), Nanos(span.end - span.start));
        self.builder.push_op(Op { sequence: span.sequence, forward_thread: span.forward_thread, detail, ..op });
    }

    pub(crate) fn frame(&mut self, name: &str, tid: &str, start: i64, end: i64) {
        let kind = if name.starts_with("nn.Module: ") { FrameKind::Module } else { FrameKind::Function };
        let (name, thread) = (self.builder.intern(name), self.builder.thread("1", tid));
        let (start, duration) = (Nanos(start), Nanos(end - start));
        self.builder.push_frame(Frame { name, kind, thread, start, duration, python_id: 0, parent_id: 0 });
    }

    pub(crate) fn alloc(&mut self, time: i64, address: u64, bytes: i64) {
        self.alloc_on("1", time, address, bytes);
    }

    /// Allocates, or frees where `bytes` is negative. Calls come in the order of time.
    pub(crate) fn alloc_on(&mut self, tid: &str, time: i64, address: u64, bytes: i64) {
        self.total += bytes;
        let (device, thread) = (self.builder.device(Device::cuda(0)), self.builder.thread("1", tid));
        self.builder.push_memory(MemoryEvent {
            time: Nanos(time),
            bytes: Bytes(bytes),
            device,
            thread,
            address,
            total_allocated: Bytes(self.total),
            total_reserved: Bytes(self.total + 100),
            stack: StackId::NONE,
        });
    }

    /// Bytes that were allocated before the trace. To be called before any allocation.
    pub(crate) fn before(&mut self, bytes: i64) {
        self.total += bytes;
    }

    pub(crate) fn finish(self) -> Trace {
        self.builder.finish()
    }
}
