//! For people: tables of the width that there is, numbers to the right, what was left out said below.

use super::Options;
use super::chart;
use super::layout::{GAP, Page, PageColumn, words};
use super::numbers;
use crate::error::Result;
use crate::report::{Block, Cell, Finding, LeftOut, Report, Table};
use std::io::Write;
use unicode_width::UnicodeWidthStr;

pub(super) fn render(report: &Report, options: &Options, out: &mut dyn Write) -> Result<()> {
    let mut page = TextPage { options, out };
    let chart = chart::of(report, options.width);
    for line in &chart {
        writeln!(page.out, "{line}")?;
    }
    // A terminal folds nothing, and a table without rows says nothing.
    let empty = |block: &Block| block.table().is_some_and(|t| t.rows.is_empty());
    let blocks = report.blocks.iter().filter(|block| !matches!(block, Block::Details(..)) && !empty(block));
    for (i, block) in blocks.enumerate() {
        if i > 0 || !chart.is_empty() {
            writeln!(page.out)?;
        }
        match block {
            Block::Heading(text) => page.heading(text)?,
            Block::Text(text) => page.paragraph(&safe(&numbers::sentence(text)), "", 0)?,
            Block::Table(table) => page.table(table)?,
            Block::Facts(facts) => page.facts(facts)?,
            Block::Finding(finding) => page.finding(finding)?,
            Block::Details(..) => {}
        }
    }
    Ok(())
}

fn safe(text: &str) -> String {
    words(&Cell::Text(text.to_owned()))
}

/// ANSI's select graphic rendition.
#[derive(Clone, Copy)]
enum Style {
    Bold = 1,
    Dim = 2,
    Yellow = 33,
}

struct TextPage<'a> {
    options: &'a Options,
    out: &'a mut dyn Write,
}

impl TextPage<'_> {
    fn styled(&mut self, style: Style, text: &str) -> Result<()> {
        if self.options.color {
            write!(self.out, "\x1b[{}m{text}\x1b[0m", style as u8)?;
        } else {
            write!(self.out, "{text}")?;
        }
        Ok(())
    }

    fn heading(&mut self, text: &str) -> Result<()> {
        self.styled(Style::Bold, &safe(text))?;
        Ok(writeln!(self.out)?)
    }

    /// Words filled into lines; all but the first line are indented by `hang`. `lead` is emphasised.
    fn paragraph(&mut self, text: &str, lead: &str, hang: usize) -> Result<()> {
        self.styled(Style::Yellow, lead)?;
        let mut used = lead.width();
        for word in text.split_whitespace() {
            let first = used == lead.width();
            if !first && used + 1 + word.width() > self.options.width {
                write!(self.out, "\n{:hang$}", "")?;
                used = hang;
            } else if !first {
                write!(self.out, " ")?;
                used += 1;
            }
            write!(self.out, "{word}")?;
            used += word.width();
        }
        Ok(writeln!(self.out)?)
    }

    fn finding(&mut self, finding: &Finding) -> Result<()> {
        self.paragraph(&safe(&numbers::sentence(&finding.message)), "! ", 2)?;
        if !finding.advice.is_empty() {
            self.paragraph(&format!("  {}", safe(&numbers::sentence(&finding.advice))), "  ", 2)?;
        }
        Ok(())
    }

    fn facts(&mut self, facts: &[(String, Cell)]) -> Result<()> {
        let names: Vec<String> = facts.iter().map(|(name, _)| safe(name)).collect();
        let values: Vec<String> = facts.iter().map(|(_, value)| words(value)).collect();
        let widest = |texts: &[String]| texts.iter().map(|t| t.width()).max().unwrap_or(0);
        let (name_width, value_width) = (widest(&names), widest(&values));
        for (name, value) in names.iter().zip(&values) {
            let space = name_width - name.width() + GAP + value_width - value.width();
            writeln!(self.out, "{name}{:space$}{value}", "")?;
        }
        Ok(())
    }

    fn table(&mut self, table: &Table) -> Result<()> {
        if !table.title.is_empty() {
            self.heading(&table.title)?;
        }
        let page = Page::fit(table, self.options.width);
        let header = line(&page.columns, |column| &column.title);
        self.styled(Style::Bold, &header)?;
        writeln!(self.out)?;
        let rule: Vec<String> = page.columns.iter().map(|c| "─".repeat(c.width)).collect();
        self.styled(Style::Dim, &rule.join(&" ".repeat(GAP)))?;
        writeln!(self.out)?;
        for row in 0..table.rows.len() {
            writeln!(self.out, "{}", line(&page.columns, |column| &column.cells[row]))?;
        }
        for note in notes(table.left_out.as_ref(), &page.dropped) {
            self.paragraph(&note, "", 2)?;
        }
        Ok(())
    }
}

