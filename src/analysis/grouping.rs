//! What allocations can be grouped by, one list for all commands, and the key of each under it.

use super::categories::{Categories, CategoryRules};
use super::context::{Context, FrameName, PathId, RecordedStack, is_user_frame, recorded_stack};
use super::owners::{AttributeTo, OUTSIDE, Owners};
use super::stack_owners::{NO_PYTHON, NO_STACK, Owner, StackOwners};
use super::step_spans::StepSpans;
use crate::trace::{StrId, Trace};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What to group allocations by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupBy {
    /// The owner: operator or annotation; of an allocation with a stack of its own, as in snapshots, the user's frame.
    #[default]
    Op,
    /// The family of operators.
    Category,
    /// The path of modules.
    Module,
    /// The frames of the user's code, innermost first.
    Stack,
    /// The file of the innermost frame of the user's code.
    File,
    /// The function of that frame.
    Function,
    /// The line of that frame, as it stands in the trace: of a snapshot the line that ran, else where its function starts.
    Line,
    /// The owner with its input shapes.
    Shape,
    /// Forward, backward, optimizer or other.
    Phase,
    /// The step.
    Step,
    /// The thread that allocated.
    Thread,
    /// The device.
    Device,
    /// The innermost annotation that is no step.
    Annotation,
}

impl GroupBy {
    /// All of them, in the order in which they are listed to users.
    pub const ALL: [Self; 13] = [
        Self::Op,
        Self::Category,
        Self::Module,
        Self::Stack,
        Self::File,
        Self::Function,
        Self::Line,
        Self::Shape,
        Self::Phase,
        Self::Step,
        Self::Thread,
        Self::Device,
        Self::Annotation,
    ];

    /// Those that need frames of Python.
    pub const OF_FRAMES: [Self; 4] = [Self::Stack, Self::File, Self::Function, Self::Line];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Category => "category",
            Self::Module => "module",
            Self::Stack => "stack",
            Self::File => "file",
            Self::Function => "function",
            Self::Line => "line",
            Self::Shape => "shape",
            Self::Phase => "phase",
            Self::Step => "step",
            Self::Thread => "thread",
            Self::Device => "device",
            Self::Annotation => "annotation",
        }
    }
}

impl FromStr for GroupBy {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let words = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|g| g.name() == word)
            .ok_or_else(|| format!("expected one of {}, found {word:?}", words()))
    }
}

/// Everything that can be said of the allocations of a trace: owners, surroundings, categories.
#[derive(Debug)]
pub struct Attribution<'t> {
    /// Operators and annotations.
    pub owners: Owners<'t>,
    /// Steps, phases, modules, frames.
    pub context: Context<'t>,
    rules: CategoryRules,
    categories: std::sync::OnceLock<Categories>,
    stack_owners: std::sync::OnceLock<StackOwners>,
}

impl<'t> Attribution<'t> {
    /// What can be said of the allocations of a trace with these steps, by these rules.
    pub fn build(trace: &'t Trace, steps: StepSpans, rules: CategoryRules) -> Self {
        let (owners, context) = (Owners::build(trace), Context::new(trace, steps));
        let (categories, stack_owners) = Default::default();
        Self { owners, context, rules, categories, stack_owners }
    }

    /// Who the recorded stacks of a snapshot say allocated, found at the first question.
    fn stack_owners(&self) -> &StackOwners {
        self.stack_owners.get_or_init(|| StackOwners::build(self.owners.trace()))
    }

    /// The categories, found at the first question.
    pub fn categories(&self) -> &Categories {
        self.categories.get_or_init(|| Categories::build(&self.owners, &self.rules))
    }

    /// The groups of the allocations `events`, rows of [`Trace::memory`].
    pub fn group(&self, events: impl IntoIterator<Item = usize>, by: GroupBy, level: AttributeTo) -> Groups {
        let mut groups = Groups::default();
        let (mut of_key, mut of_text) = (HashMap::new(), HashMap::new());
        for event in events {
            let group = *of_key.entry(self.key(event, by, level)).or_insert_with_key(|key| {
                let text = self.text(*key, by);
                *of_text.entry(text.clone()).or_insert_with(|| {
                    groups.keys.push(text);
                    groups.keys.len() as u32 - 1
                })
            });
            groups.of.push(group);
        }
        groups
    }

