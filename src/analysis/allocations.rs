//! Blocks of memory and the curve of a device: allocations paired with their frees, totals as the allocator keeps them.
//!
//! Everything is per device. An allocation opens a block at its address and the next free there closes it; the free of
//! an address that is not open belongs to a block from before the trace. The curve is the allocator's own where the
//! trace has it, else the running sum from the smallest baseline that keeps it at or above 0. Who allocated a block is
//! for [`owners`](super::owners) to say.

use crate::trace::{Device, DeviceType, Diagnostics, Severity, ThreadId, Trace};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// No event.
const NONE: u32 = u32::MAX;

/// The memory of every device that the trace names: accelerators first, by kind and index, then the host.
#[derive(Clone, Debug, Default)]
pub struct Allocations {
    devices: Vec<DeviceMemory>,
    findings: Diagnostics,
}

/// The curve and the blocks of one device.
///
/// Events are counted within the device, from 0; a *position* is the number of events that have happened, so that 0 is
/// before the first and [`len`](Self::len) after the last.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    device: Device,
    events: Vec<u32>,
    time: Vec<Nanos>,
    change: Vec<Bytes>,
    allocated: Vec<Bytes>,
    reserved: Vec<Bytes>,
    blocks: Vec<Block>,
    early: Vec<EarlyBlock>,
    estimated: bool,
    paired: bool,
}

/// Memory from its allocation to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// How large it is.
    pub bytes: Bytes,
    allocated: u32,
    freed: u32,
}

/// Memory from before the trace, known by its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyBlock {
    /// Where it starts.
    pub address: u64,
    /// How large it is.
    pub bytes: Bytes,
    freed: u32,
}

impl Block {
    /// The device's event that allocated it.
    pub fn allocated(&self) -> usize {
        self.allocated as usize
    }

    /// The device's event that ended it: its free, or another allocation at its address. `None` if it outlived the trace.
    pub fn freed(&self) -> Option<usize> {
        (self.freed != NONE).then_some(self.freed as usize)
    }

    /// Whether it is live once `position` events have happened.
    pub fn is_live(&self, position: usize) -> bool {
        (self.allocated as usize) < position && position <= self.freed as usize
    }
}

impl EarlyBlock {
    /// The device's event that freed it.
    pub fn freed(&self) -> usize {
        self.freed as usize
    }
}

impl Allocations {
    /// The memory of all devices of a trace.
    pub fn build(trace: &Trace) -> Self {
        let (mut devices, of_id) = merged_devices(trace);
        for (i, device) in trace.memory().device().iter().enumerate() {
            devices[of_id[device.index()]].events.push(i as u32);
        }
        devices.retain(|d| !d.events.is_empty());
        let mut findings = Diagnostics::default();
        for device in &mut devices {
            device.read_curve(trace, &mut findings);
            device.pair(trace, &mut findings);
        }
        Self { devices, findings }
    }

    /// The devices that have memory events.
    pub fn devices(&self) -> &[DeviceMemory] {
        &self.devices
    }

    /// The memory of one device.
    pub fn device(&self, device: Device) -> Option<&DeviceMemory> {
        let place = self.devices.binary_search_by_key(&order(device), |d| order(d.device)).ok()?;
        Some(&self.devices[place])
    }

    /// Leaves out all but the `most` devices whose peaks are greatest, and counts the others among what is odd: no machine
    /// has so many, and a report would be as long as a file that makes them up.
    pub fn keep_largest(&mut self, most: usize) {
        let others = self.devices.len().saturating_sub(most);
        if others == 0 {
            return;
        }
        let peak = |m: &DeviceMemory| m.allocated.iter().copied().max();
        let mut peaks: Vec<_> = self.devices.iter().enumerate().map(|(i, m)| (peak(m), i)).collect();
        // Of equals the first.
        peaks.sort_by_key(|(peak, i)| (std::cmp::Reverse(*peak), *i));
        peaks.truncate(most);
        let kept: hashbrown::HashSet<Device> = peaks.iter().map(|(_, i)| self.devices[*i].device).collect();
        self.devices.retain(|m| kept.contains(&m.device));
        self.findings.note_many("many-devices", Severity::Warning, others as u64, None, || {
            format!("devices besides the {most} whose peaks are greatest; left out, --device shows one of them")
        });
    }

