//! Inflating, cutting, scanning and joining at the same time, in bounded memory.
//!
//! One thread inflates and cuts the bytes into batches where events seem to begin. Workers scan batches as if each began
//! between two events. The caller's thread joins the rows in order; where a guess was wrong (what came before did not end
//! exactly there, between events) it scans the batch again from where it really stands. So the rows are those of a
//! single pass over the file, whatever the number of threads, and almost never is a byte scanned twice.

use super::cursor::next_event_start;
use super::document::{LONGEST_EVENT, Piece, Place, Scanned, TRACE, scan};
use super::inflate::{Block, HISTORY, Verifier};
use super::layout::Layout;
use super::simd::Level;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::trace::{Diagnostics, Keep, Severity, Trace, TraceBuilder};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of a batch: small enough to stay in a core's cache between inflating and scanning.
pub(super) const BATCH: usize = 1 << 20;

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
}

impl Cutter {
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
            let scanned = scan(self.level, piece, self.keep, &mut self.layout)?;
            self.take(scanned, batch.bytes(), batch.offset);
            return Ok(());
        }
        self.pending.extend_from_slice(batch.bytes());
        if self.pending.len() < self.enough && !batch.last {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.pending);
        let piece = Piece { bytes: &bytes, offset: self.pending_offset, place: self.place, last: batch.last };
        let scanned = scan(self.level, piece, self.keep, &mut self.layout)?;
        // What did not suffice is looked at again when it has doubled, so that a long event is not scanned over and
        // over.
        self.enough = if scanned.consumed == 0 { (2 * bytes.len()).min(LONGEST_EVENT) } else { 0 };
        self.take(scanned, &bytes, self.pending_offset);
        Ok(())
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
        self.rows.append(scanned.rows);
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
    let cutter = Cutter { source, first: Some(first), rest: 0, index: 0, offset: 0 };
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

type Done = (Batch, Option<Scanned>);

fn read_together(cutter: Cutter, mut joiner: Joiner, threads: usize, batch: usize) -> Result<Trace> {
    let (level, keep) = (joiner.level, joiner.keep);
    // As many buffers as keep every thread at work; their number bounds the memory.
    let buffers = 2 * threads + 2;
    let (to_pool, pool) = sync_channel::<Block>(buffers);
    let (to_workers, work) = sync_channel::<Batch>(buffers);
    let (to_joiner, done) = sync_channel::<Done>(buffers);
    for _ in 0..buffers {
        // The channel is as long as there are buffers, so this does not wait.
        let _ = to_pool.send(Block::new(batch));
    }
    let work = Mutex::new(work);
    std::thread::scope(|scope| {
        let cutting = scope.spawn(move || cut(cutter, &pool, &to_workers));
        for _ in 0..threads {
            let (work, to_joiner) = (&work, to_joiner.clone());
            scope.spawn(move || scan_batches(work, &to_joiner, level, keep));
        }
        drop(to_joiner);
        let joined = join_in_order(&mut joiner, &done, &to_pool);
        // Whoever waits for a buffer or for room in a channel must see that nobody is there any more.
        drop((to_pool, done));
        let source = cutting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let whole = joined?;
        // Where batches stop coming, the source tells why.
        let source = source?;
        if !whole {
            return Err(Error::new(ErrorKind::Limit("the reader stopped before the end of the input".into())));
        }
        joiner.finish(source.into_diagnostics())
    })
}

/// Cuts until the source or the pool ends.
fn cut(mut cutter: Cutter, pool: &Receiver<Block>, to_workers: &SyncSender<Batch>) -> Result<Source> {
    while let Ok(block) = pool.recv() {
        let batch = cutter.next(block)?;
        let last = batch.last;
        if to_workers.send(batch).is_err() || last {
            break;
        }
    }
    Ok(cutter.source)
}

fn scan_batches(work: &Mutex<Receiver<Batch>>, to_joiner: &SyncSender<Done>, level: Level, keep: Keep) {
    let mut layout = Layout::default();
    loop {
        // A worker that panicked left nothing half done in a receiver.
        let next = work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        let Ok(batch) = next else { return };
        // The first batch begins with the head of the file, which the joiner reads.
        let place = Place::Events { bare: false };
        let piece = Piece { bytes: batch.bytes(), offset: batch.offset, place, last: batch.last };
        let scanned = (batch.index > 0).then(|| scan(level, piece, keep, &mut layout).ok());
        if to_joiner.send((batch, scanned.flatten())).is_err() {
            return;
        }
    }
}

/// Joins what was scanned in the order of the file; `false` if it ends before the last batch.
fn join_in_order(joiner: &mut Joiner, done: &Receiver<Done>, to_pool: &SyncSender<Block>) -> Result<bool> {
    let mut early = BTreeMap::new();
    let mut next = 0;
    for (batch, scanned) in done {
        early.insert(batch.index, (batch, scanned));
        while let Some((batch, scanned)) = early.remove(&next) {
            next += 1;
            joiner.join(&batch, scanned)?;
            if batch.last {
                return Ok(true);
            }
            // Nobody waits for buffers once the last batch is cut.
            let _ = to_pool.send(batch.block);
        }
    }
    Ok(false)
}
