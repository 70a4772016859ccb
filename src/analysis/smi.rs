//! Who used the cards, how much and how well, from what nvidia-smi saw.
//!
//! Figures are of the samples: a peak between two of them is not seen, and the used memory of a card is more than the sum
//! of its processes (the driver keeps some for itself, and a container sees its own processes only).

use crate::trace::smi::{ProcessSample, SmiLog};
use crate::units::{Bytes, Nanos};
use serde::Serialize;

/// A card over the time of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuUse {
    /// Its place in [`SmiLog::gpus`].
    pub gpu: usize,
    /// The first sample.
    pub first_ns: Nanos,
    /// The last sample.
    pub last_ns: Nanos,
    /// How many samples.
    pub sample_count: u64,
    /// The most memory in use.
    pub peak_used_bytes: Option<Bytes>,
    /// When that was first reached.
    pub peak_time_ns: Option<Nanos>,
    /// The least memory in use.
    pub least_used_bytes: Option<Bytes>,
    /// All memory of the card.
    pub total_bytes: Option<Bytes>,
    /// Peak / total.
    pub peak_share: Option<f64>,
    /// Mean of the samples' utilization in percent.
    pub mean_utilization: Option<f64>,
    /// The highest utilization in percent.
    pub peak_utilization: Option<f64>,
}

/// A process over its time in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessUse {
    /// Its place in [`SmiLog::processes`].
    pub process: usize,
    /// The first sample that has it.
    pub first_ns: Nanos,
    /// The last sample that has it.
    pub last_ns: Nanos,
    /// How many samples.
    pub sample_count: u64,
    /// The most memory that it held.
    pub peak_used_bytes: Option<Bytes>,
    /// The least memory that it held.
    pub least_used_bytes: Option<Bytes>,
    /// Peak / all memory of its card.
    pub peak_share: Option<f64>,
    /// Mean of the samples' utilization in percent, of those that have one.
    pub mean_utilization: Option<f64>,
    /// The highest utilization in percent.
    pub peak_utilization: Option<f64>,
}

/// Something to know about a card or a process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum SmiFinding {
    /// The card's memory was nearly full.
    NearlyFull {
        /// Place in the list of cards.
        gpu: usize,
        /// Peak / total.
        share: f64,
    },
    /// Much memory was held while the card did little.
    HeldAtLowUtilization {
        /// Place in the list of cards.
        gpu: usize,
        /// Peak / total.
        share: f64,
        /// Mean utilization in percent.
        mean_utilization: f64,
    },
    /// A process held memory that never changed, and ran no kernel that a sample saw.
    HoldsAndIdles {
        /// Place in the list of processes.
        process: usize,
        /// What it held.
        used_bytes: Bytes,
        /// For how long.
        duration_ns: Nanos,
        /// Whether the log tells the process's utilization at all; without, that it idles is concluded from its memory.
        utilization_known: bool,
    },
    /// A process was still there when the run had ended.
    OutlivesRun {
        /// Place in the list of processes.
        process: usize,
        /// What it held then.
        used_bytes: Bytes,
        /// How long after the end of the run it was last seen.
        after_ns: Nanos,
    },
}

/// When findings are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmiThresholds {
    /// A card above this share is nearly full.
    pub nearly_full: f64,
    /// A card above this share holds much.
    pub holds_much: f64,
    /// A card below this mean utilization (percent) does little.
    pub does_little: f64,
    /// Processes that hold less are left alone: a context without a tensor has some hundred MiB.
    pub least_held: Bytes,
    /// Processes seen for a shorter time are left alone.
    pub least_duration: Nanos,
}

impl Default for SmiThresholds {
    fn default() -> Self {
        Self {
            nearly_full: 0.95,
            holds_much: 0.5,
            does_little: 20.0,
            least_held: Bytes(1 << 30),
            least_duration: Nanos(3_000_000_000),
        }
    }
}

/// The profiled run, where it is known: what else is on the card is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its process id as nvidia-smi has it.
    pub pid: Option<u32>,
    /// When it began.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
}

/// What the logs say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmiUse {
    /// Each card that has samples, in the order of [`SmiLog::gpus`].
    pub gpus: Vec<GpuUse>,
    /// Each process, in the order of [`SmiLog::processes`].
    pub processes: Vec<ProcessUse>,
    /// What stands out: cards, then processes.
    pub findings: Vec<SmiFinding>,
}

