//! How large the blocks of a history really were.
//!
//! The history names what was *asked for*; `allocated_bytes` counts what was *given*: the request rounded up, and in the
//! large pool all of the free block where less than 1 MiB would be left of it. The blocks at the end are known exactly,
//! so the history is walked backwards from them: each completed free puts a block back, which then reaches up to the
//! next block that was in use at that moment, unless so much room is left there that the allocator had split it.
//!
//! Why that is exact: blocks of the large pool are larger than 1 MiB, so a smaller gap behind one cannot have been
//! another block; it was the unsplit rest. A rest that was left when the block was given is there for all of its life, so
//! the nearest that any neighbour came tells it; only of a block from before the history, whose neighbours then are not
//! known, can a rest stay unseen. With `max_split_size` large blocks are never split. The small pool and expandable
//! segments split whenever a whole 512 bytes are left, so there rounding is all.
//!
//! Source of the rules: `round_size` and `should_split` in `c10/cuda/CUDACachingAllocator.cpp`.

use crate::trace::snapshot::{Action, AllocatorSettings, History, HistoryEntry, Segment, end_of};
use crate::units::Bytes;
use std::collections::BTreeMap;

/// The unit of block sizes (`kMinBlockSize`).
const MIN_BLOCK: u64 = 512;
/// The largest request that the small pool serves, and the largest rest that the large pool does not split off
/// (`kSmallSize`).
const SMALL_SIZE: u64 = 1 << 20;

/// A block in use at the moment that the walk has reached.
#[derive(Clone, Copy, Default)]
struct Live {
    size: u64,
    /// What was asked for, rounded; `None` of a block that lives to the end, whose size is known.
    rounded: Option<u64>,
    /// Whether a neighbour told the size.
    told: bool,
    /// The entries of its free; none while it lives to the end.
    requested: Option<usize>,
    completed: Option<usize>,
}

struct Walk<'a> {
    settings: &'a AllocatorSettings,
    live: BTreeMap<u64, Live>,
    /// Segments that are not expandable, with their ends.
    segments: BTreeMap<u64, u64>,
}

/// Sets the size of each block in the history, marks the entries that free, and counts contradictions.
pub(super) fn fill_sizes(history: &mut History, segments: &[&Segment], settings: &AllocatorSettings) {
    let blocks = segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state.is_active());
    let mut walk = Walk {
        settings,
        live: blocks.map(|b| (b.address, Live { size: unsigned(b.size), ..Live::default() })).collect(),
        segments: segments.iter().filter(|s| !s.expandable).map(|s| (s.address, s.end())).collect(),
    };
    // PyTorch records the request of every free; where it is missing from between an allocation and the completion of its
    // free, the file is another tool's, and completions stand for frees. Else the request is before the history.
    let mut only_completions = false;
    let mut contradictions = 0;
    for i in (0..history.entries.len()).rev() {
        let HistoryEntry { action, address, requested, .. } = history.entries[i];
        let requested = unsigned(requested);
        match action {
            Action::FreeCompleted => {
                let freed = Live { completed: Some(i), ..Live::default() };
                if let Some(before) = walk.insert(address, requested, freed) {
                    contradictions += 1;
                    before.settle(history, false);
                }
            }
            Action::FreeRequested => match walk.live.get_mut(&address) {
                Some(live) => {
                    contradictions += u64::from(live.requested.is_some());
                    live.requested = Some(i);
                }
                None => {
                    contradictions += 1;
                    walk.insert(address, requested, Live { requested: Some(i), ..Live::default() });
                }
            },
            Action::Alloc => {
                let live = walk.live.remove(&address);
                contradictions += u64::from(live.is_none());
                let size = live.as_ref().map_or_else(|| walk.round(requested), |live| live.size);
                history.entries[i].size = bytes(size);
                // A completion stands for the free where no request for it was recorded.
                if let Some(live) = live {
                    only_completions |= live.completed.is_some() && live.requested.is_none();
                    live.settle(history, true);
                }
            }
            Action::SegmentAlloc => drop(walk.segments.remove(&address)),
            Action::SegmentFree => drop(walk.segments.insert(address, end_of(address, history.entries[i].requested))),
            _ => {}
        }
    }
    for live in walk.live.values() {
        live.settle(history, only_completions);
    }
    history.contradictions = contradictions;
}

impl Live {
    /// Gives the entries of its free its size, and marks the one that frees it: the request, or else the completion if
    /// that `may` stand for it.
    fn settle(&self, history: &mut History, may: bool) {
        for i in self.requested.into_iter().chain(self.completed) {
            history.entries[i].size = bytes(self.size);
        }
        if let Some(i) = self.requested.or(self.completed.filter(|_| may)) {
            history.entries[i].frees = true;
        }
    }
}

