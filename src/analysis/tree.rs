//! The operator tree: which CPU-side event ran inside which, as PyTorch nests them.
//!
//! Events nest by time on their thread. A call of the device's runtime stands on the thread of the operator that it has
//! the `External id` of. An event whose parent has the same name and no other child is folded into the parent:
//! `aten::layer_norm` calling `aten::layer_norm` is one call. Everything is a column over the rows of
//! [`Trace::ops`]; what the events cost is for other analyses to say.

use crate::trace::{OpKind, Ops, StrId, ThreadId, Trace};
use crate::units::Nanos;

/// No row.
const NONE: u32 = u32::MAX;

/// Names that PyTorch leaves out of its reports.
const LEFT_OUT: [&str; 6] = [
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

/// Back ends whose collectives are annotations named `nccl:all_reduce`. PyTorch records them as asynchronous: they may
/// end on another thread, so they nest in nothing and nothing nests in them.
const COLLECTIVE_BACKENDS: [&str; 6] = ["nccl", "gloo", "mpi", "ucc", "xccl", "hccl"];

/// What part a row plays in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It nests in others and others nest in it.
    Nested,
    /// It counts, but stands alone: a collective that may end on another thread.
    Async,
    /// PyTorch leaves it out: a name of the profiler's own machinery.
    LeftOut,
}

/// The tree. Rows are those of [`Trace::ops`]; a parent stands before its children.
#[derive(Clone, Debug)]
pub struct OpTree {
    role: Vec<Role>,
    thread: Vec<ThreadId>,
    enclosing: Vec<u32>,
    parent: Vec<u32>,
    folded_into: Vec<u32>,
    launcher: Vec<u32>,
}

/// The way from parents to children, for those who walk down; see [`OpTree::children`].
#[derive(Clone, Debug)]
pub struct Children {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl OpTree {
    /// The tree of a trace.
    pub fn build(trace: &Trace) -> Self {
        let ops = trace.ops();
        let role = roles(trace);
        let links = Launchers::of(trace, &role);
        let thread = effective_threads(trace, &links);
        let enclosing = nest(ops, &role, &thread, trace.threads().len());
        let (parent, folded_into) = fold(&merged_names(trace), ops.name(), &enclosing);
        let launcher = links.of_device_events(trace);
        Self { role, thread, enclosing, parent, folded_into, launcher }
    }

    /// The number of rows, as many as [`Trace::ops`] has.
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.parent.is_empty()
    }

    /// What part row `i` plays.
    pub fn role(&self, i: usize) -> Role {
        self.role[i]
    }

    /// The thread that row `i` counts as: its own, or that of the operator that made the runtime call.
    pub fn thread(&self, i: usize) -> ThreadId {
        self.thread[i]
    }

    /// The row that `i` nests in once chains are folded; `None` for outermost rows, for rows that stand alone or are
    /// left out, and for folded rows.
    pub fn parent(&self, i: usize) -> Option<usize> {
        row(self.parent[i])
    }

    /// The row that `i` was folded into, which is folded into none itself.
    pub fn folded_into(&self, i: usize) -> Option<usize> {
        row(self.folded_into[i])
    }

    /// Whether row `i` counts as a call of its own: neither folded nor left out.
    pub fn is_call(&self, i: usize) -> bool {
        self.folded_into[i] == NONE && self.role[i] != Role::LeftOut
    }

    /// The way from parents to children once chains are folded.
    pub fn children(&self) -> Children {
        let mut children = Children { first: vec![NONE; self.len()], next: vec![NONE; self.len()] };
        for (i, parent) in self.parent.iter().enumerate().rev().filter(|(_, p)| **p != NONE) {
            let first = &mut children.first[*parent as usize];
            children.next[i] = std::mem::replace(first, i as u32);
        }
        children
    }

    /// The operator that launched row `k` of [`Trace::device_events`], before any folding: the one with its
    /// `External id`.
    pub fn launcher(&self, k: usize) -> Option<usize> {
        row(self.launcher[k])
    }

    /// The row directly around `i` before any folding.
    pub fn enclosing(&self, i: usize) -> Option<usize> {
        row(self.enclosing[i])
    }

    /// The rows around `i` before any folding, innermost first.
    pub fn ancestors(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.enclosing(i), |at| self.enclosing(*at))
    }
}

impl Children {
    /// The rows that nest directly in `i`, in the order of time.
    pub fn of(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(row(self.first[i]), |at| row(self.next[*at]))
    }
}

fn row(i: u32) -> Option<usize> {
    (i != NONE).then_some(i as usize)
}

