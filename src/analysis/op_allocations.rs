//! What operators allocate: gross bytes, numbers of allocations, and what of it is live at the peak, by operator.
//!
//! The columns that key averages have beyond PyTorch's. An allocation counts for its owner alone, the operator that is no
//! allocation helper ([`AttributeTo::Op`]), so no byte stands in two rows.

use super::allocations::{Allocations, DeviceMemory};
use super::owners::{AttributeTo, Owners};
use crate::trace::{Device, Trace};
use crate::units::Bytes;

/// What an operator allocates itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Gross bytes.
    pub bytes: Bytes,
    /// The number of allocations.
    pub count: u64,
    /// What of it is live at its device's peak.
    pub peak_live: Bytes,
}

/// What each row of `Trace::ops` allocates itself, whether it is folded into another or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpAllocations {
    /// By row.
    pub of_op: Vec<Allocated>,
    /// Outside any operator.
    pub outside: Allocated,
    /// Whether what is live at the peak is known: not in traces without addresses.
    pub paired: bool,
}

impl OpAllocations {
    /// What is allocated on `device`, or without one on all accelerators, or on the host in a trace without any.
    pub fn compute(memory: &Allocations, owners: &Owners<'_>, device: Option<Device>) -> Self {
        let rows = owners.trace().ops().len();
        let mut found = Self { of_op: vec![Allocated::default(); rows], outside: Allocated::default(), paired: true };
        for m in counted_devices(memory, device) {
            found.add(m, owners);
        }
        found
    }

    /// As [`compute`](Self::compute) for whoever needs the owners for nothing else; `None` for a trace without memory
    /// events.
    pub fn of(trace: &Trace, memory: &Allocations, device: Option<Device>) -> Option<Self> {
        (!trace.memory().is_empty()).then(|| Self::compute(memory, &Owners::build(trace), device))
    }

    fn add(&mut self, memory: &DeviceMemory, owners: &Owners<'_>) {
        self.paired &= memory.is_paired();
        for (event, change) in memory.change().iter().enumerate().filter(|(_, change)| change.0 > 0) {
            let of = self.owner(memory, event, owners);
            of.bytes += *change;
            of.count += 1;
        }
        let peak = memory.peak().map_or(0, |event| event + 1);
        for block in memory.live_blocks(peak).map(|i| memory.blocks()[i]) {
            self.owner(memory, block.allocated(), owners).peak_live += block.bytes;
        }
    }

    fn owner(&mut self, memory: &DeviceMemory, event: usize, owners: &Owners<'_>) -> &mut Allocated {
        match owners.owner(memory.events()[event] as usize, AttributeTo::Op) {
            Some(op) => &mut self.of_op[op],
            None => &mut self.outside,
        }
    }
}

/// The memory of `device`, or without one that of all accelerators, or of the host in a trace without any.
pub(crate) fn counted_devices(memory: &Allocations, device: Option<Device>) -> impl Iterator<Item = &DeviceMemory> {
    let any_accelerator = memory.devices().iter().any(|m| !m.device().kind.is_cpu());
    let only = device.and_then(|d| memory.device(d)).map(DeviceMemory::device);
    memory.devices().iter().filter(move |m| match device {
        Some(_) => only == Some(m.device()),
        None => m.device().kind.is_cpu() != any_accelerator,
    })
}

#[cfg(test)]
mod tests {
    use super::super::averages::{AveragesOptions, KeyAverages};
    use super::super::testing::{Build, span};
    use super::*;

    #[test]
    fn allocations_count_for_their_owner_alone() {
        // [aten::softmax [aten::softmax [aten::empty]]]
        let mut b = Build::default();
        b.span(span("aten::softmax", 0, 50));
        b.span(span("aten::softmax", 1, 49));
        b.span(span("aten::empty", 2, 48));
        b.alloc(10, 1, 8);
        b.alloc(20, 2, 16);
        b.alloc(30, 1, -8);
        b.alloc(60, 3, 4);
        let trace = b.finish();
        let memory = Allocations::build(&trace);
        let got = OpAllocations::of(&trace, &memory, None).unwrap();
        let inner = Allocated { bytes: Bytes(24), count: 2, peak_live: Bytes(24) };
        assert_eq!(got.of_op, [Allocated::default(), inner, Allocated::default()]);
        assert_eq!(got.outside, Allocated { bytes: Bytes(4), count: 1, peak_live: Bytes::ZERO });
        // The second call of the name is no row of its own.
        let averages = KeyAverages::compute(&trace, &AveragesOptions::default());
        assert_eq!(averages.rows[0].key, "aten::softmax");
        assert_eq!(averages.rows[0].allocated_bytes, Some(Bytes(24)));
        assert_eq!(averages.rows[0].peak_live_bytes, Some(Bytes(24)));
        let cpu = OpAllocations::of(&trace, &memory, Some(Device::CPU)).unwrap();
        assert_eq!(cpu.of_op[1], Allocated::default());
    }
}
