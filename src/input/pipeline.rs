//! Inflating, cutting, scanning and joining at the same time, in bounded memory.
//!
//! There are three kinds of work: to inflate and cut the bytes into batches where events seem to begin, one after another;
//! to scan batches as if each began between two events, in any order; and to join the rows in the order of the file. Where
//! a guess was wrong (what came before did not end exactly there, between events) the batch is scanned again as it is
//! joined, from where it really stands. So the rows are those of a single pass over the file, whatever the number of
//! threads, and almost never is a byte scanned twice.

use super::cursor::next_event_start;
use super::document::{LONGEST_EVENT, Piece, Place, Scanned, TRACE, scan};
use super::inflate::{Block, HISTORY, Verifier};
use super::layout::Layout;
use super::simd::Level;
use super::source::Source;
use crate::error::{Error, Result};
use crate::trace::{Diagnostics, Keep, Severity, Trace, TraceBuilder};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a batch: small enough to stay in a core's cache between inflating and scanning, large enough for what a batch
/// costs beside its bytes. Half as much takes 4 % longer on cores with 2 MiB, twice as much no less.
pub(super) const BATCH: usize = 2 << 20;

/// A piece of the file, cut at places where events seem to begin.
struct Batch {
    index: u64,
    block: Block,
    /// Where the piece lies in the block. It begins among the bytes of the block before, which this one holds too.
    span: Range<usize>,
    offset: u64,
    last: bool,
}

impl Batch {
    fn bytes(&self) -> &[u8] {
        &self.block.with_history().0[self.span.clone()]
    }
}

/// Cuts a source into batches.
struct Cutter {
    source: Source,
    /// The first block, read to see what the file is.
    first: Option<Block>,
    /// Bytes at the end of the last block that belong to the next batch.
    rest: usize,
    index: u64,
    offset: u64,
    /// Whether the last batch was cut.
    last: bool,
    /// Why no more batches come.
    failure: Option<Error>,
}

impl Cutter {
    fn ended(&self) -> bool {
        self.last || self.failure.is_some()
    }

    /// The next batch, in the memory of `block`.
    fn next(&mut self, mut block: Block) -> Result<Batch> {
        match self.first.take() {
            Some(first) => block = first,
            None => self.source.fill(&mut block)?,
        }
        let (bytes, data) = block.with_history();
        let last = data == bytes.len();
        let start = data - self.rest;
        let end = if last { bytes.len() } else { last_event_start(bytes, data).unwrap_or(bytes.len()) };
        self.rest = bytes.len() - end;
        let batch = Batch { index: self.index, block, span: start..end, offset: self.offset, last };
        self.last = last;
        self.index += 1;
        self.offset += (end - start) as u64;
        Ok(batch)
    }
}

/// The last place behind `data` where an event seems to begin, near enough to the end that the next block holds what is
/// behind it.
fn last_event_start(bytes: &[u8], data: usize) -> Option<usize> {
    let from = data.max(bytes.len().saturating_sub(HISTORY));
    memchr::memrchr_iter(b'{', &bytes[from..])
        .map(|at| from + at)
        .find(|at| next_event_start(&bytes[..bytes.len().min(at + 65)], *at) == Some(*at))
}

/// Joins what was scanned, in the order of the file.
struct Joiner {
    level: Level,
    keep: Keep,
    layout: Layout,
    verifier: Verifier,
    /// What the checksums tell, apart from what events do: blocks end elsewhere than batches.
    mismatches: Diagnostics,
    rows: TraceBuilder,
    /// Empty builders whose memory can be used again: to give it back, mostly by another thread than took it, cost 7 %.
    spare: Vec<TraceBuilder>,
    place: Place,
    /// Bytes that were not decided yet, and where they begin.
    pending: Vec<u8>,
    pending_offset: u64,
    /// How many bytes must be at hand before they are looked at again.
    enough: usize,
    events_begun: bool,
    strangers: u64,
    keys: Vec<String>,
}

