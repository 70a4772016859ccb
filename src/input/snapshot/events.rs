//! A device's history to memory events with the allocator's totals.
//!
//! The totals at the end are known from the blocks and segments, and each entry's change is known, so the totals after
//! every entry follow exactly, however late the history began: what was live before it is simply there from the start.
//! A history whose segments are not told (some tools write such files) gives itself away where more is allocated than
//! reserved; what was reserved then is not known.

use crate::trace::snapshot::{Action, BlockState, History, HistoryEntry, Segment};
use crate::trace::{MemoryEvent, OutOfMemory, Severity, ThreadId, TraceBuilder};
use crate::units::Bytes;

/// A total that is not known.
const NOT_KNOWN: Bytes = Bytes(-1);

/// The thread that a device's history and annotations are on: a snapshot does not record real ones.
pub(super) fn thread(builder: &mut TraceBuilder, device: i64) -> ThreadId {
    builder.thread("", &device.to_string())
}

/// What the entry adds to allocated and to reserved bytes.
fn change(entry: &HistoryEntry) -> (Bytes, Bytes) {
    match entry.action {
        Action::Alloc => (entry.size, Bytes::ZERO),
        Action::FreeRequested | Action::FreeCompleted if entry.frees => (-entry.size, Bytes::ZERO),
        Action::SegmentAlloc | Action::SegmentMap => (Bytes::ZERO, entry.size),
        Action::SegmentFree | Action::SegmentUnmap => (Bytes::ZERO, -entry.size),
        _ => (Bytes::ZERO, Bytes::ZERO),
    }
}

/// The total before the first change.
///
/// The total at the end less all changes; where that, or any total after it, would be negative the history contradicts
/// the end, and the smallest total is taken that keeps all of them at or above 0.
fn start(at_end: Bytes, changes: impl Iterator<Item = Bytes>) -> (Bytes, bool) {
    let (mut sum, mut lowest) = (Bytes::ZERO, Bytes::ZERO);
    for change in changes {
        sum += change;
        lowest = lowest.min(sum);
    }
    let exact = at_end - sum;
    if exact + lowest < Bytes::ZERO { (-lowest, false) } else { (exact, true) }
}

/// Pushes the events of one device.
pub(super) fn push(builder: &mut TraceBuilder, history: &History, segments: &[&Segment]) {
    let allocated = segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state == BlockState::Allocated);
    let (mut total_allocated, allocated_fits) =
        start(allocated.map(|b| b.size).sum(), history.entries.iter().map(|e| change(e).0));
    let (mut total_reserved, reserved_fits) =
        start(segments.iter().map(|s| s.size).sum(), history.entries.iter().map(|e| change(e).1));
    if history.contradictions > 0 || !allocated_fits || !reserved_fits {
        builder.diagnostics_mut().note("history-contradicts-blocks", Severity::Warning, None, || {
            format!(
                "the history of {} does not lead to the blocks of the snapshot ({} entries contradict them): totals are \
                 a best guess; was recording stopped before the snapshot was taken?",
                history.device, history.contradictions
            )
        });
    }
    if !builder.kept().memory {
        return;
    }
    let device = builder.device(history.device);
    let thread = thread(builder, i64::from(history.device.index));
    let mut above_reserved = 0;
    for entry in &history.entries {
        let (bytes, reserved) = change(entry);
        total_allocated += bytes;
        total_reserved += reserved;
        above_reserved += u64::from(total_allocated > total_reserved);
        let total_reserved = if total_allocated <= total_reserved { total_reserved } else { NOT_KNOWN };
        let &HistoryEntry { time, address, .. } = entry;
        let stack = history.origin(entry).stack;
        if entry.action == Action::OutOfMemory {
            let bytes = entry.requested;
            builder.push_out_of_memory(OutOfMemory {
                time,
                bytes,
                device,
                thread,
                total_allocated,
                total_reserved,
                stack,
            });
        } else if entry.action == Action::Alloc || entry.frees {
            builder.push_memory(MemoryEvent {
                time,
                bytes,
                device,
                thread,
                address,
                total_allocated,
                total_reserved,
                stack,
            });
        }
    }
    builder.diagnostics_mut().note_many("allocated-above-reserved", Severity::Warning, above_reserved, None, || {
        format!(
            "entries of the history of {} after which more is allocated than its segments hold: it does not tell of all \
             segments, and what was reserved then is not known",
            history.device
        )
    });
}
