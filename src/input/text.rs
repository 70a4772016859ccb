//! Text of JSON strings to text: escapes, and what exporters wrote where they should have escaped.

use std::borrow::Cow;

/// What had to be repaired in a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repairs {
    /// A backslash before a character that JSON does not let it stand before: it is kept, and so are all others.
    pub(super) bad_escape: bool,
    /// Bytes that are no UTF-8, replaced by U+FFFD.
    pub(super) bad_utf8: bool,
}

/// The text of the raw bytes between two quotes.
///
/// If one backslash is no escape of JSON, the exporter did not escape at all (`C:\new\Users`), and all backslashes of the
/// string stand for themselves.
pub(super) fn decode(raw: &[u8], escaped: bool) -> (Cow<'_, str>, Repairs) {
    let text = String::from_utf8_lossy(raw);
    let mut repairs = Repairs { bad_escape: false, bad_utf8: matches!(text, Cow::Owned(_)) };
    if !escaped {
        return (text, repairs);
    }
    match unescape(&text) {
        Some(plain) => (Cow::Owned(plain), repairs),
        None => {
            repairs.bad_escape = true;
            (text, repairs)
        }
    }
}

/// The text with its escapes resolved; `None` if one is wrong.
fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let mut following = rest[at + 1..].chars();
        let escape = following.next()?;
        rest = following.as_str();
        match escape {
            '"' | '\\' | '/' => plain.push(escape),
            'b' => plain.push('\u{8}'),
            'f' => plain.push('\u{c}'),
            'n' => plain.push('\n'),
            'r' => plain.push('\r'),
            't' => plain.push('\t'),
            'u' => {
                let (unit, after) = hex4(rest)?;
                rest = after;
                let low = rest.strip_prefix("\\u").and_then(hex4);
                match (unit, low) {
                    (0xd800..0xdc00, Some((low @ 0xdc00..0xe000, after))) => {
                        rest = after;
                        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                        plain.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    // Half a pair is no character.
                    _ => plain.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)),
                }
            }
            _ => return None,
        }
    }
    plain.push_str(rest);
    Some(plain)
}

/// The four hexadecimal digits at the start, and what follows.
fn hex4(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(raw: &[u8]) -> String {
        decode(raw, true).0.into_owned()
    }

    #[test]
    fn escapes_of_json_are_resolved() {
        assert_eq!(text(br#"a\"b\\c\/d\n\t\u00e9\ud83d\udd25"#), "a\"b\\c/d\n\té🔥");
        assert_eq!(text(br"\ud83d!"), "\u{fffd}!");
    }

    #[test]
    fn one_wrong_escape_shows_that_none_is_one() {
        let (path, repairs) = decode(br"torch\nn\utils\rnn.py", true);
        assert_eq!(path, r"torch\nn\utils\rnn.py");
        assert!(repairs.bad_escape);
        assert_eq!(text(br"C:\Users\new"), r"C:\Users\new");
        assert_eq!(text(br"ends\"), r"ends\");
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced_and_told() {
        let (text, repairs) = decode(b"a\xffb", false);
        assert_eq!(text, "a\u{fffd}b");
        assert!(repairs.bad_utf8);
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read_back(name in any::<String>()) {
            let json = serde_json::to_string(&name).unwrap();
            let raw = &json.as_bytes()[1..json.len() - 1];
            prop_assert_eq!(decode(raw, raw.contains(&b'\\')).0, name);
        }
    }
}
