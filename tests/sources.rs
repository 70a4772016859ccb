//! Every kind of source, by tiny inputs and by real ones of others: each does what it should, with the numbers.
//!
//! Expected numbers of the public traces were counted with Python's json and decimal modules.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a broken fixture ends the test")]

mod support;

use std::path::Path;
use support::shared_traces;
use tracetool::analysis::averages::{AveragesOptions, KeyAverages};
use tracetool::input::{ReadOptions, read, read_path};
use tracetool::report::top::Top;
use tracetool::trace::{Device, DeviceEventKind, OpKind, Severity, Trace};
use tracetool::units::{Bytes, Nanos};

fn read_text(text: &str) -> Trace {
    read(std::io::Cursor::new(text.to_owned().into_bytes()), &ReadOptions::default()).unwrap()
}

fn events(events: &str) -> Trace {
    read_text(&format!("{{\"traceEvents\":[{events}]}}"))
}

/// What is odd: code, how often, where first.
fn odd(trace: &Trace) -> Vec<(&str, u64, Option<u64>)> {
    trace.diagnostics().iter().map(|d| (d.code, d.count, d.first_offset)).collect()
}

fn spans(trace: &Trace) -> Vec<(&str, i64, i64)> {
    trace.ops().iter().map(|op| (trace.str(op.name), op.start.0, op.duration.0)).collect()
}

fn averages(trace: &Trace) -> KeyAverages {
    KeyAverages::compute(trace, &AveragesOptions::default())
}

/// Reads a file of the shared ones; `None`, said, where they are not there.
fn shared(name: &str) -> Option<Result<Trace, String>> {
    let Some(folder) = shared_traces() else {
        eprintln!("skipped: {name} is not here");
        return None;
    };
    Some(read_path(&folder.join(name), &ReadOptions::default()).map_err(|error| error.to_string()))
}

fn malformed(name: &str) -> Option<Result<Trace, String>> {
    shared(&format!("malformed/{name}"))
}

#[test]
fn an_empty_file_is_refused() {
    let Some(read) = malformed("empty_file.json") else { return };
    assert!(read.unwrap_err().ends_with("found an empty file"));
}

#[test]
fn values_that_are_no_json_are_taken_as_not_given() {
    let Some(Ok(trace)) = malformed("inf_bandwidth__kineto105.json") else { return };
    let copy = trace.device_events().get(0);
    assert_eq!((copy.kind, copy.bytes, copy.stream), (DeviceEventKind::Memcpy, Bytes(200), 7));
    assert_eq!(odd(&trace), []);
    let Some(Ok(trace)) = malformed("nan_bare__bluepill437.json") else { return };
    assert_eq!((trace.events(), trace.unmodelled()), (1, &[("ph C".to_owned(), 1)][..]));
    assert_eq!(odd(&trace), []);
}

#[test]
fn kernels_that_overlap_are_both_kept() {
    let Some(Ok(trace)) = malformed("overlap_x__perfetto4280.json") else { return };
    let kernels: Vec<_> = trace.device_events().iter().map(|e| (trace.str(e.name), e.start.0, e.duration.0)).collect();
    assert_eq!(kernels, [("A", 3_000, 4_500), ("B", 5_000, 4_000)]);
    assert_eq!((trace.events(), averages(&trace).rows.len(), odd(&trace)), (2, 2, vec![]));
    assert_eq!(averages(&trace).self_device_time_total, Nanos(8_500));
}

#[test]
fn the_contents_tell_whether_it_is_gzip_and_members_follow_each_other() {
    for name in ["plain_json_named_gz.json.gz", "two_gzip_members.json.gz"] {
        let Some(Ok(trace)) = malformed(name) else { return };
        assert_eq!(spans(&trace), [("aten::add", 1_010_000, 2_000)], "{name}");
        assert_eq!(odd(&trace), [], "{name}");
    }
}

