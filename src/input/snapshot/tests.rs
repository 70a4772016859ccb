use super::*;
use crate::trace::{StackId, Trace};

/// `text` is a pickle of protocol 0 or 1 by hand, for what no file at hand shows.
fn read_text(text: &[u8]) -> Result<Trace> {
    read(text, &ReadOptions::default()).map(TraceBuilder::finish)
}

// What torch 2.0 wrote: no times, no addresses of blocks, and what is known of a block in its `history`.
//   {'segments': [{'device': 1, 'address': 4096, 'total_size': 2097152, 'segment_type': 'small',
//                  'blocks': [{'size': 512, 'state': 'active_allocated',
//                              'history': [{'addr': 4096, 'real_size': 100,
//                                           'frames': [{'name': 'f', 'filename': 'a.py', 'line': 3}]}]},
//                             {'size': 2096640, 'state': 'inactive'}]}],
//    'device_traces': [[], [{'action': 'alloc', 'addr': 4096, 'size': 100, 'stream': 0, 'frames': []}]]}
const TORCH_2_0: &[u8] = b"(dS'segments'\n((dS'device'\nI1\nsS'address'\nI4096\nsS'total_size'\nI2097152\n\
    sS'segment_type'\nS'small'\nsS'blocks'\n(lp1\n(dS'size'\nI512\nsS'state'\nS'active_allocated'\n\
    sS'history'\n((dS'addr'\nI4096\nsS'real_size'\nI100\nsS'frames'\n((dS'name'\nS'f'\nsS'filename'\nS'a.py'\n\
    sS'line'\nI3\nslsls\
    a(dS'size'\nI2096640\nsS'state'\nS'inactive'\nsas\
    lsS'device_traces'\n((l((dS'action'\nS'alloc'\nsS'addr'\nI4096\nsS'size'\nI100\nsS'stream'\nI0\nsS'frames'\n(ls\
    lls.";

#[test]
fn a_snapshot_of_torch_2_0_is_read() {
    let trace = read_text(TORCH_2_0).unwrap();
    let snapshot = trace.snapshot().unwrap();
    let blocks = &snapshot.segments[0].blocks;
    assert_eq!(blocks.iter().map(|b| (b.address, b.size.0)).collect::<Vec<_>>(), [(4096, 512), (4608, 2_096_640)]);
    assert_eq!((blocks[0].requested, blocks[0].state), (Bytes(100), BlockState::Allocated));
    assert_eq!(trace.stack(blocks[0].stack).collect::<Vec<_>>(), ["a.py(3): f"]);
    assert_eq!(trace.devices(), [Device::cuda(1)]);
    let event = trace.memory().get(0);
    assert_eq!((event.bytes, event.total_allocated, event.total_reserved), (Bytes(512), Bytes(512), Bytes(2 << 20)));
    assert_eq!(event.stack, StackId::NONE);
    assert!(trace.diagnostics().get("no-times").is_some());
    assert_eq!(trace.info().base_time, None);
}

#[test]
fn the_segments_alone_are_a_snapshot() {
    let trace = read_text(b"((dS'address'\nI4096\nsS'total_size'\nI100\nsl.").unwrap();
    assert_eq!(trace.snapshot().unwrap().segments.len(), 1);
}

#[test]
fn other_pickles_are_no_snapshot() {
    for text in [&b"(d."[..], b"I1\n.", b"(l.", b"(dS'segments'\nI1\ns."] {
        let error = read_text(text).expect_err("no snapshot");
        assert!(error.to_string().contains("_dump_snapshot"), "{error}");
    }
}

#[test]
fn one_entry_referred_to_over_and_over_is_refused() {
    // device_traces = [h] * 300 with h = [e] * 300: 90,000 entries from one dictionary.
    let mut text = b"(dS'device_traces'\n((dS'action'\nS'alloc'\nsp0\n0(".to_vec();
    text.extend(b"g0\n".repeat(300));
    text.extend(b"lp1\n0");
    text.extend(b"g1\n".repeat(300));
    text.extend(b"ls.");
    assert!(read_text(&text).expect_err("refused").to_string().contains("over and over"));
}

