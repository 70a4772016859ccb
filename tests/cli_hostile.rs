//! Names come from strangers: through every format of every command none of them acts on a terminal, a spreadsheet, a
//! browser or the structure around it.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use tracetool::render::FORMATS;

/// What each name carries.
const PAYLOAD: &str =
    "<script>alert(1)</script>\x1b]0;pwn\x07\x1b[2J\u{9b}31m\u{202e}|`x`\nforged 7\r\t\",\"q\";z]]>&lt;'--> 99";
/// What each begins with.
const BEGINNINGS: [&str; 10] = ["=cmd()", "+1", "-1", "@sum(", "\t=1", "\r=1", "|", "<script>", "\x1b[31m", "# "];

fn tracetool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool")).args(args).env_remove("NO_COLOR").output().unwrap()
}

/// A trace in which `name` makes all names, from a number and what it names.
fn trace(name: impl Fn(usize, &str) -> String) -> String {
    let text = |i: usize, what: &str| serde_json::to_string(&name(i, what)).unwrap();
    let mut events = Vec::new();
    let mut total = 0;
    for i in 0..30 {
        let (ts, pid, tid) = (i * 100, text(i % 2, "process"), text(i % 3, "thread"));
        let place = format!(r#""pid":{pid},"tid":{tid}"#);
        let mut span = |cat: &str, name: String, ts: usize, dur: usize, args: &str| {
            events.push(format!(
                r#"{{"ph":"X","cat":"{cat}","name":{name},{place},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
            ));
        };
        let step = format!("ProfilerStep#{}", i / 10);
        if i % 10 == 0 {
            span("user_annotation", format!("\"{step}\""), ts, 1000, "");
        }
        let file = format!("{}.py({i}): {}", name(i, "file"), name(i, "function"));
        let file_text = serde_json::to_string(&file).unwrap();
        let module = format!("nn.Module: {}", name(i, "module"));
        span("python_function", file_text, ts, 90, r#""Python id":1"#);
        span("python_function", serde_json::to_string(&module).unwrap(), ts + 1, 88, r#""Python id":2"#);
        span("user_annotation", text(i, "annotation"), ts + 2, 86, "");
        let args = format!(
            r#""External id":{i},"Input Dims":[[2,{i}],{0}],"Input type":[{0}],"Concrete Inputs":[{0}],"Call stack":{1}"#,
            text(i, "detail"),
            serde_json::to_string(&format!("{file};{file}")).unwrap()
        );
        span("cpu_op", text(i, "operator"), ts + 3, 80, &args);
        span("cuda_runtime", text(i, "runtime"), ts + 4, 2, &format!(r#""External id":{i},"correlation":{i}"#));
        span("kernel", text(i, "kernel"), ts + 5, 9, &format!(r#""External id":{i},"correlation":{i},"device":0"#));
        span(&format!("odd{i}"), text(i, "stranger"), ts, 1, "");
        let bytes = 1000 * (i + 1);
        total += bytes;
        events.push(format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","name":"[memory]",{place},"ts":{},"args":{{"Bytes":{bytes},"Addr":{},"Device Type":1,"Device Id":0,"Total Allocated":{total},"Total Reserved":{total}}}}}"#,
            ts + 6,
            i + 1
        ));
        events.push(format!(
            r#"{{"ph":"M","name":"thread_name",{place},"args":{{"name":{}}}}}"#,
            text(i % 3, "thread name")
        ));
        events.push(format!(
            r#"{{"ph":"M","name":"process_name",{place},"args":{{"name":{}}}}}"#,
            text(i % 2, "process name")
        ));
    }
    let device = text(0, "device");
    format!(
        r#"{{"deviceProperties":[{{"id":0,"name":{device},"totalGlobalMem":85899345920}}],"distributedInfo":{{"rank":0,"backend":{device}}},"traceEvents":[{}]}}"#,
        events.join(",\n")
    )
}

/// The commands that make a report of traces, from the program's own help, with what they need besides; and how many
/// traces they read.
fn commands() -> Vec<(Vec<String>, usize)> {
    let help = String::from_utf8(tracetool(&["--help"]).stdout).unwrap();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.as_bytes()[2] != b' ').filter_map(|line| line.split_whitespace().next());
    let mut commands = Vec::new();
    for name in names {
        let alone = String::from_utf8(tracetool(&[name, "--help"]).stdout).unwrap();
        let usage = alone.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
        let traces = usage.matches("<TRACE>").count() + usage.matches("<BEFORE> <AFTER>").count() * 2;
        if traces == 0 || !alone.contains("--format") {
            continue;
        }
        let variants: &[&[&str]] = match name {
            "top" => &[&[], &["--group-by-input-shape"], &["--group-by-stack-n", "3"]],
            "peak" | "timeline" | "diff" => &[
                &[],
                &["--group-by", "stack"],
                &["--group-by", "module"],
                &["--group-by", "thread"],
                &["--group-by", "shape"],
                &["--group-by", "annotation"],
            ],
            "flamegraph" => &[&[], &["--python=all"], &["--title", PAYLOAD]],
            "lines" => &[&["--file", "*"]],
            "check" => &[&["--max-peak", "1KiB"]],
            _ => &[&[]],
        };
        for variant in variants {
            let words = std::iter::once(&name).chain(*variant).map(|word| (*word).to_owned());
            commands.push((words.collect(), traces));
        }
    }
    commands
}

fn acts(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// The fields of a file of CSV, by the grammar of RFC 4180.
fn fields(text: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' | '\n' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    assert!(!quoted, "a quote is open at the end");
    fields
}

/// The elements of an XML document with the names of their attributes, but for those inside scripts of the picture itself.
fn elements(xml: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = xml;
    while let Some(open) = rest.find('<') {
        rest = &rest[open..];
        if let Some(data) = rest.strip_prefix("<![CDATA[") {
            rest = &data[data.find("]]>").unwrap()..];
            continue;
        }
        let close = rest.find('>').expect("an element ends");
        let words = rest[1..close].split_whitespace();
        let name = words.clone().next().unwrap_or_default().trim_end_matches('/').to_owned();
        let attributes: BTreeSet<&str> = words.filter_map(|word| word.split_once("=\"")).map(|(key, _)| key).collect();
        found.insert(name.clone());
        found.extend(attributes.into_iter().map(|key| format!("{name} {key}")));
        rest = &rest[close..];
    }
    found
}

fn check(format: &str, text: &str, tame: &str) {
    match format {
        "csv" => {
            // Records end with both; whatever else stands for itself.
            let text = &text.replace("\r\n", "\n");
            assert!(!text.contains(acts));
            for field in fields(text) {
                let dangerous = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
                assert!(!dangerous || field.parse::<f64>().is_ok(), "{field:?}");
            }
            let width = |text: &str| fields(text.split_inclusive('\n').next().unwrap_or_default()).len();
            assert_eq!(fields(text).len() % width(text), 0);
        }
        "json" => {
            assert!(!text.contains(acts));
            serde_json::from_str::<serde_json::Value>(text).unwrap();
        }
        "svg" => {
            assert!(!text.replace('\t', " ").contains(acts));
            let strangers: Vec<_> = elements(text).difference(&elements(tame)).cloned().collect();
            assert!(strangers.is_empty(), "{strangers:?}");
        }
        "markdown" => {
            assert!(!text.replace('\u{2060}', "").contains(acts));
            let mut columns = None;
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                // What folds is of the report itself, and the same whatever names there are.
                let ours = line.contains("<details>") || line == "</details>";
                assert!(!line.contains('<') || ours && tame.lines().any(|t| t == line), "{line}");
                assert!(!line.contains("://"), "{line}");
                let bars = line.matches('|').count();
                columns = line.starts_with('|').then(|| columns.unwrap_or(bars));
                assert_eq!(bars, columns.unwrap_or(0), "{line}");
            }
        }
        _ => {
            assert!(!text.contains(acts));
            assert!(!text.lines().any(|line| line.starts_with("forged")));
        }
    }
}

#[test]
fn no_name_acts_through_any_format_of_any_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let hostile =
        file("=x<b>|\x1b[2J.json", trace(|i, what| format!("{}{what}{PAYLOAD}", BEGINNINGS[i % BEGINNINGS.len()])));
    let tame = file("tame.json", trace(|i, what| format!("{what} {i}")));
    let mut written = 0;
    for (command, traces) in commands() {
        for format in FORMATS {
            let run = |path: &str| {
                let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
                args.extend(std::iter::repeat_n(path, traces));
                args.extend(["--format", format.name]);
                tracetool(&args)
            };
            let (output, tame) = (run(&hostile), run(&tame));
            let context = format!("{command:?} --format {}: {}", format.name, String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), tame.status.code(), "{context}");
            assert!(!String::from_utf8_lossy(&output.stderr).contains(acts), "{context}");
            let text = String::from_utf8(output.stdout).unwrap();
            let checked =
                std::panic::catch_unwind(|| check(format.name, &text, &String::from_utf8_lossy(&tame.stdout)));
            assert!(text.is_empty() || checked.is_ok(), "{context}\n{text}");
            written += usize::from(!text.is_empty());
        }
    }
    assert!(written > 100, "only {written} formats of commands were written");
}

/// What stands beside a trace: logs of nvidia-smi and a recording of memory_profiler, of the time of a trace.
fn logs(name: impl Fn(&str) -> String) -> [String; 3] {
    let mut gpu = "timestamp, index, name, memory.total [MiB], memory.used [MiB]\n".to_owned();
    let mut apps = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n".to_owned();
    let mut host = format!("CMDLINE {}\n", name("command"));
    // A line is a record, a comma a column and a blank a field in these files.
    let [card, program] = ["card", "program"].map(|what| name(what).replace(['\n', '\r', ','], ";"));
    let [function, child] = ["function", "child"].map(|what| name(what).replace(char::is_whitespace, ";"));
    for i in 0..10 {
        gpu.push_str(&format!("2026/12/01 03:08:2{i}.000, 0, {card}, 1000 MiB, {i} MiB\n"));
        apps.push_str(&format!("2026/12/01 03:08:2{i}.000, GPU-1, 7, {program}, {i} MiB\n"));
        let time = 1_796_094_500 + i;
        host.push_str(&format!("MEM {i}.0 {time}.0\nCHLD {child} 1.0 {time}.0\n"));
        host.push_str(&format!("FUNC {function}{i} 1.0 {time}.0 2.0 {time}.9\n"));
    }
    [gpu, apps, host]
}

#[test]
fn no_name_of_a_log_beside_a_trace_acts_either() {
    let folder = tempfile::tempdir().unwrap();
    let files = |prefix: &str, name: &dyn Fn(&str) -> String| {
        let mut texts = logs(name).to_vec();
        let wall_clock = "{\"baseTimeNanoseconds\":1796094500000000000,";
        texts.push(trace(|i, what| format!("{}{i}", name(what))).replacen('{', wall_clock, 1));
        let write = |(i, text): (usize, String)| {
            let path = folder.path().join(format!("{prefix}{i}"));
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        texts.into_iter().enumerate().map(write).collect::<Vec<String>>()
    };
    let hostile = files("=x<b>|\x1b[2J", &|what| format!("<script>{what}{PAYLOAD}"));
    let tame = files("tame", &|what| what.to_owned());
    for format in FORMATS {
        let run = |files: &[String], command: usize| {
            let [gpu, apps, host, trace] = [0, 1, 2, 3].map(|i| files[i].as_str());
            let args: &[&str] = match command {
                0 => &["timeline", trace, "--mprof", host, "--smi", gpu, apps],
                1 => &["reconcile", trace, "--smi", gpu, apps],
                2 => &["smi", gpu, apps],
                3 => &["timeline", host],
                _ => &["peak", host],
            };
            tracetool(&[args, &["--format", format.name]].concat())
        };
        for command in 0..5 {
            let (output, tame) = (run(&hostile, command), run(&tame, command));
            let context = format!("{command} --format {}: {}", format.name, String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), tame.status.code(), "{context}");
            assert!(!String::from_utf8_lossy(&output.stderr).contains(acts), "{context}");
            let text = String::from_utf8(output.stdout).unwrap();
            let no_table = ["torch", "github", "junit", "folded"].contains(&format.name);
            assert!(no_table || format.name == "svg" || !text.is_empty(), "{context}");
            let checked =
                std::panic::catch_unwind(|| check(format.name, &text, &String::from_utf8_lossy(&tame.stdout)));
            assert!(text.is_empty() || checked.is_ok(), "{context}\n{text}");
        }
    }
}
