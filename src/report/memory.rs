//! What the reports of memory share: reading the allocations, and saying what the trace lacks for a question.

use super::sentence::sentence;
use super::{Block, Finding, Table};
use crate::analysis::allocations::{Allocations, DeviceMemory};
use crate::analysis::categories::CategoryRules;
use crate::analysis::grouping::{Attribution, GroupBy};
use crate::analysis::step_spans::StepSpans;
use crate::error::{Error, Result};
use crate::trace::{Device, Keep, Trace};
use crate::units::Nanos;

/// How allocations are attributed, in every report of memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryOptions {
    /// The rules that sort operators into categories.
    pub categories: CategoryRules,
    /// Take the annotations whose name this regular expression matches as the steps, not `ProfilerStep#N`.
    pub step_annotation: Option<String>,
    /// Show only this device.
    pub device: Option<Device>,
}

/// How many devices a report shows: more than any machine has.
pub(super) const MOST_DEVICES: usize = 256;

impl MemoryOptions {
    /// The allocations of a trace, and what can be said of them.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, none of the device asked for, or no such annotation.
    pub(super) fn read<'t>(&self, trace: &'t Trace) -> Result<(Allocations, Attribution<'t>)> {
        let mut memory = Allocations::build(trace);
        if memory.devices().is_empty() {
            return Err(no_memory(trace));
        }
        if let Some(device) = self.device
            && memory.device(device).is_none()
        {
            let known: Vec<String> =
                memory.devices().iter().take(MOST_DEVICES).map(|d| d.device().to_string()).collect();
            return Err(Error::usage(format!("the trace holds no memory of {device}; it holds {}", known.join(", "))));
        }
        if self.device.is_none() {
            memory.keep_largest(MOST_DEVICES);
        }
        let steps = match &self.step_annotation {
            Some(name) => StepSpans::of_annotation(trace, name)?,
            None => StepSpans::find(trace),
        };
        let who = Attribution::build(trace, steps, self.categories.clone());
        Ok((memory, who))
    }

    /// The devices to show.
    pub(super) fn devices<'m>(&self, memory: &'m Allocations) -> Vec<&'m DeviceMemory> {
        match self.device {
            Some(device) => memory.device(device).into_iter().collect(),
            None => memory.devices().iter().collect(),
        }
    }
}

fn no_memory(trace: &Trace) -> Error {
    if trace.info().profile_memory == Some(true) {
        let hint = "profile the code that allocates; what PyTorch's allocator already holds makes no event";
        return Error::missing("memory was profiled, but nothing was allocated or freed while the profiler ran", hint);
    }
    Error::missing("the trace holds no memory events", "profile with profile_memory=True")
}

/// The parts of a trace that a question about memory needs.
pub(super) fn keep(group_by: &[GroupBy], modules: bool) -> Keep {
    let any = |words: &[GroupBy]| group_by.iter().any(|g| words.contains(g));
    Keep {
        ops: true,
        memory: true,
        details: any(&[GroupBy::Category, GroupBy::Shape]) || any(&GroupBy::OF_FRAMES),
        device_events: any(&[GroupBy::Category]),
        frames: modules || any(&[GroupBy::Module]) || any(&GroupBy::OF_FRAMES),
        history: false,
    }
}

/// What the trace lacks to group by this, and what brings it.
pub(super) fn lacks(trace: &Trace, who: &Attribution<'_>, group_by: GroupBy) -> Option<Finding> {
    let finding =
        |code, message: &str, advice: &str| Some(Finding { code, message: message.into(), advice: advice.into() });
    let shapes = || trace.details().iter().any(|d| !trace.str(d.input_dims).is_empty());
    let recorded = || trace.has_stacks() || trace.details().iter().any(|d| !trace.str(d.call_stack).is_empty());
    let stacks = || !trace.frames().is_empty() || recorded();
    let modules = || trace.frames().kind().contains(&crate::trace::FrameKind::Module);
    match group_by {
        GroupBy::Module if !modules() => finding(
            "no-modules",
            "The trace holds no calls of modules.",
            "Profile with with_stack=True (and with_modules=True).",
        ),
        GroupBy::Stack | GroupBy::File | GroupBy::Function | GroupBy::Line if !stacks() => {
            let advice = match trace.snapshot() {
                Some(_) => "Record with torch.cuda.memory._record_memory_history(context=\"all\").",
                None => "Profile with with_stack=True.",
            };
            finding("no-stacks", "The trace holds no Python stacks.", advice)
        }
        GroupBy::Line if !recorded() => finding(
            "lines-of-functions",
            "Profiles tell where functions start, not which of their lines ran: lines are those of functions.",
            "A snapshot (torch.cuda.memory._dump_snapshot) tells the lines.",
        ),
        GroupBy::Shape if !shapes() => {
            finding("no-shapes", "The trace holds no input shapes.", "Profile with record_shapes=True.")
        }
        GroupBy::Step if who.context.steps().steps().is_empty() => finding(
            "no-steps",
            "The trace marks no steps.",
            "Call prof.step() after each step, or name an annotation by --step-annotation.",
        ),
        GroupBy::Category if who.categories().attention_is_guess() => finding(
            "attention-is-a-guess",
            "The trace holds no input shapes: attention written out by hand was told by names and order alone.",
            "Profile with record_shapes=True to tell it exactly.",
        ),
        _ => None,
    }
}

/// What is odd about the allocations, as findings.
pub(super) fn oddities(memory: &Allocations) -> impl Iterator<Item = Block> + '_ {
    use super::Cell;
    memory.findings().iter().map(|d| {
        let message = sentence![Cell::Count(d.count), " ", d.message.as_str(), "."];
        Block::Finding(Finding { code: d.code, message, advice: "".into() })
    })
}

/// A time since the trace's first event, for people, from one of the analysis.
pub(super) fn since_start(trace: &Trace, start: Nanos, absolute: Nanos) -> Nanos {
    absolute - trace.absolute(start)
}

/// Cuts a table's rows to `limit`, which is negative for all, and says so.
pub(super) fn cut(table: &mut Table, all: usize) {
    let rows = all - table.rows.len();
    table.left_out = (rows > 0).then_some(super::LeftOut { rows, option: "--limit -1" });
}

/// How many of `all` rows to show.
pub(super) fn shown(limit: i64, all: usize) -> usize {
    usize::try_from(limit).map_or(all, |limit| limit.min(all))
}

/// A result of the analysis as JSON.
pub(super) fn to_json(value: &impl serde::Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|e| Error::from(std::io::Error::from(e)))
}
