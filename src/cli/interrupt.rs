//! Ctrl-C and the like. While a file is written, what is half written beside its place goes with the program; while
//! something is recorded, the first ends the recording and the program goes on with what it has.
//!
//! Until either begins, signals do what they do by default. Where the embedding program handles them itself, that stands.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

/// What shells report of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

static STATE: Mutex<State> = Mutex::new(State { unfinished: None, recording: None });
static ASKED: Condvar = Condvar::new();

struct State {
    /// The file that was begun last. Its name is random, so once it is renamed there is none of this name.
    unfinished: Option<PathBuf>,
    /// Whether a recording that runs was asked to end.
    recording: Option<bool>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where Ctrl-C is ignored, as in a script's background jobs, it stays so; being told to end is heeded all the same.
fn handle() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        let _ = ctrlc::try_set_handler(interrupted);
        #[cfg(unix)]
        terminated();
    });
}

#[cfg(unix)]
fn terminated() {
    if let Ok(mut signals) = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]) {
        std::thread::spawn(move || signals.forever().for_each(|_| interrupted()));
    }
}

/// Makes a file that is removed if the program is interrupted before it has another name.
pub(super) fn begin(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<NamedTempFile> {
    handle();
    // Held while the file is made: a signal then waits until it is known what to remove.
    let mut state = state();
    let file = make()?;
    state.unfinished = Some(file.path().to_owned());
    Ok(file)
}

/// The end of a recording, which an interruption asks for where it would end the program.
pub(super) struct Ending(());

impl Ending {
    /// From now on.
    pub(super) fn begin() -> Self {
        // `kill -INT` is how a script ends a recording that it began in the background, where Ctrl-C is ignored.
        let _ = ctrlc::set_handler(interrupted);
        handle();
        state().recording = Some(false);
        Self(())
    }

    /// Waits for that long, or until it is asked to end; whether it was.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let goes_on = |state: &mut State| state.recording == Some(false);
        let waited = ASKED.wait_timeout_while(state(), time, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.recording == Some(true)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        state().recording = None;
    }
}

/// Ends the recording, or else removes what is half written and ends the program. Runs on a thread of its own.
fn interrupted() {
    let mut state = state();
    // Who asks twice does not want to wait for a driver that hangs.
    if state.recording == Some(false) {
        state.recording = Some(true);
        ASKED.notify_all();
        return;
    }
    if let Some(path) = &state.unfinished {
        // It may have its final name by now, which is as good.
        let _ = fs::remove_file(path);
    }
    std::process::exit(INTERRUPTED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_recording_waits_for_its_time_and_no_longer_than_it_is_asked_to() {
        let recording = Ending::begin();
        assert!(!recording.wait(Duration::from_millis(1)));
        let begun = Instant::now();
        std::thread::spawn(interrupted);
        assert!(recording.wait(Duration::from_secs(60)));
        assert!(begun.elapsed() < Duration::from_secs(50));
        drop(recording);
        assert_eq!(state().recording, None, "the next interruption ends the program");
    }
}
