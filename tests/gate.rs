//! The gate: baselines, what differs between two, and checks against limits, on real traces and through the binary.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tracetool::analysis::baseline::Baseline;
use tracetool::analysis::diff::{DeviceDiff, diff};
use tracetool::analysis::grouping::GroupBy;
use tracetool::input::{ReadOptions, read_path};
use tracetool::report::baseline::MakeBaseline;
use tracetool::units::Bytes;

const NAIVE: &str = "testdata/gpt_naive.pt.trace.json.gz";
const FLASH: &str = "testdata/gpt_flash.pt.trace.json.gz";

fn tracetool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracetool"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("NO_COLOR", "1")
        .env_remove("GITHUB_STEP_SUMMARY")
        .output()
        .unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = tracetool(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is said of a command that exits with 2 and writes nothing.
fn refusal(args: &[&str]) -> String {
    let output = tracetool(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to standard output");
    error
}

/// Traces and snapshots with memory: those in the repository, and those beside it where there are any.
fn traces() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("testdata"), root.join("../shared/traces/h200")];
    let files = folders.iter().filter_map(|f| fs::read_dir(f).ok()).flatten().map(|e| e.unwrap().path());
    let name = |p: &Path| p.file_name().unwrap().to_string_lossy().into_owned();
    let wanted = |n: &str| n.ends_with(".pt.trace.json.gz") || n.ends_with(".snapshot.pickle.gz");
    let too_slow = |n: &str| n.starts_with("big.") || n.starts_with("snap_long.") || n.starts_with("gpt_nomem.");
    let mut files: Vec<PathBuf> = files.filter(|p| wanted(&name(p)) && !too_slow(&name(p))).collect();
    files.sort_by_key(|p| name(p));
    files.dedup_by_key(|p| name(p));
    files
}

/// The baseline of a trace; `None` where it holds no memory events.
fn baseline(path: &Path, threads: usize) -> Option<Baseline> {
    let make = MakeBaseline::default();
    let options = ReadOptions { keep: make.keep(), threads, ..ReadOptions::default() };
    let trace = read_path(path, &options).unwrap();
    (!trace.memory().is_empty()).then(|| make.run(&trace).unwrap())
}

#[test]
fn a_baseline_is_the_same_on_any_number_of_threads_small_and_read_back() {
    for path in traces() {
        let (Some(one), Some(two)) = (baseline(&path, 1), baseline(&path, 2)) else { continue };
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(text, serde_json::to_string(&two).unwrap(), "{}", path.display());
        assert!(text.len() < 100_000, "{}: {} bytes", path.display(), text.len());
        assert_eq!(Baseline::from_json(&text).unwrap(), one, "{}", path.display());
    }
}

#[test]
fn between_any_two_traces_contributions_sum_to_the_change_and_turn_with_the_sides() {
    let all: Vec<Baseline> = traces().iter().filter_map(|path| baseline(path, 0)).collect();
    for before in &all {
        for by in [GroupBy::Op, GroupBy::Category] {
            assert!(diff(before, before, by).iter().all(DeviceDiff::is_empty));
            for after in &all {
                let (there, back) = (diff(before, after, by), diff(after, before, by));
                assert_eq!(there.len(), back.len());
                for d in &there {
                    let rows: Bytes = d.rows.iter().map(|r| r.live_bytes.change).sum();
                    assert_eq!(rows + d.unattributed_bytes.change, d.peak_allocated_bytes.change);
                    let same = |b: &&DeviceDiff| b.before_device == d.after_device && b.after_device == d.before_device;
                    let turned = back.iter().find(same).unwrap();
                    assert_eq!(turned.peak_allocated_bytes.change, -d.peak_allocated_bytes.change);
                    for (row, minus) in d.rows.iter().zip(&turned.rows) {
                        assert_eq!((&row.key, row.live_bytes.change), (&minus.key, -minus.live_bytes.change));
                    }
                }
            }
        }
    }
}