impl Walk<'_> {
    /// Puts a block back of which only the request is known; the block that stood there by mistake.
    fn insert(&mut self, address: u64, requested: u64, block: Live) -> Option<Live> {
        let rounded = self.round(requested);
        let next = self.live.range(address.saturating_add(1)..).next().map_or(u64::MAX, |(next, _)| *next);
        let room = self.room(address, rounded, next);
        let size = room.unwrap_or(rounded);
        let block = Live { size, rounded: Some(rounded), told: room.is_some(), ..block };
        let before = self.live.insert(address, block);
        // This block may be the nearest that the one before it ever had.
        let outer = self.live.range(..address).next_back();
        if let Some((at, rounded)) = outer.and_then(|(at, live)| Some((*at, live.rounded?)))
            && let Some(room) = self.room(at, rounded, address)
            && let Some(live) = self.live.get_mut(&at).filter(|live| !live.told || room < live.size)
        {
            (live.size, live.told) = (room, true);
        }
        before
    }

    /// The size of the block at `address` for a request of so many bytes, as `next`, the next block in use, tells it:
    /// where so little room is between them that the allocator had not split it.
    fn room(&self, address: u64, rounded: u64, next: u64) -> Option<u64> {
        if rounded <= SMALL_SIZE {
            return None;
        }
        let (_, end) = self.segments.range(..=address).next_back().filter(|(_, end)| **end > address)?;
        let room = next.min(*end) - address;
        let unsplit = match self.settings.max_split_size {
            Some(limit) if rounded >= unsigned(limit) => u64::MAX,
            _ => SMALL_SIZE,
        };
        (room >= rounded && room - rounded <= unsplit).then_some(room)
    }

    /// What the allocator makes of a request before it looks for a block (`round_size`).
    fn round(&self, requested: u64) -> u64 {
        if requested < MIN_BLOCK {
            return MIN_BLOCK;
        }
        // The table starts at 1 MiB, whose place also serves what is smaller.
        let place = (requested.ilog2() as usize).saturating_sub(20).min(15);
        let divisions = u64::from(self.settings.roundup_power2_divisions[place]);
        if divisions > 1 && requested > MIN_BLOCK.saturating_mul(divisions) {
            return round_to_division(requested, divisions);
        }
        requested.checked_next_multiple_of(MIN_BLOCK).unwrap_or(requested)
    }
}

/// The next of `divisions` even steps between two powers of two (`roundup_power2_next_division`).
fn round_to_division(requested: u64, divisions: u64) -> u64 {
    if requested.is_power_of_two() {
        return requested;
    }
    let floor = 1u64 << requested.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 {
        return floor.saturating_mul(2);
    }
    requested.checked_next_multiple_of(step).unwrap_or(requested)
}

fn bytes(size: u64) -> Bytes {
    Bytes(i64::try_from(size).unwrap_or(i64::MAX))
}

