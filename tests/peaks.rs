//! The live set of real traces: it sums exactly, whatever it is grouped by, and nothing in it overlaps.

#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};
use tracetool::analysis::allocations::{Allocations, DeviceMemory};
use tracetool::analysis::categories::CategoryRules;
use tracetool::analysis::grouping::{Attribution, GroupBy};
use tracetool::analysis::owners::AttributeTo;
use tracetool::analysis::peak::{Moment, PeakOptions, peaks};
use tracetool::analysis::step_spans::StepSpans;
use tracetool::analysis::steps::{StepsOptions, Verdict, steps};
use tracetool::input::{ReadOptions, read_path};
use tracetool::trace::{Device, Trace};
use tracetool::units::Bytes;

/// Real traces: those beside the repository where they are, else the small ones in it.
fn traces() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("../shared/traces/h200"), root.join("testdata")];
    let mut found: Vec<PathBuf> =
        folders.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten().flatten().map(|e| e.path()).collect();
    found.retain(|p| {
        p.to_string_lossy().ends_with(".pt.trace.json.gz") && p.metadata().is_ok_and(|m| m.len() < 6_000_000)
    });
    found.sort();
    found
}

fn named(name: &str) -> Option<Trace> {
    let path =
        traces().into_iter().find(|p| p.file_name().is_some_and(|f| f == format!("{name}.pt.trace.json.gz").as_str()));
    if path.is_none() {
        eprintln!("skipped: no trace {name} here");
    }
    path.map(|p| read(&p))
}

fn read(path: &Path) -> Trace {
    read_path(path, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn attribution(trace: &Trace) -> Attribution<'_> {
    Attribution::build(trace, StepSpans::find(trace), CategoryRules::default())
}

#[test]
fn rows_sum_to_the_peak_whatever_they_are_grouped_by() {
    for path in traces() {
        let trace = read(&path);
        let (memory, who) = (Allocations::build(&trace), attribution(&trace));
        for at in [Moment::Peak, Moment::End, Moment::OutOfMemory] {
            for group_by in GroupBy::ALL {
                for attribute_to in AttributeTo::ALL {
                    let options = PeakOptions { group_by, attribute_to, at, ..PeakOptions::default() };
                    for d in peaks(&trace, &memory, &who, &options) {
                        let rows: Bytes = d.rows.iter().map(|r| r.live_bytes).sum();
                        let sum = d.before_trace_bytes.map(|before| before + rows);
                        assert_eq!(
                            sum,
                            Some(d.at.allocated_bytes),
                            "{} {} {group_by:?} {at:?}",
                            path.display(),
                            d.device
                        );
                        for row in &d.rows {
                            let saved = d.peak_allocated_bytes - row.peak_without_bytes;
                            assert!(saved.0 >= 0 && (at != Moment::Peak || saved <= row.live_bytes), "{row:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn totals_add_up_event_by_event_and_live_blocks_do_not_overlap() {
    for path in traces() {
        let memory = Allocations::build(&read(&path));
        assert!(memory.findings().is_empty(), "{}: {:?}", path.display(), memory.findings());
        for m in memory.devices() {
            overlaps_nowhere(m, &path);
        }
    }
}

/// Replays the blocks in the order of their addresses and times.
fn overlaps_nowhere(m: &DeviceMemory, path: &Path) {
    let mut live: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    let mut ends: Vec<(usize, u64)> = m.blocks().iter().filter_map(|b| Some((b.freed()?, b.address))).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    for block in m.blocks() {
        while let Some((_, address)) = ends.next_if(|e| e.0 < block.allocated()) {
            live.remove(&address);
        }
        let end = block.address + block.bytes.0 as u64;
        let below = live.range(..end).next_back();
        assert!(below.is_none_or(|(_, e)| *e <= block.address), "{}: {block:?} over {below:?}", path.display());
        live.insert(block.address, end);
    }
}

#[test]
fn attention_written_out_doubles_the_peak() {
    let peak = |trace: &Trace| {
        let memory = Allocations::build(trace);
        let m = memory.device(Device::cuda(0)).expect("a GPU");
        m.allocated_at(m.peak().expect("an event") + 1)
    };
    let (Some(naive), Some(flash)) = (named("gpt_naive"), named("gpt_flash")) else { return };
    assert_eq!((peak(&naive), peak(&flash)), (Bytes(3_879_678_976), Bytes(1_997_489_152)));
    let share = |trace: &Trace| {
        let options = PeakOptions { group_by: GroupBy::Category, ..PeakOptions::default() };
        let d = peaks(trace, &Allocations::build(trace), &attribution(trace), &options).remove(0);
        let held: Bytes = d.rows.iter().filter(|r| r.key == "attention").map(|r| r.live_bytes).sum();
        held.0 as f64 / d.peak_allocated_bytes.0 as f64
    };
    assert!((0.49..0.53).contains(&share(&naive)), "{}", share(&naive));
    assert!(share(&flash) < 0.03, "{}", share(&flash));
}

#[test]
fn a_network_of_convolutions_has_no_attention() {
    let Some(trace) = named("resnet") else { return };
    let options = PeakOptions { group_by: GroupBy::Category, ..PeakOptions::default() };
    for d in peaks(&trace, &Allocations::build(&trace), &attribution(&trace), &options) {
        assert!(d.rows.iter().all(|r| r.key != "attention"));
    }
}

#[test]
fn only_the_run_that_keeps_its_graphs_grows() {
    for path in traces() {
        let trace = read(&path);
        let leak = path.to_string_lossy().contains("leak");
        for d in steps(&trace, &Allocations::build(&trace), &attribution(&trace), &StepsOptions::default()) {
            // The host keeps a few bytes of each graph as well.
            assert!(leak || d.verdict != Verdict::Grows, "{} {}", path.display(), d.device);
            assert!(!leak || d.verdict == Verdict::Grows, "{} {}", path.display(), d.device);
            if d.verdict == Verdict::Grows {
                let kept: Bytes = d.keepers.iter().map(|k| k.bytes_per_step).sum();
                assert!((kept - d.growth_bytes_per_step).0.abs() < 1024, "{kept} {}", d.growth_bytes_per_step);
                assert_eq!(d.keepers[0].phase, "forward");
            }
        }
    }
}
