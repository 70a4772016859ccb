//! Logs of lines: each with its place, decoded.

use crate::trace::{Diagnostics, Severity};
use std::borrow::Cow;

/// The lines of a log with the place of each, without spaces around them. What is no UTF-8 is decoded as U+FFFD and told.
pub(super) fn lines(bytes: &[u8], mut each: impl FnMut(u64, &str, &mut Diagnostics)) -> Diagnostics {
    let mut diagnostics = Diagnostics::default();
    let mut at = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    while at < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |found| at + found + 1);
        let (line, place) = (String::from_utf8_lossy(&bytes[at..end]), at as u64);
        if matches!(line, Cow::Owned(_)) {
            diagnostics.note("invalid-utf8", Severity::Warning, Some(place), || {
                "lines that are not UTF-8; decoded with replacement characters".into()
            });
        }
        each(place, line.trim(), &mut diagnostics);
        at = end;
    }
    diagnostics
}

/// The beginning of the first line of a log that holds anything, for messages.
pub(super) fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    text.trim_start_matches('\u{feff}').trim().lines().next().unwrap_or("nothing").chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_file_and_what_is_no_utf8_is_told_of_its_line() {
        let bytes = b"\xef\xbb\xbfa\n\xff\xffb \r\n\nc\xff";
        let mut seen = Vec::new();
        let odd = lines(bytes, |place, line, _| seen.push((place, line.to_owned())));
        let expected = [(3, "a"), (5, "\u{fffd}\u{fffd}b"), (11, ""), (12, "c\u{fffd}")];
        assert_eq!(seen, expected.map(|(place, line)| (place, line.to_owned())));
        let told = odd.get("invalid-utf8").unwrap();
        assert_eq!((told.count, told.first_offset), (2, Some(5)));
        assert_eq!(first_line(bytes), "a");
    }
}