/// The use of all cards and processes.
pub fn smi_use(log: &SmiLog, run: Option<Run>, thresholds: &SmiThresholds) -> SmiUse {
    let mut use_ = SmiUse { gpus: gpu_uses(log), processes: process_uses(log), findings: Vec::new() };
    for gpu in &use_.gpus {
        let Some(share) = gpu.peak_share else { continue };
        if share >= thresholds.nearly_full {
            use_.findings.push(SmiFinding::NearlyFull { gpu: gpu.gpu, share });
        }
        let low = gpu.mean_utilization.filter(|mean| *mean < thresholds.does_little && share >= thresholds.holds_much);
        use_.findings.extend(low.map(|mean_utilization| SmiFinding::HeldAtLowUtilization {
            gpu: gpu.gpu,
            share,
            mean_utilization,
        }));
    }
    let last_held = last_held(log);
    for process in &use_.processes {
        use_.findings.extend(idles(process, thresholds));
        use_.findings.extend(run.and_then(|run| outlives(log, process, last_held[process.process], run)));
    }
    use_
}

/// Running figures of a series of samples.
#[derive(Clone, Copy, Default)]
struct Series {
    first: Option<Nanos>,
    last: Nanos,
    count: u64,
    peak: Option<(Bytes, Nanos)>,
    least: Option<Bytes>,
    utilization: (f64, u64, f64),
}

impl Series {
    fn add(&mut self, time: Nanos, used: Option<Bytes>, utilization: Option<f64>) {
        self.first.get_or_insert(time);
        self.last = self.last.max(time);
        self.count += 1;
        if let Some(used) = used {
            if self.peak.is_none_or(|(peak, _)| used > peak) {
                self.peak = Some((used, time));
            }
            self.least = Some(self.least.map_or(used, |least| least.min(used)));
        }
        if let Some(percent) = utilization {
            let (sum, count, highest) = self.utilization;
            self.utilization = (sum + percent, count + 1, highest.max(percent));
        }
    }

    fn mean_utilization(&self) -> Option<f64> {
        let (sum, count, _) = self.utilization;
        (count > 0).then(|| sum / count as f64)
    }

    fn peak_utilization(&self) -> Option<f64> {
        let (_, count, highest) = self.utilization;
        (count > 0).then_some(highest)
    }

    fn share(&self, total: Option<Bytes>) -> Option<f64> {
        let (peak, total) = (self.peak?.0, total.filter(|total| *total > Bytes::ZERO)?);
        Some(peak.0 as f64 / total.0 as f64)
    }
}

fn gpu_uses(log: &SmiLog) -> Vec<GpuUse> {
    let mut series = vec![Series::default(); log.gpus.len()];
    for sample in &log.gpu_samples {
        series[sample.gpu].add(sample.time, sample.used, sample.utilization);
    }
    let uses = series.iter().enumerate().filter_map(|(gpu, s)| {
        let total_bytes = log.gpus[gpu].total;
        Some(GpuUse {
            gpu,
            first_ns: s.first?,
            last_ns: s.last,
            sample_count: s.count,
            peak_used_bytes: s.peak.map(|(bytes, _)| bytes),
            peak_time_ns: s.peak.map(|(_, time)| time),
            least_used_bytes: s.least,
            total_bytes,
            peak_share: s.share(total_bytes),
            mean_utilization: s.mean_utilization(),
            peak_utilization: s.peak_utilization(),
        })
    });
    uses.collect()
}

fn process_uses(log: &SmiLog) -> Vec<ProcessUse> {
    let mut series = vec![Series::default(); log.processes.len()];
    for sample in &log.process_samples {
        series[sample.process].add(sample.time, sample.used, sample.utilization);
    }
    let uses = series.iter().enumerate().filter_map(|(process, s)| {
        Some(ProcessUse {
            process,
            first_ns: s.first?,
            last_ns: s.last,
            sample_count: s.count,
            peak_used_bytes: s.peak.map(|(bytes, _)| bytes),
            least_used_bytes: s.least,
            peak_share: s.share(log.gpus[log.processes[process].gpu].total),
            mean_utilization: s.mean_utilization(),
            peak_utilization: s.peak_utilization(),
        })
    });
    uses.collect()
}

fn idles(process: &ProcessUse, thresholds: &SmiThresholds) -> Option<SmiFinding> {
    let used_bytes = process.peak_used_bytes.filter(|used| *used >= thresholds.least_held)?;
    let duration_ns = process.last_ns - process.first_ns;
    let unchanged = process.least_used_bytes == Some(used_bytes);
    let works = process.peak_utilization.is_some_and(|percent| percent > 0.0);
    let utilization_known = process.peak_utilization.is_some();
    (unchanged && !works && duration_ns >= thresholds.least_duration).then_some(SmiFinding::HoldsAndIdles {
        process: process.process,
        used_bytes,
        duration_ns,
        utilization_known,
    })
}

