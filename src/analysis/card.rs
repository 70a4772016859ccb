//! The memory of whole cards over wall-clock time, split by whose it is: what nvidia-smi saw, and within the profiled
//! process what PyTorch's allocator says of the same moments.
//!
//! `used = tensors + cached + context and libraries + other processes + what no process accounts for`. Tensors are the
//! allocator's allocated bytes and cached is reserved less allocated, both to the byte. nvidia-smi's figures are whole MiB,
//! and samples. What a process holds beyond its reserved memory (the CUDA context, loaded kernels, libraries' workspaces)
//! changes seldom, and a sample may lie before or after a segment that came in the same moment: so of the allocator's
//! states from the sample before to the one after, the one counts with which it changes least.

use super::allocations::Allocations;
use super::samples::{usual_step, with_end};
use super::timeline::{DeviceTimeline, Measure, Point, Timeline, Unattributed};
use crate::trace::smi::{GpuSample, SmiLog};
use crate::trace::{Device, Trace};
use crate::units::{Bytes, Nanos};
use serde::Serialize;

/// What PyTorch's allocator held on one device over wall-clock time; each state holds until the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMemory {
    /// The process id as nvidia-smi has it, where it is known.
    pub pid: Option<u32>,
    /// The device's index as PyTorch counts those that the process sees: not always nvidia-smi's.
    pub device_index: Option<u32>,
    /// Since when.
    pub time: Vec<Nanos>,
    /// Bytes of tensors.
    pub allocated: Vec<Bytes>,
    /// Bytes of segments, tensors and cached.
    pub reserved: Vec<Bytes>,
}

impl RunMemory {
    /// The memory of a trace's or snapshot's first accelerator, or of `device`, with its clock set forward by `offset`;
    /// `None` where the trace tells no reserved memory or no wall-clock time.
    pub fn of(trace: &Trace, device: Option<Device>, offset: Nanos) -> Option<Self> {
        let memory = Allocations::build(trace);
        let device = memory
            .devices()
            .iter()
            .find(|m| device.map_or(!m.device().kind.is_cpu(), |wanted| m.device() == wanted))?;
        let pid = Self::pid_of(trace);
        let mut run = Self { pid, device_index: u32::try_from(device.device().index).ok(), ..Self::default() };
        for i in 0..device.len() {
            let Some(reserved) = device.reserved(i) else { continue };
            run.time.push(trace.absolute(device.time()[i]) + offset);
            run.allocated.push(device.allocated()[i]);
            run.reserved.push(reserved);
        }
        let is_wall_clock = device.time().first().is_some_and(|time| trace.is_wall_clock(*time));
        (is_wall_clock && !run.time.is_empty()).then_some(run)
    }

    /// The process that most of the trace's memory events are of, by its number.
    pub fn pid_of(trace: &Trace) -> Option<u32> {
        let mut counts = vec![0u64; trace.threads().len()];
        trace.memory().thread().iter().for_each(|t| counts[t.index()] += 1);
        let most = counts.iter().enumerate().max_by_key(|(i, n)| (**n, std::cmp::Reverse(*i)))?.0;
        trace.str(trace.threads()[most].process).parse().ok()
    }

    /// Adds what `other` saw before and after this.
    pub fn extend(&mut self, other: &Self) {
        let (Some(first), Some(last)) = (self.time.first().copied(), self.time.last().copied()) else {
            let pid = self.pid.or(other.pid);
            *self = Self { pid, ..other.clone() };
            return;
        };
        let (before, after) = (other.time.partition_point(|t| *t < first), other.time.partition_point(|t| *t <= last));
        let join = |own: &mut Vec<Bytes>, more: &[Bytes]| {
            own.splice(0..0, more[..before].iter().copied());
            own.extend_from_slice(&more[after..]);
        };
        join(&mut self.allocated, &other.allocated);
        join(&mut self.reserved, &other.reserved);
        self.time.splice(0..0, other.time[..before].iter().copied());
        self.time.extend_from_slice(&other.time[after..]);
        self.pid = self.pid.or(other.pid);
    }

