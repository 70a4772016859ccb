//! A small summary of a trace's memory to hold later traces against: the same for two runs of the same program.
//!
//! Per device the peaks, what each key of a grouping holds at the peak, and what a steady step allocates. Nothing in it
//! tells when, where or at which address something ran. It is a file that projects keep, so its form is versioned, and
//! whoever reads one is told what is wrong with it. Comparing is for [`diff`](super::diff) and [`check`](super::check).

use super::allocations::{Allocations, DeviceMemory};
use super::grouping::{Attribution, GroupBy};
use super::owners::AttributeTo;
use super::steps::{StepsOptions, Verdict, steps};
use crate::error::{Error, Result};
use crate::trace::{Device, FrameKind, Trace};
use crate::units::Bytes;
use hashbrown::{HashMap, HashSet};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The version of the form of a baseline. It rises when an older tracetool could misread a new file.
pub const VERSION: u32 = 1;

/// The summary of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// [`VERSION`]. It stands first: a file that starts with it is a baseline.
    #[serde(rename = "tracetool_baseline")]
    pub version: u32,
    /// The tracetool that made it.
    pub made_by: String,
    /// How the allocations were attributed; only baselines of the same options compare.
    pub options: BaselineOptions,
    /// The devices that have memory events: accelerators first, by kind and index, then the host.
    pub devices: Vec<DeviceBaseline>,
}

/// How allocations are attributed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineOptions {
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// What names the annotations that are the steps; `None` for `ProfilerStep#N`.
    pub step_annotation: Option<String>,
    /// The fingerprint of the rules for categories that the user wrote; `None` for tracetool's own.
    pub custom_categories: Option<String>,
}

/// The summary of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceBaseline {
    /// Its name, such as `cuda:0`.
    pub device: String,
    /// The greatest allocated total.
    pub peak_allocated_bytes: Bytes,
    /// What of the peak belongs to no row: live before the trace, or all of it where blocks are not known.
    pub unattributed_bytes: Bytes,
    /// The greatest reserved total, where the trace has it.
    pub peak_reserved_bytes: Option<Bytes>,
    /// Whether totals are running sums from the smallest possible start, because the trace has none.
    pub estimated: bool,
    /// Gross bytes allocated in a step: the median of the steps but the first, or those of the whole trace without steps.
    pub step_allocated_bytes: Bytes,
    /// Allocations in a step, likewise.
    pub step_allocation_count: u64,
    /// The growth from step to step, 0 if memory does not grow; `None` where the steps are too few to tell.
    pub growth_bytes_per_step: Option<Bytes>,
    /// The rows of each grouping.
    pub groupings: Vec<Grouping>,
}

/// The rows of a grouping: their live bytes and the unattributed ones sum to the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grouping {
    /// What the rows have in common.
    pub group_by: GroupBy,
    /// By key.
    pub rows: Vec<Row>,
}

/// What a key holds and allocates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The operator, category or module; numbers of steps and addresses in it are written `*`.
    pub key: String,
    /// Bytes live at the device's peak.
    pub live_bytes: Bytes,
    /// The number of blocks that these are in.
    pub live_blocks: u64,
    /// Gross bytes allocated in a step: the median, where a step without the key counts as 0.
    pub step_allocated_bytes: Bytes,
    /// Allocations in a step, likewise.
    pub step_allocation_count: u64,
}

impl DeviceBaseline {
    /// The rows of a grouping, by key; `None` where the trace lacked what it takes, or nobody asked for it.
    pub fn rows(&self, by: GroupBy) -> Option<&[Row]> {
        self.groupings.iter().find(|g| g.group_by == by).map(|g| g.rows.as_slice())
    }
}

impl Baseline {
    /// The groupings that a baseline file holds. [`GroupBy::Module`] is left out where the trace has no modules.
    pub const GROUPINGS: [GroupBy; 3] = [GroupBy::Op, GroupBy::Category, GroupBy::Module];

    /// A baseline of nothing: everything counts as new beside it.
    pub fn empty(options: BaselineOptions) -> Self {
        let made_by = format!("tracetool {}", env!("CARGO_PKG_VERSION"));
        Self { version: VERSION, made_by, options, devices: Vec::new() }
    }

