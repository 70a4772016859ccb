//! Where the bytes come from: a file or standard input, plain or gzip, in blocks.
//!
//! Gzip is known by its first bytes, never by a name: PyTorch itself writes plain JSON into files named `.gz`. What ends
//! too early or goes wrong later is a diagnostic; what was whole before it stands.

use super::inflate::{Block, Ending, GzipReader, InflateError, Verifier};
use crate::error::{Error, ErrorKind, Result};
use crate::trace::{Diagnostics, Severity};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of a log that is held as a whole: samples of eight cards ten times a second for a week are less.
const LONGEST_TEXT: u64 = 4 << 30;

/// The bytes of an input, inflated.
pub(super) struct Source {
    format: Format,
    limit: u64,
    given: u64,
    diagnostics: Diagnostics,
}

type Raw = BufReader<Counted>;

enum Format {
    Plain { raw: Raw, history: Vec<u8> },
    Gzip(Box<GzipReader<Raw>>),
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
        // Only the first bytes are looked at in this buffer: all else is read past it, into larger ones.
        let mut raw = BufReader::with_capacity(512, Counted { inner, progress });
        let format = if raw.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            Format::Gzip(Box::new(GzipReader::new(raw)))
        } else {
            Format::Plain { raw, history: Vec::new() }
        };
        Ok(Self { format, limit, given: 0, diagnostics: Diagnostics::default() })
    }

    /// Replaces the data in `block` by what comes next, as much as there is room for. Without data at the end only.
    pub(super) fn fill(&mut self, block: &mut Block) -> Result<()> {
        let read = match &mut self.format {
            Format::Plain { raw, history } => block.fill_plain(raw, history)?,
            Format::Gzip(gzip) => match gzip.fill(block) {
                Ok(0) => {
                    self.note_ending();
                    0
                }
                Ok(read) => read,
                Err(InflateError::Io(error)) => return Err(error.into()),
                Err(InflateError::Corrupt { offset, reason }) => {
                    self.note_damage(offset, &reason.to_string())?;
                    0
                }
            },
        };
        self.given += read as u64;
        if self.given > self.limit {
            let limit = self.limit;
            let message =
                format!("the input is larger than {limit} bytes when inflated; --max-input-size raises the limit");
            return Err(Error::new(ErrorKind::Limit(message)));
        }
        Ok(())
    }

    /// What is odd about how the gzip stream ended.
    fn note_ending(&mut self) {
        let Format::Gzip(gzip) = &self.format else { return };
        let (code, severity, message) = match gzip.ending() {
            Ending::Open | Ending::Whole => return,
            Ending::Truncated => (
                "truncated-gzip",
                Severity::Loss,
                "the gzip stream ends early: the file is incomplete, and so is all that is shown".to_owned(),
            ),
            Ending::Garbage { offset } => (
                "bytes-after-gzip",
                Severity::Warning,
                format!("bytes behind the end of the gzip stream, from byte {offset} of the file on; passed over"),
            ),
        };
        self.diagnostics.note(code, severity, Some(self.given), || message);
    }

    /// The gzip stream is damaged: what was read so far stands, if that is anything.
    fn note_damage(&mut self, offset: u64, reason: &str) -> Result<()> {
        if self.given == 0 {
            return Err(Error::format("a gzip stream", format!("a damaged one: {reason}")).at_offset(offset));
        }
        self.diagnostics.note("damaged-gzip", Severity::Loss, Some(self.given), || {
            format!("the gzip stream is damaged at byte {offset} of the file ({reason}): all behind it is missing")
        });
        Ok(())
    }

    /// What was odd.
    pub(super) fn into_diagnostics(self) -> Diagnostics {
        self.diagnostics
    }

    /// All bytes, from those of `first` on, and what was odd about them: for logs of lines, which are small.
    pub(super) fn into_text(mut self, mut block: Block) -> Result<(Vec<u8>, Diagnostics)> {
        self.limit = self.limit.min(LONGEST_TEXT);
        let (mut bytes, mut verifier, mut mismatches) = (Vec::new(), Verifier::default(), Diagnostics::default());
        while !block.data().is_empty() {
            for mismatch in verifier.check(&block) {
                mismatches.note("gzip-checksum", Severity::Loss, Some(mismatch.data_offset), || mismatch.to_string());
            }
            bytes.extend_from_slice(block.data());
            self.fill(&mut block)?;
        }
        mismatches.append(self.into_diagnostics());
        Ok((bytes, mismatches))
    }

    /// The bytes as a stream, from those of `first` on.
    /// They end in an error where the file is damaged: such formats are of no use in part.
    pub(super) fn into_stream(self, first: Block) -> Result<Stream> {
        let mut stream = Stream { source: self, verifier: Verifier::default(), block: first, at: 0 };
        stream.verify()?;
        Ok(stream)
    }
}

/// A [`Source`] as a stream of bytes, for formats that are not cut into batches.
pub(super) struct Stream {
    source: Source,
    verifier: Verifier,
    block: Block,
    at: usize,
}

impl Stream {
    /// What was odd; all of it once the stream was read to its end.
    pub(super) fn into_diagnostics(self) -> Diagnostics {
        self.source.into_diagnostics()
    }

    /// Holds the block against the checksums of the file.
    fn verify(&mut self) -> io::Result<()> {
        match self.verifier.check(&self.block).first() {
            Some(mismatch) => Err(io::Error::new(io::ErrorKind::InvalidData, mismatch.to_string())),
            None => Ok(()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.data().len() {
            self.source.fill(&mut self.block).map_err(io::Error::other)?;
            self.verify()?;
            self.at = 0;
        }
        let rest = &self.block.data()[self.at..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn read(file: Vec<u8>) -> Result<Vec<u8>> {
        let mut source = Source::new(Box::new(io::Cursor::new(file)), u64::MAX, None)?;
        let mut first = Block::new(4096);
        source.fill(&mut first)?;
        let mut data = Vec::new();
        source.into_stream(first)?.read_to_end(&mut data)?;
        Ok(data)
    }

    #[test]
    fn a_stream_whose_checksum_is_wrong_ends_in_an_error() {
        for size in [100, 100_000] {
            let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&data).unwrap();
            let mut file = gzip.finish().unwrap();
            assert_eq!(read(file.clone()).unwrap(), data);
            let trailer = file.len() - 8;
            file[trailer] ^= 1;
            let error = read(file).unwrap_err().to_string();
            assert!(error.contains(&format!("checksum of the gzip stream (at byte {trailer} of the file)")), "{error}");
        }
    }
}
