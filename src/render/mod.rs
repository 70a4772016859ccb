//! Reports to bytes: the only place that turns 1234567 into words, and that escapes what strangers wrote.
//!
//! Every format is a file of its own with one function and one line in [`FORMATS`]. A renderer writes to whatever it is
//! given; where the bytes go, and how wide the terminal is, is the command line's business.

mod csv;
mod escape;
mod json;
mod layout;
mod markdown;
pub mod numbers;
mod text;
mod torch;

pub use escape::visible;
pub use json::SCHEMA_VERSION;

use crate::error::Result;
use crate::report::Report;
use std::io::Write;

/// A way to write a report.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name that the command line knows it by.
    pub name: &'static str,
    /// What it is for, in a line.
    pub help: &'static str,
    render: fn(&Report, &Options, &mut dyn Write) -> Result<()>,
}

/// All formats; the first is the default.
pub const FORMATS: &[Format] = &[
    Format { name: "table", help: "for people, in a terminal", render: text::render },
    Format { name: "torch", help: "the text that PyTorch's key_averages().table() prints", render: torch::render },
    Format { name: "markdown", help: "GitHub's tables", render: markdown::render },
    Format { name: "csv", help: "the first table with raw numbers (RFC 4180)", render: csv::render },
    Format { name: "json", help: "everything, with raw numbers, for programs", render: json::render },
];

impl Format {
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
