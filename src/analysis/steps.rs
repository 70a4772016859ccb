//! Memory by step: what each allocates, frees and leaves, and whether memory grows, by how much and who keeps it.
//!
//! A block survives if it is live when the second step after the one that it was born in ends. Memory grows if the
//! allocated total at the ends of steps rises from step to step (the median of its changes, the first step left out)
//! and what the steps in between left is still live at the end: a cache that fills once, in the first step, does
//! neither.

use super::allocations::{Allocations, DeviceMemory};
use super::grouping::{Attribution, GroupBy};
use super::owners::AttributeTo;
use super::step_spans::StepSpan;
use super::without::Maxima;
use crate::trace::{Device, Trace};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use serde::Serialize;

/// Fewer steps than this tell nothing: the first is left out, and two must follow one that is judged.
const ENOUGH_STEPS: usize = 4;

/// What to show of the steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepsOptions {
    /// Which of the operators around an allocation stands for it.
    pub attribute_to: AttributeTo,
    /// Only this device.
    pub device: Option<Device>,
}

/// The steps of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceSteps {
    /// Its name, such as `cuda:0`.
    pub device: String,
    /// Whether the totals are not the allocator's but running sums from the smallest possible baseline.
    pub estimated: bool,
    /// A row for each step, by start.
    pub rows: Vec<StepRow>,
    /// Whether memory grows from step to step.
    pub verdict: Verdict,
    /// By how much a step, on average without the first; 0 unless it grows.
    pub growth_bytes_per_step: Bytes,
    /// Who keeps what the steps leave behind, by size; empty unless it grows.
    pub keepers: Vec<Keeper>,
}

/// A step on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRow {
    /// Its name, such as `ProfilerStep#3`.
    pub step: String,
    /// When it starts.
    pub start_time_ns: Nanos,
    /// How long it takes.
    pub duration_ns: Nanos,
    /// The greatest allocated total in it, that at its start included.
    pub peak_allocated_bytes: Bytes,
    /// Gross bytes allocated in it.
    pub allocated_bytes: Bytes,
    /// The number of allocations in it.
    pub allocation_count: u64,
    /// Gross bytes freed in it.
    pub freed_bytes: Bytes,
    /// The number of frees in it.
    pub free_count: u64,
    /// The allocated total at its end.
    pub end_allocated_bytes: Bytes,
    /// The allocated total at its end less that at its start.
    pub net_growth_bytes: Bytes,
    /// Bytes born in it that are live when the second step after it ends; `None` without such a step, or without blocks.
    pub survivor_bytes: Option<Bytes>,
    /// The number of these blocks.
    pub survivor_count: Option<u64>,
}

/// Whether memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Too few steps to tell.
    TooFewSteps,
    /// It does not.
    Steady,
    /// It does.
    Grows,
}

/// Growth of less than this a step is counters and the like, and no leak.
pub const LEAST_GROWTH: Bytes = Bytes(64 << 10);

/// An owner whose blocks the steps leave behind, each step anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Keeper {
    /// The operator.
    pub owner: String,
    /// The user's frames, innermost first, joined by `; `.
    pub stack: String,
    /// The part of the step that allocated them.
    pub phase: String,
    /// Bytes a step, on average over the steps that are judged.
    pub bytes_per_step: Bytes,
    /// Bytes in all the steps that are judged.
    pub kept_bytes: Bytes,
    /// The number of these blocks.
    pub blocks: u64,
}

/// The steps of each device of a trace.
pub fn steps(trace: &Trace, memory: &Allocations, who: &Attribution<'_>, options: &StepsOptions) -> Vec<DeviceSteps> {
    let only = options.device.and_then(|d| memory.device(d)).map(DeviceMemory::device);
    let wanted = |m: &&DeviceMemory| options.device.is_none() || only == Some(m.device());
    memory.devices().iter().filter(wanted).map(|m| Look { trace, memory: m, who, options }.run()).collect()
}

struct Look<'a, 't> {
    trace: &'t Trace,
    memory: &'a DeviceMemory,
    who: &'a Attribution<'t>,
    options: &'a StepsOptions,
}

impl Look<'_, '_> {
    fn run(&self) -> DeviceSteps {
        let steps = self.who.context.steps().steps();
        let mut rows = self.rows(steps);
        let born = self.born(steps.len());
        for (i, row) in rows.iter_mut().enumerate() {
            if let Some(end) = steps.get(i + 2).map(|s| self.memory.position_at(s.end))
                && self.memory.is_paired()
            {
                let survivors = born[i].iter().map(|b| self.memory.blocks()[*b]).filter(|b| b.is_live(end));
                let (bytes, count) = survivors.fold((Bytes::ZERO, 0), |(sum, n), b| (sum + b.bytes, n + 1));
                (row.survivor_bytes, row.survivor_count) = (Some(bytes), Some(count));
            }
        }
        let mut found = DeviceSteps {
            device: self.memory.device().to_string(),
            estimated: self.memory.is_estimated(),
            rows,
            verdict: Verdict::TooFewSteps,
            growth_bytes_per_step: Bytes::ZERO,
            keepers: Vec::new(),
        };
        self.judge(&mut found, steps, &born);
        found
    }

