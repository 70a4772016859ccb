//! A baseline of a trace: what later traces are held against.
//!
//! What it holds stands in [`baseline`](crate::analysis::baseline).

use super::memory::{MemoryOptions, keep};
use crate::analysis::baseline::{Baseline, BaselineOptions, Place, largest_place};
use crate::analysis::categories::CategoryRules;
use crate::analysis::grouping::GroupBy;
use crate::analysis::owners::AttributeTo;
use crate::analysis::steps::{Keeper, StepsOptions, steps};
use crate::error::{Error, Result};
use crate::trace::{Keep, Trace};

/// How to make a baseline.
#[derive(Clone, Debug)]
pub struct MakeBaseline {
    /// How allocations are attributed, and what makes a step.
    pub memory: MemoryOptions,
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// What it has rows of.
    pub group_by: Vec<GroupBy>,
}

impl Default for MakeBaseline {
    fn default() -> Self {
        let (memory, attribute_to) = (MemoryOptions::default(), AttributeTo::default());
        Self { memory, attribute_to, group_by: Baseline::GROUPINGS.to_vec() }
    }
}

impl MakeBaseline {
    /// The parts of a trace that it takes.
    pub fn keep(&self) -> Keep {
        keep(&self.group_by, false)
    }

    /// The options as a baseline holds them.
    pub fn options(&self) -> BaselineOptions {
        BaselineOptions {
            attribute_to: self.attribute_to,
            step_annotation: self.memory.step_annotation.clone(),
            custom_categories: (self.memory.categories != CategoryRules::default())
                .then(|| self.memory.categories.fingerprint()),
        }
    }

    /// The baseline.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, none of the device asked for, or no such annotation.
    pub fn run(&self, trace: &Trace) -> Result<Baseline> {
        let (memory, who) = self.memory.read(trace)?;
        let mut baseline = Baseline::of(trace, &memory, &who, self.options(), &self.group_by);
        if let Some(only) = self.memory.device.and_then(|d| memory.device(d)) {
            baseline.devices.retain(|d| d.device == only.device().to_string());
        }
        Ok(baseline)
    }
}

impl MakeBaseline {
    /// From where in the code the operator `key` holds the most at the peak of `device`; `None` without stacks.
    pub(super) fn place(&self, trace: &Trace, device: &str, key: &str) -> Result<Option<Place>> {
        let (memory, who) = self.memory.read(trace)?;
        let device = memory.devices().iter().find(|m| m.device().to_string() == device);
        Ok(device.and_then(|m| largest_place(m, &who, self.attribute_to, key)))
    }

    /// Who keeps the most of what the steps leave behind on `device`; `None` unless it grows.
    pub(super) fn keeper(&self, trace: &Trace, device: &str) -> Result<Option<Keeper>> {
        let (memory, who) = self.memory.read(trace)?;
        let options = StepsOptions { attribute_to: self.attribute_to, device: None };
        let mut devices = steps(trace, &memory, &who, &options).into_iter();
        Ok(devices.find(|d| d.device == device).and_then(|d| d.keepers.into_iter().next()))
    }
}

/// Says where two baselines do not compare, because their allocations were attributed in different ways.
pub(super) fn same_options(before: &Baseline, after: &Baseline) -> Result<()> {
    let words = |options: &BaselineOptions| {
        let steps = options.step_annotation.as_ref().map(|s| format!(" --step-annotation {s:?}")).unwrap_or_default();
        let rules = options.custom_categories.as_ref();
        let rules = rules.map(|print| format!(" --categories (rules {print})")).unwrap_or_default();
        format!("--attribute-to {}{steps}{rules}", options.attribute_to.name())
    };
    let (before, after) = (&before.options, &after.options);
    if before == after {
        return Ok(());
    }
    let (made, now) = (words(before), words(after));
    Err(Error::usage(format!(
        "the baseline was made with {made}, which does not compare with {now}: give both the same"
    )))
}
