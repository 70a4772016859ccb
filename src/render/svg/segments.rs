//! The segments of a snapshot: bars along rows of one scale a pool, with their blocks in the colours of their owners.
//!
//! A segment that is longer than a row goes on in the next. What is narrower than a pixel is drawn together with its
//! neighbours, so that a picture of any snapshot stays small.

use super::canvas::{Canvas, px};
use super::page_width;
use crate::error::Result;
use crate::render::layout::fitted;
use crate::render::numbers;
use crate::render::palette::{self, Fill, REST};
use crate::report::segments::{BlockFigure, CacheFigure, SegmentFigure, SegmentsFigure, cache_name, state_name};
use crate::trace::snapshot::BlockState;
use crate::units::Bytes;
use std::io::Write;
use unicode_width::UnicodeWidthStr;

const LEFT: f64 = 16.0;
const RIGHT: f64 = 300.0;
const TOP: f64 = 64.0;
/// The height of a bar, and of a bar with the room below it.
const BAR: f64 = 18.0;
const ROW: f64 = 23.0;
/// The room of a pool's heading, and below a pool.
const HEADING: f64 = 20.0;
const BELOW: f64 = 14.0;
/// Between segments.
const GAP: f64 = 3.0;
/// About how many rows a pool is given.
const ROWS: f64 = 10.0;
/// How many pools are drawn: a file can have one for each stream.
const MOST_CACHES: usize = 24;
/// How many owners have colours of their own; more hues than these are hatched.
const OWNERS: usize = 7;
const CHARACTER: f64 = 7.2;
/// Beside blocks in use, and in segments with none.
const SPLIT: &str = "#f9d5cd";
const WHOLE: &str = "#e4efe4";
const AWAITING: &str = "#f28e2b";

/// Writes the picture.
pub(in crate::render) fn render(figure: &SegmentsFigure, out: &mut dyn Write) -> Result<()> {
    Ok(out.write_all(document(figure).as_bytes())?)
}

fn document(figure: &SegmentsFigure) -> String {
    let width = page_width(figure.width);
    let columns = f64::from(width) - LEFT - RIGHT;
    let shown = &figure.caches[..figure.caches.len().min(MOST_CACHES)];
    let tapes: Vec<Tape<'_>> = shown.iter().map(|cache| Tape::lay(cache, columns)).collect();
    let room: f64 = tapes.iter().map(|t| HEADING + t.rows as f64 * ROW + BELOW).sum();
    let legend = legend_entries(figure);
    let height = (TOP + room + 12.0).max(TOP + 30.0 + legend.len() as f64 * 18.0);
    let title = if figure.source.is_empty() { "Segments".into() } else { format!("Segments: {}", figure.source) };
    let mut canvas = Canvas::new(width, height.ceil() as u32, &title);
    canvas.text((LEFT, 25.0), "font-size=\"16\" font-weight=\"bold\"", "Segments of the caching allocator");
    canvas.text((LEFT, 43.0), "fill=\"#555\"", &subtitle(figure, columns));
    let fills = fills(figure);
    let mut y = TOP;
    for tape in &tapes {
        tape.draw(&mut canvas, y, figure, &fills);
        y += HEADING + tape.rows as f64 * ROW + BELOW;
    }
    draw_legend(&mut canvas, &legend, f64::from(width));
    canvas.finish()
}

fn subtitle(figure: &SegmentsFigure, columns: f64) -> String {
    let sum = |of: fn(&CacheFigure) -> Bytes| -> Bytes { figure.caches.iter().map(of).sum() };
    let reserved = numbers::bytes(sum(|c| c.stats.stats.reserved_bytes));
    let active = numbers::bytes(sum(|c| c.stats.stats.active_bytes));
    let mut parts = vec![format!("{reserved} reserved, {active} in use")];
    if figure.caches.len() > MOST_CACHES {
        parts.push(format!("{} of {} pools shown", MOST_CACHES, numbers::count(figure.caches.len() as u64)));
    }
    if !figure.source.is_empty() {
        parts.insert(0, fitted(&figure.source, (columns / CHARACTER / 2.0) as usize));
    }
    parts.join(" · ")
}

/// A colour for each of the first owners.
fn fills(figure: &SegmentsFigure) -> Vec<Fill> {
    let names: Vec<&str> = figure.owners.iter().take(OWNERS).map(|(name, _)| name.as_str()).collect();
    palette::fills(&names)
}

