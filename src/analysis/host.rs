//! The resident memory of a process and its children on the host over wall-clock time: what memory_profiler saw.
//!
//! The total is the sum over the processes; pages that they share count in each of them, as they do in memory_profiler.

use super::samples::with_end;
use super::timeline::{DeviceTimeline, Measure, Point, Stretch};
use crate::trace::host_memory::HostMemory;
use crate::units::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// The host as a device of a timeline whose series are the processes, in the window where there is one.
pub fn host_timeline(memory: &HostMemory, window: Option<(Nanos, Nanos)>) -> Option<DeviceTimeline> {
    let (names, states) = states(memory);
    let device = DeviceTimeline::of_states("host".into(), names, states, window)?;
    let (start, end) = (device.start_ns(), device.end_ns);
    let mut calls: Vec<Stretch> = memory
        .functions
        .iter()
        .filter(|call| call.start.time <= end && call.end.time >= start)
        .map(|call| Stretch {
            name: call.name.clone(),
            start_ns: call.start.time.max(start),
            end_ns: call.end.time.min(end),
        })
        .collect();
    // Of calls that begin together the outermost first.
    calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.end_ns)));
    Some(DeviceTimeline { measure: Measure::Resident, calls, ..device })
}

/// Children beyond those that ever hold most are one series.
const MOST_CHILDREN: usize = 11;

/// The processes, and what each holds at every moment at which a sample tells of one.
fn states(memory: &HostMemory) -> (Vec<String>, Vec<(Point, Vec<Bytes>)>) {
    let (names, places) = series(memory);
    let mut told: Vec<(Nanos, usize, Bytes)> = memory.samples.iter().map(|s| (s.time, 0, s.bytes)).collect();
    for (i, child) in memory.children.iter().enumerate() {
        let seen = child.samples.iter().map(|s| (s.time, s.bytes)).collect();
        told.extend(with_end(seen).map(|(time, bytes)| (time, i + 1, bytes)));
    }
    told.sort_by_key(|(time, ..)| *time);
    // That a child is gone is no sample of its own.
    let end = memory.samples.iter().chain(memory.children.iter().flat_map(|c| &c.samples)).map(|s| s.time).max();
    told.retain(|(time, ..)| Some(*time) <= end);
    let mut held = vec![Bytes::ZERO; 1 + memory.children.len()];
    let mut now = vec![Bytes::ZERO; names.len()];
    let mut total = Bytes::ZERO;
    let mut states: Vec<(Point, Vec<Bytes>)> = Vec::new();
    for (time_ns, process, bytes) in told {
        let change = bytes - std::mem::replace(&mut held[process], bytes);
        total += change;
        now[places[process]] += change;
        let point = Point {
            time_ns,
            allocated_bytes: total,
            before_trace_bytes: Bytes::ZERO,
            reserved_bytes: None,
            free_bytes: None,
        };
        match states.last_mut() {
            Some(last) if last.0.time_ns == time_ns => *last = (point, now.clone()),
            _ => states.push((point, now.clone())),
        }
    }
    (names, states)
}

/// The names of the series, and which of them each process belongs to.
fn series(memory: &HostMemory) -> (Vec<String>, Vec<usize>) {
    let most = |i: &usize| memory.children[*i].samples.iter().map(|s| s.bytes).max();
    let mut largest: Vec<usize> = (0..memory.children.len()).collect();
    largest.sort_by_key(|i| std::cmp::Reverse(most(i)));
    largest.truncate(MOST_CHILDREN);
    largest.sort_unstable();
    let mut names = vec!["main process".to_owned()];
    let mut places = vec![0; 1 + memory.children.len()];
    places[1..].fill(1 + largest.len());
    for i in largest {
        places[i + 1] = names.len();
        names.push(format!("child {}", memory.children[i].id));
    }
    if memory.children.len() > MOST_CHILDREN {
        names.push(format!("{} more children", memory.children.len() - MOST_CHILDREN));
    }
    (names, places)
}

/// The host at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostMoment {
    /// When, in Unix time.
    pub time_ns: Nanos,
    /// When the recording starts.
    pub start_ns: Nanos,
    /// Resident memory of all processes.
    pub resident_bytes: Bytes,
    /// The calls that run then, the outermost first; of those that start together the longest is outermost.
    pub calls: Vec<String>,
    /// The processes, the largest first.
    pub processes: Vec<HostProcess>,
}

/// A process at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostProcess {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub resident_bytes: Bytes,
    /// The most that it ever holds.
    pub most_bytes: Bytes,
}

/// A function over its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionUse {
    /// Its name with its module.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// How long its calls took together.
    pub duration_ns: Nanos,
    /// What memory grew by from the start to the end of its calls, summed; negative where it shrank.
    pub increase_bytes: Bytes,
    /// The most that memory grew by in one call.
    pub most_increase_bytes: Bytes,
}

/// The moment at which the host's memory is at its peak, or the state at another; `None` where nothing is known of that.
pub fn host_moment(memory: &HostMemory, at: Option<Nanos>) -> Option<HostMoment> {
    let all = host_timeline(memory, None)?;
    let place = match at {
        None => all.points.iter().position(|p| p.time_ns == all.peak.time_ns)?,
        Some(time) if time > all.end_ns => return None,
        Some(time) => all.points.partition_point(|p| p.time_ns <= time).checked_sub(1)?,
    };
    let time_ns = at.unwrap_or(all.peak.time_ns);
    let mut processes: Vec<HostProcess> = all
        .series
        .iter()
        .zip(all.live(place))
        .filter(|(series, _)| series.most_bytes > Bytes::ZERO)
        .map(|(series, bytes)| HostProcess {
            name: series.name(),
            resident_bytes: *bytes,
            most_bytes: series.most_bytes,
        })
        .collect();
    processes.sort_by_key(|p| -p.resident_bytes);
    let running = all.calls.iter().filter(|call| (call.start_ns..=call.end_ns).contains(&time_ns));
    Some(HostMoment {
        time_ns,
        start_ns: all.start_ns(),
        resident_bytes: all.points[place].allocated_bytes,
        calls: running.map(|call| call.name.clone()).collect(),
        processes,
    })
}

