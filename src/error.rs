//! What went wrong, where, and what to do about it.
//!
//! An [`Error`] ends the work; something odd in an otherwise readable input is a
//! [`Diagnostic`](crate::trace::Diagnostic) instead.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of anything that reads or writes.
pub type Result<T> = std::result::Result<T, Error>;

/// An error with the file and the place in it.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    offset: Option<u64>,
}

/// The kinds of error. More may come.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system said no.
    Io(io::Error),
    /// The input is not what was expected.
    Format {
        /// What the reader looked for.
        expected: String,
        /// What was there instead.
        found: String,
        /// What the user can do about it.
        hint: Option<String>,
    },
    /// The input holds what was expected, but not what this command needs.
    Missing {
        /// What is not there.
        what: String,
        /// What brings it, such as a profiler flag.
        hint: Option<String>,
    },
    /// An option or argument is wrong.
    Usage(String),
    /// A limit was reached.
    Limit(String),
}

impl Error {
    /// An error of this kind, with no place yet.
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner { kind, path: None, offset: None }))
    }

    /// The input is not `expected` but `found`.
    pub fn format(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(ErrorKind::Format { expected: expected.into(), found: found.into(), hint: None })
    }

    /// The input lacks `what`; `hint` says what would bring it.
    pub fn missing(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorKind::Missing { what: what.into(), hint: Some(hint.into()) })
    }

    /// An option or argument is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage(message.into()))
    }

    /// The same error, in this file.
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// The same error, at this byte of the (inflated) input.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// The same error, with what to do about it.
    #[must_use]
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let ErrorKind::Format { hint, .. } | ErrorKind::Missing { hint, .. } = &mut self.0.kind {
            hint.get_or_insert_with(|| text.into());
        }
        self
    }

    /// What kind of error this is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The file it is about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte of the (inflated) input it is about.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Whether the reader of our output went away, which is no error of ours.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(&self.0.kind, ErrorKind::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::new(ErrorKind::Io(error))
    }
}

impl fmt::Display for Error {
    /// One line: file, what was expected and found, where, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(f, "{}: ", path.display())?;
        }
        let hint = match &self.0.kind {
            ErrorKind::Io(error) => {
                write!(f, "{error}")?;
                None
            }
            ErrorKind::Format { expected, found, hint } => {
                write!(f, "expected {expected}, found {found}")?;
                hint.as_ref()
            }
            ErrorKind::Missing { what, hint } => {
                write!(f, "{what}")?;
                hint.as_ref()
            }
            ErrorKind::Usage(message) | ErrorKind::Limit(message) => {
                write!(f, "{message}")?;
                None
            }
        };
        if let Some(offset) = self.0.offset {
            write!(f, ", at byte {offset}")?;
        }
        if let Some(hint) = hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}
