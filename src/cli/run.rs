//! What every command does that makes a report of a trace.

use super::Outcome;
use super::input::InputArgs;
use super::output::OutputArgs;
use crate::error::Result;
use crate::report::Report;
use crate::trace::{Keep, Trace};

/// Reads the trace, runs the report and writes it.
pub(super) fn run_report(
    input: &InputArgs,
    output: &OutputArgs,
    keep: Keep,
    report: impl FnOnce(&Trace) -> Result<Report>,
) -> Result<Outcome> {
    output.check()?;
    let trace = input.read(keep)?;
    let mut report = report(&trace)?;
    report.diagnostics.append(trace.diagnostics().clone());
    output.write(&mut report)?;
    Ok(Outcome::Done)
}
