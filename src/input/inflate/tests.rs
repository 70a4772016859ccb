use std::io::{self, Read, Write};

use flate2::{Compression, Decompress, FlushDecompress};
use proptest::prelude::*;

use super::gzip::Mismatch;
use super::*;

// ---- Material -------------------------------------------------------------------------------

/// Bytes without pattern.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x915f_77f5).wrapping_add(12345);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Text like that of a trace.
fn text(len: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for (i, byte) in noise(len / 40 + 1, 7).into_iter().enumerate() {
        let line = format!("  {{\"ph\": \"X\", \"name\": \"aten::op{byte}\", \"ts\": {}}},\n", i * 977);
        text.extend_from_slice(line.as_bytes());
    }
    text.truncate(len);
    text
}

fn gzip(data: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn deflate(data: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

// ---- Ways to decode -------------------------------------------------------------------------

/// How a DEFLATE stream ended.
type Ended = Result<Status, Corrupt>;

/// Decodes a DEFLATE stream that comes `feed` bytes at a time into pieces of `room` bytes.
/// Returns the data, how it ended and how many bytes of input it took.
fn inflate(stream: &[u8], feed: usize, room: usize) -> (Vec<u8>, Ended, usize) {
    let mut inflater = Inflater::new();
    let mut data = Vec::new();
    let (mut fed, mut in_pos) = (0, 0);
    loop {
        let history = data.len().min(HISTORY);
        let mut output = data[data.len() - history..].to_vec();
        output.resize(history + room, 0xaa);
        let mut out_pos = history;
        let ended = inflater.decode(&stream[..fed], &mut in_pos, &mut output, &mut out_pos);
        data.extend_from_slice(&output[history..out_pos]);
        match ended {
            Ok(Status::OutputFull) => assert_eq!(out_pos, output.len(), "full means full"),
            Ok(Status::NeedInput) if fed < stream.len() => fed = stream.len().min(fed + feed),
            _ => return (data, ended, in_pos),
        }
    }
}

/// Decodes at once.
fn inflate_at_once(stream: &[u8]) -> (Vec<u8>, Ended) {
    let (data, ended, _) = inflate(stream, usize::MAX >> 1, 1 << 17);
    (data, ended)
}

/// What zlib makes of a DEFLATE stream: the data, and whether it ended, wants more or failed.
fn oracle(stream: &[u8]) -> (Vec<u8>, Result<bool, ()>) {
    let mut zlib = Decompress::new(false);
    let mut data = vec![0; 1 << 20];
    let ended = match zlib.decompress(stream, &mut data, FlushDecompress::Finish) {
        Ok(status) => Ok(status == flate2::Status::StreamEnd),
        Err(_) => Err(()),
    };
    data.truncate(zlib.total_out() as usize);
    (data, ended)
}

/// Gives `data` in pieces of `feed` bytes, and then an error if there is one.
struct Feed<'a> {
    data: &'a [u8],
    feed: usize,
    error: Option<io::Error>,
}

impl Read for Feed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.feed.min(self.data.len()).min(buffer.len());
        if n == 0
            && let Some(error) = self.error.take()
        {
            return Err(error);
        }
        buffer[..n].copy_from_slice(&self.data[..n]);
        self.data = &self.data[n..];
        Ok(n)
    }
}

/// What a gzip file gives.
#[derive(Debug)]
struct Gunzipped {
    data: Vec<u8>,
    ending: Ending,
    mismatch: Option<Mismatch>,
    error: Option<(u64, Corrupt)>,
}

fn gunzip(file: &[u8], feed: usize, room: usize) -> Gunzipped {
    let mut reader = GzipReader::new(Feed { data: file, feed, error: None });
    let mut verifier = Verifier::default();
    let mut block = Block::new(room);
    let mut out = Gunzipped { data: Vec::new(), ending: Ending::Open, mismatch: None, error: None };
    loop {
        let filled = reader.fill(&mut block);
        out.mismatch = out.mismatch.or(verifier.check(&block).first().copied());
        out.data.extend_from_slice(block.data());
        let (history, start) = block.with_history();
        assert!(out.data.ends_with(history) && history.len() - start == block.data().len());
        match filled {
            Ok(0) => break,
            Ok(n) => assert_eq!(n, block.data().len()),
            Err(InflateError::Corrupt { offset, reason }) => out.error = Some((offset, reason)),
            Err(InflateError::Io(error)) => panic!("{error}"),
        }
    }
    assert_eq!(reader.fill(&mut block).unwrap(), 0, "the end stays the end");
    out.ending = reader.ending();
    out
}

