//! One event of `traceEvents`: from the bytes between its braces to the fields that tracetool knows, in place.
//!
//! The cursor goes from token to token and looks at each byte once: strings and brackets 64 bytes at a time, numbers
//! digit by digit, values of keys that nobody asked for not at all. It knows JSON and the names of the keys; what they
//! mean is [`super::pytorch`]'s business. A [`Fail`] says whether more bytes would help. The same code reads broken
//! events when `LENIENT`: a string then ends where what follows looks like the next key.

use super::simd::{Block, Portable, find_string_stop, skip_brackets};
use crate::units::Nanos;

/// Why an event could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fail {
    /// The bytes end within the event.
    NeedMore,
    /// No JSON, from this place on.
    Broken(usize),
}

type Parsed<T> = Result<T, Fail>;

/// A string or number as it stands in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a> {
    /// The bytes, without quotes.
    pub(super) raw: &'a [u8],
    /// Whether a backslash occurs.
    pub(super) escaped: bool,
    /// Whether control characters or unescaped quotes occur, which JSON forbids.
    pub(super) irregular: bool,
}

impl<'a> Text<'a> {
    fn plain(raw: &'a [u8]) -> Self {
        Self { raw, escaped: false, irregular: false }
    }
}

/// The fields of an event, as they stand in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEvent<'a> {
    /// `ph`: the first byte; 0 where there is none.
    pub(super) phase: u8,
    pub(super) category: Text<'a>,
    pub(super) name: Option<Text<'a>>,
    pub(super) pid: Text<'a>,
    pub(super) tid: Text<'a>,
    pub(super) time: Option<Nanos>,
    pub(super) duration: Option<Nanos>,
    /// Whether a value of a known key could not be understood.
    pub(super) odd_value: bool,
    pub(super) args: Args<'a>,
}

/// The members of `args` that tracetool knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args<'a> {
    pub(super) external_id: u64,
    pub(super) correlation: u64,
    pub(super) sequence: i64,
    pub(super) forward_thread: u64,
    pub(super) input_dims: &'a [u8],
    pub(super) input_types: &'a [u8],
    pub(super) concrete_inputs: &'a [u8],
    pub(super) call_stack: Text<'a>,
    pub(super) python_id: u64,
    pub(super) python_parent: u64,
    pub(super) unfinished: bool,
    pub(super) device: i32,
    pub(super) stream: i64,
    pub(super) moved_bytes: i64,
    pub(super) occupancy: f32,
    pub(super) memory_bytes: Option<i64>,
    pub(super) device_type: Option<i16>,
    pub(super) device_id: i32,
    pub(super) address: u64,
    pub(super) total_allocated: i64,
    pub(super) total_reserved: i64,
    pub(super) label: Text<'a>,
}

impl RawEvent<'_> {
    pub(super) const EMPTY: Self = {
        let none = Text { raw: &[], escaped: false, irregular: false };
        Self {
            phase: 0,
            category: none,
            name: None,
            pid: none,
            tid: none,
            time: None,
            duration: None,
            odd_value: false,
            args: Args {
                external_id: 0,
                correlation: 0,
                sequence: -1,
                forward_thread: 0,
                input_dims: &[],
                input_types: &[],
                concrete_inputs: &[],
                call_stack: none,
                python_id: 0,
                python_parent: 0,
                unfinished: false,
                device: -1,
                stream: -1,
                moved_bytes: 0,
                occupancy: f32::NAN,
                memory_bytes: None,
                device_type: None,
                device_id: -1,
                address: 0,
                total_allocated: -1,
                total_reserved: -1,
                label: none,
            },
        }
    };
}

/// A value as it stands in the file.
#[derive(Clone, Copy, Debug)]
struct Value<'a> {
    /// A string's characters, a number's digits, or a container with its brackets.
    text: Text<'a>,
    is_container: bool,
    /// The number, if it is a plain one.
    number: Option<Number>,
}

/// A number of up to 19 digits: its digits without the point, and how many of them stand behind it (up to three).
#[derive(Clone, Copy, Debug)]
struct Number {
    negative: bool,
    mantissa: u64,
    decimals: u8,
}