    /// The summary of a trace, by these groupings.
    pub fn of(
        trace: &Trace,
        memory: &Allocations,
        who: &Attribution<'_>,
        options: BaselineOptions,
        groupings: &[GroupBy],
    ) -> Self {
        let step_options = StepsOptions { attribute_to: options.attribute_to, device: None };
        let growth = steps(trace, memory, who, &step_options)
            .into_iter()
            .map(|d| (d.verdict != Verdict::TooFewSteps).then_some(d.growth_bytes_per_step));
        let has_modules = trace.frames().kind().contains(&FrameKind::Module);
        let groupings: Vec<GroupBy> =
            groupings.iter().copied().filter(|by| *by != GroupBy::Module || has_modules).collect();
        let level = options.attribute_to;
        let devices = memory.devices().iter().zip(growth);
        let devices = devices.map(|(memory, growth)| Look { memory, who, level }.device(growth, &groupings)).collect();
        Self { devices, ..Self::empty(options) }
    }

    /// Leaves only `device`; where nothing has that name, what is of its kind: ranks use devices of different numbers.
    pub fn keep_device(&mut self, device: Device) {
        let name = device.to_string();
        let kind_of = |d: &DeviceBaseline| d.device.parse::<Device>().map(|d| d.kind);
        let named = self.devices.iter().any(|d| d.device == name);
        self.devices.retain(|d| if named { d.device == name } else { kind_of(d) == Ok(device.kind) });
    }

    /// Whether a file that starts like this is a baseline.
    pub fn is_one(start: &[u8]) -> bool {
        let first = start.trim_ascii_start().strip_prefix(b"{");
        first.is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"tracetool_baseline\""))
    }

    /// Reads a baseline.
    ///
    /// # Errors
    ///
    /// Where `text` is none, is of a version that this tracetool does not read, or its numbers do not sum; the error says
    /// what to do.
    pub fn from_json(text: &str) -> Result<Self> {
        const AGAIN: &str = "make it anew with `tracetool baseline`";
        let expected = "a baseline of tracetool";
        let no_json = |e: &serde_json::Error| Error::format(expected, format!("{e}")).with_hint(AGAIN);
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| no_json(&e))?;
        let Some(version) = value.get("tracetool_baseline") else {
            return Err(Error::format(expected, "JSON without a member \"tracetool_baseline\"").with_hint(AGAIN));
        };
        match version.as_u64() {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) if version > u64::from(VERSION) => {
                return Err(other_version(version).with_hint("update tracetool, or make it anew with this one"));
            }
            Some(version) => return Err(other_version(version).with_hint(AGAIN)),
            None => return Err(Error::format(expected, format!("the version {version}")).with_hint(AGAIN)),
        }
        // From the text, not from the value: the error then says in which line.
        let baseline: Self = serde_json::from_str(text).map_err(|e| no_json(&e))?;
        match baseline.fault() {
            Some(fault) => Err(Error::format(expected, fault).with_hint(AGAIN)),
            None => Ok(baseline),
        }
    }

    /// What is wrong with the numbers.
    fn fault(&self) -> Option<String> {
        let mut devices = HashSet::new();
        if let Some(twice) = self.devices.iter().find(|d| !devices.insert(d.device.as_str())) {
            return Some(format!("the device {:?} twice", twice.device));
        }
        self.devices.iter().find_map(|d| Some(format!("{} in the device {:?}", d.fault()?, d.device)))
    }
}

fn other_version(version: u64) -> Error {
    Error::format(format!("a baseline of version {VERSION}"), format!("one of version {version}"))
}

impl DeviceBaseline {
    fn fault(&self) -> Option<String> {
        let sizes = [self.peak_allocated_bytes, self.step_allocated_bytes];
        if sizes.into_iter().chain(self.peak_reserved_bytes).chain(self.growth_bytes_per_step).any(|b| b.0 < 0) {
            return Some("a negative size".into());
        }
        let mut groupings = HashSet::new();
        self.groupings.iter().find_map(|g| {
            let name = g.group_by.name();
            if !groupings.insert(g.group_by) {
                return Some(format!("the grouping by {name} twice"));
            }
            if let Some(pair) = g.rows.windows(2).find(|pair| pair[0].key >= pair[1].key) {
                return Some(format!("the {name} {:?} twice or out of order", pair[1].key));
            }
            if let Some(row) = g.rows.iter().find(|r| r.live_bytes.0 < 0 || r.step_allocated_bytes.0 < 0) {
                return Some(format!("a negative size of the {name} {:?}", row.key));
            }
            let live: Bytes = g.rows.iter().map(|r| r.live_bytes).sum();
            (live + self.unattributed_bytes != self.peak_allocated_bytes)
                .then(|| format!("rows by {name} that do not sum to the peak"))
        })
    }
}

/// A place in the code, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The user's frames, innermost first, joined by `; `.
    pub stack: String,
    /// Bytes live at the device's peak.
    pub live_bytes: Bytes,
}

