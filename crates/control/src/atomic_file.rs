//! Files that are replaced as a whole: whatever moment the process or the machine ends at, the old content or the new one is there.
//!
//! ```text
//! write a file beside it → sync it → rename it over the old one → sync the folder
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest file that is written and read. States of providers have a bound of a quarter of it, before they are written as JSON.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads a file. Returns `None` if there is none.
///
/// # Errors
/// It cannot be read, is no regular file or is too large.
pub(crate) fn read_file(path: &Path) -> io::Result<Option<String>> {
    let file = match config::open_file(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some(text))
}

/// Checks that a content is not too large to be read again.
///
/// # Errors
/// It is too large.
fn check_size(text: &[u8]) -> io::Result<()> {
    match text.len() as u64 >= FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it would be larger than {FILE_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

/// A new content that is on the disk, but not yet in its place. Dropping it removes it.
#[derive(Debug)]
pub struct Staged {
    folder: PathBuf,
    name: String,
    beside: Option<PathBuf>,
}

/// Returns the place of the new content. Each process has its own: during an upgrade two of them write the same file, and neither must
/// put what the other has half written in its place.
fn beside(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{}.new", std::process::id()))
}

/// Removes what processes that were killed in the middle of writing have left behind.
pub(crate) fn sweep(folder: &Path, name: &str) {
    let is_alive = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    if !is_alive(std::process::id()) {
        // Nothing is known of any process.
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix('.'));
        let pid = rest.and_then(|rest| rest.strip_suffix(".new")?.parse().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            // It is tried again another time.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a new content beside a file.
///
/// # Errors
/// The disk is full, the folder cannot be written, the content is too large to be read again.
pub(crate) fn stage_file(folder: &Path, name: &str, text: &[u8]) -> io::Result<Staged> {
    check_size(text)?;
    let beside = beside(folder, name);
    let staged = Staged { folder: folder.to_owned(), name: name.to_owned(), beside: Some(beside.clone()) };
    // What a killed process left behind, or another program put there, is not written into, nor where it leads.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // It may hold secrets that were sent.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    Ok(staged)
}

impl Staged {
    /// Renames it over the old content.
    ///
    /// # Errors
    /// What the system says; the old one may still be there.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(beside) = &self.beside {
            fs::rename(beside, self.folder.join(&self.name))?;
        }
        self.beside = None;
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // It may not even have been made.
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "changes.json";

    #[test]
    fn what_lies_in_the_way_is_neither_written_nor_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::TempDir::new().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        symlink(&elsewhere, beside(folder.path(), FILE)).unwrap();
        stage_file(folder.path(), FILE, b"{}").unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        let beside = beside(folder.path(), FILE);
        fs::write(&beside, "half").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
        stage_file(folder.path(), FILE, b"{}").unwrap().finish().unwrap();
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_another_process_writes_is_left_alone_until_it_is_gone() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (alive, dead) = ("changes.json.1.new", format!("changes.json.{}.new", u32::MAX));
        for name in [alive, &dead, "changes.json", "history.json.new"] {
            fs::write(path(name), "half").unwrap();
        }
        stage_file(folder.path(), FILE, b"{}").unwrap().finish().unwrap();
        sweep(folder.path(), FILE);
        assert_eq!(fs::read_to_string(path(alive)).unwrap(), "half");
        assert!(!path(&dead).exists() && path("changes.json").exists() && path("history.json.new").exists());
    }
}
