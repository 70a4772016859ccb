//! What a trace is: immutable columns, interned strings, small ids.
//!
//! A [`Trace`] is written once, by a [`TraceBuilder`] (readers, tests and benches all use it), and then only read. It
//! knows neither who produced it nor who reads it: no I/O, no JSON, no text for people. Rows of every table are in the
//! order of time; of rows with one start the longest comes first, and of equals the first in the file.

mod builder;
mod columns;
mod device;
mod diagnostics;
pub mod host_memory;
mod oddities;
mod places;
pub mod smi;
pub mod snapshot;
mod strings;

pub use builder::TraceBuilder;
pub use columns::{
    DeviceEvent, DeviceEventKind, DeviceEvents, Frame, FrameKind, Frames, MemoryEvent, MemoryEvents, Op, OpKind, Ops,
    OutOfMemory, OutOfMemoryEvents,
};
pub use device::{Device, DeviceProperties, DeviceType};
pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use snapshot::Snapshot;
pub use strings::{StrId, Strings};

use crate::units::Nanos;
use serde::Serialize;

macro_rules! id {
    ($(#[$doc:meta])* $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(pub(crate) u32);

        impl $id {
            /// The id as an index, for side tables.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
id! {
    /// The id of a [`Thread`].
    ThreadId
}
id! {
    /// The id of a [`Detail`].
    DetailId
}
id! {
    /// The id of a [`Device`].
    DeviceId
}
id! {
    /// The id of a [`StackNode`].
    StackId
}

impl DetailId {
    /// No detail known.
    pub const NONE: Self = Self(0);
}

impl StackId {
    /// No stack known.
    pub const NONE: Self = Self(0);
}

/// A thread of the file: a pair of `pid` and `tid`, where a number and its digits as a string are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// `pid` as text.
    pub process: StrId,
    /// `tid` as text.
    pub id: StrId,
    /// The process's name, from its `process_name` event; empty where there is none.
    pub process_name: StrId,
    /// The thread's name, from its `thread_name` event; empty where there is none.
    pub name: StrId,
}

/// What the file says of an operator's inputs, as the text of the JSON values; empty where it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Detail {
    /// `Input Dims`, such as `[[8192, 8192], []]`.
    pub input_dims: StrId,
    /// `Input type`, such as `["float", "Scalar"]`.
    pub input_types: StrId,
    /// `Concrete Inputs`, such as `["", "1"]`.
    pub concrete_inputs: StrId,
    /// `Call stack` of old traces: frames joined by `;`, innermost first.
    pub call_stack: StrId,
}

impl Detail {
    /// Nothing known.
    pub const NONE: Self = Self {
        input_dims: StrId::EMPTY,
        input_types: StrId::EMPTY,
        concrete_inputs: StrId::EMPTY,
        call_stack: StrId::EMPTY,
    };
}

/// A frame of a recorded stack, and the frame that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The caller's node; [`StackId::NONE`] for the outermost frame.
    pub parent: StackId,
    /// `file.py(12): function`.
    pub frame: StrId,
}

/// Which parts of a file to keep: a command asks for what it needs, and the reader skips the rest unbuilt.
///
/// An analysis that asks a trace for a part that was not kept finds an empty table; [`Trace::kept`] tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Operators, annotations, runtime calls, overhead ([`Ops`]).
    pub ops: bool,
    /// Shapes, types, constants and stacks of operators ([`Detail`]).
    pub details: bool,
    /// Kernels, copies and sets ([`DeviceEvents`]).
    pub device_events: bool,
    /// Python frames and modules ([`Frames`]).
    pub frames: bool,
    /// Allocations, frees, out-of-memory events.
    pub memory: bool,
    /// What the allocator did entry by entry ([`History::entries`](snapshot::History::entries)). Where a request failed, it
    /// is kept all the same, to explain that.
    pub history: bool,
}

impl Keep {
    /// Everything.
    pub const ALL: Self =
        Self { ops: true, details: true, device_events: true, frames: true, memory: true, history: true };
    /// Everything that reports are about: all but the history of a snapshot, of which memory events say the same.
    pub const REPORTS: Self = Self { history: false, ..Self::ALL };
}

impl Default for Keep {
    fn default() -> Self {
        Self::ALL
    }
}

/// The profiled process's place in a distributed run (`distributedInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distributed {
    /// The rank, from 0.
    pub rank: Option<i64>,
    /// How many ranks there are.
    pub world_size: Option<i64>,
    /// The back end, such as `nccl`.
    pub backend: Option<String>,
}