/// Whether a name is that of a step, which all count as one name.
pub(crate) fn is_step(name: &str) -> bool {
    name.starts_with("ProfilerStep#")
}

fn is_collective(name: &str) -> bool {
    name.split_once(':').is_some_and(|(backend, _)| COLLECTIVE_BACKENDS.contains(&backend))
}

fn roles(trace: &Trace) -> Vec<Role> {
    let strings = trace.strings();
    let mut left_out = vec![false; strings.len()];
    for id in LEFT_OUT.iter().filter_map(|name| strings.find(name)) {
        left_out[id.index()] = true;
    }
    let ops = trace.ops();
    let role = |(name, kind): (&StrId, &OpKind)| {
        if left_out[name.index()] {
            Role::LeftOut
        } else if *kind == OpKind::Annotation && is_collective(trace.str(*name)) {
            Role::Async
        } else {
            Role::Nested
        }
    };
    ops.name().iter().zip(ops.kind()).map(role).collect()
}

/// The threads that rows count as: a runtime call goes to the thread of its operator.
fn effective_threads(trace: &Trace, launchers: &Launchers) -> Vec<ThreadId> {
    let ops = trace.ops();
    let process = |thread: ThreadId| trace.thread(thread).process;
    let mut threads = ops.thread().to_vec();
    for (i, kind) in ops.kind().iter().enumerate() {
        if matches!(kind, OpKind::Runtime | OpKind::Driver) {
            let own = process(threads[i]);
            let same_process = |op: usize| process(ops.thread()[op]) == own;
            if let Some(op) = launchers.find(ops, ops.external_id()[i], ops.start()[i], same_process) {
                threads[i] = ops.thread()[op];
            }
        }
    }
    threads
}

/// The row directly around each row, by time on its thread.
fn nest(ops: &Ops, role: &[Role], thread: &[ThreadId], threads: usize) -> Vec<u32> {
    let mut enclosing = vec![NONE; ops.len()];
    let mut open: Vec<Vec<u32>> = vec![Vec::new(); threads];
    for (i, start) in ops.start().iter().enumerate() {
        if role[i] != Role::Nested {
            continue;
        }
        let (stack, end) = (&mut open[thread[i].index()], ops.end(i));
        while let Some(top) = stack.last() {
            let top_end = ops.end(*top as usize);
            if *start < top_end && end <= top_end {
                enclosing[i] = *top;
                break;
            }
            stack.pop();
        }
        stack.push(i as u32);
    }
    enclosing
}

/// Parents once chains are folded, and what each folded row was folded into.
///
/// One pass in the order of the rows does what PyTorch repeats until nothing changes: whether a row is folded depends on
/// its parent's name and number of children only, and parents come first.
fn fold(merged: &[StrId], names: &[StrId], enclosing: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut children = vec![0u32; enclosing.len()];
    for parent in enclosing.iter().filter(|p| **p != NONE) {
        children[*parent as usize] += 1;
    }
    let mut parent = enclosing.to_vec();
    let mut folded_into = vec![NONE; enclosing.len()];
    let name = |i: usize| merged[names[i].index()];
    for i in 0..enclosing.len() {
        let Some(direct) = row(enclosing[i]) else { continue };
        let up = row(folded_into[direct]).unwrap_or(direct);
        parent[i] = up as u32;
        if children[up] == 1 && name(up) == name(i) {
            folded_into[i] = up as u32;
            parent[i] = NONE;
            children[up] = children[i];
        }
    }
    (parent, folded_into)
}

/// For each string the one that it counts as: all steps are the first step.
pub(crate) fn merged_names(trace: &Trace) -> Vec<StrId> {
    let mut first_step = None;
    let merge = |(id, name): (u32, &str)| {
        let id = StrId(id);
        if is_step(name) { *first_step.get_or_insert(id) } else { id }
    };
    (0..).zip(trace.strings().iter()).map(merge).collect()
}

/// Operators and annotations by their `External id`, which runtime calls and device events name.
struct Launchers {
    /// Where the rows of an id stand in `rows`: by id itself, or by its place in `ids` where ids are not dense.
    offsets: Vec<u32>,
    ids: Option<Vec<u64>>,
    /// Row numbers, grouped by id and in the order of time.
    rows: Vec<u32>,
}

/// How many operators with one id are looked at for one of the same process: a file merged from more processes than
/// this, which all count from 1, is not told apart in full.
const MERGED_PROCESSES: usize = 256;