/// The color of a block; of `None` in a segment in use or not.
fn color(block: &BlockFigure, in_use: bool, fills: &[Fill]) -> &'static str {
    match block.state {
        BlockState::Allocated => fills.get(block.owner).unwrap_or(&REST).color,
        BlockState::AwaitingFree => AWAITING,
        BlockState::Inactive if in_use => SPLIT,
        BlockState::Inactive => WHOLE,
    }
}

/// A pool laid along its rows.
struct Tape<'a> {
    cache: &'a CacheFigure,
    /// Where each segment starts, in pixels along all rows.
    starts: Vec<f64>,
    columns: f64,
    rows: usize,
    /// Bytes that a row holds.
    row_bytes: f64,
}

impl<'a> Tape<'a> {
    fn lay(cache: &'a CacheFigure, columns: f64) -> Self {
        // In floats: a hostile file's sizes overflow any integer, and the picture must stay small.
        let total: f64 = cache.segments.iter().map(|s| length(s.bytes)).sum();
        let row_bytes = (total / ROWS).max(65536.0).log2().ceil().exp2();
        // Of a crowd of small segments the gaps would take more than the segments.
        let gap = if (cache.segments.len() as f64) * GAP < columns * ROWS / 3.0 { GAP } else { 0.0 };
        let mut at = 0.0;
        let mut starts = Vec::with_capacity(cache.segments.len());
        for segment in &cache.segments {
            let wide = length(segment.bytes) / row_bytes * columns;
            let column = at % columns;
            // Not broken where it need not be; a tenth of a pixel is nobody's.
            if column > 0.0 && column + wide.min(columns) > columns + 0.1 {
                at += columns - column;
            }
            starts.push(at);
            at += wide + gap;
        }
        let rows = ((at - gap - 0.1) / columns).ceil().max(1.0) as usize;
        Self { cache, starts, columns, rows, row_bytes }
    }

    fn draw(&self, canvas: &mut Canvas, top: f64, figure: &SegmentsFigure, fills: &[Fill]) {
        let (stats, f) = (&self.cache.stats.stats, &self.cache.stats.fragmentation);
        let name = format!("{}, {}", self.cache.device, cache_name(&self.cache.stats));
        let text = format!(
            "{} segments, {} · {} in use · {} free, largest block {} · a row is {}",
            numbers::count(stats.segment_count),
            numbers::bytes(stats.reserved_bytes),
            numbers::bytes(stats.active_bytes),
            numbers::bytes(f.free_bytes),
            numbers::bytes(f.largest_free_block_bytes),
            numbers::bytes(Bytes(self.row_bytes as i64)),
        );
        let name = fitted(&name, 40);
        canvas.text((LEFT, top + 12.0), "font-weight=\"bold\"", &name);
        canvas.text((LEFT + name.width() as f64 * 7.4 + 10.0, top + 12.0), "fill=\"#444\"", &text);
        let mut pen = Pen { canvas, top: top + HEADING, columns: self.columns, open: None };
        for (segment, start) in self.cache.segments.iter().zip(&self.starts) {
            let scale = self.columns / self.row_bytes;
            let end = start + length(segment.bytes) * scale;
            for block in &segment.blocks {
                let from = start + block.address.saturating_sub(segment.address) as f64 * scale;
                let (from, to) = (from.min(end), (from + length(block.bytes) * scale).min(end));
                let paint = color(block, segment.in_use, fills);
                pen.add(from, to, paint, block.bytes, || block_title(block, figure));
            }
        }
        pen.flush();
        self.outlines(canvas, top + HEADING);
    }

    /// The segments around their blocks; those that nobody could see are left out.
    fn outlines(&self, canvas: &mut Canvas, top: f64) {
        for (segment, start) in self.cache.segments.iter().zip(&self.starts) {
            let wide = length(segment.bytes) / self.row_bytes * self.columns;
            if wide < 2.0 {
                continue;
            }
            for (row, from, to) in pieces(*start, start + wide, self.columns) {
                let rect = format!(
                    "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" fill=\"none\" stroke=\"#333\" stroke-width=\".8\"",
                    px(LEFT + from),
                    px(top + row as f64 * ROW),
                    px(to - from)
                );
                canvas.shape("rect", &rect, &segment_title(segment));
            }
        }
    }
}

