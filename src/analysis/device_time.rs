//! Time on the device: of what operators launched, and of the device-side events themselves.

use super::tree::OpTree;
use crate::trace::{Device, DeviceEventKind, DeviceEvents, Trace};
use crate::units::Nanos;

/// Time of what each row of [`Trace::ops`] launched on the device.
pub(crate) struct DeviceTime {
    /// Of the row itself.
    pub(crate) own: Vec<Nanos>,
    /// With all that nests in it.
    pub(crate) total: Vec<Nanos>,
}

impl DeviceTime {
    pub(crate) fn of(trace: &Trace, tree: &OpTree, only: Option<Device>) -> Self {
        let events = trace.device_events();
        let device = OnDevice::new(trace, only);
        let mut own = vec![Nanos::ZERO; tree.len()];
        for k in (0..events.len()).filter(|k| device.holds(*k)) {
            if events.kind()[k] != DeviceEventKind::Annotation
                && let Some(i) = tree.launcher(k)
            {
                own[i] += events.duration()[k];
            }
        }
        for i in 0..own.len() {
            // As PyTorch does, the kernels of a folded row replace those of the row that it is folded into.
            if let Some(into) = tree.folded_into(i) {
                own[into] = own[i];
            }
        }
        let mut total = own.clone();
        for i in (0..total.len()).rev() {
            if let Some(parent) = tree.parent(i) {
                let time = total[i];
                total[parent] += time;
            }
        }
        Self { own, total }
    }
}

/// Which device events ran on the device that was asked for.
pub(crate) struct OnDevice<'t> {
    trace: &'t Trace,
    only: Option<Device>,
    /// The device of each lane: shadows of annotations do not name theirs, but lie on a stream's lane.
    lanes: Vec<i32>,
}

impl<'t> OnDevice<'t> {
    pub(crate) fn new(trace: &'t Trace, only: Option<Device>) -> Self {
        let events = trace.device_events();
        let mut lanes = Vec::new();
        if only.is_some() {
            lanes.resize(trace.threads().len(), -1);
            for (lane, device) in events.lane().iter().zip(events.device()) {
                if *device >= 0 {
                    lanes[lane.index()] = *device;
                }
            }
        }
        Self { trace, only, lanes }
    }

    pub(crate) fn holds(&self, k: usize) -> bool {
        let Some(only) = self.only else { return true };
        let events = self.trace.device_events();
        let device = match events.device()[k] {
            -1 => self.lanes[events.lane()[k].index()],
            named => named,
        };
        !only.kind.is_cpu() && device == only.index
    }
}

/// The spans of annotations' shadows as the profiler had them.
///
/// So that viewers nest kernels in them, the exporter lets a shadow start a nanosecond before its first kernel and, in
/// newer versions, end a nanosecond after its last. That is taken back.
pub(crate) struct ShadowSpans<'t> {
    events: &'t DeviceEvents,
    /// What ran on each lane that has shadows, in the order of time.
    work: Vec<Vec<u32>>,
}

/// What the exporter adds on a side.
const MARGIN: Nanos = Nanos(1);

impl<'t> ShadowSpans<'t> {
    /// Of these rows.
    pub(crate) fn new(events: &'t DeviceEvents, shadows: &[usize]) -> Self {
        let lane = |k: usize| events.lane()[k].index();
        let lanes = shadows.iter().map(|k| lane(*k) + 1).max().unwrap_or(0);
        let mut shaded = vec![false; lanes];
        for k in shadows {
            shaded[lane(*k)] = true;
        }
        let mut work = vec![Vec::new(); lanes];
        for k in 0..events.len() {
            if shaded.get(lane(k)) == Some(&true) && events.kind()[k] != DeviceEventKind::Annotation {
                work[lane(k)].push(k as u32);
            }
        }
        Self { events, work }
    }

    /// Start and duration of one of the rows.
    pub(crate) fn of(&self, k: usize) -> (Nanos, Nanos) {
        let (start, end) = (self.events.start()[k], self.events.start()[k] + self.events.duration()[k]);
        let work = &self.work[self.events.lane()[k].index()];
        let starts = |k: &u32| self.events.start()[*k as usize];
        let first = work.get(work.partition_point(|k| starts(k) < start)).map(starts);
        let last = work[..work.partition_point(|k| starts(k) < end)].last();
        let last_end = last.map(|k| starts(k) + self.events.duration()[*k as usize]);
        let start = if first == Some(start + MARGIN) { start + MARGIN } else { start };
        let end = if last_end == Some(end - MARGIN) { end - MARGIN } else { end };
        (start, (end - start).max(Nanos::ZERO))
    }
}
