//! Snapshots of the caching allocator (`torch.cuda.memory._dump_snapshot`) to a [`Trace`].
//!
//! The pickle is read as plain data ([`pickle`]); [`read`] makes the [`Snapshot`] of it, over all that
//! the fields were called since torch 1.10; [`replay`] finds out how large each block of the history really was; and
//! [`events`] turns the history into the same memory events that a profile has, so that every analysis of a trace works
//! on a snapshot.
//!
//! Source of the fields: `torch/csrc/cuda/memory_snapshot.cpp` and `c10/cuda/CUDACachingAllocator.cpp`.

mod events;
mod replay;
mod stacks;
#[cfg(test)]
mod tests;

use super::ReadOptions;
use super::pickle::{self, Dict, Document, Key, List, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::trace::snapshot::{
    Action, AllocatorSettings, Block, BlockState, FailedRequest, History, HistoryEntry, Origin, Pool, Segment,
};
use crate::trace::{Device, Op, OpKind, Severity, Snapshot, StrId, TraceBuilder};
use crate::units::{Bytes, Nanos};
use hashbrown::HashMap;
use stacks::Stacks;
use std::io::Read;

/// Reads a snapshot's pickle, already inflated.
///
/// # Errors
///
/// Where it is no pickle of plain data, or no snapshot.
pub(crate) fn read<R: Read>(reader: R, options: &ReadOptions) -> Result<TraceBuilder> {
    let document = pickle::read(reader, options.max_input_size)?;
    let mut builder = TraceBuilder::with_keep(options.keep);
    let mut snapshot = Conversion::new(&document, &mut builder).snapshot()?;
    // The document is as large as the history: it goes before the events come.
    drop(document);
    for history in &mut snapshot.histories {
        history.entries.shrink_to_fit();
        let segments: Vec<&Segment> = snapshot.segments.iter().filter(|s| s.device == history.device).collect();
        replay::fill_sizes(history, &segments, &snapshot.settings);
        events::push(&mut builder, history, &segments);
        if !options.keep.history && history.out_of_memory.is_empty() {
            history.entries = Vec::new();
            history.origins = Vec::new();
        }
    }
    builder.set_snapshot(snapshot);
    Ok(builder)
}

/// The keys of all dictionaries in a snapshot.
struct Keys {
    action: Key,
    active_or_state: Key,
    addr: Key,
    address: Key,
    blocks: Key,
    compile_context: Key,
    device: Key,
    device_free: Key,
    expandable: Key,
    frames: Key,
    history: Key,
    name: Key,
    pool_id: Key,
    real_size: Key,
    requested_size: Key,
    segment_type: Key,
    size: Key,
    stage: Key,
    stream: Key,
    time_us: Key,
    total_size: Key,
    user_metadata: Key,
}

impl Keys {
    fn new(document: &Document) -> Self {
        Self {
            action: document.key("action"),
            active_or_state: document.key("state"),
            addr: document.key("addr"),
            address: document.key("address"),
            blocks: document.key("blocks"),
            compile_context: document.key("compile_context"),
            device: document.key("device"),
            device_free: document.key("device_free"),
            expandable: document.key("is_expandable"),
            frames: document.key("frames"),
            history: document.key("history"),
            name: document.key("name"),
            pool_id: document.key("segment_pool_id"),
            real_size: document.key("real_size"),
            requested_size: document.key("requested_size"),
            segment_type: document.key("segment_type"),
            size: document.key("size"),
            stage: document.key("stage"),
            stream: document.key("stream"),
            time_us: document.key("time_us"),
            total_size: document.key("total_size"),
            user_metadata: document.key("user_metadata"),
        }
    }
}

/// How many devices' histories are kept; torch counts devices in a byte.
const MOST_HISTORIES: usize = 1024;

/// How many settings are shown; torch has about twenty.
const MOST_SETTINGS: usize = 1024;

struct Conversion<'a> {
    document: &'a Document,
    builder: &'a mut TraceBuilder,
    keys: Keys,
    stacks: Stacks<'a>,
    texts: HashMap<StrId, StrId>,
    /// How many more entries of dictionaries may be met: one that is referred to a million times is no history but an
    /// attack.
    left: usize,
}

