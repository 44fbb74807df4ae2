//! What was changed by the API, kept in a file, so that it is there again after a start.
//!
//! ```text
//! write a file beside it → sync it → publish → rename it over the old one → sync the folder
//! ```
//! Whatever moment the process or the machine ends at, the old file or the new one is there, whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::Changes;
use serde::{Deserialize, Serialize};

use crate::names::Moved;
use crate::providers::Given;
use crate::wishes::Wishes;

/// Name of the file in the folder for it.
pub(crate) const FILE: &str = "changes.json";
/// The version of what is written.
const FORMAT: u32 = 1;
/// Largest file that is kept, and read. States of providers have a bound of a quarter of it, before they are written as JSON.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Largest number of a generation that is believed: the history takes twice as many.
const GENERATION_MAX: u64 = 1 << 52;

/// What is wanted beside the files of the configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Desired {
    /// Objects that stand in the place of those in the files.
    pub changes: Changes,
    /// What is wished of endpoints.
    pub wishes: Wishes,
    /// What providers give, which is kept elsewhere.
    #[serde(skip)]
    pub(crate) given: Given,
    /// Endpoints whose host names have other addresses than when the files were read. A start looks all names up.
    #[serde(skip)]
    pub(crate) moved: Moved,
}

/// As far as it is kept here.
impl PartialEq for Desired {
    fn eq(&self, other: &Self) -> bool {
        (&self.changes, &self.wishes) == (&other.changes, &other.wishes)
    }
}

impl Desired {
    /// Whether nothing is changed and nothing wished by the API.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.wishes.is_empty()
    }
}

#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    /// The generation that brought it; 0 where it was not written down. The history may be older, or away.
    #[serde(default)]
    generation: u64,
    #[serde(flatten)]
    desired: Desired,
}

/// Reads what is kept in a folder. Nothing is kept where there is no file.
///
/// # Errors
/// The file is there and cannot be read or understood.
pub fn read(folder: &Path) -> io::Result<Desired> {
    read_counted(folder).map(|(desired, _)| desired)
}

/// The same, and the generation that brought it; 0 if nobody knows.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_counted(folder: &Path) -> io::Result<(Desired, u64)> {
    let path = folder.join(FILE);
    let named = |error: String| io::Error::other(format!("{}: {error}", path.display()));
    let Some(text) = read_file(&path).map_err(|error| named(error.to_string()))? else { return Ok(<_>::default()) };
    let kept: Kept = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    if kept.format != FORMAT {
        return Err(named(format!("its format is {}, and this program knows {FORMAT}", kept.format)));
    }
    Ok((kept.desired, kept.generation.min(GENERATION_MAX)))
}

/// Reads a file that was kept. `None`: there is none.
///
/// # Errors
/// It cannot be read, or is none that was kept.
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

