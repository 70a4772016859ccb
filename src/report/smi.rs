//! `smi`: who used the cards, how much and how well, from what nvidia-smi saw.
//!
//! What the numbers mean stands in [`smi`](crate::analysis::smi), how a card is split in [`card`](crate::analysis::card).

use super::sentence::sentence;
use super::timeline::MemoryFigure;
use super::{Block, Cell, Column, Figure, Finding, Report, Table};
use crate::analysis::card::{cards, cards_timeline};
use crate::analysis::smi::{Run, SmiFinding, SmiThresholds, SmiUse, smi_use};
use crate::error::Result;
use crate::trace::smi::{Clock, SmiLog};
use hashbrown::HashMap;
use serde_json::{Value, json};

/// The options of the report.
#[derive(Clone, Debug, Default)]
pub struct Smi {
    /// The run that the log is about, where it is known.
    pub run: Option<Run>,
    /// When findings are made.
    pub thresholds: SmiThresholds,
    /// The name of the input, to be told in the picture.
    pub source: String,
    /// The width of the picture, in pixels.
    pub width: Option<u32>,
    /// The height of the picture, in pixels, or of the chart, in lines.
    pub height: Option<u32>,
}

impl Smi {
    /// The report.
    ///
    /// # Errors
    ///
    /// None today; a log without samples is refused by its reader.
    pub fn run(&self, log: &SmiLog) -> Result<Report> {
        let found = smi_use(log, self.run, &self.thresholds);
        let timeline = cards_timeline(log, &cards(log, None, None));
        let figure = MemoryFigure {
            title: "Memory of the cards by process".into(),
            source: self.source.clone(),
            timeline,
            zero: "the first sample",
            max_memory: None,
            width: self.width,
            height: self.height,
        };
        let mut blocks = vec![Block::Table(table(log, &found))];
        blocks.extend(found.findings.iter().map(|f| Block::Finding(finding(log, f))));
        blocks.extend(clock(log).map(Block::Finding));
        let mut document = serde_json::Map::new();
        let mut of: HashMap<_, Vec<&SmiFinding>> = HashMap::new();
        for finding in &found.findings {
            of.entry(about(finding)).or_default().push(finding);
        }
        let own = |about| of.get(&about).into_iter().flatten().copied();
        let cards = found.gpus.iter().map(|u| described(u, gpu_words(log, u.gpu), own((Some(u.gpu), None))));
        document.insert("cards".into(), cards.collect());
        let processes = found.processes.iter();
        let processes = processes.map(|u| described(u, process_words(log, u.process), own((None, Some(u.process)))));
        document.insert("processes".into(), processes.collect());
        Ok(Report {
            command: "smi",
            blocks,
            document,
            diagnostics: log.diagnostics.clone(),
            figure: Some(Figure::Memory(Box::new(figure))),
            ..Report::default()
        })
    }
}

/// Each card, and below it its processes.
fn table(log: &SmiLog, found: &SmiUse) -> Table {
    let start = found.gpus.iter().map(|g| g.first_ns).chain(found.processes.iter().map(|p| p.first_ns)).min();
    let start = start.unwrap_or_default();
    let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
    let mut table = Table {
        columns: vec![
            Column::new("name", "Card, process"),
            column("pid", "PID", 1),
            column("peak_used_bytes", "Peak", 0),
            column("peak_share", "Share", 2),
            column("least_used_bytes", "Least", 4),
            column("mean_utilization", "Mean Util.", 3),
            column("peak_utilization", "Peak Util.", 5),
            column("first_ns", "From", 6),
            column("last_ns", "To", 6),
            column("sample_count", "Samples", 7),
        ],
        ..Table::default()
    };
    let percent = |percent: Option<f64>| percent.map_or(Cell::Absent, |p| Cell::Ratio(p / 100.0));
    let share = |share: Option<f64>| share.map_or(Cell::Absent, Cell::Ratio);
    for gpu in 0..log.gpus.len() {
        if let Some(u) = found.gpus.iter().find(|u| u.gpu == gpu) {
            table.rows.push(vec![
                Cell::Node { name: gpu_name(log, gpu), depth: 0 },
                Cell::Absent,
                u.peak_used_bytes.into(),
                share(u.peak_share),
                u.least_used_bytes.into(),
                percent(u.mean_utilization),
                percent(u.peak_utilization),
                (u.first_ns - start).into(),
                (u.last_ns - start).into(),
                Cell::Count(u.sample_count),
            ]);
        } else if found.processes.iter().any(|u| log.processes[u.process].gpu == gpu) {
            let mut row = vec![Cell::Node { name: gpu_name(log, gpu), depth: 0 }];
            row.resize(table.columns.len(), Cell::Absent);
            table.rows.push(row);
        }
        let mut own: Vec<_> = found.processes.iter().filter(|u| log.processes[u.process].gpu == gpu).collect();
        own.sort_by_key(|u| std::cmp::Reverse(u.peak_used_bytes));
        for u in own {
            let process = &log.processes[u.process];
            table.rows.push(vec![
                Cell::Node { name: process.name.clone().unwrap_or_else(|| "(not named)".into()), depth: 1 },
                Cell::Number(process.pid.into()),
                u.peak_used_bytes.into(),
                share(u.peak_share),
                u.least_used_bytes.into(),
                percent(u.mean_utilization),
                percent(u.peak_utilization),
                (u.first_ns - start).into(),
                (u.last_ns - start).into(),
                Cell::Count(u.sample_count),
            ]);
        }
    }
    table
}

