//! Flame graphs: where time or memory goes, by step, module, Python frame and operator.
//!
//! A path starts with the step that it ran in, on whatever thread, and goes on through modules, frames, annotations and
//! operators as they nest in time. What a backward operator costs stands below the frames of its forward operator, since
//! autograd's threads run none. In a snapshot, frames are those that the allocator recorded; where none of them is shown,
//! as on autograd's threads, the operator that a native frame names, if any. Values are without what is below, so they sum
//! to the whole.

use super::allocations::{Allocations, DeviceMemory};
use super::call_tree::labels;
use super::context::{FrameName, is_user_frame};
use super::op_allocations::counted_devices;
use super::op_costs::{Costs, OwnCosts, call_of};
use super::owners::{AttributeTo, Owners};
use super::paths::{Label, Paths};
use super::spans::NONE;
use super::stack_owners::{NO_PYTHON, NO_STACK, Owner, StackOwners};
use super::step_spans::StepSpans;
use super::tree::OpTree;
use crate::trace::{Device, FrameKind, OpKind, StackId, StrId, Trace};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use serde::Serialize;
use std::borrow::Cow;
use std::str::FromStr;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub enum Metric {
    /// Bytes live at the device's peak.
    LiveAtPeak,
    /// Gross bytes allocated.
    Allocated,
    /// The number of allocations.
    Allocations,
    /// A cost of calls.
    Cost(fn(&Costs) -> i64),
}

/// Which Python frames are on the paths, besides modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PythonFrames {
    /// None; in a snapshot, where nothing else tells paths apart, those of the user's own code.
    #[default]
    None,
    /// Those of the user's own code.
    User,
    /// All.
    All,
}

impl PythonFrames {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::User, Self::All];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::User => "user",
            Self::All => "all",
        }
    }
}

impl FromStr for PythonFrames {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|f| f.name() == word);
        found.ok_or_else(|| format!("expected none, user or all, found {word:?}"))
    }
}

/// What to show.
#[derive(Clone, Debug)]
pub struct FlameOptions {
    /// What to measure.
    pub metric: Metric,
    /// Which Python frames are on the paths.
    pub python: PythonFrames,
    /// What they are told apart by.
    pub frames: FrameName,
    /// Only this device, else all accelerators, or the host in a trace without any.
    pub device: Option<Device>,
}

/// Paths and what each measures, without what is below it. It can be negative.
#[derive(Clone, Debug)]
pub struct Flame {
    /// The nodes.
    pub paths: Paths,
    /// By node.
    pub own: Vec<i64>,
}

impl Flame {
    /// The flame graph of a trace.
    pub fn compute(trace: &Trace, options: &FlameOptions) -> Self {
        let (tree, owners, memory) = (OpTree::build(trace), Owners::build(trace), Allocations::build(trace));
        let mut builder = FlameBuilder::new(trace, &tree, &owners, options);
        builder.add_calls();
        match options.metric {
            Metric::Cost(cost) => {
                let costs = OwnCosts::of(trace, &tree, &owners, &memory, options.device);
                for (i, own) in costs.of_op.iter().enumerate() {
                    builder.add(builder.node_of_op[i], cost(own));
                }
                let outside = builder.paths.child(Paths::ROOT, Label::Outside);
                builder.add(outside, cost(&costs.outside));
            }
            Metric::LiveAtPeak | Metric::Allocated | Metric::Allocations => {
                for m in counted_devices(&memory, options.device) {
                    for (event, bytes) in measured(m, options.metric) {
                        let node = builder.node_of_event(m.events()[event] as usize);
                        builder.add(node, bytes);
                    }
                }
            }
        }
        let len = builder.paths.len();
        builder.own.resize(len, 0);
        Self { paths: builder.paths, own: builder.own }
    }
}

/// The allocations of a device that count, and how much each.
fn measured(m: &DeviceMemory, metric: Metric) -> Vec<(usize, i64)> {
    if matches!(metric, Metric::LiveAtPeak) {
        let peak = m.peak().map_or(0, |event| event + 1);
        return m.live_blocks(peak).map(|i| (m.blocks()[i].allocated(), m.blocks()[i].bytes.0)).collect();
    }
    let value = |b: Bytes| if matches!(metric, Metric::Allocations) { 1 } else { b.0 };
    m.change().iter().enumerate().filter(|(_, b)| b.0 > 0).map(|(event, b)| (event, value(*b))).collect()
}