impl<'a> Value<'a> {
    fn text(text: Text<'a>) -> Self {
        Self { text, is_container: false, number: None }
    }

    /// A string, or the digits of a number; nothing for a container.
    #[inline(always)]
    fn as_text(&self) -> Text<'a> {
        if self.is_container { Text::default() } else { self.text }
    }

    /// The text of an array, brackets and all; nothing for any other value.
    #[inline(always)]
    fn as_array(&self) -> &'a [u8] {
        if self.text.raw.first() == Some(&b'[') && self.is_container { self.text.raw } else { &[] }
    }

    /// A time in microseconds, written as a number or as a string; `None`, and odd, for anything else.
    #[inline(always)]
    fn micros(&self, odd: &mut bool) -> Option<Nanos> {
        if let Some(Number { negative: false, mantissa, decimals }) = self.number
            && let Some(nanos) = mantissa.checked_mul([1000, 100, 10, 1][usize::from(decimals & 3)])
            && let Ok(nanos) = i64::try_from(nanos)
        {
            return Some(Nanos(nanos));
        }
        let text = self.as_text().raw;
        let time = Nanos::from_micros(text);
        *odd |= time.is_none() && !is_nothing(text);
        time
    }

    /// An integer, written as a number or as a string; `None`, and odd, for anything else or out of range.
    #[inline(always)]
    fn integer<T: TryFrom<i128> + TryFrom<u64>>(&self, odd: &mut bool) -> Option<T> {
        if let Some(Number { negative: false, mantissa, decimals: 0 }) = self.number
            && let Ok(value) = T::try_from(mantissa)
        {
            return Some(value);
        }
        let text = self.as_text().raw;
        let value = parse_integer(text).and_then(|n| T::try_from(n).ok());
        *odd |= value.is_none() && !is_nothing(text);
        value
    }

    /// A decimal number; NaN for anything else.
    fn decimal(&self) -> f32 {
        std::str::from_utf8(self.as_text().raw).ok().and_then(|t| t.parse().ok()).unwrap_or(f32::NAN)
    }
}

/// The fields that tracetool knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Phase,
    Category,
    Name,
    Pid,
    Tid,
    Time,
    Duration,
    Args,
    ExternalId,
    Correlation,
    Sequence,
    ForwardThread,
    InputDims,
    InputTypes,
    ConcreteInputs,
    CallStack,
    PythonId,
    PythonParent,
    Finished,
    Device,
    Stream,
    MovedBytes,
    Occupancy,
    MemoryBytes,
    DeviceType,
    DeviceId,
    Address,
    TotalAllocated,
    TotalReserved,
    Label,
    Unknown,
}

impl Field {
    /// Whether people or programs put any text there.
    fn is_free_text(self) -> bool {
        matches!(self, Self::Name | Self::Label | Self::CallStack | Self::Unknown)
    }
}

/// The field of an event that a key names.
#[inline(always)]
fn field_of(key: &[u8]) -> Field {
    match key {
        b"ph" => Field::Phase,
        b"cat" => Field::Category,
        b"name" => Field::Name,
        b"pid" => Field::Pid,
        b"tid" => Field::Tid,
        b"ts" => Field::Time,
        b"dur" => Field::Duration,
        b"args" => Field::Args,
        _ => Field::Unknown,
    }
}

/// The field of `args` that a key names.
#[inline(always)]
fn argument_of(key: &[u8]) -> Field {
    // By length first, so that a key is compared with one or two names.
    match (key.len(), key) {
        (4, b"Addr") => Field::Address,
        (4, b"name") => Field::Label,
        (5, b"Bytes") => Field::MemoryBytes,
        (5, b"bytes") => Field::MovedBytes,
        (6, b"device") => Field::Device,
        (6, b"stream") => Field::Stream,
        (8, b"finished") => Field::Finished,
        (9, b"Device Id") => Field::DeviceId,
        (9, b"Python id") => Field::PythonId,
        (10, b"Input Dims" | b"Input dims") => Field::InputDims,
        (10, b"Input type") => Field::InputTypes,
        (10, b"Call stack") => Field::CallStack,
        (11, b"External id" | b"external id") => Field::ExternalId,
        (11, b"Device Type") => Field::DeviceType,
        (11, b"correlation") => Field::Correlation,
        (13, b"Fwd thread id") => Field::ForwardThread,
        (14, b"Total Reserved") => Field::TotalReserved,
        (15, b"Sequence number") => Field::Sequence,
        (15, b"Total Allocated") => Field::TotalAllocated,
        (15, b"Concrete Inputs") => Field::ConcreteInputs,
        (16, b"Python parent id") => Field::PythonParent,
        (25, b"est. achieved occupancy %") => Field::Occupancy,
        _ => Field::Unknown,
    }
}

