//! The files of the configuration itself, where they are watched: `watch: true`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::watch::{CLOCK_GRAIN, Stamp};

type Look = BTreeMap<PathBuf, Option<Stamp>>;

/// How the files looked.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Files, and folders that an `include` looked into.
    roots: Vec<PathBuf>,
    taken: Look,
    /// The look before, if it was another than what was taken.
    before: Option<Look>,
    /// They may have been written while they were read.
    is_suspect: bool,
}

impl Watched {
    pub(super) fn of(roots: Vec<PathBuf>, read_from: SystemTime) -> Self {
        let taken = look(&roots);
        let is_suspect = is_younger(&taken, read_from);
        Self { roots, taken, before: None, is_suspect }
    }

    /// Watches these from now on. What came into folders that were watched already, or went, since they were read is still news.
    pub(super) fn follow(&mut self, roots: Vec<PathBuf>) {
        let stays = |file: &Path| roots.iter().any(|root| file == root || file.parent() == Some(root));
        self.taken.retain(|file, _| stays(file));
        let fresh: Vec<PathBuf> = roots.iter().filter(|root| !self.roots.contains(root)).cloned().collect();
        let found = look(&fresh);
        self.is_suspect |= is_younger(&found, SystemTime::now());
        for (file, stamp) in found {
            self.taken.entry(file).or_insert(stamp);
        }
        self.roots = roots;
    }

    /// Takes the files as they are now: they are about to be read.
    pub(super) fn take(&mut self) {
        (self.taken, self.before, self.is_suspect) = (look(&self.roots), None, false);
    }

    /// Whether something is other than it was taken, and the same at two looks.
    pub(super) fn look(&mut self) -> bool {
        let now = look(&self.roots);
        if now == self.taken && !self.is_suspect {
            self.before = None;
            return false;
        }
        if self.before.as_ref() != Some(&now) {
            self.before = Some(now);
            return false;
        }
        (self.taken, self.before, self.is_suspect) = (now, None, false);
        true
    }
}

/// Whether files may have been written after they were read, some time after `read_from`.
fn is_younger(files: &Look, read_from: SystemTime) -> bool {
    let since = read_from.checked_sub(CLOCK_GRAIN).unwrap_or(read_from);
    let since_ns = since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_nanos() as i128);
    files.values().any(|stamp| stamp.is_none_or(|stamp| stamp.modified_ns >= since_ns))
}

/// All files, as they look now.
fn look(roots: &[PathBuf]) -> Look {
    let mut all = Look::new();
    for root in roots {
        // A folder that cannot be read looks as if it were gone.
        let files = if root.is_dir() { config::files_in(root).unwrap_or_default() } else { vec![root.clone()] };
        all.extend(files.into_iter().map(|file| (file.clone(), Stamp::of(&file))));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_is_told_once_when_it_is_the_same_at_two_looks() {
        let folder = tempfile::TempDir::new().unwrap();
        let (main, more) = (folder.path().join("main.yaml"), folder.path().join("more"));
        fs::create_dir(&more).unwrap();
        fs::write(&main, "a").unwrap();
        let mut watched = Watched::of(vec![main.clone(), more.clone()], SystemTime::now());
        assert!(watched.is_suspect, "it was written just now");
        assert!(!watched.look() && watched.look() && !watched.look());
        fs::write(more.join("new.yaml"), "b").unwrap();
        assert!(!watched.look());
        fs::write(more.join("new.yaml"), "longer").unwrap();
        assert!(!watched.look(), "it is being written still");
        assert!(watched.look() && !watched.look());
        let other = folder.path().join("other.yaml");
        fs::write(&other, "c").unwrap();
        fs::write(&main, "changed").unwrap();
        watched.follow(vec![main.clone(), more.clone(), other]);
        assert!(!watched.look() && watched.look() && !watched.look(), "what is known is as it was taken");
        fs::remove_file(&main).unwrap();
        assert!(!watched.look() && watched.look() && !watched.look());
    }

    #[test]
    fn what_comes_into_a_folder_or_goes_between_reading_and_following_is_news() {
        let folder = tempfile::TempDir::new().unwrap();
        let roots = vec![folder.path().to_owned()];
        let (one, two) = (folder.path().join("one.yaml"), folder.path().join("two.yaml"));
        fs::write(&one, "a").unwrap();
        let mut watched = Watched::of(roots.clone(), SystemTime::now());
        assert!(!watched.look() && watched.look() && !watched.look());
        fs::write(&two, "b").unwrap();
        watched.follow(roots.clone());
        assert!(!watched.look() && watched.look() && !watched.look(), "it came");
        fs::remove_file(&one).unwrap();
        watched.follow(roots);
        assert!(!watched.look() && watched.look() && !watched.look(), "it went");
    }
}