fn unsigned(bytes: Bytes) -> u64 {
    u64::try_from(bytes.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::snapshot::{Block, BlockState, Pool};
    use crate::trace::{Device, StackId};
    use crate::units::Nanos;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn history(entries: &[(Action, u64, u64)]) -> History {
        let entry = |&(action, address, bytes): &(Action, u64, u64)| HistoryEntry {
            action,
            address,
            requested: Bytes(bytes as i64),
            size: Bytes(bytes as i64),
            time: Nanos::ZERO,
            origin: 0,
            frees: false,
        };
        let entries = entries.iter().map(entry).collect();
        History {
            device: Device::cuda(0),
            entries,
            origins: Vec::new(),
            timed: false,
            out_of_memory: Vec::new(),
            contradictions: 0,
        }
    }

    fn segment(address: u64, size: u64, blocks: &[(u64, u64, BlockState)]) -> Segment {
        let block = |&(address, size, state): &(u64, u64, BlockState)| Block {
            address,
            size: Bytes(size as i64),
            requested: Bytes(size as i64),
            state,
            stack: StackId::NONE,
        };
        Segment {
            address,
            size: Bytes(size as i64),
            device: Device::cuda(0),
            stream: 0,
            pool: Pool::Large,
            pool_id: (0, 0),
            expandable: false,
            stack: StackId::NONE,
            blocks: blocks.iter().map(block).collect(),
        }
    }

    fn sizes(history: &History) -> Vec<i64> {
        history.entries.iter().map(|e| e.size.0).collect()
    }

    #[test]
    fn a_block_that_left_too_little_to_split_off_has_the_rest_too() {
        // segment at 1 GiB, 20 MiB: [ 19.5 MiB asked for, 0.5 MiB unsplit ] freed at the end
        let at = 1 << 30;
        let asked = 19 * MIB + MIB / 2;
        let mut h = history(&[
            (Action::SegmentAlloc, at, 20 * MIB),
            (Action::Alloc, at, asked),
            (Action::FreeRequested, at, asked),
            (Action::FreeCompleted, at, asked),
        ]);
        let s = segment(at, 20 * MIB, &[(at, 20 * MIB, BlockState::Inactive)]);
        fill_sizes(&mut h, &[&s], &AllocatorSettings::default());
        assert_eq!(sizes(&h), [20 * MIB as i64; 4]);
        assert_eq!(h.contradictions, 0);
        assert_eq!(h.entries.iter().map(|e| e.frees).collect::<Vec<_>>(), [false, false, true, false]);
    }

    #[test]
    fn a_block_ends_where_its_neighbour_of_that_moment_began() {
        // [ a: 3 MiB + 1 byte, rest unsplit up to b ][ b: lives ]   a is freed while b is there
        let at = 1 << 30;
        let mut h = history(&[(Action::FreeRequested, at, 3 * MIB + 1), (Action::FreeCompleted, at, 3 * MIB + 1)]);
        let b = at + 4 * MIB;
        let blocks = [(at, 4 * MIB, BlockState::Inactive), (b, 16 * MIB, BlockState::Allocated)];
        let s = segment(at, 20 * MIB, &blocks);
        fill_sizes(&mut h, &[&s], &AllocatorSettings::default());
        assert_eq!(sizes(&h), [4 * MIB as i64; 2]);
    }

    #[test]
    fn a_rest_seen_beside_any_neighbour_was_there_for_all_of_the_blocks_life() {
        // [ a: 3.5 MiB and an unsplit rest ][ b ]  b is freed before a, which has all the room there is by then.
        let (at, b) = (1 << 30, (1 << 30) + 4 * MIB);
        let asked = 3 * MIB + MIB / 2;
        let mut h = history(&[
            (Action::SegmentAlloc, at, 20 * MIB),
            (Action::Alloc, at, 4 * MIB),
            (Action::Alloc, b, 16 * MIB),
            (Action::FreeRequested, at, 4 * MIB),
            (Action::FreeCompleted, at, 4 * MIB),
            (Action::Alloc, at, asked),
            (Action::FreeRequested, b, 16 * MIB),
            (Action::FreeCompleted, b, 16 * MIB),
            (Action::FreeRequested, at, asked),
            (Action::FreeCompleted, at, asked),
        ]);
        let s = segment(at, 20 * MIB, &[(at, 20 * MIB, BlockState::Inactive)]);
        fill_sizes(&mut h, &[&s], &AllocatorSettings::default());
        let mib = |n: u64| (n * MIB) as i64;
        assert_eq!(sizes(&h), [20, 4, 16, 4, 4, 4, 16, 16, 4, 4].map(mib));
        assert_eq!(h.contradictions, 0);
    }

    #[test]
    fn small_requests_round_to_512_bytes_and_large_ones_to_the_set_division() {
        let settings = AllocatorSettings { roundup_power2_divisions: [4; 16], ..Default::default() };
        let walk = |settings| Walk { settings, live: BTreeMap::new(), segments: BTreeMap::new() };
        let plain = AllocatorSettings::default();
        let plain = walk(&plain);
        assert_eq!([0, 1, 512, 513, MIB + 1].map(|n| plain.round(n)), [512, 512, 512, 1024, MIB + 512]);
        let divided = walk(&settings);
        // 1200 lies between 1024 and 2048, in steps of 256; the documentation's own example.
        assert_eq!([1200, 1024, 2049, 5000].map(|n| divided.round(n)), [1536, 1024, 2560, 5120]);
        assert_eq!(divided.round(2100), 2560);
    }

    #[test]
    fn without_recorded_requests_the_completion_frees() {
        let at = 1 << 30;
        let mut h = history(&[(Action::Alloc, at, 100), (Action::FreeCompleted, at, 100)]);
        fill_sizes(&mut h, &[], &AllocatorSettings::default());
        assert!(h.entries[1].frees && !h.entries[0].frees);
        // The request lies before the history's beginning, so that `allocated` fell before it too.
        let mut h = history(&[
            (Action::FreeCompleted, at, 100),
            (Action::Alloc, at, 100),
            (Action::FreeRequested, at, 100),
            (Action::FreeCompleted, at, 100),
        ]);
        fill_sizes(&mut h, &[], &AllocatorSettings::default());
        assert_eq!(h.entries.iter().map(|e| e.frees).collect::<Vec<_>>(), [false, false, true, false]);
        assert_eq!(h.contradictions, 0);
    }

    #[test]
    fn a_history_that_does_not_lead_to_the_blocks_is_counted() {
        let mut h = history(&[(Action::Alloc, 4096, 100)]);
        fill_sizes(&mut h, &[], &AllocatorSettings::default());
        assert_eq!(h.contradictions, 1);
    }

    proptest! {
        #[test]
        fn any_history_is_walked(entries in proptest::collection::vec(
            (0usize..9, 0u64..8, prop_oneof![0u64..3000, Just(u64::MAX >> 1), Just(3 << 20)]), 0..60)) {
            use Action::*;
            let actions = [Alloc, FreeRequested, FreeCompleted, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap,
                OutOfMemory, Snapshot];
            let entries: Vec<_> = entries.iter().map(|(a, at, n)| (actions[*a], at << 20, *n)).collect();
            let mut h = history(&entries);
            let s = segment(0, 4 << 20, &[(0, 3 << 20, BlockState::AwaitingFree), (3 << 20, MIB, BlockState::Inactive)]);
            fill_sizes(&mut h, &[&s], &AllocatorSettings::default());
            prop_assert!(h.entries.iter().all(|e| e.size >= Bytes::ZERO));
        }
    }
}
