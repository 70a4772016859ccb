//! The gzip format (RFC 1952) around DEFLATE: members, checksums, and what may follow them.

use std::fmt;
use std::io::{self, Read};

use super::crc32::{combine, crc32};
use super::{Corrupt, HISTORY, InflateError, Inflater, Status};

/// Compressed bytes that are read at once.
const READ_SIZE: usize = 256 << 10;
/// Longest member header accepted: 64 KiB of extra fields, and names no shorter than that.
/// Without a limit, a file without end could be taken for a name without end.
const MAX_HEADER: usize = 256 << 10;
/// What a member starts with if its data is DEFLATE.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Header bytes that are always there.
const FIXED_HEADER: usize = 10;
/// Bytes of CRC-32 and size after a member's data.
const TRAILER: usize = 8;

const HAS_HEADER_CRC: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

/// A piece of decompressed data, after the [`HISTORY`] bytes that come before it.
///
/// Blocks are made to be used again: [`GzipReader::fill`] replaces what is in them without
/// clearing their memory first.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the data is that of members, which have checksums.
    compressed: bool,
    member_ends: Vec<MemberEnd>,
    /// The CRC-32 of each member's part of the data, once they are taken.
    sums: Vec<u32>,
}

impl Block {
    /// A block for up to `size` bytes of data (at least one).
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: vec![0; HISTORY + size.max(1)], ..Self::default() }
    }

    /// How many bytes of data there is room for.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len().saturating_sub(HISTORY)
    }

    /// The data that the last fill brought.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes the checksums of the data, which [`Verifier::check`] otherwise does: this can be done by any thread, best by
    /// the one that has the data in its cache.
    pub(crate) fn take_sums(&mut self) {
        self.sums = self.parts().map(|part| crc32(0, part)).collect();
    }

    /// The data of each member in turn; the last may go on in the next block.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        let ends = self.member_ends.iter().map(|end| end.at).chain([self.end - self.start]);
        ends.take(if self.compressed { usize::MAX } else { 0 }).map(move |end| {
            let part = &self.data()[start..end];
            start = end;
            part
        })
    }

    /// Replaces the data by what `source` gives, as much as there is room for, for files that are not compressed.
    /// `history` is the end of the data before, and then that of this.
    pub(crate) fn fill_plain(&mut self, source: &mut impl Read, history: &mut Vec<u8>) -> io::Result<usize> {
        self.begin(history, false);
        let mut result = Ok(());
        while self.end < self.bytes.len() {
            match source.read(&mut self.bytes[self.end..]) {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.finish(history);
        result.map(|()| self.end - self.start)
    }

    /// Empties the block and puts `history` in front.
    fn begin(&mut self, history: &[u8], compressed: bool) {
        self.compressed = compressed;
        self.member_ends.clear();
        self.sums.clear();
        if self.bytes.len() <= HISTORY {
            self.bytes.resize(HISTORY + 1, 0);
        }
        self.start = history.len();
        self.end = self.start;
        self.bytes[..self.start].copy_from_slice(history);
    }

    /// Makes the end of the data the history of the next block's.
    fn finish(&self, history: &mut Vec<u8>) {
        history.clear();
        history.extend_from_slice(&self.bytes[self.end.saturating_sub(HISTORY)..self.end]);
    }

    /// The data, preceded by the last of the data before it: [`HISTORY`] bytes, or all there is.
    /// The number is where [`Self::data`] starts in it.
    pub(crate) fn with_history(&self) -> (&[u8], usize) {
        (&self.bytes[..self.end], self.start)
    }
}

/// Where a gzip member ends, and what it claims to hold.
#[derive(Debug, Clone, Copy)]
struct MemberEnd {
    /// Index in the block's data of the first byte that is not the member's.
    at: usize,
    /// Compressed bytes from the start of the file to the member's trailer.
    offset: u64,
    crc: u32,
    /// Size of the data in bytes, modulo 2^32.
    size: u32,
}

/// How a gzip file ended, where its data could be decoded to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ending {
    /// The end has not been reached.
    #[default]
    Open,
    /// After a whole member, or after zero bytes that pad the file.
    Whole,
    /// Inside a member: its data goes on in the original.
    Truncated,
    /// After a whole member come bytes that are neither padding nor a member.
    Garbage {
        /// Compressed bytes from the start of the file to the first such byte.
        offset: u64,
    },
}

#[derive(Clone, Copy)]
enum Stage {
    /// At the start of the first member.
    Header,
    Data,
    Trailer,
    /// After a member: padding, a further member, or garbage.
    Between,
    End,
}

