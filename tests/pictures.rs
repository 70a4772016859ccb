//! Pictures of memory over time, by the built binary; those in `docs/` are what it writes today.
//!
//! After a wanted change of how they look: `TRACETOOL_WRITE_PICTURES=1 cargo test --test pictures`, and look at them.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const THREEWAY: [&str; 6] = [
    "testdata/threeway.pt.trace.json.gz",
    "--snapshot",
    "testdata/threeway.snapshot.pickle.gz",
    "--smi",
    "testdata/threeway.smi_gpu.csv",
    "testdata/threeway.smi_apps.csv",
];

fn run(command: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool")).arg(command).args(args).output().unwrap()
}

fn written(args: &[&str], name: &str) -> String {
    written_by("timeline", args, name)
}

fn written_by(command: &str, args: &[&str], name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let output = run(command, &[args, &["-o", path.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_pictures_of_the_documentation_are_what_the_binary_writes() {
    let timeline = |case: &str| {
        let trace = format!("testdata/{case}.pt.trace.json.gz");
        written(&[&trace, "--max-memory", "4GiB"], "mem.svg")
    };
    for (name, now) in [
        ("gpt_naive", timeline("gpt_naive")),
        ("gpt_flash", timeline("gpt_flash")),
        ("threeway", written(&THREEWAY, "all.svg")),
        ("segments", written_by("segments", &["testdata/gpt_snapshot.snapshot.pickle.gz"], "segments.svg")),
    ] {
        let kept = format!("docs/{name}.svg");
        if std::env::var_os("TRACETOOL_WRITE_PICTURES").is_some() {
            fs::create_dir_all("docs").unwrap();
            fs::write(&kept, &now).unwrap();
        }
        let same = fs::read_to_string(&kept).unwrap() == now;
        assert!(same, "{kept} is not what the binary writes: see the head of this test");
    }
}

#[test]
fn the_ending_of_the_file_tells_the_format_and_csv_and_json_hold_every_event() {
    let trace = "testdata/leak.pt.trace.json.gz";
    assert!(written(&[trace], "mem.svg").starts_with("<svg "));
    assert!(written(&[trace], "mem.md").contains("| attention |"));
    let csv = written(&[trace, "--device", "cuda:0"], "mem.csv");
    let json: serde_json::Value = serde_json::from_str(&written(&[trace, "--device", "cuda:0"], "mem.json")).unwrap();
    let device = &json["devices"][0];
    let points = device["time_ns"].as_array().unwrap().len();
    assert_eq!(csv.lines().count(), points + 1);
    for i in 0..points {
        let at = |list: &serde_json::Value| list[i].as_i64().unwrap();
        let series: i64 = device["series"].as_array().unwrap().iter().map(|s| at(&s["live_bytes"])).sum();
        assert_eq!(at(&device["allocated_bytes"]), at(&device["before_trace_bytes"]) + series);
    }
    let greatest = device["allocated_bytes"].as_array().unwrap().iter().filter_map(serde_json::Value::as_i64).max();
    assert_eq!(greatest, device["peak_allocated_bytes"].as_i64());
}

#[test]
fn a_trace_without_memory_says_which_flag_brings_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nomem.json");
    let op = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":1,"pid":1,"tid":1}"#;
    fs::write(&path, format!("{{\"traceEvents\":[{op}]}}")).unwrap();
    let output = run("timeline", &[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("profile_memory=True"));
}

#[test]
fn pictures_stay_small() {
    let big = Path::new("../shared/traces/h200/big.pt.trace.json.gz");
    if !big.exists() {
        eprintln!("skipped: there is no {}", big.display());
        return;
    }
    assert!(written(&[big.to_str().unwrap()], "mem.svg").len() < 300_000);
}