/// Checks that a file is read without findings.
#[track_caller]
fn assert_whole(file: &[u8], expected: &[u8], feed: usize, room: usize) {
    let out = gunzip(file, feed, room);
    assert!(out.data == expected, "the data differs");
    assert_eq!((out.ending, out.mismatch, out.error), (Ending::Whole, None, None));
}

// ---- What writers write ---------------------------------------------------------------------

/// Whatever zlib writes at any level reads back, however the input and the output are cut.
#[test]
fn zlib_output_reads_back() {
    let mut contents = vec![
        Vec::new(),
        b"a".to_vec(),
        vec![0; 300_000],
        noise(100_000, 1),
        text(300_000),
        // The same noise again, farther back than a window, and just as far.
        [noise(HISTORY + 5, 2), noise(HISTORY + 5, 2)].concat(),
        [noise(HISTORY, 2), noise(HISTORY, 2)].concat(),
    ];
    for period in 1..=40 {
        contents.push(noise(period, 3).into_iter().cycle().take(3000 + period).collect());
    }
    for data in &contents {
        for level in [0, 1, 3, 6, 9] {
            let file = gzip(data, level);
            for (feed, room) in [(1 << 20, 1 << 20), (1 << 20, 1000), (777, 1 << 16)] {
                assert_whole(&file, data, feed, room);
            }
        }
    }
}

/// One byte of input and one byte of room at a time are enough.
#[test]
fn single_bytes_are_enough() {
    let data = [text(3000), noise(300, 1), vec![b' '; 700]].concat();
    for level in [0, 1, 9] {
        assert_whole(&gzip(&data, level), &data, 1, 1);
        assert_whole(&gzip(&data, level), &data, 1, 1 << 20);
        assert_whole(&gzip(&data, level), &data, 1 << 20, 1);
    }
}

/// Blocks that a writer ends early (flushes) read back, empty stored blocks included.
#[test]
fn flushed_blocks_read_back() {
    let data = text(20_000);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(6));
    for piece in data.chunks(331) {
        encoder.write_all(piece).unwrap();
        encoder.flush().unwrap();
    }
    assert_whole(&encoder.finish().unwrap(), &data, 100, 5000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Random data reads back from random pieces into random room.
    #[test]
    fn random_data_reads_back(
        words in prop::collection::vec("[a-d]{1,9}|[\\x00-\\xff]{1,3}", 0..2000),
        level in 0_u32..=9,
        feed in 1_usize..5000,
        room in 1_usize..70_000,
    ) {
        let data = words.concat().into_bytes();
        assert_whole(&gzip(&data, level), &data, feed, room);
    }

    /// Damaged streams are accepted and refused exactly as by zlib, with the same data.
    #[test]
    fn damage_is_judged_as_by_zlib(
        level in 0_u32..=9,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..4),
        feed in 1_usize..3000,
        room in 1_usize..3000,
    ) {
        let mut stream = deflate(&text(4000), level);
        for (place, bit) in flips {
            let place = place.index(stream.len());
            stream[place] ^= 1_u8 << bit;
        }
        assert_as_zlib(&stream, feed, room)?;
    }

    /// So are streams of random bytes, whatever block type they start with.
    #[test]
    fn noise_is_judged_as_by_zlib(
        kind in 0_u8..8,
        mut stream in prop::collection::vec(any::<u8>(), 1..400),
    ) {
        stream[0] = stream[0] & !7 | kind;
        assert_as_zlib(&stream, 1 << 20, 1 << 20)?;
    }

    /// Any prefix code is decoded, its longest codes included, as is any mix of block types.
    #[test]
    fn any_prefix_code_is_decoded(
        blocks in prop::collection::vec(any_block(), 1..4),
        feed in 1_usize..3000,
        room in 1_usize..3000,
    ) {
        let mut bits = BitWriter::default();
        let mut data = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            block.write(i + 1 == blocks.len(), &mut bits, &mut data);
        }
        let stream = bits.finish();
        let (out, ended, used) = inflate(&stream, feed, room);
        prop_assert!(out == data);
        prop_assert_eq!((ended, used), (Ok(Status::End), stream.len()));
        // At once too, so that the fast loop has its share.
        prop_assert!(inflate(&stream, 1 << 20, 1 << 20).0 == data);
    }
}

