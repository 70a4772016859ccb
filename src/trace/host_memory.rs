//! What memory_profiler saw: the resident memory of a process and its children on the host, over wall-clock time.

use super::Diagnostics;
use crate::units::{Bytes, Nanos};

/// A recording of `mprof run`. Times are Unix times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostMemory {
    /// The command line, where the file has it.
    pub command: Option<String>,
    /// Resident memory of the process (with its children where `--include-children` was set), by time.
    pub samples: Vec<HostSample>,
    /// Each child's, in the order of their first appearance (`--multiprocess`).
    pub children: Vec<Child>,
    /// Calls of functions that carry `@profile`, by their end.
    pub functions: Vec<FunctionCall>,
    /// What was skipped.
    pub diagnostics: Diagnostics,
}

/// Resident memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSample {
    /// When.
    pub time: Nanos,
    /// How much.
    pub bytes: Bytes,
}

/// A child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// What the file calls it: a running number, or the process id.
    pub id: String,
    /// Its resident memory by time.
    pub samples: Vec<HostSample>,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCall {
    /// Its name with its module.
    pub name: String,
    /// Memory when it was called.
    pub start: HostSample,
    /// Memory when it returned.
    pub end: HostSample,
}
