//! Names come from strangers: what must not reach a terminal as it is, made visible.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character acts on a terminal or on the text around it instead of being seen: controls (C0, C1, delete),
/// line and paragraph separators, and those that change the direction of writing or are invisible.
pub(super) fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with every character that would act written out: `\n`, `\x1b`, `\u{202e}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        push_visible(&mut safe, c);
    }
    Cow::Owned(safe)
}

/// Adds one character, written out if it would act.
pub(super) fn push_visible(safe: &mut String, c: char) {
    match c {
        '\n' => safe.push_str("\\n"),
        '\r' => safe.push_str("\\r"),
        '\t' => safe.push_str("\\t"),
        c if !acts(c) => safe.push(c),
        c => {
            let code = u32::from(c);
            // Writing to a String does not fail.
            let _ = if code < 0x100 { write!(safe, "\\x{code:02x}") } else { write!(safe, "\\u{{{code:x}}}") };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn controls_and_direction_marks_are_written_out_and_the_rest_stands() {
        assert_eq!(visible("aten::mm"), "aten::mm");
        assert_eq!(visible("a\x1b[31mred\n\t"), "a\\x1b[31mred\\n\\t");
        assert_eq!(visible("\u{9b}31m\u{7f}"), "\\x9b31m\\x7f");
        assert_eq!(visible("abc\u{202e}cba"), "abc\\u{202e}cba");
        assert_eq!(visible("größe 算子"), "größe 算子");
    }

    proptest! {
        #[test]
        fn nothing_that_acts_is_left(text in any::<String>()) {
            prop_assert!(!visible(&text).chars().any(acts));
        }
    }
}
