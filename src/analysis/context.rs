//! Where an allocation stands besides its operators: step, phase, annotation, module, Python frames.
//!
//! Each is a column filled once for all, at the first question. What a backward operator allocates stands in the module
//! and the frames of its forward operator, because autograd's threads run neither.

use super::owners::{AttributeTo, Owners, row};
use super::spans::{NONE, Spans};
use super::step_spans::StepSpans;
use super::tree::is_step;
use crate::trace::{FrameKind, Frames, OpKind, StackId, StrId, Trace};
use hashbrown::HashMap;
use serde::Serialize;
use std::borrow::Cow;
use std::str::FromStr;
use std::sync::OnceLock;

/// The part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// In an operator or annotation that is none of the others; in a trace with steps, within one.
    Forward,
    /// In an operator of the autograd engine, or in an annotation named `backward`.
    Backward,
    /// In `Optimizer.step#...` or `Optimizer.zero_grad#...`, or in an annotation named `optimizer`.
    Optimizer,
    /// Outside any operator, or outside the steps.
    Other,
}

impl Phase {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }
}

/// The surroundings of all memory events of a trace.
#[derive(Debug)]
pub struct Context<'t> {
    trace: &'t Trace,
    steps: StepSpans,
    step: OnceLock<Vec<Option<usize>>>,
    phase: OnceLock<Vec<Phase>>,
    annotation: OnceLock<Vec<u32>>,
    frames: OnceLock<FramePaths>,
    frame_of_op: OnceLock<Vec<u32>>,
}

impl<'t> Context<'t> {
    /// The surroundings in a trace with these steps.
    pub fn new(trace: &'t Trace, steps: StepSpans) -> Self {
        Self {
            trace,
            steps,
            step: OnceLock::new(),
            phase: OnceLock::new(),
            annotation: OnceLock::new(),
            frames: OnceLock::new(),
            frame_of_op: OnceLock::new(),
        }
    }

    /// The steps.
    pub fn steps(&self) -> &StepSpans {
        &self.steps
    }

    /// The step that holds memory event `event`, as an index into [`StepSpans::steps`].
    pub fn step(&self, event: usize) -> Option<usize> {
        self.step.get_or_init(|| self.steps.place(self.trace.memory().time().iter().copied()))[event]
    }

    /// The phase that memory event `event` happened in.
    pub fn phase(&self, owners: &Owners<'_>, event: usize) -> Phase {
        let Some(op) = owners.owner(event, AttributeTo::Leaf) else { return Phase::Other };
        match self.phase.get_or_init(|| phases(owners))[op] {
            Phase::Forward if !self.steps.steps().is_empty() && self.step(event).is_none() => Phase::Other,
            phase => phase,
        }
    }

    /// The row of the innermost annotation around memory event `event`, steps left out.
    pub fn annotation(&self, owners: &Owners<'_>, event: usize) -> Option<usize> {
        let op = owners.owner(event, AttributeTo::Leaf)?;
        row(self.annotation.get_or_init(|| annotations(owners))[op])
    }

    /// The path of modules around memory event `event`, such as `GPT_0/Block_1/Attn_1`; `None` outside any.
    pub fn module(&self, owners: &Owners<'_>, event: usize) -> Option<PathId> {
        self.path(owners, event, |paths| &paths.module)
    }

    /// The frames of the user's own code around memory event `event`. `None` where the trace has none there.
    pub fn stack(&self, owners: &Owners<'_>, event: usize) -> Option<PathId> {
        self.path(owners, event, |paths| &paths.user)
    }

    /// The text of a path of modules, outermost first.
    pub fn module_text(&self, path: PathId) -> String {
        let mut parts: Vec<&str> = self.names(path).map(|n| n.strip_prefix("nn.Module: ").unwrap_or(n)).collect();
        parts.reverse();
        parts.join("/")
    }

    /// The names on a path, innermost first.
    pub fn names(&self, path: PathId) -> impl Iterator<Item = &'t str> + '_ {
        let nodes = &self.paths().nodes;
        std::iter::successors(nodes.get(path.0 as usize), |node| nodes.get(node.0 as usize))
            .map(|node| self.trace.str(node.1))
    }

    fn paths(&self) -> &FramePaths {
        self.frames.get_or_init(|| FramePaths::build(self.trace))
    }

