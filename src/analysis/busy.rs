//! How busy the devices were: the union of their kernels, copies and sets over the time of the trace.
//!
//! Intervals are joined before they are added up, so what runs side by side on several streams, or runs past the next
//! event of its stream, counts once.

use crate::trace::{DeviceEventKind, Trace};
use crate::units::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;

/// How busy a device was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceBusy {
    /// Index of the device.
    pub device: i32,
    /// From the first event of the trace, of any kind, to its last end.
    pub span_ns: Nanos,
    /// Time in which anything ran.
    pub busy_ns: Nanos,
    /// Time in which a kernel ran.
    pub kernel_ns: Nanos,
    /// Time in which a copy or a set ran.
    pub copy_ns: Nanos,
    /// Mean of the kernels' estimated achieved occupancy in percent, weighted by their durations; `None` where no kernel
    /// tells it.
    pub occupancy_percent: Option<f64>,
    /// Time in which anything ran on each stream.
    pub streams: Vec<StreamBusy>,
}

/// How busy a stream was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StreamBusy {
    /// The stream's number.
    pub stream: i64,
    /// Time in which anything ran on it.
    pub busy_ns: Nanos,
}

impl DeviceBusy {
    /// A time of this device as a share of the trace's.
    pub fn share(&self, time: Nanos) -> f64 {
        if self.span_ns.0 > 0 { time.0 as f64 / self.span_ns.0 as f64 } else { 0.0 }
    }
}

/// The union of intervals that come by their start.
#[derive(Clone, Copy, Default)]
struct Union {
    covered: i64,
    end: Option<i64>,
}

impl Union {
    fn add(&mut self, start: Nanos, end: Nanos) {
        let from = self.end.map_or(start.0, |last| last.max(start.0));
        self.covered = self.covered.saturating_add(end.0.saturating_sub(from).max(0));
        self.end = Some(self.end.map_or(end.0, |last| last.max(end.0)));
    }
}

#[derive(Default)]
struct Counting {
    busy: Union,
    kernels: Union,
    copies: Union,
    occupancy: f64,
    weight: f64,
    streams: BTreeMap<i64, Union>,
}

/// How busy each device was, by index. Empty where the trace holds no device events.
pub fn device_busy(trace: &Trace) -> Vec<DeviceBusy> {
    let events = trace.device_events();
    let mut devices: BTreeMap<i32, Counting> = BTreeMap::new();
    for event in events.iter().filter(|e| e.kind != DeviceEventKind::Annotation) {
        let device = devices.entry(event.device).or_default();
        let (start, end) = (event.start, event.end());
        device.busy.add(start, end);
        device.streams.entry(event.stream).or_default().add(start, end);
        if event.kind == DeviceEventKind::Kernel {
            device.kernels.add(start, end);
            if event.occupancy.is_finite() {
                let weight = event.duration.0 as f64;
                device.occupancy += f64::from(event.occupancy) * weight;
                device.weight += weight;
            }
        } else {
            device.copies.add(start, end);
        }
    }
    let starts = [events.start().first(), trace.ops().start().first()];
    let first = starts.into_iter().flatten().min().copied().unwrap_or_default();
    let ends = events.iter().map(|e| e.end()).chain((0..trace.ops().len()).map(|i| trace.ops().end(i)));
    let span_ns = ends.max().unwrap_or(first) - first;
    let finish = |(device, counting): (i32, Counting)| DeviceBusy {
        device,
        span_ns,
        busy_ns: Nanos(counting.busy.covered),
        kernel_ns: Nanos(counting.kernels.covered),
        copy_ns: Nanos(counting.copies.covered),
        occupancy_percent: (counting.weight > 0.0).then(|| counting.occupancy / counting.weight),
        streams: counting
            .streams
            .into_iter()
            .map(|(stream, union)| StreamBusy { stream, busy_ns: Nanos(union.covered) })
            .collect(),
    };
    devices.into_iter().map(finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DeviceEvent, Op, OpKind, TraceBuilder};

    #[test]
    fn what_runs_side_by_side_counts_once() {
        //  op       [0          .          .        100]
        //  stream 7     [10  kernel  40]
        //  stream 8            [30 copy   60]
        //  stream 7                          [80 90]
        let mut b = TraceBuilder::new();
        let (name, thread) = (b.intern("x"), b.thread("1", "1"));
        b.push_op(Op::new(name, OpKind::Operator, thread, Nanos(0), Nanos(100)));
        for (stream, kind, start, end, occupancy) in [
            (7, DeviceEventKind::Kernel, 10, 40, 50.0),
            (8, DeviceEventKind::Memcpy, 30, 60, f32::NAN),
            (7, DeviceEventKind::Kernel, 80, 90, 90.0),
            (7, DeviceEventKind::Annotation, 0, 100, f32::NAN),
        ] {
            let event = DeviceEvent::new(name, kind, thread, Nanos(start), Nanos(end - start));
            b.push_device_event(DeviceEvent { device: 0, stream, occupancy, ..event });
        }
        let busy = device_busy(&b.finish());
        let only = &busy[0];
        assert_eq!((only.span_ns, only.busy_ns), (Nanos(100), Nanos(60)));
        assert_eq!((only.kernel_ns, only.copy_ns), (Nanos(40), Nanos(30)));
        assert_eq!(only.occupancy_percent, Some(60.0));
        assert_eq!(only.streams.iter().map(|s| (s.stream, s.busy_ns.0)).collect::<Vec<_>>(), [(7, 40), (8, 30)]);
    }
}
