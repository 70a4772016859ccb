//! The part of `summary` that only a snapshot knows: the allocator's figures, its settings, why requests failed.

use super::sentence::sentence;
use super::{Block, Cell, Column, Finding, Table};
use crate::analysis::failed_requests::{Cause, OutOfMemory, out_of_memory};
use crate::analysis::snapshot_stats::{DeviceStats, PoolStats};
use crate::trace::snapshot::{AllocatorSettings, Snapshot};
use crate::units::Bytes;
use serde_json::{Value, json};

/// What people read of a device.
pub(super) fn blocks(device: &DeviceStats) -> Vec<Block> {
    let f = &device.fragmentation;
    let facts = vec![
        ("Free in segments".to_owned(), f.free_bytes.into()),
        ("Largest free block".to_owned(), f.largest_free_block_bytes.into()),
        ("Fragmentation".to_owned(), f.ratio.map_or(Cell::Absent, Cell::Ratio)),
        ("Freed by empty_cache()".to_owned(), f.releasable_bytes.into()),
        ("Lost to rounding".to_owned(), f.rounding_bytes.into()),
    ];
    let unknown = "What memory_stats() counts since the start of the process (peaks, totals, retries, flushes) is not in \
                   a snapshot: unknown beyond the history above.";
    vec![
        Block::Heading(format!("{}, when the snapshot was taken", device.device)),
        Block::Table(current(device)),
        Block::Facts(facts),
        Block::Text(unknown.into()),
    ]
}

/// A figure of a pool and its name.
type Named<T> = (&'static str, fn(&PoolStats) -> T);

/// The `current` figures of `memory_stats()`, in the order of `memory_summary()`.
fn current(device: &DeviceStats) -> Table {
    let pools = [&device.all, &device.large_pool, &device.small_pool];
    let bytes: [Named<Bytes>; 5] = [
        ("Allocated", |s| s.allocated_bytes),
        ("Active", |s| s.active_bytes),
        ("Requested", |s| s.requested_bytes),
        ("Reserved", |s| s.reserved_bytes),
        ("Inactive split", |s| s.inactive_split_bytes),
    ];
    let counts: [Named<u64>; 4] = [
        ("Allocations", |s| s.allocation_count),
        ("Active blocks", |s| s.active_count),
        ("Segments", |s| s.segment_count),
        ("Inactive split blocks", |s| s.inactive_split_count),
    ];
    let row = |name: &str, cells: [Cell; 3]| std::iter::once(Cell::from(name)).chain(cells).collect::<Vec<Cell>>();
    let bytes = bytes.iter().map(|(name, of)| row(name, pools.map(|s| of(s).into())));
    let counts = counts.iter().map(|(name, of)| row(name, pools.map(|s| Cell::Count(of(s)))));
    Table {
        columns: vec![
            Column::new("figure", "Figure"),
            Column::new("all", "All"),
            Column::new("large_pool", "Large pool"),
            Column::new("small_pool", "Small pool"),
        ],
        rows: bytes.chain(counts).collect(),
        ..Table::default()
    }
}

/// The settings that are not as PyTorch has them by itself: unset, off, 0.
pub(super) fn settings(settings: &AllocatorSettings) -> Option<Block> {
    let plain = |value: &str| matches!(value, "" | "-1" | "0" | "0.0" | "1" | "False" | "false" | "None");
    let set =
        settings.all.iter().filter(|(name, value)| !plain(value) && !name.starts_with("roundup_power2_divisions"));
    let mut facts: Vec<(String, Cell)> = set.map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    if settings.roundup_power2_divisions.iter().any(|d| *d > 0) {
        let steps: Vec<String> = settings.roundup_power2_divisions.iter().map(u32::to_string).collect();
        facts.push(("roundup_power2_divisions".into(), steps.join(" ").into()));
    }
    (!facts.is_empty()).then_some(Block::Facts(facts))
}

/// The snapshot's own part of the JSON document.
pub(super) fn document(snapshot: &Snapshot, devices: &[DeviceStats]) -> Value {
    let device = |d: &DeviceStats| {
        json!({"device": d.device.to_string(), "all": d.all, "large_pool": d.large_pool, "small_pool": d.small_pool,
               "fragmentation": d.fragmentation, "caches": d.caches})
    };
    let failed = |f: &OutOfMemory| {
        json!({"device": f.device.to_string(), "requested_bytes": f.requested_bytes,
               "device_free_bytes": f.device_free_bytes, "cache": f.cache})
    };
    json!({
        "devices": devices.iter().map(device).collect::<Vec<Value>>(),
        "out_of_memory": out_of_memory(snapshot).iter().map(failed).collect::<Vec<Value>>(),
        "allocator_settings": snapshot.settings.all.iter().map(|(k, v)| json!([k, v])).collect::<Vec<Value>>(),
    })
}

/// Why the last request failed.
pub(super) fn failed(snapshot: &Snapshot) -> Option<Finding> {
    let all = out_of_memory(snapshot);
    let last = all.last()?;
    let cache = last.cache?;
    let mut message = sentence![last.device.to_string(), ": a request for ", last.requested_bytes, " failed"];
    if all.len() > 1 {
        message = message.and(", the last of ").and(Cell::Count(all.len() as u64));
    }
    message = message.then(sentence![
        ". The allocator had reserved ",
        cache.reserved_bytes,
        ", of which ",
        cache.free_bytes,
        " were free; the largest free block had ",
        cache.largest_free_block_bytes,
        ", and a request up to ",
        cache.largest_fitting_bytes,
        " would have fitted. "
    ]);
    message = match last.device_free_bytes {
        Some(free) => message.and("The device had ").and(free).and(" free."),
        None => message.and("What the device had free is not in the file."),
    };
    let advice = match cache.cause {
        Cause::Fragmented => {
            "The bytes were there, but in no single block: fragmentation. Try expandable_segments:True in \
             PYTORCH_CUDA_ALLOC_CONF; 'tracetool segments' shows where the free blocks lie."
        }
        Cause::Limited => {
            "The device had room, so a limit of the process stopped it (set_per_process_memory_fraction), or the free \
             memory could not be had in one piece. 'tracetool peak --at oom' shows who held the memory then."
        }
        Cause::Full => "Cache and device were full: 'tracetool peak --at oom' shows who held the memory then.",
    };
    Some(Finding { code: "out-of-memory", message, advice: advice.into() })
}