fn length(bytes: Bytes) -> f64 {
    bytes.0.max(0) as f64
}

/// A stretch of the tape as parts of rows: the row, and from where to where.
fn pieces(start: f64, end: f64, columns: f64) -> impl Iterator<Item = (usize, f64, f64)> {
    let (first, last) = ((start / columns).floor(), (end / columns).ceil().max((start / columns).floor() + 1.0));
    (first as usize..last as usize)
        .map(move |row| {
            let origin = row as f64 * columns;
            (row, (start - origin).max(0.0), (end - origin).min(columns))
        })
        // What ends just at the end of a row leaves nothing for the next.
        .filter(|(_, from, to)| to - from > 0.05)
}

/// Draws along the tape; what is narrower than a pixel is held until a pixel is full.
struct Pen<'a> {
    canvas: &'a mut Canvas,
    top: f64,
    columns: f64,
    open: Option<Held>,
}

/// Parts too narrow to draw alone.
struct Held {
    from: f64,
    to: f64,
    parts: u64,
    bytes: Bytes,
    /// The color of the largest part.
    paint: &'static str,
    largest: Bytes,
}

impl Pen<'_> {
    fn add(&mut self, from: f64, to: f64, paint: &'static str, bytes: Bytes, title: impl FnOnce() -> String) {
        if to - from >= 1.0 {
            self.flush();
            self.rect(from, to, paint, &title());
            return;
        }
        if self.open.as_ref().is_some_and(|held| from > held.from + 1.0) {
            self.flush();
        }
        let held = self.open.get_or_insert(Held { from, to, parts: 0, bytes: Bytes::ZERO, paint, largest: bytes });
        held.to = to.max(held.to);
        held.parts += 1;
        held.bytes += bytes;
        if bytes > held.largest {
            (held.paint, held.largest) = (paint, bytes);
        }
    }

    fn flush(&mut self) {
        if let Some(held) = self.open.take() {
            let title = format!("{} blocks, {}", numbers::count(held.parts), numbers::bytes(held.bytes));
            self.rect(held.from, held.to.max(held.from + 0.5), held.paint, &title);
        }
    }

    fn rect(&mut self, from: f64, to: f64, paint: &str, title: &str) {
        for (row, from, to) in pieces(from, to, self.columns) {
            // A hair between blocks, where there is room for it.
            let inset = if to - from > 4.0 { 0.4 } else { 0.0 };
            let rect = format!(
                "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" fill=\"{paint}\"",
                px(LEFT + from + inset),
                px(self.top + row as f64 * ROW),
                px(to - from - 2.0 * inset)
            );
            self.canvas.shape("rect", &rect, title);
        }
    }
}

fn block_title(block: &BlockFigure, figure: &SegmentsFigure) -> String {
    let owner = figure.owners.get(block.owner).filter(|_| block.state.is_active());
    let owner = owner.map(|(name, _)| format!(", {}", fitted(name, 120))).unwrap_or_default();
    format!("{}: {} at {:#x}{owner}", state_name(block.state), numbers::bytes(block.bytes), block.address)
}

fn segment_title(segment: &SegmentFigure) -> String {
    format!("segment at {:#x}: {}", segment.address, numbers::bytes(segment.bytes))
}