#[test]
fn an_unknown_action_is_counted_and_a_broken_entry_is_a_loss() {
    let trace = read_text(b"(dS'device_traces'\n(((dS'action'\nS'dance'\ns(dS'addr'\nI1\nsI5\nlls.").unwrap();
    assert_eq!(trace.unmodelled(), [("snapshot/dance".to_owned(), 1)]);
    assert_eq!(trace.diagnostics().get("broken-snapshot-entry").map(|d| d.count), Some(2));
    assert!(trace.memory().is_empty());
}

#[test]
fn a_snapshot_cut_short_is_an_error() {
    for end in 0..TORCH_2_0.len() {
        assert!(read_text(&TORCH_2_0[..end]).is_err(), "{end}");
    }
}

#[test]
fn annotations_pair_up_by_name_and_the_open_ones_last_to_the_end() {
    // a [1 .. 4], b [2 .. 3 not closed: until 4], both in microseconds; the trace's zero is the first of them.
    let mark = |stage: &str, name: &str, us: u32| {
        format!("(dS'stage'\nS'{stage}'\nsS'name'\nS'{name}'\nsS'device'\nI0\nsS'time_us'\nI{us}\ns")
    };
    let marks = [mark("START", "a", 1), mark("START", "b", 2), mark("END", "c", 3), mark("END", "a", 4)].concat();
    let trace = read_text(format!("(dS'segments'\n(lsS'external_annotations'\n({marks}ls.").as_bytes()).unwrap();
    let ops: Vec<_> = trace.ops().iter().map(|o| (trace.str(o.name), o.start.0, o.duration.0, o.unfinished)).collect();
    assert_eq!(ops, [("a", 0, 3000, false), ("b", 1000, 2000, true)]);
    assert_eq!(trace.info().base_time, Some(Nanos(1000)));
}

#[test]
fn what_a_snapshot_does_not_tell_is_told() {
    // Segments without device and with a negative size, an entry without address, annotations without time and begin.
    let trace = read_text(
        b"(dS'segments'\n((dS'address'\nI4096\nsS'total_size'\nI-1\nslsS'device_traces'\n(((dS'action'\nS'alloc'\n\
          sS'size'\nI8\ns(dS'action'\nS'alloc'\nsS'addr'\nI64\nsS'size'\nI8\nsllsS'external_annotations'\n\
          ((dS'stage'\nS'START'\ns(dS'stage'\nS'END'\nsS'time_us'\nI5\nsS'name'\nS'step'\nsls.",
    )
    .unwrap();
    let skipped = trace.diagnostics().get("broken-snapshot-entry").unwrap();
    assert_eq!((skipped.count, skipped.severity), (4, Severity::Loss), "{skipped:?}");
    assert!(skipped.message.contains("no device"), "{skipped:?}");
    assert_eq!(trace.diagnostics().get("end-without-begin").unwrap().count, 1);
    assert_eq!(trace.memory().address(), [64]);
}

#[test]
fn bytes_behind_a_pickle_are_told() {
    let mut bytes = TORCH_2_0.to_vec();
    assert!(read_text(&bytes).unwrap().diagnostics().get("trailing-text").is_none());
    bytes.extend(b"more");
    let trace = read_text(&bytes).unwrap();
    let told = trace.diagnostics().get("trailing-text").unwrap();
    assert_eq!((told.count, told.first_offset), (1, Some(TORCH_2_0.len() as u64)));
}

#[test]
fn a_long_text_is_cut_once_however_often_it_is_referred_to() {
    // 'é' has two bytes, so that the cut falls within one.
    let name = format!("x{}", "é".repeat(4000));
    let mut bytes = b"(dX\x08\x00\x00\x00segments(l(dX\x07\x00\x00\x00addressI4096\nsX\x0a\x00\x00\x00total_sizeI1\nsX\x06\x00\x00\x00deviceI0\ns\
        X\x06\x00\x00\x00frames((dX\x04\x00\x00\x00nameX"
        .to_vec();
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(b"slsas.");
    let trace = read_text(&bytes).unwrap();
    let frame = trace.stack(trace.snapshot().unwrap().segments[0].stack).next().unwrap();
    assert_eq!(frame, format!("x{}…", "é".repeat(2047)));
    assert_eq!(trace.diagnostics().get("long-text").unwrap().count, 1);
}