/// What is larger would not be read again.
///
/// # Errors
/// It is.
pub(crate) fn check_size(text: &[u8]) -> io::Result<()> {
    match text.len() as u64 >= FILE_BYTES_MAX {
        true => Err(io::Error::other(format!("it would be larger than {FILE_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

/// A new content that is on the disk, but not yet in its place. Dropping it takes it away.
#[derive(Debug)]
pub struct Staged {
    folder: PathBuf,
    name: &'static str,
    beside: Option<PathBuf>,
}

/// Writes a new content, which this generation brings, beside the old one.
///
/// # Errors
/// The disk is full, the folder cannot be written.
pub fn stage(folder: &Path, desired: &Desired, generation: u64) -> io::Result<Staged> {
    let kept = Kept { format: FORMAT, generation, desired: desired.clone() };
    let text = serde_json::to_string_pretty(&kept).map_err(io::Error::other)?;
    stage_file(folder, FILE, text.as_bytes())
}

/// Of each process another: during an upgrade two of them keep the same, and neither is to put what the other has half written in
/// its place.
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

/// Writes a new content beside any file that is kept.
///
/// # Errors
/// As [`stage`].
pub(crate) fn stage_file(folder: &Path, name: &'static str, text: &[u8]) -> io::Result<Staged> {
    check_size(text)?;
    let beside = beside(folder, name);
    let staged = Staged { folder: folder.to_owned(), name, beside: Some(beside.clone()) };
    // It may hold secrets that were sent.
    // What a process that was killed left behind, or somebody else put there, is not written into, nor where it leads.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    Ok(staged)
}

impl Staged {
    /// Puts it in the place of the old one.
    ///
    /// # Errors
    /// What the system says; the old one may still be there.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(beside) = &self.beside {
            fs::rename(beside, self.folder.join(self.name))?;
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
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_is_kept_is_read_back_and_what_is_not_finished_leaves_the_old_one() {
        let folder = tempfile::TempDir::new().unwrap();
        let folder = folder.path();
        assert!(read(folder).unwrap().is_empty());
        let mut desired = Desired::default();
        desired.wishes.set(("a", "b:1"), Some("drain"), "me", SystemTime::UNIX_EPOCH);
        stage(folder, &desired, 1).unwrap().finish().unwrap();
        assert_eq!(read(folder).unwrap(), desired);
        let mut other = desired.clone();
        other.wishes.set(("a", "c:1"), Some("up"), "me", SystemTime::UNIX_EPOCH);
        drop(stage(folder, &other, 2).unwrap());
        assert_eq!(read(folder).unwrap(), desired, "it was not published");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left behind");
        // What this process left behind is written over.
        fs::write(beside(folder, FILE), "half").unwrap();
        stage(folder, &other, 2).unwrap().finish().unwrap();
        assert_eq!(read(folder).unwrap(), other);
    }

    #[test]
    fn the_generation_is_read_back_and_one_that_nobody_counts_to_is_not_believed() {
        let folder = tempfile::TempDir::new().unwrap();
        let folder = folder.path();
        let counted = || read_counted(folder).unwrap().1;
        assert_eq!(counted(), 0, "nothing is kept");
        stage(folder, &Desired::default(), 43).unwrap().finish().unwrap();
        assert_eq!(counted(), 43);
        fs::write(folder.join(FILE), r#"{"format":1,"changes":{},"wishes":[]}"#).unwrap();
        assert_eq!(counted(), 0, "as it was written once");
        stage(folder, &Desired::default(), u64::MAX).unwrap().finish().unwrap();
        assert_eq!(counted(), GENERATION_MAX);
    }

    #[test]
    fn what_lies_in_the_way_is_neither_written_nor_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::TempDir::new().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        symlink(&elsewhere, beside(folder.path(), FILE)).unwrap();
        stage(folder.path(), &Desired::default(), 1).unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        let beside = beside(folder.path(), FILE);
        fs::write(&beside, "half").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
        stage(folder.path(), &Desired::default(), 1).unwrap().finish().unwrap();
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
        stage(folder.path(), &Desired::default(), 1).unwrap().finish().unwrap();
        sweep(folder.path(), FILE);
        assert_eq!(fs::read_to_string(path(alive)).unwrap(), "half");
        assert!(!path(&dead).exists() && path("changes.json").exists() && path("history.json.new").exists());
    }

    #[test]
    fn a_file_that_is_not_understood_is_an_error_that_names_it() {
        let folder = tempfile::TempDir::new().unwrap();
        for (text, message) in [("{", "EOF"), ("{\"format\": 2, \"changes\": {}, \"wishes\": []}", "its format is 2")] {
            fs::write(folder.path().join(FILE), text).unwrap();
            let error = read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("changes.json") && error.contains(message), "{error}");
        }
        let place = folder.path().join(FILE);
        fs::remove_file(&place).unwrap();
        std::os::unix::net::UnixListener::bind(&place).unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().ends_with("it is not a file"));
        fs::remove_file(&place).unwrap();
        File::create(&place).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().ends_with("it is larger than 268435456 bytes"));
    }
}