    fn path(&self, owners: &Owners<'_>, event: usize, of: impl Fn(&FramePaths) -> &Vec<u32>) -> Option<PathId> {
        if self.trace.frames().is_empty() {
            return None;
        }
        let paths = self.paths();
        let at_frame = |frame: usize| of(paths).get(frame).copied().filter(|p| *p != NONE).map(PathId);
        let here = row(paths.at_event[event]).and_then(at_frame);
        here.or_else(|| {
            let forward = owners.forward(owners.owner(event, AttributeTo::Leaf)?)?;
            at_frame(row(self.frame_of_op.get_or_init(|| frames_of_ops(self.trace))[forward])?)
        })
    }
}

/// A path of modules or frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u32);

/// Paths through the frames, shared where they are the same.
#[derive(Debug)]
struct FramePaths {
    /// For each memory event the innermost frame that holds it.
    at_event: Vec<u32>,
    /// For each frame the path of modules down to it, and that of frames of the user's own code.
    module: Vec<u32>,
    user: Vec<u32>,
    /// The node that a path goes on from, and the name that it adds.
    nodes: Vec<(u32, StrId)>,
}

impl FramePaths {
    fn build(trace: &Trace) -> Self {
        let (frames, memory) = (trace.frames(), trace.memory());
        let moments = memory.time().iter().copied().zip(memory.thread().iter().copied());
        let placed = Spans::from(frames).place(trace.threads().len(), |_| true, moments);
        let mut nodes = Nodes::default();
        let module = nodes.column(frames, &placed.around, |i| frames.kind()[i] == FrameKind::Module);
        let mut is_user: Vec<Option<bool>> = vec![None; trace.strings().len()];
        let user = nodes.column(frames, &placed.around, |i| {
            let name = frames.name()[i];
            *is_user[name.index()].get_or_insert_with(|| is_user_frame(trace.str(name)))
        });
        Self { at_event: placed.at, module, user, nodes: nodes.list }
    }
}

#[derive(Default)]
struct Nodes {
    list: Vec<(u32, StrId)>,
    known: HashMap<(u32, StrId), u32>,
}

impl Nodes {
    /// For each frame the path of the frames down to it that `counts` picks.
    fn column(&mut self, frames: &Frames, around: &[u32], mut counts: impl FnMut(usize) -> bool) -> Vec<u32> {
        let mut column: Vec<u32> = Vec::with_capacity(around.len());
        for (i, outer) in around.iter().enumerate() {
            let outer = column.get(*outer as usize).copied().unwrap_or(NONE);
            column.push(if counts(i) { self.node(outer, frames.name()[i]) } else { outer });
        }
        column
    }

    fn node(&mut self, outer: u32, name: StrId) -> u32 {
        let list = &mut self.list;
        *self.known.entry((outer, name)).or_insert_with(|| {
            list.push((outer, name));
            list.len() as u32 - 1
        })
    }
}

/// Whether a frame is of the user's own code: neither a built-in, nor a module's call, nor of PyTorch or the interpreter,
/// nor native.
pub(crate) fn is_user_frame(name: &str) -> bool {
    let inside = ["/torch/", "/site-packages/", "/dist-packages/", "/lib/python", "\\torch\\", "\\site-packages\\"];
    !name.starts_with('<')
        && !name.starts_with("nn.Module: ")
        && !name.starts_with("torch/")
        && !name.starts_with("torch\\")
        && !inside.iter().any(|part| name.contains(part))
        && !is_native(name)
}

/// How much of a Python frame, `file.py(12): function`, tells it apart from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameName {
    /// All of it.
    #[default]
    Line,
    /// File and function.
    Function,
    /// The file.
    File,
}

impl FrameName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Line, Self::Function, Self::File];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Function => "function",
            Self::File => "file",
        }
    }

    /// What it is of this frame; all of one that is no Python frame.
    pub fn of(self, frame: &str) -> Cow<'_, str> {
        match (self, parse_frame(frame)) {
            (Self::Function, Some((file, _, function))) => format!("{file}: {function}").into(),
            (Self::File, Some((file, _, _))) => file.into(),
            _ => frame.into(),
        }
    }
}

impl FromStr for FrameName {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|f| f.name() == word);
        found.ok_or_else(|| format!("expected line, function or file, found {word:?}"))
    }
}

