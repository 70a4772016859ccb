//! Who a recorded stack says allocated: the innermost frame of the user's own code, else of an installed package, else
//! the operator that ran.
//!
//! For snapshots, whose allocations carry stacks and stand in no operators. Autograd's threads run no Python; with
//! `stacks="all"` their native frames still name the operator (`at::_ops::addmm::call` is `aten::addmm`).

use super::context::{is_package_frame, is_python_frame, is_user_frame};
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
    without: Owner,
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
    /// A frame of the user's own code; where the stack has none, of a package, of the standard library or of PyTorch.
    Python(StrId),
}

/// How much a frame tells of who allocated. Of two equals the inner one tells more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Tells {
    #[default]
    Nothing,
    /// Of PyTorch or of Python itself, which do what others ask.
    Internal,
    Operator,
    Package,
    User,
}

impl StackOwners {
    /// The owners of all stacks, in one pass: a caller stands before its callees.
    pub fn build(trace: &Trace) -> Self {
        let mut of_frame: Vec<Option<(Tells, Owner)>> = vec![None; trace.strings().len()];
        let mut of_stack: Vec<(Tells, Owner)> = Vec::with_capacity(trace.stacks().len());
        for (i, node) in trace.stacks().iter().enumerate() {
            if i == StackId::NONE.index() {
                of_stack.push((Tells::Nothing, Owner::NoStack));
                continue;
            }
            let own = *of_frame[node.frame.index()].get_or_insert_with(|| owner_of_frame(trace, node.frame));
            let outer = of_stack.get(node.parent.index()).copied().unwrap_or_default();
            of_stack.push(if own.0 >= outer.0 { own } else { outer });
        }
        // A thread without Python has no frames where others have some, unless native ones are recorded too.
        let without = if of_stack.len() > 1 { Owner::Unknown } else { Owner::NoStack };
        Self { of_stack: of_stack.into_iter().map(|(_, owner)| owner).collect(), without }
    }

    /// The owner of a stack.
    pub fn of(&self, stack: StackId) -> Owner {
        match self.of_stack.get(stack.index()) {
            None | Some(Owner::NoStack) => self.without,
            Some(owner) => *owner,
        }
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

fn owner_of_frame(trace: &Trace, frame: StrId) -> (Tells, Owner) {
    let name = trace.str(frame);
    if is_user_frame(name) {
        (Tells::User, Owner::Python(frame))
    } else if operator(name).is_some() {
        (Tells::Operator, Owner::Operator(frame))
    } else if !is_python_frame(name) {
        (Tells::Nothing, Owner::Unknown)
    } else if is_package_frame(name) {
        (Tells::Package, Owner::Python(frame))
    } else {
        (Tells::Internal, Owner::Python(frame))
    }
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
        let other = ["other.py(1): main"];
        owner_in(frames, &other)
    }

    /// The owner of a stack in a trace that has another one too.
    fn owner_in(frames: &[&str], other: &[&str]) -> String {
        let mut b = TraceBuilder::new();
        let [stack, _] = [frames, other].map(|frames| {
            frames.iter().fold(StackId::NONE, |stack, frame| {
                let frame = b.intern(frame);
                b.stack(stack, frame)
            })
        });
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
    }

    #[test]
    fn no_frames_where_others_have_some_is_a_thread_without_python() {
        assert_eq!(owner(&[]), NO_PYTHON);
        assert_eq!(owner_in(&[], &[]), NO_STACK);
    }

    #[test]
    fn without_the_users_own_code_a_package_owns_and_after_operators_pytorch_itself() {
        let package = "/venv/lib/python3.12/site-packages/serving/model.py(7): forward";
        let torch = "/venv/lib/python3.12/site-packages/torch/nn/functional.py(1): linear";
        let runpy = "/usr/lib/python3.12/runpy.py(88): _run_code";
        let operator = "at::_ops::linear::call(x)";
        assert_eq!(owner(&[runpy, package, torch, operator]), package);
        assert_eq!(owner(&[runpy, torch, operator]), "aten::linear");
        assert_eq!(owner(&[runpy, torch, "malloc()"]), torch);
    }
}
