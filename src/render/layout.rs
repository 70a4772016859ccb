//! Columns into a line: which of them, and how wide.

use super::escape::push_visible;
use super::numbers;
use crate::report::{Cell, Column, Table};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands between two columns.
pub(super) const GAP: usize = 2;
/// A column of text is not squeezed below this while another column can be left out instead.
const COMFORTABLE: usize = 36;
/// A column of text is never squeezed below this.
const LEAST: usize = 8;
/// No cell is worth more than this on any screen.
const MOST: usize = 10_000;
/// How many levels of a tree are drawn before a name; those above are not.
const MOST_BRANCHES: usize = 20;

/// A table whose cells are words, escaped for a terminal.
pub(super) struct Page {
    pub(super) columns: Vec<PageColumn>,
    /// Titles of the columns that did not fit.
    pub(super) dropped: Vec<String>,
}

pub(super) struct PageColumn {
    pub(super) title: String,
    pub(super) cells: Vec<String>,
    pub(super) width: usize,
    pub(super) numeric: bool,
    priority: u8,
}

/// Whether people see this column without asking.
pub(super) fn for_people(column: &Column) -> bool {
    column.priority < Column::DETAIL
}

/// Whether the column holds numbers, which are aligned to the right.
pub(super) fn is_numeric(table: &Table, column: usize) -> bool {
    let cells = table.rows.iter().filter_map(|row| row.get(column));
    let mut known = cells.filter(|cell| !matches!(cell, Cell::Absent)).peekable();
    match known.peek() {
        None => column > 0,
        Some(_) => known.all(|cell| !matches!(cell, Cell::Text(_) | Cell::Node { .. })),
    }
}

impl Page {
    /// The columns of `table` that fit into `width`, and how wide each of them is.
    pub(super) fn fit(table: &Table, width: usize) -> Self {
        let shown = table.columns.iter().enumerate().filter(|(_, column)| for_people(column));
        let columns = shown.map(|(i, column)| PageColumn::new(table, i, column)).collect();
        let mut page = Self { columns, dropped: Vec::new() };
        while page.least_width(COMFORTABLE) > width && page.drop_one() {}
        page.squeeze(width);
        page
    }

    fn least_width(&self, text: usize) -> usize {
        let least = |c: &PageColumn| if c.numeric { c.width } else { c.width.min(text.max(c.title.width())) };
        self.columns.iter().map(least).sum::<usize>() + GAP * self.columns.len().saturating_sub(1)
    }

    /// Leaves out the least important column, the last of equals; false where all that are left must stay.
    fn drop_one(&mut self) -> bool {
        let least = self.columns.iter().enumerate().max_by_key(|(i, c)| (c.priority, *i));
        match least {
            Some((i, column)) if column.priority > 0 => {
                self.dropped.insert(0, self.columns.remove(i).title);
                true
            }
            _ => false,
        }
    }

    /// Makes the widest columns of text narrower until all fit, or none can give more.
    fn squeeze(&mut self, width: usize) {
        let most = self.columns.iter().filter(|c| !c.numeric).map(|c| c.width).max().unwrap_or(0);
        // The widest limit under which all fit; widths only shrink with it, so halving finds it.
        let (mut fits, mut too_wide) = (LEAST, most + 1);
        while fits + 1 < too_wide {
            let middle = fits + (too_wide - fits) / 2;
            if self.least_width(middle) <= width { fits = middle } else { too_wide = middle }
        }
        for column in self.columns.iter_mut().filter(|c| !c.numeric) {
            column.width = column.width.min(fits.max(column.title.width()));
            for cell in &mut column.cells {
                if cell.width() > column.width {
                    *cell = shortened(cell, column.width);
                }
            }
        }
    }
}

impl PageColumn {
    fn new(table: &Table, i: usize, column: &Column) -> Self {
        let title = words(&Cell::Text(column.title.clone()));
        let mut cells: Vec<String> = table.rows.iter().map(|row| row.get(i).map(words).unwrap_or_default()).collect();
        draw_branches(table, i, &mut cells);
        let width = cells.iter().map(|c| c.width()).max().unwrap_or(0).max(title.width());
        Self { title, cells, width, numeric: is_numeric(table, i), priority: column.priority }
    }
}

/// Puts the branches of a tree before the names of its nodes.
fn draw_branches(table: &Table, column: usize, cells: &mut [String]) {
    // By depth, whether a row further down hangs on the branch. From the bottom up, because the last one ends it.
    let mut goes_on: Vec<bool> = Vec::new();
    for (row, cell) in table.rows.iter().zip(cells).rev() {
        let Some(Cell::Node { depth, .. }) = row.get(column) else { continue };
        let depth = *depth;
        let below = |level: usize| goes_on.get(level).copied().unwrap_or(false);
        let mut branches = String::new();
        let first = (depth + 1).saturating_sub(MOST_BRANCHES).max(1);
        if first > 1 {
            branches.push_str("… ");
        }
        for level in first..=depth {
            branches.push_str(match (below(level), level == depth) {
                (true, true) => "├ ",
                (false, true) => "└ ",
                (true, false) => "│ ",
                (false, false) => "  ",
            });
        }
        cell.insert_str(0, &branches);
        goes_on.truncate(depth);
        goes_on.resize(depth, false);
        goes_on.push(true);
    }
}

