//! Reports to bytes: the only place that turns 1234567 into words, and that escapes what strangers wrote.
//!
//! Every format is a file of its own with one function and one line in [`FORMATS`]. A renderer writes to whatever it is
//! given; where the bytes go, and how wide the terminal is, is the command line's business.

mod chart;
mod csv;
mod escape;
mod flame;
mod github;
mod json;
mod junit;
mod layout;
mod markdown;
pub mod numbers;
mod palette;
mod scale;
mod svg;
mod text;
mod torch;

pub use escape::visible;
pub use json::{SCHEMA_VERSION, write_document};
pub use svg::picture_columns;

use crate::error::{Error, Result};
use crate::report::{Figure, Report};
use std::io::Write;
use std::path::Path;

/// A way to write a report.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name that the command line knows it by.
    pub name: &'static str,
    /// What it is for, in a line.
    pub help: &'static str,
    /// What names of such files end in, where that tells.
    pub extension: &'static str,
    render: fn(&Report, &Options, &mut dyn Write) -> Result<()>,
}

/// All formats; the first is the default.
pub const FORMATS: &[Format] = &[
    Format { name: "table", help: "for people, in a terminal", extension: "txt", render: text::render },
    Format {
        name: "torch",
        help: "the text that PyTorch's key_averages().table() prints",
        extension: "",
        render: torch::render,
    },
    Format { name: "markdown", help: "GitHub's tables", extension: "md", render: markdown::render },
    Format { name: "csv", help: "the first table with raw numbers (RFC 4180)", extension: "csv", render: csv::render },
    Format {
        name: "json",
        help: "everything, with raw numbers, for programs",
        extension: "json",
        render: json::render,
    },
    Format {
        name: "github",
        help: "annotations of GitHub Actions, of what a command checks",
        extension: "",
        render: github::render,
    },
    Format {
        name: "junit",
        help: "XML for CI systems, of what a command checks",
        extension: "xml",
        render: junit::render,
    },
    Format { name: "svg", help: "a picture, of commands that draw one", extension: "svg", render: picture },
    Format { name: "folded", help: "stacks of flamegraph, one a line", extension: "folded", render: flame::folded },
];

/// The report's picture.
fn picture(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    match &report.figure {
        Some(Figure::Flame(figure)) => flame::svg(figure, out),
        Some(Figure::Memory(figure)) => svg::render(figure, out),
        Some(Figure::Segments(figure)) => svg::segments(figure, out),
        None => Err(Error::usage(format!("{} draws no picture for --format svg", report.command))),
    }
}

impl Format {
    /// The format whose files are named like this one.
    pub fn of_file(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        FORMATS.iter().find(|f| f.extension == extension).copied()
    }

    /// The format of this name.
    pub fn find(name: &str) -> Option<Self> {
        FORMATS.iter().find(|f| f.name == name).copied()
    }

    /// Writes `report` to `out`.
    ///
    /// # Errors
    ///
    /// Where `out` cannot be written, or the report has nothing that this format could hold.
    pub fn render(&self, report: &Report, options: &Options, out: &mut dyn Write) -> Result<()> {
        (self.render)(report, options, out)
    }
}

/// How to write for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many characters a line may have, where that can be kept.
    pub width: usize,
    /// Whether to emphasise with terminal colours.
    pub color: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: 100, color: false }
    }
}
