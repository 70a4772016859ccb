//! `reconcile`: what nvidia-smi's figure is made of, as far as anybody can tell.
//!
//! What the parts are stands in [`card`](crate::analysis::card).

use super::sentence::sentence;
use super::timeline::MemoryFigure;
use super::{Block, Cell, Column, Figure, Finding, Report, Table};
use crate::analysis::card::{Card, CardMoment, RunMemory, cards, cards_timeline};
use crate::error::{Error, Result};
use crate::trace::smi::{Clock, SmiLog};
use crate::units::{Bytes, Nanos};
use serde_json::{Value, json};

/// The options of the report.
#[derive(Clone, Debug, Default)]
pub struct Reconcile {
    /// The name of the input, to be told in the picture.
    pub source: String,
    /// The width of the picture, in pixels.
    pub width: Option<u32>,
    /// The height of the picture, in pixels, or of the chart, in lines.
    pub height: Option<u32>,
}

impl Reconcile {
    /// The report: a table of the parts, with the picture of all of them over time.
    ///
    /// # Errors
    ///
    /// Where the logs see no card that the run can have used, or the two share no moment.
    pub fn run(&self, log: &SmiLog, run: &RunMemory) -> Result<Report> {
        let used = cards_of_run(log, run, None)?;
        let figure = MemoryFigure {
            title: "Memory of the card by whose it is".into(),
            source: self.source.clone(),
            timeline: cards_timeline(log, &used),
            zero: "the first sample",
            max_memory: None,
            width: self.width,
            height: self.height,
        };
        let mut blocks = Vec::new();
        for card in &used {
            blocks.push(Block::Table(table(log, card)));
            blocks.extend(findings(card, run).into_iter().map(Block::Finding));
        }
        let mut document = serde_json::Map::new();
        document.insert("cards".into(), used.iter().map(|card| card_json(log, card)).collect());
        Ok(Report {
            command: "reconcile",
            blocks,
            document,
            diagnostics: log.diagnostics.clone(),
            figure: Some(Figure::Memory(Box::new(figure))),
            ..Report::default()
        })
    }
}

/// The cards that the run used, with its memory on them.
///
/// # Errors
///
/// Where the logs see none, or share no moment with the run.
pub(super) fn cards_of_run(log: &SmiLog, run: &RunMemory, window: Option<(Nanos, Nanos)>) -> Result<Vec<Card>> {
    meets(log, (run.time.first().copied().unwrap_or_default(), run.time.last().copied().unwrap_or_default()))?;
    let cards: Vec<Card> = cards(log, Some(run), window).into_iter().filter(Card::holds_run).collect();
    if cards.is_empty() {
        return Err(Error::missing(
            "the logs see no memory of the run on a card that it used",
            "give the logs of the machine it ran on, with index or several cards, and --pid where its number differs",
        ));
    }
    Ok(cards)
}

/// Makes sure that a log shares a moment with the run.
///
/// # Errors
///
/// Where it does not, or tells no date.
pub(super) fn meets(log: &SmiLog, run: (Nanos, Nanos)) -> Result<()> {
    if log.clock != Clock::Wall {
        return Err(Error::missing(
            "the log of nvidia-smi tells no date, so it cannot be laid beside a trace",
            "record with --query-gpu=timestamp,... or `dmon -o DT`",
        ));
    }
    log.span().map_or(Ok(()), |span| apart("the log of nvidia-smi", span, run))
}

/// Says so where what another saw ends before the run begins, or begins after it ends.
///
/// # Errors
///
/// Where it does, with the time between them.
pub(super) fn apart(what: &str, (first, last): (Nanos, Nanos), run: (Nanos, Nanos)) -> Result<()> {
    let seconds = |time: Nanos| format!("{}.{:03} s", time.0 / 1_000_000_000, time.0 / 1_000_000 % 1000);
    let how = if last < run.0 {
        format!("ends {} before the trace begins", seconds(run.0 - last))
    } else if first > run.1 {
        format!("begins {} after the trace ends", seconds(first - run.1))
    } else {
        return Ok(());
    };
    Err(Error::missing(
        format!("{what} and the trace share no moment: it {how}"),
        "check the clocks: --utc-offset says how far the log's is ahead of UTC, --offset sets the trace's forward",
    ))
}

/// The moments that are accounted for: the peak of the card, and that of the run's tensors.
fn moments(card: &Card) -> [Option<&CardMoment>; 2] {
    [card.peak(), card.run_peak()]
}

