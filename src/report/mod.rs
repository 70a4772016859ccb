//! Numbers to tables and figures for people and programs; numbers stay numbers.
//!
//! A report is a struct of its options with one `run`, in a file of its own, that turns what `analysis` computed into a
//! [`Report`]. Nothing here formats a number or writes a byte: that is `render`'s work.

pub mod baseline;
pub mod blocks;
mod case;
pub mod check;
pub mod diff;
mod findings;
pub mod flamegraph;
mod host;
pub mod lines;
mod memory;
mod names;
pub mod peak;
pub mod reconcile;
pub mod segments;
mod sentence;
pub mod smi;
mod snapshot_summary;
pub mod steps;
pub mod summary;
pub mod timeline;
pub mod top;
mod torch;
pub mod tree;

pub use case::{Case, CaseOutcome};
pub use memory::MemoryOptions;
pub use sentence::{Piece, Sentence};
pub use torch::{TorchTable, TorchWidths};

use crate::error::Result;
use crate::trace::Diagnostics;
use crate::units::{Bytes, Nanos};

/// What a command has to say: blocks for people in reading order, and a document for programs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The command's name, such as `top`.
    pub command: &'static str,
    /// What people read, from top to bottom.
    pub blocks: Vec<Block>,
    /// The members of the JSON document besides `schema_version`, `command` and `diagnostics`.
    pub document: serde_json::Map<String, serde_json::Value>,
    /// What was skipped or odd in the inputs; the document holds all of it.
    pub diagnostics: Diagnostics,
    /// What was checked, where the command checks anything.
    pub cases: Vec<Case>,
    /// PyTorch's own table, where the command has one.
    pub torch: Option<TorchTable>,
    /// The picture, where the command draws one.
    pub figure: Option<Figure>,
}

/// A picture of numbers.
#[derive(Clone, Debug)]
pub enum Figure {
    /// Paths and what each holds.
    Flame(flamegraph::FlameFigure),
    /// Memory over time.
    Memory(Box<timeline::MemoryFigure>),
    /// Segments and their blocks.
    Segments(Box<segments::SegmentsFigure>),
}

impl Report {
    /// Reduces every table to its first column and these, in this order; they are then shown however narrow the page.
    ///
    /// # Errors
    ///
    /// Where no table has a column of one of these names.
    pub fn select_columns(&mut self, wanted: &[String]) -> Result<()> {
        let tables = || self.blocks.iter().filter_map(Block::table);
        for name in wanted {
            let known: Vec<&str> = tables().flat_map(|t| &t.columns).map(|c| c.key.as_str()).collect();
            names::find(name, &known, "column")?;
        }
        for table in self.blocks.iter_mut().filter_map(Block::table_mut) {
            table.select(wanted);
        }
        Ok(())
    }
}

/// A part of a report.
#[derive(Clone, Debug)]
pub enum Block {
    /// A heading over what follows.
    Heading(String),
    /// A sentence or a few.
    Text(Sentence),
    /// A table. CSV output holds the first table of a report.
    Table(Table),
    /// A few numbers with their names, such as totals.
    Facts(Vec<(String, Cell)>),
    /// Something the user should know, with what to do.
    Finding(Finding),
    /// What is folded away under a title where the format can fold, and left out where it cannot.
    Details(String, Vec<Block>),
}

impl Block {
    /// The table, where it is one.
    pub fn table(&self) -> Option<&Table> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }

    fn table_mut(&mut self) -> Option<&mut Table> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }
}

/// A sentence with a number, a cause and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A stable word for programs, such as `attention-written-out`.
    pub code: &'static str,
    /// What was found, with its numbers.
    pub message: Sentence,
    /// What to do about it; empty where there is nothing.
    pub advice: Sentence,
}

/// A table of typed cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows; empty for none.
    pub title: String,
    /// The columns, most telling first after the name.
    pub columns: Vec<Column>,
    /// The rows; each has a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// How many rows were left out, and the option that brings them.
    pub left_out: Option<LeftOut>,
}

impl Table {
    /// Keeps the first column and those of these names, in this order.
    fn select(&mut self, wanted: &[String]) {
        let known: Vec<&str> = self.columns.iter().map(|c| c.key.as_str()).collect();
        let mut places = vec![0];
        for place in wanted.iter().filter_map(|name| names::place(name, &known)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        if self.columns.is_empty() {
            return;
        }
        self.columns = places.iter().map(|i| self.columns[*i].clone().priority(0)).collect();
        for row in &mut self.rows {
            *row = places.iter().map(|i| row.get(*i).cloned().unwrap_or(Cell::Absent)).collect();
        }
    }
}

/// Rows that a limit hides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// How many rows.
    pub rows: usize,
    /// The option that brings them, such as `--limit -1`.
    pub option: &'static str,
}

/// A column of a [`Table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name for programs, with the unit as suffix: `self_device_memory_usage_bytes`.
    pub key: String,
    /// The name for people: `Self CUDA Mem`.
    pub title: String,
    /// In a terminal too narrow for all, columns of the highest number go first; those of 0 always stay.
    pub priority: u8,
}

impl Column {
    /// The priority of columns that people see only when they ask for them; programs always get them.
    pub const DETAIL: u8 = 100;

    /// A column that always shows.
    pub fn new(key: impl Into<String>, title: impl Into<String>) -> Self {
        Self { key: key.into(), title: title.into(), priority: 0 }
    }

    /// The same column, dropped from narrow terminals: the highest number first.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }
}

/// A value of a [`Table`], typed so that it is sorted as a number and printed once.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not known or not applicable; never the same as zero.
    Absent,
    /// Words, most likely from the input: `render` escapes them for where they go.
    Text(String),
    /// A number of things.
    Count(u64),
    /// A size, or a change of size.
    Bytes(Bytes),
    /// A change of size whose sign matters either way.
    BytesChange(Bytes),
    /// A change of a number of things, likewise.
    CountChange(i64),
    /// A duration or a time from the trace's start.
    Nanos(Nanos),
    /// A share: 0.125 is 12.5 %.
    Ratio(f64),
    /// Floating point operations.
    Flops(u64),
    /// An address.
    Address(u64),
    /// A number that names a thing and counts nothing, such as a line's.
    Number(u64),
    /// A name in a tree whose rows stand below those that they belong to.
    Node {
        /// The name, most likely from the input.
        name: String,
        /// How many rows stand above it, from 0.
        depth: usize,
    },
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Bytes> for Cell {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Nanos> for Cell {
    fn from(nanos: Nanos) -> Self {
        Self::Nanos(nanos)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}