#[test]
fn a_diff_says_what_brings_the_rise_whether_of_traces_or_of_baselines() {
    let folder = tempfile::tempdir().unwrap();
    let [flash, naive] = [("flash.json", FLASH), ("naive.json", NAIVE)].map(|(name, trace)| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(stdout(&["baseline", trace, "-o", &path]), "");
        assert_eq!(fs::read_to_string(&path).unwrap(), stdout(&["baseline", trace]));
        path
    });
    let of = |before: &str, after: &str| {
        let text = stdout(&["diff", before, after, "--group-by", "category"]);
        let text: Vec<&str> = text.split_whitespace().collect();
        text.join(" ").split_once(": ").unwrap().1.to_owned()
    };
    let text = of(FLASH, NAIVE);
    assert!(text.contains("by 1.75 GiB (1,882,189,824 bytes, 94.2%); attention adds the most (+1.82"), "{text}");
    for (before, after) in [(flash.as_str(), naive.as_str()), (FLASH, &naive), (&flash, NAIVE)] {
        assert_eq!(of(before, after), text);
    }
    assert!(refusal(&["diff", &flash, NAIVE, "--group-by", "stack"]).contains("flash.json holds no rows by stack"));
    assert!(refusal(&["diff", &flash, NAIVE, "--attribute-to", "leaf"]).contains("give both the same"));
    let markdown = stdout(&["diff", &flash, NAIVE, "--format", "markdown"]);
    assert!(markdown.contains("<details><summary>") && markdown.ends_with("\n</details>\n"), "{markdown}");
    assert!(stdout(&["diff", NAIVE, NAIVE]).trim_end().ends_with("nothing differs."));
}

