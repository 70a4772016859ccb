//! `tracetool summary` finds what holds on each recorded trace, and nothing else.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{shared_traces, testdata};

/// The codes of what the summary of a trace finds, and its document.
fn findings(path: &Path) -> (Vec<String>, Value) {
    let run = Command::new(env!("CARGO_BIN_EXE_tracetool"))
        .arg("summary")
        .arg(path)
        .args(["--format", "json"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let document: Value = serde_json::from_slice(&run.stdout).unwrap();
    let codes =
        document["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap().to_owned()).collect();
    (codes, document)
}

#[test]
fn each_trace_is_told_what_holds_for_it_and_nothing_else() {
    for (case, expected) in [
        ("gpt_naive", &["attention-written-out", "activations", "no-steps", "no-stacks"][..]),
        ("gpt_flash", &["activations", "cast-copies", "no-steps", "no-stacks"]),
        ("gpt_stack", &["attention-written-out", "activations"]),
        ("resnet", &["activations", "no-stacks"]),
        ("leak", &["grows"]),
        ("oom", &["out-of-memory", "no-steps"]),
        ("cuda_graph", &["no-memory"]),
        ("cpu_only", &["no-steps"]),
    ] {
        assert_eq!(findings(&testdata(&format!("{case}.pt.trace.json.gz"))).0, expected, "{case}");
    }
}

#[test]
fn the_pools_of_the_peak_are_its_live_blocks() {
    let (_, document) = findings(&testdata("gpt_naive.pt.trace.json.gz"));
    let device = document["devices"].as_array().unwrap().iter().find(|d| d["device"] == "cuda:0").unwrap();
    let bytes = |value: &Value| value.as_i64().unwrap();
    let pools = bytes(&device["large_pool"]["live_at_peak_bytes"]) + bytes(&device["small_pool"]["live_at_peak_bytes"]);
    assert_eq!(bytes(&device["peak_allocated_bytes"]), 3_879_678_976);
    assert_eq!(pools, bytes(&device["peak_allocated_bytes"]) - bytes(&device["before_trace_bytes"]));
    let by_op: i64 = device["by_op"].as_array().unwrap().iter().map(|row| bytes(&row[1])).sum();
    assert_eq!(by_op, pools);
}

#[test]
fn a_trace_without_memory_says_which_flag_brings_it() {
    let Some(folder) = shared_traces() else { return };
    let (codes, document) = findings(&folder.join("h200/gpt_nomem.pt.trace.json.gz"));
    assert_eq!(codes, ["no-memory"]);
    assert!(document["busy"][0]["busy_ns"].as_i64().unwrap() > 0);
}
