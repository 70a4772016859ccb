//! SVG elements: every shape with a `<title>`, every text escaped, every number short.

use crate::render::escape::visible;
use std::fmt::{Display, Write as _};

/// An SVG document being written.
pub(super) struct Canvas {
    out: String,
}

impl Canvas {
    /// A white page of this size in pixels.
    pub(super) fn new(width: u32, height: u32, title: &str) -> Self {
        let mut canvas = Self { out: String::new() };
        canvas.raw(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" role=\"img\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\" \
             font-size=\"12\" fill=\"#222\">\n<title>{}</title>\n",
            escaped(title)
        ));
        // Its own background: the page around it may be dark.
        let size = format!("width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#fff\"");
        canvas.shape("rect", &size, title);
        canvas
    }

    /// Markup that holds nothing from the input.
    pub(super) fn raw(&mut self, markup: impl Display) {
        // Writing to a String does not fail.
        let _ = write!(self.out, "{markup}");
    }

    /// A shape and what it says of itself.
    pub(super) fn shape(&mut self, element: &str, attributes: &str, title: &str) {
        self.raw(format_args!("<{element} {attributes}><title>{}</title></{element}>\n", escaped(title)));
    }

    /// Words at a place.
    pub(super) fn text(&mut self, (x, y): (f64, f64), attributes: &str, text: &str) {
        self.raw(format_args!("<text x=\"{}\" y=\"{}\" {attributes}>{}</text>\n", px(x), px(y), escaped(text)));
    }

    pub(super) fn finish(mut self) -> String {
        self.raw("</svg>\n");
        self.out
    }
}

/// A length to a tenth of a pixel.
pub(super) fn px(value: f64) -> f64 {
    let tenths = (value * 10.0).round() / 10.0 + 0.0;
    if tenths.is_finite() { tenths } else { 0.0 }
}

/// Text as XML has it. What would act is written out, what XML forbids is replaced.
pub(super) fn escaped(text: &str) -> String {
    let text = visible(text);
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A path in tenths of a pixel, of horizontal and vertical strokes.
pub(super) struct Steps {
    out: String,
    x: i64,
    y: i64,
}

impl Steps {
    pub(super) fn start(x: i64, y: i64) -> Self {
        Self { out: format!("M{} {}", tenths(x), tenths(y)), x, y }
    }

    /// Along to `x`; nothing is written until the height changes.
    pub(super) fn along(&mut self, x: i64) {
        if x != self.x {
            let _ = write!(self.out, "h{}", tenths(x - self.x));
            self.x = x;
        }
    }

    /// Up or down to `y`, at `x`.
    pub(super) fn to(&mut self, x: i64, y: i64) {
        if y != self.y {
            self.along(x);
            let _ = write!(self.out, "v{}", tenths(y - self.y));
            self.y = y;
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Tenths in decimal, as short as it goes: `12`, `.5`, `-3.2`.
fn tenths(n: i64) -> String {
    let (sign, whole, tenth) = (if n < 0 { "-" } else { "" }, n.abs() / 10, n.abs() % 10);
    match (whole, tenth) {
        (whole, 0) => format!("{}{whole}", if whole == 0 { "" } else { sign }),
        (0, tenth) => format!("{sign}.{tenth}"),
        _ => format!("{sign}{whole}.{tenth}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 5, -5, 10, -32, 120].map(tenths), ["0", ".5", "-.5", "1", "-3.2", "12"]);
    }

    #[test]
    fn level_stretches_are_one_stroke_and_extremes_at_one_place_stay() {
        let mut path = Steps::start(0, 100);
        path.to(10, 100);
        path.to(20, 50);
        path.to(20, 80);
        path.along(40);
        assert_eq!(path.finish(), "M0 10h2v-5v3h2");
    }
}
