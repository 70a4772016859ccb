//! CRC-32 as gzip uses it (RFC 1952, 8).

/// The generator polynomial, highest power in the lowest bit, x^32 left out.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Bytes that the portable code takes in one step.
const STEP: usize = 16;

/// `TABLES[n][b]`: what byte `b` followed by `n` zero bytes does to a remainder of zero.
static TABLES: [[u32; 256]; STEP] = {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[n - 1][byte];
            tables[n][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
};

/// The CRC-32 of what `crc` is the CRC-32 of, followed by `data`. That of nothing is 0.
pub(crate) fn crc32(crc: u32, data: &[u8]) -> u32 {
    !update(!crc, data)
}

/// The CRC-32 of data in two parts from those of the parts, of which the second has `len` bytes.
pub(crate) fn combine(first: u32, second: u32, len: usize) -> u32 {
    // As len zero bytes behind it would: a product with x^(8 len).
    let (mut moved, mut factor, mut rest) = (first, 1 << (31 - 8), len);
    while rest > 0 {
        if rest & 1 == 1 {
            moved = multiply(moved, factor);
        }
        factor = multiply(factor, factor);
        rest >>= 1;
    }
    moved ^ second
}

/// The product modulo the polynomial, highest powers in the lowest bits.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for power in 0..32 {
        product ^= b * ((a >> (31 - power)) & 1);
        b = (b >> 1) ^ (POLYNOMIAL * (b & 1));
    }
    product
}

/// Carries a remainder over `data`, in the fastest way that the processor has.
fn update(remainder: u32, data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() >= x86::WIDE_STEP {
        if is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for. Folding takes an
            // eighteenth of the time that table look-ups take.
            return unsafe { x86::fold_wide(remainder, data) };
        }
        if is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: as above; a ninth of the time.
            return unsafe { x86::fold(remainder, data) };
        }
    }
    portable(remainder, data)
}

/// Table look-ups that do not wait for one another, 16 bytes at a time.
fn portable(mut remainder: u32, data: &[u8]) -> u32 {
    let (steps, rest) = data.as_chunks::<STEP>();
    for step in steps {
        let mut bytes = *step;
        for (byte, old) in bytes.iter_mut().zip(remainder.to_le_bytes()) {
            *byte ^= old;
        }
        remainder = 0;
        for (table, byte) in TABLES.iter().rev().zip(bytes) {
            remainder ^= table[usize::from(byte)];
        }
    }
    for &byte in rest {
        remainder = (remainder >> 8) ^ TABLES[0][usize::from(remainder as u8 ^ byte)];
    }
    remainder
}