    /// The key of the allocation `event` as text.
    pub fn key_text(&self, event: usize, by: GroupBy, level: AttributeTo) -> String {
        self.text(self.key(event, by, level), by)
    }

    fn key(&self, event: usize, by: GroupBy, level: AttributeTo) -> Key<'t> {
        let trace = self.owners.trace();
        let op = |op: Option<usize>| op.map_or(Key::Nothing, |op| Key::Name(trace.ops().name()[op]));
        match by {
            // The allocator's own record tells more than the annotation that was open then.
            GroupBy::Op if trace.has_stacks() => Key::Owner(self.stack_owners().of(trace.memory().stack()[event])),
            GroupBy::Op => op(self.owners.owner(event, level)),
            GroupBy::Category => Key::Index(self.categories().of_event(&self.owners, event)),
            GroupBy::Module => self.context.module(&self.owners, event).map_or(Key::Nothing, Key::Path),
            GroupBy::File | GroupBy::Function | GroupBy::Line if trace.has_stacks() => {
                Key::Owner(self.stack_owners().of(trace.memory().stack()[event]))
            }
            GroupBy::Stack | GroupBy::File | GroupBy::Function | GroupBy::Line => {
                match recorded_stack(&self.owners, event) {
                    Some(stack) => Key::Recorded(stack),
                    None => self.context.stack(&self.owners, event).map_or(Key::Nothing, Key::Path),
                }
            }
            GroupBy::Shape => match self.owners.owner(event, level) {
                Some(op) => Key::Shape(trace.ops().name()[op], trace.detail(trace.ops().detail()[op]).input_dims),
                None => Key::Nothing,
            },
            GroupBy::Phase => Key::Word(self.context.phase(&self.owners, event).name()),
            GroupBy::Step => self.context.step(event).map_or(Key::Nothing, Key::Index),
            GroupBy::Thread => Key::Index(trace.memory().thread()[event].index()),
            GroupBy::Device => Key::Index(trace.memory().device()[event].index()),
            GroupBy::Annotation => op(self.context.annotation(&self.owners, event)),
        }
    }

    fn text(&self, key: Key<'t>, by: GroupBy) -> String {
        let trace = self.owners.trace();
        match (key, by) {
            (Key::Nothing, GroupBy::Op) if trace.snapshot().is_some() => NO_STACK.to_owned(),
            (Key::Nothing, _) => nothing(by).to_owned(),
            (Key::Name(name), _) => trace.str(name).to_owned(),
            (Key::Word(word), _) => word.to_owned(),
            (Key::Owner(Owner::Python(frame)), _) => frame_text(trace.str(frame), by),
            // A file of Python is asked for.
            (Key::Owner(Owner::Operator(_)), GroupBy::File) => NO_PYTHON.to_owned(),
            (Key::Owner(owner), _) => owner.name(trace).into_owned(),
            (Key::Shape(name, dims), _) => format!("{} {}", trace.str(name), trace.str(dims)).trim_end().to_owned(),
            (Key::Path(path), GroupBy::Module) => self.context.module_text(path),
            (Key::Path(path), GroupBy::Stack) => self.context.names(path).collect::<Vec<_>>().join("; "),
            (Key::Path(path), _) => {
                self.context.names(path).next().map_or_else(String::new, |name| frame_text(name, by))
            }
            (Key::Recorded(stack), GroupBy::Stack) => recorded_text(trace, stack),
            (Key::Recorded(stack), _) => match recorded_frames(trace, stack).into_iter().find(|f| is_user_frame(f)) {
                Some(frame) => frame_text(frame, by),
                None => NO_PYTHON.to_owned(),
            },
            (Key::Index(i), GroupBy::Category) => self.categories().names()[i].clone(),
            (Key::Index(i), GroupBy::Step) => self.context.steps().steps()[i].label.clone(),
            (Key::Index(i), GroupBy::Thread) => thread_text(trace, i),
            (Key::Index(i), _) => trace.devices()[i].to_string(),
        }
    }
}

/// The key of what has no place in a grouping.
fn nothing(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Module => "(outside any module)",
        GroupBy::Stack | GroupBy::File | GroupBy::Function | GroupBy::Line => NO_PYTHON,
        GroupBy::Step => "(outside any step)",
        GroupBy::Annotation => "(outside any annotation)",
        _ => OUTSIDE,
    }
}

