//! Python pickles, protocols 0 to 5, read as plain data without executing anything.
//!
//! A pickle is a program for a stack machine, and some of its instructions import modules and call what is in them.
//! [`read`] knows the instructions that build plain data (numbers, strings, lists, dictionaries, ...) and refuses the
//! others by name.
//!
//! Why not a crate: a snapshot repeats every frame and stack by reference (`snap_long` holds 2.4 million references
//! to 475 thousand objects). serde-pickle 1.2 takes such references for recursion and refuses every snapshot of
//! torch 2.11, and its values own what they contain, so that a shared stack would be copied for each event.
//!
//! So values lie in an arena and are named by four-byte handles: an object is stored once however often it is referred
//! to, equal stacks share their items, dictionaries of one layout share their keys, and neither depth nor cycles cost
//! anything, because nothing here recurses. Where dictionaries of one layout are many, as the entries of a history, their
//! values lie in columns ([`table`]), in which a value that all share takes no room. Memory is bounded by a small multiple
//! of the bytes really read.

mod machine;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use machine::read;

use crate::error::{Error, ErrorKind, Result};
use crate::trace::{StrId, Strings};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use table::Table;

/// A value: three bits of kind, 29 bits of number or place in the table of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Handle(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Special,
    Small,
    Wide,
    Unsigned,
    Float,
    Str,
    List,
    Dict,
}

const PAYLOAD_BITS: u32 = 29;
const PAYLOAD: u32 = (1 << PAYLOAD_BITS) - 1;
const KINDS: [Kind; 8] =
    [Kind::Special, Kind::Small, Kind::Wide, Kind::Unsigned, Kind::Float, Kind::Str, Kind::List, Kind::Dict];

impl Handle {
    const NONE: Self = Self(0);
    const FALSE: Self = Self(1);
    const TRUE: Self = Self(2);
    const BYTES: Self = Self(3);
    const BIG_INT: Self = Self(4);
    /// No value at all: an entry of the memo that nobody wrote.
    const ABSENT: Self = Self(5);

    fn new(kind: Kind, place: usize) -> Result<Self> {
        match u32::try_from(place) {
            Ok(place) if place <= PAYLOAD => Ok(Self((kind as u32) << PAYLOAD_BITS | place)),
            _ => Err(Error::new(ErrorKind::Limit("the pickle holds more than 2^29 values of one kind".into()))),
        }
    }

    fn kind(self) -> Kind {
        KINDS[(self.0 >> PAYLOAD_BITS) as usize]
    }

    fn place(self) -> usize {
        (self.0 & PAYLOAD) as usize
    }

    /// The number of a small integer: its sign is the top bit of the 29.
    fn small(self) -> i64 {
        i64::from(((self.0 << 3) as i32) >> 3)
    }
}

/// A list, tuple or set: a run of `items`, or one of `grown` once it was added to again.
#[derive(Clone, Copy, Debug)]
struct ListRecord {
    start: u32,
    /// The number of items, or [`GROWN`], when `start` is a place in `grown_lists`.
    len: u32,
}

/// A dictionary: the values of a shape's keys are a run of `items` or a row of the shape's table; or one of `grown` once it
/// was added to again.
#[derive(Clone, Copy, Debug)]
struct DictRecord {
    start: u32,
    /// The place of its keys in `shapes`, or [`GROWN`], when `start` is a place in `grown_dicts`.
    shape: u32,
}

const GROWN: u32 = u32::MAX;

/// The keys of dictionaries of one layout, a run of `shape_keys`, and where their values lie.
#[derive(Clone, Copy, Debug)]
struct Shape {
    start: u32,
    len: u32,
    /// The place of their table in `tables`, or [`NO_TABLE`], when each has a run of `items`.
    table: u32,
}

const NO_TABLE: u32 = u32::MAX;

/// Runs of handles, equal ones stored once.
#[derive(Debug, Default)]
struct Runs {
    table: HashTable<(u32, u32)>,
    hasher: RandomState,
}

impl Runs {
    /// Where `run` lies in `pool`; it is added if no equal one is known.
    fn intern(&mut self, pool: &mut Vec<Handle>, run: &[Handle]) -> Result<(u32, u32)> {
        let slice = |pool: &[Handle], (start, len): (u32, u32)| -> std::ops::Range<usize> {
            debug_assert!(start as usize + len as usize <= pool.len());
            start as usize..start as usize + len as usize
        };
        let hash = self.hasher.hash_one(run);
        if let Some(known) = self.table.find(hash, |place| pool[slice(pool, *place)] == *run) {
            return Ok(*known);
        }
        let place = (narrow(pool.len())?, narrow(run.len())?);
        pool.extend_from_slice(run);
        let hasher = &self.hasher;
        self.table.insert_unique(hash, place, |place| hasher.hash_one(&pool[slice(pool, *place)]));
        Ok(place)
    }
}