/// What the file says of itself, outside its events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Info {
    /// Unix time of the trace's zero; `None` where times are absolute or the file does not say.
    pub base_time: Option<Nanos>,
    /// Whether shapes were recorded, where the file says.
    pub record_shapes: Option<bool>,
    /// Whether memory was profiled, where the file says.
    pub profile_memory: Option<bool>,
    /// Whether stacks were recorded, where the file says.
    pub with_stack: Option<bool>,
    /// Whether modules were recorded, where the file says.
    pub with_modules: Option<bool>,
    /// Whether FLOPs were to be estimated, where the file says.
    pub with_flops: Option<bool>,
    /// The devices of the host.
    pub device_properties: Vec<DeviceProperties>,
    /// The place in a distributed run.
    pub distributed: Option<Distributed>,
}

/// A profile, as read. See the [module](self).
#[derive(Clone, Debug)]
pub struct Trace {
    strings: Strings,
    threads: Vec<Thread>,
    details: Vec<Detail>,
    devices: Vec<Device>,
    stacks: Vec<StackNode>,
    ops: Ops,
    device_events: DeviceEvents,
    frames: Frames,
    memory: MemoryEvents,
    out_of_memory: OutOfMemoryEvents,
    snapshot: Option<Snapshot>,
    info: Info,
    events: u64,
    unmodelled: Vec<(String, u64)>,
    kept: Keep,
    diagnostics: Diagnostics,
}

impl Trace {
    /// The text of an interned string.
    pub fn str(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// All interned strings.
    pub fn strings(&self) -> &Strings {
        &self.strings
    }

    /// All threads; a [`ThreadId`] is an index into them.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// A thread.
    pub fn thread(&self, id: ThreadId) -> Thread {
        self.threads[id.index()]
    }

    /// All distinct details; a [`DetailId`] is an index into them.
    pub fn details(&self) -> &[Detail] {
        &self.details
    }

    /// An operator's shapes, types, constants and stack.
    pub fn detail(&self, id: DetailId) -> Detail {
        self.details[id.index()]
    }

    /// All devices that memory events name; a [`DeviceId`] is an index into them.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// A device.
    pub fn device(&self, id: DeviceId) -> Device {
        self.devices[id.index()]
    }

    /// All nodes of recorded stacks; a [`StackId`] is an index into them, and a caller stands before its callees.
    pub fn stacks(&self) -> &[StackNode] {
        &self.stacks
    }

    /// Whether the allocator itself recorded who allocated, as in a snapshot.
    pub fn has_stacks(&self) -> bool {
        // The first node is that of no stack.
        self.stacks.len() > 1
    }

    /// The frames of a recorded stack, innermost first.
    pub fn stack(&self, id: StackId) -> impl Iterator<Item = &str> {
        let mut at = id;
        std::iter::from_fn(move || {
            (at != StackId::NONE).then(|| {
                let node = self.stacks[at.index()];
                at = node.parent;
                self.str(node.frame)
            })
        })
    }

    /// CPU-side events.
    pub fn ops(&self) -> &Ops {
        &self.ops
    }

    /// Device-side events.
    pub fn device_events(&self) -> &DeviceEvents {
        &self.device_events
    }

    /// Python frames and modules.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Allocations and frees.
    pub fn memory(&self) -> &MemoryEvents {
        &self.memory
    }

    /// Requests that could not be served.
    pub fn out_of_memory(&self) -> &OutOfMemoryEvents {
        &self.out_of_memory
    }

    /// The allocator's state and history, where the input is a snapshot.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// What the file says of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// How many events the file holds, of any kind.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Events of kinds that the model does not hold (flows, metadata, counters), as `phase/category` with their number,
    /// in the order of their names.
    pub fn unmodelled(&self) -> &[(String, u64)] {
        &self.unmodelled
    }

    /// Which parts of the file were kept.
    pub fn kept(&self) -> Keep {
        self.kept
    }

    /// What was skipped, repaired or odd.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// The kind of the accelerator: that of the memory events, else CUDA.
    pub fn accelerator(&self) -> DeviceType {
        self.devices.iter().map(|d| d.kind).find(|k| !k.is_cpu()).unwrap_or(DeviceType::CUDA)
    }

    /// A time of the trace as Unix time where the file tells its zero, else as it is.
    pub fn absolute(&self, time: Nanos) -> Nanos {
        time + self.info.base_time.unwrap_or(Nanos::ZERO)
    }

    /// Whether [`Self::absolute`] makes Unix time of this time: before 2001 is the clock of a machine since its start.
    pub fn is_wall_clock(&self, time: Nanos) -> bool {
        self.absolute(time).0 > 1_000_000_000_000_000_000
    }

    /// Bytes of heap that the tables hold.
    pub fn heap_bytes(&self) -> usize {
        self.strings.heap_bytes()
            + self.details.capacity() * size_of::<Detail>()
            + self.stacks.capacity() * size_of::<StackNode>()
            + self.ops.heap_bytes()
            + self.device_events.heap_bytes()
            + self.frames.heap_bytes()
            + self.memory.heap_bytes()
            + self.out_of_memory.heap_bytes()
            + self.snapshot.as_ref().map_or(0, Snapshot::heap_bytes)
    }
}
