//! Key averages equal what PyTorch itself reported in the profiled process.
//!
//! Each trace `X.pt.trace.json.gz` has an `X.truth.json.gz` beside it, written in the same process, with the rows of
//! `prof.key_averages()`. Counts and bytes must be equal, times equal to the rounding of PyTorch's floating microseconds.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::slow_reader;
use tracetool::analysis::averages::{AveragesOptions, KeyAverage, KeyAverages};
use tracetool::input::{ReadOptions, read_path};
use tracetool::trace::Trace;

/// The exporter drops the link between a profiler-overhead event and the operator that it delayed, and CUDA event times
/// of the old API; PyTorch's rows of these, and the device and self figures of what encloses them, cannot be recovered.
const UNRECOVERABLE: [&str; 9] = [
    "Activity Buffer Request",
    "Lazy Function Loading",
    "Runtime Triggered Module Loading",
    "Buffer Flush",
    "Command Buffer Full",
    "Instrumentation",
    "Resource",
    "INVALID",
    "[OutOfMemory]",
];
const DISTURBED: [&str; 5] = [
    "device_time_total",
    "self_device_time_total",
    "self_cpu_time_total",
    "self_cpu_memory_usage",
    "self_device_memory_usage",
];

/// A row as PyTorch keys it: name, side, is it an annotation, shapes.
type Key = (String, bool, bool, String);
type Row = BTreeMap<&'static str, f64>;

const FIELDS: [&str; 9] = [
    "count",
    "cpu_time_total",
    "self_cpu_time_total",
    "device_time_total",
    "self_device_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
];

fn truth_rows(variant: &Value) -> Vec<(Key, Row)> {
    let row = |r: &Value| {
        let text = |field: &str| r[field].as_str().unwrap_or_default().to_owned();
        let on_cpu = text("device_type") == "DeviceType.CPU";
        let key = (text("key"), on_cpu, r["is_user_annotation"] == true, text("input_shapes"));
        let value = |field: &&'static str| (*field, r[*field].as_f64().unwrap_or(0.0));
        let mut row: Row = FIELDS.iter().map(value).collect();
        row.insert("flops", r["flops"].as_f64().unwrap_or(0.0));
        (key, row)
    };
    variant["rows"].as_array().unwrap().iter().map(row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "PyTorch's own figures are doubles")]
fn our_row(r: &KeyAverage) -> (Key, Row) {
    let shapes = r.input_shapes.clone().unwrap_or_default();
    let key = (r.key.clone(), r.device_type.is_cpu(), r.is_user_annotation, shapes);
    let micros = |n: tracetool::units::Nanos| n.0 as f64 / 1000.0;
    let row = Row::from([
        ("count", r.count as f64),
        ("cpu_time_total", micros(r.cpu_time_total)),
        ("self_cpu_time_total", micros(r.self_cpu_time_total)),
        ("device_time_total", micros(r.device_time_total)),
        ("self_device_time_total", micros(r.self_device_time_total)),
        ("cpu_memory_usage", r.cpu_memory_usage.0 as f64),
        ("self_cpu_memory_usage", r.self_cpu_memory_usage.0 as f64),
        ("device_memory_usage", r.device_memory_usage.0 as f64),
        ("self_device_memory_usage", r.self_device_memory_usage.0 as f64),
        ("flops", r.flops as f64),
    ]);
    (key, row)
}

/// What differs between our rows and PyTorch's.
fn differences(trace: &Trace, truth: &Value, shapes: bool) -> Vec<String> {
    let variant = &truth["variants"][if shapes { "shapes" } else { "plain" }];
    let want = truth_rows(variant);
    let options = AveragesOptions { group_by_input_shape: shapes, torch_shapes: true, ..AveragesOptions::default() };
    let averages = KeyAverages::compute(trace, &options);
    let got: Vec<(Key, Row)> = averages.rows.iter().map(our_row).collect();
    let disturbed = want.iter().any(|(key, _)| UNRECOVERABLE.contains(&key.0.as_str()));
    let mut wrong = Vec::new();
    let ours: BTreeMap<&Key, &Row> = got.iter().map(|(k, r)| (k, r)).collect();
    assert_eq!(ours.len(), got.len(), "a key is one row");
    for (key, row) in &want {
        let Some(mine) = ours.get(key) else {
            wrong.push(format!("no row {key:?}"));
            continue;
        };
        if disturbed && UNRECOVERABLE.contains(&key.0.as_str()) {
            continue;
        }
        for field in FIELDS {
            let slack = if field.contains("time") { 0.000_51 * row["count"].max(1.0) } else { 0.0 };
            if (row[field] - mine[field]).abs() > slack && !(disturbed && DISTURBED.contains(&field)) {
                wrong.push(format!("{field} of {key:?}: PyTorch {}, ours {}", row[field], mine[field]));
            }
        }
        if trace.info().with_flops == Some(true) && row["flops"].to_bits() != mine["flops"].to_bits() {
            wrong.push(format!("flops of {key:?}: PyTorch {}, ours {}", row["flops"], mine["flops"]));
        }
    }
    let order = |rows: &[(Key, Row)]| rows.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    if order(&want) != order(&got) {
        let at = want.iter().zip(&got).position(|(a, b)| a.0 != b.0).unwrap_or(want.len().min(got.len()));
        let name = |rows: &[(Key, Row)]| rows.get(at).map(|r| r.0.clone());
        wrong.push(format!("row {at} of {} is {:?}, ours of {} {:?}", want.len(), name(&want), got.len(), name(&got)));
    }
    if let Some(total) = variant["total_self_cpu_us"].as_f64().filter(|_| !disturbed) {
        #[expect(clippy::cast_precision_loss, reason = "PyTorch's own figures are doubles")]
        let mine = averages.self_cpu_time_total.0 as f64 / 1000.0;
        if (total - mine).abs() > 0.01 {
            wrong.push(format!("self CPU time total: PyTorch {total}, ours {mine}"));
        }
    }
    wrong
}

