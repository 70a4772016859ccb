//! The DEFLATE decoder (RFC 1951).
//!
//! Two loops decode symbols. The fast one runs while there is input and room to spare for
//! anything that one turn of it can do, and checks nothing else; the careful one does the rest,
//! symbol by symbol, and finds all errors.

use std::sync::LazyLock;

use super::Corrupt;
use super::bits::BitReader;
use super::tables::{
    DIST_BITS, DistTable, END_OF_BLOCK, Entry, LITLEN_BITS, LengthCode, LitLenTable, MAX_DIST_CODES, MAX_LITLEN_CODES,
    Tables,
};

/// How far back a match may reach, in bytes.
pub(crate) const HISTORY: usize = 32 << 10;

/// Input bytes that one turn of the fast loop may load: three refills, each of which moves on by
/// at most 7 bytes and loads 8.
const INPUT_MARGIN: usize = 7 + 7 + 8;
/// The longest match.
const MAX_MATCH: usize = 258;
/// Bytes that the copy of a match may write past its end: matches are copied in pieces of that
/// size. It covers most matches of a trace in one piece; with 32 decoding takes a tenth longer,
/// with 128 no less.
const COPY_SLACK: usize = 64;
/// Output bytes that one turn of the fast loop may write: three pairs of literals and a match.
const OUTPUT_MARGIN: usize = 3 * 2 + MAX_MATCH + COPY_SLACK;

static FIXED: LazyLock<Box<Tables>> = LazyLock::new(|| Box::new(Tables::fixed()));

/// Why [`Inflater::decode`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// The rest of the input is too short for the next step: call again with that rest and more
    /// after it. If there is no more, the data is truncated here.
    NeedInput,
    /// There is no room for the next byte: call again with more.
    OutputFull,
    /// The last block has ended. What follows in the input is no DEFLATE data.
    End,
}

/// What comes next in the stream.
#[derive(Clone, Copy)]
enum Stage {
    BlockHeader,
    /// Bytes left in a stored block.
    Stored(usize),
    Symbols,
    /// A match that was cut off by the end of the output.
    Match {
        length: usize,
        distance: usize,
    },
    End,
}

/// Where output goes: `buffer[..pos]` is there already, and matches may reach all of it.
struct Output<'a> {
    buffer: &'a mut [u8],
    pos: usize,
}

impl Output<'_> {
    fn room(&self) -> usize {
        self.buffer.len() - self.pos
    }

    /// Writes one literal or two. Needs room for two.
    #[inline(always)]
    fn put_literals(&mut self, entry: Entry) {
        let bytes = (entry.value() as u16).to_le_bytes();
        self.buffer[self.pos..self.pos + 2].copy_from_slice(&bytes);
        self.pos += entry.literals();
    }
}

/// Decodes one DEFLATE stream that comes in pieces into output that is taken away in pieces.
pub(crate) struct Inflater {
    bits: u64,
    /// How many bits there are in `bits`: less than 8 between calls.
    bit_count: u32,
    stage: Stage,
    last_block: bool,
    fixed: bool,
    /// Output so far, as far as matches can reach it.
    reach: usize,
    tables: Box<Tables>,
}

impl Inflater {
    /// A decoder at the start of a stream.
    pub(crate) fn new() -> Self {
        Self {
            bits: 0,
            bit_count: 0,
            stage: Stage::BlockHeader,
            last_block: false,
            fixed: false,
            reach: 0,
            tables: Box::new(Tables::new()),
        }
    }

    /// Goes back to the start of a stream.
    pub(crate) fn reset(&mut self) {
        self.bits = 0;
        self.bit_count = 0;
        self.stage = Stage::BlockHeader;
        self.last_block = false;
        self.reach = 0;
    }

    /// Whether bits of the last byte that was read are still to be used.
    pub(crate) fn is_inside_byte(&self) -> bool {
        self.bit_count != 0
    }

