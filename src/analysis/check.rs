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
    /// The trace has no memory of a device that the baseline has: it is no trace of the same program.
    DeviceMissing,
}

impl Checked {
    /// Whether the check as a whole fails by this.
    pub fn fails(&self) -> bool {
        matches!(self.verdict, Verdict::Failed | Verdict::DeviceMissing)
    }
}

/// Holds `after` against the limits, with `before` as its baseline.
pub fn check(before: &Baseline, after: &Baseline, limits: &Limits) -> Vec<Checked> {
    let mut results = Vec::new();
    for (b, a) in checked_pairs(before, after, limits) {
        let Some(a) = a else {
            results.extend(b.map(missing));
            continue;
        };
        results.extend(device(b, a, limits));
        for rule in &limits.rows {
            results.extend(rows(b, a, rule));
        }
    }
    results
}

fn missing(before: &DeviceBaseline) -> Checked {
    Checked {
        device: before.device.clone(),
        quantity: Quantity::Peak,
        group_by: None,
        key: None,
        rows: 0,
        before: Some(before.peak_allocated_bytes.0),
        after: None,
        limit: Limit::NoVanished,
        allowed: None,
        verdict: Verdict::DeviceMissing,
    }
}

/// The devices that are held to the limits: of the baseline, and of the trace.
pub fn checked_pairs<'a>(
    before: &'a Baseline,
    after: &'a Baseline,
    limits: &Limits,
) -> Vec<(Option<&'a DeviceBaseline>, Option<&'a DeviceBaseline>)> {
    let all = pairs(before, after);
    let name = |pair: &(Option<&'a DeviceBaseline>, Option<&'a DeviceBaseline>)| {
        pair.1.or(pair.0).map_or("cpu", |d| d.device.as_str())
    };
    let accelerators = all.iter().any(|pair| name(pair) != "cpu");
    let wanted = |name: &str| match &limits.device {
        Some(pattern) => pattern.matches(name),
        None => !accelerators || name != "cpu",
    };
    all.into_iter().filter(|pair| wanted(name(pair))).collect()
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
        // A device that the baseline lacks held nothing.
        let before_number = before.map_or(Some(0), |d| of(d, quantity));
        // One whose steps were too few to tell is taken not to grow, but is not said to.
        let from = if quantity == Quantity::Growth { before_number.or(Some(0)) } else { before_number };
        limits_of(bound).map(move |limit| {
            let allowed = allowed(limit, from);
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
    // A device that the baseline lacks has no rows; one that it has without this grouping is not known.
    let b = before.map_or(Some(&[][..]), |d| d.rows(rule.group_by));
    let a = after.rows(rule.group_by);
    let known = a.is_some() && b.is_some();
    let key = |pair: &(Option<&Row>, Option<&Row>)| pair.1.or(pair.0).map(|r| r.key.clone()).unwrap_or_default();
    let mut pairs = if known { merged(b.unwrap_or_default(), a.unwrap_or_default()) } else { Vec::new() };
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
            let verdict = match pairs.is_empty() {
                _ if !known => Verdict::NotKnown,
                true => Verdict::NothingMatches,
                false => Verdict::Passed,
            };
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
#[cfg(test)]
mod tests {
    use super::super::baseline::{BaselineOptions, Grouping};
    use super::*;

    /// A device whose operators hold so much, each in a block, and allocate it in each step.
    fn device(name: &str, rows: &[(&str, i64)]) -> DeviceBaseline {
        let mut rows: Vec<Row> = rows
            .iter()
            .map(|(key, bytes)| Row {
                key: (*key).to_owned(),
                live_bytes: Bytes(*bytes),
                live_blocks: 1,
                step_allocated_bytes: Bytes(*bytes),
                step_allocation_count: 1,
            })
            .collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let sum: Bytes = rows.iter().map(|r| r.live_bytes).sum();
        DeviceBaseline {
            device: name.to_owned(),
            peak_allocated_bytes: sum,
            unattributed_bytes: Bytes::ZERO,
            peak_reserved_bytes: None,
            estimated: false,
            step_allocated_bytes: sum,
            step_allocation_count: rows.len() as u64,
            growth_bytes_per_step: Some(Bytes::ZERO),
            groupings: vec![Grouping { group_by: GroupBy::Op, rows }],
        }
    }

    fn of(devices: Vec<DeviceBaseline>) -> Baseline {
        Baseline { devices, ..Baseline::empty(BaselineOptions::default()) }
    }

    fn checked(before: &[(&str, i64)], after: &[(&str, i64)], limits: &str) -> Vec<(String, Verdict)> {
        let (before, after) = (of(vec![device("cuda:0", before)]), of(vec![device("cuda:0", after)]));
        let name = |c: &Checked| c.key.clone().unwrap_or_else(|| format!("{:?}", c.quantity));
        let results = check(&before, &after, &Limits::from_toml(limits).unwrap());
        results.iter().map(|c| (name(c), c.verdict)).collect()
    }

    const OFF: &str = "max_increase = \"none\"\nmax_growth_increase = \"none\"\n";

    fn only(before: &[(&str, i64)], after: &[(&str, i64)], limits: &str) -> Vec<(String, Verdict)> {
        checked(before, after, &format!("{OFF}{limits}"))
    }

    #[test]
    fn by_default_the_peak_may_rise_by_a_twentieth_and_growth_by_a_mebibyte() {
        let result = |after: i64| checked(&[("a", 1000)], &[("a", after)], "");
        let growth = ("Growth".to_owned(), Verdict::Passed);
        assert_eq!(result(1050), [("Peak".to_owned(), Verdict::Passed), growth.clone()]);
        assert_eq!(result(1051), [("Peak".to_owned(), Verdict::Failed), growth]);
    }

    #[test]
    fn each_row_that_passes_a_limit_is_named_the_worst_first_and_those_that_keep_it_are_one_result() {
        let before = [("aten::a", 10), ("aten::b", 10), ("c", 10)];
        let after = [("aten::a", 30), ("aten::b", 90), ("c", 900)];
        let rule = "[op.\"aten::*\"]\nmax_increase = 5\nmax_allocations = 1\n";
        let failed = |key: &str| (key.to_owned(), Verdict::Failed);
        let kept = ("aten::*".to_owned(), Verdict::Passed);
        assert_eq!(only(&before, &after, rule), [failed("aten::b"), failed("aten::a"), kept]);
        let nothing = only(&before, &after, "[op.zzz]\nmax = 1\n");
        assert_eq!(nothing, [("zzz".to_owned(), Verdict::NothingMatches)]);
        let lacking = only(&before, &after, "[module.\"*\"]\nmax = 1\n");
        assert_eq!(lacking, [("*".to_owned(), Verdict::NotKnown)]);
    }

    #[test]
    fn what_is_new_counts_from_0_is_allowed_or_fails_as_the_rule_says() {
        let (before, after) = ([("a", 10)], [("a", 10), ("b", 8)]);
        let verdicts = |rule: &str| only(&before, &after, rule).into_iter().map(|(_, v)| v).collect::<Vec<_>>();
        assert_eq!(verdicts("[op.b]\nmax_increase = \"50 %\"\n"), [Verdict::Failed]);
        assert_eq!(verdicts("[op.b]\nmax_increase = 8\n"), [Verdict::Passed]);
        assert_eq!(verdicts("[op.b]\nmax_increase = 0\nnew = \"allow\"\n"), [Verdict::Passed]);
        assert_eq!(verdicts("[op.\"*\"]\nnew = \"fail\"\n"), [Verdict::Failed]);
        assert_eq!(only(&after, &before, "[op.\"*\"]\nvanished = \"fail\"\n"), [("b".to_owned(), Verdict::Failed)]);
        assert_eq!(only(&after, &before, "[op.b]\nmax_increase = 0\n"), [("b".to_owned(), Verdict::Passed)]);
    }

    #[test]
    fn a_device_that_the_trace_lacks_fails_and_the_host_counts_only_where_it_is_alone_or_asked_for() {
        let cuda = || device("cuda:0", &[("a", 10)]);
        let cpu = |n| device("cpu", &[("a", n)]);
        let verdicts = |before, after, limits: &str| {
            let results = check(&of(before), &of(after), &Limits::from_toml(limits).unwrap());
            results
                .iter()
                .map(|r| (r.device.clone(), r.verdict))
                .filter(|(_, v)| *v != Verdict::Passed)
                .collect::<Vec<_>>()
        };
        let missing = [("cuda:0".to_owned(), Verdict::DeviceMissing)];
        assert_eq!(verdicts(vec![cuda(), cpu(1)], vec![cpu(1)], ""), missing);
        assert_eq!(verdicts(vec![cuda(), cpu(1)], vec![cuda(), cpu(9)], ""), []);
        let cpu_fails = [("cpu".to_owned(), Verdict::Failed)];
        assert_eq!(verdicts(vec![cpu(1)], vec![cpu(9)], ""), cpu_fails);
        assert_eq!(verdicts(vec![cuda(), cpu(1)], vec![cuda(), cpu(9)], "device = \"cpu\""), cpu_fails);
    }

    #[test]
    fn what_is_not_known_does_not_fail() {
        let mut unknown = device("cuda:0", &[("a", 10)]);
        unknown.growth_bytes_per_step = None;
        let limits = Limits::from_toml("max_reserved = 1\n").unwrap();
        let results = check(&of(vec![unknown.clone()]), &of(vec![unknown]), &limits);
        let verdicts: Vec<_> = results.iter().map(|r| r.verdict).collect();
        assert_eq!(verdicts, [Verdict::Passed, Verdict::NotKnown, Verdict::NotKnown]);
        assert_eq!(results[2].before, None, "unknown growth is not 0");
        assert!(!results.iter().any(Checked::fails));
    }
}
