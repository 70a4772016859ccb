//! tracetool reads PyTorch profiler traces at the speed of the machine and tells what holds GPU memory.
//!
//! Data flows one way, and a module uses only what stands before it in this list:
//!
//! ```text
//! units, error  ->  trace  ->  input      bytes to a Trace
//!                          ->  analysis   a Trace to plain numbers
//!                                ->  report   numbers to typed tables and figures
//!                                      ->  render   tables and figures to bytes
//!                                            ->  cli   the command line
//! ```

pub mod analysis;
pub mod cli;
pub mod error;
pub mod input;
pub mod render;
pub mod report;
pub mod trace;
pub mod units;

pub use error::{Error, Result};

/// What the benchmarks reach of the inside of this crate. No part of its interface.
#[doc(hidden)]
pub mod bench_support {
    pub use crate::input::bench::*;
}

/// What fuzzing reaches of the inside of this crate. No part of its interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::input::fuzzing::*;
}

/// The README's example of the library, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
