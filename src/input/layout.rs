//! What stands between two values, by example: exporters write every event alike, so most of it need not be read.
//!
//! From the end of one value to the start of the next lie brackets, commas, spaces and a key. A [`Layout`] remembers these
//! texts, which member each leads to, and which text followed which. Where the bytes at hand equal one that followed
//! before, reading them would give the same, so one comparison of up to 64 bytes replaces finding the key's ends and
//! looking it up (measured on a million operators: scanning takes half the time). Where they do not, the
//! [cursor](super::cursor) reads them and the layout learns.

use super::event::Field;
use super::simd::Block;

/// A text that was seen between two values; what is remembered of an event so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap(u8);

impl Gap {
    /// None that was learned: nothing is expected after it.
    const UNKNOWN: Self = Self(0);
    /// The brace of the event.
    pub(super) const START: Self = Self(1);
}

/// What the bytes between two values are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) gap: Gap,
    /// How many bytes.
    pub(super) len: usize,
    /// The member whose value follows; `None` at the end of the event.
    pub(super) member: Option<Field>,
    /// Whether the member is one of `args`.
    pub(super) in_args: bool,
}

/// How many different texts may follow one.
const WAYS: usize = 4;

struct Text {
    bytes: [u8; 64],
    /// The bits of the bytes that count.
    mask: u64,
    /// What the text stands for. A text means the same wherever the place before it is the same: within `args` or not,
    /// and behind a value or the opening brace.
    expected: Expected,
    was_in_args: bool,
    was_first: bool,
    next: [Gap; WAYS],
}

/// The texts of the events so far.
pub(super) struct Layout {
    texts: Vec<Text>,
    /// How many more times something is learned: input that never repeats must not cost a search each time.
    lessons: u32,
}

impl Default for Layout {
    fn default() -> Self {
        let none = |gap| Text {
            bytes: [0; 64],
            mask: 0,
            expected: Expected { gap, len: 0, member: None, in_args: false },
            was_in_args: false,
            was_first: false,
            next: [Gap::UNKNOWN; WAYS],
        };
        Self { texts: vec![none(Gap::UNKNOWN), none(Gap::START)], lessons: 2000 }
    }
}

impl Layout {
    /// What stands at `at`, if it is what once followed `gap`.
    #[inline(always)]
    pub(super) fn expect<B: Block>(&self, gap: Gap, bytes: &[u8], at: usize) -> Option<Expected> {
        let here = bytes.get(at..)?.first_chunk::<64>()?;
        let here = B::load(here);
        for next in self.texts[usize::from(gap.0)].next {
            if next == Gap::UNKNOWN {
                return None;
            }
            let text = &self.texts[usize::from(next.0)];
            if here.same(B::load(&text.bytes)) & text.mask == text.mask {
                let expected = text.expected;
                // A value is never a space: more of the gap follows than the last time.
                let ends = expected.member.is_none() || bytes.get(at + expected.len).is_some_and(|b| *b > b' ');
                return ends.then_some(expected);
            }
        }
        None
    }

    /// Remembers that `text` followed `gap`, and what it led to. `was_in_args` is where it began.
    #[cold]
    pub(super) fn learn(
        &mut self,
        gap: Gap,
        text: &[u8],
        member: Option<Field>,
        was_in_args: bool,
        in_args: bool,
    ) -> Gap {
        // `args` that is no object depends on what follows the text.
        if self.lessons == 0 || text.is_empty() || text.len() > 63 || member == Some(Field::Args) {
            return Gap::UNKNOWN;
        }
        self.lessons -= 1;
        let was_first = gap == Gap::START;
        let known = self.texts.iter().skip(2).position(|t| {
            t.bytes[..t.expected.len] == *text && t.was_in_args == was_in_args && t.was_first == was_first
        });
        let learned = match known {
            Some(place) => self.texts[place + 2].expected.gap,
            None => {
                let Ok(place) = u8::try_from(self.texts.len()) else { return Gap::UNKNOWN };
                let mut bytes = [0; 64];
                bytes[..text.len()].copy_from_slice(text);
                let expected = Expected { gap: Gap(place), len: text.len(), member, in_args };
                let mask = (1 << text.len()) - 1;
                self.texts.push(Text { bytes, mask, expected, was_in_args, was_first, next: [Gap::UNKNOWN; WAYS] });
                Gap(place)
            }
        };
        if gap != Gap::UNKNOWN {
            let next = &mut self.texts[usize::from(gap.0)].next;
            // The newest first; it may stand there already, where the bytes went on with a space.
            let end = next.iter().position(|g| *g == learned).unwrap_or(WAYS - 1);
            next[..=end].rotate_right(1);
            next[0] = learned;
        }
        learned
    }
}
