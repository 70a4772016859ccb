//! The values of many dictionaries of one layout, by key.
//!
//! A history has millions of entries with the same keys, and most of their values repeat or are integers. In columns a
//! value that every dictionary has takes no room, and an integer of 64 bits needs no handle beside it.

use super::{Handle, Kind, int_handle};
use crate::error::Result;

/// A row for each dictionary.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: usize,
}

/// The values of one key.
#[derive(Debug)]
enum Column {
    /// All the same.
    Same(Handle),
    Values(Vec<Handle>),
    /// Integers of any size.
    Ints(Vec<i64>),
}

/// A value of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Value(Handle),
    Int(i64),
}

impl Table {
    /// A table without rows, of so many columns.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: (0..columns).map(|_| Column::Same(Handle::NONE)).collect(), rows: 0 }
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row. `wide` are the integers of the document that do not fit in a handle; those of the row at its end, from
    /// `free` on, are forgotten there where the table holds them itself.
    pub(super) fn push(
        &mut self,
        row: impl DoubleEndedIterator<Item = Handle> + ExactSizeIterator + Clone,
        wide: &mut Vec<i64>,
        free: usize,
    ) -> Result<()> {
        for (column, value) in self.columns.iter_mut().zip(row.clone()) {
            column.push(value, self.rows, wide)?;
        }
        self.rows += 1;
        for (column, value) in self.columns.iter().zip(row).rev() {
            let last = value.kind() == Kind::Wide && value.place() + 1 == wide.len() && value.place() >= free;
            if last && matches!(column, Column::Ints(_)) {
                wide.pop();
            }
        }
        Ok(())
    }

    /// The value in a column and row.
    pub(super) fn get(&self, column: usize, row: usize) -> Field {
        match &self.columns[column] {
            Column::Same(value) => Field::Value(*value),
            Column::Values(values) => Field::Value(values[row]),
            Column::Ints(ints) => Field::Int(ints[row]),
        }
    }
}

impl Column {
    /// Adds the value of row `rows`.
    fn push(&mut self, value: Handle, rows: usize, wide: &mut Vec<i64>) -> Result<()> {
        match self {
            Self::Same(same) if rows == 0 => *same = value,
            Self::Same(same) if *same == value => {}
            Self::Same(same) => {
                let same = *same;
                *self = match int(same, wide) {
                    Some(n) if value.kind() == Kind::Wide => Self::Ints(vec![n; rows]),
                    _ => Self::Values(vec![same; rows]),
                };
                return self.push(value, rows, wide);
            }
            Self::Values(values) => values.push(value),
            Self::Ints(ints) => {
                if let Some(n) = int(value, wide) {
                    ints.push(n);
                    return Ok(());
                }
                let mut values = ints.iter().map(|n| int_handle(*n, wide)).collect::<Result<Vec<Handle>>>()?;
                values.push(value);
                *self = Self::Values(values);
            }
        }
        Ok(())
    }
}

fn int(value: Handle, wide: &[i64]) -> Option<i64> {
    match value.kind() {
        Kind::Small => Some(value.small()),
        Kind::Wide => Some(wide[value.place()]),
        _ => None,
    }
}
