//! The tree of calls with what each costs, merged by path or call by call.
//!
//! A node's total is its own cost plus its children's, so the roots' totals are the sum over all nodes. Which nodes are
//! worth showing is for the report to say.

use super::allocations::Allocations;
pub use super::op_costs::Costs;
use super::op_costs::OwnCosts;
use super::owners::Owners;
use super::paths::{Label, Paths};
use super::tree::{OpTree, is_step};
use crate::trace::{Device, OpKind, StrId, Trace};

/// What to count, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTreeOptions {
    /// Count only memory events of this device, and only device events that ran on it.
    pub device: Option<Device>,
    /// A node for each call, instead of one for all calls of one path.
    pub raw: bool,
}

/// The nodes of the tree. Node 0 is the root: its total is that of all others.
#[derive(Clone, Debug)]
pub struct CallTree {
    /// Names and nesting.
    pub paths: Paths,
    /// How many calls each node stands for.
    pub count: Vec<u64>,
    /// What each node costs without its children.
    pub own: Vec<Costs>,
    /// What each node costs.
    pub total: Vec<Costs>,
    /// Whether what is live at the peak is known: not in traces without addresses, or without memory.
    pub peak_is_known: bool,
}

impl CallTree {
    /// The tree of a trace.
    pub fn compute(trace: &Trace, options: &CallTreeOptions) -> Self {
        let (tree, owners, memory) = (OpTree::build(trace), Owners::build(trace), Allocations::build(trace));
        let costs = OwnCosts::of(trace, &tree, &owners, &memory, options.device);
        let mut nodes = Self {
            paths: Paths::default(),
            count: vec![0],
            own: vec![Costs::default()],
            total: Vec::new(),
            peak_is_known: !memory.devices().is_empty() && memory.devices().iter().all(|m| m.is_paired()),
        };
        nodes.add_calls(trace, &tree, &costs, options.raw);
        if costs.outside != Costs::default() {
            let node = nodes.paths.child(Paths::ROOT, Label::Outside);
            nodes.add(node, costs.outside);
        }
        nodes.sum();
        nodes
    }

    fn add_calls(&mut self, trace: &Trace, tree: &OpTree, costs: &OwnCosts, raw: bool) {
        let ops = trace.ops();
        let labels = labels(trace);
        let mut node_of = vec![Paths::ROOT; ops.len()];
        for i in (0..ops.len()).filter(|i| tree.is_call(*i)) {
            let parent = tree.parent(i).map_or(Paths::ROOT, |p| node_of[p]);
            let name = ops.name()[i];
            let step = ops.kind()[i] == OpKind::Annotation && labels[name.index()] == Label::Step;
            let label = match step {
                // Calls of their own keep the number of their step.
                true if !raw => Label::Step,
                _ => Label::Name(name),
            };
            node_of[i] = if raw { self.paths.fresh(parent, label) } else { self.paths.child(parent, label) };
            self.add(node_of[i], costs.of_op[i]);
        }
    }

    fn add(&mut self, node: u32, own: Costs) {
        let len = self.paths.len();
        self.count.resize(len, 0);
        self.own.resize(len, Costs::default());
        self.count[node as usize] += 1;
        self.own[node as usize] += own;
    }

    fn sum(&mut self) {
        self.total = self.own.clone();
        for node in (1..self.total.len()).rev() {
            let total = self.total[node];
            self.total[self.paths.parent(node as u32) as usize] += total;
        }
    }

    /// The way from nodes to their children.
    pub fn children(&self) -> NodeChildren {
        let len = self.paths.len();
        let mut offsets = vec![0u32; len + 1];
        for node in 1..len as u32 {
            offsets[self.paths.parent(node) as usize + 1] += 1;
        }
        for i in 0..len {
            offsets[i + 1] += offsets[i];
        }
        let (mut next, mut list) = (offsets.clone(), vec![0; len - 1]);
        for node in 1..len as u32 {
            let place = &mut next[self.paths.parent(node) as usize];
            list[*place as usize] = node;
            *place += 1;
        }
        NodeChildren { offsets, list }
    }
}

/// The children of each node; see [`CallTree::children`].
#[derive(Clone, Debug)]
pub struct NodeChildren {
    offsets: Vec<u32>,
    list: Vec<u32>,
}

impl NodeChildren {
    /// The nodes directly below `node`, in the order of their first calls.
    pub fn of(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.list[self.offsets[node] as usize..self.offsets[node + 1] as usize]
    }
}