#[test]
fn memory_of_a_back_end_from_outside_is_its_own() {
    let Some(Ok(trace)) = malformed("privateuse1_memory__kineto1306.json") else { return };
    let memory: Vec<_> =
        trace.memory().iter().map(|m| (trace.device(m.device).to_string(), m.bytes.0, m.total_allocated.0)).collect();
    assert_eq!(memory, [("privateuse1:0".into(), 1024, 1024), ("cpu".into(), 64, 64)]);
    let rows = averages(&trace).rows;
    assert_eq!((trace.events(), rows.len(), odd(&trace)), (2, 1, vec![]));
    assert_eq!((rows[0].self_device_memory_usage, rows[0].self_cpu_memory_usage), (Bytes(1024), Bytes(64)));
}

#[test]
fn line_breaks_and_quotes_in_names_cost_nothing() {
    let Some(Ok(trace)) = malformed("raw_newline_and_quotes_in_name__pytorch113001_130622.json") else { return };
    let frames: Vec<&str> = trace.frames().name().iter().map(|name| trace.str(*name)).collect();
    assert_eq!(frames, ["lib = torch.library.Library(\"demo\", \"IMPL\")\n(1): <module>"]);
    assert_eq!(spans(&trace), [("aten::add", 1_010_000, 2_000)]);
    assert_eq!(odd(&trace), [("repaired-event", 1, Some(43)), ("unescaped-text", 1, Some(43))]);
    assert!(!trace.diagnostics().lost_data());
}

#[test]
fn backslashes_of_windows_stay() {
    let Some(Ok(trace)) = malformed("windows_backslash__pytorch98432.json") else { return };
    let frames: Vec<&str> = trace.frames().name().iter().map(|name| trace.str(*name)).collect();
    assert_eq!(frames[0], "torch\\cuda\\__init__.py(219): _lazy_init");
    assert_eq!((trace.events(), frames.len()), (2, 2));
    assert_eq!(odd(&trace), [("bad-escape", 2, Some(43))]);
    assert_eq!(trace.diagnostics().get("bad-escape").map(|d| d.severity), Some(Severity::Warning));
}

#[test]
fn what_is_cut_off_is_told_and_the_whole_events_stand() {
    let Some(Ok(trace)) = malformed("truncated_object.json") else { return };
    assert_eq!(spans(&trace), [("aten::add", 1_010_000, 2_000)]);
    assert_eq!(odd(&trace), [("cut-off-event", 1, Some(135)), ("missing-end", 1, Some(190))]);
    assert!(trace.diagnostics().lost_data());
    let Some(Ok(trace)) = malformed("truncated.json.gz") else { return };
    assert_eq!(odd(&trace), [("cut-off-event", 1, Some(43)), ("truncated-gzip", 1, Some(57))]);
    assert_eq!(trace.events(), 0);
}

