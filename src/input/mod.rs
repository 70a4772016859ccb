//! Bytes to a [`Trace`]: sniff, inflate, split into events, scan an event.
//!
//! The only place that knows gzip, JSON and PyTorch's spellings. From the outside in: [`read_path`] opens a source of
//! inflated bytes, `pipeline` spreads it over threads, `document` knows where in the file we are and what to do with
//! broken parts, `event` takes one event apart, `pytorch` gives it its meaning. Snapshots go from `pickle` through `snapshot`;
//! logs of nvidia-smi (`smi`) and memory_profiler (`mprof`) have models of their own.

mod cursor;
mod document;
mod event;
pub(crate) mod fuzzing;
mod inflate;
mod layout;
mod log_lines;
mod mprof;
mod pickle;
mod pipeline;
mod python_files;
mod pytorch;
mod simd;
mod smi;
mod snapshot;
mod source;
mod text;

pub use mprof::read_mprof;
pub use python_files::PythonFiles;
pub use smi::{LiveSmi, SmiOptions, read_smi};

use crate::error::{Error, Result};
use crate::trace::host_memory::HostMemory;
use crate::trace::smi::SmiLog;
use crate::trace::{Diagnostics, Keep, Trace};
use inflate::Block;
use simd::Level;
use source::Source;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How to read an input.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Which parts to keep.
    pub keep: Keep,
    /// How many threads to read with; 0 for one a core. The result does not depend on it.
    pub threads: usize,
    /// Inflated bytes after which reading stops with an error, against gzip bombs.
    pub max_input_size: u64,
    /// Where to count the bytes read from the file, for whoever shows progress.
    pub progress: Option<Arc<AtomicU64>>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { keep: Keep::ALL, threads: 0, max_input_size: 1 << 40, progress: None }
    }
}

impl ReadOptions {
    fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n.min(256),
        }
    }
}

/// What memory was recorded by.
#[derive(Debug)]
pub enum Recording {
    /// PyTorch's profiler, or a snapshot of its allocator.
    Trace(Box<Trace>),
    /// memory_profiler.
    Host(HostMemory),
}

impl Recording {
    /// What was skipped, repaired or odd.
    pub fn diagnostics(&self) -> &Diagnostics {
        match self {
            Self::Trace(trace) => trace.diagnostics(),
            Self::Host(memory) => &memory.diagnostics,
        }
    }

    /// The trace.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn into_trace(self) -> Result<Trace> {
        match self {
            Self::Trace(trace) => Ok(*trace),
            Self::Host(_) => Err(Error::format("a trace or a snapshot", "a recording of memory_profiler (mprof)")
                .with_hint("`tracetool timeline` and `tracetool peak` read it")),
        }
    }
}

/// Reads the trace or the allocator's snapshot at `path`, or standard input if it is `-`.
///
/// # Errors
///
/// Where the file cannot be read, is no trace, or is larger than the options allow. Whatever is broken or missing within
/// a trace is in its [`Trace::diagnostics`] instead.
pub fn read_path(path: &Path, options: &ReadOptions) -> Result<Trace> {
    read_recording(path, options)?.into_trace().map_err(|error| error.at_path(path))
}

/// Reads the trace, the snapshot or the recording of memory_profiler at `path`, or standard input if it is `-`.
///
/// # Errors
///
/// As [`read_path`].
pub fn read_recording(path: &Path, options: &ReadOptions) -> Result<Recording> {
    Source::open(path, options.max_input_size, options.progress.clone())
        .and_then(|source| any_in_batches(source, options, pipeline::BATCH, Level::detect()))
        .map_err(|error| error.at_path(path))
}

/// Reads the log of nvidia-smi at `path`, gzipped or not, or standard input if it is `-`.
///
/// # Errors
///
/// Where the file cannot be read, is larger than the options allow, or no line of it is a sample.
pub fn read_smi_path(path: &Path, options: &ReadOptions, smi: &SmiOptions) -> Result<SmiLog> {
    let read = || {
        let mut source = Source::open(path, options.max_input_size, options.progress.clone())?;
        let mut first = Block::new(pipeline::BATCH);
        source.fill(&mut first)?;
        let (bytes, odd) = source.into_text(first)?;
        let mut log = read_smi(&bytes, smi)?;
        log.diagnostics.append(odd);
        Ok(log)
    };
    read().map_err(|error: Error| error.at_path(path))
}

/// Reads the trace or the snapshot that `reader` gives, gzip or plain.
///
/// # Errors
///
/// As [`read_path`].
pub fn read(reader: impl Read + Send + 'static, options: &ReadOptions) -> Result<Trace> {
    let source = Source::new(Box::new(reader), options.max_input_size, options.progress.clone())?;
    read_source(source, options)
}

fn read_source(source: Source, options: &ReadOptions) -> Result<Trace> {
    read_in_batches(source, options, pipeline::BATCH, Level::detect())
}

fn read_in_batches(source: Source, options: &ReadOptions, batch: usize, level: Level) -> Result<Trace> {
    any_in_batches(source, options, batch, level)?.into_trace()
}

/// Reads any input, which its first bytes tell apart.
fn any_in_batches(mut source: Source, options: &ReadOptions, batch: usize, level: Level) -> Result<Recording> {
    let mut first = Block::new(batch);
    source.fill(&mut first)?;
    if mprof::is_mprof(first.data()) {
        return mprof::read(source, first).map(Recording::Host);
    }
    let trace = if pickle::is_pickle(first.data()) {
        let mut stream = source.into_stream(first)?;
        let mut rows = snapshot::read(&mut stream, options)?;
        rows.diagnostics_mut().append(stream.into_diagnostics());
        rows.finish()
    } else {
        pipeline::read(first, source, level, options.keep, options.threads())?
    };
    Ok(Recording::Trace(Box::new(trace)))
}

/// Pieces of the reader for benchmarks.
pub(crate) mod bench {
    use super::inflate::{Block, GzipReader, Verifier};
    use std::io::Read;

    /// Inflates a gzip file in blocks of `block_size` bytes, checks its checksums if `verify` says so, and returns the
    /// size of the data.
    ///
    /// # Panics
    ///
    /// If the file is damaged.
    pub fn gunzip(file: impl Read, block_size: usize, verify: bool) -> u64 {
        let mut reader = GzipReader::new(file);
        let mut verifier = Verifier::default();
        let mut block = Block::new(block_size);
        let mut size = 0;
        loop {
            let n = reader.fill(&mut block).expect("the file can be decoded");
            if verify {
                assert!(verifier.check(&block).is_empty(), "the checksums hold");
            }
            if n == 0 {
                return size;
            }
            size += n as u64;
        }
    }
}
