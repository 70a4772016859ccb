//! The NVIDIA driver asked directly, as nvidia-smi asks it: its library (NVML) is loaded at run time.
//!
//! What it answers goes into the same [`SmiLog`] as logs do, with bytes where these have whole MiB, and in UTC.

use crate::error::{Error, Result};
use crate::trace::Severity;
use crate::trace::smi::{Gpu, GpuSample, Process, ProcessSample, SmiLog};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::ffi::OsStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// What it is called on machines without the driver's development files, which alone have the name without a number.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// A path to a program that is longer is cut by the driver.
const LONGEST_NAME: usize = 4096;

/// The driver of this machine, and what it was asked for so far.
pub struct LiveSmi {
    nvml: Nvml,
    log: SmiLog,
    places: HashMap<(usize, u32), usize>,
    /// The names of processes; `None` where the driver tells none.
    names: HashMap<u32, Option<String>>,
    /// For each card up to when the driver told what its processes did, by the driver's clock.
    told_to: Vec<u64>,
}

/// What the driver says of a card at one moment.
#[derive(Default)]
struct Reading {
    gpu: Gpu,
    used: Option<Bytes>,
    free: Option<Bytes>,
    utilization: Option<f64>,
    memory_utilization: Option<f64>,
    /// Process id and device memory, of each process.
    processes: Vec<(u32, Option<Bytes>)>,
    /// Percent of the time since the last reading, of the processes that ran kernels; `None` where the card cannot tell.
    busy: Option<HashMap<u32, f64>>,
    /// Why the driver did not list the processes, if it should have.
    unanswered: Option<NvmlError>,
}

impl LiveSmi {
    /// Loads the driver's library and greets it.
    ///
    /// # Errors
    ///
    /// Where there is no driver, or it sees no card.
    pub fn open() -> Result<Self> {
        let nvml = Nvml::init().or_else(|first| {
            let found = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init();
            // That the second name is not there either says no more than that the first is not.
            found.map_err(|second| if is_absent(&second) { first } else { second })
        });
        let nvml = nvml.map_err(|e| if is_absent(&e) { no_driver() } else { no_answer(&e) })?;
        let count = nvml.device_count().map_err(|e| no_answer(&e))?;
        if count == 0 {
            return Err(Error::missing("the NVIDIA driver sees no card", "look at what `nvidia-smi` says"));
        }
        let (log, places, names) = Default::default();
        // The driver's clock is that of Unix in microseconds; what was before is not asked for.
        let told_to = vec![now().0.unsigned_abs() / 1000; count as usize];
        Ok(Self { nvml, log, places, names, told_to })
    }

    /// Asks for one sample of every card and of every process on it. What the driver does not answer is counted in the
    /// log's diagnostics.
    pub fn sample(&mut self) {
        for index in 0..self.told_to.len() {
            let time = now();
            match self.nvml.device_by_index(index as u32).and_then(|d| read(&d, index as u32, &mut self.told_to[index]))
            {
                Ok(mut reading) => {
                    let unanswered = reading.unanswered.take();
                    self.take(time, reading);
                    if let Some(error) = unanswered {
                        self.note("the processes of a card", &error);
                    }
                }
                Err(error) => self.note("a card", &error),
            }
        }
    }

    fn note(&mut self, what: &str, error: &NvmlError) {
        self.log.diagnostics.note("no-answer", Severity::Warning, None, || {
            format!("the driver did not answer when asked for {what}: {error}")
        });
    }

    fn take(&mut self, time: Nanos, reading: Reading) {
        let nvml = &self.nvml;
        let names = &mut self.names;
        let mut name =
            |pid: u32| names.entry(pid).or_insert_with(|| nvml.sys_process_name(pid, LONGEST_NAME).ok()).clone();
        take(&mut self.log, &mut self.places, time, reading, &mut name);
    }

    /// Whatever was sampled.
    pub fn into_log(self) -> SmiLog {
        self.log
    }
}

fn is_absent(error: &NvmlError) -> bool {
    matches!(error, NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound)
}

fn no_driver() -> Error {
    Error::missing(
        "there is no NVIDIA driver on this machine: its library (NVML) cannot be loaded",
        "run it where the cards are, or record there with nvidia-smi and give the logs",
    )
}

fn no_answer(error: &NvmlError) -> Error {
    Error::missing(format!("the NVIDIA driver does not answer: {error}"), "look at what `nvidia-smi` says")
}

/// Unix time.
fn now() -> Nanos {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX))
}