fn assert_as_zlib(stream: &[u8], feed: usize, room: usize) -> Result<(), TestCaseError> {
    let (expected, expected_end) = oracle(stream);
    let (data, ended, _) = inflate(stream, feed, room);
    let ended = ended.map(|status| status == Status::End).map_err(|_| ());
    prop_assert_eq!(ended, expected_end);
    if ended == Ok(true) {
        prop_assert!(data == expected);
    } else {
        // Which of them gives the last bytes before the damage differs.
        let common = data.len().min(expected.len());
        prop_assert!(data[..common] == expected[..common]);
    }
    Ok(())
}

// ---- Streams made by hand -------------------------------------------------------------------

/// Writes bits, least significant first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    used: u32,
}

impl BitWriter {
    fn put(&mut self, value: u32, bits: u32) -> &mut Self {
        for i in 0..bits {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> i & 1) as u8) << (self.used % 8);
            self.used += 1;
        }
        self
    }

    /// A code: most significant bit first.
    fn code(&mut self, code: u32, bits: u32) -> &mut Self {
        for i in (0..bits).rev() {
            self.put(code >> i & 1, 1);
        }
        self
    }

    fn align(&mut self) -> &mut Self {
        self.used = self.used.next_multiple_of(8);
        self
    }

    fn finish(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }

    /// The header of a block of type 2 with the given code lengths. The lengths are written in a
    /// code of 4 bits for each of 0 to 15.
    fn dynamic(&mut self, last: bool, litlen: &[u8], dist: &[u8]) -> &mut Self {
        self.put(u32::from(last), 1).put(2, 2);
        self.put(litlen.len() as u32 - 257, 5).put(dist.len() as u32 - 1, 5).put(15, 4);
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
            self.put(if symbol < 16 { 4 } else { 0 }, 3);
        }
        for &length in litlen.iter().chain(dist) {
            self.code(u32::from(length), 4);
        }
        self
    }
}

/// The canonical code for some lengths (RFC 1951, 3.2.2), written down anew.
fn canonical(lengths: &[u8]) -> Vec<u32> {
    let mut codes = vec![0; lengths.len()];
    let mut code = 0;
    for length in 1..=15 {
        for (symbol, _) in lengths.iter().enumerate().filter(|&(_, &l)| l == length) {
            codes[symbol] = code;
            code += 1;
        }
        code <<= 1;
    }
    codes
}

/// Base and extra bits of the length symbols from 257 on, as the RFC lists them.
const LENGTHS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// Base and extra bits of the distance symbols, as the RFC lists them.
const DISTANCES: [(usize, u32); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

/// A block of symbols that are chosen by random numbers.
#[derive(Debug, Clone)]
struct AnyBlock {
    fixed: bool,
    litlen: Vec<u8>,
    dist: Vec<u8>,
    choices: Vec<(prop::sample::Index, u32)>,
}

impl AnyBlock {
    fn write(&self, last: bool, bits: &mut BitWriter, data: &mut Vec<u8>) {
        if self.fixed {
            bits.put(u32::from(last), 1).put(1, 2);
        } else {
            bits.dynamic(last, &self.litlen, &self.dist);
        }
        let litlen_codes = canonical(&self.litlen);
        let dist_codes = canonical(&self.dist);
        let used = |lengths: &[u8], limit: usize| -> Vec<usize> {
            (0..lengths.len().min(limit)).filter(|&s| lengths[s] != 0).collect()
        };
        let (litlens, dists) = (used(&self.litlen, 286), used(&self.dist, 30));
        for &(choice, more) in &self.choices {
            let symbol = litlens[choice.index(litlens.len())];
            let put_symbol = |bits: &mut BitWriter, symbol: usize| {
                bits.code(litlen_codes[symbol], u32::from(self.litlen[symbol]));
            };
            if symbol < 256 {
                put_symbol(bits, symbol);
                data.push(symbol as u8);
            } else if symbol > 256 {
                let dist_symbol = dists[more as usize % dists.len()];
                let (base, extra_bits) = DISTANCES[dist_symbol];
                let dist_extra = more >> 8 & ((1 << extra_bits) - 1);
                let distance = base + dist_extra as usize;
                if distance > data.len() {
                    continue;
                }
                put_symbol(bits, symbol);
                let (base, len_bits) = LENGTHS[symbol - 257];
                let extra = more >> 24 & ((1 << len_bits) - 1);
                bits.put(extra, len_bits);
                bits.code(dist_codes[dist_symbol], u32::from(self.dist[dist_symbol]));
                bits.put(dist_extra, extra_bits);
                for _ in 0..base + extra as usize {
                    data.push(data[data.len() - distance]);
                }
            }
        }
        bits.code(litlen_codes[256], u32::from(self.litlen[256]));
    }
}

/// Code lengths of a random complete code of 2 to `symbols` symbols, one of which is `needed`.
fn any_code(symbols: usize, needed: usize) -> impl Strategy<Value = Vec<u8>> {
    let splits = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..symbols);
    (splits, Just((0..symbols).collect::<Vec<_>>()).prop_shuffle()).prop_map(move |(splits, mut order)| {
        // Split leaves of a tree, half of the time one of the deepest.
        let mut leaves = vec![0_u8];
        for (place, deepest) in splits {
            let place = if deepest { leaves.len() - 1 } else { place.index(leaves.len()) };
            if leaves[place] < 15 {
                leaves[place] += 1;
                leaves.push(leaves[place]);
            }
        }
        let place = order.iter().position(|&symbol| symbol == needed).unwrap();
        order.swap(0, place);
        let mut lengths = vec![0; symbols];
        for (leaf, symbol) in leaves.into_iter().zip(order) {
            lengths[symbol] = leaf;
        }
        lengths
    })
}