    /// What is odd: totals that do not add up, addresses allocated twice, frees of another size.
    pub fn findings(&self) -> &Diagnostics {
        &self.findings
    }
}

/// Where a device stands among others. The host is one device, whatever index a file gives it.
fn order(device: Device) -> (bool, DeviceType, i32) {
    (device.kind.is_cpu(), device.kind, if device.kind.is_cpu() { 0 } else { device.index })
}

/// An empty memory for each distinct device in the order of report, and where each id of the trace ends up.
fn merged_devices(trace: &Trace) -> (Vec<DeviceMemory>, Vec<usize>) {
    let mut sorted: Vec<Device> = trace.devices().to_vec();
    sorted.sort_by_key(|d| (order(*d), d.index));
    sorted.dedup_by_key(|d| order(*d));
    let place = |id: &Device| sorted.partition_point(|d| order(*d) < order(*id));
    let of_id = trace.devices().iter().map(place).collect();
    (sorted.into_iter().map(DeviceMemory::empty).collect(), of_id)
}

impl DeviceMemory {
    fn empty(device: Device) -> Self {
        Self {
            device,
            events: Vec::new(),
            time: Vec::new(),
            change: Vec::new(),
            allocated: Vec::new(),
            reserved: Vec::new(),
            blocks: Vec::new(),
            early: Vec::new(),
            estimated: false,
            paired: false,
        }
    }

    fn read_curve(&mut self, trace: &Trace, findings: &mut Diagnostics) {
        let memory = trace.memory();
        let column = |from: &[Bytes], events: &[u32]| events.iter().map(|e| from[*e as usize]).collect::<Vec<_>>();
        self.time = self.events.iter().map(|e| memory.time()[*e as usize]).collect();
        self.change = column(memory.bytes(), &self.events);
        self.allocated = column(memory.total_allocated(), &self.events);
        self.reserved = column(memory.total_reserved(), &self.events);
        self.estimated = self.allocated.iter().any(|t| t.0 < 0);
        if self.estimated {
            self.allocated = lowest_curve(&self.change);
            return;
        }
        for i in 1..self.allocated.len() {
            if self.allocated[i - 1] + self.change[i] != self.allocated[i] {
                findings.note("total-breaks", Severity::Warning, None, || {
                    format!(
                        "allocator totals of {} that are not the total before plus the bytes of the event: events are \
                         missing there or out of order",
                        self.device
                    )
                });
            }
        }
    }

