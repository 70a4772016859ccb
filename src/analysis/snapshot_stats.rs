//! The allocator's figures as far as a snapshot knows them, and exact fragmentation.
//!
//! Names and definitions are those of `torch.cuda.memory_stats()`. Its `current` figures follow from the blocks alone and
//! equal PyTorch's own; its peaks and counters since the start of the process are not in a snapshot and not here (the
//! peak within the recorded history is the trace's).

use crate::trace::Device;
use crate::trace::snapshot::{BlockState, Pool, Segment, Snapshot};
use crate::units::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// The `current` figures of `memory_stats()` for one pool or for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolStats {
    /// `allocated_bytes`: blocks that tensors hold, at their whole size.
    pub allocated_bytes: Bytes,
    /// `allocation`: how many such blocks.
    pub allocation_count: u64,
    /// `active_bytes`: those and the blocks that another stream may still use.
    pub active_bytes: Bytes,
    /// `active`: how many such blocks.
    pub active_count: u64,
    /// `requested_bytes`: what was asked for of the active blocks.
    pub requested_bytes: Bytes,
    /// `reserved_bytes`: all segments.
    pub reserved_bytes: Bytes,
    /// `segment`: how many.
    pub segment_count: u64,
    /// `inactive_split_bytes`: free blocks in segments that are partly in use, which cannot be given back. Expandable
    /// segments are left out, as PyTorch does.
    pub inactive_split_bytes: Bytes,
    /// `inactive_split`: how many such blocks.
    pub inactive_split_count: u64,
}

/// How usable the free part of the reserved memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fragmentation {
    /// Reserved and not active.
    pub free_bytes: Bytes,
    /// The largest free block: the largest request that the cache could serve.
    pub largest_free_block_bytes: Bytes,
    /// 1 - largest free block / free bytes; `None` where nothing is free.
    pub ratio: Option<f64>,
    /// Free in segments with no active block, which `empty_cache()` would give back.
    pub releasable_bytes: Bytes,
    /// Given beyond what was asked for: rounding, and rests that were not worth splitting off.
    pub rounding_bytes: Bytes,
}

/// One segment's share of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SegmentStats {
    /// Its place in [`Snapshot::segments`].
    pub segment: usize,
    /// Bytes in active blocks.
    pub active_bytes: Bytes,
    /// Bytes in free blocks.
    pub free_bytes: Bytes,
    /// The largest free block.
    pub largest_free_block_bytes: Bytes,
    /// How many blocks.
    pub block_count: u64,
    /// How many of them are free.
    pub free_block_count: u64,
    /// Of the free bytes those beside active blocks, which cannot be given back; 0 where the segment is expandable.
    pub inactive_split_bytes: Bytes,
    /// Bytes of active blocks that nobody asked for.
    pub rounding_bytes: Bytes,
}

/// The figures of the segments that serve the same requests: a free block of one cannot serve those of another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheStats {
    /// The requests: small or large.
    pub pool: Pool,
    /// The private pool, (0, 0) for the common one.
    pub pool_id: (i64, i64),
    /// The stream.
    pub stream: i64,
    /// The figures of `memory_stats()`.
    pub stats: PoolStats,
    /// How usable the free memory is.
    pub fragmentation: Fragmentation,
    /// The segments, as places in [`Snapshot::segments`], by address.
    #[serde(skip)]
    pub segments: Vec<usize>,
}

/// The figures of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceStats {
    /// The device.
    #[serde(serialize_with = "by_name")]
    pub device: Device,
    /// Both pools together.
    pub all: PoolStats,
    /// `large_pool`.
    pub large_pool: PoolStats,
    /// `small_pool`.
    pub small_pool: PoolStats,
    /// How usable the free memory is.
    pub fragmentation: Fragmentation,
    /// The same for each set of segments that serve the same requests: common pools before private ones, large before
    /// small.
    pub caches: Vec<CacheStats>,
    /// Each segment, in the order of the file.
    pub segments: Vec<SegmentStats>,
}

fn by_name<S: serde::Serializer>(device: &Device, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(device)
}

