//! Names come from strangers: through every format of every command none of them acts on a terminal, a spreadsheet, a
//! browser or the structure around it.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use tracetool::render::FORMATS;

/// What each name carries.
const PAYLOAD: &str = "</svg><script>alert(1)</script>\x1b]0;pwn\x07\x1b[2J\u{9b}31m\u{202e}\u{2066}|`x`\nforged 7\n::error::no\r\t\",\"q\";z]]>&lt;'--> 99";
/// What each begins with.
const BEGINNINGS: [&str; 11] =
    ["=cmd()", "+1", "-1", "@sum(", "\t=1", "\r=1", "|", "<script>", "\x1b[31m", "# ", "::error::\0"];

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
        r#"{{"baseTimeNanoseconds":1796094480000000000,"deviceProperties":[{{"id":0,"name":{device},"totalGlobalMem":85899345920}}],"distributedInfo":{{"rank":0,"backend":{device}}},"traceEvents":[{}]}}"#,
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
        "github" => {
            assert!(!text.contains(acts));
            let ours = |text: &str| text.lines().filter(|line| line.trim_start().starts_with("::")).count();
            assert_eq!(ours(text), ours(tame));
            assert_eq!(text.lines().count(), tame.lines().count());
            assert!(!text.contains("##["));
        }
        "svg" | "junit" => {
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

/// The arguments of a command, with hostile names in what it reads and with tame ones.
struct Pair {
    hostile: Vec<String>,
    tame: Vec<String>,
}

/// Runs the commands in every format, holds what they write against what the format allows, and says how often something
/// with one of the hostile names was written.
fn hold(pairs: &[Pair]) -> usize {
    let mut written = 0;
    for Pair { hostile, tame } in pairs {
        for format in FORMATS {
            let run = |args: &[String]| {
                let args: Vec<&str> = args.iter().map(String::as_str).chain(["--format", format.name]).collect();
                tracetool(&args)
            };
            let (output, tame) = (run(hostile), run(tame));
            let context = format!("{hostile:?} --format {}: {}", format.name, String::from_utf8_lossy(&output.stderr));
            let tame_error = String::from_utf8_lossy(&tame.stderr);
            assert_eq!(output.status.code(), tame.status.code(), "{context}\n{tame_error}");
            assert!(!String::from_utf8_lossy(&output.stderr).contains(acts), "{context}");
            let text = String::from_utf8(output.stdout).unwrap();
            if text.is_empty() {
                continue;
            }
            let checked =
                std::panic::catch_unwind(|| check(format.name, &text, &String::from_utf8_lossy(&tame.stdout)));
            assert!(checked.is_ok(), "{context}\n{text}");
            written += usize::from(text.contains("forged 7"));
        }
    }
    written
}

/// A hostile name and a tame one, the `i`th of its kind.
fn hostile_name(i: usize, what: &str) -> String {
    format!("{}{what}{PAYLOAD}", BEGINNINGS[i % BEGINNINGS.len()])
}

fn tame_name(i: usize, what: &str) -> String {
    format!("{what} {i}")
}

/// Files of one test, in a folder that goes with it.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn add(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command over files of these names and contents, made of hostile names and of tame ones. In the arguments `{0}` is
    /// the first file.
    fn pair(&self, args: &[&str], files: &[(&str, Make<'_>)]) -> Pair {
        let with = |kind: &str, name: Name| {
            let paths: Vec<String> =
                files.iter().map(|(file, make)| self.add(&format!("{kind}{file}"), make(name))).collect();
            let fill = |arg: &&str| {
                let place = arg.strip_prefix('{').and_then(|arg| arg.strip_suffix('}'));
                place.map_or_else(|| (*arg).to_owned(), |i| paths[i.parse::<usize>().unwrap()].clone())
            };
            args.iter().map(fill).collect()
        };
        Pair { hostile: with("=x<b>|\x1b[2J", hostile_name), tame: with("tame", tame_name) }
    }
}

/// The `i`th name of a kind.
type Name = fn(usize, &str) -> String;

/// Makes a file's contents with such names.
type Make<'a> = &'a dyn Fn(Name) -> Vec<u8>;

#[test]
fn no_name_acts_through_any_format_of_any_command() {
    let files = Files::new();
    let make: Make<'_> = &|name| trace(name).into_bytes();
    let pairs: Vec<Pair> = commands()
        .iter()
        .map(|(command, traces)| {
            let args: Vec<&str> =
                command.iter().map(String::as_str).chain(std::iter::repeat_n("{0}", *traces)).collect();
            files.pair(&args, &[(".json", make)])
        })
        .collect();
    let written = hold(&pairs);
    assert!(written > 60, "only {written} formats of commands have the names");
}

/// A value as a pickle of protocol 2.
fn pickle(value: &Value) -> Vec<u8> {
    fn write(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Null => out.push(b'N'),
            Value::Bool(on) => out.push(if *on { 0x88 } else { 0x89 }),
            Value::Number(n) => out.extend(format!("I{n}\n").bytes()),
            Value::String(text) => {
                out.push(b'X');
                out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
                out.extend(text.bytes());
            }
            Value::Array(items) => {
                out.extend(b"](");
                items.iter().for_each(|item| write(item, out));
                out.push(b'e');
            }
            Value::Object(members) => {
                out.extend(b"}(");
                for (key, value) in members {
                    write(&Value::String(key.clone()), out);
                    write(value, out);
                }
                out.push(b'u');
            }
        }
    }
    let mut out = b"\x80\x02".to_vec();
    write(value, &mut out);
    out.push(b'.');
    out
}

/// A snapshot in which `name` makes all names.
fn snapshot(name: Name) -> Vec<u8> {
    let frames = |i: usize| {
        json!([
            {"name": name(i, "function"), "filename": name(i, "file") + ".py", "line": i},
            {"name": name(i + 1, "caller"), "filename": name(i + 1, "file") + ".py", "line": 7},
        ])
    };
    let mut history = vec![json!({"action": "segment_alloc", "addr": 4096, "size": 2_097_152, "stream": 0,
                                  "time_us": 0, "frames": frames(0)})];
    let mut blocks = Vec::new();
    for i in 0..12 {
        let addr = 4096 + 1024 * i;
        history.push(json!({
            "action": "alloc", "addr": addr, "size": 1024, "stream": 0, "time_us": 10 * i + 1, "frames": frames(i),
            "user_metadata": name(i, "metadata"), "compile_context": name(i, "compile"), "category": name(i, "category"),
        }));
        blocks.push(json!({"address": addr, "size": 1024, "requested_size": 1000, "state": "active_allocated",
                           "frames": frames(i)}));
    }
    blocks.push(json!({"address": 4096 + 12 * 1024, "size": 2_097_152 - 12 * 1024, "state": "inactive", "frames": []}));
    history.push(
        json!({"action": "oom", "size": 99_999, "device_free": 5, "stream": 0, "time_us": 500, "frames": frames(3)}),
    );
    history.push(json!({"action": name(1, "action"), "size": 1, "addr": 1, "time_us": 501, "frames": []}));
    let annotation = |stage: &str, time_us: u32| json!({"name": name(2, "annotation"), "stage": stage, "device": 0, "time_us": time_us});
    pickle(&json!({
        "segments": [{"device": 0, "address": 4096, "total_size": 2_097_152, "stream": 0, "segment_type": "small",
                      "segment_pool_id": [0, 0], "is_expandable": false, "blocks": blocks, "frames": frames(0)}],
        "device_traces": [history],
        "external_annotations": [annotation("START", 1), annotation("END", 90)],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": name(0, "setting"), name(1, "key"): name(2, "value")},
    }))
}

#[test]
fn no_name_in_a_snapshot_acts() {
    let files = Files::new();
    let commands: &[&[&str]] = &[
        &["summary", "{0}"],
        &["peak", "{0}"],
        &["peak", "{0}", "--group-by", "stack"],
        &["peak", "{0}", "--group-by", "annotation"],
        &["peak", "{0}", "--at", "oom"],
        &["blocks", "{0}"],
        &["segments", "{0}"],
        &["segments", "{0}", "--blocks"],
        &["lines", "{0}", "--file", "*"],
        &["timeline", "{0}"],
        &["timeline", "{0}", "--group-by", "line"],
        &["flamegraph", "{0}"],
        &["diff", "{0}", "{0}"],
        &["check", "{0}", "--max-peak", "1KiB"],
    ];
    let written = hold(&commands.iter().map(|args| files.pair(args, &[(".pickle", &snapshot)])).collect::<Vec<_>>());
    assert!(written > 40, "only {written} formats of commands have the names");
}

/// A line of a log, in which a field cannot hold a line break.
fn on_one_line(name: &str) -> String {
    name.replace(['\n', '\r'], " ")
}

#[test]
fn no_name_in_a_log_of_nvidia_smi_or_of_memory_profiler_acts() {
    let files = Files::new();
    let gpus: Make<'_> = &|name| {
        let mut log = "timestamp, index, name, memory.total [MiB], memory.used [MiB]\n".to_owned();
        for i in 0..40 {
            let (name, index) = (on_one_line(&name(i % 2, "card")).replace(',', ";"), i % 2);
            log += &format!("2026/12/01 03:08:{:02}.000, {index}, {name}, 1000 MiB, {} MiB\n", i / 2, 100 + i);
        }
        log.into_bytes()
    };
    let processes: Make<'_> = &|name| {
        let mut log = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n".to_owned();
        for i in 0..40 {
            let (uuid, name) = (format!("GPU-{}", i % 2), on_one_line(&name(i % 11, "process")));
            log += &format!("2026/12/01 03:08:{:02}.000, {uuid}, {}, {name}, 90 MiB\n", i / 2, 7 + i % 11);
        }
        log.into_bytes()
    };
    let uuids: Make<'_> = &|name| {
        let mut log = "timestamp, uuid, pci.bus_id, memory.used [MiB]\n".to_owned();
        for i in 0..20 {
            let name = |what| on_one_line(&name(i % 3, what)).replace(',', ";");
            log += &format!("2026/12/01 03:08:{i:02}.000, {}, {}, 90 MiB\n", name("uuid"), name("bus"));
        }
        log.into_bytes()
    };
    let recording: Make<'_> = &|name| {
        let mut log = format!("CMDLINE {}\n", on_one_line(&name(0, "command")));
        for i in 0..20 {
            let time = 1_796_094_480 + i as u64;
            let name = |what| name(i, what).replace(char::is_whitespace, "_");
            log += &format!("MEM {}.0 {time}.5\nCHLD {} 5.0 {time}.5\n", 10 + i, name("child"));
            log += &format!("FUNC {} 5.0 {time}.1 6.0 {time}.2\n", name("function"));
        }
        log.into_bytes()
    };
    let events: Make<'_> = &|name| trace(name).into_bytes();
    let pairs = [
        files.pair(&["smi", "{0}", "{1}"], &[("gpus.csv", gpus), ("apps.csv", processes)]),
        files.pair(&["smi", "{0}"], &[("uuids.csv", uuids)]),
        files.pair(
            &["reconcile", "{0}", "--smi", "{1}", "{2}"],
            &[(".json", events), ("gpus.csv", gpus), ("apps.csv", processes)],
        ),
        files.pair(&["timeline", "{0}", "--mprof", "{1}"], &[(".json", events), (".dat", recording)]),
        files.pair(
            &["timeline", "{0}", "--mprof", "{1}", "--smi", "{2}", "{3}"],
            &[(".json", events), (".dat", recording), ("gpus.csv", gpus), ("apps.csv", processes)],
        ),
        files.pair(&["timeline", "{0}"], &[(".dat", recording)]),
        files.pair(&["peak", "{0}"], &[(".dat", recording)]),
        files.pair(&["summary", "{0}"], &[(".dat", recording)]),
        files.pair(&["smi", "{0}"], &[(".txt", &|name| name(0, "no log").into_bytes())]),
    ];
    let written = hold(&pairs);
    assert!(written > 5, "only {written} formats of commands have the names");
}

