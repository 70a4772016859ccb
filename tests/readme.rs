//! What the README and the page on CI show is what the binary does: each `console` block is run and its output compared.
//!
//! A line `$ tracetool ...` is a command; what follows up to the next one or the end of the block is its output. A line
//! `...` stands for any number of lines.

#![allow(clippy::unwrap_used, reason = "a broken README ends the test")]

use regex::Regex;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

struct Shown {
    file: &'static str,
    command: String,
    output: Vec<String>,
}

fn shown(file: &'static str) -> Vec<Shown> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let mut all: Vec<Shown> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => all.push(Shown { file, command: command.to_owned(), output: Vec::new() }),
                None => all.last_mut().unwrap().output.push(line.trim_end().to_owned()),
            },
        }
    }
    all
}

/// Whether the lines are those of the pattern, in which `...` stands for any number of lines.
fn matches(pattern: &[String], lines: &[String]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == "..." => (0..=lines.len()).any(|skip| matches(rest, &lines[skip..])),
        Some((line, rest)) => lines.first() == Some(line) && matches(rest, &lines[1..]),
    }
}

#[test]
fn every_command_that_is_shown_gives_the_output_that_is_shown() {
    let all: Vec<Shown> = ["README.md", "docs/ci.md"].into_iter().flat_map(shown).collect();
    assert!(all.len() >= 5, "the README shows commands");
    for Shown { file, command, output } in all {
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("tracetool"), "{file}: {command}");
        let run = Command::new(env!("CARGO_BIN_EXE_tracetool"))
            .args(words)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let text = String::from_utf8(run.stdout).unwrap() + &String::from_utf8(run.stderr).unwrap();
        let lines: Vec<String> = text.lines().map(|l| l.trim_end().to_owned()).collect();
        assert!(matches(&output, &lines), "{file}: {command}\nshown:\n{}\n\nis:\n{text}", output.join("\n"));
    }
}

/// The codes of all diagnostics that the sources below a folder make: what stands before a severity.
fn codes(folder: &Path) -> BTreeSet<String> {
    let code = Regex::new(r#""([a-z0-9-]+)",\s*Severity::"#).unwrap();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(codes(&path));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code_of_the_program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        found.extend(code.captures_iter(code_of_the_program).map(|found| found[1].to_owned()));
    }
    found
}

#[test]
fn the_table_of_what_is_tolerated_has_every_code_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let table = readme.split("| in the file |").nth(1).unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|') || line.contains("| code |"));
    let cells: String = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next()).collect();
    let told: BTreeSet<String> = cells.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let mut made = BTreeSet::new();
    for part in ["input", "trace", "analysis", "report"] {
        made.extend(codes(&folder.join("src").join(part)));
    }
    assert!(made.len() > 30, "{made:?}");
    assert_eq!(told, made);
}
