//! The tables of a trace: one column a field, one row type to write and read them with.
//!
//! Columns keep an event at the bytes that its fields need, and an analysis that reads two fields touches two columns.

use super::{DetailId, DeviceId, StackId, StrId, ThreadId};
use crate::units::{Bytes, Nanos};

/// Where the ids of one builder end up in another, when batches are joined.
#[derive(Debug, Default)]
pub(super) struct IdMap {
    pub(super) strings: Vec<StrId>,
    pub(super) threads: Vec<ThreadId>,
    pub(super) details: Vec<DetailId>,
    pub(super) devices: Vec<DeviceId>,
    pub(super) stacks: Vec<StackId>,
}

/// A value that a column can hold, and how a column of it moves to another trace.
pub(super) trait Value: Copy {
    fn append(into: &mut Vec<Self>, from: &[Self], ids: &IdMap);
}

macro_rules! plain {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn append(into: &mut Vec<Self>, from: &[Self], _: &IdMap) {
                into.extend_from_slice(from);
            }
        }
    )*};
}
plain!(i32, i64, u32, u64, f32, bool, Nanos, Bytes, OpKind, DeviceEventKind, FrameKind);

macro_rules! mapped {
    ($($t:ty: $map:ident),*) => {$(
        impl Value for $t {
            fn append(into: &mut Vec<Self>, from: &[Self], ids: &IdMap) {
                into.extend(from.iter().map(|id| ids.$map[id.index()]));
            }
        }
    )*};
}
mapped!(StrId: strings, ThreadId: threads, DetailId: details, DeviceId: devices, StackId: stacks);

