//! A summary of a trace held against limits and a baseline: which limits hold, by how much the others are passed.
//!
//! Rows by a glob that all keep a limit make one result together, and each that does not makes its own. Words are for
//! [`report`](crate::report) to find.

use super::baseline::{Baseline, DeviceBaseline, Row};
use super::diff::{merged, pairs};
use super::grouping::GroupBy;
use super::limits::{Bound, Increase, Limits, NewRows, RowLimits, VanishedRows};
use crate::units::Bytes;
use serde::{Serialize, Serializer};

/// What a limit says of a device or of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The device.
    pub device: String,
    /// What is measured.
    pub quantity: Quantity,
    /// What the rows have in common; `None` for the device as a whole.
    pub group_by: Option<GroupBy>,
    /// The row that fails, else the pattern of those that hold; `None` for the device as a whole.
    pub key: Option<String>,
    /// How many rows the result stands for.
    pub rows: u64,
    /// The baseline's number; `None` where it has none.
    pub before: Option<i64>,
    /// The trace's number; `None` where it has none.
    pub after: Option<i64>,
    /// The limit.
    pub limit: Limit,
    /// The greatest number that the limit allows; `None` where it is not about a number.
    pub allowed: Option<i64>,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Bytes: the greatest allocated total.
    Peak,
    /// Bytes: the greatest reserved total.
    Reserved,
    /// Allocations in a step.
    Allocations,
    /// Bytes that memory grows by from step to step.
    Growth,
    /// Bytes of a row that are live at the peak.
    Live,
    /// Gross bytes that a row allocates in a step.
    Allocated,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// On the number itself.
    Max(i64),
    /// On its increase.
    Increase(Increase),
    /// No row may appear.
    NoNew,
    /// No row may vanish.
    NoVanished,
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&match self {
            Self::Max(n) => format!("max {n}"),
            Self::Increase(increase) => format!("max increase {increase}"),
            Self::NoNew => "no new rows".to_owned(),
            Self::NoVanished => "no vanished rows".to_owned(),
        })
    }
}

/// Whether a limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Passed,
    /// It does not.
    Failed,
    /// The trace or the baseline lacks the number.
    NotKnown,
    /// No row matches the pattern, on either side.
    NothingMatches,
}

/// Holds `after` against the limits, with `before` as its baseline.
pub fn check(before: &Baseline, after: &Baseline, limits: &Limits) -> Vec<Checked> {
    let mut results = Vec::new();
    for (b, a) in checked_pairs(before, after, limits) {
        results.extend(device(b, a, limits));
        for rule in &limits.rows {
            results.extend(rows(b, a, rule));
        }
    }
    results
}

/// The devices of the trace that are held to the limits, with those of the baseline.
pub fn checked_pairs<'a>(
    before: &'a Baseline,
    after: &'a Baseline,
    limits: &Limits,
) -> Vec<(Option<&'a DeviceBaseline>, &'a DeviceBaseline)> {
    let all: Vec<_> = pairs(before, after).into_iter().filter_map(|(b, a)| Some((b, a?))).collect();
    let accelerators = all.iter().any(|(_, a)| a.device != "cpu");
    let wanted = |name: &str| match &limits.device {
        Some(pattern) => pattern.matches(name),
        None => !accelerators || name != "cpu",
    };
    all.into_iter().filter(|(_, a)| wanted(&a.device)).collect()
}

fn device(before: Option<&DeviceBaseline>, after: &DeviceBaseline, limits: &Limits) -> Vec<Checked> {
    let bytes = |b: Bytes| b.0;
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let of = |d: &DeviceBaseline, quantity| match quantity {
        Quantity::Reserved => d.peak_reserved_bytes.map(bytes),
        Quantity::Growth => d.growth_bytes_per_step.map(bytes),
        Quantity::Allocations => Some(count(d.step_allocation_count)),
        _ => Some(bytes(d.peak_allocated_bytes)),
    };
    let measured = [
        (Quantity::Peak, limits.peak),
        (Quantity::Reserved, limits.reserved),
        (Quantity::Allocations, limits.allocations),
        (Quantity::Growth, limits.growth),
    ];
    let result = |(quantity, bound): (Quantity, Bound)| {
        let after_number = of(after, quantity);
        // A device that the baseline lacks held nothing; one whose steps were too few to tell did not grow.
        let before_number = match before {
            Some(d) if quantity == Quantity::Growth => Some(of(d, quantity).unwrap_or(0)),
            Some(d) => of(d, quantity),
            None => Some(0),
        };
        limits_of(bound).map(move |limit| {
            let allowed = allowed(limit, before_number);
            let verdict = match (after_number, allowed) {
                (Some(after), Some(allowed)) if after <= allowed => Verdict::Passed,
                (Some(_), Some(_)) => Verdict::Failed,
                _ => Verdict::NotKnown,
            };
            Checked {
                device: after.device.clone(),
                quantity,
                group_by: None,
                key: None,
                rows: 0,
                before: before_number,
                after: after_number,
                limit,
                allowed,
                verdict,
            }
        })
    };
    measured.into_iter().flat_map(result).collect()
}

