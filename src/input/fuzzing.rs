//! Pieces of the reader for fuzzing: the same code as [`super::read`], with what files and machines decide as parameters.
//!
//! What must hold of them is in `fuzz/targets.rs`.

use super::inflate::{Block, Ending, GzipReader, HISTORY, InflateError, Inflater, Status, Verifier};
use super::simd::Level;
use super::source::Source;
use super::{ReadOptions, snapshot};
use crate::error::Result;
use crate::trace::{Trace, TraceBuilder};
use std::io::{Cursor, Read};

/// Reads an input of any kind in batches of `batch` bytes (at least two), however small it is; `portable` without vector
/// instructions.
///
/// # Errors
///
/// As [`super::read`].
pub fn read_in_batches(bytes: &[u8], options: &ReadOptions, batch: usize, portable: bool) -> Result<Trace> {
    let source = Source::new(Box::new(Cursor::new(bytes.to_owned())), options.max_input_size, None)?;
    let level = if portable { Level::Portable } else { Level::detect() };
    super::read_in_batches(source, options, batch, level)
}

/// As [`read_in_batches`], from a reader.
///
/// # Errors
///
/// As [`super::read`].
pub fn read_in_batches_from(reader: impl Read + Send + 'static, options: &ReadOptions, batch: usize) -> Result<Trace> {
    let source = Source::new(Box::new(reader), options.max_input_size, None)?;
    super::read_in_batches(source, options, batch, Level::detect())
}

/// Reads a snapshot that comes in pieces of `feed` bytes, whatever it starts with.
///
/// # Errors
///
/// As [`super::read`].
pub fn read_snapshot(bytes: &[u8], feed: usize, options: &ReadOptions) -> Result<Trace> {
    snapshot::read(Feed { data: bytes, feed: feed.max(1) }, options).map(TraceBuilder::finish)
}

/// How a compressed stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inflated {
    /// Where it says so, after this many bytes of it.
    Whole(usize),
    /// Before its end.
    Truncated,
    /// At damage; for gzip also a checksum that does not hold.
    Damaged,
}

/// Inflates at most about `limit` bytes of a DEFLATE stream that comes in pieces of `feed` bytes into room for `room`.
pub fn inflate(stream: &[u8], feed: usize, room: usize, limit: usize) -> (Vec<u8>, Inflated) {
    let mut inflater = Inflater::new();
    let mut data = Vec::new();
    let (mut fed, mut at) = (0, 0);
    while data.len() < limit {
        let history = data.len().min(HISTORY);
        let mut output = data[data.len() - history..].to_vec();
        output.resize(history + room.max(1), 0);
        let mut end = history;
        let status = inflater.decode(&stream[..fed], &mut at, &mut output, &mut end);
        data.extend_from_slice(&output[history..end]);
        match status {
            Ok(Status::OutputFull) => {}
            Ok(Status::NeedInput) if fed < stream.len() => fed = stream.len().min(fed + feed.max(1)),
            Ok(Status::NeedInput) => break,
            Ok(Status::End) => return (data, Inflated::Whole(at)),
            Err(_) => return (data, Inflated::Damaged),
        }
    }
    (data, Inflated::Truncated)
}

/// Inflates at most about `limit` bytes of a gzip file that comes in pieces of `feed` bytes into blocks of `room`.
///
/// # Errors
///
/// None: what goes wrong is in the result.
pub fn gunzip(file: &[u8], feed: usize, room: usize, limit: usize) -> (Vec<u8>, Inflated) {
    let mut reader = GzipReader::new(Feed { data: file, feed: feed.max(1) });
    let mut verifier = Verifier::default();
    let mut block = Block::new(room);
    let mut data = Vec::new();
    let mut holds = true;
    while data.len() < limit {
        match reader.fill(&mut block) {
            Ok(read) => {
                holds &= verifier.check(&block).is_empty();
                data.extend_from_slice(block.data());
                match reader.ending() {
                    _ if read > 0 => {}
                    _ if !holds => return (data, Inflated::Damaged),
                    Ending::Open | Ending::Truncated => break,
                    Ending::Whole => return (data, Inflated::Whole(file.len())),
                    Ending::Garbage { offset } => return (data, Inflated::Whole(offset as usize)),
                }
            }
            Err(InflateError::Corrupt { .. } | InflateError::Io(_)) => return (data, Inflated::Damaged),
        }
    }
    (data, Inflated::Truncated)
}

/// Gives bytes in pieces.
struct Feed<'a> {
    data: &'a [u8],
    feed: usize,
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.feed.min(self.data.len()).min(buffer.len());
        buffer[..n].copy_from_slice(&self.data[..n]);
        self.data = &self.data[n..];
        Ok(n)
    }
}
