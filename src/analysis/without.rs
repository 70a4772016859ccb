//! How high a curve goes without the blocks of a group.
//!
//! What a group holds changes only at its own events, so between them the highest total decides: a tree of maxima over
//! the curve answers each stretch in logarithmic time, and all groups together take time near linear in the blocks, in one
//! pass over them.

use super::allocations::DeviceMemory;
use super::grouping::Groups;
use crate::units::Bytes;

/// For each group the greatest allocated total that is left at any event once the group's live blocks are taken off.
pub(super) fn peaks_without(memory: &DeviceMemory, groups: &Groups) -> Vec<Bytes> {
    let maxima = Maxima::build(memory.allocated());
    let mut left = vec![Left { from: 0, held: Bytes::ZERO, highest: Bytes(i64::MIN) }; groups.keys.len()];
    each_change(memory, groups, |group, event, change| {
        let left = &mut left[group as usize];
        left.pass(&maxima, event);
        left.held += change;
    });
    let highest = |mut left: Left| {
        left.pass(&maxima, memory.len());
        left.highest.max(Bytes::ZERO)
    };
    left.into_iter().map(highest).collect()
}

/// What is left of the curve without a group, as far as it is known.
#[derive(Clone, Copy)]
struct Left {
    from: usize,
    held: Bytes,
    highest: Bytes,
}

impl Left {
    /// Goes on to before event `to`.
    fn pass(&mut self, maxima: &Maxima<'_>, to: usize) {
        if let Some(top) = maxima.of(self.from, to) {
            self.highest = self.highest.max(top - self.held);
        }
        self.from = to;
    }
}

/// Tells in the order of time each group, event, and by how much what the group holds changes there.
fn each_change(memory: &DeviceMemory, groups: &Groups, mut tell: impl FnMut(u32, usize, Bytes)) {
    let mut ends: Vec<(u32, u32)> = Vec::with_capacity(memory.blocks().len());
    for (i, block) in memory.blocks().iter().enumerate() {
        ends.extend(block.freed().map(|freed| (freed as u32, i as u32)));
    }
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let bytes = |i: u32| memory.blocks()[i as usize].bytes;
    for (i, block) in memory.blocks().iter().enumerate() {
        while let Some((event, freed)) = ends.next_if(|e| e.0 as usize <= block.allocated()) {
            tell(groups.of[freed as usize], event as usize, -bytes(freed));
        }
        tell(groups.of[i], block.allocated(), block.bytes);
    }
    for (event, freed) in ends {
        tell(groups.of[freed as usize], event as usize, -bytes(freed));
    }
}

/// The greatest of any stretch of values: a complete binary tree of maxima over pieces of them.
pub(super) struct Maxima<'v> {
    values: &'v [Bytes],
    leaves: usize,
    nodes: Vec<Bytes>,
}

/// How many values a leaf is of: few enough to look at, and many enough that the tree is small beside the values.
const PIECE: usize = 32;

impl<'v> Maxima<'v> {
    pub(super) fn build(values: &'v [Bytes]) -> Self {
        let leaves = values.len().div_ceil(PIECE);
        let mut nodes = vec![Bytes(i64::MIN); leaves];
        nodes.extend(values.chunks(PIECE).map(|piece| piece.iter().max().copied().unwrap_or_default()));
        for i in (1..leaves).rev() {
            nodes[i] = nodes[2 * i].max(nodes[2 * i + 1]);
        }
        Self { values, leaves, nodes }
    }

    /// The greatest value from `from` up to before `to`; `None` where there is none.
    pub(super) fn of(&self, from: usize, to: usize) -> Option<Bytes> {
        let most = |from: usize, to: usize| self.values.get(from..to).unwrap_or_default().iter().max().copied();
        let (first, last) = (from.div_ceil(PIECE), to / PIECE);
        if first >= last {
            return most(from, to);
        }
        let (mut low, mut high) = (first + self.leaves, last + self.leaves);
        let mut top = most(from, first * PIECE).max(most(last * PIECE, to));
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
        fn the_greatest_of_a_stretch_is_what_looking_at_all_of_it_finds(
            values in proptest::collection::vec(-50i64..50, 0..300), from in 0usize..300, len in 0usize..300
        ) {
            let values: Vec<Bytes> = values.into_iter().map(Bytes).collect();
            let from = from.min(values.len());
            let to = (from + len).min(values.len());
            prop_assert_eq!(Maxima::build(&values).of(from, to), values[from..to].iter().max().copied());
        }

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
