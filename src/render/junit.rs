//! JUnit's XML, as CI systems show it: a suite for each trace, a test case for each limit. No times, no identifiers.

use super::Options;
use super::escape::visible;
use super::numbers;
use crate::error::{Error, Result};
use crate::report::{Case, CaseOutcome, Report, Sentence};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use std::io::{self, Write};

pub(super) fn render(report: &Report, _: &Options, out: &mut dyn Write) -> Result<()> {
    if report.cases.is_empty() {
        return Err(Error::usage(format!("{} checks nothing for --format junit", report.command)));
    }
    let mut document = quick_junit::Report::new("tracetool");
    // Cases of a suite stand together.
    for cases in report.cases.chunk_by(|a, b| a.suite == b.suite) {
        let mut suite = TestSuite::new(visible(&cases[0].suite).as_ref());
        suite.add_test_cases(cases.iter().map(test_case));
        document.add_test_suite(suite);
    }
    let text = document.to_string().map_err(|e| Error::from(io::Error::other(e)))?;
    Ok(out.write_all(text.as_bytes())?)
}

fn test_case(case: &Case) -> TestCase {
    let mut status = match case.outcome {
        CaseOutcome::Passed => TestCaseStatus::success(),
        CaseOutcome::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        CaseOutcome::Skipped => TestCaseStatus::skipped(),
    };
    if case.outcome != CaseOutcome::Passed {
        let lines: Vec<String> = [&case.message].into_iter().chain(&case.details).map(words).collect();
        status.set_message(words(&case.message));
        status.set_type("memory");
        status.set_description(lines.join("\n"));
    }
    let mut test = TestCase::new(words(&case.name), status);
    test.set_classname(visible(&case.suite).as_ref());
    test
}

fn words(sentence: &Sentence) -> String {
    visible(&numbers::sentence(sentence)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(text: &str) -> String {
        let case = |outcome| Case {
            suite: text.to_owned(),
            name: text.into(),
            outcome,
            message: text.into(),
            details: vec![text.into()],
        };
        let cases = [CaseOutcome::Passed, CaseOutcome::Failed, CaseOutcome::Skipped].map(case).to_vec();
        let mut out = Vec::new();
        render(&Report { command: "check", cases, ..Report::default() }, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(text in "[^\r]*") {
            let back = quick_junit::Report::deserialize_from_str(&rendered(&text)).unwrap();
            prop_assert_eq!((back.tests, back.failures), (3, 1));
            prop_assert_eq!(back.test_suites.len(), 1);
        }
    }
}
