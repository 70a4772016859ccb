//! What was skipped, repaired or odd in an input: counted, with the first place, never dropped silently.

use serde::Serialize;

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is lost.
    Info,
    /// Something was repaired or is odd; the numbers stand.
    Warning,
    /// Data was lost: with `--strict` the command fails.
    Loss,
}

/// One kind of oddity, with how often and where it was first met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// A stable word for programs, such as `broken-event`.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// How often it occurred.
    pub count: u64,
    /// A sentence for people.
    pub message: String,
    /// The first byte of the (inflated) input where it occurred, where that is known.
    pub first_offset: Option<u64>,
}

/// The diagnostics of an input, one entry a code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Counts one more of `code`; the message and the place of the first stand.
    pub fn note(
        &mut self,
        code: &'static str,
        severity: Severity,
        offset: Option<u64>,
        message: impl FnOnce() -> String,
    ) {
        self.note_many(code, severity, 1, offset, message);
    }

    /// Counts `count` more of `code`, which may be none.
    pub fn note_many(
        &mut self,
        code: &'static str,
        severity: Severity,
        count: u64,
        offset: Option<u64>,
        message: impl FnOnce() -> String,
    ) {
        if count == 0 {
            return;
        }
        match self.0.iter_mut().find(|d| d.code == code) {
            Some(known) => {
                known.count += count;
                known.first_offset = match (known.first_offset, offset) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            None => self.0.push(Diagnostic { code, severity, count, message: message(), first_offset: offset }),
        }
    }

    /// Adds all of `other`, whose places are later in the file.
    pub fn append(&mut self, other: Self) {
        for new in other.0 {
            match self.0.iter_mut().find(|d| d.code == new.code) {
                Some(known) => {
                    known.count += new.count;
                    known.first_offset = known.first_offset.or(new.first_offset);
                }
                None => self.0.push(new),
            }
        }
    }

    /// All entries, in the order of their first occurrence.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// The entry of this code.
    pub fn get(&self, code: &str) -> Option<&Diagnostic> {
        self.0.iter().find(|d| d.code == code)
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether data was lost.
    pub fn lost_data(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_and_message_stand_and_counts_add_up() {
        let mut a = Diagnostics::default();
        a.note("x", Severity::Warning, Some(10), || "first".into());
        a.note("x", Severity::Warning, Some(20), || "second".into());
        let mut b = Diagnostics::default();
        b.note("x", Severity::Warning, Some(30), || "third".into());
        b.note("y", Severity::Loss, None, || "other".into());
        a.append(b);
        let x = a.get("x").unwrap();
        assert_eq!((x.count, x.message.as_str(), x.first_offset), (3, "first", Some(10)));
        assert!(a.lost_data());
    }
}