    /// Tensors and reserved memory at a time; nothing before the first event.
    fn at(&self, time: Nanos) -> Option<(Bytes, Bytes)> {
        let i = self.time.partition_point(|t| *t <= time).checked_sub(1)?;
        Some((self.allocated[i], self.reserved[i]))
    }
}

/// A card at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CardMoment {
    /// When.
    pub time_ns: Nanos,
    /// Memory in use as nvidia-smi last said, if it has.
    pub used_bytes: Option<Bytes>,
    /// Memory free as nvidia-smi last said, else what of the card is not in use.
    pub free_bytes: Option<Bytes>,
    /// Tensors of the profiled process.
    pub tensor_bytes: Bytes,
    /// What its allocator keeps beyond them.
    pub cached_bytes: Bytes,
    /// What the process holds beyond its allocator.
    pub context_bytes: Bytes,
    /// What the process holds while nobody tells of its allocator: before the profile, and after it once that changes.
    pub unprofiled_bytes: Bytes,
    /// What each process holds, in the order of [`Card::processes`], and then all further ones; of the profiled one as
    /// nvidia-smi last said.
    pub process_bytes: Vec<Bytes>,
}

impl CardMoment {
    /// What the parts of the profiled process and of the others sum to.
    fn attributed(&self, run: Option<usize>) -> Bytes {
        let others = self.process_bytes.iter().enumerate().filter(|(i, _)| Some(*i) != run);
        let own = self.tensor_bytes + self.cached_bytes + self.context_bytes + self.unprofiled_bytes;
        own + others.map(|(_, b)| *b).sum()
    }

    /// What nvidia-smi counts as used and no part accounts for; negative where a sample is older than the parts.
    pub fn rest(&self, run: Option<usize>) -> Option<Bytes> {
        Some(self.used_bytes? - self.attributed(run))
    }
}

/// A card over the time of the logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its place in [`SmiLog::gpus`].
    pub gpu: usize,
    /// The processes that were seen on it, of many the profiled one and those that ever hold most: places in
    /// [`SmiLog::processes`].
    pub processes: Vec<usize>,
    /// How many others there were; in [`CardMoment::process_bytes`] they are one, the last.
    pub further_processes: usize,
    /// Which of `processes` is the profiled one.
    pub run: Option<usize>,
    /// What the profiled process holds beyond its allocator's memory: the median, the least and the most of the samples.
    pub context: Option<[Bytes; 3]>,
    /// The time between two samples, of the log that samples least often.
    period: Nanos,
    /// Which of `moments` are samples.
    told: Vec<usize>,
    /// Whether any moment has tensors of the run, and whether any has what of it is not profiled.
    has_tensors: bool,
    has_unprofiled: bool,
    /// The moments of samples, and between them those at which the allocator's memory changed.
    pub moments: Vec<CardMoment>,
}

/// Each card that the logs saw, with the run on the one that it used. In the window, where there is one, the changes of
/// the allocator's memory between samples are kept as finely as a picture of it shows.
pub fn cards(log: &SmiLog, run: Option<&RunMemory>, window: Option<(Nanos, Nanos)>) -> Vec<Card> {
    let mut seen: Vec<Vec<(Nanos, Bytes)>> = vec![Vec::new(); log.processes.len()];
    for sample in &log.process_samples {
        seen[sample.process].extend(sample.used.map(|used| (sample.time, used)));
    }
    (0..log.gpus.len()).filter_map(|gpu| card(log, gpu, &seen, run, window)).collect()
}

/// Processes beyond those that ever hold most are one part.
const MOST_PROCESSES: usize = 12;