    fn pair(&mut self, trace: &Trace, findings: &mut Diagnostics) {
        let address = |e: u32| trace.memory().address()[e as usize];
        self.paired = self.events.iter().zip(&self.change).all(|(e, bytes)| bytes.is_zero() || address(*e) != 0);
        if !self.paired {
            return;
        }
        let device = self.device;
        let mut open: HashMap<u64, u32> = HashMap::new();
        for (i, (event, bytes)) in self.events.iter().zip(&self.change).enumerate() {
            let (i, address) = (i as u32, address(*event));
            if bytes.0 > 0 {
                let new = self.blocks.len() as u32;
                self.blocks.push(Block { address, bytes: *bytes, allocated: i, freed: NONE });
                if let Some(old) = open.insert(address, new) {
                    self.blocks[old as usize].freed = i;
                    findings.note("allocated-twice", Severity::Warning, None, || {
                        format!("blocks of {device} whose address was allocated again before it was freed; each is taken to end there")
                    });
                }
            } else if bytes.0 < 0 {
                match open.entry(address) {
                    Entry::Occupied(block) => {
                        let block = &mut self.blocks[block.remove() as usize];
                        block.freed = i;
                        if block.bytes != -*bytes {
                            findings.note("freed-other-size", Severity::Warning, None, || {
                                format!(
                                    "blocks of {device} that were freed with another size than they were allocated with"
                                )
                            });
                        }
                    }
                    Entry::Vacant(_) => self.early.push(EarlyBlock { address, bytes: -*bytes, freed: i }),
                }
            }
        }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The row of [`Trace::memory`] of each event.
    pub fn events(&self) -> &[u32] {
        &self.events
    }

    /// The time of each event.
    pub fn time(&self) -> &[Nanos] {
        &self.time
    }

    /// What each event allocated (above 0) or freed (below).
    pub fn change(&self) -> &[Bytes] {
        &self.change
    }

    /// Allocated bytes after each event.
    pub fn allocated(&self) -> &[Bytes] {
        &self.allocated
    }

    /// Reserved bytes after event `i`, where the trace has them.
    pub fn reserved(&self, i: usize) -> Option<Bytes> {
        self.reserved.get(i).copied().filter(|r| r.0 >= 0)
    }

    /// Whether the curve is a running sum from the smallest possible baseline, because the trace has no totals.
    pub fn is_estimated(&self) -> bool {
        self.estimated
    }

    /// Whether allocations could be paired with frees; without addresses they cannot, and there are no blocks.
    pub fn is_paired(&self) -> bool {
        self.paired
    }

    /// All blocks that were allocated in the trace, in the order of their allocation.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The blocks from before the trace that were freed in it, in the order of their frees.
    pub fn early_blocks(&self) -> &[EarlyBlock] {
        &self.early
    }

    /// Allocated bytes once `position` events have happened.
    pub fn allocated_at(&self, position: usize) -> Bytes {
        match position.min(self.len()).checked_sub(1) {
            Some(last) => self.allocated[last],
            None if self.is_empty() => Bytes::ZERO,
            None => self.allocated[0] - self.change[0],
        }
    }

    /// Reserved bytes once `position` events have happened, where the trace has them; those after the first for 0.
    pub fn reserved_at(&self, position: usize) -> Option<Bytes> {
        self.reserved(position.min(self.len()).saturating_sub(1))
    }

    /// How many events have happened by `time`, those at `time` included.
    pub fn position_at(&self, time: Nanos) -> usize {
        self.time.partition_point(|t| *t <= time)
    }

    /// The first event with the greatest allocated total. `None` where there is no event.
    pub fn peak(&self) -> Option<usize> {
        self.peak_in(0, self.len())
    }

    /// The first of the events from `from` up to before `to` with the greatest allocated total.
    pub fn peak_in(&self, from: usize, to: usize) -> Option<usize> {
        let part = self.allocated.get(from..to)?;
        let top = part.iter().max()?;
        part.iter().position(|t| t == top).map(|i| from + i)
    }

    /// The greatest reserved total, where the trace has any.
    pub fn peak_reserved(&self) -> Option<Bytes> {
        self.reserved.iter().copied().filter(|r| r.0 >= 0).max()
    }

    /// The blocks, by index, that are live once `position` events have happened.
    pub fn live_blocks(&self, position: usize) -> impl Iterator<Item = usize> + '_ {
        let born = self.blocks.partition_point(|b| (b.allocated as usize) < position);
        (0..born).filter(move |i| self.blocks[*i].is_live(position))
    }

    /// What is live once `position` events have happened and was so before the first event, exactly where the totals
    /// are the allocator's own. `None` where blocks are not known.
    pub fn before_trace_at(&self, position: usize) -> Option<Bytes> {
        let live = || self.live_blocks(position).map(|i| self.blocks[i].bytes).sum();
        self.paired.then(|| self.allocated_at(position) - live())
    }

    /// Gross bytes allocated and number of allocations by the events from `from` up to before `to`.
    pub fn allocated_in(&self, from: usize, to: usize) -> (Bytes, u64) {
        gross(self.change.get(from..to), |b| b.0 > 0)
    }

    /// Gross bytes freed, as a positive number, and number of frees by the events from `from` up to before `to`.
    pub fn freed_in(&self, from: usize, to: usize) -> (Bytes, u64) {
        let (bytes, count) = gross(self.change.get(from..to), |b| b.0 < 0);
        (-bytes, count)
    }

    /// The thread that event `i` happened on.
    pub fn thread(&self, trace: &Trace, i: usize) -> ThreadId {
        trace.memory().thread()[self.events[i] as usize]
    }
}

