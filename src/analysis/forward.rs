//! Which forward operator a backward one belongs to.
//!
//! PyTorch counts the autograd nodes of each thread: a forward operator carries the number that the next node will get
//! (`Sequence number`), and a backward operator the number of its node and the thread that made it (`Fwd thread id`).
//! That id is PyTorch's own count of threads and not a `tid`, so which thread is meant is found from the numbers.

use super::owners::{Owners, row};
use super::spans::NONE;
use crate::trace::{StrId, ThreadId, Trace};
use hashbrown::HashMap;

/// How many threads are looked at per number to find which thread is meant; real traces have one or two.
const CANDIDATES: usize = 16;

/// For each row of [`Trace::ops`] the forward operator behind it.
#[derive(Debug)]
pub(super) struct ForwardLinks(Vec<u32>);

/// The last operator of a thread with a number: of nested operators that carry one number it is the one that made the
/// node, because those after it see the next number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Made {
    process: StrId,
    sequence: i64,
    thread: ThreadId,
    op: u32,
}

impl ForwardLinks {
    pub(super) fn build(owners: &Owners<'_>) -> Self {
        let trace = owners.trace();
        let made = made_nodes(trace);
        let threads = threads_meant(trace, &made);
        Self(owners.inherited(|i, outer| match backward_key(trace, i) {
            Some(key) => threads.get(&(key.0, key.2)).and_then(|t| find(&made, key.0, key.1, *t)).unwrap_or(NONE),
            None => outer.copied().unwrap_or(NONE),
        }))
    }

    /// The forward operator behind `op`, which is linked itself or stands in one that is.
    pub(super) fn of(&self, op: usize) -> Option<usize> {
        row(self.0[op])
    }
}

/// Process, number and forward thread of a backward operator.
fn backward_key(trace: &Trace, i: usize) -> Option<(StrId, i64, u64)> {
    let (sequence, thread) = (trace.ops().sequence()[i], trace.ops().forward_thread()[i]);
    (sequence >= 0 && thread != 0).then(|| (trace.thread(trace.ops().thread()[i]).process, sequence, thread))
}

fn made_nodes(trace: &Trace) -> Vec<Made> {
    let ops = trace.ops();
    let forward = (0..ops.len()).filter(|i| ops.sequence()[*i] >= 0 && ops.forward_thread()[*i] == 0);
    let mut made: Vec<Made> = forward
        .map(|i| {
            let thread = ops.thread()[i];
            Made { process: trace.thread(thread).process, sequence: ops.sequence()[i], thread, op: i as u32 }
        })
        .collect();
    // Descending in `op` so that the last of each thread and number comes first and stays.
    made.sort_unstable_by_key(|m| (m.process, m.sequence, m.thread, std::cmp::Reverse(m.op)));
    made.dedup_by_key(|m| (m.process, m.sequence, m.thread));
    made
}

/// The thread that each forward thread id of a process means: the one with the most of its numbers, then the first.
fn threads_meant(trace: &Trace, made: &[Made]) -> HashMap<(StrId, u64), ThreadId> {
    let mut votes: HashMap<(StrId, u64, ThreadId), u64> = HashMap::new();
    for (process, sequence, forward) in (0..trace.ops().len()).filter_map(|i| backward_key(trace, i)) {
        let first = made.partition_point(|m| (m.process, m.sequence) < (process, sequence));
        let same = made[first..].iter().take_while(|m| (m.process, m.sequence) == (process, sequence));
        for candidate in same.take(CANDIDATES) {
            *votes.entry((process, forward, candidate.thread)).or_default() += 1;
        }
    }
    let mut sorted: Vec<_> = votes.into_iter().collect();
    sorted.sort_unstable_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
    let mut meant = HashMap::new();
    for ((process, forward, thread), _) in sorted {
        meant.entry((process, forward)).or_insert(thread);
    }
    meant
}

fn find(made: &[Made], process: StrId, sequence: i64, thread: ThreadId) -> Option<u32> {
    made.binary_search_by_key(&(process, sequence, thread), |m| (m.process, m.sequence, m.thread))
        .ok()
        .map(|i| made[i].op)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use crate::analysis::owners::Owners;

    #[test]
    fn a_backward_operator_leads_to_the_innermost_forward_one_of_its_number() {
        // main:      [aten::linear 5 [aten::to 5 [aten::_to_copy 5]] [aten::addmm 6]]
        // autograd:                               [evaluate: ToCopyBackward0 5 [aten::to]]
        let mut b = Build::default();
        b.span(span("aten::linear", 0, 50).sequence(5));
        b.span(span("aten::to", 1, 20).sequence(5));
        b.span(span("aten::_to_copy", 2, 19).sequence(5));
        b.span(span("aten::addmm", 21, 40).sequence(6));
        b.span(span("evaluate: ToCopyBackward0", 60, 90).on("2").backward(5, 1));
        b.span(span("aten::to", 61, 80).on("2"));
        b.alloc_on("2", 70, 1, 8);
        let trace = b.finish();
        let owners = Owners::build(&trace);
        let leaf = owners.owner(0, crate::analysis::owners::AttributeTo::Leaf).unwrap();
        assert_eq!(owners.forward(leaf).map(|op| owners.name(op)), Some("aten::_to_copy"));
        assert_eq!(owners.forward(0), None);
    }

    #[test]
    fn numbers_that_two_threads_share_are_told_apart_by_where_most_of_them_lead() {
        // Threads 1 and 2 both count from 0; ids 7 and 8 name them. Only thread 1 has number 2, only thread 2 number 3.
        let mut b = Build::default();
        for (name, tid, sequence, at) in [("a0", "1", 0, 0), ("a2", "1", 2, 10), ("b0", "2", 0, 0), ("b3", "2", 3, 10)]
        {
            b.span(span(name, at, at + 5).on(tid).sequence(sequence));
        }
        for (name, sequence, forward, at) in [("x", 0, 7, 20), ("x", 2, 7, 30), ("y", 0, 8, 40), ("y", 3, 8, 50)] {
            b.span(span(name, at, at + 5).on("3").backward(sequence, forward));
        }
        let trace = b.finish();
        let owners = Owners::build(&trace);
        let got: Vec<_> = (4..8).map(|op| owners.forward(op).map(|f| owners.name(f))).collect();
        assert_eq!(got, [Some("a0"), Some("a2"), Some("b0"), Some("b3")]);
    }
}