fn card(
    log: &SmiLog,
    gpu: usize,
    seen: &[Vec<(Nanos, Bytes)>],
    run: Option<&RunMemory>,
    window: Option<(Nanos, Nanos)>,
) -> Option<Card> {
    let all: Vec<usize> = (0..log.processes.len()).filter(|p| log.processes[*p].gpu == gpu).collect();
    let run = run.filter(|run| card_of(log, run) == Some(gpu));
    let pid = run.and_then(|run| run.pid);
    let is_own = |p: &usize| Some(log.processes[*p].pid) == pid;
    let mut processes = all.clone();
    processes.sort_by_key(|p| (!is_own(p), std::cmp::Reverse(seen[*p].iter().map(|(_, bytes)| *bytes).max())));
    processes.truncate(MOST_PROCESSES);
    processes.sort_unstable();
    let further_processes = all.len() - processes.len();
    let own = processes.iter().position(is_own);
    let samples = samples(log, gpu, &all, &processes, seen);
    let times: Vec<Nanos> = samples.iter().map(|m| m.time_ns).collect();
    let moments = match run {
        Some(run) => with_changes(samples, run, window),
        None => samples,
    };
    let told = times.iter().map(|time| moments.partition_point(|m| m.time_ns < *time)).collect();
    let mut card = Card {
        gpu,
        processes,
        further_processes,
        run: own,
        period: period(log, gpu),
        told,
        moments,
        ..Card::default()
    };
    if let Some(run) = run {
        card.split(run);
    }
    (!card.moments.is_empty()).then_some(card)
}

/// The card that a run is on: one that the log lists its process on, or else the one of its number. A process often is on
/// the first card too, and the number of its device is that of the card only where it sees all of them
/// (`CUDA_VISIBLE_DEVICES`) in nvidia-smi's order.
fn card_of(log: &SmiLog, run: &RunMemory) -> Option<usize> {
    let is_numbered = |gpu: &usize| run.device_index.is_some() && log.gpus[*gpu].index == run.device_index;
    let listed = || log.processes.iter().filter(|p| Some(p.pid) == run.pid).map(|p| p.gpu);
    let mut all = 0..log.gpus.len();
    match listed().next() {
        Some(first) => Some(listed().find(is_numbered).unwrap_or(first)),
        None if log.gpus.len() == 1 => Some(0),
        None => all.find(is_numbered),
    }
}

/// The usual time between samples of the card, or of its processes if that is longer.
fn period(log: &SmiLog, gpu: usize) -> Nanos {
    let cards = log.gpu_samples.iter().filter(|s| s.gpu == gpu).map(|s| s.time);
    let processes = log.process_samples.iter().filter(|s| log.processes[s.process].gpu == gpu).map(|s| s.time);
    usual_step(cards).max(usual_step(processes)).unwrap_or_default()
}

/// The states of a card as samples told them, by time, with a place for each of `shown` and one for the others of `all`.
fn samples(log: &SmiLog, gpu: usize, all: &[usize], shown: &[usize], seen: &[Vec<(Nanos, Bytes)>]) -> Vec<CardMoment> {
    enum Told {
        Used(Bytes, Option<Bytes>),
        /// A place, and what it holds more or less.
        Process(usize, Bytes),
    }
    let mut told: Vec<(Nanos, Told)> = Vec::new();
    let used = log.gpu_samples.iter().filter(|s| s.gpu == gpu);
    // Without a column for what is free it is all but what is used; nvidia-smi counts what the driver keeps as neither.
    let free = |s: &GpuSample| s.free.or_else(|| Some(log.gpus[gpu].total? - s.used?));
    told.extend(used.filter_map(|s| Some((s.time, Told::Used(s.used?, free(s))))));
    for process in all {
        let place = shown.binary_search(process).unwrap_or(shown.len());
        let mut held = Bytes::ZERO;
        told.extend(with_end(seen[*process].clone()).map(|(time, bytes)| {
            let change = bytes - std::mem::replace(&mut held, bytes);
            (time, Told::Process(place, change))
        }));
    }
    told.sort_by_key(|(time, _)| *time);
    // What is said after the last sample is only that something ended.
    let end = log.gpu_samples.iter().map(|s| s.time).chain(log.process_samples.iter().map(|s| s.time)).max();
    told.retain(|(time, _)| Some(*time) <= end);
    let places = shown.len() + usize::from(all.len() > shown.len());
    let mut now = CardMoment { process_bytes: vec![Bytes::ZERO; places], ..CardMoment::default() };
    let mut moments: Vec<CardMoment> = Vec::new();
    for (time, told) in told {
        now.time_ns = time;
        match told {
            Told::Used(bytes, free) => (now.used_bytes, now.free_bytes) = (Some(bytes), free),
            Told::Process(place, change) => now.process_bytes[place] += change,
        }
        match moments.last_mut() {
            Some(last) if last.time_ns == time => last.clone_from(&now),
            _ => moments.push(now.clone()),
        }
    }
    moments
}

