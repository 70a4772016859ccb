//! The text of Python files that a trace names, from folders that the user names and from nowhere else.

use crate::error::{Error, Result};
use hashbrown::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file larger than this is no source that anyone wrote.
const LARGEST: u64 = 16 << 20;
/// How many folders deep a name is looked for.
const DEEPEST: usize = 64;

/// Folders with Python files, and what was found in them.
#[derive(Debug, Default)]
pub struct PythonFiles {
    roots: Vec<PathBuf>,
    found: HashMap<String, Option<Vec<String>>>,
}

impl PythonFiles {
    /// In these folders.
    ///
    /// # Errors
    ///
    /// Where one of them is no folder.
    pub fn in_folders(folders: &[PathBuf]) -> Result<Self> {
        let resolved = |folder: &PathBuf| {
            let root = fs::canonicalize(folder).map_err(|e| Error::from(e).at_path(folder))?;
            if root.is_dir() { Ok(root) } else { Err(Error::format("a folder", "a file").at_path(folder)) }
        };
        Ok(Self { roots: folders.iter().map(resolved).collect::<Result<_>>()?, found: HashMap::new() })
    }

    /// The text of line `line`, from 1, of the file that the trace calls `file`: the one with the longest part of that
    /// path, from its end, below a folder.
    pub fn line(&mut self, file: &str, line: u64) -> Option<&str> {
        if !self.found.contains_key(file) {
            let text = self.roots.iter().find_map(|root| find(root, file));
            let lines = text.map(|text| text.lines().map(str::to_owned).collect());
            self.found.insert(file.to_owned(), lines);
        }
        let lines = self.found.get(file)?.as_ref()?;
        lines.get(usize::try_from(line).ok()?.checked_sub(1)?).map(String::as_str)
    }
}

fn find(root: &Path, file: &str) -> Option<String> {
    let parts: Vec<&str> = file.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return None;
    }
    (parts.len().saturating_sub(DEEPEST)..parts.len()).find_map(|from| {
        let path = fs::canonicalize(parts[from..].iter().fold(root.to_owned(), |at, part| at.join(part))).ok()?;
        // A link may lead out of the folder.
        let meta = path.starts_with(root).then(|| path.metadata().ok())??;
        let text = (meta.is_file() && meta.len() <= LARGEST).then(|| fs::read(&path).ok())??;
        Some(String::from_utf8_lossy(&text).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_the_end_of_their_path_and_never_outside_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("pkg")).unwrap();
        fs::write(root.join("pkg/a.py"), "one\n  two\n").unwrap();
        fs::write(folder.path().join("secret.py"), "secret\n").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("../secret.py", root.join("link.py")).unwrap();
        let mut files = PythonFiles::in_folders(std::slice::from_ref(&root)).unwrap();
        assert_eq!(files.line("/home/x/pkg/a.py", 2), Some("  two"));
        assert_eq!(files.line("C:\\x\\pkg\\a.py", 1), Some("one"));
        assert_eq!(files.line("pkg/a.py", 0), None);
        assert_eq!(files.line("pkg/a.py", 3), None);
        let secret = folder.path().join("secret.py");
        for outside in ["../secret.py", "link.py", "a.py", "pkg", "", secret.to_str().unwrap()] {
            assert_eq!(files.line(outside, 1), None, "{outside}");
        }
        assert!(PythonFiles::in_folders(&[secret]).is_err());
    }
}
