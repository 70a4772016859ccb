//! The one writer of a [`Trace`].

use super::columns::IdMap;
use super::oddities::{Holes, overlaps};
use super::places::Places;
use super::{
    Detail, DetailId, Device, DeviceEvent, DeviceEvents, DeviceId, Diagnostics, Frame, Frames, Info, Keep, MemoryEvent,
    MemoryEvents, Op, Ops, OutOfMemory, OutOfMemoryEvents, Severity, Snapshot, StackId, StackNode, StrId, Strings,
    Thread, ThreadId, Trace,
};
use crate::units::Nanos;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Collects the events of a trace in the order of the file, and [finishes](Self::finish) them into a [`Trace`].
///
/// Builders of consecutive pieces of one file are joined with [`append`](Self::append); the result is the same as if
/// one builder had seen all.
#[derive(Debug)]
pub struct TraceBuilder {
    strings: Strings,
    threads: Interned<Thread, ThreadKey>,
    details: Interned<Detail, Detail>,
    devices: Interned<Device, Device>,
    stacks: Interned<StackNode, StackNode>,
    ops: Ops,
    device_events: DeviceEvents,
    frames: Frames,
    memory: MemoryEvents,
    out_of_memory: OutOfMemoryEvents,
    marks: Vec<Mark>,
    /// Where in the input the event stands that is being added, where that was told.
    place: Option<u64>,
    op_places: Places,
    frame_places: Places,
    process_names: HashMap<StrId, StrId>,
    snapshot: Option<Snapshot>,
    info: Info,
    events: u64,
    unmodelled: BTreeMap<String, u64>,
    diagnostics: Diagnostics,
    kept: Keep,
    /// Place of the first event at time 0 in the input.
    first_at_zero: Option<u64>,
    /// How many allocations and frees came without the allocator's totals, and where the first stands.
    without_totals: (u64, Option<u64>),
}

type ThreadKey = (StrId, StrId);

/// Distinct values and their places.
#[derive(Debug)]
struct Interned<T, K> {
    values: Vec<T>,
    places: HashMap<K, u32>,
}

impl<T, K> Default for Interned<T, K> {
    fn default() -> Self {
        Self { values: Vec::new(), places: HashMap::new() }
    }
}

impl<T, K: std::hash::Hash + Eq> Interned<T, K> {
    fn clear(&mut self) {
        self.values.clear();
        self.places.clear();
    }

    fn intern(&mut self, key: K, value: impl FnOnce() -> T) -> u32 {
        *self.places.entry(key).or_insert_with(|| {
            self.values.push(value());
            u32::try_from(self.values.len() - 1).expect("more than 2^32 distinct values do not fit in memory")
        })
    }
}

/// One side of a range whose begin and end are events of their own (`ph` `B` and `E`).
#[derive(Clone, Copy, Debug)]
struct Mark {
    side: Side,
    /// Where it stands in the input, where that was told.
    place: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Begin(Op),
    End(ThreadId, Nanos),
}

impl Mark {
    fn time(&self) -> Nanos {
        match self.side {
            Side::Begin(op) => op.start,
            Side::End(_, time) => time,
        }
    }
}

impl Default for TraceBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl TraceBuilder {
    /// An empty builder for a trace with all parts.
    pub fn new() -> Self {
        Self::with_keep(Keep::ALL)
    }

    /// An empty builder for a trace with these parts. The caller sees to it that only these are pushed.
    pub fn with_keep(kept: Keep) -> Self {
        let mut builder = Self {
            strings: Strings::default(),
            threads: Interned::default(),
            details: Interned::default(),
            devices: Interned::default(),
            stacks: Interned::default(),
            ops: Ops::default(),
            device_events: DeviceEvents::default(),
            frames: Frames::default(),
            memory: MemoryEvents::default(),
            out_of_memory: OutOfMemoryEvents::default(),
            marks: Vec::new(),
            place: None,
            op_places: Places::default(),
            frame_places: Places::default(),
            process_names: HashMap::new(),
            snapshot: None,
            info: Info::default(),
            events: 0,
            unmodelled: BTreeMap::new(),
            diagnostics: Diagnostics::default(),
            kept,
            first_at_zero: None,
            without_totals: (0, None),
        };
        builder.begin();
        builder
    }