/// How many changes of the allocator's memory are kept: more than a picture has columns.
const CHANGES: usize = 2000;

/// Moments with those at which the allocator's memory changed in between: of each of many stretches of time the highest.
fn with_changes(moments: Vec<CardMoment>, run: &RunMemory, window: Option<(Nanos, Nanos)>) -> Vec<CardMoment> {
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return moments };
    let (first, last) = (first.time_ns, last.time_ns);
    let (first, last) = window.map_or((first, last), |(start, end)| (first.max(start), last.min(end)));
    let within = run.time.partition_point(|t| *t < first)..run.time.partition_point(|t| *t <= last);
    let stretch = within.len().div_ceil(CHANGES).max(1);
    let mut changes: Vec<Nanos> = Vec::new();
    for start in within.clone().step_by(stretch) {
        let part = start..(start + stretch).min(within.end);
        let highest = part.clone().max_by_key(|i| (run.allocated[*i], run.reserved[*i])).unwrap_or(start);
        // Where it begins too, so that a long rest after the highest does not look like it.
        changes.extend([part.start, highest].map(|i| run.time[i]));
    }
    changes.sort_unstable();
    changes.dedup();
    let mut changes = changes.into_iter().peekable();
    let mut all: Vec<CardMoment> = Vec::with_capacity(moments.len() + CHANGES);
    for moment in moments {
        while let Some(time) = changes.next_if(|t| *t < moment.time_ns) {
            if let Some(before) = all.last().cloned() {
                all.push(CardMoment { time_ns: time, ..before });
            }
        }
        let _ = changes.next_if(|t| *t == moment.time_ns);
        all.push(moment);
    }
    all
}

/// The least and the greatest.
fn range(values: impl Iterator<Item = Bytes>) -> Option<(Bytes, Bytes)> {
    values.fold(None, |range, value| {
        let (least, most) = range.unwrap_or((value, value));
        Some((value.min(least), value.max(most)))
    })
}

impl Card {
    /// Splits what the profiled process holds.
    fn split(&mut self, run: &RunMemory) {
        let mut beyond: Vec<Bytes> = Vec::new();
        let (mut context, mut settled) = (None, None);
        let end = run.time.last().copied();
        let mut told = self.told.iter().copied().peekable();
        for i in 0..self.moments.len() {
            let is_sample = told.next_if_eq(&i).is_some();
            let held = self.run.map(|place| self.moments[i].process_bytes[place]);
            let time = self.moments[i].time_ns;
            // As long as it holds what it held when the profile ended, so does its allocator.
            if is_sample && Some(time) > end {
                settled = settled.or(held);
            }
            let known = held.is_none_or(|held| held > Bytes::ZERO && settled.is_none_or(|settled| settled == held));
            let Some((tensors, reserved)) = run.at(time).filter(|_| known) else {
                self.moments[i].unprofiled_bytes = held.unwrap_or_default();
                continue;
            };
            if let Some(held) = held.filter(|_| is_sample) {
                // Of what the allocator had around the sample, whatever changes the context least.
                let far = |state: &Bytes| context.map(|c: Bytes| (held - *state - c).0.saturating_abs());
                let state = self.states_around(i, run).chain([reserved]).min_by_key(far).filter(|_| context.is_some());
                let now = (held - state.unwrap_or(reserved)).max(Bytes::ZERO);
                context = Some(now);
                beyond.push(now);
            }
            let moment = &mut self.moments[i];
            (moment.tensor_bytes, moment.cached_bytes) = (tensors, reserved - tensors);
            moment.context_bytes = context.unwrap_or_default();
        }
        self.has_tensors = self.moments.iter().any(|m| m.tensor_bytes > Bytes::ZERO);
        self.has_unprofiled = self.moments.iter().any(|m| m.unprofiled_bytes > Bytes::ZERO);
        beyond.sort_unstable();
        self.context = beyond.get(beyond.len() / 2).map(|median| [*median, beyond[0], beyond[beyond.len() - 1]]);
    }