/// For each string the label that an annotation of that name has.
pub(crate) fn labels(trace: &Trace) -> Vec<Label> {
    let label = |(id, name)| if is_step(name) { Label::Step } else { Label::Name(id) };
    (0..).map(StrId).zip(trace.strings().iter()).map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;
    use crate::units::{Bytes, Nanos};
    use proptest::prelude::*;

    fn compute(trace: &Trace, raw: bool) -> CallTree {
        CallTree::compute(trace, &CallTreeOptions { raw, device: None })
    }

    /// Each node as `depth name: calls, time with and without children, allocated with and without, live`.
    fn lines(trace: &Trace, tree: &CallTree) -> Vec<String> {
        let line = |node: u32| {
            let (own, total, at) = (tree.own[node as usize], tree.total[node as usize], node as usize);
            format!(
                "{} {}: {}, {} {}, {} {}, {}",
                tree.paths.depth(node),
                tree.paths.label(node).text(trace),
                tree.count[at],
                total.cpu_time,
                own.cpu_time,
                total.allocated,
                own.allocated,
                total.peak_live
            )
        };
        (1..tree.paths.len() as u32).map(line).collect()
    }

    /// [ProfilerStep#1 [linear [addmm +8]]]  [ProfilerStep#2 [linear [addmm +16]]]   +4 outside
    fn two_steps() -> Trace {
        let mut b = Build::default();
        for (step, at, bytes) in [(1, 0, 8), (2, 100, 16)] {
            b.span(span(&format!("ProfilerStep#{step}"), at, at + 90));
            b.span(span("aten::linear", at + 10, at + 60));
            b.span(span("aten::addmm", at + 20, at + 50));
            b.alloc(at + 30, at as u64 + 1, bytes);
        }
        b.alloc(195, 7, 4);
        b.finish()
    }

    #[test]
    fn calls_of_one_path_are_one_node_and_steps_are_all_the_same() {
        let trace = two_steps();
        let tree = compute(&trace, false);
        assert_eq!(
            lines(&trace, &tree),
            [
                "1 ProfilerStep*: 2, 180 80, 24 0, 24",
                "2 aten::linear: 2, 100 40, 24 0, 24",
                "3 aten::addmm: 2, 60 60, 24 24, 24",
                "1 (outside any op): 1, 0 0, 4 4, 4",
            ]
        );
        assert_eq!(tree.total[0].device_memory, Bytes(28));
    }

    #[test]
    fn raw_calls_are_nodes_of_their_own() {
        let trace = two_steps();
        let tree = compute(&trace, true);
        assert_eq!(lines(&trace, &tree)[3], "1 ProfilerStep#2: 1, 90 40, 16 0, 16");
        assert_eq!(tree.total[0], compute(&trace, false).total[0]);
        assert_eq!(tree.children().of(Paths::ROOT), [1, 4, 7]);
    }

    #[test]
    fn memory_of_what_pytorch_leaves_out_counts_for_the_call_around_it() {
        // [aten::mm [aten::is_leaf +8]]
        let mut b = Build::default();
        b.span(span("aten::mm", 0, 50));
        b.span(span("aten::is_leaf", 10, 40));
        b.alloc(20, 1, 8);
        let trace = b.finish();
        assert_eq!(lines(&trace, &compute(&trace, false)), ["1 aten::mm: 1, 50 50, 8 8, 8"]);
    }

    proptest! {
        #[test]
        fn the_roots_sum_to_all_that_is_allocated_and_live(
            spans in proptest::collection::vec((0usize..5, 0i64..60, 0i64..40, 1u8..3), 0..30),
            sizes in proptest::collection::vec((1i64..100, any::<bool>()), 1..30),
        ) {
            let names = ["ProfilerStep#1", "aten::is_leaf", "aten::empty", "aten::mm", "user: x"];
            let mut b = Build::default();
            b.before(50);
            for (name, start, duration, tid) in &spans {
                b.span(span(names[*name], *start, start + duration).on(&tid.to_string()));
            }
            let mut live: Vec<(u64, i64)> = Vec::new();
            for (i, (bytes, free)) in sizes.iter().enumerate() {
                match live.pop().filter(|_| *free) {
                    Some((address, bytes)) => b.alloc(3 * i as i64, address, -bytes),
                    None => {
                        live.push((i as u64 + 1, *bytes));
                        b.alloc(3 * i as i64, i as u64 + 1, *bytes);
                    }
                }
            }
            let trace = b.finish();
            let memory = Allocations::build(&trace);
            let m = &memory.devices()[0];
            let peak = m.peak().unwrap() + 1;
            for raw in [false, true] {
                let total = compute(&trace, raw).total[0];
                prop_assert_eq!(total.allocated, m.allocated_in(0, m.len()).0);
                prop_assert_eq!(Some(m.allocated_at(peak) - total.peak_live), m.before_trace_at(peak));
                prop_assert!(total.cpu_time >= Nanos::ZERO);
            }
        }
    }
}