fn gross(part: Option<&[Bytes]>, counts: impl Fn(&Bytes) -> bool) -> (Bytes, u64) {
    let part = part.unwrap_or_default().iter().filter(|b| counts(b));
    part.fold((Bytes::ZERO, 0), |(sum, n), b| (sum + *b, n + 1))
}

/// The running sum of the changes from the smallest baseline that keeps it at or above 0.
fn lowest_curve(change: &[Bytes]) -> Vec<Bytes> {
    let mut sum = Bytes::ZERO;
    let mut curve: Vec<Bytes> = change
        .iter()
        .map(|b| {
            sum += *b;
            sum
        })
        .collect();
    let lowest = curve.iter().min().copied().unwrap_or_default().min(Bytes::ZERO);
    for total in &mut curve {
        *total -= lowest;
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{MemoryEvent, StackId, TraceBuilder};
    use proptest::prelude::*;

    /// Events (address, bytes, total) a nanosecond apart on `device`.
    fn push(b: &mut TraceBuilder, device: Device, events: &[(u64, i64, i64)]) {
        let (device, thread) = (b.device(device), b.thread("1", "1"));
        for (i, (address, bytes, total)) in events.iter().enumerate() {
            b.push_memory(MemoryEvent {
                time: Nanos(i as i64),
                bytes: Bytes(*bytes),
                device,
                thread,
                address: *address,
                total_allocated: Bytes(*total),
                total_reserved: Bytes(if *total < 0 { -1 } else { 1000 }),
                stack: StackId::NONE,
            });
        }
    }

    fn memory(events: &[(u64, i64, i64)]) -> (DeviceMemory, Diagnostics) {
        let mut b = TraceBuilder::new();
        push(&mut b, Device::cuda(0), events);
        let all = Allocations::build(&b.finish());
        (all.devices()[0].clone(), all.findings().clone())
    }

    #[test]
    fn of_many_devices_those_of_the_greatest_peaks_are_kept_in_order_and_the_others_counted() {
        let mut b = TraceBuilder::new();
        for (index, total) in [(0, 5), (1, 9), (2, 7), (3, 9), (4, 1)] {
            push(&mut b, Device::cuda(index), &[(1, total, total)]);
        }
        push(&mut b, Device::CPU, &[(1, 8, 8)]);
        let trace = b.finish();
        let mut all = Allocations::build(&trace);
        all.keep_largest(3);
        let names = |all: &Allocations| all.devices().iter().map(|d| d.device().to_string()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["cuda:1", "cuda:3", "cpu"]);
        assert_eq!(all.findings().get("many-devices").map(|d| d.count), Some(3));
        assert!(all.device(Device::cuda(3)).is_some() && all.device(Device::cuda(0)).is_none());
        assert!(all.device(Device { index: 7, ..Device::CPU }).is_some());
        let mut whole = Allocations::build(&trace);
        whole.keep_largest(6);
        assert_eq!((names(&whole).len(), whole.findings().is_empty()), (6, true));
    }

    #[test]
    fn a_block_lives_from_its_allocation_to_the_next_free_of_its_address() {
        let (m, findings) = memory(&[(1, 10, 110), (2, 20, 130), (1, -10, 120), (1, 5, 125)]);
        let got: Vec<_> = m.blocks().iter().map(|b| (b.address, b.bytes.0, b.allocated(), b.freed())).collect();
        assert_eq!(got, [(1, 10, 0, Some(2)), (2, 20, 1, None), (1, 5, 3, None)]);
        assert_eq!(m.peak(), Some(1));
        assert_eq!(m.live_blocks(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(m.live_blocks(3).collect::<Vec<_>>(), [1]);
        assert_eq!((m.allocated_at(0), m.allocated_at(2), m.allocated_at(9)), (Bytes(100), Bytes(130), Bytes(125)));
        assert_eq!((m.before_trace_at(0), m.before_trace_at(4)), (Some(Bytes(100)), Some(Bytes(100))));
        assert_eq!((m.allocated_in(0, 4), m.freed_in(0, 4)), ((Bytes(35), 3), (Bytes(10), 1)));
        assert!(findings.is_empty());
    }

    #[test]
    fn a_free_of_an_address_that_is_not_open_ends_a_block_from_before_the_trace() {
        let (m, findings) = memory(&[(1, 10, 60), (7, -30, 30)]);
        assert_eq!(m.early_blocks(), [EarlyBlock { address: 7, bytes: Bytes(30), freed: 1 }]);
        assert_eq!((m.before_trace_at(1), m.before_trace_at(2)), (Some(Bytes(50)), Some(Bytes(20))));
        assert!(findings.is_empty());
    }

    #[test]
    fn oddities_are_findings_and_the_rows_still_sum_to_the_total() {
        let (m, findings) = memory(&[(1, 10, 10), (1, 4, 14), (1, -5, 9), (2, 1, 99)]);
        assert_eq!(m.blocks()[0].freed(), Some(1));
        let count = |code| findings.get(code).map(|d| d.count);
        assert_eq!(
            (count("allocated-twice"), count("freed-other-size"), count("total-breaks")),
            (Some(1), Some(1), Some(1))
        );
        for at in 0..=m.len() {
            let live: Bytes = m.live_blocks(at).map(|i| m.blocks()[i].bytes).sum();
            assert_eq!(m.before_trace_at(at).map(|b| b + live), Some(m.allocated_at(at)));
        }
    }

    #[test]
    fn without_totals_and_addresses_the_curve_is_estimated_from_the_smallest_baseline_and_nothing_is_paired() {
        let (m, _) = memory(&[(0, 10, -1), (0, -40, -1), (0, 5, -1)]);
        assert!(m.is_estimated() && !m.is_paired());
        assert_eq!(m.allocated(), [Bytes(40), Bytes(0), Bytes(5)]);
        assert_eq!((m.allocated_at(0), m.before_trace_at(1), m.peak_reserved()), (Bytes(30), None, None));
        assert!(m.blocks().is_empty() && m.early_blocks().is_empty());
    }

    #[test]
    fn devices_stand_accelerators_first_and_the_host_is_one() {
        let mut b = TraceBuilder::new();
        let cpu = |index| Device { kind: DeviceType::CPU, index };
        for device in [cpu(-1), Device::cuda(1), cpu(0), Device::cuda(0)] {
            push(&mut b, device, &[(u64::from(device.index.unsigned_abs()) + 9, 8, 8)]);
        }
        let all = Allocations::build(&b.finish());
        let got: Vec<_> = all.devices().iter().map(|d| (d.device().to_string(), d.len())).collect();
        assert_eq!(got, [("cuda:0".into(), 1), ("cuda:1".into(), 1), ("cpu".into(), 2)]);
        assert_eq!(all.device(cpu(3)).map(DeviceMemory::len), Some(2));
    }

    proptest! {
        #[test]
        fn blocks_at_one_address_never_overlap_and_rows_sum_to_the_total_at_any_position(
            events in proptest::collection::vec((1u64..6, -9i64..10), 1..60), base in 0i64..500
        ) {
            let mut total = base;
            let events: Vec<_> = events.into_iter().map(|(address, bytes)| {
                total += bytes;
                (address, bytes, total.max(0))
            }).collect();
            let (m, _) = memory(&events);
            for at in 0..=m.len() {
                let live: Vec<_> = m.live_blocks(at).map(|i| m.blocks()[i]).collect();
                let mut addresses: Vec<_> = live.iter().map(|b| b.address).collect();
                addresses.sort_unstable();
                addresses.dedup();
                prop_assert_eq!(addresses.len(), live.len());
                let sum: Bytes = live.iter().map(|b| b.bytes).sum();
                prop_assert_eq!(m.before_trace_at(at), Some(m.allocated_at(at) - sum));
            }
        }

        #[test]
        fn any_numbers_are_taken(events in proptest::collection::vec((any::<u64>(), any::<i64>(), any::<i64>()), 1..20)) {
            let (m, _) = memory(&events);
            let _ = (m.peak(), m.before_trace_at(m.len()), m.allocated_in(0, m.len()));
        }
    }
}