    fn rows(&self, steps: &[StepSpan]) -> Vec<StepRow> {
        let m = self.memory;
        let maxima = Maxima::build(m.allocated());
        let sums = Sums::build(m.change());
        let row = |step: &StepSpan| {
            let from = m.time().partition_point(|t| *t < step.start);
            let to = m.position_at(step.end).max(from);
            let (start, end) = (m.allocated_at(from), m.allocated_at(to));
            let [allocated, freed] = [0, 1].map(|k| sums.between(from, to, k));
            StepRow {
                step: step.label.clone(),
                start_time_ns: self.trace.absolute(step.start),
                duration_ns: step.end - step.start,
                peak_allocated_bytes: maxima.of(from, to).map_or(start, |top| top.max(start)),
                allocated_bytes: allocated.0,
                allocation_count: allocated.1,
                freed_bytes: freed.0,
                free_count: freed.1,
                end_allocated_bytes: end,
                net_growth_bytes: end - start,
                survivor_bytes: None,
                survivor_count: None,
            }
        };
        steps.iter().map(row).collect()
    }

    /// The blocks born in each step.
    fn born(&self, steps: usize) -> Vec<Vec<usize>> {
        let mut born = vec![Vec::new(); steps];
        for (i, block) in self.memory.blocks().iter().enumerate() {
            if let Some(step) = self.who.context.step(self.memory.events()[block.allocated()] as usize) {
                born[step].push(i);
            }
        }
        born
    }

    fn judge(&self, found: &mut DeviceSteps, steps: &[StepSpan], born: &[Vec<usize>]) {
        let Some(last) = steps.last().filter(|_| steps.len() >= ENOUGH_STEPS) else { return };
        found.verdict = Verdict::Steady;
        let ends: Vec<Bytes> = found.rows.iter().map(|r| r.end_allocated_bytes).collect();
        let changes: Vec<i64> = ends.windows(2).map(|w| (w[1] - w[0]).0).collect();
        let end = self.memory.position_at(last.end);
        let judged = &born[1..steps.len() - 2];
        let kept: Vec<Vec<usize>> = judged
            .iter()
            .map(|b| b.iter().copied().filter(|i| self.memory.blocks()[*i].is_live(end)).collect())
            .collect();
        let bytes = |blocks: &Vec<usize>| blocks.iter().map(|i| self.memory.blocks()[*i].bytes.0).sum::<i64>();
        let rises = lower_median(changes.clone()) > 0;
        // Without blocks only the totals can tell.
        let keeps = !self.memory.is_paired() || lower_median(kept.iter().map(bytes).collect()) > 0;
        let growth = (ends[ends.len() - 1] - ends[0]).0 / changes.len() as i64;
        if rises && keeps && growth > 0 {
            found.verdict = Verdict::Grows;
            found.growth_bytes_per_step = Bytes(growth);
            found.keepers = self.keepers(&kept);
        }
    }

    fn keepers(&self, kept: &[Vec<usize>]) -> Vec<Keeper> {
        let (m, steps) = (self.memory, kept.len() as i64);
        let blocks: Vec<usize> = kept.iter().flatten().copied().collect();
        let group = |by| {
            self.who.group(
                blocks.iter().map(|i| m.events()[m.blocks()[*i].allocated()] as usize),
                by,
                self.options.attribute_to,
            )
        };
        let (owners, stacks, phases) = (group(GroupBy::Op), group(GroupBy::Stack), group(GroupBy::Phase));
        let mut places: HashMap<[u32; 3], usize> = HashMap::new();
        let mut keepers: Vec<Keeper> = Vec::new();
        for (k, block) in blocks.iter().map(|i| m.blocks()[*i]).enumerate() {
            let key = [owners.of[k], stacks.of[k], phases.of[k]];
            let place = *places.entry(key).or_insert_with(|| {
                keepers.push(Keeper {
                    owner: owners.keys[key[0] as usize].clone(),
                    stack: stacks.keys[key[1] as usize].clone(),
                    phase: phases.keys[key[2] as usize].clone(),
                    bytes_per_step: Bytes::ZERO,
                    kept_bytes: Bytes::ZERO,
                    blocks: 0,
                });
                keepers.len() - 1
            });
            keepers[place].kept_bytes += block.bytes;
            keepers[place].blocks += 1;
        }
        for keeper in &mut keepers {
            keeper.bytes_per_step = Bytes(keeper.kept_bytes.0 / steps);
        }
        keepers.sort_by_key(|k| -k.kept_bytes);
        keepers
    }
}

