//! One event of `traceEvents`: the fields that tracetool knows, as they stand in the file.
//!
//! The names of the keys and what kinds of values are taken for each. How the bytes are cut into keys and values is the
//! [cursor](super::cursor)'s business, what the fields mean [`super::pytorch`]'s.

use super::layout::PassageId;
use super::text;
use crate::units::Nanos;

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
    pub(super) fn plain(raw: &'a [u8]) -> Self {
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
    /// Whether there are two names, times or durations.
    pub(super) repeated: bool,
    pub(super) args: Args<'a>,
    /// The passage that all the operator's inputs stand in: equal passages hold equal inputs.
    pub(super) inputs: PassageId,
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
    pub(super) task_type: Text<'a>,
}

impl RawEvent<'_> {
    /// The phase of an event whose phase is no single character.
    pub(super) const NO_PHASE: u8 = b'?';

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
            repeated: false,
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
                task_type: none,
            },
            inputs: PassageId::NONE,
        }
    };
}

/// A value as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    /// A string's characters, a number's digits, or a container with its brackets.
    pub(super) text: Text<'a>,
    pub(super) is_container: bool,
    /// The number, if it is a plain one.
    pub(super) number: Option<Number>,
}

/// A number of up to 16 digits, and perhaps three behind the point: its digits without the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    mantissa: u64,
    has_thousandths: bool,
}

impl Number {
    /// The number that the `len` bytes from `start` on are, if it is such a one; others are read from their text.
    #[inline(always)]
    pub(super) fn plain(bytes: &[u8], start: usize, len: usize) -> Option<Self> {
        // Times have three digits behind the point, other numbers none.
        let has_thousandths = len > 4 && bytes[start + len - 4] == b'.';
        if !has_thousandths {
            return Some(Self { mantissa: digits(bytes, start, len)?, has_thousandths });
        }
        let whole = digits(bytes, start, len - 4)?;
        let [a, b, c] = *bytes[start + len - 3..].first_chunk()?;
        let [a, b, c] = [a, b, c].map(|digit| digit.wrapping_sub(b'0'));
        let thousandths = u64::from(a) * 100 + u64::from(b) * 10 + u64::from(c);
        (a.max(b).max(c) <= 9).then_some(Self { mantissa: whole * 1000 + thousandths, has_thousandths })
    }
}

/// The number whose digits are the `len` bytes from `start` on: up to 16, eight at a time (a loop over them ends where no
/// branch predictor expects it; measured: a tenth of the scan).
#[inline(always)]
fn digits(bytes: &[u8], start: usize, len: usize) -> Option<u64> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    if len <= 8 {
        return leading_digits(word(start)?, len);
    }
    let (high, low) = (leading_digits(word(start)?, 8)?, leading_digits(word(start + 8)?, len - 8)?);
    Some(high * POWERS_OF_TEN[len - 8] + low)
}

const POWERS_OF_TEN: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The number that the first `len` of eight little-endian bytes are, one to eight, if they are digits.
#[inline(always)]
fn leading_digits(word: u64, len: usize) -> Option<u64> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    if !(1..=8).contains(&len) {
        return None;
    }
    // Zeros before the digits: the first byte is the highest digit.
    let digits = (word ^ (LOW * u64::from(b'0'))) << (64 - 8 * len);
    // The high bit of each byte that is above 9.
    if (digits.wrapping_add(LOW * 0x76) | digits) & (LOW * 0x80) != 0 {
        return None;
    }
    let pairs = (digits.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(1 + (10_000 << 32)) >> 32)
}

impl<'a> Value<'a> {
    pub(super) fn text(text: Text<'a>) -> Self {
        Self { text, is_container: false, number: None }
    }

