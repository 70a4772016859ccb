//! Snapshots written here: every protocol of pickle, the fields of all years, and random histories against an allocator
//! of our own.

#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use std::io::Cursor;
use tracetool::analysis::allocations::Allocations;
use tracetool::analysis::categories::CategoryRules;
use tracetool::analysis::failed_requests::out_of_memory;
use tracetool::analysis::grouping::{Attribution, GroupBy};
use tracetool::analysis::peak::{Moment, PeakOptions, peaks};
use tracetool::analysis::snapshot_stats::device_stats;
use tracetool::analysis::step_spans::StepSpans;
use tracetool::input::{ReadOptions, read, read_path};
use tracetool::trace::snapshot::{Action, BlockState, Origin};
use tracetool::trace::{Device, StackId, Trace};
use tracetool::units::{Bytes, Nanos};

const MIB: i64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// A value as the oldest protocol writes it, but for strings, which have their length before them.
type Pickled = Vec<u8>;

fn int(n: i64) -> Pickled {
    format!("L{n}L\n").into_bytes()
}

fn text(text: &str) -> Pickled {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

fn list(items: impl IntoIterator<Item = Pickled>) -> Pickled {
    [&b"("[..], &items.into_iter().flatten().collect::<Vec<u8>>(), b"l"].concat()
}

fn dict(entries: &[(&str, Pickled)]) -> Pickled {
    let entries = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
    [&b"("[..], &entries.collect::<Vec<u8>>(), b"d"].concat()
}

fn entry(action: &str, address: u64, size: i64, more: &[(&str, Pickled)]) -> Pickled {
    let own = [("action", text(action)), ("addr", int(address as i64)), ("size", int(size)), ("stream", int(0))];
    dict(&[&own, more].concat())
}

fn block(size: i64, state: &str, more: &[(&str, Pickled)]) -> Pickled {
    dict(&[&[("size", int(size)), ("state", text(state))], more].concat())
}

fn segment(device: i64, address: u64, size: i64, blocks: Vec<Pickled>) -> Pickled {
    dict(&[
        ("device", int(device)),
        ("address", int(address as i64)),
        ("total_size", int(size)),
        ("segment_type", text("large")),
        ("blocks", list(blocks)),
    ])
}

fn frame(file: &str, line: i64, name: &str) -> Pickled {
    dict(&[("name", text(name)), ("filename", text(file)), ("line", int(line))])
}

/// Reads `{'segments': segments, 'device_traces': histories}`.
fn snapshot(segments: Vec<Pickled>, histories: Vec<Vec<Pickled>>) -> Trace {
    let histories = list(histories.into_iter().map(list));
    let root = dict(&[("segments", list(segments)), ("device_traces", histories)]);
    read(Cursor::new([&b"\x80\x02"[..], &root, b"."].concat()), &ReadOptions::default()).unwrap()
}

fn totals(trace: &Trace) -> Vec<(i64, i64)> {
    trace.memory().iter().map(|e| (e.total_allocated.0 / MIB, e.total_reserved.0 / MIB)).collect()
}

#[test]
fn every_protocol_of_one_snapshot_gives_one_model() {
    let model = |protocol: u32| {
        let trace =
            read_path(&support::testdata(&format!("fields.protocol{protocol}.pickle")), &ReadOptions::default());
        let trace = trace.unwrap();
        let strings: Vec<String> = trace.strings().iter().map(str::to_owned).collect();
        let memory: Vec<_> = trace.memory().iter().collect();
        let ops: Vec<_> = trace.ops().iter().collect();
        format!("{:?} {memory:?} {ops:?} {:?} {strings:?} {:?}", trace.snapshot(), trace.stacks(), trace.diagnostics())
    };
    let newest = model(5);
    for protocol in 0..5 {
        assert_eq!(model(protocol), newest, "protocol {protocol}");
    }
}

#[test]
fn the_fields_of_all_years_are_read() {
    let trace = read_path(&support::testdata("fields.protocol2.pickle"), &ReadOptions::default()).unwrap();
    assert!(trace.diagnostics().is_empty(), "{:?}", trace.diagnostics());
    let snapshot = trace.snapshot().unwrap();
    let segment = |i: usize| &snapshot.segments[i];
    assert_eq!([0, 1, 2].map(|i| segment(i).pool_id), [(0, 0), (1, 2), (0, 0)]);
    assert_eq!([0, 1, 2].map(|i| (segment(i).expandable, segment(i).stream)), [(false, 0), (false, 0), (true, 7)]);
    assert_eq!(trace.devices(), [Device::cuda(0), Device::cuda(1)]);
    assert_eq!(trace.info().base_time, Some(Nanos(1_790_000_000_000_000_000)));
    assert!(snapshot.settings.expandable_segments);

    let [first, second] = &snapshot.histories[..] else { panic!("two devices did something") };
    let origin = |i: usize| -> Origin { first.origin(&first.entries[i]) };
    assert_eq!(trace.str(origin(1).compile_context), "0/0");
    assert_eq!(trace.str(origin(1).user_metadata), "epoch 3");
    assert_eq!((trace.str(origin(2).compile_context), trace.str(origin(2).user_metadata)), ("", ""));
    assert_eq!(trace.stack(origin(3).stack).collect::<Vec<_>>(), ["model.py(20): lö'ss\n", "train.py(30): main"]);
    assert_eq!(trace.stack(second.origin(&second.entries[0]).stack).count(), 1);
    assert_eq!(first.entries.last().map(|e| e.action), Some(Action::Snapshot));

    // Device 0: 8 MiB are there throughout, and 2 MiB whose free was asked for before the history count no more. Device 1
    // maps 6 MiB and gives back 2.
    let of = |device: i32| -> Vec<(i64, i64, i64)> {
        let events = trace.memory().iter().filter(|e| trace.device(e.device) == Device::cuda(device));
        events.map(|e| (e.bytes.0 / MIB, e.total_allocated.0 / MIB, e.total_reserved.0 / MIB)).collect()
    };
    assert_eq!(of(0), [(2, 10, 16), (4, 14, 36), (-2, 12, 36)]);
    assert_eq!(of(1), [(3, 3, 6), (2, 5, 6), (-2, 3, 6)]);
    let stats = device_stats(snapshot);
    assert_eq!(stats[1].all.reserved_bytes, Bytes(4 * MIB));
    // Expandable segments split nothing off that could not be given back.
    assert_eq!(stats[1].all.inactive_split_bytes, Bytes::ZERO);

    let failed = &out_of_memory(snapshot)[0];
    assert_eq!((failed.requested_bytes, failed.device_free_bytes), (Bytes(1 << 40), Some(Bytes(5 * MIB))));
    // 36 MiB reserved, 14 in use, and the largest gap is behind the 4 MiB at the start of the private segment.
    let cache = failed.cache.unwrap();
    assert_eq!((cache.reserved_bytes, cache.active_bytes), (Bytes(36 * MIB), Bytes(14 * MIB)));
    assert_eq!(cache.largest_free_block_bytes, Bytes(16 * MIB));
}

#[test]
fn without_times_entries_keep_their_order_and_that_is_said() {
    let at = BASE;
    let trace = snapshot(
        vec![segment(0, at, 4 * MIB, vec![block(2 * MIB, "active_allocated", &[]), block(2 * MIB, "inactive", &[])])],
        vec![vec![entry("segment_alloc", at, 4 * MIB, &[]), entry("alloc", at, 2 * MIB, &[])]],
    );
    assert_eq!(trace.memory().get(0).time, Nanos(1000));
    assert!(!trace.snapshot().unwrap().histories[0].timed);
    assert!(trace.diagnostics().get("no-times").is_some());
    assert_eq!(trace.info().base_time, None);
}

#[test]
fn without_frames_there_are_no_owners_and_sums_are_the_same() {
    let at = BASE;
    let trace = snapshot(
        vec![segment(0, at, 4 * MIB, vec![block(4 * MIB, "active_allocated", &[])])],
        vec![vec![entry("alloc", at, 4 * MIB, &[("time_us", int(5))])]],
    );
    assert_eq!(trace.memory().get(0).stack, StackId::NONE);
    let found = peak_rows(&trace, GroupBy::Op, Moment::Peak);
    assert_eq!(found, [("(no stack recorded)".to_owned(), 4 * MIB), ("before".to_owned(), 0)]);
}

#[test]
fn a_thread_without_python_is_named_where_others_have_frames() {
    let at = BASE;
    let frames = [("frames", list([frame("train.py", 3, "main")]))];
    let trace = snapshot(
        vec![segment(
            0,
            at,
            8 * MIB,
            vec![block(2 * MIB, "active_allocated", &[]), block(6 * MIB, "active_allocated", &[])],
        )],
        vec![vec![
            entry("alloc", at, 2 * MIB, &frames),
            entry("alloc", at + 2 * MIB as u64, 6 * MIB, &[("frames", list([]))]),
        ]],
    );
    let found = peak_rows(&trace, GroupBy::Function, Moment::Peak);
    let want = [("(no Python frames)", 6 * MIB), ("train.py: main", 2 * MIB), ("before", 0)];
    assert_eq!(found, want.map(|(key, bytes)| (key.to_owned(), bytes)));
}

#[test]
fn what_a_lost_beginning_allocated_is_before_the_history() {
    // The ring lost the allocation of the first block; its free is there. The last was there all the time.
    let at = BASE;
    let trace = snapshot(
        vec![segment(
            0,
            at,
            16 * MIB,
            vec![
                block(4 * MIB, "inactive", &[]),
                block(8 * MIB, "active_allocated", &[]),
                block(4 * MIB, "active_allocated", &[]),
            ],
        )],
        vec![vec![
            entry("alloc", at + 4 * MIB as u64, 8 * MIB, &[]),
            entry("free_requested", at, 4 * MIB, &[]),
            entry("free_completed", at, 4 * MIB, &[]),
        ]],
    );
    assert_eq!(totals(&trace), [(16, 16), (12, 16)]);
    assert_eq!(peak_rows(&trace, GroupBy::Device, Moment::Peak)[1], ("before".to_owned(), 8 * MIB));
    assert_eq!(peak_rows(&trace, GroupBy::Device, Moment::End)[1], ("before".to_owned(), 4 * MIB));
}

#[test]
fn where_the_history_does_not_tell_of_segments_reserved_is_not_known() {
    let at = BASE;
    let trace = snapshot(
        vec![segment(0, at, 2 * MIB, vec![block(2 * MIB, "inactive", &[])])],
        vec![vec![
            entry("alloc", at, 2 * MIB, &[]),
            entry("alloc", at + (1 << 30), 4 * MIB, &[]),
            entry("free_completed", at + (1 << 30), 4 * MIB, &[]),
            entry("free_completed", at, 2 * MIB, &[]),
        ]],
    );
    let memory = Allocations::build(&trace);
    let device = &memory.devices()[0];
    assert_eq!(
        (0..4).map(|i| device.reserved(i)).collect::<Vec<_>>(),
        [Some(Bytes(2 * MIB)), None, Some(Bytes(2 * MIB)), Some(Bytes(2 * MIB))]
    );
    assert_eq!(trace.diagnostics().get("allocated-above-reserved").map(|d| d.count), Some(1));
}

#[test]
fn several_devices_have_a_history_and_a_peak_each() {
    let at = BASE;
    let own = |device: i64, size: i64| segment(device, at, size, vec![block(size, "active_allocated", &[])]);
    let trace = snapshot(
        vec![own(0, 2 * MIB), own(2, 6 * MIB)],
        vec![vec![entry("alloc", at, 2 * MIB, &[])], vec![], vec![entry("alloc", at, 6 * MIB, &[])]],
    );
    let memory = Allocations::build(&trace);
    let peaks: Vec<_> = memory.devices().iter().map(|m| (m.device(), m.allocated()[m.peak().unwrap()])).collect();
    assert_eq!(peaks, [(Device::cuda(0), Bytes(2 * MIB)), (Device::cuda(2), Bytes(6 * MIB))]);
}

/// The rows of the only device's live set, then what was there before.
fn peak_rows(trace: &Trace, by: GroupBy, at: Moment) -> Vec<(String, i64)> {
    let memory = Allocations::build(trace);
    let who = Attribution::build(trace, StepSpans::find(trace), CategoryRules::default());
    let options = PeakOptions { group_by: by, at, ..PeakOptions::default() };
    let found = peaks(trace, &memory, &who, &options).remove(0);
    let rows: i64 = found.rows.iter().map(|row| row.live_bytes.0).sum();
    let before = found.before_trace_bytes.unwrap().0;
    assert_eq!(rows + before, found.at.allocated_bytes.0);
    let rows = found.rows.iter().map(|row| (row.key.clone(), row.live_bytes.0));
    rows.chain([("before".to_owned(), before)]).collect()
}

/// The rules of PyTorch's caching allocator, as far as blocks and segments go.
#[derive(Clone, Debug, Default)]
struct Allocator {
    segments: Vec<Reserved>,
    entries: Vec<(&'static str, u64, i64)>,
    /// After each entry.
    after: Vec<After>,
    made: u64,
}

/// What is true at a moment.
#[derive(Clone, Debug)]
struct After {
    allocated: i64,
    reserved: i64,
    /// The entry that allocated each block, and its size.
    live: Vec<(usize, i64)>,
}

#[derive(Clone, Debug)]
struct Reserved {
    address: u64,
    small: bool,
    blocks: Vec<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    address: u64,
    size: i64,
    requested: i64,
    state: BlockState,
    /// The entry that allocated it.
    born: usize,
}

impl Reserved {
    fn size(&self) -> i64 {
        self.blocks.iter().map(|b| b.size).sum()
    }
}

impl Allocator {
    fn told(&mut self, action: &'static str, address: u64, size: i64) {
        self.entries.push((action, address, size));
        let live: Vec<(usize, i64)> = self.parts(BlockState::Allocated).map(|b| (b.born, b.size)).collect();
        let allocated = live.iter().map(|(_, size)| size).sum();
        let reserved = self.segments.iter().map(Reserved::size).sum();
        self.after.push(After { allocated, reserved, live });
    }

    fn parts(&self, state: BlockState) -> impl Iterator<Item = &Part> {
        self.segments.iter().flat_map(|s| &s.blocks).filter(move |b| b.state == state)
    }

    fn alloc(&mut self, requested: i64) {
        let rounded = (requested.max(1) + 511) / 512 * 512;
        let small = rounded <= MIB;
        let fits = |b: &Part| b.state == BlockState::Inactive && b.size >= rounded;
        let places = self.segments.iter().enumerate().filter(|(_, s)| s.small == small);
        let free = places.flat_map(|(i, s)| s.blocks.iter().enumerate().map(move |(j, b)| (i, j, *b)));
        let best = free.filter(|(_, _, b)| fits(b)).min_by_key(|(_, _, b)| (b.size, b.address));
        let (i, j) = best.map_or_else(
            || {
                let size = match rounded {
                    _ if small => 2 * MIB,
                    _ if rounded < 10 * MIB => 20 * MIB,
                    _ => (rounded + 2 * MIB - 1) / (2 * MIB) * 2 * MIB,
                };
                let address = BASE + (self.made << 32);
                self.made += 1;
                let whole = Part { address, size, requested: 0, state: BlockState::Inactive, born: 0 };
                self.segments.push(Reserved { address, small, blocks: vec![whole] });
                self.told("segment_alloc", address, size);
                (self.segments.len() - 1, 0)
            },
            |(i, j, _)| (i, j),
        );
        let born = self.entries.len();
        let blocks = &mut self.segments[i].blocks;
        let part = &mut blocks[j];
        let rest = part.size - rounded;
        (part.state, part.requested, part.born) = (BlockState::Allocated, requested, born);
        let address = part.address;
        if rest >= if small { 512 } else { MIB + 1 } {
            part.size = rounded;
            let rest = Part {
                address: address + rounded as u64,
                size: rest,
                requested: 0,
                state: BlockState::Inactive,
                born: 0,
            };
            blocks.insert(j + 1, rest);
        }
        self.told("alloc", address, requested);
    }

    /// Moves the `n`th block of a state on to the next: from allocated to awaiting its free, from there to free.
    fn let_go(&mut self, n: usize, state: BlockState) {
        let count = self.parts(state).count();
        if count == 0 {
            return;
        }
        let blocks = self.segments.iter_mut().flat_map(|s| &mut s.blocks);
        let part = blocks.filter(|b| b.state == state).nth(n % count).unwrap();
        let Part { address, requested, .. } = *part;
        if state == BlockState::Allocated {
            part.state = BlockState::AwaitingFree;
            return self.told("free_requested", address, requested);
        }
        part.state = BlockState::Inactive;
        for segment in &mut self.segments {
            segment.blocks = segment.blocks.iter().fold(Vec::new(), |mut merged: Vec<Part>, b| {
                match merged.last_mut() {
                    Some(last) if last.state == BlockState::Inactive && b.state == BlockState::Inactive => {
                        last.size += b.size;
                    }
                    _ => merged.push(*b),
                }
                merged
            });
        }
        self.told("free_completed", address, requested);
    }

    fn empty_cache(&mut self) {
        while let Some(i) = self.segments.iter().position(|s| s.blocks.iter().all(|b| b.state == BlockState::Inactive))
        {
            let segment = self.segments.remove(i);
            self.told("segment_free", segment.address, segment.size());
        }
    }

    /// The snapshot of it, whose ring lost the first `lost` entries.
    fn snapshot(&self, lost: usize) -> Trace {
        let part = |b: &Part| {
            let state = match b.state {
                BlockState::Allocated => "active_allocated",
                BlockState::AwaitingFree => "active_pending_free",
                BlockState::Inactive => "inactive",
            };
            block(b.size, state, &[("address", int(b.address as i64)), ("requested_size", int(b.requested))])
        };
        let segments =
            self.segments.iter().map(|s| segment(0, s.address, s.size(), s.blocks.iter().map(part).collect()));
        let history = self.entries[lost..].iter().map(|(action, address, size)| entry(action, *address, *size, &[]));
        snapshot(segments.collect(), vec![history.collect()])
    }
}

#[derive(Clone, Copy, Debug)]
enum Do {
    Alloc(i64),
    Free(usize),
    Complete(usize),
    EmptyCache,
}

fn deeds() -> impl Strategy<Value = Vec<Do>> {
    let size = prop_oneof![1i64..3 * MIB, 1i64..4000, 8 * MIB..24 * MIB];
    let deed = prop_oneof![
        4 => size.prop_map(Do::Alloc),
        3 => any::<usize>().prop_map(Do::Free),
        3 => any::<usize>().prop_map(Do::Complete),
        1 => Just(Do::EmptyCache),
    ];
    proptest::collection::vec(deed, 1..80)
}

proptest! {
    #[test]
    fn sums_are_exact_at_every_point_however_much_of_the_history_is_lost(deeds in deeds(), lost in 0usize..40) {
        let mut allocator = Allocator::default();
        for deed in deeds {
            match deed {
                Do::Alloc(size) => allocator.alloc(size),
                Do::Free(n) => allocator.let_go(n, BlockState::Allocated),
                Do::Complete(n) => allocator.let_go(n, BlockState::AwaitingFree),
                Do::EmptyCache => allocator.empty_cache(),
            }
        }
        let lost = lost % (allocator.entries.len() + 1);
        let trace = allocator.snapshot(lost);
        prop_assert!(trace.diagnostics().get("history-contradicts-blocks").is_none());
        let kept = (lost..allocator.entries.len()).filter(|i| matches!(allocator.entries[*i].0, "alloc" | "free_requested"));
        let kept: Vec<usize> = kept.collect();
        prop_assert_eq!(trace.memory().len(), kept.len());
        if kept.is_empty() {
            return Ok(());
        }
        // A block from before the history can hide the rest behind it, at most 1 MiB, until it is freed.
        let hidden: i64 = match lost.checked_sub(1) {
            None => 0,
            Some(last) => allocator.after[last].live.len() as i64 * MIB,
        };
        let memory = Allocations::build(&trace);
        let device = &memory.devices()[0];
        for (event, at) in kept.iter().enumerate() {
            let After { allocated, reserved, live } = &allocator.after[*at];
            let (told, before) = (device.allocated()[event].0, device.before_trace_at(event + 1).unwrap().0);
            prop_assert!((0..=hidden).contains(&(allocated - told)), "{} told of {}", told, allocated);
            prop_assert_eq!(device.reserved(event), Some(Bytes(*reserved)));
            let known: i64 = device.live_blocks(event + 1).map(|i| device.blocks()[i].bytes.0).sum();
            prop_assert_eq!(known, live.iter().filter(|(born, _)| *born >= lost).map(|(_, size)| size).sum::<i64>());
            prop_assert_eq!(known + before, told);
            prop_assert!(before >= 0);
        }
        prop_assert_eq!(device.allocated().last().map(|a| a.0), allocator.after.last().map(|after| after.allocated));
        for at in [Moment::Peak, Moment::End] {
            peak_rows(&trace, GroupBy::Device, at);
        }
    }
}
