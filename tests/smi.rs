//! Logs of nvidia-smi and memory_profiler, real ones.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::PathBuf;
use tracetool::analysis::smi::{Run, SmiFinding, SmiThresholds, smi_use};
use tracetool::input::{SmiOptions, read_mprof, read_smi};
use tracetool::trace::smi::{Clock, SmiLog};
use tracetool::units::{Bytes, Nanos};

fn shared(name: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/traces").join(name);
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        eprintln!("skipped: {name} is not here");
    }
    bytes
}

fn log(name: &str) -> Option<SmiLog> {
    shared(name).map(|bytes| read_smi(&bytes, &SmiOptions::default()).unwrap())
}

const MIB: i64 = 1 << 20;

#[test]
fn the_formats_of_one_run_tell_the_same() {
    let [Some(gpu), Some(bare), Some(apps), Some(dmon), Some(pmon)] =
        ["gpu.csv", "gpu_nounits.csv", "apps.csv", "dmon.txt", "pmon.txt"]
            .map(|end| log(&format!("h200/threeway.smi_{end}")))
    else {
        return;
    };
    assert_eq!([gpu.gpu_samples.len(), bare.gpu_samples.len(), dmon.gpu_samples.len()], [214, 214, 22]);
    assert_eq!([apps.process_samples.len(), pmon.process_samples.len()], [203, 39]);
    let peak = |log: &SmiLog| log.gpu_samples.iter().filter_map(|s| s.used).max();
    assert_eq!(peak(&gpu), peak(&bare));
    assert_eq!(peak(&gpu), peak(&dmon));
    let mut all = SmiLog::default();
    for log in [gpu, bare, apps, dmon, pmon] {
        assert_eq!(log.clock, Clock::Wall);
        all.append(log);
    }
    assert_eq!(all.gpus.len(), 1);
    assert_eq!(all.gpus[0].name.as_deref(), Some("NVIDIA H200"));
    assert_eq!(all.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [595, 575]);
    // The other process holds a tensor of 5 GiB, and its context and libraries.
    let run = Run { pid: Some(575), start: Nanos(1_796_094_510_958_106_500), end: Nanos(1_796_094_514_277_487_000) };
    let found = smi_use(&all, Some(run), &SmiThresholds::default());
    let idle = found.findings.iter().find_map(|f| match f {
        SmiFinding::HoldsAndIdles { process, used_bytes, .. } => Some((all.processes[*process].pid, *used_bytes)),
        _ => None,
    });
    assert_eq!(idle, Some((595, Bytes(5730 * MIB))));
    assert!(found.findings.iter().any(|f| matches!(f, SmiFinding::OutlivesRun { process: 0, .. })));
    assert_eq!(found.gpus[0].total_bytes, Some(Bytes(143_771 * MIB)));
}

#[test]
fn a_log_with_its_header_before_every_line_is_read() {
    let Some(log) = log("public/smi_repeated_header/gpu_usage.csv") else { return };
    assert_eq!(log.gpu_samples.len(), 224);
    assert!(log.diagnostics.is_empty());
    assert_eq!(log.gpus[0].bus_id.as_deref(), Some("00000000:01:00.0"));
    assert_eq!(log.gpu_samples[0].used, Some(Bytes(841 * MIB)));
}

#[test]
fn a_recording_of_memory_profiler_is_read() {
    let Some(bytes) = shared("public/mprof/mprofile.dat") else { return };
    let memory = read_mprof(&bytes).unwrap();
    assert_eq!(memory.samples.len(), 364);
    assert!(memory.diagnostics.is_empty());
    assert!(memory.samples.iter().all(|s| s.bytes.0 % 4096 == 0));
    assert_eq!(memory.samples[0].bytes, Bytes(131_072));
}