impl<'a> RawEvent<'a> {
    #[inline(always)]
    fn set(&mut self, field: Field, value: &Value<'a>) {
        let (args, odd) = (&mut self.args, &mut self.odd_value);
        match field {
            Field::Phase => self.phase = value.as_text().raw.first().copied().unwrap_or(0),
            Field::Category => self.category = value.as_text(),
            Field::Name => self.name = Some(value.as_text()),
            Field::Pid => self.pid = value.as_text(),
            Field::Tid => self.tid = value.as_text(),
            Field::Time => self.time = value.micros(odd),
            Field::Duration => self.duration = value.micros(odd),
            Field::ExternalId => args.external_id = value.integer(odd).unwrap_or(0),
            Field::Correlation => args.correlation = value.integer(odd).unwrap_or(0),
            Field::Sequence => args.sequence = value.integer(odd).unwrap_or(-1),
            Field::ForwardThread => args.forward_thread = value.integer(odd).unwrap_or(0),
            Field::InputDims => args.input_dims = value.as_array(),
            Field::InputTypes => args.input_types = value.as_array(),
            Field::ConcreteInputs => args.concrete_inputs = value.as_array(),
            Field::CallStack => args.call_stack = value.as_text(),
            Field::PythonId => args.python_id = value.integer(odd).unwrap_or(0),
            Field::PythonParent => args.python_parent = value.integer(odd).unwrap_or(0),
            Field::Finished => args.unfinished = value.text.raw == b"false",
            Field::Device => args.device = value.integer(odd).unwrap_or(-1),
            Field::Stream => args.stream = value.integer(odd).unwrap_or(-1),
            Field::MovedBytes => args.moved_bytes = value.integer(odd).unwrap_or(0),
            Field::Occupancy => args.occupancy = value.decimal(),
            Field::MemoryBytes => args.memory_bytes = value.integer(odd),
            Field::DeviceType => args.device_type = value.integer(odd),
            Field::DeviceId => args.device_id = value.integer(odd).unwrap_or(-1),
            Field::Address => args.address = value.integer(odd).unwrap_or(0),
            Field::TotalAllocated => args.total_allocated = value.integer(odd).unwrap_or(-1),
            Field::TotalReserved => args.total_reserved = value.integer(odd).unwrap_or(-1),
            Field::Label => args.label = value.as_text(),
            Field::Args | Field::Unknown => {}
        }
    }
}

/// What to do with an event once its phase and category are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Read all of it.
    All,
    /// Nobody asked for it: find its end.
    None,
}

/// How far an event is skipped unread before it is read after all: a quote too many makes brackets look like text.
const SKIP_LIMIT: usize = 64 << 10;

/// A place in the bytes of a batch.
pub(super) struct Cursor<'a, B, const LENIENT: bool> {
    bytes: &'a [u8],
    at: usize,
    block: std::marker::PhantomData<B>,
}

/// Whether the byte may stand between tokens.
#[inline(always)]
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