/// Each function that was recorded, by what memory grew by in its calls.
pub fn host_functions(memory: &HostMemory) -> Vec<FunctionUse> {
    let mut by_name: BTreeMap<&str, FunctionUse> = BTreeMap::new();
    for call in &memory.functions {
        let increase = call.end.bytes - call.start.bytes;
        let known = by_name.entry(&call.name).or_insert_with(|| FunctionUse {
            name: call.name.clone(),
            most_increase_bytes: increase,
            ..FunctionUse::default()
        });
        known.calls += 1;
        known.duration_ns += call.end.time - call.start.time;
        known.increase_bytes += increase;
        known.most_increase_bytes = known.most_increase_bytes.max(increase);
    }
    let mut functions: Vec<FunctionUse> = by_name.into_values().collect();
    functions.sort_by_key(|f| -f.increase_bytes);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::host_memory::{Child, FunctionCall, HostSample};

    fn sample(time: i64, bytes: i64) -> HostSample {
        HostSample { time: Nanos(time), bytes: Bytes(bytes) }
    }

    /// ```text
    /// main    |100     |150     |120     |90
    /// child a      |50      |60      (gone)
    /// f            |---------------|
    /// g                 |---|
    /// ```
    fn small() -> HostMemory {
        let call = |name: &str, start, end| FunctionCall { name: name.into(), start, end };
        HostMemory {
            samples: vec![sample(0, 100), sample(10, 150), sample(20, 120), sample(30, 90)],
            children: vec![Child { id: "a".into(), samples: vec![sample(5, 50), sample(15, 60)] }],
            functions: vec![
                call("g", sample(12, 150), sample(16, 160)),
                call("f", sample(5, 100), sample(22, 130)),
                call("g", sample(26, 130), sample(28, 110)),
            ],
            ..HostMemory::default()
        }
    }

    #[test]
    fn processes_sum_to_the_total_and_a_child_is_gone_a_sample_after_its_last() {
        let d = host_timeline(&small(), None).unwrap();
        let rows: Vec<(i64, i64, Vec<i64>)> = (0..d.points.len())
            .map(|i| (d.points[i].time_ns.0, d.points[i].allocated_bytes.0, d.live(i).iter().map(|b| b.0).collect()))
            .collect();
        let expected = [
            (0, 100, vec![100, 0]),
            (5, 150, vec![100, 50]),
            (10, 200, vec![150, 50]),
            (15, 210, vec![150, 60]),
            (20, 180, vec![120, 60]),
            (25, 120, vec![120, 0]),
            (30, 90, vec![90, 0]),
        ];
        assert_eq!(rows, expected);
        assert_eq!(d.calls.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["f", "g", "g"]);
    }

    #[test]
    fn a_window_starts_with_what_is_held_and_one_without_samples_is_none() {
        let d = host_timeline(&small(), Some((Nanos(12), Nanos(18)))).unwrap();
        assert_eq!(d.points.iter().map(|p| p.time_ns.0).collect::<Vec<_>>(), [12, 15]);
        assert_eq!((d.points[0].allocated_bytes, d.end_ns, d.calls.len()), (Bytes(200), Nanos(18), 2));
        assert_eq!(host_timeline(&small(), Some((Nanos(31), Nanos(40)))), None);
        assert_eq!(host_timeline(&HostMemory::default(), None), None);
    }

    #[test]
    fn children_beyond_the_largest_are_one_series() {
        let child = |i: i64| Child { id: i.to_string(), samples: vec![sample(i, 100 - i), sample(i + 100, 100 - i)] };
        let memory = HostMemory { children: (0..30).map(child).collect(), ..HostMemory::default() };
        let d = host_timeline(&memory, None).unwrap();
        assert_eq!(d.series.len(), 1 + MOST_CHILDREN + 1);
        assert_eq!(d.series.last().unwrap().key, "19 more children");
        for i in 0..d.points.len() {
            assert_eq!(d.live(i).iter().copied().sum::<Bytes>(), d.points[i].allocated_bytes);
        }
        assert_eq!(d.peak.allocated_bytes, Bytes((71..=100).sum()));
    }

    #[test]
    fn the_peak_is_named_with_the_calls_around_it_and_the_processes() {
        let peak = host_moment(&small(), None).unwrap();
        assert_eq!((peak.time_ns, peak.resident_bytes), (Nanos(15), Bytes(210)));
        assert_eq!(peak.calls, ["f", "g"]);
        let held: Vec<(&str, i64)> = peak.processes.iter().map(|p| (p.name.as_str(), p.resident_bytes.0)).collect();
        assert_eq!(held, [("main process", 150), ("child a", 60)]);
        assert_eq!(host_moment(&small(), Some(Nanos(7))).unwrap().resident_bytes, Bytes(150));
        assert_eq!(host_moment(&small(), Some(Nanos(31))), None);
        assert_eq!(host_moment(&small(), Some(Nanos(-1))), None);
    }

    #[test]
    fn functions_are_told_by_what_memory_grew_by_in_their_calls() {
        let found = host_functions(&small());
        let told: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.calls, f.increase_bytes.0)).collect();
        assert_eq!(told, [("f", 1, 30), ("g", 2, -10)]);
        assert_eq!(found[1].most_increase_bytes, Bytes(10));
    }
}