#[test]
fn absolute_times_as_strings_are_exact() {
    let Some(Ok(trace)) = malformed("string_ts_abs__ascend133.json") else { return };
    assert_eq!((trace.events(), trace.unmodelled()), (2, &[("ph X, no category".to_owned(), 2)][..]));
    let trace =
        events(r#"{"ph":"X","cat":"cpu_op","name":"a","pid":2,"tid":0,"ts":"1737522612345678.901","dur":"0.52"}"#);
    assert_eq!(spans(&trace), [("a", 1_737_522_612_345_678_901, 520)]);
}

/// Of a public trace: events, operators, annotations, runtime and driver calls, kernels, copies and sets, frames, memory
/// events; nanoseconds of kernels; net bytes of the accelerator and of the host.
type Counts = (u64, [usize; 6], i64, [i64; 2]);

fn counts(trace: &Trace) -> Counts {
    let ops = |kinds: &[OpKind]| trace.ops().iter().filter(|op| kinds.contains(&op.kind)).count();
    let device = |kinds: &[DeviceEventKind]| trace.device_events().iter().filter(|e| kinds.contains(&e.kind)).count();
    let kernels = trace.device_events().iter().filter(|e| e.kind == DeviceEventKind::Kernel);
    let net = |cpu: bool| -> i64 {
        trace.memory().iter().filter(|m| trace.device(m.device).kind.is_cpu() == cpu).map(|m| m.bytes.0).sum()
    };
    (
        trace.events(),
        [
            ops(&[OpKind::Operator, OpKind::Annotation]),
            ops(&[OpKind::Runtime, OpKind::Driver]),
            device(&[DeviceEventKind::Kernel]),
            device(&[DeviceEventKind::Memcpy, DeviceEventKind::Memset]),
            trace.frames().len(),
            trace.memory().len(),
        ],
        kernels.map(|e| e.duration.0).sum(),
        [net(false), net(true)],
    )
}

#[test]
fn public_traces_have_the_numbers_that_python_counts() {
    let all: [(&str, Counts); 11] = [
        ("ascend/trace_view.json", (3_670, [711, 0, 276, 0, 0, 0], 1_790_457, [0, 0])),
        ("empty_capture/worker0.pt.trace.json", (5, [0; 6], 0, [0, 0])),
        ("gpu_only/trace1.json", (2_755, [0, 867, 464, 25, 0, 0], 12_399_000, [0, 0])),
        ("hta_large_integer/rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz", (2, [1, 0, 1, 0, 0, 0], 50_000, [0, 0])),
        (
            "hta_ns_resolution/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
            (68_692, [23_980, 15_329, 4_350, 1_745, 0, 0], 468_153_602, [0, 0]),
        ),
        (
            "kineto_2021_01_array/worker0.pt.trace.json.gz",
            (82_276, [42_438, 10_800, 9_538, 389, 0, 0], 635_237_000, [0, 0]),
        ),
        (
            "kineto_2021_06/worker0.1623143089861.pt.trace.json.gz",
            (75_718, [23_646, 11_923, 8_772, 324, 0, 12_838], 591_532_000, [0, 19_267_840]),
        ),
        ("spiking_1_12/trace.json", (81, [51, 0, 0, 0, 0, 22], 0, [901_120, 0])),
        (
            "switch_transformers/trace.json",
            (11_073, [2_474, 976, 484, 40, 4_490, 1_070], 618_155_000, [20_819_050_496, 160]),
        ),
        (
            "tracelens_h100/gaunernst_bert-small-uncased__1016001.json.gz",
            (2_551, [480, 132, 60, 1, 1_385, 236], 307_197, [0, 0]),
        ),
        (
            "tracelens_mi300/gaunernst_bert-small-uncased__1016001.json.gz",
            (2_653, [520, 161, 60, 1, 1_389, 236], 388_344, [0, 0]),
        ),
    ];
    for (name, expected) in all {
        let Some(read) = shared(&format!("public/{name}")) else { return };
        let trace = read.unwrap();
        assert_eq!(counts(&trace), expected, "{name}");
        assert!(!trace.diagnostics().lost_data(), "{name}: {:?}", trace.diagnostics());
    }
}

#[test]
fn public_traces_have_the_rows_and_device_times_that_python_counts_and_nothing_is_odd() {
    for (name, rows, device_time) in [
        ("ascend/trace_view.json", 201, 1_790_457),
        ("gpu_only/trace1.json", 34, 12_399_000),
        ("hta_large_integer/rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz", 2, 50_000),
        ("hta_ns_resolution/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 191, 472_454_441),
        ("kineto_2021_01_array/worker0.pt.trace.json.gz", 151, 649_472_000),
        ("kineto_2021_06/worker0.1623143089861.pt.trace.json.gz", 157, 603_558_000),
        ("spiking_1_12/trace.json", 20, 0),
        ("switch_transformers/trace.json", 100, 621_729_000),
        ("tracelens_h100/gaunernst_bert-small-uncased__1016001.json.gz", 54, 309_437),
        ("tracelens_mi300/gaunernst_bert-small-uncased__1016001.json.gz", 50, 390_748),
    ] {
        let Some(Ok(trace)) = shared(&format!("public/{name}")) else { return };
        let averages = averages(&trace);
        assert_eq!((averages.rows.len(), averages.self_device_time_total), (rows, Nanos(device_time)), "{name}");
        assert_eq!(odd(&trace), [], "{name}");
    }
}

/// What `top` says of a file that it makes no row of.
fn refusal(trace: &Trace) -> String {
    Top::default().run(trace).unwrap_err().to_string()
}

#[test]
fn a_trace_without_a_row_is_refused_with_what_it_holds() {
    let only = |kinds: &str| {
        format!(
            "the trace holds no operators, runtime calls or kernels, only {kinds} (wrap the code to look at in `with \
             torch.profiler.profile():`, and export after the block)"
        )
    };
    for (name, expected) in [
        ("malformed/nan_bare__bluepill437.json", only("other events (ph C)")),
        ("malformed/string_ts_abs__ascend133.json", only("other events (ph X, no category)")),
        ("malformed/windows_backslash__pytorch98432.json", only("Python frames")),
        ("malformed/truncated.json.gz", "the trace holds no events (the file is incomplete or damaged)".to_owned()),
        ("public/empty_capture/worker0.pt.trace.json", only("other events (ph M; ph i, no category)")),
        ("public/not_json/trace2.json", only("other events (ph B, PERF; ph E, PERF)")),
    ] {
        let Some(Ok(trace)) = shared(name) else { return };
        assert_eq!(refusal(&trace), expected, "{name}");
    }
}

#[test]
fn every_shared_file_that_is_broken_or_of_others_has_a_test_with_its_numbers() {
    fn files(folder: &Path) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names.extend(files(&path));
            } else {
                names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
        names
    }
    let Some(shared) = shared_traces() else { return };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let code: String = ["sources.rs", "smi.rs", "snapshots.rs"]
        .iter()
        .map(|name| std::fs::read_to_string(tests.join(name)).unwrap())
        .collect();
    for name in files(&shared.join("malformed")).into_iter().chain(files(&shared.join("public"))) {
        assert!(name == "SOURCES.tsv" || code.contains(&name), "{name} is in no test");
    }
}

#[test]
fn public_traces_have_their_devices_and_peaks() {
    for (name, device, peak) in [
        ("spiking_1_12/trace.json", "cuda:0", 2_366_976),
        ("switch_transformers/trace.json", "cuda:0", 23_111_038_976),
        ("tracelens_h100/gaunernst_bert-small-uncased__1016001.json.gz", "cuda:0", 101_305_344),
        ("tracelens_mi300/gaunernst_bert-small-uncased__1016001.json.gz", "hip:0", 146_394_112),
    ] {
        let Some(Ok(trace)) = shared(&format!("public/{name}")) else { return };
        let device: Device = device.parse().unwrap();
        let of_device = trace.memory().iter().filter(|m| trace.device(m.device) == device);
        assert_eq!(of_device.map(|m| m.total_allocated.0).max(), Some(peak), "{name}");
    }
}

#[test]
fn events_of_another_program_are_counted_and_are_none_of_pytorch() {
    let Some(Ok(trace)) = shared("public/not_json/trace2.json") else { return };
    assert!(trace.ops().is_empty() && trace.device_events().is_empty() && trace.memory().is_empty());
    assert_eq!(trace.unmodelled(), [("ph B, PERF".to_owned(), 1), ("ph E, PERF".to_owned(), 1)]);
}

#[test]
fn a_bare_array_and_the_autograd_profilers_own_export_are_read() {
    let trace = read_text(
        r#"[{"name":"aten::add","ph":"X","ts":10.5,"dur":2.25,"tid":1,"pid":"CPU functions","args":{}},
            {"name":"add_kernel","ph":"X","ts":11.5,"dur":1,"tid":0,"pid":"CUDA functions","args":{}},
            {"name":"aten::add","ph":"s","ts":10.5,"tid":1,"pid":"CPU functions","id":1,"cat":"cpu_to_cuda","args":{}}]"#,
    );
    assert_eq!(spans(&trace), [("aten::add", 10_500, 2_250)]);
    assert_eq!(trace.device_events().get(0).kind, DeviceEventKind::Kernel);
    assert_eq!(odd(&trace), []);
}

