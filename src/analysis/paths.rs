//! Paths of calls, merged where they are the same: the nodes of call trees and flame graphs.

use super::context::FrameName;
use super::owners::OUTSIDE;
use super::stack_owners::Owner;
use crate::trace::{StrId, Trace};
use hashbrown::HashMap;
use std::borrow::Cow;

/// Calls that stand deeper count for the last one above: no page and no screen shows more.
pub const MAX_DEPTH: u32 = 256;

/// What a node is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// An operator, an annotation or a Python function.
    Name(StrId),
    /// A Python function or file, by one frame of it.
    Frame(StrId, FrameName),
    /// The operator that a native frame belongs to.
    Operator(StrId),
    /// A call of a module, `nn.Module: Linear_0`.
    Module(StrId),
    /// Any step.
    Step,
    /// Memory outside any operator.
    Outside,
    /// Memory whose recorded stack tells nothing: why.
    Without(&'static str),
}

impl Label {
    /// The text of it.
    pub fn text(self, trace: &Trace) -> Cow<'_, str> {
        match self {
            Self::Name(name) => trace.str(name).into(),
            Self::Frame(frame, what) => what.of(trace.str(frame)),
            Self::Operator(frame) => Owner::Operator(frame).name(trace),
            Self::Module(name) => trace.str(name).strip_prefix("nn.Module: ").unwrap_or(trace.str(name)).into(),
            Self::Step => "ProfilerStep*".into(),
            Self::Outside => OUTSIDE.into(),
            Self::Without(why) => why.into(),
        }
    }
}

/// Nodes; a parent stands before its children. Node 0 is the root and has no label.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: Vec<(u32, Label, u32)>,
    known: HashMap<(u32, Label), u32>,
}

impl Default for Paths {
    fn default() -> Self {
        Self { nodes: vec![(Self::ROOT, Label::Outside, 0)], known: HashMap::new() }
    }
}

impl Paths {
    /// What all paths start from.
    pub const ROOT: u32 = 0;

    /// The node below `parent` of this label, the same for the same label.
    pub fn child(&mut self, parent: u32, label: Label) -> u32 {
        if self.is_deepest(parent) {
            return parent;
        }
        let Self { nodes, known } = self;
        *known.entry((parent, label)).or_insert_with(|| push(nodes, parent, label))
    }

    /// The same for a frame, which goes without saying below one of the same file.
    pub fn frame(&mut self, parent: u32, label: Label) -> u32 {
        let same_file = matches!(label, Label::Frame(_, FrameName::File)) && parent != Self::ROOT;
        if same_file && self.label(parent) == label { parent } else { self.child(parent, label) }
    }

    /// A node below `parent` of this label that is shared with nobody.
    pub fn fresh(&mut self, parent: u32, label: Label) -> u32 {
        if self.is_deepest(parent) { parent } else { push(&mut self.nodes, parent, label) }
    }

    fn is_deepest(&self, node: u32) -> bool {
        self.depth(node) >= MAX_DEPTH
    }

    /// The number of nodes, the root included.
    #[allow(clippy::len_without_is_empty, reason = "there is always the root")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node above; the root for itself.
    pub fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].0
    }

    /// The label of a node that is not the root.
    pub fn label(&self, node: u32) -> Label {
        self.nodes[node as usize].1
    }

    /// How many nodes stand above, the root not counted: 0 for the root, 1 for those below it.
    pub fn depth(&self, node: u32) -> u32 {
        self.nodes[node as usize].2
    }

    /// The nodes from below the root down to `node`.
    pub fn path(&self, node: u32) -> Vec<u32> {
        let up = std::iter::successors(Some(node), |at| Some(self.parent(*at)));
        let mut path: Vec<u32> = up.take_while(|at| *at != Self::ROOT).collect();
        path.reverse();
        path
    }
}

fn push(nodes: &mut Vec<(u32, Label, u32)>, parent: u32, label: Label) -> u32 {
    let depth = nodes[parent as usize].2 + 1;
    nodes.push((parent, label, depth));
    (nodes.len() - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_label_below_the_same_node_is_one_node_unless_a_fresh_one_is_asked_for() {
        let mut paths = Paths::default();
        let step = paths.child(Paths::ROOT, Label::Step);
        let outside = paths.child(step, Label::Outside);
        assert_eq!(paths.child(step, Label::Outside), outside);
        assert_ne!(paths.fresh(step, Label::Outside), outside);
        assert_eq!(paths.path(outside), [step, outside]);
    }

    #[test]
    fn what_is_deeper_than_anyone_reads_counts_for_the_last_above() {
        let mut paths = Paths::default();
        let last = (0..10 * MAX_DEPTH).fold(Paths::ROOT, |at, _| paths.child(at, Label::Step));
        assert_eq!((paths.depth(last), paths.len()), (MAX_DEPTH, MAX_DEPTH as usize + 1));
    }
}