    /// The moment at which nvidia-smi saw most in use.
    pub fn peak(&self) -> Option<&CardMoment> {
        let mut peak: Option<&CardMoment> = None;
        for moment in &self.moments {
            if moment.used_bytes.is_some() && peak.is_none_or(|p| moment.used_bytes > p.used_bytes) {
                peak = Some(moment);
            }
        }
        peak
    }

    /// The moment at which the profiled process held most tensors.
    pub fn run_peak(&self) -> Option<&CardMoment> {
        let mut peak: Option<&CardMoment> = None;
        for moment in &self.moments {
            if peak.is_none_or(|p| moment.tensor_bytes > p.tensor_bytes) {
                peak = Some(moment);
            }
        }
        peak.filter(|m| m.tensor_bytes > Bytes::ZERO)
    }

    /// How far nvidia-smi's figure of the card lies, at the worst sample, outside what the parts can sum to with states of
    /// allocator and context from the sample before to the one after and with what is usually left; and when that is.
    pub fn closes_within(&self, run: &RunMemory) -> Option<(Bytes, Nanos)> {
        let mut rests: Vec<Bytes> = self.samples_of(run).filter_map(|i| self.moments[i].rest(self.run)).collect();
        rests.sort_unstable();
        let usual = *rests.get(rests.len() / 2)?;
        let off = |i: usize| {
            let moment = &self.moments[i];
            // What the figure leaves for context and allocator, which may have changed since the sample before.
            let own = moment.rest(self.run)? + moment.tensor_bytes + moment.cached_bytes + moment.context_bytes - usual;
            let (from, to) = (moment.time_ns - self.period, moment.time_ns + self.period);
            let begin = self.told.partition_point(|k| self.moments[*k].time_ns < from);
            let around = self.told[begin..].iter().map(|k| &self.moments[*k]).take_while(|m| m.time_ns <= to);
            // Any context may come with any state of the allocator.
            let (context, state) = (range(around.map(|m| m.context_bytes))?, range(self.states_around(i, run))?);
            let (least, most) = (context.0 + state.0, context.1 + state.1);
            Some(((least - own).max(own - most).max(Bytes::ZERO), moment.time_ns))
        };
        self.samples_of(run).filter_map(off).max_by_key(|(off, time)| (*off, std::cmp::Reverse(*time)))
    }

    /// The samples, as places in [`Self::moments`], in the time that the run's memory is known for and that the logs
    /// list its process in, from a sample before to a sample after: one log tells of a process before another counts it.
    fn samples_of(&self, run: &RunMemory) -> impl Iterator<Item = usize> {
        let (first, last) = (run.time.first().copied(), run.time.last().copied());
        let seen = move |i: &usize| {
            let moment = &self.moments[*i];
            self.run.is_none_or(|place| moment.process_bytes[place] > Bytes::ZERO)
        };
        self.told.windows(3).filter(move |w| w.iter().all(seen)).map(|w| w[1]).filter(move |i| {
            let time = Some(self.moments[*i].time_ns);
            time >= first && time <= last
        })
    }

    /// What the allocator had reserved from a sample before moment `i` to a sample after it.
    fn states_around(&self, i: usize, run: &RunMemory) -> impl Iterator<Item = Bytes> {
        let time = self.moments[i].time_ns;
        let (from, to) = (time - self.period, time + self.period);
        let changes = run.time.partition_point(|t| *t <= from)..run.time.partition_point(|t| *t <= to);
        run.at(from).map(|(_, reserved)| reserved).into_iter().chain(changes.map(|i| run.reserved[i]))
    }