impl<'a, B: Block, const LENIENT: bool> Cursor<'a, B, LENIENT> {
    /// A cursor at `at`.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, block: std::marker::PhantomData }
    }

    #[inline(always)]
    fn peek(&self) -> Parsed<u8> {
        self.bytes.get(self.at).copied().ok_or(Fail::NeedMore)
    }

    /// The next byte that is no space, with the cursor on it.
    #[inline(always)]
    fn skip_space(&mut self) -> Parsed<u8> {
        let mut byte = self.peek()?;
        // A line break and its indent at once.
        if byte == b'\n' {
            self.at += 1;
            if let Some(next) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
                let others = u64::from_le_bytes(*next) ^ 0x2020_2020_2020_2020;
                self.at += others.trailing_zeros() as usize / 8;
            }
            byte = self.peek()?;
        }
        while is_space(byte) {
            self.at += 1;
            byte = self.peek()?;
        }
        Ok(byte)
    }

    #[inline(always)]
    fn broken<T>(&self) -> Parsed<T> {
        Err(Fail::Broken(self.at))
    }

    /// Reads the event whose brace is at the cursor into `event`; the place behind it. `interest` is asked once, when
    /// phase and category are known.
    ///
    /// One loop serves the event and its `args`, so that each kind of token has one piece of machine code, which stays in
    /// the processor's caches.
    #[inline(always)]
    pub(super) fn event(
        &mut self,
        event: &mut RawEvent<'a>,
        interest: impl Fn(&RawEvent<'a>) -> Interest,
    ) -> Parsed<usize> {
        let mut in_args = false;
        let mut asked = LENIENT;
        self.at += 1;
        loop {
            // Also behind a comma: one before the brace is accepted.
            if self.skip_space()? == b'}' {
                self.at += 1;
                if !in_args {
                    return Ok(self.at);
                }
                in_args = false;
            } else {
                let key = self.key()?;
                let field = if in_args { argument_of(key) } else { field_of(key) };
                if field == Field::Args && self.peek()? == b'{' {
                    self.at += 1;
                    in_args = true;
                    continue;
                }
                let value = self.value()?;
                // Exporters never get these wrong: if one seems to hold a quote, a key lost its own.
                if LENIENT && value.text.irregular && !field.is_free_text() {
                    return self.broken();
                }
                event.set(field, &value);
                if !asked && !in_args && event.phase != 0 && !event.category.raw.is_empty() {
                    asked = true;
                    if interest(event) == Interest::None {
                        if let Some(end) = skip_brackets::<B>(self.bytes, self.at, 1, SKIP_LIMIT) {
                            return Ok(end);
                        }
                        if self.bytes.len() - self.at <= SKIP_LIMIT + 64 {
                            return Err(Fail::NeedMore);
                        }
                    }
                }
            }
            match self.skip_space()? {
                b',' => self.at += 1,
                b'}' => {}
                _ => return self.broken(),
            }
        }
    }

    /// The key at the cursor, which then stands at the value.
    #[inline(always)]
    fn key(&mut self) -> Parsed<&'a [u8]> {
        if self.peek()? != b'"' {
            return self.broken();
        }
        let start = self.at + 1;
        let mut end = find_string_stop::<B>(self.bytes, start);
        while end < self.bytes.len() && self.bytes[end] != b'"' {
            if self.bytes[end] == b'\n' {
                self.at = end;
                return self.broken();
            }
            end = find_string_stop_portably(self.bytes, end + 1 + usize::from(self.bytes[end] == b'\\'));
        }
        if end >= self.bytes.len() {
            return Err(Fail::NeedMore);
        }
        self.at = end + 1;
        if self.skip_space()? != b':' {
            return self.broken();
        }
        self.at += 1;
        self.skip_space()?;
        Ok(&self.bytes[start..end])
    }

    /// The value at the cursor, which then stands behind it.
    #[inline(always)]
    fn value(&mut self) -> Parsed<Value<'a>> {
        match self.peek()? {
            b'"' => self.string().map(Value::text),
            b'[' | b'{' => {
                let start = self.at;
                self.skip_container()?;
                Ok(Value { is_container: true, ..Value::text(Text::plain(&self.bytes[start..self.at])) })
            }
            _ => self.number(),
        }
    }

    /// The number or bare word at the cursor.
    #[inline(always)]
    fn number(&mut self) -> Parsed<Value<'a>> {
        let start = self.at;
        let negative = self.peek()? == b'-';
        self.at += usize::from(negative);
        let first = self.at;
        let mut mantissa = 0u64;
        self.digits(&mut mantissa)?;
        let mut decimals = 0;
        let mut count = self.at - first;
        if self.peek()? == b'.' {
            self.at += 1;
            let point = self.at;
            self.digits(&mut mantissa)?;
            decimals = self.at - point;
            count += decimals;
        }
        let ends = matches!(self.peek()?, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        // More digits than fit, an exponent, or no number at all.
        let simple = ends && (1..=19).contains(&count) && decimals <= 3;
        if !ends {
            self.word()?;
        }
        if self.at == start {
            return self.broken();
        }
        Ok(Value {
            text: Text::plain(&self.bytes[start..self.at]),
            is_container: false,
            number: simple.then_some(Number { negative, mantissa, decimals: decimals as u8 }),
        })
    }

    /// Adds the digits at the cursor to a number. It wraps when there are too many, which the caller counts.
    #[inline(always)]
    fn digits(&mut self, number: &mut u64) -> Parsed<()> {
        loop {
            let digit = self.peek()?.wrapping_sub(b'0');
            if digit > 9 {
                return Ok(());
            }
            *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
    }

    /// Goes to the end of the bare word at the cursor.
    #[cold]
    fn word(&mut self) -> Parsed<()> {
        loop {
            match self.peek()? {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => return Ok(()),
                b'"' | b'{' | b'[' | b':' => return self.broken(),
                _ => self.at += 1,
            }
        }
    }

    /// The string at the cursor.
    #[inline(always)]
    fn string(&mut self) -> Parsed<Text<'a>> {
        let start = self.at + 1;
        let end = find_string_stop::<B>(self.bytes, start);
        if !LENIENT && self.bytes.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Text::plain(&self.bytes[start..end]));
        }
        self.odd_string(start, end)
    }

    /// The string from `start` on, which has a backslash or something worse at `at`.
    #[cold]
    fn odd_string(&mut self, start: usize, mut at: usize) -> Parsed<Text<'a>> {
        let (mut escaped, mut irregular) = (false, false);
        loop {
            match self.bytes.get(at) {
                None => return Err(Fail::NeedMore),
                Some(b'"') => {
                    if !LENIENT || self.ends_string(at)? {
                        let raw = &self.bytes[start..at];
                        if LENIENT && irregular && swallows_key(raw) {
                            return self.broken();
                        }
                        self.at = at + 1;
                        return Ok(Text { raw, escaped, irregular });
                    }
                    irregular = true;
                    at += 1;
                }
                Some(b'\\') => {
                    escaped = true;
                    // The last backslash of a Windows path stands before the quote that ends the string.
                    let ends = LENIENT && self.bytes.get(at + 1) == Some(&b'"') && self.ends_string(at + 1)?;
                    at += if ends { 1 } else { 2 };
                }
                Some(_) => {
                    irregular = true;
                    at += 1;
                }
            }
            at = find_string_stop_portably(self.bytes, at);
        }
    }

    /// Whether what follows the quote at `at` shows that it ends a value: a closing bracket, or a comma and a key.
    fn ends_string(&self, at: usize) -> Parsed<bool> {
        let mut probe = Self::new(self.bytes, at + 1);
        Ok(match probe.skip_space()? {
            b'}' | b']' => true,
            b',' => {
                probe.at += 1;
                match probe.skip_space()? {
                    b'"' => probe.looks_like_key()?,
                    b'}' | b']' => true,
                    _ => false,
                }
            }
            _ => false,
        })
    }

    /// Whether the quote at the cursor opens a key: a short plain string and a colon.
    fn looks_like_key(&mut self) -> Parsed<bool> {
        const LONGEST_KEY: usize = 64;
        let start = self.at + 1;
        let stop = find_string_stop_portably(self.bytes, start);
        if stop - start > LONGEST_KEY {
            return Ok(false);
        }
        match self.bytes.get(stop) {
            None => return Err(Fail::NeedMore),
            Some(b'"') => self.at = stop + 1,
            Some(_) => return Ok(false),
        }
        Ok(self.skip_space()? == b':')
    }

    /// Passes over the array or object at the cursor.
    #[inline(always)]
    fn skip_container(&mut self) -> Parsed<()> {
        if LENIENT {
            return self.walk_container();
        }
        match skip_brackets::<B>(self.bytes, self.at + 1, 1, SKIP_LIMIT) {
            Some(end) => self.at = end,
            None if self.bytes.len() - self.at <= SKIP_LIMIT + 64 => return Err(Fail::NeedMore),
            None => return self.broken(),
        }
        Ok(())
    }

    /// Passes over the array or object at the cursor token by token, for where quotes cannot be trusted or it is long.
    fn walk_container(&mut self) -> Parsed<()> {
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.element()?;
                    continue;
                }
                // Half an event: the next one begins within it.
                b'{' if depth > 0 && self.begins_event()? => return self.broken(),
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Passes over the string at the cursor, which ends where a separator follows a quote.
    fn element(&mut self) -> Parsed<()> {
        let mut at = self.at + 1;
        loop {
            at = find_string_stop_portably(self.bytes, at);
            match self.bytes.get(at) {
                None => return Err(Fail::NeedMore),
                Some(b'"') => {
                    let mut probe = Self::new(self.bytes, at + 1);
                    if matches!(probe.skip_space()?, b',' | b':' | b']' | b'}') {
                        self.at = at + 1;
                        return Ok(());
                    }
                    at += 1;
                }
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        }
    }

    /// Whether the brace at the cursor has the key `ph` behind it.
    fn begins_event(&self) -> Parsed<bool> {
        let mut probe = Self::new(self.bytes, self.at + 1);
        probe.skip_space()?;
        let rest = &self.bytes[probe.at..];
        let key = b"\"ph\"";
        if rest.len() < key.len() && key.starts_with(rest) {
            return Err(Fail::NeedMore);
        }
        Ok(rest.starts_with(key))
    }

    /// The member of an object whose key is at the cursor: the key and the text of its value.
    pub(super) fn member(&mut self) -> Parsed<(&'a [u8], &'a [u8], usize)> {
        let key = self.key()?;
        let start = self.at;
        self.value()?;
        Ok((key, &self.bytes[start..self.at], self.at))
    }

    /// Whether the cursor is at the member `name` with an array as its value; the place behind the opening bracket.
    pub(super) fn opens_array(&mut self, name: &[u8]) -> Parsed<Option<usize>> {
        let key = self.key()?;
        Ok((key == name && self.peek()? == b'[').then_some(self.at + 1))
    }
}