fn limits_of(bound: Bound) -> impl Iterator<Item = Limit> {
    bound.max.map(Limit::Max).into_iter().chain(bound.max_increase.map(Limit::Increase))
}

fn allowed(limit: Limit, before: Option<i64>) -> Option<i64> {
    match limit {
        Limit::Max(most) => Some(most),
        Limit::Increase(increase) => before.map(|b| increase.allowed(b)),
        Limit::NoNew | Limit::NoVanished => None,
    }
}

/// The results of one rule on a device: each row that fails, or all together.
fn rows(before: Option<&DeviceBaseline>, after: &DeviceBaseline, rule: &RowLimits) -> Vec<Checked> {
    let side = |d: Option<&'_ DeviceBaseline>| d.and_then(|d| d.rows(rule.group_by)).unwrap_or_default().to_vec();
    let (b, a) = (side(before), side(Some(after)));
    let key = |pair: &(Option<&Row>, Option<&Row>)| pair.1.or(pair.0).map(|r| r.key.clone()).unwrap_or_default();
    let mut pairs = merged(&b, &a);
    pairs.retain(|pair| rule.pattern.matches(&key(pair)));
    let together = |quantity, limit, verdict| Checked {
        device: after.device.clone(),
        quantity,
        group_by: Some(rule.group_by),
        key: Some(rule.pattern.text().to_owned()),
        rows: pairs.len() as u64,
        before: None,
        after: None,
        limit,
        allowed: None,
        verdict,
    };
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let number = |row: Option<&Row>, quantity| {
        row.map_or(0, |r| match quantity {
            Quantity::Allocated => r.step_allocated_bytes.0,
            Quantity::Allocations => count(r.step_allocation_count),
            _ => r.live_bytes.0,
        })
    };
    let mut results = Vec::new();
    for (quantity, limit) in rule_limits(rule) {
        let failures = pairs.iter().filter_map(|pair| {
            let (b, a) = (number(pair.0, quantity), number(pair.1, quantity));
            let allowed = allowed(limit, Some(b));
            let fails = match limit {
                Limit::NoNew => pair.0.is_none(),
                Limit::NoVanished => pair.1.is_none(),
                Limit::Increase(_) if pair.0.is_none() && rule.new == NewRows::Allow => false,
                _ => allowed.is_some_and(|most| a > most),
            };
            fails.then(|| Checked {
                key: Some(key(pair)),
                rows: 1,
                before: pair.0.map(|_| b),
                after: pair.1.map(|_| a),
                allowed,
                ..together(quantity, limit, Verdict::Failed)
            })
        });
        let mut failures: Vec<Checked> = failures.collect();
        // The worst first.
        failures.sort_by_key(|f| f.allowed.unwrap_or(0).saturating_sub(f.after.unwrap_or(0)));
        if failures.is_empty() {
            let verdict = if pairs.is_empty() { Verdict::NothingMatches } else { Verdict::Passed };
            failures.push(together(quantity, limit, verdict));
        }
        results.extend(failures);
    }
    results
}

fn rule_limits(rule: &RowLimits) -> Vec<(Quantity, Limit)> {
    let bounds =
        [(Quantity::Live, rule.live), (Quantity::Allocated, rule.allocated), (Quantity::Allocations, rule.allocations)];
    let mut limits: Vec<_> = bounds.into_iter().flat_map(|(q, b)| limits_of(b).map(move |l| (q, l))).collect();
    if rule.new == NewRows::Fail {
        limits.push((Quantity::Live, Limit::NoNew));
    }
    if rule.vanished == VanishedRows::Fail {
        limits.push((Quantity::Live, Limit::NoVanished));
    }
    limits
}