impl Launchers {
    fn of(trace: &Trace, role: &[Role]) -> Self {
        let ops = trace.ops();
        let id = |i: usize| {
            let launches = matches!(ops.kind()[i], OpKind::Operator | OpKind::Annotation) && role[i] == Role::Nested;
            if launches { ops.external_id()[i] } else { 0 }
        };
        let largest = (0..ops.len()).map(id).max().unwrap_or(0);
        // Ids are counted up by the profiler, so a table by id is nearly full, and filled in the order of the rows.
        let dense = usize::try_from(largest).ok().filter(|id| *id <= ops.len().saturating_mul(8));
        let ids = match dense {
            Some(_) => None,
            None => {
                let mut ids: Vec<u64> = (0..ops.len()).map(id).filter(|id| *id != 0).collect();
                ids.sort_unstable();
                ids.dedup();
                Some(ids)
            }
        };
        let slots = ids.as_ref().map_or(dense.unwrap_or(0) + 1, Vec::len);
        let mut launchers = Self { offsets: vec![0; slots + 1], ids, rows: Vec::new() };
        launchers.fill(ops.len(), id);
        launchers
    }

    /// A counting sort of the rows by slot.
    fn fill(&mut self, len: usize, id: impl Fn(usize) -> u64) {
        for i in 0..len {
            if let Some(slot) = self.slot(id(i)) {
                self.offsets[slot + 1] += 1;
            }
        }
        for slot in 1..self.offsets.len() {
            self.offsets[slot] += self.offsets[slot - 1];
        }
        self.rows = vec![NONE; self.offsets.last().copied().unwrap_or(0) as usize];
        let mut next = self.offsets.clone();
        for i in 0..len {
            if let Some(slot) = self.slot(id(i)) {
                self.rows[next[slot] as usize] = i as u32;
                next[slot] += 1;
            }
        }
    }

    fn slot(&self, id: u64) -> Option<usize> {
        if id == 0 {
            return None;
        }
        match &self.ids {
            Some(ids) => ids.binary_search(&id).ok(),
            None => usize::try_from(id).ok().filter(|slot| slot + 1 < self.offsets.len()),
        }
    }

    /// The last operator with this id that started at or before `time`, or the first if none did, that is `accepted`.
    fn find(&self, ops: &Ops, id: u64, time: Nanos, accepted: impl Fn(usize) -> bool) -> Option<usize> {
        let slot = self.slot(id)?;
        let rows = &self.rows[self.offsets[slot] as usize..self.offsets[slot + 1] as usize];
        let started = rows.partition_point(|i| ops.start()[*i as usize] <= time);
        let (before, after) = rows.split_at(started);
        let nearest = before.iter().rev().chain(after).map(|i| *i as usize);
        nearest.take(MERGED_PROCESSES).find(|i| accepted(*i))
    }

    /// The launcher of each device event. Most lanes of devices are none of a process that holds operators, so time
    /// decides between processes that use the same id; where files were merged under a pid each, the pid does.
    fn of_device_events(&self, trace: &Trace) -> Vec<u32> {
        let (ops, events) = (trace.ops(), trace.device_events());
        let process = |thread: ThreadId| trace.thread(thread).process;
        let mut has_ops = vec![false; trace.strings().len()];
        for (thread, known) in trace.threads().iter().zip(threads_with_ops(ops, trace.threads().len())) {
            has_ops[thread.process.index()] |= known;
        }
        let launcher = |k: usize| {
            let (id, start, own) = (events.external_id()[k], events.start()[k], process(events.lane()[k]));
            let of_own = |op: usize| process(ops.thread()[op]) == own;
            let beside = || has_ops[own.index()].then(|| self.find(ops, id, start, of_own)).flatten();
            beside().or_else(|| self.find(ops, id, start, |_| true))
        };
        (0..events.len()).map(|k| launcher(k).map_or(NONE, |i| i as u32)).collect()
    }
}

