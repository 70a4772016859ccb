//! The steps of a run: `ProfilerStep#N`, or the calls of a repeated annotation.

use super::spans::{NONE, Spans};
use super::tree::is_step;
use crate::error::{Error, Result};
use crate::trace::{OpKind, StrId, ThreadId, Trace};
use crate::units::Nanos;
use regex::Regex;

/// The steps of a trace, by start.
#[derive(Clone, Debug, Default)]
pub struct StepSpans {
    steps: Vec<StepSpan>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpan {
    /// The annotation's name; calls of one name are told apart by ` [0]`, ` [1]`, ...
    pub label: String,
    /// The number that PyTorch gave it (`ProfilerStep#7`), else its place among the steps.
    pub number: u64,
    /// When it starts.
    pub start: Nanos,
    /// When it ends.
    pub end: Nanos,
}

impl StepSpans {
    /// The steps that the profiler's schedule marked: `ProfilerStep#N`.
    pub fn find(trace: &Trace) -> Self {
        Self::of(trace, is_step)
    }

    /// The annotations whose whole name the regular expression `name` matches, as steps.
    ///
    /// # Errors
    ///
    /// Where `name` is no regular expression, or no annotation has such a name.
    pub fn of_annotation(trace: &Trace, name: &str) -> Result<Self> {
        let pattern = Regex::new(&format!("^(?:{name})$"))
            .map_err(|e| Error::usage(format!("expected a regular expression for the step annotation: {e}")))?;
        let found = Self::of(trace, |n| pattern.is_match(n));
        if found.steps.is_empty() {
            return Err(Error::missing(
                format!("no annotation named {name:?}"),
                "torch.profiler.record_function(\"...\") around each step makes one",
            ));
        }
        Ok(found)
    }

    /// The error of a question about steps for a trace that marks none: what brings them, and what could be taken instead.
    pub fn missing(trace: &Trace) -> Error {
        let (what, mut hint) = match trace.snapshot() {
            None => ("the trace marks no steps", "call prof.step() after each step".to_owned()),
            Some(_) => (
                "the snapshot marks no steps",
                "record with torch.cuda.memory._record_memory_history(global_record_annotations=True) while prof.step() or \
                 record_function(\"ProfilerStep#N\") marks each step"
                    .to_owned(),
            ),
        };
        hint += ", or name an annotation that repeats by --step-annotation";
        if let Some((name, calls)) = Self::repeated(trace) {
            hint += &format!(", such as {name:?}, which is there {calls} times");
        }
        Error::missing(what, hint)
    }

    /// The error of a question about step `number`, which is not there.
    pub fn no_step(&self, trace: &Trace, number: u64) -> Error {
        let numbers = || self.steps.iter().map(|s| s.number);
        match (numbers().min(), numbers().max()) {
            (Some(first), Some(last)) => {
                Error::usage(format!("there is no step {number}: the trace holds steps {first} to {last}"))
            }
            _ => Self::missing(trace),
        }
    }

    /// The annotation that most likely stands for a step, and its number of calls: of those that repeat and can be named
    /// as they are, one that says `step` or else is called most often.
    fn repeated(trace: &Trace) -> Option<(&str, u32)> {
        let ops = trace.ops();
        let mut calls = vec![0u32; trace.strings().len()];
        let annotations = (0..ops.len()).filter(|i| ops.kind()[*i] == OpKind::Annotation);
        annotations.for_each(|i| calls[ops.name()[i].index()] += 1);
        let repeated = calls.iter().enumerate().filter(|(_, n)| **n > 1);
        let named = repeated.map(|(i, n)| (trace.str(StrId(i as u32)), *n));
        let itself = |name: &str| Regex::new(&format!("^(?:{name})$")).is_ok_and(|pattern| pattern.is_match(name));
        named.filter(|(name, _)| itself(name)).max_by_key(|(name, n)| (name.contains("step"), *n))
    }