    /// What every table holds first.
    fn begin(&mut self) {
        self.detail(Detail::NONE);
        self.stacks.values.push(StackNode { parent: StackId::NONE, frame: StrId::EMPTY });
    }

    /// Forgets all but what is to be kept, and holds on to the memory.
    fn clear(&mut self) {
        let Self {
            strings,
            threads,
            details,
            devices,
            stacks,
            ops,
            device_events,
            frames,
            memory,
            out_of_memory,
            marks,
            place,
            op_places,
            frame_places,
            process_names,
            snapshot,
            info,
            events,
            unmodelled,
            diagnostics,
            kept: _,
            first_at_zero,
            without_totals,
        } = self;
        strings.clear();
        threads.clear();
        details.clear();
        devices.clear();
        stacks.clear();
        ops.clear();
        device_events.clear();
        frames.clear();
        memory.clear();
        out_of_memory.clear();
        marks.clear();
        *place = None;
        op_places.clear();
        frame_places.clear();
        process_names.clear();
        *snapshot = None;
        *info = Info::default();
        *events = 0;
        unmodelled.clear();
        *diagnostics = Diagnostics::default();
        *first_at_zero = None;
        *without_totals = (0, None);
        self.begin();
    }

    /// The parts that the trace is to have.
    pub fn kept(&self) -> Keep {
        self.kept
    }

    /// The id of a string.
    pub fn intern(&mut self, text: &str) -> StrId {
        self.strings.intern(text)
    }

    /// The id of a string that is known already, from its bytes.
    pub(crate) fn find(&self, text: &[u8]) -> Option<StrId> {
        self.strings.find_bytes(text)
    }

    /// The text of an id of this builder.
    pub fn str(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// The id of the thread `tid` of the process `pid`, both as text.
    pub fn thread(&mut self, pid: &str, tid: &str) -> ThreadId {
        let (process, id) = (self.intern(pid), self.intern(tid));
        self.thread_of((process, id))
    }

    fn thread_of(&mut self, key: ThreadKey) -> ThreadId {
        let (process, id) = key;
        let none = StrId::EMPTY;
        ThreadId(self.threads.intern(key, || Thread { process, id, process_name: none, name: none }))
    }

    /// Gives a thread its name.
    pub fn name_thread(&mut self, thread: ThreadId, name: &str) {
        self.threads.values[thread.index()].name = self.strings.intern(name);
    }

    /// Gives a process its name.
    pub fn name_process(&mut self, pid: &str, name: &str) {
        let (pid, name) = (self.intern(pid), self.intern(name));
        self.process_names.insert(pid, name);
    }

    /// The id of a detail.
    pub fn detail(&mut self, detail: Detail) -> DetailId {
        DetailId(self.details.intern(detail, || detail))
    }

    /// The id of a device.
    pub fn device(&mut self, device: Device) -> DeviceId {
        DeviceId(self.devices.intern(device, || device))
    }

    /// The id of the stack whose innermost frame is `frame`, called from `parent`.
    pub fn stack(&mut self, parent: StackId, frame: StrId) -> StackId {
        let node = StackNode { parent, frame };
        StackId(self.stacks.intern(node, || node))
    }

    /// Tells where in the input the events stand that are added from now on, for diagnostics that need all events.
    #[inline(always)]
    pub(crate) fn set_place(&mut self, offset: u64) {
        self.place = Some(offset);
    }

    /// Adds a CPU-side event.
    pub fn push_op(&mut self, op: Op) {
        self.op_places.push(self.place);
        self.ops.push(op);
    }

    /// Adds the begin of a CPU-side event whose end comes on its own; its duration is not read.
    pub fn push_begin(&mut self, op: Op) {
        self.marks.push(Mark { side: Side::Begin(op), place: self.place });
    }

    /// Ends the innermost begun event of a thread.
    pub fn push_end(&mut self, thread: ThreadId, time: Nanos) {
        self.marks.push(Mark { side: Side::End(thread, time), place: self.place });
    }

    /// Adds a device-side event.
    pub fn push_device_event(&mut self, event: DeviceEvent) {
        self.device_events.push(event);
    }

    /// Adds a Python frame.
    pub fn push_frame(&mut self, frame: Frame) {
        self.frame_places.push(self.place);
        self.frames.push(frame);
    }

    /// Adds an allocation or a free.
    pub fn push_memory(&mut self, event: MemoryEvent) {
        self.memory.push(event);
    }

    /// Adds a request that could not be served.
    pub fn push_out_of_memory(&mut self, event: OutOfMemory) {
        self.out_of_memory.push(event);
    }

    /// Gives the trace the allocator's snapshot, whose ids are this builder's. It is not carried over by
    /// [`append`](Self::append): a snapshot is read in one piece.
    pub fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(snapshot);
    }

