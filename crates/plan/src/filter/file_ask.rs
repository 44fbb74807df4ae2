//! What is asked of the file system, and what it answers. The data plane looks, on threads beside the workers.

use std::fmt;
use std::sync::Arc;

use super::Content;

/// A look for a file below a directory.
#[derive(Clone, Debug)]
pub struct FileAsk {
    /// Where it is looked for, and how.
    pub root: Arc<FileRoot>,
    /// The path below the root, decoded: without a slash at its beginning, empty or dotted segments, and NUL. With a slash at its end, and
    /// where it is empty, a directory is asked for.
    pub path: Vec<u8>,
    /// Codings of files beside it that the client takes, best first: the ends of their names, such as `.br`.
    pub codings: Vec<&'static str>,
}

/// Two are equal if they are the same.
impl PartialEq for FileAsk {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for FileAsk {}

/// A directory whose files are served.
#[derive(Clone, Debug)]
pub struct FileRoot {
    /// Its absolute path. It may be a symbolic link itself.
    pub directory: String,
    /// What is done about symbolic links below it.
    pub symlinks: Symlinks,
    /// Names of files that stand for their directory, the first that is there.
    pub index: Vec<String>,
    /// The path below the root of the file that stands for those that are not there.
    pub fallback: Option<String>,
    /// Bound on the entries of a directory without an index that are listed; 0: such a directory is missing.
    pub entries_max: usize,
}

/// What is done about symbolic links below a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlinks {
    /// None is followed.
    Refuse,
    /// Those are followed that are relative, and stay below the root all the way.
    Beneath,
    /// All are followed.
    Follow,
}

/// What a look came to.
#[derive(Debug)]
pub enum FileFound {
    /// A regular file.
    File(Box<OpenedFile>),
    /// A directory without an index, where those are listed.
    Directory(Vec<DirectoryEntry>),
    /// A directory, asked for without a slash at its end.
    WithoutSlash,
    /// Nothing that may be served.
    Missing,
    /// The process may not read it.
    Denied,
    /// Too many look, too many files are open, or the disk takes too long.
    Busy,
    /// It cannot be read.
    Failed,
}

/// A file that is open, or was read.
#[derive(Clone)]
pub struct OpenedFile {
    /// Its bytes, if they are in memory: all of a small file.
    pub bytes: Option<Arc<[u8]>>,
    /// What it is read from, if they are not.
    pub content: Option<Arc<dyn Content>>,
    /// Its length in bytes.
    pub length: u64,
    /// When it was changed: seconds since 1970, and nanoseconds of that second.
    pub modified: (u64, u32),
    /// The name that its type goes by: of a file beside another that of the other.
    pub name: Vec<u8>,
    /// The end of the name of the file beside it that this is.
    pub coding: Option<&'static str>,
}

impl fmt::Debug for OpenedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, modified, coding, .. } = self;
        let mut shown = f.debug_struct("OpenedFile");
        shown.field("length", length).field("modified", modified).field("coding", coding).finish_non_exhaustive()
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// It is a directory itself.
    pub is_directory: bool,
    /// Its length in bytes.
    pub length: u64,
    /// When it was changed, in seconds since 1970.
    pub modified: u64,
}