#[test]
fn the_names_of_fields_and_categories_of_all_years_mean_the_same() {
    for (category, id, dims) in [
        ("Operator", "External id", "Input dims"),
        ("cpu_op", "External id", "Input Dims"),
        ("CPU_OP", "external id", "Input Dims"),
    ] {
        let trace = events(&format!(
            r#"{{"ph":"X","cat":"{category}","name":"mm","pid":1,"tid":1,"ts":1,"dur":9,"args":{{"{id}":7,"{dims}":[[2,3]]}}}},
               {{"ph":"X","cat":"{}","name":"k","pid":0,"tid":7,"ts":5,"dur":2,"args":{{"{id}":7}}}}"#,
            if category == "Operator" { "Kernel" } else { "kernel" }
        ));
        let op = trace.ops().get(0);
        assert_eq!((op.kind, op.external_id), (OpKind::Operator, 7), "{category}");
        assert_eq!(trace.str(trace.detail(op.detail).input_dims), "[[2,3]]", "{category}");
        let rows = averages(&trace).rows;
        let mm = rows.iter().find(|row| row.key == "mm").unwrap();
        assert_eq!(mm.device_time_total, Nanos(2_000), "{category}");
    }
}

#[test]
fn one_thread_may_have_its_id_as_number_and_as_string() {
    let trace = events(
        r#"{"ph":"X","cat":"cpu_op","name":"outer","pid":1,"tid":"7","ts":1,"dur":9},
           {"ph":"X","cat":"cpu_op","name":"inner","pid":"1","tid":7,"ts":2,"dur":3},
           {"ph":"X","cat":"cpu_op","name":"zero","pid":0,"tid":0,"ts":2,"dur":3}"#,
    );
    assert_eq!(trace.threads().len(), 2);
    let rows = averages(&trace).rows;
    let outer = rows.iter().find(|row| row.key == "outer").unwrap();
    assert_eq!((outer.cpu_time_total, outer.self_cpu_time_total), (Nanos(9_000), Nanos(6_000)));
}