    /// Counts an event of any kind.
    pub fn count_event(&mut self) {
        self.events += 1;
    }

    /// Tells that the event being added is at time 0, in case that such turn out to be holes.
    pub(crate) fn note_zero(&mut self) {
        self.first_at_zero = self.first_at_zero.or(self.place);
    }

    /// Tells that the allocation or free being added comes without the allocator's totals, in case that others have them.
    pub(crate) fn note_no_total(&mut self) {
        let (count, first) = self.without_totals;
        self.without_totals = (count + 1, first.or(self.place));
    }

    /// How many events were counted.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Counts events of a kind that the model does not hold, such as `ph s`.
    pub fn count_unmodelled(&mut self, label: &str, count: u64) {
        match self.unmodelled.get_mut(label) {
            Some(known) => *known += count,
            None => drop(self.unmodelled.insert(label.to_owned(), count)),
        }
    }

    /// What the file says of itself.
    pub fn info_mut(&mut self) -> &mut Info {
        &mut self.info
    }

    /// The place for what was skipped or odd.
    pub fn diagnostics_mut(&mut self) -> &mut Diagnostics {
        &mut self.diagnostics
    }

    /// Adds all that `next`, the builder of the following piece of the same file, has seen.
    ///
    /// [`Info`] is not joined: whoever reads the head of a file writes it to one builder.
    pub fn append(&mut self, mut next: Self) {
        self.append_from(&mut next);
    }

    /// As [`append`](Self::append); leaves `next` empty, with its memory, for a further piece.
    pub(crate) fn append_from(&mut self, next: &mut Self) {
        let mut ids = IdMap::default();
        ids.strings.extend(next.strings.iter().map(|s| self.strings.intern(s)));
        let moved = |id: StrId| ids.strings[id.index()];
        for thread in &next.threads.values {
            let id = self.thread_of((moved(thread.process), moved(thread.id)));
            if thread.name != StrId::EMPTY {
                self.threads.values[id.index()].name = moved(thread.name);
            }
            ids.threads.push(id);
        }
        for detail in &next.details.values {
            let detail = Detail {
                input_dims: moved(detail.input_dims),
                input_types: moved(detail.input_types),
                concrete_inputs: moved(detail.concrete_inputs),
                call_stack: moved(detail.call_stack),
            };
            ids.details.push(DetailId(self.details.intern(detail, || detail)));
        }
        for device in next.devices.values.iter().copied() {
            ids.devices.push(DeviceId(self.devices.intern(device, || device)));
        }
        ids.stacks.push(StackId::NONE);
        for node in next.stacks.values.iter().skip(1) {
            // A caller stands before its callees, so its new id is known.
            let node = StackNode { parent: ids.stacks[node.parent.index()], frame: moved(node.frame) };
            ids.stacks.push(StackId(self.stacks.intern(node, || node)));
        }
        for (pid, name) in &next.process_names {
            self.process_names.insert(moved(*pid), moved(*name));
        }
        self.marks.extend(next.marks.drain(..).map(|Mark { side, place }| {
            let side = match side {
                Side::Begin(op) => Side::Begin(Op {
                    name: moved(op.name),
                    thread: ids.threads[op.thread.index()],
                    detail: ids.details[op.detail.index()],
                    ..op
                }),
                Side::End(thread, time) => Side::End(ids.threads[thread.index()], time),
            };
            Mark { side, place }
        }));
        self.op_places.append(&next.op_places);
        self.frame_places.append(&next.frame_places);
        self.ops.append(&next.ops, &ids);
        self.device_events.append(&next.device_events, &ids);
        self.frames.append(&next.frames, &ids);
        self.memory.append(&next.memory, &ids);
        self.out_of_memory.append(&next.out_of_memory, &ids);
        self.events += next.events;
        for (label, count) in std::mem::take(&mut next.unmodelled) {
            *self.unmodelled.entry(label).or_default() += count;
        }
        self.diagnostics.append(std::mem::take(&mut next.diagnostics));
        self.first_at_zero = self.first_at_zero.or(next.first_at_zero);
        self.without_totals.0 += next.without_totals.0;
        self.without_totals.1 = self.without_totals.1.or(next.without_totals.1);
        next.clear();
    }