/// The figures of every device that has segments, by device.
pub fn device_stats(snapshot: &Snapshot) -> Vec<DeviceStats> {
    let mut devices: BTreeMap<Device, Tally> = BTreeMap::new();
    for (place, segment) in snapshot.segments.iter().enumerate() {
        devices.entry(segment.device).or_default().add(place, segment);
    }
    devices.into_iter().map(|(device, tally)| tally.finish(device)).collect()
}

/// The sums of a device while its segments pass.
#[derive(Default)]
struct Tally {
    all: PoolStats,
    pools: [PoolStats; 2],
    fragmentation: Fragmentation,
    caches: BTreeMap<((i64, i64), Pool, i64), CacheStats>,
    segments: Vec<SegmentStats>,
    addresses: Vec<u64>,
}

impl Tally {
    fn add(&mut self, place: usize, segment: &Segment) {
        let own = segment_stats(place, segment);
        let cache = self.caches.entry((segment.pool_id, segment.pool, segment.stream)).or_insert_with(|| CacheStats {
            pool: segment.pool,
            pool_id: segment.pool_id,
            stream: segment.stream,
            stats: PoolStats::default(),
            fragmentation: Fragmentation::default(),
            segments: Vec::new(),
        });
        // Places of this device's list for now, to find the addresses by.
        cache.segments.push(self.segments.len());
        for stats in [&mut self.all, &mut self.pools[segment.pool as usize], &mut cache.stats] {
            add_segment(stats, segment);
        }
        self.fragmentation.add(&own);
        cache.fragmentation.add(&own);
        self.segments.push(own);
        self.addresses.push(segment.address);
    }

    fn finish(self, device: Device) -> DeviceStats {
        let Self { all, pools, fragmentation, caches, segments, addresses } = self;
        let [large_pool, small_pool] = pools;
        let mut caches: Vec<CacheStats> = caches.into_values().collect();
        for cache in &mut caches {
            cache.segments.sort_by_key(|at| addresses[*at]);
            cache.segments.iter_mut().for_each(|at| *at = segments[*at].segment);
            cache.fragmentation.finish();
        }
        let fragmentation = {
            let mut f = fragmentation;
            f.finish();
            f
        };
        DeviceStats { device, all, large_pool, small_pool, fragmentation, caches, segments }
    }
}

impl Fragmentation {
    fn add(&mut self, segment: &SegmentStats) {
        self.free_bytes += segment.free_bytes;
        self.largest_free_block_bytes = self.largest_free_block_bytes.max(segment.largest_free_block_bytes);
        self.rounding_bytes += segment.rounding_bytes;
        if segment.block_count == segment.free_block_count {
            self.releasable_bytes += segment.free_bytes;
        }
    }

    fn finish(&mut self) {
        let (largest, free) = (self.largest_free_block_bytes, self.free_bytes);
        self.ratio = (free > Bytes::ZERO).then(|| 1.0 - largest.0 as f64 / free.0 as f64);
    }
}

fn segment_stats(place: usize, segment: &Segment) -> SegmentStats {
    let free = || segment.blocks.iter().filter(|b| !b.state.is_active());
    let active = || segment.blocks.iter().filter(|b| b.state.is_active());
    let free_bytes = free().map(|b| b.size).sum();
    let split = segment.blocks.len() > 1 && !segment.expandable;
    SegmentStats {
        segment: place,
        active_bytes: active().map(|b| b.size).sum(),
        free_bytes,
        inactive_split_bytes: if split { free_bytes } else { Bytes::ZERO },
        rounding_bytes: active().map(|b| b.size - b.requested).sum(),
        largest_free_block_bytes: free().map(|b| b.size).max().unwrap_or_default(),
        block_count: segment.blocks.len() as u64,
        free_block_count: free().count() as u64,
    }
}

fn add_segment(stats: &mut PoolStats, segment: &Segment) {
    stats.reserved_bytes += segment.size;
    stats.segment_count += 1;
    for block in &segment.blocks {
        match block.state {
            BlockState::Allocated => {
                stats.allocated_bytes += block.size;
                stats.allocation_count += 1;
            }
            BlockState::AwaitingFree => {}
            BlockState::Inactive => {
                if segment.blocks.len() > 1 && !segment.expandable {
                    stats.inactive_split_bytes += block.size;
                    stats.inactive_split_count += 1;
                }
                continue;
            }
        }
        stats.active_bytes += block.size;
        stats.active_count += 1;
        stats.requested_bytes += block.requested;
    }
}