/// Whether a repaired string holds what can only be keys of its event, one of which lost a quote.
#[cold]
fn swallows_key(raw: &[u8]) -> bool {
    memchr::memmem::find_iter(raw, b"\":").any(|at| {
        let key = &raw[..at];
        [&b"ph"[..], b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args"].iter().any(|known| {
            key.strip_suffix(*known)
                .is_some_and(|before| before.last().is_none_or(|b| matches!(b, b'"' | b',') || is_space(*b)))
        })
    })
}

/// As [`find_string_stop`], in one place for all that is rare.
#[cold]
fn find_string_stop_portably(bytes: &[u8], from: usize) -> usize {
    find_string_stop::<Portable>(bytes, from)
}

/// Whether the text says that there is no value.
fn is_nothing(text: &[u8]) -> bool {
    matches!(text, b"" | b"null" | b"NaN" | b"nan" | b"-nan" | b"inf" | b"-inf" | b"Infinity" | b"-Infinity")
}

/// An integer in decimal; `None` for anything else, or beyond 38 digits.
#[inline(always)]
fn parse_integer(text: &[u8]) -> Option<i128> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 38 {
        return None;
    }
    // Up to 19 digits fit in 64 bits, which all but hostile numbers do.
    let (head, tail) = digits.split_at(digits.len().min(19));
    let mut small = 0u64;
    for byte in head {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return whole_decimal(text);
        }
        small = small * 10 + u64::from(digit);
    }
    let mut value = i128::from(small);
    for byte in tail {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i128::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// A whole number written with a point or an exponent, such as `3.0` or `1e6`.
#[cold]
fn whole_decimal(text: &[u8]) -> Option<i128> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i128)
}

