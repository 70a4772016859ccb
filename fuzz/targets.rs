//! What must hold of every parser for any bytes: the body of each fuzz target, by its name.
//!
//! `fuzz_targets/` runs them on what libFuzzer finds, `tests/fuzz_corpus.rs` on what it once found. That none panics and
//! none takes long goes without saying; the assertions are what must hold besides.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each fuzz target uses its part")]
#![allow(clippy::unwrap_used, reason = "what cannot be had ends the test")]

#[path = "../tests/support/dump.rs"]
mod dump;

use flate2::{Decompress, FlushDecompress, Status};
use std::io::Read;
use tracetool::analysis::baseline::Baseline;
use tracetool::analysis::card::cards;
use tracetool::analysis::categories::CategoryRules;
use tracetool::analysis::host::host_timeline;
use tracetool::analysis::limits::Limits;
use tracetool::analysis::timeline::DeviceTimeline;
use tracetool::fuzzing::{self, Inflated};
use tracetool::input::{ReadOptions, SmiOptions, read, read_mprof, read_smi};
use tracetool::render::{FORMATS, Options};
use tracetool::report::blocks::Blocks;
use tracetool::report::flamegraph::Flamegraph;
use tracetool::report::lines::Lines;
use tracetool::report::peak::Peak;
use tracetool::report::steps::Steps;
use tracetool::report::summary::Summary;
use tracetool::report::timeline::MemoryTimeline;
use tracetool::report::top::Top;
use tracetool::report::tree::Tree;
use tracetool::trace::{Keep, Trace};
use tracetool::units::{Bytes, Nanos};

/// What must hold for an input.
pub type Target = fn(&[u8]);

/// All targets. Their seeds are in `corpus/NAME`, what they found once in `regressions/NAME`.
pub const ALL: &[(&str, Target)] = &[
    ("reader", reader),
    ("pieces", pieces),
    ("reports", reports),
    ("inflate", inflate),
    ("snapshot", snapshot),
    ("smi", smi),
    ("mprof", mprof),
    ("categories", categories),
    ("baseline", baseline),
    ("limits", limits),
];

/// More inflated bytes than this say nothing new, and take long.
const LIMIT: usize = 1 << 20;

fn options(threads: usize) -> ReadOptions {
    ReadOptions { threads, max_input_size: LIMIT as u64, ..ReadOptions::default() }
}

/// Everything that a reader says of an input, as text.
fn said(result: tracetool::Result<Trace>) -> Vec<String> {
    match result {
        Err(error) => vec![error.to_string()],
        Ok(trace) => {
            let mut lines = dump::lines(&trace);
            lines.extend(trace.diagnostics().iter().map(|d| format!("{d:?}")));
            lines.push(format!("{:?} {:?}", trace.info(), trace.unmodelled()));
            lines.extend(trace.snapshot().map(|s| format!("{s:?}")));
            lines
        }
    }
}

fn assert_same(left: &[String], right: &[String]) {
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left, right);
    }
    assert_eq!(left.len(), right.len());
}

/// A file of any kind, as it is: one thread at once and many threads with small batches read the same.
pub fn reader(data: &[u8]) {
    let once = said(read(std::io::Cursor::new(data.to_owned()), &options(1)));
    assert_same(&said(fuzzing::read_in_batches(data, &options(2), 64, false)), &once);
}

/// A trace after four bytes that say how to read it: all instruction sets and sizes of pieces give the same.
pub fn pieces(data: &[u8]) {
    let Some((&[how, low, high, keep], data)) = data.split_first_chunk() else { return };
    let batch = usize::from(u16::from_le_bytes([low, high])) + 2;
    let bit = |n: u8| keep & 1 << n == 0;
    let keep =
        Keep { ops: bit(0), details: bit(1), device_events: bit(2), frames: bit(3), memory: bit(4), history: bit(5) };
    let whole = ReadOptions { keep, ..options(1) };
    let cut = ReadOptions { keep, ..options(1 + usize::from(how >> 1 & 1)) };
    let want = said(fuzzing::read_in_batches(data, &whole, LIMIT, true));
    assert_same(&said(fuzzing::read_in_batches(data, &cut, batch, how & 1 == 1)), &want);
}

/// A trace or a snapshot of any kind: every report can be made of it or says why not, and written in every format.
pub fn reports(data: &[u8]) {
    let trace = if data.starts_with(&[0x80]) {
        fuzzing::read_snapshot(data, usize::MAX, &options(1))
    } else {
        read(std::io::Cursor::new(data.to_owned()), &options(1))
    };
    let Ok(trace) = trace else { return };
    let reports = [
        Summary::default().run(&trace),
        Top::default().run(&trace),
        Peak::default().run(&trace),
        Blocks::default().run(&trace),
        MemoryTimeline::default().run(&trace),
        Steps::default().run(&trace),
        Tree::default().run(&trace),
        Flamegraph::default().run(&trace),
        Lines::default().run(&trace, |_, _| None),
    ];
    for report in reports.into_iter().flatten() {
        for format in FORMATS {
            // A format that has no place for this report says so.
            let _ = format.render(&report, &Options::default(), &mut std::io::sink());
        }
    }
}

