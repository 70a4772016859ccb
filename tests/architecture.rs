//! Data flows one way: every module may use only those before it. One crate does not hold that by itself; this does.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Each module with those that it may use besides itself; `*` is all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("error", &[]),
    ("trace", &["units", "error"]),
    ("input", &["units", "error", "trace"]),
    ("analysis", &["units", "error", "trace"]),
    ("report", &["units", "error", "trace", "analysis"]),
    ("render", &["units", "error", "trace", "analysis", "report"]),
    ("export", &["units", "error", "trace"]),
    ("cli", &["*"]),
    // The bin and the root of the library name what there is.
    ("main", &["*"]),
    ("lib", &["*"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The code without comments, strings and what is only compiled for tests: those may name anything.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let raw = ["r\"", "r#\"", "r##\"", "br\"", "br#\""].into_iter().find(|open| rest.starts_with(open));
        let after_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let (Some(open), false) = (raw, after_word) {
            let close = format!("\"{}", "#".repeat(open.matches('#').count()));
            rest[open.len()..].find(&close).map_or(rest.len(), |end| open.len() + end + close.len())
        } else if c == '"' {
            string_length(rest)
        } else if ["'\"'", "'\\\"'", "'\\''"].iter().any(|quote| rest.starts_with(quote)) {
            rest[1..].find('\'').map_or(1, |end| if rest.starts_with("'\\''") { 4 } else { end + 2 })
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    without_tests(&code)
}

fn string_length(rest: &str) -> usize {
    let mut escaped = true; // The opening quote does not close.
    for (i, c) in rest.char_indices() {
        match c {
            '"' if !escaped => return i + 1,
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    rest.len()
}

fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let open = rest.find(['{', ';']).unwrap_or(rest.len() - 1);
        let mut depth = 0usize;
        let end = rest[open..].char_indices().find_map(|(i, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ';' => {}
                _ => return None,
            }
            (depth == 0).then_some(open + i + 1)
        });
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    kept + rest
}

/// The words that follow `path` in the code: `crate::x`, and every `x` of `crate::{x, y}`.
fn used(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("crate::") {
        let before = rest[..at].chars().next_back();
        rest = &rest[at + "crate::".len()..];
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        match rest.strip_prefix('{') {
            Some(group) => used.extend(group_heads(group)),
            None => used.push(word(rest)),
        }
    }
    used
}

/// The first words of the members of a `{...}` in a path.
fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut start) = (0, Vec::new(), true);
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                heads.push(word(&group[i..]));
                start = false;
            }
            _ => {}
        }
    }
    heads
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// How many modules deep a file is: `src/trace/mod.rs` is 1, `src/trace/strings.rs` is 2.
fn depth(path: &Path) -> usize {
    let parts = path.components().count();
    if path.file_name().is_some_and(|name| name == "mod.rs") { parts - 1 } else { parts }
}

fn module_of(path: &Path) -> String {
    path.components().next().unwrap().as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// What in this code goes against the arrows.
fn violations(path: &Path, text: &str) -> Vec<String> {
    let (module, code) = (module_of(path), code_of(text));
    let Some((_, may)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{}: the module {module} is not in the table of this test", path.display())];
    };
    let allowed = |used: &str| {
        // `crate::Result` and `crate::Error` are the error module's.
        let used = if matches!(used, "Error" | "Result") { "error" } else { used };
        used == module || may.contains(&"*") || may.contains(&used)
    };
    let mut found: Vec<String> = used(&code)
        .into_iter()
        .filter(|name| !allowed(name))
        .map(|name| format!("{}: {module} uses {name}", path.display()))
        .collect();
    // A path that climbs to the root could reach anything unseen.
    if !may.contains(&"*") && climbs_out(&code, depth(path)) {
        found.push(format!("{}: super leaves the module {module}", path.display()));
    }
    found
}

/// Whether a `super::super::...` in a file this deep reaches the root; modules written out in the file add to the depth.
fn climbs_out(code: &str, depth: usize) -> bool {
    let mut modules: Vec<usize> = Vec::new();
    let mut braces = 0usize;
    let mut rest = code;
    while let Some(at) = rest.find(['{', '}', 's']) {
        let here = code.len() - rest.len() + at;
        rest = &rest[at..];
        let mut passed = 1;
        if rest.starts_with('{') {
            if code[..here].trim_end().rsplit(char::is_whitespace).nth(1) == Some("mod") {
                modules.push(braces);
            }
            braces += 1;
        } else if rest.starts_with('}') {
            braces = braces.saturating_sub(1);
            modules.pop_if(|opened| *opened == braces);
        } else if let climb @ 1.. = rest.len() - rest.trim_start_matches("super::").len() {
            if climb / "super::".len() >= depth + modules.len() {
                return true;
            }
            passed = climb;
        }
        rest = &rest[passed..];
    }
    false
}

#[test]
fn every_module_uses_only_those_before_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root);
    assert!(files.len() > 10, "the sources were not found");
    let found: Vec<String> = files
        .iter()
        .flat_map(|path| violations(path.strip_prefix(&root).unwrap(), &fs::read_to_string(path).unwrap()))
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_path_against_the_arrows_is_found_and_comments_strings_and_tests_are_not() {
    let found = |path: &str, text: &str| violations(Path::new(path), text).len();
    assert_eq!(found("analysis/x.rs", "use crate::report::Table;"), 1);
    assert_eq!(found("analysis/x.rs", "use crate::{units::Bytes, input::{self, read}, trace};"), 1);
    assert_eq!(found("analysis/x.rs", "fn f() { crate::cli::main() }"), 1);
    assert_eq!(found("analysis/x.rs", "use super::super::cli;"), 1);
    assert_eq!(found("analysis/mod.rs", "use super::cli;"), 1);
    assert_eq!(found("analysis/mod.rs", "mod inline { use super::peak; } fn f() {}"), 0);
    assert_eq!(found("analysis/mod.rs", "mod inline { use super::super::cli; }"), 1);
    assert_eq!(found("analysis/mod.rs", "mod inline { fn f() {} } use super::cli;"), 1);
    assert_eq!(found("analysis/deep/x.rs", "use super::super::averages;"), 0);
    assert_eq!(found("units.rs", "use crate::trace::Trace;"), 1);
    assert_eq!(found("unlisted/x.rs", ""), 1);
    assert_eq!(
        found("analysis/x.rs", "// crate::cli\n/* crate::cli */ const X: &str = \"crate::cli \\\" crate::cli\";"),
        0
    );
    assert_eq!(
        found("analysis/x.rs", "#[cfg(test)]\nmod tests { use crate::cli; fn f() { {} } }\nuse crate::trace::X;"),
        0
    );
    assert_eq!(found("analysis/x.rs", "#[cfg(test)]\nmod tests { fn f() {} }\nuse crate::cli;"), 1);
    assert_eq!(found("cli/x.rs", "use crate::input::x; use super::super::render;"), 0);
}
