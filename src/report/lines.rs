//! `lines`: memory by line of Python, in the look of memory_profiler.
//!
//! What the numbers mean stands in [`lines`](crate::analysis::lines). Here they are grouped by file, cut and named. The
//! text of the lines comes from whoever runs the report: nothing here reads a file.

use super::memory::{cut, shown, to_json};
use super::sentence::sentence;
use super::{Block, Cell, Column, Report, Sentence, Table};
use crate::analysis::allocations::Allocations;
use crate::analysis::lines::{Line, Lines as Found};
use crate::error::{Error, Result};
use crate::trace::{Device, Keep, Trace};
use crate::units::Bytes;
use globset::GlobMatcher;
use hashbrown::HashSet;
use serde_json::Value;
use std::cmp::Reverse;

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Show only files whose path, or the end of it, matches; where it is not given, the user's own code.
    pub file: Option<GlobMatcher>,
    /// The device; where it is not given, the accelerator with the greatest peak.
    pub device: Option<Device>,
    /// How many lines to show, those that hold most; negative for all.
    pub limit: i64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { file: None, device: None, limit: 50 }
    }
}

/// A file and its lines.
type File<'a> = (&'a str, Vec<&'a Line>);

impl Lines {
    /// The parts of a trace that the report needs.
    pub fn keep(&self) -> Keep {
        Keep { device_events: false, ..Keep::REPORTS }
    }

    /// The report. `text` gives the text of a line of a file, where it is known.
    ///
    /// # Errors
    ///
    /// Where the trace holds no memory events, none of the device asked for, no frames, or no such file.
    pub fn run(&self, trace: &Trace, mut text: impl FnMut(&str, u64) -> Option<String>) -> Result<Report> {
        let memory = Allocations::build(trace);
        let device = match self.device {
            Some(device) => memory.device(device),
            None => Found::busiest(&memory),
        };
        let device = device.ok_or_else(|| match self.device {
            Some(device) if !memory.devices().is_empty() => {
                Error::usage(format!("the trace holds no memory of {device}"))
            }
            _ => Error::missing("the trace holds no memory events", "profile with profile_memory=True"),
        })?;
        let found = Found::compute(trace, device)
            .ok_or_else(|| Error::missing("the trace holds no Python frames", "profile with with_stack=True"))?;
        let mut lines: Vec<&Line> = self.lines(&found);
        if lines.is_empty() {
            return Err(Error::missing("no line of these files is in the trace", "--file '*' shows all"));
        }
        let all = lines.len();
        lines.sort_by_key(|l| Reverse((l.peak_live_bytes, l.allocated_bytes, l.increment_bytes)));
        lines.truncate(shown(self.limit, all));
        let files = by_file(lines);
        let mut blocks = vec![Block::Text(headline(&found))];
        let mut rows: Vec<Value> = Vec::new();
        let last = files.len();
        for (i, (file, lines)) in files.into_iter().enumerate() {
            let contents: Vec<Option<String>> = lines.iter().map(|l| text(file, l.line)).collect();
            let mut table = table(file, &lines, &contents);
            if i + 1 == last {
                let missing = all - rows.len() - lines.len();
                let visible = table.rows.len();
                cut(&mut table, visible + missing);
            }
            blocks.push(Block::Table(table));
            for (line, contents) in lines.iter().zip(contents) {
                let mut row = to_json(line)?;
                row["line_contents"] = contents.into();
                rows.push(row);
            }
        }
        blocks.push(Block::Facts(facts(&found)));
        let mut document = match to_json(&found)? {
            Value::Object(members) => members,
            _ => serde_json::Map::new(),
        };
        document.shift_remove("lines");
        document.insert("row_count".into(), all.into());
        document.insert("rows".into(), rows.into());
        let diagnostics = memory.findings().clone();
        Ok(Report { command: "lines", blocks, document, diagnostics, ..Report::default() })
    }

