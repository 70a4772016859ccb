//! What was checked, for the formats that CI systems read.

use super::Sentence;

/// A thing that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What it belongs to, such as the name of the trace.
    pub suite: String,
    /// What was checked; the same from run to run.
    pub name: Sentence,
    /// What came of it.
    pub outcome: CaseOutcome,
    /// What was found.
    pub message: Sentence,
    /// What lies behind that, a sentence a line.
    pub details: Vec<Sentence>,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseOutcome {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// It could not be told.
    Skipped,
}