/// The middle value, the lower of two. 0 of nothing.
fn lower_median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Gross bytes and numbers of allocations and frees before each event.
struct Sums([Vec<(Bytes, u64)>; 2]);

impl Sums {
    fn build(change: &[Bytes]) -> Self {
        Self([1, -1].map(|sign| {
            let mut sum = (Bytes::ZERO, 0);
            let mut sums = vec![sum];
            sums.extend(change.iter().map(|b| {
                if b.0.signum() == sign {
                    sum = (sum.0 + if sign < 0 { -*b } else { *b }, sum.1 + 1);
                }
                sum
            }));
            sums
        }))
    }

    /// Of the events from `from` up to before `to`: allocations for 0, frees for 1.
    fn between(&self, from: usize, to: usize, kind: usize) -> (Bytes, u64) {
        let (before, after) = (self.0[kind][from], self.0[kind][to]);
        (after.0 - before.0, after.1 - before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::categories::CategoryRules;
    use super::super::step_spans::StepSpans;
    use super::super::testing::{Build, span};
    use super::*;

    /// Steps of 100 ns; each does what `step` says: pairs of address and bytes, 10 ns apart in `aten::mm`.
    fn look(steps: usize, step: impl Fn(u64) -> Vec<(u64, i64)>) -> DeviceSteps {
        let mut b = Build::default();
        b.before(1000);
        for i in 0..steps {
            let start = 100 * i as i64;
            b.span(span(&format!("ProfilerStep#{i}"), start, start + 99));
            b.span(span("aten::mm", start + 1, start + 98));
            for (k, (address, bytes)) in step(i as u64).into_iter().enumerate() {
                b.alloc(start + 10 * (k as i64 + 1), address, bytes);
            }
        }
        let trace = b.finish();
        let who = Attribution::build(&trace, StepSpans::find(&trace), CategoryRules::default());
        super::steps(&trace, &Allocations::build(&trace), &who, &StepsOptions::default()).remove(0)
    }

    #[test]
    fn a_row_tells_what_a_step_allocates_frees_and_leaves() {
        // Each step allocates 50 and 20 and frees the 50.
        let found = look(5, |i| vec![(1000, 50), (i + 1, 20), (1000, -50)]);
        let row = &found.rows[1];
        assert_eq!((row.peak_allocated_bytes, row.end_allocated_bytes), (Bytes(1090), Bytes(1040)));
        assert_eq!((row.allocated_bytes, row.allocation_count), (Bytes(70), 2));
        assert_eq!((row.freed_bytes, row.free_count, row.net_growth_bytes), (Bytes(50), 1, Bytes(20)));
        let survivors: Vec<_> = found.rows.iter().map(|r| r.survivor_bytes.map(|b| b.0)).collect();
        assert_eq!(survivors, [Some(20), Some(20), Some(20), None, None]);
    }

    #[test]
    fn what_every_step_leaves_behind_is_growth_and_has_its_keeper() {
        let found = look(6, |i| vec![(1000, 50), (i + 1, 20), (1000, -50)]);
        assert_eq!((found.verdict, found.growth_bytes_per_step), (Verdict::Grows, Bytes(20)));
        assert_eq!(found.keepers.len(), 1);
        let keeper = &found.keepers[0];
        assert_eq!((keeper.owner.as_str(), keeper.bytes_per_step, keeper.blocks), ("aten::mm", Bytes(20), 3));
    }

    #[test]
    fn a_cache_that_fills_once_is_no_growth() {
        let found = look(6, |i| if i == 0 { vec![(1000, 500), (1, 20)] } else { vec![(i + 1, 20), (i, -20)] });
        assert_eq!((found.verdict, found.growth_bytes_per_step), (Verdict::Steady, Bytes(0)));
        assert!(found.keepers.is_empty());
    }

    #[test]
    fn a_ring_of_kept_blocks_is_no_growth() {
        let found = look(8, |i| if i < 3 { vec![(i % 3 + 1, 20)] } else { vec![(i % 3 + 1, -20), (i % 3 + 1, 20)] });
        assert_eq!(found.verdict, Verdict::Steady);
    }

    #[test]
    fn three_steps_tell_nothing() {
        assert_eq!(look(3, |i| vec![(i + 1, 20)]).verdict, Verdict::TooFewSteps);
    }
}
