//! The command line as a user meets it: the built binary, real files, exit codes, both standard streams.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACE: &str = "testdata/gpt_naive.pt.trace.json.gz";

fn tracetool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool")).args(args).env_remove("NO_COLOR").output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = tracetool(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is said on standard error of a command that exits with 2 and writes nothing.
fn refusal(args: &[&str]) -> String {
    let output = tracetool(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to standard output");
    assert!(error.lines().last().is_some_and(|line| line.starts_with("tracetool: error: ")), "{args:?}: {error}");
    error
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn inflated(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_table_for_people() {
    insta::assert_snapshot!(stdout(&["top", TRACE, "--limit", "8"]));
}

#[test]
fn the_table_of_times() {
    insta::assert_snapshot!(stdout(&[
        "top",
        TRACE,
        "--sort-by",
        "self_cuda_time_total",
        "--limit",
        "5",
        "--width",
        "140"
    ]));
}

#[test]
fn the_table_by_input_shape() {
    insta::assert_snapshot!(stdout(&[
        "top",
        TRACE,
        "--group-by-input-shape",
        "--filter",
        "aten::(mm|bmm)$",
        "--limit",
        "6"
    ]));
}

#[test]
fn the_torch_format() {
    insta::assert_snapshot!(stdout(&[
        "top",
        TRACE,
        "--format",
        "torch",
        "--sort-by",
        "cuda_memory_usage",
        "--limit",
        "5"
    ]));
}

#[test]
fn the_markdown_format() {
    insta::assert_snapshot!(stdout(&["top", TRACE, "--format", "markdown", "--limit", "3"]));
}

#[test]
fn the_csv_format() {
    insta::assert_snapshot!(stdout(&["top", TRACE, "--format", "csv", "--limit", "3"]));
}

#[test]
fn the_json_format() {
    insta::assert_snapshot!(stdout(&["top", TRACE, "--format", "json", "--limit", "2"]));
}

#[test]
fn chosen_columns_are_shown_in_the_order_asked_for() {
    let csv = stdout(&["top", TRACE, "--format", "csv", "--columns", "count,self_cuda_memory_usage", "--limit", "1"]);
    assert_eq!(csv.lines().next(), Some("key,count,self_device_memory_usage_bytes"));
    let error = refusal(&["top", TRACE, "--columns", "cuont"]);
    assert!(error.contains("did you mean count?"), "{error}");
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [60, 80, 100, 150] {
        let text = stdout(&["top", TRACE, "--width", &width.to_string()]);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
    }
}

#[test]
fn a_wrong_command_line_is_answered_in_a_line_with_what_is_right() {
    let error = refusal(&["top", TRACE, "--sort-by", "self_cuda_mem"]);
    assert_eq!(error.lines().count(), 1);
    assert!(error.contains("did you mean self_device_memory_usage_bytes?"), "{error}");
    let error = refusal(&["top", TRACE, "--format", "xml"]);
    assert!(error.contains("markdown") && error.lines().count() == 1, "{error}");
    assert!(refusal(&["tpo"]).contains("top"));
    assert!(refusal(&[]).contains("--help"));
    assert!(refusal(&["top", TRACE, "--filter", "("]).contains("regex"));
    assert!(refusal(&["top", TRACE, "--device", "gpu"]).contains("cuda:0"));
}

#[test]
fn what_is_no_trace_is_refused_with_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing = folder.path().join("none.json").to_str().unwrap().to_owned();
    assert!(refusal(&["top", &missing]).contains("none.json"));
    assert!(refusal(&["top", folder.path().to_str().unwrap()]).contains("folder"));
    for (name, bytes) in [
        ("empty.json", &b""[..]),
        ("empty.json.gz", &gzip(b"")),
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01"),
        ("other.json", br#"{"name": "a package", "version": 1}"#),
        ("number.json", b"42"),
        ("words.txt", b"no JSON at all"),
    ] {
        let error = refusal(&["top", &file(name, bytes)]);
        assert!(error.contains(name) && error.contains("expected"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_trace_of_other_programs_is_refused_with_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    fs::write(&path, r#"{"traceEvents":[{"name":"a","cat":"PERF","ph":"B","ts":1,"pid":1,"tid":1}]}"#).unwrap();
    let error = refusal(&["top", path.to_str().unwrap()]);
    assert!(error.contains("only other events (ph B, PERF)"), "{error}");
}

#[test]
fn a_truncated_trace_is_reported_as_far_as_it_goes_and_refused_when_strict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.json.gz");
    let whole = fs::read(TRACE).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let path = path.to_str().unwrap();
    let output = tracetool(&["top", path, "--format", "json"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("DATA LOST"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"loss\""));
    let target = folder.path().join("out.txt");
    refusal(&["top", path, "--strict", "-o", target.to_str().unwrap()]);
    assert!(!target.exists());
}

#[test]
fn a_file_gets_what_standard_output_gets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let name = path.to_str().unwrap();
    let args = ["top", TRACE, "--format", "csv"];
    assert_eq!(stdout(&[&args[..], &["-o", name]].concat()), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), stdout(&args));
    assert_eq!(stdout(&[&args[..], &["-o", "-"]].concat()), stdout(&args));
    let error = refusal(&["top", TRACE, "-o", folder.path().join("no/out").to_str().unwrap()]);
    assert!(error.contains("there is no folder"), "{error}");
}

#[test]
fn standard_input_is_read_gzipped_or_not() {
    let from_file = stdout(&["top", TRACE]);
    for bytes in [fs::read(TRACE).unwrap(), inflated(TRACE)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tracetool"))
            .args(["top", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), from_file);
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let one = stdout(&["top", TRACE, "--format", "json", "--limit", "-1", "--threads", "1"]);
    for threads in ["2", "3", "8"] {
        assert_eq!(stdout(&["top", TRACE, "--format", "json", "--limit", "-1", "--threads", threads]), one);
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tracetool"))
        .args(["top", TRACE, "--limit", "-1", "--group-by-input-shape", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn colour_is_only_where_it_is_asked_for_or_seen() {
    assert!(!stdout(&["top", TRACE]).contains('\x1b'));
    assert!(stdout(&["top", TRACE, "--color", "always"]).contains("\x1b[1m"));
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.json");
    let event = r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a\u001b[2J\u009b\u202ex|<b>`", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}"#;
    fs::write(&path, event).unwrap();
    for format in ["table", "torch", "markdown", "json"] {
        let text = stdout(&["top", path.to_str().unwrap(), "--format", format]);
        assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{format}: {text:?}");
        assert!(text.contains("x") && !(format == "markdown" && text.contains("<b>")), "{format}: {text}");
    }
    let error = refusal(&["top", "no\x1b[31mfile"]);
    assert!(!error.contains('\x1b') && error.contains("\\x1b"), "{error}");
}

#[test]
fn help_version_and_completions() {
    insta::assert_snapshot!("help", stdout(&["--help"]));
    insta::assert_snapshot!("help_top", stdout(&["top", "--help"]));
    assert_eq!(stdout(&["--version"]), format!("tracetool {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(stdout(&["completions", shell]).contains("tracetool"), "{shell}");
    }
}

#[test]
fn devices_are_written_to_and_stay_devices() {
    if Path::new("/dev/null").exists() {
        assert_eq!(stdout(&["top", TRACE, "-o", "/dev/null"]), "");
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