/// Whether a frame has a line of Python.
pub(crate) fn is_python_frame(name: &str) -> bool {
    !is_native(name) && !name.starts_with("nn.Module: ")
}

/// Whether a frame of Python is of an installed package other than PyTorch.
pub(crate) fn is_package_frame(name: &str) -> bool {
    let installed = ["/site-packages/", "/dist-packages/", "\\site-packages\\"];
    let torch = name.contains("/torch/") || name.contains("\\torch\\");
    !torch && installed.iter().any(|part| name.contains(part))
}

/// Whether a frame is of C++ or of a library without source, such as snapshots record with `stacks="all"`.
fn is_native(name: &str) -> bool {
    // Frames of Python have a line, those of libraries without source have none: `file.py(12): function`.
    if !name.contains("): ") {
        return true;
    }
    let file = name.split_once('(').map_or(name, |(file, _)| file);
    let endings = [".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".inc", ".so"];
    file.starts_with("??") || file.contains(".so.") || endings.iter().any(|ending| file.ends_with(ending))
}

/// The digits of the largest line number.
const MOST_DIGITS: usize = 20;

/// File, line and function of `file.py(12): function`.
pub(crate) fn parse_frame(name: &str) -> Option<(&str, u64, &str)> {
    name.match_indices("): ").find_map(|(close, _)| {
        let before = &name[..close];
        // No more digits than a line has are gone back over: in a name of nothing but brackets that would take for ever.
        let digits = before.bytes().rev().take(MOST_DIGITS).take_while(u8::is_ascii_digit).count();
        let (file, line) = before.split_at(close - digits);
        let file = file.strip_suffix('(').filter(|file| !file.is_empty())?;
        Some((file, line.parse().ok()?, &name[close + "): ".len()..]))
    })
}

/// For each operator the innermost frame that holds its start.
fn frames_of_ops(trace: &Trace) -> Vec<u32> {
    let ops = trace.ops();
    let moments = ops.start().iter().copied().zip(ops.thread().iter().copied());
    Spans::from(trace.frames()).place(trace.threads().len(), |_| true, moments).at
}

fn phases(owners: &Owners<'_>) -> Vec<Phase> {
    let ops = owners.trace().ops();
    let named = owners.by_name(|name| {
        let engine = name.starts_with("autograd::engine::") || name.starts_with("torch::autograd::");
        let node = name.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("Backward");
        (engine || node, name.starts_with("Optimizer."), annotated_phase(name))
    });
    owners.inherited(|i, outer| {
        let (backward, optimizer, annotated) = named.of(ops.name()[i]);
        let outer = outer.copied().unwrap_or(Phase::Forward);
        if ops.kind()[i] == OpKind::Annotation {
            if optimizer { Phase::Optimizer } else { annotated.unwrap_or(outer) }
        } else if backward || ops.forward_thread()[i] != 0 {
            Phase::Backward
        } else {
            outer
        }
    })
}

/// The phase that an annotation's name says in so many words, such as `## backward ##`.
fn annotated_phase(name: &str) -> Option<Phase> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    let mut phases = words.filter_map(|word| match word.to_ascii_lowercase().as_str() {
        "forward" => Some(Phase::Forward),
        "backward" => Some(Phase::Backward),
        "optimizer" => Some(Phase::Optimizer),
        _ => None,
    });
    phases.next().filter(|_| phases.next().is_none())
}

fn annotations(owners: &Owners<'_>) -> Vec<u32> {
    let ops = owners.trace().ops();
    let steps = owners.by_name(is_step);
    owners.inherited(|i, outer: Option<&u32>| {
        let own = ops.kind()[i] == OpKind::Annotation && !steps.of(ops.name()[i]);
        if own { i as u32 } else { outer.copied().unwrap_or(NONE) }
    })
}

/// The stack that the allocator or the operators around memory event `event` recorded, innermost frame first: a
/// snapshot's own, or the `Call stack` of an old trace.
pub fn recorded_stack<'t>(owners: &Owners<'t>, event: usize) -> Option<RecordedStack<'t>> {
    let trace = owners.trace();
    let own = trace.memory().stack()[event];
    if own != StackId::NONE {
        return Some(RecordedStack::Nodes(own));
    }
    let op = owners.owner(event, AttributeTo::Leaf)?;
    // Call stacks stand on few of the operators of old traces, whose nesting is shallow.
    owners.chain(op).take(64).find_map(|op| {
        let stack = trace.detail(trace.ops().detail()[op]).call_stack;
        (stack != StrId::EMPTY).then(|| RecordedStack::Text(trace.str(stack)))
    })
}