impl Joiner {
    fn new(level: Level, keep: Keep) -> Self {
        Self {
            level,
            keep,
            layout: Layout::default(),
            verifier: Verifier::default(),
            mismatches: Diagnostics::default(),
            rows: TraceBuilder::with_keep(keep),
            spare: Vec::new(),
            place: Place::Start,
            pending: Vec::new(),
            pending_offset: 0,
            enough: 0,
            events_begun: false,
            strangers: 0,
            keys: Vec::new(),
        }
    }

    /// Adds the next batch, and what a worker made of it if one has.
    fn join(&mut self, batch: &Batch, scanned: Option<Scanned>) -> Result<()> {
        for mismatch in self.verifier.check(&batch.block) {
            self.mismatches.note("gzip-checksum", Severity::Loss, Some(mismatch.data_offset), || mismatch.to_string());
        }
        if let Some(scanned) = scanned
            && self.holds(&scanned)
        {
            self.take(scanned, batch.bytes(), batch.offset);
            return Ok(());
        }
        if self.pending.is_empty() {
            let piece = Piece { bytes: batch.bytes(), offset: batch.offset, place: self.place, last: batch.last };
            let scanned = self.scan(piece)?;
            self.take(scanned, batch.bytes(), batch.offset);
            return Ok(());
        }
        self.pending.extend_from_slice(batch.bytes());
        if self.pending.len() < self.enough && !batch.last {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.pending);
        let piece = Piece { bytes: &bytes, offset: self.pending_offset, place: self.place, last: batch.last };
        let scanned = self.scan(piece)?;
        // What did not suffice is looked at again when it has doubled, so that a long event is not scanned over and
        // over.
        self.enough = if scanned.consumed == 0 { (2 * bytes.len()).min(LONGEST_EVENT) } else { 0 };
        self.take(scanned, &bytes, self.pending_offset);
        Ok(())
    }

    fn scan(&mut self, piece: Piece<'_>) -> Result<Scanned> {
        let rows = self.spare.pop().unwrap_or_else(|| TraceBuilder::with_keep(self.keep));
        scan(self.level, piece, rows, &mut self.layout)
    }

    /// Whether the guess that the batch begins between events of an inner array was right, as far as it matters.
    fn holds(&self, scanned: &Scanned) -> bool {
        let between = matches!(scanned.place, Place::Events { .. });
        match self.place {
            Place::Events { bare } => self.pending.is_empty() && (between || !bare),
            _ => false,
        }
    }

    fn take(&mut self, mut scanned: Scanned, bytes: &[u8], offset: u64) {
        self.keys.extend(scanned.members.iter().take(4).map(|(key, _)| String::from_utf8_lossy(key).into_owned()));
        self.keys.truncate(4);
        let mut info = std::mem::take(self.rows.info_mut());
        scanned.apply_members(&mut info);
        *self.rows.info_mut() = info;
        self.strangers += scanned.strangers;
        self.place = match (scanned.place, self.place) {
            // A worker does not know which kind of array it is in.
            (Place::Events { .. }, Place::Events { bare }) => Place::Events { bare },
            (place, _) => place,
        };
        self.events_begun |= scanned.events_begin;
        self.rows.append_from(&mut scanned.rows);
        self.spare.push(scanned.rows);
        self.pending.clear();
        self.pending.extend_from_slice(&bytes[scanned.consumed..]);
        self.pending_offset = offset + scanned.consumed as u64;
    }

    fn finish(mut self, source: Diagnostics) -> Result<Trace> {
        let loss = source.lost_data();
        if self.place == Place::Start {
            return Err(Error::format(TRACE, "an empty file"));
        }
        if !self.events_begun && !loss {
            let keys = self.keys.join(", ");
            let found =
                if keys.is_empty() { "an object without members".into() } else { format!("an object with {keys}") };
            return Err(Error::format(TRACE, found));
        }
        let rubbish = self.rows.diagnostics_mut().get("rubbish").is_some();
        if self.rows.events() == 0 && (self.strangers > 0 || rubbish) {
            return Err(Error::format(TRACE, "an array of other things"));
        }
        self.rows.diagnostics_mut().append(self.mismatches);
        self.rows.diagnostics_mut().append(source);
        if !loss && !matches!(self.place, Place::End) {
            let end = self.pending_offset;
            self.rows.diagnostics_mut().note("missing-end", Severity::Warning, Some(end), || {
                "the file ends without its last bracket; it may have been cut off".into()
            });
        }
        Ok(self.rows.finish())
    }
}