fn any_block() -> impl Strategy<Value = AnyBlock> {
    let choices = prop::collection::vec(any::<(prop::sample::Index, u32)>(), 0..3000);
    (prop::bool::weighted(0.2), any_code(286, 256), any_code(30, 0), choices).prop_map(
        |(fixed, litlen, dist, choices)| {
            if fixed {
                let litlen = [vec![8; 144], vec![9; 112], vec![7; 24], vec![8; 8]].concat();
                AnyBlock { fixed, litlen, dist: vec![5; 32], choices }
            } else {
                AnyBlock { fixed, litlen, dist, choices }
            }
        },
    )
}

/// Code lengths of a block, zero but for the given symbols.
fn lengths(symbols: usize, some: &[(usize, u8)]) -> Vec<u8> {
    let mut lengths = vec![0; symbols];
    for &(symbol, length) in some {
        lengths[symbol] = length;
    }
    lengths
}

/// Checks that a stream fails for the given reason after the given data, and that zlib refuses
/// it too; fed at once and byte by byte.
#[track_caller]
fn assert_corrupt(stream: &[u8], data: &[u8], reason: Corrupt) {
    // Bytes after it let the fast loop find the damage.
    let padded = [stream, &[0; 64]].concat();
    for stream in [stream, &padded] {
        assert_eq!(oracle(stream).1, Err(()), "zlib");
        for (feed, room) in [(1, 1), (1 << 20, 1 << 10)] {
            let (out, ended, _) = inflate(stream, feed, room);
            assert_eq!((&out[..], ended), (data, Err(reason)));
        }
    }
}

/// Checks that a stream is whole and holds the given data, for zlib too.
#[track_caller]
fn assert_holds(stream: &[u8], data: &[u8]) {
    assert_eq!(oracle(stream), (data.to_vec(), Ok(true)), "zlib");
    for (feed, room) in [(1, 1), (1 << 20, 1 << 10)] {
        let (out, ended, used) = inflate(stream, feed, room);
        assert_eq!((&out[..], ended, used), (data, Ok(Status::End), stream.len()));
    }
}

/// Block type 3 is reserved.
#[test]
fn block_type_3_is_refused() {
    assert_corrupt(&BitWriter::default().put(0b111, 3).finish(), b"", Corrupt::BlockType);
}

/// A stored block states its length twice, the second time inverted.
#[test]
fn stored_length_must_be_stated_twice() {
    assert_holds(b"\x01\x02\x00\xfd\xffhi", b"hi");
    assert_corrupt(b"\x01\x02\x00\xfd\xfehi", b"", Corrupt::StoredLength);
}

