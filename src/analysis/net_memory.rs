//! Net bytes of memory events in a span of time, on whatever thread: PyTorch's measure of an operator's memory.
//!
//! Says nothing of who owns a block or what is live.

use super::tree::{OpTree, Role};
use crate::trace::{Device, Trace};
use crate::units::{Bytes, Nanos};

/// Net bytes of host and of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Net {
    pub(crate) cpu: Bytes,
    pub(crate) device: Bytes,
}

/// Running sums over the memory events of a trace.
#[derive(Debug)]
pub(crate) struct NetMemory<'t> {
    time: &'t [Nanos],
    /// Sums of host and device bytes of the first k events. They wrap, so that differences are exact wherever the true
    /// difference fits.
    before: Vec<[i64; 2]>,
    /// The first event that is not before the last span's start.
    at: usize,
}

impl<'t> NetMemory<'t> {
    /// Of the memory events of this device, or of all.
    pub(crate) fn new(trace: &'t Trace, only: Option<Device>) -> Self {
        let memory = trace.memory();
        let devices = trace.devices();
        let mut sums = [0i64; 2];
        let mut before = Vec::with_capacity(memory.len() + 1);
        before.push(sums);
        for (bytes, id) in memory.bytes().iter().zip(memory.device()) {
            let device = devices[id.index()];
            if is_counted(device, only) {
                let sum = &mut sums[usize::from(!device.kind.is_cpu())];
                *sum = sum.wrapping_add(bytes.0);
            }
            before.push(sums);
        }
        Self { time: memory.time(), before, at: 0 }
    }

    /// The net bytes of events from `start` to `end`, both included. Calls come in the order of starts.
    pub(crate) fn within(&mut self, start: Nanos, end: Nanos) -> Net {
        while self.time.get(self.at).is_some_and(|t| *t < start) {
            self.at += 1;
        }
        let after = self.at + first_after(&self.time[self.at..], end);
        let (from, to) = (self.before[self.at], self.before[after]);
        Net { cpu: Bytes(to[0].wrapping_sub(from[0])), device: Bytes(to[1].wrapping_sub(from[1])) }
    }
}

/// How many of the sorted times are at or before `end`. Gallops: most spans are short.
pub(crate) fn first_after(time: &[Nanos], end: Nanos) -> usize {
    let mut step = 1;
    while time.get(step - 1).is_some_and(|t| *t <= end) {
        step *= 2;
    }
    let (low, high) = (step / 2, (step - 1).min(time.len()));
    low + time[low..high].partition_point(|t| *t <= end)
}

/// Whether memory of `device` counts when only `only` is asked for. The host is one device, whatever its index.
pub(crate) fn is_counted(device: Device, only: Option<Device>) -> bool {
    only.is_none_or(|only| device == only || device.kind.is_cpu() && only.kind.is_cpu())
}

/// The memory events of a device (or all) during which no operator ran on any thread, in the order of time.
pub(crate) fn outside_ops<'t>(
    trace: &'t Trace,
    tree: &'t OpTree,
    only: Option<Device>,
) -> impl Iterator<Item = usize> + 't {
    let (ops, memory) = (trace.ops(), trace.memory());
    let mut next_op = 0;
    let mut busy_until = Nanos(i64::MIN);
    (0..memory.len()).filter(move |k| {
        let time = memory.time()[*k];
        while ops.start().get(next_op).is_some_and(|start| *start <= time) {
            if tree.role(next_op) != Role::LeftOut {
                busy_until = busy_until.max(ops.end(next_op));
            }
            next_op += 1;
        }
        busy_until < time && is_counted(trace.device(memory.device()[*k]), only)
    })
}