    /// Decodes `input` from `in_pos` on into `output` from `out_pos` on, and moves both positions
    /// to after what was read and written; bytes of `output` beyond `out_pos` may change too.
    ///
    /// `output[..out_pos]` must end with the last [`HISTORY`] bytes that this stream has given,
    /// or with all of them if they are fewer.
    ///
    /// # Errors
    ///
    /// Damaged data, with the positions at the damage. Later calls give the same error.
    pub(crate) fn decode(
        &mut self,
        input: &[u8],
        in_pos: &mut usize,
        output: &mut [u8],
        out_pos: &mut usize,
    ) -> Result<Status, Corrupt> {
        let floor = out_pos.saturating_sub(self.reach);
        let mut reader = BitReader { input, pos: *in_pos, bits: self.bits, count: self.bit_count };
        let mut out = Output { buffer: &mut output[floor..], pos: *out_pos - floor };
        let result = self.run(&mut reader, &mut out);
        reader.give_back();
        self.bits = reader.bits;
        self.bit_count = reader.count;
        self.reach = HISTORY.min(out.pos);
        *in_pos = reader.pos;
        *out_pos = floor + out.pos;
        result
    }

    fn run(&mut self, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> Result<Status, Corrupt> {
        loop {
            let done = match self.stage {
                Stage::BlockHeader => {
                    let before = *reader;
                    match self.block_header(reader) {
                        Ok(Some(stage)) => {
                            self.stage = stage;
                            None
                        }
                        other => {
                            *reader = before;
                            other?;
                            Some(Status::NeedInput)
                        }
                    }
                }
                Stage::Stored(left) => self.stored(left, reader, out),
                Stage::Symbols => self.symbols(reader, out)?,
                Stage::Match { length, distance } => self.put_match(length, distance, out),
                Stage::End => {
                    reader.align();
                    Some(Status::End)
                }
            };
            if let Some(status) = done {
                return Ok(status);
            }
        }
    }

    fn end_block(&mut self) {
        self.stage = if self.last_block { Stage::End } else { Stage::BlockHeader };
    }

    /// Reads a block's header; `None` if the input ends inside it.
    fn block_header(&mut self, reader: &mut BitReader<'_>) -> Result<Option<Stage>, Corrupt> {
        let Some(header) = reader.take(3) else {
            return Ok(None);
        };
        self.last_block = header & 1 != 0;
        match header >> 1 {
            0 => stored_header(reader),
            1 => {
                self.fixed = true;
                Ok(Some(Stage::Symbols))
            }
            2 => {
                self.fixed = false;
                let done = read_codes(reader, &mut self.tables)?;
                Ok(done.map(|()| Stage::Symbols))
            }
            _ => Err(Corrupt::BlockType),
        }
    }

    fn stored(&mut self, left: usize, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> Option<Status> {
        let rest = &reader.input[reader.pos..];
        let n = left.min(rest.len()).min(out.room());
        out.buffer[out.pos..out.pos + n].copy_from_slice(&rest[..n]);
        out.pos += n;
        reader.pos += n;
        self.stage = Stage::Stored(left - n);
        if left == n {
            self.end_block();
            None
        } else if out.room() == 0 {
            Some(Status::OutputFull)
        } else {
            Some(Status::NeedInput)
        }
    }

    fn symbols(&mut self, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> Result<Option<Status>, Corrupt> {
        let tables: &Tables = if self.fixed { &FIXED } else { &self.tables };
        loop {
            let fast = reader.input.len() - reader.pos >= INPUT_MARGIN && out.room() >= OUTPUT_MARGIN;
            let step = if fast && decode_fast(tables, reader, out) {
                Step::EndOfBlock
            } else {
                decode_one(tables, reader, out)?
            };
            match step {
                Step::Literal => {}
                Step::EndOfBlock => {
                    self.end_block();
                    return Ok(None);
                }
                Step::Match { length, distance } => {
                    self.stage = Stage::Match { length, distance };
                    return Ok(None);
                }
                Step::Stop(status) => return Ok(Some(status)),
            }
        }
    }

    /// Writes as much of a match as there is room for.
    fn put_match(&mut self, length: usize, distance: usize, out: &mut Output<'_>) -> Option<Status> {
        let n = length.min(out.room());
        for pos in out.pos..out.pos + n {
            out.buffer[pos] = out.buffer[pos - distance];
        }
        out.pos += n;
        if n == length {
            self.stage = Stage::Symbols;
            return None;
        }
        self.stage = Stage::Match { length: length - n, distance };
        Some(Status::OutputFull)
    }
}

/// Reads the rest of the header of a stored block; `None` if the input ends inside it.
fn stored_header(reader: &mut BitReader<'_>) -> Result<Option<Stage>, Corrupt> {
    reader.align();
    let Some(&[a, b, c, d]) = reader.input[reader.pos..].first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u16::from_le_bytes([a, b]);
    if length != !u16::from_le_bytes([c, d]) {
        return Err(Corrupt::StoredLength);
    }
    reader.pos += 4;
    Ok(Some(Stage::Stored(usize::from(length))))
}

/// Order in which a block lists the lengths of the code for code lengths (RFC 1951, 3.2.7).
const LENGTH_CODE_ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Reads the codes of a block of type 2 into `tables`; `None` if the input ends before.
fn read_codes(reader: &mut BitReader<'_>, tables: &mut Tables) -> Result<Option<()>, Corrupt> {
    let Some(counts) = reader.take(14) else {
        return Ok(None);
    };
    let litlen_codes = (counts & 31) as usize + 257;
    let dist_codes = (counts >> 5 & 31) as usize + 1;
    let length_codes = (counts >> 10) as usize + 4;
    if litlen_codes > MAX_LITLEN_CODES || dist_codes > MAX_DIST_CODES {
        return Err(Corrupt::TooManyCodes);
    }

    let mut length_lengths = [0; 19];
    for &symbol in &LENGTH_CODE_ORDER[..length_codes] {
        let Some(length) = reader.take(3) else {
            return Ok(None);
        };
        length_lengths[usize::from(symbol)] = length as u8;
    }
    let code = LengthCode::new(&length_lengths)?;

    let mut lengths = [0; MAX_LITLEN_CODES + MAX_DIST_CODES];
    let lengths = &mut lengths[..litlen_codes + dist_codes];
    if read_lengths(reader, &code, lengths)?.is_none() {
        return Ok(None);
    }
    let (litlen, dist) = lengths.split_at(litlen_codes);
    if litlen[END_OF_BLOCK] == 0 {
        return Err(Corrupt::NoEndOfBlock);
    }
    tables.build(litlen, dist)?;
    Ok(Some(()))
}

/// Reads code lengths for all symbols of a block; `None` if the input ends before.
fn read_lengths(reader: &mut BitReader<'_>, code: &LengthCode, lengths: &mut [u8]) -> Result<Option<()>, Corrupt> {
    let mut done = 0;
    while done < lengths.len() {
        // The longest code and its extra bits take 14 bits.
        if reader.count < 14 {
            reader.refill();
        }
        let (symbol, code_bits) = code.look_up(reader.bits);
        let (extra_bits, base) = match symbol {
            16 => (2, 3),
            17 => (3, 3),
            18 => (7, 11),
            _ => (0, 1),
        };
        if reader.count < code_bits + extra_bits {
            return Ok(None);
        }
        let extra = (reader.bits >> code_bits) & ((1 << extra_bits) - 1);
        reader.consume(code_bits + extra_bits);
        if symbol < 16 {
            lengths[done] = symbol;
            done += 1;
            continue;
        }
        let value = match (symbol, done) {
            (16, 0) => return Err(Corrupt::Repeat),
            (16, _) => lengths[done - 1],
            _ => 0,
        };
        let repeat = base + extra as usize;
        lengths.get_mut(done..done + repeat).ok_or(Corrupt::Repeat)?.fill(value);
        done += repeat;
    }
    Ok(Some(()))
}

/// What [`decode_one`] met.
enum Step {
    /// A literal, which has been written.
    Literal,
    EndOfBlock,
    /// A match that is within reach, not written yet.
    Match {
        length: usize,
        distance: usize,
    },
    /// Nothing: there is no whole symbol, or no room for it.
    Stop(Status),
}

/// Decodes one symbol with all checks. Reads nothing if it stops or fails.
fn decode_one(tables: &Tables, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> Result<Step, Corrupt> {
    let before = *reader;
    let step = try_decode_one(tables, reader, out);
    if matches!(step, Err(_) | Ok(Step::Stop(_))) {
        *reader = before;
    }
    step
}

fn try_decode_one(tables: &Tables, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> Result<Step, Corrupt> {
    // The longest symbol takes 48 bits. Bits that are not there read as zeros or as what the
    // stream does hold there; either way the count tells that a code was not whole.
    reader.refill();
    let Some(entry) = look_up(&tables.litlen, LITLEN_BITS, reader) else {
        return Ok(Step::Stop(Status::NeedInput));
    };
    if entry.is_end() {
        reader.consume(entry.bits());
        return Ok(Step::EndOfBlock);
    }
    if entry.is_special() {
        return Err(Corrupt::LiteralCode);
    }
    if out.room() == 0 {
        return Ok(Step::Stop(Status::OutputFull));
    }
    if entry.is_literal() {
        // Only the first of two: there may be neither bits nor room for the second.
        reader.consume(entry.code_bits());
        out.buffer[out.pos] = entry.value() as u8;
        out.pos += 1;
        return Ok(Step::Literal);
    }
    let length = entry.with_extra(reader.bits);
    reader.consume(entry.bits());

    let Some(entry) = look_up(&tables.dist, DIST_BITS, reader) else {
        return Ok(Step::Stop(Status::NeedInput));
    };
    if entry.is_special() {
        return Err(Corrupt::DistanceCode);
    }
    let distance = entry.with_extra(reader.bits);
    reader.consume(entry.bits());
    if distance > out.pos {
        return Err(Corrupt::DistanceTooFar);
    }
    Ok(Step::Match { length, distance })
}

/// The entry of the code that comes next, with the bits in front of the entry's own dropped;
/// `None` if the input ends inside the code or its extra bits.
fn look_up(table: &[Entry], first_bits: u32, reader: &mut BitReader<'_>) -> Option<Entry> {
    let mut entry = table[reader.bits as usize & ((1 << first_bits) - 1)];
    if entry.leads_on() {
        if reader.count < entry.bits() {
            return None;
        }
        reader.consume(entry.bits());
        entry = entry.follow(table, reader.bits);
    }
    let needed = if entry.is_literal() { entry.code_bits() } else { entry.bits() };
    (reader.count >= needed).then_some(entry)
}

/// Decodes symbols until input or room might not suffice for one more turn, and says whether the
/// block ended. Comes back too, without reading it, at a symbol that is wrong.
///
/// The caller has checked that there are [`INPUT_MARGIN`] and [`OUTPUT_MARGIN`].
fn decode_fast(tables: &Tables, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2") {
        // SAFETY: the processor has what the function is compiled for. Shifts by any register and
        // copies of 32 bytes take a twelfth off the time.
        return unsafe { fast_loop_avx2(tables, reader, out) };
    }
    fast_loop(tables, reader, out)
}

/// [`fast_loop`] with the instructions of processors since 2013 (2015 for AMD).
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2")]
fn fast_loop_avx2(tables: &Tables, reader: &mut BitReader<'_>, out: &mut Output<'_>) -> bool {
    fast_loop(tables, reader, out)
}

#[inline(always)]
fn litlen_at(table: &LitLenTable, bits: u64) -> Entry {
    table[bits as usize & ((1 << LITLEN_BITS) - 1)]
}

#[inline(always)]
fn dist_at(table: &DistTable, bits: u64) -> Entry {
    table[bits as usize & ((1 << DIST_BITS) - 1)]
}

/// A [`BitReader`] for the fast loop, where input is never short.
#[derive(Clone, Copy)]
struct FastReader<'a> {
    /// What is not counted in `count`.
    rest: &'a [u8],
    bits: u64,
    /// Only its lowest six bits count, which saves masks.
    count: u32,
}

impl FastReader<'_> {
    /// Brings in at least 56 bits, as [`BitReader::refill`].
    #[inline(always)]
    fn refill(&mut self) {
        let word = self.rest.first_chunk().expect("the input margin");
        self.bits |= u64::from_le_bytes(*word) << (self.count & 63);
        self.rest = &self.rest[(!self.count >> 3 & 7) as usize..];
        self.count |= 56;
    }

    #[inline(always)]
    fn consume(&mut self, entry: Entry) {
        self.bits >>= entry.loose_bits() & 63;
        self.count = self.count.wrapping_sub(entry.loose_bits());
    }
}

/// Writes literals, and looks up what comes after them.
#[inline(always)]
fn next_after_literals(tables: &Tables, fast: &mut FastReader<'_>, out: &mut Output<'_>, entry: Entry) -> Entry {
    out.put_literals(entry);
    fast.consume(entry);
    litlen_at(&tables.litlen, fast.bits)
}

/// The loop of [`decode_fast`].
///
/// What bounds it is how long a look-up takes, as each needs the one before; so the next entry is
/// looked up as soon as its bits are known, before the refill and before a match is copied.
#[inline(always)]
fn fast_loop(tables: &Tables, reader: &mut BitReader<'_>, output: &mut Output<'_>) -> bool {
    // Copies, which the compiler can keep in registers.
    let mut out = Output { buffer: &mut *output.buffer, ..*output };
    let mut fast = FastReader { rest: &reader.input[reader.pos..], bits: reader.bits, count: reader.count };
    let mut ended = false;

    fast.refill();
    let mut entry = litlen_at(&tables.litlen, fast.bits);
    while fast.rest.len() >= INPUT_MARGIN && out.room() >= OUTPUT_MARGIN {
        fast.refill();
        if entry.is_literal() {
            // Three entries of the first table are at most 33 bits.
            entry = next_after_literals(tables, &mut fast, &mut out, entry);
            if entry.is_literal() {
                entry = next_after_literals(tables, &mut fast, &mut out, entry);
                if entry.is_literal() {
                    entry = next_after_literals(tables, &mut fast, &mut out, entry);
                    continue;
                }
            }
            fast.refill();
        }
        let before = fast;
        if entry.is_special() {
            if entry.leads_on() {
                fast.consume(entry);
                entry = entry.follow(&tables.litlen, fast.bits);
                if entry.is_literal() {
                    entry = next_after_literals(tables, &mut fast, &mut out, entry);
                    continue;
                }
            }
            if entry.is_end() {
                fast.consume(entry);
                ended = true;
                break;
            }
            if entry.is_special() {
                fast = before;
                break;
            }
        }
        let length = entry.with_extra(fast.bits);
        fast.consume(entry);
        let mut dist = dist_at(&tables.dist, fast.bits);
        if dist.is_special() {
            if dist.leads_on() {
                fast.consume(dist);
                dist = dist.follow(&tables.dist, fast.bits);
            }
            if dist.is_special() {
                fast = before;
                break;
            }
        }
        let distance = dist.with_extra(fast.bits);
        if distance > out.pos {
            fast = before;
            break;
        }
        fast.consume(dist);
        entry = litlen_at(&tables.litlen, fast.bits);
        copy_match(out.buffer, out.pos, distance, length);
        out.pos += length;
    }
    reader.pos = reader.input.len() - fast.rest.len();
    reader.bits = fast.bits;
    reader.count = fast.count & 63;
    output.pos = out.pos;
    ended
}

/// Writes the match of `length` bytes that starts `distance` before `pos`, and up to
/// [`COPY_SLACK`] bytes more after it, for which there must be room.
#[inline(always)]
fn copy_match(buffer: &mut [u8], pos: usize, distance: usize, length: usize) {
    if distance >= COPY_SLACK {
        copy_chunks::<COPY_SLACK>(buffer, pos, distance, length);
    } else if distance >= 16 {
        copy_chunks::<16>(buffer, pos, distance, length);
    } else if distance >= 8 {
        copy_chunks::<8>(buffer, pos, distance, length);
    } else {
        repeat(buffer, pos, distance, length);
    }
}

/// Copies in pieces of `N` bytes, which is at most `distance`, so that each piece is there before
/// it is read.
///
/// The bounds that the slices check cost 3 %, which raw pointers are not worth.
#[inline(always)]
fn copy_chunks<const N: usize>(buffer: &mut [u8], pos: usize, distance: usize, length: usize) {
    let from = pos - distance;
    let mut done = 0;
    // Mostly the first piece is all there is: no test before it.
    loop {
        let chunk = *buffer[from + done..].first_chunk::<N>().expect("the output margin");
        *buffer[pos + done..].first_chunk_mut().expect("the output margin") = chunk;
        done += N;
        if done >= length {
            return;
        }
    }
}

/// Matches nearer than eight bytes: what is repeated is put together in a word first.
#[inline(always)]
fn repeat(buffer: &mut [u8], pos: usize, distance: usize, length: usize) {
    let mut word = [0; 8];
    word[..distance].copy_from_slice(&buffer[pos - distance..pos]);
    let mut pattern = u64::from_le_bytes(word);
    let mut bits = 8 * distance as u32;
    while bits < 64 {
        pattern |= pattern << bits;
        bits *= 2;
    }
    // Words a multiple of the distance apart are all the same.
    for to in (pos..pos + length).step_by(8 - 8 % distance) {
        buffer[to..to + 8].copy_from_slice(&pattern.to_le_bytes());
    }
}