#[test]
fn begins_and_ends_are_spans_and_flows_and_counters_are_counted() {
    let trace = events(
        r#"{"ph":"B","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1},{"ph":"B","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":2},
           {"ph":"E","pid":1,"tid":1,"ts":4},{"ph":"E","cat":"cpu_op","pid":1,"tid":1,"ts":9},
           {"ph":"s","cat":"ac2g","id":1,"name":"ac2g","pid":1,"tid":1,"ts":2},{"ph":"f","cat":"ac2g","id":1,"pid":0,"tid":7,"ts":3},
           {"ph":"C","name":"GPU 0 Utilization","pid":1,"ts":3,"args":{"utilization":5}}"#,
    );
    assert_eq!(spans(&trace), [("a", 1_000, 8_000), ("b", 2_000, 2_000)]);
    let kinds: Vec<(&str, u64)> = trace.unmodelled().iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    assert_eq!(kinds, [("ph C", 1), ("ph f", 1), ("ph s", 1)]);
    assert_eq!((trace.events(), odd(&trace)), (7, vec![]));
}

#[test]
fn times_may_be_relative_to_a_base() {
    let trace = read_text(
        r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":0.000,"dur":1.5}],"baseTimeNanoseconds":1704067200000000000}"#,
    );
    assert_eq!(spans(&trace), [("a", 0, 1_500)]);
    assert_eq!(trace.absolute(Nanos(1)), Nanos(1_704_067_200_000_000_001));
    assert_eq!(odd(&trace), []);
}

#[test]
fn unfinished_and_overrunning_operators_are_kept_and_self_time_is_not_negative() {
    // parent  [----------]
    // child        [----------------]
    let trace = events(
        r#"{"ph":"X","cat":"cpu_op","name":"parent","pid":1,"tid":1,"ts":1,"dur":10,"args":{"finished":false}},
           {"ph":"X","cat":"cpu_op","name":"child","pid":1,"tid":1,"ts":6,"dur":15}"#,
    );
    assert!(trace.ops().get(0).unfinished);
    for row in averages(&trace).rows {
        assert!(row.self_cpu_time_total >= Nanos::ZERO && row.self_cpu_time_total <= row.cpu_time_total, "{row:?}");
    }
}