/// Decompresses a gzip file, all its members, in blocks.
pub(crate) struct GzipReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// `buffer[pos..end]` is compressed data not used yet.
    pos: usize,
    end: usize,
    /// Compressed bytes from the start of the file to the start of `buffer`.
    offset: u64,
    inflater: Inflater,
    stage: Stage,
    ending: Ending,
    /// What is wrong after the data that has been given.
    error: Option<InflateError>,
    history: Vec<u8>,
}

impl<R: Read> GzipReader<R> {
    /// A reader of the gzip file that `source` is at the start of. Reads nothing yet, and later
    /// in large pieces, so that `source` needs no buffer of its own.
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            buffer: vec![0; READ_SIZE],
            pos: 0,
            end: 0,
            offset: 0,
            inflater: Inflater::new(),
            stage: Stage::Header,
            ending: Ending::Open,
            error: None,
            history: Vec::with_capacity(HISTORY),
        }
    }

    /// How the file ended. Final once [`Self::fill`] has brought no data.
    pub(crate) fn ending(&self) -> Ending {
        self.ending
    }

    /// Compressed bytes used so far.
    pub(crate) fn compressed_pos(&self) -> u64 {
        self.offset + self.pos as u64
    }

    /// Replaces the data in `block` by the data that comes next, as much as there is room for,
    /// and returns its size in bytes. It is 0 at the end only.
    ///
    /// # Errors
    ///
    /// Reading fails, or the compressed data is damaged. All data before that has been given: the
    /// error takes the place of the data that would come next. After an error comes the end.
    pub(crate) fn fill(&mut self, block: &mut Block) -> Result<usize, InflateError> {
        block.begin(&self.history, true);
        if self.error.is_none()
            && let Err(error) = self.advance(block)
        {
            self.stage = Stage::End;
            self.error = Some(error);
        }
        let size = block.end - block.start;
        if size == 0
            && let Some(error) = self.error.take()
        {
            return Err(error);
        }
        block.finish(&mut self.history);
        Ok(size)
    }

    /// Goes on until the block is full or the file ends.
    fn advance(&mut self, block: &mut Block) -> Result<(), InflateError> {
        loop {
            match self.stage {
                Stage::Header => self.header()?,
                Stage::Data => {
                    if self.data(block)? {
                        return Ok(());
                    }
                }
                Stage::Trailer => self.trailer(block)?,
                Stage::Between => self.between()?,
                Stage::End => return Ok(()),
            }
        }
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.pos..self.end]
    }

    /// Reads more compressed data after what is left; `false` if there is no more.
    fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.pos..self.end, 0);
        self.offset += self.pos as u64;
        self.end -= self.pos;
        self.pos = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    return Ok(n != 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads more because a member needs it; the file is truncated if there is no more.
    fn need_more(&mut self) -> io::Result<()> {
        if !self.read_more()? {
            self.finish(Ending::Truncated);
        }
        Ok(())
    }

    fn finish(&mut self, ending: Ending) {
        self.ending = ending;
        self.stage = Stage::End;
    }

    fn corrupt(&self, reason: Corrupt) -> InflateError {
        let offset = self.compressed_pos() - u64::from(self.inflater.is_inside_byte());
        InflateError::Corrupt { offset, reason }
    }

    fn header(&mut self) -> Result<(), InflateError> {
        match parse_header(self.rest()) {
            Ok(Some(length)) => {
                self.pos += length;
                self.inflater.reset();
                self.stage = Stage::Data;
                Ok(())
            }
            Ok(None) if self.rest().len() > MAX_HEADER => Err(self.corrupt(Corrupt::HeaderTooLong)),
            Ok(None) => Ok(self.need_more()?),
            Err(reason) => Err(self.corrupt(reason)),
        }
    }

    /// Decodes data; `true` if the block is full.
    fn data(&mut self, block: &mut Block) -> Result<bool, InflateError> {
        let status = self.inflater.decode(&self.buffer[..self.end], &mut self.pos, &mut block.bytes, &mut block.end);
        match status.map_err(|reason| self.corrupt(reason))? {
            Status::NeedInput => self.need_more()?,
            Status::OutputFull => return Ok(true),
            Status::End => self.stage = Stage::Trailer,
        }
        Ok(false)
    }

    fn trailer(&mut self, block: &mut Block) -> Result<(), InflateError> {
        let Some(&trailer) = self.rest().first_chunk::<TRAILER>() else {
            return Ok(self.need_more()?);
        };
        let trailer = u64::from_le_bytes(trailer);
        block.member_ends.push(MemberEnd {
            at: block.end - block.start,
            offset: self.compressed_pos(),
            crc: trailer as u32,
            size: (trailer >> 32) as u32,
        });
        self.pos += TRAILER;
        self.stage = Stage::Between;
        Ok(())
    }

    fn between(&mut self) -> Result<(), InflateError> {
        let rest = self.rest();
        let padding = rest.iter().take_while(|&&byte| byte == 0).count();
        let rest = &rest[padding..];
        if rest.starts_with(&MAGIC) {
            self.stage = Stage::Header;
        } else if MAGIC.starts_with(rest) {
            // Nothing but padding, or what may be the first bytes of a member.
            self.pos += padding;
            if !self.read_more()? {
                let offset = self.compressed_pos();
                let whole = self.rest().is_empty();
                self.finish(if whole { Ending::Whole } else { Ending::Garbage { offset } });
            }
            return Ok(());
        } else {
            let offset = self.compressed_pos() + padding as u64;
            self.finish(Ending::Garbage { offset });
        }
        self.pos += padding;
        Ok(())
    }
}

