//! What changed between two baselines, and what each key adds to the change of the peak: contributions sum to it exactly.
//!
//! `change of the peak = sum of the rows' changes + change of what belongs to no row`, where a key that one side does not
//! have counts as 0 there. Both sides are summaries of whole traces: see [`baseline`](super::baseline).

use super::baseline::{Baseline, DeviceBaseline, Row};
use super::grouping::GroupBy;
use crate::trace::Device;
use crate::units::Bytes;
use serde::Serialize;

/// A size on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// On the first side.
    pub before: Bytes,
    /// On the second side.
    pub after: Bytes,
    /// After less before.
    pub change: Bytes,
}

/// A number of things on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountChange {
    /// On the first side.
    pub before: u64,
    /// On the second side.
    pub after: u64,
}

impl Change {
    fn of(before: Bytes, after: Bytes) -> Self {
        Self { before, after, change: after - before }
    }

    fn known(before: Option<Bytes>, after: Option<Bytes>) -> Option<Self> {
        Some(Self::of(before?, after?))
    }

    fn is_none(&self) -> bool {
        self.before == self.after
    }
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is on the second side only.
    Appeared,
    /// It is on the first side only.
    Vanished,
    /// It holds more of the peak.
    Grew,
    /// It holds less of the peak.
    Shrank,
    /// It holds as much of the peak, and allocates otherwise.
    Moved,
}

impl State {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Vanished => "vanished",
            Self::Grew => "grew",
            Self::Shrank => "shrank",
            Self::Moved => "moved",
        }
    }
}

/// What changed on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceDiff {
    /// The device, as the second side calls it unless only the first has it.
    pub device: String,
    /// As the first side calls it; `None` where that lacks it.
    pub before_device: Option<String>,
    /// As the second side calls it; `None` where that lacks it.
    pub after_device: Option<String>,
    /// The peak.
    pub peak_allocated_bytes: Change,
    /// What of the peak belongs to no row: live before the trace, or all of it where blocks are not known.
    pub unattributed_bytes: Change,
    /// The greatest reserved total, where both sides have it.
    pub peak_reserved_bytes: Option<Change>,
    /// Gross bytes allocated in a step.
    pub step_allocated_bytes: Change,
    /// Allocations in a step.
    pub step_allocation_count: CountChange,
    /// The growth from step to step, where both sides can tell.
    pub growth_bytes_per_step: Option<Change>,
    /// What the rows have in common.
    pub group_by: GroupBy,
    /// What differs, by how much it adds to the peak or takes from it.
    pub rows: Vec<DiffRow>,
}

/// What changed for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffRow {
    /// The key.
    pub key: String,
    /// What became of it.
    pub state: State,
    /// Bytes live at the peak; the change is what the key adds to the change of the peak.
    pub live_bytes: Change,
    /// The number of blocks that these are in.
    pub live_blocks: CountChange,
    /// Gross bytes allocated in a step.
    pub step_allocated_bytes: Change,
    /// Allocations in a step.
    pub step_allocation_count: CountChange,
}

impl DeviceDiff {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        let sizes = [self.peak_allocated_bytes, self.unattributed_bytes, self.step_allocated_bytes];
        self.rows.is_empty()
            && self.before_device.is_some() == self.after_device.is_some()
            && sizes.iter().all(Change::is_none)
            && [self.peak_reserved_bytes, self.growth_bytes_per_step].iter().flatten().all(Change::is_none)
            && self.step_allocation_count.before == self.step_allocation_count.after
    }
}

/// The devices of two baselines that belong together.
///
/// Those of one name do; then, where each side has one more of a kind, these: the ranks of a distributed run use devices
/// of different numbers.
pub fn pairs<'a>(
    before: &'a Baseline,
    after: &'a Baseline,
) -> Vec<(Option<&'a DeviceBaseline>, Option<&'a DeviceBaseline>)> {
    let named = |side: &'a Baseline, name: &str| side.devices.iter().find(|d| d.device == name);
    let kind = |d: &DeviceBaseline| d.device.parse::<Device>().map(|d| d.kind).ok();
    let lone = |side: &'a Baseline, other: &Baseline, of: &DeviceBaseline| {
        let mut left = side.devices.iter().filter(|d| kind(d) == kind(of) && named_in(other, &d.device).is_none());
        left.next().filter(|_| left.next().is_none())
    };
    let partner_of = |d: &'a DeviceBaseline| {
        named(before, &d.device).or_else(|| lone(after, before, d).and_then(|_| lone(before, after, d)))
    };
    let mut pairs: Vec<_> = after.devices.iter().map(|d| (partner_of(d), Some(d))).collect();
    for d in &before.devices {
        if !pairs.iter().any(|(b, _)| b.is_some_and(|b| b.device == d.device)) {
            pairs.push((Some(d), None));
        }
    }
    pairs
}

