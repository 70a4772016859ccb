//! Integer units: nanoseconds and bytes.
//!
//! Every time in tracetool is a whole number of nanoseconds and every size a whole number of bytes, from the digits in
//! the file to the last step before printing. Nothing here formats for people: that is `render`'s work.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

/// A point in time or a duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

/// A size or a change of size, in bytes. Negative where memory was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub i64);

macro_rules! arithmetic {
    ($unit:ident) => {
        // Saturating: a hostile file can hold any 64-bit number, and a wrong sum must not become a panic.
        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl Sub for $unit {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Neg for $unit {
            type Output = Self;
            fn neg(self) -> Self {
                Self(self.0.saturating_neg())
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl Sum for $unit {
            fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
                parts.fold(Self(0), Add::add)
            }
        }
        impl $unit {
            /// Nothing.
            pub const ZERO: Self = Self(0);
            /// Whether this is zero.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }
        impl fmt::Display for $unit {
            /// The bare integer.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}
arithmetic!(Nanos);
arithmetic!(Bytes);

impl Nanos {
    /// Microseconds written in decimal (`5235886548712.898`) as exact nanoseconds.
    ///
    /// Never goes through a float: absolute stamps have 19 digits and a double holds 15. Digits after the third decimal
    /// are rounded half to even. An exponent (`1.6e15`) is accepted. `None` for anything else, or out of range.
    pub fn from_micros(text: &[u8]) -> Option<Self> {
        let (negative, digits) = match text.first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let mut value: u64 = 0;
        let mut i = 0;
        while let Some(d) = digits.get(i).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            value = value.checked_mul(10)?.checked_add(u64::from(d))?;
            i += 1;
        }
        let whole = i;
        if digits.get(i) == Some(&b'.') {
            i += 1;
        }
        let fraction = &digits[i..];
        let kept = fraction.iter().take(3).take_while(|b| b.is_ascii_digit()).count();
        if whole + kept == 0 {
            return None;
        }
        if kept == fraction.len() {
            for digit in fraction.iter().chain(b"000").take(3) {
                value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            }
            let value = i64::try_from(value).ok()?;
            return Some(Self(if negative { -value } else { value }));
        }
        Self::from_micros_general(negative, digits)
    }

    /// The rare spellings: more than three decimals, or an exponent.
    fn from_micros_general(negative: bool, digits: &[u8]) -> Option<Self> {
        let (mantissa, exponent) = match digits.iter().position(|b| matches!(b, b'e' | b'E')) {
            Some(at) => (&digits[..at], std::str::from_utf8(&digits[at + 1..]).ok()?.parse::<i32>().ok()?),
            None => (digits, 0),
        };
        let (whole, fraction) = match mantissa.iter().position(|b| *b == b'.') {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
            return None;
        }
        let all: Vec<u8> = whole.iter().chain(fraction).map(|b| b - b'0').skip_while(|d| *d == 0).collect();
        // Position of the unit nanosecond, counted from the first significant digit.
        let dropped_zeros = (whole.len() + fraction.len()).checked_sub(all.len())?;
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(dropped_zeros).ok()? + i64::from(exponent) + 3;
        if point > 20 {
            return all.is_empty().then_some(Self(0));
        }
        let point = usize::try_from(point.max(-1)).unwrap_or(usize::MAX);
        if point == usize::MAX {
            return Some(Self(0));
        }
        let digit = |i: usize| all.get(i).copied().unwrap_or(0);
        let mut value: i128 = 0;
        for i in 0..point {
            value = value * 10 + i128::from(digit(i));
        }
        let tail = all.get(point + 1..).is_some_and(|t| t.iter().any(|d| *d != 0));
        let round_up = match digit(point) {
            0..5 => false,
            5 => tail || value % 2 == 1,
            _ => true,
        };
        let value = i64::try_from(value + i128::from(round_up)).ok()?;
        Some(Self(if negative { -value } else { value }))
    }
}

impl FromStr for Bytes {
    type Err = String;

    /// Reads a size as people write it: `1000`, `500MiB`, `1.5 GiB`, `2GB` (powers of 1024 with `i` or one letter, of
    /// 1000 without). What is less than a byte is cut off.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].to_ascii_lowercase();
        let factor: i128 = match unit.as_str() {
            "" | "b" => 1,
            "kb" => 1000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(format!("{unit:?} is no unit of bytes; expected such as 500MiB or 2GB")),
        };
        let number =
            millionths(digits.trim()).ok_or_else(|| format!("{text:?} is no size; expected such as 500MiB"))?;
        let bytes = number * factor / 1_000_000;
        i64::try_from(bytes).map(Self).map_err(|_| format!("{text:?} is more than 8 EiB"))
    }
}

/// A decimal number without sign (`2`, `12.5`) in whole millionths; further digits are cut off. `None` for anything else,
/// or out of range.
pub fn millionths(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    // No 64-bit number has more digits.
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    let digits = fraction.bytes().chain(*b"000000").take(6);
    let millionths = digits.fold(0, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    Some(whole * 1_000_000 + millionths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Bytes>().map(|b| b.0);
        assert_eq!(read("1000"), Ok(1000));
        assert_eq!(read("2GiB"), Ok(2 << 30));
        assert_eq!(read("1.5 GiB"), Ok(3 << 29));
        assert_eq!(read(" 3 MB "), Ok(3_000_000));
        assert_eq!(read("0.5k"), Ok(512));
        for text in ["", "MiB", "-1", "1.2.3", "2 parsecs", "99999999999TiB", "1e3", "+1", "."] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(millionths("12.3456789"), Some(12_345_678));
    }

    fn micros(text: &str) -> Option<i64> {
        Nanos::from_micros(text.as_bytes()).map(|n| n.0)
    }

    #[test]
    fn microseconds_become_nanoseconds_digit_by_digit() {
        assert_eq!(micros("5235886548712.898"), Some(5_235_886_548_712_898));
        assert_eq!(micros("1790857026000000.001"), Some(1_790_857_026_000_000_001));
        assert_eq!(micros("7"), Some(7_000));
        assert_eq!(micros("0.5"), Some(500));
        assert_eq!(micros("-1.25"), Some(-1_250));
        assert_eq!(micros(".5"), Some(500));
        assert_eq!(micros("5."), Some(5_000));
    }

    #[test]
    fn further_digits_round_half_to_even_and_exponents_are_read() {
        assert_eq!(micros("0.0005"), Some(0));
        assert_eq!(micros("0.0015"), Some(2));
        assert_eq!(micros("0.00051"), Some(1));
        assert_eq!(micros("1.6e15"), Some(1_600_000_000_000_000_000));
        assert_eq!(micros("12E-1"), Some(1_200));
        assert_eq!(micros("1e-30"), Some(0));
        assert_eq!(micros("0e99"), Some(0));
    }

    #[test]
    fn what_is_no_number_or_out_of_range_is_none() {
        for text in ["", "-", ".", "NaN", "inf", "1.2.3", "0x10", "1e", "99999999999999999999", "9e18", "1 "] {
            assert_eq!(micros(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printed_nanoseconds_are_read_back(n in -4_000_000_000_000_000_000i64..4_000_000_000_000_000_000) {
            let text = format!("{}{}.{:03}", if n < 0 { "-" } else { "" }, (n / 1000).abs(), (n % 1000).abs());
            prop_assert_eq!(micros(&text), Some(n));
        }

        #[test]
        fn any_bytes_are_a_number_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Nanos::from_micros(&bytes);
        }
    }
}