/// Length of the member header that `bytes` start with; `None` if it goes on after them.
fn parse_header(bytes: &[u8]) -> Result<Option<usize>, Corrupt> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(Corrupt::NotGzip);
    }
    let Some(fixed) = bytes.first_chunk::<FIXED_HEADER>() else {
        return Ok(None);
    };
    let flags = fixed[3];
    if flags & RESERVED != 0 {
        return Err(Corrupt::NotGzip);
    }
    header_fields(bytes, flags).transpose()
}

/// As [`parse_header`], for the fields that `flags` announce.
fn header_fields(bytes: &[u8], flags: u8) -> Option<Result<usize, Corrupt>> {
    let mut length = FIXED_HEADER;
    if flags & HAS_EXTRA != 0 {
        let size = bytes.get(length..)?.first_chunk::<2>()?;
        length += 2 + usize::from(u16::from_le_bytes(*size));
    }
    for text in [HAS_NAME, HAS_COMMENT] {
        if flags & text != 0 {
            length += 1 + bytes.get(length..)?.iter().position(|&byte| byte == 0)?;
        }
    }
    if flags & HAS_HEADER_CRC != 0 {
        let crc = bytes.get(length..)?.first_chunk::<2>()?;
        if u16::from_le_bytes(*crc) != crc32(0, &bytes[..length]) as u16 {
            return Some(Err(Corrupt::HeaderChecksum));
        }
        length += 2;
    }
    (length <= bytes.len()).then_some(Ok(length))
}

/// A member whose data is not what its trailer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Compressed bytes from the start of the file to the member's trailer.
    pub(crate) offset: u64,
    /// Bytes of data before the member's.
    pub(crate) data_offset: u64,
    /// The CRC-32 in the trailer.
    pub(crate) stored_crc: u32,
    /// The CRC-32 of the data.
    pub(crate) actual_crc: u32,
    /// The size in the trailer, in bytes, modulo 2^32.
    pub(crate) stored_size: u32,
    /// The size of the data, in bytes, modulo 2^32.
    pub(crate) actual_size: u32,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.offset;
        write!(
            f,
            "the checksum of the gzip stream (at byte {at} of the file) is not that of its data: the file is damaged"
        )
    }
}

/// Checks the data of a file against the checksums of its members.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    crc: u32,
    size: u32,
    /// Bytes of data before the member at hand.
    data_offset: u64,
    /// Bytes of data so far.
    total: u64,
}

impl Verifier {
    /// Takes in the next block. All blocks of a file must come, in their order.
    ///
    /// Returns the members ending in this block that are not what they should be.
    pub(crate) fn check(&mut self, block: &Block) -> Vec<Mismatch> {
        let mut found = Vec::new();
        let mut ends = block.member_ends.iter();
        let mut sums = block.sums.iter();
        for part in block.parts() {
            self.take_in(part, sums.next().copied());
            let Some(end) = ends.next() else { break };
            let Self { crc, size, data_offset, total } = *self;
            if (crc, size) != (end.crc, end.size) {
                found.push(Mismatch {
                    offset: end.offset,
                    data_offset,
                    stored_crc: end.crc,
                    actual_crc: crc,
                    stored_size: end.size,
                    actual_size: size,
                });
            }
            *self = Self { data_offset: total, total, ..Self::default() };
        }
        found
    }

    fn take_in(&mut self, data: &[u8], sum: Option<u32>) {
        self.crc = match sum {
            Some(sum) => combine(self.crc, sum, data.len()),
            None => crc32(self.crc, data),
        };
        self.total += data.len() as u64;
        // Both the trailer's size and this one count modulo 2^32.
        self.size = self.size.wrapping_add(data.len() as u32);
    }
}
