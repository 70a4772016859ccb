//! Trace, snapshot, nvidia-smi and memory_profiler on one axis of time, by the built binary.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Output};

const TRACE: &str = "testdata/threeway.pt.trace.json.gz";
const SNAPSHOT: &str = "testdata/threeway.snapshot.pickle.gz";
const GPU: &str = "testdata/threeway.smi_gpu.csv";
const APPS: &str = "testdata/threeway.smi_apps.csv";
const MIB: i64 = 1 << 20;

fn tracetool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool")).args(args).env_remove("NO_COLOR").output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = tracetool(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[args, &["--format", "json"]].concat())).unwrap()
}

fn refusal(args: &[&str]) -> String {
    let output = tracetool(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to standard output");
    error
}

fn beside(more: &[&'static str]) -> Vec<&'static str> {
    [&["timeline", TRACE, "--snapshot", SNAPSHOT, "--smi", GPU, APPS], more].concat()
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
}

fn series<'v>(device: &'v Value, key: &str) -> &'v Value {
    device["series"].as_array().unwrap().iter().find(|s| s["key"] == key).unwrap()
}

/// Whether at every point the series and the rest sum to the total.
fn closes(device: &Value, total: &str, rest: Option<&str>) {
    let totals = numbers(&device[total]);
    let mut sums = rest.map_or(vec![0; totals.len()], |rest| numbers(&device[rest]));
    for s in device["series"].as_array().unwrap() {
        sums.iter_mut().zip(numbers(&s["live_bytes"])).for_each(|(sum, n)| *sum += n);
    }
    assert_eq!(sums, totals);
    assert!(!totals.is_empty());
}

#[test]
fn the_card_is_split_by_whose_it_is_at_every_moment_on_the_axis_of_the_trace() {
    let all = json(&beside(&[]));
    let [card] = all["cards"].as_array().unwrap().as_slice() else { panic!("one card") };
    closes(card, "used_bytes", Some("no_process_bytes"));
    let device = all["devices"].as_array().unwrap().iter().find(|d| d["device"] == "cuda:0").unwrap();
    closes(device, "allocated_bytes", Some("before_trace_bytes"));
    // The idle process holds a tensor of 5 GiB, and what its context and libraries take.
    let other = series(card, "python3 (pid 595)");
    assert!(numbers(&other["live_bytes"]).iter().all(|held| *held == 5730 * MIB));
    // One allocator: the card's tensors are the trace's allocated bytes, as both tell them at the same moments.
    assert_eq!(series(card, "tensors")["most_bytes"], device["peak_allocated_bytes"]);
    let (times, tensors) = (numbers(&card["time_ns"]), numbers(&series(card, "tensors")["live_bytes"]));
    let cached = numbers(&series(card, "cached by PyTorch")["live_bytes"]);
    let (trace_times, allocated) = (numbers(&device["time_ns"]), numbers(&device["allocated_bytes"]));
    let reserved = numbers(&device["reserved_bytes"]);
    let mut compared = 0;
    for (i, time) in times.iter().enumerate() {
        let at = trace_times.partition_point(|t| t <= time);
        if at > 0 && *time <= *trace_times.last().unwrap() && trace_times[at - 1] == *time {
            assert_eq!((tensors[i], tensors[i] + cached[i]), (allocated[at - 1], reserved[at - 1]));
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
    // The axis holds as much before and after the trace as the trace is long, and no more.
    let (start, end) = (all["start_ns"].as_i64().unwrap(), all["end_ns"].as_i64().unwrap());
    let own = all["steps"].as_array().unwrap().last().unwrap()["end_ns"].as_i64().unwrap() - trace_times[0];
    assert!((end - start - 3 * own).abs() < own / 10, "{start} to {end}, {own}");
    for d in [card, device] {
        assert!(numbers(&d["time_ns"]).iter().all(|t| (start..=end).contains(t)));
    }
    // What is free, used and kept by the driver is all that the card has.
    let total = card["capacity_bytes"].as_i64().unwrap();
    for (free, used) in numbers(&card["free_bytes"]).iter().zip(numbers(&card["used_bytes"])) {
        assert!((total - 700 * MIB..=total).contains(&(free + used)), "{free} {used} {total}");
    }
}

#[test]
fn every_format_shows_the_card_and_the_trace() {
    let chart = stdout(&beside(&["--width", "100"]));
    assert!(chart.contains("GPU 0 (NVIDIA H200): peak 10.27 GiB") && chart.contains("cuda:0: peak 3.61 GiB"));
    assert!(chart.contains("(free)") && chart.contains("--from and --to"));
    let picture = stdout(&beside(&["--format", "svg"]));
    for name in ["tensors", "cached by PyTorch", "context and libraries", "python3 (pid 595)", "free", "attention"] {
        assert!(picture.contains(&format!("<title>{name}")), "{name}");
    }
    let csv = stdout(&beside(&["--format", "csv"]));
    let header = csv.lines().next().unwrap();
    let columns =
        "device,time_ns,allocated_bytes,reserved_bytes,before_trace_bytes,used_bytes,free_bytes,no_process_bytes,";
    assert!(header.starts_with(columns), "{header}");
    let device = |line: &str| line.split(',').next().unwrap().to_owned();
    let devices: std::collections::BTreeSet<String> = csv.lines().skip(1).map(device).collect();
    assert_eq!(devices.iter().map(String::as_str).collect::<Vec<_>>(), ["GPU 0 (NVIDIA H200)", "cpu", "cuda:0"]);
    // Another window: of the other process alone, before the trace.
    let early = json(&beside(&["--from", "0ms", "--to", "10ms"]));
    assert_eq!(early["end_ns"].as_i64().unwrap() - early["start_ns"].as_i64().unwrap(), 10_000_000);
    assert!(numbers(&early["cards"][0]["time_ns"]).len() > 50, "the allocator's changes within the window are kept");
}

#[test]
fn clocks_that_do_not_meet_are_told_with_the_time_between_them() {
    let error = refusal(&beside(&["--offset", "3600s"]));
    assert!(error.contains("ends 35") && error.contains("before the trace begins") && error.contains("--utc-offset"));
    let error = refusal(&beside(&["--offset", "-3600s"]));
    assert!(error.contains("begins 35") && error.contains("after the trace ends"), "{error}");
    assert!(stdout(&beside(&["--offset", "-3600s", "--utc-offset", "+01:00"])).contains("python3 (pid 595)"));
}

#[test]
fn without_a_wall_clock_nothing_is_laid_beside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.json");
    let memory = r#"{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":5,"args":{"Bytes":8,"Addr":1,"Device Type":1,"Device Id":0,"Total Allocated":8,"Total Reserved":8}}"#;
    fs::write(&path, format!("{{\"traceEvents\":[{memory}]}}")).unwrap();
    let error = refusal(&["timeline", path.to_str().unwrap(), "--smi", GPU]);
    assert!(error.contains("wall-clock") && error.contains("baseTimeNanoseconds"), "{error}");
    let log = folder.path().join("dmon.txt");
    fs::write(&log, "# gpu     sm    mem     fb\n# Idx      %      %     MB\n    0      7      0   5739\n").unwrap();
    let error = refusal(&["timeline", TRACE, "--smi", log.to_str().unwrap()]);
    assert!(error.contains("tells no date") && error.contains("dmon -o DT"), "{error}");
}

#[test]
fn the_host_stands_on_the_same_axis() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.dat");
    // From 40 s before the trace to 40 s after its start, a sample a second.
    let start = 1_796_094_512;
    let samples = (start - 40..start + 40).map(|second| format!("MEM {}.0 {second}.0\n", second - start + 100));
    fs::write(&path, samples.collect::<String>()).unwrap();
    let path = path.to_str().unwrap();
    let all = json(&[&beside(&[])[..], &["--mprof", path]].concat());
    let host = &all["hosts"][0];
    closes(host, "resident_bytes", None);
    let (start, end) = (all["start_ns"].as_i64().unwrap(), all["end_ns"].as_i64().unwrap());
    assert!(numbers(&host["time_ns"]).iter().all(|t| (start..=end).contains(t)));
    assert_eq!(numbers(&host["time_ns"])[0], start, "what held before holds as the axis begins");
    let picture = stdout(&[&beside(&["--format", "svg"])[..], &["--mprof", path]].concat());
    let place = |what: &str| picture.find(what).unwrap_or_else(|| panic!("{what} is not drawn"));
    assert!(place(">GPU 0 (NVIDIA H200)<") < place(">cuda:0<") && place(">cuda:0<") < place(">host<"));
    // Without a card, too.
    let two = json(&["timeline", TRACE, "--mprof", path]);
    assert!(two["cards"].is_null() && two["hosts"].is_array());
}

#[test]
fn a_recording_of_memory_profiler_is_an_input_by_itself() {
    let functions = "testdata/mprof_functions.dat";
    let children = "testdata/mprof_children.dat";
    let all = json(&["timeline", children]);
    let host = &all["hosts"][0];
    closes(host, "resident_bytes", None);
    let keys: Vec<&str> = host["series"].as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["main process", "child 18483", "child 18484"]);
    let calls = json(&["timeline", functions])["hosts"][0]["calls"].clone();
    assert_eq!((&calls[0]["name"], &calls[1]["name"]), (&"__main__.train".into(), &"__main__.load".into()));
    insta::assert_snapshot!(stdout(&["peak", functions]));
    let peak = json(&["peak", children]);
    let sum: i64 =
        peak["host"]["processes"].as_array().unwrap().iter().map(|p| p["resident_bytes"].as_i64().unwrap()).sum();
    assert_eq!(peak["host"]["resident_bytes"], sum);
    assert_eq!(peak["host"]["resident_bytes"], host["peak_resident_bytes"]);
    for (args, what) in [
        (&["peak", functions, "--group-by", "module"][..], "--group-by"),
        (&["peak", functions, "--at", "oom"], "--at"),
        (&["peak", functions, "--at", "9s"], "nothing of that moment"),
        (&["timeline", functions, "--step", "1"], "--step"),
        (&["timeline", functions, "--from", "9s", "--to", "10s"], "holds nothing"),
        (&["timeline", functions, "--smi", GPU], "beside a trace"),
        (&["top", functions], "timeline"),
    ] {
        let error = refusal(args);
        assert!(error.contains(what), "{args:?}: {error}");
    }
}