impl<'a> Conversion<'a> {
    fn new(document: &'a Document, builder: &'a mut TraceBuilder) -> Self {
        Self {
            keys: Keys::new(document),
            stacks: Stacks::new(document),
            texts: HashMap::new(),
            left: document.dict_entries(),
            document,
            builder,
        }
    }

    fn snapshot(mut self) -> Result<Snapshot> {
        if let Some((count, offset)) = self.document.lossy() {
            self.builder.diagnostics_mut().note_many("invalid-utf8", Severity::Warning, count, Some(offset), || {
                "strings that are not UTF-8; decoded with replacement characters".into()
            });
        }
        if let Some((count, offset)) = self.document.cut() {
            self.builder.diagnostics_mut().note_many("long-text", Severity::Warning, count, Some(offset), || {
                format!("strings longer than {} bytes; cut there", pickle::LONGEST_TEXT)
            });
        }
        if let Some(offset) = self.document.trailing() {
            self.builder.diagnostics_mut().note("trailing-text", Severity::Warning, Some(offset), || {
                "bytes behind the end of the pickle; passed over".into()
            });
        }
        let root = self.document.root();
        let (segments, root) = match root {
            // `torch.cuda.memory_snapshot()`, pickled by hand: the segments alone.
            Value::List(segments) => (Some(segments), None),
            Value::Dict(dict) => (self.list_at(dict, "segments"), Some(dict)),
            _ => (None, None),
        };
        let traces = root.and_then(|dict| self.list_at(dict, "device_traces"));
        let annotations = root.and_then(|dict| self.list_at(dict, "external_annotations"));
        let settings = root.and_then(|dict| dict.get(self.document.key("allocator_settings"))).and_then(Value::as_dict);
        let mut snapshot = Snapshot { settings: settings.map(read_settings).unwrap_or_default(), ..Default::default() };
        for segment in segments.into_iter().flat_map(List::iter) {
            if let Some(segment) = self.segment(segment)? {
                snapshot.segments.push(segment);
            }
        }
        for (index, trace) in traces.into_iter().flat_map(List::iter).enumerate() {
            match self.history(index, trace)? {
                Some(_) if snapshot.histories.len() == MOST_HISTORIES => {
                    self.skipped("the history of a device beyond the 1024th");
                }
                Some(history) => snapshot.histories.push(history),
                None => {}
            }
        }
        let is_snapshot = traces.is_some() || root.is_some() && segments.is_some() || !snapshot.segments.is_empty();
        if !is_snapshot {
            return Err(not_a_snapshot(self.document.root()));
        }
        let annotations = self.annotations(annotations)?;
        self.settle_times(&mut snapshot, annotations);
        Ok(snapshot)
    }

