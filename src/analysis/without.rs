//! How high a curve goes without the blocks of a group.
//!
//! What a group holds changes only at its own events, so between them the highest total decides: a tree of maxima over
//! the curve answers each stretch in logarithmic time, and all groups together take time near linear in the blocks.

use super::allocations::DeviceMemory;
use super::grouping::Groups;
use crate::units::Bytes;

/// For each group the greatest allocated total that is left at any event once the group's live blocks are taken off.
pub(super) fn peaks_without(memory: &DeviceMemory, groups: &Groups) -> Vec<Bytes> {
    let maxima = Maxima::build(memory.allocated());
    let changes = changes_by_group(memory, groups);
    let peak = |changes: &Vec<(u32, Bytes)>| {
        let (mut from, mut held, mut highest) = (0, Bytes::ZERO, Bytes(i64::MIN));
        let end = (memory.len() as u32, Bytes::ZERO);
        for (event, change) in changes.iter().copied().chain([end]) {
            if let Some(top) = maxima.of(from, event as usize) {
                highest = highest.max(top - held);
            }
            (from, held) = (event as usize, held + change);
        }
        highest.max(Bytes::ZERO)
    };
    changes.iter().map(peak).collect()
}

/// For each group the events at which what it holds changes, and by how much.
fn changes_by_group(memory: &DeviceMemory, groups: &Groups) -> Vec<Vec<(u32, Bytes)>> {
    let mut ends: Vec<(u32, u32)> = Vec::with_capacity(memory.blocks().len());
    for (i, block) in memory.blocks().iter().enumerate() {
        ends.extend(block.freed().map(|freed| (freed as u32, i as u32)));
    }
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut changes: Vec<Vec<(u32, Bytes)>> = vec![Vec::new(); groups.keys.len()];
    let bytes = |i: u32| memory.blocks()[i as usize].bytes;
    for (i, block) in memory.blocks().iter().enumerate() {
        while let Some((event, freed)) = ends.next_if(|e| e.0 as usize <= block.allocated()) {
            changes[groups.of[freed as usize] as usize].push((event, -bytes(freed)));
        }
        changes[groups.of[i] as usize].push((block.allocated() as u32, block.bytes));
    }
    for (event, freed) in ends {
        changes[groups.of[freed as usize] as usize].push((event, -bytes(freed)));
    }
    changes
}

/// A complete binary tree of maxima.
pub(super) struct Maxima {
    leaves: usize,
    nodes: Vec<Bytes>,
}

impl Maxima {
    pub(super) fn build(values: &[Bytes]) -> Self {
        let leaves = values.len();
        let mut nodes = vec![Bytes(i64::MIN); leaves];
        nodes.extend_from_slice(values);
        for i in (1..leaves).rev() {
            nodes[i] = nodes[2 * i].max(nodes[2 * i + 1]);
        }
        Self { leaves, nodes }
    }

    /// The greatest value from `from` up to before `to`; `None` where there is none.
    pub(super) fn of(&self, from: usize, to: usize) -> Option<Bytes> {
        let (mut low, mut high) = (from + self.leaves, to + self.leaves);
        let mut top = None;
        while low < high {
            if low % 2 == 1 {
                top = top.max(Some(self.nodes[low]));
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                top = top.max(Some(self.nodes[high]));
            }
            (low, high) = (low / 2, high / 2);
        }
        top
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocations::Allocations;
    use super::super::testing::Build;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn taking_a_group_off_the_curve_event_by_event_gives_the_same(
            steps in proptest::collection::vec((1u64..8, 1i64..50), 1..60), kinds in 1u32..5, base in 0i64..50
        ) {
            // Each address is allocated, then freed, in turn.
            let mut b = Build::default();
            b.before(base);
            let mut open = [0i64; 8];
            for (time, (address, bytes)) in steps.iter().enumerate() {
                let held = &mut open[*address as usize];
                let change = if *held == 0 { *bytes } else { -*held };
                *held += change;
                b.alloc(time as i64, *address, change);
            }
            let all = Allocations::build(&b.finish());
            let m = &all.devices()[0];
            let of: Vec<u32> = m.blocks().iter().map(|b| b.address as u32 % kinds).collect();
            let groups = Groups { keys: (0..kinds).map(|k| k.to_string()).collect(), of };
            for (group, got) in peaks_without(m, &groups).into_iter().enumerate() {
                let left = |at: usize| {
                    let mine = m.live_blocks(at + 1).filter(|i| groups.of[*i] as usize == group);
                    m.allocated()[at] - mine.map(|i| m.blocks()[i].bytes).sum()
                };
                prop_assert_eq!(Some(got), (0..m.len()).map(left).max());
            }
        }
    }
}