/// The traces in a folder that have a truth beside them, and whose case is `wanted`.
fn with_truth(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<(PathBuf, PathBuf)> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut pairs: Vec<_> = files
        .filter_map(|file| {
            let trace = file.ok()?.path();
            let case = trace.file_name()?.to_str()?.strip_suffix(".pt.trace.json.gz")?.to_owned();
            let truth = folder.join(format!("{case}.truth.json.gz"));
            (truth.exists() && wanted(&case)).then_some((trace, truth))
        })
        .collect();
    pairs.sort();
    pairs
}

/// Fails if a trace that has its truth beside it, and whose case is `wanted`, differs; the number of those.
fn hold(folder: &Path, wanted: impl Fn(&str) -> bool) -> usize {
    let pairs = with_truth(folder, wanted);
    let mut wrong = Vec::new();
    for (trace_path, truth_path) in &pairs {
        let (trace, truth) =
            (read_path(trace_path, &ReadOptions::default()).unwrap(), slow_reader::json_value(truth_path));
        let name = trace_path.file_name().unwrap().display();
        let disturbed =
            truth_rows(&truth["variants"]["plain"]).iter().any(|(k, _)| UNRECOVERABLE.contains(&k.0.as_str()));
        if !disturbed {
            wrong.extend(printed_differences(&trace, &truth).iter().map(|line| format!("{name}: {line}")));
        }
        for shapes in [false, true] {
            if truth["variants"].get("shapes").is_some() || !shapes {
                for line in differences(&trace, &truth, shapes) {
                    wrong.push(format!("{name} shapes={shapes}: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    pairs.len()
}

/// PyTorch's table of top-level rows names the rows, in order, and has its totals below.
fn printed_differences(trace: &Trace, truth: &Value) -> Vec<String> {
    let Some(table) = truth["tables"]["plain/top_level_only"].as_str() else { return Vec::new() };
    let names: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("Name "))
        .skip(2)
        .take_while(|line| !line.starts_with("---"))
        .map(|line| line.get(..55).unwrap_or(line).trim_start())
        .collect();
    let options = AveragesOptions { top_level_only: true, ..AveragesOptions::default() };
    let mut averages = KeyAverages::compute(trace, &options);
    averages.rows.sort_by_key(|row| std::cmp::Reverse(row.self_device_memory_usage));
    let mut wrong = Vec::new();
    for (want, row) in names.iter().zip(&averages.rows) {
        let want = want.trim_end().trim_end_matches("...");
        if !row.key.trim_start().starts_with(want) {
            wrong.push(format!("top-level row {want:?}, ours {:?}", row.key));
        }
    }
    if names.len() != averages.rows.len().min(20) {
        wrong.push(format!("{} top-level rows, ours {}", names.len(), averages.rows.len()));
    }
    for (title, ours) in [
        ("Self CPU time total: ", averages.self_cpu_time_total),
        ("Self CUDA time total: ", averages.self_device_time_total),
    ] {
        let Some(line) = table.lines().find_map(|line| line.strip_prefix(title)) else { continue };
        let (number, unit) = line.split_at(line.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(line.len()));
        let scale = [("us", 1e3), ("ms", 1e6), ("s", 1e9)].iter().find(|(u, _)| *u == unit).unwrap().1;
        let want = number.parse::<f64>().unwrap() * scale;
        #[expect(clippy::cast_precision_loss, reason = "printed figures have few digits")]
        if (want - ours.0 as f64).abs() > scale * 0.000_51 {
            wrong.push(format!("{title}{line}, ours {ours} ns"));
        }
    }
    wrong
}

/// Torch writes the names of `odd_names` as invalid JSON, or other than they were: what it reports is not in the trace.
fn has_its_names(case: &str) -> bool {
    case != "odd_names"
}

#[test]
fn rows_equal_pytorchs_on_the_traces_kept_here() {
    assert!(hold(&support::testdata(""), has_its_names) > 5);
}

#[test]
fn rows_equal_pytorchs_on_all_recorded_traces() {
    match support::shared_traces() {
        Some(folder) => drop(hold(&folder.join("h200"), |case| has_its_names(case) && case != "big")),
        None => println!("skipped: no ../shared/traces"),
    }
}

#[test]
#[ignore = "takes a minute"]
fn rows_equal_pytorchs_on_the_big_trace() {
    match support::shared_traces() {
        Some(folder) => drop(hold(&folder.join("h200"), |case| case == "big")),
        None => println!("skipped: no ../shared/traces"),
    }
}