    fn list_at(&self, dict: Dict<'a>, key: &str) -> Option<List<'a>> {
        dict.get(self.document.key(key)).and_then(Value::as_list)
    }

    /// Counts one more value, with the entries that are looked through if it is a dictionary, against what the file can
    /// hold.
    fn spend(&mut self, value: Value<'a>) -> Result<()> {
        match self.left.checked_sub(value.as_dict().map_or(1, |dict| dict.len().max(1))) {
            Some(left) => self.left = left,
            None => {
                let message = "the pickle refers to the same entries over and over, which no snapshot does";
                return Err(Error::new(ErrorKind::Limit(message.into())));
            }
        }
        Ok(())
    }

    fn skipped(&mut self, what: &'static str) {
        self.builder.diagnostics_mut().note("broken-snapshot-entry", Severity::Loss, None, || {
            format!("parts of the snapshot are not what they should be and were skipped; the first is {what}")
        });
    }

    /// The bytes that a dictionary tells; none where it does not.
    fn size_at(&mut self, dict: Dict<'a>, key: Key) -> Bytes {
        match dict.get(key).and_then(Value::as_i64) {
            Some(bytes) if bytes >= 0 => Bytes(bytes),
            _ => {
                self.skipped("a size that is missing or negative; it is taken as 0");
                Bytes::ZERO
            }
        }
    }

    fn segment(&mut self, value: Value<'a>) -> Result<Option<Segment>> {
        self.spend(value)?;
        let keys = &self.keys;
        let dict = value.as_dict();
        let address = dict.and_then(|d| d.get(keys.address)).and_then(Value::as_address);
        let (Some(dict), Some(address)) = (dict, address) else {
            self.skipped("a segment without an address");
            return Ok(None);
        };
        let int = |key: Key| dict.get(key).and_then(Value::as_i64);
        let mut pool_id = dict.get(keys.pool_id).and_then(Value::as_list).into_iter().flat_map(List::iter);
        let mut next_id = || pool_id.next().and_then(Value::as_i64).unwrap_or(0);
        let small = dict.get(keys.segment_type).and_then(Value::as_str) == Some("small");
        let device = int(keys.device).and_then(|d| i32::try_from(d).ok());
        let (stream, expandable) = (int(keys.stream).unwrap_or(0), int(keys.expandable).is_some_and(|e| e != 0));
        let pool_id = (next_id(), next_id());
        if device.is_none() {
            self.skipped("a segment that tells no device; it is taken as that of cuda:0");
        }
        let mut segment = Segment {
            address,
            size: self.size_at(dict, self.keys.total_size),
            device: Device::cuda(device.unwrap_or(0)),
            stream,
            pool: if small { Pool::Small } else { Pool::Large },
            pool_id,
            expandable,
            stack: self.stacks.at(dict, self.keys.frames, self.builder),
            blocks: Vec::new(),
        };
        let mut at = address;
        for block in dict.get(self.keys.blocks).and_then(Value::as_list).into_iter().flat_map(List::iter) {
            if let Some(block) = self.block(block, at)? {
                at = block.end();
                segment.blocks.push(block);
            }
        }
        Ok(Some(segment))
    }

    /// A block, which starts at `at` where the file does not say (before torch 2.1).
    fn block(&mut self, value: Value<'a>, at: u64) -> Result<Option<Block>> {
        self.spend(value)?;
        let Some(dict) = value.as_dict() else {
            self.skipped("a block that is no dictionary");
            return Ok(None);
        };
        let keys = &self.keys;
        // torch 2.0 had what is known of a block in a list of its past, the present first.
        let past = dict.get(keys.history).and_then(Value::as_list);
        let past = past.and_then(|list| list.iter().next()).and_then(Value::as_dict);
        let int = |key: Key| dict.get(key).and_then(Value::as_i64);
        let requested = int(keys.requested_size).or_else(|| past?.get(keys.real_size)?.as_i64());
        let frames_of = if dict.get(keys.frames).is_some() { dict } else { past.unwrap_or(dict) };
        let state = match dict.get(keys.active_or_state).and_then(Value::as_str) {
            Some("active_allocated") => BlockState::Allocated,
            Some("active_awaiting_free" | "active_pending_free") => BlockState::AwaitingFree,
            Some("inactive") => BlockState::Inactive,
            _ => {
                self.skipped("a block in a state that no version of torch has; it is taken as free");
                BlockState::Inactive
            }
        };
        let block_size = self.size_at(dict, self.keys.size);
        Ok(Some(Block {
            address: dict.get(self.keys.address).and_then(Value::as_address).unwrap_or(at),
            size: block_size,
            requested: requested.map_or(block_size, |n| size(Some(n))),
            state,
            stack: self.stacks.at(frames_of, self.keys.frames, self.builder),
        }))
    }

    fn history(&mut self, index: usize, value: Value<'a>) -> Result<Option<History>> {
        let Some(list) = value.as_list() else {
            self.skipped("a device's history that is no list");
            return Ok(None);
        };
        if list.len() == 0 {
            return Ok(None);
        }
        let device = Device::cuda(i32::try_from(index).unwrap_or(i32::MAX));
        let mut history = History {
            device,
            entries: Vec::new(),
            origins: Vec::new(),
            timed: false,
            out_of_memory: Vec::new(),
            contradictions: 0,
        };
        let mut origins: HashMap<Origin, u32> = HashMap::new();
        // Not on the word of the list: it may be one entry many times over.
        history.entries.reserve_exact(list.len().min(self.left));
        let mut last_time = None;
        for value in list.iter() {
            self.spend(value)?;
            self.builder.count_event();
            let Some(dict) = value.as_dict() else {
                self.skipped("an entry of the history that is no dictionary");
                continue;
            };
            let Some(action) = self.action(dict) else { continue };
            let origin = self.origin(dict);
            let origin = *origins.entry(origin).or_insert_with(|| {
                history.origins.push(origin);
                history.origins.len() as u32 - 1
            });
            let Some(entry) = self.entry(dict, action) else { continue };
            let time = dict.get(self.keys.time_us).and_then(Value::as_i64).map(|us| us.saturating_mul(1000));
            history.timed |= time.is_some();
            // The clock is read under the allocator's lock, yet its conversion to Unix time may step back a little.
            last_time = last_time.max(time);
            let time = last_time.unwrap_or(i64::MIN);
            if action == Action::OutOfMemory {
                let device_free = dict.get(self.keys.device_free).or_else(|| dict.get(self.keys.addr));
                history.out_of_memory.push(FailedRequest {
                    entry: history.entries.len(),
                    device_free: device_free.and_then(Value::as_i64).map(Bytes),
                });
            }
            history.entries.push(HistoryEntry { time: Nanos(time), origin, ..entry });
        }
        Ok(Some(history))
    }

    fn action(&mut self, dict: Dict<'a>) -> Option<Action> {
        Some(match dict.get(self.keys.action).and_then(Value::as_str) {
            Some("alloc") => Action::Alloc,
            Some("free_requested") => Action::FreeRequested,
            Some("free_completed" | "free") => Action::FreeCompleted,
            Some("segment_alloc") => Action::SegmentAlloc,
            Some("segment_free") => Action::SegmentFree,
            Some("segment_map") => Action::SegmentMap,
            Some("segment_unmap") => Action::SegmentUnmap,
            Some("oom") => Action::OutOfMemory,
            Some("snapshot") => Action::Snapshot,
            Some(other) => {
                let label: String = other.chars().take(60).collect();
                self.builder.count_unmodelled(&format!("snapshot/{label}"), 1);
                return None;
            }
            None => {
                self.skipped("an entry of the history without an action");
                return None;
            }
        })
    }

    /// The entry but for its time and origin.
    fn entry(&mut self, dict: Dict<'a>, action: Action) -> Option<HistoryEntry> {
        let address = match action {
            Action::OutOfMemory | Action::Snapshot => Some(0),
            _ => dict.get(self.keys.addr).and_then(Value::as_address),
        };
        let Some(address) = address else {
            self.skipped("an entry of the history without an address");
            return None;
        };
        let requested = self.size_at(dict, self.keys.size);
        Some(HistoryEntry { action, address, requested, size: requested, time: Nanos::ZERO, origin: 0, frees: false })
    }

    fn origin(&mut self, dict: Dict<'a>) -> Origin {
        Origin {
            stream: dict.get(self.keys.stream).and_then(Value::as_i64).unwrap_or(0),
            stack: self.stacks.at(dict, self.keys.frames, self.builder),
            compile_context: self.text(dict, self.keys.compile_context),
            user_metadata: self.text(dict, self.keys.user_metadata),
        }
    }

    /// A string of the document in the trace; `N/A` is torch's word for nothing.
    fn text(&mut self, dict: Dict<'a>, key: Key) -> StrId {
        match dict.get(key) {
            Some(Value::Str(_, "" | "N/A")) => StrId::EMPTY,
            Some(Value::Str(id, text)) => *self.texts.entry(id).or_insert_with(|| self.builder.intern(text)),
            _ => StrId::EMPTY,
        }
    }

    /// `record_function` ranges that began and ended while history was recorded, by the times of the file.
    fn annotations(&mut self, list: Option<List<'a>>) -> Result<Vec<Op>> {
        let mut open: HashMap<(StrId, i64), Vec<usize>> = HashMap::new();
        let mut ops: Vec<Op> = Vec::new();
        let mut last = 0;
        for value in list.into_iter().flat_map(List::iter) {
            self.spend(value)?;
            let int = |key: Key| value.as_dict().and_then(|dict| dict.get(key)).and_then(Value::as_i64);
            let stage = value.as_dict().and_then(|dict| dict.get(self.keys.stage)).and_then(Value::as_str);
            let (Some(dict), Some(us), Some(stage @ ("START" | "END"))) =
                (value.as_dict(), int(self.keys.time_us), stage)
            else {
                self.skipped("an annotation that tells no time, or not whether it begins or ends");
                continue;
            };
            let device = int(self.keys.device).unwrap_or(0);
            let (name, time) = (self.text(dict, self.keys.name), us.saturating_mul(1000));
            last = last.max(time);
            if stage == "START" {
                let thread = events::thread(self.builder, device);
                open.entry((name, device)).or_default().push(ops.len());
                let op = Op::new(name, OpKind::Annotation, thread, Nanos(time), Nanos::ZERO);
                ops.push(Op { unfinished: true, ..op });
            } else if let Some(begun) = open.get_mut(&(name, device)).and_then(Vec::pop) {
                let op = &mut ops[begun];
                op.duration = (Nanos(time) - op.start).max(Nanos::ZERO);
                op.unfinished = false;
            } else {
                self.builder.diagnostics_mut().note("end-without-begin", Severity::Info, None, || {
                    "annotations that began before the history was recorded; left out".into()
                });
            }
        }
        for op in ops.iter_mut().filter(|op| op.unfinished) {
            op.duration = (Nanos(last) - op.start).max(Nanos::ZERO);
        }
        Ok(ops)
    }

    /// Puts the first moment of the file at the trace's zero, where it tells times at all.
    fn settle_times(&mut self, snapshot: &mut Snapshot, annotations: Vec<Op>) {
        let timed = snapshot.histories.iter().filter(|h| h.timed);
        let entries = timed.flat_map(|h| &h.entries).map(|e| e.time).filter(|t| t.0 > i64::MIN);
        let base = entries.chain(annotations.iter().map(|op| op.start)).min();
        self.builder.info_mut().base_time = base;
        let base = base.unwrap_or(Nanos::ZERO);
        for history in &mut snapshot.histories {
            let timed = history.timed;
            for (i, entry) in history.entries.iter_mut().enumerate() {
                entry.time = match timed {
                    true => (entry.time - base).max(Nanos::ZERO),
                    false => Nanos(i64::try_from(i).unwrap_or(i64::MAX).saturating_mul(1000)),
                };
            }
            if !timed {
                self.builder.diagnostics_mut().note("no-times", Severity::Info, None, || {
                    "the history tells no times (written before torch 2.1): entries stand one microsecond apart".into()
                });
            }
        }
        if self.builder.kept().ops {
            for op in annotations {
                self.builder.push_op(Op { start: op.start - base, ..op });
            }
        }
    }
}

fn size(bytes: Option<i64>) -> Bytes {
    Bytes(bytes.unwrap_or(0).max(0))
}

fn read_settings(dict: Dict<'_>) -> AllocatorSettings {
    let mut settings = AllocatorSettings::default();
    for (key, value) in dict.iter().take(MOST_SETTINGS) {
        let Some(key) = key.as_str() else { continue };
        match (key, value) {
            ("max_split_size", Value::Int(bytes)) if bytes > 0 => settings.max_split_size = Some(Bytes(bytes)),
            ("expandable_segments", Value::Bool(on)) => settings.expandable_segments = on,
            ("roundup_power2_divisions", Value::Dict(steps)) => {
                for (from, divisions) in steps.iter() {
                    let from = from.as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
                    let divisions = divisions.as_i64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
                    let index = from.checked_ilog2().unwrap_or(u32::MAX) as usize;
                    if let Some(slot) = settings.roundup_power2_divisions.get_mut(index) {
                        *slot = divisions;
                    }
                }
            }
            _ => {}
        }
        settings.all.push((key.to_owned(), setting_text(value)));
    }
    settings
}

/// A setting as text, one level deep.
fn setting_text(value: Value<'_>) -> String {
    match value {
        Value::Bool(on) => on.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Str(_, text) => text.to_owned(),
        Value::Dict(dict) => {
            let scalar = |value: Value<'_>| match value {
                Value::Dict(_) | Value::List(_) => value.kind().to_owned(),
                value => setting_text(value),
            };
            let entries = dict.iter().take(64).map(|(key, value)| format!("{}:{}", scalar(key), scalar(value)));
            format!("[{}]", entries.collect::<Vec<_>>().join(","))
        }
        other => other.kind().to_owned(),
    }
}

fn not_a_snapshot(root: Value<'_>) -> Error {
    Error::format("a snapshot of torch.cuda.memory._dump_snapshot", format!("a pickle of {} without one", root.kind()))
        .with_hint("snapshots hold `segments` and `device_traces`")
}