/// Reads a source, whose first block is at hand, into a trace with `threads` threads. Batches are as large as that block.
pub(super) fn read(first: Block, source: Source, level: Level, keep: Keep, threads: usize) -> Result<Trace> {
    let batch = first.size();
    let cutter = Cutter { source, first: Some(first), rest: 0, index: 0, offset: 0, last: false, failure: None };
    let joiner = Joiner::new(level, keep);
    if threads <= 1 { read_alone(cutter, joiner) } else { read_together(cutter, joiner, threads, batch) }
}

fn read_alone(mut cutter: Cutter, mut joiner: Joiner) -> Result<Trace> {
    let mut block = Block::default();
    loop {
        let batch = cutter.next(block)?;
        joiner.join(&batch, None)?;
        if batch.last {
            return joiner.finish(cutter.source.into_diagnostics());
        }
        block = batch.block;
    }
}

/// The work that the threads share. Whoever is free takes what is to be done next, of whatever kind: no core waits while
/// there is work, and most batches are scanned by the core that inflated them and has them in its cache. A thread for each
/// kind of work took a tenth longer on two cores.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Not here while a thread cuts.
    cutter: Option<Cutter>,
    /// Not here while a thread joins.
    joiner: Option<Joiner>,
    /// Free memory for batches. How many there are bounds the memory.
    blocks: Vec<Block>,
    /// Empty builders, as the joiner's.
    spare: Vec<TraceBuilder>,
    cut: VecDeque<Batch>,
    scanned: BTreeMap<u64, (Batch, Option<Scanned>)>,
    /// The batch that is to be joined next.
    next: u64,
    /// Threads that wait for work.
    waiting: usize,
    /// Why joining ended before the last batch.
    failure: Option<Error>,
    /// Whether a thread panicked with what it had taken.
    abandoned: bool,
}

/// A piece of work, with all that it needs.
#[allow(clippy::large_enum_variant, reason = "there is one a thread")]
enum Job {
    Cut(Cutter, Block),
    Scan(Batch, Option<TraceBuilder>),
    Join(Joiner, Batch, Option<Scanned>),
}

impl State {
    /// Whether nothing is left to do for anyone.
    fn ended(&self) -> bool {
        let all_joined = || self.cutter.as_ref().is_some_and(|cutter| cutter.ended() && cutter.index == self.next);
        self.abandoned || self.failure.is_some() || all_joined()
    }

    fn can_cut(&self) -> bool {
        self.cutter.as_ref().is_some_and(|cutter| !cutter.ended()) && !self.blocks.is_empty()
    }

    fn can_join(&self) -> bool {
        self.joiner.is_some() && self.scanned.contains_key(&self.next)
    }

    fn has_job(&self) -> bool {
        self.can_cut() || self.can_join() || !self.cut.is_empty()
    }

    fn take(&mut self) -> Option<Job> {
        // Only one can cut at a time. It goes on where others are free for the rest, and where the next to be free would
        // find nothing to scan.
        if (self.waiting > 0 || self.cut.is_empty()) && self.can_cut() {
            return self.take_cut();
        }
        // What is furthest on first: it sets memory free.
        self.take_join().or_else(|| self.take_scan()).or_else(|| self.take_cut())
    }

    fn take_cut(&mut self) -> Option<Job> {
        if !self.can_cut() {
            return None;
        }
        Some(Job::Cut(self.cutter.take()?, self.blocks.pop()?))
    }

    fn take_scan(&mut self) -> Option<Job> {
        let batch = self.cut.pop_front()?;
        Some(Job::Scan(batch, self.spare.pop()))
    }

