//! CSV as RFC 4180 has it: the first table of the report, and those after it of the same columns. Column keys as header,
//! raw numbers, lines ended by CRLF. One record is one line, and what would act on a terminal is written out: names as
//! they are in the file are in JSON.

use super::Options;
use super::escape::visible;
use crate::error::{Error, Result};
use crate::report::{Block, Cell, Report, Table};
use std::io::Write;

pub(super) fn render(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    let mut tables = report.blocks.iter().filter_map(Block::table).peekable();
    let Some(first) = tables.peek().copied() else {
        return Err(Error::usage(format!("{} has no table for --format csv; use json", report.command)));
    };
    let keys = |table: &Table| table.columns.iter().map(|c| text_field(&c.key)).collect::<Vec<_>>();
    write_record(keys(first).into_iter(), out)?;
    for row in tables.filter(|table| keys(table) == keys(first)).flat_map(|table| &table.rows) {
        write_record(row.iter().map(field), out)?;
    }
    Ok(())
}

fn write_record(fields: impl Iterator<Item = String>, out: &mut dyn Write) -> Result<()> {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        out.write_all(field.as_bytes())?;
    }
    Ok(out.write_all(b"\r\n")?)
}

/// A cell as a field: numbers bare, text quoted where it must be, absent empty.
fn field(cell: &Cell) -> String {
    match cell {
        Cell::Absent => String::new(),
        Cell::Text(text) | Cell::Node { name: text, .. } => text_field(text),
        Cell::Count(n) | Cell::Flops(n) | Cell::Number(n) => n.to_string(),
        Cell::Bytes(n) | Cell::BytesChange(n) => n.to_string(),
        Cell::CountChange(n) => n.to_string(),
        Cell::Nanos(n) => n.to_string(),
        Cell::Ratio(r) if r.is_finite() => r.to_string(),
        Cell::Ratio(_) => String::new(),
        Cell::Address(n) => format!("{n:#x}"),
    }
}

/// Text, which may be a stranger's: names of groups also stand in the header.
fn text_field(text: &str) -> String {
    quoted(&defused(&visible(text)))
}

/// Text that a spreadsheet would run as a formula gets an apostrophe before it.
fn defused(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Column;
    use crate::units::Bytes;
    use proptest::prelude::*;

    fn rendered(rows: Vec<Vec<Cell>>) -> String {
        let columns = vec![Column::new("key", "Name"), Column::new("bytes", "Size")];
        let table = Table { columns, rows, ..Table::default() };
        let report = Report { command: "top", blocks: vec![Block::Table(table)], ..Report::default() };
        let mut out = Vec::new();
        render(&report, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// A reader by the grammar of RFC 4180.
    fn parse(text: &str) -> Vec<Vec<String>> {
        let (mut records, mut record, mut field) = (vec![], vec![], String::new());
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    while let Some(c) = chars.next() {
                        if c != '"' {
                            field.push(c);
                        } else if chars.next_if_eq(&'"').is_some() {
                            field.push('"');
                        } else {
                            break;
                        }
                    }
                }
                ',' => record.push(std::mem::take(&mut field)),
                '\r' if chars.next_if_eq(&'\n').is_some() => {
                    record.push(std::mem::take(&mut field));
                    records.push(std::mem::take(&mut record));
                }
                c => field.push(c),
            }
        }
        records
    }

    #[test]
    fn numbers_stay_numbers_and_formulas_become_text() {
        let rows = vec![vec!["=1+1".into(), Cell::Bytes(Bytes(-5))], vec!["a,\"b\"\n\x1b[2J".into(), Cell::Absent]];
        assert_eq!(rendered(rows), "key,bytes\r\n'=1+1,-5\r\n\"a,\"\"b\"\"\\n\\x1b[2J\",\r\n");
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_but_for_what_acts_and_the_apostrophe_before_a_formula(text in any::<String>(), n in any::<i64>()) {
            let records = parse(&rendered(vec![vec![text.as_str().into(), Cell::Bytes(Bytes(n))]]));
            prop_assert_eq!(records.len(), 2);
            let read = &records[1][0];
            prop_assert!(!read.starts_with(['=', '+', '-', '@', '\t', '\r']));
            let bare = if text.starts_with(['=', '+', '-', '@']) { &read[1..] } else { read };
            prop_assert_eq!(bare, visible(&text));
            prop_assert_eq!(&records[1][1], &n.to_string());
        }
    }
}