/// From where in the code the operator `key` holds the most at the peak; `None` where the trace has no stacks.
pub fn largest_place(memory: &DeviceMemory, who: &Attribution<'_>, level: AttributeTo, key: &str) -> Option<Place> {
    let peak = memory.peak()? + 1;
    let blocks: Vec<usize> = memory.live_blocks(peak).collect();
    let event = |i: &usize| memory.events()[memory.blocks()[*i].allocated()] as usize;
    let group = |by| who.group(blocks.iter().map(event), by, level);
    let (ops, stacks) = (group(GroupBy::Op), group(GroupBy::Stack));
    let is_it: Vec<bool> = ops.keys.iter().map(|op| steady(op) == key).collect();
    let mut held = vec![Bytes::ZERO; stacks.keys.len()];
    for (i, block) in blocks.iter().enumerate().filter(|(i, _)| is_it[ops.of[*i] as usize]) {
        held[stacks.of[i] as usize] += memory.blocks()[*block].bytes;
    }
    // The first of equals.
    let (place, live_bytes) = held.into_iter().enumerate().rev().max_by_key(|(_, bytes)| *bytes)?;
    let stack = stacks.keys[place].clone();
    // What has no frames is in brackets.
    (!live_bytes.is_zero() && !stack.starts_with('(')).then_some(Place { stack, live_bytes })
}

/// The allocations of a device.
struct Look<'a, 't> {
    memory: &'a DeviceMemory,
    who: &'a Attribution<'t>,
    level: AttributeTo,
}

/// The number of a step among those that are measured.
type Step = u32;

impl Look<'_, '_> {
    fn device(&self, growth: Option<Bytes>, groupings: &[GroupBy]) -> DeviceBaseline {
        let m = self.memory;
        let peak = m.peak().map_or(0, |event| event + 1);
        // The device's events, not the trace's.
        let allocations: Vec<usize> = (0..m.len()).filter(|i| m.change()[*i].0 > 0).collect();
        let (steps, measured) = self.steps(&allocations);
        let mut whole = Sums::default();
        for (at, step) in allocations.iter().zip(&measured) {
            step.iter().for_each(|step| whole.add(*step, m.change()[*at]));
        }
        let (step_allocated_bytes, step_allocation_count) = whole.median(steps);
        let groupings = groupings
            .iter()
            .map(|by| Grouping { group_by: *by, rows: self.rows(*by, peak, &allocations, &measured, steps) })
            .collect();
        let peak_allocated_bytes = m.allocated_at(peak);
        DeviceBaseline {
            device: m.device().to_string(),
            peak_allocated_bytes,
            unattributed_bytes: m.before_trace_at(peak).unwrap_or(peak_allocated_bytes),
            peak_reserved_bytes: m.peak_reserved(),
            estimated: m.is_estimated(),
            step_allocated_bytes,
            step_allocation_count,
            growth_bytes_per_step: growth,
            groupings,
        }
    }

    /// How many steps are measured, and which of them each allocation is in. The first is left out where there are more:
    /// it fills caches and allocates the optimizer's states.
    fn steps(&self, allocations: &[usize]) -> (usize, Vec<Option<Step>>) {
        let context = &self.who.context;
        let (all, first) = match context.steps().steps().len() {
            0 => return (1, vec![Some(0); allocations.len()]),
            1 => (1, 0),
            n => (n, 1),
        };
        let event = |at: &usize| self.memory.events()[*at] as usize;
        let step = |at| context.step(event(at)).and_then(|step| Some(step.checked_sub(first)? as Step));
        (all - first, allocations.iter().map(step).collect())
    }

    fn rows(
        &self,
        by: GroupBy,
        peak: usize,
        allocations: &[usize],
        measured: &[Option<Step>],
        steps: usize,
    ) -> Vec<Row> {
        let m = self.memory;
        let groups = self.who.group(allocations.iter().map(|at| m.events()[*at] as usize), by, self.level);
        // Keys that differ in an address alone are one.
        let mut places: HashMap<String, usize> = HashMap::new();
        let place_of: Vec<usize> = groups
            .keys
            .iter()
            .map(|key| {
                let next = places.len();
                *places.entry(steady(key)).or_insert(next)
            })
            .collect();
        let mut rows = vec![Row::default(); places.len()];
        places.into_iter().for_each(|(key, place)| rows[place].key = key);
        let mut sums = vec![Sums::default(); rows.len()];
        let mut place_at = vec![0u32; m.len()];
        for ((at, group), step) in allocations.iter().zip(&groups.of).zip(measured) {
            let place = place_of[*group as usize];
            place_at[*at] = place as u32;
            step.iter().for_each(|step| sums[place].add(*step, m.change()[*at]));
        }
        for block in m.live_blocks(peak).map(|i| m.blocks()[i]) {
            let row = &mut rows[place_at[block.allocated()] as usize];
            row.live_bytes += block.bytes;
            row.live_blocks += 1;
        }
        for (row, sums) in rows.iter_mut().zip(sums) {
            (row.step_allocated_bytes, row.step_allocation_count) = sums.median(steps);
        }
        // What only warming up allocated and nothing holds is no row.
        rows.retain(|r| r.live_blocks > 0 || r.step_allocation_count > 0 || !r.step_allocated_bytes.is_zero());
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    }
}

