//! Bytes to a [`Trace`]: sniff, inflate, split into events, scan an event.
//!
//! The only place that knows gzip, JSON and PyTorch's spellings.

mod pickle;
mod snapshot;

pub use snapshot::read_snapshot;

use crate::error::Result;
use crate::trace::{Keep, Trace};
use std::path::Path;

/// How to read an input.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Which parts to keep.
    pub keep: Keep,
    /// How many threads to read with; 0 for one a core. The result does not depend on it.
    pub threads: usize,
    /// Inflated bytes after which reading stops with an error, against gzip bombs.
    pub max_input_size: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { keep: Keep::ALL, threads: 0, max_input_size: 1 << 40 }
    }
}

/// Reads the trace at `path`, or standard input if it is `-`.
///
/// # Errors
///
/// Where the file cannot be read, is no trace, or is larger than the options allow.
pub fn read_path(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let _ = (path, options);
    unimplemented!("the reader")
}
