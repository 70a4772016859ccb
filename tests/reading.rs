//! The reader: the same trace for any number of threads, and the same as an independent slow reader sees.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

mod support;

use std::path::{Path, PathBuf};
use support::{dump, shared_traces, slow_reader, testdata};
use tracetool::input::{ReadOptions, read, read_path};
use tracetool::trace::{Keep, Trace};

fn read_with(path: &Path, threads: usize) -> Trace {
    read_path(path, &ReadOptions { threads, ..ReadOptions::default() }).unwrap()
}

fn read_text(text: &str) -> Trace {
    read(std::io::Cursor::new(text.to_owned().into_bytes()), &ReadOptions::default()).unwrap()
}

/// The well-formed traces below a folder, smaller than `limit` bytes.
fn traces(folder: &Path, limit: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            found.extend(traces(&path, limit));
        } else if name.contains(".pt.trace.json")
            && !name.starts_with("odd_names")
            && entry.metadata().unwrap().len() < limit
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn assert_same(path: &Path, got: &Trace, want: &Trace) {
    let (got, want) = (dump::lines(got), dump::lines(want));
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(got, want, "{}", path.display());
    }
    assert_eq!(got.len(), want.len(), "{}", path.display());
}

#[test]
fn an_independent_slow_reader_sees_the_same() {
    let mut folders = vec![testdata("")];
    folders.extend(shared_traces().map(|t| t.join("public")));
    let paths: Vec<_> = folders.iter().flat_map(|f| traces(f, 6 << 20)).collect();
    assert!(paths.len() >= 10);
    for path in paths {
        assert_same(&path, &read_with(&path, 2), &slow_reader::read(&path));
    }
}

#[test]
fn any_number_of_threads_gives_the_same() {
    for name in ["resnet", "gpt_stack", "odd_names", "legacy"] {
        let path = testdata(&format!("{name}.pt.trace.json.gz"));
        let one = read_with(&path, 1);
        for threads in [2, 3, 8] {
            let many = read_with(&path, threads);
            assert_same(&path, &many, &one);
            assert_eq!(many.diagnostics(), one.diagnostics());
            assert_eq!(many.unmodelled(), one.unmodelled());
        }
    }
}

#[test]
fn parts_that_are_not_kept_are_empty_and_the_others_unchanged() {
    let path = testdata("gpt_stack.pt.trace.json.gz");
    let all = read_with(&path, 2);
    let keep = Keep { frames: false, details: false, device_events: false, ..Keep::ALL };
    let some = read_path(&path, &ReadOptions { keep, ..ReadOptions::default() }).unwrap();
    assert!(some.frames().is_empty() && some.device_events().is_empty());
    assert_eq!(some.ops().start(), all.ops().start());
    assert_eq!(some.memory().time(), all.memory().time());
    assert_eq!((some.events(), some.unmodelled()), (all.events(), all.unmodelled()));
    assert_eq!(some.kept(), keep);
}