/// At most 286 literal/length codes and 30 distance codes may be declared.
#[test]
fn too_many_codes_are_refused() {
    for (litlen, dist) in [(30, 0), (31, 0), (0, 30), (0, 31)] {
        let mut bits = BitWriter::default();
        bits.put(0b101, 3).put(litlen, 5).put(dist, 5).put(0, 4).put(0, 12);
        assert_corrupt(&bits.finish(), b"", Corrupt::TooManyCodes);
    }
}

/// More codes than fit, in any of the three codes, are refused.
#[test]
fn oversubscribed_codes_are_refused() {
    let mut bits = BitWriter::default();
    bits.put(0b101, 3).put(0, 14).put(1, 3).put(1, 3).put(1, 3).put(0, 3);
    assert_corrupt(&bits.finish(), b"", Corrupt::CodeLengths);

    let litlen = lengths(257, &[(0, 1), (1, 2), (2, 2), (256, 2)]);
    let stream = BitWriter::default().dynamic(true, &litlen, &[1]).finish();
    assert_corrupt(&stream, b"", Corrupt::CodeLengths);

    let litlen = lengths(257, &[(0, 1), (256, 1)]);
    let stream = BitWriter::default().dynamic(true, &litlen, &[1, 1, 1]).finish();
    assert_corrupt(&stream, b"", Corrupt::CodeLengths);
}

/// Codes with gaps are refused, except for a single code of one bit.
#[test]
fn incomplete_codes_are_refused() {
    let mut bits = BitWriter::default();
    bits.put(0b101, 3).put(0, 14).put(1, 3).put(0, 9);
    assert_corrupt(&bits.finish(), b"", Corrupt::CodeLengths);

    let litlen = lengths(257, &[(0, 1), (256, 2)]);
    let stream = BitWriter::default().dynamic(true, &litlen, &[1]).finish();
    assert_corrupt(&stream, b"", Corrupt::CodeLengths);

    let litlen = lengths(257, &[(0, 1), (256, 1)]);
    for dist in [&[2][..], &[1, 2], &[2, 2, 2]] {
        let stream = BitWriter::default().dynamic(true, &litlen, dist).finish();
        assert_corrupt(&stream, b"", Corrupt::CodeLengths);
    }
}

/// A single distance code of one bit is whole without its other half, which must not occur.
#[test]
fn a_single_distance_code_is_accepted() {
    let litlen = lengths(258, &[(b'x' as usize, 2), (256, 1), (257, 2)]);
    let mut bits = BitWriter::default();
    bits.dynamic(true, &litlen, &[1]).code(0b10, 2).code(0b11, 2).put(0, 1).code(0, 1);
    assert_holds(&bits.finish(), b"xxxx");
    bits.dynamic(true, &litlen, &[1]).code(0b10, 2).code(0b11, 2).put(1, 1).code(0, 1);
    assert_corrupt(&bits.finish(), b"x", Corrupt::DistanceCode);
}

/// A block of literals needs no distance code; a match in it is refused.
#[test]
fn no_distance_code_is_accepted() {
    let litlen = lengths(258, &[(b'x' as usize, 2), (256, 1), (257, 2)]);
    let mut bits = BitWriter::default();
    bits.dynamic(true, &litlen, &[0]).code(0b10, 2).code(0, 1);
    assert_holds(&bits.finish(), b"x");
    bits.dynamic(true, &litlen, &[0]).code(0b10, 2).code(0b11, 2).put(0, 1).code(0, 1);
    assert_corrupt(&bits.finish(), b"x", Corrupt::DistanceCode);
}

/// A single literal/length code of one bit can only be the end of the block.
#[test]
fn a_single_literal_code_is_accepted() {
    let litlen = lengths(257, &[(256, 1)]);
    let mut bits = BitWriter::default();
    bits.dynamic(true, &litlen, &[1]).put(0, 1);
    assert_holds(&bits.finish(), b"");
    bits.dynamic(true, &litlen, &[1]).put(1, 1);
    assert_corrupt(&bits.finish(), b"", Corrupt::LiteralCode);
}

/// A block must be able to end.
#[test]
fn a_block_without_end_is_refused() {
    let litlen = lengths(257, &[(0, 1), (1, 1)]);
    let stream = BitWriter::default().dynamic(true, &litlen, &[1]).finish();
    assert_corrupt(&stream, b"", Corrupt::NoEndOfBlock);
}

