//! The panel of one device.

use super::canvas::{Canvas, Steps, px};
use crate::analysis::timeline::{DeviceTimeline, Point, Stretch, Timeline, column_of};
use crate::render::layout::fitted;
use crate::render::numbers;
use crate::render::palette::{self, Fill};
use crate::render::scale::{Extremes, by_depth, extremes, sizes, times};
use crate::report::timeline::{MemoryFigure, before_name};
use crate::units::{Bytes, Nanos};
use std::ops::Range;
use unicode_width::UnicodeWidthStr;

const LEFT: f64 = 76.0;
const RIGHT: f64 = 268.0;
/// The room above the plot for steps and phases.
const STRIP: f64 = 34.0;
/// What a character of a text of 12 pixels takes at most, on average.
const CHARACTER: f64 = 6.6;
const HALO: &str = "stroke=\"#fff\" stroke-width=\"3.5\" stroke-linejoin=\"round\" paint-order=\"stroke\"";
/// Tints of calls, and of calls within them.
const CALLS: [&str; 2] = ["#ddd", "#bcc8d2"];
/// What fills the part of a card that is free.
const FREE: &str = "#eef2ee";
/// Tints of forward, backward and optimizer, and their initials.
const PHASES: [(&str, &str); 3] = [("forward", "#cfe6f5"), ("backward", "#f9d9b0"), ("optimizer", "#e3cfe0")];

/// How many columns of pixels the plot of a page of this width has.
pub(super) fn columns(page: u32) -> u32 {
    (f64::from(page) - LEFT - RIGHT) as u32
}

pub(super) struct Panel<'a> {
    figure: &'a MemoryFigure,
    device: &'a DeviceTimeline,
    shown: Vec<Extremes>,
    /// The columns that the device's memory is known in.
    known: Range<usize>,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    page: f64,
    /// Where the scale ends.
    full: i64,
}

impl<'a> Panel<'a> {
    /// A panel between these heights of a page of this width.
    pub(super) fn new(
        figure: &'a MemoryFigure,
        device: &'a DeviceTimeline,
        (top, bottom): (f64, f64),
        page: f64,
    ) -> Self {
        let t = &figure.timeline;
        let has_strip = !t.steps.is_empty() || !t.phases.is_empty() || !device.calls.is_empty();
        let (left, right, top) = (LEFT, page - RIGHT, top + if has_strip { STRIP } else { 6.0 });
        let columns = columns(page as u32);
        let shown = extremes(&device.points, t.start_ns, t.end_ns, columns);
        let column = |time| column_of(time, t.start_ns, t.end_ns, columns) as usize;
        let known = column(device.start_ns())..column(device.end_ns) + 1;
        let mut panel = Self { figure, device, shown, known, left, right, top, bottom, page, full: 1 };
        let needed = [panel.peak(), panel.most_reserved().unwrap_or_default(), panel.capacity().unwrap_or_default()];
        // Room above for the words at the peak.
        let room = (needed.iter().map(|b| b.0).max().unwrap_or(0) as f64 * 1.04).max(panel.peak().0 as f64 * 1.16);
        panel.full = figure.max_memory.map_or(room as i64, |b| b.0).max(1);
        panel
    }

    fn timeline(&self) -> &Timeline {
        &self.figure.timeline
    }

    fn peak(&self) -> Bytes {
        self.device.peak.allocated_bytes
    }

    fn most_reserved(&self) -> Option<Bytes> {
        // The host's allocator reserves nothing and says 0.
        self.device.points.iter().filter_map(|p| p.reserved_bytes).max().filter(|b| !b.is_zero())
    }

    /// The device's memory, where so much of it is taken that the rest leaves room for what is: half, or a quarter where
    /// what is free is drawn. On a scale that was asked for it is shown if it lies on it.
    fn capacity(&self) -> Option<Bytes> {
        let most = self.most_reserved().unwrap_or_default().max(self.peak());
        let share = if self.free_at_peak().is_some() { 4 } else { 2 };
        let asked = self.figure.max_memory.unwrap_or_default();
        self.device.capacity_bytes.filter(|c| c.0 / share <= most.0 || *c <= asked)
    }