/// Bytes and numbers of allocations in the steps that have any, in the order of the steps unless these overlap.
#[derive(Clone, Default)]
struct Sums(Vec<(Step, Bytes, u64)>);

impl Sums {
    fn add(&mut self, step: Step, bytes: Bytes) {
        match self.0.last_mut() {
            Some(last) if last.0 == step => {
                last.1 += bytes;
                last.2 += 1;
            }
            _ => self.0.push((step, bytes, 1)),
        }
    }

    /// The lower medians over so many steps; those without any count as 0.
    fn median(mut self, steps: usize) -> (Bytes, u64) {
        self.0.sort_by_key(|sum| sum.0);
        self.0.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                (sum.1, sum.2) = (sum.1 + next.1, sum.2 + next.2);
            }
            same
        });
        // The middle of all, once those that are 0 come first.
        let zeros = steps.saturating_sub(self.0.len());
        let Some(middle) = (steps.saturating_sub(1) / 2).checked_sub(zeros) else { return (Bytes::ZERO, 0) };
        let middle_of = |values: Vec<i64>| nth(values, middle);
        let bytes = middle_of(self.0.iter().map(|sum| sum.1.0).collect());
        let count = middle_of(self.0.iter().map(|sum| i64::try_from(sum.2).unwrap_or(i64::MAX)).collect());
        (Bytes(bytes), count.unsigned_abs())
    }
}

fn nth(mut values: Vec<i64>, n: usize) -> i64 {
    values.sort_unstable();
    values.get(n).copied().unwrap_or(0)
}

