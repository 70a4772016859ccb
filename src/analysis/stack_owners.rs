//! Who a recorded stack says allocated: the innermost frame of the user's own code, else the operator that it ran.
//!
//! For snapshots, whose allocations carry stacks and stand in no operators. Autograd's threads run no Python; with
//! `stacks="all"` their native frames still name the operator (`at::_ops::addmm::call` is `aten::addmm`).

use super::context::is_user_frame;
use super::owners::is_allocation_helper;
use crate::trace::{StackId, StrId, Trace};
use std::borrow::Cow;

/// The key of what was allocated where no stack was recorded.
pub const NO_STACK: &str = "(no stack recorded)";
/// The key of what was allocated in a stack of neither the user's code nor an operator.
pub const NO_PYTHON: &str = "(no Python frames)";

/// The owner of every stack of a trace.
#[derive(Debug)]
pub struct StackOwners {
    of_stack: Vec<Owner>,
}

/// The owner of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Owner {
    /// There is no stack.
    #[default]
    NoStack,
    /// There is a stack, and nothing in it tells.
    Unknown,
    /// A native frame of an operator; there can be several of one operator, so group by [`Owner::name`].
    Operator(StrId),
    /// A frame of the user's own code.
    Python(StrId),
}

impl StackOwners {
    /// The owners of all stacks, in one pass: a caller stands before its callees.
    pub fn build(trace: &Trace) -> Self {
        let mut of_frame: Vec<Option<Owner>> = vec![None; trace.strings().len()];
        let mut of_stack: Vec<Owner> = Vec::with_capacity(trace.stacks().len());
        for (i, node) in trace.stacks().iter().enumerate() {
            if i == StackId::NONE.index() {
                of_stack.push(Owner::NoStack);
                continue;
            }
            let own = *of_frame[node.frame.index()].get_or_insert_with(|| owner_of_frame(trace, node.frame));
            let outer = of_stack.get(node.parent.index()).copied().unwrap_or_default();
            of_stack.push(match (own, outer) {
                (Owner::Python(_), _) => own,
                // The user's frame tells more than the operator that it called.
                (_, Owner::Python(_)) => outer,
                (Owner::Operator(_), _) => own,
                (_, Owner::NoStack) => Owner::Unknown,
                _ => outer,
            });
        }
        Self { of_stack }
    }

    /// The owner of a stack.
    pub fn of(&self, stack: StackId) -> Owner {
        self.of_stack.get(stack.index()).copied().unwrap_or_default()
    }
}

impl Owner {
    /// The name, in the trace whose owner this is: `train.py(12): forward`, `aten::addmm`.
    pub fn name(self, trace: &Trace) -> Cow<'_, str> {
        match self {
            Self::NoStack => NO_STACK.into(),
            Self::Unknown => NO_PYTHON.into(),
            Self::Operator(frame) => operator(trace.str(frame)).unwrap_or_default().into(),
            Self::Python(frame) => trace.str(frame).into(),
        }
    }
}

fn owner_of_frame(trace: &Trace, frame: StrId) -> Owner {
    let name = trace.str(frame);
    if is_user_frame(name) {
        return Owner::Python(frame);
    }
    if operator(name).is_some() { Owner::Operator(frame) } else { Owner::Unknown }
}

/// The operator whose frame this is, where it is more than an allocation helper: `aten::addmm` of
/// `at::_ops::addmm::call(...)`, with the overload where it has one (`aten::add_Tensor`); `AddmmBackward0` of
/// `torch::autograd::generated::AddmmBackward0::apply(...)`.
fn operator(frame: &str) -> Option<String> {
    if let Some((_, rest)) = frame.split_once("at::_ops::") {
        let name = format!("aten::{}", rest.split_once("::")?.0);
        let helps = |end: usize| is_allocation_helper(&name[..end]);
        // `empty_memory_format` is an overload of `empty`.
        let helper = helps(name.len()) || name.match_indices('_').any(|(at, _)| helps(at));
        return (!helper).then_some(name);
    }
    let (_, rest) = frame.split_once("torch::autograd::")?;
    let (node, _) = rest.strip_prefix("generated::").unwrap_or(rest).split_once("::apply(")?;
    node.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then(|| node.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceBuilder;

    fn owner(frames: &[&str]) -> String {
        let mut b = TraceBuilder::new();
        let mut stack = StackId::NONE;
        for frame in frames {
            let frame = b.intern(frame);
            stack = b.stack(stack, frame);
        }
        let trace = b.finish();
        let owners = StackOwners::build(&trace);
        owners.of(stack).name(&trace).into_owned()
    }

    #[test]
    fn the_innermost_frame_of_the_users_code_owns_whatever_it_calls() {
        let frames = ["train.py(9): main", "model.py(3): forward", "/x/site-packages/torch/nn/f.py(1): linear"];
        assert_eq!(owner(&frames), "model.py(3): forward");
        assert_eq!(
            owner(&[&frames[..], &["at::_ops::linear::call(at::Tensor const&)"]].concat()),
            "model.py(3): forward"
        );
    }

    #[test]
    fn without_python_the_innermost_operator_that_is_no_helper_owns() {
        let frames =
            ["__clone", "torch::autograd::Node::operator()()", "at::_ops::mm::call(x)", "at::_ops::mm::redispatch(x)"];
        assert_eq!(owner(&frames), "aten::mm");
        assert_eq!(owner(&[&frames[..], &["at::_ops::empty_strided::call(x)", "malloc()"]].concat()), "aten::mm");
        let node = "torch::autograd::generated::ToCopyBackward0::apply(std::vector<at::Tensor>)";
        assert_eq!(owner(&["__clone", node, "at::_ops::to_dtype_layout::call(x)"]), "ToCopyBackward0");
        assert_eq!(owner(&frames[..2]), NO_PYTHON);
        assert_eq!(owner(&[]), NO_STACK);
    }
}
