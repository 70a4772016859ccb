//! The text of PyTorch's `key_averages().table()`: same columns under the same conditions, widths, number formats and
//! footers.
//!
//! Sizes are divided by 1024 and labelled KB, MB, GB here, because PyTorch does so. The one liberty: characters that
//! would act on the terminal are written out. Checked against what torch 2.11 printed.

use super::Options;
use super::escape::visible;
use crate::analysis::averages::KeyAverage;
use crate::error::{Error, Result};
use crate::report::{Report, TorchTable};
use crate::units::{Bytes, Nanos};
use std::io::Write;

/// The width of the columns of numbers.
const WIDTH: usize = 12;
const GAP: &str = "  ";

pub(super) fn render(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    let Some(table) = &report.torch else {
        return Err(Error::usage(format!("--format torch is for top; {} has no such table", report.command)));
    };
    if table.longest_key.is_empty() && table.rows.is_empty() {
        return Ok(()); // PyTorch's table of nothing is the empty text.
    }
    let columns = columns(table);
    let rule: String = columns.iter().map(|c| "-".repeat(c.width) + GAP).collect();
    let double_rule = "=".repeat(rule.len() - GAP.len());
    if let Some(header) = &table.header {
        writeln!(out, "{double_rule}\n{}", visible(header))?;
    }
    if table.top_level_only {
        writeln!(out, "{double_rule}\nThis report only display top-level ops statistics")?;
    }
    writeln!(out, "{rule}")?;
    write_line(&columns, |c| c.title.clone(), out)?;
    writeln!(out, "{rule}")?;
    for row in &table.rows {
        write_line(&columns, |c| (c.value)(row), out)?;
        if table.has_stack {
            // The rest of the stack below the first frame, and an empty line.
            let source = columns.len() - 1;
            for frame in row.stack.iter().skip(1).map(String::as_str).chain([""]) {
                let text = trimmed_left(&visible(frame), columns[source].width);
                let cells = columns
                    .iter()
                    .enumerate()
                    .map(|(i, c)| (c, if i == source { text.clone() } else { String::new() }));
                write_cells(cells, out)?;
            }
        }
    }
    writeln!(out, "{rule}")?;
    writeln!(out, "Self CPU time total: {}", time(micros(table.self_cpu_time_total)))?;
    if table.has_device_time {
        writeln!(out, "Self {} time total: {}", table.device, time(micros(table.self_device_time_total)))?;
    }
    Ok(())
}

struct Column<'a> {
    title: String,
    width: usize,
    left: bool,
    value: Box<dyn Fn(&KeyAverage) -> String + 'a>,
}

impl<'a> Column<'a> {
    fn new(title: impl Into<String>, value: impl Fn(&KeyAverage) -> String + 'a) -> Self {
        Self { title: title.into(), width: WIDTH, left: false, value: Box::new(value) }
    }

    fn width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    fn left(mut self) -> Self {
        self.left = true;
        self
    }
}