fn bytes(n: u64) -> Bytes {
    Bytes(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Asks for a card. Only its memory has to be told: not every card counts its work or may list processes.
fn read(device: &Device<'_>, index: u32, told_to: &mut u64) -> std::result::Result<Reading, NvmlError> {
    let memory = device.memory_info()?;
    let work = device.utilization_rates().ok();
    let mut processes: Vec<(u32, Option<Bytes>)> = Vec::new();
    let mut unanswered = None;
    let mut listed = |processes: std::result::Result<Vec<_>, NvmlError>| {
        processes.unwrap_or_else(|error| {
            // A card that has no such list is no card that does not answer.
            if !matches!(error, NvmlError::NotSupported) {
                unanswered = Some(error);
            }
            Vec::new()
        })
    };
    let compute = listed(device.running_compute_processes());
    for process in compute.into_iter().chain(listed(device.running_graphics_processes())) {
        // One that computes and draws is in both lists.
        if !processes.iter().any(|(pid, _)| *pid == process.pid) {
            let used = match process.used_gpu_memory {
                UsedGpuMemory::Used(n) => Some(bytes(n)),
                UsedGpuMemory::Unavailable => None,
            };
            processes.push((process.pid, used));
        }
    }
    let busy = match device.process_utilization_stats(*told_to) {
        Ok(samples) => {
            *told_to = samples.iter().map(|s| s.timestamp).max().unwrap_or(*told_to).max(*told_to);
            let mut sums: HashMap<u32, (f64, f64)> = HashMap::new();
            for sample in samples {
                let (sum, count) = sums.entry(sample.pid).or_default();
                *sum += f64::from(sample.sm_util);
                *count += 1.0;
            }
            Some(sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect())
        }
        // None of them did anything.
        Err(NvmlError::NotFound) => Some(HashMap::new()),
        Err(_) => None,
    };
    Ok(Reading {
        gpu: Gpu {
            index: Some(index),
            uuid: device.uuid().ok(),
            bus_id: device.pci_info().ok().map(|pci| pci.bus_id),
            name: device.name().ok(),
            total: Some(bytes(memory.total)),
        },
        used: Some(bytes(memory.used)),
        free: Some(bytes(memory.free)),
        utilization: work.as_ref().map(|w| w.gpu.into()),
        memory_utilization: work.map(|w| w.memory.into()),
        processes,
        busy,
        unanswered,
    })
}

/// Adds a reading to the log.
fn take(
    log: &mut SmiLog,
    places: &mut HashMap<(usize, u32), usize>,
    time: Nanos,
    reading: Reading,
    name: &mut dyn FnMut(u32) -> Option<String>,
) {
    let gpu = log.gpu(reading.gpu);
    log.gpu_samples.push(GpuSample {
        time,
        gpu,
        used: reading.used,
        free: reading.free,
        utilization: reading.utilization,
        memory_utilization: reading.memory_utilization,
    });
    for (pid, used) in reading.processes {
        let process = log.process(places, Process { pid, name: name(pid), gpu });
        // The driver lists the work of those that did some.
        let utilization = reading.busy.as_ref().map(|busy| busy.get(&pid).copied().unwrap_or(0.0));
        log.process_samples.push(ProcessSample { time, process, used, utilization });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_become_samples_as_those_of_a_log() {
        let (mut log, mut places) = (SmiLog::default(), HashMap::new());
        let gpu = |index| Gpu { index: Some(index), total: Some(Bytes(100)), ..Gpu::default() };
        let busy = Some([(8, 40.0)].into_iter().collect());
        let processes = vec![(7, Some(Bytes(10))), (8, Some(Bytes(20)))];
        let reading = Reading { gpu: gpu(0), used: Some(Bytes(31)), processes, busy, ..Reading::default() };
        let mut name = |pid| (pid == 7).then(|| "python".to_owned());
        take(&mut log, &mut places, Nanos(5), reading, &mut name);
        let reading = Reading { gpu: gpu(1), processes: vec![(7, None)], ..Reading::default() };
        take(&mut log, &mut places, Nanos(6), reading, &mut name);
        assert_eq!((log.gpus.len(), log.gpu_samples.len()), (2, 2));
        let told: Vec<_> = log.process_samples.iter().map(|s| (s.time.0, s.process, s.used, s.utilization)).collect();
        let expected = [(5, 0, Some(Bytes(10)), Some(0.0)), (5, 1, Some(Bytes(20)), Some(40.0)), (6, 2, None, None)];
        assert_eq!(told, expected, "a process on two cards is two; work is 0 only where the card tells of work");
        assert_eq!(log.processes[0].name.as_deref(), Some("python"));
    }
}
