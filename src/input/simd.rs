//! Finding quotes and brackets 64 bytes at a time.
//!
//! One trait, an implementation per instruction set, and a portable one that is tested to give the same. The scanner is
//! generic over it; [`Level::detect`] picks the best that the processor has, once a file.

/// Sixty-four bytes in registers, compared to a byte at once. Bit `i` of a mask stands for byte `i`.
pub(super) trait Block: Copy {
    /// The block of these bytes.
    fn load(bytes: &[u8; 64]) -> Self;
    /// Where the bytes equal those of `other`.
    fn same(self, other: Self) -> u64;
    /// Where the bytes equal `byte`.
    fn eq(self, byte: u8) -> u64;
    /// Where the bytes, with bit 5 set, equal `byte`: one comparison for `[` and `{`, one for `]` and `}`.
    fn eq_with_bit5(self, byte: u8) -> u64;
    /// Where the bytes are digits, or `-`, `.` or `/`: most of what numbers are made of.
    fn number(self) -> u64;
    /// Where the bytes are control characters: below 0x20.
    fn control(self) -> u64;
}

/// An instruction set that the scanner is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// 64-bit words; any machine.
    Portable,
    /// SSE2: every x86-64 processor.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// AVX2 with the bit counting instructions of its generation.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with its instructions for bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// NEON: every 64-bit Arm processor.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    /// The best that this processor has.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            let avx512 = avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            return match (avx512, avx2) {
                (true, _) => Self::Avx512,
                (false, true) => Self::Avx2,
                (false, false) => Self::Sse2,
            };
        }
        #[cfg(target_arch = "aarch64")]
        return Self::Neon;
        #[allow(unreachable_code)]
        Self::Portable
    }
}