    /// The trace: ranges paired, tables in order, names given.
    pub fn finish(mut self) -> Trace {
        let holes = self.find_holes();
        self.tell_missing_totals();
        if holes.are_there() {
            self.marks.retain(|mark| mark.time() != Nanos::ZERO);
        }
        self.pair_marks();
        let threads = self.threads.values.len();
        let (mut odd_ops, mut odd_frames) = ((0, None), (0, None));
        let Self { ops, op_places, device_events, frames, frame_places, memory, out_of_memory, .. } = &mut self;
        rayon::scope(|scope| {
            scope.spawn(|_| {
                let order = by_start(ops.start(), ops.duration());
                if let Some(order) = &order {
                    ops.permute(order);
                }
                let holes = holes.rows(ops.start());
                ops.remove(holes.clone());
                ops.shrink();
                let rows = (ops.start(), ops.duration(), ops.thread());
                odd_ops = count_overlaps(rows, threads, &SortedPlaces { places: op_places, order, holes });
            });
            scope.spawn(|_| {
                let order = by_start(frames.start(), frames.duration());
                if let Some(order) = &order {
                    frames.permute(order);
                }
                let holes = holes.rows(frames.start());
                frames.remove(holes.clone());
                frames.shrink();
                let rows = (frames.start(), frames.duration(), frames.thread());
                odd_frames = count_overlaps(rows, threads, &SortedPlaces { places: frame_places, order, holes });
            });
            if let Some(order) = by_start(device_events.start(), device_events.duration()) {
                device_events.permute(&order);
            }
            device_events.remove(holes.rows(device_events.start()));
            device_events.shrink();
            if let Some(order) = by_time(memory.time()) {
                memory.permute(&order);
            }
            memory.remove(holes.rows(memory.time()));
            memory.shrink();
            if let Some(order) = by_time(out_of_memory.time()) {
                out_of_memory.permute(&order);
            }
            out_of_memory.remove(holes.rows(out_of_memory.time()));
            out_of_memory.shrink();
        });
        for (count, first) in [odd_ops, odd_frames] {
            self.diagnostics.note_many("overlap", Severity::Warning, count, first, || {
                "events that begin within another on their thread and end after it; both are kept, and neither is in the other"
                    .into()
            });
        }
        for thread in &mut self.threads.values {
            if let Some(name) = self.process_names.get(&thread.process) {
                thread.process_name = *name;
            }
        }
        Trace {
            strings: self.strings,
            threads: self.threads.values,
            details: self.details.values,
            devices: self.devices.values,
            stacks: self.stacks.values,
            ops: self.ops,
            device_events: self.device_events,
            frames: self.frames,
            memory: self.memory,
            out_of_memory: self.out_of_memory,
            snapshot: self.snapshot,
            info: self.info,
            events: self.events,
            unmodelled: self.unmodelled.into_iter().collect(),
            kept: self.kept,
            diagnostics: self.diagnostics,
        }
    }

    /// Finds out whether events at time 0 have no time, and counts them if so.
    fn find_holes(&mut self) -> Holes {
        let marks: Vec<Nanos> = self.marks.iter().map(Mark::time).collect();
        let columns = [
            self.ops.start(),
            self.device_events.start(),
            self.frames.start(),
            self.memory.time(),
            self.out_of_memory.time(),
            &marks,
        ];
        let holes = Holes::find(columns);
        self.diagnostics.note_many("hole-in-time", Severity::Loss, holes.count(), self.first_at_zero, || {
            "events at time 0, long before all others: the profiler had no time for them; left out".into()
        });
        holes
    }