    /// The lines to show.
    fn lines<'f>(&self, found: &'f Found) -> Vec<&'f Line> {
        if self.file.is_some() {
            return found.lines.iter().filter(|line| self.matches(line)).collect();
        }
        // The interpreter's own library goes by bare names, as user code does, but holds nothing.
        let holds = |l: &&Line| !l.allocated_bytes.is_zero() || l.increment_bytes.is_some_and(|b| !b.is_zero());
        let files: HashSet<&str> =
            found.lines.iter().filter(|l| l.is_user).filter(holds).map(|l| l.file.as_str()).collect();
        found.lines.iter().filter(|l| l.is_user && files.contains(l.file.as_str())).collect()
    }

    fn matches(&self, line: &Line) -> bool {
        let Some(file) = &self.file else { return true };
        let mut ends = line.file.match_indices(['/', '\\']).map(|(i, _)| &line.file[i + 1..]);
        file.is_match(&line.file) || ends.any(|end| file.is_match(end))
    }
}

/// The files, that which holds most first, each with its lines in order.
fn by_file(mut lines: Vec<&Line>) -> Vec<File<'_>> {
    lines.sort_by(|a, b| (&a.file, a.line, &a.function).cmp(&(&b.file, b.line, &b.function)));
    let mut files: Vec<File> =
        lines.chunk_by(|a, b| a.file == b.file).map(|lines| (lines[0].file.as_str(), lines.to_vec())).collect();
    let sum = |lines: &[&Line], of: fn(&Line) -> Bytes| lines.iter().map(|l| of(l)).sum::<Bytes>();
    files.sort_by_key(|(_, lines)| {
        Reverse((sum(lines, |l| l.peak_live_bytes.unwrap_or_default()), sum(lines, |l| l.allocated_bytes)))
    });
    files
}

fn table(file: &str, lines: &[&Line], contents: &[Option<String>]) -> Table {
    let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
    let columns = vec![
        column("line", "Line #", 0),
        column("mem_usage_bytes", "Mem usage", 0),
        column("increment_bytes", "Increment", 0),
        column("occurrences", "Occurrences", 3),
        column("allocated_bytes", "Allocated", Column::DETAIL),
        column("peak_live_bytes", "Live at Peak", 1),
        column("line_contents", "Line Contents", 2),
        column("function", "Function", Column::DETAIL),
        column("file", "File", Column::DETAIL),
    ];
    let row = |(line, text): (&&Line, &Option<String>)| {
        vec![
            Cell::Number(line.line),
            line.mem_usage_bytes.into(),
            line.increment_bytes.into(),
            Cell::Count(line.occurrences),
            line.allocated_bytes.into(),
            line.peak_live_bytes.into(),
            // Where the text is not known, the function tells most.
            text.clone().unwrap_or_else(|| format!("({})", line.function)).into(),
            line.function.as_str().into(),
            line.file.as_str().into(),
        ]
    };
    let rows = lines.iter().zip(contents).map(row).collect();
    Table { title: format!("Filename: {file}"), columns, rows, ..Table::default() }
}

fn headline(found: &Found) -> Sentence {
    let device = found.device.as_str();
    if found.exact {
        return sentence![
            "Lines that allocated memory of ",
            device,
            ". Mem usage is the most that was allocated right after the line, Increment what it and what it calls \
             allocated and nobody freed, Occurrences its allocations. Live at Peak and Allocated count where the line is \
             the innermost of your own code."
        ];
    }
    sentence![
        "Functions by what they do to the memory of ",
        device,
        ": a trace tells where functions start and end, not lines, so Line # is where the function starts. Mem usage is \
         the most that was allocated at its return, Increment by how much the total changed during its calls, with all \
         that they call, Occurrences its calls. Live at Peak and Allocated count where it is the innermost of your own \
         code. A snapshot has exact lines."
    ]
}

fn facts(found: &Found) -> Vec<(String, Cell)> {
    vec![
        ("Peak".to_owned(), found.peak_allocated_bytes.into()),
        ("of it from before the trace".to_owned(), found.before_trace_bytes.into()),
        ("of it outside Python frames".to_owned(), found.elsewhere_peak_live_bytes.into()),
    ]
}
