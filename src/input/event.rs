//! One event of `traceEvents`: from the bytes between its braces to the fields that tracetool knows, in place.
//!
//! The cursor goes from token to token and looks at each byte once: strings and brackets 64 bytes at a time, numbers
//! digit by digit, values of keys that nobody asked for not at all. It knows JSON and the names of the keys; what they
//! mean is [`super::pytorch`]'s business. A [`Fail`] says whether more bytes would help. The same code reads broken
//! events when `LENIENT`: a string then ends where what follows looks like the next key.

use super::simd::{Block, find_string_stop, skip_brackets};
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

    #[inline(always)]
    fn skip_space(&mut self) -> Parsed<u8> {
        // The most frequent cases first: no space, one space, a line break with its indent.
        loop {
            let byte = self.peek()?;
            if byte > b' ' || !is_space(byte) {
                return Ok(byte);
            }
            self.at += 1;
        }
    }

    #[inline(always)]
    fn broken<T>(&self) -> Parsed<T> {
        Err(Fail::Broken(self.at))
    }

    /// Reads the event whose brace is at the cursor into `event`; the place behind it. `interest` is asked once, when
    /// phase and category are known.
    #[inline(always)]
    pub(super) fn event(
        &mut self,
        event: &mut RawEvent<'a>,
        interest: impl Fn(&RawEvent<'a>) -> Interest,
    ) -> Parsed<usize> {
        let mut asked = false;
        self.at += 1;
        if self.skip_space()? == b'}' {
            return Ok(self.at + 1);
        }
        loop {
            let key = self.key()?;
            self.field(key, event)?;
            if !LENIENT && !asked && event.phase != 0 && !event.category.raw.is_empty() {
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
            if !self.comma(b'}')? {
                return Ok(self.at);
            }
        }
    }

    /// Behind a value: whether another member follows, with the cursor at its key, or else behind the closing bracket.
    #[inline(always)]
    fn comma(&mut self, close: u8) -> Parsed<bool> {
        let byte = self.skip_space()?;
        if byte == b',' {
            self.at += 1;
            // A comma before the bracket is accepted.
            if self.skip_space()? != close {
                return Ok(true);
            }
        } else if byte != close {
            return self.broken();
        }
        self.at += 1;
        Ok(false)
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
            end = find_string_stop::<B>(self.bytes, end + 1 + usize::from(self.bytes[end] == b'\\'));
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

    #[inline(always)]
    fn field(&mut self, key: &[u8], event: &mut RawEvent<'a>) -> Parsed<()> {
        match key {
            b"ph" => event.phase = self.regular_text()?.raw.first().copied().unwrap_or(0),
            b"cat" => event.category = self.regular_text()?,
            b"name" => event.name = Some(self.text()?),
            b"pid" => event.pid = self.regular_text()?,
            b"tid" => event.tid = self.regular_text()?,
            b"ts" => event.time = self.micros(&mut event.odd_value)?,
            b"dur" => event.duration = self.micros(&mut event.odd_value)?,
            b"args" if self.peek()? == b'{' => self.args(event)?,
            _ => self.skip_value()?,
        }
        Ok(())
    }

    #[inline(always)]
    fn args(&mut self, event: &mut RawEvent<'a>) -> Parsed<()> {
        self.at += 1;
        if self.skip_space()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            self.argument(key, event)?;
            if !self.comma(b'}')? {
                return Ok(());
            }
        }
    }

    #[inline(always)]
    fn argument(&mut self, key: &[u8], event: &mut RawEvent<'a>) -> Parsed<()> {
        let args = &mut event.args;
        let odd = &mut event.odd_value;
        // By length first, so that a key is compared with one or two names.
        match key.len() {
            4 => match key {
                b"Addr" => args.address = self.integer(odd)?.unwrap_or(0),
                b"name" => args.label = self.text()?,
                _ => self.skip_value()?,
            },
            5 => match key {
                b"Bytes" => args.memory_bytes = self.integer(odd)?,
                b"bytes" => args.moved_bytes = self.integer(odd)?.unwrap_or(0),
                _ => self.skip_value()?,
            },
            6 => match key {
                b"device" => args.device = self.integer(odd)?.unwrap_or(-1),
                b"stream" => args.stream = self.integer(odd)?.unwrap_or(-1),
                _ => self.skip_value()?,
            },
            8 if key == b"finished" => args.unfinished = self.word()? == b"false",
            9 => match key {
                b"Device Id" => args.device_id = self.integer(odd)?.unwrap_or(-1),
                b"Python id" => args.python_id = self.integer(odd)?.unwrap_or(0),
                _ => self.skip_value()?,
            },
            10 => match key {
                b"Input Dims" | b"Input dims" => args.input_dims = self.array()?,
                b"Input type" => args.input_types = self.array()?,
                b"Call stack" => args.call_stack = self.text()?,
                _ => self.skip_value()?,
            },
            11 => match key {
                b"External id" | b"external id" => args.external_id = self.integer(odd)?.unwrap_or(0),
                b"Device Type" => args.device_type = self.integer(odd)?,
                b"correlation" => args.correlation = self.integer(odd)?.unwrap_or(0),
                _ => self.skip_value()?,
            },
            13 if key == b"Fwd thread id" => args.forward_thread = self.integer(odd)?.unwrap_or(0),
            14 if key == b"Total Reserved" => args.total_reserved = self.integer(odd)?.unwrap_or(-1),
            15 => match key {
                b"Sequence number" => args.sequence = self.integer(odd)?.unwrap_or(-1),
                b"Total Allocated" => args.total_allocated = self.integer(odd)?.unwrap_or(-1),
                b"Concrete Inputs" => args.concrete_inputs = self.array()?,
                _ => self.skip_value()?,
            },
            16 if key == b"Python parent id" => args.python_parent = self.integer(odd)?.unwrap_or(0),
            25 if key == b"est. achieved occupancy %" => {
                args.occupancy = self.decimal()?;
            }
            _ => self.skip_value()?,
        }
        Ok(())
    }

    /// The text of a field that exporters never get wrong: if it seems to hold a quote, a key lost its own.
    #[inline(always)]
    fn regular_text(&mut self) -> Parsed<Text<'a>> {
        let text = self.text()?;
        if LENIENT && text.irregular { self.broken() } else { Ok(text) }
    }

    /// A string, or the digits of a number; nothing for any other value.
    #[inline(always)]
    fn text(&mut self) -> Parsed<Text<'a>> {
        match self.peek()? {
            b'"' => self.string(),
            b'[' | b'{' => {
                self.skip_value()?;
                Ok(Text::default())
            }
            _ => Ok(Text::plain(self.word()?)),
        }
    }

    /// The string at the cursor.
    #[inline(always)]
    fn string(&mut self) -> Parsed<Text<'a>> {
        let start = self.at + 1;
        let (mut escaped, mut irregular) = (false, false);
        let mut at = start;
        loop {
            at = find_string_stop::<B>(self.bytes, at);
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
        let stop = find_string_stop::<B>(self.bytes, start);
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

    /// The bare word or number at the cursor.
    #[inline(always)]
    fn word(&mut self) -> Parsed<&'a [u8]> {
        let start = self.at;
        loop {
            match self.peek()? {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => break,
                b'"' | b'{' | b'[' | b':' => return self.broken(),
                _ => self.at += 1,
            }
        }
        if self.at == start { self.broken() } else { Ok(&self.bytes[start..self.at]) }
    }

    /// A time in microseconds, written as a number or as a string; `None` for anything else.
    #[inline(always)]
    fn micros(&mut self, odd: &mut bool) -> Parsed<Option<Nanos>> {
        let text = self.text()?.raw;
        let time = Nanos::from_micros(text);
        *odd |= time.is_none() && !is_nothing(text);
        Ok(time)
    }

    /// An integer, written as a number or as a string; `None` for anything else or out of range.
    #[inline(always)]
    fn integer<T: TryFrom<i128>>(&mut self, odd: &mut bool) -> Parsed<Option<T>> {
        let text = self.text()?.raw;
        let value = parse_integer(text).and_then(|n| T::try_from(n).ok());
        *odd |= value.is_none() && !is_nothing(text);
        Ok(value)
    }

    /// A decimal number; NaN for anything else.
    fn decimal(&mut self) -> Parsed<f32> {
        let text = self.text()?.raw;
        Ok(std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).unwrap_or(f32::NAN))
    }

    /// The text of an array, brackets and all; nothing for any other value.
    #[inline(always)]
    fn array(&mut self) -> Parsed<&'a [u8]> {
        let start = self.at;
        let is_array = self.peek()? == b'[';
        self.skip_value()?;
        Ok(if is_array { &self.bytes[start..self.at] } else { &[] })
    }

    #[inline(always)]
    fn skip_value(&mut self) -> Parsed<()> {
        match self.peek()? {
            b'"' => drop(self.string()?),
            b'[' | b'{' if LENIENT => self.walk_container()?,
            b'[' | b'{' => {
                let start = self.at;
                match skip_brackets::<B>(self.bytes, start + 1, 1, SKIP_LIMIT) {
                    Some(end) => self.at = end,
                    None if self.bytes.len() - start <= SKIP_LIMIT + 64 => return Err(Fail::NeedMore),
                    None => return self.broken(),
                }
            }
            _ => drop(self.word()?),
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
            at = find_string_stop::<B>(self.bytes, at);
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
        self.skip_value()?;
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
