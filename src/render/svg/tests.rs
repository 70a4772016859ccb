//! Pictures are well formed whatever the names in them, and every shape says what it is.

use super::*;
use crate::analysis::timeline::{
    DeviceTimeline, FailedRequest, Measure, PeakMark, Point, Series, Stretch, Timeline, Unattributed,
};
use crate::units::{Bytes, Nanos};
use proptest::prelude::*;

fn figure(name: &str) -> MemoryFigure {
    let point = |time, allocated| Point {
        time_ns: Nanos(time),
        allocated_bytes: Bytes(allocated),
        before_trace_bytes: Bytes(100),
        reserved_bytes: Some(Bytes(900)),
        free_bytes: Some(Bytes(100)),
    };
    let series =
        |peak| Series { key: name.to_owned(), groups: 1, peak_live_bytes: Bytes(peak), most_bytes: Bytes(peak) };
    let stretch = |start, end| Stretch { name: name.to_owned(), start_ns: Nanos(start), end_ns: Nanos(end) };
    let device = DeviceTimeline {
        device: "cuda:0".into(),
        measure: Measure::Used,
        estimated: true,
        unattributed: Unattributed::BeforeTrace,
        capacity_bytes: Some(Bytes(1000)),
        peak: PeakMark {
            time_ns: Nanos(10),
            allocated_bytes: Bytes(800),
            before_trace_bytes: Bytes(100),
            step: Some(name.to_owned()),
            phase: Some("forward"),
            operator: Some(name.to_owned()),
        },
        out_of_memory: vec![FailedRequest { time_ns: Nanos(15), requested_bytes: Bytes(1 << 30) }; 2],
        out_of_memory_count: 2,
        series: vec![series(500), series(200)],
        points: vec![point(0, 100), point(10, 800), point(20, 300)],
        end_ns: Nanos(20),
        calls: vec![stretch(3, 15)],
        live_bytes: [0, 0, 500, 200, 200, 0].map(Bytes).to_vec(),
    };
    let timeline = Timeline {
        trace_start_ns: Nanos(0),
        start_ns: Nanos(0),
        end_ns: Nanos(20),
        devices: vec![device.clone(), device],
        steps: vec![stretch(0, 9), stretch(9, 20)],
        phases: vec![stretch(1, 19)],
    };
    let (title, source) = (name.to_owned(), name.to_owned());
    MemoryFigure { title, source, timeline, zero: "the start", max_memory: None, width: None, height: None }
}

/// Whether this is well-formed XML without any of the characters that XML forbids, by a reader of the part that
/// pictures use: elements, attributes in double quotes, text, the five entities and `&#39;`.
fn check(text: &str) -> std::result::Result<(), String> {
    if let Some(c) = text.chars().find(|c| c.is_control() && *c != '\n' || matches!(c, '\u{fffe}' | '\u{ffff}')) {
        return Err(format!("forbidden {c:?}"));
    }
    let references = |part: &str| {
        let known = ["lt;", "gt;", "amp;", "quot;", "#39;"];
        part.split('&').skip(1).all(|after| known.iter().any(|k| after.starts_with(k)))
    };
    let (mut open, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('<') {
        let words = &rest[..at];
        if words.contains("]]>") || !references(words) || open.is_empty() && !words.trim().is_empty() {
            return Err(format!("text {words:?}"));
        }
        let end = rest[at..].find('>').ok_or("an open tag")? + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes something else"));
            }
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        if !["svg", "title", "rect", "path", "circle", "text", "pattern"].contains(&name) {
            return Err(format!("element {name:?}"));
        }
        while !attributes.trim().is_empty() {
            let (key, after) = attributes.split_once("=\"").ok_or(format!("attribute {attributes:?}"))?;
            let (value, after) = after.split_once('"').ok_or(format!("value {after:?}"))?;
            let letters = |c: char| c.is_ascii_alphabetic() || c == '-';
            if !key.trim().chars().all(letters) || value.contains('<') || !references(value) {
                return Err(format!("attribute {key:?} {value:?}"));
            }
            attributes = after;
        }
        if !closed {
            open.push(name);
        }
    }
    if open.is_empty() && rest.trim().is_empty() { Ok(()) } else { Err(format!("left {open:?} {rest:?}")) }
}

#[test]
fn hostile_names_cannot_break_a_picture() {
    for name in ["<script>alert(1)</script>", "]]>", "\"'&amp;<!--", "\0\u{1b}[31m\n\u{fffe}\u{202e}", "", "&#0;"] {
        let picture = document(&figure(name));
        assert_eq!(check(&picture), Ok(()), "{name:?}");
        assert!(!picture.contains("<script"));
    }
}

#[test]
fn every_shape_has_a_title_and_the_same_figure_is_the_same_picture() {
    let picture = document(&figure("aten::mm"));
    for line in picture.lines().filter(|l| ["<path", "<rect", "<circle"].iter().any(|e| l.starts_with(e))) {
        assert!(line.contains("><title>") && !line.contains("<title></title>"), "{line}");
    }
    assert_eq!(picture, document(&figure("aten::mm")));
}

#[test]
fn odd_numbers_and_sizes_make_a_picture_all_the_same() {
    for (width, height) in [(0, 0), (u32::MAX, u32::MAX), (1200, 600)] {
        for bytes in [i64::MIN, -1, 0, 1, i64::MAX] {
            let mut figure = figure("x");
            (figure.width, figure.height) = (Some(width), Some(height));
            for d in &mut figure.timeline.devices {
                d.points.iter_mut().for_each(|p| p.allocated_bytes = Bytes(bytes));
                d.live_bytes.fill(Bytes(bytes));
                d.peak.allocated_bytes = Bytes(bytes);
            }
            figure.timeline.end_ns = Nanos(bytes.max(0));
            assert_eq!(check(&document(&figure)), Ok(()));
        }
    }
}

proptest! {
    #[test]
    fn any_name_leaves_a_picture_well_formed(name in any::<String>()) {
        prop_assert_eq!(check(&document(&figure(&name))), Ok(()));
    }
}