/// A stack as the input holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordedStack<'t> {
    /// Of a snapshot.
    Nodes(StackId),
    /// Frames joined by `;`, innermost first.
    Text(&'t str),
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;

    fn context(trace: &Trace) -> (Owners<'_>, Context<'_>) {
        (Owners::build(trace), Context::new(trace, StepSpans::find(trace)))
    }

    #[test]
    fn a_backward_operator_stands_in_the_module_and_the_frames_of_its_forward_one() {
        // main:     [train.py(3): step [nn.Module: GPT_0 [torch/nn/x.py [nn.Module: Linear_1 [aten::addmm 7]]]]]
        // autograd:                                                           [evaluate: AddmmBackward0 7]
        let mut b = Build::default();
        let frames = [
            "train.py(3): step",
            "nn.Module: GPT_0",
            "torch/nn/modules/module.py(1): _call_impl",
            "nn.Module: Linear_1",
        ];
        for (i, name) in frames.iter().enumerate() {
            b.frame(name, "1", i as i64, 60 - i as i64);
        }
        b.span(span("aten::addmm", 10, 20).sequence(7));
        b.span(span("evaluate: AddmmBackward0", 70, 80).on("2").backward(7, 1));
        b.alloc(15, 1, 8);
        b.alloc_on("2", 75, 2, 8);
        b.alloc_on("2", 85, 3, 8);
        let trace = b.finish();
        let (owners, context) = context(&trace);
        let module = |event| context.module(&owners, event).map(|p| context.module_text(p));
        assert_eq!([module(0), module(1)], [Some("GPT_0/Linear_1".into()), Some("GPT_0/Linear_1".into())]);
        assert_eq!(module(2), None);
        let stack = |event| context.stack(&owners, event).map(|p| context.names(p).collect::<Vec<_>>());
        assert_eq!([stack(0), stack(1)], [Some(vec!["train.py(3): step"]), Some(vec!["train.py(3): step"])]);
    }

    #[test]
    fn phases_follow_the_engine_the_optimizer_and_annotations_that_say_so() {
        // [step 4 [aten::mm] [user: backward [aten::ones]] [Optimizer.step#SGD.step [aten::zeros]]]     [aten::add]
        let mut b = Build::default();
        b.span(span("ProfilerStep#4", 0, 100));
        b.span(span("aten::mm", 1, 9));
        b.span(span("user: ## backward ##", 10, 29));
        b.span(span("aten::ones", 11, 19));
        b.span(span("Optimizer.step#SGD.step", 30, 49));
        b.span(span("aten::zeros", 31, 39));
        b.span(span("evaluate: MmBackward0", 40, 49).on("2").backward(1, 1));
        b.span(span("aten::add", 110, 119));
        for (at, tid) in [(5, "1"), (15, "1"), (35, "1"), (45, "2"), (60, "1"), (115, "1"), (130, "1")] {
            b.alloc_on(tid, at, at as u64, 8);
        }
        let trace = b.finish();
        let (owners, context) = context(&trace);
        let got: Vec<_> = (0..7).map(|event| context.phase(&owners, event).name()).collect();
        assert_eq!(got, ["forward", "backward", "optimizer", "backward", "forward", "other", "other"]);
        let annotation = |event| context.annotation(&owners, event).map(|op| owners.name(op));
        assert_eq!([annotation(0), annotation(1)], [None, Some("user: ## backward ##")]);
        assert_eq!((context.step(0), context.step(5)), (Some(0), None));
    }

    #[test]
    fn frames_are_file_line_and_function() {
        assert_eq!(
            parse_frame("/a (1)/b.py(12): f.<locals>.<lambda>"),
            Some(("/a (1)/b.py", 12, "f.<locals>.<lambda>"))
        );
        assert_eq!(parse_frame("b.py(3): f(x): y"), Some(("b.py", 3, "f(x): y")));
        for name in ["<built-in method mm>", "nn.Module: A_0", "(1): f", "a.py(): f", "a.py(99999999999999999999): f"] {
            assert_eq!(parse_frame(name), None, "{name}");
        }
    }
}