    fn of(trace: &Trace, is_step: impl Fn(&str) -> bool) -> Self {
        let ops = trace.ops();
        let mut wanted = vec![None; trace.strings().len()];
        let mut is_step = |i: &usize| {
            let name = ops.name()[*i];
            let known = &mut wanted[name.index()];
            ops.kind()[*i] == OpKind::Annotation && *known.get_or_insert_with(|| is_step(trace.str(name)))
        };
        let rows: Vec<usize> = (0..ops.len()).filter(|i| is_step(i)).collect();
        let mut calls = vec![0u32; trace.strings().len()];
        rows.iter().for_each(|i| calls[ops.name()[*i].index()] += 1);
        let mut seen = vec![0u32; calls.len()];
        let steps = rows.iter().enumerate().map(|(place, i)| {
            let name = ops.name()[*i];
            let text = trace.str(name);
            let label =
                if calls[name.index()] > 1 { format!("{text} [{}]", seen[name.index()]) } else { text.to_owned() };
            seen[name.index()] += 1;
            let number = text.strip_prefix("ProfilerStep#").and_then(|n| n.parse().ok()).unwrap_or(place as u64);
            StepSpan { label, number, start: ops.start()[*i], end: ops.end(*i) }
        });
        Self { steps: steps.collect() }
    }

    /// The steps, by start.
    pub fn steps(&self) -> &[StepSpan] {
        &self.steps
    }

    /// The first step with this number.
    pub fn numbered(&self, number: u64) -> Option<&StepSpan> {
        self.steps.iter().find(|s| s.number == number)
    }

    /// For each of these moments, in the order of time, the step that holds it, on whatever thread it ran: the last to
    /// start, both ends included.
    pub fn place(&self, moments: impl ExactSizeIterator<Item = Nanos>) -> Vec<Option<usize>> {
        let start: Vec<Nanos> = self.steps.iter().map(|s| s.start).collect();
        let duration: Vec<Nanos> = self.steps.iter().map(|s| s.end - s.start).collect();
        let thread = vec![ThreadId(0); start.len()];
        let placed = Spans::new(&start, &duration, &thread).place(1, |_| true, moments.map(|time| (time, ThreadId(0))));
        placed.at.iter().map(|i| (*i != NONE).then_some(*i as usize)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Build, span};
    use super::*;

    #[test]
    fn steps_hold_moments_on_any_thread_and_numbers_are_pytorchs() {
        let mut b = Build::default();
        b.span(span("ProfilerStep#4", 0, 10));
        b.span(span("ProfilerStep#5", 20, 30));
        b.span(span("ProfilerStepper", 0, 40));
        let steps = StepSpans::find(&b.finish());
        assert_eq!(steps.numbered(5).map(|s| s.start), Some(Nanos(20)));
        let at = steps.place([0, 10, 15, 20, 31].into_iter().map(Nanos));
        assert_eq!(at, [Some(0), Some(0), None, Some(1), None]);
    }

    #[test]
    fn where_no_steps_are_marked_an_annotation_that_repeats_is_proposed() {
        let missing = |names: &[&str]| {
            let mut b = Build::default();
            names.iter().zip(0..).for_each(|(name, at)| b.span(span(&format!("user: {name}"), 10 * at, 10 * at + 5)));
            b.span(span("aten::mm", 1, 2));
            b.span(span("aten::mm", 3, 4));
            StepSpans::missing(&b.finish()).to_string()
        };
        assert!(missing(&["a", "b"]).ends_with("by --step-annotation)"));
        assert!(missing(&["a", "b", "a", "b", "a"]).ends_with("such as \"user: a\", which is there 3 times)"));
        assert!(missing(&["a", "b", "a", "a", "my step", "my step"]).contains("\"user: my step\""));
        // Its name would have to be written as a pattern.
        assert!(missing(&["a(", "a("]).ends_with("by --step-annotation)"));
    }

    #[test]
    fn calls_of_a_repeated_annotation_are_steps_where_asked_for() {
        let mut b = Build::default();
        b.span(span("user: train", 0, 10));
        b.span(span("user: train", 20, 30));
        b.span(span("user: trained", 40, 50));
        let trace = b.finish();
        let steps = StepSpans::of_annotation(&trace, "user: tr.in").unwrap();
        let labels: Vec<_> = steps.steps().iter().map(|s| (s.label.as_str(), s.number)).collect();
        assert_eq!(labels, [("user: train [0]", 0), ("user: train [1]", 1)]);
        assert!(StepSpans::of_annotation(&trace, "(").is_err());
        assert!(StepSpans::of_annotation(&trace, "nothing").is_err());
    }
}