    /// The columns with their place that memory is known in.
    fn columns(&self) -> impl Iterator<Item = (i64, &Extremes)> {
        self.known.clone().filter_map(|i| Some((tenths(self.left) + 10 * i as i64, self.shown.get(i)?)))
    }

    /// Where they end.
    fn columns_end(&self) -> i64 {
        tenths(self.left) + 10 * self.known.end.min(self.shown.len()) as i64
    }

    fn at_peak(&self) -> Option<&Point> {
        let peak = &self.device.peak;
        let same = |p: &&Point| p.time_ns == peak.time_ns && p.allocated_bytes == peak.allocated_bytes;
        self.device.points.iter().find(same)
    }

    fn free_at_peak(&self) -> Option<Bytes> {
        self.at_peak()?.free_bytes
    }

    fn x(&self, time: Nanos) -> f64 {
        let t = self.timeline();
        let all = (t.end_ns - t.start_ns).0.max(1) as f64;
        self.left + ((time - t.start_ns).0 as f64 / all).clamp(0.0, 1.0) * (self.right - self.left)
    }

    fn y(&self, bytes: Bytes) -> f64 {
        let share = (bytes.0 as f64 / self.full as f64).clamp(0.0, 1.0);
        self.bottom - share * (self.bottom - self.top)
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, last: bool, place: usize) {
        self.free(canvas);
        self.size_axis(canvas);
        self.areas(canvas, place);
        self.step_lines(canvas);
        self.curves(canvas);
        self.strip(canvas);
        self.time_axis(canvas, last);
        self.failures(canvas);
        self.peak_mark(canvas);
        self.legend(canvas, place);
    }

    fn size_axis(&self, canvas: &mut Canvas) {
        for tick in sizes(self.full, ((self.bottom - self.top) / 64.0) as usize) {
            let y = px(self.y(Bytes(tick.at)));
            let line = format!("d=\"M{} {y}H{}\" stroke=\"#e2e2e2\"", px(self.left), px(self.right));
            canvas.shape("path", &line, &tick.label);
            canvas.text((self.left - 8.0, y + 4.0), "text-anchor=\"end\" fill=\"#444\"", &tick.label);
        }
    }

    fn time_axis(&self, canvas: &mut Canvas, labels: bool) {
        let axis = format!("d=\"M{} {}H{}\" stroke=\"#444\"", px(self.left), px(self.bottom), px(self.right));
        canvas.shape("path", &axis, "time");
        let (t, wide) = (self.timeline(), self.right - self.left);
        let passed = |time: Nanos| (time - t.trace_start_ns).0;
        for tick in times(passed(t.start_ns), passed(t.end_ns), (wide / 110.0) as usize) {
            let x = px(self.x(t.trace_start_ns + Nanos(tick.at)));
            let mark = format!("d=\"M{x} {}v5\" stroke=\"#444\"", px(self.bottom));
            canvas.shape("path", &mark, &tick.label);
            if labels {
                canvas.text((x, self.bottom + 18.0), "text-anchor=\"middle\" fill=\"#444\"", &tick.label);
            }
        }
        if labels {
            let middle = ((self.left + self.right) / 2.0, self.bottom + 33.0);
            let zero = format!("time since {}", self.figure.zero);
            canvas.text(middle, "text-anchor=\"middle\" fill=\"#555\"", &zero);
        }
    }

    /// The layers from the bottom: what was before the trace, then the series.
    fn layers(&self) -> Vec<(String, Bytes, Option<Bytes>, Fill)> {
        let d = self.device;
        let named: Vec<&str> = d.series.iter().filter(|s| s.groups == 1).map(|s| s.key.as_str()).collect();
        let mut fills = palette::fills(&named).into_iter();
        let before = before_name(d).to_owned();
        let first = (before, d.peak.before_trace_bytes, None, palette::BEFORE);
        let series = d.series.iter().map(|s| {
            let fill = if s.groups == 1 { fills.next().unwrap_or(palette::REST) } else { palette::REST };
            (s.name(), s.peak_live_bytes, Some(s.most_bytes), fill)
        });
        std::iter::once(first).chain(series).collect()
    }

