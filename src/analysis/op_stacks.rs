//! The Python stack of each operator: the frames that enclose its start on its thread, innermost first.
//!
//! Traces of torch 1.9 and before carry the stack in the operator itself (`Call stack`); that is used where it is there.
//! Backward operators mostly run on a thread without Python: these have the stack of the forward operator that they
//! belong to, as PyTorch gives it to them.

use super::tree::{OpTree, Role};
use crate::trace::{DetailId, StrId, Trace};
use crate::units::Nanos;
use hashbrown::HashMap;

/// The innermost frames of each operator, each distinct stack once.
#[derive(Debug, Default)]
pub(crate) struct OpStacks {
    of_op: Vec<u32>,
    stacks: Vec<Stack>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stack {
    /// Names of frames, innermost first.
    Frames(Vec<StrId>),
    /// The first frames of a `Call stack`, as text.
    Text(Vec<String>),
}

impl OpStacks {
    /// No frame known, or none asked for.
    pub(crate) const NONE: u32 = 0;

    /// The innermost `n` frames of each operator of the tree.
    pub(crate) fn new(trace: &Trace, tree: &OpTree, n: usize) -> Self {
        let mut all = Self { of_op: Vec::new(), stacks: vec![Stack::Frames(Vec::new())] };
        if n > 0 {
            let mut places: HashMap<Stack, u32> = HashMap::new();
            places.insert(all.stacks[0].clone(), Self::NONE);
            let mut place = |stack: Stack| {
                let stacks = &mut all.stacks;
                *places.entry(stack).or_insert_with_key(|stack| {
                    stacks.push(stack.clone());
                    (stacks.len() - 1) as u32
                })
            };
            let recorded = recorded_stacks(trace, n, &mut place);
            let mut frames = OpenFrames::new(trace, n);
            let ops = trace.ops();
            for i in 0..ops.len() {
                all.of_op.push(match recorded[ops.detail()[i].index()] {
                    _ if tree.role(i) == Role::LeftOut => Self::NONE,
                    Self::NONE => frames.at(tree.thread(i).index(), ops.start()[i], &mut place),
                    known => known,
                });
            }
            all.lend_to_backward(trace, tree);
        }
        all
    }

    /// Gives operators without a stack, in or under a backward one, that of the forward operator.
    fn lend_to_backward(&mut self, trace: &Trace, tree: &OpTree) {
        let ops = trace.ops();
        let process = |i: usize| trace.thread(ops.thread()[i]).process;
        let mut forward: HashMap<(StrId, i64), u32> = HashMap::new();
        for (i, stack) in self.of_op.iter().enumerate() {
            if *stack != Self::NONE && ops.sequence()[i] >= 0 && ops.forward_thread()[i] == 0 {
                // Operators without a gradient show the number that the next one with a gradient takes: the last
                // one to show it took it.
                forward.insert((process(i), ops.sequence()[i]), *stack);
            }
        }
        let mut backward: Vec<Option<u32>> = vec![None; ops.len()];
        for i in 0..ops.len() {
            let is_backward = ops.forward_thread()[i] != 0 && ops.sequence()[i] >= 0;
            backward[i] = if is_backward { Some(i as u32) } else { tree.enclosing(i).and_then(|up| backward[up]) };
            if self.of_op[i] == Self::NONE
                && let Some(root) = backward[i]
            {
                let lent = forward.get(&(process(i), ops.sequence()[root as usize]));
                self.of_op[i] = lent.copied().unwrap_or(Self::NONE);
            }
        }
    }

    /// The number of the stack of row `i`.
    pub(crate) fn of(&self, i: usize) -> u32 {
        self.of_op.get(i).copied().unwrap_or(Self::NONE)
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames(&self, trace: &Trace, stack: u32) -> Vec<String> {
        match &self.stacks[stack as usize] {
            Stack::Frames(names) => names.iter().map(|name| trace.str(*name).to_owned()).collect(),
            Stack::Text(frames) => frames.clone(),
        }
    }
}

/// The stack that each detail carries itself.
fn recorded_stacks(trace: &Trace, n: usize, place: &mut impl FnMut(Stack) -> u32) -> Vec<u32> {
    let stack = |i: usize| match trace.str(trace.details()[i].call_stack) {
        "" => OpStacks::NONE,
        text => place(Stack::Text(
            text.split(';').map(str::trim).filter(|f| !f.is_empty()).take(n).map(str::to_owned).collect(),
        )),
    };
    (DetailId::NONE.index()..trace.details().len()).map(stack).collect()
}

/// The frames open on each thread while time goes on.
struct OpenFrames<'t> {
    trace: &'t Trace,
    n: usize,
    next: usize,
    open: Vec<Vec<u32>>,
    /// The stack of each frame's callees, once asked for.
    known: HashMap<u32, u32>,
}

impl<'t> OpenFrames<'t> {
    fn new(trace: &'t Trace, n: usize) -> Self {
        Self { trace, n, next: 0, open: vec![Vec::new(); trace.threads().len()], known: HashMap::new() }
    }

    /// The stack at `time` on a thread. Calls come in the order of time.
    fn at(&mut self, thread: usize, time: Nanos, place: &mut impl FnMut(Stack) -> u32) -> u32 {
        let frames = self.trace.frames();
        while frames.start().get(self.next).is_some_and(|start| *start <= time) {
            let (start, end) = (frames.start()[self.next], frames.end(self.next));
            let open = &mut self.open[frames.thread()[self.next].index()];
            // As operators do, a frame nests in those that it does not outlast.
            while open.last().is_some_and(|top| frames.end(*top as usize) <= start || frames.end(*top as usize) < end) {
                open.pop();
            }
            open.push(self.next as u32);
            self.next += 1;
        }
        let open = &mut self.open[thread];
        while open.last().is_some_and(|top| frames.end(*top as usize) <= time) {
            open.pop();
        }
        let Some(innermost) = open.last() else { return OpStacks::NONE };
        *self.known.entry(*innermost).or_insert_with(|| {
            let names = open.iter().rev().take(self.n).map(|frame| frames.name()[*frame as usize]);
            place(Stack::Frames(names.collect()))
        })
    }
}
