//! Time and memory an event of a trace that grows: once, twice, four and eight times the events of one file, with times
//! and ids shifted as those of a longer run. Both should stay flat.
//!
//! The trace is `TRACETOOL_BIG` if that is set, else one of `testdata` sixteen times over. Each size is read by a process
//! of its own, whose greatest resident size (Linux) is its alone. Seconds hold the time in which the longer text is written;
//! processor time an event does not.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and a broken fixture ends it")]

use std::io::{Cursor, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tracetool::input::{ReadOptions, read};
use tracetool::report::top::Top;

/// Nanoseconds spent on writing the longer text.
static WRITING: AtomicU64 = AtomicU64::new(0);

/// A trace whose list of events is written over and over, later each time.
struct Longer {
    head: Cursor<Vec<u8>>,
    events: Vec<u8>,
    /// Where a number stands in `events`, and what is added to it each time.
    numbers: Vec<(std::ops::Range<usize>, u64)>,
    turns: u64,
    turn: u64,
    buffer: Cursor<Vec<u8>>,
}

impl Longer {
    fn new(plain: &[u8], turns: u64) -> Self {
        let start = memchr::memmem::find(plain, b"\"traceEvents\": [").unwrap() + 16;
        let end = memchr::memrchr(b']', plain).unwrap();
        let events = plain[start..end].trim_ascii_end().to_vec();
        let number = |key: &[u8]| {
            memchr::memmem::find_iter(&events, key)
                .map(|at| at + key.len())
                .filter_map(|from| {
                    let len = events[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                    (len > 0).then_some(from..from + len)
                })
                .collect::<Vec<_>>()
        };
        let value = |range: &std::ops::Range<usize>| -> u64 {
            std::str::from_utf8(&events[range.clone()]).unwrap().parse().unwrap_or(0)
        };
        let times = number(b"\"ts\": ");
        // Metadata stands at 0 or at the end of time.
        let usual = times[times.len() / 2].len();
        let times: Vec<_> = times.into_iter().filter(|t| t.len() == usual).collect();
        let (first, last) = times.iter().map(&value).fold((u64::MAX, 0), |(lo, hi), t| (lo.min(t), hi.max(t)));
        let mut numbers: Vec<_> = times.into_iter().map(|t| (t, last - first + 1000)).collect();
        for key in [&b"\"External id\": "[..], b"\"correlation\": ", b"\"Sequence number\": ", b"\"id\": "] {
            let found = number(key);
            let most = found.iter().map(&value).max().unwrap_or(0);
            numbers.extend(found.into_iter().map(|n| (n, most + 1)));
        }
        numbers.sort_by_key(|(range, _)| range.start);
        let head = Cursor::new(plain[..start].to_vec());
        let mut longer = Self { head, events, numbers, turns, turn: 0, buffer: Cursor::default() };
        // Before anything is measured the text has the memory that it will need.
        longer.write_turn();
        longer
    }

    /// The text of one turn.
    fn write_turn(&mut self) {
        let mut text = std::mem::take(self.buffer.get_mut());
        text.clear();
        if self.turn > 0 {
            text.push(b',');
        }
        let mut at = 0;
        for (range, step) in &self.numbers {
            text.extend_from_slice(&self.events[at..range.start]);
            let value: u64 = std::str::from_utf8(&self.events[range.clone()]).unwrap().parse().unwrap_or(0);
            text.extend_from_slice((value + self.turn * step).to_string().as_bytes());
            at = range.end;
        }
        text.extend_from_slice(&self.events[at..]);
        self.turn += 1;
        if self.turn == self.turns {
            text.extend_from_slice(b"\n]}");
        }
        self.buffer = Cursor::new(text);
    }
}

impl Read for Longer {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let count = match self.head.read(buf)? {
                0 => self.buffer.read(buf)?,
                count => count,
            };
            if count > 0 || self.turn == self.turns {
                return Ok(count);
            }
            let start = Instant::now();
            self.write_turn();
            WRITING.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// Reads and analyses a trace of so many turns; prints events, seconds and the bytes that the greatest resident size grew by.
fn measure(turns: u64) {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/gpt_stack.pt.trace.json.gz");
    let big = std::env::var("TRACETOOL_BIG");
    let turns = if big.is_ok() { turns } else { 16 * turns };
    let file = std::fs::File::open(big.as_deref().unwrap_or(small)).unwrap();
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut plain).unwrap();
    let source = Longer::new(&plain, turns);
    drop(plain);
    // The greatest size starts anew.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = resident("VmRSS:");
    let (start, processor) = (Instant::now(), processor_nanos());
    let top = Top::default();
    let trace = read(source, &ReadOptions { keep: top.keep(), ..ReadOptions::default() }).unwrap();
    let report = top.run(&trace).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    assert!(!report.blocks.is_empty());
    let processor = (processor_nanos() - processor).saturating_sub(WRITING.load(Ordering::Relaxed));
    println!("{} {seconds} {processor} {}", trace.events(), resident("VmHWM:").saturating_sub(before));
}

/// Processor time of all threads of this process so far, in steps of the kernel's clock (a hundred a second).
fn processor_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name in brackets; user and system time are the 14th and 15th field.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    ticks * 10_000_000
}

/// A line of this process's status, in bytes.
fn resident(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|l| l.strip_prefix(line)?.trim().strip_suffix(" kB"));
    found.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn main() {
    if let Ok(turns) = std::env::var("TRACETOOL_GROWTH_TURNS") {
        return measure(turns.parse().unwrap());
    }
    println!("{:>5} {:>12} {:>9} {:>9} {:>12}", "times", "events", "seconds", "cpu ns/ev", "bytes/event");
    for turns in [1, 2, 4, 8] {
        let this = std::env::current_exe().unwrap();
        let output =
            std::process::Command::new(this).env("TRACETOOL_GROWTH_TURNS", turns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let [events, seconds, processor, bytes] = *text.split_whitespace().collect::<Vec<_>>() else {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        };
        let [events, seconds, processor, bytes] =
            [events, seconds, processor, bytes].map(|figure| figure.parse::<f64>().unwrap());
        println!("{turns:>5} {events:>12} {seconds:>9.2} {:>9.0} {:>12.0}", processor / events, bytes / events);
    }
}
