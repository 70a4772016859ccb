//! What runs at a moment: the spans (operators, annotations, Python frames) around it on its thread.
//!
//! One sweep over spans and moments, both in the order of time, places each moment in its innermost span and each span
//! in the one around it. What a span is and what a moment means is for the caller to say.

use crate::trace::{Frames, Ops, ThreadId};
use crate::units::Nanos;

/// No span.
pub(crate) const NONE: u32 = u32::MAX;

/// Spans in the order of the trace's tables: by start, longest first, then place in the file.
#[derive(Clone, Copy)]
pub(crate) struct Spans<'a> {
    start: &'a [Nanos],
    duration: &'a [Nanos],
    thread: &'a [ThreadId],
}

impl<'a> From<&'a Ops> for Spans<'a> {
    fn from(ops: &'a Ops) -> Self {
        Self { start: ops.start(), duration: ops.duration(), thread: ops.thread() }
    }
}

impl<'a> From<&'a Frames> for Spans<'a> {
    fn from(frames: &'a Frames) -> Self {
        Self { start: frames.start(), duration: frames.duration(), thread: frames.thread() }
    }
}

/// Where spans and moments stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// For each span the one directly around it, or [`NONE`].
    pub(crate) around: Vec<u32>,
    /// For each moment the innermost span that holds it, or [`NONE`].
    pub(crate) at: Vec<u32>,
}

impl<'a> Spans<'a> {
    /// Spans of these columns, which are of one length and in that order.
    pub(crate) fn new(start: &'a [Nanos], duration: &'a [Nanos], thread: &'a [ThreadId]) -> Self {
        Self { start, duration, thread }
    }

    fn end(&self, i: u32) -> Nanos {
        self.start[i as usize] + self.duration[i as usize]
    }

    /// Places the spans that `select` picks, and moments (time and thread, in the order of time) among them.
    ///
    /// A span holds the moments from its start to its end, both included; of several the last to start is the
    /// innermost, and of those that start together the shortest, then the last in the file. A span is around another
    /// that starts in it and does not end after it; of two that overlap partly neither is around the other.
    pub(crate) fn place(
        self,
        threads: usize,
        select: impl Fn(usize) -> bool,
        moments: impl ExactSizeIterator<Item = (Nanos, ThreadId)>,
    ) -> Placement {
        let mut around = vec![NONE; self.start.len()];
        let mut at = Vec::with_capacity(moments.len());
        // Ends never rise from the bottom to the top of a stack: a span that ends before a later one does holds no
        // moment that the later one does not hold as well.
        let mut open: Vec<Vec<u32>> = vec![Vec::new(); threads];
        let mut next = 0;
        for (time, thread) in moments {
            while next < self.start.len() && self.start[next] <= time {
                self.open(next, &mut open, &mut around, &select);
                next += 1;
            }
            at.push(self.innermost(&mut open[thread.index()], time));
        }
        for i in next..self.start.len() {
            self.open(i, &mut open, &mut around, &select);
        }
        Placement { around, at }
    }

    fn open(&self, i: usize, open: &mut [Vec<u32>], around: &mut [u32], select: impl Fn(usize) -> bool) {
        if select(i) {
            let stack = &mut open[self.thread[i].index()];
            around[i] = self.innermost(stack, self.end(i as u32));
            stack.push(i as u32);
        }
    }

    /// The topmost span that ends at `time` or later; those above it are over for good.
    fn innermost(&self, stack: &mut Vec<u32>, time: Nanos) -> u32 {
        while let Some(top) = stack.last() {
            if self.end(*top) >= time {
                return *top;
            }
            stack.pop();
        }
        NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(spans: &[(i64, i64, u32)], moments: &[(i64, u32)]) -> Placement {
        let start: Vec<_> = spans.iter().map(|s| Nanos(s.0)).collect();
        let duration: Vec<_> = spans.iter().map(|s| Nanos(s.1)).collect();
        let thread: Vec<_> = spans.iter().map(|s| ThreadId(s.2)).collect();
        let spans = Spans { start: &start, duration: &duration, thread: &thread };
        spans.place(3, |_| true, moments.iter().map(|m| (Nanos(m.0), ThreadId(m.1))))
    }

    #[test]
    fn a_moment_belongs_to_the_innermost_span_of_its_thread_ends_included() {
        //     0    5    10   15   20
        // 0:  [0---------]               span 0: 0..10
        //          [2-]                  span 2: 4..7
        // 1:   [1------------]           span 1: 1..14
        let got =
            place(&[(0, 10, 0), (1, 13, 1), (4, 3, 0)], &[(3, 0), (4, 0), (7, 0), (8, 0), (10, 0), (11, 0), (11, 1)]);
        assert_eq!(got.at, [0, 2, 2, 0, 0, NONE, 1]);
        assert_eq!(got.around, [NONE, NONE, 0]);
    }

    #[test]
    fn of_spans_that_overlap_partly_the_later_holds_the_moment_and_neither_is_around_the_other() {
        //  [0-----]
        //      [1-----]
        let got = place(&[(0, 6, 0), (4, 6, 0)], &[(3, 0), (5, 0), (6, 0), (9, 0)]);
        assert_eq!(got.at, [0, 1, 1, 1]);
        assert_eq!(got.around, [NONE, NONE]);
    }

    #[test]
    fn of_equal_spans_the_first_is_around_the_second() {
        let got = place(&[(0, 6, 0), (0, 6, 0), (0, 2, 0)], &[(1, 0), (3, 0)]);
        assert_eq!(got.around, [NONE, 0, 1]);
        assert_eq!(got.at, [2, 1]);
    }

    proptest! {
        #[test]
        fn the_sweep_finds_what_looking_at_every_span_finds(
            mut spans in proptest::collection::vec((0i64..30, 0i64..30, 0u32..3), 0..40),
            mut moments in proptest::collection::vec((0i64..70, 0u32..3), 0..40),
        ) {
            spans.sort_by_key(|s| (s.0, -s.1));
            moments.sort_by_key(|m| m.0);
            let got = place(&spans, &moments);
            for (m, found) in moments.iter().zip(&got.at) {
                let holds = |s: &(i64, i64, u32)| s.2 == m.1 && s.0 <= m.0 && m.0 <= s.0 + s.1;
                prop_assert_eq!(*found, spans.iter().rposition(holds).map_or(NONE, |i| i as u32));
            }
        }
    }
}
