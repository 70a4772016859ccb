//! Sentences whose numbers are still numbers: `render` turns both into words.

use super::Cell;
use crate::units::{Bytes, Nanos};

/// A sentence or a few, in pieces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sentence(pub Vec<Piece>);

/// A piece of a [`Sentence`].
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Words, which may come from the input.
    Words(String),
    /// A number.
    Number(Cell),
}

impl Sentence {
    /// The sentence with this piece added.
    #[must_use]
    pub fn and(mut self, piece: impl Into<Piece>) -> Self {
        self.0.push(piece.into());
        self
    }

    /// The sentence with all pieces of `other` added.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Words(words) if words.is_empty()))
    }
}

impl From<&str> for Piece {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl From<String> for Piece {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<Cell> for Piece {
    fn from(number: Cell) -> Self {
        Self::Number(number)
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::Number(bytes.into())
    }
}

impl From<Nanos> for Piece {
    fn from(nanos: Nanos) -> Self {
        Self::Number(nanos.into())
    }
}

impl From<&str> for Sentence {
    fn from(words: &str) -> Self {
        Self(vec![words.into()])
    }
}

impl From<String> for Sentence {
    fn from(words: String) -> Self {
        Self(vec![words.into()])
    }
}

/// A [`Sentence`] of pieces: `sentence!["The peak is ", bytes, "."]`.
macro_rules! sentence {
    ($($piece:expr),* $(,)?) => {
        $crate::report::Sentence(vec![$($crate::report::Piece::from($piece)),*])
    };
}
pub(super) use sentence;
