//! Decoding tables for the prefix codes of a block.
//!
//! A table is indexed with the next bits of the stream. Codes longer than the index lead to a
//! second table, indexed with the bits that follow. An [`Entry`] says everything about a symbol,
//! its extra bits included, so that one lookup decodes it.

use super::Corrupt;

/// The longest code of the format, in bits.
const MAX_CODE_BITS: u32 = 15;
/// Bits that index the first literal/length table.
///
/// Traces take the same time with 10, 11 and 12: wider tables yield two literals more often, but
/// take longer to build.
pub(super) const LITLEN_BITS: u32 = 11;
/// Bits that index the first distance table.
pub(super) const DIST_BITS: u32 = 8;
/// Symbols of the literal/length code, two that must not occur included.
const LITLEN_SYMBOLS: usize = 288;
/// Symbols of the distance code, two that must not occur included.
const DIST_SYMBOLS: usize = 32;
/// Most literal/length codes that a block may declare.
pub(super) const MAX_LITLEN_CODES: usize = 286;
/// Most distance codes that a block may declare.
pub(super) const MAX_DIST_CODES: usize = 30;
/// The literal/length symbol that ends a block.
pub(super) const END_OF_BLOCK: usize = 256;

/// Second tables serve at least two symbols each (the code is complete), which bounds their
/// number; each has one entry for every way that the rest of the longest code can read.
const fn table_len(first_bits: u32, symbols: usize) -> usize {
    (1 << first_bits) + (symbols / 2) * (1 << (MAX_CODE_BITS - first_bits))
}

/// First table and second tables of the literal/length code.
pub(super) type LitLenTable = [Entry; table_len(LITLEN_BITS, LITLEN_SYMBOLS)];
/// First table and second tables of the distance code.
pub(super) type DistTable = [Entry; table_len(DIST_BITS, DIST_SYMBOLS)];

/// What to do on meeting a code.
///
/// | bits   | holds |
/// |--------|-------|
/// | 0..8   | bits to drop from the stream: the code and its extra bits |
/// | 8..12  | bits of the (first) code alone; or the bits that index the second table |
/// | 12     | there are two literals; for a special entry: it points to a second table |
/// | 13     | for a special entry: the block ends |
/// | 14     | special: neither literal nor length nor distance |
/// | 15     | literal |
/// | 16..32 | literals (first one lowest), or the base of a length or distance, or the index of a second table |
///
/// The numbers stand where the fast loop gets at them with one shift and no mask: a shift by a
/// number looks at its lowest six bits only, and above the bits of a length's or distance's code
/// there are two zeros.
#[derive(Clone, Copy)]
pub(super) struct Entry(u32);

impl Entry {
    const CODE_SHIFT: u32 = 8;
    const PAIR: u32 = 1 << 12;
    const SECOND: u32 = 1 << 12;
    const END: u32 = 1 << 13;
    const SPECIAL: u32 = 1 << 14;
    const LITERAL: u32 = 1 << 15;
    const VALUE_SHIFT: u32 = 16;

    const INVALID: Self = Self(Self::SPECIAL);

    /// Adds a code's length to a template that knows the symbol only.
    const fn with_code(self, bits: u32) -> Self {
        Self(self.0 + bits + (bits << Self::CODE_SHIFT))
    }

    const fn literal(byte: u8) -> Self {
        Self(Self::LITERAL | (byte as u32) << Self::VALUE_SHIFT)
    }

    const fn base(base: u16, extra_bits: u8) -> Self {
        Self((base as u32) << Self::VALUE_SHIFT | extra_bits as u32)
    }

    const fn second_table(first_bits: u32, index: usize, index_bits: u32) -> Self {
        Self(
            Self::SPECIAL
                | Self::SECOND
                | index_bits << Self::CODE_SHIFT
                | (index as u32) << Self::VALUE_SHIFT
                | first_bits,
        )
    }

    /// Two literals in one: `self` and then `next`.
    const fn pair(self, next: Self) -> Self {
        Self((self.0 + next.bits()) | Self::PAIR | next.value() << (Self::VALUE_SHIFT + 8))
    }

    /// Bits that the code and its extra bits take in the stream.
    #[inline(always)]
    pub(super) const fn bits(self) -> u32 {
        self.0 & 0x3f
    }

    /// A number whose lowest six bits are [`Self::bits`], for shifts and differences of which no
    /// more is used.
    #[inline(always)]
    pub(super) const fn loose_bits(self) -> u32 {
        self.0
    }

    /// Bits of the code without extra bits; for two literals, of the first.
    #[inline(always)]
    pub(super) const fn code_bits(self) -> u32 {
        (self.0 >> Self::CODE_SHIFT) & 0xf
    }

    #[inline(always)]
    pub(super) const fn is_literal(self) -> bool {
        self.0 & Self::LITERAL != 0
    }

