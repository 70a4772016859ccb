//! What repeats in events, by example: exporters write every event alike, so most of it need not be read.
//!
//! A *passage* is what stands from the end of one value that varies (a name, a time, an id) to the start of the next:
//! brackets, commas, spaces and keys, and the values among them that mostly repeat (phase, category, process, thread, and
//! the lists of what operators were called with). A [`Layout`] remembers the passages of a piece of the file, what each
//! tells, and which came after which at the same place of an event. Where the bytes at hand equal one that came next
//! before, reading them would give the same, so comparing them replaces it. Where they do not, the
//! [cursor](super::cursor) reads them and the layout learns.
//!
//! Measured on a million operators: comparing what stands between values halves the time of scanning; comparing the
//! values that repeat along with it saves a sixth of the instructions that are left.

use super::event::{Field, Value};
use super::simd::Block;
use hashbrown::HashMap;

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

/// What the bytes at hand are.
pub(super) struct Passage<'a> {
    /// The text and what follows it, up to 64 bytes.
    head: &'a [u8; 64],
    /// The bits of the bytes of `head` that count.
    mask: u64,
    /// What goes beyond the first 64 bytes.
    rest: &'a [u8],
    /// How many bytes.
    pub(super) len: usize,
    /// The values within.
    pub(super) values: Vec<(Field, Value<'a>)>,
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
}

/// How a passage was read, for the layout to learn.
pub(super) struct Lesson<'a, 'v> {
    /// Where it began.
    pub(super) from: Gap,
    pub(super) text: &'a [u8],
    pub(super) values: &'v [(Field, Value<'a>)],
    /// What stands behind the last of the values.
    pub(super) tail: &'a [u8],
    /// Whether the tail began within `args`.
    pub(super) tail_in_args: bool,
    /// Whether the tail began behind an opening brace.
    pub(super) tail_is_first: bool,
    pub(super) member: Option<Field>,
    pub(super) in_args: bool,
}

/// The passages so far.
pub(super) struct Layout<'a> {
    /// The last passage behind each gap. Before there is one, a passage of no text that belongs to the gap alone.
    last: Vec<u32>,
    passages: Vec<Passage<'a>>,
    places: HashMap<(Gap, &'a [u8]), u32>,
    /// Where one is depends on what stands before, and on whether that began in `args` and behind a brace.
    gaps: HashMap<(&'a [u8], bool, bool), Gap>,
}

impl Default for Layout<'_> {
    fn default() -> Self {
        let mut layout = Self { last: Vec::new(), passages: Vec::new(), places: HashMap::new(), gaps: HashMap::new() };
        layout.add_gap();
        layout.add_gap();
        layout
    }
}

impl<'a> Layout<'a> {
    fn add_gap(&mut self) -> Option<Gap> {
        let gap = u16::try_from(self.last.len()).ok().filter(|_| self.last.len() < MOST_GAPS)?;
        self.last.push(u32::try_from(self.passages.len()).ok()?);
        self.passages.push(Passage {
            head: &[0; 64],
            mask: 0,
            rest: &[],
            len: 0,
            values: Vec::new(),
            inputs: PassageId::NONE,
            gap: Gap::UNKNOWN,
            member: None,
            in_args: false,
            next: [0; WAYS],
        });
        Some(Gap(gap))
    }

    /// The passage at `at`, if it is one that once came next behind `gap`.
    #[inline(always)]
    pub(super) fn expect<B: Block>(&mut self, gap: Gap, bytes: &[u8], at: usize) -> Option<&Passage<'a>> {
        let here = bytes.get(at..)?.first_chunk::<64>()?;
        let here = B::load(here);
        let last = &mut self.last[usize::from(gap.0)];
        for next in self.passages[*last as usize].next {
            if next == 0 {
                return None;
            }
            let passage = &self.passages[next as usize];
            if here.same(B::load(passage.head)) & passage.mask != passage.mask {
                continue;
            }
            let end = at + passage.len;
            if passage.len > 64 && bytes.get(at + 64..end) != Some(passage.rest) {
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

    /// Remembers a passage and that it came next; where it ends, and which it is.
    #[inline(never)]
    pub(super) fn learn(&mut self, lesson: &Lesson<'a, '_>, rest: &'a [u8]) -> (Gap, PassageId) {
        // `args` that is no object depends on what follows the text.
        if lesson.text.is_empty() || lesson.text.len() > LONGEST_PASSAGE || lesson.member == Some(Field::Args) {
            return (Gap::UNKNOWN, PassageId::NONE);
        }
        let key = (lesson.tail, lesson.tail_in_args, lesson.tail_is_first);
        let gap = match self.gaps.get(&key) {
            Some(gap) => *gap,
            None => {
                let Some(gap) = self.add_gap() else { return (Gap::UNKNOWN, PassageId::NONE) };
                self.gaps.insert(key, gap);
                gap
            }
        };
        let (Some(head), true) = (rest.first_chunk(), lesson.from != Gap::UNKNOWN) else {
            return (gap, PassageId::NONE);
        };
        let place = match self.places.get(&(lesson.from, lesson.text)) {
            Some(place) => *place,
            None if self.passages.len() >= MOST_PASSAGES => return (gap, PassageId::NONE),
            None => self.add(lesson, head, gap),
        };
        let last = &mut self.last[usize::from(lesson.from.0)];
        let next = &mut self.passages[*last as usize].next;
        // The newest first; it may stand there already, where the bytes went on with a space.
        let end = next.iter().position(|known| *known == place).unwrap_or(WAYS - 1);
        next[..=end].rotate_right(1);
        next[0] = place;
        *last = place;
        (gap, self.passages[place as usize].inputs)
    }

    fn add(&mut self, lesson: &Lesson<'a, '_>, head: &'a [u8; 64], gap: Gap) -> u32 {
        // Far below the limit.
        let place = self.passages.len() as u32;
        let len = lesson.text.len();
        self.passages.push(Passage {
            head,
            mask: if len < 64 { (1 << len) - 1 } else { u64::MAX },
            rest: lesson.text.get(64..).unwrap_or_default(),
            len,
            values: lesson.values.to_vec(),
            inputs: if lesson.values.iter().any(|(field, _)| field.is_input()) {
                PassageId(place)
            } else {
                PassageId::NONE
            },
            gap,
            member: lesson.member,
            in_args: lesson.in_args,
            next: [0; WAYS],
        });
        self.places.insert((lesson.from, lesson.text), place);
        place
    }
}