/// A cell in words, with nothing in it that acts on a terminal.
pub(super) fn words(cell: &Cell) -> String {
    let (Cell::Text(text) | Cell::Node { name: text, .. }) = cell else { return numbers::cell(cell) };
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        push_visible(&mut safe, c);
        if safe.len() > MOST {
            safe.push('…');
            break;
        }
    }
    safe
}

/// The text, with its middle left out where it is wider than this.
pub(super) fn fitted(text: &str, width: usize) -> String {
    let text = super::escape::visible(text);
    if text.width() <= width { text.into_owned() } else { shortened(&text, width) }
}

/// The text with its middle left out: both ends tell more than one does (namespaces, template arguments). Of a path, such
/// as a Python frame stands in, the outer folders are left out: they are most often those of all.
fn shortened(text: &str, width: usize) -> String {
    let mut text = text;
    if text.starts_with('/') && !text.contains("; ") {
        // The end that fits beside the sign for what is left out; no longer than that is anything looked at.
        let end: usize = taken(text.chars().rev(), width.saturating_sub(1)).len();
        let end = &text[text.len() - end..];
        if let Some(at) = end.find('/').filter(|at| end.len() < text.len() || *at > 0) {
            return format!("…{}", &end[at..]);
        }
        text = text.rsplit('/').next().unwrap_or(text);
        if text.width() <= width {
            return text.to_owned();
        }
    }
    let room = width.saturating_sub(1);
    let tail_room = room / 3;
    let head = taken(text.chars(), room - tail_room);
    let tail: String = taken(text.chars().rev(), tail_room).chars().rev().collect();
    format!("{head}…{tail}")
}

/// As many of these characters as fit.
fn taken(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= room
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> Table {
        let columns = vec![
            Column::new("key", "Name"),
            Column::new("a", "Self CUDA Mem"),
            Column::new("b", "CUDA Mem").priority(2),
            Column::new("c", "Calls").priority(1),
            Column::new("d", "Type").priority(Column::DETAIL),
        ];
        let name = "autograd::engine::evaluate_function: ToCopyBackward0";
        let rows = vec![vec![name.into(), Cell::Count(1), Cell::Count(2), Cell::Absent, "CPU".into()]];
        Table { columns, rows, ..Table::default() }
    }

    fn titles(page: &Page) -> Vec<&str> {
        page.columns.iter().map(|c| c.title.as_str()).collect()
    }

    #[test]
    fn a_path_is_shortened_from_its_outer_folders_on_and_all_else_in_its_middle() {
        let frame = "/home/user/llm/experiments/cases.py(93): forward";
        assert_eq!(fitted(frame, 48), frame);
        assert_eq!(fitted(frame, 40), "…/llm/experiments/cases.py(93): forward");
        assert_eq!(fitted(frame, 23), "…/cases.py(93): forward");
        assert_eq!(fitted(frame, 22), "cases.py(93): forward");
        assert_eq!(fitted(frame, 12), "cases.py…ard");
        assert_eq!(fitted(&"/".repeat(1 << 22), 5), "…////");
        assert_eq!(fitted("/a/b.py(1): f; /a/c.py(2): g", 16), "/a/b.py(1)…2): g");
    }

    #[test]
    fn the_least_important_columns_go_first_and_are_named() {
        let page = Page::fit(&table(), 60);
        assert_eq!(titles(&page), ["Name", "Self CUDA Mem", "Calls"]);
        assert_eq!(page.dropped, ["CUDA Mem"]);
        let page = Page::fit(&table(), 20);
        assert_eq!(titles(&page), ["Name", "Self CUDA Mem"]);
        assert_eq!(page.dropped, ["Calls", "CUDA Mem"]);
    }

    #[test]
    fn long_names_lose_their_middle() {
        let page = Page::fit(&table(), 68);
        assert_eq!(titles(&page).len(), 4);
        assert_eq!(page.columns[0].cells[0], "autograd::engine::evalua…pyBackward0");
        assert_eq!(Page::fit(&table(), 200).columns[0].cells[0].len(), 52);
    }

    #[test]
    fn rows_of_a_tree_hang_on_branches_that_end_at_the_last() {
        let node = |(name, depth): (&str, usize)| vec![Cell::Node { name: name.into(), depth }];
        let rows = [("a", 0), ("b", 1), ("c", 2), ("d", 2), ("e", 1), ("f", 2), ("g", 0), ("deep", 40)].map(node);
        let table = Table { columns: vec![Column::new("key", "Name")], rows: rows.into(), ..Table::default() };
        let page = Page::fit(&table, 100);
        assert_eq!(page.columns[0].cells[..7], ["a", "├ b", "│ ├ c", "│ └ d", "└ e", "  └ f", "g"]);
        assert!(page.columns[0].cells[7].starts_with("…  ") && page.columns[0].cells[7].ends_with("└ deep"));
    }

    proptest! {
        #[test]
        fn a_shortened_text_fits(text in any::<String>(), width in 1usize..60) {
            prop_assert!(shortened(&words(&text.into()), width).width() <= width);
        }
    }
}