fn named_in<'a>(side: &'a Baseline, name: &str) -> Option<&'a DeviceBaseline> {
    side.devices.iter().find(|d| d.device == name)
}

/// What changed from `before` to `after`, device by device; those without a change too.
pub fn diff(before: &Baseline, after: &Baseline, by: GroupBy) -> Vec<DeviceDiff> {
    pairs(before, after).into_iter().filter_map(|(b, a)| device(b, a, by)).collect()
}

/// What changed on a device; `None` if neither side has it.
pub fn device(before: Option<&DeviceBaseline>, after: Option<&DeviceBaseline>, by: GroupBy) -> Option<DeviceDiff> {
    let name = after.or(before)?.device.clone();
    let sides = [before, after];
    let size = |of: fn(&DeviceBaseline) -> Bytes| {
        let [b, a] = sides.map(|side| side.map(of).unwrap_or_default());
        Change::of(b, a)
    };
    // A side that lacks the device has nothing on it; one that has it may still not know.
    let known = |of: fn(&DeviceBaseline) -> Option<Bytes>| {
        let [b, a] = sides.map(|side| side.map_or(Some(Bytes::ZERO), of));
        Change::known(b, a)
    };
    let [b, a] = sides.map(|side| side.map_or(0, |d| d.step_allocation_count));
    Some(DeviceDiff {
        device: name,
        before_device: before.map(|d| d.device.clone()),
        after_device: after.map(|d| d.device.clone()),
        peak_allocated_bytes: size(|d| d.peak_allocated_bytes),
        unattributed_bytes: size(|d| d.unattributed_bytes),
        peak_reserved_bytes: known(|d| d.peak_reserved_bytes),
        step_allocated_bytes: size(|d| d.step_allocated_bytes),
        step_allocation_count: CountChange { before: b, after: a },
        growth_bytes_per_step: known(|d| d.growth_bytes_per_step),
        group_by: by,
        rows: rows(before.and_then(|d| d.rows(by)), after.and_then(|d| d.rows(by))),
    })
}

/// The rows of both sides by key, which both are sorted by.
pub(crate) fn merged<'a>(before: &'a [Row], after: &'a [Row]) -> Vec<(Option<&'a Row>, Option<&'a Row>)> {
    let (mut b, mut a) = (before.iter().peekable(), after.iter().peekable());
    let mut rows = Vec::with_capacity(before.len().max(after.len()));
    loop {
        let order = match (b.peek(), a.peek()) {
            (Some(x), Some(y)) => x.key.cmp(&y.key),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return rows,
        };
        rows.push((b.next_if(|_| order.is_le()), a.next_if(|_| order.is_ge())));
    }
}

fn rows(before: Option<&[Row]>, after: Option<&[Row]>) -> Vec<DiffRow> {
    let none = Row::default();
    let mut rows: Vec<DiffRow> = merged(before.unwrap_or_default(), after.unwrap_or_default())
        .into_iter()
        .filter(|(b, a)| b != a)
        .map(|(b, a)| row(b.unwrap_or(&none), a.unwrap_or(&none), (b.is_some(), a.is_some())))
        .collect();
    let size = |c: &Change| std::cmp::Reverse(c.change.0.unsigned_abs());
    rows.sort_by(|x, y| {
        let order = |r: &DiffRow| (size(&r.live_bytes), size(&r.step_allocated_bytes));
        order(x).cmp(&order(y)).then_with(|| x.key.cmp(&y.key))
    });
    rows
}

