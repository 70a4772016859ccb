//! Reading gzip: a streaming DEFLATE decoder made for long, very compressible text.
//!
//! A trace is one gzip member of up to gigabytes, and inflating it is the only stage of reading
//! that cannot be split over threads, so its speed is the floor of the whole program.
//!
//! * [`GzipReader`] reads a file and fills one [`Block`] after another.
//! * [`Verifier`] checks blocks against the checksums that the file holds. It is apart from the
//!   reader so that it can run on the thread that consumes the blocks.
//! * [`Inflater`] is the DEFLATE decoder (RFC 1951) below both, without gzip's framing.
//!
//! Damage is told apart by how much of the data it leaves whole: a truncated file, bytes after
//! the last member and a wrong checksum are findings ([`Ending`], [`Mismatch`](gzip::Mismatch)), because all the
//! data before them is good; only data that cannot be decoded is an [`InflateError`].

mod bits;
mod crc32;
mod decode;
mod gzip;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

pub(crate) use decode::{HISTORY, Inflater, Status};
pub(crate) use gzip::{Block, Ending, GzipReader, Verifier};

/// Why the compressed data cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Corrupt {
    /// The file does not start with a gzip header for DEFLATE data.
    NotGzip,
    /// The gzip header's own checksum does not match it.
    HeaderChecksum,
    /// The gzip header is longer than any that a sane writer makes.
    HeaderTooLong,
    /// A block of the reserved type 3.
    BlockType,
    /// A stored block whose length and its complement disagree.
    StoredLength,
    /// A block that declares more codes than the format has symbols.
    TooManyCodes,
    /// Code lengths that no prefix code has: too many short ones, or too few codes.
    CodeLengths,
    /// A repeat of code lengths with nothing before it, or running past the last code.
    Repeat,
    /// A block whose code cannot express its own end.
    NoEndOfBlock,
    /// Bits that are no literal or length.
    LiteralCode,
    /// Bits that are no distance.
    DistanceCode,
    /// A match that starts before the first byte of the member.
    DistanceTooFar,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotGzip => "not gzip data",
            Self::HeaderChecksum => "gzip header checksum mismatch",
            Self::HeaderTooLong => "gzip header too long",
            Self::BlockType => "invalid block type",
            Self::StoredLength => "invalid stored block length",
            Self::TooManyCodes => "too many length or distance codes",
            Self::CodeLengths => "invalid set of code lengths",
            Self::Repeat => "invalid repeat of code lengths",
            Self::NoEndOfBlock => "no code for the end of the block",
            Self::LiteralCode => "invalid literal or length code",
            Self::DistanceCode => "invalid distance code",
            Self::DistanceTooFar => "distance reaches before the start of the data",
        })
    }
}

/// Why no more data comes from a gzip file, although it does not end here.
#[derive(Debug)]
pub(crate) enum InflateError {
    /// Reading the compressed file failed.
    Io(io::Error),
    /// The compressed data is damaged.
    Corrupt {
        /// Compressed bytes from the start of the file to the damage.
        offset: u64,
        /// What is wrong there.
        reason: Corrupt,
    },
}

impl fmt::Display for InflateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Corrupt { offset, reason } => {
                write!(f, "corrupt gzip data at compressed byte {offset}: {reason}")
            }
        }
    }
}

impl std::error::Error for InflateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Corrupt { .. } => None,
        }
    }
}

impl From<io::Error> for InflateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