    /// What of the device is free, above what is used.
    fn free(&self, canvas: &mut Canvas) {
        if let Some(free) = self.free_at_peak() {
            let point = |e: &Extremes| &self.device.points[e.most];
            let path = self.area(
                self.columns().map(|(x, e)| (x, point(e).allocated_bytes + point(e).free_bytes.unwrap_or_default())),
            );
            let title = format!("free: {} at the peak", numbers::bytes(free));
            canvas.shape("path", &format!("d=\"{path}\" fill=\"{FREE}\""), &title);
        }
    }

    fn areas(&self, canvas: &mut Canvas, place: usize) {
        let layers = self.layers();
        let hatched = layers.iter().enumerate().filter(|(_, l)| l.3.hatched);
        for (i, (.., fill)) in hatched {
            canvas.raw(format_args!(
                "<pattern id=\"h{place}-{i}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
                 patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"{0}\"/><rect width=\"2.2\" \
                 height=\"6\" fill=\"#fff\" fill-opacity=\".6\"/></pattern>\n",
                fill.color
            ));
        }
        // What a layer and all below it hold, by column; the topmost is drawn first, and the next covers its foot.
        let mut tops: Vec<Vec<(i64, Bytes)>> = Vec::with_capacity(layers.len());
        let mut below: Vec<(i64, Bytes)> =
            self.columns().map(|(x, e)| (x, self.device.points[e.most].before_trace_bytes.max(Bytes::ZERO))).collect();
        tops.push(below.clone());
        for series in 0..self.device.series.len() {
            for ((_, sum), (_, column)) in below.iter_mut().zip(self.columns()) {
                *sum += self.device.live(column.most)[series];
            }
            tops.push(below.clone());
        }
        for i in (0..layers.len()).rev() {
            let (name, at_peak, most, _) = &layers[i];
            if most.is_some_and(|m| m.is_zero()) {
                continue;
            }
            let most = most.map(|m| format!(", {} at most", numbers::bytes(m))).unwrap_or_default();
            let title = format!("{name}: {} at the peak{most}", numbers::bytes(*at_peak));
            let area = self.area(tops[i].iter().copied());
            canvas.shape("path", &format!("d=\"{area}\" fill=\"{}\"", paint(&layers[i].3, place, i)), &title);
        }
    }

    /// The area below these heights.
    fn area(&self, mut heights: impl Iterator<Item = (i64, Bytes)>) -> String {
        let foot = tenths(self.bottom);
        let Some((left, first)) = heights.next() else { return String::new() };
        let mut path = Steps::start(left, foot);
        path.to(left, tenths(self.y(first)));
        for (x, height) in heights {
            path.to(x, tenths(self.y(height)));
        }
        path.along(self.columns_end());
        path.to(self.columns_end(), foot);
        path.finish() + "Z"
    }

    fn step_lines(&self, canvas: &mut Canvas) {
        let named = self.named();
        let ends = named.iter().flat_map(|s| [(s.start_ns, &s.name, "starts"), (s.end_ns, &s.name, "ends")]);
        let mut last = f64::NEG_INFINITY;
        for (time, name, what) in ends {
            let x = px(self.x(time));
            if x - last >= 3.0 {
                last = x;
                let line = format!(
                    "d=\"M{x} {}V{}\" stroke=\"#555\" stroke-width=\".7\" stroke-dasharray=\"3 3\"",
                    px(self.top - STRIP + 2.0),
                    px(self.bottom)
                );
                canvas.shape("path", &line, &format!("{} {what}", fitted(name, 60)));
            }
        }
    }

