//! How far the reading is, on a terminal, for inputs that take longer than a blink.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What is read faster than this shows no progress.
const BLINK: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(100);

/// A progress bar on standard error, until it is dropped.
pub(super) struct Progress {
    read: Arc<AtomicU64>,
    watcher: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts to watch the reading of `path`, if anyone sees it.
    pub(super) fn start(path: &Path) -> Self {
        let read = Arc::new(AtomicU64::new(0));
        let size = path.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
        let watcher = std::io::stderr().is_terminal().then(|| {
            let (done, waits) = mpsc::channel();
            let counter = Arc::clone(&read);
            (done, thread::spawn(move || watch(&counter, size, &waits)))
        });
        Self { read, watcher }
    }

    /// Where the reader counts the bytes that it has taken from the file.
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.watcher.take() {
            drop(done);
            let _ = thread.join();
        }
    }
}

fn watch(read: &AtomicU64, size: Option<u64>, done: &mpsc::Receiver<()>) {
    let over = |wait| done.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
    if over(BLINK) {
        return;
    }
    let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr());
    let template = if size.is_some() {
        "reading {bar:30} {percent:>3}%  {binary_bytes_per_sec}"
    } else {
        "reading {spinner} {binary_bytes}  {binary_bytes_per_sec}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    loop {
        bar.set_position(read.load(Ordering::Relaxed));
        if over(TICK) {
            break;
        }
    }
    bar.finish_and_clear();
}