/// A check of `trace`: its exit code and what it writes.
fn check(trace: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = tracetool(&[&["check", trace, "--config", "/dev/null"], args].concat());
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

/// The file of a trace's baseline, and the folder that holds it.
fn baseline_of(trace: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory-baseline.json").to_str().unwrap().to_owned();
    stdout(&["baseline", trace, "-o", &path]);
    (folder, path)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn attention_written_out_fails_beside_the_fused_one_and_is_named() {
    let (_folder, path) = baseline_of(FLASH);
    let (code, text) = check(NAIVE, &["-b", &path]);
    assert_eq!(code, Some(1), "{text}");
    let text = one_line(&text);
    for says in [
        "cuda:0: allocated peak rose from 1.86 GiB to 3.61 GiB, by 1.75 GiB (1,882,189,824 bytes, 94.2%)",
        "the limit is +5 %",
        "By category: attention +1.82 GiB (103.6% of the rise)",
        "By op: aten::_softmax +1.00 GiB",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let (code, text) = check(FLASH, &["-b", &path]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("passed"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&check(NAIVE, &["-b", &path, "--format", "json"]).1).unwrap();
    assert_eq!((&json["passed"], &json["traces"][0]["limits"][0]["verdict"]), (&false.into(), &"failed".into()));
}

#[test]
fn the_place_in_the_code_is_named_where_the_trace_has_stacks() {
    let stack = "testdata/gpt_stack.pt.trace.json.gz";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.json");
    // A baseline in which nothing was live: all of the peak is a rise.
    let mut empty = baseline(&Path::new(env!("CARGO_MANIFEST_DIR")).join(stack), 0).unwrap();
    for device in &mut empty.devices {
        (device.peak_allocated_bytes, device.unattributed_bytes) = (Bytes(0), Bytes(0));
        device.groupings.iter_mut().for_each(|g| g.rows.clear());
    }
    fs::write(&path, serde_json::to_string(&empty).unwrap()).unwrap();
    let (code, text) = check(stack, &["-b", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    let text = one_line(&text);
    assert!(text.contains("By module: ") && text.contains(" from cases.py("), "{text}");
}

#[test]
fn growth_above_its_limit_names_who_keeps_the_memory() {
    let (code, text) = check("testdata/leak.pt.trace.json.gz", &["--max-growth", "1MiB"]);
    assert_eq!(code, Some(1), "{text}");
    let text = one_line(&text);
    assert!(text.contains("growth a step is 43.08 MiB; the limit is at most 1.00 MiB: 42.08 MiB too much."), "{text}");
    assert!(
        text.contains("aten::_log_softmax keeps the most, 16.00 MiB a step, allocated in forward, from cases.py("),
        "{text}"
    );
}

#[test]
fn limits_come_from_the_nearest_file_upward_and_the_command_line_goes_before_it() {
    let (folder, path) = baseline_of(FLASH);
    fs::write(
        folder.path().join("tracetool.toml"),
        "max_increase = \"100 %\"\n[category.attention]\nmax = \"1 GiB\"\n",
    )
    .unwrap();
    let inner = folder.path().join("a/b");
    fs::create_dir_all(&inner).unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join(NAIVE);
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tracetool"));
        let output =
            command.current_dir(&inner).arg("check").arg(&trace).args(["-b", &path]).args(more).output().unwrap();
        (output.status.code(), one_line(&String::from_utf8(output.stdout).unwrap()))
    };
    let (code, text) = run(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("FAILED 1 of 3 limits") && text.contains("category attention, live at the peak"), "{text}");
    let (code, text) =
        run(&["--max-increase", "90%", "--max-reserved", "8GiB", "--rule", "op.\"aten::bm*\".max_allocations = 1"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("FAILED 3 of 5 limits") && text.contains("op aten::bmm, allocations a step"), "{text}");
}

#[test]
fn without_a_baseline_only_what_is_absolute_is_checked() {
    assert_eq!(check(NAIVE, &["--max-peak", "4GiB"]).0, Some(0));
    let (code, text) = check(NAIVE, &["--max-peak", "3 GiB"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(one_line(&text).contains("is 3.61 GiB; the limit is at most 3.00 GiB: 627.95 MiB too much"), "{text}");
    assert!(one_line(&text).contains("By category: attention 1.85 GiB (51.1% of the peak)"), "{text}");
    assert!(refusal(&["check", NAIVE, "--config", "/dev/null"]).contains("give a --baseline"));
    assert!(refusal(&["check", NAIVE, "--max-peak", "3 parsecs"]).contains("max_peak"));
}

#[test]
fn ranks_pass_beside_one_baseline_and_the_one_with_twice_the_batch_does_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces/h200");
    let rank = |i: u32| root.join(format!("ddp_rank{i}.pt.trace.json.gz")).to_str().unwrap().to_owned();
    if !Path::new(&rank(0)).exists() {
        eprintln!("skipped: no traces of ranks here");
        return;
    }
    let (_folder, path) = baseline_of(&rank(0));
    let (code, text) = check(&rank(0), &[&rank(1), &rank(2), "-b", &path]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = check(&rank(0), &[&rank(3), "-b", &path, "--max-increase", "2 %"]);
    assert_eq!(code, Some(1), "{text}");
    let text = one_line(&text);
    assert!(text.contains("ddp_rank0.pt.trace.json.gz, beside memory-baseline.json: passed"), "{text}");
    assert!(text.contains("ddp_rank3.pt.trace.json.gz, beside memory-baseline.json: FAILED"), "{text}");
    assert!(text.contains("aten::addmm +7.00 MiB"), "{text}");
    let (code, _) = check(&rank(0), &[&rank(1), "-b", &path, "-b", &path]);
    assert_eq!(code, Some(0), "each has a baseline of its own");
    assert!(refusal(&["check", &rank(0), "-b", &path, "-b", &path]).contains("2 baselines for 1 traces"));
    assert!(refusal(&["check", &rank(0), &rank(1), "-b", &path, "--update"]).contains("of its own for each"));
}

#[test]
fn every_trace_and_snapshot_passes_beside_its_own_baseline() {
    for path in traces() {
        if baseline(&path, 0).is_some() {
            let trace = path.to_str().unwrap();
            let (_folder, file) = baseline_of(trace);
            let (code, text) = check(trace, &["-b", &file]);
            assert_eq!(code, Some(0), "{trace}: {text}");
        }
    }
}

#[test]
fn a_wrong_baseline_ends_with_2_and_says_why() {
    let (folder, path) = baseline_of(FLASH);
    let good = fs::read_to_string(&path).unwrap();
    let bad = folder.path().join("bad.json").to_str().unwrap().to_owned();
    for (text, says) in [
        (good[..good.len() / 2].to_owned(), "expected a baseline of tracetool"),
        (good.replacen(": 1,", ": 0,", 1), "found one of version 0 (make it anew"),
        (good.replacen(": 1,", ": 9,", 1), "found one of version 9 (update tracetool"),
        (good.replacen("326438912", "326438913", 1), "do not sum to the peak"),
        (String::new(), "expected a baseline of tracetool"),
    ] {
        fs::write(&bad, text).unwrap();
        for args in [vec!["check", NAIVE, "-b", &bad], vec!["diff", &bad, NAIVE]] {
            let error = refusal(&args);
            // An empty file has no first bytes that tell a baseline from a trace.
            assert!(error.contains(says) || args[0] == "diff" && error.contains("expected"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
    assert!(refusal(&["check", NAIVE, "-b", NAIVE]).contains("make one of a trace"));
}

#[test]
fn an_update_writes_all_of_the_baseline_or_leaves_it() {
    let (folder, path) = baseline_of(FLASH);
    let before = fs::read(&path).unwrap();
    let broken = folder.path().join("broken.json");
    fs::write(&broken, "{\"traceEvents\": []}").unwrap();
    assert_eq!(tracetool(&["check", broken.to_str().unwrap(), "-b", &path, "--update"]).status.code(), Some(2));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(stdout(&["check", NAIVE, "-b", &path, "--update"]), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), stdout(&["baseline", NAIVE]));
    assert_eq!(check(NAIVE, &["-b", &path]).0, Some(0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
    assert!(refusal(&["check", NAIVE, "-b", "no/such/folder/b.json", "--update"]).contains("no folder"));
}

#[test]
fn junit_is_read_back_by_others() {
    let (folder, path) = baseline_of(FLASH);
    let file = folder.path().join("memory.xml");
    let (code, _) = check(NAIVE, &["-b", &path, "--max-reserved", "9GiB", "-o", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    let report = quick_junit::Report::deserialize_from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((report.tests, report.failures), (3, 1));
    let names: Vec<&str> = report.test_suites[0].test_cases.iter().map(|t| t.name.as_str()).collect();
    let limits =
        ["allocated peak, limit +5 %", "reserved peak, limit at most 9.00 GiB", "growth a step, limit +1.00 MiB"];
    assert_eq!(names, limits.map(|l| format!("cuda:0: {l}")));
    let script = "import sys, xml.etree.ElementTree as E\n\
                  print([f.get('message') for f in E.parse(sys.argv[1]).getroot().iter('failure')])";
    match Command::new("python3").args(["-c", script]).arg(&file).output() {
        Ok(python) => assert!(String::from_utf8(python.stdout).unwrap().contains("1,882,189,824 bytes, 94.2%")),
        Err(_) => eprintln!("skipped: no python3 here"),
    }
}

#[test]
fn annotations_and_the_summary_of_a_job_are_for_github() {
    let (folder, path) = baseline_of(FLASH);
    let (_, text) = check(NAIVE, &["-b", &path, "--format", "github"]);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("::error title=gpt_naive.pt.trace.json.gz%3A cuda%3A0%3A allocated peak%2C limit +5 %25::"),
        "{text}"
    );
    assert!(first.contains("%0ABy category: attention +1.82 GiB (103.6%25 of the rise)"), "{text}");
    let summary = folder.path().join("summary.md");
    fs::write(&summary, "earlier\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tracetool"))
        .args(["check", NAIVE, "-b", &path, "--step-summary"])
        .env("GITHUB_STEP_SUMMARY", &summary)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = fs::read_to_string(&summary).unwrap();
    assert!(
        text.starts_with("earlier\n") && text.contains("1,882,189,824 bytes") && text.contains("<details>"),
        "{text}"
    );
    assert!(check(FLASH, &["-b", &path, "--step-summary"]).1.contains("GITHUB_STEP_SUMMARY is not set"));
}

#[test]
fn of_the_baseline_only_the_device_that_is_asked_for_is_checked() {
    let (_folder, path) = baseline_of(FLASH);
    for device in ["cuda:0", "cpu"] {
        let (code, text) = check(FLASH, &["-b", &path, "--device", device]);
        assert_eq!(code, Some(0), "{device}: {text}");
    }
    let before = |device: &str| {
        let mut baseline = Baseline::from_json(&fs::read_to_string(&path).unwrap()).unwrap();
        baseline.keep_device(device.parse().unwrap());
        baseline.devices.into_iter().map(|d| d.device).collect::<Vec<_>>()
    };
    assert_eq!((before("cpu"), before("cuda:3"), before("xpu:0")), (vec!["cpu".into()], vec!["cuda:0".into()], vec![]));
}
