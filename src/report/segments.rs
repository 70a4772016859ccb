//! `segments`: what the allocator had reserved when a snapshot was taken, segment by segment and block by block.
//!
//! What the figures mean stands in [`snapshot_stats`](crate::analysis::snapshot_stats).

use super::memory::{cut, shown, to_json};
use super::sentence::sentence;
use super::{Block as Part, Cell, Column, Figure, Report, Sentence, Table, names};
use crate::analysis::snapshot_stats::{CacheStats, DeviceStats, SegmentStats, device_stats};
use crate::analysis::stack_owners::{Owner, StackOwners};
use crate::error::{Error, Result};
use crate::trace::snapshot::{Block, BlockState, Pool, Segment, Snapshot};
use crate::trace::{Device, Keep, Trace};
use crate::units::Bytes;
use hashbrown::HashMap;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;

/// What rows can be sorted by: sizes greatest first, addresses lowest first.
pub const SORTS: [&str; 3] = ["bytes", "free_bytes", "address"];

/// The options of the report.
#[derive(Clone, Debug)]
pub struct Segments {
    /// A row for each block, and not for each segment.
    pub blocks: bool,
    /// Show only this device.
    pub device: Option<Device>,
    /// What to sort by, one of [`SORTS`].
    pub sort_by: String,
    /// How many rows to show; negative for all. The picture and JSON have all.
    pub limit: i64,
    /// The name of the input, to be told in the picture.
    pub source: String,
    /// The width of the picture, in pixels.
    pub width: Option<u32>,
}

impl Default for Segments {
    fn default() -> Self {
        Self {
            blocks: false,
            device: None,
            sort_by: SORTS[0].to_owned(),
            limit: 20,
            source: String::new(),
            width: None,
        }
    }
}

/// Segments to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentsFigure {
    /// The name of the input; empty where there is none.
    pub source: String,
    /// Segments that serve the same requests, together.
    pub caches: Vec<CacheFigure>,
    /// Who holds what, most first, and how much.
    pub owners: Vec<(String, Bytes)>,
    /// The width in pixels, where it is given.
    pub width: Option<u32>,
}

/// Segments that serve the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheFigure {
    /// The device.
    pub device: Device,
    /// The figures.
    pub stats: CacheStats,
    /// The segments.
    pub segments: Vec<SegmentFigure>,
}

/// A segment to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentFigure {
    /// Where it starts.
    pub address: u64,
    /// How long it is.
    pub bytes: Bytes,
    /// Whether a part of it is in use.
    pub in_use: bool,
    /// Its blocks by address.
    pub blocks: Vec<BlockFigure>,
}

/// A block to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockFigure {
    /// Where it starts.
    pub address: u64,
    /// How long it is.
    pub bytes: Bytes,
    /// What it is doing.
    pub state: BlockState,
    /// Its place in [`SegmentsFigure::owners`].
    pub owner: usize,
}

impl Segments {
    /// The parts of a snapshot that the report needs.
    pub fn keep(&self) -> Keep {
        Keep { ops: false, details: false, device_events: false, ..Keep::REPORTS }
    }

    /// The report.
    ///
    /// # Errors
    ///
    /// Where the input is no snapshot, or holds no segments (of the device asked for).
    pub fn run(&self, trace: &Trace) -> Result<Report> {
        let sort = names::find(&self.sort_by, &SORTS, "sort key")?;
        let hint = "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes one";
        let snapshot = trace.snapshot().ok_or_else(|| {
            Error::missing("this is no snapshot of the allocator, and only that holds segments", hint)
        })?;
        let mut devices = device_stats(snapshot);
        if let Some(device) = self.device {
            devices.retain(|d| d.device == device);
        }
        if devices.is_empty() {
            let of = self.device.map(|d| format!(" of {d}")).unwrap_or_default();
            return Err(Error::missing(format!("the snapshot holds no segments{of}"), "allocate before it is taken"));
        }
        let view = View { trace, snapshot, owners: StackOwners::build(trace), several: devices.len() > 1 };
        let mut rows: Vec<Row<'_>> = devices.iter().flat_map(|d| &d.segments).map(|s| view.segment(s)).collect();
        if self.blocks {
            rows =
                rows.iter().flat_map(|row| row.segment.blocks.iter().map(|b| Row { block: Some(b), ..*row })).collect();
        }
        let all = rows.len();
        match sort {
            0 => rows.sort_by_key(|r| Reverse(r.bytes())),
            1 => rows.sort_by_key(|r| Reverse(r.free())),
            _ => rows.sort_by_key(|r| (r.segment.device, r.address())),
        }
        rows.truncate(shown(self.limit, all));
        let mut table = if self.blocks { view.block_table(&rows) } else { view.segment_table(&rows) };
        cut(&mut table, all);
        let mut blocks = vec![Part::Table(table), Part::Table(view.caches(&devices))];
        blocks.extend(devices.iter().map(|d| Part::Text(sentence_of(d))));
        Ok(Report {
            command: "segments",
            blocks,
            document: view.document(&devices)?,
            figure: Some(Figure::Segments(Box::new(view.figure(self, &devices)))),
            ..Report::default()
        })
    }
}

