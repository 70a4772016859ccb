//! A snapshot of the caching allocator: its segments and blocks at one moment, and the history that led there.
//!
//! What `torch.cuda.memory._dump_snapshot` writes, as a model. A [`Snapshot`] belongs to the
//! [`Trace`](super::Trace) that carries it: its strings and stacks are that trace's, and the history's allocations and
//! frees are the trace's memory events too. Here stands what only a snapshot knows: where each block lies, what was
//! asked for and what was given, segments, and failed requests with the room there was.

use super::{Device, StackId, StrId};
use crate::units::{Bytes, Nanos};

/// The allocator's state when the snapshot was taken, and how it came about. Times are the trace's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What was reserved from the driver, in the order of the file.
    pub segments: Vec<Segment>,
    /// What happened before, one history a device.
    pub histories: Vec<History>,
    /// How the allocator was set up.
    pub settings: AllocatorSettings,
}

/// Which requests a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Requests above 1 MiB (`large_pool`).
    Large,
    /// Requests up to 1 MiB (`small_pool`).
    Small,
}

/// A piece of device memory that the allocator reserved from the driver and hands out in blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Where it starts.
    pub address: u64,
    /// How long it is (`total_size`).
    pub size: Bytes,
    /// The device.
    pub device: Device,
    /// The stream whose requests it serves.
    pub stream: i64,
    /// The requests that it serves.
    pub pool: Pool,
    /// The private pool (of a CUDA graph, for instance) that it belongs to; (0, 0) is the common one.
    pub pool_id: (i64, i64),
    /// Whether it can grow and shrink in place (`expandable_segments:True`).
    pub expandable: bool,
    /// Who asked for it, where that was recorded.
    pub stack: StackId,
    /// Its blocks by address; they fill it.
    pub blocks: Vec<Block>,
}

impl Segment {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        end_of(self.address, self.size)
    }
}

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// A tensor's (`active_allocated`).
    Allocated,
    /// Freed, but another stream may still use it (`active_awaiting_free`, `active_pending_free`).
    AwaitingFree,
    /// Free for the next request (`inactive`).
    Inactive,
}

impl BlockState {
    /// Whether the block cannot be handed out.
    pub fn is_active(self) -> bool {
        self != Self::Inactive
    }
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// How long it is.
    pub size: Bytes,
    /// What was asked for; of an inactive block, the last time that it was used.
    pub requested: Bytes,
    /// What it is doing.
    pub state: BlockState,
    /// Who asked for it, where that was recorded.
    pub stack: StackId,
}

impl Block {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        end_of(self.address, self.size)
    }
}

/// Where something of this size ends.
pub(crate) fn end_of(address: u64, size: Bytes) -> u64 {
    address.saturating_add(u64::try_from(size.0).unwrap_or(0))
}

/// What the allocator of one device did, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The device.
    pub device: Device,
    /// What happened; empty where it was not [kept](super::Keep::history).
    pub entries: Vec<HistoryEntry>,
    /// Where entries came from, each distinct one once; see [`origin`](Self::origin).
    pub origins: Vec<Origin>,
    /// Whether the file tells the times; without, entry `i` stands at `i` microseconds.
    pub timed: bool,
    /// Requests that failed, in the order of `entries`.
    pub out_of_memory: Vec<FailedRequest>,
    /// Entries that contradict the blocks at the end; where there are any, totals are a best guess.
    pub contradictions: u64,
}

impl History {
    /// Where an entry of this history came from.
    pub fn origin(&self, entry: &HistoryEntry) -> Origin {
        self.origins.get(entry.origin as usize).copied().unwrap_or(Origin::UNKNOWN)
    }
}

/// Where an entry of a history came from: one loop makes millions of entries that share all of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The stream.
    pub stream: i64,
    /// Who asked.
    pub stack: StackId,
    /// What `torch.compile` was at (`compile_context`); empty where there is nothing.
    pub compile_context: StrId,
    /// What the user said (`user_metadata`); empty where there is nothing.
    pub user_metadata: StrId,
}

impl Origin {
    const UNKNOWN: Self =
        Self { stream: 0, stack: StackId::NONE, compile_context: StrId::EMPTY, user_metadata: StrId::EMPTY };
}

/// What happened in the allocator (`action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// A tensor let go of its block: `allocated` falls here.
    FreeRequested,
    /// The block can be handed out again: `active` falls here.
    FreeCompleted,
    /// A segment was reserved (`cudaMalloc`).
    SegmentAlloc,
    /// A segment was given back (`cudaFree`).
    SegmentFree,
    /// An expandable segment grew.
    SegmentMap,
    /// An expandable segment shrank.
    SegmentUnmap,
    /// A request failed.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
}

/// One line of a [`History`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryEntry {
    /// What happened.
    pub action: Action,
    /// Where; 0 for a failed request.
    pub address: u64,
    /// The bytes that the file names: of a block or a failed request, those asked for.
    pub requested: Bytes,
    /// The bytes that it took: of a block its whole size, as `allocated_bytes` counts it; of a segment the same as
    /// `requested`.
    pub size: Bytes,
    /// When.
    pub time: Nanos,
    /// The place of its stream and stack in [`History::origins`].
    pub origin: u32,
    /// Whether `allocated` falls here: at the request to free, or at its completion where no request was recorded.
    pub frees: bool,
}

/// A request that could not be served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailedRequest {
    /// Its place in the history.
    pub entry: usize,
    /// What the driver said was free on the device, where the file says.
    pub device_free: Option<Bytes>,
}

/// How the allocator was set up (`allocator_settings`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    /// All settings of the file as text, in its order.
    pub all: Vec<(String, String)>,
    /// Blocks of this size and more are not split (`max_split_size`), where that is set.
    pub max_split_size: Option<Bytes>,
    /// Whether segments grow in place.
    pub expandable_segments: bool,
    /// Into how many steps each power of two from 1 MiB on is divided for rounding; 0 for none.
    pub roundup_power2_divisions: [u32; 16],
}

impl Snapshot {
    /// Bytes of heap that the tables hold.
    pub(super) fn heap_bytes(&self) -> usize {
        let blocks: usize = self.segments.iter().map(|s| s.blocks.capacity() * size_of::<Block>()).sum();
        let history =
            |h: &History| h.entries.capacity() * size_of::<HistoryEntry>() + h.origins.capacity() * size_of::<Origin>();
        let entries: usize = self.histories.iter().map(history).sum();
        self.segments.capacity() * size_of::<Segment>() + blocks + entries
    }
}