    #[inline(always)]
    pub(super) const fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }

    #[inline(always)]
    pub(super) const fn is_end(self) -> bool {
        self.0 & (Self::SPECIAL | Self::END) == Self::SPECIAL | Self::END
    }

    /// Whether the rest of the code is to be looked up in a second table.
    #[inline(always)]
    pub(super) const fn leads_on(self) -> bool {
        self.0 & (Self::SPECIAL | Self::SECOND) == Self::SPECIAL | Self::SECOND
    }

    /// How many literals there are: 1 or 2.
    #[inline(always)]
    pub(super) const fn literals(self) -> usize {
        1 + (self.0 & Self::PAIR != 0) as usize
    }

    /// Literals, the first one lowest; or the base of a length or distance.
    #[inline(always)]
    pub(super) const fn value(self) -> u32 {
        self.0 >> Self::VALUE_SHIFT
    }

    /// The length or distance that this entry stands for, given the bits from its code on.
    #[inline(always)]
    pub(super) const fn with_extra(self, bits: u64) -> usize {
        let extra = (bits & ((1 << self.bits()) - 1)) >> (self.0 >> Self::CODE_SHIFT & 0x3f);
        self.value() as usize + extra as usize
    }

    /// The entry in the second table that `self`, met in `table`, leads to; `bits` start after
    /// what `self` drops. `self` if it leads nowhere.
    #[inline(always)]
    pub(super) fn follow(self, table: &[Self], bits: u64) -> Self {
        if !self.leads_on() {
            return self;
        }
        let index = bits as usize & ((1 << self.code_bits()) - 1);
        table[self.value() as usize + index]
    }
}

/// Entries of all literal/length symbols, before their codes are known.
const LITLEN_TEMPLATE: [Entry; LITLEN_SYMBOLS] = {
    let mut template = [Entry::INVALID; LITLEN_SYMBOLS];
    let mut byte = 0;
    while byte < 256 {
        template[byte] = Entry::literal(byte as u8);
        byte += 1;
    }
    template[END_OF_BLOCK] = Entry(Entry::SPECIAL | Entry::END);
    // RFC 1951, 3.2.5: after the first eight, four symbols share each number of extra bits.
    let mut base = 3;
    let mut i = 0;
    while i < 28 {
        let extra_bits = if i < 8 { 0 } else { i / 4 - 1 };
        template[257 + i] = Entry::base(base, extra_bits as u8);
        base += 1 << extra_bits;
        i += 1;
    }
    template[285] = Entry::base(258, 0);
    template
};

/// Entries of all distance symbols, before their codes are known.
const DIST_TEMPLATE: [Entry; DIST_SYMBOLS] = {
    let mut template = [Entry::INVALID; DIST_SYMBOLS];
    // RFC 1951, 3.2.5: after the first four, two symbols share each number of extra bits.
    let mut base = 1;
    let mut i = 0;
    while i < MAX_DIST_CODES {
        let extra_bits = if i < 4 { 0 } else { i / 2 - 1 };
        template[i] = Entry::base(base, extra_bits as u8);
        base = base.wrapping_add(1 << extra_bits);
        i += 1;
    }
    template
};

/// The tables of one block.
pub(super) struct Tables {
    pub(super) litlen: LitLenTable,
    pub(super) dist: DistTable,
}

impl Tables {
    pub(super) const fn new() -> Self {
        Self {
            litlen: [Entry::INVALID; table_len(LITLEN_BITS, LITLEN_SYMBOLS)],
            dist: [Entry::INVALID; table_len(DIST_BITS, DIST_SYMBOLS)],
        }
    }

    /// Tables of the code that blocks of type 1 use.
    pub(super) fn fixed() -> Self {
        let mut lengths = [8; LITLEN_SYMBOLS];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        let mut tables = Self::new();
        tables.build(&lengths, &[5; DIST_SYMBOLS]).expect("the fixed code is a complete code");
        tables
    }

    /// Makes the tables for codes of the given lengths (bits by symbol, 0: unused).
    pub(super) fn build(&mut self, litlen: &[u8], dist: &[u8]) -> Result<(), Corrupt> {
        build(&mut self.litlen, LITLEN_BITS, litlen, &LITLEN_TEMPLATE)?;
        pair_literals(&mut self.litlen);
        build(&mut self.dist, DIST_BITS, dist, &DIST_TEMPLATE)
    }
}

/// How many codes there are of each length.
type LengthCounts = [u16; MAX_CODE_BITS as usize + 1];

/// Counts code lengths; `false` if the code has gaps, an error if it is no prefix code.
fn count_lengths(lengths: &[u8]) -> Result<(LengthCounts, bool), Corrupt> {
    let mut counts = [0; MAX_CODE_BITS as usize + 1];
    for &length in lengths {
        counts[usize::from(length)] += 1;
    }
    let mut free = 1_i32;
    for &count in &counts[1..] {
        free = 2 * free - i32::from(count);
        if free < 0 {
            return Err(Corrupt::CodeLengths);
        }
    }
    Ok((counts, free == 0))
}

