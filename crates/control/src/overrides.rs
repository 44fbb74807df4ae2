//! Overrides: what the API changed beside the files of the configuration, saved in a file so that a restart finds it.
//!
//! It is written beside the old file before the data plane takes it, and replaces that afterwards: see [`atomic_file`](crate::atomic_file).

use std::io;
use std::path::Path;

use config::Changes;
use serde::{Deserialize, Serialize};

use crate::admin_state::Wishes;
use crate::atomic_file::{Staged, read_file, stage_file};
use crate::given::Given;
use crate::names::Moved;

/// Name of the file in the folder for it.
pub(crate) const FILE: &str = "changes.json";
/// The version of what is written.
const FORMAT: u32 = 1;
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

/// Writes a new content, which this generation brings, beside the old one.
///
/// # Errors
/// The disk is full, the folder cannot be written.
pub fn stage(folder: &Path, desired: &Desired, generation: u64) -> io::Result<Staged> {
    let kept = Kept { format: FORMAT, generation, desired: desired.clone() };
    let text = serde_json::to_string_pretty(&kept).map_err(io::Error::other)?;
    stage_file(folder, FILE, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::SystemTime;

    use super::*;
    use crate::atomic_file::FILE_BYTES_MAX;

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
        fs::write(folder.join(format!("{FILE}.{}.new", std::process::id())), "half").unwrap();
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
