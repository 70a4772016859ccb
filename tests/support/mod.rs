//! What integration tests share.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

pub mod dump;
pub mod lenient;
pub mod slow_reader;

use std::path::{Path, PathBuf};

/// A file of this repository's `testdata`.
pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// The larger recorded traces, kept beside the repository; `None` where they are not there.
pub fn shared_traces() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    folder.is_dir().then_some(folder)
}