/// A DEFLATE stream, or a gzip file, after three bytes that say how it comes: the same data as from zlib, and the same end.
pub fn inflate(data: &[u8]) {
    let Some((&[how, feed, room], data)) = data.split_first_chunk() else { return };
    let (feed, room) = (usize::from(feed) + 1, (usize::from(room) + 1) << (how >> 4));
    if how & 1 == 0 {
        let (got, ended) = fuzzing::inflate(data, feed, room, LIMIT);
        let (want, want_ended) = zlib(data);
        if want.len() >= LIMIT || got.len() >= LIMIT {
            return;
        }
        if (ended, want_ended) == (Inflated::Damaged, Inflated::Truncated) {
            // It may see earlier that nothing good can follow, never where something could.
            for next in [0, 0x55, 0xaa, 0xff] {
                let longer = [data, &[next; 512]].concat();
                assert_eq!(zlib(&longer).1, Inflated::Damaged, "with {next:#x} behind it");
            }
            assert_eq!(got, want);
        } else {
            assert_eq!((got, ended), (want, want_ended));
        }
    } else {
        let (got, ended) = fuzzing::gunzip(data, feed, room, LIMIT);
        let (again, ended_again) = fuzzing::gunzip(data, usize::MAX, 1 << 16, LIMIT);
        if got.len() >= LIMIT || again.len() >= LIMIT {
            return;
        }
        assert!((&got, ended) == (&again, ended_again), "the pieces make a difference");
        let mut want = Vec::new();
        let whole = flate2::read::MultiGzDecoder::new(data).read_to_end(&mut want);
        if whole.is_ok() {
            assert_eq!(got, want);
            assert!(matches!(ended, Inflated::Whole(_)), "{ended:?}");
        } else {
            // It may give less than could be had before the damage, never other data.
            assert!(got.starts_with(&want) || ended == Inflated::Damaged);
        }
    }
}

/// What zlib makes of a DEFLATE stream.
fn zlib(stream: &[u8]) -> (Vec<u8>, Inflated) {
    let mut zlib = Decompress::new(false);
    let mut data = vec![0; LIMIT];
    let ended = zlib.decompress(stream, &mut data, FlushDecompress::Finish);
    data.truncate(zlib.total_out() as usize);
    let ended = match ended {
        Ok(Status::StreamEnd) => Inflated::Whole(zlib.total_in() as usize),
        Ok(_) => Inflated::Truncated,
        Err(_) => Inflated::Damaged,
    };
    (data, ended)
}

/// A pickle: it makes no difference in what pieces it comes.
pub fn snapshot(data: &[u8]) {
    let once = said(fuzzing::read_snapshot(data, usize::MAX, &options(1)));
    assert_same(&said(fuzzing::read_snapshot(data, 1, &options(1))), &once);
}

/// A log of nvidia-smi: its samples are in the order of time and name cards and processes that there are.
pub fn smi(data: &[u8]) {
    let columns = ["timestamp", "index", "utilization.gpu", "memory.used", "pid", "process_name"];
    for columns in [None, Some(columns.map(str::to_owned).to_vec())] {
        let Ok(log) = read_smi(data, &SmiOptions { columns, utc_offset: Nanos(3_600_000_000_000) }) else { continue };
        assert!(log.gpu_samples.is_sorted_by_key(|s| s.time) && log.process_samples.is_sorted_by_key(|s| s.time));
        assert!(log.gpu_samples.iter().all(|s| s.gpu < log.gpus.len()));
        assert!(log.process_samples.iter().all(|s| s.process < log.processes.len()));
        assert!(log.processes.iter().all(|p| p.gpu < log.gpus.len()));
        for card in cards(&log, None, None) {
            card.timeline(&log, None).iter().for_each(closes);
        }
    }
}

/// The series of a device and what belongs to none sum to its total, at points in the order of time.
fn closes(d: &DeviceTimeline) {
    assert!(d.points.is_sorted_by_key(|p| p.time_ns));
    // Sums near the end of their range stay there, and what is taken from them later is wrong.
    let is_huge = |b: &Bytes| b.0.unsigned_abs() > 1 << 52;
    if d.points.iter().map(|p| &p.allocated_bytes).chain(&d.live_bytes).any(is_huge) {
        return;
    }
    for (i, point) in d.points.iter().enumerate() {
        let live: Bytes = d.live(i).iter().copied().sum();
        assert_eq!(live + point.before_trace_bytes, point.allocated_bytes);
    }
}

/// A recording of memory_profiler: its samples are in the order of time, and its processes sum to the total.
pub fn mprof(data: &[u8]) {
    let Ok(memory) = read_mprof(data) else { return };
    assert!(memory.samples.is_sorted_by_key(|s| s.time));
    assert!(memory.children.iter().all(|c| c.samples.is_sorted_by_key(|s| s.time)));
    host_timeline(&memory, None).iter().for_each(closes);
    let _ = (MemoryTimeline::default().run_host(&memory), Peak::default().run_host(&memory));
}

/// Categories: their rules are read or refused, and have names.
pub fn categories(data: &[u8]) {
    let Ok(rules) = CategoryRules::from_toml(&String::from_utf8_lossy(data)) else { return };
    assert!(!rules.names().is_empty());
}

/// A baseline: what is read can be written and read again.
pub fn baseline(data: &[u8]) {
    let Ok(baseline) = Baseline::from_json(&String::from_utf8_lossy(data)) else { return };
    let text = serde_json::to_string(&baseline).unwrap();
    assert_eq!(Baseline::from_json(&text).unwrap(), baseline);
}

/// Limits: they are read or refused.
pub fn limits(data: &[u8]) {
    let _ = Limits::from_toml(&String::from_utf8_lossy(data));
}