struct FlameBuilder<'t> {
    trace: &'t Trace,
    tree: &'t OpTree,
    owners: &'t Owners<'t>,
    paths: Paths,
    own: Vec<i64>,
    node_of_op: Vec<u32>,
    frames: FramesAround,
    shown: ShownFrames<'t>,
    /// Whether the allocator itself recorded who allocated, as in a snapshot.
    recorded: bool,
    stack_owners: Option<StackOwners>,
    /// For each frame the node that it was last put below, and the node of it there.
    below: Vec<(u32, u32)>,
    /// The same for the recorded stacks below each node.
    below_stack: HashMap<(u32, StackId), u32>,
    /// The steps' spans and the memory events in them, once asked for.
    step_of_event: Option<Vec<bool>>,
}

impl<'t> FlameBuilder<'t> {
    fn new(trace: &'t Trace, tree: &'t OpTree, owners: &'t Owners<'t>, options: &FlameOptions) -> Self {
        Self {
            trace,
            tree,
            owners,
            paths: Paths::default(),
            own: Vec::new(),
            node_of_op: vec![Paths::ROOT; tree.len()],
            frames: FramesAround::of_ops(trace, tree),
            shown: ShownFrames::new(trace, options),
            recorded: trace.snapshot().is_some() || trace.has_stacks(),
            stack_owners: None,
            below: vec![(NONE, NONE); trace.frames().len()],
            below_stack: HashMap::new(),
            step_of_event: None,
        }
    }

    fn add(&mut self, node: u32, value: i64) {
        if value != 0 {
            self.own.resize(self.paths.len().max(self.own.len()), 0);
            let own = &mut self.own[node as usize];
            *own = own.saturating_add(value);
        }
    }

    /// The node of each call.
    fn add_calls(&mut self) {
        let (trace, tree, ops) = (self.trace, self.tree, self.trace.ops());
        let labels = labels(trace);
        let is_step = |i: usize| ops.kind()[i] == OpKind::Annotation && labels[ops.name()[i].index()] == Label::Step;
        let calls = || (0..ops.len()).filter(|i| tree.is_call(*i));
        let outermost: Vec<usize> = calls().filter(|i| tree.parent(*i).is_none()).collect();
        let starts: Vec<Nanos> = outermost.iter().map(|i| ops.start()[*i]).collect();
        let in_step = StepSpans::find(trace).place(starts.into_iter());
        let mut in_step = in_step.into_iter();
        for i in calls() {
            let parent = tree.parent(i);
            let starts_in_step = parent.is_none() && in_step.next().flatten().is_some();
            if is_step(i) {
                self.node_of_op[i] = self.paths.child(Paths::ROOT, Label::Step);
                continue;
            }
            let (mut node, stop) = match parent {
                Some(p) if is_step(p) => (self.node_of_op[p], NONE),
                Some(p) => (self.node_of_op[p], self.frames.of_op[p]),
                None if starts_in_step => (self.paths.child(Paths::ROOT, Label::Step), NONE),
                None => (Paths::ROOT, NONE),
            };
            if self.frames.of_op[i] == NONE && parent.is_none_or(is_step) {
                // Forward operators come first, so theirs are known.
                let forward = self.owners.forward(i).map_or(NONE, |f| self.frames.of_op[f]);
                self.frames.of_op[i] = forward;
            }
            node = self.below_frames(node, stop, self.frames.of_op[i]);
            self.node_of_op[i] = self.paths.child(node, Label::Name(ops.name()[i]));
        }
    }

    /// The node below `base` at the end of the frames from within frame `stop` to `frame`.
    fn below_frames(&mut self, base: u32, stop: u32, frame: u32) -> u32 {
        let mut missing = Vec::new();
        let mut at = frame;
        let mut node = base;
        while at != stop && at != NONE {
            let (from, known) = self.below[at as usize];
            if from == base {
                node = known;
                break;
            }
            missing.push(at);
            at = self.frames.around[at as usize];
        }
        for frame in missing.into_iter().rev() {
            if let Some(label) = self.shown.label(frame) {
                node = self.paths.frame(node, label);
            }
            self.below[frame as usize] = (base, node);
        }
        node
    }

