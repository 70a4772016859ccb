//! GitHub's Markdown, for pull requests and issues: the columns that people see, at any width.

use super::Options;
use super::chart;
use super::escape::push_visible;
use super::layout::{for_people, is_numeric, words};
use super::numbers;
use super::text::notes;
use crate::error::Result;
use crate::report::{Block, Cell, Finding, Report, Table};
use std::io::Write;

pub(super) fn render(report: &Report, options: &Options, out: &mut dyn Write) -> Result<()> {
    let chart = chart::of(report, options.width);
    for line in &chart {
        // Indented code: no name can end it, as it could a fence.
        writeln!(out, "    {line}")?;
    }
    if !chart.is_empty() {
        writeln!(out)?;
    }
    write_blocks(&report.blocks, out)
}

fn write_blocks(blocks: &[Block], out: &mut dyn Write) -> Result<()> {
    // A table without rows says nothing.
    let empty = |block: &Block| block.table().is_some_and(|t| t.rows.is_empty());
    for (i, block) in blocks.iter().filter(|block| !empty(block)).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        match block {
            Block::Heading(text) => writeln!(out, "### {}", escaped(text))?,
            Block::Text(text) => writeln!(out, "{}", escaped(&numbers::sentence(text)))?,
            Block::Table(table) => write_table(table, out)?,
            Block::Facts(facts) => {
                for (name, value) in facts {
                    writeln!(out, "- {}: {}", escaped(name), field(value))?;
                }
            }
            Block::Finding(Finding { message, advice, .. }) => {
                let [message, advice] = [message, advice].map(|s| escaped(&numbers::sentence(s)));
                writeln!(out, "> **{message}** {advice}")?;
            }
            Block::Details(title, blocks) => {
                // Markdown within HTML is read as such after an empty line.
                writeln!(out, "<details><summary>{}</summary>\n", escaped(title))?;
                write_blocks(blocks, out)?;
                writeln!(out, "\n</details>")?;
            }
        }
    }
    Ok(())
}

fn write_table(table: &Table, out: &mut dyn Write) -> Result<()> {
    if !table.title.is_empty() {
        writeln!(out, "#### {}\n", escaped(&table.title))?;
    }
    let shown: Vec<usize> = (0..table.columns.len()).filter(|i| for_people(&table.columns[*i])).collect();
    let title = |i: &usize| escaped(&table.columns[*i].title);
    let rule = |i: &usize| if is_numeric(table, *i) { "---:" } else { "---" }.to_owned();
    write_row(shown.iter().map(title), out)?;
    write_row(shown.iter().map(rule), out)?;
    for row in &table.rows {
        write_row(shown.iter().map(|i| row.get(*i).map(field).unwrap_or_default()), out)?;
    }
    for note in notes(table.left_out.as_ref(), &[]) {
        writeln!(out, "\n{}", escaped(&note))?;
    }
    Ok(())
}

fn write_row(fields: impl Iterator<Item = String>, out: &mut dyn Write) -> Result<()> {
    write!(out, "|")?;
    for field in fields {
        write!(out, " {field} |")?;
    }
    Ok(writeln!(out)?)
}

fn field(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => escaped(text),
        Cell::Node { name, depth } => format!("{}{}", "&nbsp;&nbsp;".repeat(*depth), escaped(name)),
        number => words(number),
    }
}

/// Text that Markdown shows as it is: no markup, no HTML, no links, no one mentioned, on one line.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 8);
    let mut visible = String::new();
    for c in text.chars() {
        visible.clear();
        push_visible(&mut visible, c);
        for c in visible.chars() {
            match c {
                '<' => safe.push_str("&lt;"),
                '>' => safe.push_str("&gt;"),
                '&' => safe.push_str("&amp;"),
                '|' => safe.push_str("&#124;"),
                // A word joiner, which is not seen, keeps GitHub from taking what follows as a user's name.
                '@' => safe.push_str("@\u{2060}"),
                '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '$' => safe.extend(['\\', c]),
                c => safe.push(c),
            }
        }
    }
    // At the start of a line these would make a heading, a list or a rule; a link needs its colon.
    if safe.starts_with(['#', '-', '+', '=']) {
        safe.insert(0, '\\');
    }
    safe.replace("://", "\\://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Column;
    use proptest::prelude::*;

    fn rendered(name: &str) -> String {
        let columns = vec![Column::new("key", "Name"), Column::new("count", "Calls")];
        let table = Table { columns, rows: vec![vec![name.into(), Cell::Count(1234)]], ..Table::default() };
        let mut out = Vec::new();
        let report = Report { command: "top", blocks: vec![Block::Table(table)], ..Report::default() };
        render(&report, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_stand_as_they_are() {
        assert_eq!(
            rendered("a::_b<int>|`x`"),
            "| Name | Calls |\n| --- | ---: |\n| a::\\_b&lt;int&gt;&#124;\\`x\\` | 1,234 |\n"
        );
        assert!(rendered("![](http://x)").contains("| !\\[\\](http\\://x) |"));
    }

    proptest! {
        #[test]
        fn any_name_is_one_field_of_one_line_without_markup(name in any::<String>()) {
            let out = rendered(&name);
            prop_assert_eq!(out.lines().count(), 3);
            let row = out.lines().last().unwrap();
            prop_assert_eq!(row.matches('|').count(), 3);
            prop_assert!(!row.contains('<'));
            let bare = row.char_indices().filter(|(_, c)| *c == '`').all(|(i, _)| row[..i].ends_with('\\'));
            prop_assert!(bare);
        }
    }
}