    /// Counts allocations and frees without totals, where the exporter wrote totals for others.
    fn tell_missing_totals(&mut self) {
        let (count, first) = self.without_totals;
        if count < self.memory.len() as u64 {
            self.diagnostics.note_many("memory-without-totals", Severity::Warning, count, first, || {
                "memory events without the allocator's total (Total Allocated), which others have".into()
            });
        }
    }

    /// Makes one event of each begin and the end that belongs to it: the next one that closes it on its thread.
    fn pair_marks(&mut self) {
        let mut marks = std::mem::take(&mut self.marks);
        marks.sort_by_key(Mark::time);
        let last = marks.last().map_or(Nanos::ZERO, Mark::time);
        let mut open: HashMap<ThreadId, Vec<(Op, Option<u64>)>> = HashMap::new();
        for Mark { side, place } in marks {
            match side {
                Side::Begin(op) => open.entry(op.thread).or_default().push((op, place)),
                Side::End(thread, time) => match open.get_mut(&thread).and_then(Vec::pop) {
                    Some((op, place)) => self.push_paired(Op { duration: time - op.start, ..op }, place),
                    None => self.diagnostics.note("end-without-begin", Severity::Warning, place, || {
                        "ends (ph E) without a begin (ph B) on their thread".into()
                    }),
                },
            }
        }
        let mut left: Vec<_> = open.into_values().flatten().collect();
        left.sort_by_key(|(op, _)| (op.start, op.thread, op.name));
        for (op, place) in left {
            self.push_paired(Op { duration: last - op.start, unfinished: true, ..op }, place);
            self.diagnostics.note("begin-without-end", Severity::Warning, place, || {
                "begins (ph B) without an end (ph E); taken to last until the last mark".into()
            });
        }
    }

    fn push_paired(&mut self, op: Op, place: Option<u64>) {
        self.op_places.push(place);
        self.ops.push(op);
    }
}

/// The places of rows that were put in order and of which some were left out.
struct SortedPlaces<'a> {
    places: &'a Places,
    /// The row that stands at each place of the order, unless they were in order.
    order: Option<Vec<u32>>,
    /// The rows of the order that were left out.
    holes: Range<usize>,
}

impl SortedPlaces<'_> {
    fn get(&self, row: usize) -> Option<u64> {
        let row = if row < self.holes.start { row } else { row + self.holes.len() };
        self.places.get(self.order.as_ref().map_or(row, |order| order[row] as usize))
    }
}

/// How many events overlap partly with an earlier one on their thread, and where the first of them stands in the input.
fn count_overlaps(
    (start, duration, thread): (&[Nanos], &[Nanos], &[ThreadId]),
    threads: usize,
    places: &SortedPlaces<'_>,
) -> (u64, Option<u64>) {
    let (mut count, mut first) = (0, None);
    overlaps(start, duration, thread, threads, |row| {
        count += 1;
        first = [first, places.get(row)].into_iter().flatten().min();
    });
    (count, first)
}

/// The order by start, longest first, then as they are; `None` where they are in that order already.
fn by_start(start: &[Nanos], duration: &[Nanos]) -> Option<Vec<u32>> {
    let key = |i: usize| (start[i], -duration[i]);
    if (1..start.len()).all(|i| key(i - 1) <= key(i)) {
        return None;
    }
    sorted(start.len(), key)
}

fn by_time(time: &[Nanos]) -> Option<Vec<u32>> {
    if time.is_sorted() {
        return None;
    }
    sorted(time.len(), |i| time[i])
}