/// The columns that PyTorch would show.
fn columns(table: &TorchTable) -> Vec<Column<'_>> {
    let cpu_total = table.self_cpu_time_total;
    let device_total = table.self_device_time_total;
    let device = &table.device;
    let most = &table.max_widths;
    let max_name = most.name;
    let mut columns = vec![
        Column::new("Name", move |r| name(r, max_name)).width((characters(&table.longest_key) + 4).min(max_name)),
        Column::new("Self CPU %", move |r| share(r.self_cpu_time_total, cpu_total)),
        Column::new("Self CPU", |r| time(micros(r.self_cpu_time_total))),
        Column::new("CPU total %", move |r| if r.is_async { "0".into() } else { share(r.cpu_time_total, cpu_total) }),
        Column::new("CPU total", |r| time(micros(r.cpu_time_total))),
        Column::new("CPU time avg", |r| time(average(r.cpu_time_total, r.count))),
    ];
    if table.has_device_time {
        columns.extend([
            Column::new(format!("Self {device}"), |r: &KeyAverage| time(micros(r.self_device_time_total))),
            Column::new(format!("Self {device} %"), move |r| share(r.self_device_time_total, device_total)),
            Column::new(format!("{device} total"), |r| time(micros(r.device_time_total))),
            Column::new(format!("{device} time avg"), |r| time(average(r.device_time_total, r.count))),
        ]);
    }
    if table.profile_memory {
        columns.push(Column::new("CPU Mem", |r| memory(r.cpu_memory_usage)));
        columns.push(Column::new("Self CPU Mem", |r| memory(r.self_cpu_memory_usage)));
        if table.has_device_memory {
            columns.push(Column::new(format!("{device} Mem"), |r| memory(r.device_memory_usage)));
            columns.push(Column::new(format!("Self {device} Mem"), |r| memory(r.self_device_memory_usage)));
        }
    }
    columns.push(Column::new("# of Calls", |r| r.count.to_string()));
    if table.has_shapes {
        let width = (characters(&table.longest_shapes) + 4).min(most.shapes);
        let shapes = move |r: &KeyAverage| {
            let text = r.input_shapes.as_deref().unwrap_or("[]");
            visible(text).chars().take(width).collect()
        };
        columns.push(Column::new("Input Shapes", shapes).width(width));
    }
    if let Some(smallest) = table.smallest_flops {
        let (scale, title) = flops_unit(smallest);
        let flops = move |r: &KeyAverage| match r.flops {
            0 => "--".to_owned(),
            n => format!("{:8.3}", n as f64 * scale),
        };
        columns.push(Column::new(format!("Total {title}"), flops));
    }
    if table.has_stack {
        let width = (characters(&table.longest_frame) + 4).min(most.source);
        let source =
            move |r: &KeyAverage| r.stack.first().map(|frame| trimmed_left(&visible(frame), width)).unwrap_or_default();
        columns.push(Column::new("Source Location", source).width(width).left());
    }
    columns
}

fn write_line<'a>(columns: &[Column<'a>], text: impl Fn(&Column<'a>) -> String, out: &mut dyn Write) -> Result<()> {
    write_cells(columns.iter().map(|c| (c, text(c))), out)
}

fn write_cells<'a, 'b: 'a>(cells: impl Iterator<Item = (&'a Column<'b>, String)>, out: &mut dyn Write) -> Result<()> {
    for (column, text) in cells {
        let space = " ".repeat(column.width.saturating_sub(text.chars().count()));
        if column.left {
            write!(out, "{text}{space}{GAP}")?;
        } else {
            write!(out, "{space}{text}{GAP}")?;
        }
    }
    Ok(writeln!(out)?)
}

/// Python's `len`: code points. As the text will be printed.
fn characters(text: &str) -> usize {
    visible(text).chars().count()
}

fn name(row: &KeyAverage, most: usize) -> String {
    let name = visible(&row.key);
    let kept = most.saturating_sub(3);
    if name.chars().count() < kept {
        return name.into_owned();
    }
    name.chars().take(kept).chain("...".chars()).collect()
}

/// The end of a path that is too long.
fn trimmed_left(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    "...".chars().chain(text.chars().skip((length - width).saturating_add(3))).collect()
}

fn micros(n: Nanos) -> f64 {
    n.0 as f64 / 1000.0
}

fn average(total: Nanos, count: u64) -> f64 {
    if count == 0 { 0.0 } else { micros(total) / count as f64 }
}

fn time(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.3}s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.3}ms", us / 1e3)
    } else {
        format!("{us:.3}us")
    }
}

fn share(part: Nanos, total: Nanos) -> String {
    if total.is_zero() { "NaN".to_owned() } else { format!("{:.2}%", micros(part) * 100.0 / micros(total)) }
}

fn memory(n: Bytes) -> String {
    const KB: u64 = 1024;
    let value = n.0 as f64;
    match n.0.unsigned_abs() {
        0..KB => format!("{n} B"),
        KB..0x10_0000 => format!("{:.2} KB", value / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2} MB", value / 1_048_576.0),
        _ => format!("{:.2} GB", value / 1_073_741_824.0),
    }
}

/// What operations are multiplied by, and what they are then called, by the least of them.
fn flops_unit(smallest: u64) -> (f64, &'static str) {
    const TITLES: [&str; 6] = ["FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"];
    let thousands = ((smallest as f64).log10() / 3.0).clamp(0.0, 5.0).floor();
    (10f64.powi(-3 * thousands as i32), TITLES[thousands as usize])
}
