//! How fast gzip is decompressed, in bytes of output: by our decoder and by `flate2`.
//!
//! `TRACETOOL_BIG` may name a gzip file to measure with; otherwise text like a trace is made up.

use std::hint::black_box;
use std::io::{Read, Write};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tracetool::bench_support::gunzip;

/// Size of the blocks that are decompressed into, in bytes.
const BLOCK: usize = 1 << 20;
/// Size of the text that is made up, in bytes.
const SIZE: usize = 64 << 20;

/// Trace events, which repeat one another but for names and numbers.
fn trace() -> Vec<u8> {
    let mut text = b"{\"traceEvents\": [\n".to_vec();
    let mut state = 1_u64;
    while text.len() < SIZE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (op, time, duration) = (state >> 59, text.len() / 9, state >> 33 & 0x3ff);
        writeln!(
            text,
            "  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::op_{op}\", \"pid\": 4711, \
             \"tid\": 4711,\n    \"ts\": {time}.{:03}, \"dur\": {duration}.{:03},\n    \"args\": {{\n      \
             \"External id\": {}, \"Record function id\": 0, \"Ev Idx\": {}\n    }}\n  }},",
            state >> 20 & 0x1ff,
            state >> 11 & 0x1ff,
            text.len() / 200,
            text.len() / 200,
        )
        .expect("a vector takes what is written to it");
    }
    text
}

fn file() -> Vec<u8> {
    match std::env::var_os("TRACETOOL_BIG") {
        Some(path) => std::fs::read(path).expect("TRACETOOL_BIG names a file"),
        None => {
            let level = flate2::Compression::new(6);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(&trace()).expect("memory takes what is written");
            encoder.finish().expect("memory takes what is written")
        }
    }
}

fn with_flate2(file: &[u8]) -> u64 {
    let mut decoder = flate2::bufread::MultiGzDecoder::new(file);
    let mut block = vec![0; BLOCK];
    let mut size = 0;
    loop {
        match decoder.read(&mut block).expect("the file can be decoded") {
            0 => return size,
            n => size += n as u64,
        }
    }
}

fn inflate(criterion: &mut Criterion) {
    let file = file();
    let size = gunzip(&file[..], BLOCK, true);
    assert_eq!(size, with_flate2(&file));
    let mut group = criterion.benchmark_group("inflate");
    group.throughput(Throughput::Bytes(size)).sample_size(10);
    group.bench_function("ours", |b| b.iter(|| gunzip(black_box(&file[..]), BLOCK, false)));
    group.bench_function("ours, verified", |b| {
        b.iter(|| gunzip(black_box(&file[..]), BLOCK, true));
    });
    group.bench_function("flate2", |b| b.iter(|| with_flate2(black_box(&file))));
    group.finish();
}

criterion_group!(benches, inflate);
criterion_main!(benches);