fn sorted<K: Ord>(len: usize, key: impl Fn(usize) -> K) -> Option<Vec<u32>> {
    let len = u32::try_from(len).expect("more than 2^32 events do not fit in memory");
    let mut order: Vec<u32> = (0..len).collect();
    // A stable merge sort: exported events come in long sorted runs, one a thread, which it joins in near linear time.
    order.sort_by_key(|i| key(*i as usize));
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::OpKind;

    fn op(b: &mut TraceBuilder, name: &str, tid: &str, start: i64, duration: i64) -> Op {
        let (name, thread) = (b.intern(name), b.thread("1", tid));
        Op::new(name, OpKind::Operator, thread, Nanos(start), Nanos(duration))
    }

    fn names(trace: &Trace) -> Vec<&str> {
        trace.ops().name().iter().map(|n| trace.str(*n)).collect()
    }

    #[test]
    fn rows_are_by_start_longest_first_then_file_order() {
        let mut b = TraceBuilder::new();
        for (name, start, duration) in [("late", 9, 1), ("short", 5, 1), ("long", 5, 3), ("twin", 5, 1)] {
            let row = op(&mut b, name, "1", start, duration);
            b.push_op(row);
        }
        assert_eq!(names(&b.finish()), ["long", "short", "twin", "late"]);
    }

    #[test]
    fn joined_builders_are_as_one() {
        let rows = [("a", "1", 3), ("b", "2", 2), ("c", "1", 1), ("a", "3", 0)];
        let mut whole = TraceBuilder::new();
        let mut joined = TraceBuilder::new();
        for (name, tid, start) in rows {
            let row = op(&mut whole, name, tid, start, 1);
            whole.push_op(row);
            let mut piece = TraceBuilder::new();
            let row = op(&mut piece, name, tid, start, 1);
            piece.push_op(row);
            joined.append(piece);
        }
        let (whole, joined) = (whole.finish(), joined.finish());
        assert_eq!(names(&whole), names(&joined));
        assert_eq!(whole.ops(), joined.ops());
        assert_eq!(whole.threads(), joined.threads());
    }

    #[test]
    fn a_builder_that_was_joined_is_as_a_new_one() {
        let mut used = TraceBuilder::with_keep(Keep::REPORTS);
        let row = op(&mut used, "a", "1", 3, 1);
        used.push_op(row);
        used.push_begin(row);
        used.set_place(7);
        used.note_zero();
        used.note_no_total();
        used.count_event();
        used.count_unmodelled("ph s", 1);
        used.name_process("1", "python");
        used.info_mut().with_flops = Some(true);
        used.diagnostics_mut().note("odd", Severity::Warning, None, String::new);
        let stack = used.intern("f");
        used.stack(StackId::NONE, stack);
        TraceBuilder::new().append_from(&mut used);
        assert_eq!(format!("{used:?}"), format!("{:?}", TraceBuilder::with_keep(Keep::REPORTS)));
    }

    #[test]
    fn begins_and_ends_pair_up_innermost_first_on_their_thread() {
        //  1: [outer [inner]    ]
        //  2:    ]          [lost ...
        let mut b = TraceBuilder::new();
        for (name, tid, start) in [("outer", "1", 0), ("inner", "1", 2), ("lost", "2", 8)] {
            let row = op(&mut b, name, tid, start, 0);
            b.push_begin(row);
        }
        let (one, two) = (b.thread("1", "1"), b.thread("1", "2"));
        b.push_end(two, Nanos(1));
        b.push_end(one, Nanos(5));
        b.push_end(one, Nanos(9));
        let t = b.finish();
        let got: Vec<_> = t.ops().iter().map(|o| (t.str(o.name), o.start.0, o.duration.0, o.unfinished)).collect();
        assert_eq!(got, [("outer", 0, 9, false), ("inner", 2, 3, false), ("lost", 8, 1, true)]);
        assert!(t.diagnostics().get("end-without-begin").is_some());
        assert!(t.diagnostics().get("begin-without-end").is_some());
    }

    #[test]
    fn stacks_share_their_outer_frames() {
        let mut b = TraceBuilder::new();
        let (main, f, g) = (b.intern("main"), b.intern("f"), b.intern("g"));
        let outer = b.stack(StackId::NONE, main);
        let (a, c) = (b.stack(outer, f), b.stack(outer, g));
        let mut joined = TraceBuilder::new();
        joined.intern("shift the ids");
        joined.append(b);
        let t = joined.finish();
        assert_eq!(t.stacks().len(), 4);
        assert_eq!(t.stack(a).collect::<Vec<_>>(), ["f", "main"]);
        assert_eq!(t.stack(c).collect::<Vec<_>>(), ["g", "main"]);
    }
}
