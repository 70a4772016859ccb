//! What is odd about the times of whole tables: events without a time of their own, and events that overlap partly.
//!
//! Both can only be told once all events are at hand. What the analyses make of overlaps is for them to say; on a device
//! kernels overlap as they should.

use super::ThreadId;
use crate::units::Nanos;
use std::ops::Range;

/// No profile is this long: an event at 0 that far from all others was not recorded then.
const FAR: Nanos = Nanos(24 * 3600 * 1_000_000_000);

/// Events at time 0 in a trace whose other times are far from it: the profiler wrote 0 where it knew no time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holes {
    count: u64,
}

impl Holes {
    /// The holes in these columns of times, in any order.
    pub(super) fn find<'a>(columns: impl IntoIterator<Item = &'a [Nanos], IntoIter: Clone>) -> Self {
        let columns = columns.into_iter();
        let at_zero = |column: &[Nanos]| column.iter().filter(|time| **time == Nanos::ZERO).count() as u64;
        let count = columns.clone().map(at_zero).sum();
        if count == 0 {
            return Self::default();
        }
        let others = || columns.clone().flatten().filter(|time| **time != Nanos::ZERO);
        let far = others().all(|time| *time >= FAR) && others().next().is_some();
        Self { count: if far { count } else { 0 } }
    }

    /// How many there are.
    pub(super) fn count(self) -> u64 {
        self.count
    }

    /// Whether there is one.
    pub(super) fn are_there(self) -> bool {
        self.count > 0
    }

    /// Where they stand in a column in the order of time.
    pub(super) fn rows(self, sorted: &[Nanos]) -> Range<usize> {
        if self.count == 0 {
            return 0..0;
        }
        sorted.partition_point(|time| *time < Nanos::ZERO)..sorted.partition_point(|time| *time <= Nanos::ZERO)
    }
}

/// Tells `found` of each event that begins within an earlier one on its thread and ends after it. The columns are by start,
/// longest first.
pub(super) fn overlaps(
    start: &[Nanos],
    duration: &[Nanos],
    thread: &[ThreadId],
    threads: usize,
    mut found: impl FnMut(usize),
) {
    // Ends of the events that hold the moment, the earliest on top.
    let mut open: Vec<Vec<Nanos>> = vec![Vec::new(); threads];
    for (row, ((start, duration), thread)) in start.iter().zip(duration).zip(thread).enumerate() {
        let (stack, end) = (&mut open[thread.index()], *start + *duration);
        while stack.last().is_some_and(|earlier| earlier <= start) {
            stack.pop();
        }
        if stack.last().is_some_and(|earlier| *earlier < end) {
            found(row);
            // Whatever overlaps these from now on begins within this one too.
            while stack.last().is_some_and(|earlier| *earlier < end) {
                stack.pop();
            }
        }
        stack.push(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlapping(events: &[(i64, i64, u32)]) -> Vec<usize> {
        let start: Vec<_> = events.iter().map(|e| Nanos(e.0)).collect();
        let duration: Vec<_> = events.iter().map(|e| Nanos(e.1 - e.0)).collect();
        let thread: Vec<_> = events.iter().map(|e| ThreadId(e.2)).collect();
        let mut rows = Vec::new();
        overlaps(&start, &duration, &thread, 2, |row| rows.push(row));
        rows
    }

    #[test]
    fn only_events_that_end_after_what_they_begin_in_overlap() {
        //  0: [      ][  ]        1:   [   ]
        //       [ ][   ]  nests; the last begins in the first and ends after it
        assert!(overlapping(&[(0, 10, 0), (2, 4, 0), (3, 30, 1), (4, 10, 0), (10, 14, 0)]).is_empty());
        assert_eq!(overlapping(&[(0, 10, 0), (2, 12, 0), (3, 30, 1), (4, 14, 0), (14, 14, 0)]), [1, 3]);
        assert!(overlapping(&[(0, 10, 0), (0, 5, 0), (3, 5, 0), (5, 10, 0)]).is_empty());
    }

    #[test]
    fn zero_is_a_hole_only_where_all_other_times_are_far() {
        let day = FAR.0;
        let holes =
            |times: &[i64]| Holes::find([times.iter().map(|t| Nanos(*t)).collect::<Vec<_>>().as_slice()]).count();
        assert_eq!(holes(&[0, day, 0, day + 5]), 2);
        assert_eq!(holes(&[0, 5, day]), 0);
        assert_eq!(holes(&[0, 0]), 0);
        assert_eq!(holes(&[day]), 0);
    }
}