    /// A string, or the digits of a number; nothing for a container.
    #[inline(always)]
    fn as_text(&self) -> Text<'a> {
        if self.is_container { Text::default() } else { self.text }
    }

    /// The text of an array, brackets and all; nothing, and odd, for anything else.
    #[inline(always)]
    fn as_array(&self, odd: &mut bool) -> &'a [u8] {
        if self.text.raw.first() == Some(&b'[') && self.is_container {
            return self.text.raw;
        }
        *odd |= !is_nothing(self.text.raw);
        &[]
    }

    /// A phase, which is one character; [`RawEvent::NO_PHASE`], and odd, for anything else.
    #[inline(always)]
    fn phase(&self, odd: &mut bool) -> u8 {
        match self.as_text().raw {
            [phase] => *phase,
            [] if !self.is_container => 0,
            _ => {
                *odd = true;
                RawEvent::NO_PHASE
            }
        }
    }

    /// A time in microseconds, written as a number or as a string; `None`, and odd, for anything else.
    #[inline(always)]
    fn micros(&self, odd: &mut bool) -> Option<Nanos> {
        if let Some(Number { mantissa, has_thousandths }) = self.number
            && let Some(nanos) = mantissa.checked_mul(if has_thousandths { 1 } else { 1000 })
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
        if let Some(Number { mantissa, has_thousandths: false }) = self.number
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
pub(super) enum Field {
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
    TaskType,
    Unknown,
}

impl Field {
    /// The field of an event that a key names.
    pub(super) fn of_event(key: &[u8]) -> Self {
        match key {
            b"ph" => Self::Phase,
            b"cat" => Self::Category,
            b"name" => Self::Name,
            b"pid" => Self::Pid,
            b"tid" => Self::Tid,
            b"ts" => Self::Time,
            b"dur" => Self::Duration,
            b"args" => Self::Args,
            _ => Self::Unknown,
        }
    }

    /// The field of `args` that a key names.
    pub(super) fn of_argument(key: &[u8]) -> Self {
        // By length first, so that a key is compared with one or two names.
        match (key.len(), key) {
            (4, b"Addr") => Self::Address,
            (4, b"name") => Self::Label,
            (5, b"Bytes") => Self::MemoryBytes,
            (5, b"bytes") => Self::MovedBytes,
            (6, b"device") => Self::Device,
            (6, b"stream") => Self::Stream,
            (8, b"finished") => Self::Finished,
            (9, b"Device Id") => Self::DeviceId,
            (9, b"Python id") => Self::PythonId,
            (9, b"Stream Id") => Self::Stream,
            (9, b"Task Type") => Self::TaskType,
            (10, b"Input Dims" | b"Input dims") => Self::InputDims,
            (10, b"Input type") => Self::InputTypes,
            (10, b"Call stack") => Self::CallStack,
            (11, b"External id" | b"external id") => Self::ExternalId,
            (11, b"Device Type") => Self::DeviceType,
            (11, b"correlation") => Self::Correlation,
            (13, b"Fwd thread id") => Self::ForwardThread,
            (14, b"Total Reserved") => Self::TotalReserved,
            (15, b"Sequence number") => Self::Sequence,
            (15, b"Total Allocated") => Self::TotalAllocated,
            (15, b"Concrete Inputs") => Self::ConcreteInputs,
            (16, b"Python parent id") => Self::PythonParent,
            (25, b"est. achieved occupancy %") => Self::Occupancy,
            _ => Self::Unknown,
        }
    }

    /// Whether its value is read as a time or an integer.
    #[inline(always)]
    pub(super) fn is_number(self) -> bool {
        !matches!(
            self,
            Self::Phase
                | Self::Category
                | Self::Name
                | Self::Pid
                | Self::Tid
                | Self::Args
                | Self::InputDims
                | Self::InputTypes
                | Self::ConcreteInputs
                | Self::CallStack
                | Self::Finished
                | Self::Occupancy
                | Self::Label
                | Self::TaskType
                | Self::Unknown
        )
    }

    /// The field that a key with escapes names.
    #[cold]
    pub(super) fn of_escaped(key: &[u8], in_args: bool) -> Self {
        let (key, _) = text::decode(key, true);
        if in_args { Self::of_argument(key.as_bytes()) } else { Self::of_event(key.as_bytes()) }
    }

    /// Whether its value is the id of a process or a thread, a number or a string.
    #[inline(always)]
    pub(super) fn is_id(self) -> bool {
        matches!(self, Self::Pid | Self::Tid)
    }

    /// Whether most events have the same value as those before.
    pub(super) fn repeats(self) -> bool {
        matches!(
            self,
            Self::Phase
                | Self::Category
                | Self::Pid
                | Self::Tid
                | Self::ForwardThread
                | Self::Device
                | Self::Stream
                | Self::DeviceType
                | Self::DeviceId
        )
    }

    /// Whether its value is what an operator was called with.
    #[inline(always)]
    pub(super) fn is_input(self) -> bool {
        matches!(self, Self::InputDims | Self::InputTypes | Self::ConcreteInputs)
    }

    /// Whether people or programs put any text there.
    pub(super) fn is_free_text(self) -> bool {
        matches!(self, Self::Name | Self::Label | Self::CallStack | Self::Unknown)
    }
}

impl<'a> RawEvent<'a> {
    /// Whether phase and category are known.
    #[inline(always)]
    pub(super) fn is_classified(&self) -> bool {
        self.phase != 0 && !self.category.raw.is_empty()
    }

    /// Tells where inputs of the operator stand.
    #[inline(always)]
    pub(super) fn add_inputs(&mut self, passage: PassageId) {
        if passage != PassageId::NONE {
            self.inputs = if self.inputs == PassageId::NONE { passage } else { PassageId::SEVERAL };
        }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, field: Field, value: &Value<'a>) {
        let (args, odd) = (&mut self.args, &mut self.odd_value);
        match field {
            Field::Phase => self.phase = value.phase(odd),
            Field::Category => self.category = value.as_text(),
            Field::Name => {
                self.repeated |= self.name.is_some();
                self.name = Some(value.as_text());
            }
            Field::Pid => self.pid = value.as_text(),
            Field::Tid => self.tid = value.as_text(),
            Field::Time => {
                self.repeated |= self.time.is_some();
                self.time = value.micros(odd);
            }
            Field::Duration => {
                self.repeated |= self.duration.is_some();
                self.duration = value.micros(odd);
            }
            Field::ExternalId => args.external_id = value.integer(odd).unwrap_or(0),
            Field::Correlation => args.correlation = value.integer(odd).unwrap_or(0),
            Field::Sequence => args.sequence = value.integer(odd).unwrap_or(-1),
            Field::ForwardThread => args.forward_thread = value.integer(odd).unwrap_or(0),
            Field::InputDims => args.input_dims = value.as_array(odd),
            Field::InputTypes => args.input_types = value.as_array(odd),
            Field::ConcreteInputs => args.concrete_inputs = value.as_array(odd),
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
            Field::TaskType => args.task_type = value.as_text(),
            // Only where they are no object.
            Field::Args => *odd |= !is_nothing(value.text.raw),
            Field::Unknown => {}
        }
    }
}

/// Whether a bare word is one that exporters write: JSON's own, what they write for numbers that are none, or a number.
#[cold]
pub(super) fn is_known_word(word: &[u8]) -> bool {
    matches!(word, b"true" | b"false")
        || is_nothing(word)
        || serde_json::from_slice::<serde::de::IgnoredAny>(word).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plain_numbers_are_what_their_text_says(before in "[0-9 ]{0,3}", text in "[0-9]{1,18}(\\.[0-9]{3})?|[-./0-9]{1,20}", after in "[,0-9 ]{0,12}") {
            let all = format!("{before}{text}{after}");
            if let Some(number) = Number::plain(all.as_bytes(), before.len(), text.len()) {
                let digits: u64 = text.replacen('.', "", 1).parse().unwrap();
                prop_assert_eq!(number, Number { mantissa: digits, has_thousandths: text.contains('.') });
            } else {
                // What is left to the general reader is long, odd, or at the end of the bytes.
                let whole = text.split('.').next().unwrap_or_default();
                let odd = text.bytes().any(|b| !b.is_ascii_digit() && b != b'.') || text.contains('.') != (text.len() > 4 && text.as_bytes()[text.len() - 4] == b'.') || text.matches('.').count() > 1 || whole.is_empty();
                prop_assert!(odd || whole.len() > 16 || before.len() + whole.len() + 8 > all.len());
            }
        }
    }
}