    /// The node of what memory event `event` allocated.
    fn node_of_event(&mut self, event: usize) -> u32 {
        let stack = self.trace.memory().stack()[event];
        let level = if self.recorded { AttributeTo::Leaf } else { AttributeTo::Op };
        let owner = self.owners.owner(event, level).and_then(|op| call_of(self.tree, self.owners, op));
        let node = match owner {
            Some(call) => self.node_of_op[call],
            None if !self.recorded => self.paths.child(Paths::ROOT, Label::Outside),
            None if self.starts_in_step(event) => self.paths.child(Paths::ROOT, Label::Step),
            None => Paths::ROOT,
        };
        if self.recorded { self.below_stack(node, stack) } else { node }
    }

    /// The node below `base` at the end of a recorded stack.
    fn below_stack(&mut self, base: u32, stack: StackId) -> u32 {
        if let Some(known) = self.below_stack.get(&(base, stack)) {
            return *known;
        }
        let nodes = std::iter::successors(Some(stack), |at| Some(self.trace.stacks()[at.index()].parent));
        let frames: Vec<StrId> =
            nodes.take_while(|at| *at != StackId::NONE).map(|at| self.trace.stacks()[at.index()].frame).collect();
        let mut node = base;
        for name in frames.into_iter().rev() {
            if let Some(label) = self.shown.recorded(name) {
                node = self.paths.frame(node, label);
            }
        }
        if node == base {
            let trace = self.trace;
            let owner = self.stack_owners.get_or_insert_with(|| StackOwners::build(trace)).of(stack);
            let label = match owner {
                Owner::Python(frame) => self.shown.named(frame),
                Owner::Operator(frame) => Label::Operator(self.shown.first(frame, owner.name(trace))),
                // The annotation around it is all that is known.
                Owner::NoStack if base != Paths::ROOT => return base,
                Owner::NoStack => Label::Without(NO_STACK),
                Owner::Unknown => Label::Without(NO_PYTHON),
            };
            node = self.paths.child(base, label);
        }
        self.below_stack.insert((base, stack), node);
        node
    }

    fn starts_in_step(&mut self, event: usize) -> bool {
        let trace = self.trace;
        self.step_of_event.get_or_insert_with(|| {
            let placed = StepSpans::find(trace).place(trace.memory().time().iter().copied());
            placed.iter().map(Option::is_some).collect()
        })[event]
    }
}

/// Which frames are on the paths, and what they are called.
struct ShownFrames<'t> {
    trace: &'t Trace,
    python: PythonFrames,
    frames: FrameName,
    is_user: Vec<Option<bool>>,
    /// The first frame of each name: one label stands for all of them.
    first: HashMap<Cow<'t, str>, StrId>,
}

impl<'t> ShownFrames<'t> {
    fn new(trace: &'t Trace, options: &FlameOptions) -> Self {
        let is_user = vec![None; trace.strings().len()];
        Self { trace, python: options.python, frames: options.frames, is_user, first: HashMap::new() }
    }

    fn label(&mut self, frame: u32) -> Option<Label> {
        let frames = self.trace.frames();
        let name = frames.name()[frame as usize];
        match (frames.kind()[frame as usize], self.python) {
            (FrameKind::Module, _) => Some(Label::Module(name)),
            (FrameKind::Function, PythonFrames::None) => None,
            (FrameKind::Function, PythonFrames::All) => Some(self.named(name)),
            (FrameKind::Function, PythonFrames::User) => self.is_user(name).then(|| self.named(name)),
        }
    }

    fn recorded(&mut self, name: StrId) -> Option<Label> {
        (self.python == PythonFrames::All || self.is_user(name)).then(|| self.named(name))
    }

    /// The label of a frame that is shown.
    fn named(&mut self, frame: StrId) -> Label {
        match self.frames {
            FrameName::Line => Label::Name(frame),
            what => Label::Frame(self.first(frame, what.of(self.trace.str(frame))), what),
        }
    }

    fn first(&mut self, frame: StrId, name: Cow<'t, str>) -> StrId {
        *self.first.entry(name).or_insert(frame)
    }