fn gpu_name(log: &SmiLog, gpu: usize) -> String {
    let known = &log.gpus[gpu];
    let index = known.index.map_or_else(|| gpu.to_string(), |i| i.to_string());
    match &known.name {
        Some(name) => format!("GPU {index}: {name}"),
        None => format!("GPU {index}"),
    }
}

fn process_name(log: &SmiLog, process: usize) -> String {
    let known = &log.processes[process];
    match &known.name {
        Some(name) => format!("process {} ({name})", known.pid),
        None => format!("process {}", known.pid),
    }
}

fn gpu_words(log: &SmiLog, gpu: usize) -> Value {
    let known = &log.gpus[gpu];
    json!({"index": known.index, "uuid": known.uuid, "bus_id": known.bus_id, "name": known.name})
}

fn process_words(log: &SmiLog, process: usize) -> Value {
    let known = &log.processes[process];
    json!({"pid": known.pid, "name": known.name, "gpu": known.gpu})
}

/// The card or the process that a finding is about.
fn about(finding: &SmiFinding) -> (Option<usize>, Option<usize>) {
    match finding {
        SmiFinding::NearlyFull { gpu, .. } | SmiFinding::HeldAtLowUtilization { gpu, .. } => (Some(*gpu), None),
        SmiFinding::HoldsAndIdles { process, .. } | SmiFinding::OutlivesRun { process, .. } => (None, Some(*process)),
    }
}

/// The numbers of `value` behind the words for what they are about, and what was found of it.
fn described<'f>(value: &impl serde::Serialize, words: Value, findings: impl Iterator<Item = &'f SmiFinding>) -> Value {
    let numbers = |value: Value| match value {
        Value::Object(members) => members.into_iter().filter(|(key, _)| key != "gpu" && key != "process").collect(),
        _ => serde_json::Map::new(),
    };
    let mut all = words;
    if let Some(all) = all.as_object_mut() {
        all.extend(numbers(serde_json::to_value(value).unwrap_or_default()));
        let findings = findings.map(|f| Value::Object(numbers(serde_json::to_value(f).unwrap_or_default())));
        all.insert("findings".into(), findings.collect());
    }
    all
}

fn finding(log: &SmiLog, finding: &SmiFinding) -> Finding {
    match finding {
        SmiFinding::NearlyFull { gpu, share } => Finding {
            code: "nearly-full",
            message: sentence![gpu_name(log, *gpu), " was ", Cell::Ratio(*share), " full."],
            advice:
                "The next larger batch or a little fragmentation ends in out of memory: look at what is live at the \
                     peak with `tracetool peak`."
                    .into(),
        },
        SmiFinding::HeldAtLowUtilization { gpu, share, mean_utilization } => Finding {
            code: "held-at-low-utilization",
            message: sentence![
                gpu_name(log, *gpu),
                " was ",
                Cell::Ratio(*share),
                " full at its peak, and a kernel ran in ",
                Cell::Ratio(*mean_utilization / 100.0),
                " of the time."
            ],
            advice:
                "Memory is held and little is done with it: look for idle processes, and for a data loader that does \
                     not keep up."
                    .into(),
        },
        SmiFinding::HoldsAndIdles { process, used_bytes, duration_ns, utilization_known } => Finding {
            code: "holds-and-idles",
            message: sentence![
                process_name(log, *process),
                " held ",
                *used_bytes,
                " for ",
                Cell::Nanos(*duration_ns),
                if *utilization_known {
                    " without a change, and ran no kernel."
                } else {
                    " without a change; whether it ran kernels the log does not tell."
                }
            ],
            advice:
                "It holds memory while idle: a notebook or a leftover of an earlier run? End it if nobody needs it."
                    .into(),
        },
        SmiFinding::OutlivesRun { process, used_bytes, after_ns } => Finding {
            code: "outlives-run",
            message: sentence![
                process_name(log, *process),
                " still held ",
                *used_bytes,
                ", ",
                Cell::Nanos(*after_ns),
                " after the end of the run."
            ],
            advice: "If it belongs to the run it is a leftover: end it.".into(),
        },
    }
}

/// What the log's times do not mean.
fn clock(log: &SmiLog) -> Option<Finding> {
    let message = match log.clock {
        Clock::Wall => return None,
        Clock::TimeOfDay => "The log tells the time of day without a date: times count from midnight of its first day.",
        Clock::Ticks => "The log tells no times: samples are taken to stand one second apart.",
    };
    let advice = "Record with --query-gpu=timestamp,... or `dmon -o DT` to have them.";
    Some(Finding { code: "no-wall-clock", message: message.into(), advice: advice.into() })
}
