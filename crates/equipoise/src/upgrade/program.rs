//! The program that is to follow: the file by which this one was started, which may hold another by then.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Found at the start, before anyone replaces the file.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

impl Program {
    /// Returns the path of this program. Symbolic links are kept as given, because an upgrade may switch the link.
    pub(crate) fn of_this_process() -> Option<Self> {
        let mut arguments = std::env::args_os();
        let name = arguments.next()?;
        let running = std::env::current_exe().ok()?;
        let path = as_called(&name, &running).unwrap_or(running);
        Some(Self { path, arguments: arguments.collect() })
    }
}

/// Returns the path by which the running file was called, if it is that.
fn as_called(name: &OsString, running: &Path) -> Option<PathBuf> {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let wanted = id(running)?;
    let is_it = |path: &PathBuf| id(path) == Some(wanted);
    if name.as_bytes().contains(&b'/') {
        // The folder of a process may be changed by no one but itself; a whole path is easier to tell of.
        return std::path::absolute(name).ok().filter(is_it);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_kept_as_it_was_called_and_a_name_that_is_another_file_is_not_believed() {
        let folder = std::env::temp_dir().join(format!("equipoise-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (real, link, other) = (folder.join("v1"), folder.join("current"), folder.join("other"));
        std::fs::write(&real, "1").unwrap();
        std::fs::write(&other, "2").unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(as_called(&link.clone().into(), &real), Some(link));
        assert_eq!(as_called(&other.into(), &real), None);
        assert_eq!(as_called(&"no-such-program-anywhere".into(), &real), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
