//! From the bytes of an event to its fields, in place.
//!
//! The cursor goes from token to token and looks at each byte once: strings and brackets 64 bytes at a time, numbers
//! eight, what stands between values not at all where it is what stood there before ([`Layout`]). It knows JSON and asks
//! [`RawEvent`] what a key means. A [`Fail`] says whether more bytes would help. The same code reads broken events when
//! `LENIENT`: a string then ends where what follows looks like the next key.

use super::event::{Field, Number, RawEvent, Text, Value, is_known_word};
use super::layout::{Gap, LONGEST_PASSAGE, Layout, Lesson, PassageId, Tail};
use super::simd::{Block, Portable, Skipped, count_number_bytes, find_string_stop, skip_brackets};

/// Why an event could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fail {
    /// The bytes end within the event.
    NeedMore,
    /// No JSON, from this place on.
    Broken(usize),
}

type Parsed<T> = Result<T, Fail>;

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

/// Where in an event the cursor stands.
struct Stand {
    gap: Gap,
    in_args: bool,
}

/// A place in the bytes of a batch.
pub(super) struct Cursor<'a, B, const LENIENT: bool> {
    bytes: &'a [u8],
    at: usize,
    /// Whether a value was met that is neither a string, a container, a number nor a word of JSON.
    met_odd_word: bool,
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
        Self { bytes, at, met_odd_word: false, block: std::marker::PhantomData }
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
        layout: &mut Layout,
        interest: impl Fn(&RawEvent<'a>) -> Interest,
    ) -> Parsed<usize> {
        let mut asked = LENIENT;
        let mut stand = Stand { gap: Gap::START, in_args: false };
        self.at += 1;
        loop {
            // Broken events are few and unlike each other.
            let expected = if LENIENT { None } else { layout.expect::<B>(stand.gap, self.bytes, self.at) };
            let member = if let Some(passage) = expected {
                stand = Stand { gap: passage.gap, in_args: passage.in_args };
                let text = &self.bytes[self.at..self.at + passage.len()];
                self.at += passage.len();
                for (field, value) in passage.values(text) {
                    event.set(field, &value);
                }
                event.add_inputs(passage.inputs);
                passage.member
            } else {
                self.passage(event, layout, &mut stand, asked)?
            };
            let Some(field) = member else {
                event.odd_value |= self.met_odd_word;
                return Ok(self.at);
            };
            if !asked && event.is_classified() {
                asked = true;
                if interest(event) == Interest::None {
                    let depth = 1 + u32::from(stand.in_args);
                    if let Some(skipped) = skip_brackets::<B>(self.bytes, self.at, depth, SKIP_LIMIT) {
                        if self.is_whole(b'{', skipped) {
                            return Ok(skipped.end);
                        }
                    } else if self.bytes.len() - self.at <= SKIP_LIMIT + 64 {
                        return Err(Fail::NeedMore);
                    }
                }
            }
            let start = self.at;
            let mut value = self.value(field.is_number())?;
            if field.is_id() && self.bytes[start] != b'"' && self.is_no_id(value.text.raw) {
                value.text.raw = &[];
            }
            // Exporters never get these wrong: if one seems to hold a quote, a key lost its own.
            if LENIENT && value.text.irregular && !field.is_free_text() {
                return self.broken();
            }
            if field.is_input() {
                event.add_inputs(PassageId::SEVERAL);
            }
            event.set(field, &value);
        }
    }

    /// Reads what stands before the next value that varies, values that repeat and all, and lets the layout learn it. The
    /// member whose value follows; `None` behind the end of the event.
    ///
    /// Inlined like all that works on blocks: on its own it would be compiled without their instruction set.
    #[inline(always)]
    fn passage(
        &mut self,
        event: &mut RawEvent<'a>,
        layout: &mut Layout,
        stand: &mut Stand,
        asked: bool,
    ) -> Parsed<Option<Field>> {
        let (start, from) = (self.at, stand.gap);
        let mut values = Vec::new();
        loop {
            let (tail, tail_in_args) = (self.at, stand.in_args);
            let tail_is_first = values.is_empty() && from == Gap::START;
            let member = self.next_member(!tail_is_first, &mut stand.in_args)?;
            if LENIENT {
                stand.gap = Gap::UNKNOWN;
                return Ok(member);
            }
            // Nobody may want more of an event that is classified.
            if let Some(field) = member
                && (asked || !event.is_classified())
                && let Some(value) = self.repeating_value(field, start)?
            {
                event.set(field, &value);
                values.push((field, value));
                continue;
            }
            let lesson = Lesson {
                from,
                text: &self.bytes[start..self.at],
                values: &values,
                tail: Tail { text: &self.bytes[tail..self.at], in_args: tail_in_args, is_first: tail_is_first },
                member,
                in_args: stand.in_args,
            };
            let (gap, inputs) = layout.learn(&lesson, &self.bytes[start..]);
            stand.gap = gap;
            if values.iter().any(|(field, _)| field.is_input()) {
                event.add_inputs(if inputs == PassageId::NONE { PassageId::SEVERAL } else { inputs });
            }
            return Ok(member);
        }
    }

    /// The value at the cursor, if it is one that repeats from event to event and makes no passage from `start` on too
    /// long; else the cursor stays.
    #[inline(always)]
    fn repeating_value(&mut self, field: Field, start: usize) -> Parsed<Option<Value<'a>>> {
        let at = self.at;
        let repeats = match self.peek()? {
            b'[' => field != Field::Args,
            b'"' => field.repeats(),
            // What is unknown and 0 is most often always 0.
            b'0' if field == Field::Unknown => !matches!(self.bytes.get(at + 1), Some(b'0'..=b'9' | b'.')),
            b'-' | b'0'..=b'9' => field.repeats(),
            _ => false,
        };
        if !repeats {
            return Ok(None);
        }
        let value = self.value(field.is_number())?;
        // What is odd is read, and told, each time.
        let is_odd = field.is_id() && self.bytes[at] != b'"' && self.is_no_id(value.text.raw);
        if value.text.escaped
            || value.text.irregular
            || self.met_odd_word
            || is_odd
            || self.at - start > LONGEST_PASSAGE - 64
        {
            self.at = at;
            return Ok(None);
        }
        Ok(Some(value))
    }

    /// Goes to the value of the next member of the event or of its `args`; `None` behind the end of the event.
    #[inline(always)]
    fn next_member(&mut self, mut after_value: bool, in_args: &mut bool) -> Parsed<Option<Field>> {
        loop {
            let mut byte = self.skip_space()?;
            if after_value {
                match byte {
                    b',' => {
                        self.at += 1;
                        byte = self.skip_space()?;
                    }
                    b'}' => {}
                    _ => return self.broken(),
                }
            }
            // Also behind a comma: one before the brace is accepted.
            if byte == b'}' {
                self.at += 1;
                if !*in_args {
                    return Ok(None);
                }
                (*in_args, after_value) = (false, true);
                continue;
            }
            let (key, escaped) = self.key()?;
            let mut field = if *in_args { Field::of_argument(key) } else { Field::of_event(key) };
            if field == Field::Unknown {
                if escaped {
                    field = Field::of_escaped(key, *in_args);
                }
                // It may have been a key that is known.
                if !LENIENT && !key.is_ascii() && std::str::from_utf8(key).is_err() {
                    return self.broken();
                }
            }
            if field != Field::Args || self.peek()? != b'{' {
                return Ok(Some(field));
            }
            self.at += 1;
            (*in_args, after_value) = (true, false);
        }
    }

    /// The key at the cursor, which then stands at the value, and whether it has a backslash. One with control characters is
    /// broken: it may have been one that is known.
    #[inline(always)]
    fn key(&mut self) -> Parsed<(&'a [u8], bool)> {
        if self.peek()? != b'"' {
            return self.broken();
        }
        let start = self.at + 1;
        let mut end = find_string_stop::<B>(self.bytes, start);
        let mut escaped = false;
        while end < self.bytes.len() && self.bytes[end] != b'"' {
            if self.bytes[end] == b'\n' || !LENIENT && self.bytes[end] < b' ' {
                self.at = end;
                return self.broken();
            }
            escaped |= self.bytes[end] == b'\\';
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
        Ok((&self.bytes[start..end], escaped))
    }

    /// Whether a value is no id of a process or a thread, though it stands where one should and has no quotes.
    #[inline(never)]
    fn is_no_id(&mut self, raw: &[u8]) -> bool {
        let digits = raw.strip_prefix(b"-").unwrap_or(raw);
        if digits.first().is_some_and(|d| *d != b'0' || digits.len() == 1) && digits.iter().all(u8::is_ascii_digit) {
            return false;
        }
        let is_json = serde_json::from_slice::<serde_json::Value>(raw);
        self.met_odd_word |= is_json.is_err();
        !is_json.is_ok_and(|value| value.is_number())
    }

    /// The value at the cursor, which then stands behind it; `number` says whether it is of use as a number.
    #[inline(always)]
    fn value(&mut self, number: bool) -> Parsed<Value<'a>> {
        match self.peek()? {
            b'"' => self.string().map(Value::text),
            b'[' | b'{' => {
                let start = self.at;
                self.skip_container()?;
                Ok(Value { is_container: true, ..Value::text(Text::plain(&self.bytes[start..self.at])) })
            }
            _ => self.number(number),
        }
    }

    /// The number or bare word at the cursor. A plain number is read if it is `wanted`.
    #[inline(always)]
    fn number(&mut self, wanted: bool) -> Parsed<Value<'a>> {
        let start = self.at;
        self.at += count_number_bytes::<B>(self.bytes, start);
        if !matches!(self.peek()?, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') {
            self.word(start)?;
        }
        if self.at == start {
            return self.broken();
        }
        let number = if wanted { Number::plain(self.bytes, start, self.at - start) } else { None };
        Ok(Value { text: Text::plain(&self.bytes[start..self.at]), is_container: false, number })
    }

    /// Goes to the end of the bare word that begins at `start` and goes on at the cursor.
    #[cold]
    fn word(&mut self, start: usize) -> Parsed<()> {
        loop {
            match self.peek()? {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => break,
                b'"' | b'{' | b'[' | b':' => return self.broken(),
                _ => self.at += 1,
            }
        }
        self.met_odd_word |= !is_known_word(&self.bytes[start..self.at]);
        Ok(())
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
            Some(skipped) if self.is_whole(self.bytes[self.at], skipped) => self.at = skipped.end,
            Some(_) => return self.walk_container(),
            None if self.bytes.len() - self.at <= SKIP_LIMIT + 64 => return Err(Fail::NeedMore),
            None => return self.broken(),
        }
        Ok(())
    }

    /// Whether what was skipped by counting brackets is what `open` began. Where a bracket is missing, counting goes on
    /// into the events that follow and would swallow them.
    #[inline(always)]
    fn is_whole(&self, open: u8, skipped: Skipped) -> bool {
        let Skipped { end, has_brace } = skipped;
        // In ASCII a bracket's partner is two places on.
        self.bytes[end - 1] == open + 2 && !(has_brace && next_event_start(&self.bytes[..end], self.at + 1).is_some())
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
        let (key, _) = self.key()?;
        let start = self.at;
        self.value(false)?;
        Ok((key, &self.bytes[start..self.at], self.at))
    }

    /// Whether the cursor is at the member `name` with an array as its value; the place behind the opening bracket.
    pub(super) fn opens_array(&mut self, name: &[u8]) -> Parsed<Option<usize>> {
        let (key, _) = self.key()?;
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
    use crate::units::Nanos;

    fn parse<const LENIENT: bool>(text: &str) -> (Parsed<usize>, RawEvent<'_>) {
        let mut event = RawEvent::EMPTY;
        let end =
            Cursor::<Portable, LENIENT>::new(text.as_bytes(), 0)
                .event(&mut event, &mut Layout::default(), |_| Interest::All);
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
    fn a_key_that_may_have_been_a_known_one_is_broken_and_one_with_escapes_is_what_they_say() {
        for (key, broken) in [("d\u{1}r", true), ("d\u{7f}", false), ("d\u{fc}r", false)] {
            let text = format!(r#"{{"ph":"X","{key}":1,"name":"x"}}"#);
            assert_eq!(matches!(parse::<false>(&text).0, Err(Fail::Broken(_))), broken, "{key:?}");
        }
        let bytes = b"{\"ph\":\"X\",\"d\xf5r\":1}";
        let mut event = RawEvent::EMPTY;
        let end = Cursor::<Portable, false>::new(bytes, 0).event(&mut event, &mut Layout::default(), |_| Interest::All);
        assert!(matches!(end, Err(Fail::Broken(_))));
        let (_, event) = parse::<false>(r#"{"ph":"X","d\u0075r":1,"args":{"External\u0020id":7,"a\"b":0}}"#);
        assert_eq!((event.duration, event.args.external_id), (Some(Nanos(1000)), 7));
    }

    #[test]
    fn words_that_are_none_and_members_that_are_there_twice_are_marked() {
        for (text, odd, repeated) in [
            (r#"{"ph":"X","pid":12x4}"#, true, false),
            (r#"{"ph":"X","pid":1-2}"#, true, false),
            (r#"{"ph":"X","tid":007}"#, true, false),
            (r#"{"ph":"X","zz":troe}"#, true, false),
            (r#"{"ph":"XX"}"#, true, false),
            (r#"{"ph":"X","pid":null,"tid":-1,"zz":true,"dur":NaN}"#, false, false),
            (r#"{"ph":"X","name":"a","pid":1,"name":"b"}"#, false, true),
            (r#"{"ph":"X","ts":1,"ts":2}"#, false, true),
        ] {
            let (end, event) = parse::<false>(text);
            assert_eq!((end, event.odd_value, event.repeated), (Ok(text.len()), odd, repeated), "{text}");
        }
        assert_eq!(parse::<false>(r#"{"pid":12x4,"tid":null}"#).1.pid.raw, b"");
    }

    #[test]
    fn events_are_found_again_behind_rubbish() {
        let text = br#"x":{"a":1}, oops {"q" , {"ph":"X"}"#;
        assert_eq!(next_event_start(text, 0), Some(24));
    }

    #[test]
    fn what_stands_between_values_means_the_same_when_it_is_expected() {
        // Every event twice and more, with members that come and go, so that texts are learned and met again.
        let events = [
            r#"{"ph": "X", "name": "a", "args": {"External id": 1, "name": "x"}, "ts": 1, "dur": 2 }"#,
            r#"{"ph": "X", "name": "b", "args": {"External id": 2}, "ts":  3, "dur": 4 }"#,
            r#"{"ph": "X", "args": 7, "name": "c", "ts": 5, }"#,
            r#"{"ph": "X", "args": {"Input Dims": [[1, 2], []], "odd": 0, "Input type": ["float", "a]"], "Ev Idx": 2}, "pid": 7, "name": "c"}"#,
            r#"{"ph": "X", "args": {"Input Dims": [[1, 2], []], "odd": 0.5, "Input type": ["float", "b]"], "Ev Idx": 2}, "pid": 71, "name": "c"}"#,
            r#"{"ph": "X", "args": {"Input Dims": [[1, 2], [8]], "odd": 0, "Input type": ["float", "b]"], "Ev Idx": 2}, "pid": "7", "name": "c"}"#,
            r#"{"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 8, "name": "e", "args": {"Input Dims": 3, "device": 1, "stream": 7}}"#,
            r#"{"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 8, "name": "e", "args": {"Input Dims": [3], "device": 1, "stream": "7"}}"#,
            r#"{"ph": "X", "cat": "cpu_op", "pid": 7, "tid":  8, "name": "e", "args": {"device": -1, "stream": 77, "stream": 8}}"#,
            r#"{"ph": "X", "cat": "cpu\u005fop", "pid": 7, "tid": null, "name": "e", "args": [1]}"#,
            r#"{"ph": "X", "args": {}, "name": "d", "ts": "6"}"#,
            r#"{}"#,
        ];
        // Enough behind each event that passages can be compared.
        let padded: Vec<String> = events.iter().map(|text| format!("{text}{}", " ".repeat(64))).collect();
        let mut layout = Layout::default();
        for round in 0..3 {
            for (text, padded) in events.iter().zip(&padded) {
                let mut event = RawEvent::EMPTY;
                let end = Cursor::<Portable, false>::new(padded.as_bytes(), 0)
                    .event(&mut event, &mut layout, |_| Interest::All);
                let (want_end, want) = parse::<false>(text);
                assert_eq!(end, want_end, "{text} in round {round}");
                // Which passage it came from is no part of what was read.
                event.inputs = want.inputs;
                assert_eq!(format!("{event:?}"), format!("{want:?}"), "{text} in round {round}");
            }
        }
    }

    #[test]
    fn inputs_that_are_told_to_be_of_one_passage_are_equal() {
        let event = |dims: &str, rest: &str| {
            format!(
                r#"{{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "args": {{"id": 1, "Concrete Inputs": [""], "Input type": ["float"], "Input Dims": {dims}, "Ev Idx": 3{rest}}}}}"#
            ) + &" ".repeat(64)
        };
        let again = r#", "Input Dims": [[7]]"#;
        let texts =
            [event("[[1]]", ""), event("[[2]]", ""), event("[[1]]", again), event("[[1]]", ""), event("[[2]]", again)];
        let mut layout = Layout::default();
        let mut known = std::collections::HashMap::new();
        let mut told = 0;
        for text in texts.iter().cycle().take(40) {
            let mut event = RawEvent::EMPTY;
            let end =
                Cursor::<Portable, false>::new(text.as_bytes(), 0).event(&mut event, &mut layout, |_| Interest::All);
            assert!(end.is_ok());
            assert_ne!(event.inputs, PassageId::NONE, "there are inputs");
            if event.inputs != PassageId::SEVERAL {
                told += 1;
                let args = &event.args;
                let inputs = (args.input_dims, args.input_types, args.concrete_inputs);
                assert_eq!(*known.entry(event.inputs.index()).or_insert(inputs), inputs);
            }
        }
        assert!(told >= 20, "{told}");
    }
}