/// Sixty-four bytes as eight little-endian words.
#[derive(Clone, Copy)]
pub(super) struct Portable([u64; 8]);

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte of `word`, gathered into eight bits.
fn gather(word: u64) -> u64 {
    // The multiplication adds shifted copies so that the eight bits, 8 apart, meet in the top byte.
    ((word & HIGH) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Portable {
    fn mask(self, test: impl Fn(u64) -> u64) -> u64 {
        self.0.iter().enumerate().fold(0, |mask, (i, word)| mask | gather(test(*word)) << (8 * i))
    }
}

/// The high bit of each byte that is zero.
fn zero_bytes(word: u64) -> u64 {
    !(((word & !HIGH) + !HIGH) | word | !HIGH)
}

impl Block for Portable {
    #[inline(always)]
    fn load(bytes: &[u8; 64]) -> Self {
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word =
                u64::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]]);
        }
        Self(words)
    }

    #[inline(always)]
    fn same(self, other: Self) -> u64 {
        let words = self.0.iter().zip(other.0).enumerate();
        words.fold(0, |mask, (i, (a, b))| mask | gather(zero_bytes(a ^ b)) << (8 * i))
    }

    #[inline(always)]
    fn eq(self, byte: u8) -> u64 {
        self.mask(|word| zero_bytes(word ^ (LOW * u64::from(byte))))
    }

    #[inline(always)]
    fn eq_with_bit5(self, byte: u8) -> u64 {
        self.mask(|word| zero_bytes((word | (LOW * 0x20)) ^ (LOW * u64::from(byte))))
    }

    #[inline(always)]
    fn number(self) -> u64 {
        // Seven bits at a time no sum carries over: the high bit is set from `-` on, and from `:` on.
        self.mask(|word| {
            let low = word & !HIGH;
            (low + LOW * (0x80 - u64::from(b'-'))) & !(low + LOW * (0x80 - u64::from(b':'))) & !word
        })
    }

    #[inline(always)]
    fn control(self) -> u64 {
        self.mask(|word| zero_bytes(word & (LOW * 0xe0)))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! The 64-byte block in SSE2 and AVX2 registers.

    use super::Block;
    use std::arch::x86_64::*;

    /// Four 16-byte registers.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Sse2([__m128i; 4]);

    /// The high bits of the 64 bytes of four registers.
    ///
    /// Here and below no closure holds an instruction: it would be compiled without the instruction set of the function
    /// around it and called for every register (measured: 7 times the time of the whole scan).
    #[inline(always)]
    fn sse2_bits(parts: [__m128i; 4]) -> u64 {
        let [a, b, c, d] = parts;
        // SAFETY: SSE2 is part of every x86-64 processor.
        unsafe {
            let low = (_mm_movemask_epi8(a) | _mm_movemask_epi8(b) << 16) as u32;
            let high = (_mm_movemask_epi8(c) | _mm_movemask_epi8(d) << 16) as u32;
            u64::from(low) | u64::from(high) << 32
        }
    }

    impl Block for Sse2 {
        #[inline(always)]
        fn load(bytes: &[u8; 64]) -> Self {
            // SAFETY: SSE2 is part of every x86-64 processor; the four unaligned loads stay within the 64 bytes.
            unsafe {
                let at = bytes.as_ptr().cast::<__m128i>();
                Self([
                    _mm_loadu_si128(at),
                    _mm_loadu_si128(at.add(1)),
                    _mm_loadu_si128(at.add(2)),
                    _mm_loadu_si128(at.add(3)),
                ])
            }
        }

        #[inline(always)]
        fn same(self, other: Self) -> u64 {
            let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
            // SAFETY: SSE2 is part of every x86-64 processor.
            unsafe {
                sse2_bits([_mm_cmpeq_epi8(a, e), _mm_cmpeq_epi8(b, f), _mm_cmpeq_epi8(c, g), _mm_cmpeq_epi8(d, h)])
            }
        }

        #[inline(always)]
        fn eq(self, byte: u8) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: SSE2 is part of every x86-64 processor.
            unsafe {
                let byte = _mm_set1_epi8(byte as i8);
                sse2_bits([
                    _mm_cmpeq_epi8(a, byte),
                    _mm_cmpeq_epi8(b, byte),
                    _mm_cmpeq_epi8(c, byte),
                    _mm_cmpeq_epi8(d, byte),
                ])
            }
        }

        #[inline(always)]
        fn eq_with_bit5(self, byte: u8) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: SSE2 is part of every x86-64 processor.
            unsafe {
                let bit = _mm_set1_epi8(0x20);
                Self([_mm_or_si128(a, bit), _mm_or_si128(b, bit), _mm_or_si128(c, bit), _mm_or_si128(d, bit)]).eq(byte)
            }
        }

        #[inline(always)]
        fn number(self) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: SSE2 is part of every x86-64 processor.
            unsafe {
                let (first, last) = (_mm_set1_epi8(b'-' as i8), _mm_set1_epi8((b'9' - b'-') as i8));
                let [a, b, c, d] =
                    [_mm_sub_epi8(a, first), _mm_sub_epi8(b, first), _mm_sub_epi8(c, first), _mm_sub_epi8(d, first)];
                Self([_mm_max_epu8(a, last), _mm_max_epu8(b, last), _mm_max_epu8(c, last), _mm_max_epu8(d, last)])
                    .eq(b'9' - b'-')
            }
        }

        #[inline(always)]
        fn control(self) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: SSE2 is part of every x86-64 processor.
            unsafe {
                let last = _mm_set1_epi8(0x1f);
                Self([_mm_max_epu8(a, last), _mm_max_epu8(b, last), _mm_max_epu8(c, last), _mm_max_epu8(d, last)])
                    .eq(0x1f)
            }
        }
    }

    /// Two 32-byte registers. Only for code that runs under [`super::Level::Avx2`].
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256i, __m256i);

    impl Block for Avx2 {
        #[inline(always)]
        fn load(bytes: &[u8; 64]) -> Self {
            // SAFETY: this type is used only where AVX2 was detected; the two unaligned loads stay within the 64 bytes.
            unsafe {
                let at = bytes.as_ptr().cast::<__m256i>();
                Self(_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1)))
            }
        }

        #[inline(always)]
        fn same(self, other: Self) -> u64 {
            // SAFETY: this type is used only where AVX2 was detected.
            unsafe {
                let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.0, other.0)) as u32;
                let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.1, other.1)) as u32;
                u64::from(low) | u64::from(high) << 32
            }
        }

        #[inline(always)]
        fn eq(self, byte: u8) -> u64 {
            // SAFETY: this type is used only where AVX2 was detected.
            unsafe {
                let byte = _mm256_set1_epi8(byte as i8);
                let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.0, byte)) as u32;
                let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(self.1, byte)) as u32;
                u64::from(low) | u64::from(high) << 32
            }
        }

        #[inline(always)]
        fn eq_with_bit5(self, byte: u8) -> u64 {
            // SAFETY: this type is used only where AVX2 was detected.
            unsafe {
                let bit = _mm256_set1_epi8(0x20);
                Self(_mm256_or_si256(self.0, bit), _mm256_or_si256(self.1, bit)).eq(byte)
            }
        }

        #[inline(always)]
        fn number(self) -> u64 {
            // SAFETY: this type is used only where AVX2 was detected.
            unsafe {
                let (first, last) = (_mm256_set1_epi8(b'-' as i8), _mm256_set1_epi8((b'9' - b'-') as i8));
                let (low, high) = (_mm256_sub_epi8(self.0, first), _mm256_sub_epi8(self.1, first));
                Self(_mm256_max_epu8(low, last), _mm256_max_epu8(high, last)).eq(b'9' - b'-')
            }
        }

        #[inline(always)]
        fn control(self) -> u64 {
            // SAFETY: this type is used only where AVX2 was detected.
            unsafe {
                let last = _mm256_set1_epi8(0x1f);
                Self(_mm256_max_epu8(self.0, last), _mm256_max_epu8(self.1, last)).eq(0x1f)
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    //! The 64-byte block in one AVX-512 register, whose comparisons give the mask at once.

    use super::Block;
    use std::arch::x86_64::*;

    /// One 64-byte register. Only for code that runs under [`super::Level::Avx512`].
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(__m512i);

    impl Block for Avx512 {
        #[inline(always)]
        fn load(bytes: &[u8; 64]) -> Self {
            // SAFETY: this type is used only where AVX-512 was detected; the unaligned load is of the 64 bytes.
            unsafe { Self(_mm512_loadu_si512(bytes.as_ptr().cast())) }
        }

        #[inline(always)]
        fn same(self, other: Self) -> u64 {
            // SAFETY: this type is used only where AVX-512 was detected.
            unsafe { _mm512_cmpeq_epi8_mask(self.0, other.0) }
        }

        #[inline(always)]
        fn eq(self, byte: u8) -> u64 {
            // SAFETY: this type is used only where AVX-512 was detected.
            unsafe { _mm512_cmpeq_epi8_mask(self.0, _mm512_set1_epi8(byte as i8)) }
        }

        #[inline(always)]
        fn eq_with_bit5(self, byte: u8) -> u64 {
            // SAFETY: this type is used only where AVX-512 was detected.
            unsafe { Self(_mm512_or_si512(self.0, _mm512_set1_epi8(0x20))).eq(byte) }
        }

        #[inline(always)]
        fn number(self) -> u64 {
            // SAFETY: this type is used only where AVX-512 was detected.
            unsafe {
                let from_minus = _mm512_sub_epi8(self.0, _mm512_set1_epi8(b'-' as i8));
                _mm512_cmple_epu8_mask(from_minus, _mm512_set1_epi8((b'9' - b'-') as i8))
            }
        }

        #[inline(always)]
        fn control(self) -> u64 {
            // SAFETY: this type is used only where AVX-512 was detected.
            unsafe { _mm512_cmplt_epu8_mask(self.0, _mm512_set1_epi8(0x20)) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) mod arm {
    //! The 64-byte block in NEON registers.

    use super::Block;
    use std::arch::aarch64::*;

    /// Four 16-byte registers.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Neon([uint8x16_t; 4]);

    /// The bytes that are all ones, as bits.
    #[inline(always)]
    fn bits(parts: [uint8x16_t; 4]) -> u64 {
        const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        let [a, b, c, d] = parts;
        // SAFETY: NEON is part of every 64-bit Arm processor; BITS is 16 bytes long. Each true byte keeps the bit of its
        // place; three rounds of pairwise addition gather them in the order of the bytes.
        unsafe {
            let bits = vld1q_u8(BITS.as_ptr());
            let low = vpaddq_u8(vandq_u8(a, bits), vandq_u8(b, bits));
            let high = vpaddq_u8(vandq_u8(c, bits), vandq_u8(d, bits));
            let sum = vpaddq_u8(low, high);
            vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0)
        }
    }

    impl Block for Neon {
        #[inline(always)]
        fn load(bytes: &[u8; 64]) -> Self {
            // SAFETY: NEON is part of every 64-bit Arm processor; the four loads stay within the 64 bytes.
            unsafe {
                let at = bytes.as_ptr();
                Self([vld1q_u8(at), vld1q_u8(at.add(16)), vld1q_u8(at.add(32)), vld1q_u8(at.add(48))])
            }
        }

        #[inline(always)]
        fn same(self, other: Self) -> u64 {
            let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
            // SAFETY: NEON is part of every 64-bit Arm processor.
            unsafe { bits([vceqq_u8(a, e), vceqq_u8(b, f), vceqq_u8(c, g), vceqq_u8(d, h)]) }
        }

        #[inline(always)]
        fn eq(self, byte: u8) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: NEON is part of every 64-bit Arm processor.
            unsafe {
                let byte = vdupq_n_u8(byte);
                bits([vceqq_u8(a, byte), vceqq_u8(b, byte), vceqq_u8(c, byte), vceqq_u8(d, byte)])
            }
        }

        #[inline(always)]
        fn eq_with_bit5(self, byte: u8) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: NEON is part of every 64-bit Arm processor.
            unsafe {
                let bit = vdupq_n_u8(0x20);
                Self([vorrq_u8(a, bit), vorrq_u8(b, bit), vorrq_u8(c, bit), vorrq_u8(d, bit)]).eq(byte)
            }
        }

        #[inline(always)]
        fn number(self) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: NEON is part of every 64-bit Arm processor.
            unsafe {
                let (first, last) = (vdupq_n_u8(b'-'), vdupq_n_u8(b'9' - b'-'));
                bits([
                    vcleq_u8(vsubq_u8(a, first), last),
                    vcleq_u8(vsubq_u8(b, first), last),
                    vcleq_u8(vsubq_u8(c, first), last),
                    vcleq_u8(vsubq_u8(d, first), last),
                ])
            }
        }

        #[inline(always)]
        fn control(self) -> u64 {
            let [a, b, c, d] = self.0;
            // SAFETY: NEON is part of every 64-bit Arm processor.
            unsafe {
                let end = vdupq_n_u8(0x20);
                bits([vcltq_u8(a, end), vcltq_u8(b, end), vcltq_u8(c, end), vcltq_u8(d, end)])
            }
        }
    }
}