    /// The allocated curve over the areas, and the reserved one; the device's memory where that is near.
    fn curves(&self, canvas: &mut Canvas) {
        let points = &self.device.points;
        let value = |i: usize| points[i].allocated_bytes;
        let allocated = self.curve(|e| {
            if e.least < e.most { [value(e.least), value(e.most)] } else { [value(e.most), value(e.least)] }
        });
        let style = "fill=\"none\" stroke=\"#111\" stroke-width=\".9\" stroke-linejoin=\"round\"";
        let title = format!("{}: {} at the peak", self.device.measure.total(), numbers::bytes(self.peak()));
        canvas.shape("path", &format!("d=\"{allocated}\" {style}"), &title);
        if let Some(most) = self.most_reserved() {
            let path = self.reserved_curve();
            let style = "fill=\"none\" stroke=\"#7a1fa2\" stroke-width=\"1.4\" stroke-dasharray=\"7 3\"";
            let title = format!("reserved: {} at most", numbers::bytes(most));
            canvas.shape("path", &format!("d=\"{path}\" {style}"), &title);
        }
        if let Some(capacity) = self.capacity() {
            let line = format!("d=\"M{} {}H{}\"", px(self.left), px(self.y(capacity)), px(self.right));
            let title = format!("memory of the device: {}", numbers::bytes(capacity));
            canvas.shape("path", &format!("{line} stroke=\"#b00020\" stroke-width=\"1.6\""), &title);
        }
    }

    fn curve(&self, values: impl Fn(&Extremes) -> [Bytes; 2]) -> String {
        let Some((left, first)) = self.columns().next() else { return String::new() };
        let mut path = Steps::start(left, tenths(self.y(values(first)[0])));
        for (x, e) in self.columns() {
            for value in values(e) {
                path.to(x, tenths(self.y(value)));
            }
        }
        path.along(self.columns_end());
        path.finish()
    }

    /// The reserved curve, with gaps where it is not known.
    fn reserved_curve(&self) -> String {
        let (mut done, mut open) = (String::new(), None);
        for (x, e) in self.columns() {
            let known = self.device.points[e.most_reserved].reserved_bytes.map(|bytes| tenths(self.y(bytes)));
            open = match (open.take(), known) {
                (None, Some(y)) => Some(Steps::start(x, y)),
                (Some(mut path), Some(y)) => {
                    Steps::to(&mut path, x, y);
                    Some(path)
                }
                (path, None) => {
                    done += &path.map_or_else(String::new, |path| ended(path, x));
                    None
                }
            };
        }
        done + &open.map_or_else(String::new, |path| ended(path, self.columns_end()))
    }

    /// What is named above the plot: the steps, or the calls that the panel has of its own, but for calls within calls.
    fn named(&self) -> Vec<&Stretch> {
        if self.device.calls.is_empty() {
            return self.timeline().steps.iter().collect();
        }
        by_depth(&self.device.calls).into_iter().next().unwrap_or_default()
    }

