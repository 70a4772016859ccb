//! What is live at a device's peak in the ways that a summary looks at it: pools of the allocator, attention written out.

use super::allocations::DeviceMemory;
use super::grouping::{Attribution, GroupBy};
use super::owners::AttributeTo;
use crate::units::Bytes;
use serde::Serialize;

/// The largest request that the allocator serves from its pool of small blocks (`kSmallSize` of PyTorch's
/// `CUDACachingAllocator`).
const SMALL: Bytes = Bytes(1 << 20);

/// What was allocated from a pool, as far as sizes tell the pools apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolUse {
    /// Gross bytes allocated.
    pub allocated_bytes: Bytes,
    /// The number of allocations.
    pub allocation_count: u64,
    /// What of it is live at the peak.
    pub live_at_peak_bytes: Bytes,
}

/// The blocks that are live at a device's peak, as places in [`DeviceMemory::blocks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakParts(Vec<usize>);

impl PeakParts {
    /// The blocks of the device's peak; none where it has no peak.
    pub fn of(device: &DeviceMemory) -> Self {
        Self(device.peak().map(|peak| device.live_blocks(peak + 1).collect()).unwrap_or_default())
    }

    fn event(device: &DeviceMemory, block: usize) -> usize {
        device.events()[device.blocks()[block].allocated()] as usize
    }

    /// Bytes by the key of a grouping, most first.
    pub fn by(&self, device: &DeviceMemory, who: &Attribution<'_>, by: GroupBy) -> Vec<(String, Bytes)> {
        let groups = who.group(self.0.iter().map(|b| Self::event(device, *b)), by, AttributeTo::default());
        let mut sums = vec![Bytes::ZERO; groups.keys.len()];
        for (block, group) in self.0.iter().zip(&groups.of) {
            sums[*group as usize] += device.blocks()[*block].bytes;
        }
        let mut rows: Vec<(String, Bytes)> = groups.keys.into_iter().zip(sums).collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        rows
    }

    /// Bytes of attention whose innermost operator is no fused one.
    pub fn attention_written_out(&self, device: &DeviceMemory, who: &Attribution<'_>) -> Bytes {
        let events = || self.0.iter().map(|b| Self::event(device, *b));
        let categories = who.group(events(), GroupBy::Category, AttributeTo::default());
        let owners = who.group(events(), GroupBy::Op, AttributeTo::Op);
        let fused = |name: &str| {
            let name = name.to_ascii_lowercase();
            ["attention", "attn", "flash", "sdpa"].iter().any(|word| name.contains(word))
        };
        let rows = self.0.iter().zip(categories.of.iter().zip(&owners.of));
        rows.filter(|(_, (category, owner))| {
            categories.keys[**category as usize] == "attention" && !fused(&owners.keys[**owner as usize])
        })
        .map(|(block, _)| device.blocks()[*block].bytes)
        .sum()
    }

    /// The pools of large and of small blocks.
    pub fn pools(&self, device: &DeviceMemory) -> (PoolUse, PoolUse) {
        let (mut large, mut small) = (PoolUse::default(), PoolUse::default());
        for block in device.blocks() {
            let pool = if block.bytes > SMALL { &mut large } else { &mut small };
            pool.allocated_bytes += block.bytes;
            pool.allocation_count += 1;
        }
        for block in &self.0 {
            let bytes = device.blocks()[*block].bytes;
            let pool = if bytes > SMALL { &mut large } else { &mut small };
            pool.live_at_peak_bytes += bytes;
        }
        (large, small)
    }
}

/// How often the allocator had to ask the device for more.
pub fn reserved_growths(device: &DeviceMemory) -> u64 {
    let reserved: Vec<Bytes> = (0..device.len()).filter_map(|i| device.reserved(i)).collect();
    reserved.windows(2).filter(|w| w[1] > w[0]).count() as u64
}