/// What each process held when it was last seen.
fn last_held(log: &SmiLog) -> Vec<Option<Bytes>> {
    let mut held = vec![None; log.processes.len()];
    for &ProcessSample { process, used, .. } in &log.process_samples {
        held[process] = used.or(held[process]);
    }
    held
}

fn outlives(log: &SmiLog, process: &ProcessUse, held: Option<Bytes>, run: Run) -> Option<SmiFinding> {
    let is_run = run.pid == Some(log.processes[process.process].pid);
    let after_ns = process.last_ns - run.end;
    (after_ns > Nanos::ZERO && !is_run).then(|| SmiFinding::OutlivesRun {
        process: process.process,
        used_bytes: held.unwrap_or_default(),
        after_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::smi::{Gpu, GpuSample, Process};

    const GIB: i64 = 1 << 30;

    /// One card of 10 GiB at second 0 and 10; process 7 holds 3 GiB unchanged, process 8 grows from 1 to 6.
    fn log() -> SmiLog {
        let second = |n: i64| Nanos(n * 1_000_000_000);
        let gib = |n: i64| Some(Bytes(n * GIB));
        let gpu = |n, used, utilization| GpuSample {
            time: second(n),
            used: gib(used),
            utilization: Some(utilization),
            ..Default::default()
        };
        let process =
            |n, process, used, utilization| ProcessSample { time: second(n), process, used: gib(used), utilization };
        SmiLog {
            gpus: vec![Gpu { total: gib(10), ..Default::default() }],
            processes: [7, 8].map(|pid| Process { pid, ..Default::default() }).to_vec(),
            gpu_samples: vec![gpu(0, 4, 0.0), gpu(10, 9, 30.0)],
            process_samples: vec![
                process(0, 0, 3, None),
                process(0, 1, 1, Some(0.0)),
                process(10, 0, 3, Some(0.0)),
                process(10, 1, 6, Some(30.0)),
            ],
            ..Default::default()
        }
    }

    #[test]
    fn cards_and_processes_have_peaks_spans_and_means() {
        let found = smi_use(&log(), None, &SmiThresholds::default());
        let gpu = found.gpus[0];
        assert_eq!((gpu.peak_used_bytes, gpu.least_used_bytes), (Some(Bytes(9 * GIB)), Some(Bytes(4 * GIB))));
        assert_eq!((gpu.peak_share, gpu.mean_utilization, gpu.peak_utilization), (Some(0.9), Some(15.0), Some(30.0)));
        assert_eq!(found.processes[1].last_ns - found.processes[1].first_ns, Nanos(10_000_000_000));
        assert_eq!(found.processes[0].mean_utilization, Some(0.0));
    }

    #[test]
    fn a_process_that_holds_and_does_nothing_is_found_and_a_working_one_is_not() {
        let found = smi_use(&log(), None, &SmiThresholds::default());
        let low = SmiFinding::HeldAtLowUtilization { gpu: 0, share: 0.9, mean_utilization: 15.0 };
        let idle = SmiFinding::HoldsAndIdles {
            process: 0,
            used_bytes: Bytes(3 * GIB),
            duration_ns: Nanos(10_000_000_000),
            utilization_known: true,
        };
        assert_eq!(found.findings, [low, idle]);
        let full =
            SmiThresholds { nearly_full: 0.9, least_held: Bytes(4 * GIB), holds_much: 1.0, ..Default::default() };
        let found = smi_use(&log(), None, &full);
        assert_eq!(found.findings, [SmiFinding::NearlyFull { gpu: 0, share: 0.9 }]);
    }

    #[test]
    fn what_is_there_after_the_run_is_left_over_unless_it_is_the_run() {
        let run = Run { pid: Some(8), start: Nanos(0), end: Nanos(4_000_000_000) };
        let found = smi_use(&log(), Some(run), &SmiThresholds::default());
        let left = SmiFinding::OutlivesRun { process: 0, used_bytes: Bytes(3 * GIB), after_ns: Nanos(6_000_000_000) };
        assert!(found.findings.contains(&left));
        let outliving = found.findings.iter().filter(|f| matches!(f, SmiFinding::OutlivesRun { .. }));
        assert_eq!(outliving.count(), 1);
    }
}