/// A line of a table: numbers to the right, words to the left, nothing after the last.
fn line<'a>(columns: &'a [PageColumn], text: impl Fn(&'a PageColumn) -> &'a str) -> String {
    let mut line = String::new();
    for (i, column) in columns.iter().enumerate() {
        let text = text(column);
        let space = " ".repeat(column.width.saturating_sub(text.width()));
        if i > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        if column.numeric {
            line.push_str(&space);
            line.push_str(text);
        } else {
            line.push_str(text);
            line.push_str(&space);
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// What is not shown, and which options bring it.
pub(super) fn notes(rows: Option<&LeftOut>, columns: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(LeftOut { rows, option }) = rows {
        let s = if *rows == 1 { "" } else { "s" };
        notes.push(format!("{} more row{s}: {option}", numbers::count(*rows as u64)));
    }
    if !columns.is_empty() {
        notes.push(format!("left out for want of width: {} (--columns or --width)", columns.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::escape::acts;
    use super::*;
    use crate::report::Column;
    use crate::units::Bytes;
    use proptest::prelude::*;

    fn rendered(blocks: Vec<Block>, width: usize, color: bool) -> String {
        let mut out = Vec::new();
        let report = Report { command: "top", blocks, ..Report::default() };
        render(&report, &Options { width, color }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn table(name: &str) -> Block {
        let columns = vec![Column::new("key", "Name"), Column::new("size", "Size")];
        let rows = vec![vec![name.into(), Cell::Bytes(Bytes(1 << 20))], vec!["mm".into(), Cell::Absent]];
        Block::Table(Table {
            columns,
            rows,
            left_out: Some(LeftOut { rows: 1234, option: "--limit -1" }),
            ..Table::default()
        })
    }

    #[test]
    fn numbers_stand_to_the_right_and_what_is_left_out_below() {
        insta::assert_snapshot!(rendered(vec![table("aten::mm")], 100, false), @r"
        Name          Size
        ────────  ────────
        aten::mm  1.00 MiB
        mm               -
        1,234 more rows: --limit -1
        ");
    }

    #[test]
    fn sentences_are_filled_into_the_width() {
        let finding = Finding { code: "x", message: "one two three four".into(), advice: "five six".into() };
        assert_eq!(rendered(vec![Block::Finding(finding)], 12, false), "! one two\n  three four\n  five six\n");
    }

    #[test]
    fn facts_are_aligned() {
        let facts = vec![("Peak".to_owned(), Cell::Bytes(Bytes(2048))), ("Calls".to_owned(), Cell::Count(3))];
        assert_eq!(rendered(vec![Block::Facts(facts)], 80, false), "Peak   2.00 KiB\nCalls         3\n");
    }

    proptest! {
        #[test]
        fn no_text_reaches_the_terminal_as_a_control_or_breaks_the_width(text in any::<String>(), width in 24usize..120) {
            let blocks = vec![table(&text), Block::Text(text.clone().into()), Block::Heading(text.clone()),
                Block::Facts(vec![(text.clone(), Cell::Text(text))])];
            let out = rendered(blocks.clone(), width, false);
            prop_assert!(!out.replace('\n', "").chars().any(acts));
            let table = rendered(vec![blocks[0].clone()], width, false);
            prop_assert!(table.lines().take(4).all(|line| line.width() <= width), "{}", table);
        }
    }
}
