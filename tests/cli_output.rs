//! Writing when it cannot be done: a full disk, a closed pipe, a missing folder, a target that is not ours, Ctrl-C. The
//! message is one line, the old file stands, nothing half written is left.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a broken fixture ends the test")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const TRACE: &str = "testdata/gpt_naive.pt.trace.json.gz";

/// Commands of much output, as a user would run them.
const COMMANDS: [&[&str]; 9] = [
    &["top", TRACE, "--limit", "-1", "--group-by-input-shape"],
    &["peak", TRACE, "--limit", "-1"],
    &["blocks", TRACE, "--limit", "-1"],
    &["steps", "testdata/leak.pt.trace.json.gz"],
    &["summary", TRACE],
    &["tree", TRACE, "--limit", "-1"],
    &["flamegraph", TRACE, "--limit", "-1"],
    &["lines", "testdata/gpt_stack.pt.trace.json.gz", "--file", "*", "--limit", "-1"],
    &["timeline", TRACE, "--format", "csv"],
];

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tracetool"));
    command.args(args).stdin(Stdio::null());
    command
}

/// What is said of a failure: one line.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("tracetool: error: "), "{text}");
    text
}

/// A folder with an older result in it.
fn with_old_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.csv");
    fs::write(&file, "old").unwrap();
    (folder, file)
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_full_disk_is_said_on_standard_output_and_in_a_device() {
    if !Path::new("/dev/full").exists() {
        return eprintln!("skipped: there is no /dev/full");
    }
    for args in COMMANDS {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let error = complaint(&command(args).stdout(full).output().unwrap());
        assert!(error.contains("standard output: cannot write: No space left"), "{args:?}: {error}");
    }
    let error = complaint(&command(&["top", TRACE, "-o", "/dev/full"]).output().unwrap());
    assert!(error.contains("/dev/full: cannot write: No space left"), "{error}");
}

#[test]
fn where_a_file_cannot_be_written_to_its_end_the_old_one_stands() {
    let (folder, file) = with_old_file();
    // A limit on the size of files fails a write in its middle, as a disk does that fills up.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_tracetool"), "blocks", TRACE, "--limit", "-1", "-o"])
        .arg(&file)
        .output()
        .unwrap();
    let error = complaint(&output);
    assert!(error.contains("out.csv: cannot write"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    assert_eq!(names(folder.path()), ["out.csv"]);
}

#[test]
fn a_closed_pipe_is_no_error_of_any_command() {
    for args in COMMANDS {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("error"), "{args:?}: {output:?}");
    }
}

#[test]
fn closed_standard_streams_are_survived() {
    for redirection in ["2>&-", ">&- 2>&-", "<&-"] {
        let script = format!("exec \"$@\" {redirection}");
        let output = Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_tracetool"), "top", TRACE])
            .output()
            .unwrap();
        assert!(output.status.code().is_some_and(|code| code == 0 || code == 2), "{redirection}: {output:?}");
    }
}

#[test]
fn a_missing_folder_is_said_before_the_trace_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("no/out.csv");
    for args in COMMANDS {
        let error = complaint(&command(args).arg("-o").arg(&target).output().unwrap());
        assert!(error.contains("there is no folder"), "{args:?}: {error}");
    }
    let error = complaint(&command(&["top", "missing.json", "-o"]).arg(&target).output().unwrap());
    assert!(error.contains("there is no folder"), "{error}");
    assert!(names(folder.path()).is_empty());
}

/// As a user who may not write everywhere: tests often run as root, whom no permission stops.
fn as_a_user(command: &mut Command) -> &mut Command {
    const NOBODY: u32 = 65534;
    let probe = tempfile::tempdir().unwrap();
    fs::set_permissions(probe.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(probe.path().join("probe"), "").is_ok() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

#[test]
fn a_target_that_is_not_ours_is_said_and_stands() {
    let (folder, file) = with_old_file();
    let new = folder.path().join("new.csv");
    // A file that is read-only in a folder that is not; then a folder that is read-only.
    for (file_mode, folder_mode, target) in [(0o444, 0o777, &file), (0o666, 0o555, &new), (0o666, 0o555, &file)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(file_mode)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(folder_mode)).unwrap();
        let trace = fs::File::open(TRACE).unwrap();
        let mut command = command(&["top", "-", "-o"]);
        let output = match as_a_user(command.arg(target).stdin(trace)).output() {
            Ok(output) => output,
            Err(error) => return eprintln!("skipped: the binary cannot be run as another user ({error})"),
        };
        let error = complaint(&output);
        assert!(error.contains("cannot write: Permission denied"), "{error}");
        assert!(error.contains(target.file_name().unwrap().to_str().unwrap()), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(names(folder.path()), ["out.csv"]);
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
}

/// A shell that sends `signal` to a process at the moment it is told to.
fn armed(signal: &str, pid: u32) -> Child {
    let script = format!("read now; kill -{signal} {pid} 2>/dev/null; true");
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
fn interrupted_while_writing_nothing_half_written_is_left() {
    let whole = command(&["blocks", TRACE, "--limit", "-1", "--format", "json"]).output().unwrap().stdout;
    let mut interrupted = 0;
    for (attempt, signal) in ["INT", "TERM"].into_iter().cycle().enumerate().take(24) {
        let (folder, file) = with_old_file();
        let mut child = command(&["blocks", TRACE, "--limit", "-1", "--format", "json", "-o"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut shell = armed(signal, child.id());
        // As soon as a file stands beside the target, or a little later.
        while child.try_wait().unwrap().is_none() && names(folder.path()).len() < 2 {}
        for _ in 0..attempt * 1000 {
            std::hint::spin_loop();
        }
        // The shell is gone if the process was faster.
        let _ = shell.stdin.take().unwrap().write_all(b"now\n");
        let status = child.wait().unwrap();
        shell.wait().unwrap();
        assert_eq!(names(folder.path()), ["out.csv"], "{status}");
        let written = fs::read(&file).unwrap();
        if status.success() {
            assert_eq!(written, whole);
        } else {
            assert!(written == b"old" || written == whole);
            interrupted += 1;
        }
    }
    eprintln!("{interrupted} of 24 were interrupted while writing");
}