#[test]
fn ids_that_restart_in_every_process_are_joined_by_process() {
    // Two ranks in one file, with the same ids.
    let rank = |pid: u32, name: &str, dur: u32| {
        format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":{pid},"tid":{pid},"ts":1,"dur":9,"args":{{"External id":5}}}},
               {{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":{pid},"tid":{pid},"ts":2,"dur":1,"args":{{"External id":5,"correlation":3}}}},
               {{"ph":"X","cat":"kernel","name":"k{pid}","pid":{pid},"tid":"stream 7","ts":3,"dur":{dur},"args":{{"External id":5,"correlation":3,"device":0,"stream":7}}}}"#
        )
    };
    let trace = events(&[rank(100, "a", 2), rank(200, "b", 4)].join(","));
    let rows = averages(&trace).rows;
    let time = |key: &str| rows.iter().find(|row| row.key == key).unwrap().device_time_total;
    assert_eq!((time("a"), time("b")), (Nanos(2_000), Nanos(4_000)));
}

#[test]
fn every_kind_of_accelerator_has_its_name() {
    for (number, name) in
        [(1, "cuda:0"), (6, "hip:0"), (9, "xla:0"), (12, "xpu:0"), (13, "mps:0"), (15, "hpu:0"), (19, "mtia:0")]
            .into_iter()
            .chain([(20, "privateuse1:0"), (42, "type42:0")])
    {
        let trace = events(&format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::empty","pid":1,"tid":1,"ts":1,"dur":9}},
               {{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":2,"args":{{"Bytes":512,"Addr":1,"Device Type":{number},"Device Id":0,"Total Allocated":512,"Total Reserved":1024}}}}"#
        ));
        assert_eq!(trace.devices().iter().map(Device::to_string).collect::<Vec<_>>(), [name]);
        let rows = averages(&trace).rows;
        assert_eq!((rows.len(), rows[0].self_device_memory_usage), (1, Bytes(512)), "{name}");
    }
    for (category, runtime) in [
        ("xpu_runtime", true),
        ("xpu_driver", true),
        ("mtia_runtime", true),
        ("privateuse1_runtime", true),
        ("hip_runtime", true),
        ("mtia_ccp_events", false),
        ("kernel", false),
    ] {
        let trace = events(&format!(r#"{{"ph":"X","cat":"{category}","name":"x","pid":1,"tid":1,"ts":1,"dur":2}}"#));
        assert_eq!((trace.ops().len(), trace.device_events().len()), if runtime { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn tasks_of_an_npu_are_known_by_their_type() {
    let task = |kind: &str, stream: u32| {
        format!(
            r#"{{"ph":"X","name":"t","pid":800,"tid":{stream},"ts":"1.5","dur":2,"args":{{"Task Type":"{kind}","Stream Id":{stream},"Task Id":7}}}}"#
        )
    };
    let tasks = [task("AI_CORE", 3), task("Other", 3), task("MEMCPY_ASYNC", 4), task("EVENT_WAIT", 5)].join(",");
    let trace = events(&format!(r#"{tasks},{{"ph":"X","name":"Computing","pid":900,"tid":0,"ts":"1.5","dur":2}}"#));
    let found: Vec<_> = trace.device_events().iter().map(|e| (e.kind, e.stream, e.duration.0)).collect();
    let (kernel, copy) = (DeviceEventKind::Kernel, DeviceEventKind::Memcpy);
    assert_eq!(found, [(kernel, 3, 2_000), (kernel, 3, 2_000), (copy, 4, 2_000)]);
    assert_eq!(trace.unmodelled(), [("ph X, no category".to_owned(), 2)]);
}

#[test]
fn memory_events_of_all_versions_are_known_by_their_name() {
    // torch 1.9: no category, address or totals. Later: an operator by category; strings for numbers.
    for event in [
        r#"{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":2,"args":{"Device Type":1,"Device Id":0,"Bytes":512}}"#,
        r#"{"ph":"X","cat":"cpu_op","name":"[memory]","pid":1,"tid":1,"ts":2,"dur":0,"args":{"Device Type":1,"Device Id":0,"Bytes":512}}"#,
        r#"{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":"2","args":{"Device Type":"1","Device Id":"0","Bytes":"512"}}"#,
    ] {
        let trace = events(event);
        let memory = trace.memory().get(0);
        assert_eq!(
            (memory.time, memory.bytes, trace.device(memory.device)),
            (Nanos(2_000), Bytes(512), Device::cuda(0))
        );
        assert!(trace.ops().is_empty(), "{event}");
    }
    let trace = events(
        r#"{"ph":"i","cat":"cpu_instant_event","name":"[OutOfMemory]","pid":1,"tid":1,"ts":2,"args":{"Bytes":99,"Device Type":1,"Device Id":0,"Total Allocated":5,"Total Reserved":6}}"#,
    );
    assert_eq!(trace.out_of_memory().get(0).bytes, Bytes(99));
}