#[test]
fn a_recording_is_read_from_gzip_and_broken_lines_of_it_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.dat");
    let file = fs::File::create(&path).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    gzip.write_all(b"MEM 1.0 1754557655.0\nMEM 2.0 1754557656.0\nMEM 3.0\n").unwrap();
    gzip.finish().unwrap();
    let output = tracetool(&["peak", path.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("[no-sample]"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("the peak is 2.00 MiB resident, at 1.000 s"));
    // What is cut off is a loss, which --strict refuses.
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 6]).unwrap();
    assert!(refusal(&["peak", path.to_str().unwrap(), "--strict"]).contains("truncated-gzip"));
}

#[test]
fn what_is_laid_beside_a_trace_is_read_as_every_input_is() {
    let folder = tempfile::tempdir().unwrap();
    let packed = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(bytes).unwrap();
        fs::write(&path, gzip.finish().unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let log = packed("gpu.csv.gz", &fs::read(GPU).unwrap());
    assert_eq!(json(&["smi", &log])["cards"], json(&["smi", GPU])["cards"]);
    let refused = refusal(&["timeline", TRACE, "--smi", &log, "--max-input-size", "4MiB"]);
    assert!(!refused.contains("gpu.csv.gz"), "the trace is larger, the log is not: {refused}");
    assert!(refusal(&["smi", GPU, "--max-input-size", "1KiB"]).contains("--max-input-size"));
    let recording = packed("mprof.dat.gz", b"MEM 1.0 1796094512.0\nMEM 2.0 1796094513.0\n");
    assert!(json(&["timeline", TRACE, "--mprof", &recording])["hosts"].is_array());
    let cut = fs::read(&log).unwrap();
    fs::write(&log, &cut[..cut.len() - 6]).unwrap();
    assert!(refusal(&["smi", &log, "--strict"]).contains("truncated-gzip"));
    let error = refusal(&["timeline", TRACE, "--mprof", TRACE]);
    assert!(error.contains("mprof run"), "{error}");
}
