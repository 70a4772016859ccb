//! Why requests failed: the cache at that moment, worked out backwards from the blocks at the end.

use crate::trace::snapshot::{Action, History, HistoryEntry, Pool, Segment, Snapshot, end_of};
use crate::trace::{Device, StackId};
use crate::units::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The cache has the bytes, but in no single block that this request may use: fragmentation.
    Fragmented,
    /// The driver had the bytes, yet the allocator did not take them: a limit was set for the process
    /// (`set_per_process_memory_fraction`), or the free figure counts memory that could not be had in one piece.
    Limited,
    /// Cache and device together did not have the bytes.
    Full,
}

/// A request that failed, and the room that there was.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfMemory {
    /// The device.
    pub device: Device,
    /// When.
    pub time: Nanos,
    /// Bytes asked for.
    pub requested_bytes: Bytes,
    /// What the driver said was free on the device, where the file says.
    pub device_free_bytes: Option<Bytes>,
    /// Who asked.
    pub stack: StackId,
    /// The cache at that moment; `None` for all but the latest failures, of which [`MAX_EXAMINED`] are examined.
    pub cache: Option<CacheState>,
}

/// The cache when a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheState {
    /// Reserved then.
    pub reserved_bytes: Bytes,
    /// In use then.
    pub active_bytes: Bytes,
    /// Reserved and not in use.
    pub free_bytes: Bytes,
    /// The largest free block of all.
    pub largest_free_block_bytes: Bytes,
    /// The largest free block of the request's own pool and stream: the largest request that would have fitted.
    pub largest_fitting_bytes: Bytes,
    /// Why the request failed.
    pub cause: Cause,
}

/// How many failed requests of a device have their cache worked out, the latest ones: each takes a walk over all blocks.
pub const MAX_EXAMINED: usize = 32;

/// All failed requests of the history, in the order of devices and time.
pub fn out_of_memory(snapshot: &Snapshot) -> Vec<OutOfMemory> {
    snapshot.histories.iter().flat_map(|history| of_history(snapshot, history)).collect()
}

fn of_history(snapshot: &Snapshot, history: &History) -> Vec<OutOfMemory> {
    let Some(last) = history.out_of_memory.last() else { return Vec::new() };
    let mut found: Vec<OutOfMemory> = Vec::with_capacity(history.out_of_memory.len());
    for failed in &history.out_of_memory {
        let Some(entry) = history.entries.get(failed.entry) else { continue };
        found.push(OutOfMemory {
            device: history.device,
            time: entry.time,
            requested_bytes: entry.requested,
            device_free_bytes: failed.device_free,
            stack: history.origin(entry).stack,
            cache: None,
        });
    }
    let first = found.len().saturating_sub(MAX_EXAMINED);
    let mut past = Past::new(snapshot, history.device);
    let mut at = history.entries.len();
    debug_assert!(last.entry < at);
    for (failed, found) in history.out_of_memory.iter().zip(&mut found).skip(first).rev() {
        while at > failed.entry {
            at -= 1;
            let entry = &history.entries[at];
            past.undo(entry, history.origin(entry).stream);
        }
        found.cache = history.entries.get(failed.entry).map(|e| {
            let stream = history.origin(e).stream;
            past.cache(e.requested, stream, failed.device_free)
        });
    }
    found
}

/// The state of one device's allocator, walked backwards from the end.
struct Past {
    segments: BTreeMap<u64, Reserved>,
    active: BTreeMap<u64, Bytes>,
}

#[derive(Clone, Copy)]
struct Reserved {
    end: u64,
    stream: i64,
    pool: Pool,
}

/// Segments of this size serve the small pool (`kSmallBuffer`).
const SMALL_SEGMENT: Bytes = Bytes(2 << 20);
/// The largest request that the small pool serves (`kSmallSize`).
const SMALL_REQUEST: Bytes = Bytes(1 << 20);

impl Past {
    fn new(snapshot: &Snapshot, device: Device) -> Self {
        let segments = || snapshot.segments.iter().filter(|s| s.device == device);
        let reserved = |s: &Segment| (s.address, Reserved { end: s.end(), stream: s.stream, pool: s.pool });
        let blocks = segments().flat_map(|s| &s.blocks).filter(|b| b.state.is_active());
        Self { segments: segments().map(reserved).collect(), active: blocks.map(|b| (b.address, b.size)).collect() }
    }

    fn undo(&mut self, entry: &HistoryEntry, stream: i64) {
        let (address, end) = (entry.address, end_of(entry.address, entry.size));
        let pool = if entry.size <= SMALL_SEGMENT { Pool::Small } else { Pool::Large };
        match entry.action {
            Action::Alloc => drop(self.active.remove(&address)),
            Action::FreeCompleted => drop(self.active.insert(address, entry.size)),
            Action::SegmentAlloc => drop(self.segments.remove(&address)),
            Action::SegmentFree => drop(self.segments.insert(address, Reserved { end, stream, pool })),
            Action::SegmentMap => self.unmap(address, end),
            Action::SegmentUnmap => self.map(address, Reserved { end, stream, pool }),
            _ => {}
        }
    }

    /// Takes a range out of the segment that holds it.
    fn unmap(&mut self, start: u64, end: u64) {
        let Some((&at, &whole)) = self.segments.range(..=start).next_back() else { return };
        if whole.end <= start {
            return;
        }
        self.segments.remove(&at);
        if at < start {
            self.segments.insert(at, Reserved { end: start, ..whole });
        }
        if end < whole.end {
            self.segments.insert(end, whole);
        }
    }

    /// Puts a range back, as one with the segments that it touches: a growing segment is one piece.
    fn map(&mut self, mut start: u64, mut range: Reserved) {
        if let Some((&at, &before)) = self.segments.range(..start).next_back().filter(|(_, s)| s.end == start) {
            self.segments.remove(&at);
            start = at;
            range = Reserved { end: range.end, ..before };
        }
        if let Some(after) = self.segments.remove(&range.end) {
            range = Reserved { end: after.end, ..after };
        }
        self.segments.insert(start, range);
    }

    fn cache(&self, asked: Bytes, stream: i64, device_free: Option<Bytes>) -> CacheState {
        let pool = if asked <= SMALL_REQUEST { Pool::Small } else { Pool::Large };
        let (mut reserved, mut free) = (0u64, 0u64);
        let (mut largest, mut fitting) = (0u64, 0u64);
        let mut active = self.active.iter().peekable();
        for (&start, segment) in &self.segments {
            let mut at = start;
            reserved = reserved.saturating_add(segment.end.saturating_sub(start));
            let mut gap = |from: u64, to: u64| {
                let room = to.saturating_sub(from);
                free = free.saturating_add(room);
                largest = largest.max(room);
                if segment.pool == pool && segment.stream == stream {
                    fitting = fitting.max(room);
                }
            };
            while let Some((&address, &size)) = active.next_if(|(address, _)| **address < segment.end) {
                if address >= at {
                    gap(at, address);
                    at = end_of(address, size);
                }
            }
            gap(at, segment.end);
        }
        let bytes = |n: u64| Bytes(i64::try_from(n).unwrap_or(i64::MAX));
        let cause = if device_free.is_some_and(|free| free >= asked) {
            Cause::Limited
        } else if bytes(free) >= asked {
            Cause::Fragmented
        } else {
            Cause::Full
        };
        CacheState {
            reserved_bytes: bytes(reserved),
            active_bytes: bytes(reserved) - bytes(free),
            free_bytes: bytes(free),
            largest_free_block_bytes: bytes(largest),
            largest_fitting_bytes: bytes(fitting),
            cause,
        }
    }
}