    /// Steps and phases above the plot, or calls and those within them.
    fn strip(&self, canvas: &mut Canvas) {
        let bars: Vec<(&Stretch, bool)> = match self.device.calls.as_slice() {
            [] => self.timeline().phases.iter().map(|s| (s, false)).collect(),
            calls => {
                let inner = |(depth, list): (usize, Vec<_>)| list.into_iter().map(move |call| (call, depth > 0));
                by_depth(calls).into_iter().enumerate().flat_map(inner).collect()
            }
        };
        let named = self.named();
        let (phases, words) = (self.top - 15.0, self.top - 20.0);
        for (s, inner) in bars {
            let (from, to) = (self.x(s.start_ns), self.x(s.end_ns));
            if to - from < 1.0 && !self.device.calls.is_empty() {
                continue;
            }
            let tint =
                PHASES.iter().find(|(name, _)| *name == s.name).map_or(CALLS[usize::from(inner)], |(_, tint)| tint);
            let (x, y, wide) = (px(from), px(phases), px(to - from));
            let rect = format!("x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"13\" fill=\"{tint}\"");
            canvas.shape("rect", &rect, &format!("{}: {}", s.name, numbers::nanos(s.end_ns - s.start_ns)));
            if (inner || self.device.calls.is_empty()) && text_width(&s.name) + 4.0 <= to - from {
                let middle = ((from + to) / 2.0, phases + 10.5);
                canvas.text(middle, "text-anchor=\"middle\" font-size=\"11\"", &s.name);
            }
        }
        let mut free = self.left;
        for s in named {
            let (from, to) = (self.x(s.start_ns), self.x(s.end_ns));
            let short = s.name.rsplit_once('#').map_or(s.name.as_str(), |(_, number)| number);
            let fits = |text: &str| text_width(text) + 6.0 <= to - from;
            let text = if fits(&s.name) { s.name.clone() } else { fitted(short, 12) };
            let half = text_width(&text) / 2.0;
            let middle = ((from + to) / 2.0).max(self.left + half).min(self.right - half);
            if middle - half >= free {
                free = middle + half + 8.0;
                canvas.text((middle, words), "text-anchor=\"middle\" font-size=\"11\" fill=\"#444\"", &text);
            }
        }
        if self.timeline().phases.is_empty() || !self.device.calls.is_empty() {
            return;
        }
        let mut x = self.right + 16.0;
        for (name, tint) in PHASES {
            let rect = format!("x=\"{}\" y=\"{}\" width=\"11\" height=\"11\" fill=\"{tint}\"", px(x), px(phases + 1.0));
            canvas.shape("rect", &rect, name);
            canvas.text((x + 15.0, phases + 10.5), "font-size=\"11\"", name);
            x += 22.0 + text_width(name);
        }
    }

    fn failures(&self, canvas: &mut Canvas) {
        for (i, failure) in self.device.out_of_memory.iter().enumerate() {
            let x = px(self.x(failure.time_ns));
            let line =
                format!("d=\"M{x} {}V{}\" stroke=\"#b00020\" stroke-width=\"1.5\"", px(self.top), px(self.bottom));
            let asked = numbers::bytes(failure.requested_bytes);
            canvas.shape("path", &line, &format!("out of memory: {asked} asked for"));
            if i > 0 {
                continue;
            }
            let more = match self.device.out_of_memory_count {
                1 => String::new(),
                n => format!(", and {} more", numbers::count(n as u64 - 1)),
            };
            let text = format!("out of memory: {asked} asked for{more}");
            let (x, anchor) = self.beside(x, text_width(&text));
            let style = format!("text-anchor=\"{anchor}\" fill=\"#b00020\" font-weight=\"bold\" {HALO}");
            canvas.text((x, self.top + 14.0), &style, &text);
        }
    }

    /// Where to put a text beside a mark at `x`, and by which of its ends.
    fn beside(&self, x: f64, wide: f64) -> (f64, &'static str) {
        if x + 9.0 + wide <= self.right { (x + 9.0, "start") } else { (x - 9.0, "end") }
    }

