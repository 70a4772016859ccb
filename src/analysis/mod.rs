//! A [`Trace`](crate::trace::Trace) to numbers: pure functions with serializable results.
//!
//! Nothing here reads a file, formats a number or prints. The definitions stand in the docs of each module.

pub mod allocations;
pub mod averages;
mod device_time;
mod flops;
mod net_memory;
mod op_stacks;
mod shapes;
pub mod snapshot_stats;
mod spans;
pub mod tree;
