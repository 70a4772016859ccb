//! The bit buffer: DEFLATE packs its codes from the least significant bit of each byte up.

/// Reads bits from a slice that may be only the part of the stream that has come so far.
///
/// A copy is a place to return to: whoever finds the input too short for what it wants to read
/// puts the copy back and asks for more input.
#[derive(Clone, Copy)]
pub(super) struct BitReader<'a> {
    pub(super) input: &'a [u8],
    /// Index of the first byte of `input` that is not counted in `count`.
    pub(super) pos: usize,
    /// The next bits, lowest first. Bits from `count` up are either zero or what `input` holds
    /// there, so that a refill may OR the same bytes in again.
    pub(super) bits: u64,
    /// How many of `bits` may be used; at most 63.
    pub(super) count: u32,
}

impl BitReader<'_> {
    /// Brings in whole bytes until at least 56 bits are there or the input is used up.
    #[inline]
    pub(super) fn refill(&mut self) {
        if let Some(word) = self.input[self.pos..].first_chunk::<8>() {
            self.bits |= u64::from_le_bytes(*word) << self.count;
            self.pos += ((63 - self.count) >> 3) as usize;
            self.count |= 56;
        } else {
            while self.count < 56 && self.pos < self.input.len() {
                self.bits |= u64::from(self.input[self.pos]) << self.count;
                self.pos += 1;
                self.count += 8;
            }
        }
    }

    /// Drops `n` bits that the caller knows to be there.
    #[inline]
    pub(super) fn consume(&mut self, n: u32) {
        self.bits >>= n;
        self.count -= n;
    }

    /// Takes `n` bits, at most 32; `None` if the input ends before.
    #[inline]
    pub(super) fn take(&mut self, n: u32) -> Option<u32> {
        if self.count < n {
            self.refill();
            if self.count < n {
                return None;
            }
        }
        let value = self.bits & ((1 << n) - 1);
        self.consume(n);
        Some(value as u32)
    }

    /// Returns whole unused bytes to the input, so that fewer than 8 bits stay here.
    pub(super) fn give_back(&mut self) {
        self.pos -= (self.count >> 3) as usize;
        self.count &= 7;
        self.bits &= (1 << self.count) - 1;
    }

    /// Drops the bits up to the next byte boundary.
    pub(super) fn align(&mut self) {
        self.give_back();
        self.bits = 0;
        self.count = 0;
    }
}