    fn take_join(&mut self) -> Option<Job> {
        if !self.can_join() {
            return None;
        }
        let (batch, scanned) = self.scanned.remove(&self.next)?;
        Some(Job::Join(self.joiner.take()?, batch, scanned))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What a thread that panicked left is whole but for what it had taken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what there is to do until the end.
    fn work(&self, level: Level, keep: Keep) {
        let _abandoning = Abandoning(self);
        let mut layout = Layout::default();
        let mut state = self.lock();
        while !state.ended() {
            let Some(job) = state.take() else {
                state.waiting += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
                continue;
            };
            if state.waiting > 0 && state.has_job() {
                self.changed.notify_one();
            }
            drop(state);
            let done = job.run(level, keep, &mut layout);
            state = self.lock();
            done.hand_in(&mut state);
        }
        self.changed.notify_all();
    }
}

/// Wakes those who wait for what a thread that panics will not give back.
struct Abandoning<'a>(&'a Shared);

impl Drop for Abandoning<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().abandoned = true;
            self.0.changed.notify_all();
        }
    }
}

/// What came of a job.
#[allow(clippy::large_enum_variant, reason = "there is one a thread")]
enum Done {
    Cut(Cutter, Option<Batch>),
    Scan(Batch, Option<Scanned>),
    Join(Joiner, Batch, Result<()>),
}

impl Job {
    fn run(self, level: Level, keep: Keep, layout: &mut Layout) -> Done {
        match self {
            Self::Cut(mut cutter, block) => {
                let batch = cutter.next(block).map_err(|error| cutter.failure = Some(error)).ok();
                Done::Cut(cutter, batch)
            }
            Self::Scan(mut batch, rows) => {
                let rows = rows.unwrap_or_else(|| TraceBuilder::with_keep(keep));
                batch.block.take_sums();
                // The first batch begins with the head of the file, which the joiner reads.
                let place = Place::Events { bare: false };
                let piece = Piece { bytes: batch.bytes(), offset: batch.offset, place, last: batch.last };
                let scanned = (batch.index > 0).then(|| scan(level, piece, rows, layout).ok());
                Done::Scan(batch, scanned.flatten())
            }
            Self::Join(mut joiner, batch, scanned) => {
                let joined = joiner.join(&batch, scanned);
                Done::Join(joiner, batch, joined)
            }
        }
    }
}

impl Done {
    fn hand_in(self, state: &mut State) {
        match self {
            Self::Cut(cutter, batch) => {
                state.cutter = Some(cutter);
                state.cut.extend(batch);
            }
            Self::Scan(batch, scanned) => drop(state.scanned.insert(batch.index, (batch, scanned))),
            Self::Join(mut joiner, batch, joined) => {
                state.spare.append(&mut joiner.spare);
                state.joiner = Some(joiner);
                state.failure = joined.err();
                state.next += 1;
                state.blocks.push(batch.block);
            }
        }
    }
}

fn read_together(cutter: Cutter, joiner: Joiner, threads: usize, batch: usize) -> Result<Trace> {
    let (level, keep) = (joiner.level, joiner.keep);
    let state = State {
        cutter: Some(cutter),
        joiner: Some(joiner),
        // As many as keep every thread at work.
        blocks: (0..2 * threads + 2).map(|_| Block::new(batch)).collect(),
        spare: Vec::new(),
        cut: VecDeque::new(),
        scanned: BTreeMap::new(),
        next: 0,
        waiting: 0,
        failure: None,
        abandoned: false,
    };
    let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| shared.work(level, keep));
        }
        shared.work(level, keep);
    });
    let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (Some(cutter), Some(joiner)) = (state.cutter, state.joiner) else {
        unreachable!("a thread that has the cutter or the joiner gives it back or panics, which ends the scope");
    };
    // Where batches stop coming, the source tells why.
    match state.failure.or(cutter.failure) {
        Some(error) => Err(error),
        None => joiner.finish(cutter.source.into_diagnostics()),
    }
}
