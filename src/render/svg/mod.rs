//! Figures as SVG: stacked areas under the allocated curve, for papers and for README files.
//!
//! Written by a thin layer of our own: a general plotting library gives shapes no `<title>`, sizes no binary ticks, and a
//! corner to every point of every layer. Here each layer is drawn from the bottom up to its top and covered by the
//! next, one step a pixel column at most, so a picture of any trace has a few hundred kilobytes. What a column shows is
//! its greatest total, and the curve over it reaches down to its least.

mod canvas;
mod panel;
mod segments;
#[cfg(test)]
mod tests;

use super::layout::fitted;
use super::numbers;
use crate::error::Result;
use crate::report::timeline::MemoryFigure;
use canvas::Canvas;
use panel::Panel;
pub(super) use segments::render as segments;
use std::io::Write;

const WIDTH: u32 = 1200;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 40.0;
const GAP: f64 = 14.0;

/// How many columns of pixels a picture of this width has for its curves.
pub fn picture_columns(width: Option<u32>) -> u32 {
    panel::columns(page_width(width))
}

fn page_width(width: Option<u32>) -> u32 {
    width.unwrap_or(WIDTH).clamp(640, 10_000)
}

/// Writes the picture.
pub(super) fn render(figure: &MemoryFigure, out: &mut dyn Write) -> Result<()> {
    Ok(out.write_all(document(figure).as_bytes())?)
}

fn document(figure: &MemoryFigure) -> String {
    let t = &figure.timeline;
    let devices: Vec<_> = t.devices.iter().filter(|d| !d.points.is_empty()).collect();
    let n = devices.len().max(1);
    let width = page_width(figure.width);
    let least = 120 + 220 * n as u32;
    let height = figure.height.unwrap_or(250 + 350 * n as u32).clamp(least, least.max(20_000));
    let title =
        if figure.source.is_empty() { figure.title.clone() } else { format!("{}: {}", figure.title, figure.source) };
    let mut canvas = Canvas::new(width, height, &title);
    canvas.text((16.0, 25.0), "font-size=\"16\" font-weight=\"bold\"", &figure.title);
    canvas.text((16.0, 43.0), "fill=\"#555\"", &subtitle(figure, width));
    let room = (f64::from(height) - TOP - BOTTOM - GAP * (n - 1) as f64) / n as f64;
    for (i, device) in devices.iter().enumerate() {
        let top = TOP + (room + GAP) * i as f64;
        Panel::new(figure, device, (top, top + room), f64::from(width)).draw(&mut canvas, i + 1 == n, i);
    }
    canvas.finish()
}

fn subtitle(figure: &MemoryFigure, width: u32) -> String {
    let t = &figure.timeline;
    let mut parts = Vec::new();
    if !figure.source.is_empty() {
        parts.push(fitted(&figure.source, width as usize / 12));
    }
    parts.push(format!("{} shown", numbers::nanos(t.end_ns - t.start_ns)));
    match t.steps.len() {
        0 => {}
        1 => parts.push("1 step".into()),
        n => parts.push(format!("{} steps", numbers::count(n as u64))),
    }
    parts.join(" · ")
}
