//! What PyTorch's own table shows, ready for printing: `key_averages().table()`.

use crate::analysis::averages::{KeyAverage, KeyAverages};
use crate::units::Nanos;

/// The rows to print, and what PyTorch works out from all rows before it cuts them at `row_limit`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TorchTable {
    /// The accelerator's name in upper case, such as `CUDA`.
    pub device: String,
    /// A line over the table.
    pub header: Option<String>,
    /// Whether only rows whose first event stands in no other are shown.
    pub top_level_only: bool,
    /// Whether memory was profiled: then there are columns of it.
    pub profile_memory: bool,
    /// Whether any row took device time.
    pub has_device_time: bool,
    /// Whether any row gained device memory.
    pub has_device_memory: bool,
    /// Whether any row has input shapes.
    pub has_shapes: bool,
    /// Whether any row has a stack.
    pub has_stack: bool,
    /// The least positive number of operations of a row, where operations are counted: it sets their unit.
    pub smallest_flops: Option<u64>,
    /// The sum of all rows' self CPU times.
    pub self_cpu_time_total: Nanos,
    /// The sum of all device-side rows' times.
    pub self_device_time_total: Nanos,
    /// The longest name, of all rows.
    pub longest_key: String,
    /// The longest shapes, of all rows.
    pub longest_shapes: String,
    /// The longest frame, of all rows.
    pub longest_frame: String,
    /// The rows to show, in order.
    pub rows: Vec<KeyAverage>,
    /// How wide columns of text may be.
    pub max_widths: TorchWidths,
}

/// The most characters that columns of text may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorchWidths {
    /// PyTorch's `max_name_column_width`.
    pub name: usize,
    /// PyTorch's `max_shapes_column_width`.
    pub shapes: usize,
    /// PyTorch's `max_src_column_width`.
    pub source: usize,
}

impl Default for TorchWidths {
    /// PyTorch's defaults.
    fn default() -> Self {
        Self { name: 55, shapes: 80, source: 75 }
    }
}

impl TorchTable {
    /// What the table says of all rows of `averages`, with none to show yet.
    pub fn over(averages: &KeyAverages, device: String, profile_memory: bool, with_flops: bool) -> Self {
        let rows = &averages.rows;
        let longest = |texts: &mut dyn Iterator<Item = &str>| {
            texts.max_by_key(|t| t.chars().count()).unwrap_or_default().to_owned()
        };
        Self {
            device,
            profile_memory,
            has_device_time: rows.iter().any(|r| r.self_device_time_total.0 > 0),
            has_device_memory: rows.iter().any(|r| r.self_device_memory_usage.0 > 0),
            has_shapes: rows.iter().any(|r| r.input_shapes.as_ref().is_some_and(|s| s != "[]" && !s.is_empty())),
            has_stack: rows.iter().any(|r| !r.stack.is_empty()),
            smallest_flops: rows.iter().map(|r| r.flops).filter(|n| *n > 0 && with_flops).min(),
            self_cpu_time_total: averages.self_cpu_time_total,
            self_device_time_total: averages.self_device_time_total,
            longest_key: longest(&mut rows.iter().map(|r| r.key.as_str())),
            longest_shapes: longest(&mut rows.iter().filter_map(|r| r.input_shapes.as_deref())),
            longest_frame: longest(&mut rows.iter().flat_map(|r| &r.stack).map(String::as_str)),
            ..Self::default()
        }
    }
}