/// A repeat of a code length needs one before it and must not run past the last code.
#[test]
fn repeats_must_fit() {
    // Symbols 16 and 18 with one bit each.
    let header = |bits: &mut BitWriter| {
        bits.put(0b101, 3).put(0, 14).put(1, 3).put(0, 3).put(1, 3).put(0, 3);
    };
    let mut bits = BitWriter::default();
    header(&mut bits);
    bits.code(0, 1).put(0, 2);
    assert_corrupt(&bits.finish(), b"", Corrupt::Repeat);
    header(&mut bits);
    bits.code(1, 1).put(127, 7).code(1, 1).put(127, 7);
    assert_corrupt(&bits.finish(), b"", Corrupt::Repeat);
}

/// The fixed code has codes for two lengths and two distances that do not exist.
#[test]
fn codes_without_meaning_are_refused() {
    for code in [0b1100_0110, 0b1100_0111] {
        let mut bits = BitWriter::default();
        bits.put(0b011, 3).code(0x30 + 7, 8).code(code, 8);
        assert_corrupt(&bits.finish(), &[7], Corrupt::LiteralCode);
    }
    for code in [30, 31] {
        let mut bits = BitWriter::default();
        bits.put(0b011, 3).code(0x30 + 7, 8).code(1, 7).code(code, 5);
        assert_corrupt(&bits.finish(), &[7], Corrupt::DistanceCode);
    }
}

/// A match must not start before the data does, by one byte or by many.
#[test]
fn distances_must_stay_in_the_data() {
    for (symbol, extra_bits) in [(1, 0), (29, 13)] {
        let mut bits = BitWriter::default();
        bits.put(0b011, 3).code(0x30 + 7, 8).code(1, 7).code(symbol, 5).put(0, extra_bits);
        assert_corrupt(&bits.finish(), &[7], Corrupt::DistanceTooFar);
    }
}

/// A match may reach back by the whole window, across every cut of the output.
#[test]
fn the_whole_window_is_in_reach() {
    let data = noise(HISTORY, 5);
    let mut bits = BitWriter::default();
    bits.put(0, 3).align().put(HISTORY as u32, 16).put(!HISTORY as u32, 16);
    for &byte in &data {
        bits.put(u32::from(byte), 8);
    }
    bits.put(0b011, 3);
    for _ in 0..300 {
        bits.code(0b1100_0101, 8).code(29, 5).put(0x1fff, 13);
    }
    let stream = bits.code(0, 7).finish();
    let expected: Vec<u8> = data.iter().copied().cycle().take(HISTORY + 300 * 258).collect();
    for room in [1, 257, 1000, HISTORY, 1 << 17] {
        let (out, ended, _) = inflate(&stream, 1 << 20, room);
        assert!(out == expected, "{room}");
        assert_eq!(ended, Ok(Status::End));
    }
}

/// Bytes after the last block are not taken.
#[test]
fn what_follows_the_stream_is_left() {
    for level in [0, 1, 9] {
        let data = text(3000);
        let stream = deflate(&data, level);
        let longer = [&stream[..], &[0xff; 100]].concat();
        let (out, ended, used) = inflate(&longer, 1 << 20, 1 << 20);
        assert!(out == data);
        assert_eq!((ended, used), (Ok(Status::End), stream.len()));
    }
}

// ---- gzip's framing -------------------------------------------------------------------------

/// A header with the given flags and fields, and the rest of a file.
fn with_header(flags: u8, fields: &[u8], file: &[u8]) -> Vec<u8> {
    [&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255], fields, &file[10..]].concat()
}

/// All optional header fields are passed over, however they are cut.
#[test]
fn header_fields_are_passed_over() {
    let data = text(500);
    let file = gzip(&data, 6);
    let extra = [&[44, 1][..], &[0; 300]].concat();
    let all = [&extra[..], b"name\0", b"comment\0"].concat();
    let header = with_header(0b11110, &all, &file[..10]);
    let crc = (crc32::crc32(0, &header) as u16).to_le_bytes();
    let with_crc = [&all[..], &crc].concat();
    for (flags, fields) in
        [(1, &[][..]), (0b100, &extra), (0b1000, b"a name\0"), (0b10000, b"\0"), (0b11101, &all), (0b11110, &with_crc)]
    {
        let file = with_header(flags, fields, &file);
        assert_whole(&file, &data, 1 << 20, 1000);
        assert_whole(&file, &data, 1, 1000);
    }
}

