//! Who allocated: the operators and annotations around an allocation, and the forward operator behind a backward one.
//!
//! The owner of an allocation is the innermost operator or annotation that holds its moment on its thread. Frees are
//! never attributed: they happen at the end of a tensor's life, wherever that is. Modules, Python frames, steps and
//! phases around an allocation are for [`context`](super::context) to say.

use super::forward::ForwardLinks;
use super::spans::{NONE, Placement, Spans};
use super::tree::is_step;
use crate::trace::{OpKind, StrId, Trace};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::OnceLock;

/// The key of what was allocated inside no operator and no annotation.
pub const OUTSIDE: &str = "(outside any op)";

/// Operators that only make room for others: to say that they hold memory tells nobody anything.
///
/// The one list of them. Fills stand in it because a filled tensor belongs to whoever asked for it, and `reshape`,
/// `contiguous` and the like because they allocate only where they must copy.
const ALLOCATION_HELPERS: [&str; 40] = [
    "aten::_reshape_copy",
    "aten::_to_copy",
    "aten::alias_copy",
    "aten::clone",
    "aten::contiguous",
    "aten::copy_",
    "aten::detach",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_permuted",
    "aten::empty_quantized",
    "aten::empty_strided",
    "aten::expand_copy",
    "aten::flatten",
    "aten::full",
    "aten::full_like",
    "aten::lift",
    "aten::lift_fresh",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::new_full",
    "aten::new_ones",
    "aten::new_zeros",
    "aten::ones",
    "aten::ones_like",
    "aten::reshape",
    "aten::reshape_as",
    "aten::resize",
    "aten::resize_",
    "aten::resize_as_",
    "aten::set_",
    "aten::to",
    "aten::to_dense",
    "aten::type_as",
    "aten::view_copy",
    "aten::zero_",
    "aten::zeros",
    "aten::zeros_like",
    "detach",
    "resize_",
];

/// Whether an operator of this name only makes room for others.
pub(crate) fn is_allocation_helper(name: &str) -> bool {
    ALLOCATION_HELPERS.contains(&name)
}

/// Which of the operators and annotations around an allocation stands for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeTo {
    /// The innermost one.
    Leaf,
    /// The innermost one that is no allocation helper such as `aten::empty`, else the outermost helper.
    #[default]
    Op,
    /// The outermost one below the step.
    Root,
}

impl AttributeTo {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Leaf, Self::Op, Self::Root];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Op => "op",
            Self::Root => "root",
        }
    }
}

impl FromStr for AttributeTo {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|a| a.name() == word);
        found.ok_or_else(|| format!("expected leaf, op or root, found {word:?}"))
    }
}

/// The owners of all memory events of a trace. Rows are those of [`Trace::ops`] and [`Trace::memory`].
#[derive(Debug)]
pub struct Owners<'t> {
    trace: &'t Trace,
    place: Placement,
    op: OnceLock<Vec<u32>>,
    root: OnceLock<Vec<u32>>,
    forward: OnceLock<ForwardLinks>,
}

/// What a name says of its operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Own,
    Helper,
    Step,
}

impl<'t> Owners<'t> {
    /// The owners of all memory events of a trace.
    pub fn build(trace: &'t Trace) -> Self {
        let (ops, memory) = (trace.ops(), trace.memory());
        let holds = |i: usize| matches!(ops.kind()[i], OpKind::Operator | OpKind::Annotation);
        let moments = memory.time().iter().copied().zip(memory.thread().iter().copied());
        let place = Spans::from(ops).place(trace.threads().len(), holds, moments);
        Self { trace, place, op: OnceLock::new(), root: OnceLock::new(), forward: OnceLock::new() }
    }

    /// The trace.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// The row of the operator or annotation that memory event `event` belongs to; `None` outside any.
    pub fn owner(&self, event: usize, level: AttributeTo) -> Option<usize> {
        let leaf = row(self.place.at[event])?;
        row(match level {
            AttributeTo::Leaf => leaf as u32,
            AttributeTo::Op => self.op.get_or_init(|| self.op_column())[leaf],
            AttributeTo::Root => self.root.get_or_init(|| self.root_column())[leaf],
        })
    }