/// A row of the table: a segment, or a block of it.
#[derive(Clone, Copy)]
struct Row<'a> {
    stats: SegmentStats,
    segment: &'a Segment,
    block: Option<&'a Block>,
}

impl Row<'_> {
    fn address(&self) -> u64 {
        self.block.map_or(self.segment.address, |b| b.address)
    }

    fn bytes(&self) -> Bytes {
        self.block.map_or(self.segment.size, |b| b.size)
    }

    fn free(&self) -> Bytes {
        match self.block {
            Some(block) if block.state.is_active() => Bytes::ZERO,
            Some(block) => block.size,
            None => self.stats.free_bytes,
        }
    }
}

struct View<'t> {
    trace: &'t Trace,
    snapshot: &'t Snapshot,
    owners: StackOwners,
    several: bool,
}

impl<'t> View<'t> {
    fn segment(&self, stats: &SegmentStats) -> Row<'t> {
        Row { stats: *stats, segment: &self.snapshot.segments[stats.segment], block: None }
    }

    fn device_column(&self) -> Column {
        Column::new("device", "Device").priority(if self.several { 1 } else { Column::DETAIL })
    }

    /// A name where there is one.
    fn owner(&self, stack: crate::trace::StackId) -> Cell {
        match self.owners.of(stack) {
            Owner::NoStack => Cell::Absent,
            owner => owner.name(self.trace).into_owned().into(),
        }
    }

    fn segment_table(&self, rows: &[Row<'_>]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let any_expandable = rows.iter().any(|r| r.segment.expandable);
        let columns = vec![
            Column::new("address", "Segment"),
            self.device_column(),
            column("pool", "Pool", 3),
            column("pool_id", "Private pool", Column::DETAIL),
            column("stream", "Stream", 6),
            column("bytes", "Size", 0),
            column("active_bytes", "Active", 0),
            column("free_bytes", "Free", 0),
            column("largest_free_block_bytes", "Largest free", 1),
            column("inactive_split_bytes", "Split", 2),
            column("rounding_bytes", "Rounding", 5),
            column("block_count", "Blocks", 4),
            column("free_block_count", "Free blocks", 7),
            column("expandable", "Expandable", if any_expandable { 8 } else { Column::DETAIL }),
            column("owner", "First asked for by", 9),
        ];
        let row = |r: &Row<'_>| {
            let (s, stats) = (r.segment, &r.stats);
            vec![
                Cell::Address(s.address),
                s.device.to_string().into(),
                pool_name(s.pool).into(),
                pool_id(s.pool_id),
                s.stream.to_string().into(),
                s.size.into(),
                stats.active_bytes.into(),
                stats.free_bytes.into(),
                stats.largest_free_block_bytes.into(),
                stats.inactive_split_bytes.into(),
                stats.rounding_bytes.into(),
                Cell::Count(stats.block_count),
                Cell::Count(stats.free_block_count),
                if s.expandable { "yes" } else { "no" }.into(),
                self.owner(s.stack),
            ]
        };
        Table { columns, rows: rows.iter().map(row).collect(), ..Table::default() }
    }

    fn block_table(&self, rows: &[Row<'_>]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let columns = vec![
            Column::new("address", "Block"),
            self.device_column(),
            column("bytes", "Size", 0),
            column("requested_bytes", "Requested", 2),
            column("state", "State", 0),
            column("segment", "Segment", 4),
            column("pool", "Pool", 5),
            column("pool_id", "Private pool", Column::DETAIL),
            column("stream", "Stream", 6),
            column("owner", "Asked for by", 1),
        ];
        let row = |r: &Row<'_>| {
            let block = r.block?;
            Some(vec![
                Cell::Address(block.address),
                r.segment.device.to_string().into(),
                block.size.into(),
                if block.state.is_active() { block.requested.into() } else { Cell::Absent },
                state_name(block.state).into(),
                Cell::Address(r.segment.address),
                pool_name(r.segment.pool).into(),
                pool_id(r.segment.pool_id),
                r.segment.stream.to_string().into(),
                if block.state.is_active() { self.owner(block.stack) } else { Cell::Absent },
            ])
        };
        Table { columns, rows: rows.iter().filter_map(row).collect(), ..Table::default() }
    }

    /// A row for each set of segments that serve the same requests.
    fn caches(&self, devices: &[DeviceStats]) -> Table {
        let column = |key: &str, title: &str, priority| Column::new(key, title).priority(priority);
        let columns = vec![
            Column::new("pool", "Pool"),
            self.device_column(),
            column("segment_count", "Segments", 2),
            column("reserved_bytes", "Reserved", 0),
            column("active_bytes", "Active", 0),
            column("requested_bytes", "Requested", 3),
            column("free_bytes", "Free", 0),
            column("largest_free_block_bytes", "Largest free", 0),
            column("fragmentation", "Fragmentation", 0),
            column("inactive_split_bytes", "Split", 1),
            column("releasable_bytes", "Releasable", 1),
            column("rounding_bytes", "Rounding", 4),
        ];
        let row = |device: &DeviceStats, c: &CacheStats| {
            let (stats, f) = (&c.stats, &c.fragmentation);
            vec![
                cache_name(c).into(),
                device.device.to_string().into(),
                Cell::Count(stats.segment_count),
                stats.reserved_bytes.into(),
                stats.active_bytes.into(),
                stats.requested_bytes.into(),
                f.free_bytes.into(),
                f.largest_free_block_bytes.into(),
                f.ratio.map_or(Cell::Absent, Cell::Ratio),
                stats.inactive_split_bytes.into(),
                f.releasable_bytes.into(),
                f.rounding_bytes.into(),
            ]
        };
        let rows = devices.iter().flat_map(|d| d.caches.iter().map(move |c| row(d, c))).collect();
        Table { title: "By pool".into(), columns, rows, ..Table::default() }
    }

    fn document(&self, devices: &[DeviceStats]) -> Result<Map<String, Value>> {
        let mut document = Map::new();
        let block = |b: &Block| {
            json!({"address": b.address, "bytes": b.size, "requested_bytes": b.requested, "state": state_name(b.state),
                   "owner": b.state.is_active().then(|| self.owners.of(b.stack).name(self.trace))})
        };
        let segment = |stats: &SegmentStats| {
            let s = &self.snapshot.segments[stats.segment];
            json!({"device": s.device.to_string(), "address": s.address, "bytes": s.size, "pool": pool_name(s.pool),
                   "pool_id": [s.pool_id.0, s.pool_id.1], "stream": s.stream, "expandable": s.expandable,
                   "active_bytes": stats.active_bytes, "free_bytes": stats.free_bytes,
                   "largest_free_block_bytes": stats.largest_free_block_bytes,
                   "inactive_split_bytes": stats.inactive_split_bytes, "rounding_bytes": stats.rounding_bytes,
                   "owner": self.owners.of(s.stack).name(self.trace),
                   "blocks": s.blocks.iter().map(block).collect::<Vec<Value>>()})
        };
        let mut totals = to_json(&devices)?;
        for device in totals.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            // They stand below, with their blocks.
            device.remove("segments");
        }
        document.insert("devices".into(), totals);
        document.insert("segments".into(), devices.iter().flat_map(|d| &d.segments).map(segment).collect());
        Ok(document)
    }

    fn figure(&self, options: &Segments, devices: &[DeviceStats]) -> SegmentsFigure {
        let mut places: HashMap<Owner, usize> = HashMap::new();
        let mut by_name: HashMap<String, usize> = HashMap::new();
        let mut owners: Vec<(String, Bytes)> = Vec::new();
        let mut block = |b: &Block| {
            let owner = self.owners.of(b.stack);
            let place = *places.entry(owner).or_insert_with(|| {
                let name = owner.name(self.trace).into_owned();
                *by_name.entry(name.clone()).or_insert_with(|| {
                    owners.push((name, Bytes::ZERO));
                    owners.len() - 1
                })
            });
            if b.state.is_active() {
                owners[place].1 += b.size;
            }
            BlockFigure { address: b.address, bytes: b.size, state: b.state, owner: place }
        };
        let mut caches: Vec<CacheFigure> = Vec::new();
        for device in devices {
            for stats in &device.caches {
                let segment = |i: &usize| {
                    let s = &self.snapshot.segments[*i];
                    SegmentFigure {
                        address: s.address,
                        bytes: s.size,
                        in_use: s.blocks.iter().any(|b| b.state.is_active()),
                        blocks: s.blocks.iter().map(&mut block).collect(),
                    }
                };
                let segments = stats.segments.iter().map(segment).collect();
                caches.push(CacheFigure { device: device.device, stats: stats.clone(), segments });
            }
        }
        let order = ranked(&owners);
        for b in caches.iter_mut().flat_map(|c| &mut c.segments).flat_map(|s| &mut s.blocks) {
            b.owner = order[b.owner];
        }
        let mut sorted = owners.clone();
        for (old, new) in order.iter().enumerate() {
            sorted[*new] = std::mem::take(&mut owners[old]);
        }
        SegmentsFigure { source: options.source.clone(), caches, owners: sorted, width: options.width }
    }
}