/// The handle of an integer, which goes to `wide` where it does not fit.
fn int_handle(n: i64, wide: &mut Vec<i64>) -> Result<Handle> {
    const LARGEST: i64 = (1 << (PAYLOAD_BITS - 1)) - 1;
    if (-LARGEST - 1..=LARGEST).contains(&n) {
        return Handle::new(Kind::Small, (n as u32 & PAYLOAD) as usize);
    }
    wide.push(n);
    Handle::new(Kind::Wide, wide.len() - 1)
}

fn narrow(size: usize) -> Result<u32> {
    u32::try_from(size)
        .ok()
        .filter(|size| *size != GROWN)
        .ok_or_else(|| Error::new(ErrorKind::Limit("the pickle holds more than 2^32 items".into())))
}

/// Whether an input that starts with these bytes can be a pickle: no JSON starts like that.
pub(crate) fn is_pickle(start: &[u8]) -> bool {
    match start {
        [0x80, 2..=5, ..] => true,
        // Protocols 0 and 1 say nothing of themselves: a dictionary or a list, made empty or of what is above a mark.
        [b'(', b'd' | b'l' | b'(', ..] => true,
        [b'}' | b']', b'q' | b'r' | b'(', ..] => true,
        _ => false,
    }
}

/// What a pickle holds. Get at it from [`root`](Self::root).
#[derive(Debug, Default)]
pub(crate) struct Document {
    strings: Strings,
    items: Vec<Handle>,
    wide: Vec<i64>,
    unsigned: Vec<u64>,
    floats: Vec<f64>,
    lists: Vec<ListRecord>,
    grown_lists: Vec<Vec<Handle>>,
    dicts: Vec<DictRecord>,
    grown_dicts: Vec<Vec<(Handle, Handle)>>,
    shape_keys: Vec<Handle>,
    shapes: Vec<Shape>,
    tables: Vec<Table>,
    root: Option<Handle>,
    /// Strings that were no UTF-8, and the place of the first.
    lossy: Option<(u64, u64)>,
    /// Strings that are longer than [`LONGEST_TEXT`], and the place of the first.
    cut: Option<(u64, u64)>,
    /// Where bytes begin that stand behind the pickle.
    trailing: Option<u64>,
}

/// The most bytes of a string that are kept. A pickle holds a string once and refers to it a million times; what is made
/// of each reference must not be as long as the file.
pub(crate) const LONGEST_TEXT: usize = 4096;

/// A value of a [`Document`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// An integer that needs the 64th bit for its value.
    Unsigned(u64),
    /// An integer of more bits, whose digits are not kept.
    BigInt,
    /// A float.
    Float(f64),
    /// A string.
    Str(StrId, &'a str),
    /// Bytes or a byte array, whose content is not kept.
    Bytes,
    /// A list, tuple or set.
    List(List<'a>),
    /// A dictionary.
    Dict(Dict<'a>),
}

/// A list, tuple or set of a [`Document`].
#[derive(Clone, Copy)]
pub(crate) struct List<'a> {
    document: &'a Document,
    items: &'a [Handle],
    identity: u64,
}

/// A dictionary of a [`Document`].
#[derive(Clone, Copy)]
pub(crate) struct Dict<'a> {
    document: &'a Document,
    place: usize,
}

/// A string to look up in dictionaries, found once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(Option<Handle>);

impl Document {
    /// What the pickle is.
    pub(crate) fn root(&self) -> Value<'_> {
        self.value(self.root.unwrap_or(Handle::NONE))
    }

    /// The key `name`, for [`Dict::get`].
    pub(crate) fn key(&self, name: &str) -> Key {
        Key(self.strings.find(name).and_then(|id| Handle::new(Kind::Str, id.index()).ok()))
    }

    /// How many entries the dictionaries of the pickle hold, and one for each dictionary without; each is counted once
    /// however often it is referred to.
    pub(crate) fn dict_entries(&self) -> usize {
        (0..self.dicts.len()).map(|place| Dict { document: self, place }.len().max(1)).sum()
    }

    /// How many strings were cut because they are longer than [`LONGEST_TEXT`], and where the first is.
    pub(crate) fn cut(&self) -> Option<(u64, u64)> {
        self.cut
    }

    /// Where bytes begin that stand behind the pickle.
    pub(crate) fn trailing(&self) -> Option<u64> {
        self.trailing
    }

    /// How many strings were no UTF-8 and are decoded lossily, and where the first is.
    pub(crate) fn lossy(&self) -> Option<(u64, u64)> {
        self.lossy
    }

    fn value(&self, handle: Handle) -> Value<'_> {
        let place = handle.place();
        match handle.kind() {
            Kind::Special => match handle {
                Handle::FALSE => Value::Bool(false),
                Handle::TRUE => Value::Bool(true),
                Handle::BYTES => Value::Bytes,
                Handle::BIG_INT => Value::BigInt,
                _ => Value::None,
            },
            Kind::Small => Value::Int(handle.small()),
            Kind::Wide => Value::Int(self.wide[place]),
            Kind::Unsigned => Value::Unsigned(self.unsigned[place]),
            Kind::Float => Value::Float(self.floats[place]),
            Kind::Str => {
                let id = StrId(place as u32);
                Value::Str(id, self.strings.get(id))
            }
            Kind::List => Value::List(self.list(place)),
            Kind::Dict => Value::Dict(Dict { document: self, place }),
        }
    }

    fn list(&self, place: usize) -> List<'_> {
        let ListRecord { start, len } = self.lists[place];
        let (items, identity) = if len == GROWN {
            (&self.grown_lists[start as usize][..], 1 << 63 | u64::from(start))
        } else {
            (&self.items[start as usize..start as usize + len as usize], u64::from(start))
        };
        let identity = if items.is_empty() { u64::MAX } else { identity };
        List { document: self, items, identity }
    }
}