    /// The name of the owner of memory event `event`, [`OUTSIDE`] where there is none.
    pub fn owner_name(&self, event: usize, level: AttributeTo) -> &'t str {
        self.owner(event, level).map_or(OUTSIDE, |op| self.name(op))
    }

    /// The name of operator `op`.
    pub fn name(&self, op: usize) -> &'t str {
        self.trace.str(self.trace.ops().name()[op])
    }

    /// The operator or annotation directly around operator `op`. It stands before `op` in the table.
    pub fn around(&self, op: usize) -> Option<usize> {
        row(self.place.around[op])
    }

    /// Operator `op` and those around it, innermost first.
    ///
    /// As long as the nesting is deep: to look at this for every block takes a column filled once from the outermost
    /// operator inward (`inherited`).
    pub fn chain(&self, op: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(op), |at| self.around(*at))
    }

    /// The operator whose forward operator stands behind `op`: `op` itself or the innermost around it that is linked.
    /// Then that forward operator.
    pub fn forward(&self, op: usize) -> Option<usize> {
        self.forward.get_or_init(|| ForwardLinks::build(self)).of(op)
    }

    /// A value for each operator, computed from its own row and the value of the one around it.
    pub(crate) fn inherited<T: Clone>(&self, mut value: impl FnMut(usize, Option<&T>) -> T) -> Vec<T> {
        let mut column: Vec<T> = Vec::with_capacity(self.place.around.len());
        for i in 0..self.place.around.len() {
            let own = value(i, self.around(i).and_then(|p| column.get(p)));
            column.push(own);
        }
        column
    }

    /// A value for each distinct name, by the index of its [`StrId`]; computed for names of operators only.
    pub(crate) fn by_name<T: Clone + Default>(&self, mut value: impl FnMut(&'t str) -> T) -> NameTable<T> {
        let mut table = NameTable { values: vec![T::default(); self.trace.strings().len()] };
        let mut seen = vec![false; table.values.len()];
        for name in self.trace.ops().name() {
            if !std::mem::replace(&mut seen[name.index()], true) {
                table.values[name.index()] = value(self.trace.str(*name));
            }
        }
        table
    }

    fn parts(&self) -> NameTable<Option<Part>> {
        self.by_name(|name| {
            Some(if is_allocation_helper(name) {
                Part::Helper
            } else if is_step(name) {
                Part::Step
            } else {
                Part::Own
            })
        })
    }

    fn op_column(&self) -> Vec<u32> {
        let (parts, names) = (self.parts(), self.trace.ops().name());
        let part = |i: usize| parts.of(names[i]).unwrap_or(Part::Own);
        // A step, and what is around it, encloses everything and so owns only what nothing else does.
        self.inherited(|i, outer: Option<&u32>| match outer {
            Some(outer) if part(i) == Part::Helper && part(*outer as usize) != Part::Step => *outer,
            _ => i as u32,
        })
    }

    fn root_column(&self) -> Vec<u32> {
        let (parts, names) = (self.parts(), self.trace.ops().name());
        let is_step = |i: u32| parts.of(names[i as usize]) == Some(Part::Step);
        self.inherited(|i, outer: Option<&u32>| match outer {
            Some(outer) if !is_step(*outer) && !is_step(i as u32) => *outer,
            _ => i as u32,
        })
    }
}

/// A value for each distinct name of an operator.
#[derive(Clone, Debug)]
pub(crate) struct NameTable<T> {
    values: Vec<T>,
}

impl<T: Clone> NameTable<T> {
    /// The value of a name.
    pub(crate) fn of(&self, name: StrId) -> T {
        self.values[name.index()].clone()
    }
}

/// A row, or none.
pub(crate) fn row(i: u32) -> Option<usize> {
    (i != NONE).then_some(i as usize)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;

    fn owners_of(spans: &[(&str, i64, i64)], at: i64) -> [String; 3] {
        let mut b = Build::default();
        for (name, start, end) in spans {
            b.span(span(name, *start, *end));
        }
        b.alloc(at, 1, 8);
        let trace = b.finish();
        let owners = Owners::build(&trace);
        AttributeTo::ALL.map(|level| owners.owner_name(0, level).to_owned())
    }

    #[test]
    fn helpers_are_skipped_upward_to_the_operator_that_asked() {
        let spans = [
            ("ProfilerStep#1", 0, 100),
            ("aten::softmax", 10, 50),
            ("aten::_softmax", 11, 49),
            ("aten::empty_like", 12, 20),
            ("aten::empty", 13, 19),
        ];
        assert_eq!(owners_of(&spans, 15), ["aten::empty", "aten::_softmax", "aten::softmax"]);
    }

    #[test]
    fn where_nothing_else_encloses_helpers_the_outermost_of_them_owns() {
        let spans = [("ProfilerStep#1", 0, 100), ("aten::zeros", 10, 50), ("aten::empty", 13, 19)];
        assert_eq!(owners_of(&spans, 15), ["aten::empty", "aten::zeros", "aten::zeros"]);
        assert_eq!(owners_of(&spans[1..], 15), ["aten::empty", "aten::zeros", "aten::zeros"]);
        assert_eq!(owners_of(&spans[..1], 15), ["ProfilerStep#1"; 3].map(String::from));
        assert_eq!(owners_of(&spans[1..], 60), [OUTSIDE; 3].map(String::from));
    }

    #[test]
    fn an_annotation_owns_what_helpers_in_it_allocate_and_counts_as_root() {
        let spans = [("user: grow", 0, 100), ("ProfilerStep#1", 1, 99), ("aten::to", 10, 50), ("aten::empty", 13, 19)];
        assert_eq!(owners_of(&spans[..1], 15), ["user: grow"; 3].map(String::from));
        assert_eq!(owners_of(&[spans[0], spans[2], spans[3]], 15), ["aten::empty", "user: grow", "user: grow"]);
        assert_eq!(owners_of(&spans, 15), ["aten::empty", "aten::to", "aten::to"]);
    }

    #[test]
    fn words_are_read_back() {
        for level in AttributeTo::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert!("ops".parse::<AttributeTo>().is_err());
    }
}