fn row(before: &Row, after: &Row, there: (bool, bool)) -> DiffRow {
    let live_bytes = Change::of(before.live_bytes, after.live_bytes);
    let state = match (there, live_bytes.change.0) {
        ((false, _), _) => State::Appeared,
        ((_, false), _) => State::Vanished,
        (_, 1..) => State::Grew,
        (_, ..0) => State::Shrank,
        (_, 0) => State::Moved,
    };
    DiffRow {
        key: if there.1 { &after.key } else { &before.key }.clone(),
        state,
        live_bytes,
        live_blocks: CountChange { before: before.live_blocks, after: after.live_blocks },
        step_allocated_bytes: Change::of(before.step_allocated_bytes, after.step_allocated_bytes),
        step_allocation_count: CountChange { before: before.step_allocation_count, after: after.step_allocation_count },
    }
}
#[cfg(test)]
mod tests {
    use super::super::allocations::Allocations;
    use super::super::baseline::BaselineOptions;
    use super::super::categories::CategoryRules;
    use super::super::grouping::Attribution;
    use super::super::step_spans::StepSpans;
    use super::super::testing::{Build, span};
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 4] = ["aten::mm", "aten::gelu", "aten::bmm", "user: mine"];

    /// What is allocated (operator, address, bytes, freed at once), one after the other.
    fn baseline(before: i64, allocations: &[(usize, u64, i64, bool)]) -> Baseline {
        let mut b = Build::default();
        b.before(before);
        for (i, (name, address, bytes, freed)) in allocations.iter().enumerate() {
            let start = 10 * i as i64;
            b.span(span(NAMES[*name], start, start + 9));
            b.alloc(start + 1, 100 * i as u64 + address, *bytes);
            if *freed {
                b.alloc(start + 2, 100 * i as u64 + address, -*bytes);
            }
        }
        let trace = b.finish();
        let who = Attribution::build(&trace, StepSpans::find(&trace), CategoryRules::default());
        let options = BaselineOptions::default();
        Baseline::of(&trace, &Allocations::build(&trace), &who, options, &Baseline::GROUPINGS)
    }

    #[test]
    fn rows_are_told_by_what_became_of_them_the_greatest_change_first() {
        let before = baseline(1000, &[(0, 1, 50, false), (1, 1, 30, false)]);
        let after = baseline(1010, &[(3, 1, 5, true), (0, 1, 70, false), (2, 1, 90, false)]);
        let found = diff(&before, &after, GroupBy::Op).remove(0);
        let rows: Vec<_> = found.rows.iter().map(|r| (r.key.as_str(), r.state, r.live_bytes.change.0)).collect();
        let (appeared, vanished, grew) = (State::Appeared, State::Vanished, State::Grew);
        let want = [("aten::bmm", appeared, 90), ("aten::gelu", vanished, -30), ("aten::mm", grew, 20)];
        assert_eq!(rows[..3], want);
        assert_eq!(rows[3], ("user: mine", appeared, 0));
        assert_eq!((found.peak_allocated_bytes.change, found.unattributed_bytes.change), (Bytes(90), Bytes(10)));
    }

    #[test]
    fn lone_devices_of_a_kind_pair_up_and_others_pair_by_name() {
        let named = |names: &[&str]| {
            let mut b = baseline(0, &[(0, 1, 8, false)]);
            let device = b.devices.remove(0);
            b.devices = names.iter().map(|n| DeviceBaseline { device: (*n).to_owned(), ..device.clone() }).collect();
            b
        };
        let paired = |before: &[&str], after: &[&str]| {
            let (before, after) = (named(before), named(after));
            let name = |d: Option<&DeviceBaseline>| d.map_or("-".to_owned(), |d| d.device.clone());
            pairs(&before, &after).into_iter().map(|(b, a)| name(b) + " " + &name(a)).collect::<Vec<_>>()
        };
        assert_eq!(paired(&["cuda:0", "cpu"], &["cuda:3", "cpu"]), ["cuda:0 cuda:3", "cpu cpu"]);
        assert_eq!(paired(&["cuda:0"], &["cuda:1", "cuda:0"]), ["- cuda:1", "cuda:0 cuda:0"]);
        assert_eq!(paired(&["cuda:0"], &["xpu:0"]), ["- xpu:0", "cuda:0 -"]);
        assert_eq!(
            paired(&["cuda:0", "cuda:1"], &["cuda:2", "cuda:3"]),
            ["- cuda:2", "- cuda:3", "cuda:0 -", "cuda:1 -"]
        );
    }

    fn any_allocations() -> impl Strategy<Value = (i64, Vec<(usize, u64, i64, bool)>)> {
        (0i64..500, proptest::collection::vec((0..NAMES.len(), 1u64..100, 1i64..1000, any::<bool>()), 1..30))
    }

    proptest! {
        #[test]
        fn contributions_sum_to_the_change_and_turn_with_the_sides((b0, b) in any_allocations(), (a0, a) in any_allocations()) {
            let (before, after) = (baseline(b0, &b), baseline(a0, &a));
            for by in [GroupBy::Op, GroupBy::Category] {
                let (there, back) = (diff(&before, &after, by).remove(0), diff(&after, &before, by).remove(0));
                let rows: Bytes = there.rows.iter().map(|r| r.live_bytes.change).sum();
                prop_assert_eq!(rows + there.unattributed_bytes.change, there.peak_allocated_bytes.change);
                let turned = |d: &DeviceDiff| -> Vec<_> {
                    d.rows.iter().map(|r| (r.key.clone(), r.live_bytes.change.0, r.step_allocated_bytes.change.0)).collect()
                };
                let minus = turned(&back).into_iter().map(|(key, live, step)| (key, -live, -step));
                prop_assert_eq!(turned(&there), minus.collect::<Vec<_>>());
                prop_assert!(diff(&after, &after, by).iter().all(DeviceDiff::is_empty));
            }
        }
    }
}
