//! A [`Trace`](crate::trace::Trace) to numbers: pure functions with serializable results.
//!
//! Nothing here reads a file, formats a number or prints. The definitions stand in the docs of each module.

pub mod allocations;
mod attention;
pub mod averages;
pub mod baseline;
pub mod busy;
pub mod call_tree;
pub mod card;
pub mod categories;
pub mod check;
pub mod context;
mod device_time;
pub mod diff;
pub mod failed_requests;
pub mod flame;
mod flops;
mod forward;
pub mod grouping;
pub mod host;
pub mod limits;
pub mod lines;
mod net_memory;
pub mod op_allocations;
mod op_costs;
mod op_stacks;
pub mod owners;
pub mod paths;
pub mod peak;
pub mod peak_parts;
mod samples;
mod shapes;
pub mod smi;
pub mod snapshot_stats;
mod spans;
pub mod stack_owners;
pub mod step_spans;
pub mod steps;
#[cfg(test)]
mod testing;
pub mod timeline;
mod transfers;
pub mod tree;
mod without;
