//! Flame graphs: as SVG, drawn by inferno, and as folded stacks, one a line, which every flame graph tool reads.
//!
//! A folded line is `outermost;...;innermost value`. Names come from strangers: what would end a name or a line in it is
//! replaced here; inferno escapes what would act in XML.

use super::escape::visible;
use super::numbers;
use super::{Options, Report};
use crate::error::{Error, Result};
use crate::report::Figure;
use crate::report::flamegraph::{FlameFigure, Unit};
use inferno::flamegraph as inferno;
use std::io::{self, Write};

/// The stacks as lines of text.
pub(super) fn folded(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    let Some(Figure::Flame(figure)) = &report.figure else {
        return Err(Error::usage(format!("{} has no stacks for --format folded; flamegraph does", report.command)));
    };
    for line in lines(figure) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The picture.
pub(super) fn svg(figure: &FlameFigure, out: &mut dyn Write) -> Result<()> {
    let lines = lines(figure);
    let mut options = inferno::Options::default();
    options.title = visible(&figure.title).into_owned();
    options.subtitle = Some(visible(&numbers::sentence(&figure.subtitle)).into_owned());
    let (count_name, palette) = match figure.unit {
        Unit::Bytes => ("bytes", inferno::color::BasicPalette::Mem),
        Unit::Nanos => ("ns", inferno::color::BasicPalette::Hot),
        Unit::Count => ("allocations", inferno::color::BasicPalette::Mem),
    };
    options.count_name = count_name.into();
    options.colors = inferno::color::Palette::Basic(palette);
    // One name, one colour, on every run.
    options.hash = true;
    options.name_type = String::new();
    options.image_width = Some(1200);
    // In percent: what is narrower than a pixel shows nothing and makes the file large.
    options.min_width = 0.1;
    inferno::from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(cannot_draw)
}

fn cannot_draw(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::InvalidData { Error::usage(error.to_string()) } else { error.into() }
}

/// The stacks, sorted.
fn lines(figure: &FlameFigure) -> Vec<String> {
    // A parent stands before its children, so its text is known.
    let mut stacks: Vec<String> = Vec::with_capacity(figure.nodes.len());
    for node in &figure.nodes {
        let name = safe(&node.name);
        stacks.push(match node.parent.and_then(|parent| stacks.get(parent)) {
            Some(outer) => format!("{outer};{name}"),
            None => name,
        });
    }
    let valued = stacks.into_iter().zip(&figure.nodes).filter(|(_, node)| node.value > 0);
    let mut lines: Vec<String> =
        valued.map(|(stack, node)| format!("{} {}", unlike_a_value(&stack), node.value)).collect();
    lines.sort_unstable();
    lines
}

/// A name that ends neither itself nor its line.
fn safe(name: &str) -> String {
    let name = visible(name.trim()).replace(';', ",");
    if name.is_empty() { "(no name)".into() } else { name }
}

/// A stack whose last word is no number: tools take two numbers at the end of a line for a comparison.
fn unlike_a_value(stack: &str) -> String {
    match stack.rsplit_once(' ') {
        Some((start, last)) if last.parse::<f64>().is_ok() => format!("{start}_{last}"),
        _ => stack.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::flamegraph::FlameNode;
    use proptest::prelude::*;

    fn figure(nodes: &[(&str, Option<usize>, u64)]) -> FlameFigure {
        let node = |(name, parent, value): &(&str, Option<usize>, u64)| FlameNode {
            name: (*name).to_owned(),
            parent: *parent,
            value: *value,
        };
        FlameFigure {
            title: "memory <live> & more".into(),
            subtitle: "of \u{1b}[31mx".into(),
            unit: Unit::Bytes,
            nodes: nodes.iter().map(node).collect(),
        }
    }

    fn drawn(figure: &FlameFigure) -> String {
        let mut out = Vec::new();
        svg(figure, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const HOSTILE: [(&str, Option<usize>, u64); 7] = [
        ("step;forged 7", None, 0),
        ("two\nlines 9", Some(0), 5),
        ("<script>alert(\"1\")</script>&amp;", Some(0), 6),
        ("ends in 10", Some(0), 7),
        ("ends in -1e3", None, 8),
        (" ", None, 9),
        ("]]>'\u{202e}", Some(5), 1),
    ];

    #[test]
    fn names_end_neither_themselves_nor_their_line() {
        assert_eq!(
            lines(&figure(&HOSTILE)),
            [
                "(no name) 9",
                "(no name);]]>'\\u{202e} 1",
                "ends in_-1e3 8",
                "step,forged 7;<script>alert(\"1\")</script>&amp, 6",
                "step,forged 7;ends in_10 7",
                "step,forged 7;two\\nlines_9 5",
            ]
        );
    }

    #[test]
    fn names_are_no_markup_in_the_picture() {
        let text = drawn(&figure(&HOSTILE));
        assert!(!text.contains("<script>alert") && text.contains("&lt;script&gt;alert"), "{text}");
        assert!(text.contains("memory &lt;live&gt; &amp; more"));
        assert!(text.contains("all (36 bytes, 100%)"));
        assert_eq!(text, drawn(&figure(&HOSTILE)));
    }

    proptest! {
        #[test]
        fn any_names_are_drawn_and_no_byte_is_lost(
            nodes in proptest::collection::vec((any::<String>(), proptest::option::of(0usize..20), 0u64..1000), 1..20),
        ) {
            let nodes: Vec<_> =
                nodes.iter().enumerate().map(|(i, (n, p, v))| (n.as_str(), p.filter(|p| *p < i), v + u64::from(i == 0))).collect();
            let figure = figure(&nodes);
            let total: u64 = nodes.iter().map(|n| n.2).sum();
            let of_line = |line: &String| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
            prop_assert_eq!(lines(&figure).iter().map(of_line).sum::<u64>(), total);
            drawn(&figure);
        }
    }
}
