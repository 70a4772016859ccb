//! What repeats in events, by example: exporters write every event alike, so most of it need not be read.
//!
//! A *passage* is what stands from the end of one value that varies (a name, a time, an id) to the start of the next:
//! brackets, commas, spaces and keys, and the values among them that mostly repeat (phase, category, process, thread, and
//! the lists of what operators were called with). A [`Layout`] remembers the passages of a piece of the file, what each
//! tells, and which came after which at the same place of an event. Where the bytes at hand equal one that came next
//! before, reading them would give the same, so comparing them replaces it. Where they do not, the
//! [cursor](super::cursor) reads them and the layout learns.
//!
//! A layout owns what it remembers, so that it serves one piece of the file after the other.
//!
//! Measured on a million operators: comparing what stands between values halves the time of scanning; comparing the
//! values that repeat along with it saves a sixth of the instructions that are left.

use super::event::{Field, Number, Text, Value};
use super::simd::Block;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A place in events: where a value that varies begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gap(u16);

impl Gap {
    /// None that was learned: nothing is expected behind it.
    pub(super) const UNKNOWN: Self = Self(0);
    /// The brace of the event.
    pub(super) const START: Self = Self(1);
}

/// A passage that tells which one it is, for what can be remembered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassageId(u32);

impl PassageId {
    /// No passage.
    pub(super) const NONE: Self = Self(0);
    /// More than one passage, or something that is in none.
    pub(super) const SEVERAL: Self = Self(u32::MAX);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many passages are expected behind one. More are found no more often than they cost (four ways find 86 % of the
/// lists of operators, of 92 % that are known).
const WAYS: usize = 4;

/// The longest passage that is learned.
pub(super) const LONGEST_PASSAGE: usize = 4096;
/// Input that never repeats must not fill the memory.
const MOST_PASSAGES: usize = 8192;
const MOST_GAPS: usize = 512;

/// A passage that was met before.
pub(super) struct Passage {
    /// The text and what followed it, up to 64 bytes.
    head: [u8; 64],
    /// The bits of the bytes of `head` that count.
    mask: u64,
    text: Box<[u8]>,
    /// Where it begins.
    from: Gap,
    /// Itself, if operators' inputs are among the values.
    pub(super) inputs: PassageId,
    /// Where it ends.
    pub(super) gap: Gap,
    /// The member whose value follows; `None` at the end of the event.
    pub(super) member: Option<Field>,
    /// Whether the member is one of `args`.
    pub(super) in_args: bool,
    /// Those that came next at the place where this one began.
    next: [u32; WAYS],
    /// The values within.
    values: Box<[Held]>,
}

/// A value in the text of a passage.
#[derive(Clone, Copy)]
struct Held {
    field: Field,
    is_container: bool,
    /// Where it stands; shorter than [`LONGEST_PASSAGE`].
    start: u16,
    len: u16,
    number: Option<Number>,
}

impl Passage {
    /// How many bytes.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The values, in `text` that equals the passage's.
    pub(super) fn values<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = (Field, Value<'a>)> {
        self.values.iter().map(move |held| {
            let raw = &text[usize::from(held.start)..][..usize::from(held.len)];
            (held.field, Value { text: Text::plain(raw), is_container: held.is_container, number: held.number })
        })
    }
}

/// How a passage was read, for the layout to learn.
pub(super) struct Lesson<'a, 'v> {
    /// Where it began.
    pub(super) from: Gap,
    pub(super) text: &'a [u8],
    /// Values in `text`, plain ones.
    pub(super) values: &'v [(Field, Value<'a>)],
    /// What stands behind the last of the values.
    pub(super) tail: Tail<'a>,
    pub(super) member: Option<Field>,
    pub(super) in_args: bool,
}

/// What stands before a value that varies, on which it depends which value that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tail<'a> {
    pub(super) text: &'a [u8],
    /// Whether it began within `args`.
    pub(super) in_args: bool,
    /// Whether it began behind an opening brace.
    pub(super) is_first: bool,
}

/// A place where values that vary begin.
struct Known {
    text: Box<[u8]>,
    in_args: bool,
    is_first: bool,
    /// The last passage behind it. Before there is one, a passage of no text that belongs to the gap alone.
    last: u32,
}

impl Known {
    fn tail(&self) -> Tail<'_> {
        Tail { text: &self.text, in_args: self.in_args, is_first: self.is_first }
    }
}

/// The passages so far.
pub(super) struct Layout {
    gaps: Vec<Known>,
    passages: Vec<Passage>,
    gap_table: HashTable<u16>,
    passage_table: HashTable<u32>,
    // Seeded: texts come from strangers' files.
    hasher: DefaultHashBuilder,
}

impl Default for Layout {
    fn default() -> Self {
        let mut layout = Self {
            gaps: Vec::new(),
            passages: Vec::new(),
            gap_table: HashTable::new(),
            passage_table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        // `UNKNOWN` and `START`, which are found without looking.
        let none = Tail { text: &[], in_args: false, is_first: false };
        layout.add_gap(none);
        layout.add_gap(none);
        layout
    }
}

impl Layout {
    /// Makes ready for another piece of the file. What tells a passage holds for one piece only: a layout that is full
    /// forgets all, since what it holds was not what repeats.
    pub(super) fn begin(&mut self) {
        if self.passages.len() >= MOST_PASSAGES / 2 {
            *self = Self::default();
        }
    }

