//! The texts that were read, and places in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which of the [`Documents`] a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// A place on one line of a document. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The document.
    pub file: FileId,
    /// The line; 0 stands for the document as a whole.
    pub line: u32,
    /// The first character.
    pub column: u32,
    /// One after the last character on that line.
    pub end: u32,
}

impl Span {
    /// Returns the document as a whole.
    pub(crate) fn whole(file: FileId) -> Self {
        Self { file, line: 0, column: 0, end: 0 }
    }
}

/// One text.
#[derive(Clone, Debug)]
pub struct Document {
    /// The path or name as messages show it.
    pub name: String,
    /// Where relative paths in it start.
    pub folder: PathBuf,
    /// The text, byte order mark left out.
    pub text: Arc<str>,
    /// Whether it was read from a file (and can be watched).
    pub on_disk: bool,
}

/// What the names of the texts of providers begin with.
pub(crate) const PROVIDER: &str = "provider:";

impl Document {
    /// Returns whether a line of it may be shown where something is wrong with it. What providers give may hold secrets, and what is wrong
    /// with it is reported to others than those who may see them.
    pub(crate) fn shows_lines(&self) -> bool {
        !self.name.starts_with(PROVIDER)
    }
}

/// All texts of one configuration, the main one first.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    list: Vec<Document>,
    folders: Vec<PathBuf>,
}

impl Documents {
    pub(crate) fn add(&mut self, document: Document) -> FileId {
        let id = FileId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(document);
        id
    }

    pub(crate) fn add_folder(&mut self, folder: &Path) {
        if !self.folders.iter().any(|known| known == folder) {
            self.folders.push(folder.to_owned());
        }
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&Document> {
        self.list.get(file.0 as usize)
    }

    /// Returns the main text.
    pub(crate) fn main(&self) -> Option<&Document> {
        self.list.first()
    }

    /// Returns the texts, the main one first, included ones as they were met.
    pub fn iter(&self) -> impl Iterator<Item = &Document> {
        self.list.iter()
    }

    /// Returns what to watch for changes: every file that was read, and every folder that an `include` looked into.
    pub fn watched(&self) -> Vec<PathBuf> {
        let files = self.list.iter().filter(|document| document.on_disk).map(|document| PathBuf::from(&document.name));
        files.chain(self.folders.iter().cloned()).collect()
    }
}

/// Splits a text at line ends as YAML sees them: line feed, carriage return, or both.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let width = if text[at..].starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&text[at + width..]);
        Some(&text[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_any_of_the_three_line_ends() {
        assert_eq!(lines("a\nb\r\nc\rd").collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(lines("").collect::<Vec<_>>(), [""]);
        assert_eq!(lines("\n\n").collect::<Vec<_>>(), ["", "", ""]);
    }
}
