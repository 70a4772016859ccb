//! What holds of every trace: how its bytes come does not matter, one broken event costs itself, a cut leaves a prefix, two
//! traces in one file are their sum.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

mod support;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::{Read, Write};
use support::dump;
use tracetool::analysis::averages::{AveragesOptions, KeyAverages};
use tracetool::fuzzing;
use tracetool::input::{ReadOptions, read};
use tracetool::trace::Trace;

/// An event of every kind, the `i`th of a process.
fn event(kind: u8, i: usize, pid: u32) -> String {
    let place = format!("\"pid\":{pid},\"tid\":{},\"ts\":{}.{:03}", i % 3, 10 * i, i % 1000);
    match kind % 6 {
        0 => format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::op{i}",{place},"dur":3,"args":{{"External id":{},"Input Dims":[[2,{i}],[]],"Call stack":"a.py(1): f;b.py(2): g"}}}}"#,
            i + 1
        ),
        1 => format!(
            r#"{{"ph":"X","cat":"kernel","name":"void k<{i}, float>(int, {{...}})",{place},"dur":2,"args":{{"External id":{},"correlation":{i},"device":0,"stream":7}}}}"#,
            i + 1
        ),
        2 => format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]",{place},"args":{{"Total Reserved":2097152,"Total Allocated":{},"Bytes":512,"Addr":{},"Device Id":0,"Device Type":1}}}}"#,
            512 * (i + 1),
            4096 + i
        ),
        3 => format!(
            r#"{{"ph":"X","cat":"python_function","name":"C:\\dir\\file.py({i}): say \"hi\", {{x}}",{place},"dur":5,"args":{{"Python id":{i},"Python parent id":null}}}}"#
        ),
        4 => format!(r#"{{"ph":"s","id":{i},"cat":"ac2g","name":"ac2g",{place}}}"#),
        _ => format!(r#"{{"ph":"X","cat":"user_annotation","name":"step {i}",{place},"dur":8,"args":{{}}}}"#),
    }
}

fn document(events: &[String]) -> String {
    format!("{{\"schemaVersion\":1,\"traceEvents\":[\n{}\n],\"traceName\":\"x.json\"}}\n", events.join(",\n"))
}

fn read_with(bytes: Vec<u8>, threads: usize) -> Trace {
    read(std::io::Cursor::new(bytes), &ReadOptions { threads, ..ReadOptions::default() }).unwrap()
}

fn read_in_batches(bytes: &[u8], threads: usize, batch: usize) -> Trace {
    fuzzing::read_in_batches(bytes, &ReadOptions { threads, ..ReadOptions::default() }, batch, false).unwrap()
}

/// The rows of a trace as text, and what was odd.
fn all(trace: &Trace) -> (Vec<String>, String) {
    (dump::lines(trace), format!("{:?} {:?}", trace.diagnostics(), trace.unmodelled()))
}

/// Rows without the line about the whole.
fn rows(trace: &Trace) -> Vec<String> {
    dump::lines(trace).split_off(1)
}

/// A source that gives as few bytes as it likes.
struct Short {
    bytes: Vec<u8>,
    at: usize,
    sizes: Vec<usize>,
    turn: usize,
}

impl Read for Short {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(7) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let size = self.sizes[self.turn % self.sizes.len()].min(buffer.len()).min(self.bytes.len() - self.at);
        buffer[..size].copy_from_slice(&self.bytes[self.at..self.at + size]);
        self.at += size;
        Ok(size)
    }
}

/// A trace of several batches, with something broken every now and then.
fn long_document(kinds: &[u8], broken_every: usize) -> Vec<u8> {
    let mut events: Vec<String> = (0..12_000).map(|i| event(kinds[i % kinds.len()], i, 7)).collect();
    for (turn, i) in (broken_every..events.len()).step_by(broken_every).enumerate() {
        let cut = events[i].len() * (turn % 10) / 10;
        events[i].truncate(cut);
    }
    document(&events).into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn neither_threads_nor_the_size_of_batches_and_reads_change_the_trace(
        kinds in proptest::collection::vec(0u8..6, 1..9),
        broken_every in 50usize..4000,
        sizes in proptest::collection::vec(1usize..200_000, 1..6),
        batch in 1000usize..300_000,
    ) {
        let bytes = long_document(&kinds, broken_every);
        let one = all(&read_with(bytes.clone(), 1));
        prop_assert!(one.0.len() > 1000 || kinds.iter().all(|kind| *kind == 4));
        for threads in [2, 3, 16] {
            prop_assert_eq!(&all(&read_in_batches(&bytes, threads, batch)), &one);
        }
        let short = Short { bytes, at: 0, sizes, turn: 0 };
        prop_assert_eq!(&all(&read(short, &ReadOptions::default()).unwrap()), &one);
    }

    #[test]
    fn a_wrong_checksum_is_told_of_the_same_member_whatever_the_threads_and_batches(
        members in proptest::collection::vec((1usize..400_000, any::<bool>()), 1..6),
        batch in 1000usize..300_000,
    ) {
        let bytes = long_document(&[0, 1, 2], 1 << 20);
        let (mut file, mut rest, mut wrong) = (Vec::new(), &bytes[..], Vec::new());
        for (size, whole) in members.iter().copied().chain([(usize::MAX, true)]) {
            let (part, others) = rest.split_at(size.min(rest.len()));
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(part).unwrap();
            file.extend(gzip.finish().unwrap());
            if !whole {
                wrong.push((bytes.len() - rest.len()) as u64);
                let crc = file.len() - 8;
                file[crc] ^= 1;
            }
            rest = others;
        }
        for threads in [1, 2, 16] {
            let trace = read_in_batches(&file, threads, batch);
            let told = trace.diagnostics().get("gzip-checksum");
            let found = told.map(|told| (told.count, told.first_offset));
            let expected = wrong.first().map(|first| (wrong.len() as u64, Some(*first)));
            prop_assert_eq!(found, expected);
            prop_assert_eq!(trace.events(), 12_000);
        }
    }
}

