//! The texts of the repository.

use std::path::{Path, PathBuf};

use equipoise_tests::repository;

/// Folders that hold what is built, fetched or found, not what is written.
const NOT_OURS: &[&str] = &["target", ".git", "corpus", "artifacts", "out", ".peers", "node_modules"];

/// One text.
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Where a byte is, as messages show it.
    pub(crate) fn place(&self, byte: usize) -> String {
        format!("{}:{}", self.path, line_of(&self.text, byte))
    }

    /// Whether it holds tests and nothing else.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || name == "tests.rs"
            || name == "testing.rs"
            || name.ends_with("_tests.rs")
    }
}

/// The line of a byte, from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// All texts below these folders or at these paths whose names end in one of `endings`, sorted.
pub(crate) fn below(places: &[&str], endings: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    for place in places {
        collect(&repository().join(place), endings, &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "nothing was found below {places:?}: this test has lost its subject");
    found
}

/// All Rust sources.
pub(crate) fn sources() -> Vec<File> {
    below(&["crates", "lab", "tests", "fuzz"], &[".rs"])
}

/// Rust sources of the product.
pub(crate) fn product() -> Vec<File> {
    below(&["crates"], &[".rs"])
}

/// One text that must be there.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Writes one text that is there.
pub(crate) fn write(path: &str, text: &str) {
    std::fs::write(repository().join(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Names in a folder, sorted.
pub(crate) fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(repository().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn collect(path: &Path, endings: &[&str], found: &mut Vec<File>) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_dir() {
        if NOT_OURS.iter().any(|other| name == *other || name.starts_with(".peers")) {
            return;
        }
        let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for entry in entries {
            collect(&entry.expect("an entry").path(), endings, found);
        }
    } else if endings.iter().any(|ending| name.ends_with(ending))
        && let Ok(text) = std::fs::read_to_string(path)
    {
        found.push(File { path: relative(path), text });
    }
}

fn relative(path: &Path) -> String {
    let inner: PathBuf = path.strip_prefix(repository()).expect("below the root").to_path_buf();
    inner.to_string_lossy().replace('\\', "/")
}