/// What a colour means: its color, the name, the bytes.
type Entry = (&'static str, String, Bytes);

fn legend_entries(figure: &SegmentsFigure) -> Vec<Entry> {
    let fills = fills(figure);
    let owners = figure.owners.iter().zip(&fills).filter(|(owner, _)| owner.1 > Bytes::ZERO);
    let mut entries: Vec<Entry> = owners.map(|((name, bytes), fill)| (fill.color, short(name), *bytes)).collect();
    let rest: Bytes = figure.owners.iter().skip(fills.len()).map(|(_, bytes)| *bytes).sum();
    if rest > Bytes::ZERO {
        let others = figure.owners.iter().skip(fills.len()).filter(|(_, bytes)| *bytes > Bytes::ZERO).count();
        entries.push((REST.color, format!("{} others", numbers::count(others as u64)), rest));
    }
    let segments = || figure.caches.iter().flat_map(|c| &c.segments);
    let in_state = |state: BlockState, in_use: bool| -> Bytes {
        let chosen = segments().filter(|s| s.in_use == in_use).flat_map(|s| &s.blocks);
        chosen.filter(|b| b.state == state).map(|b| b.bytes).sum()
    };
    for (color, name, bytes) in [
        (AWAITING, "awaiting free", in_state(BlockState::AwaitingFree, true)),
        (SPLIT, "free, in used segments", in_state(BlockState::Inactive, true)),
        (WHOLE, "free, whole segments", in_state(BlockState::Inactive, false)),
    ] {
        if bytes > Bytes::ZERO {
            entries.push((color, name.to_owned(), bytes));
        }
    }
    entries
}

/// A frame without the folders of its file.
fn short(name: &str) -> String {
    let file = name.find('(').map_or(name, |at| &name[..at]);
    let cut = file.rfind(['/', '\\']).map_or(0, |at| at + 1);
    name[cut..].to_owned()
}

fn draw_legend(canvas: &mut Canvas, entries: &[Entry], page: f64) {
    let (x, end) = (page - RIGHT + 18.0, page - 14.0);
    canvas.text((x, TOP + 12.0), "font-weight=\"bold\"", "Blocks by who asked for them");
    for (i, (color, name, bytes)) in entries.iter().enumerate() {
        let y = TOP + 32.0 + 18.0 * i as f64;
        let swatch = format!(
            "x=\"{}\" y=\"{}\" width=\"14\" height=\"11\" fill=\"{color}\" stroke=\"#666\" stroke-width=\".5\"",
            px(x),
            px(y - 10.0)
        );
        canvas.shape("rect", &swatch, name);
        let bytes = numbers::bytes(*bytes);
        let room = end - x - 20.0 - bytes.width() as f64 * CHARACTER - 6.0;
        canvas.text((x + 20.0, y), "", &fitted(name, (room / CHARACTER).max(4.0) as usize));
        canvas.text((end, y), "text-anchor=\"end\"", &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::snapshot_stats::{CacheStats, Fragmentation, PoolStats};
    use crate::trace::Device;
    use crate::trace::snapshot::Pool;
    use proptest::prelude::*;

    fn figure(segments: Vec<SegmentFigure>) -> SegmentsFigure {
        let stats = CacheStats {
            pool: Pool::Large,
            pool_id: (0, 1),
            stream: 7,
            stats: PoolStats::default(),
            fragmentation: Fragmentation::default(),
            segments: Vec::new(),
        };
        let owners = vec![("<script>&\u{1b}[31m".to_owned(), Bytes(1 << 20))];
        let caches = vec![CacheFigure { device: Device::cuda(0), stats, segments }];
        SegmentsFigure { source: "s.pickle".into(), caches, owners, width: None }
    }

    fn segment(address: u64, bytes: i64, blocks: &[(u64, i64)]) -> SegmentFigure {
        let block = |(address, bytes): &(u64, i64)| BlockFigure {
            address: *address,
            bytes: Bytes(*bytes),
            state: if bytes % 2 == 0 { BlockState::Allocated } else { BlockState::Inactive },
            owner: 0,
        };
        SegmentFigure { address, bytes: Bytes(bytes), in_use: true, blocks: blocks.iter().map(block).collect() }
    }

    #[test]
    fn a_crowd_of_blocks_makes_no_large_picture_and_names_are_no_markup() {
        let blocks: Vec<(u64, i64)> = (0..200_000).map(|i| (i * 512, 512)).collect();
        let text = document(&figure(vec![segment(0, 200_000 * 512, &blocks)]));
        assert!(text.len() < 3_000_000, "{}", text.len());
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;"));
    }

    #[test]
    fn what_goes_over_the_end_of_a_row_goes_on_in_the_next() {
        let parts: Vec<_> = pieces(90.0, 210.0, 100.0).collect();
        assert_eq!(parts, [(0, 90.0, 100.0), (1, 0.0, 100.0), (2, 0.0, 10.0)]);
        assert_eq!(pieces(0.0, 100.0, 100.0).count(), 1);
    }

    proptest! {
        #[test]
        fn no_sizes_make_a_large_picture(
            sizes in prop::collection::vec((any::<u64>(), any::<i64>(), prop::collection::vec((any::<u64>(), any::<i64>()), 0..4)), 0..20),
        ) {
            let segments = sizes.iter().map(|(address, bytes, blocks)| segment(*address, *bytes, blocks)).collect();
            prop_assert!(document(&figure(segments)).len() < 100_000);
        }
    }
}
