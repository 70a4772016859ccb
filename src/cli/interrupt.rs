//! Ctrl-C and the like while a file is written: what is half written beside its place goes with the program.
//!
//! Until a file is begun, signals do what they do by default. Where the embedding program handles them itself, that
//! stands.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tempfile::NamedTempFile;

/// What shells report of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// The file that was begun last. Its name is random, so once it is renamed there is none of this name.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn unfinished() -> MutexGuard<'static, Option<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a file that is removed if the program is interrupted before it has another name.
pub(super) fn begin(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<NamedTempFile> {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| drop(ctrlc::try_set_handler(end)));
    // Held while the file is made: a signal then waits until it is known what to remove.
    let mut unfinished = unfinished();
    let file = make()?;
    *unfinished = Some(file.path().to_owned());
    Ok(file)
}

/// Removes what is half written and ends the program. Runs on a thread of its own.
fn end() {
    let unfinished = unfinished();
    if let Some(path) = &*unfinished {
        // It may have its final name by now, which is as good.
        let _ = fs::remove_file(path);
    }
    std::process::exit(INTERRUPTED);
}
