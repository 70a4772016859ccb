//! What the README and the page on CI show is what the binary does: each `console` block is run and its output compared.
//!
//! A line `$ tracetool ...` is a command; what follows up to the next one or the end of the block is its output. A line
//! `...` stands for any number of lines.

#![allow(clippy::unwrap_used, reason = "a broken README ends the test")]

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
