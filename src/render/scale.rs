//! What all drawings of numbers share: round ticks, and a curve cut into columns that loses no extreme.

use crate::analysis::timeline::{Point, Stretch, column_of};
use crate::units::Nanos;

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: i64,
    pub(super) label: String,
}

const SIZES: [(f64, &str); 7] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1_048_576.0, "MiB"),
    (1_073_741_824.0, "GiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_125_899_906_842_624.0, "PiB"),
    (1_152_921_504_606_846_976.0, "EiB"),
];
const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];

/// Round sizes from 0 to `to`, about `wanted` of them.
pub(super) fn sizes(to: i64, wanted: usize) -> Vec<Tick> {
    ticks(0, to, wanted, &SIZES)
}

/// Round times, about `wanted` of them.
pub(super) fn times(from: i64, to: i64, wanted: usize) -> Vec<Tick> {
    ticks(from, to, wanted, &TIMES)
}

/// Steps of 1, 2 or 5 times a power of ten of the unit that the greatest is told in.
fn ticks(from: i64, to: i64, wanted: usize, units: &[(f64, &str)]) -> Vec<Tick> {
    let (low, high) = (from as f64, to.max(from) as f64);
    let largest = low.abs().max(high.abs());
    let (factor, unit) = units.iter().rev().find(|(factor, _)| *factor <= largest).copied().unwrap_or(units[0]);
    let raw = ((high - low).max(1.0) / wanted.max(1) as f64 / factor).max(1.0 / factor);
    let power = raw.log10().floor();
    let decade = 10f64.powf(power);
    let (digit, carry) =
        [1.0, 2.0, 5.0].into_iter().find(|d| d * decade >= raw * 0.999).map_or((1.0, 1.0), |d| (d, 0.0));
    let step = digit * 10f64.powf(power + carry);
    let decimals = (-(power + carry)).max(0.0) as usize;
    let first = (low / factor / step).ceil();
    (0..=2 * wanted.max(1) as i64 + 2)
        .map(|i| (first + i as f64) * step)
        .take_while(|value| value * factor <= high)
        .map(|value| Tick { at: (value * factor).round() as i64, label: format!("{:.decimals$} {unit}", value + 0.0) })
        .collect()
}

/// The points that a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extremes {
    /// The point with the greatest total.
    pub(super) most: usize,
    /// The point with the least total.
    pub(super) least: usize,
    /// The point with the greatest reserved total.
    pub(super) most_reserved: usize,
}

/// The extremes of every one of `columns` equal parts of the time from `start` to `end`, what held as each began
/// included. There has to be a point.
pub(super) fn extremes(points: &[Point], start: Nanos, end: Nanos, columns: u32) -> Vec<Extremes> {
    let mut next = 0;
    (0..columns)
        .map(|column| {
            let held = next.max(1) - 1;
            let mut found = Extremes { most: held, least: held, most_reserved: held };
            while next < points.len() && column_of(points[next].time_ns, start, end, columns) <= column {
                let (i, value) = (next, |i: usize| points[i].allocated_bytes);
                found.most = if value(i) > value(found.most) { i } else { found.most };
                found.least = if value(i) < value(found.least) { i } else { found.least };
                let reserved = |i: usize| points[i].reserved_bytes;
                found.most_reserved = if reserved(i) > reserved(found.most_reserved) { i } else { found.most_reserved };
                next += 1;
            }
            found
        })
        .collect()
}

/// Calls by how many others they lie in; those in too many are left out. They are in the order of their starts.
pub(super) fn by_depth(calls: &[Stretch]) -> Vec<Vec<&Stretch>> {
    const MOST: usize = 4;
    let mut depths: Vec<Vec<&Stretch>> = Vec::new();
    for call in calls {
        let ended = |list: &Vec<&Stretch>| list.last().is_none_or(|last| last.end_ns <= call.start_ns);
        match depths.iter().position(ended) {
            Some(depth) => depths[depth].push(call),
            None if depths.len() < MOST => depths.push(vec![call]),
            None => {}
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use proptest::prelude::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|t| t.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_in_the_unit_of_the_greatest() {
        assert_eq!(labels(&sizes(4 << 30, 5)), ["0 GiB", "1 GiB", "2 GiB", "3 GiB", "4 GiB"]);
        assert_eq!(labels(&sizes(700 << 20, 4)), ["0 MiB", "200 MiB", "400 MiB", "600 MiB"]);
        assert_eq!(labels(&times(12_300_000, 12_500_000, 2)), ["12.3 ms", "12.4 ms", "12.5 ms"]);
        assert_eq!(labels(&sizes(0, 4)), ["0 B"]);
    }

    #[test]
    fn calls_lie_below_those_that_they_happen_in_and_no_two_of_a_depth_overlap() {
        let call = |name: &str, start, end| Stretch { name: name.into(), start_ns: Nanos(start), end_ns: Nanos(end) };
        let mut calls = vec![call("a", 0, 10), call("b", 0, 4), call("c", 4, 9), call("d", 10, 12)];
        let names = |calls: &[Stretch]| -> Vec<String> {
            by_depth(calls).iter().map(|list| list.iter().map(|c| c.name.as_str()).collect()).collect()
        };
        assert_eq!(names(&calls), ["ad", "bc"]);
        calls.extend((0..9).map(|i| call("e", 12, 20 - i)));
        assert_eq!(names(&calls).len(), 4, "what is deeper is not shown");
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_within(from in any::<i64>(), to in any::<i64>(), wanted in 0usize..12) {
            let (from, to) = (from.min(to), from.max(to));
            prop_assert!(times(from, to, wanted).len() <= 2 * wanted.max(1) + 3);
        }

        #[test]
        fn no_extreme_of_a_column_is_lost(
            steps in prop::collection::vec((0i64..9, 0i64..100), 1..200),
            columns in 1u32..50,
        ) {
            let mut time = 0;
            let points: Vec<Point> = steps.iter().map(|(passed, bytes)| {
                time += passed;
                let (allocated_bytes, before_trace_bytes) = (Bytes(*bytes), Bytes::ZERO);
                Point { time_ns: Nanos(time), allocated_bytes, before_trace_bytes, reserved_bytes: None, free_bytes: None }
            }).collect();
            let (start, end) = (points[0].time_ns, Nanos(time));
            let found = extremes(&points, start, end, columns);
            for p in &points {
                let shown = &found[column_of(p.time_ns, start, end, columns) as usize];
                prop_assert!(points[shown.most].allocated_bytes >= p.allocated_bytes);
                prop_assert!(points[shown.least].allocated_bytes <= p.allocated_bytes);
            }
        }
    }
}
