//! What nvidia-smi saw: the memory and the work of whole cards and of processes, over wall-clock time.
//!
//! nvidia-smi prints local time without a zone. Times here are that clock read as if it were UTC, less the offset that
//! the reader was told; [`Clock`] says how much they mean.

use super::Diagnostics;
use crate::error::{Error, Result};
use crate::units::{Bytes, Nanos};

/// Samples of one or several logs of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SmiLog {
    /// The cards, in the order of their first appearance.
    pub gpus: Vec<Gpu>,
    /// The processes, each on one card, in the order of their first appearance.
    pub processes: Vec<Process>,
    /// Samples of cards, by time.
    pub gpu_samples: Vec<GpuSample>,
    /// Samples of processes, by time.
    pub process_samples: Vec<ProcessSample>,
    /// What the times mean: the least of the logs.
    pub clock: Clock,
    /// What was skipped or guessed.
    pub diagnostics: Diagnostics,
}

/// What the times of a log mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// Date and time of day.
    #[default]
    Wall,
    /// Time of day from midnight of the first day.
    TimeOfDay,
    /// No times: samples stand one second apart, nvidia-smi's default.
    Ticks,
}

impl Clock {
    fn words(self) -> &'static str {
        match self {
            Self::Wall => "dates and times",
            Self::TimeOfDay => "times of day",
            Self::Ticks => "no times",
        }
    }
}

/// What is known of a card; logs name it by different words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// nvidia-smi's index.
    pub index: Option<u32>,
    /// `GPU-...`.
    pub uuid: Option<String>,
    /// `00000000:01:00.0`.
    pub bus_id: Option<String>,
    /// The product.
    pub name: Option<String>,
    /// All of its memory.
    pub total: Option<Bytes>,
}

/// A process on a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The process id, as the log has it (of the host, or of the container).
    pub pid: u32,
    /// The program, where the log names it.
    pub name: Option<String>,
    /// Its card: a place in [`SmiLog::gpus`].
    pub gpu: usize,
}

/// A card at one moment. Absent is what the log does not say or the card does not support.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuSample {
    /// When.
    pub time: Nanos,
    /// The card: a place in [`SmiLog::gpus`].
    pub gpu: usize,
    /// Memory in use, by all processes and the driver.
    pub used: Option<Bytes>,
    /// Memory free.
    pub free: Option<Bytes>,
    /// Percent of the last period in which a kernel ran.
    pub utilization: Option<f64>,
    /// Percent of the last period in which memory was read or written.
    pub memory_utilization: Option<f64>,
}

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessSample {
    /// When.
    pub time: Nanos,
    /// The process: a place in [`SmiLog::processes`].
    pub process: usize,
    /// Device memory that it holds: tensors, cache, context and libraries.
    pub used: Option<Bytes>,
    /// Percent of the last period in which one of its kernels ran.
    pub utilization: Option<f64>,
}

impl SmiLog {
    /// When the first and the last sample are; `None` without any.
    pub fn span(&self) -> Option<(Nanos, Nanos)> {
        let times = || self.gpu_samples.iter().map(|s| s.time).chain(self.process_samples.iter().map(|s| s.time));
        Some((times().min()?, times().max()?))
    }

    /// The place of the card that `gpu` describes; what it adds to what is known is kept.
    pub(crate) fn gpu(&mut self, gpu: Gpu) -> usize {
        // The same if they agree in every word that both know, and know one in common.
        let same = |known: &Gpu| {
            let index = known.index.zip(gpu.index).map(|(a, b)| a == b);
            let uuid = known.uuid.as_ref().zip(gpu.uuid.as_ref()).map(|(a, b)| a == b);
            let bus_id = known.bus_id.as_ref().zip(gpu.bus_id.as_ref()).map(|(a, b)| a == b);
            let words = [index, uuid, bus_id];
            words.iter().any(Option::is_some) && words.iter().flatten().all(|same| *same)
        };
        let nameless = gpu.index.is_none() && gpu.uuid.is_none() && gpu.bus_id.is_none();
        let place = match self.gpus.iter().position(same) {
            Some(place) => place,
            None if nameless && self.gpus.len() == 1 => 0,
            None => {
                self.gpus.push(Gpu::default());
                self.gpus.len() - 1
            }
        };
        merge(&mut self.gpus[place], gpu);
        place
    }

    /// The place of a process.
    pub(crate) fn process(&mut self, places: &mut hashbrown::HashMap<(usize, u32), usize>, process: Process) -> usize {
        let place = *places.entry((process.gpu, process.pid)).or_insert_with(|| {
            self.processes.push(Process { name: None, ..process.clone() });
            self.processes.len() - 1
        });
        let known = &mut self.processes[place];
        // `pmon` shortens what `--query-compute-apps` writes in full.
        if process.name.as_ref().map_or(0, String::len) > known.name.as_ref().map_or(0, String::len) {
            known.name = process.name;
        }
        place
    }

    /// Adds another log of the same machine. Where one log names its only card by index and the other its only one by
    /// uuid, they are taken to be the same.
    ///
    /// # Errors
    ///
    /// Where the other log's times are of another kind: the two have no axis in common.
    pub fn append(&mut self, other: Self) -> Result<()> {
        if self.clock != other.clock {
            let (expected, found) = (self.clock.words(), other.clock.words());
            return Err(Error::format(
                format!("a log with {expected}, as the one before"),
                format!("one with {found}"),
            )
            .with_hint("record both with dates (`timestamp` in --query-gpu, `-o DT` for dmon and pmon)"));
        }
        let alone = self.gpus.len() == 1 && other.gpus.len() == 1;
        let gpus: Vec<usize> = other
            .gpus
            .into_iter()
            .map(|gpu| {
                let no_contradiction = |known: &Gpu| known.index.zip(gpu.index).is_none_or(|(a, b)| a == b);
                if alone && self.gpus.first().is_some_and(no_contradiction) {
                    merge(&mut self.gpus[0], gpu);
                    return 0;
                }
                self.gpu(gpu)
            })
            .collect();
        let mut places = self.processes.iter().enumerate().map(|(i, p)| ((p.gpu, p.pid), i)).collect();
        let processes: Vec<usize> = other
            .processes
            .into_iter()
            .map(|process| self.process(&mut places, Process { gpu: gpus[process.gpu], ..process }))
            .collect();
        self.gpu_samples.extend(other.gpu_samples.into_iter().map(|s| GpuSample { gpu: gpus[s.gpu], ..s }));
        let samples = other.process_samples.into_iter();
        self.process_samples.extend(samples.map(|s| ProcessSample { process: processes[s.process], ..s }));
        self.gpu_samples.sort_by_key(|s| s.time);
        self.process_samples.sort_by_key(|s| s.time);
        self.diagnostics.append(other.diagnostics);
        Ok(())
    }
}

fn merge(known: &mut Gpu, gpu: Gpu) {
    known.index = known.index.or(gpu.index);
    known.uuid = known.uuid.take().or(gpu.uuid);
    known.bus_id = known.bus_id.take().or(gpu.bus_id);
    known.name = known.name.take().or(gpu.name);
    known.total = known.total.or(gpu.total);
}
