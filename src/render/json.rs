//! JSON: the report's document with the schema's version, the command, the diagnostics and the findings before it.
//!
//! One line for each row, so that a diff of two outputs shows the rows that changed.

use super::Options;
use super::escape::acts;
use super::numbers;
use crate::error::{Error, Result};
use crate::report::{Block, Cell, Piece, Report, Sentence};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The version of the JSON documents; a change that could break a reader raises it.
pub const SCHEMA_VERSION: u32 = 1;

pub(super) fn render(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    let mut head = Map::new();
    head.insert("schema_version".into(), SCHEMA_VERSION.into());
    head.insert("command".into(), report.command.into());
    let diagnostics: Vec<Value> = report
        .diagnostics
        .iter()
        .map(|d| {
            json!({"code": d.code, "severity": d.severity, "count": d.count, "message": d.message,
                   "first_offset": d.first_offset})
        })
        .collect();
    head.insert("diagnostics".into(), diagnostics.into());
    let findings = report.blocks.iter().filter_map(|block| match block {
        Block::Finding(f) => Some(json!({"code": f.code, "numbers": raw_numbers(&f.message),
                                         "message": numbers::sentence(&f.message),
                                         "advice": numbers::sentence(&f.advice)})),
        _ => None,
    });
    head.insert("findings".into(), findings.collect::<Vec<Value>>().into());
    write_members(head.iter().chain(&report.document), 0, true, out)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// The numbers of a sentence in their order, with their units.
fn raw_numbers(sentence: &Sentence) -> Vec<Value> {
    let number = |piece: &Piece| match piece {
        Piece::Words(_) => None,
        Piece::Number(cell) => Some(match cell {
            Cell::Bytes(bytes) | Cell::BytesChange(bytes) => json!({"bytes": bytes}),
            Cell::Nanos(nanos) => json!({"ns": nanos}),
            Cell::Count(n) | Cell::Number(n) => json!({"count": n}),
            Cell::CountChange(n) => json!({"count": n}),
            Cell::Flops(n) => json!({"flops": n}),
            Cell::Ratio(share) => json!({"share": share}),
            Cell::Address(address) => json!({"address": address}),
            Cell::Absent | Cell::Text(_) | Cell::Node { .. } => return None,
        }),
    };
    sentence.0.iter().filter_map(number).collect()
}

/// Whether a value is spread over lines: a list of objects, and what holds one.
fn spread(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| item.is_object() || spread(item)),
        Value::Object(members) => members.values().any(spread),
        _ => false,
    }
}

/// Writes a document that is a file format of its own, one line for each row.
///
/// # Errors
///
/// Where `out` cannot be written.
pub fn write_document(document: &Value, out: &mut dyn Write) -> Result<()> {
    write_value(document, 0, out)?;
    Ok(out.write_all(b"\n")?)
}

fn write_value(value: &Value, depth: usize, out: &mut dyn Write) -> Result<()> {
    match value {
        Value::String(text) => write_string(text, out),
        Value::Object(members) => write_members(members.iter(), depth, spread(value), out),
        Value::Array(items) => {
            let lines = spread(value);
            out.write_all(b"[")?;
            for (i, item) in items.iter().enumerate() {
                separate(i > 0, lines, depth + 1, out)?;
                write_value(item, depth + 1, out)?;
            }
            close(b"]", lines && !items.is_empty(), depth, out)
        }
        scalar => Ok(serde_json::to_writer(out, scalar).map_err(io_error)?),
    }
}

fn write_members<'a>(
    members: impl Iterator<Item = (&'a String, &'a Value)>,
    depth: usize,
    lines: bool,
    out: &mut dyn Write,
) -> Result<()> {
    out.write_all(b"{")?;
    let mut any = false;
    for (key, value) in members {
        separate(any, lines, depth + 1, out)?;
        any = true;
        write_string(key, out)?;
        out.write_all(b": ")?;
        write_value(value, depth + 1, out)?;
    }
    close(b"}", lines && any, depth, out)
}

fn separate(comma: bool, lines: bool, depth: usize, out: &mut dyn Write) -> Result<()> {
    match (comma, lines) {
        (true, true) => out.write_all(b",\n")?,
        (true, false) => out.write_all(b", ")?,
        (false, true) => out.write_all(b"\n")?,
        (false, false) => {}
    }
    if lines { indent(depth, out) } else { Ok(()) }
}

fn close(bracket: &[u8], lines: bool, depth: usize, out: &mut dyn Write) -> Result<()> {
    if lines {
        out.write_all(b"\n")?;
        indent(depth, out)?;
    }
    Ok(out.write_all(bracket)?)
}

fn indent(depth: usize, out: &mut dyn Write) -> Result<()> {
    for _ in 0..depth {
        out.write_all(b"  ")?;
    }
    Ok(())
}

/// A JSON string; characters that act on a terminal go in as `\u` escapes, which mean the same to a program.
fn write_string(text: &str, out: &mut dyn Write) -> Result<()> {
    let quoted = serde_json::to_string(text).map_err(io_error)?;
    if !quoted.chars().any(acts) {
        return Ok(out.write_all(quoted.as_bytes())?);
    }
    let mut safe = String::with_capacity(quoted.len() + 8);
    for c in quoted.chars() {
        if acts(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(c);
        }
    }
    Ok(out.write_all(safe.as_bytes())?)
}

fn io_error(error: serde_json::Error) -> Error {
    Error::from(io::Error::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(document: Value) -> String {
        let Value::Object(document) = document else { panic!("a document is an object") };
        let report = Report { command: "top", document, ..Report::default() };
        let mut out = Vec::new();
        render(&report, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_stand_one_a_line_and_scalars_and_short_lists_stay_together() {
        let text = rendered(
            json!({"limit": 10, "empty": [], "devices": [{"device": "cpu", "rows": [{"a": 1}, {"a": [1, 2]}]}]}),
        );
        assert_eq!(
            text,
            r#"{
  "schema_version": 1,
  "command": "top",
  "diagnostics": [],
  "findings": [],
  "limit": 10,
  "empty": [],
  "devices": [
    {
      "device": "cpu",
      "rows": [
        {"a": 1},
        {"a": [1, 2]}
      ]
    }
  ]
}
"#
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_and_leaves_nothing_that_acts(text in any::<String>()) {
            let out = rendered(json!({"rows": [{"key": text}]}));
            let back: Value = serde_json::from_str(&out).unwrap();
            prop_assert_eq!(back["rows"][0]["key"].as_str(), Some(text.as_str()));
            prop_assert!(!out.replace('\n', "").chars().any(acts));
        }
    }
}