/// A key without what differs from run to run: numbers of steps, and addresses.
fn steady(key: &str) -> String {
    #[expect(clippy::unwrap_used, reason = "the pattern is a constant; a test matches with it")]
    static VOLATILE: LazyLock<regex::Regex> =
        LazyLock::new(|| regex::Regex::new("(ProfilerStep)#[0-9]+|(0x)[0-9a-fA-F]{6,}").unwrap());
    VOLATILE.replace_all(key, "$1$2*").into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::allocations::Allocations;
    use super::super::categories::CategoryRules;
    use super::super::step_spans::StepSpans;
    use super::super::testing::{Build, span};
    use super::*;

    fn of(trace: &Trace) -> Baseline {
        let who = Attribution::build(trace, StepSpans::find(trace), CategoryRules::default());
        Baseline::of(trace, &Allocations::build(trace), &who, BaselineOptions::default(), &Baseline::GROUPINGS)
    }

    /// 1000 bytes from before; each step of 100 ns allocates in `aten::mm` as many bytes as its place in `sizes` says, and
    /// frees them, in the last step not.
    fn stepped(sizes: &[&[i64]]) -> Trace {
        let mut b = Build::default();
        b.before(1000);
        for (i, sizes) in sizes.iter().enumerate() {
            let start = 100 * i as i64;
            b.span(span(&format!("ProfilerStep#{i}"), start, start + 99));
            b.span(span("aten::mm", start + 1, start + 98));
            for (k, size) in sizes.iter().enumerate() {
                let time = start + 10 * (k as i64 + 1);
                b.alloc(time, 1 + k as u64, *size);
                b.alloc(time + 1, 1 + k as u64, -*size);
            }
        }
        b.finish()
    }

    #[test]
    fn a_step_is_the_median_of_those_after_the_first_and_one_without_the_key_counts_as_0() {
        let found = of(&stepped(&[&[900, 800], &[10], &[30, 5], &[20]]));
        let device = &found.devices[0];
        assert_eq!((device.step_allocated_bytes, device.step_allocation_count), (Bytes(20), 1));
        let row = &device.rows(GroupBy::Op).unwrap()[0];
        assert_eq!((row.key.as_str(), row.step_allocated_bytes, row.step_allocation_count), ("aten::mm", Bytes(20), 1));
        let rare = of(&stepped(&[&[], &[10], &[], &[], &[7]]));
        assert_eq!(rare.devices[0].step_allocation_count, 0);
        let alone = of(&stepped(&[&[900, 800]]));
        assert_eq!(alone.devices[0].step_allocated_bytes, Bytes(1700));
    }

    #[test]
    fn without_steps_the_whole_trace_is_one() {
        let mut b = Build::default();
        b.span(span("aten::mm", 0, 50));
        b.alloc(10, 1, 8);
        b.alloc(20, 1, -8);
        b.alloc(30, 1, 16);
        let found = of(&b.finish());
        let device = &found.devices[0];
        assert_eq!((device.step_allocated_bytes, device.step_allocation_count), (Bytes(24), 2));
        assert_eq!(device.growth_bytes_per_step, None);
    }

    #[test]
    fn rows_and_what_was_before_sum_to_the_peak() {
        let device = of(&stepped(&[&[900, 800], &[10]])).devices.remove(0);
        assert_eq!((device.peak_allocated_bytes, device.unattributed_bytes), (Bytes(1900), Bytes(1000)));
        let row = &device.rows(GroupBy::Category).unwrap()[0];
        assert_eq!((row.key.as_str(), row.live_bytes, row.live_blocks), ("linear", Bytes(900), 1));
        assert_eq!(device.rows(GroupBy::Module), None, "the trace has no modules");
    }

    #[test]
    fn keys_that_differ_in_a_step_or_an_address_alone_are_one_row() {
        assert_eq!(steady("ProfilerStep#17"), "ProfilerStep*");
        assert_eq!(steady("<f at 0x7f3a00ff10> 0x12"), "<f at 0x*> 0x12");
        let mut b = Build::default();
        b.span(span("user: f 0x7f3a00ff10", 0, 10));
        b.span(span("user: f 0x7f3a00ff20", 20, 30));
        b.alloc(5, 1, 8);
        b.alloc(25, 2, 16);
        let rows = of(&b.finish()).devices.remove(0).groupings.remove(0).rows;
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].key.as_str(), rows[0].live_bytes, rows[0].live_blocks), ("user: f 0x*", Bytes(24), 2));
    }

    fn text(of: &Baseline) -> String {
        serde_json::to_string_pretty(of).unwrap()
    }

    #[test]
    fn a_file_is_read_back_and_known_by_its_start() {
        let made = of(&stepped(&[&[900, 800], &[10]]));
        assert!(Baseline::is_one(text(&made).as_bytes()));
        assert!(!Baseline::is_one(b"{\"traceEvents\": [\"tracetool_baseline\"]}"));
        assert_eq!(Baseline::from_json(&text(&made)).unwrap(), made);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_a_sentence() {
        let good = text(&of(&stepped(&[&[900, 800], &[10]])));
        let error = |from: &str, to: &str| {
            let bad = good.replacen(from, to, 1);
            assert_ne!(good, bad, "{from}");
            Baseline::from_json(&bad).unwrap_err().to_string()
        };
        for (from, to, says) in [
            (
                "baseline\": 1",
                "baseline\": 0",
                "expected a baseline of version 1, found one of version 0 (make it anew",
            ),
            ("baseline\": 1", "baseline\": 7", "expected a baseline of version 1, found one of version 7 (update"),
            ("baseline\": 1", "baseline\": \"x\"", "found the version \"x\""),
            ("tracetool_baseline", "tracetool", "without a member \"tracetool_baseline\""),
            ("\"live_bytes\": 900", "\"live_bytes\": 901", "rows by op that do not sum to the peak"),
            ("\"live_bytes\": 900", "\"live_bytes\": -900", "a negative size of the op \"aten::mm\""),
            ("\"live_bytes\": 900", "\"live_bytes\": 9e99", "floating point"),
            ("\"live_bytes\": 900", "\"live_tons\": 900", "unknown field `live_tons`"),
            ("\"estimated\": false,", "", "missing field `estimated`"),
            ("\"peak_allocated_bytes\": 1", "\"peak_allocated_bytes\": -1", "a negative size in the device \"cuda:0\""),
            ("\"category\"", "\"op\"", "the grouping by op twice"),
        ] {
            let error = error(from, to);
            assert!(error.contains(says), "{error}");
        }
        for cut in [0, 1, good.len() / 2, good.len() - 1] {
            let error = Baseline::from_json(&good[..cut]).unwrap_err().to_string();
            assert!(error.contains("make it anew"), "{error}");
        }
        let mut twice = of(&stepped(&[&[8]]));
        twice.devices.push(twice.devices[0].clone());
        let error = Baseline::from_json(&text(&twice)).unwrap_err().to_string();
        assert!(error.contains("the device \"cuda:0\" twice"), "{error}");
    }
}