/// For each owner its place when sorted, most first.
fn ranked(owners: &[(String, Bytes)]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..owners.len()).collect();
    sorted.sort_by(|a, b| owners[*b].1.cmp(&owners[*a].1).then_with(|| owners[*a].0.cmp(&owners[*b].0)));
    let mut place = vec![0; owners.len()];
    for (new, old) in sorted.into_iter().enumerate() {
        place[old] = new;
    }
    place
}

/// What the numbers of a device come to.
fn sentence_of(d: &DeviceStats) -> Sentence {
    let f = &d.fragmentation;
    let text = sentence![
        d.device.to_string(),
        ": ",
        d.all.reserved_bytes,
        " reserved in ",
        Cell::Count(d.all.segment_count),
        " segments, ",
        d.all.active_bytes,
        " of it in use. Of ",
        f.free_bytes,
        " free, the largest block has ",
        f.largest_free_block_bytes,
        "; "
    ];
    text.then(sentence![
        d.all.inactive_split_bytes,
        " stand beside blocks in use and cannot be given back, empty_cache() gives back ",
        f.releasable_bytes,
        ". Rounding takes ",
        f.rounding_bytes,
        "."
    ])
}

/// `large`, `small, stream 7`, `large of private pool 0/1`.
pub fn cache_name(c: &CacheStats) -> String {
    let private = match c.pool_id {
        (0, 0) => String::new(),
        (a, b) => format!(" of private pool {a}/{b}"),
    };
    let stream = if c.stream == 0 { String::new() } else { format!(", stream {}", c.stream) };
    format!("{}{private}{stream}", pool_name(c.pool))
}

fn pool_name(pool: Pool) -> &'static str {
    match pool {
        Pool::Large => "large",
        Pool::Small => "small",
    }
}

fn pool_id(id: (i64, i64)) -> Cell {
    if id == (0, 0) { Cell::Absent } else { format!("{}/{}", id.0, id.1).into() }
}

/// As PyTorch's file has it.
pub fn state_name(state: BlockState) -> &'static str {
    match state {
        BlockState::Allocated => "active_allocated",
        BlockState::AwaitingFree => "active_awaiting_free",
        BlockState::Inactive => "inactive",
    }
}
