//! Where the bytes come from: a file or standard input, plain or gzip, in blocks.
//!
//! Gzip is known by its first bytes, never by a name: PyTorch itself writes plain JSON into files named `.gz`. What ends
//! too early or goes wrong later is a diagnostic; what was whole before it stands.

use crate::error::{Error, ErrorKind, Result};
use crate::trace::{Diagnostics, Severity};
use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Compressed bytes that are read at once.
const READ: usize = 256 << 10;

/// The bytes of an input, inflated.
pub(super) struct Source {
    format: Format,
    limit: u64,
    given: u64,
    /// Bytes that were looked at and are still to be given.
    ahead: Vec<u8>,
    diagnostics: Diagnostics,
}

type Raw = BufReader<Counted>;

enum Format {
    Plain(Raw),
    Gzip(Box<GzDecoder<Raw>>),
    Ended,
}

/// A reader that tells others how far it is.
struct Counted {
    inner: Box<dyn Read + Send>,
    progress: Option<Arc<AtomicU64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if let Some(progress) = &self.progress {
            progress.fetch_add(n as u64, Ordering::Relaxed);
        }
        Ok(n)
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

impl Source {
    /// The file at `path`, or standard input if it is `-`. Gives no more than `limit` inflated bytes.
    pub(super) fn open(path: &Path, limit: u64, progress: Option<Arc<AtomicU64>>) -> Result<Self> {
        let inner: Box<dyn Read + Send> = if path == Path::new("-") {
            Box::new(io::stdin())
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(Error::format("a file", "a folder").with_hint("name a trace in it"));
            }
            Box::new(file)
        };
        Self::new(inner, limit, progress)
    }

    /// The bytes of a reader.
    pub(super) fn new(inner: Box<dyn Read + Send>, limit: u64, progress: Option<Arc<AtomicU64>>) -> Result<Self> {
        let mut raw = BufReader::with_capacity(READ, Counted { inner, progress });
        let format = if raw.fill_buf()?.starts_with(&GZIP) {
            Format::Gzip(Box::new(GzDecoder::new(raw)))
        } else {
            Format::Plain(raw)
        };
        Ok(Self { format, limit, given: 0, ahead: Vec::new(), diagnostics: Diagnostics::default() })
    }

    /// Appends bytes to `block` until it holds `len` or the input ends.
    pub(super) fn fill(&mut self, block: &mut Vec<u8>, len: usize) -> Result<()> {
        let mut filled = block.len();
        block.resize(len.max(filled), 0);
        let mut result = Ok(());
        while filled < len {
            match self.read(&mut block[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        block.truncate(filled);
        result
    }

    /// The first bytes, up to `len` of them, which stay to be read.
    pub(super) fn peek(&mut self, len: usize) -> Result<&[u8]> {
        let mut ahead = Vec::new();
        self.fill(&mut ahead, len)?;
        self.ahead = ahead;
        Ok(&self.ahead)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if !self.ahead.is_empty() {
            let n = buffer.len().min(self.ahead.len());
            buffer[..n].copy_from_slice(&self.ahead[..n]);
            self.ahead.drain(..n);
            return Ok(n);
        }
        loop {
            let read = match &mut self.format {
                Format::Plain(raw) => raw.read(buffer).map_err(Error::from)?,
                Format::Gzip(member) => match member.read(buffer) {
                    Ok(0) => {
                        self.next_member()?;
                        continue;
                    }
                    Ok(n) => n,
                    Err(error) => {
                        self.broken(&error)?;
                        continue;
                    }
                },
                Format::Ended => return Ok(0),
            };
            self.given += read as u64;
            if self.given > self.limit {
                let message = format!(
                    "the input is larger than {} bytes when inflated; --max-input-size raises the limit",
                    self.limit
                );
                return Err(Error::new(ErrorKind::Limit(message)));
            }
            return Ok(read);
        }
    }

    /// Behind the end of a gzip member: the next one, or the end.
    fn next_member(&mut self) -> Result<()> {
        let Format::Gzip(member) = std::mem::replace(&mut self.format, Format::Ended) else { return Ok(()) };
        let mut raw = member.into_inner();
        loop {
            let rest = raw.fill_buf()?;
            if rest.is_empty() {
                return Ok(());
            }
            // Zeros may fill up the last block of a tape or disk.
            let zeros = rest.iter().take_while(|b| **b == 0).count();
            if zeros > 0 {
                raw.consume(zeros);
                continue;
            }
            if rest.starts_with(&GZIP) || rest == &GZIP[..1] {
                self.format = Format::Gzip(Box::new(GzDecoder::new(raw)));
            } else {
                self.diagnostics.note("bytes-after-gzip", Severity::Warning, Some(self.given), || {
                    "bytes behind the end of the gzip stream; passed over".into()
                });
            }
            return Ok(());
        }
    }

    /// The gzip stream is cut off or damaged: what was read so far stands, if that is anything.
    fn broken(&mut self, error: &io::Error) -> Result<()> {
        let cut_off = error.kind() == io::ErrorKind::UnexpectedEof;
        let damaged = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput);
        if !cut_off && !damaged {
            return Err(io::Error::new(error.kind(), error.to_string()).into());
        }
        if self.given == 0 {
            let found = if cut_off { "one that is cut off at once" } else { "a damaged one" };
            return Err(Error::format("a gzip stream", found));
        }
        self.format = Format::Ended;
        let (code, message) = if cut_off {
            ("truncated-gzip", "the gzip stream ends early: the file is incomplete, and so is all that is shown")
        } else {
            ("damaged-gzip", "the gzip stream is damaged: all behind this place is missing from what is shown")
        };
        self.diagnostics.note(code, Severity::Loss, Some(self.given), || message.into());
        Ok(())
    }

    /// What was odd.
    pub(super) fn into_diagnostics(self) -> Diagnostics {
        self.diagnostics
    }
}

impl Read for Source {
    /// As [`fill`](Source::fill); an error of ours travels inside the other kind.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::read(self, buffer).map_err(io::Error::other)
    }
}