/// A source that breaks where no source should.
struct Panicking(usize);

impl Read for Panicking {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0 += 1;
        assert!(self.0 < 20, "the source is broken");
        let text = br#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}, "#;
        let size = text.len().min(buffer.len());
        buffer[..size].copy_from_slice(&text[..size]);
        Ok(size)
    }
}

#[test]
fn a_source_that_panics_ends_the_reading_on_all_threads() {
    for threads in [1, 2, 8] {
        let options = ReadOptions { threads, ..ReadOptions::default() };
        let read = || fuzzing::read_in_batches_from(Panicking(0), &options, 100).map(|trace| trace.events());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
    }
}

/// Whether every one of `few` is in `many`, as often.
fn contains(many: &[String], few: &[String]) -> bool {
    let (mut many, mut few) = (many.to_vec(), few.to_vec());
    many.sort();
    few.sort();
    let mut rest = many.iter();
    few.iter().all(|line| rest.any(|other| other == line))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_broken_event_costs_itself_at_most(
        kinds in proptest::collection::vec(0u8..6, 2..12),
        broken in 0u8..6,
        place in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        len in 1usize..60,
    ) {
        let events: Vec<String> = kinds.iter().enumerate().map(|(i, kind)| event(*kind, i, 7)).collect();
        let whole = rows(&read_with(document(&events).into_bytes(), 1));
        let mut damaged = event(broken, 999, 7);
        let from = from.index(damaged.len());
        let to = damaged.len().min(from + len);
        damaged.replace_range(from..to, "");
        let mut with = events;
        with.insert(place.index(with.len() + 1), damaged.clone());
        let trace = read_with(document(&with).into_bytes(), 1);
        prop_assert!(contains(&rows(&trace), &whole), "{damaged}\n{:#?}\n{whole:#?}\n{:?}", rows(&trace), trace.diagnostics());
        prop_assert!(rows(&trace).len() <= whole.len() + 1, "{damaged}");
    }

    #[test]
    fn two_traces_in_one_file_are_their_sum(
        first in proptest::collection::vec(0u8..6, 1..20),
        second in proptest::collection::vec(0u8..6, 1..20),
    ) {
        let events = |kinds: &[u8], pid| -> Vec<String> {
            kinds.iter().enumerate().map(|(i, kind)| event(*kind, i, pid)).collect()
        };
        let (first, second) = (events(&first, 7), events(&second, 8));
        let read = |events: &[String]| read_with(document(events).into_bytes(), 1);
        let both = read(&[first.clone(), second.clone()].concat());
        let (first, second) = (read(&first), read(&second));
        let mut expected = [rows(&first), rows(&second)].concat();
        let mut found = rows(&both);
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(both.events(), first.events() + second.events());
        let of = |trace: &Trace| KeyAverages::compute(trace, &AveragesOptions::default()).rows;
        let (first, second, both) = (of(&first), of(&second), of(&both));
        for row in both {
            // Memory counts by time on any thread, so the other's falls into an operator as well: times and calls add up.
            let same = first.iter().chain(&second).filter(|r| r.key == row.key && r.device_type == row.device_type);
            let (count, time) = same.fold((0, 0), |sum, r| (sum.0 + r.count, sum.1 + r.cpu_time_total.0));
            if row.key != "[memory]" {
                prop_assert_eq!((row.count, row.cpu_time_total.0), (count, time), "{}", row.key);
            }
        }
    }
}

#[test]
fn a_file_cut_off_at_any_byte_gives_the_events_before() {
    let events: Vec<String> = (0..12).map(|i| event(if i % 4 == 3 { 3 } else { 0 }, i, 7)).collect();
    let text = document(&events);
    let whole = read_with(text.clone().into_bytes(), 1);
    let begin = text.find('[').unwrap() + 1;
    for cut in begin..text.len() {
        let trace = read_with(text.as_bytes()[..cut].to_vec(), 1);
        for (few, many) in [
            (trace.ops().name().iter().map(|n| trace.str(*n)).collect::<Vec<_>>(), whole.ops().name()),
            (trace.frames().name().iter().map(|n| trace.str(*n)).collect(), whole.frames().name()),
        ] {
            let many: Vec<&str> = many.iter().map(|n| whole.str(*n)).collect();
            assert!(many.starts_with(&few), "{}", &text[..cut]);
        }
        let complete = text[begin..cut].matches("}}").count() as u64;
        assert!(trace.events() >= complete.saturating_sub(1), "{}", &text[..cut]);
        assert!(trace.events() == 12 || !trace.diagnostics().is_empty(), "{}", &text[..cut]);
    }
}