/// The next place from `from` on where an event seems to begin: a brace with a key or its own end behind it, and a
/// comma, a bracket or the end of another event before it. `None` if the bytes end first.
pub(super) fn next_event_start(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'{', bytes.get(from..)?).map(|i| from + i).find(|at| {
        let before = bytes[..*at].iter().rev().take(64).find(|b| !is_space(**b));
        let after = bytes[*at + 1..].iter().take(64).find(|b| !is_space(**b));
        matches!(before, Some(b',' | b'[' | b'}')) && matches!(after, Some(b'"' | b'}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::simd::Portable;

    fn parse<const LENIENT: bool>(text: &str) -> (Parsed<usize>, RawEvent<'_>) {
        let mut event = RawEvent::EMPTY;
        let end = Cursor::<Portable, LENIENT>::new(text.as_bytes(), 0).event(&mut event, |_| Interest::All);
        (end, event)
    }

    #[test]
    fn known_fields_are_picked_and_unknown_ones_skipped() {
        let text = r#"{"ph": "X", "cat": "cpu_op", "name": "a\"b", "pid": 5, "tid": "stream 7", "zz": [{"x": "]"}],
            "ts": "10.5", "dur": 2, "args": {"External id": 3, "Input Dims": [[2, 3], []], "odd": {"a": [1]}, "Comms Id": 10159970886766084423}}"#;
        let (end, event) = parse::<false>(text);
        assert_eq!(end, Ok(text.len()));
        assert_eq!(
            (event.phase, event.category.raw, event.pid.raw, event.tid.raw),
            (b'X', &b"cpu_op"[..], &b"5"[..], &b"stream 7"[..])
        );
        assert_eq!(event.name.map(|n| (n.raw, n.escaped)), Some((&br#"a\"b"#[..], true)));
        assert_eq!((event.time, event.duration), (Some(Nanos(10_500)), Some(Nanos(2_000))));
        assert_eq!((event.args.external_id, event.args.input_dims), (3, &b"[[2, 3], []]"[..]));
        assert!(!event.odd_value);
    }

    #[test]
    fn every_cut_asks_for_more() {
        let text = r#"{"ph": "X", "name": "a\\", "args": {"External id": 3, "x": [1, "2"], "y": null}, "ts": 4}"#;
        for cut in 1..text.len() {
            assert_eq!(parse::<false>(&text[..cut]).0, Err(Fail::NeedMore), "{}", &text[..cut]);
        }
    }

    #[test]
    fn a_broken_string_ends_where_the_next_key_says_so() {
        let text = "{\"ph\":\"X\",\"name\":\"say \"hi\", he\nsaid\", \"pid\":7, \"args\":{\"name\":\"C:\\dir\\\"}}";
        assert!(matches!(parse::<false>(text).0, Err(Fail::Broken(_))));
        let (end, event) = parse::<true>(text);
        assert_eq!(end, Ok(text.len()));
        let name = event.name.unwrap();
        assert_eq!(name.raw, b"say \"hi\", he\nsaid");
        assert!(name.irregular);
        assert_eq!((event.pid.raw, event.args.label.raw), (&b"7"[..], &b"C:\\dir\\"[..]));
    }

    #[test]
    fn values_that_are_not_numbers_are_absent_and_odd_ones_are_marked() {
        let (end, event) = parse::<false>(
            r#"{"ts":NaN,"dur":null,"args":{"stream":"7","External id":99999999999999999999,"device":inf}}"#,
        );
        assert!(end.is_ok());
        assert_eq!((event.time, event.duration, event.args.stream, event.args.device), (None, None, 7, -1));
        assert!(event.odd_value, "an id beyond 64 bits");
        assert_eq!(event.args.external_id, 0);
    }

    #[test]
    fn a_key_without_its_quote_is_broken_either_way() {
        let text = r#"{"ph":"X", cat":"cpu_op","name":"x"}"#;
        assert!(matches!(parse::<false>(text).0, Err(Fail::Broken(_))));
        assert!(matches!(parse::<true>(text).0, Err(Fail::Broken(_))));
    }

    #[test]
    fn events_are_found_again_behind_rubbish() {
        let text = br#"x":{"a":1}, oops {"q" , {"ph":"X"}"#;
        assert_eq!(next_event_start(text, 0), Some(24));
    }
}
