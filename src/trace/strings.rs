//! Interned strings: one arena, four-byte ids.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// The id of a string in a [`Strings`] table; equal ids mean equal strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrId(pub(crate) u32);

impl StrId {
    /// The empty string, which every table holds first.
    pub const EMPTY: Self = Self(0);

    /// The id as an index, for side tables kept per string.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table of distinct strings.
#[derive(Clone)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`; it starts where the one before ends.
    ends: Vec<usize>,
    // A seeded hash: names come from strangers' files, and a fixed one can be flooded with collisions.
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings =
            Self { text: String::new(), ends: Vec::new(), table: HashTable::new(), hasher: RandomState::default() };
        strings.intern("");
        strings
    }
}

impl std::fmt::Debug for Strings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn place(ends: &[usize], id: u32) -> std::ops::Range<usize> {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    start..ends[id]
}

fn slice<'a>(text: &'a str, ends: &[usize], id: u32) -> &'a str {
    &text[place(ends, id)]
}

#[inline(always)]
fn bytes<'a>(text: &'a str, ends: &[usize], id: u32) -> &'a [u8] {
    &text.as_bytes()[place(ends, id)]
}

impl Strings {
    /// Forgets all strings but the empty one, and keeps the memory.
    pub(super) fn clear(&mut self) {
        let Self { text, ends, table, hasher: _ } = self;
        text.clear();
        ends.clear();
        table.clear();
        self.intern("");
    }

    /// The id of `text`, which is added if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> StrId {
        let Self { text: arena, ends, table, hasher } = self;
        let hash = hasher.hash_one(text.as_bytes());
        if let Some(id) = table.find(hash, |id| slice(arena, ends, *id) == text) {
            return StrId(*id);
        }
        let id = u32::try_from(ends.len()).expect("more than 2^32 distinct strings do not fit in memory");
        arena.push_str(text);
        ends.push(arena.len());
        table.insert_unique(hash, id, |id| hasher.hash_one(slice(arena, ends, *id).as_bytes()));
        StrId(id)
    }

    /// The id of `text` if the table holds it.
    pub fn find(&self, text: &str) -> Option<StrId> {
        self.find_bytes(text.as_bytes())
    }

    /// The id of the string of these bytes if the table holds it.
    pub(crate) fn find_bytes(&self, text: &[u8]) -> Option<StrId> {
        if text.is_empty() {
            return Some(StrId::EMPTY);
        }
        let hash = self.hasher.hash_one(text);
        // As bytes: a slice of a `str` is checked to begin and end between characters.
        self.table.find(hash, |id| bytes(&self.text, &self.ends, *id) == text).map(|id| StrId(*id))
    }

    /// The string of an id of this table.
    pub fn get(&self, id: StrId) -> &str {
        slice(&self.text, &self.ends, id.0)
    }

    /// How many distinct strings there are; ids run from 0 to this.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table is empty, which it never is: it holds the empty string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All strings, in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.ends.len()).map(|i| slice(&self.text, &self.ends, i as u32))
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.table.capacity() * 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_an_id_and_the_empty_one_is_first() {
        let mut strings = Strings::default();
        let a = strings.intern("aten::mm");
        let b = strings.intern("aten::bmm");
        assert_eq!(strings.intern("aten::mm"), a);
        assert_ne!(a, b);
        assert_eq!(strings.get(b), "aten::bmm");
        assert_eq!(strings.intern(""), StrId::EMPTY);
        assert_eq!(strings.find("aten::bmm"), Some(b));
        assert_eq!(strings.find("nothing"), None);
        assert_eq!(strings.iter().collect::<Vec<_>>(), ["", "aten::mm", "aten::bmm"]);
    }
}