    fn add_gap(&mut self, tail: Tail<'_>) -> Option<Gap> {
        let gap = u16::try_from(self.gaps.len()).ok().filter(|_| self.gaps.len() < MOST_GAPS)?;
        let last = u32::try_from(self.passages.len()).ok()?;
        self.gaps.push(Known { text: tail.text.into(), in_args: tail.in_args, is_first: tail.is_first, last });
        self.passages.push(Passage {
            head: [0; 64],
            mask: 0,
            text: Box::default(),
            from: Gap(gap),
            inputs: PassageId::NONE,
            gap: Gap::UNKNOWN,
            member: None,
            in_args: false,
            next: [0; WAYS],
            values: Box::default(),
        });
        Some(Gap(gap))
    }

    /// The passage at `at`, if it is one that once came next behind `gap`.
    #[inline(always)]
    pub(super) fn expect<B: Block>(&mut self, gap: Gap, bytes: &[u8], at: usize) -> Option<&Passage> {
        let here = bytes.get(at..)?.first_chunk::<64>()?;
        let here = B::load(here);
        let last = &mut self.gaps[usize::from(gap.0)].last;
        for next in self.passages[*last as usize].next {
            if next == 0 {
                return None;
            }
            let passage = &self.passages[next as usize];
            if here.same(B::load(&passage.head)) & passage.mask != passage.mask {
                continue;
            }
            let end = at + passage.len();
            if passage.len() > 64 && bytes.get(at + 64..end) != Some(&passage.text[64..]) {
                continue;
            }
            // A value is never a space: more of the passage follows than the last time.
            let ends = passage.member.is_none() || bytes.get(end).is_some_and(|b| *b > b' ');
            if !ends {
                return None;
            }
            *last = next;
            return Some(passage);
        }
        None
    }

    /// Remembers a passage and that it came next; where it ends, and which it is. `rest` are the bytes from its start on.
    #[inline(never)]
    pub(super) fn learn(&mut self, lesson: &Lesson<'_, '_>, rest: &[u8]) -> (Gap, PassageId) {
        // `args` that is no object depends on what follows the text.
        if lesson.text.is_empty() || lesson.text.len() > LONGEST_PASSAGE || lesson.member == Some(Field::Args) {
            return (Gap::UNKNOWN, PassageId::NONE);
        }
        let Some(gap) = self.gap(lesson.tail) else { return (Gap::UNKNOWN, PassageId::NONE) };
        let (Some(head), true) = (rest.first_chunk(), lesson.from != Gap::UNKNOWN) else {
            return (gap, PassageId::NONE);
        };
        let Some(place) = self.place(lesson, head, gap) else { return (gap, PassageId::NONE) };
        let last = &mut self.gaps[usize::from(lesson.from.0)].last;
        let next = &mut self.passages[*last as usize].next;
        // The newest first; it may stand there already, where the bytes went on with a space.
        let end = next.iter().position(|known| *known == place).unwrap_or(WAYS - 1);
        next[..=end].rotate_right(1);
        next[0] = place;
        *last = place;
        (gap, self.passages[place as usize].inputs)
    }

    /// The gap behind `tail`; `None` if there are too many to remember it.
    fn gap(&mut self, tail: Tail<'_>) -> Option<Gap> {
        let hash = self.hasher.hash_one(tail);
        if let Some(gap) = self.gap_table.find(hash, |gap| self.gaps[usize::from(*gap)].tail() == tail) {
            return Some(Gap(*gap));
        }
        let gap = self.add_gap(tail)?;
        let Self { gap_table, gaps, hasher, .. } = self;
        gap_table.insert_unique(hash, gap.0, |gap| hasher.hash_one(gaps[usize::from(*gap)].tail()));
        Some(gap)
    }

    /// The passage of a lesson; `None` if there are too many to remember it.
    fn place(&mut self, lesson: &Lesson<'_, '_>, head: &[u8; 64], gap: Gap) -> Option<u32> {
        let Self { passages, passage_table, hasher, .. } = self;
        let hash = hasher.hash_one((lesson.from, lesson.text));
        let is_it = |place: &u32| {
            let passage = &passages[*place as usize];
            passage.from == lesson.from && *passage.text == *lesson.text
        };
        if let Some(place) = passage_table.find(hash, is_it) {
            return Some(*place);
        }
        let place = u32::try_from(passages.len()).ok().filter(|_| passages.len() < MOST_PASSAGES)?;
        let len = lesson.text.len();
        let hold = |(field, value): &(Field, Value<'_>)| {
            let start = value.text.raw.as_ptr().addr() - lesson.text.as_ptr().addr();
            let (start, len) = (u16::try_from(start).ok()?, u16::try_from(value.text.raw.len()).ok()?);
            Some(Held { field: *field, is_container: value.is_container, start, len, number: value.number })
        };
        passages.push(Passage {
            head: *head,
            mask: if len < 64 { (1 << len) - 1 } else { u64::MAX },
            text: lesson.text.into(),
            from: lesson.from,
            inputs: if lesson.values.iter().any(|(field, _)| field.is_input()) {
                PassageId(place)
            } else {
                PassageId::NONE
            },
            gap,
            member: lesson.member,
            in_args: lesson.in_args,
            next: [0; WAYS],
            values: lesson.values.iter().map(hold).collect::<Option<_>>()?,
        });
        passage_table.insert_unique(hash, place, |place| {
            let passage = &passages[*place as usize];
            hasher.hash_one((passage.from, &*passage.text))
        });
        Some(place)
    }
}
