//! Logs of nvidia-smi and memory_profiler, real ones.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::Command;
use tracetool::analysis::card::{RunMemory, cards};
use tracetool::analysis::smi::{Run, SmiFinding, SmiThresholds, smi_use};
use tracetool::input::{ReadOptions, SmiOptions, read_mprof, read_smi};
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
        all.append(log).unwrap();
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

#[test]
fn the_card_is_accounted_for_within_one_sample() {
    let (Some(gpu), Some(apps)) = (log("h200/threeway.smi_gpu.csv"), log("h200/threeway.smi_apps.csv")) else { return };
    let mut log = gpu;
    log.append(apps).unwrap();
    let read = |name: &str| {
        let bytes = shared(&format!("h200/threeway.{name}")).unwrap();
        let trace = tracetool::input::read(std::io::Cursor::new(bytes), &ReadOptions::default()).unwrap();
        RunMemory::of(&trace, None, Nanos::ZERO).unwrap()
    };
    let mut run = read("pt.trace.json.gz");
    run.extend(&read("snapshot.pickle.gz"));
    assert_eq!(run.pid, Some(575));
    let cards = cards(&log, Some(&run), None);
    let [card] = cards.as_slice() else { panic!("one card, found {}", cards.len()) };
    let other = card.part_names(&log).iter().position(|name| name == "python3 (pid 595)").unwrap();
    let peak = card.peak().unwrap();
    assert_eq!(peak.used_bytes, Some(Bytes(10_513 * MIB)));
    // The other process holds 5 GiB and its context; what no process accounts for is the driver's.
    assert_eq!(card.parts(peak)[other], Bytes(5730 * MIB));
    let rest = peak.rest(card.run).unwrap();
    assert!((Bytes::ZERO..Bytes(32 * MIB)).contains(&rest), "{rest}");
    let (off, _) = card.closes_within(&run).unwrap();
    assert!(off < Bytes(32 * MIB), "{off}");
    // Parts sum to the figure, whatever they are.
    for m in card.moments.iter().filter(|m| m.used_bytes.is_some()) {
        let parts: Bytes = card.parts(m).into_iter().sum();
        assert_eq!(Some(parts + m.rest(card.run).unwrap()), m.used_bytes);
    }
}

#[test]
fn the_command_names_the_process_that_holds_memory_and_idles() {
    let logs = ["testdata/threeway.smi_gpu.csv", "testdata/threeway.smi_apps.csv"];
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tracetool")).arg("smi").args(logs).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let document: serde_json::Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let idle = document["processes"].as_array().unwrap().iter().find(|p| p["pid"] == 595).unwrap();
    assert_eq!(idle["findings"][0]["code"], "holds_and_idles");
    assert_eq!(idle["findings"][0]["used_bytes"], 5730 * MIB);
    assert_eq!(document["findings"][0]["code"], "holds-and-idles");
    assert!(run(&[]).contains("process 595 (/opt/torch/.venv/bin/python3) held 5.60 GiB"));
    assert!(run(&["--format", "svg"]).contains("python3 (pid 595)"));
    assert!(run(&["--format", "csv"]).starts_with("name,"));
}

#[test]
fn what_is_no_log_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_tracetool")).args(["smi", "Cargo.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected a log of nvidia-smi"));
}

#[test]
fn without_a_driver_live_says_so_in_a_sentence() {
    let live = |args: &[&str]| {
        let args = [&["smi", "--live"], args].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_tracetool")).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), output.stdout)
    };
    let (code, error, output) = live(&["--duration", "1ms", "--interval", "1ms"]);
    if code == Some(0) {
        eprintln!("skipped: there is a driver here");
        return;
    }
    assert_eq!((code, output.len()), (Some(2), 0), "{error}");
    assert!(error.contains("NVIDIA driver") && error.lines().count() == 1, "{error}");
    for wrong in [&["gpu.csv"][..], &["--utc-offset", "+01:00"], &["--interval", "0s"], &["--duration", "-1s"]] {
        let (code, error, _) = live(wrong);
        assert!(code == Some(2) && !error.contains("NVIDIA driver"), "{wrong:?}: {error}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tracetool")).args(["smi", "--duration", "1s"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--live"));
}