/// The 64 bytes at `at`, with zeros behind the end of `bytes`.
#[cold]
#[inline(never)]
fn padded(bytes: &[u8], at: usize) -> [u8; 64] {
    let mut block = [0; 64];
    let rest = bytes.get(at..).unwrap_or_default();
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// The block at `at`, with zeros behind the end of `bytes`.
#[inline(always)]
fn block_at<B: Block>(bytes: &[u8], at: usize) -> B {
    // The rare case gives bytes, not a block: a block that comes from a call lives in memory, for the frequent one too.
    let end;
    B::load(match bytes.get(at..).and_then(|rest| rest.first_chunk::<64>()) {
        Some(bytes) => bytes,
        None => {
            end = padded(bytes, at);
            &end
        }
    })
}

/// The first quote, backslash or control character from `from` on; `bytes.len()` if there is none.
#[inline(always)]
pub(super) fn find_string_stop<B: Block>(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        let block: B = block_at(bytes, at);
        let stops = block.eq(b'"') | block.eq(b'\\') | block.control();
        if stops != 0 {
            // Zeros behind the end count as control characters: the end is a stop.
            return (at + stops.trailing_zeros() as usize).min(bytes.len());
        }
        at += 64;
    }
    bytes.len()
}

/// How many bytes from `at` on may be a number, up to 64; none behind the end.
#[inline(always)]
pub(super) fn count_number_bytes<B: Block>(bytes: &[u8], at: usize) -> usize {
    block_at::<B>(bytes, at).number().trailing_ones() as usize
}

