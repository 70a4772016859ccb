//! The stack machine: every instruction that builds plain data, and a refusal for every other.
//!
//! Source of the instructions: `pickletools.py` of CPython.

use super::stream::Stream;
use super::table::{Field, Table};
use super::{DictRecord, Document, GROWN, Handle, Kind, ListRecord, NO_TABLE, Runs, Shape, int_handle, narrow};
use crate::error::{Error, ErrorKind, Result};
use hashbrown::HashMap;
use std::borrow::Cow;
use std::io::Read;

/// The shape without keys, which is made first.
const EMPTY: u32 = 0;
/// So many dictionaries of one layout have their values in runs; with more of them a table pays.
const RUNS_BEFORE_TABLE: u32 = 32;

/// Reads one pickle from `reader`, of at most `limit` bytes. What follows the pickle is not looked at.
///
/// # Errors
///
/// Where the pickle asks for code or objects, is broken or cut short, or passes the limit.
pub(crate) fn read<R: Read>(reader: R, limit: u64) -> Result<Document> {
    let mut machine = Machine {
        stream: Stream::new(reader, limit),
        document: Document::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        runs: Runs::default(),
        shape_runs: Runs::default(),
        shapes: HashMap::new(),
        keys: Vec::new(),
        unshared: 0,
        at: 0,
    };
    machine.shape_of(&[])?;
    loop {
        machine.at = machine.stream.offset();
        let opcode = machine.stream.byte()?;
        if opcode == b'.' {
            break;
        }
        machine.step(opcode).map_err(|error| error.at_offset(machine.at))?;
    }
    let trailing = machine.stream.drain()?;
    let root = machine.pop().map_err(|error| error.at_offset(machine.at))?;
    let mut document = machine.document;
    document.root = Some(root);
    document.trailing = trailing;
    Ok(document)
}

struct Machine<R> {
    stream: Stream<R>,
    document: Document,
    stack: Vec<Handle>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: Memo,
    /// The items of lists.
    runs: Runs,
    /// The keys of dictionaries.
    shape_runs: Runs,
    /// The shapes of dictionaries, by where their keys lie, and how many dictionaries of each were made.
    shapes: HashMap<(u32, u32), (u32, u32)>,
    keys: Vec<Handle>,
    /// Wide integers from this place on are nowhere but on the stack, in lists and in dictionaries.
    unshared: usize,
    /// The place of the instruction at work.
    at: u64,
}

/// What instructions may refer to later, by number.
#[derive(Default)]
struct Memo {
    dense: Vec<Handle>,
    /// Numbers far beyond the dense part: Python's own reader would reserve memory up to them.
    sparse: HashMap<u64, Handle>,
    count: u64,
}

impl Memo {
    fn put(&mut self, number: u64, value: Handle) {
        let dense = self.dense.len() as u64;
        let is_new = if number < dense {
            std::mem::replace(&mut self.dense[number as usize], value) == Handle::ABSENT
        } else if number <= dense + 64 {
            self.dense.resize(number as usize, Handle::ABSENT);
            self.dense.push(value);
            self.sparse.remove(&number).is_none()
        } else {
            self.sparse.insert(number, value).is_none()
        };
        self.count += u64::from(is_new);
    }

    fn get(&self, number: u64) -> Option<Handle> {
        // A sparse number that the dense part has grown past lies in the sparse part still.
        let dense = usize::try_from(number).ok().and_then(|n| self.dense.get(n)).filter(|v| **v != Handle::ABSENT);
        dense.or_else(|| self.sparse.get(&number)).copied()
    }
}