#[test]
fn all_layouts_of_the_document_are_read() {
    let event = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":2,"ts":5,"dur":1}"#;
    for document in [
        format!("[{event}]"),
        format!("[{event},\n"),
        format!("[{event},{{}}]"),
        format!(r#"{{"traceEvents":[{event}]}}"#),
        format!(r#"{{"deviceProperties":[{{"id":0,"name":"X"}}],"traceEvents":[{event},],"traceName":"x"}}"#),
        format!("\u{feff} {{ \"a\" : {{\"traceEvents\":[1,{{}}]}} , \"traceEvents\" : [ {event}\n]"),
    ] {
        let trace = read_text(&document);
        assert_eq!(trace.ops().len(), 1, "{document}");
        assert!(!trace.diagnostics().lost_data(), "{document}");
    }
}

#[test]
fn a_bracket_that_is_missing_in_what_is_skipped_unread_swallows_no_event_behind_it() {
    let event = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":2,"ts":5,"dur":1}"#;
    for broken in [
        r#"{"ph":"s","id":1,"cat":"ac2g","name":"ac2g","pid":1"#,
        r#"{"ph":"s","id":1,"cat":"ac2g","name":"ac2g","pid":1,"args":{"a":[1}"#,
        r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":2,"ts":1,"dur":1,"args":{"Input Dims":[[2,3],[],"Ev Idx":1}}"#,
        r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":2,"ts":1,"dur":1,"args":{"unknown":{"a":[1,2],"Ev Idx":1}}"#,
    ] {
        // A bracket too many behind them would make up for the one that is missing.
        for rest in ["", ",{}}", ",{\"ph\":\"X\"}]}"] {
            let trace = read_text(&format!("[{event},{broken},{event},{event}{rest},{event}]"));
            let found = trace.ops().name().iter().filter(|name| trace.str(**name) == "aten::mm").count();
            let expected = if rest.ends_with("]}") { 3 } else { 4 };
            assert!(found >= expected, "{found}: {broken} {rest}: {:?}", trace.diagnostics());
            assert!(trace.diagnostics().lost_data(), "{broken}");
        }
    }
}

/// What is odd: code, how often, where first.
fn odd(trace: &Trace) -> Vec<(&str, u64, Option<u64>)> {
    trace.diagnostics().iter().map(|d| (d.code, d.count, d.first_offset)).collect()
}

#[test]
fn what_a_damaged_key_or_value_takes_away_is_told() {
    let memory = |total: &str| {
        format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":2,"args":{{"Bytes":8,"{total}":8}}}}"#
        )
    };
    let (total, half) = (memory("Total Allocated"), memory("Total Alloc"));
    for (events, code) in [
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"du":1}"#, "event-without-duration"),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"tss":1,"dur":1}"#, "event-without-time"),
        (r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":12x4}"#, "odd-value"),
        (
            r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"ti":1,"name":"b","pid":1,"tid":1,"ts":1,"dur":1}"#,
            "repeated-key",
        ),
        (r#"{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":2,"args":{"Byte":8}}"#, "memory-without-bytes"),
        (&format!("{total},{half},{total}"), "memory-without-totals"),
        (
            r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{"Input Dims":[[2,3},[]]}}"#,
            "odd-inputs",
        ),
    ] {
        let trace = read_text(&format!("[{events}]"));
        let told = trace.diagnostics().get(code);
        assert!(told.is_some_and(|d| d.count == 1), "{events}: {:?}", trace.diagnostics());
    }
    // Where no event has totals, the exporter knew none.
    assert_eq!(odd(&read_text(&format!("[{half},{half}]"))), []);
    let trace = read_text(&format!("[{total},{half},{total}]"));
    assert_eq!(odd(&trace), [("memory-without-totals", 1, Some(2 + total.len() as u64))]);
}

#[test]
fn a_stray_bracket_ends_no_list_that_goes_on() {
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}"#;
    for document in [format!("[{event}],{event}]"), format!("{{\"traceEvents\":[{event}] {event}]}}")] {
        let trace = read_text(&document);
        assert_eq!(trace.ops().len(), 2, "{document}");
        assert!(trace.diagnostics().get("rubbish").is_some_and(|d| d.count == 1), "{document}");
    }
}

#[test]
fn half_a_flow_does_not_swallow_half_an_event() {
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}"#;
    let text =
        format!(r#"[{event},{{"ph":"s","cat":"ac2g","name":"ac2g","bp":"e" 855,"cat":"cpu_op","name":"b"}},{event}]"#);
    let trace = read_text(&text);
    assert_eq!(trace.ops().len(), 2);
    assert_eq!(odd(&trace), [("broken-event", 1, Some(2 + event.len() as u64))]);
}

#[test]
fn metadata_before_and_after_the_events_is_known() {
    let trace = read_text(
        r#"{"record_shapes":1,"traceEvents":[],"baseTimeNanoseconds":1790857026000000000,"distributedInfo":{"rank":3}}"#,
    );
    assert_eq!(trace.info().record_shapes, Some(true));
    assert_eq!(trace.info().base_time.map(|t| t.0), Some(1_790_857_026_000_000_000));
    assert_eq!(trace.info().distributed.as_ref().and_then(|d| d.rank), Some(3));
}

#[test]
fn what_is_no_trace_is_refused_with_what_was_found() {
    for (text, found) in [
        ("", "an empty file"),
        ("  \n", "an empty file"),
        ("\u{89}PNG\r\n", "PNG"),
        ("hello", "hello"),
        (r#"{"a": 1, "b": [2]}"#, "an object with a, b"),
        ("[1, 2, 3]", "other things"),
        (r#"[{"a": 1}]"#, "other things"),
    ] {
        let error = read(std::io::Cursor::new(text.to_owned().into_bytes()), &ReadOptions::default()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("expected a PyTorch trace") && message.contains(found), "{text:?}: {message}");
    }
}

#[test]
fn an_input_above_the_limit_is_refused_by_name_of_the_limit_for_any_number_of_threads() {
    // Spaces: as gzip they are a thousand times smaller.
    let text = [b"{\"traceEvents\":[".as_slice(), &[b' '; 3 << 20], b"]}"].concat();
    for threads in [1, 2, 8] {
        let read_up_to = |max_input_size| {
            let options = ReadOptions { threads, max_input_size, ..ReadOptions::default() };
            read(std::io::Cursor::new(text.clone()), &options)
        };
        assert!(read_up_to(4 << 20).is_ok());
        let message = read_up_to(2 << 20).unwrap_err().to_string();
        assert!(message.contains("larger than 2097152 bytes") && message.contains("--max-input-size"), "{message}");
    }
}
