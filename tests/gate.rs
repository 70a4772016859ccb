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