/// Text as TOML.
fn toml(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[test]
fn no_name_in_rules_limits_and_baselines_acts() {
    let files = Files::new();
    let events: Make<'_> = &|name| trace(name).into_bytes();
    let rules: Make<'_> = &|name| {
        let rule = |i: usize| format!("[[rule]]\ncategory = {}\noperators = [\"*{i}*\"]\n", toml(&name(i, "category")));
        (0..10).map(rule).collect::<String>().into_bytes()
    };
    let limits: Make<'_> = &|name| {
        let limit = |kind: &str, i: usize| format!("[{kind}.{}]\nmax = \"1 B\"\n", toml_key(&name(i, kind)));
        (0..11)
            .flat_map(|i| [limit("category", i), limit("op", i), limit("module", i)])
            .collect::<String>()
            .into_bytes()
    };
    let wrong: Make<'_> =
        &|name| format!("[{}]\nmax = {}\n", toml_key(&name(0, "x")), toml(&name(1, "y"))).into_bytes();
    let baseline: Make<'_> = &|name| {
        let path = files.add("any.json", trace(name));
        let output = tracetool(&["baseline", &path]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Everything smaller before, so that all of it rises.
        let mut baseline: Value = serde_json::from_slice(&output.stdout).unwrap();
        shrink(&mut baseline);
        baseline.to_string().into_bytes()
    };
    let all = [
        ("rules.toml", rules),
        (".json", events),
        ("limits.toml", limits),
        ("wrong.toml", wrong),
        ("baseline.json", baseline),
    ];
    let pairs: Vec<Pair> = [
        &["peak", "{1}", "--group-by", "category", "--categories", "{0}"][..],
        &["timeline", "{1}", "--categories", "{0}"],
        &["diff", "{1}", "{1}", "--group-by", "category", "--categories", "{0}"],
        &["peak", "{1}", "--categories", "{3}"],
        &["check", "{1}", "--config", "{2}"],
        &["check", "{1}", "--config", "{3}"],
        &["check", "{1}", "--baseline", "{4}"],
        &["check", "{1}", "--baseline", "{3}"],
        &["diff", "{4}", "{1}"],
        &["diff", "{1}", "{4}", "--group-by", "module"],
    ]
    .iter()
    .map(|args| files.pair(args, &all))
    .collect();
    let written = hold(&pairs);
    assert!(written > 18, "only {written} formats of commands have the names");
}

/// A key of TOML, quoted.
fn toml_key(text: &str) -> String {
    // A basic string: JSON's escapes are among TOML's.
    serde_json::to_string(text).unwrap().replace('\u{7f}', "\\u007f")
}

/// Halves every number of a baseline but its version.
fn shrink(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if key.ends_with("_bytes") {
                    *value = value.as_i64().map_or_else(|| value.clone(), |n| (n / 2).into());
                } else {
                    shrink(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shrink),
        _ => {}
    }
}