/// A row for each part, a column for each moment.
fn table(log: &SmiLog, card: &Card) -> Table {
    let [at_peak, at_run_peak] = moments(card);
    let total = log.gpus[card.gpu].total;
    let mut table = Table {
        title: format!("GPU {}", log.gpus[card.gpu].index.map_or(card.gpu as u64, u64::from)),
        columns: vec![
            Column::new("part", "Part"),
            Column::new("at_peak_bytes", "At the Peak"),
            Column::new("share", "Share").priority(1),
            Column::new("at_tensor_peak_bytes", "At Most Tensors").priority(2),
            Column::new("told_by", "Told by").priority(3),
        ],
        ..Table::default()
    };
    let used = at_peak.and_then(|m| m.used_bytes);
    let share = |part: Option<Bytes>| match (part, used) {
        (Some(part), Some(used)) if used > Bytes::ZERO => Cell::Ratio(part.0 as f64 / used.0 as f64),
        _ => Cell::Absent,
    };
    let mut row = |name: String, part: &dyn Fn(&CardMoment) -> Option<Bytes>, told: &str| {
        let [first, second] = [at_peak, at_run_peak].map(|m| m.and_then(part));
        let share = if matches!(name.as_str(), "free" | "kept by the driver") { Cell::Absent } else { share(first) };
        table.rows.push(vec![name.into(), first.into(), share, second.into(), told.into()]);
    };
    for (k, name) in card.part_names(log).into_iter().enumerate() {
        let told = match (card.holds_run(), k) {
            (true, 0 | 1) => "the allocator",
            (true, 2) => "nvidia-smi less the allocator",
            _ => "nvidia-smi",
        };
        row(name, &|m| card.parts(m).get(k).copied(), told);
    }
    row("no process seen".into(), &|m| m.rest(card.run), "what is left");
    row("used".into(), &|m| m.used_bytes, "nvidia-smi");
    row("free".into(), &|m| m.free_bytes, "nvidia-smi");
    let kept = |m: &CardMoment| Some(total? - m.used_bytes? - m.free_bytes?).filter(|kept| !kept.is_zero());
    if at_peak.and_then(kept).is_some() {
        row("kept by the driver".into(), &kept, "what is neither used nor free");
    }
    table
}

fn findings(card: &Card, run: &RunMemory) -> Vec<Finding> {
    let mut found = Vec::new();
    match card.context {
        Some([median, least, most]) => found.push(Finding {
            code: "context-and-libraries",
            message: sentence![
                "Beyond what its allocator reserves the process holds ",
                median,
                " (",
                least,
                " to ",
                most,
                " over the samples): the CUDA context, kernels that were loaded, workspaces of libraries."
            ],
            advice: "No torch call frees it; fewer libraries and CUDA_MODULE_LOADING=LAZY make it smaller.".into(),
        }),
        None => found.extend(not_seen(card, run)),
    }
    if let Some((bytes, moment)) = card.closes_within(run) {
        found.push(Finding {
            code: "closes-within",
            message: sentence![
                "At every sample nvidia-smi's figure is what the parts sum to from a sample before to a sample after, within ",
                bytes,
                "."
            ],
            advice: if bytes > Bytes(16 << 20) {
                sentence!["The worst is at ", Cell::Nanos(moment - card.moments[0].time_ns), " of the log."]
            } else {
                "".into()
            },
        });
    }
    found
}

/// That the logs do not list the process, where they do not.
pub(super) fn not_seen(card: &Card, run: &RunMemory) -> Option<Finding> {
    let pid = run.pid.filter(|_| card.context.is_none())?;
    Some(Finding {
        code: "process-not-seen",
        message: sentence![
            "The logs do not list process ",
            Cell::Number(pid.into()),
            ", so its context cannot be told from other processes."
        ],
        advice: "Record --query-compute-apps or pmon too; in a container give the process id of the host with --pid."
            .into(),
    })
}

fn card_json(log: &SmiLog, card: &Card) -> Value {
    let names = card.part_names(log);
    let moment = |m: Option<&CardMoment>| {
        m.map(|m| {
            let parts: serde_json::Map<String, Value> =
                names.iter().cloned().zip(card.parts(m)).map(|(name, bytes)| (name, json!(bytes))).collect();
            json!({"time_ns": m.time_ns, "used_bytes": m.used_bytes, "free_bytes": m.free_bytes, "parts": parts, "rest_bytes": m.rest(card.run)})
        })
    };
    let [at_peak, at_run_peak] = moments(card);
    json!({
        "index": log.gpus[card.gpu].index,
        "name": log.gpus[card.gpu].name,
        "total_bytes": log.gpus[card.gpu].total,
        "at_peak": moment(at_peak),
        "at_tensor_peak": moment(at_run_peak),
        "context_bytes": card.context.map(|[median, least, most]| json!({"median": median, "least": least, "most": most})),
    })
}