    fn peak_mark(&self, canvas: &mut Canvas) {
        let peak = &self.device.peak;
        let (x, y) = (px(self.x(peak.time_ns)), px(self.y(peak.allocated_bytes)));
        let passed = peak.time_ns - self.timeline().trace_start_ns;
        let about = if self.device.estimated { "about " } else { "" };
        let size = format!("peak {about}{} at {}", numbers::bytes(peak.allocated_bytes), numbers::nanos(passed));
        let where_: Vec<&str> = [peak.operator.as_deref(), peak.phase].into_iter().flatten().collect();
        let doing = fitted(&where_.join(", "), 64);
        let mark = format!("cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"#fff\" stroke=\"#111\" stroke-width=\"1.8\"");
        canvas.shape("circle", &mark, &format!("{size}: {doing}"));
        let (at, anchor) = self.beside(x, text_width(&size).max(text_width(&doing)) + 8.0);
        let y = (y - 22.0).max(self.top + 12.0);
        let style = format!("text-anchor=\"{anchor}\" {HALO}");
        canvas.text((at, y), &format!("{style} font-weight=\"bold\""), &size);
        canvas.text((at, y + 14.0), &style, &doing);
    }

    /// The names beside the plot, in the order in which the layers lie, with their bytes at the peak.
    fn legend(&self, canvas: &mut Canvas, place: usize) {
        let (x, end) = (self.right + 16.0, self.page - 14.0);
        let layers = self.layers();
        let shown: Vec<usize> = (0..layers.len())
            .rev()
            .filter(|i| layers[*i].2.map_or(!layers[*i].1.is_zero(), |m| !m.is_zero()))
            .collect();
        let lines = shown.len() as f64 + 4.5;
        let line = ((self.bottom - self.top) / lines).clamp(9.0, 18.0);
        let size = (line - 3.0).clamp(8.0, 12.0);
        let mut y = self.top + size;
        let mut row = |canvas: &mut Canvas, name: &str, bytes: &str, bold: bool| {
            let weight = if bold { " font-weight=\"bold\"" } else { "" };
            let room = end - x - 20.0 - bytes.width() as f64 * CHARACTER - 6.0;
            let name = fitted(name, (room / CHARACTER).max(4.0) as usize);
            let from = if bold { x } else { x + 20.0 };
            canvas.text((from, y), &format!("font-size=\"{size}\"{weight}"), &name);
            canvas.text((end, y), &format!("font-size=\"{size}\" text-anchor=\"end\"{weight}"), bytes);
            y += line;
            y - line
        };
        let about = if self.device.estimated { " (estimated)" } else { "" };
        row(canvas, &format!("{}{about}", self.device.device), "at the peak", true);
        let stroke = |canvas: &mut Canvas, y: f64, style: &str, title: &str| {
            canvas.shape("path", &format!("d=\"M{} {}h14\" {style}", px(x), px(y - size * 0.35)), title);
        };
        if let Some(free) = self.free_at_peak() {
            let name = if self.capacity().is_some_and(|c| c.0 <= self.full) { "free" } else { "free (not all shown)" };
            let y = row(canvas, name, &numbers::bytes(free), false);
            canvas.shape("rect", &swatch(x, y, size, FREE), name);
        }
        if let Some(capacity) = self.capacity() {
            let y = row(canvas, "device memory", &numbers::bytes(capacity), false);
            stroke(canvas, y, "stroke=\"#b00020\" stroke-width=\"1.6\"", "device memory");
        }
        if let Some(reserved) = self.reserved_at_peak() {
            let y = row(canvas, "reserved", &numbers::bytes(reserved), false);
            stroke(canvas, y, "stroke=\"#7a1fa2\" stroke-width=\"1.4\" stroke-dasharray=\"7 3\"", "reserved");
        }
        let y_of = row(canvas, self.device.measure.total(), &numbers::bytes(self.peak()), false);
        stroke(canvas, y_of, "stroke=\"#111\"", self.device.measure.total());
        for i in shown {
            let (name, bytes, _, fill) = &layers[i];
            let y = row(canvas, name, &numbers::bytes(*bytes), false);
            canvas.shape("rect", &swatch(x, y, size, &paint(fill, place, i)), name);
        }
    }

    fn reserved_at_peak(&self) -> Option<Bytes> {
        self.most_reserved()?;
        self.at_peak()?.reserved_bytes
    }
}

fn paint(fill: &Fill, place: usize, layer: usize) -> String {
    if fill.hatched { format!("url(#h{place}-{layer})") } else { fill.color.to_owned() }
}

/// The colour of a layer beside its name in the legend.
fn swatch(x: f64, y: f64, size: f64, paint: &str) -> String {
    format!(
        "x=\"{}\" y=\"{}\" width=\"14\" height=\"{}\" fill=\"{paint}\" stroke=\"#666\" stroke-width=\".5\"",
        px(x),
        px(y - size * 0.85),
        px(size * 0.95)
    )
}

/// A curve that ends at `x`.
fn ended(mut path: Steps, x: i64) -> String {
    path.along(x);
    path.finish()
}

fn tenths(pixels: f64) -> i64 {
    (pixels * 10.0).round() as i64
}

/// What a text of 12 pixels takes, on the safe side.
fn text_width(text: &str) -> f64 {
    text.width() as f64 * CHARACTER
}
