//! The commands that show paths of calls and lines of Python, as a user meets them.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn tracetool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool")).args(args).env_remove("NO_COLOR").output().unwrap()
}

fn stdout(command: &str, file: &str, args: &[&str]) -> String {
    let output = tracetool(&[&[command, &format!("testdata/{file}")], args].concat());
    assert!(output.status.success(), "{command} {file} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(command: &str, file: &str, args: &[&str]) -> Value {
    serde_json::from_str(&stdout(command, file, &[args, &["--format", "json"]].concat())).unwrap()
}

fn refusal(args: &[&str]) -> String {
    let output = tracetool(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to standard output");
    error
}

fn sum(rows: &Value, key: &str) -> i64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap_or(0)).sum()
}

/// What is live at the peak and was not there before the trace, on all accelerators.
fn peak_from_trace(file: &str) -> i64 {
    let peak = json("peak", file, &[]);
    let accelerators = peak["devices"].as_array().unwrap().iter().filter(|d| d["device"] != "cpu");
    accelerators.map(|d| d["peak_allocated_bytes"].as_i64().unwrap() - d["before_trace_bytes"].as_i64().unwrap()).sum()
}

const GPT_STACK: &str = "gpt_stack.pt.trace.json.gz";
const LEAK: &str = "leak.pt.trace.json.gz";
const GPT_NAIVE: &str = "gpt_naive.pt.trace.json.gz";
const SNAPSHOT: &str = "gpt_snapshot.snapshot.pickle.gz";

#[test]
fn the_tree_of_calls() {
    insta::assert_snapshot!(stdout("tree", GPT_STACK, &["--limit", "12"]));
}

#[test]
fn the_tree_around_what_a_filter_finds() {
    insta::assert_snapshot!(stdout("tree", LEAK, &["--filter", "_softmax$", "--depth", "4", "--min-memory", "1MiB"]));
}

#[test]
fn functions_of_a_trace() {
    insta::assert_snapshot!(stdout("lines", GPT_STACK, &["--source-root", "testdata"]));
}

#[test]
fn lines_of_a_snapshot() {
    insta::assert_snapshot!(stdout("lines", SNAPSHOT, &["--source-root", "testdata", "--limit", "12"]));
}

#[test]
fn stacks_of_a_flame_graph() {
    insta::assert_snapshot!(stdout("flamegraph", LEAK, &["--format", "folded", "--python"]));
}

#[test]
fn the_roots_of_the_tree_and_all_rows_sum_to_the_totals() {
    for file in [GPT_STACK, LEAK, GPT_NAIVE] {
        let tree = json("tree", file, &["--limit", "-1"]);
        let rows = &tree["rows"];
        let is_root = |row: &&Value| row["depth"] == 0;
        let roots: Value = rows.as_array().unwrap().iter().filter(is_root).cloned().collect();
        for key in ["allocated_bytes", "peak_live_bytes", "device_memory_usage_bytes", "device_time_total_ns"] {
            let total = tree["totals"][key].as_i64().unwrap();
            assert_eq!(sum(&roots, key), total, "{file} {key}");
            assert_eq!(sum(rows, &format!("self_{key}")), total, "{file} {key}");
        }
        assert_eq!(tree["totals"]["peak_live_bytes"], peak_from_trace(file), "{file}");
        assert!(rows.as_array().unwrap().len() < 1000, "calls of one path are one row");
    }
}

#[test]
fn a_flame_graph_of_the_peak_sums_to_the_peak_with_and_without_python() {
    for file in [GPT_STACK, LEAK, GPT_NAIVE, SNAPSHOT] {
        for python in ["none", "user", "all"] {
            let flame = json("flamegraph", file, &[&format!("--python={python}")]);
            assert_eq!(flame["total"], peak_from_trace(file), "{file} {python}");
            assert_eq!(sum(&flame["rows"], "value"), flame["total"].as_i64().unwrap());
        }
    }
}

#[test]
fn lines_with_what_is_elsewhere_sum_to_the_peak() {
    for file in [GPT_STACK, LEAK, SNAPSHOT] {
        let lines = json("lines", file, &["--limit", "-1", "--file", "*"]);
        let live = sum(&lines["rows"], "peak_live_bytes") + lines["elsewhere_peak_live_bytes"].as_i64().unwrap();
        let before = lines["before_trace_bytes"].as_i64().unwrap();
        assert_eq!(live + before, lines["peak_allocated_bytes"].as_i64().unwrap(), "{file}");
    }
}

#[test]
fn the_name_of_the_output_tells_its_format() {
    let folder = tempfile::tempdir().unwrap();
    for (name, start) in [("a.svg", "<?xml"), ("a.csv", "path,"), ("a.json", "{"), ("a.md", "| Path |")] {
        let path = folder.path().join(name);
        stdout("flamegraph", GPT_NAIVE, &["-o", path.to_str().unwrap()]);
        assert!(fs::read_to_string(&path).unwrap().starts_with(start), "{name}");
    }
}

#[test]
fn names_that_no_format_would_survive_are_drawn() {
    for format in ["svg", "folded", "csv", "json", "table"] {
        let args = ["--metric", "self_cpu_time_total", "--format", format];
        assert!(!stdout("flamegraph", "odd_names.pt.trace.json.gz", &args).is_empty());
    }
}

#[test]
fn what_is_missing_is_said_with_the_flag_that_brings_it() {
    let path = |name: &str| format!("testdata/{name}");
    assert!(refusal(&["lines", &path(GPT_NAIVE)]).contains("with_stack=True"));
    let no_memory = path("autograd_kineto.pt.trace.json.gz");
    assert!(refusal(&["lines", &path(GPT_STACK), "--file", "nowhere.py"]).contains("--file '*'"));
    assert!(refusal(&["tree", &no_memory, "--sort-by", "nothing"]).contains("there is no sort key"));
    assert!(refusal(&["flamegraph", &path(GPT_NAIVE), "--metric", "nothing"]).contains("there is no metric"));
    assert!(refusal(&["top", &path(GPT_NAIVE), "--format", "svg"]).contains("draws no picture"));
}
