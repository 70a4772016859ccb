//! The arguments of every command that writes a report, and the writing: a file whole or not at all.
//!
//! A report is rendered in memory first, so a file is only touched when all of it is there. It is then written beside
//! its place under another name and renamed, so an interrupted run leaves the old file or the new one and nothing
//! beside.

use super::interrupt;
use crate::error::{Error, ErrorKind, Result};
use crate::render::{FORMATS, Format, Options};
use crate::report::Report;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// How to write, and where.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// How to write [default: what the name of the output file ends in tells, else table]
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    format: Option<String>,
    #[command(flatten)]
    destination: Destination,
    /// Show only these columns after the name, by their names in CSV: self_cuda_memory_usage,count
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Width of tables for people, in characters [default: the terminal's, or 100], and of pictures, in pixels
    #[arg(long, value_name = "N")]
    width: Option<u16>,
    /// Whether to use colours; auto does on a terminal where NO_COLOR is not set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    color: When,
}

/// Where to write.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct Destination {
    /// Write to this file, whole or not at all; - for standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl Destination {
    /// Says before the work what would fail after it.
    pub(super) fn check(&self) -> Result<()> {
        self.file().map_or(Ok(()), check_file)
    }

    /// Writes all of it, or nothing.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<()> {
        match self.file() {
            Some(path) => replace_file(path, bytes),
            None => write_stdout(bytes),
        }
    }

    /// The file to write to; `None` for standard output.
    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|p| *p != Path::new("-") && *p != Path::new("/dev/stdout"))
    }
}

/// Says before the work whether a file could not be written after it.
pub(super) fn check_file(path: &Path) -> Result<()> {
    check_place(path).map_err(|e| cannot_write(e, path))
}

/// Writes a file whole or not at all.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    write_file(path, bytes).map_err(|e| cannot_write(e, path))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

fn formats() -> PossibleValuesParser {
    FORMATS.iter().map(|f| clap::builder::PossibleValue::new(f.name).help(f.help)).collect::<Vec<_>>().into()
}

impl OutputArgs {
    /// The name of the format.
    pub(super) fn format(&self) -> &str {
        let by_file = || self.file().and_then(Format::of_file).map(|f| f.name);
        self.format.as_deref().or_else(by_file).unwrap_or(FORMATS[0].name)
    }

    /// The width that was asked for.
    pub(super) fn width(&self) -> Option<u32> {
        self.width.map(u32::from)
    }

    /// Says before the work what would fail after it.
    pub(super) fn check(&self) -> Result<()> {
        self.destination.check()
    }

    /// Writes the report.
    pub(super) fn write(&self, report: &mut Report) -> Result<()> {
        if !self.columns.is_empty() {
            report.select_columns(&self.columns)?;
        }
        let format = Format::find(self.format()).unwrap_or(FORMATS[0]);
        let mut bytes = Vec::new();
        format.render(report, &self.options(), &mut bytes)?;
        self.destination.write(&bytes)
    }

    /// The file to write to; `None` for standard output.
    fn file(&self) -> Option<&Path> {
        self.destination.file()
    }

    fn options(&self) -> Options {
        let on_terminal = self.file().is_none() && io::stdout().is_terminal();
        let defaults = Options::default();
        let terminal = || on_terminal.then(terminal_size::terminal_size).flatten().map(|(w, _)| usize::from(w.0));
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Options {
            width: self.width.map(usize::from).or_else(terminal).unwrap_or(defaults.width),
            color: match self.color {
                When::Auto => on_terminal && !no_color,
                When::Always => true,
                When::Never => false,
            },
        }
    }
}

/// Writes to standard output.
pub(super) fn write_stdout(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| cannot_write(e, Path::new("standard output")))
}

fn cannot_write(error: io::Error, path: &Path) -> Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return error.into();
    }
    let kind = error.kind();
    Error::new(ErrorKind::Io(io::Error::new(kind, format!("cannot write: {error}")))).at_path(path)
}

/// Whether this is a device, a pipe or the like, which is written to and never replaced.
fn is_special(path: &Path) -> bool {
    path.starts_with("/dev") || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
}

/// Where a chain of links ends, whether or not there is a file yet.
fn resolved(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        match fs::read_link(&at) {
            Ok(target) => at = at.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => break,
        }
    }
    at
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn check_place(path: &Path) -> io::Result<()> {
    if is_special(path) {
        return Ok(());
    }
    let path = resolved(path);
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    let folder = folder_of(&path);
    if !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no folder {}", folder.display())));
    }
    if path.exists() {
        // Renaming over a file that is not ours to write would succeed: ask first.
        File::options().write(true).open(&path)?;
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    check_place(path)?;
    if is_special(path) {
        return File::options().write(true).open(path)?.write_all(bytes);
    }
    let path = resolved(path);
    let mut beside = interrupt::begin(|| beside(&path).tempfile_in(folder_of(&path)))?;
    beside.write_all(bytes)?;
    if let Ok(old) = path.metadata() {
        beside.as_file().set_permissions(old.permissions())?;
    }
    // A full disk or a lost mount may only show here; the old file still stands.
    beside.as_file().sync_all()?;
    beside.persist(&path).map_err(|e| e.error)?;
    Ok(())
}

/// A file beside `path` with the permissions that a new file would have.
fn beside(_path: &Path) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tracetool-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What the user's umask leaves of it.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        write_file(&path, b"old and long").unwrap();
        let mut permissions = path.metadata().unwrap().permissions();
        #[cfg(unix)]
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o100_640);
        fs::set_permissions(&path, permissions.clone()).unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(path.metadata().unwrap().permissions(), permissions);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_folder_or_a_missing_folder_is_said_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_file(folder.path(), b"x").unwrap_err();
        assert_eq!(error.to_string(), "it is a folder");
        let error = write_file(&folder.path().join("no/such/file"), b"x").unwrap_err();
        assert!(error.to_string().contains("there is no folder"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        write_file(&link, b"x").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"x");
        assert!(link.is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_written_and_not_replaced() {
        write_file(Path::new("/dev/null"), b"x").unwrap();
        assert!(is_special(Path::new("/dev/null")));
    }
}
