//! Numbers to words for people. Programs get the raw integers.

use crate::report::{Cell, Piece, Sentence};
use crate::units::{Bytes, Nanos};

/// What stands for a value that is not known.
pub const ABSENT: &str = "-";

/// A cell in words; text as it is.
pub fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Absent => ABSENT.to_owned(),
        Cell::Text(text) | Cell::Node { name: text, .. } => text.clone(),
        Cell::Number(n) => n.to_string(),
        Cell::Count(n) => count(*n),
        Cell::Bytes(n) => bytes(*n),
        Cell::BytesChange(n) => format!("{}{}", plus(n.0), bytes(*n)),
        Cell::CountChange(n) => format!("{}{}", sign(*n), count(n.unsigned_abs())),
        Cell::Nanos(n) => nanos(*n),
        Cell::Ratio(r) => ratio(*r),
        Cell::Flops(n) => flops(*n),
        Cell::Address(n) => format!("{n:#x}"),
    }
}

/// A sentence in words.
pub fn sentence(sentence: &Sentence) -> String {
    let words = |piece: &Piece| match piece {
        Piece::Words(words) => words.clone(),
        Piece::Number(number) => cell(number),
    };
    sentence.0.iter().map(words).collect()
}

/// The plus of what rises; what falls has its minus, and zero has neither.
fn plus(change: i64) -> &'static str {
    if change > 0 { "+" } else { "" }
}

fn sign(change: i64) -> &'static str {
    if change < 0 { "-" } else { plus(change) }
}

/// `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0 B`, `1.50 KiB`, `-2.04 GiB`: two decimals of the largest binary unit that leaves a whole part.
pub fn bytes(n: Bytes) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n.0.unsigned_abs() < 1024 {
        return format!("{n} B");
    }
    scaled(n.0, 1024.0, &UNITS, 2)
}

/// `0 ns`, `12.345 µs`, `1.532 ms`, `3.000 s`.
pub fn nanos(n: Nanos) -> String {
    const UNITS: [&str; 3] = ["µs", "ms", "s"];
    if n.0.unsigned_abs() < 1000 {
        return format!("{n} ns");
    }
    scaled(n.0, 1000.0, &UNITS, 3)
}

/// `12.5%`.
pub fn ratio(r: f64) -> String {
    if !r.is_finite() {
        return ABSENT.to_owned();
    }
    // No minus sign before a zero.
    let percent = (r * 1000.0).round() / 10.0 + 0.0;
    format!("{percent:.1}%")
}

/// `0`, `618.475 G`: floating point operations by powers of a thousand.
pub fn flops(n: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if n < 1000 {
        return n.to_string();
    }
    scaled(i64::try_from(n).unwrap_or(i64::MAX), 1000.0, &UNITS, 3)
}

/// The number in the largest of `units` (powers of `base`, from the first) that leaves a whole part once rounded.
fn scaled(n: i64, base: f64, units: &[&str], decimals: usize) -> String {
    let mut value = n as f64 / base;
    let mut unit = 0;
    let half_of_last_digit = 0.5 / 10f64.powi(decimals as i32);
    while value.abs() + half_of_last_digit >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    format!("{value:.decimals$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn sizes_take_the_largest_binary_unit_with_a_whole_part() {
        assert_eq!(bytes(Bytes(0)), "0 B");
        assert_eq!(bytes(Bytes(-1023)), "-1023 B");
        assert_eq!(bytes(Bytes(1536)), "1.50 KiB");
        assert_eq!(bytes(Bytes(1 << 30)), "1.00 GiB");
        assert_eq!(bytes(Bytes((1 << 30) - 1)), "1.00 GiB", "1024.00 MiB would be rounded up past its unit");
        assert_eq!(bytes(Bytes(i64::MIN)), "-8.00 EiB");
    }

    #[test]
    fn times_take_the_largest_unit_with_a_whole_part() {
        assert_eq!(nanos(Nanos(0)), "0 ns");
        assert_eq!(nanos(Nanos(999)), "999 ns");
        assert_eq!(nanos(Nanos(-1500)), "-1.500 µs");
        assert_eq!(nanos(Nanos(1_532_000)), "1.532 ms");
        assert_eq!(nanos(Nanos(999_999_999)), "1.000 s");
        assert_eq!(nanos(Nanos(90_000_000_000)), "90.000 s");
    }

    #[test]
    fn shares_are_percent_and_what_is_no_number_is_absent() {
        assert_eq!(ratio(0.125), "12.5%");
        assert_eq!(ratio(-0.0001), "0.0%");
        assert_eq!(ratio(f64::NAN), "-");
        assert_eq!(flops(618_475_291_000), "618.475 G");
    }
}