fn thread_text(trace: &Trace, i: usize) -> String {
    let thread = trace.threads()[i];
    let (process, id, name) = (trace.str(thread.process), trace.str(thread.id), trace.str(thread.name));
    if name.is_empty() { format!("{process}/{id}") } else { format!("{process}/{id} {name}") }
}

/// What stands of a frame in a key of this grouping.
fn frame_text(frame: &str, by: GroupBy) -> String {
    let part = match by {
        GroupBy::File => FrameName::File,
        GroupBy::Function => FrameName::Function,
        _ => FrameName::Line,
    };
    part.of(frame).into_owned()
}

fn recorded_frames<'t>(trace: &'t Trace, stack: RecordedStack<'t>) -> Vec<&'t str> {
    match stack {
        RecordedStack::Nodes(stack) => trace.stack(stack).collect(),
        RecordedStack::Text(text) => text.split(';').map(str::trim).collect(),
    }
}

/// The frames of the user's own code, else all of them.
fn recorded_text(trace: &Trace, stack: RecordedStack<'_>) -> String {
    let frames = recorded_frames(trace, stack);
    let user: Vec<&str> = frames.iter().copied().filter(|f| is_user_frame(f)).collect();
    if user.is_empty() { frames.join("; ") } else { user.join("; ") }
}

/// What tells groups apart, before it is text. Different keys can have one text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key<'t> {
    Nothing,
    Name(StrId),
    Word(&'static str),
    Index(usize),
    Path(PathId),
    Shape(StrId, StrId),
    Recorded(RecordedStack<'t>),
    Owner(Owner),
}

/// Allocations in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The distinct keys, in the order of the first allocation of each.
    pub keys: Vec<String>,
    /// For each allocation the index of its key.
    pub of: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;
    use crate::trace::{Device, MemoryEvent, StackId, TraceBuilder};
    use crate::units::{Bytes, Nanos};

    fn keys(trace: &Trace, by: GroupBy) -> Vec<String> {
        let who = Attribution::build(trace, StepSpans::find(trace), CategoryRules::default());
        who.group(0..trace.memory().len(), by, AttributeTo::default()).keys
    }

    /// A trace with an allocation for each stack, frames from the outermost.
    fn recorded(stacks: &[&[&str]]) -> Trace {
        let mut b = TraceBuilder::new();
        let (device, thread) = (b.device(Device::cuda(0)), b.thread("", "0"));
        for (i, frames) in stacks.iter().enumerate() {
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
    fn recorded_stacks_group_by_file_function_and_line_of_the_users_innermost_frame() {
        let autograd: &[&str] = &["__clone", "at::_ops::mm::call(x)"];
        let trace = recorded(&[
            &["train.py(3): main", "model.py(9): forward", "/x/torch/nn/f.py(1): linear"],
            &["train.py(3): main", "model.py(12): forward"],
            &["train.py(4): main", "model.py(20): loss"],
            autograd,
            &["__clone", "malloc()"],
            &[],
        ]);
        assert_eq!(
            keys(&trace, GroupBy::Line),
            ["model.py(9): forward", "model.py(12): forward", "model.py(20): loss", "aten::mm", NO_PYTHON]
        );
        assert_eq!(keys(&trace, GroupBy::Function), ["model.py: forward", "model.py: loss", "aten::mm", NO_PYTHON]);
        assert_eq!(keys(&trace, GroupBy::File), ["model.py", NO_PYTHON]);
        assert_eq!(keys(&trace, GroupBy::Op), keys(&trace, GroupBy::Line));
    }

    #[test]
    fn the_frames_of_a_profile_group_the_same_by_the_lines_where_functions_start() {
        let mut b = Build::default();
        b.frame("train.py(1): main", "1", 0, 100);
        b.frame("model.py(5): forward", "1", 10, 40);
        b.span(span("aten::mm", 11, 39));
        b.alloc(15, 1, 8);
        b.alloc(50, 2, 8);
        b.alloc(200, 3, 8);
        let trace = b.finish();
        assert_eq!(keys(&trace, GroupBy::Line), ["model.py(5): forward", "train.py(1): main", NO_PYTHON]);
        assert_eq!(keys(&trace, GroupBy::Function), ["model.py: forward", "train.py: main", NO_PYTHON]);
        assert_eq!(keys(&trace, GroupBy::File), ["model.py", "train.py", NO_PYTHON]);
    }
}