    /// What the parts are called: those of the profiled process where there is one, then the other processes.
    pub fn part_names(&self, log: &SmiLog) -> Vec<String> {
        let mut names = Vec::new();
        if self.holds_run() {
            names.extend(["tensors", "cached by PyTorch", "context and libraries"].map(str::to_owned));
            names.extend(self.has_unprofiled.then(|| "the run, not profiled".to_owned()));
        }
        let others = self.processes.iter().enumerate().filter(|(place, _)| Some(*place) != self.run);
        names.extend(others.map(|(_, p)| {
            let process = &log.processes[*p];
            let name = process.name.as_deref().unwrap_or("process");
            // The program without its folders.
            format!("{} (pid {})", name.rsplit('/').next().unwrap_or(name), process.pid)
        }));
        if self.further_processes > 0 {
            names.push(format!("{} more processes", self.further_processes));
        }
        names
    }

    /// The parts of a moment, in the order of [`Self::part_names`].
    pub fn parts(&self, moment: &CardMoment) -> Vec<Bytes> {
        let mut parts = Vec::new();
        if self.holds_run() {
            parts.extend([moment.tensor_bytes, moment.cached_bytes, moment.context_bytes]);
            parts.extend(self.has_unprofiled.then_some(moment.unprofiled_bytes));
        }
        let others = moment.process_bytes.iter().enumerate().filter(|(place, _)| Some(*place) != self.run);
        parts.extend(others.map(|(_, bytes)| *bytes));
        parts
    }

    /// Whether the profiled process was on this card in the time of the logs.
    pub fn holds_run(&self) -> bool {
        self.has_tensors
    }

    /// The card as a device of a timeline, in the window where there is one.
    pub fn timeline(&self, log: &SmiLog, window: Option<(Nanos, Nanos)>) -> Option<DeviceTimeline> {
        let gpu = &log.gpus[self.gpu];
        let state = |moment: &CardMoment| {
            let row = self.parts(moment);
            let parts: Bytes = row.iter().copied().sum();
            let used = moment.used_bytes.unwrap_or_default();
            // The parts are told at other moments than the whole, and between its samples they may be more.
            let all = used.max(parts);
            let point = Point {
                time_ns: moment.time_ns,
                allocated_bytes: all,
                before_trace_bytes: all - parts,
                reserved_bytes: None,
                free_bytes: moment.free_bytes.map(|free| (free - (all - used)).max(Bytes::ZERO)),
            };
            (point, row)
        };
        let index = gpu.index.map_or(self.gpu.to_string(), |i| i.to_string());
        let name = match &gpu.name {
            Some(name) => format!("GPU {index} ({name})"),
            None => format!("GPU {index}"),
        };
        let states = self.moments.iter().map(state).collect();
        let device = DeviceTimeline::of_states(name, self.part_names(log), states, window)?;
        let (measure, unattributed) = (Measure::Used, Unattributed::NoProcess);
        Some(DeviceTimeline { measure, unattributed, capacity_bytes: gpu.total, ..device })
    }
}

