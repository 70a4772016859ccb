//! Text that is nearly JSON as JSON, by an independent reader of the kind that Python's `json.loads(strict=False)` is: only
//! what can be meant in one way is accepted.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// The JSON that is meant: superfluous and missing commas between elements mended, control characters in strings escaped,
/// zeros before numbers dropped, bare words and numbers that are none `null`, bytes that are no UTF-8 replaced. `None`
/// where the structure is broken.
pub fn normalised(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader { rest: &text, json: String::new() };
    reader.value()?;
    reader.space();
    reader.rest.is_empty().then_some(reader.json)
}

struct Reader<'a> {
    rest: &'a str,
    json: String,
}

impl Reader<'_> {
    fn next(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Takes over what matches.
    fn copy(&mut self, matches: impl FnMut(char) -> bool) -> usize {
        let end = self.rest.find({
            let mut matches = matches;
            move |c| !matches(c)
        });
        let (taken, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.json.push_str(taken);
        self.rest = rest;
        taken.len()
    }

    fn space(&mut self) {
        self.copy(|c| matches!(c, ' ' | '\n' | '\r' | '\t'));
    }

    fn take(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(c)?;
        self.json.push(c);
        Some(())
    }

    fn value(&mut self) -> Option<()> {
        self.space();
        match self.next()? {
            '{' => self.list('{', '}', |reader| {
                reader.string()?;
                reader.space();
                reader.take(':')?;
                reader.value()
            }),
            '[' => self.list('[', ']', Self::value),
            '"' => self.string(),
            _ => self.word(),
        }
    }

    fn list(&mut self, open: char, close: char, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(open)?;
        let mut first = true;
        loop {
            let mut comma = None;
            loop {
                self.space();
                let Some(rest) = self.rest.strip_prefix(',') else { break };
                self.rest = rest;
                comma.get_or_insert(self.json.len());
            }
            if self.next()? == close {
                return self.take(close);
            }
            // Members of an object need their comma: without one a quote may have been lost.
            if !first && comma.is_none() && open == '{' {
                return None;
            }
            if !first {
                self.json.insert(comma.unwrap_or(self.json.len()), ',');
            }
            element(self)?;
            first = false;
        }
    }

    fn string(&mut self) -> Option<()> {
        self.take('"')?;
        loop {
            match self.next()? {
                '"' => return self.take('"'),
                '\\' => {
                    let escape = self.rest[1..].chars().next()?;
                    let whole = match escape {
                        'u' => self.rest.get(2..6).is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit())),
                        _ => "\"\\/bfnrt".contains(escape),
                    };
                    self.json.push_str(if whole { "\\" } else { "\\\\" });
                    self.rest = &self.rest[1..];
                    if whole {
                        self.json.push(escape);
                        self.rest = &self.rest[1..];
                    }
                }
                c if c < ' ' => {
                    self.json.push_str(&format!("\\u{:04x}", u32::from(c)));
                    self.rest = &self.rest[1..];
                }
                _ => drop(self.copy(|c| c >= ' ' && c != '"' && c != '\\')),
            }
        }
    }

    fn word(&mut self) -> Option<()> {
        let end = self.rest.find([',', '}', ']', '"', '{', '[', ' ', '\n', '\r', '\t'])?;
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() || word.contains(':') {
            return None;
        }
        self.rest = rest;
        let (sign, digits) = word.strip_prefix('-').map_or(("", word), |digits| ("-", digits));
        let zeros = digits.len() - digits.trim_start_matches('0').len();
        let needed = usize::from(zeros > 0 && !digits[zeros..].starts_with(|c: char| c.is_ascii_digit()));
        let zero = if digits.starts_with('.') { "0" } else { "" };
        let plain = format!("{sign}{zero}{}", &digits[zeros - needed..]);
        let known = serde_json::from_str::<serde_json::Value>(&plain).is_ok();
        self.json.push_str(if known { &plain } else { "null" });
        Some(())
    }
}

/// Whether an object of this JSON, at any depth, has a key twice.
pub fn repeats_keys(json: &str) -> bool {
    serde_json::from_str::<Keys>(json).is_ok_and(|keys| keys.repeated)
}

/// Whether a value has a key twice.
#[derive(Clone, Copy)]
struct Keys {
    repeated: bool,
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let (mut seen, mut repeated) = (BTreeSet::new(), false);
        while let Some((key, value)) = map.next_entry::<String, Keys>()? {
            repeated |= value.repeated | !seen.insert(key);
        }
        Ok(Keys { repeated })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Keys, A::Error> {
        let mut repeated = false;
        while let Some(element) = elements.next_element::<Keys>()? {
            repeated |= element.repeated;
        }
        Ok(Keys { repeated })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Keys, E> {
        Ok(Keys { repeated: false })
    }

    fn visit_i64<E>(self, _: i64) -> Result<Keys, E> {
        Ok(Keys { repeated: false })
    }

    fn visit_u64<E>(self, _: u64) -> Result<Keys, E> {
        Ok(Keys { repeated: false })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Keys, E> {
        Ok(Keys { repeated: false })
    }

    fn visit_str<E>(self, _: &str) -> Result<Keys, E> {
        Ok(Keys { repeated: false })
    }

    fn visit_unit<E>(self) -> Result<Keys, E> {
        Ok(Keys { repeated: false })
    }
}