/// A header that is not gzip's, or not for DEFLATE, or with unknown flags, or damaged by its own
/// checksum, or without end, is an error at its place.
#[test]
fn wrong_headers_are_refused() {
    let file = gzip(b"data", 6);
    for (at, value) in [(0, 0), (1, 0), (2, 7), (3, 0x20)] {
        let mut file = file.clone();
        file[at] = value;
        let out = gunzip(&file, 1 << 20, 1000);
        assert_eq!((out.error, out.data.len()), (Some((0, Corrupt::NotGzip)), 0));
    }
    let out = gunzip(&with_header(2, &[1, 2], &file), 1 << 20, 1000);
    assert_eq!(out.error, Some((0, Corrupt::HeaderChecksum)));
    let out = gunzip(&with_header(8, &[1; 1 << 20], &file), 1 << 16, 1000);
    assert_eq!(out.error, Some((0, Corrupt::HeaderTooLong)));
}

/// An empty file is a truncated one.
#[test]
fn an_empty_file_is_truncated() {
    assert_eq!(gunzip(b"", 1, 1).ending, Ending::Truncated);
}

/// Members follow one another, empty ones too, and each has checksums of its own.
#[test]
fn members_are_joined() {
    let (a, b) = (text(70_000), noise(500, 3));
    let file = [gzip(&a, 6), gzip(b"", 6), gzip(&b, 0), gzip(&a, 1)].concat();
    let data = [&a[..], &b, &a].concat();
    for (feed, room) in [(1 << 20, 1 << 20), (1, 7000), (100, 1)] {
        assert_whole(&file, &data, feed, room);
    }
    // Zero bytes between members are padding as well.
    let file = [gzip(&a, 6), vec![0; 1000], gzip(&b, 6)].concat();
    assert_whole(&file, &[a, b].concat(), 13, 1 << 20);
}

/// A match must not reach into the member before.
#[test]
fn members_share_no_window() {
    let mut bits = BitWriter::default();
    let stream = bits.put(0b011, 3).code(1, 7).code(0, 5).code(0, 7).finish();
    let first = gzip(b"data", 6);
    let file = [&first[..], &gzip(b"", 6)[..10], &stream, &[0; 8]].concat();
    let out = gunzip(&file, 1 << 20, 1000);
    assert_eq!(out.data, b"data");
    assert_eq!(out.error, Some((first.len() as u64 + 10, Corrupt::DistanceTooFar)));
}

/// Zero bytes after the last member are padding.
#[test]
fn zero_padding_is_passed_over() {
    let data = text(500);
    for padding in [1, 2, 511, 1 << 19] {
        let file = [gzip(&data, 6), vec![0; padding]].concat();
        assert_whole(&file, &data, 1 << 20, 1000);
        assert_whole(&file, &data, 1, 1000);
    }
}

/// Other bytes after a member are reported with their place; the data before is whole.
#[test]
fn garbage_after_a_member_is_reported() {
    let data = text(500);
    let file = gzip(&data, 6);
    for (padding, garbage) in [(0, &b"x"[..]), (3, b"\x1f"), (0, b"\x1f\x8b"), (7, b"\x1f\x8b\x09zz")] {
        let offset = (file.len() + padding) as u64;
        let file = [&file[..], &vec![0; padding], garbage].concat();
        for feed in [1, 1 << 20] {
            let out = gunzip(&file, feed, 1000);
            assert!(out.data == data);
            assert_eq!(out.ending, Ending::Garbage { offset });
            assert_eq!((out.mismatch, out.error), (None, None));
        }
    }
}

/// A file that is cut anywhere is truncated, and gives all the data whose codes are whole.
#[test]
fn truncation_gives_what_is_whole() {
    let data = [text(1500), noise(50, 1)].concat();
    for level in [0, 1, 9] {
        let file = gzip(&data, level);
        let mut before = 0;
        for cut in 0..file.len() {
            let out = gunzip(&file[..cut], 1 << 20, 1 << 20);
            assert_eq!((out.ending, out.error), (Ending::Truncated, None), "{cut}");
            assert!(data.starts_with(&out.data));
            assert!(out.data.len() >= before, "more input gives no less");
            before = out.data.len();
            if cut > 10 {
                assert!(before >= oracle(&file[10..cut]).0.len(), "no less than zlib");
            }
            let slowly = gunzip(&file[..cut], 1, 13);
            assert!(slowly.data == out.data, "however it is cut: {cut}");
        }
        assert_eq!(before, data.len());
    }
}