/// For each quote of `quotes`, whether it opens or is open before it: bit `i` is the parity of the bits up to `i`.
#[inline(always)]
fn prefix_xor(mut bits: u64) -> u64 {
    // Six shifts; as fast here as a carry-less multiplication, which not every processor has.
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    bits
}

/// Which bytes are escaped by a backslash before them. `carry` is whether the first is, and then whether the first of
/// the next block is.
#[inline(always)]
fn escaped(backslashes: u64, carry: &mut bool) -> u64 {
    if backslashes == 0 {
        let first = u64::from(*carry);
        *carry = false;
        return first;
    }
    let mut rest = backslashes;
    let mut escaped = 0;
    if *carry {
        escaped |= 1;
        rest &= !1;
    }
    *carry = false;
    while rest != 0 {
        let at = rest.trailing_zeros();
        if at == 63 {
            *carry = true;
            break;
        }
        escaped |= 2 << at;
        rest &= !(3 << at);
    }
    escaped
}

/// What was passed over by counting brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Skipped {
    /// The place behind the closing bracket.
    pub(super) end: usize,
    /// Whether there is a `{` before it, within strings or not.
    pub(super) has_brace: bool,
}

/// Goes behind the bracket that closes `depth` open ones, from `from` on, which is outside strings.
///
/// Brackets within strings do not count; `[` and `{` are not told apart. `None` if `bytes` ends before, or after `limit`
/// bytes (rounded up to whole blocks).
#[inline(always)]
pub(super) fn skip_brackets<B: Block>(bytes: &[u8], from: usize, depth: u32, limit: usize) -> Option<Skipped> {
    let end = bytes.len().min(from.saturating_add(limit));
    let mut depth = depth;
    let mut at = from;
    let mut in_string = 0u64;
    let mut carry = false;
    let mut braces = 0;
    while at < end {
        let block: B = block_at(bytes, at);
        let braces_here = block.eq(b'{');
        let quotes = block.eq(b'"') & !escaped(block.eq(b'\\'), &mut carry);
        // All ones within a string that began in an earlier block.
        let strings = prefix_xor(quotes) ^ in_string;
        in_string = ((strings as i64) >> 63) as u64;
        let opens = block.eq_with_bit5(b'{') & !strings;
        let mut closes = block.eq_with_bit5(b'}') & !strings;
        let mut closed = 0;
        while closes != 0 {
            closed += 1;
            let bit = closes & closes.wrapping_neg();
            let opened = (opens & (bit - 1)).count_ones();
            if closed == depth + opened {
                let end = at + bit.trailing_zeros() as usize + 1;
                return Some(Skipped { end, has_brace: braces | braces_here & (bit - 1) != 0 });
            }
            closes ^= bit;
        }
        braces |= braces_here;
        depth = depth + opens.count_ones() - closed;
        at += 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn masks<B: Block>(bytes: &[u8; 64]) -> [u64; 7] {
        let block = B::load(bytes);
        let mut turned = *bytes;
        turned.reverse();
        [
            block.same(B::load(&turned)),
            block.number(),
            block.eq(b'"'),
            block.eq(b'\\'),
            block.eq_with_bit5(b'{'),
            block.eq_with_bit5(b'}'),
            block.control(),
        ]
    }

    fn plain_masks(bytes: &[u8; 64]) -> [u64; 7] {
        let mask = |test: &dyn Fn(u8) -> bool| (0..64).fold(0, |m, i| m | u64::from(test(bytes[i])) << i);
        [
            (0..64).fold(0, |m, i| m | u64::from(bytes[i] == bytes[63 - i]) << i),
            mask(&|b| (b'-'..=b'9').contains(&b)),
            mask(&|b| b == b'"'),
            mask(&|b| b == b'\\'),
            mask(&|b| b == b'{' || b == b'['),
            mask(&|b| b == b'}' || b == b']'),
            mask(&|b| b < 0x20),
        ]
    }

    /// The place behind the closing bracket, a byte at a time.
    fn plain_skip(bytes: &[u8], from: usize) -> Option<usize> {
        let (mut depth, mut string, mut i) = (1, false, from);
        while i < bytes.len() {
            match bytes[i] {
                // Outside strings, where JSON has none, a backslash hides quotes and backslashes only.
                b'\\' => i += usize::from(matches!(bytes.get(i + 1), Some(b'"' | b'\\'))),
                b'"' => string = !string,
                b'[' | b'{' if !string => depth += 1,
                b']' | b'}' if !string => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 {
                return Some(i);
            }
        }
        None
    }

    fn jsonish() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(
            prop_oneof![
                4 => proptest::sample::select(b"[]{}\"\\".to_vec()),
                6 => proptest::sample::select(b" a1,:\n;=[]".to_vec()),
                1 => any::<u8>(),
            ],
            0..300,
        )
    }

    macro_rules! for_each_level {
        ($run:ident) => {
            $run!(Portable);
            #[cfg(target_arch = "x86_64")]
            {
                $run!(x86::Sse2);
                if matches!(Level::detect(), Level::Avx2 | Level::Avx512) {
                    $run!(x86::Avx2);
                }
                if Level::detect() == Level::Avx512 {
                    $run!(avx512::Avx512);
                }
            }
            #[cfg(target_arch = "aarch64")]
            $run!(arm::Neon);
        };
    }

    proptest! {
        #[test]
        fn every_instruction_set_gives_the_same_masks(bytes in proptest::array::uniform32(any::<u8>()),
                                                       more in proptest::array::uniform32(proptest::sample::select(b"[]{}\"\\\n\x1f \x7f\xff".to_vec()))) {
            let mut block = [0; 64];
            block[..32].copy_from_slice(&bytes);
            block[32..].copy_from_slice(&more);
            let want = plain_masks(&block);
            macro_rules! check { ($b:ty) => { prop_assert_eq!(masks::<$b>(&block), want); } }
            for_each_level!(check);
        }

        #[test]
        fn brackets_are_skipped_as_byte_by_byte(bytes in jsonish()) {
            let want = plain_skip(&bytes, 0).map(|end| Skipped { end, has_brace: bytes[..end].contains(&b'{') });
            macro_rules! check { ($b:ty) => { prop_assert_eq!(skip_brackets::<$b>(&bytes, 0, 1, usize::MAX), want); } }
            for_each_level!(check);
        }

        #[test]
        fn a_string_stops_at_the_first_quote_backslash_or_control(bytes in jsonish(), from in 0usize..64) {
            let from = from.min(bytes.len());
            let want = bytes[from..].iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)).map_or(bytes.len(), |i| from + i);
            macro_rules! check { ($b:ty) => { prop_assert_eq!(find_string_stop::<$b>(&bytes, from), want); } }
            for_each_level!(check);
        }
    }
}
