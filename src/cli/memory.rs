//! The arguments of every command that asks who holds memory.

use crate::analysis::categories::CategoryRules;
use crate::analysis::owners::AttributeTo;
use crate::error::{Error, Result};
use crate::report::MemoryOptions;
use crate::trace::Device;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// How allocations are attributed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Attribution")]
pub(super) struct MemoryArgs {
    /// Which of the operators around an allocation stands for it: leaf, the innermost; op, the innermost that is no
    /// allocation helper such as aten::empty; root, the outermost below the step
    #[arg(long, value_name = "LEVEL", default_value = AttributeTo::default().name())]
    pub(super) attribute_to: AttributeTo,
    /// Sort operators into categories by the rules in this file and not by tracetool's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    categories: Option<PathBuf>,
    /// Take annotations of this name (a regular expression) as the steps, and not ProfilerStep#N
    #[arg(long, value_name = "NAME")]
    step_annotation: Option<String>,
    /// Show only this device: cuda:1, cpu
    #[arg(long, value_name = "DEVICE")]
    device: Option<Device>,
}

impl MemoryArgs {
    /// The accelerator that was asked for.
    pub(super) fn accelerator(&self) -> Option<Device> {
        self.device.filter(|device| !device.kind.is_cpu())
    }

    /// The options, with the rules read.
    pub(super) fn options(&self) -> Result<MemoryOptions> {
        let categories = match &self.categories {
            Some(path) => std::fs::read_to_string(path)
                .map_err(Error::from)
                .and_then(|text| CategoryRules::from_toml(&text))
                .map_err(|e| e.at_path(path))?,
            None => CategoryRules::default(),
        };
        Ok(MemoryOptions { categories, step_annotation: self.step_annotation.clone(), device: self.device })
    }
}