impl<R: Read> Machine<R> {
    fn step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            // References and the memo.
            b'h' => {
                let number = self.stream.byte()?;
                self.recall(number.into())
            }
            b'j' => {
                let number = self.length4()?;
                self.recall(number)
            }
            b'g' => {
                let number = self.number_line()?;
                self.recall(number)
            }
            0x94 => self.memoize(self.memo.count),
            b'q' => {
                let number = self.stream.byte()?;
                self.memoize(number.into())
            }
            b'r' => {
                let number = self.length4()?;
                self.memoize(number)
            }
            b'p' => {
                let number = self.number_line()?;
                self.memoize(number)
            }
            // Containers.
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'}' => self.push_dict(self.stack.len()),
            b'd' => {
                let mark = self.mark()?;
                self.push_dict(mark)
            }
            b'u' => {
                let mark = self.mark()?;
                self.set_items(mark)
            }
            b's' => {
                let start = self.top(2)?;
                self.set_items(start)
            }
            b']' | b')' | 0x8f => self.push_list(self.stack.len()),
            b'l' | b't' | 0x91 => {
                let mark = self.mark()?;
                self.push_list(mark)
            }
            0x85..=0x87 => {
                let start = self.top(usize::from(opcode - 0x84))?;
                self.push_list(start)
            }
            b'e' | 0x90 => {
                let mark = self.mark()?;
                self.append(mark)
            }
            b'a' => {
                let start = self.top(1)?;
                self.append(start)
            }
            // Numbers.
            b'K' => {
                let n = self.stream.byte()?;
                self.push_int(n.into())
            }
            b'M' => {
                let n = u16::from_le_bytes(self.stream.array()?);
                self.push_int(n.into())
            }
            b'J' => {
                let n = i32::from_le_bytes(self.stream.array()?);
                self.push_int(n.into())
            }
            0x8a => {
                let len = self.stream.byte()?;
                self.push_long(len.into())
            }
            0x8b => {
                let len = self.length4()?;
                self.push_long(len)
            }
            b'I' | b'L' => self.push_decimal(),
            b'G' => {
                let x = f64::from_be_bytes(self.stream.array()?);
                self.push_float(x)
            }
            b'F' => self.push_decimal_float(),
            // Strings.
            0x8c | b'U' => {
                let len = self.stream.byte()?;
                self.push_str(len.into())
            }
            b'X' | b'T' => {
                let len = self.length4()?;
                self.push_str(len)
            }
            0x8d => {
                let len = self.length8()?;
                self.push_str(len)
            }
            b'S' | b'V' => self.push_quoted(opcode == b'S'),
            // Bytes.
            b'C' => {
                let len = self.stream.byte()?;
                self.push_bytes(len.into())
            }
            b'B' => {
                let len = self.length4()?;
                self.push_bytes(len)
            }
            0x8e | 0x96 => {
                let len = self.length8()?;
                self.push_bytes(len)
            }
            // Constants.
            b'N' => self.push(Handle::NONE),
            0x88 => self.push(Handle::TRUE),
            0x89 => self.push(Handle::FALSE),
            // The stack and the framing.
            b'0' => self.pop_value_or_mark(),
            b'1' => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
                Ok(())
            }
            b'2' => {
                let start = self.top(1)?;
                self.unshared = self.document.wide.len();
                self.push(self.stack[start])
            }
            0x80 => self.protocol(),
            // A frame only says how much to read ahead; the stream does that by itself.
            0x95 => self.length8().map(drop),
            _ => Err(self.refuse(opcode)),
        }
    }

    fn protocol(&mut self) -> Result<()> {
        match self.stream.byte()? {
            0..=5 => Ok(()),
            version => Err(Error::format("a pickle of protocol 0 to 5", format!("protocol {version}"))),
        }
    }

    fn length4(&mut self) -> Result<u64> {
        Ok(u32::from_le_bytes(self.stream.array()?).into())
    }

    fn length8(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.stream.array()?))
    }

    fn number_line(&mut self) -> Result<u64> {
        let line = self.stream.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| Error::format("the number of a memo entry", quoted(line)))
    }

    fn push(&mut self, value: Handle) -> Result<()> {
        self.stack.push(value);
        Ok(())
    }

    /// The height below which the innermost mark does not let through.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Handle> {
        if self.stack.len() <= self.floor() {
            return Err(too_few());
        }
        self.stack.pop().ok_or_else(too_few)
    }

    fn pop_value_or_mark(&mut self) -> Result<()> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    /// Where the `count` topmost values start.
    fn top(&self, count: usize) -> Result<usize> {
        self.stack.len().checked_sub(count).filter(|start| *start >= self.floor()).ok_or_else(too_few)
    }

    /// Takes away the innermost mark: where the values above it start.
    fn mark(&mut self) -> Result<usize> {
        self.marks.pop().ok_or_else(|| Error::format("a mark on the pickle's stack", "none"))
    }

    fn recall(&mut self, number: u64) -> Result<()> {
        match self.memo.get(number) {
            Some(value) => self.push(value),
            None => Err(Error::format("a value in the pickle's memo", format!("nothing at number {number}"))),
        }
    }

    fn memoize(&mut self, number: u64) -> Result<()> {
        let top = self.stack[self.top(1)?];
        if top.kind() == Kind::Wide {
            self.unshared = self.document.wide.len();
        }
        self.memo.put(number, top);
        Ok(())
    }

    /// Makes a list of all values from `start` on.
    fn push_list(&mut self, start: usize) -> Result<()> {
        let document = &mut self.document;
        let list = Handle::new(Kind::List, document.lists.len())?;
        let (at, len) = self.runs.intern(&mut document.items, &self.stack[start..])?;
        document.lists.push(ListRecord { start: at, len });
        self.stack.truncate(start);
        self.push(list)
    }

    /// Adds all values from `start` on to the list below them.
    fn append(&mut self, start: usize) -> Result<()> {
        let Self { document, stack, .. } = self;
        let below = start.checked_sub(1).filter(|at| *at >= self.marks.last().copied().unwrap_or(0));
        let list = below.map(|at| stack[at]).filter(|list| list.kind() == Kind::List);
        let list = list.ok_or_else(|| Error::format("a list to append to", "another value"))?.place();
        let values = &stack[start..];
        match document.lists[list] {
            ListRecord { start: grown, len: GROWN } => document.grown_lists[grown as usize].extend_from_slice(values),
            ListRecord { len: 0, .. } => {
                let (at, len) = self.runs.intern(&mut document.items, values)?;
                document.lists[list] = ListRecord { start: at, len };
            }
            ListRecord { start: at, len } if !values.is_empty() => {
                let mut grown = document.items[at as usize..at as usize + len as usize].to_vec();
                grown.extend_from_slice(values);
                document.lists[list] = ListRecord { start: narrow(document.grown_lists.len())?, len: GROWN };
                document.grown_lists.push(grown);
            }
            ListRecord { .. } => {}
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// Makes a dictionary of all values from `start` on, keys and values in turn.
    fn push_dict(&mut self, start: usize) -> Result<()> {
        let dict = self.document.dicts.len();
        let handle = Handle::new(Kind::Dict, dict)?;
        self.document.dicts.push(DictRecord { start: 0, shape: EMPTY });
        self.fill_dict(dict, start)?;
        self.stack.truncate(start);
        self.push(handle)
    }

    /// Adds all values from `start` on, keys and values in turn, to the dictionary below them.
    fn set_items(&mut self, start: usize) -> Result<()> {
        let below = start.checked_sub(1).filter(|at| *at >= self.floor());
        let dict = below.map(|at| self.stack[at]).filter(|dict| dict.kind() == Kind::Dict);
        let dict = dict.ok_or_else(|| Error::format("a dictionary to add to", "another value"))?.place();
        self.fill_dict(dict, start)?;
        self.stack.truncate(start);
        Ok(())
    }

    fn fill_dict(&mut self, dict: usize, start: usize) -> Result<()> {
        let entries = self.stack.len() - start;
        if !entries.is_multiple_of(2) {
            return Err(Error::format("a value for each key", "a key without a value"));
        }
        if entries == 0 {
            return Ok(());
        }
        let DictRecord { start: at, shape } = self.document.dicts[dict];
        if shape == EMPTY {
            let mut keys = std::mem::take(&mut self.keys);
            keys.clear();
            keys.extend(self.stack[start..].iter().step_by(2));
            let shape = self.shape_of(&keys)?;
            self.keys = keys;
            let values = self.stack[start..].chunks_exact(2).map(|pair| pair[1]);
            let Document { dicts, items, tables, shapes, wide, .. } = &mut self.document;
            let table = tables.get_mut(shapes[shape as usize].table as usize);
            let place = table.as_ref().map_or(items.len(), |table| table.rows());
            dicts[dict] = DictRecord { start: narrow(place)?, shape };
            match table {
                Some(table) => table.push(values, wide, self.unshared)?,
                None => items.extend(values),
            }
            return Ok(());
        }
        let grown = if shape == GROWN {
            at as usize
        } else {
            let entries = self.entries(shape, at)?;
            let place = self.document.grown_dicts.len();
            self.document.grown_dicts.push(entries);
            self.document.dicts[dict] = DictRecord { start: narrow(place)?, shape: GROWN };
            place
        };
        let pairs = self.stack[start..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
        self.document.grown_dicts[grown].extend(pairs);
        Ok(())
    }

    /// The entries of a dictionary of this shape that starts at `start`.
    fn entries(&mut self, shape: u32, start: u32) -> Result<Vec<(Handle, Handle)>> {
        let keys = self.document.keys(shape).to_vec();
        let Document { items, tables, shapes, wide, .. } = &mut self.document;
        let table = tables.get(shapes[shape as usize].table as usize);
        let value = |at: usize| match table.map(|table| table.get(at, start as usize)) {
            None => Ok(items[start as usize + at]),
            Some(Field::Value(value)) => Ok(value),
            Some(Field::Int(n)) => int_handle(n, wide),
        };
        let values = (0..keys.len()).map(value).collect::<Result<Vec<Handle>>>()?;
        Ok(keys.into_iter().zip(values).collect())
    }

    fn shape_of(&mut self, keys: &[Handle]) -> Result<u32> {
        let Document { shape_keys, shapes, tables, .. } = &mut self.document;
        let place = self.shape_runs.intern(shape_keys, keys)?;
        let (shape, uses) = self.shapes.entry(place).or_insert((GROWN, 0));
        *uses = uses.saturating_add(1);
        if *shape == GROWN || *uses == RUNS_BEFORE_TABLE {
            *shape = narrow(shapes.len())?;
            let mut table = NO_TABLE;
            if *uses == RUNS_BEFORE_TABLE {
                table = narrow(tables.len())?;
                tables.push(Table::new(keys.len()));
            }
            let (start, len) = place;
            shapes.push(Shape { start, len, table });
        }
        Ok(*shape)
    }

    fn push_int(&mut self, n: i64) -> Result<()> {
        let handle = int_handle(n, &mut self.document.wide)?;
        self.push(handle)
    }

    fn push_unsigned(&mut self, n: u64) -> Result<()> {
        if let Ok(n) = i64::try_from(n) {
            return self.push_int(n);
        }
        self.document.unsigned.push(n);
        let handle = Handle::new(Kind::Unsigned, self.document.unsigned.len() - 1)?;
        self.push(handle)
    }

    /// An integer of `len` bytes, two's complement, the lowest first.
    fn push_long(&mut self, len: u64) -> Result<()> {
        if len > 9 {
            self.stream.skip(len)?;
            return self.push(Handle::BIG_INT);
        }
        let bytes = self.stream.slice(len)?;
        let negative = bytes.last().is_some_and(|b| *b >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let n = i128::from_le_bytes(wide);
        match (i64::try_from(n), u64::try_from(n)) {
            (Ok(n), _) => self.push_int(n),
            (_, Ok(n)) => self.push_unsigned(n),
            _ => self.push(Handle::BIG_INT),
        }
    }

    /// An integer or, in the oldest protocol, a boolean, written in decimal.
    fn push_decimal(&mut self) -> Result<()> {
        let line = self.stream.line()?;
        match line {
            b"00" => return self.push(Handle::FALSE),
            b"01" => return self.push(Handle::TRUE),
            _ => {}
        }
        let digits = line.strip_suffix(b"L").unwrap_or(line).trim_ascii();
        let unsigned = digits.strip_prefix(b"-").unwrap_or(digits);
        if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
            return Err(Error::format("an integer", quoted(line)));
        }
        let text = std::str::from_utf8(digits).unwrap_or_default();
        match (text.parse::<i64>(), text.parse::<u64>()) {
            (Ok(n), _) => self.push_int(n),
            (_, Ok(n)) => self.push_unsigned(n),
            _ => self.push(Handle::BIG_INT),
        }
    }

    fn push_float(&mut self, x: f64) -> Result<()> {
        self.document.floats.push(x);
        let handle = Handle::new(Kind::Float, self.document.floats.len() - 1)?;
        self.push(handle)
    }

    fn push_decimal_float(&mut self) -> Result<()> {
        let line = self.stream.line()?;
        let x = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse::<f64>().ok());
        let x = x.ok_or_else(|| Error::format("a float", quoted(line)))?;
        self.push_float(x)
    }

    fn push_bytes(&mut self, len: u64) -> Result<()> {
        self.stream.skip(len)?;
        self.push(Handle::BYTES)
    }

    fn push_str(&mut self, len: u64) -> Result<()> {
        let bytes = self.stream.slice(len)?;
        let handle = intern(&mut self.document, bytes, self.at)?;
        self.push(handle)
    }

    /// A string of the oldest protocol: a line, in quotes and with Python's escapes (`S`) or with `\u` only (`V`).
    fn push_quoted(&mut self, quotes: bool) -> Result<()> {
        let line = self.stream.line()?;
        let bytes = if quotes {
            let line = line.trim_ascii();
            let inner = match line {
                [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
                _ => return Err(Error::format("a string in quotes", quoted(line))),
            };
            unescape(inner)
        } else {
            unescape_unicode(line).into_bytes()
        };
        let handle = intern(&mut self.document, &bytes, self.at)?;
        self.push(handle)
    }

    /// The error for an instruction that makes more than plain data.
    fn refuse(&mut self, opcode: u8) -> Error {
        let asked = match opcode {
            b'c' | b'i' => match self.global_lines() {
                Ok(name) => format!("code: {name}"),
                Err(error) => return error,
            },
            0x93 => format!("code: {}", self.global_on_stack()),
            b'R' => "a call (REDUCE)".into(),
            b'b' => "an object's state (BUILD)".into(),
            b'o' => "an object (OBJ)".into(),
            0x81 => "an object (NEWOBJ)".into(),
            0x92 => "an object (NEWOBJ_EX)".into(),
            0x82..=0x84 => "code from the extension registry (EXT)".into(),
            b'P' | b'Q' => "an object outside the file (PERSID)".into(),
            0x97 | 0x98 => "a buffer outside the file (NEXT_BUFFER)".into(),
            _ => return Error::format("a Python pickle", format!("byte 0x{opcode:02x}, which no instruction has")),
        };
        Error::format("a pickle of plain data", asked).with_hint("nothing was run; do not load this file with Python")
    }

    fn global_lines(&mut self) -> Result<String> {
        let module = String::from_utf8_lossy(self.stream.line()?).into_owned();
        let name = String::from_utf8_lossy(self.stream.line()?);
        Ok(shortened(&format!("{module}.{name}")).into_owned())
    }

    fn global_on_stack(&self) -> String {
        let part = |back: usize| {
            let handle = self.stack.len().checked_sub(back).map(|at| self.stack[at]);
            handle.and_then(|handle| self.document.value(handle).as_str()).unwrap_or("?")
        };
        shortened(&format!("{}.{}", part(2), part(1))).into_owned()
    }
}

fn too_few() -> Error {
    Error::format("a value on the pickle's stack", "too few")
}

fn intern(document: &mut Document, bytes: &[u8], at: u64) -> Result<Handle> {
    let whole = bytes.len();
    let bytes = &bytes[..whole.min(super::LONGEST_TEXT)];
    let text = if bytes.len() == whole { String::from_utf8_lossy(bytes) } else { cut(bytes) };
    if bytes.len() < whole {
        document.cut.get_or_insert((0, at)).0 += 1;
    } else if matches!(text, Cow::Owned(_)) {
        document.lossy.get_or_insert((0, at)).0 += 1;
    }
    // Checked before: the table's own limit is a panic.
    if document.strings.len() > super::PAYLOAD as usize {
        return Err(Error::new(ErrorKind::Limit("the pickle holds more than 2^29 distinct strings".into())));
    }
    Handle::new(Kind::Str, document.strings.intern(&text).index())
}

/// The beginning of a longer text, up to where its last character ends.
fn cut(bytes: &[u8]) -> Cow<'_, str> {
    let whole = bytes.len() - bytes.iter().rev().take(3).position(|byte| byte & 0xc0 != 0x80).map_or(0, |at| at + 1);
    Cow::Owned(format!("{}…", String::from_utf8_lossy(&bytes[..whole])))
}

/// Bytes from the input as part of a message.
fn quoted(bytes: &[u8]) -> String {
    format!("{:?}", shortened(&String::from_utf8_lossy(&bytes[..bytes.len().min(400)])))
}

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(100) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The bytes of a Python string literal between its quotes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut i = 0;
    while i < text.len() {
        let (byte, len) = match text[i..] {
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(high) << 4 | hex(low), 4)
            }
            [b'\\', octal @ b'0'..=b'7', ..] => {
                let digits = text[i + 1..].iter().take(3).take_while(|d| (b'0'..=b'7').contains(*d)).count();
                let value = text[i + 2..i + 1 + digits]
                    .iter()
                    .fold(u32::from(octal - b'0'), |n, d| n * 8 + u32::from(d - b'0'));
                (value as u8, 1 + digits)
            }
            [b'\\', next, ..] => match next {
                b'n' => (b'\n', 2),
                b't' => (b'\t', 2),
                b'r' => (b'\r', 2),
                b'a' => (7, 2),
                b'b' => (8, 2),
                b'f' => (12, 2),
                b'v' => (11, 2),
                b'\\' | b'\'' | b'"' => (next, 2),
                _ => (b'\\', 1),
            },
            _ => (text[i], 1),
        };
        out.push(byte);
        i += len;
    }
    out
}

fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).unwrap_or(0) as u8
}

/// Python's `raw-unicode-escape`: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
fn unescape_unicode(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < text.len() {
        let digits = match text[i..] {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        let code = text.get(i + 2..i + 2 + digits).filter(|_| digits > 0).and_then(|digits| {
            digits.iter().try_fold(0u32, |n, d| Some(n.wrapping_mul(16) + char::from(*d).to_digit(16)?))
        });
        match code {
            Some(code) => {
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                i += 2 + digits;
            }
            None => {
                out.push(char::from(text[i]));
                i += 1;
            }
        }
    }
    out
}