/// Which threads have rows.
fn threads_with_ops(ops: &Ops, threads: usize) -> Vec<bool> {
    let mut known = vec![false; threads];
    for thread in ops.thread() {
        known[thread.index()] = true;
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DeviceEvent, DeviceEventKind, Op, TraceBuilder};
    use proptest::prelude::*;

    /// An event of a test trace: name, kind, thread, start, end, external id.
    type Event<'a> = (&'a str, OpKind, &'a str, i64, i64, u64);

    const OP: OpKind = OpKind::Operator;
    const CALL: OpKind = OpKind::Runtime;

    fn trace(events: &[Event]) -> Trace {
        let mut b = TraceBuilder::new();
        for (name, kind, tid, start, end, external_id) in events {
            let (name, thread) = (b.intern(name), b.thread("1", tid));
            b.push_op(Op {
                external_id: *external_id,
                ..Op::new(name, *kind, thread, Nanos(*start), Nanos(end - start))
            });
        }
        b.finish()
    }

    /// Each row's name with its parent's, `-` for none and `=` for folded.
    fn nesting(trace: &Trace) -> Vec<String> {
        let tree = OpTree::build(trace);
        let name = |i: usize| trace.str(trace.ops().name()[i]);
        let line = |i: usize| match (tree.folded_into(i), tree.parent(i)) {
            (Some(into), _) => format!("{} = {}", name(i), name(into)),
            (None, Some(parent)) => format!("{} in {}", name(i), name(parent)),
            (None, None) => format!("{} -", name(i)),
        };
        (0..tree.len()).map(line).collect()
    }

    #[test]
    fn events_nest_by_time_on_their_thread() {
        //  1: [a [b  [c]][d]]     2:   [e]
        let t = trace(&[
            ("a", OP, "1", 0, 20, 0),
            ("b", OP, "1", 3, 12, 0),
            ("e", OP, "2", 4, 5, 0),
            ("c", OP, "1", 7, 12, 0),
            ("d", OP, "1", 12, 20, 0),
        ]);
        assert_eq!(nesting(&t), ["a -", "b in a", "e -", "c in b", "d in a"]);
        let tree = OpTree::build(&t);
        let children = tree.children();
        assert_eq!(children.of(0).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(tree.ancestors(3).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn of_two_events_that_overlap_partly_neither_is_the_others_parent() {
        //  [a     ]
        //     [b     ]
        //       [c]
        let t = trace(&[("a", OP, "1", 0, 10, 0), ("b", OP, "1", 5, 15, 0), ("c", OP, "1", 7, 9, 0)]);
        assert_eq!(nesting(&t), ["a -", "b -", "c in b"]);
    }

    #[test]
    fn an_instant_at_the_end_of_an_event_is_not_in_it_and_one_at_its_start_is() {
        let t = trace(&[("a", OP, "1", 0, 10, 0), ("at start", OP, "1", 0, 0, 0), ("at end", OP, "1", 10, 10, 0)]);
        assert_eq!(nesting(&t), ["a -", "at start in a", "at end -"]);
    }

    #[test]
    fn of_events_with_one_span_the_first_in_the_file_is_the_outer_one() {
        let t = trace(&[("first", OP, "1", 0, 10, 0), ("second", OP, "1", 0, 10, 0)]);
        assert_eq!(nesting(&t), ["first -", "second in first"]);
    }

    #[test]
    fn a_runtime_call_stands_on_the_thread_of_its_operator() {
        //  1: [op          ]
        //  2:    [launch]        recorded there, External id 7
        let t = trace(&[("op", OP, "1", 0, 10, 7), ("launch", CALL, "2", 2, 5, 7), ("other", CALL, "2", 3, 4, 0)]);
        assert_eq!(nesting(&t), ["op -", "launch in op", "other -"]);
    }

    #[test]
    fn equal_ids_of_two_processes_are_different_ids() {
        let mut b = TraceBuilder::new();
        for (pid, tid, name, kind, start) in
            [("1", "1", "op", OP, 0), ("2", "1", "op", OP, 1), ("2", "9", "launch", CALL, 2)]
        {
            let (name, thread) = (b.intern(name), b.thread(pid, tid));
            b.push_op(Op { external_id: 7, ..Op::new(name, kind, thread, Nanos(start), Nanos(10 - 2 * start)) });
        }
        let t = b.finish();
        let tree = OpTree::build(&t);
        assert_eq!(tree.parent(2), Some(1));
    }

    #[test]
    fn a_chain_of_single_children_of_one_name_is_one_call() {
        //  [norm [norm [norm [kernel launch]]]]
        let t = trace(&[
            ("norm", OP, "1", 0, 20, 0),
            ("norm", OP, "1", 1, 19, 0),
            ("norm", OP, "1", 2, 18, 0),
            ("launch", CALL, "1", 3, 4, 0),
        ]);
        assert_eq!(nesting(&t), ["norm -", "norm = norm", "norm = norm", "launch in norm"]);
        let tree = OpTree::build(&t);
        assert_eq!((tree.folded_into(2), tree.parent(3), tree.enclosing(3)), (Some(0), Some(0), Some(2)));
    }

    #[test]
    fn a_child_of_the_same_name_that_is_not_alone_stays() {
        let t = trace(&[("to", OP, "1", 0, 20, 0), ("to", OP, "1", 1, 9, 0), ("copy", OP, "1", 10, 19, 0)]);
        assert_eq!(nesting(&t), ["to -", "to in to", "copy in to"]);
    }

    #[test]
    fn names_of_the_profilers_own_machinery_are_left_out_and_hold_nothing() {
        let t = trace(&[("aten::is_leaf", OP, "1", 0, 20, 0), ("a", OP, "1", 1, 9, 0)]);
        assert_eq!(nesting(&t), ["aten::is_leaf -", "a -"]);
        assert!(!OpTree::build(&t).is_call(0));
    }

    #[test]
    fn a_collective_stands_alone() {
        let t = trace(&[
            ("nccl:all_reduce", OpKind::Annotation, "1", 0, 20, 0),
            ("copy", OP, "1", 1, 9, 0),
            ("nccl:all_reduce", OP, "2", 0, 20, 0),
            ("copy", OP, "2", 1, 9, 0),
        ]);
        assert_eq!(nesting(&t), ["nccl:all_reduce -", "nccl:all_reduce -", "copy -", "copy in nccl:all_reduce"]);
        assert_eq!(OpTree::build(&t).role(0), Role::Async);
    }

    #[test]
    fn of_operators_with_one_id_the_last_to_start_before_a_kernel_launched_it() {
        let mut b = TraceBuilder::new();
        for start in [0, 100] {
            let (name, thread) = (b.intern("op"), b.thread("1", "1"));
            // Ids far apart, so that they are looked up, not indexed.
            b.push_op(Op { external_id: u64::MAX, ..Op::new(name, OP, thread, Nanos(start), Nanos(10)) });
        }
        for start in [-5, 50, 150] {
            let (name, lane) = (b.intern("kernel"), b.thread("0", "7"));
            b.push_device_event(DeviceEvent {
                external_id: u64::MAX,
                ..DeviceEvent::new(name, DeviceEventKind::Kernel, lane, Nanos(start), Nanos(1))
            });
        }
        let tree = OpTree::build(&b.finish());
        assert_eq!([0, 1, 2].map(|k| tree.launcher(k)), [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_trace_without_events_has_a_tree_without_rows() {
        let tree = OpTree::build(&trace(&[]));
        assert!(tree.is_empty());
    }

    /// The folding as PyTorch does it: passes over the whole list until one deletes nothing.
    fn folded_by_passes(names: &[&str], parent: &mut [Option<usize>]) -> Vec<bool> {
        let mut gone = vec![false; names.len()];
        loop {
            let mut changed = false;
            for i in (0..names.len()).filter(|i| !gone[*i]).collect::<Vec<_>>() {
                let Some(up) = parent[i] else { continue };
                let only_child = (0..names.len()).filter(|k| !gone[*k] && parent[*k] == Some(up)).count() == 1;
                if names[up] == names[i] && only_child {
                    gone[i] = true;
                    changed = true;
                    parent.iter_mut().filter(|p| **p == Some(i)).for_each(|p| *p = Some(up));
                }
            }
            if !changed {
                return gone;
            }
        }
    }

    fn events() -> impl Strategy<Value = Vec<(u8, u8, i64, i64)>> {
        proptest::collection::vec((0u8..3, 0u8..2, 0i64..30, 0i64..20), 0..25)
    }

    proptest! {
        #[test]
        fn any_events_nest_and_fold_as_the_rule_says_word_for_word(events in events()) {
            let names = ["a", "b", "c"];
            let tids = ["1", "2"];
            let rows: Vec<Event> = events
                .iter()
                .map(|(name, tid, start, length)| {
                    (names[usize::from(*name)], OP, tids[usize::from(*tid)], *start, start + length, 0)
                })
                .collect();
            let t = trace(&rows);
            let (ops, tree) = (t.ops(), OpTree::build(&t));
            let mut parent = vec![None; ops.len()];
            for thread in 0..t.threads().len() {
                let mut stack: Vec<usize> = Vec::new();
                for i in (0..ops.len()).filter(|i| ops.thread()[*i].index() == thread) {
                    while let Some(top) = stack.last() {
                        if ops.start()[i] >= ops.end(*top) || ops.end(i) > ops.end(*top) {
                            stack.pop();
                        } else {
                            parent[i] = Some(*top);
                            break;
                        }
                    }
                    stack.push(i);
                }
            }
            prop_assert_eq!((0..ops.len()).map(|i| tree.enclosing(i)).collect::<Vec<_>>(), parent.clone());
            let names: Vec<&str> = ops.name().iter().map(|n| t.str(*n)).collect();
            let gone = folded_by_passes(&names, &mut parent);
            for (i, gone) in gone.iter().enumerate() {
                prop_assert_eq!(tree.folded_into(i).is_some(), *gone);
                if !gone {
                    prop_assert_eq!(tree.parent(i), parent[i]);
                }
            }
        }
    }
}
