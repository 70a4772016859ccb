//! Bytes a second of reading a trace: plain and gzip, with one and two threads; and, for the choice of how an event is
//! taken apart, the candidates on the same events.
//!
//! The trace is `TRACETOOL_BIG` if that is set, else one of `testdata`.
#![allow(missing_docs, reason = "criterion's macros write undocumented functions")]
#![allow(clippy::unwrap_used, reason = "a broken fixture ends the bench")]

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use serde::Deserialize;
use std::hint::black_box;
use std::io::{Cursor, Read};
use tracetool::input::{ReadOptions, read};
use tracetool::trace::Keep;

fn trace() -> Vec<u8> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/gpt_stack.pt.trace.json.gz");
    std::fs::read(std::env::var("TRACETOOL_BIG").unwrap_or_else(|_| default.to_owned())).unwrap()
}

fn inflated(gzip: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(gzip).read_to_end(&mut plain).unwrap();
    plain
}

fn reading(c: &mut Criterion) {
    let gzip = trace();
    let plain = inflated(&gzip);
    let size = plain.len() as u64;
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(size)).sample_size(10).sampling_mode(SamplingMode::Flat);
    let times = Keep { frames: false, details: false, ..Keep::ALL };
    for (format, bytes) in [("plain", &plain), ("gzip", &gzip)] {
        for threads in [1, 2] {
            for (kept, keep) in [("all", Keep::ALL), ("top", times)] {
                let options = ReadOptions { threads, keep, ..ReadOptions::default() };
                let name = BenchmarkId::new(format!("{format}, {threads} threads"), kept);
                group.bench_function(name, |b| {
                    b.iter(|| read(Cursor::new(black_box(bytes.clone())), &options).unwrap().events());
                });
            }
        }
    }
    group.finish();
}

/// What the candidates must give: the fields of an event that `top` needs.
#[derive(Deserialize)]
#[allow(dead_code, reason = "parsing them is what is measured")]
struct Event<'a> {
    #[serde(borrow)]
    ph: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    cat: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<std::borrow::Cow<'a, str>>,
    ts: Option<f64>,
    dur: Option<f64>,
    args: Option<Args>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsing them is what is measured")]
struct Args {
    #[serde(rename = "External id")]
    external_id: Option<u64>,
    #[serde(rename = "Bytes")]
    bytes: Option<i64>,
    #[serde(rename = "Addr")]
    address: Option<u64>,
    #[serde(rename = "Total Allocated")]
    total_allocated: Option<i64>,
}

/// The text of each event; the layout is PyTorch's own.
fn split(plain: &[u8]) -> Vec<&[u8]> {
    let start = memchr::memmem::find(plain, b"\"traceEvents\": [").unwrap() + 16;
    let events = &plain[start..];
    let cuts: Vec<usize> = memchr::memmem::find_iter(events, b"\n  {").map(|at| at + 3).collect();
    cuts.windows(2).map(|w| events[w[0]..w[1]].trim_ascii_end().trim_suffix_comma()).collect()
}

trait TrimComma {
    fn trim_suffix_comma(&self) -> &Self;
}

impl TrimComma for [u8] {
    fn trim_suffix_comma(&self) -> &Self {
        self.strip_suffix(b",").unwrap_or(self)
    }
}

fn candidates(c: &mut Criterion) {
    let plain = inflated(&trace());
    let events = split(&plain);
    let size: usize = events.iter().map(|e| e.len()).sum();
    let mut group = c.benchmark_group("take events apart, one thread");
    group.throughput(Throughput::Bytes(size as u64)).sample_size(10).sampling_mode(SamplingMode::Flat);
    group.bench_function("serde_json, typed, per event", |b| {
        b.iter(|| {
            events.iter().filter(|e| serde_json::from_slice::<Event<'_>>(e).is_ok_and(|e| e.ts.is_some())).count()
        });
    });
    group.bench_function("simd-json, tape, per event", |b| {
        let mut text = Vec::new();
        b.iter(|| {
            let read = |e: &&&[u8]| {
                text.clear();
                text.extend_from_slice(e);
                simd_json::to_tape(&mut text).is_ok()
            };
            events.iter().filter(read).count()
        });
    });
    group.bench_function("our scanner, with the rows built", |b| {
        let options = ReadOptions { threads: 1, ..ReadOptions::default() };
        b.iter(|| read(Cursor::new(black_box(plain.clone())), &options).unwrap().events());
    });
    group.finish();
}

criterion_group!(benches, reading, candidates);
criterion_main!(benches);
