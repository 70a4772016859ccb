//! Annotations of GitHub Actions: a workflow command on a line for each check that fails or could not be told.
//!
//! The runner reads every line that starts with `::` as a command, so text from a trace never starts a line, and what ends
//! a value is escaped as the runner's own toolkit does it. Lines for what passed are for people who read the log; in these
//! the older `##[command]`, which the runner finds anywhere in a line that is no command yet, is broken up.

use super::Options;
use super::escape::visible;
use super::numbers;
use crate::error::{Error, Result};
use crate::report::{Case, CaseOutcome, Report};
use std::io::Write;

pub(super) fn render(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    if report.cases.is_empty() {
        return Err(Error::usage(format!("{} checks nothing for --format github", report.command)));
    }
    for case in &report.cases {
        match case.outcome {
            CaseOutcome::Passed => {
                let line = format!("passed: {}: {}", visible(&case.suite), words(&case.name));
                writeln!(out, "{}", line.replace("##[", "## ["))?;
            }
            CaseOutcome::Failed => command("error", case, out)?,
            CaseOutcome::Skipped => command("notice", case, out)?,
        }
    }
    Ok(())
}

fn command(level: &str, case: &Case, out: &mut dyn Write) -> Result<()> {
    let title = format!("{}: {}", visible(&case.suite), words(&case.name));
    let lines: Vec<String> = [&case.message].into_iter().chain(&case.details).map(words).collect();
    Ok(writeln!(out, "::{level} title={}::{}", property(&title), data(&lines.join("\n")))?)
}

fn words(sentence: &crate::report::Sentence) -> String {
    visible(&numbers::sentence(sentence)).into_owned()
}

/// Text after the last `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Text of a property, which a comma or a colon would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(text: &str, outcome: CaseOutcome) -> String {
        let sentence = || crate::report::Sentence::from(text);
        let case =
            Case { suite: text.to_owned(), name: sentence(), outcome, message: sentence(), details: vec![sentence()] };
        let mut out = Vec::new();
        let report = Report { command: "check", cases: vec![case], ..Report::default() };
        render(&report, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_ends_a_value_is_escaped() {
        assert_eq!(
            rendered("a: 5%, b", CaseOutcome::Failed),
            "::error title=a%3A 5%25%2C b%3A a%3A 5%25%2C b::a: 5%25, b%0Aa: 5%25, b\n"
        );
        assert_eq!(rendered("::x\n", CaseOutcome::Passed), "passed: ::x\\n: ::x\\n\n");
        let older = rendered("###[stop-commands]x", CaseOutcome::Passed);
        assert!(older.contains("### [stop-commands]x") && !older.contains("##["), "{older}");
        let report = Report { command: "top", ..Report::default() };
        assert!(render(&report, &Options::default(), &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_one_line_that_is_our_command(text in any::<String>()) {
            let out = rendered(&text, CaseOutcome::Skipped);
            prop_assert_eq!(out.lines().count(), 1);
            let rest = out.strip_prefix("::notice title=").unwrap();
            prop_assert!(!rest.split("::").next().unwrap().contains([',', ':']));
        }
    }
}