/// A member after the first that is cut is truncated too, not garbage.
#[test]
fn truncation_of_a_later_member_is_found() {
    let (first, second) = (gzip(b"first", 6), gzip(b"second", 6));
    for cut in 3..second.len() {
        let out = gunzip(&[&first, &second[..cut]].concat(), 1 << 20, 1000);
        assert!(out.data.starts_with(b"first"));
        assert_eq!(out.ending, Ending::Truncated);
    }
}

/// Flipping any bit neither panics nor hangs, and the data is right or something is reported.
#[test]
fn no_flipped_bit_goes_unseen() {
    let data = text(1200);
    for level in [0, 9] {
        let file = gzip(&data, level);
        // Of the header, name and times are not protected.
        for bit in (0..24).chain(80..8 * file.len()) {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            let out = gunzip(&file, 1 << 20, 1 << 20);
            let seen = out.error.is_some() || out.mismatch.is_some() || out.ending != Ending::Whole;
            assert!(seen || out.data == data, "bit {bit}");
        }
    }
}

/// A wrong checksum is a finding, with its place; all data and later members are given.
#[test]
fn a_wrong_checksum_is_reported() {
    let data = text(5000);
    let good = gzip(&data, 6);
    let trailer = good.len() - 8;
    for at in [trailer, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let file = [&good[..], &bad, &good].concat();
        for room in [1 << 20, 5000, 77] {
            let out = gunzip(&file, 1 << 20, room);
            assert!(out.data == data.repeat(3));
            assert_eq!((out.ending, out.error), (Ending::Whole, None));
            let found = out.mismatch.unwrap();
            assert_eq!(found.offset, (good.len() + trailer) as u64);
            assert_eq!(found.actual_size, 5000);
            assert_eq!(found.stored_crc == found.actual_crc, at != trailer);
            assert_eq!(found.stored_size == found.actual_size, at == trailer);
        }
    }
}

/// Data before damage is given first; then the error tells where the damage is.
#[test]
fn data_before_damage_is_given() {
    let data = noise(40_000, 1);
    let mut file = gzip(&data, 0);
    // The first stored block starts after the header and holds up to 65535 bytes.
    let at = 10 + 5 + data.len();
    assert!(file.len() > at);
    file.truncate(at);
    file[10] &= !1;
    let file = [&file[..], &[0b111], &[0; 50]].concat();
    for (feed, room) in [(1 << 20, 1 << 20), (1, 999)] {
        let out = gunzip(&file, feed, room);
        assert!(out.data == data);
        assert_eq!(out.error, Some((at as u64, Corrupt::BlockType)));
    }
}

/// A failing read is an error after the data before it; an interrupted one is tried again.
#[test]
fn failing_reads_are_reported() {
    let data = text(10_000);
    let file = gzip(&data, 6);
    for kind in [io::ErrorKind::Other, io::ErrorKind::Interrupted] {
        let source = Feed { data: &file[..1000], feed: 100, error: Some(kind.into()) };
        let mut reader = GzipReader::new(source.chain(&file[1000..]));
        let mut block = Block::new(1 << 20);
        let size = reader.fill(&mut block).unwrap();
        assert!(data.starts_with(block.data()));
        if kind == io::ErrorKind::Interrupted {
            assert_eq!(size, data.len());
        } else {
            assert!(size > 0);
            assert!(matches!(reader.fill(&mut block), Err(InflateError::Io(_))));
            assert_eq!(reader.fill(&mut block).unwrap(), 0);
        }
    }
}

/// Decoding at once: the loop that the tests above run with small pieces runs fast here.
#[test]
fn large_pieces_are_decoded() {
    let data = text(2 << 20);
    let stream = deflate(&data, 6);
    let (out, ended, _) = inflate(&stream, 1 << 24, 4 << 20);
    assert!(out == data);
    assert_eq!(ended, Ok(Status::End));
    assert_eq!(inflate_at_once(&deflate(b"x", 6)), (b"x".to_vec(), Ok(Status::End)));
}
