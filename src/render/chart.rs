//! Figures as characters, for terminals and Markdown: the curve filled below, an eighth of a line being the smallest step.

use super::escape::visible;
use super::layout::fitted;
use super::numbers;
use super::scale::{by_depth, extremes, sizes, times};
use crate::analysis::timeline::{DeviceTimeline, Timeline, column_of};
use crate::report::timeline::MemoryFigure;
use crate::report::{Figure, Report};
use unicode_width::UnicodeWidthStr;

const LINES: u32 = 14;
/// The room for the labels of sizes.
const MARGIN: usize = 10;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The lines of a report's figure, where it has one for charts.
pub(super) fn of(report: &Report, width: usize) -> Vec<String> {
    match &report.figure {
        Some(Figure::Memory(figure)) => lines(figure, width),
        _ => Vec::new(),
    }
}

/// The lines of a figure, none wider than `width` where that is wide enough for a chart at all.
fn lines(figure: &MemoryFigure, width: usize) -> Vec<String> {
    let columns = width.clamp(MARGIN + 20, 1000) - MARGIN - 2;
    let height = figure.height.unwrap_or(LINES).clamp(3, 200) as usize;
    let mut lines = Vec::new();
    for device in figure.timeline.devices.iter().filter(|d| !d.points.is_empty()) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        panel(figure, device, columns, height, &mut lines);
    }
    lines
}

fn panel(figure: &MemoryFigure, d: &DeviceTimeline, columns: usize, height: usize, lines: &mut Vec<String>) {
    let t = &figure.timeline;
    let passed = numbers::nanos(d.peak.time_ns - t.trace_start_ns);
    let about = if d.estimated { "about " } else { "" };
    let title = format!("{}: peak {about}{} at {passed}", d.device, numbers::bytes(d.peak.allocated_bytes));
    lines.push(fitted(&title, columns + MARGIN));
    let top = figure.max_memory.unwrap_or(d.peak.allocated_bytes).0.max(1);
    let shown = extremes(&d.points, t.start_ns, t.end_ns, columns as u32);
    let full = (height * 8) as f64;
    let eighths = |point: usize| {
        let share = d.points[point].allocated_bytes.0.max(0) as f64 / top as f64;
        // Something is never shown as nothing.
        ((share.min(1.0) * full).round() as usize).max(usize::from(share > 0.0))
    };
    let levels: Vec<usize> = shown.iter().map(|e| eighths(e.most)).collect();
    let column = |time| column_of(time, t.start_ns, t.end_ns, columns as u32) as usize;
    let known = column(d.start_ns())..=column(d.end_ns);
    let labels = labels(top, height);
    for (row, label) in labels.iter().enumerate() {
        let below = (height - 1 - row) * 8;
        let cell = |(i, level): (usize, &usize)| {
            EIGHTHS[if known.contains(&i) { level.saturating_sub(below).min(8) } else { 0 }]
        };
        let cells: String = levels.iter().enumerate().map(cell).collect();
        lines.push(format!("{label:>MARGIN$} ┤{cells}").trim_end().to_owned());
    }
    axis(t, columns, lines);
    bands(t, d, columns, lines);
}

/// The label of each line, from the top.
fn labels(top: i64, height: usize) -> Vec<String> {
    let mut labels = vec![String::new(); height];
    for tick in sizes(top, (height / 3).max(1)).into_iter().filter(|t| t.at > 0) {
        let line = (tick.at as f64 / top as f64 * height as f64).round() as usize;
        labels[height - line.clamp(1, height)] = tick.label;
    }
    labels
}

/// The axis of time and its labels.
fn axis(t: &Timeline, columns: usize, lines: &mut Vec<String>) {
    let (start, end) = ((t.start_ns - t.trace_start_ns).0, (t.end_ns - t.trace_start_ns).0);
    let ticks = times(start, end, columns / 16);
    let (mut rule, mut words) = (vec!['─'; columns], vec![' '; columns + MARGIN]);
    let mut free = 0;
    for tick in ticks {
        let at = (((tick.at - start) as f64 / (end - start).max(1) as f64) * columns as f64) as usize;
        let at = at.min(columns - 1);
        let from = at.saturating_sub(tick.label.width() / 2);
        if from >= free && from + tick.label.width() <= columns {
            rule[at] = '┬';
            free = from + tick.label.width() + 1;
            tick.label.chars().enumerate().for_each(|(i, c)| words[from + i] = c);
        }
    }
    lines.push(format!("{:>MARGIN$} └{}", "0", rule.into_iter().collect::<String>()));
    lines.push(format!("{:MARGIN$}  {}", "", words.into_iter().collect::<String>()).trim_end().to_owned());
}

/// A line of steps and one of phases, where there are any, and some of the device's own calls: a line for each depth.
fn bands(t: &Timeline, d: &DeviceTimeline, columns: usize, lines: &mut Vec<String>) {
    let calls = by_depth(&d.calls);
    let all = [("steps", t.steps.iter().collect()), ("phases", t.phases.iter().collect::<Vec<_>>())];
    let calls = calls.into_iter().enumerate().map(|(depth, list)| (if depth == 0 { "calls" } else { "" }, list));
    for (name, list) in all.into_iter().chain(calls).filter(|(_, list)| !list.is_empty()) {
        let mut cells = vec![' '; columns];
        let place = |time| column_of(time, t.start_ns, t.end_ns, columns as u32) as usize;
        for s in list {
            let (from, to) = (place(s.start_ns), place(s.end_ns));
            let text = visible(&s.name);
            let short = text.rsplit_once('#').map_or(text.as_ref(), |(_, number)| number);
            let room = to.saturating_sub(from + 1);
            let word = if text.width() <= room { &text } else { short };
            cells[from] = '|';
            if word.chars().count() == word.width() && word.width() <= room {
                word.chars().enumerate().for_each(|(i, c)| cells[from + 1 + i] = c);
            }
        }
        lines.push(format!("{name:>MARGIN$}  {}", cells.into_iter().collect::<String>()).trim_end().to_owned());
    }
}
