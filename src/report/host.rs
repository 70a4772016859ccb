//! `peak` of a recording of memory_profiler: which process held the host's memory, and in which function.
//!
//! What the numbers mean stands in [`host`](crate::analysis::host).

use super::memory::{cut, shown, to_json};
use super::peak::Peak;
use super::sentence::sentence;
use super::timeline::of_a_trace;
use super::{Block, Cell, Column, Report, Sentence, Table};
use crate::analysis::host::{FunctionUse, HostMoment, host_functions, host_moment, host_timeline};
use crate::analysis::peak::{Moment, PeakOptions};
use crate::error::{Error, Result};
use crate::trace::host_memory::HostMemory;
use crate::units::Bytes;

impl Peak {
    /// The report of a recording of memory_profiler.
    ///
    /// # Errors
    ///
    /// Where the options ask for what only a trace tells, or for a moment outside the recording.
    pub fn run_host(&self, memory: &HostMemory) -> Result<Report> {
        of_a_trace(self.peak.group_by == PeakOptions::default().group_by, "--group-by")?;
        of_a_trace(self.memory.device.is_none(), "--device")?;
        of_a_trace(!matches!(self.peak.at, Moment::Step(_) | Moment::OutOfMemory), "that moment (--at)")?;
        let all = host_timeline(memory, None).ok_or_else(outside)?;
        let at = match self.peak.at {
            Moment::Time(passed) => Some(all.start_ns() + passed),
            Moment::End => Some(all.end_ns),
            _ => None,
        };
        let moment = host_moment(memory, at).ok_or_else(outside)?;
        let functions = host_functions(memory);
        let mut blocks = vec![Block::Text(self.headline(&moment)), Block::Table(self.processes(&moment))];
        if !functions.is_empty() {
            blocks.push(Block::Table(self.functions(&functions)));
        }
        let mut document = serde_json::Map::new();
        document.insert("command_line".into(), memory.command.clone().into());
        document.insert("host".into(), to_json(&moment)?);
        document.insert("functions".into(), to_json(&functions)?);
        Ok(Report { command: "peak", blocks, document, diagnostics: memory.diagnostics.clone(), ..Report::default() })
    }

    fn headline(&self, moment: &HostMoment) -> Sentence {
        let what = if self.peak.at == Moment::Peak { "host: the peak is " } else { "host: " };
        let passed = moment.time_ns - moment.start_ns;
        let text = sentence![what, moment.resident_bytes, " resident, at ", passed];
        let text = match moment.calls.as_slice() {
            [] => text,
            [.., innermost] => text.and(format!(", in {innermost}")),
        };
        let text = match moment.calls.len() {
            0 | 1 => text,
            n => text.and(" (called within ").and(moment.calls[..n - 1].join(", ")).and(")"),
        };
        text.and(".")
    }

    fn processes(&self, moment: &HostMoment) -> Table {
        let mut table = Table {
            columns: vec![
                Column::new("process", "Process"),
                Column::new("resident_bytes", "Resident"),
                Column::new("share", "Share").priority(1),
                Column::new("most_bytes", "At most").priority(2),
            ],
            ..Table::default()
        };
        let share = |part: Bytes| match moment.resident_bytes.0 {
            all if all > 0 => Cell::Ratio(part.0 as f64 / all as f64),
            _ => Cell::Absent,
        };
        for p in moment.processes.iter().take(shown(self.limit, moment.processes.len())) {
            let bytes = p.resident_bytes;
            table.rows.push(vec![p.name.as_str().into(), bytes.into(), share(bytes), p.most_bytes.into()]);
        }
        cut(&mut table, moment.processes.len());
        table
    }

    fn functions(&self, functions: &[FunctionUse]) -> Table {
        let mut table = Table {
            title: "Functions".into(),
            columns: vec![
                Column::new("function", "Function"),
                Column::new("calls", "Calls").priority(2),
                Column::new("increase_bytes", "Increase"),
                Column::new("most_increase_bytes", "In one call").priority(3),
                Column::new("duration_ns", "Time").priority(1),
            ],
            ..Table::default()
        };
        for f in functions.iter().take(shown(self.limit, functions.len())) {
            table.rows.push(vec![
                f.name.as_str().into(),
                Cell::Count(f.calls),
                Cell::BytesChange(f.increase_bytes),
                Cell::BytesChange(f.most_increase_bytes),
                f.duration_ns.into(),
            ]);
        }
        cut(&mut table, functions.len());
        table
    }
}

fn outside() -> Error {
    Error::usage("the recording tells nothing of that moment")
}
