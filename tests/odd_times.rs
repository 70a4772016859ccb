//! Times that cannot be as the file has them: events without a time, and events that end after what they began in.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

mod support;

use std::io::Cursor;
use support::{dump, shared_traces, slow_reader};
use tracetool::analysis::averages::{AveragesOptions, KeyAverages};
use tracetool::analysis::busy::device_busy;
use tracetool::input::{ReadOptions, read, read_path};
use tracetool::trace::{Severity, Trace};
use tracetool::units::Nanos;

fn read_with(text: &str, threads: usize) -> Trace {
    read(Cursor::new(text.to_owned().into_bytes()), &ReadOptions { threads, ..ReadOptions::default() }).unwrap()
}

fn read_text(text: &str) -> Trace {
    read_with(text, 0)
}

/// Code, severity, count and first place of all diagnostics.
fn told(trace: &Trace) -> Vec<(&str, Severity, u64, Option<u64>)> {
    trace.diagnostics().iter().map(|d| (d.code, d.severity, d.count, d.first_offset)).collect()
}

fn kernel(ts: &str, dur: &str) -> String {
    format!(r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{"device":0}}}}"#)
}

#[test]
fn an_event_at_zero_far_from_all_others_has_no_time_and_is_left_out() {
    let (hole, real) = (kernel("0", "2"), kernel("1623142623460016", "2"));
    let frame = r#"{"ph":"X","cat":"python_function","name":"f","pid":1,"tid":1,"ts":0,"dur":1}"#;
    let op = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":"0","dur":1}"#;
    let memory = r#"{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":0.000,"args":{"Bytes":8}}"#;
    let begin = r#"{"ph":"B","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":0}"#;
    // Names have no time, and are no holes.
    let name = r#"{"ph":"M","name":"thread_name","pid":1,"tid":1,"ts":0,"args":{"name":"main"}}"#;
    let text = format!(r#"{{"traceEvents":[{real},{name},{hole},{frame},{op},{memory},{begin},{real}]}}"#);
    let trace = read_text(&text);
    assert_eq!(trace.device_events().start(), [Nanos(1_623_142_623_460_016_000); 2]);
    assert!(trace.memory().is_empty() && trace.ops().is_empty() && trace.frames().is_empty());
    let first = text.find(&hole).map(|at| at as u64);
    assert_eq!(told(&trace), [("hole-in-time", Severity::Loss, 5, first)]);
    assert_eq!(dump::lines(&trace), dump::lines(&slow_reader::read_text(&text)));
}

#[test]
fn a_trace_that_begins_at_zero_has_no_hole() {
    let trace = read_text(&format!("[{},{}]", kernel("0", "2"), kernel("5000000", "1")));
    assert_eq!((trace.device_events().len(), told(&trace)), (2, vec![]));
    let trace = read_text(&format!("[{}]", kernel("0", "2")));
    assert_eq!((trace.device_events().len(), told(&trace)), (1, vec![]));
}

#[test]
fn kernels_may_overlap_on_their_stream_and_busy_time_counts_a_moment_once() {
    // Since Hopper a kernel may begin before the one that it depends on ends: nothing is odd about it.
    // [A    ]
    //   [B     ]
    //            [C]
    let trace = read_text(&format!("[{},{},{}]", kernel("3", "4.5"), kernel("5", "4"), kernel("9", "1")));
    assert_eq!(trace.device_events().duration(), [Nanos(4500), Nanos(4000), Nanos(1000)]);
    assert_eq!(told(&trace), []);
    assert_eq!(device_busy(&trace)[0].busy_ns, Nanos(7000));
}

#[test]
fn an_operator_that_overruns_its_parent_is_kept_and_counted_and_no_self_time_is_negative() {
    // [a      ]
    //    [b       ]
    let op =
        |name, ts, dur| format!(r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}"#);
    let text = format!("[{},{}]", op("a", 0, 10), op("b", 3, 12));
    let trace = read_text(&text);
    let first = text.rfind('{').map(|at| at as u64);
    assert_eq!(told(&trace), [("overlap", Severity::Warning, 1, first)]);
    let averages = KeyAverages::compute(&trace, &AveragesOptions::default());
    let mut times: Vec<_> = averages.rows.iter().map(|r| (r.key.as_str(), r.self_cpu_time_total)).collect();
    times.sort_unstable();
    assert_eq!(times, [("a", Nanos(10_000)), ("b", Nanos(12_000))]);
}

#[test]
fn overlaps_and_halves_of_ranges_are_told_with_the_first_place_in_the_file_whatever_the_order_of_time() {
    let event = |kind: &str, name: &str, tid: i32, ts: i64, dur: i64| {
        format!(r#"{{"ph":"{kind}","cat":"cpu_op","name":"{name}","pid":1,"tid":{tid},"ts":{ts},"dur":{dur}}}"#)
    };
    // A hole, and ops and frames that overlap, the later ones first in the file.
    let later = 100_000_000_000;
    let frame = |ts, dur| event("X", "f", 1, ts, dur).replace("cpu_op", "python_function");
    let events = [
        event("X", "hole", 1, 0, 1),
        event("X", "late b", 1, later + 103, 12),
        event("X", "late a", 1, later + 100, 10),
        frame(later, 10),
        frame(later + 1, 10),
        event("E", "", 3, later + 5, 0),
        event("B", "open", 3, later + 7, 0),
        event("B", "open before", 3, later + 6, 0),
        event("E", "", 4, later + 1, 0),
    ];
    let text = format!("[{}]", events.join(",\n"));
    let place = |i: usize| text.find(&events[i]).map(|at| at as u64);
    let trace = read_text(&text);
    assert_eq!(
        told(&trace),
        [
            ("hole-in-time", Severity::Loss, 1, place(0)),
            ("end-without-begin", Severity::Warning, 2, place(5)),
            ("begin-without-end", Severity::Warning, 2, place(6)),
            ("overlap", Severity::Warning, 2, place(1)),
        ]
    );
    // The same in many batches: what is told does not depend on how the file is cut.
    let pad = format!(",{}", event("X", "pad", 9, later, 0));
    let long = text.replace(",\n", &format!("{},\n", pad.repeat(20_000)));
    let (one, many) = (read_with(&long, 1), read_with(&long, 3));
    assert_eq!(told(&one), told(&many));
    let first = |trace: &Trace, code| trace.diagnostics().get(code).and_then(|d| d.first_offset);
    assert_eq!(first(&one, "overlap"), long.find(&events[1]).map(|at| at as u64));
    assert_eq!(first(&one, "begin-without-end"), long.find(&events[6]).map(|at| at as u64));
}

#[test]
fn times_to_the_nanosecond_show_no_overlap_that_is_not_there() {
    // Read as doubles, times of this trace show 66.
    let name = "public/hta_ns_resolution/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz";
    let Some(folder) = shared_traces() else {
        eprintln!("skipped: {name} is not here");
        return;
    };
    let trace = read_path(&folder.join(name), &ReadOptions::default()).unwrap();
    assert_eq!(told(&trace), []);
}