/// The canonical code `code` of `length` bits as it appears in the stream: first bit lowest.
#[inline]
fn reversed(code: u32, length: u32) -> usize {
    ((code as u16).reverse_bits() >> (16 - length)) as usize
}

/// Fills `table` for the canonical code with the given `lengths`.
///
/// Accepts a code with gaps where zlib does: none at all, or a single code of one bit. The gaps
/// then hold [`Entry::INVALID`].
fn build(table: &mut [Entry], first_bits: u32, lengths: &[u8], template: &[Entry]) -> Result<(), Corrupt> {
    let (mut counts, complete) = count_lengths(lengths)?;
    counts[0] = 0;
    let longest = counts.iter().rposition(|&count| count != 0).unwrap_or(0) as u32;
    if !complete {
        if longest > 1 {
            return Err(Corrupt::CodeLengths);
        }
        table[..2].fill(Entry::INVALID.with_code(1));
    }

    // Symbols in the order of their codes: by length, then by number.
    let mut next = [0_u16; MAX_CODE_BITS as usize + 2];
    for length in 1..=MAX_CODE_BITS as usize {
        next[length + 1] = next[length] + counts[length];
    }
    let mut sorted = [0_u16; LITLEN_SYMBOLS];
    for (symbol, &length) in lengths.iter().enumerate() {
        if length != 0 {
            let place = &mut next[usize::from(length)];
            sorted[usize::from(*place)] = symbol as u16;
            *place += 1;
        }
    }
    let mut symbols = sorted.iter().map(|&symbol| template[usize::from(symbol)]);

    // Codes of up to n bits repeat every 2^n entries: grow the table by copying it on itself.
    let mut code = 0;
    let mut size = 1;
    for length in 1..=first_bits {
        if length > 1 || complete {
            table.copy_within(..size, size);
        }
        size *= 2;
        let count = usize::from(counts[length as usize]);
        for template in symbols.by_ref().take(count) {
            table[reversed(code, length)] = template.with_code(length);
            code += 1;
        }
        code *= 2;
    }

    let second_bits = longest.saturating_sub(first_bits);
    let mut prefix = usize::MAX;
    let mut second = size;
    let mut end = size;
    for length in first_bits + 1..=longest {
        let rest = length - first_bits;
        let count = usize::from(counts[length as usize]);
        for template in symbols.by_ref().take(count) {
            let bits = reversed(code, length);
            if prefix != bits & (size - 1) {
                prefix = bits & (size - 1);
                second = end;
                end += 1 << second_bits;
                table[prefix] = Entry::second_table(first_bits, second, second_bits);
            }
            let entry = template.with_code(rest);
            for slot in table[second..end].iter_mut().skip(bits >> first_bits).step_by(1 << rest) {
                *slot = entry;
            }
            code += 1;
        }
        code *= 2;
    }
    Ok(())
}

/// Lets one lookup yield two literals where the codes of both fit the index.
fn pair_literals(table: &mut LitLenTable) {
    // From the top down: the entry of the second literal lies below that of the first, and must
    // still be the entry of one literal. (All zero bits are their own second literal.)
    for index in (0..1 << LITLEN_BITS).rev() {
        let first = table[index];
        if !first.is_literal() {
            continue;
        }
        let next = table[index >> first.bits()];
        if next.is_literal() && first.bits() + next.bits() <= LITLEN_BITS {
            table[index] = first.pair(next);
        }
    }
}

/// Bits that index the table of the code that code lengths are written in: its longest code.
pub(super) const LENGTH_CODE_BITS: u32 = 7;

/// The table of the code that code lengths are written in.
///
/// Each entry is a symbol (low five bits) and the length of its code (bits above).
pub(super) struct LengthCode([u8; 1 << LENGTH_CODE_BITS]);

impl LengthCode {
    /// Makes the table for codes of the given lengths (bits by symbol, 0: unused).
    pub(super) fn new(lengths: &[u8; 19]) -> Result<Self, Corrupt> {
        let (counts, complete) = count_lengths(lengths)?;
        if !complete {
            return Err(Corrupt::CodeLengths);
        }
        let mut table = [0; 1 << LENGTH_CODE_BITS];
        let mut code = 0;
        for length in 1..=LENGTH_CODE_BITS {
            if counts[length as usize] != 0 {
                for (symbol, _) in (0..).zip(lengths).filter(|&(_, &l)| u32::from(l) == length) {
                    let entry: u8 = symbol | (length as u8) << 5;
                    for slot in table[reversed(code, length)..].iter_mut().step_by(1 << length) {
                        *slot = entry;
                    }
                    code += 1;
                }
            }
            code *= 2;
        }
        Ok(Self(table))
    }

    /// Symbol and code length of the code that `bits` start with.
    #[inline]
    pub(super) fn look_up(&self, bits: u64) -> (u8, u32) {
        let entry = self.0[bits as usize & ((1 << LENGTH_CODE_BITS) - 1)];
        (entry & 31, u32::from(entry >> 5))
    }
}
