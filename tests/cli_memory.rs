//! The commands that ask who holds memory, as a user meets them.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::process::{Command, Output};

const SNAPSHOT: &str = "testdata/gpt_snapshot.snapshot.pickle.gz";

fn tracetool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool")).args(args).env_remove("NO_COLOR").output().unwrap()
}

fn trace(name: &str) -> String {
    format!("testdata/{name}.pt.trace.json.gz")
}

fn stdout(command: &str, name: &str, args: &[&str]) -> String {
    let output = tracetool(&[&[command, &trace(name)], args].concat());
    assert!(output.status.success(), "{command} {name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(command: &str, name: &str, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(command, name, &[args, &["--format", "json"]].concat())).unwrap()
}

fn refusal(args: &[&str]) -> String {
    let output = tracetool(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to standard output");
    error
}

#[test]
fn who_holds_the_peak() {
    insta::assert_snapshot!(stdout("peak", "gpt_naive", &["--group-by", "category"]));
}

#[test]
fn who_holds_it_when_memory_ran_out() {
    insta::assert_snapshot!(stdout("peak", "oom", &["--at", "oom"]));
}

#[test]
fn which_blocks_there_are() {
    insta::assert_snapshot!(stdout("blocks", "gpt_naive", &["--alive-at", "peak", "--min-size", "100MiB", "-n", "4"]));
}

#[test]
fn the_run_that_keeps_its_graphs_is_told() {
    insta::assert_snapshot!(stdout("steps", "leak", &["--device", "cuda:0", "--limit", "3"]));
}

#[test]
fn rows_sum_to_the_peak_in_json() {
    let document = json("peak", "gpt_naive", &["--group-by", "module", "--limit", "-1"]);
    for device in document["devices"].as_array().unwrap() {
        let rows = device["rows"].as_array().unwrap();
        let sum: i64 = rows.iter().map(|r| r["live_bytes"].as_i64().unwrap()).sum();
        let before = device["before_trace_bytes"].as_i64().unwrap();
        assert_eq!(sum + before, device["peak_allocated_bytes"].as_i64().unwrap());
        assert_eq!(device["row_count"], rows.len());
    }
    assert_eq!(document["findings"][0]["code"], "no-modules");
}

#[test]
fn what_a_trace_lacks_is_said_with_what_brings_it() {
    let (naive, empty) = (trace("gpt_naive"), trace("threads_streams"));
    assert!(refusal(&["peak", &empty]).contains("nothing was allocated"));
    assert!(refusal(&["steps", &naive]).contains("--step-annotation"));
    assert!(refusal(&["peak", &naive, "--at", "oom"]).contains("no out-of-memory event"));
    assert!(refusal(&["peak", &naive, "--at", "step:7"]).contains("marks no steps"));
    assert!(refusal(&["peak", &trace("leak"), "--at", "step:99"]).contains("steps 2 to 7"));
    assert!(refusal(&["peak", &naive, "--device", "cuda:5"]).contains("it holds cuda:0, cpu"));
    assert!(refusal(&["peak", &naive, "--group-by", "mood"]).contains("category"));
    assert!(refusal(&["blocks", &naive, "--sort-by", "mood"]).contains("lifetime"));
}

#[test]
fn a_snapshot_without_steps_says_how_to_mark_them_and_what_could_be_taken_for_them() {
    for args in [&["steps", SNAPSHOT][..], &["timeline", SNAPSHOT, "--step", "1"]] {
        let error = refusal(args);
        for part in ["the snapshot marks no steps", "global_record_annotations=True", "\"Optimizer.", "3 times"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn a_snapshot_is_held_against_a_baseline_of_a_snapshot() {
    let baseline = std::env::temp_dir().join(format!("tracetool-snapshot-{}.json", std::process::id()));
    let baseline = baseline.to_str().unwrap();
    let run = |args: &[&str]| {
        let output = tracetool(args);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["baseline", SNAPSHOT, "-o", baseline]).0, Some(0));
    assert_eq!(run(&["check", SNAPSHOT, "--baseline", baseline]).0, Some(0));
    let (status, diff) = run(&["diff", baseline, SNAPSHOT]);
    assert_eq!(status, Some(0));
    assert!(diff.contains("nothing differs"), "{diff}");
    std::fs::remove_file(baseline).unwrap();
    let (status, failed) = run(&["check", SNAPSHOT, "--max-peak", "1GiB"]);
    assert_eq!(status, Some(1));
    assert!(failed.contains("(93): forward") && !failed.contains("By category"), "{failed}");
}

#[test]
fn steps_can_be_an_annotation() {
    let document = json("steps", "cpu_only", &["--step-annotation", "Optimizer.step.*"]);
    assert_eq!(document["devices"][0]["rows"].as_array().unwrap().len(), 3);
    assert!(refusal(&["steps", &trace("cpu_only"), "--step-annotation", "nothing"]).contains("no annotation named"));
}

#[test]
fn users_bring_their_own_categories() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "[[rule]]\ncategory = \"everything\"\noperators = [\"*\"]\n").unwrap();
    let path = file.path().to_str().unwrap();
    let document = json("peak", "gpt_naive", &["--group-by", "category", "--device", "cuda:0", "--categories", path]);
    assert_eq!(document["devices"][0]["rows"][0]["key"], "everything");
    std::fs::write(&file, "[[rule]]\ncategory = 3\n").unwrap();
    let error = refusal(&["peak", &trace("gpt_naive"), "--categories", path]);
    assert!(error.contains("line 2") && error.contains(path), "{error}");
}

#[test]
fn one_thread_gives_what_several_give() {
    let [one, four] = ["1", "4"].map(|n| stdout("peak", "gpt_stack", &["--group-by", "stack", "--threads", n]));
    assert_eq!(one, four);
}

#[test]
fn of_more_devices_than_any_machine_has_the_largest_are_shown_and_any_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("devices.json");
    let event = |i: usize| {
        format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":{i},"args":{{"Bytes":{0},"Addr":{i},"Device Type":1,"Device Id":{i},"Total Allocated":{0},"Total Reserved":{0}}}}},
               {{"ph":"X","cat":"kernel","name":"k","pid":1,"tid":1,"ts":{i},"dur":{i},"args":{{"device":{i},"stream":7}}}}"#,
            1000 + i
        )
    };
    let events: Vec<String> = (0..300).map(event).collect();
    std::fs::write(&path, format!("[{}]", events.join(",\n"))).unwrap();
    let path = path.to_str().unwrap();
    for command in ["peak", "top", "summary", "timeline"] {
        let output = tracetool(&[command, path, "--format", "json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let told = document["diagnostics"].as_array().unwrap().iter().find(|d| d["code"] == "many-devices").unwrap();
        assert_eq!(told["count"], if command == "summary" { 88 } else { 44 }, "{command}");
        let devices = document[if command == "top" { "peaks" } else { "devices" }].as_array().unwrap();
        assert_eq!((devices.len(), &devices[0]["device"]), (256, &"cuda:44".into()), "{command}");
    }
    let one = tracetool(&["peak", path, "--device", "cuda:3"]);
    assert!(String::from_utf8_lossy(&one.stdout).starts_with("cuda:3: the peak is 1003 B allocated"));
}