impl<'a> List<'a> {
    /// How many items there are.
    pub(crate) fn len(self) -> usize {
        self.items.len()
    }

    /// The items in order; of a set, in the order of the file.
    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator {
        self.items.iter().map(move |item| self.document.value(*item))
    }

    /// A number that lists share only if their items are the same: stacks are converted once.
    pub(crate) fn identity(self) -> u64 {
        self.identity
    }
}

impl<'a> Dict<'a> {
    /// A number that no other dictionary of the document has.
    pub(crate) fn identity(self) -> usize {
        self.place
    }

    /// How many entries there are.
    pub(crate) fn len(self) -> usize {
        self.iter().len()
    }

    /// The value of a key; of a key set twice, the last.
    pub(crate) fn get(self, key: Key) -> Option<Value<'a>> {
        let key = key.0?;
        let document = self.document;
        let DictRecord { start, shape } = document.dicts[self.place];
        let value = if shape == GROWN {
            document.grown_dicts[start as usize].iter().rfind(|(k, _)| *k == key)?.1
        } else {
            let at = document.keys(shape).iter().rposition(|k| *k == key)?;
            return Some(document.field(shape, start, at));
        };
        Some(document.value(value))
    }

    /// The entries in the order of the file.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = (Value<'a>, Value<'a>)> {
        let document = self.document;
        let DictRecord { start, shape } = document.dicts[self.place];
        let (grown, keys) = if shape == GROWN {
            (&document.grown_dicts[start as usize][..], &[][..])
        } else {
            (&[][..], document.keys(shape))
        };
        (0..grown.len() + keys.len()).map(move |i| match grown.get(i) {
            Some((key, value)) => (document.value(*key), document.value(*value)),
            None => (document.value(keys[i]), document.field(shape, start, i)),
        })
    }
}

impl Document {
    fn keys(&self, shape: u32) -> &[Handle] {
        let Shape { start, len, .. } = self.shapes[shape as usize];
        &self.shape_keys[start as usize..start as usize + len as usize]
    }

    /// The value of key `at` of the dictionary of this shape that starts at `start`.
    fn field(&self, shape: u32, start: u32, at: usize) -> Value<'_> {
        match self.tables.get(self.shapes[shape as usize].table as usize) {
            None => self.value(self.items[start as usize + at]),
            Some(table) => match table.get(at, start as usize) {
                table::Field::Value(handle) => self.value(handle),
                table::Field::Int(n) => Value::Int(n),
            },
        }
    }
}

impl<'a> Value<'a> {
    /// The integer, as 64 bits with sign; booleans are 0 and 1, as in Python.
    pub(crate) fn as_i64(self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(n),
            Value::Bool(b) => Some(i64::from(b)),
            _ => None,
        }
    }

    /// The integer as an address: where a writer took the address for a signed number, its 64 bits.
    pub(crate) fn as_address(self) -> Option<u64> {
        match self {
            Value::Int(n) => Some(n as u64),
            Value::Unsigned(n) => Some(n),
            _ => None,
        }
    }

    /// The string.
    pub(crate) fn as_str(self) -> Option<&'a str> {
        match self {
            Value::Str(_, text) => Some(text),
            _ => None,
        }
    }

    /// The list, tuple or set.
    pub(crate) fn as_list(self) -> Option<List<'a>> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The dictionary.
    pub(crate) fn as_dict(self) -> Option<Dict<'a>> {
        match self {
            Value::Dict(dict) => Some(dict),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Unsigned(_) | Value::BigInt => "an integer",
            Value::Float(_) => "a float",
            Value::Str(..) => "a string",
            Value::Bytes => "bytes",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
        }
    }
}

// Shallow: a pickle can contain itself.
impl std::fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{} items]", self.len())
    }
}

impl std::fmt::Debug for Dict<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} entries}}", self.len())
    }
}