/// The cards over time, as a [`Timeline`] whose series are the parts.
pub fn cards_timeline(log: &SmiLog, cards: &[Card]) -> Timeline {
    let times = || cards.iter().flat_map(|c| &c.moments).map(|m| m.time_ns);
    let start = times().min().unwrap_or_default();
    Timeline {
        trace_start_ns: start,
        start_ns: start,
        end_ns: times().max().unwrap_or_default(),
        devices: cards.iter().filter_map(|card| card.timeline(log, None)).collect(),
        steps: Vec::new(),
        phases: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::smi::{Gpu, Process, ProcessSample};

    /// A card on which many processes come and go: each holds its number of bytes for two of its own samples.
    fn crowd(count: usize) -> SmiLog {
        let mut log = SmiLog { gpus: vec![Gpu { index: Some(0), ..Gpu::default() }], ..SmiLog::default() };
        for i in 0..count {
            log.processes.push(Process { pid: i as u32, name: None, gpu: 0 });
            let sample = |time| ProcessSample {
                time: Nanos(time),
                process: i,
                used: Some(Bytes(1 + i as i64)),
                utilization: None,
            };
            log.process_samples.extend([sample(10 * i as i64), sample(10 * i as i64 + 10)]);
        }
        log.process_samples.sort_by_key(|s| s.time);
        log
    }

    #[test]
    fn what_the_run_holds_while_nobody_tells_of_its_allocator_is_not_its_context() {
        let mut log = crowd(1);
        // Before the profile, in it, after it while nothing changes, and after a change.
        let held = [(0, 50), (10, 100), (20, 100), (30, 100), (40, 70)];
        log.process_samples.clear();
        for (time, bytes) in held {
            let (time, used) = (Nanos(time), Some(Bytes(bytes)));
            log.process_samples.push(ProcessSample { time, process: 0, used, utilization: None });
        }
        let run = RunMemory {
            pid: Some(0),
            device_index: Some(0),
            time: vec![Nanos(5), Nanos(12)],
            allocated: vec![Bytes(10), Bytes(30)],
            reserved: vec![Bytes(60), Bytes(60)],
        };
        let card = cards(&log, Some(&run), None).remove(0);
        let names = ["tensors", "cached by PyTorch", "context and libraries", "the run, not profiled"];
        assert_eq!(card.part_names(&log), names);
        let at = |time: i64| {
            let moment = card.moments.iter().find(|m| m.time_ns == Nanos(time)).unwrap();
            card.parts(moment).iter().map(|b| b.0).collect::<Vec<_>>()
        };
        assert_eq!(at(0), [0, 0, 0, 50]);
        assert_eq!(at(10), [10, 50, 40, 0]);
        assert_eq!((at(20), at(30)), (vec![30, 30, 40, 0], vec![30, 30, 40, 0]));
        assert_eq!(at(40), [0, 0, 0, 70]);
    }

    #[test]
    fn a_run_is_on_the_card_that_lists_its_process_and_else_on_that_of_its_number() {
        let gpus = (0..4).map(|i| Gpu { index: Some(i), ..Gpu::default() }).collect();
        let mut log = SmiLog { gpus, ..SmiLog::default() };
        log.processes = [(7, 3), (8, 0), (8, 2)].map(|(pid, gpu)| Process { pid, name: None, gpu }).into();
        let on = |pid: Option<u32>, device_index: Option<u32>| {
            card_of(&log, &RunMemory { pid, device_index, ..RunMemory::default() })
        };
        assert_eq!(on(Some(7), Some(0)), Some(3), "it sees but one card");
        assert_eq!(on(Some(8), Some(2)), Some(2), "it has a context on the first card too");
        assert_eq!(on(Some(9), Some(1)), Some(1), "its pid is that of a container");
        assert_eq!(on(None, Some(5)), None);
    }

    #[test]
    fn of_many_processes_the_profiled_one_and_the_largest_are_shown_and_the_rest_is_one_part() {
        let log = crowd(100);
        let run = RunMemory { pid: Some(3), device_index: Some(0), ..RunMemory::default() };
        let cards = cards(&log, Some(&run), None);
        let [card] = cards.as_slice() else { panic!("one card") };
        assert_eq!((card.processes.len(), card.further_processes), (MOST_PROCESSES, 100 - MOST_PROCESSES));
        assert_eq!(card.run.map(|place| card.processes[place]), Some(3));
        assert_eq!(card.part_names(&log).last().unwrap(), "88 more processes");
        for (i, moment) in card.moments.iter().enumerate() {
            // At each moment one process is gone, the one after it is seen for the second time and the next is new.
            let held: i64 = (i.saturating_sub(1)..=i).filter(|p| *p < 100).map(|p| 1 + p as i64).sum();
            let own = card.run.map_or(Bytes::ZERO, |place| moment.process_bytes[place]);
            assert_eq!(card.parts(moment).into_iter().sum::<Bytes>() + own, Bytes(held), "{i}");
        }
    }
}
