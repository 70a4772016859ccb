//! What each call of the operator tree costs by itself, without the calls inside it.
//!
//! Sums over any part of the tree are then exact. Definitions are those of [key averages](super::averages) for time and
//! net memory, and of [`op_allocations`](super::op_allocations) for what is allocated and live at the peak.

use super::allocations::Allocations;
use super::device_time::DeviceTime;
use super::net_memory::{NetMemory, outside_ops};
use super::op_allocations::{Allocated, OpAllocations};
use super::owners::Owners;
use super::tree::{OpTree, Role};
use crate::trace::{Device, Trace};
use crate::units::{Bytes, Nanos};
use std::ops::AddAssign;

/// What a call, or a number of them, costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Time on the CPU; 0 for collectives, which may end on another thread than they begin on.
    pub cpu_time: Nanos,
    /// Time of the kernels, copies and sets that were launched.
    pub device_time: Nanos,
    /// Net bytes of host memory, on whatever thread.
    pub cpu_memory: Bytes,
    /// Net bytes of device memory, on whatever thread.
    pub device_memory: Bytes,
    /// Gross bytes allocated.
    pub allocated: Bytes,
    /// The number of allocations.
    pub allocations: u64,
    /// What of it is live at its device's peak.
    pub peak_live: Bytes,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.cpu_time += other.cpu_time;
        self.device_time += other.device_time;
        self.cpu_memory += other.cpu_memory;
        self.device_memory += other.device_memory;
        self.allocated += other.allocated;
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.peak_live += other.peak_live;
    }
}

impl Costs {
    fn add_allocated(&mut self, own: Allocated) {
        self.allocated += own.bytes;
        self.allocations = self.allocations.saturating_add(own.count);
        self.peak_live += own.peak_live;
    }
}

/// The costs of all calls of a trace.
#[derive(Debug)]
pub(crate) struct OwnCosts {
    /// By row of [`Trace::ops`]; nothing for rows that are no calls.
    pub(crate) of_op: Vec<Costs>,
    /// Memory outside any operator.
    pub(crate) outside: Costs,
}

impl OwnCosts {
    /// With the memory and the device time of this device, or of all accelerators.
    pub(crate) fn of(
        trace: &Trace,
        tree: &OpTree,
        owners: &Owners<'_>,
        memory: &Allocations,
        device: Option<Device>,
    ) -> Self {
        let mut costs = Self { of_op: vec![Costs::default(); tree.len()], outside: Costs::default() };
        costs.add_spans(trace, tree, device);
        costs.add_memory_outside(trace, tree, device);
        costs.add_allocations(tree, owners, memory, device);
        costs
    }

    fn add_spans(&mut self, trace: &Trace, tree: &OpTree, device: Option<Device>) {
        let ops = trace.ops();
        let device_time = DeviceTime::of(trace, tree, device);
        let mut memory = NetMemory::new(trace, device);
        for i in (0..ops.len()).filter(|i| tree.is_call(*i) && tree.role(*i) != Role::Async) {
            let duration = ops.duration()[i];
            let net = memory.within(ops.start()[i], ops.start()[i] + duration);
            let own = &mut self.of_op[i];
            own.cpu_time += duration;
            own.device_time = device_time.own[i];
            own.cpu_memory += net.cpu;
            own.device_memory += net.device;
            if let Some(parent) = tree.parent(i) {
                let outer = &mut self.of_op[parent];
                outer.cpu_time -= duration;
                outer.cpu_memory -= net.cpu;
                outer.device_memory -= net.device;
            }
        }
        for own in &mut self.of_op {
            own.cpu_time = own.cpu_time.max(Nanos::ZERO);
        }
    }

    fn add_memory_outside(&mut self, trace: &Trace, tree: &OpTree, device: Option<Device>) {
        for event in outside_ops(trace, tree, device).map(|k| trace.memory().get(k)) {
            let host = trace.device(event.device).kind.is_cpu();
            *if host { &mut self.outside.cpu_memory } else { &mut self.outside.device_memory } += event.bytes;
        }
    }

    fn add_allocations(&mut self, tree: &OpTree, owners: &Owners<'_>, memory: &Allocations, device: Option<Device>) {
        let found = OpAllocations::compute(memory, owners, device);
        self.outside.add_allocated(found.outside);
        for (i, own) in found.of_op.iter().enumerate().filter(|(_, own)| own.count > 0) {
            match call_of(tree, owners, i) {
                Some(call) => self.of_op[call].add_allocated(*own),
                None => self.outside.add_allocated(*own),
            }
        }
    }
}

/// The call that row `i` counts for: itself, the one that it is folded into, or the next around what is left out.
pub(crate) fn call_of(tree: &OpTree, owners: &Owners<'_>, i: usize) -> Option<usize> {
    owners.chain(i).map(|at| tree.folded_into(at).unwrap_or(at)).find(|at| tree.is_call(*at))
}