/// Declares a row type and the table of its columns.
macro_rules! table {
    (
        $(#[$table_doc:meta])* $table:ident,
        $(#[$row_doc:meta])* $row:ident { $( $(#[$doc:meta])* $field:ident: $t:ty ),* $(,)? }
    ) => {
        $(#[$row_doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $row { $( $(#[$doc])* pub $field: $t ),* }

        $(#[$table_doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $table { $( $field: Vec<$t> ),* }

        impl $table {
            /// The number of rows.
            pub fn len(&self) -> usize {
                let columns = [$( self.$field.len() ),*];
                columns[0]
            }

            /// Whether there is no row.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Row `i`, which must exist.
            pub fn get(&self, i: usize) -> $row {
                $row { $( $field: self.$field[i] ),* }
            }

            /// All rows in order.
            pub fn iter(&self) -> impl ExactSizeIterator<Item = $row> + '_ {
                (0..self.len()).map(|i| self.get(i))
            }

            $( $(#[$doc])* pub fn $field(&self) -> &[$t] { &self.$field } )*

            pub(super) fn push(&mut self, row: $row) {
                $( self.$field.push(row.$field); )*
            }

            pub(super) fn append(&mut self, other: &Self, ids: &IdMap) {
                $( Value::append(&mut self.$field, &other.$field, ids); )*
            }

            /// Forgets all rows, and keeps the memory.
            pub(super) fn clear(&mut self) {
                $( self.$field.clear(); )*
            }

            /// Puts the rows in the order of `order`, which names each row once.
            pub(super) fn permute(&mut self, order: &[u32]) {
                let Self { $($field),* } = self;
                rayon::scope(|scope| {
                    $( scope.spawn(|_| *$field = order.iter().map(|i| $field[*i as usize]).collect()); )*
                });
            }

            /// Leaves out these rows.
            pub(super) fn remove(&mut self, rows: std::ops::Range<usize>) {
                $( self.$field.drain(rows.clone()); )*
            }

            /// Gives back what the columns reserved for growth.
            pub(super) fn shrink(&mut self) {
                $( self.$field.shrink_to_fit(); )*
            }

            pub(super) fn heap_bytes(&self) -> usize {
                0 $( + self.$field.capacity() * size_of::<$t>() )*
            }
        }
    };
}

/// What kind of CPU-side event a row of [`Ops`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpKind {
    /// An operator (`cpu_op`, formerly `Operator`).
    Operator,
    /// A `record_function` range, a step or an optimizer call (`user_annotation`).
    Annotation,
    /// A call of the device's runtime (`cuda_runtime`, formerly `Runtime`).
    Runtime,
    /// A call of the device's driver (`cuda_driver`).
    Driver,
    /// The profiler's own work (`overhead`).
    Overhead,
}

/// What kind of device-side event a row of [`DeviceEvents`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceEventKind {
    /// A kernel.
    Kernel,
    /// A copy (`gpu_memcpy`).
    Memcpy,
    /// A set (`gpu_memset`).
    Memset,
    /// The shadow of an annotation on the device (`gpu_user_annotation`).
    Annotation,
}

/// What kind of Python frame a row of [`Frames`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A function: `file.py(12): function`, or `<built-in ...>`.
    Function,
    /// A call of a module: `nn.Module: Linear_0`.
    Module,
}

table! {
    /// CPU-side events with a duration, by start, longest first, then place in the file.
    Ops,
    /// A CPU-side event with a duration.
    Op {
        /// The name as the file has it.
        name: StrId,
        /// What kind of event it is.
        kind: OpKind,
        /// The thread that it is recorded on.
        thread: ThreadId,
        /// The start.
        start: Nanos,
        /// The duration, 0 or more.
        duration: Nanos,
        /// `External id`, which links operators with runtime and device events; 0 where there is none.
        external_id: u64,
        /// `correlation`, which links a runtime call with what it launched; 0 where there is none.
        correlation: u64,
        /// `Sequence number`, which links a forward operator with its backward ones; -1 where there is none.
        sequence: i64,
        /// `Fwd thread id`: in backward operators the (autograd) thread of the forward one; 0 elsewhere.
        forward_thread: u64,
        /// Shapes, types, constants and stack.
        detail: DetailId,
        /// Whether the event was still running when the profiler stopped (`"finished": false`).
        unfinished: bool,
    }
}

table! {
    /// Device-side events, by start, longest first, then place in the file.
    DeviceEvents,
    /// A device-side event: kernel, copy, set, or the shadow of an annotation.
    DeviceEvent {
        /// The name as the file has it.
        name: StrId,
        /// What kind of event it is.
        kind: DeviceEventKind,
        /// The row that it is drawn on (process and thread of the file; not a CPU thread).
        lane: ThreadId,
        /// The start.
        start: Nanos,
        /// The duration, 0 or more.
        duration: Nanos,
        /// Index of the device; -1 where the file does not say.
        device: i32,
        /// The stream; -1 where the file does not say.
        stream: i64,
        /// `External id` of the operator that launched it; 0 where there is none.
        external_id: u64,
        /// `correlation` with the runtime call that launched it; 0 where there is none.
        correlation: u64,
        /// Bytes copied or set; 0 for kernels.
        bytes: Bytes,
        /// `est. achieved occupancy %` of a kernel; NaN where the file does not say.
        occupancy: f32,
    }
}

table! {
    /// Python frames and module calls, by start, longest first, then place in the file.
    Frames,
    /// A Python function's or module's call.
    Frame {
        /// `file.py(12): function`, `<built-in ...>` or `nn.Module: Linear_0`.
        name: StrId,
        /// Function or module.
        kind: FrameKind,
        /// The thread that it ran on.
        thread: ThreadId,
        /// The start.
        start: Nanos,
        /// The duration, 0 or more.
        duration: Nanos,
        /// `Python id`, unique in its process; 0 where there is none.
        python_id: u64,
        /// `Python parent id`: the id of the caller; 0 where there is none.
        parent_id: u64,
    }
}

table! {
    /// Allocations and frees, by time, then place in the file.
    MemoryEvents,
    /// An allocation or a free, as the allocator reported it.
    MemoryEvent {
        /// When.
        time: Nanos,
        /// Bytes allocated (positive) or freed (negative).
        bytes: Bytes,
        /// The device whose memory it is.
        device: DeviceId,
        /// The thread that it happened on.
        thread: ThreadId,
        /// The address; 0 where the file does not say (before torch 1.10).
        address: u64,
        /// The allocator's allocated bytes after it; -1 where the file does not say (before torch 1.12).
        total_allocated: Bytes,
        /// The allocator's reserved bytes after it; -1 where the file does not say (before torch 1.12).
        total_reserved: Bytes,
        /// The stack that the allocator itself recorded (snapshots); traces record none.
        stack: StackId,
    }
}

table! {
    /// Requests that the allocator could not serve (`[OutOfMemory]`), by time, then place in the file.
    OutOfMemoryEvents,
    /// A request that the allocator could not serve.
    OutOfMemory {
        /// When.
        time: Nanos,
        /// Bytes asked for.
        bytes: Bytes,
        /// The device that had no room.
        device: DeviceId,
        /// The thread that asked.
        thread: ThreadId,
        /// The allocator's allocated bytes then; -1 where the file does not say.
        total_allocated: Bytes,
        /// The allocator's reserved bytes then; -1 where the file does not say.
        total_reserved: Bytes,
        /// The stack that the allocator itself recorded (snapshots); traces record none.
        stack: StackId,
    }
}

impl Op {
    /// An event of this name, kind, thread and time, with nothing else known.
    pub fn new(name: StrId, kind: OpKind, thread: ThreadId, start: Nanos, duration: Nanos) -> Self {
        Self {
            name,
            kind,
            thread,
            start,
            duration,
            external_id: 0,
            correlation: 0,
            sequence: -1,
            forward_thread: 0,
            detail: DetailId::NONE,
            unfinished: false,
        }
    }

    /// The end.
    pub fn end(&self) -> Nanos {
        self.start + self.duration
    }
}

impl DeviceEvent {
    /// An event of this name, kind, lane and time, with nothing else known.
    pub fn new(name: StrId, kind: DeviceEventKind, lane: ThreadId, start: Nanos, duration: Nanos) -> Self {
        Self {
            name,
            kind,
            lane,
            start,
            duration,
            device: -1,
            stream: -1,
            external_id: 0,
            correlation: 0,
            bytes: Bytes::ZERO,
            occupancy: f32::NAN,
        }
    }

    /// The end.
    pub fn end(&self) -> Nanos {
        self.start + self.duration
    }
}

impl Frame {
    /// The end.
    pub fn end(&self) -> Nanos {
        self.start + self.duration
    }
}

impl Ops {
    /// The end of row `i`.
    pub fn end(&self, i: usize) -> Nanos {
        self.start[i] + self.duration[i]
    }
}

impl Frames {
    /// The end of row `i`.
    pub fn end(&self, i: usize) -> Nanos {
        self.start[i] + self.duration[i]
    }
}