/// Folding: with carry-less products, a part of the data is replaced by one that stands further
/// on and has the same remainder, so that long data shrinks to 16 bytes. (Gopal et al., "Fast CRC
/// Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009.)
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_set_epi64x,
        _mm_unpackhi_epi64, _mm_xor_si128, _mm256_broadcastsi128_si256, _mm256_castsi128_si256, _mm256_castsi256_si128,
        _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_xor_si256,
        _mm256_zextsi128_si256,
    };

    use super::{POLYNOMIAL, portable};

    /// Registers that are folded side by side, to hide how long a product takes.
    const LANES: usize = 4;
    const STEP: usize = LANES * 16;
    /// Bytes that [`fold_wide`] takes in one step.
    pub(super) const WIDE_STEP: usize = LANES * 32;

    /// Factors that move 16 bytes on by `bits`: one for the half with the higher powers (stored
    /// first), one for the other.
    ///
    /// In the reversed bit order a product comes out one power too high and a factor of 32 bits
    /// stands 32 powers too high, which the exponents and the shift make up for.
    const fn factors(bits: u32) -> [i64; 2] {
        [(power(bits + 32) as i64) << 1, (power(bits - 32) as i64) << 1]
    }

    /// x^n modulo the polynomial, highest power in the lowest bit.
    const fn power(n: u32) -> u32 {
        let mut value = 1 << 31;
        let mut i = 0;
        while i < n {
            value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
            i += 1;
        }
        value
    }

    const BY_16: [i64; 2] = factors(8 * 16);
    const BY_STEP: [i64; 2] = factors(8 * STEP as u32);
    const BY_WIDE_STEP: [i64; 2] = factors(8 * WIDE_STEP as u32);

    #[target_feature(enable = "pclmulqdq")]
    fn move_on(data: __m128i, factors: __m128i, onto: __m128i) -> __m128i {
        let high = _mm_clmulepi64_si128::<0x00>(data, factors);
        let low = _mm_clmulepi64_si128::<0x11>(data, factors);
        _mm_xor_si128(_mm_xor_si128(high, low), onto)
    }

    #[target_feature(enable = "sse2")]
    fn load([low, high]: [i64; 2]) -> __m128i {
        _mm_set_epi64x(high, low)
    }

    #[target_feature(enable = "sse2")]
    fn load_bytes(bytes: &[u8; 16]) -> __m128i {
        let value = u128::from_le_bytes(*bytes);
        load([value as i64, (value >> 64) as i64])
    }

    /// The remainder of the data that `lanes`, 16 bytes each, stand for, and `rest` after it.
    #[target_feature(enable = "pclmulqdq")]
    fn finish(lanes: &[__m128i], rest: &[u8]) -> u32 {
        let (&first, others) = lanes.split_first().expect("there are lanes");
        let mut folded = first;
        for &lane in others {
            folded = move_on(folded, load(BY_16), lane);
        }
        let low = _mm_cvtsi128_si64(folded).to_le_bytes();
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(folded, folded)).to_le_bytes();
        portable(portable(portable(0, &low), &high), rest)
    }

    /// As [`portable`].
    #[target_feature(enable = "pclmulqdq")]
    pub(super) fn fold(remainder: u32, data: &[u8]) -> u32 {
        let (steps, rest) = data.as_chunks::<STEP>();
        let Some((first, steps)) = steps.split_first() else {
            return portable(remainder, rest);
        };
        let mut lanes = [load([0; 2]); LANES];
        for (lane, bytes) in lanes.iter_mut().zip(first.as_chunks().0) {
            *lane = load_bytes(bytes);
        }
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(remainder as i32));
        let factors = load(BY_STEP);
        for step in steps {
            for (lane, bytes) in lanes.iter_mut().zip(step.as_chunks().0) {
                *lane = move_on(*lane, factors, load_bytes(bytes));
            }
        }
        finish(&lanes, rest)
    }

    #[target_feature(enable = "vpclmulqdq,avx2")]
    fn move_on_wide(data: __m256i, factors: __m256i, onto: __m256i) -> __m256i {
        let high = _mm256_clmulepi64_epi128::<0x00>(data, factors);
        let low = _mm256_clmulepi64_epi128::<0x11>(data, factors);
        _mm256_xor_si256(_mm256_xor_si256(high, low), onto)
    }

    #[target_feature(enable = "avx2")]
    fn load_wide(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: an unaligned load of the 32 bytes. Without it, from four words, the compiler
        // makes three shuffles, and folding takes twice as long.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// As [`fold`], with two lanes in a register.
    #[target_feature(enable = "vpclmulqdq,pclmulqdq,avx2")]
    pub(super) fn fold_wide(remainder: u32, data: &[u8]) -> u32 {
        let (steps, rest) = data.as_chunks::<WIDE_STEP>();
        let Some((first, steps)) = steps.split_first() else {
            return portable(remainder, rest);
        };
        let mut lanes = [_mm256_castsi128_si256(load([0; 2])); LANES];
        for (lane, bytes) in lanes.iter_mut().zip(first.as_chunks().0) {
            *lane = load_wide(bytes);
        }
        let remainder = _mm256_zextsi128_si256(_mm_cvtsi32_si128(remainder as i32));
        lanes[0] = _mm256_xor_si256(lanes[0], remainder);
        let factors = _mm256_broadcastsi128_si256(load(BY_WIDE_STEP));
        for step in steps {
            for (lane, bytes) in lanes.iter_mut().zip(step.as_chunks().0) {
                *lane = move_on_wide(*lane, factors, load_wide(bytes));
            }
        }
        let mut halves = [load([0; 2]); 2 * LANES];
        for (pair, lane) in halves.as_chunks_mut::<2>().0.iter_mut().zip(lanes) {
            *pair = [_mm256_castsi256_si128(lane), _mm256_extracti128_si256::<1>(lane)];
        }
        finish(&halves, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data without pattern, from a fixed seed.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(0x915f_77f5).wrapping_add(1);
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// One bit after another: the definition.
    fn bitwise(data: &[u8]) -> u32 {
        let mut remainder = !0_u32;
        for &byte in data {
            remainder ^= u32::from(byte);
            for _ in 0..8 {
                remainder = (remainder >> 1) ^ (POLYNOMIAL * (remainder & 1));
            }
        }
        !remainder
    }

    /// The check value that catalogues of CRCs give for this one.
    #[test]
    fn the_check_value_is_right() {
        assert_eq!(crc32(0, b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(0, b""), 0);
    }

    /// Every way to compute it agrees with the definition, for lengths around all step sizes.
    #[test]
    fn all_ways_agree() {
        let data = noise(700);
        for len in 0..data.len() {
            let data = &data[..len];
            let expected = bitwise(data);
            assert_eq!(crc32(0, data), expected, "{len}");
            assert_eq!(!portable(!0, data), expected, "{len}");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("pclmulqdq") {
                // SAFETY: the processor has what the function is compiled for.
                assert_eq!(!unsafe { x86::fold(!0, data) }, expected, "{len}");
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has what the function is compiled for.
                assert_eq!(!unsafe { x86::fold_wide(!0, data) }, expected, "{len}");
            }
        }
    }

    /// Data may come in pieces.
    #[test]
    fn pieces_add_up() {
        let data = noise(1000);
        for cut in 0..=data.len() {
            let (head, tail) = data.split_at(cut);
            assert_eq!(crc32(crc32(0, head), tail), bitwise(&data), "{cut}");
            assert_eq!(combine(crc32(0, head), crc32(0, tail), tail.len()), bitwise(&data), "{cut}");
        }
    }
}
