//! The bytes of a pickle, read as they come: never more in memory than the longest piece asked for.

use crate::error::{Error, ErrorKind, Result};
use std::io::Read;

const FIRST_BUFFER: usize = 1 << 16;

/// A buffered reader that knows where it is and stops at a limit.
pub(super) struct Stream<R> {
    reader: R,
    buffer: Vec<u8>,
    /// What is read but not yet taken is `buffer[at..end]`.
    at: usize,
    end: usize,
    /// The place of `buffer[0]` in the input.
    base: u64,
    limit: u64,
    /// Whether the reader has no more.
    at_end: bool,
}

impl<R: Read> Stream<R> {
    pub(super) fn new(reader: R, limit: u64) -> Self {
        Self { reader, buffer: vec![0; FIRST_BUFFER], at: 0, end: 0, base: 0, limit, at_end: false }
    }

    /// The place of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        if self.at == self.end {
            self.fill(1)?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N as u64)?);
        Ok(array)
    }

    /// The next `len` bytes. Nothing is reserved on the word of the input: the buffer grows with what really comes.
    pub(super) fn slice(&mut self, len: u64) -> Result<&[u8]> {
        let len = usize::try_from(len).map_err(|_| self.ends_early())?;
        if self.end - self.at < len {
            self.fill(len)?;
        }
        let slice = &self.buffer[self.at..self.at + len];
        self.at += len;
        Ok(slice)
    }

    /// Passes over `len` bytes.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<()> {
        while len > 0 {
            let step = len.min(FIRST_BUFFER as u64);
            self.slice(step)?;
            len -= step;
        }
        Ok(())
    }

    /// What is left of the line, without its end.
    pub(super) fn line(&mut self) -> Result<&[u8]> {
        let mut seen = 0;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.at + seen..self.end]) {
                let start = self.at;
                self.at = start + seen + found + 1;
                return Ok(&self.buffer[start..self.at - 1]);
            }
            seen = self.end - self.at;
            self.fill(seen + 1)?;
        }
    }

    /// Reads to the end of the input, and tells where what was not taken begins if that is anything.
    pub(super) fn drain(&mut self) -> Result<Option<u64>> {
        let offset = self.offset();
        let mut any = self.at < self.end;
        loop {
            self.at = self.end;
            match self.fill(1) {
                Ok(()) => any = true,
                Err(_) if self.at_end => return Ok(any.then_some(offset)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until `len` bytes are there.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<()> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < len {
            if self.end == self.buffer.len() {
                self.buffer.resize(self.end * 2, 0);
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.at_end = true;
                    return Err(self.ends_early());
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(self.ends_early()),
                Err(error) => return Err(error.downcast().unwrap_or_else(Error::from)),
            }
            if self.base + self.end as u64 > self.limit {
                let message = format!("the input is larger than the limit of {} bytes", self.limit);
                return Err(Error::new(ErrorKind::Limit(message)));
            }
        }
        Ok(())
    }

    fn ends_early(&self) -> Error {
        Error::format("the rest of the pickle", "the end of the input").at_offset(self.base + self.end as u64)
    }
}
