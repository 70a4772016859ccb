//! The torch format against the text that PyTorch printed from the same rows (`X.truth.json.gz`: rows and tables).

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use tracetool::analysis::averages::{KeyAverage, KeyAverages};
use tracetool::render::{Format, Options};
use tracetool::report::{Report, TorchTable, TorchWidths};
use tracetool::trace::DeviceType;
use tracetool::units::{Bytes, Nanos};

fn truth(path: &Path) -> Value {
    serde_json::from_reader(flate2::read::MultiGzDecoder::new(File::open(path).unwrap())).unwrap()
}

fn row(row: &Value) -> KeyAverage {
    let nanos = |key: &str| Nanos((row[key].as_f64().unwrap_or(0.0) * 1000.0).round() as i64);
    let bytes = |key: &str| Bytes(row[key].as_i64().unwrap_or(0));
    let cpu = row["device_type"] == "DeviceType.CPU";
    KeyAverage {
        key: row["key"].as_str().unwrap().into(),
        device_type: if cpu { DeviceType::CPU } else { DeviceType::CUDA },
        is_user_annotation: row["is_user_annotation"] == true,
        input_shapes: row["input_shapes"].as_str().filter(|s| !s.is_empty()).map(String::from),
        stack: Vec::new(),
        count: row["count"].as_u64().unwrap(),
        cpu_time_total: nanos("cpu_time_total"),
        self_cpu_time_total: nanos("self_cpu_time_total"),
        device_time_total: nanos("device_time_total"),
        self_device_time_total: nanos("self_device_time_total"),
        cpu_memory_usage: bytes("cpu_memory_usage"),
        self_cpu_memory_usage: bytes("self_cpu_memory_usage"),
        device_memory_usage: bytes("device_memory_usage"),
        self_device_memory_usage: bytes("self_device_memory_usage"),
        flops: row["flops"].as_u64().unwrap_or(0),
        allocated_bytes: None,
        allocation_count: None,
        peak_live_bytes: None,
        is_async: row["is_async"] == true,
        top_level: true,
    }
}

/// The older profiler's operators carry their kernels' time themselves.
fn legacy_device_time(rows: &[Value]) -> Nanos {
    rows.iter().filter(|r| r["is_legacy"] == true).map(|r| row(r).self_device_time_total).sum()
}

/// PyTorch's sort: descending, stable, with `cuda` read as `device`.
fn sorted(rows: &[Value], by: &str) -> Vec<KeyAverage> {
    let by = by.replace("cuda", "device");
    let mut order: Vec<&Value> = rows.iter().collect();
    if by != "None" {
        order.sort_by(|a, b| b[&by].as_f64().unwrap().total_cmp(&a[&by].as_f64().unwrap()));
    }
    order.into_iter().map(row).collect()
}

fn table(rows: &[Value], by: &str, want: &str) -> TorchTable {
    let legacy = legacy_device_time(rows);
    let rows = sorted(rows, by);
    let of_device = |r: &&KeyAverage| r.device_type != DeviceType::CPU && !r.is_user_annotation;
    let averages = KeyAverages {
        self_cpu_time_total: rows.iter().map(|r| r.self_cpu_time_total).sum(),
        self_device_time_total: legacy + rows.iter().filter(of_device).map(|r| r.self_device_time_total).sum(),
        rows,
    };
    // What the profiler was told is not in the rows.
    let (memory, flops) = (want.contains("CPU Mem"), want.contains("FLOPs"));
    TorchTable::over(&averages, "CUDA".into(), memory, flops)
}

fn text(torch: TorchTable) -> String {
    let report = Report { command: "top", torch: Some(torch), ..Report::default() };
    let mut out = Vec::new();
    Format::find("torch").unwrap().render(&report, &Options::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Compares all but the last digit of times and shares, which PyTorch rounds from its own floating sums.
fn assert_same(got: &str, want: &str, what: &str) {
    assert_eq!(got.lines().count(), want.lines().count(), "{what}: number of lines");
    for (g, w) in got.lines().zip(want.lines()) {
        let near = |(a, b): (&str, &str)| {
            let number = |t: &str| t.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().ok();
            a == b || a.len() == b.len() && number(a).zip(number(b)).is_some_and(|(x, y)| (x - y).abs() < 0.0101)
        };
        let same = g.len() == w.len() && g.split_whitespace().zip(w.split_whitespace()).all(near);
        assert!(same, "{what}\n got {g}\nwant {w}");
    }
}

fn check(path: &Path) {
    let truth = truth(path);
    for (name, want) in truth["tables"].as_object().unwrap() {
        let (want, name) = (want.as_str().unwrap(), name.as_str());
        let (variant, by) = name.split_once('/').unwrap();
        let Some(rows) = truth["variants"][variant]["rows"].as_array() else { continue };
        let (by, limit) = by.split_once('/').unwrap_or((by, ""));
        // Which row stands in no other is not in the rows, and where names act on the terminal we differ on purpose.
        if by == "top_level_only" || want.starts_with("ERROR") || want.contains('\t') {
            continue;
        }
        let sort = if by == "narrow" || limit == "-1" { "self_cuda_memory_usage" } else { by };
        let limit = match (by, limit) {
            ("narrow", _) => 5,
            (_, "-1") => usize::MAX,
            _ => 10,
        };
        let mut torch = table(rows, sort, want);
        torch.rows = sorted(rows, sort).into_iter().take(limit).collect();
        if name == "plain/narrow" {
            torch.header = Some("HEADER".into());
            torch.max_widths.name = 20;
        } else if name == "shapes/narrow" {
            torch.max_widths = TorchWidths { shapes: 30, ..TorchWidths::default() };
        }
        assert_same(&text(torch), want, &format!("{} {name}", path.display()));
    }
}

#[test]
fn pytorchs_rows_make_pytorchs_text() {
    check(Path::new("testdata/gpt_naive.truth.json.gz"));
}

#[test]
fn every_recorded_table_is_reproduced() {
    let folder = PathBuf::from("../shared/traces/h200");
    let Ok(files) = folder.read_dir() else {
        eprintln!("skipped: {} is not here", folder.display());
        return;
    };
    for path in files.map(|f| f.unwrap().path()) {
        if path.to_string_lossy().ends_with(".truth.json.gz") && !path.to_string_lossy().contains("snapshot") {
            check(&path);
        }
    }
}