    fn is_user(&mut self, name: StrId) -> bool {
        let trace = self.trace;
        *self.is_user[name.index()].get_or_insert_with(|| is_user_frame(trace.str(name)))
    }
}

/// The frames around calls and frames, from start to end.
struct FramesAround {
    /// For each row of [`Trace::ops`] the innermost frame that is around all of it.
    of_op: Vec<u32>,
    /// For each frame the one around it.
    around: Vec<u32>,
}

impl FramesAround {
    fn of_ops(trace: &Trace, tree: &OpTree) -> Self {
        let (ops, frames) = (trace.ops(), trace.frames());
        let mut found = Self { of_op: vec![NONE; ops.len()], around: vec![NONE; frames.len()] };
        if frames.is_empty() {
            return found;
        }
        // Ends never rise from the bottom to the top of a stack.
        let mut open: Vec<Vec<u32>> = vec![Vec::new(); trace.threads().len()];
        let end = |frame: &u32| frames.end(*frame as usize);
        let mut next = 0;
        for i in 0..ops.len() {
            while frames.start().get(next).is_some_and(|start| *start <= ops.start()[i]) {
                let stack = &mut open[frames.thread()[next].index()];
                while stack.pop_if(|top| end(top) < frames.end(next)).is_some() {}
                found.around[next] = stack.last().copied().unwrap_or(NONE);
                stack.push(next as u32);
                next += 1;
            }
            let stack = &mut open[tree.thread(i).index()];
            while stack.pop_if(|top| end(top) < ops.start()[i]).is_some() {}
            let longer = stack.partition_point(|frame| end(frame) >= ops.end(i));
            found.of_op[i] = longer.checked_sub(1).map_or(NONE, |top| stack[top]);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;
    use crate::trace::{MemoryEvent, TraceBuilder};

    /// Every path with a value, as `a;b value`, sorted.
    fn stacks(trace: &Trace, metric: Metric, python: PythonFrames) -> Vec<String> {
        let flame = Flame::compute(trace, &FlameOptions { metric, python, frames: FrameName::default(), device: None });
        let text = |node: u32| flame.paths.label(node).text(trace).into_owned();
        let path = |node: u32| flame.paths.path(node).into_iter().map(text).collect::<Vec<_>>().join(";");
        let valued = (0..flame.paths.len() as u32).filter(|n| flame.own[*n as usize] != 0);
        let mut stacks: Vec<String> = valued.map(|n| format!("{} {}", path(n), flame.own[n as usize])).collect();
        stacks.sort();
        stacks
    }

    /// main:     [train.py(3): main [torch/x.py(1): y                                     ]]
    ///             [ProfilerStep#1                                                       ]
    ///               [nn.Module: GPT_0 [train.py(9): forward [aten::linear 7 [aten::empty]]]]
    /// autograd:                                               [MmBackward0 7 [aten::mm]]
    fn step() -> Trace {
        let mut b = Build::default();
        b.frame("train.py(3): main", "1", 0, 100);
        b.frame("torch/x.py(1): y", "1", 1, 99);
        b.span(span("ProfilerStep#1", 2, 95));
        b.frame("nn.Module: GPT_0", "1", 10, 50);
        b.frame("train.py(9): forward", "1", 11, 49);
        b.span(span("aten::linear", 12, 40).sequence(7));
        b.span(span("aten::empty", 20, 30));
        b.span(span("evaluate: MmBackward0", 60, 80).on("2").backward(7, 1));
        b.span(span("aten::mm", 62, 78).on("2"));
        b.alloc(25, 1, 8);
        b.alloc_on("2", 70, 2, 16);
        b.alloc(97, 3, 4);
        b.alloc(98, 4, -2);
        b.finish()
    }

    #[test]
    fn paths_go_from_the_step_through_modules_to_operators_and_backward_stands_with_its_forward() {
        assert_eq!(
            stacks(&step(), Metric::Allocated, PythonFrames::None),
            [
                "(outside any op) 4",
                "ProfilerStep*;GPT_0;aten::linear 8",
                "ProfilerStep*;GPT_0;evaluate: MmBackward0;aten::mm 16",
            ]
        );
    }

    #[test]
    fn python_frames_stand_between_as_they_nest() {
        let user = stacks(&step(), Metric::LiveAtPeak, PythonFrames::User);
        assert_eq!(user[1], "ProfilerStep*;train.py(3): main;GPT_0;train.py(9): forward;aten::linear 8");
        let all = stacks(&step(), Metric::LiveAtPeak, PythonFrames::All);
        assert_eq!(
            all[1],
            "ProfilerStep*;train.py(3): main;torch/x.py(1): y;GPT_0;train.py(9): forward;aten::linear 8"
        );
    }

    #[test]
    fn costs_are_without_what_is_inside() {
        assert_eq!(
            stacks(&step(), Metric::Cost(|c| c.cpu_time.0), PythonFrames::None),
            [
                "ProfilerStep* 65",
                "ProfilerStep*;GPT_0;aten::linear 18",
                "ProfilerStep*;GPT_0;aten::linear;aten::empty 10",
                "ProfilerStep*;GPT_0;evaluate: MmBackward0 4",
                "ProfilerStep*;GPT_0;evaluate: MmBackward0;aten::mm 16",
            ]
        );
    }

    /// A trace with an allocation of 8 bytes for each stack, frames from the outermost.
    fn recorded(all: &[&[&str]]) -> Trace {
        let mut b = TraceBuilder::new();
        let (device, thread) = (b.device(Device::cuda(0)), b.thread("1", "1"));
        for (i, frames) in all.iter().enumerate() {
            let stack = frames.iter().fold(StackId::NONE, |stack, frame| {
                let frame = b.intern(frame);
                b.stack(stack, frame)
            });
            b.push_memory(MemoryEvent {
                time: Nanos(i as i64),
                bytes: Bytes(8),
                device,
                thread,
                address: i as u64 + 1,
                total_allocated: Bytes(8 * (i as i64 + 1)),
                total_reserved: Bytes(100),
                stack,
            });
        }
        b.finish()
    }

    #[test]
    fn recorded_stacks_are_paths_of_the_users_own_frames() {
        let stack: &[&str] = &["train.py(3): main", "/lib/python3/torch/x.py(1): y", "train.py(9): forward"];
        assert_eq!(
            stacks(&recorded(&[stack, &[]]), Metric::LiveAtPeak, PythonFrames::None),
            ["(no Python frames) 8", "train.py(3): main;train.py(9): forward 8"]
        );
        assert_eq!(
            stacks(&recorded(&[stack, &[]]), Metric::Allocations, PythonFrames::None)[0],
            "(no Python frames) 1"
        );
    }

    #[test]
    fn a_thread_without_python_is_the_operator_that_its_native_frames_name() {
        let trace = recorded(&[
            &["train.py(3): main"],
            &["__clone", "at::_ops::mm::call(x)"],
            &["__clone", "at::_ops::mm::redispatch(x)"],
            &["__clone", "malloc()"],
        ]);
        assert_eq!(
            stacks(&trace, Metric::LiveAtPeak, PythonFrames::None),
            ["(no Python frames) 8", "aten::mm 16", "train.py(3): main 8"]
        );
    }

    #[test]
    fn frames_merge_by_function_or_by_file() {
        let trace = recorded(&[
            &["train.py(3): main", "model.py(5): forward", "model.py(9): attend"],
            &["train.py(4): main", "model.py(6): forward", "model.py(9): attend"],
        ]);
        let merged = |frames| {
            let options = FlameOptions { metric: Metric::Allocated, python: PythonFrames::User, frames, device: None };
            let flame = Flame::compute(&trace, &options);
            let text = |node: u32| flame.paths.label(node).text(&trace).into_owned();
            (1..flame.paths.len() as u32).map(|n| (text(n), flame.own[n as usize])).collect::<Vec<_>>()
        };
        let own =
            |names: &[(&str, i64)]| names.iter().map(|(name, own)| ((*name).to_owned(), *own)).collect::<Vec<_>>();
        assert_eq!(
            merged(FrameName::Function),
            own(&[("train.py: main", 0), ("model.py: forward", 0), ("model.py: attend", 16)])
        );
        assert_eq!(merged(FrameName::File), own(&[("train.py", 0), ("model.py", 16)]));
    }
}
